"""Saving an answer: offered where the user has a settings file, written there, and counting from then on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, EDIT, Action, by_action, snapshot
from tests.interaction.consent.answers import accepted
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

SAVE = accepted(decision="save")

OWN = '{\n  // mine\n  "log": {"level": "warning"}\n}\n'


SAVED = [*((revision, EDIT) for revision in REVISIONS), *((REVISIONS[1], action) for action in ACTIONS[1:])]
"""Every revision, and every action."""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The user's own settings file."""
    path = tmp_path / "config" / "coretools-mcp" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(OWN)
    return path


def runs_unasked(client: RawClient, action: Action, servers: Servers) -> bool:
    """Whether the action happens without a question in a folder that nothing else uses."""
    folder = servers.place()
    outcome = client.call(action.tool, action.arguments(folder)).outcome()
    servers.remember(folder)
    return isinstance(outcome, CallResult) and outcome.code is None and action.times(folder) == 1


@pytest.mark.requirement("consent.save")
@pytest.mark.parametrize(("revision", "action"), SAVED, ids=str)
def test_a_saved_answer_stands_in_the_users_settings_and_counts_after_a_restart(
    revision: str, action: Action, settings: Path, servers: Servers, place: Path
) -> None:
    environ = settings_environment(settings.parent.parent)
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, revision) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.next_question()
        assert [each for each in asked.decisions if each != "always_sandboxed"] == ["once", "always", "save", "deny"]
        assert "saved" in asked.titles[asked.decisions.index("save")]
        assert snapshot(place) == before
        assert settings.read_text() == OWN
        call.answer(asked, SAVE)
        done = call.next_result()
        assert done.code is None
        assert not any("only" in text for text in done.more)
        assert action.times(place) == 1
        assert runs_unasked(client, action, servers)
    saved = settings.read_text()
    assert saved.startswith('{\n  // mine\n  "log": {"level": "warning"}')
    (rule,) = json.loads(saved.replace("// mine", ""))["permissions"]["allow"]
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, revision) as client:
        assert runs_unasked(client, action, servers), rule
    assert settings.read_text() == saved


@pytest.mark.requirement("consent.save")
@by_route(NETWORK_ROUTES)
def test_a_saved_answer_counts_for_every_client_at_once(
    route: Route, settings: Path, servers: Servers, place: Path
) -> None:
    with http_server(servers.root, None, settings_environment(settings.parent.parent)) as url:
        with initialized_client(connect_http(url, route.transport), route.revision) as client:
            call = client.call(EDIT.tool, EDIT.arguments(place))
            asked = call.next_question()
            session = [] if route.is_modern else ["always"]
            assert asked.decisions == ["once", *session, "save", "deny"]
            call.answer(asked, SAVE)
            assert call.next_result().code is None
        with initialized_client(connect_http(url, route.transport), route.revision) as other:
            assert runs_unasked(other, EDIT, servers)


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
            call.answer(call.next_question(), accepted(decision=decision))
            assert (call.next_result().code is None) == is_consent
            assert settings.read_text() == OWN
    assert [path.name for path in settings.parent.iterdir()] == [settings.name]


@pytest.mark.requirement("consent.save")
def test_without_a_settings_file_nothing_is_saved_and_none_is_made(
    servers: Servers, place: Path, tmp_path: Path
) -> None:
    environ = settings_environment(tmp_path / "config")
    with stdio_server(servers.root, None, environ) as wire, initialized_client(wire, "2025-11-25") as client:
        before = snapshot(place)
        call = client.call(EDIT.tool, EDIT.arguments(place))
        asked = call.next_question()
        assert "save" not in asked.decisions
        call.answer(asked, SAVE)
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
        asked = call.next_question()
        settings.write_text("{ not settings")
        call.answer(asked, SAVE)
        done = call.next_result()
        assert done.code is None
        (note,) = (text for text in done.more if "only" in text)
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
        asked = call.next_question()
        settings.write_text("{ not settings")
        call.answer(asked, SAVE)
        done = call.next_result()
        assert done.code is None
        assert any(text.startswith("Allowed for this call only: ") for text in done.more)
        assert EDIT.times(place) == 1
        again = client.call(EDIT.tool, EDIT.arguments(place))
        again.answer(again.next_question(), accepted(decision="deny"))
        assert again.next_result().code == "execution_denied"
        assert EDIT.times(place) == 1
