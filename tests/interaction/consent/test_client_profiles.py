"""Real clients: what each announces, how it answers, and what the server does then."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, EDIT, NOTES, NOTES_TEXT, snapshot
from tests.interaction.consent.answers import ONCE, REFUSALS
from tests.interaction.consent.routes import TRANSPORTS
from tests.interaction.consent.servers import DEFAULTS, SIMPLE, Servers, Setup, settings_environment
from tests.interaction.raw_clients import Question, RawClient, initialized_client, stdio_server

ROOTS: Mapping[str, Any] = {"roots": {}}

CHANGING_ROOTS: Mapping[str, Any] = {"roots": {"listChanged": True}}


@dataclass(frozen=True, slots=True)
class Profile:
    """A real client.

    Args:
        name: The name that it gives itself.
        revision: The protocol revision that it asks for.
        capabilities: The capabilities that it announces.
        source: The source of this information.
    """

    name: str
    revision: str
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    source: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def can_be_asked(self) -> bool:
        """Whether it announces that it can show forms."""
        return "elicitation" in self.capabilities


QWEN_CODE = Profile("qwen-cli-mcp-client", "2025-11-25", ROOTS, "As seen on the wire, 2026.")

GEMINI_CLI = Profile("gemini-cli-mcp-client", "2025-06-18", CHANGING_ROOTS, "As seen on the wire, 2026.")

CODEX = Profile(
    "codex-mcp-client",
    "2025-06-18",
    {"elicitation": {"form": {}, "url": {}}},
    "As seen on the wire, 2026. Without a person, it declines every question by itself.",
)

VS_CODE = Profile(
    "Visual Studio Code",
    "2025-11-25",
    {**CHANGING_ROOTS, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
    "Per its documentation, 2026.",
)

CURSOR = Profile(
    "cursor-vscode",
    "2025-06-18",
    {"roots": {"listChanged": False}, "elicitation": {}},
    "Per its documentation, 2026. It names roots and elicitation, but no mode of elicitation.",
)

ZED = Profile("Zed", "2025-03-26", {}, "Per its source, 2026: it announces nothing.")

JETBRAINS = Profile(
    "JetBrains AI Assistant",
    "2025-06-18",
    {},
    "Per its documentation, 2026. It names only tools, and no revision.",
)

PROFILES = [QWEN_CODE, GEMINI_CLI, CODEX, VS_CODE, CURSOR, ZED, JETBRAINS]

CAN_BE_ASKED = [profile for profile in PROFILES if profile.can_be_asked]

CANNOT_BE_ASKED = [profile for profile in PROFILES if not profile.can_be_asked]

DECLINE = REFUSALS["decline"]


def by_profile(profiles: list[Profile]) -> Any:
    return pytest.mark.parametrize("profile", profiles, ids=str)


def by_transport(transports: Sequence[str]) -> Any:
    return pytest.mark.parametrize("transport", transports)


CLIENT = Setup("client", {"confirmation": {"whenUnavailable": "client"}})

DENY = Setup("deny", {"confirmation": {"whenUnavailable": "deny"}})


ASK_BY_RULE = Setup("asking-by-rule", {**CLIENT.settings, "permissions": {"ask": [action.tool for action in ACTIONS]}})
"""The client's own dialog would suffice, but a rule of the operator demands the question."""


def connect_profile(
    servers: Servers, transport: str, profile: Profile, setup: Setup
) -> AbstractContextManager[RawClient]:
    """Connect a client with this profile to a server with this setup."""
    route = Route(transport, profile.revision)
    return servers.client(route, setup, capabilities=profile.capabilities, name=profile.name)


@pytest.mark.requirement("profiles.asked")
@by_profile(CAN_BE_ASKED)
@by_transport(TRANSPORTS)
def test_a_client_that_shows_forms_is_asked_before_anything_happens(
    transport: str, profile: Profile, servers: Servers
) -> None:
    with connect_profile(servers, transport, profile, DEFAULTS) as client:
        for action in ACTIONS:
            place = servers.place()
            before = snapshot(place)
            call = client.call(action.tool, action.arguments(place))
            question = call.next_question()
            assert "once" in question.decisions
            assert snapshot(place) == before
            call.answer(question, ONCE)
            assert call.next_result().code is None
            assert action.times(place) == 1
            servers.remember(place)


@pytest.mark.requirement("profiles.asked")
@by_profile(CAN_BE_ASKED)
@by_transport(TRANSPORTS)
def test_a_client_that_declines_by_itself_tells_the_model_what_would_help(
    transport: str, profile: Profile, servers: Servers
) -> None:
    with connect_profile(servers, transport, profile, DEFAULTS) as client:
        for action in ACTIONS:
            place = servers.place()
            before = snapshot(place)
            call = client.call(action.tool, action.arguments(place))
            call.answer(call.next_question(), DECLINE)
            result = call.next_result()
            assert result.code == "execution_denied"
            assert "perhaps nobody saw it" in result.text
            assert "--approval-mode" in result.text or "permissions.sandboxedCommands" in result.text
            assert client.is_answered()
            assert snapshot(place) == before


