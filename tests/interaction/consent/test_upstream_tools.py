"""Consent for the tools of other servers: what is shown, what is offered, and that nothing is sent before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import Route, stdio_upstream
from tests.interaction.consent.answers import (
    ALWAYS,
    EMPTY,
    ONCE,
    REFUSALS,
    accepted,
)
from tests.interaction.consent.routes import NETWORK_ROUTES, spread
from tests.interaction.consent.servers import Servers, Setup, settings_environment
from tests.interaction.raw_clients import CallResult, Question, RawClient, initialized_client, stdio_server
from tests.interaction.serving import by_route
from tests.tables import all_cases

ALWAYS_SERVER = accepted(decision="always_server")

NO_CONSENT = {**REFUSALS, **EMPTY, "unknown decision": accepted(decision="yes")}

UPSTREAM = Setup("upstream", {"mcpServers": {"demo": stdio_upstream()}, "proxy": {"search": "on"}})
"""One upstream that is not trusted, whose tools can be searched for."""

each_way = pytest.mark.parametrize("through", [False, True], ids=["direct", "call_tool"])
"""Calls by the name of the tool, and through call_tool."""


def is_asked(client: RawClient, tool: str) -> bool:
    """Whether a call needs consent; refused where it does."""
    call = client.call(tool, {})
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
    through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=through) as client:
        call = client.call("demo__echo", {"text": "hidden\u202etext\x1b[2J", "more": {"deep": [1, 2]}})
        asked = call.next_question()
        assert "Server: demo, tool: echo" in asked.message
        assert '"text": "hidden<U+202E>text' in asked.message
        assert '"deep"' in asked.message
        assert "\x1b" not in asked.message
        session = [] if route.is_modern else ["always", "always_server"]
        assert asked.decisions == ["once", *session, "deny"]
        call.answer(asked, ONCE)
        done = call.next_result()
        assert (done.code, done.text) == (None, "hidden\u202etext\x1b[2J")
        assert is_asked(client, "demo__echo")


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(NETWORK_ROUTES)
def test_nothing_is_sent_to_an_upstream_without_consent(through: bool, route: Route, servers: Servers) -> None:
    tried = [
        (name, reply)
        for number, (name, reply, _) in enumerate(spread(NO_CONSENT, route, ("http", "sse")))
        if number % 2 == through
    ]
    with servers.client(route, UPSTREAM, calls_through=through) as client, all_cases() as case:
        for name, reply in tried:
            with case(name):
                # Had this been sent, the upstream would have ended itself.
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
    through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=through) as client:
        call = client.call("demo__echo", {"text": "x"})
        call.answer(call.next_question(), ALWAYS)
        assert call.next_result().code is None
        assert not is_asked(client, "demo__echo")
        assert is_asked(client, "demo__picture")
        call = client.call("demo__picture", {})
        asked = call.next_question()
        assert "demo" in asked.titles[asked.decisions.index("always_server")]
        call.answer(asked, ALWAYS_SERVER)
        assert call.next_result().code is None
        assert not is_asked(client, "demo__structured")
        with servers.client(route, UPSTREAM, calls_through=through) as other:
            assert is_asked(other, "demo__echo")
            assert is_asked(other, "demo__structured")


@pytest.mark.requirement("consent.upstream")
@each_way
def test_all_five_answers_stand_in_their_order(through: bool, servers: Servers, tmp_path: Path) -> None:
    settings = tmp_path / "coretools-mcp" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    served = stdio_server(servers.root, servers.config(UPSTREAM), settings_environment(tmp_path))
    with served as wire, initialized_client(wire, "2025-11-25", calls_through=through) as client:
        call = client.call("demo__echo", {"text": "x"})
        asked = call.next_question()
        assert asked.decisions == ["once", "always", "always_server", "save", "deny"]
        call.answer(asked, accepted(decision="save"))
        assert call.next_result().code is None
        assert "demo__echo" in settings.read_text()
        assert not is_asked(client, "demo__echo")
        assert is_asked(client, "demo__picture")


@pytest.mark.requirement("consent.save")
@each_way
def test_an_upstreams_result_stays_whole_beside_the_line_that_nothing_was_saved(
    through: bool, servers: Servers, tmp_path: Path
) -> None:
    settings = tmp_path / "coretools-mcp" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    served = stdio_server(servers.root, servers.config(UPSTREAM), settings_environment(tmp_path))
    with served as wire, initialized_client(wire, "2025-11-25", calls_through=through) as client:
        call = client.call("demo__echo", {"text": "x"})
        asked = call.next_question()
        settings.write_text("[]")
        call.answer(asked, accepted(decision="save"))
        done = call.next_result()
        assert (done.text, done.code) == ("x", None)
        assert [text.partition(". ")[0] for text in done.more] == ["Allowed for this session only: demo__echo"]
        assert not is_asked(client, "demo__echo")


@pytest.mark.requirement("consent.upstream")
@each_way
@by_route(NETWORK_ROUTES)
def test_a_client_that_cannot_be_asked_gets_no_upstream_over_the_network(
    through: bool, route: Route, servers: Servers
) -> None:
    with servers.client(route, UPSTREAM, calls_through=through, capabilities={}) as client:
        done = client.call("demo__echo", {"text": "x"}).next_result()
        assert done.code == "execution_denied"
        assert "confirmation.whenUnavailable" in done.text
        assert client.is_answered()
