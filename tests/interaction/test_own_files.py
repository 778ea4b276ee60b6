"""The server's own settings are protected: only a person who was asked about them can allow a write."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import lock_text
from tests.fork_server import forked
from tests.harness import HANDSHAKE, LAUNCHER

pytestmark = pytest.mark.anyio

EVERYTHING = ["Edit", "Bash(*)", "*"]
"""Rules that allow as much as rules can."""


class Person:
    """Answers each question as the test says, and records the questions and their forms."""

    def __init__(self, decision: str = "deny") -> None:
        self.decision = decision
        self.questions: list[str] = []
        self.schemas: list[str] = []

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert isinstance(params, types.ElicitRequestFormParams)
        self.questions.append(params.message)
        self.schemas.append(json.dumps(params.requested_schema))
        return types.ElicitResult(action="accept", content={"decision": self.decision})


@asynccontextmanager
async def workspace_client(
    root: Path, person: Person | None, *options: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[Client]:
    """Start a server in a workspace, and yield its only client."""
    arguments = ["-P", "-W", "error", str(LAUNCHER), "serve", "--workspace", str(root), *options]
    parameters = StdioServerParameters(command=sys.executable, args=forked(arguments), env=dict(environ or {}))
    async with Client(parameters, mode=HANDSHAKE, cache=None, elicitation_callback=person) as client:
        yield client


@pytest.fixture
def config(root: Path) -> Path:
    """Settings that allow everything, in the workspace."""
    path = root / "conf" / "coretools.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"permissions": {"allow": EVERYTHING}, "log": {"audit": str(root / "audit.jsonl")}}))
    return path


@pytest.mark.requirement("settings.own.asked")
@pytest.mark.parametrize("mode", ["default", "auto-edit", "yolo"])
async def test_a_settings_file_in_the_workspace_is_written_with_consent_only(
    mode: str, root: Path, config: Path
) -> None:
    before = config.read_text()
    os.link(config, root / "hard.json")
    (root / "soft").symlink_to("conf")
    person = Person()
    async with workspace_client(root, person, "--config", str(config), "--approval-mode", mode) as client:
        for path in ("conf/coretools.json", "hard.json", "soft/coretools.json", "conf/CORETOOLS.JSON", "audit.jsonl"):
            result = await client.call_tool("write_file", {"file_path": str(root / path), "content": "{}"})
            assert result.is_error, path
        assert len(person.questions) == 5
        assert not any("always" in schema for schema in person.schemas)
        result = await client.call_tool("write_file", {"file_path": str(root / "other.json"), "content": "{}"})
        assert not result.is_error
    assert len(person.questions) == 5
    assert config.read_text() == before


COMMANDS = [
    "echo '{}' > conf/coretools.json",
    "echo '{}' >> ./conf/../conf/coretools.json",
    "cp evil.json conf/coretools.json",
    "cp evil.json conf",
    "tee conf/coretools.json < evil.json",
    "mv evil.json conf/coretools.json",
    "rm -rf conf",
    "mv conf elsewhere",
    "ln -sfn evil conf",
    "sed -i s/a/b/ conf/coretools.json",
    "truncate -s 0 audit.jsonl",
    "cd conf && cp ../evil.json coretools.json",
    "echo '{}' > hard.json",
    "cp evil.json conf/*",
    "cp evil.json co?f/coretools.json",
    "rm -r co*",
]


@pytest.mark.requirement("settings.own.asked")
@pytest.mark.parametrize("mode", ["auto-edit", "yolo"])
async def test_a_command_writes_a_settings_file_with_consent_only(mode: str, root: Path, config: Path) -> None:
    before = config.read_text()
    (root / "evil.json").write_text("{}")
    os.link(config, root / "hard.json")
    person = Person()
    async with workspace_client(root, person, "--config", str(config), "--approval-mode", mode) as client:
        for command in COMMANDS:
            count = len(person.questions)
            result = await client.call_tool("run_shell_command", {"command": command})
            # A command that names a protected file is asked about. The sandbox stops the others.
            assert "*" in command or "?" in command or (result.is_error and len(person.questions) == count + 1), command
            assert config.read_text() == before, command


@pytest.mark.requirement("settings.own.seen")
@pytest.mark.requirement("lock.person")
@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_no_dialog_of_a_client_lets_a_model_write_settings_or_the_lock_file(
    sandbox: str, root: Path, tmp_path: Path
) -> None:
    """The settings are in the workspace. The lock file beside them is a link to a file with another name there."""
    folder, lock_file = root / "conf", root / "approved.json"
    folder.mkdir()
    settings = {"confirmation": {"whenUnavailable": "client"}, "shell": {"sandbox": sandbox}}
    config = folder / "coretools.json"
    config.write_text(json.dumps(settings))
    lock_file.write_bytes(lock_text({}))
    (folder / LOCK_NAME).symlink_to(lock_file)
    os.link(config, root / "hard.json")
    os.link(lock_file, root / "hard.lock.json")
    (root / "soft").symlink_to("conf")
    (root / "soft.json").symlink_to("hard.json")
    before = {path: path.read_bytes() for path in (config, lock_file)}
    paths = ["conf/coretools.json", "hard.json", "soft/coretools.json", "conf/../soft.json", "conf/CORETOOLS.JSON"]
    paths += [f"conf/{LOCK_NAME}", "approved.json", "APPROVED.json", "hard.lock.json", f"soft/{LOCK_NAME}"]
    async with workspace_client(root, None, "--config", str(config)) as client:
        for path in paths:
            target, command = str(root / path), {"command": f"echo x > {path}", "description": "d"}
            calls: list[tuple[str, dict[str, Any]]] = [
                ("write_file", {"file_path": target, "content": "{}"}),
                ("run_shell_command", command),
                ("run_shell_command", {**command, "command": f"python3 x.py --out={path}"}),
            ]
            if os.path.exists(target):
                calls.append(("edit", {"file_path": target, "old_string": "{", "new_string": "x", "replace_all": True}))
            for tool, arguments in calls:
                result = await client.call_tool(tool, arguments)
                assert "The user could not be asked for consent" in str(result.content[0]), (tool, path)
        # A file that has only the name of a lock file is written like any other file.
        other_file = {"file_path": str(root / "sub" / LOCK_NAME), "content": "{}"}
        assert not (await client.call_tool("write_file", other_file)).is_error
    assert {path: path.read_bytes() for path in (config, lock_file)} == before


@pytest.mark.requirement("settings.own.asked")
@pytest.mark.parametrize("name", ["hard link", "link", "folder that is a link", "link that came later"])
async def test_settings_that_no_mount_protects_are_protected_by_a_question_about_every_command(
    name: str, root: Path, tmp_path: Path
) -> None:
    """The words of the command do not name the settings file."""
    folder, outside = root / "conf", tmp_path / "outside"
    outside.mkdir()
    real = (root if name == "hard link" else outside) / "real.json"
    real.write_text("{}")
    config = folder / "real.json"
    if name == "folder that is a link":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
        config.write_text("{}")
        if name != "link that came later":
            config.unlink()
            (config.hardlink_to if name == "hard link" else config.symlink_to)(real)
    program = "import os; os.chdir('con' + 'f'); name = 'rea' + 'l.json'"
    program += "; open('new', 'w').write('changed'); os.rename('new', name)"
    async with workspace_client(root, None, "--config", str(config), "--approval-mode", "yolo") as client:
        if name == "link that came later":
            assert not (await client.call_tool("run_shell_command", {"command": "touch other"})).is_error
            config.unlink()
            config.symlink_to(real)
        result = await client.call_tool("run_shell_command", {"command": f'python3 -c "{program}"'})
        assert "The user could not be asked for consent" in str(result.content[0])
        assert not (await client.call_tool("run_shell_command", {"command": "ls"})).is_error
    assert config.read_text() == "{}"


@pytest.mark.requirement("settings.own.asked")
async def test_the_users_own_folder_and_a_link_to_settings_are_guarded_in_the_workspace(
    root: Path, tmp_path: Path
) -> None:
    own_folder = root / "xdg" / "coretools-mcp"
    own_folder.mkdir(parents=True)
    (own_folder / "settings.json").write_text(json.dumps({"permissions": {"allow": EVERYTHING}}))
    (tmp_path / "real.json").write_text("{}")
    link = root / "linked.json"
    link.symlink_to(tmp_path / "real.json")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(root / "xdg"), "HOME": str(tmp_path)}
    person = Person()
    async with workspace_client(
        root, person, "--config", str(link), "--approval-mode", "auto-edit", environ=environ
    ) as client:
        for name in ("settings.json", "trusted.json", "anything"):
            result = await client.call_tool("write_file", {"file_path": str(own_folder / name), "content": "{}"})
            assert result.is_error, name
        for command in ("ln -sf evil.json linked.json", "rm linked.json", "mv xdg other"):
            assert (await client.call_tool("run_shell_command", {"command": command})).is_error, command
        assert len(person.questions) == 6
        memory = {"fact": "tea is green", "scope": "global"}
        assert not (await client.call_tool("save_memory", memory)).is_error
    assert len(person.questions) == 6
    assert link.is_symlink()
    assert not (own_folder / "trusted.json").exists()
    assert "tea is green" in (own_folder / "AGENTS.md").read_text()


@pytest.mark.requirement("settings.own.asked")
async def test_always_for_other_edits_does_not_cover_the_settings(root: Path) -> None:
    config = root / "coretools.json"
    config.write_text("{}")
    person = Person("always")
    async with workspace_client(root, person, "--config", str(config)) as client:
        assert not (await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})).is_error
        assert not (await client.call_tool("write_file", {"file_path": "b.txt", "content": "x"})).is_error
        assert len(person.questions) == 1
        person.decision = "deny"
        result = await client.call_tool("write_file", {"file_path": "coretools.json", "content": '{"a": 1}'})
        assert result.is_error
        assert len(person.questions) == 2
    assert config.read_text() == "{}"


@pytest.mark.requirement("settings.own.asked")
async def test_in_plan_mode_the_settings_are_not_even_asked_about(root: Path, config: Path) -> None:
    person = Person("once")
    before = config.read_text()
    async with workspace_client(root, person, "--config", str(config), "--approval-mode", "plan") as client:
        assert (await client.call_tool("write_file", {"file_path": str(config), "content": "{}"})).is_error
        command = {"command": "echo > conf/coretools.json"}
        assert (await client.call_tool("run_shell_command", command)).is_error
    assert not person.questions
    assert config.read_text() == before
