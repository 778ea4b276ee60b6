"""`install` and `uninstall`: what they show and ask, what they write, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from server.console.client_config_file import (
    ConfigFile,
    install_change,
    uninstall_change,
    write_install,
    write_uninstall,
)
from server.console.install_commands import LAUNCHER
from server.console.known_clients import client_configs
from server.console.user_files import read_file
from tests.fork_server import forked
from tests.harness import PEERS, command_line, stdio_upstream
from tests.interaction.relay.clients import scripted_entry
from tests.terminals import answer_at_terminal, at_terminal, run_alone
from tests.variants import one_in

MOVING = ("install", "cursor", "--import", "--yes")
KEY = {"TAVILY_API_KEY": "tvly-hunter2hunter2"}
CURSOR = """{
\t// mine
\t"mcpServers": {
\t\t"files": {"command": "npx", "args": ["-y", "files"], "env": {"API_KEY": "hunter2hunter2"}}, // why
\t},
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    return folder


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def settings_of(home: Path) -> Path:
    return home / ".config/coretools-mcp/settings.json"


@pytest.mark.requirement("install.entry")
def test_install_shows_the_change_asks_and_writes_an_entry_that_works(home: Path) -> None:
    file = write(home / ".cursor/mcp.json", CURSOR)
    code, stdout, stderr = answer_at_terminal(home, "install", "cursor", "--profile", "full")
    assert code == 0, stderr
    assert f"--- {file}" in stdout
    assert "+mcpServers.core.command = " in stdout
    assert "hunter2" not in stdout + stderr
    assert f"Change {file}? [y/N]" in stderr
    text = file.read_text()
    assert text.startswith(CURSOR[: CURSOR.index("\n\t},")])
    assert '\t\t"core": {\n\t\t\t"command": "/' in text
    assert "Started as Cursor would start it, the server has " in stdout
    assert stdout.endswith("that the server is on.\n")
    backup = next(line for line in stdout.splitlines() if line.startswith("The original file: "))
    backup_file = Path(backup.partition(": ")[2])
    assert backup_file.read_text() == CURSOR
    assert stat.S_IMODE(backup_file.stat().st_mode) == 0o600
    assert "hunter2" not in (backup_file.parent / "installs.json").read_text()
    again = run_alone(home, "install", "cursor", "--yes")
    assert "already has this entry, so nothing was changed" in again.stdout
    assert (again.returncode, file.read_text()) == (0, text)
    out = run_alone(home, "uninstall", "cursor", "--yes")
    assert (out.returncode, file.read_text()) == (0, CURSOR)
    assert not backup_file.exists()


@pytest.mark.requirement("install.own-tools")
def test_for_a_client_with_its_own_tools_install_asks_once_whether_to_leave_out_the_built_in_ones(home: Path) -> None:
    file, environ = home / ".config/opencode/opencode.json", {"HOME": str(home), "XDG_CONFIG_HOME": ""}

    def install_arguments(*options: str, answers: int) -> list[str]:
        command = command_line("install", "opencode", *options)
        code, output = at_terminal(command, [(b"[y/N]", b"y")] * answers, environ=environ)
        assert code == 0, output
        assert ("To add one: coretools-mcp config add NAME" in output) is ("the server has 0 tools" in output)
        assert ("the server has 0 tools" in output) is ("--no-builtin-tools" in file.read_text())
        return json.loads(file.read_text())["mcp"]["core"]["command"][1:]

    assert install_arguments(answers=2) == ["--no-builtin-tools"]
    assert install_arguments("--approval-mode", "plan", answers=1) == ["--no-builtin-tools", "--approval-mode", "plan"]
    assert install_arguments("--profile", "core", answers=1) == ["--profile", "core", "--approval-mode", "plan"]
    file.write_text(file.read_text().replace('"--approval-mode",\n        "plan"', '"--approval-mode=plan"'))
    assert "--approval-mode=plan" in file.read_text()
    assert install_arguments("--profile", "full", answers=1) == ["--profile", "full", "--approval-mode", "plan"]
    assert run_alone(home, "install", "continue", "--yes").returncode == 0
    (entry,) = json.loads((home / ".continue/mcpServers/coretools-mcp.json").read_text())["mcpServers"].values()
    assert entry["args"] == []


@pytest.mark.requirement("install.works")
def test_the_entry_is_started_with_the_variables_that_its_client_passes_on(home: Path, root: Path) -> None:
    upstream = stdio_upstream(env={"A": "${NEEDED}"})
    write(settings_of(home), json.dumps({"mcpServers": {"demo": upstream}, "proxy": {"firstListWait": 30_000}}))
    counts: dict[str, int] = {}
    for client in ("codex", "claude-desktop"):
        result = run_alone(home, "install", client, "--yes", "--workspace", str(root), variables={"NEEDED": "1", **KEY})
        assert result.returncode == 0, result.stderr
        counts[client] = int(result.stdout.partition("the server has ")[2].split()[0])
        assert ("does not pass TAVILY_API_KEY, NEEDED to servers" in result.stderr) is (client == "claude-desktop")
    assert counts["codex"] > counts["claude-desktop"] > 10  # without its variable, the upstream is not used
    entry = tomllib.loads((home / ".codex/config.toml").read_text())["mcp_servers"]["core"]
    assert entry["env_vars"] == ["TAVILY_API_KEY", "NEEDED"]
    assert "hunter2" not in (home / ".codex/config.toml").read_text()


@pytest.mark.requirement("install.works")
@pytest.mark.parametrize(
    ("client", "count"), [("claude-code", 50), ("codex", 50), ("qwen", 50), ("opencode", 3), ("gemini", 3)]
)
def test_the_entry_is_tried_with_the_tools_that_its_client_would_get(
    client: str, count: int, home: Path, root: Path
) -> None:
    tools = [{"name": f"do{n}", "description": "x" * 900, "inputSchema": {"type": "object"}} for n in range(50)]
    shop = scripted_entry("shop", "handshake", entry={}, answers={"tools/list": {"tools": tools}})
    settings = {"mcpServers": {"shop": shop}, "proxy": {"firstListWait": 30_000}}
    write(settings_of(home), json.dumps(settings))
    result = run_alone(home, "install", client, "--profile", "none", "--yes", "--workspace", str(root))
    assert f"the server has {count} tools." in result.stdout, result.stderr


@pytest.mark.requirement("install.works")
def test_upstreams_that_are_still_connecting_are_named_next_to_the_number_of_tools(home: Path) -> None:
    hung = {"command": sys.executable, "args": ["-S", str(PEERS / "hung.py")]}
    settings = {"mcpServers": {"slow": hung}, "proxy": {"firstListWait": 0}}
    write(settings_of(home), json.dumps(settings))
    result = run_alone(home, "install", "qwen", "--yes")
    assert result.returncode == 0, result.stderr
    assert "The tools of slow will appear later: the connection is not up yet" in result.stdout
    assert "proxy.firstListWait" in result.stdout


@pytest.mark.requirement("install.entry")
@pytest.mark.parametrize("scope", ["user", "project"])
def test_the_entry_goes_where_a_newer_version_of_the_client_expects_it(home: Path, root: Path, scope: str) -> None:
    write(
        home / ".config/opencode/opencode.json" if scope == "user" else root / "opencode.json",
        '{"mcp": {"servers": {}}}',
    )
    result = run_alone(home, "install", "opencode", "--print", "--scope", scope, cwd=root)
    assert json.loads(result.stdout)["mcp"]["servers"].keys() == {"core"}, result.stderr


@pytest.mark.requirement("install.works")
@pytest.mark.parametrize("scope", ["user", "project"])
def test_install_ends_with_the_remaining_steps_for_the_scope_and_for_unattended_runs(
    home: Path, root: Path, scope: str
) -> None:
    result = run_alone(home, "install", "qwen", "--yes", "--scope", scope, "--name", "mine", cwd=root)
    assert result.returncode == 0, result.stderr
    assert ("qwen mcp approve mine" in result.stdout) is (scope == "project")
    assert "NAME" not in result.stdout
    assert result.stdout.endswith('add "trust": true to the entry: its tools then run without a question.\n')
    codex = run_alone(home, "install", "codex", "--yes", cwd=root)
    assert "required = true" in codex.stdout


@pytest.mark.requirement("install.works")
def test_an_entry_that_does_not_start_is_reported_with_the_command_to_run_by_hand(home: Path) -> None:
    write(settings_of(home), '{"limits": {"readLines": "many"}}')
    result = run_alone(home, "install", "gemini", "--yes")
    assert result.returncode == 1
    assert "the server does not work when it is started as Gemini CLI would start it" in result.stderr
    assert "coretools-mcp" in result.stderr.rpartition("by hand: ")[2]
    assert "Traceback" not in result.stderr


@pytest.mark.requirement("install.asked")
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 1, "nobody can answer here"),
        (("--dry-run",), 0, "+++ "),
        (("--print",), 0, '"env": {'),
    ],
)
def test_without_a_yes_nothing_is_written(home: Path, options: tuple[str, ...], code: int, message: str) -> None:
    result = run_alone(home, "install", "gemini", *options, variables=KEY)
    assert result.returncode == code
    assert message in result.stdout + result.stderr
    assert "hunter2" not in result.stdout + result.stderr
    assert list(home.iterdir()) == []


