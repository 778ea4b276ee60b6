"""An answer counts only once, in time, for its own call, and only from the client that was asked."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, CHANGES, EDIT, NOTES, Action, snapshot
from tests.interaction.consent.answers import ALWAYS, ONCE, REFUSALS
from tests.interaction.consent.routes import (
    HANDSHAKE_ROUTES,
    MODERN_ROUTES,
    NETWORK_ROUTES,
    REVISIONS,
    ROUTES,
    by_route_and_action,
)
from tests.interaction.consent.servers import HASTY, HASTY_SECONDS, Servers
from tests.interaction.raw_clients import (
    Call,
    HttpWire,
    Question,
    RawClient,
    connect_http,
    stdio_server,
    wait_until_time,
)
from tests.interaction.serving import by_route
from tests.tables import all_cases


def assert_alive_and_unchanged(client: RawClient, place: Path, before: Mapping[str, Any]) -> None:
    """Assert that the server still answers and that the folder is unchanged."""
    assert client.is_answered()
    assert snapshot(place) == before


def deny(client: RawClient, call: Call, question: Question) -> None:
    """Deny a question that is still open."""
    call.answer(question, REFUSALS["deny"])
    assert call.next_result().code == "execution_denied"


@pytest.mark.requirement("consent.changed")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_a_live_question_ends_at_the_time_limit_and_a_later_answer_has_no_effect(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route, HASTY) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        refusal = call.next_result()
        assert refusal.code == "execution_denied"
        assert "confirmation.timeout" in refusal.text
        assert_alive_and_unchanged(client, place, before)
        client.send_answer(question.identity, result=ONCE)
        assert_alive_and_unchanged(client, place, before)
        second_call = client.call(action.tool, action.arguments(place))
        assert second_call.next_question().identity != question.identity
        client.send_answer(question.identity, result=ONCE)
        assert second_call.next_result().code == "execution_denied"
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(MODERN_ROUTES)
def test_a_sealed_answer_after_the_time_limit_asks_again(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route, HASTY) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        wait_until_time(time.time() + HASTY_SECONDS)
        call.answer(question, ONCE)
        new_question = call.next_question()
        assert new_question.message == question.message
        assert new_question.state != question.state
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(MODERN_ROUTES)
def test_a_call_that_comes_again_without_an_answer_asks_again(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        empty_responses: list[Any] = [None, {}]
        for responses in empty_responses:
            call.retry(responses, question.state)
            assert call.next_question().message == question.message
            assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(ROUTES)
def test_a_refusal_cannot_be_taken_back(route: Route, action: Action, servers: Servers, place: Path) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        call.answer(question, REFUSALS["deny"])
        if client.is_modern:
            assert call.next_result().code == "execution_denied"
            call.answer(question, ONCE)
            assert call.next_question().message == question.message
        else:
            call.answer(question, ONCE)
            assert call.next_result().code == "execution_denied"
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_a_second_answer_to_a_live_question_has_no_effect(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        call.answer(question, ONCE)
        call.answer(question, ALWAYS)
        assert call.next_result().code is None
        client.send_answer(question.identity, result=ALWAYS)
        assert client.is_answered()
        assert action.times(place) == 1
        second_place = servers.place()
        before = snapshot(second_place)
        second_call = client.call(action.tool, action.arguments(second_place))
        second_question = second_call.next_question()
        client.send_answer(question.identity, result=ONCE)
        assert_alive_and_unchanged(client, second_place, before)
        deny(client, second_call, second_question)
        assert_alive_and_unchanged(client, second_place, before)


@pytest.mark.requirement("consent.bound")
@by_route(MODERN_ROUTES)
def test_a_sealed_answer_counts_only_once_even_if_nothing_has_changed(
    route: Route, servers: Servers, place: Path
) -> None:
    # Once the file has its old content again, nothing differs that the answer is bound to, so only its single use can
    # refuse it.
    old_content = (place / NOTES).read_bytes()
    digest = hashlib.sha256(old_content).hexdigest()
    arguments = {"file_path": str(place / NOTES), "content": "new", "expected_sha256": digest}
    with servers.client(route) as client:
        call = client.call("write_file", arguments)
        question = call.next_question()
        call.answer(question, ONCE)
        assert call.next_result().code is None
        (place / NOTES).write_bytes(old_content)
        before = snapshot(place)
        call.answer(question, ONCE)
        assert call.next_question().message == question.message
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_an_answer_to_a_question_that_was_not_asked_has_no_effect(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        for identity in (0, 1, 2, 3, "confirm"):
            client.send_answer(identity, result=ONCE)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        for identity in (99_999, -1, "no such question", "confirm"):
            client.send_answer(identity, result=ONCE)
        assert_alive_and_unchanged(client, place, before)
        deny(client, call, question)
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(route for route in NETWORK_ROUTES if not route.is_modern)
def test_another_client_cannot_answer_a_live_question(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client, servers.client(route) as other_client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        other_client.send_answer(question.identity, result=ONCE)
        assert other_client.is_answered()
        assert_alive_and_unchanged(client, place, before)
        deny(client, call, question)
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route(MODERN_ROUTES)
def test_an_answer_without_its_own_seal_asks_again(route: Route, servers: Servers) -> None:
    forgeries = ("no state", "empty state", "nonsense", "tampered", "unknown key")
    with servers.client(route) as client, all_cases() as case:
        for action, forgery in zip(cycle(ACTIONS), forgeries, strict=False):
            with case(f"{forgery}, to {action}"):
                place = servers.place()
                before = snapshot(place)
                call = client.call(action.tool, action.arguments(place))
                question = call.next_question()
                assert question.state is not None
                tampered_state = question.state[:-6] + ("A" if question.state[-6] != "A" else "B") + question.state[-5:]
                state = {"no state": None, "empty state": "", "nonsense": "v1.nonsense", "tampered": tampered_state}
                key = "somebody" if forgery == "unknown key" else question.identity
                call.retry({key: ONCE}, state.get(forgery, question.state))
                assert call.next_question().message == question.message
                assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(MODERN_ROUTES)
def test_the_answer_to_one_call_does_not_answer_another(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        other_place = servers.place()
        before = snapshot(other_place)
        first_question = client.call(action.tool, action.arguments(place)).next_question()
        second_call = client.call(action.tool, action.arguments(other_place))
        second_question = second_call.next_question()
        second_call.answer(first_question, ONCE)
        assert second_call.next_question().message == second_question.message
        assert_alive_and_unchanged(client, other_place, before)
        assert action.times(place) == 0


@pytest.mark.requirement("consent.bound")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_of_two_open_questions_each_answer_lets_its_own_call_go_on(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        other_place = servers.place()
        before = snapshot(place)
        first_call = client.call(action.tool, action.arguments(place))
        first_question = first_call.next_question()
        second_call = client.call(action.tool, action.arguments(other_place))
        second_question = second_call.next_question()
        assert first_question.identity != second_question.identity
        second_call.answer(second_question, ONCE)
        assert second_call.next_result().code is None
        assert action.times(other_place) == 1
        assert_alive_and_unchanged(client, place, before)
        deny(client, first_call, first_question)
        assert_alive_and_unchanged(client, place, before)
        servers.remember(other_place)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(ROUTES, CHANGES)
def test_a_file_that_changes_while_the_question_is_open_is_left_alone(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    assert action.file is not None
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        path = place / action.file
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody else's\nlast\n")
        before = snapshot(place)
        call.answer(question, ONCE)
        if client.is_modern:
            new_question = call.next_question()
            assert "somebody else's" in new_question.message
            assert new_question.state != question.state
        else:
            refusal = call.next_result()
            assert refusal.code == "file_changed_since_read"
            assert "was changed in the meantime" in refusal.text
        assert_alive_and_unchanged(client, place, before)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(NETWORK_ROUTES)
def test_a_client_that_goes_away_has_not_agreed(route: Route, action: Action, servers: Servers, place: Path) -> None:
    before = snapshot(place)
    with servers.client(route, HASTY) as client:
        client.call(action.tool, action.arguments(place)).next_question()
    with servers.client(route, HASTY) as other_client:
        assert_alive_and_unchanged(other_client, place, before)
        wait_until_time(time.time() + HASTY_SECONDS)
        assert_alive_and_unchanged(other_client, place, before)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(route for route in HANDSHAKE_ROUTES if route.transport == "http")
def test_a_session_that_is_ended_while_its_question_is_open_has_not_agreed(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    before = snapshot(place)
    wire = connect_http(servers.url(), route.transport)
    assert isinstance(wire, HttpWire)
    client = RawClient(wire, route.revision)
    client.initialize()
    question = client.call(action.tool, action.arguments(place)).next_question()
    wire.end_session()
    wire.close()
    with servers.client(route) as other_client:
        other_client.send_answer(question.identity, result=ONCE)
        assert_alive_and_unchanged(other_client, place, before)


@pytest.mark.requirement("consent.changed")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_stdio_client_that_dies_while_a_question_is_open_has_not_agreed(
    revision: str, servers: Servers, place: Path
) -> None:
    before = snapshot(place)
    with stdio_server(servers.root, None, servers.environment) as wire:
        client = RawClient(wire, revision)
        client.initialize()
        for action in ACTIONS:
            client.call(action.tool, action.arguments(place)).next_question()
        wire.close()
        assert wire.process.wait(20) == 0
    assert snapshot(place) == before


@pytest.mark.requirement("consent.bound")
@by_route(MODERN_ROUTES)
def test_a_sealed_answer_does_not_outlive_its_server(route: Route, servers: Servers, place: Path) -> None:
    before = snapshot(place)
    with servers.client(route) as client:
        question = client.call(EDIT.tool, EDIT.arguments(place)).next_question()
    with servers.client(route, HASTY) as other_client:
        call = other_client.call(EDIT.tool, EDIT.arguments(place))
        call.next_question()
        call.answer(question, ONCE)
        assert call.next_question().message == question.message
        assert_alive_and_unchanged(other_client, place, before)
