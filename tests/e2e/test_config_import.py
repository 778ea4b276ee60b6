"""`config import`, as a person uses it: what is shown and asked, what is taken over, and what is never."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.terminals import answer_at_terminal, run_alone

YES = b"y\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    folder.mkdir()
    return folder


def run(
    home: Path, *arguments: str, cwd: Path | None = None, answer: bytes | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; with an answer it stands at a terminal, where that is typed."""
    if answer is None:
        return run_alone(home, *arguments, cwd=cwd, variables=more)
    told = answer_at_terminal(home, *arguments, answer=answer, cwd=cwd, variables=more)
    return subprocess.CompletedProcess(arguments, *told)


def imported(
    home: Path, *arguments: str, cwd: Path | None = None, answer: bytes | None = YES
) -> subprocess.CompletedProcess[str]:
    """Import, with a person who agrees."""
    return run(home, "config", "import", *arguments, cwd=cwd, answer=answer)


def settings_of(home: Path) -> Path:
    return home / ".config" / "coretools-mcp" / "settings.json"


def servers_of(home: Path) -> dict[str, Any]:
    """What stands in the user's own file."""
    return json.loads(settings_of(home).read_text())["mcpServers"] if settings_of(home).exists() else {}


def write(path: Path, content: str | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


CLAUDE = {
    "mcpServers": {
        "my files": {"command": "npx", "args": ["-y", "server", "price$5"]},
        "remote": {"type": "streamable-http", "url": "https://example.org/mcp"},
    }
}
VSCODE = """{
  // VS Code writes comments, and commas at the end
  "inputs": [{ "type": "promptString", "id": "api-key", "password": true }],
  "servers": {
    "asks": { "type": "stdio", "command": "npx", "args": ["x",], "env": { "KEY": "${input:api-key}" }, "envFile": "x" },
    "env": { "command": "npx", "env": { "A": "${env:A_VALUE}" } },
  },
}"""


@pytest.mark.requirement("cli.config.import")
def test_import_adds_the_servers_of_a_client_and_leaves_everything_else_alone(home: Path) -> None:
    own = write(settings_of(home), '{\n  // mine\n  "mcpServers": { "remote": { "command": "own" } }\n}\n')
    write(home / ".config/Claude/claude_desktop_config.json", CLAUDE)
    done = imported(home, "claude-desktop")
    assert done.returncode == 0
    assert "would add: my-files, npx -y server" in done.stdout
    assert "left unchanged (--force replaces it): remote" in done.stdout
    assert f"Added to {own}: my-files\n" in done.stdout
    assert "// mine" in own.read_text()
    shown = json.loads(run(home, "config", "show", "--json").stdout)["values"]
    values = {item["key"]: item["value"] for item in shown}
    assert values["mcpServers.my-files.args"] == ["-y", "server", "price$$5"]
    assert values["mcpServers.remote.command"] == "own"
    forced = imported(home, "claude-desktop", "--force")
    assert "would replace: remote, https://example.org/mcp" in forced.stdout
    shown = json.loads(run(home, "config", "show", "--json").stdout)["values"]
    assert {"key": "mcpServers.remote.type", "value": "http", "source": str(own)} in shown


@pytest.mark.requirement("cli.config.import")
@pytest.mark.parametrize("content", ["", "\n", "\ufeff"])
def test_import_fills_an_empty_file(home: Path, content: str) -> None:
    own = write(settings_of(home), content)
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    assert imported(home, "cursor").returncode == 0
    assert json.loads(own.read_text("utf-8-sig")) == {"mcpServers": {"one": {"command": "x"}}}


@pytest.mark.requirement("cli.config.import")
def test_import_of_vs_code_tells_what_it_asks_for_and_prints_what_our_settings_take(home: Path) -> None:
    write(home / ".config/Code/User/mcp.json", VSCODE)
    done = imported(home, "vscode", "--print", answer=None)
    servers = json.loads(done.stdout)["mcpServers"]
    assert servers["asks"]["env"] == {"KEY": "${API_KEY}"}
    assert servers["env"]["env"] == {"A": "${A_VALUE}"}
    assert "asks for the input api-key; set the environment variable API_KEY" in done.stderr
    assert "asks.envFile has no counterpart here" in done.stderr
    assert not settings_of(home).exists()
    printed = write(home / "printed.json", done.stdout)
    assert run(home, "config", "check", str(printed), API_KEY="k", A_VALUE="a").returncode == 0


@pytest.mark.requirement("cli.config.import")
@pytest.mark.parametrize(
    ("path", "client"),
    [
        (".claude.json", "claude-code"),
        (".cursor/mcp.json", "cursor"),
        (".gemini/settings.json", "gemini"),
        (".qwen/settings.json", "qwen"),
        ("any.json", "any.json"),
    ],
)
def test_import_finds_every_client_and_takes_a_file(home: Path, path: str, client: str) -> None:
    write(home / path, {"mcpServers": {"one": {"command": "x"}}})
    done = imported(home, client)
    assert done.returncode == 0
    assert json.loads(settings_of(home).read_text()) == {"mcpServers": {"one": {"command": "x"}}}


@pytest.mark.requirement("cli.config.import")
@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("cursor", "configuration. Searched:"),
        ("unheard-of", "Known clients: claude"),
        ("empty.json", "no servers"),
    ],
)
def test_import_of_nothing_is_a_sentence(home: Path, client: str, expected: str) -> None:
    write(home / "empty.json", {})
    done = imported(home, client)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False)
    assert expected in done.stderr


