"""Every answer over every transport and revision: only a valid acceptance lets anything happen."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, Action, by_action, snapshot
from tests.interaction.consent.answers import EMPTY, NO_DECISION, NO_FORM, NO_OBJECT, ONCE, REFUSALS, WRONG_FIELDS
from tests.interaction.consent.routes import HANDSHAKE_ROUTES, ROUTES, spread
from tests.interaction.consent.servers import Servers
from tests.interaction.raw_clients import CallResult, Question, RawClient
from tests.interaction.serving import by_route
from tests.tables import all_cases


def refuse(client: RawClient, action: Action, place: Path, reply: Any) -> CallResult:
    """Give an answer that is no consent, and return the result that the model sees."""
    before = snapshot(place)
    call = client.call(action.tool, action.arguments(place))
    question = call.next_question()
    assert snapshot(place) == before
    if not call.answer(question, reply):
        # The transport itself rejected this answer, so the question is still open.
        assert client.is_answered()
        assert snapshot(place) == before
        call.answer(question, {"action": "decline"})
    outcome = call.outcome()
    if client.is_modern and isinstance(outcome, Question):
        assert outcome.message == question.message
        call.answer(outcome, {"action": "decline"})
        outcome = call.outcome()
    assert isinstance(outcome, CallResult), outcome
    assert outcome.code == "execution_denied"
    assert client.is_answered()
    assert snapshot(place) == before
    return outcome


def assert_none_is_consent(replies: Mapping[str, Any], route: Route, servers: Servers) -> None:
    """Assert that none of these answers lets anything happen over this route."""
    with servers.client(route) as client, all_cases() as case:
        for name, reply, action in spread(replies, route):
            with case(f"{name}, to {action}"):
                refuse(client, action, servers.place(), reply)


@pytest.mark.requirement("mission.confirmation")
@by_route(ROUTES)
def test_an_accepted_action_happens_once_and_not_before(route: Route, servers: Servers) -> None:
    with servers.client(route) as client, all_cases() as case:
        for action in ACTIONS:
            place = servers.place()
            with case(action):
                before = snapshot(place)
                call = client.call(action.tool, action.arguments(place))
                question = call.next_question()
                assert snapshot(place) == before
                call.answer(question, ONCE)
                assert call.next_result().code is None
                assert action.times(place) == 1
                assert client.is_answered()
            servers.remember(place)


@pytest.mark.requirement("mission.confirmation")
@by_route(ROUTES)
def test_an_answer_without_a_decision_to_allow_is_a_refusal(route: Route, servers: Servers) -> None:
    assert_none_is_consent({**REFUSALS, **EMPTY, **NO_DECISION}, route, servers)


@pytest.mark.requirement("consent.changed")
@by_route(ROUTES)
def test_an_acceptance_with_a_field_that_does_not_fit_the_form_is_no_consent(route: Route, servers: Servers) -> None:
    assert_none_is_consent(WRONG_FIELDS, route, servers)


@pytest.mark.requirement("consent.changed")
@by_route(ROUTES)
def test_what_is_no_answer_to_a_form_at_all_is_no_consent(route: Route, servers: Servers) -> None:
    assert_none_is_consent({**NO_FORM, **NO_OBJECT}, route, servers)


ERRORS: dict[str, Any] = {
    "error": {"error": {"code": -32601, "message": "Method not found"}},
    "text for an error": {"error": "no"},
    "result and error": {"result": ONCE, "error": {"code": -1, "message": "no"}},
}


@pytest.mark.requirement("consent.changed")
@by_route(HANDSHAKE_ROUTES)
def test_an_error_in_place_of_an_answer_is_no_consent(route: Route, servers: Servers) -> None:
    with servers.client(route) as client, all_cases() as case:
        for action, (name, answer) in zip(cycle(ACTIONS), ERRORS.items(), strict=False):
            with case(f"{name}, to {action}"):
                place = servers.place()
                before = snapshot(place)
                call = client.call(action.tool, action.arguments(place))
                question = call.next_question()
                if not client.send_answer(question.identity, **answer):
                    call.answer(question, REFUSALS["decline"])
                assert call.next_result().code == "execution_denied"
                assert client.is_answered()
                assert snapshot(place) == before


@pytest.mark.requirement("consent.refusal")
@by_route(ROUTES)
def test_a_refusal_says_what_happened(route: Route, servers: Servers) -> None:
    cases = {
        "deny": (REFUSALS["deny with a reason"], ["not today"]),
        "decline": (REFUSALS["decline"], ["perhaps nobody saw it", "--approval-mode"]),
        "cancel": (REFUSALS["cancel"], ["dismissed"]),
        "empty": (EMPTY["empty content"], ["no valid decision"]),
    }
    with servers.client(route) as client, all_cases() as case:
        for name, (reply, phrases) in cases.items():
            with case(name):
                text = refuse(client, ACTIONS[0], servers.place(), reply).text
                assert [phrase for phrase in phrases if phrase not in text] == []


@pytest.mark.requirement("mission.confirmation")
@by_action
@by_route(route for route in ROUTES if not route.tells_clients_apart)
def test_a_client_that_cannot_be_told_from_others_is_offered_no_always(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        question = client.call(action.tool, action.arguments(place)).next_question()
        assert question.decisions == ["once", "deny"]
        refuse(client, action, place, {"action": "accept", "content": {"decision": "always"}})
