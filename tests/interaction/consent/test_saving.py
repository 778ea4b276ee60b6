"""Saved answers: they are offered if the user has a settings file, are written there, and count from then on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, EDIT, Action, by_action, snapshot
from tests.interaction.consent.answers import acceptance
from tests.interaction.consent.routes import NETWORK_ROUTES, REVISIONS
from tests.interaction.consent.servers import Servers, settings_environment
from tests.interaction.raw_clients import (
    CallResult,
    RawClient,
    connect_http,
    http_server,
    initialized_client,
    stdio_server,
)
from tests.interaction.serving import by_route

SAVE = acceptance(decision="save")

OWN_SETTINGS = '{\n  // mine\n  "log": {"level": "warning"}\n}\n'


CASES = [*((revision, EDIT) for revision in REVISIONS), *((REVISIONS[1], action) for action in ACTIONS[1:])]
"""Every revision with one action, and every other action with one revision."""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The user's own settings file."""
    path = tmp_path / "config" / "coretools-mcp" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(OWN_SETTINGS)
    return path


def runs_unasked(client: RawClient, action: Action, servers: Servers) -> bool:
    """Try the action in a new folder, and return whether it happens without a question."""
    folder = servers.place()
    outcome = client.call(action.tool, action.arguments(folder)).outcome()
    servers.remember(folder)
    return isinstance(outcome, CallResult) and outcome.code is None and action.times(folder) == 1


@pytest.mark.requirement("consent.save")
@pytest.mark.parametrize(("revision", "action"), CASES, ids=str)
def test_a_saved_answer_is_in_the_users_settings_and_counts_after_a_restart(
    revision: str, action: Action, settings: Path, servers: Servers, place: Path
) -> None:
    environ = settings_environment(settings.parent.parent)
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, revision) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        question = call.next_question()
        assert [decision for decision in question.decisions if decision != "always_sandboxed"] == [
            "once",
            "always",
            "save",
            "deny",
        ]
        assert "saved" in question.titles[question.decisions.index("save")]
        assert snapshot(place) == before
        assert settings.read_text() == OWN_SETTINGS
        call.answer(question, SAVE)
        result = call.next_result()
        assert result.code is None
        assert not any("only" in text for text in result.other_texts)
        assert action.times(place) == 1
        assert runs_unasked(client, action, servers)
    saved_text = settings.read_text()
    assert saved_text.startswith('{\n  // mine\n  "log": {"level": "warning"}')
    (rule,) = json.loads(saved_text.replace("// mine", ""))["permissions"]["allow"]
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, revision) as client:
        assert runs_unasked(client, action, servers), rule
    assert settings.read_text() == saved_text


@pytest.mark.requirement("consent.save")
@by_route(NETWORK_ROUTES)
def test_a_saved_answer_counts_for_every_client_at_once(
    route: Route, settings: Path, servers: Servers, place: Path
) -> None:
    with http_server(servers.root, None, settings_environment(settings.parent.parent)) as url:
        with initialized_client(connect_http(url, route.transport), route.revision) as client:
            call = client.call(EDIT.tool, EDIT.arguments(place))
            question = call.next_question()
            session = [] if route.is_modern else ["always"]
            assert question.decisions == ["once", *session, "save", "deny"]
            call.answer(question, SAVE)
            assert call.next_result().code is None
        with initialized_client(connect_http(url, route.transport), route.revision) as other_client:
            assert runs_unasked(other_client, EDIT, servers)


@pytest.mark.requirement("consent.save")
@by_action
def test_no_other_answer_writes_to_the_users_settings(
    action: Action, settings: Path, servers: Servers, place: Path
) -> None:
    with (
        stdio_server(servers.root, None, settings_environment(settings.parent.parent)) as wire,
        initialized_client(wire, "2025-11-25") as client,
    ):
        for decision, is_consent in (("deny", False), ("yes", False), ("Save", False), ("always", True)):
            call = client.call(action.tool, action.arguments(place))
            call.answer(call.next_question(), acceptance(decision=decision))
            assert (call.next_result().code is None) == is_consent
            assert settings.read_text() == OWN_SETTINGS
    assert [path.name for path in settings.parent.iterdir()] == [settings.name]


@pytest.mark.requirement("consent.save")
def test_without_a_settings_file_nothing_is_saved_and_none_is_made(
    servers: Servers, place: Path, tmp_path: Path
) -> None:
    environ = settings_environment(tmp_path / "config")
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, "2025-11-25") as client:
        before = snapshot(place)
        call = client.call(EDIT.tool, EDIT.arguments(place))
        question = call.next_question()
        assert "save" not in question.decisions
        call.answer(question, SAVE)
        assert call.next_result().code == "execution_denied"
        assert snapshot(place) == before
    assert not (tmp_path / "config").exists()


@pytest.mark.requirement("consent.save")
@pytest.mark.parametrize("revision", REVISIONS)
def test_an_answer_that_cannot_be_saved_counts_in_this_session_and_the_result_says_so(
    revision: str, settings: Path, servers: Servers, place: Path
) -> None:
    environ = settings_environment(settings.parent.parent)
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, revision) as client:
        call = client.call(EDIT.tool, EDIT.arguments(place))
        question = call.next_question()
        settings.write_text("{ not settings")
        call.answer(question, SAVE)
        result = call.next_result()
        assert result.code is None
        (note,) = (text for text in result.other_texts if "only" in text)
        assert note.startswith(f"Allowed for this session only: Edit(/{servers.root}).")
        assert "its content is not valid" in note
        assert str(settings) not in note
        assert "\n" not in note
        assert runs_unasked(client, EDIT, servers)
    assert settings.read_text() == "{ not settings"


@pytest.mark.requirement("consent.save")
def test_an_answer_that_cannot_be_saved_for_an_unknown_client_counts_for_the_call(
    settings: Path, servers: Servers, place: Path
) -> None:
    with (
        http_server(servers.root, None, settings_environment(settings.parent.parent)) as url,
        initialized_client(connect_http(url, "http"), REVISIONS[-1]) as client,
    ):
        call = client.call(EDIT.tool, EDIT.arguments(place))
        question = call.next_question()
        settings.write_text("{ not settings")
        call.answer(question, SAVE)
        result = call.next_result()
        assert result.code is None
        assert any(text.startswith("Allowed for this call only: ") for text in result.other_texts)
        assert EDIT.times(place) == 1
        second_call = client.call(EDIT.tool, EDIT.arguments(place))
        second_call.answer(second_call.next_question(), acceptance(decision="deny"))
        assert second_call.next_result().code == "execution_denied"
        assert EDIT.times(place) == 1
