"""Consent for the tools of other servers: what is shown and offered, and that nothing is sent without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Route, stdio_upstream
from tests.interaction.consent.answers import (
    ALWAYS,
    EMPTY,
    ONCE,
    REFUSALS,
    acceptance,
)
from tests.interaction.consent.routes import NETWORK_ROUTES, spread
from tests.interaction.consent.servers import Servers, Setup, settings_environment
from tests.interaction.raw_clients import CallResult, Question, RawClient, initialized_client, stdio_server
from tests.interaction.serving import by_route
from tests.tables import all_cases

ALWAYS_SERVER = acceptance(decision="always_server")

NO_CONSENT = {**REFUSALS, **EMPTY, "unknown decision": acceptance(decision="yes")}

UPSTREAM = Setup("upstream", {"mcpServers": {"demo": stdio_upstream()}, "proxy": {"search": "on"}})
"""One untrusted upstream, whose tools can be searched for."""

each_way = pytest.mark.parametrize("calls_through", [False, True], ids=["direct", "call_tool"])
"""Repeats a test with calls by the tool's name, and with calls through call_tool."""


def needs_consent(client: RawClient, tool: str) -> bool:
    """Make a call, and return whether it needs consent. If it does, refuse it."""
    call = client.call(tool, {"text": "x"})
    outcome = call.outcome()
    if not isinstance(outcome, Question):
        return False
    call.answer(outcome, REFUSALS["decline"])
    assert call.next_result().code == "execution_denied"
    return True


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(NETWORK_ROUTES)
def test_a_call_of_an_upstream_shows_its_arguments_and_is_sent_after_consent(
    calls_through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=calls_through) as client:
        call = client.call("demo__echo", {"text": "hidden\u202etext\x1b[2J", "more": {"deep": [1, 2]}})
        question = call.next_question()
        assert "Server: demo, tool: echo" in question.message
        assert "its server is not trusted (mcpServers.demo.trust)" in question.message
        assert '"text": "hidden<U+202E>text' in question.message
        assert '"deep"' in question.message
        assert "\x1b" not in question.message
        session = [] if route.is_modern else ["always", "always_server"]
        assert question.decisions == ["once", *session, "deny"]
        call.answer(question, ONCE)
        result = call.next_result()
        assert (result.code, result.text) == (None, "hidden\u202etext\x1b[2J")
        assert needs_consent(client, "demo__echo")


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(NETWORK_ROUTES)
def test_a_call_without_a_required_argument_is_refused_without_a_question(
    calls_through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=calls_through) as client:
        refusal = client.call("demo__echo", {"txt": "x"}).next_result()
        assert refusal.code == "invalid_tool_params"
        assert "'text' is required. Accepted: text." in refusal.text


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(NETWORK_ROUTES)
def test_nothing_is_sent_to_an_upstream_without_consent(calls_through: bool, route: Route, servers: Servers) -> None:
    cases = [
        (name, reply)
        for number, (name, reply, _) in enumerate(spread(NO_CONSENT, route, ("http", "sse")))
        if number % 2 == calls_through
    ]
    with servers.client(route, UPSTREAM, calls_through=calls_through) as client, all_cases() as case:
        for name, reply in cases:
            with case(name):
                # If this were sent, the upstream would end itself and could not answer the next call.
                call = client.call("demo__die", {})
                call.answer(call.next_question(), reply)
                assert call.next_result().code == "execution_denied"
                call = client.call("demo__echo", {"text": "alive"})
                call.answer(call.next_question(), ONCE)
                assert call.next_result() == CallResult("alive", None)


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(route for route in NETWORK_ROUTES if route.tells_clients_apart)
def test_always_covers_the_tool_and_always_server_all_of_its_server(
    calls_through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=calls_through) as client:
        call = client.call("demo__echo", {"text": "x"})
        call.answer(call.next_question(), ALWAYS)
        assert call.next_result().code is None
        assert not needs_consent(client, "demo__echo")
        assert needs_consent(client, "demo__picture")
        call = client.call("demo__picture", {})
        question = call.next_question()
        assert "demo" in question.titles[question.decisions.index("always_server")]
        call.answer(question, ALWAYS_SERVER)
        assert call.next_result().code is None
        assert not needs_consent(client, "demo__structured")
        with servers.client(route, UPSTREAM, calls_through=calls_through) as other_client:
            assert needs_consent(other_client, "demo__echo")
            assert needs_consent(other_client, "demo__structured")


@pytest.mark.requirement("consent.upstream")
@each_way
def test_all_five_answers_are_offered_in_order(calls_through: bool, servers: Servers, tmp_path: Path) -> None:
    settings = tmp_path / "coretools-mcp" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    server = stdio_server(servers.root, servers.config(UPSTREAM), settings_environment(tmp_path))
    with server as wire, initialized_client(wire, "2025-11-25", calls_through=calls_through) as client:
        call = client.call("demo__echo", {"text": "x"})
        question = call.next_question()
        assert question.decisions == ["once", "always", "always_server", "save", "deny"]
        call.answer(question, acceptance(decision="save"))
        assert call.next_result().code is None
        assert "demo__echo" in settings.read_text()
        assert not needs_consent(client, "demo__echo")
        assert needs_consent(client, "demo__picture")


@pytest.mark.requirement("consent.save")
@each_way
def test_an_upstreams_result_stays_complete_beside_the_note_that_nothing_was_saved(
    calls_through: bool, servers: Servers, tmp_path: Path
) -> None:
    settings = tmp_path / "coretools-mcp" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    server = stdio_server(servers.root, servers.config(UPSTREAM), settings_environment(tmp_path))
    with server as wire, initialized_client(wire, "2025-11-25", calls_through=calls_through) as client:
        call = client.call("demo__echo", {"text": "x"})
        question = call.next_question()
        settings.write_text("[]")
        call.answer(question, acceptance(decision="save"))
        result = call.next_result()
        assert (result.text, result.code) == ("x", None)
        assert [text.partition(". ")[0] for text in result.other_texts] == ["Allowed for this session only: demo__echo"]
        assert not needs_consent(client, "demo__echo")


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(NETWORK_ROUTES)
def test_a_client_that_cannot_be_asked_gets_no_upstream_over_the_network(
    calls_through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=calls_through, capabilities={}) as client:
        result = client.call("demo__echo", {"text": "x"}).next_result()
        assert result.code == "execution_denied"
        assert "confirmation.whenUnavailable" in result.text
        assert client.is_answered()
