"""Typical settings files of Qwen Code and Gemini CLI work unchanged with this server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.fork_server import forked
from tests.harness import HANDSHAKE, PEERS, command_line, server_arguments, text_of
from tests.variants import one_in
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

BOTH = ["qwen", "gemini"]

FLAT = """{
  // in the flat shape of the first versions
  "theme": "Default",
  "vimMode": false,
  "preferredEditor": "vim",
  "contextFileName": "NOTES.md",
  "fileFiltering": { "respectGitIgnore": true, "enableRecursiveFileSearch": true },
  "coreTools": [
    "ReadFileTool", "LSTool", "EditTool", "GlobTool", "MemoryTool", "ShellTool(ls)",
    "WriteFileTool" /* and taken out below */
  ],
  "excludeTools": ["WriteFileTool"],
  "allowMCPServers": ["demo", "mcp", "other"],
  "excludeMCPServers": ["other"],
  "toolDiscoveryCommand": "bin/get_tools --all",
  "toolCallCommand": "bin/call_tool",
  "mcpServerCommand": "$PYTHON ${PEERS}/plain_upstream.py",
  "mcpServers": {
    "demo": {
      "command": "${PYTHON}", "args": ["$PEERS/plain_upstream.py"], "env": { "MARK": "$SECRET" }, "trust": true
    },
    "other": { "command": "no-such-program", "args": [] },
    "third": { "command": "no-such-program-either" }
  },
  "checkpointing": { "enabled": false },
  "telemetry": { "enabled": false },
  "usageStatisticsEnabled": false,
  "hideTips": true,
  "maxSessionTurns": -1,
  "autoAccept": false,
  "approvalMode": "yolo"
}
"""

SECTIONS = """{
  /* in the shape in sections */
  "general": { "vimMode": false, "preferredEditor": "vim", "checkpointing": { "enabled": false } },
  "ui": { "theme": "Default", "hideBanner": false, "hideTips": true, "customThemes": {} },
  "ide": { "enabled": false },
  "privacy": { "usageStatisticsEnabled": false },
  "telemetry": { "enabled": false },
  "model": { "name": "a-model", "maxSessionTurns": -1, "chatCompression": { "contextPercentageThreshold": 0.6 } },
  "context": {
    "fileName": ["NOTES.md", "MORE.md"],
    "includeDirectories": [],
    "fileFiltering": { "respectGitIgnore": true, "enableRecursiveFileSearch": true } // https://example.org/is-no-comment
  },
  "tools": {
    "approvalMode": "yolo",
    "shell": { "enableInteractiveShell": false, "pager": "cat", "showColor": false, "inactivityTimeout": 300 },
    "core": ["ReadFileTool", "LSTool", "EditTool", "GlobTool", "MemoryTool", "ShellTool(ls)", "WriteFileTool"],
    "exclude": ["WriteFileTool"],
    "discoveryCommand": "bin/get_tools --all",
    "callCommand": "bin/call_tool",
    "truncateToolOutputThreshold": 25000,
    "truncateToolOutputLines": 1000
  },
  "mcp": {
    "serverCommand": "$PYTHON ${PEERS}/plain_upstream.py", "allowed": ["demo", "mcp", "other"], "excluded": ["other"]
  },
  "mcpServers": {
    "demo": {
      "command": "${PYTHON}", "args": ["$PEERS/plain_upstream.py"], "env": { "MARK": "$SECRET" }, "trust": true
    },
    "other": { "command": "no-such-program", "args": [] },
    "third": { "command": "no-such-program-either" }
  },
  "security": { "folderTrust": { "enabled": false }, "auth": { "selectedType": "oauth-personal" } },
  "advanced": { "excludedEnvVars": ["DEBUG"] }
}
"""

GET_TOOLS = """#!/bin/sh
test "$1" = --all && printf %s '[{"function_declarations": [{
  "name": "shout",
  "description": "Shouts.",
  "parameters": {"type": "OBJECT", "properties": {"what": {"type": "STRING"}}}
}]}]'
"""
CALL_TOOL = '#!/bin/sh\nprintf "%s of %s" "$1" "$(cat)"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(root: Path) -> Path:
    """A workspace with the two programs that the settings name, for custom tools."""
    for name, program in (("get_tools", GET_TOOLS), ("call_tool", CALL_TOOL)):
        path = root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(program)
        path.chmod(0o755)
    return root


def environment(home: Path) -> dict[str, str]:
    nowhere = str(home / "no-such-file.json")
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHON": sys.executable,
        "PEERS": str(PEERS),
        "SECRET": "hunter2",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": nowhere,
        "GEMINI_CLI_SYSTEM_SETTINGS_PATH": nowhere,
    }


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


class Person:
    """Allows each action once, and records the questions."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def __call__(self, context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        self.questions.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "once"})


@asynccontextmanager
async def served(home: Path, project: Path, log: Path, person: Person, *options: str) -> AsyncGenerator[Client]:
    """Start a server in a project, with these options, and yield its client."""
    parameters = StdioServerParameters(
        command=sys.executable, args=forked(server_arguments(None, None, *options)), env=environment(home), cwd=project
    )
    with log.open("w") as errors, anyio.fail_after(CEILING):
        reach = stdio_client(parameters, errlog=errors)
        async with Client(reach, mode=HANDSHAKE, cache=None, elicitation_callback=person) as client:
            yield client


