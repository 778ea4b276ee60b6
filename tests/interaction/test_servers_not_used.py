"""Calls to servers that the configuration leaves out: the error names the setting, and calls no tool unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from server.settings import load_settings
from tests.harness import HANDSHAKE, stdio_upstream, write_config
from tests.in_process import in_process
from tests.interaction.relay.clients import CEILING, app_of

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("proxy.not_used")]

USED = {"used": stdio_upstream(trust=True)}


async def error_text(client: Client, tool: str) -> str:
    result = await client.call_tool(tool, {})
    assert result.is_error
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"mcpServers": {**USED, "idle": stdio_upstream(enabled=False)}}, "mcpServers.idle.enabled"),
        ({"mcpServers": {"idle": stdio_upstream(enabled=False)}}, "mcpServers.idle.enabled"),
        ({"mcpServers": {**USED, "idle": stdio_upstream()}, "mcp": {"allowed": ["used"]}}, "mcp.allowed"),
        ({"mcpServers": {**USED, "idle": stdio_upstream()}, "mcp": {"excluded": ["idle"]}}, "mcp.excluded"),
        (
            {"mcpServers": {**USED, "idle": {"command": "x", "timeout": "soon"}}},
            "mcpServers.idle.timeout is not valid.",
        ),
        ({"mcpServers": {**USED, "idle": {}}}, "mcpServers.idle has no command"),
    ],
)
async def test_a_call_says_which_setting_leaves_its_server_out(
    settings: dict[str, Any], setting: str, tmp_path: Path
) -> None:
    app = app_of(write_config(tmp_path, settings))
    with anyio.fail_after(CEILING):
        async with app.running(), Client(in_process(app), mode=HANDSHAKE, cache=None) as client:
            text = await error_text(client, "idle__echo")
            assert "The server idle is not used here" in text
            assert setting in text


@pytest.mark.parametrize(
    ("entry", "setting"),
    [(stdio_upstream(enabled=False), "mcpServers.used.enabled"), ({"command": 5}, "mcpServers.used.command")],
)
async def test_a_call_names_the_setting_that_leaves_out_its_server_after_the_start(
    entry: dict[str, Any], setting: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": USED})
    app = app_of(config)
    with anyio.fail_after(CEILING):
        async with (
            app.running(),
            Client(in_process(app), mode=HANDSHAKE, cache=None) as client,
            anyio.create_task_group() as tasks,
        ):
            assert not (await client.call_tool("used__echo", {"text": "x"})).is_error
            config.write_text(json.dumps({"mcpServers": {"used": entry}}))
            await app.live.apply(load_settings([str(config)], {}, {}), tasks)
            assert setting in await error_text(client, "used__echo")
            tasks.cancel_scope.cancel()
