"""Before its first answers, a server imports the definitions of its tools, but not the code that does their work."""

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

WORK_MODULES = (
    "tools.files.search.",
    "tools.files.read.",
    "tools.files.find.folder_listing",
    "tools.files.find.glob_search",
    "tools.files.find.path_suggestions",
    "tools.files.find.folder_walk",
    "tools.files.change.file_change",
    "tools.files.change.diff",
    "tools.files.change.text_edit",
    "tools.files.change.text_match",
    "tools.files.change.file_change",
    "tools.shell.broker.broker",
    "tools.shell.program_output",
    "tools.shell.running_program",
    "tools.shell.process_spec.",
    "tools.shell.command_environment.",
    "tools.shell.command_runner",
    "tools.shell.sandbox.bubblewrap",
    "tools.shell.result_text",
    "tree_sitter",
    "mcp.",
    "mcp_types.",
    "httpx.",
    "httpx2.",
    "starlette.",
    "uvicorn.",
    "jsonschema.",
    "rich.",
    "cryptography.",
    "server.upstreams.wire.http_upstream.",
    "server.upstreams.login.",
    "server.dashboard.",
    "server.telemetry.",
    "server.transports.http_server.",
    "tools.web.page_text",
)
"""Prefixes of modules that are needed only by calls."""


@pytest.mark.requirement("project.start-imports")
def test_the_code_of_tools_is_imported_with_their_first_call(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", *server_arguments(tmp_path, None)]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in MESSAGES)
    result = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=50, check=True)
    assert [json.loads(line).get("id") for line in result.stdout.splitlines()] == [1, 2]
    modules = {
        line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")
    }
    assert {"tools.builtin.search_tools", "tools.builtin.run_shell_command", "server.app"} <= modules
    assert sorted(name for name in modules if f"{name}.".startswith(WORK_MODULES)) == []


@pytest.mark.requirement("project.start-imports")
def test_a_command_line_is_read_without_the_settings_so_that_the_watchdogs_fork_is_small() -> None:
    code = "import sys; from server import cli; cli.parse(['serve']); print(*sys.modules)"
    root = Path(__file__).resolve().parents[2]
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert {"server.settings", "pydantic", "tools.builtin"}.isdisjoint(result.stdout.split())
