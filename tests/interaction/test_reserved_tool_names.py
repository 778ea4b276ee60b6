"""A server whose discovery command declares tools under the names of others: rules for those do not run them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.harness import HANDSHAKE, connected, write_config

pytestmark = pytest.mark.anyio

OF_OTHERS = ["task", "Task", "agent", "Agent", "TaskTool", "invoke_agent", "Bash", "mcp__srv"]
ALIKE = ["bash", "BASH", "shell", "SHELLTOOL", "read", "READ", "webfetch", "Web_Fetch", "TASKTOOL"]
NAMES = [*OF_OTHERS, *ALIKE, "mine"]


@pytest.mark.requirement("discovered.clash")
async def test_the_names_of_a_tool_that_is_not_offered_are_not_free(root: Path, tmp_path: Path) -> None:
    declarations = tmp_path / "declarations.json"
    declarations.write_text(json.dumps([{"name": name} for name in NAMES]))
    printing = "import sys, pathlib; sys.stdout.write(pathlib.Path(sys.argv[1]).read_text())"
    discovery = [sys.executable, "-I", "-c", printing, str(declarations)]
    tools = {"discoveryCommand": discovery, "callCommand": [sys.executable, "-I", "-c", "print(1)"]}
    config = write_config(tmp_path, {"tools": tools, "permissions": {"allow": ["Task", "Bash", "mcp__srv"]}})
    async with connected("stdio", HANDSHAKE, root, config) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
    assert "mine" in listed
    assert not listed & {*NAMES[:-1]}
