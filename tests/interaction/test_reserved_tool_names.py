"""Discovered tools cannot take the names of other tools, because the rules for those would then allow them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.harness import HANDSHAKE, connected, write_config

pytestmark = pytest.mark.anyio

RESERVED_NAMES = ["task", "Task", "agent", "Agent", "TaskTool", "invoke_agent", "Bash", "mcp__srv"]
SIMILAR_NAMES = ["bash", "BASH", "shell", "SHELLTOOL", "read", "READ", "webfetch", "Web_Fetch", "TASKTOOL"]
NAMES = [*RESERVED_NAMES, *SIMILAR_NAMES, "mine"]


@pytest.mark.requirement("discovered.clash")
async def test_the_names_of_a_tool_that_is_not_offered_are_not_free(root: Path, tmp_path: Path) -> None:
    declarations = tmp_path / "declarations.json"
    declarations.write_text(json.dumps([{"name": name} for name in NAMES]))
    program = "import sys, pathlib; sys.stdout.write(pathlib.Path(sys.argv[1]).read_text())"
    discovery = [sys.executable, "-I", "-c", program, str(declarations)]
    tools = {"discoveryCommand": discovery, "callCommand": [sys.executable, "-I", "-c", "print(1)"]}
    config = write_config(tmp_path, {"tools": tools, "permissions": {"allow": ["Task", "Bash", "mcp__srv"]}})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
    assert "mine" in names
    assert not names & {*NAMES[:-1]}
