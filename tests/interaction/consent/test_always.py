"""What an answer allows beyond the call that it was given for, and for which client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, CHANGES, EDIT, Action, snapshot
from tests.interaction.consent.answers import ALWAYS, ONCE, REFUSALS
from tests.interaction.consent.routes import KNOWN_ROUTES, by_route_and_action
from tests.interaction.consent.servers import Servers
from tests.interaction.raw_clients import Question, RawClient
from tests.interaction.serving import by_route


def needs_consent(client: RawClient, action: Action, servers: Servers) -> bool:
    """Try the action in a new folder, and return whether it needs consent. If it does, refuse it."""
    folder = servers.place()
    before = snapshot(folder)
    call = client.call(action.tool, action.arguments(folder))
    outcome = call.outcome()
    if isinstance(outcome, Question):
        assert snapshot(folder) == before
        call.answer(outcome, REFUSALS["deny"])
        assert call.next_result().code == "execution_denied"
        assert snapshot(folder) == before
        return True
    assert action.times(folder) == 1, outcome
    servers.remember(folder)
    return False


@pytest.mark.requirement("consent.always")
@by_route_and_action(KNOWN_ROUTES)
def test_always_counts_for_this_client_and_for_no_other(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.new_client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        assert [decision for decision in question.decisions if decision != "always_sandboxed"] == [
            "once",
            "always",
            "deny",
        ]
        assert "in this session" in question.titles[1]
        assert snapshot(place) == before
        call.answer(question, ALWAYS)
        assert call.next_result().code is None
        assert action.times(place) == 1
        assert not needs_consent(client, action, servers)
        with servers.client(route) as other_client:
            assert needs_consent(other_client, action, servers)
        assert not needs_consent(client, action, servers)


@pytest.mark.requirement("consent.always")
@by_route_and_action(KNOWN_ROUTES)
def test_once_and_a_refusal_allow_nothing_more(route: Route, action: Action, servers: Servers, place: Path) -> None:
    with servers.client(route) as client:
        for reply, code in ((REFUSALS["deny"], "execution_denied"), (ONCE, None)):
            call = client.call(action.tool, action.arguments(place))
            call.answer(call.next_question(), reply)
            assert call.next_result().code == code
            assert needs_consent(client, action, servers)


@pytest.mark.requirement("consent.always")
@by_route(KNOWN_ROUTES)
def test_always_covers_what_its_title_says_and_nothing_else(route: Route, servers: Servers, place: Path) -> None:
    with servers.new_client(route) as client:
        call = client.call(EDIT.tool, EDIT.arguments(place))
        question = call.next_question()
        assert str(servers.root) in question.titles[1]
        call.answer(question, ALWAYS)
        assert call.next_result().code is None
        needs_by_tool = {action.tool: needs_consent(client, action, servers) for action in ACTIONS}
        assert needs_by_tool == {action.tool: action not in CHANGES for action in ACTIONS}


@pytest.mark.requirement("consent.always")
@by_route(KNOWN_ROUTES)
def test_always_does_not_cover_auto_run_files(route: Route, servers: Servers, place: Path) -> None:
    with servers.new_client(route) as client:
        call = client.call(EDIT.tool, EDIT.arguments(place))
        call.answer(call.next_question(), ALWAYS)
        assert call.next_result().code is None
        before = snapshot(place)
        arguments = {"file_path": str(place / ".vscode" / "tasks.json"), "content": "{}\n"}
        call = client.call("write_file", arguments)
        question = call.next_question()
        assert question.decisions == ["once", "deny"]
        assert "Asked because" in question.message
        call.answer(question, ALWAYS)
        assert call.next_result().code == "execution_denied"
        assert snapshot(place) == before


@pytest.mark.requirement("consent.always")
@by_route_and_action(KNOWN_ROUTES)
def test_a_malformed_always_allows_nothing(route: Route, action: Action, servers: Servers, place: Path) -> None:
    with servers.client(route) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        call.answer(call.next_question(), {"action": "accept", "content": {"decision": "always", "reason": 7}})
        assert call.next_result().code == "execution_denied"
        assert snapshot(place) == before
        assert needs_consent(client, action, servers)