@pytest.mark.requirement("install.asked")
def test_what_is_printed_is_what_the_client_reads(home: Path) -> None:
    output = run_alone(home, "install", "codex", "--print", "--name", "my.core").stdout
    entry = tomllib.loads(output)["mcp_servers"]["my.core"]
    assert entry["startup_timeout_sec"] == 30
    output = run_alone(home, "install", "vscode", "--print", "--workspace", str(home)).stdout
    assert json.loads(output)["servers"]["core"]["args"] == ["--workspace", str(home)]


@pytest.mark.requirement("install.refused")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("install", "eclipse"), "is not a known client. Known clients: claude-desktop"),
        (("install", "gemini", "--name", "core_tools"), "is not a valid server name in Gemini CLI"),
        (("install", "claude-code", "--name", "workspace"), "is not a valid server name"),
        (("install", "claude-desktop"), "Name the folders that the tools may use: --workspace DIR"),
        (("install", "cursor", "--workspace", "nowhere"), "not an existing folder"),
        (("install", "windsurf", "--scope", "project"), "has no project file"),
        (("install", "cursor", "--scope", "project", "--import"), "Omit --scope project"),
    ],
)
def test_wrong_usage_is_a_sentence_and_nothing_is_written(home: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run_alone(home, *arguments, "--yes")
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert list(home.iterdir()) == []


@pytest.mark.requirement("install.refused")
def test_a_folder_whose_name_is_not_valid_text_is_refused(home: Path) -> None:
    (odd_folder := home / "odd\udcff").mkdir()
    explicit = run_alone(home, "install", "cursor", "--yes", "--workspace", str(odd_folder))
    project_scope = run_alone(home, "install", "cursor", "--yes", "--scope", "project", cwd=odd_folder)
    for result in (explicit, project_scope):
        assert (result.returncode, result.stdout) == (2, "")
        assert "cannot be written to a client's file" in result.stderr
    assert list(odd_folder.iterdir()) == []


REACHED = '{"mcpServers": {"core": {"url": "http://127.0.0.1:8808/mcp"}}}'
OTHER = '{"mcpServers": {"core": {"command": "another"}}}'


@pytest.mark.requirement("install.refused")
@pytest.mark.parametrize(
    ("command", "client", "path", "content", "message"),
    [
        ("install", "cursor", ".cursor/mcp.json", '{"mcpServers": ', "not valid JSON at line 1"),
        ("install", "cursor", ".cursor/mcp.json", "{,}", "not valid JSON at line 1, column 2"),
        ("install", "cursor", ".cursor/mcp.json", '{"a": [1,,]}', "not valid JSON"),
        ("install", "cursor", ".cursor/mcp.json", "[]", "one JSON object"),
        ("install", "claude-code", ".claude.json", '{"mcpServers": {"core": {}, "core": {}}}', "more than once"),
        ("install", "cursor", ".cursor/mcp.json", b'{"a": "\xff"}', "not UTF-8"),
        ("install", "cursor", ".cursor/mcp.json", '{"mcpServers": []}', "mcpServers is not an object"),
        ("install", "cursor", ".cursor/mcp.json", OTHER, "already has another server named core"),
        ("install", "cursor", ".cursor/mcp.json", '{"mcpServers": {}, "mcpServers": {}}', "more than once"),
        ("install", "cursor", ".cursor/mcp.json", '{"mcpServers": {}, "mcp\\u0053ervers": {}}', "more than once"),
        (
            "install",
            "cursor",
            ".cursor/mcp.json",
            '{"mcpServers": {}, "mcp_servers": {}}',
            'also occurs in another spelling, "mcp_servers"',
        ),
        (
            "install",
            "cursor",
            ".cursor/mcp.json",
            '{"mcpServers": {}, "mcpservers": {}}',
            'also occurs in another spelling, "mcpservers"',
        ),
        (
            "install",
            "cursor",
            ".cursor/mcp.json",
            '{"mcpServers": {"tools": {"command": "uvx", "args": ["coretools-mcp"]}}}',
            "already has coretools-mcp, as tools",
        ),
        ("install", "gemini", ".gemini/settings.json", '{"a": 1,}', "not valid JSON"),
        ("install", "claude-code", ".claude.json", '{"a": 1} // b', "comments"),
        ("install", "codex", ".codex/config.toml", "a = ", "not valid TOML"),
        (
            "install",
            "codex",
            ".codex/config.toml",
            'mcp_servers = {a = {command = "b"}}',
            "by hand, within its braces: core = { command = ",
        ),
        ("uninstall", "cursor", ".cursor/mcp.json", OTHER, "does not start coretools-mcp, so it was not removed"),
        ("uninstall", "cursor", ".cursor/mcp.json", REACHED, "does not start coretools-mcp, so it was not removed"),
        ("install", "cursor", ".cursor/mcp.json", REACHED, "already has another server named core"),
        ("uninstall", "cursor", ".cursor/mcp.json", "{}", "there is no server core"),
        (
            "uninstall",
            "cursor",
            ".cursor/mcp.json",
            '{"mcpServers": {"tools": {"command": "coretools-mcp"}}}',
            "It is installed as tools: use --name",
        ),
    ],
)
def test_a_file_that_cannot_be_changed_for_certain_stays_as_it_is(
    home: Path, command: str, client: str, path: str, content: str | bytes, message: str
) -> None:
    file = write(home / path, content)
    before = file.read_bytes()
    result = run_alone(home, command, client, "--yes")
    assert (result.returncode, file.read_bytes()) == (1, before)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home / ".config").exists()