async def until_listed(client: Client, expected: set[str]) -> set[str]:
    """Wait until the expected tools are listed, and return the names of all tools."""
    while True:
        names = {tool.name for tool in (await client.list_tools()).tools}
        if expected <= names:
            return names
        await anyio.sleep(0.1)


OURS = {"read_file", "list_directory", "edit", "glob", "save_memory", "run_shell_command"}


@pytest.mark.requirement("settings.agent-cli.served")
@pytest.mark.parametrize("cli", BOTH)
@pytest.mark.parametrize("content", one_in(2, [FLAT, SECTIONS]), ids=["flat", "sections"])
async def test_a_users_settings_file_works_unchanged(
    cli: str, content: str, home: Path, project: Path, tmp_path: Path
) -> None:
    file = write(home / f".{cli}" / "settings.json", content)
    (project / "a.txt").write_text("old\n")
    person, log = Person(), tmp_path / "log"
    async with served(home, project, log, person, "--settings", cli) as client:
        names = await until_listed(client, {"shout", "demo__echo", "mcp__echo"})
        assert {name for name in names if "__" not in name} == OURS | {"shout"}
        assert {name.partition("__")[0] for name in names if "__" in name} == {"demo", "mcp"}

        assert "MARK" in text_of(await client.call_tool("demo__environment", {}))
        assert person.questions == [], "the tools of a trusted server need no question"
        output = text_of(await client.call_tool("shout", {"what": "hello"}))
        assert output == 'shout of {"what": "hello"}'
        assert text_of(await client.call_tool("mcp__echo", {"text": "hi"})) == "hi"
        assert len(person.questions) == 2

        edit = {"file_path": "a.txt", "old_string": "old", "new_string": "new"}
        assert not (await client.call_tool("edit", edit)).is_error
        assert len(person.questions) == 3, "approval mode yolo has no effect in a file"
        assert not (await client.call_tool("save_memory", {"fact": "Tabs.", "scope": "project"})).is_error
        refusal = await client.call_tool("write_file", {"file_path": "b.txt", "content": "x"})
        assert refusal.is_error
        assert "tools.exclude" in text_of(refusal)
    title = "Qwen" if cli == "qwen" else "Gemini"
    assert (project / "a.txt").read_text() == "new\n"
    assert (project / "NOTES.md").read_text() == f"## {title} Added Memories\n- Tabs.\n"
    warnings = [line for line in log.read_text().splitlines() if str(file) in line]
    assert len(warnings) == 1
    assert 'approvalMode "yolo" is ignored' in warnings[0]
    assert "hunter2" not in log.read_text()


async def run(home: Path, project: Path, *arguments: str) -> str:
    result = await anyio.run_process(command_line(*arguments), env=environment(home), cwd=project)
    return result.stdout.decode()


TOUCHING = "#!/bin/sh\n: > '{marker}'\necho '[]'\n"
PLACES = (".qwen/settings.json", ".gemini/settings.json", ".coretools/settings.json")


@pytest.mark.requirement("settings.workspace.trust")
@pytest.mark.parametrize("place", one_in(3, PLACES))
async def test_programs_that_a_workspace_names_are_started_only_after_it_is_trusted(
    place: str, home: Path, root: Path, tmp_path: Path
) -> None:
    marks = {name: tmp_path / f"{name}-was-started" for name in ("discovery", "server", "command", "hook")}
    for name, marker in marks.items():
        write(root / "bin" / name, TOUCHING.format(marker=marker)).chmod(0o755)
    content = {
        "mcpServers": {"evil": {"command": str(root / "bin/server"), "trust": True}},
        "mcp": {"serverCommand": str(root / "bin/command")},
        "tools": {"discoveryCommand": "bin/discovery", "callCommand": "bin/discovery"},
        "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": str(root / "bin/hook")}]}]},
        "security": {"folderTrust": {"enabled": False}},
    }
    write(root / place, json.dumps(content))
    write(root / ".mcp.json", json.dumps(content))
    write(root / ".env", f"TAVILY_API_KEY=evil\nCORETOOLS_CONFIG={root / place}\n")
    cli = "gemini" if "gemini" in place else "qwen"
    write(home / f".{cli}" / "settings.json", '{"security": {"folderTrust": {"enabled": false}}}')
    options, person = ("--settings", cli), Person()
    async with served(home, root, tmp_path / "log", person, *options) as client:
        names = await until_listed(client, {"read_file"})
        assert not (await client.call_tool("list_directory", {"path": "."})).is_error
        assert not any("__" in name for name in names)
    assert not any(marker.exists() for marker in marks.values())
    assert f"coretools-mcp trust {root}" in (tmp_path / "log").read_text()

    await run(home, root, "trust", "--yes")
    async with served(home, root, tmp_path / "log", person, *options) as client:
        await until_listed(client, {"read_file"})
        started_markers = [marks[name] for name in ("discovery", "server", "command")]
        while not all(marker.exists() for marker in started_markers):  # noqa: ASYNC110 - there is no event for a new file
            await anyio.sleep(0.05)
    assert not marks["hook"].exists()