@pytest.mark.requirement("cli.shown.what-runs")
def test_import_shows_the_very_command_that_starts(home: Path) -> None:
    seems_remote = {"type": "stdio", "command": "/bin/sh", "args": ["-c", "touch P1"], "url": "https://docs.example/"}
    seems_secret = {"command": "/bin/sh", "args": ["-c", 'eval "$$1"', "--password", "touch P3"]}
    write(home / "theirs.json", {"mcpServers": {"nice": seems_remote, "hid": seems_secret}})
    shown = imported(home, "theirs.json").stdout
    assert "would add: nice, /bin/sh -c 'touch P1'\n" in shown
    assert "docs.example" not in shown
    assert "--password 'touch P3'" in shown


@pytest.mark.requirement("cli.shown.what-runs")
def test_import_hides_the_secrets_of_a_persons_own_file_and_nothing_of_one_that_is_named(home: Path) -> None:
    entry = {"command": "/bin/bash", "env": {"BASH_ENV": '$$(TOKEN="$$(touch P4)")'}}
    write(home / ".cursor/mcp.json", {"mcpServers": {"own": {"command": "x", "env": {"API_KEY": "hunter2"}}}})
    write(home / "theirs.json", {"mcpServers": {"given": entry}})
    own, given = imported(home, "cursor"), imported(home, "theirs.json")
    assert "hunter2" not in own.stdout + own.stderr
    assert "touch P4" in given.stdout


# --- whose files, and who agrees ---------------------------------------------------------------------------------

PLANTED: dict[str, Any] = {"command": "/bin/planted", "trust": True}


@pytest.mark.requirement("cli.import.own-files")
@pytest.mark.parametrize(
    ("client", "planted", "own"),
    [
        ("vscode", ".vscode/mcp.json", ".config/Code/User/mcp.json"),
        ("claude-code", ".mcp.json", ".claude.json"),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
        ("qwen", ".qwen/settings.json", ".qwen/settings.json"),
    ],
)
def test_the_files_of_the_working_folder_are_never_those_of_a_client(
    home: Path, project: Path, client: str, planted: str, own: str
) -> None:
    section = "servers" if client == "vscode" else "mcpServers"
    write(project / planted, {section: {"fine": PLANTED}})
    alone = imported(home, client, cwd=project)
    assert (alone.returncode, servers_of(home)) == (1, {})
    assert "you have no" in alone.stderr
    write(home / own, {section: {"mine": {"command": "mine"}}})
    assert imported(home, client, cwd=project).returncode == 0
    assert list(servers_of(home)) == ["mine"]


@pytest.mark.requirement("cli.import.own-files")
def test_a_variable_with_a_relative_path_does_not_make_the_working_folder_the_persons_own(
    home: Path, project: Path
) -> None:
    write(project / "Code/User/mcp.json", {"servers": {"fine": PLANTED}})
    write(project / "settings.json", {"mcpServers": {"fine": PLANTED}})
    for client, variables in (("vscode", {"XDG_CONFIG_HOME": "."}), ("qwen", {"QWEN_HOME": "."})):
        done = run(home, "config", "import", client, cwd=project, answer=YES, **variables)
        assert (done.returncode, "/bin/planted" in done.stdout) == (1, False)


