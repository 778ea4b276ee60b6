"""Edits of the settings file take effect in a running server, over the real transport."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, connected, server_arguments, stdio_upstream, write_config

pytestmark = pytest.mark.anyio


async def tools_of(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def until_listed(client: Client, present: set[str], absent: set[str]) -> None:
    with anyio.fail_after(50):
        while True:
            names = await tools_of(client)
            if present <= names and not absent & names:
                return
            await anyio.sleep(0.1)


def rewrite(config: Path, settings: Mapping[str, Any] | str) -> None:
    """Replace the file with a new one, as editors do."""
    fresh = config.with_suffix(".new")
    fresh.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    fresh.replace(config)


@pytest.mark.requirement("settings.live.watch")
async def test_servers_and_rules_follow_the_file_and_a_broken_file_changes_nothing(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    config = write_config(tmp_path, {"mcpServers": {"one": stdio_upstream()}})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        await until_listed(client, {"one__echo", "glob"}, set())
        rewrite(config, {"mcpServers": {"one": stdio_upstream(), "two": stdio_upstream()}, "excludeTools": ["glob"]})
        await until_listed(client, {"one__echo", "two__echo", "read_file"}, {"glob"})
        refusal = await client.call_tool("glob", {"pattern": "*"})
        assert refusal.is_error
        rewrite(config, '{"mcpServers": ')
        rewrite(config, {"permissions": {"deny": ["Read(a.txt)"]}, "mcpServers": {"two": stdio_upstream()}})
        await until_listed(client, {"two__echo", "glob"}, {"one__echo"})
        denial = await client.call_tool("read_file", {"absolute_path": str(root / "a.txt")})
        assert denial.is_error
        assert "permissions.deny" in str(denial.content)
        echo = await client.call_tool("two__echo", {"text": "still here"})
        assert "still here" in str(echo.content)


def entry_with(root: Path, config: Path) -> dict[str, Any]:
    """Return an entry that starts this server with the given settings file."""
    return {"command": sys.executable, "args": server_arguments(root, config)}


@pytest.mark.long  # long: no fork, because a server recognises itself by a value that it generates when it is imported
@pytest.mark.requirement("upstreams.loop")
async def test_a_server_that_is_configured_behind_itself_does_not_start_itself_without_end(
    root: Path, tmp_path: Path
) -> None:
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    config = write_config(
        tmp_path, {"mcpServers": {"me": entry_with(root, other_folder / "config.json")}, "proxy": {"search": "off"}}
    )
    write_config(other_folder, {"mcpServers": {"me": entry_with(root, config)}})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        await until_listed(client, {"read_file", "me__me__me__read_file"}, {"me__me__me__me__read_file"})
