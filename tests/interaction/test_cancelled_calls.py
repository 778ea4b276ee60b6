"""Cancelled calls: the program that does the work is ended, and an upstream is told of the cancellation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, PEERS, connected, write_config
from tests.processes import until_ended
from tests.waiting import CEILING

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("cancellation"),
    pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only"),
]

NO_SANDBOX: Mapping[str, Any] = {"shell": {"sandbox": "off"}}
LINGERING_COMMAND = "echo $$ > began.new; mv began.new began; exec sleep 600"


async def accept(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    del context, params
    return types.ElicitResult(action="accept", content={"decision": "once"})


async def until_exists(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110 - a new file sends no event
        await anyio.sleep(0.01)


async def cancel_once_begun(client: Client, begin_file: Path, tool: str, arguments: Mapping[str, Any]) -> None:
    """Call a tool, and cancel the call as soon as the file exists."""
    async with anyio.create_task_group() as calls:
        calls.start_soon(client.call_tool, tool, dict(arguments))
        await until_exists(begin_file)
        calls.cancel_scope.cancel()


@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_the_program_of_a_cancelled_custom_tool_is_ended(mode: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "declared.json").write_text(json.dumps([{"name": "linger"}]))
    commands = {
        "discoveryCommand": ["cat", str(tmp_path / "declared.json")],
        "callCommand": ["/bin/sh", "-c", LINGERING_COMMAND.replace("$", "$$")],
    }
    config = write_config(tmp_path, {**NO_SANDBOX, "tools": commands})
    with anyio.fail_after(CEILING):
        async with connected("stdio", mode, root, config, elicitation_callback=accept) as client:
            assert "linger" in {tool.name for tool in (await client.list_tools()).tools}
            await cancel_once_begun(client, root / "began", "linger", {})
            await until_ended([int((root / "began").read_text())])
            assert not (await client.call_tool("list_directory", {"path": "."})).is_error


@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_another_server_is_told_that_its_call_was_cancelled(mode: str, root: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    entry = {"command": sys.executable, "args": forked([str(PEERS / "waiting_upstream.py"), str(marks)]), "trust": True}
    config = write_config(tmp_path, {"mcpServers": {"slow": entry}})
    with anyio.fail_after(CEILING):
        async with connected("stdio", mode, root, config, elicitation_callback=accept) as client:
            await client.list_tools()
            await cancel_once_begun(client, marks / "began", "slow__wait", {})
            await until_exists(marks / "cancelled")
            assert not (await client.call_tool("list_directory", {"path": "."})).is_error