@pytest.mark.requirement("policy.clients_dialog")
@by_profile(CANNOT_BE_ASKED)
@pytest.mark.parametrize("setup", [DEFAULTS, CLIENT], ids=["by default", "by setting"])
def test_over_stdio_the_dialog_of_a_client_that_cannot_be_asked_decides(
    setup: Setup, profile: Profile, servers: Servers
) -> None:
    with connect_profile(servers, "stdio", profile, setup) as client:
        assert_all_happen(client, servers)


@pytest.mark.requirement("policy.clients_dialog")
@by_profile(CANNOT_BE_ASKED)
@by_transport(TRANSPORTS[1:])
def test_over_the_network_the_dialog_of_a_client_decides_only_on_the_operators_word(
    transport: str, profile: Profile, servers: Servers
) -> None:
    with connect_profile(servers, transport, profile, CLIENT) as client:
        assert_all_happen(client, servers)
    with connect_profile(servers, transport, profile, DEFAULTS) as client:
        assert_all_refused(client, servers, "confirmation.whenUnavailable")


@pytest.mark.requirement("policy.clients_dialog")
@by_profile(CANNOT_BE_ASKED)
@by_transport(TRANSPORTS)
def test_where_nobody_decides_a_client_that_cannot_be_asked_is_refused(
    transport: str, profile: Profile, servers: Servers
) -> None:
    with connect_profile(servers, transport, profile, DENY) as client:
        assert_all_refused(client, servers, "confirmation.whenUnavailable")


@pytest.mark.requirement("policy.order")
@by_profile(CANNOT_BE_ASKED)
@by_transport(TRANSPORTS)
def test_a_question_that_a_rule_demands_is_not_left_to_a_dialog(
    transport: str, profile: Profile, servers: Servers
) -> None:
    with connect_profile(servers, transport, profile, ASK_BY_RULE) as client:
        assert_all_refused(client, servers, "No mode and no allow rule can turn this question off")


def assert_all_happen(client: RawClient, servers: Servers) -> None:
    """Assert that every action happens without a question, and that no tool is announced as read-only."""
    hints = {tool["name"]: tool["annotations"] for tool in client.tools()}
    for action in ACTIONS:
        assert hints[action.tool]["readOnlyHint"] is False
        place = servers.place()
        assert client.call(action.tool, action.arguments(place)).next_result().code is None
        assert action.times(place) == 1
        servers.remember(place)


def assert_all_refused(client: RawClient, servers: Servers, reason: str) -> None:
    """Assert that no action happens, and that the model is told the reason."""
    for action in ACTIONS:
        place = servers.place()
        before = snapshot(place)
        result = client.call(action.tool, action.arguments(place)).next_result()
        assert result.code == "execution_denied"
        assert reason in result.text
        assert client.is_answered()
        assert snapshot(place) == before


@pytest.mark.requirement("profiles.asked")
@by_profile(CAN_BE_ASKED)
@by_transport(TRANSPORTS)
def test_a_client_that_renders_no_fields_can_be_asked_for_yes_or_no(
    transport: str, profile: Profile, servers: Servers
) -> None:
    replies = (({"action": "accept"}, 1), (DECLINE, 0), ({"action": "cancel"}, 0))
    with connect_profile(servers, transport, profile, SIMPLE) as client:
        for action, (reply, times) in itertools.product(ACTIONS, replies):
            place = servers.place()
            call = client.call(action.tool, action.arguments(place))
            question = call.next_question()
            assert question.schema["properties"] == {}
            assert action.times(place) == 0
            call.answer(question, reply)
            assert (call.next_result().code is None) == bool(times)
            assert action.times(place) == times
            servers.remember(place)


@pytest.mark.requirement("profiles.asked")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_that_only_opens_addresses_is_not_sent_a_form(revision: str, servers: Servers) -> None:
    profile = Profile(f"url-only-{revision}", revision, {"elicitation": {"url": {}}})
    with connect_profile(servers, "http", profile, DEFAULTS) as client:
        assert_all_refused(client, servers, "does not declare form elicitation")


@pytest.mark.requirement("roots.client")
@by_profile([QWEN_CODE, GEMINI_CLI, VS_CODE])
def test_the_folder_that_a_client_names_is_its_workspace(profile: Profile, root: Path, tmp_path: Path) -> None:
    (root / NOTES).write_text(NOTES_TEXT)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / NOTES).write_text(NOTES_TEXT)
    with (
        stdio_server(None, None, settings_environment(tmp_path / "nothing")) as wire,
        initialized_client(wire, profile.revision, capabilities=profile.capabilities, roots=[root]) as client,
    ):
        call = client.call(EDIT.tool, EDIT.arguments(root))
        outcome = call.outcome()
        if isinstance(outcome, Question):
            call.answer(outcome, ONCE)
            outcome = call.outcome()
        assert EDIT.times(root) == 1, outcome
        result = client.call(EDIT.tool, EDIT.arguments(outside)).next_result()
        assert result.code is not None
        assert EDIT.times(outside) == 0