@pytest.mark.requirement("install.refused")
@pytest.mark.parametrize("obstacle", ["a folder", "a pipe", "somebody else's", "two names"])
def test_a_path_that_is_not_the_users_own_regular_file_is_left_alone(home: Path, obstacle: str) -> None:
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    if obstacle == "a folder":
        file.mkdir()
    elif obstacle == "a pipe":
        os.mkfifo(file)
    elif obstacle == "two names":
        file.write_text("{}")
        (home / "second.json").hardlink_to(file)
    elif os.geteuid() != 0:
        pytest.skip("not run: only root can give a file away")
    else:
        file.write_text("{}")
        os.chown(file, 12345, -1)
    result = run_alone(home, "install", "cursor", "--yes")
    assert result.returncode == 1
    assert "left unchanged" in result.stderr
    assert [entry.name for entry in file.parent.iterdir()] == ["mcp.json"]


@pytest.mark.requirement("install.refused")
def test_the_target_of_a_symbolic_link_is_changed_and_the_link_stays(home: Path) -> None:
    real = write(home / "dotfiles/cursor.json", "{}\n")
    link = home / ".cursor/mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)
    assert run_alone(home, "install", "cursor", "--yes").returncode == 0
    assert link.is_symlink()
    assert "core" in json.loads(real.read_text())["mcpServers"]
    assert run_alone(home, "uninstall", "cursor", "--yes").returncode == 0
    assert link.is_symlink()
    assert real.read_text() == "{}\n"


