"""Folders that a client takes back while a person is asked: a yes then has no effect in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.fork_server import forked
from tests.harness import HANDSHAKE, LAUNCHER

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("workspace.taken_back")
@pytest.mark.parametrize("is_same", [True, False])
async def test_a_yes_does_nothing_in_a_folder_that_the_client_has_taken_back_meanwhile(
    is_same: bool, tmp_path: Path
) -> None:
    old_root, new_root = (tmp_path / name for name in ("before", "after"))
    old_root.mkdir()
    new_root.mkdir()
    current_roots = [old_root]

    async def roots(context: Any) -> types.ListRootsResult:
        del context
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": current_roots[0].as_uri()})])

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        del context, params
        current_roots[0] = old_root if is_same else new_root
        await client.session.send_notification(types.RootsListChangedNotification())
        if is_same:
            await client.call_tool("list_directory", {"path": str(old_root)})
        return types.ElicitResult(action="accept", content={"decision": "once"})

    arguments = ["-P", "-W", "error", str(LAUNCHER), "serve"]
    server = StdioServerParameters(command=sys.executable, args=forked(arguments))
    async with Client(
        server, mode=HANDSHAKE, cache=None, elicitation_callback=answer, list_roots_callback=roots
    ) as client:
        result = await client.call_tool("write_file", {"file_path": str(old_root / "a.txt"), "content": "x"})
        assert (old_root / "a.txt").exists() is is_same
        assert result.is_error is not is_same
        assert is_same or "changed its workspace folders" in str(result.content[0])