@pytest.mark.requirement("cli.import.own-files")
@pytest.mark.parametrize(
    ("client", "path", "section"),
    [
        ("vscode", ".config/Code/User/mcp.json", "servers"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "mcpServers"),
        (".mcp.json", ".mcp.json", "mcpServers"),
        (".qwen/settings.json", ".qwen/settings.json", "mcpServers"),
    ],
    ids=["vscode", "claude-desktop", "a file", "a file of a client that knows it"],
)
def test_trust_is_taken_from_nobody_who_does_not_know_it_and_from_no_file_that_is_named(
    home: Path, client: str, path: str, section: str
) -> None:
    write(home / path, {section: {"fine": PLANTED}})
    done = imported(home, client)
    assert servers_of(home) == {"fine": {"command": "/bin/planted"}}
    assert "fine.trust was ignored" in done.stderr
    assert "(trust)" not in done.stdout


@pytest.mark.requirement("cli.import.own-files")
def test_trust_in_a_persons_own_file_of_a_client_that_knows_it_is_shown_and_taken(home: Path) -> None:
    write(home / ".qwen/settings.json", {"mcpServers": {"fine": PLANTED}})
    assert "its tools run without a question (trust)\n" in imported(home, "qwen").stdout
    assert servers_of(home) == {"fine": PLANTED}


@pytest.mark.requirement("cli.config.import")
@pytest.mark.parametrize("answer", [b"\n", b"no\n", b"\x04"], ids=["nothing", "no", "the end"])
def test_a_person_who_does_not_agree_keeps_their_file_as_it_is(home: Path, answer: bytes) -> None:
    own = write(settings_of(home), {"media": "notice"})
    before = own.read_bytes()
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    done = imported(home, "cursor", answer=answer)
    assert (done.returncode, own.read_bytes()) == (1, before)
    assert "would add: one, x\n" in done.stdout
    assert f"Add this to {own}? [y/N]" in done.stderr
    assert "nothing was added" in done.stderr


