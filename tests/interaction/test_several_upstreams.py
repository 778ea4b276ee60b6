"""Several servers whose tools have the same names: the alias of its server is the prefix of each tool."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import mcp_types as types
import pytest

from tests.fork_server import forked
from tests.harness import HANDSHAKE, PEERS, connected, listening, sdk_upstream, stdio_upstream, write_config
from tests.interaction.serving import Connect
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("mission.proxy")
async def test_tools_of_the_same_name_are_told_apart_by_the_alias_of_their_server(connect: Connect) -> None:
    servers = {
        "one": stdio_upstream(trust=True, env={"MARK_OF_ONE": "1"}),
        "two": stdio_upstream(trust=True, env={"MARK_OF_TWO": "2"}, excludeTools=["echo"]),
    }
    with anyio.fail_after(CEILING):
        async with connect({"mcpServers": servers}) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            results = {alias: str((await client.call_tool(f"{alias}__environment", {})).content) for alias in servers}
    assert len(set(names)) == len(names)
    assert {"one__echo", "one__environment", "two__environment", "read_file"} <= set(names)
    assert not {"environment", "echo", "two__echo"} & set(names)
    assert ("MARK_OF_ONE" in results["one"], "MARK_OF_TWO" in results["one"]) == (True, False)
    assert ("MARK_OF_ONE" in results["two"], "MARK_OF_TWO" in results["two"]) == (False, True)


@pytest.mark.requirement("mission.proxy")
async def test_the_tools_of_a_lone_server_have_its_alias_as_their_prefix_too(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"only": stdio_upstream(trust=True)}})
    with anyio.fail_after(CEILING):
        async with connected("stdio", HANDSHAKE, root, config) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            result = await client.call_tool("only__echo", {"text": "hi"})
    assert "only__echo" in names
    assert "echo" not in names
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text == "hi"


@pytest.mark.requirement("mission.proxy")
async def test_servers_over_different_transports_work_side_by_side(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, *forked([str(PEERS / "upstream.py")])]
    with anyio.fail_after(CEILING):
        async with (
            listening([*command, "http"], r"port (\d+)") as http,
            listening([*command, "sse"], r"port (\d+)") as sse,
        ):
            servers = {
                "here": sdk_upstream(trust=True),
                "near": {"httpUrl": f"http://127.0.0.1:{http}/mcp", "trust": True},
                "far": {"url": f"http://127.0.0.1:{sse}/sse", "trust": True},
            }
            config = write_config(tmp_path, {"mcpServers": servers})
            async with connected("stdio", HANDSHAKE, root, config) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                texts = [str((await client.call_tool(f"{alias}__echo", {"text": alias})).content) for alias in servers]
    schemas = {json.dumps(tools[f"{alias}__echo"].input_schema) for alias in servers}
    assert len(schemas) == 1
    assert [alias in text for alias, text in zip(servers, texts, strict=True)] == [True] * 3
