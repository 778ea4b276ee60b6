"""When an answer comes, how often, for what and from whom: only the right one, in time and once, counts."""

from __future__ import annotations

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


def still_served(client: RawClient, place: Path, before: Mapping[str, Any]) -> None:
    """The server lives, and nothing has happened."""
    assert client.is_answered()
    assert snapshot(place) == before


def deny(client: RawClient, call: Call, asked: Question) -> None:
    """End a question that is still open."""
    call.answer(asked, REFUSALS["deny"])
    assert call.next_result().code == "execution_denied"


@pytest.mark.requirement("consent.changed")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_a_live_question_ends_with_the_time_limit_and_a_later_answer_is_nothing(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route, HASTY) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        refused = call.next_result()
        assert refused.code == "execution_denied"
        assert "confirmation.timeout" in refused.text
        still_served(client, place, before)
        client.send_answer(asked.identity, result=ONCE)
        still_served(client, place, before)
        again = client.call(action.tool, action.arguments(place))
        assert again.next_question().identity != asked.identity
        client.send_answer(asked.identity, result=ONCE)
        assert again.next_result().code == "execution_denied"
        still_served(client, place, before)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(MODERN_ROUTES)
def test_a_sealed_answer_after_the_time_limit_asks_again(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route, HASTY) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        wait_until_time(time.time() + HASTY_SECONDS)
        call.answer(asked, ONCE)
        again = call.next_question()
        assert again.message == asked.message
        assert again.state != asked.state
        still_served(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(MODERN_ROUTES)
def test_a_call_that_comes_again_without_an_answer_asks_again(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        empty: list[Any] = [None, {}]
        for responses in empty:
            call.retry(responses, asked.state)
            assert call.next_question().message == asked.message
            still_served(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(ROUTES)
def test_a_refusal_cannot_be_taken_back(route: Route, action: Action, servers: Servers, place: Path) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        call.answer(asked, REFUSALS["deny"])
        if client.is_modern:
            assert call.next_result().code == "execution_denied"
            call.answer(asked, ONCE)
            assert call.next_question().message == asked.message
        else:
            call.answer(asked, ONCE)
            assert call.next_result().code == "execution_denied"
        still_served(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_a_second_answer_to_a_live_question_is_nothing(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        call.answer(asked, ONCE)
        call.answer(asked, ALWAYS)
        assert call.next_result().code is None
        client.send_answer(asked.identity, result=ALWAYS)
        assert client.is_answered()
        assert action.times(place) == 1
        second = servers.place()
        before = snapshot(second)
        again = client.call(action.tool, action.arguments(second))
        question = again.next_question()
        client.send_answer(asked.identity, result=ONCE)
        still_served(client, second, before)
        deny(client, again, question)
        still_served(client, second, before)


@pytest.mark.requirement("consent.bound")
@by_route(MODERN_ROUTES)
def test_a_sealed_answer_counts_once_though_everything_is_as_it_was(
    route: Route, servers: Servers, place: Path
) -> None:
    # Writing what is there already changes nothing that the answer is bound to, so only its single use can refuse it.
    arguments = {"file_path": str(place / NOTES), "content": (place / NOTES).read_text()}
    with servers.client(route) as client:
        call = client.call("write_file", arguments)
        asked = call.next_question()
        call.answer(asked, ONCE)
        assert call.next_result().code is None
        before = snapshot(place)
        call.answer(asked, ONCE)
        assert call.next_question().message == asked.message
        still_served(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_an_answer_to_a_question_that_was_not_asked_is_nothing(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        for identity in (0, 1, 2, 3, "confirm"):
            client.send_answer(identity, result=ONCE)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        for identity in (99_999, -1, "no such question", "confirm"):
            client.send_answer(identity, result=ONCE)
        still_served(client, place, before)
        deny(client, call, asked)
        still_served(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(route for route in NETWORK_ROUTES if not route.is_modern)
def test_another_client_cannot_answer_a_live_question(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client, servers.client(route) as other:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        other.send_answer(asked.identity, result=ONCE)
        assert other.is_answered()
        still_served(client, place, before)
        deny(client, call, asked)
        still_served(client, place, before)


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
                asked = call.next_question()
                assert asked.state is not None
                tampered = asked.state[:-6] + ("A" if asked.state[-6] != "A" else "B") + asked.state[-5:]
                state = {"no state": None, "empty state": "", "nonsense": "v1.nonsense", "tampered": tampered}
                key = "somebody" if forgery == "unknown key" else asked.identity
                call.retry({key: ONCE}, state.get(forgery, asked.state))
                assert call.next_question().message == asked.message
                still_served(client, place, before)


@pytest.mark.requirement("consent.bound")
@by_route_and_action(MODERN_ROUTES)
def test_the_answer_to_one_call_is_none_to_another(route: Route, action: Action, servers: Servers, place: Path) -> None:
    with servers.client(route) as client:
        other = servers.place()
        before = snapshot(other)
        asked = client.call(action.tool, action.arguments(place)).next_question()
        call = client.call(action.tool, action.arguments(other))
        question = call.next_question()
        call.answer(asked, ONCE)
        assert call.next_question().message == question.message
        still_served(client, other, before)
        assert action.times(place) == 0


@pytest.mark.requirement("consent.bound")
@by_route_and_action(HANDSHAKE_ROUTES)
def test_of_two_open_questions_each_answer_lets_its_own_call_go_on(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        other = servers.place()
        before = snapshot(place)
        first = client.call(action.tool, action.arguments(place))
        first_question = first.next_question()
        second = client.call(action.tool, action.arguments(other))
        second_question = second.next_question()
        assert first_question.identity != second_question.identity
        second.answer(second_question, ONCE)
        assert second.next_result().code is None
        assert action.times(other) == 1
        still_served(client, place, before)
        deny(client, first, first_question)
        still_served(client, place, before)
        servers.remember(other)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(ROUTES, CHANGES)
def test_a_file_that_changes_while_the_question_is_open_is_left_alone(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    assert action.file is not None
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        path = place / action.file
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody else's\nlast\n")
        before = snapshot(place)
        call.answer(asked, ONCE)
        if client.is_modern:
            again = call.next_question()
            assert "somebody else's" in again.message
            assert again.state != asked.state
        else:
            refused = call.next_result()
            assert refused.code == "file_changed_since_read"
            assert "while the user was being asked" in refused.text
        still_served(client, place, before)


@pytest.mark.requirement("consent.changed")
@by_route_and_action(NETWORK_ROUTES)
def test_a_client_that_goes_away_has_not_agreed(route: Route, action: Action, servers: Servers, place: Path) -> None:
    before = snapshot(place)
    with servers.client(route, HASTY) as client:
        client.call(action.tool, action.arguments(place)).next_question()
    with servers.client(route, HASTY) as other:
        still_served(other, place, before)
        wait_until_time(time.time() + HASTY_SECONDS)
        still_served(other, place, before)


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
    asked = client.call(action.tool, action.arguments(place)).next_question()
    wire.end_session()
    wire.close()
    with servers.client(route) as other:
        other.send_answer(asked.identity, result=ONCE)
        still_served(other, place, before)


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
        asked = client.call(EDIT.tool, EDIT.arguments(place)).next_question()
    with servers.client(route, HASTY) as other:
        call = other.call(EDIT.tool, EDIT.arguments(place))
        call.next_question()
        call.answer(asked, ONCE)
        assert call.next_question().message == asked.message
        still_served(other, place, before)