@pytest.mark.requirement("install.meanwhile")
def test_a_file_whose_servers_change_while_the_person_thinks_is_not_written(home: Path) -> None:
    file = write(home / ".cursor/mcp.json", "{}")
    new_content = '{"mcpServers": {"new": {"command": "x"}}}'
    code, _, stderr = answer_at_terminal(
        home, "install", "cursor", "--profile", "core", meanwhile=lambda: file.write_text(new_content)
    )
    assert (code, file.read_text()) == (1, new_content)
    assert "has changed in the meantime, so nothing was written" in stderr


@pytest.mark.requirement("install.meanwhile")
def test_other_content_that_the_client_writes_meanwhile_is_not_lost(home: Path) -> None:
    file = write(home / ".claude.json", '{"history": 1}')
    code, _, stderr = answer_at_terminal(
        home, "install", "claude-code", "--profile", "core", meanwhile=lambda: file.write_text('{"history": 2}')
    )
    assert code == 0, stderr
    assert json.loads(file.read_text())["history"] == 2
    assert run_alone(home, "uninstall", "claude-code", "--yes").returncode == 0
    assert file.read_text() == '{"history": 2}'


@pytest.mark.requirement("install.bytes")
def test_uninstall_removes_only_our_entry_from_a_file_that_was_changed_since(home: Path) -> None:
    assert run_alone(home, "install", "gemini", "--yes").returncode == 0
    file = home / ".gemini/settings.json"
    new_content = file.read_text().replace('{\n  "mcpServers"', '{\n  "theme": "dark",\n  "mcpServers"')
    file.write_text(new_content)
    assert run_alone(home, "uninstall", "gemini", "--yes").returncode == 0
    assert file.read_text() == '{\n  "theme": "dark"\n}\n'


