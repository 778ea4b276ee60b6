"""Custom tools as a client sees them: discovered by a command, listed, asked about, called and changed live."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, connected, text_of, write_config
from tests.interaction.serving import CHEAP_ROUTES, Connect, SharedServers, by_route

pytestmark = pytest.mark.anyio

PRINT_PROGRAM = "import sys; print(open(sys.argv[1]).read())"
CALL_PROGRAM = "import sys; print(sys.argv[1].upper(), sys.stdin.read())"


def settings(folder: Path, name: str) -> dict[str, Any]:
    """Return settings with the two commands. The discovery command prints a file that declares one tool."""
    (folder / name).write_text(json.dumps([{"name": name, "description": "Shouts.", "parametersJsonSchema": {}}]))
    discovery: Sequence[str] = [sys.executable, "-c", PRINT_PROGRAM, str(folder / name)]
    return {"tools": {"discoveryCommand": discovery, "callCommand": [sys.executable, "-c", CALL_PROGRAM]}}


async def accept(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert "shout" in params.message
    return types.ElicitResult(action="accept", content={"decision": "once"})


async def until_listed(client: Client, name: str) -> Mapping[str, types.Tool]:
    with anyio.fail_after(50):
        while True:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            if name in tools:
                return tools
            await anyio.sleep(0.1)


@pytest.mark.requirement("discovered.call")
@by_route(route for route in CHEAP_ROUTES if route.has_forms)
async def test_a_custom_tool_is_listed_asked_about_and_called(connect: Connect, shared_servers: SharedServers) -> None:
    async with connect(settings(shared_servers.folder, "shout"), elicitation_callback=accept) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("shout", {"what": ["a", 'quote " and\nline']})
    assert tools[-1].name == "shout"
    assert not result.is_error
    assert "SHOUT" in text_of(result)
    assert json.dumps('quote " and\nline')[1:-1] in text_of(result)


@pytest.mark.requirement("discovered.call")
async def test_a_call_that_comes_before_the_list_waits_for_the_discovery(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, settings(tmp_path, "shout"))
    async with connected("stdio", HANDSHAKE, root, config, elicitation_callback=accept) as client:
        assert "SHOUT" in text_of(await client.call_tool("shout", {}))


@pytest.mark.requirement("discovered.refresh")
async def test_changed_commands_bring_other_tools_without_a_restart(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        assert "read_file" in {tool.name for tool in (await client.list_tools()).tools}
        write_config(tmp_path, settings(tmp_path, "shout"))
        await until_listed(client, "shout")
        write_config(tmp_path, settings(tmp_path, "whisper"))
        assert "shout" not in await until_listed(client, "whisper")
