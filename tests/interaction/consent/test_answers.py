"""Every answer over every transport and revision: only a valid acceptance lets anything happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interaction.consent.actions import ACTIONS, EDIT, Action, by_action, snapshot
from tests.interaction.consent.answers import EMPTY, NO_DECISION, NO_FORM, NO_OBJECT, ONCE, REFUSALS, WRONG_FIELDS
from tests.interaction.consent.routes import HANDSHAKE_ROUTES, ROUTES, Route, by_route
from tests.interaction.consent.servers import Servers
from tests.interaction.raw_clients import Asked, Done, RawClient


def by_reply(**replies: Any) -> Any:
    return pytest.mark.parametrize("reply", list(replies.values()), ids=list(replies))


def refuse(client: RawClient, action: Action, place: Path, reply: Any) -> Done:
    """Give an answer that is no consent; what the model is told."""
    before = snapshot(place)
    call = client.call(action.tool, action.arguments(place))
    asked = call.asked()
    assert snapshot(place) == before
    if not call.answer(asked, reply):
        # The transport has told the client that this was no answer, and the question is still open.
        assert client.is_served()
        assert snapshot(place) == before
        call.answer(asked, {"action": "decline"})
    outcome = call.outcome()
    if client.is_modern and isinstance(outcome, Asked):
        assert outcome.message == asked.message
        call.answer(outcome, {"action": "decline"})
        outcome = call.outcome()
    assert isinstance(outcome, Done), outcome
    assert outcome.code == "execution_denied"
    assert client.is_served()
    assert snapshot(place) == before
    return outcome


@pytest.mark.requirement("mission.confirmation")
@by_action()
@by_route(ROUTES)
def test_an_accepted_action_happens_once_and_not_before(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.asked()
        assert snapshot(place) == before
        call.answer(asked, ONCE)
        assert call.done().code is None
        assert action.times(place) == 1
        assert client.is_served()


@pytest.mark.requirement("mission.confirmation")
@by_reply(**REFUSALS, **EMPTY, **NO_DECISION)
@by_action()
@by_route(ROUTES)
def test_an_answer_without_a_decision_to_allow_is_a_refusal(
    route: Route, action: Action, reply: Any, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        refuse(client, action, place, reply)


@pytest.mark.requirement("consent.changed")
@by_reply(**WRONG_FIELDS)
@by_action()
@by_route(ROUTES)
def test_an_acceptance_with_a_field_that_does_not_fit_the_form_is_no_consent(
    route: Route, action: Action, reply: Any, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        refuse(client, action, place, reply)


@pytest.mark.requirement("consent.changed")
@by_reply(**NO_FORM, **NO_OBJECT)
@by_route(ROUTES)
def test_what_is_no_answer_to_a_form_at_all_is_no_consent(
    route: Route, reply: Any, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        refuse(client, EDIT, place, reply)


@pytest.mark.requirement("consent.changed")
@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": "no"},
        {"result": ONCE, "error": {"code": -1, "message": "no"}},
    ],
    ids=["error", "text for an error", "result and error"],
)
@by_action()
@by_route(HANDSHAKE_ROUTES)
def test_an_error_in_place_of_an_answer_is_no_consent(
    route: Route, action: Action, answer: Any, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.asked()
        if not client.say(asked.identity, **answer):
            call.answer(asked, REFUSALS["decline"])
        assert call.done().code == "execution_denied"
        assert client.is_served()
        assert snapshot(place) == before


@pytest.mark.requirement("consent.refusal")
@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (REFUSALS["deny with a reason"], "not today"),
        (REFUSALS["decline"], "perhaps nobody saw it"),
        (REFUSALS["decline"], "--approval-mode"),
        (REFUSALS["cancel"], "dismissed"),
        (EMPTY["empty content"], "no consent"),
    ],
    ids=["deny", "decline", "way out", "cancel", "empty"],
)
@by_route(ROUTES)
def test_a_refusal_says_what_happened(route: Route, reply: Any, said: str, servers: Servers, place: Path) -> None:
    with servers.client(route) as client:
        assert said in refuse(client, ACTIONS[0], place, reply).text


@pytest.mark.requirement("mission.confirmation")
@by_action()
@by_route(route for route in ROUTES if not route.tells_clients_apart)
def test_a_client_that_cannot_be_told_from_others_is_offered_no_always(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        asked = client.call(action.tool, action.arguments(place)).asked()
        assert asked.decisions == ["once", "deny"]
        refuse(client, action, place, {"action": "accept", "content": {"decision": "always"}})