@pytest.mark.requirement("install.entry")
def test_keys_that_a_user_added_to_our_entry_survive_a_second_install(home: Path) -> None:
    ours: dict[str, Any] = {"command": "/old/coretools-mcp", "args": [], "timeout": 5, "env": {"MODE": "x"}}
    file = write(home / ".gemini/settings.json", json.dumps({"mcpServers": {"core": ours}}))
    assert run_alone(home, "install", "gemini", "--yes", variables=KEY).returncode == 0
    entry = json.loads(file.read_text())["mcpServers"]["core"]
    assert entry["command"] != ours["command"]
    assert (entry["timeout"], entry["env"]) == (5, {"MODE": "x", "TAVILY_API_KEY": "$TAVILY_API_KEY"})
    assert run_alone(home, "uninstall", "gemini", "--yes").returncode == 0
    assert json.loads(file.read_text()) == {"mcpServers": {}}


@pytest.mark.requirement("install.project")
def test_a_project_file_is_written_with_the_workspace_and_removed_again(home: Path, root: Path) -> None:
    result = run_alone(home, "install", "zed", "--scope", "project", "--yes", cwd=root)
    assert result.returncode == 0, result.stderr
    file = root / ".zed/settings.json"
    assert json.loads(file.read_text())["context_servers"]["core"]["args"] == ["--workspace", str(root)]
    assert "This file belongs to the project" in result.stdout
    assert run_alone(home, "uninstall", "zed", "--scope", "project", "--yes", cwd=root).returncode == 0
    assert list(root.iterdir()) == []


SERVERS = {
    "good one": {"command": sys.executable, "args": ["-c", "pass"], "env": {"API_KEY": "hunter2"}},
    "bad": {"command": "x", "connectTimeout": "soon"},
    "taken": {"command": "theirs"},
}


@pytest.mark.requirement("install.import")
@pytest.mark.parametrize("is_changed_since", [False, True])
def test_the_clients_other_servers_move_to_our_settings_and_back(home: Path, is_changed_since: bool) -> None:
    before = json.dumps({"mcpServers": SERVERS}, indent=4) + "\n"
    file = write(home / ".cursor/mcp.json", before)
    own_file = write(settings_of(home), '{"mcpServers": {"taken": {"command": "ours"}}}')
    result = run_alone(home, "install", "cursor", "--import", "--yes")
    assert result.returncode == 0, result.stderr
    assert set(json.loads(file.read_text())["mcpServers"]) == {"bad", "taken", "core"}
    own_servers = json.loads(own_file.read_text())["mcpServers"]
    assert own_servers == {"taken": {"command": "ours"}, "good-one": SERVERS["good one"]}
    assert "would move to your settings: good-one" in result.stdout
    assert "hunter2" not in result.stdout
    assert "taken is not moved" in result.stderr
    assert "hunter2" not in (own_file.parent / "installs/installs.json").read_text()
    if is_changed_since:
        file.write_text(file.read_text() + "\n")
    uninstall = run_alone(home, "uninstall", "cursor", "--yes")
    assert "Moved back to Cursor: good one" in uninstall.stdout
    servers_after = json.loads(file.read_text())
    assert servers_after == {"mcpServers": SERVERS}
    assert is_changed_since or file.read_text() == before
    assert json.loads(own_file.read_text()) == {"mcpServers": {"taken": {"command": "ours"}}}


@pytest.mark.requirement("install.import")
def test_servers_that_were_added_later_move_only_if_all_of_them_can_move_back(home: Path) -> None:
    file = write(home / ".gemini/settings.json", json.dumps({"mcpServers": {"first": {"command": "x"}}}))
    assert run_alone(home, "install", "gemini", "--yes").returncode == 0
    servers = json.loads(file.read_text())["mcpServers"]
    write(file, json.dumps({"mcpServers": {**servers, "second": {"command": "y"}}}))
    assert run_alone(home, "install", "gemini", "--import", "--yes").returncode == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["core"]
    servers = json.loads(file.read_text())["mcpServers"]
    write(file, json.dumps({"mcpServers": {**servers, "third": {"command": "z"}}}))
    refusal = run_alone(home, "install", "gemini", "--import", "--yes")
    assert refusal.returncode == 1
    assert "was changed after its servers were moved. Undo the install first" in refusal.stderr
    assert run_alone(home, "uninstall", "gemini", "--yes").returncode == 0
    assert set(json.loads(file.read_text())["mcpServers"]) == {"first", "second", "third"}
    assert json.loads(settings_of(home).read_text())["mcpServers"] == {}


