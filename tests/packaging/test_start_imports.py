"""What a server imports before it has answered its first requests: what tools are, not what they do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import server_arguments

ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
MESSAGES = (
    {"id": 1, "method": "initialize", "params": ABOUT},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)

WORK = (
    "tools.filesystem.search.",
    "tools.filesystem.reading.",
    "tools.filesystem.finding.file_finder",
    "tools.filesystem.finding.folder_listing",
    "tools.filesystem.finding.patterns",
    "tools.filesystem.finding.selection",
    "tools.filesystem.finding.walk",
    "tools.filesystem.changing.changer",
    "tools.filesystem.changing.diff",
    "tools.filesystem.changing.editor",
    "tools.filesystem.changing.text_match",
    "tools.filesystem.changing.whole_file",
    "tools.filesystem.legacy_encoding",
    "tools.execution.broker",
    "tools.execution.command",
    "tools.execution.process.",
    "tools.execution.runner",
    "tools.execution.sandbox.bubblewrap",
    "tools.execution.shell_call",
    "tools.execution.shell_report",
    "tree_sitter",
)
"""What only a call needs: beginnings of module names."""


@pytest.mark.requirement("project.start-imports")
def test_what_tools_do_is_imported_with_their_first_call(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", *server_arguments(tmp_path, None)]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in MESSAGES)
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=50, check=True)
    assert [json.loads(line).get("id") for line in done.stdout.splitlines()] == [1, 2]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"tools.filesystem.grep_search", "tools.execution.run_shell_command", "server.app"} <= imported
    assert sorted(name for name in imported if f"{name}.".startswith(WORK)) == []
