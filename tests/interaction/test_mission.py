"""The mission in a few tests: every transport, both eras, built-in tools, upstreams and consent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.fork_server import forked
from tests.harness import HANDSHAKE, PEERS, connected, listening, sdk_upstream, write_config
from tests.interaction.serving import CHEAP_ROUTES, Connect, by_route

pytestmark = pytest.mark.anyio

BUILTIN = {"list_directory", "read_file", "write_file", "edit", "glob", "grep_search", "read_many_files"}


class Person:
    """Answers every question with the same decision, and records the questions."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.questions: list[types.ElicitRequestFormParams] = []

    async def __call__(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.questions.append(params)
        if self.decision in ("decline", "cancel"):
            return types.ElicitResult(action=self.decision)  # pyright: ignore[reportArgumentType]
        return types.ElicitResult(action="accept", content={"decision": self.decision})


def text_of(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.requirement("mission.transports")
@pytest.mark.requirement("mission.proxy")
@pytest.mark.requirement("mission.confirmation")
@by_route(route for route in CHEAP_ROUTES if route.has_forms)
async def test_a_client_lists_everything_and_an_edit_happens_after_consent(connect: Connect, place: Path) -> None:
    target = place / "greeting.txt"
    target.write_text("hello world\n")
    person = Person("once")
    settings = {"mcpServers": {"demo": sdk_upstream(trust=True)}}
    async with connect(settings, elicitation_callback=person) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names >= BUILTIN
        assert "demo__echo" in names

        echo_result = await client.call_tool("demo__echo", {"text": "through the proxy"})
        assert text_of(echo_result) == "through the proxy"

        edit = {"file_path": str(target), "old_string": "world", "new_string": "there"}
        result = await client.call_tool("edit", edit)
        assert not result.is_error
    assert target.read_text() == "hello there\n"
    assert len(person.questions) == 1
    assert "-hello world" in person.questions[0].message
    assert "+hello there" in person.questions[0].message


@pytest.mark.requirement("mission.proxy")
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_an_upstream_over_http_or_sse_is_listed_and_called(kind: str, root: Path, tmp_path: Path) -> None:
    command = [sys.executable, *forked([str(PEERS / "upstream.py"), kind])]
    async with listening(command, r"port (\d+)") as port:
        url = f"http://127.0.0.1:{port}/{'mcp' if kind == 'http' else 'sse'}"
        entry = {"url": url, "type": kind, "trust": True}
        config = write_config(tmp_path, {"mcpServers": {"far": entry}})
        async with connected("stdio", HANDSHAKE, root, config) as client:
            assert "far__echo" in {tool.name for tool in (await client.list_tools()).tools}
            assert text_of(await client.call_tool("far__echo", {"text": "hi"})) == "hi"


@pytest.mark.requirement("mission.proxy")
async def test_a_bare_url_is_tried_as_streamable_http_and_then_as_sse(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, *forked([str(PEERS / "upstream.py"), "sse"])]
    async with listening(command, r"port (\d+)") as port:
        entry = {"url": f"http://127.0.0.1:{port}/sse", "trust": True}
        config = write_config(tmp_path, {"mcpServers": {"far": entry}})
        async with connected("stdio", HANDSHAKE, root, config) as client:
            assert text_of(await client.call_tool("far__echo", {"text": "hi"})) == "hi"