@pytest.mark.requirement("install.list")
def test_install_without_a_name_lists_the_clients_and_our_entries(home: Path) -> None:
    write(home / ".codex/config.toml", '[mcp_servers.tools]\ncommand = "uvx"\nargs = ["coretools-mcp"]\n')
    write(home / ".cursor/mcp.json", CURSOR)
    write(home / ".gemini/settings.json", "{")
    lines = dict(
        line.split(maxsplit=1) for line in run_alone(home, "install", variables={"PATH": "/"}).stdout.splitlines()
    )
    assert lines["codex"] == f"installed as tools in {home}/.codex/config.toml"
    assert lines["cursor"] == "found; to add this server: coretools-mcp install cursor"
    assert "not valid JSON" in lines["gemini"]
    assert lines["zed"] == "not found"


@pytest.mark.requirement("cli.import.own")
def test_config_import_skips_entries_that_start_or_reach_this_server(home: Path) -> None:
    write(settings_of(home), '{"http": {"port": 9100}}')
    ours: dict[str, Any] = {
        "core": {"command": "/x/coretools-mcp"},
        "runner": {"command": "uvx", "args": ["--from", "coretools-mcp", "coretools-mcp"]},
        "bridge": {"command": "npx", "args": ["mcp-remote", "http://localhost:8808/sse"]},
        "port": {"url": "http://127.0.0.1:9100/mcp"},
    }
    write(home / ".cursor/mcp.json", json.dumps({"mcpServers": {**ours, "docs": {"command": "x"}}}))
    result = run_alone(home, "config", "import", "cursor", "--yes")
    assert result.returncode == 0
    assert list(json.loads(settings_of(home).read_text())["mcpServers"]) == ["docs"]
    for name in ours:
        assert f"{name} starts or reaches this server itself and was skipped." in result.stderr
    write(home / ".cursor/mcp.json", json.dumps({"mcpServers": ours}))
    assert run_alone(home, "config", "import", "cursor", "--yes").returncode == 1


SECRETS = """{
  "mcpServers": {
    "a": {"command": "a", "args": ["--api-key", "hunter2-one"], "env": {"API_KEY": "hunter2-two", "DIR": "$HOME"
    }},
    "b": {"command": "b", "env": {"API_K\\u0045Y":
      "hunter2-three"}}
  }
}
"""


