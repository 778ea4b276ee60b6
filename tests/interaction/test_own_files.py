"""The server's own settings stand: no rule, no mode and no answer to another question lets them be written."""

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
    """Answers each question as the test says, and keeps them."""

    def __init__(self, decision: str = "deny") -> None:
        self.decision = decision
        self.asked: list[str] = []
        self.offered: list[str] = []

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert isinstance(params, types.ElicitRequestFormParams)
        self.asked.append(params.message)
        self.offered.append(json.dumps(params.requested_schema))
        return types.ElicitResult(action="accept", content={"decision": self.decision})


@asynccontextmanager
async def served(
    root: Path, person: Person | None, *options: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[Client]:
    """A client of a server of its own in a workspace."""
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
    async with served(root, person, "--config", str(config), "--approval-mode", mode) as client:
        for path in ("conf/coretools.json", "hard.json", "soft/coretools.json", "conf/CORETOOLS.JSON", "audit.jsonl"):
            result = await client.call_tool("write_file", {"file_path": str(root / path), "content": "{}"})
            assert result.is_error, path
        assert len(person.asked) == 5
        assert not any("always" in offered for offered in person.offered)
        unguarded = await client.call_tool("write_file", {"file_path": str(root / "other.json"), "content": "{}"})
        assert not unguarded.is_error
    assert len(person.asked) == 5
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
    async with served(root, person, "--config", str(config), "--approval-mode", mode) as client:
        for command in COMMANDS:
            asked = len(person.asked)
            result = await client.call_tool("run_shell_command", {"command": command})
            # What names them is asked about; what does not is stopped by the sandbox.
            assert "*" in command or "?" in command or (result.is_error and len(person.asked) == asked + 1), command
            assert config.read_text() == before, command


@pytest.mark.requirement("settings.own.seen")
@pytest.mark.requirement("lock.person")
@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_no_dialog_of_a_client_lets_a_model_write_settings_or_the_lock_file(
    sandbox: str, root: Path, tmp_path: Path
) -> None:
    """The settings lie in the workspace, and the lock file beside them is a link to a file of another name there."""
    folder, approved = root / "conf", root / "approved.json"
    folder.mkdir()
    settings = {"confirmation": {"whenUnavailable": "client"}, "shell": {"sandbox": sandbox}}
    config = folder / "coretools.json"
    config.write_text(json.dumps(settings))
    approved.write_bytes(lock_text({}))
    (folder / LOCK_NAME).symlink_to(approved)
    os.link(config, root / "hard.json")
    os.link(approved, root / "hard.lock.json")
    (root / "soft").symlink_to("conf")
    (root / "soft.json").symlink_to("hard.json")
    before = {path: path.read_bytes() for path in (config, approved)}
    paths = ["conf/coretools.json", "hard.json", "soft/coretools.json", "conf/../soft.json", "conf/CORETOOLS.JSON"]
    paths += [f"conf/{LOCK_NAME}", "approved.json", "APPROVED.json", "hard.lock.json", f"soft/{LOCK_NAME}"]
    async with served(root, None, "--config", str(config)) as client:
        for path in paths:
            named, command = str(root / path), {"command": f"echo x > {path}", "description": "d"}
            calls: list[tuple[str, dict[str, Any]]] = [
                ("write_file", {"file_path": named, "content": "{}"}),
                ("run_shell_command", command),
                ("run_shell_command", {**command, "command": f"python3 x.py --out={path}"}),
            ]
            if os.path.exists(named):
                calls.append(("edit", {"file_path": named, "old_string": "{", "new_string": "x", "replace_all": True}))
            for tool, arguments in calls:
                result = await client.call_tool(tool, arguments)
                assert "The user could not be asked for consent" in str(result.content[0]), (tool, path)
        # A file of the name that approves nothing here is like any other that is asked about.
        unguarded = {"file_path": str(root / "sub" / LOCK_NAME), "content": "{}"}
        assert not (await client.call_tool("write_file", unguarded)).is_error
    assert {path: path.read_bytes() for path in (config, approved)} == before


@pytest.mark.requirement("settings.own.asked")
@pytest.mark.parametrize("name", ["hard link", "link", "folder that is a link", "link that came later"])
async def test_settings_that_no_mount_holds_are_held_by_a_question_about_every_command(
    name: str, root: Path, tmp_path: Path
) -> None:
    """The words of the command name no file."""
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
    async with served(root, None, "--config", str(config), "--approval-mode", "yolo") as client:
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
    own = root / "xdg" / "coretools-mcp"
    own.mkdir(parents=True)
    (own / "settings.json").write_text(json.dumps({"permissions": {"allow": EVERYTHING}}))
    (tmp_path / "real.json").write_text("{}")
    link = root / "linked.json"
    link.symlink_to(tmp_path / "real.json")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(root / "xdg"), "HOME": str(tmp_path)}
    person = Person()
    async with served(root, person, "--config", str(link), "--approval-mode", "auto-edit", environ=environ) as client:
        for name in ("settings.json", "trusted.json", "anything"):
            result = await client.call_tool("write_file", {"file_path": str(own / name), "content": "{}"})
            assert result.is_error, name
        for command in ("ln -sf evil.json linked.json", "rm linked.json", "mv xdg other"):
            assert (await client.call_tool("run_shell_command", {"command": command})).is_error, command
        assert len(person.asked) == 6
        remembered = {"fact": "tea is green", "scope": "global"}
        assert not (await client.call_tool("save_memory", remembered)).is_error
    assert len(person.asked) == 6
    assert link.is_symlink()
    assert not (own / "trusted.json").exists()
    assert "tea is green" in (own / "AGENTS.md").read_text()


@pytest.mark.requirement("settings.own.asked")
async def test_always_for_other_edits_does_not_cover_the_settings(root: Path) -> None:
    config = root / "coretools.json"
    config.write_text("{}")
    person = Person("always")
    async with served(root, person, "--config", str(config)) as client:
        assert not (await client.call_tool("write_file", {"file_path": "a.txt", "content": "x"})).is_error
        assert not (await client.call_tool("write_file", {"file_path": "b.txt", "content": "x"})).is_error
        assert len(person.asked) == 1
        person.decision = "deny"
        result = await client.call_tool("write_file", {"file_path": "coretools.json", "content": '{"a": 1}'})
        assert result.is_error
        assert len(person.asked) == 2
    assert config.read_text() == "{}"


@pytest.mark.requirement("settings.own.asked")
async def test_in_plan_mode_the_settings_are_not_even_asked_about(root: Path, config: Path) -> None:
    person = Person("once")
    before = config.read_text()
    async with served(root, person, "--config", str(config), "--approval-mode", "plan") as client:
        assert (await client.call_tool("write_file", {"file_path": str(config), "content": "{}"})).is_error
        command = {"command": "echo > conf/coretools.json"}
        assert (await client.call_tool("run_shell_command", command)).is_error
    assert not person.asked
    assert config.read_text() == before