@pytest.mark.requirement("cli.config.import")
def test_where_nobody_can_be_asked_it_is_shown_and_nothing_is_added(home: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    done = imported(home, "cursor", answer=None)
    assert (done.returncode, settings_of(home).exists()) == (1, False)
    assert "would add: one, x\n" in done.stdout
    assert "nobody can answer here" in done.stderr


@pytest.mark.requirement("cli.config.import")
def test_who_is_sure_is_not_asked(home: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    done = imported(home, "cursor", "--yes", answer=None)
    assert (done.returncode, done.stderr, servers_of(home)) == (0, "", {"one": {"command": "x"}})


@pytest.mark.requirement("cli.config.import")
def test_nobody_is_asked_about_nothing(home: Path) -> None:
    write(settings_of(home), {"mcpServers": {"one": {"command": "mine"}}})
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    done = imported(home, "cursor", answer=None)
    assert (done.returncode, servers_of(home)) == (0, {"one": {"command": "mine"}})
    assert "There is nothing to add." in done.stdout


# --- what is written ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("cli.import.usable")
@pytest.mark.parametrize(
    "wrong",
    [
        '{"command": "x", "env": {"A": 1}}',
        '{"command": "x", "connectTimeout": 30.5}',
        '{"description": "nothing to start"}',
        '{"type": [], "command": ["x"], "url": {}}',
        '{"command": "x", "headers": "none"}',
    ],
)
def test_a_server_that_would_keep_ours_from_starting_is_left_out_with_a_warning(home: Path, wrong: str) -> None:
    write(settings_of(home), {"permissions": {"deny": ["Bash"]}})
    write(home / ".cursor/mcp.json", f'{{"mcpServers": {{"bad": {wrong}, "good": {{"command": "y"}}}}}}')
    done = imported(home, "cursor")
    assert done.returncode == 0
    assert list(servers_of(home)) == ["good"]
    assert "The server bad was skipped." in done.stderr
    assert run(home, "config", "check").returncode == 0


@pytest.mark.requirement("cli.import.usable")
@pytest.mark.parametrize("arguments", [(), ("--print",)], ids=["added", "printed"])
@pytest.mark.parametrize("key", ["timeout", "description"])
def test_a_number_that_json_does_not_have_is_neither_written_nor_printed(
    home: Path, key: str, arguments: tuple[str, ...]
) -> None:
    own = write(settings_of(home), {"permissions": {"deny": ["Bash"]}})
    before = own.read_bytes()
    write(home / ".cursor/mcp.json", f'{{"mcpServers": {{"bad": {{"command": "x", "{key}": 1e999}}}}}}')
    done = imported(home, "cursor", *arguments)
    assert (done.returncode, own.read_bytes()) == (1, before)
    assert "Infinity" not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("cli.import.usable")
def test_nothing_is_added_to_settings_that_cannot_be_used_as_they_are(home: Path) -> None:
    own = write(settings_of(home), {"limits": {"readLines": "many"}})
    before = own.read_bytes()
    write(home / ".cursor/mcp.json", {"mcpServers": {"good": {"command": "y"}}})
    done = imported(home, "cursor")
    assert (done.returncode, own.read_bytes()) == (1, before)
    assert f"{own}: limits.readLines is" in done.stderr
    assert "skipped" not in done.stderr


@pytest.mark.requirement("cli.import.usable")
def test_a_placeholder_ends_where_its_text_ends(home: Path) -> None:
    servers = {
        "a": {"command": "${input:", "args": ["x}"]},
        "b": {"command": "echo", "args": ["${env:", "}", "-c", "${input:9-key}"], "description": "${input:not-here}"},
        "c": {"command": "x", "args": ['say "${env:WORD}"', "\\${userHome}"]},
    }
    write(home / ".config/Code/User/mcp.json", {"servers": servers})
    done = imported(home, "vscode", "--print", answer=None)
    assert "Traceback" not in done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)["mcpServers"]
    assert printed["b"]["args"][1:] == ["}", "-c", "${_9_KEY}"]
    assert printed["b"]["description"] == "${input:not-here}"
    assert printed["c"]["args"] == ['say "${WORD}"', "\\${HOME}"]
    assert printed["a"]["args"] == ["x}"]
    assert "not-here" not in done.stderr


@pytest.mark.requirement("cli.import.own-files")
@pytest.mark.parametrize(
    ("entry", "mode"),
    [
        ({"command": "x", "env": {"API_KEY": "hunter2"}}, 0o600),
        ({"command": "x", "env": {"MODE": "hunter2"}}, 0o600),
        ({"command": "x", "args": ["--token", "hunter2"]}, 0o600),
        ({"url": "https://example.org/", "headers": {"X-Any": "hunter2"}}, 0o600),
        ({"command": "x", "args": ["--fast"]}, 0o644),
    ],
)
def test_a_file_that_others_can_read_is_closed_to_them_before_secrets_come_in(
    home: Path, entry: dict[str, Any], mode: int
) -> None:
    own = write(settings_of(home), {"media": "notice"})
    own.chmod(0o644)
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": entry}})
    done = imported(home, "cursor")
    assert list(servers_of(home)) == ["one"]
    assert stat.S_IMODE(own.stat().st_mode) == mode
    assert ("now readable only by you" in done.stderr) is (mode == 0o600)


@pytest.mark.requirement("cli.import.seconds")
@pytest.mark.parametrize(
    ("file", "timeout", "imported_as", "is_told"),
    [
        ("cline_mcp_settings.json", 60, 60_000, False),
        ("cline_mcp_settings.json", 1800, 1_800_000, False),
        ("mcp_settings.json", 300, 300_000, False),
        (".roo/mcp.json", 3600, 3_600_000, False),
        (".cursor/mcp.json", 60, 60_000, True),
        (".cursor/mcp.json", 1.5, 1_500, False),
        (".cursor/mcp.json", 60_000, 60_000, False),
        (".gemini/settings.json", 600, 600, False),
    ],
)
def test_seconds_of_other_clients_become_milliseconds(
    home: Path, file: str, timeout: int, imported_as: int, is_told: bool
) -> None:
    path = write(home / file, {"mcpServers": {"one": {"command": "x", "timeout": timeout}}})
    done = imported(home, {".cursor/mcp.json": "cursor", ".gemini/settings.json": "gemini"}.get(file, str(path)))
    assert done.returncode == 0, done.stderr
    assert servers_of(home)["one"]["timeout"] == imported_as
    assert ("one.timeout is 60, which was read as seconds (60000 ms)." in done.stderr) is is_told


@pytest.mark.requirement("settings.seconds")
def test_a_time_that_was_meant_in_seconds_is_told_by_config_check_and_doctor(home: Path) -> None:
    entry = {"command": "true", "timeout": 60, "connectTimeout": 30, "listTimeout": 1000}
    write(settings_of(home), {"mcpServers": {"one": entry}})
    for words in (("config", "check"), ("doctor",)):
        done = run(home, *words)
        said = done.stdout + done.stderr
        told = "mcpServers.one.timeout is 60 ms, but other clients use seconds; for 60 s write 60000."
        assert told in said, said
        assert "mcpServers.one.connectTimeout is 30 ms" in said
        assert "listTimeout is" not in said