@pytest.mark.requirement("install.asked")
def test_no_secret_of_other_servers_is_shown_in_any_notation(home: Path) -> None:
    write(home / ".cursor/mcp.json", SECRETS)
    result = run_alone(home, "install", "cursor", "--import", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "would move to your settings: a" in result.stdout
    assert "--api-key" in result.stdout
    assert "[hidden]" in result.stdout
    assert "hunter2" not in result.stdout + result.stderr


@pytest.mark.requirement("install.bytes")
def test_an_incomplete_backup_is_replaced(home: Path) -> None:
    file = write(home / ".cursor/mcp.json", CURSOR)
    assert run_alone(home, "install", "cursor", "--yes").returncode == 0
    (backup,) = (home / ".config/coretools-mcp/installs").glob("*.bak")
    assert run_alone(home, "uninstall", "cursor", "--yes").returncode == 0
    backup.write_text(CURSOR[:20])
    assert run_alone(home, "install", "cursor", "--import", "--yes").returncode == 0
    assert backup.read_text() == CURSOR
    assert run_alone(home, "uninstall", "cursor", "--yes").returncode == 0
    assert file.read_text() == CURSOR


@pytest.mark.requirement("install.import")
def test_a_server_that_two_clients_moved_stays_until_both_have_it_back(home: Path, root: Path) -> None:
    servers = json.dumps({"mcpServers": {"a": {"command": "python3"}}})
    cursor = write(home / ".cursor/mcp.json", servers)
    windsurf = write(home / ".codeium/windsurf/mcp_config.json", servers)
    assert run_alone(home, "install", "cursor", "--import", "--yes").returncode in (0, 1)
    assert run_alone(home, "install", "windsurf", "--import", "--yes", "--workspace", str(root)).returncode in (0, 1)
    assert run_alone(home, "uninstall", "cursor", "--yes").returncode == 0
    assert json.loads(settings_of(home).read_text())["mcpServers"] == {"a": {"command": "python3"}}
    assert run_alone(home, "uninstall", "windsurf", "--yes").returncode == 0
    assert cursor.read_text() == windsurf.read_text() == servers
    assert json.loads(settings_of(home).read_text())["mcpServers"] == {}


@pytest.mark.requirement("install.import")
def test_moved_servers_come_back_even_if_our_entry_was_removed_by_hand(home: Path) -> None:
    file = write(home / ".cursor/mcp.json", json.dumps({"mcpServers": {"a": {"command": "python3"}}}))
    assert run_alone(home, "install", "cursor", "--import", "--yes").returncode in (0, 1)
    file.write_text('{"mcpServers": {}}')
    result = run_alone(home, "uninstall", "cursor", "--yes")
    assert result.returncode == 0, result.stderr
    assert json.loads(file.read_text()) == {"mcpServers": {"a": {"command": "python3"}}}
    assert json.loads(settings_of(home).read_text())["mcpServers"] == {}


@pytest.mark.requirement("install.refused")
def test_a_number_of_thousands_of_digits_in_a_codex_file_is_refused(home: Path) -> None:
    file = write(home / ".codex/config.toml", "a = " + "1" * 6_000 + "\n")
    result = run_alone(home, "install", "codex", "--yes")
    assert result.returncode == 1
    assert "is not valid TOML" in result.stderr
    assert file.read_text().startswith("a = 1")
    assert run_alone(home, "install").stdout.count("\n") == 11


@pytest.mark.requirement("install.splice")
@pytest.mark.parametrize("count", [6_000, pytest.param(60_000, marks=pytest.mark.long)])
def test_oddities_elsewhere_in_a_large_file_stay_byte_for_byte(home: Path, count: int) -> None:
    before = '{"a": {"x": 1, "x": 2}, "history": [' + ", ".join(['{"text": "a\\"//b,]", "at": 1.50}'] * count) + "]"
    file = write(home / ".claude.json", before + ', "a": 1.0 }')
    result = run_alone(home, "install", "claude-code", "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    text = file.read_text()
    assert text.startswith(before + ', "a": 1.0')
    assert list(json.loads(text)) == ["a", "history", "mcpServers"]
    assert run_alone(home, "uninstall", "claude-code", "--yes").returncode == 0
    assert file.read_text() == before + ', "a": 1.0 }'


@pytest.mark.requirement("install.splice")
def test_a_codex_file_may_contain_nan_and_infinity(home: Path) -> None:
    file = write(home / ".codex/config.toml", "a = nan\nb = [-nan, inf, 1.50]\n")
    before = file.read_text()
    assert run_alone(home, "install", "codex", "--yes").returncode == 0
    assert file.read_text().startswith(before)
    write(file, file.read_text() + "# mine\n")
    assert run_alone(home, "uninstall", "codex", "--yes").returncode == 0
    assert file.read_text().startswith(before)
    assert "core" not in file.read_text()


@pytest.mark.requirement("install.asked")
@pytest.mark.parametrize(("choice", "has_colour"), [("always", True), ("auto", False)])
def test_the_diff_is_coloured_only_if_colour_is_on(home: Path, choice: str, has_colour: bool) -> None:
    write(home / ".cursor/mcp.json", CURSOR)
    result = run_alone(home, "install", "cursor", "--dry-run", "--color", choice)
    assert ("\x1b[32m+mcpServers.core.command = " in result.stdout) is has_colour
    assert "+mcpServers.core.command = " in result.stdout


@pytest.mark.requirement("install.import")
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_at_any_moment_loses_no_server_and_a_second_install_completes_the_move(
    step: int, tmp_path: Path
) -> None:
    servers = {"a": {"command": "python3"}, "b": {"command": "python3", "args": ["-V"]}}
    before = json.dumps({"mcpServers": servers}, indent=1)
    own_before = '{"mcpServers": {"mine": {"command": "x"}}, "proxy": {"firstListWait": 0}}'
    code, moments = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        home = tmp_path.resolve() / f"home{moments}"
        file, own = write(home / ".cursor/mcp.json", before), write(settings_of(home), own_before)
        command = [sys.executable, *forked([str(PEERS / "killed_command.py"), str(moments), *MOVING])]
        code = subprocess.run(command, env={"HOME": str(home), "PATH": ""}, cwd=home, check=False).returncode
        servers_by_file = [json.loads(path.read_text())["mcpServers"] for path in (file, own)]
        assert servers_by_file[0].keys() | servers_by_file[1].keys() >= servers.keys()
        again = run_alone(home, *MOVING, variables={"PATH": ""})
        assert again.returncode == 0, again.stderr
        assert list(json.loads(file.read_text())["mcpServers"]) == ["core"]
        assert json.loads(own.read_text())["mcpServers"].keys() == {"mine", *servers}
        assert run_alone(home, "uninstall", "cursor", "--yes").returncode == 0
        assert (file.read_text(), json.loads(own.read_text())) == (before, json.loads(own_before))
        moments += step
    assert moments > 6


@pytest.mark.requirement("install.refused")
@pytest.mark.parametrize(
    ("mounts", "reason"),
    one_in(
        2,
        [
            (
                ("--bind", "HOME/read-only", "HOME/.cursor", "--cap-drop", "ALL"),
                "you may not write in its folder. Change the folder's mode (chmod u+w), and try again",
            ),
            (("--size", "40960", "--tmpfs", "HOME/.cursor"), "the disk is full. Free some space, and try again"),
        ],
    ),
    ids=["read-only", "full"],
)
def test_a_file_that_cannot_be_written_is_reported_in_one_sentence_and_leaves_nothing_behind(
    home: Path, mounts: tuple[str, ...], reason: str
) -> None:
    large_content = json.dumps({"mcpServers": {"a": {"command": "python3"}}, "x": "x" * 30_000})
    own_file, file = write(settings_of(home), "{}"), home / ".cursor/mcp.json"
    write(home / "read-only/mcp.json", large_content).parent.chmod(0o500)
    sandbox = ["bwrap", "--dev-bind", "/", "/", *(name.replace("HOME", str(home)) for name in mounts), "sh", "-c"]
    if subprocess.run([*sandbox, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("not run: bubblewrap does not work here")
    script = 'cp -n read-only/* .cursor; "$@"; code=$?; ls -A .cursor; cat .cursor/mcp.json; exit $code'
    result = subprocess.run(
        [*sandbox, script, "sh", sys.executable, "-P", str(LAUNCHER), *MOVING],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 1
    stderr = result.stderr.splitlines()[-1]
    assert stderr == f"coretools-mcp: {file} cannot be written, so nothing was changed: {reason}."
    assert result.stdout.endswith(f"\nmcp.json\n{large_content}")
    assert "python3" not in own_file.read_text()
    assert [name.name for name in (own_file.parent / "installs").iterdir()] == ["installs.json"]
    assert json.loads((own_file.parent / "installs/installs.json").read_text()) == []


@pytest.mark.requirement("install.bytes")
@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3), (2, 3, 1), (3, 2, 1)])
@pytest.mark.parametrize("original", [None, "", '{"a": [1,\n2]}'])
def test_several_entries_of_ours_can_be_removed_in_any_order(
    home: Path, order: tuple[int, ...], original: str | None
) -> None:
    file = home / ".cursor/mcp.json"
    if original is not None:
        write(file, original)
    environ = {"HOME": str(home)}
    clients = client_configs(environ)

    def target(number: int) -> ConfigFile:
        return ConfigFile("cursor", clients["cursor"], str(file), f"n{number}", is_named=True)

    for number in sorted(order):
        entry = {"command": "coretools-mcp", "args": ["--workspace", f"/{number}"]}
        write_install(install_change(target(number), read_file(str(file)), entry, environ), {}, environ)
    for number in order:
        write_uninstall(uninstall_change(target(number), read_file(str(file)), environ), environ)
    assert (file.read_text() if file.exists() else None) == original
    assert file.parent.exists() == (original is not None)
    assert [path.name for path in (settings_of(home).parent / "installs").iterdir()] == ["installs.json"]


@pytest.mark.requirement("install.import")
def test_a_server_that_was_added_after_our_entry_and_moved_later_comes_back(home: Path) -> None:
    file = write(home / ".gemini/settings.json", "{}")
    for options in ((), (), ("--import",)):
        assert run_alone(home, "install", "gemini", "--yes", *options, variables=KEY).returncode == 0
        servers = json.loads(file.read_text())["mcpServers"]
        if options:
            assert list(servers) == ["core"]
        else:
            servers["core"]["args"] = ["--no-prefix"]
            write(file, json.dumps({"mcpServers": {**servers, "new": {"command": sys.executable, "args": ["-V"]}}}))
    assert run_alone(home, "uninstall", "gemini", "--yes").returncode == 0
    assert "new" in json.loads(file.read_text())["mcpServers"]
