"""Tool names as clients see them. Without built-in tools and prefixes, this server looks like the one behind it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, PEERS, in_memory, server_arguments, stdio_upstream, write_config
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

UPSTREAMS_ONLY: Mapping[str, Any] = {"tools": {"builtIn": False}, "proxy": {"prefix": "none", "firstListWait": 30_000}}


def text_of(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.requirement("proxy.names.alone")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_without_our_tools_and_prefixes_a_client_sees_the_server_behind(mode: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"up": stdio_upstream(trust=True)}})
    peer = StdioServerParameters(command=sys.executable, args=forked([str(PEERS / "upstream.py")]))
    options = server_arguments(None, config, "--no-builtin-tools", "--no-prefix")
    proxy = StdioServerParameters(command=sys.executable, args=forked(options))
    with anyio.fail_after(CEILING):
        async with (
            Client(peer, mode=HANDSHAKE, cache=None) as upstream,
            Client(proxy, mode=mode, cache=None) as client,
        ):
            upstream_tools = {tool.name: tool for tool in (await upstream.list_tools()).tools}
            proxy_tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert text_of(await client.call_tool("echo", {"text": "hi"})) == "hi"
            assert text_of(await client.call_tool("up__echo", {"text": "ho"})) == "ho"
            for name in ("read_file", "task"):
                with pytest.raises(MCPError, match=name) as error_info:
                    await client.call_tool(name, {"file_path": str(config)})
                assert "agent" not in str(error_info.value)
            capabilities = client.server_capabilities
            assert client.instructions is None
    assert {name for name in proxy_tools if "odd" not in name} == upstream_tools.keys() - {"odd name!"}
    assert len(proxy_tools) == len(upstream_tools)
    assert proxy_tools["echo"].input_schema == upstream_tools["echo"].input_schema
    assert (proxy_tools["echo"].meta or {})["coretools-mcp/upstream"] == {"server": "up", "tool": "echo"}
    if mode == HANDSHAKE:  # features cannot be announced later, and an upstream may still bring them
        assert None not in (capabilities.prompts, capabilities.resources, capabilities.completions)


@pytest.mark.requirement("proxy.names.full")
async def test_a_client_that_knows_a_tool_from_before_calls_it_before_anything_was_listed(
    root: Path, tmp_path: Path
) -> None:
    servers = {"up": stdio_upstream(trust=True, prefix="none"), "two": stdio_upstream(trust=True)}
    config = write_config(tmp_path, {"mcpServers": servers})
    for name in ("echo", "up__echo", "two__echo"):
        with anyio.fail_after(CEILING):
            async with in_memory(HANDSHAKE, root, config) as client:
                assert text_of(await client.call_tool(name, {"text": "hi"})) == "hi"


@pytest.mark.requirement("proxy.names.unprefixed")
async def test_a_call_of_an_unknown_name_mentions_a_server_without_prefix_that_is_unavailable(
    root: Path, tmp_path: Path
) -> None:
    servers = {"up": {"command": "no-such-program-anywhere", "prefix": "none"}}
    config = write_config(tmp_path, {"mcpServers": servers})
    with anyio.fail_after(CEILING):
        async with in_memory(HANDSHAKE, root, config) as client:
            result = await client.call_tool("search", {})
    assert result.is_error
    assert "The server up is unavailable" in text_of(result)


@pytest.mark.requirement("proxy.names.stable")
async def test_a_renamed_and_a_shortened_tool_are_called_by_their_new_and_their_full_names(
    root: Path, tmp_path: Path
) -> None:
    alias = "a-rather-long-alias"
    servers = {alias: stdio_upstream(trust=True, rename={"echo": "say"}, includeTools=["echo", "protocol_error"])}
    config = write_config(tmp_path, {"mcpServers": servers, "proxy": {"nameBudget": 30, "firstListWait": 30_000}})
    with anyio.fail_after(CEILING):
        async with in_memory(HANDSHAKE, root, config) as client:
            tools = [tool for tool in (await client.list_tools()).tools if tool.name.startswith("a-rather")]
            texts = [text_of(await client.call_tool(f"{alias}__{name}", {"text": "hi"})) for name in ("say", "echo")]
            origins = {tool.name: (tool.meta or {})["coretools-mcp/upstream"]["tool"] for tool in tools}
            short_name = next(name for name, origin in origins.items() if origin == "protocol_error")
            error_codes: list[int] = []
            for name in (short_name, f"{alias}__protocol_error"):
                with pytest.raises(MCPError) as error:
                    await client.call_tool(name)
                error_codes.append(error.value.code)
    assert texts == ["hi", "hi"]
    assert sorted(origins.values()) == ["echo", "protocol_error"]
    assert len(short_name) == 30
    assert error_codes == [-32050, -32050]


@pytest.mark.requirement("proxy.names.alone")
async def test_custom_tools_never_take_the_names_of_built_in_tools_that_are_switched_off(
    root: Path, tmp_path: Path
) -> None:
    declarations = json.dumps([{"name": name} for name in ("read_file", "replace", "mine")])
    discovery = [sys.executable, "-I", "-c", f"print({declarations!r})"]
    tools = {"builtIn": False, "discoveryCommand": discovery, "callCommand": [sys.executable, "-I", "-c", "print(1)"]}
    config = write_config(tmp_path, {**UPSTREAMS_ONLY, "tools": tools, "permissions": {"allow": ["Read"]}})
    with anyio.fail_after(CEILING):
        async with in_memory(HANDSHAKE, root, config) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["mine"]


@pytest.mark.requirement("proxy.names.alone")
async def test_a_tool_named_like_one_of_ours_that_is_not_always_listed_is_listed_without_ours(
    root: Path, tmp_path: Path
) -> None:
    rename = {"echo": "exit_plan_mode", "fail": "ask_user_question", "steps": "task"}
    config = write_config(tmp_path, {**UPSTREAMS_ONLY, "mcpServers": {"up": stdio_upstream(trust=True, rename=rename)}})
    with anyio.fail_after(CEILING):
        async with in_memory(HANDSHAKE, root, config) as client:
            assert {*rename.values()} <= {tool.name for tool in (await client.list_tools()).tools}
            assert text_of(await client.call_tool("task", {})) == "done"
