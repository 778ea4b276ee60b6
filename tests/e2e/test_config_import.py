"""`config import`: what it shows and asks, what it imports, and what it never imports."""

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
    home: Path, *arguments: str, cwd: Path | None = None, answer: bytes | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; if there is an answer, run it at a terminal and type the answer there."""
    if answer is None:
        return run_alone(home, *arguments, cwd=cwd, variables=variables)
    result = answer_at_terminal(home, *arguments, answer=answer, cwd=cwd, variables=variables)
    return subprocess.CompletedProcess(arguments, *result)


def imported(
    home: Path, *arguments: str, cwd: Path | None = None, answer: bytes | None = YES
) -> subprocess.CompletedProcess[str]:
    """Import the servers of a client; by default, answer the question with yes."""
    return run(home, "config", "import", *arguments, cwd=cwd, answer=answer)


def settings_of(home: Path) -> Path:
    return home / ".config" / "coretools-mcp" / "settings.json"


def servers_of(home: Path) -> dict[str, Any]:
    """Return the servers in the user's settings file."""
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
    result = imported(home, "claude-desktop")
    assert result.returncode == 0
    assert "would add: my-files, npx -y server" in result.stdout
    assert "left unchanged (--force replaces it): remote" in result.stdout
    assert f"Added to {own}: my-files\n" in result.stdout
    assert "// mine" in own.read_text()
    shown_values = json.loads(run(home, "config", "show", "--json").stdout)["values"]
    values = {item["key"]: item["value"] for item in shown_values}
    assert values["mcpServers.my-files.args"] == ["-y", "server", "price$$5"]
    assert values["mcpServers.remote.command"] == "own"
    replacement = imported(home, "claude-desktop", "--force")
    assert "would replace: remote, https://example.org/mcp" in replacement.stdout
    shown_values = json.loads(run(home, "config", "show", "--json").stdout)["values"]
    assert {"key": "mcpServers.remote.type", "value": "http", "source": str(own)} in shown_values


@pytest.mark.requirement("cli.config.import")
@pytest.mark.parametrize("content", ["", "\n", "\ufeff"])
def test_import_fills_an_empty_file(home: Path, content: str) -> None:
    own = write(settings_of(home), content)
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    assert imported(home, "cursor").returncode == 0
    assert json.loads(own.read_text("utf-8-sig")) == {"mcpServers": {"one": {"command": "x"}}}


@pytest.mark.requirement("cli.config.import")
def test_import_from_vs_code_names_its_inputs_and_prints_valid_settings(home: Path) -> None:
    write(home / ".config/Code/User/mcp.json", VSCODE)
    result = imported(home, "vscode", "--print", answer=None)
    servers = json.loads(result.stdout)["mcpServers"]
    assert servers["asks"]["env"] == {"KEY": "${API_KEY}"}
    assert servers["env"]["env"] == {"A": "${A_VALUE}"}
    assert "asks for the input api-key; set the environment variable API_KEY" in result.stderr
    assert "asks.envFile has no counterpart here" in result.stderr
    assert not settings_of(home).exists()
    printed_file = write(home / "printed.json", result.stdout)
    assert run(home, "config", "check", str(printed_file), API_KEY="k", A_VALUE="a").returncode == 0


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
def test_import_finds_every_client_and_accepts_a_file(home: Path, path: str, client: str) -> None:
    write(home / path, {"mcpServers": {"one": {"command": "x"}}})
    result = imported(home, client)
    assert result.returncode == 0
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
def test_import_that_finds_no_servers_fails_and_says_why(home: Path, client: str, expected: str) -> None:
    write(home / "empty.json", {})
    result = imported(home, client)
    assert (result.returncode, result.stdout, "Traceback" in result.stderr) == (1, "", False)
    assert expected in result.stderr


@pytest.mark.requirement("cli.shown.what-runs")
def test_import_shows_the_exact_command_that_would_run(home: Path) -> None:
    seems_remote = {"type": "stdio", "command": "/bin/sh", "args": ["-c", "touch P1"], "url": "https://docs.example/"}
    seems_secret = {"command": "/bin/sh", "args": ["-c", 'eval "$$1"', "--password", "touch P3"]}
    write(home / "theirs.json", {"mcpServers": {"nice": seems_remote, "hid": seems_secret}})
    output = imported(home, "theirs.json").stdout
    assert "would add: nice, /bin/sh -c 'touch P1'\n" in output
    assert "docs.example" not in output
    assert "--password 'touch P3'" in output


@pytest.mark.requirement("cli.shown.what-runs")
def test_import_hides_secrets_in_a_users_own_file_and_nothing_in_a_file_given_by_path(home: Path) -> None:
    entry = {"command": "/bin/bash", "env": {"BASH_ENV": '$$(TOKEN="$$(touch P4)")'}}
    write(home / ".cursor/mcp.json", {"mcpServers": {"own": {"command": "x", "env": {"API_KEY": "hunter2"}}}})
    write(home / "theirs.json", {"mcpServers": {"given": entry}})
    own_file, named_file = imported(home, "cursor"), imported(home, "theirs.json")
    assert "hunter2" not in own_file.stdout + own_file.stderr
    assert "touch P4" in named_file.stdout


# --- files that are imported, and consent ------------------------------------------------------------------------

PLANTED: dict[str, Any] = {"command": "/bin/planted", "trust": True}


@pytest.mark.requirement("cli.import.own-files")
@pytest.mark.parametrize(
    ("client", "planted_path", "own_path"),
    [
        ("vscode", ".vscode/mcp.json", ".config/Code/User/mcp.json"),
        ("claude-code", ".mcp.json", ".claude.json"),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
        ("qwen", ".qwen/settings.json", ".qwen/settings.json"),
    ],
)
def test_files_in_the_working_folder_are_never_imported_as_files_of_a_client(
    home: Path, project: Path, client: str, planted_path: str, own_path: str
) -> None:
    section = "servers" if client == "vscode" else "mcpServers"
    write(project / planted_path, {section: {"fine": PLANTED}})
    without_own_file = imported(home, client, cwd=project)
    assert (without_own_file.returncode, servers_of(home)) == (1, {})
    assert "you have no" in without_own_file.stderr
    write(home / own_path, {section: {"mine": {"command": "mine"}}})
    assert imported(home, client, cwd=project).returncode == 0
    assert list(servers_of(home)) == ["mine"]


@pytest.mark.requirement("cli.import.own-files")
def test_a_variable_with_a_relative_path_does_not_make_the_working_folder_the_users_own(
    home: Path, project: Path
) -> None:
    write(project / "Code/User/mcp.json", {"servers": {"fine": PLANTED}})
    write(project / "settings.json", {"mcpServers": {"fine": PLANTED}})
    for client, variables in (("vscode", {"XDG_CONFIG_HOME": "."}), ("qwen", {"QWEN_HOME": "."})):
        result = run(home, "config", "import", client, cwd=project, answer=YES, **variables)
        assert (result.returncode, "/bin/planted" in result.stdout) == (1, False)


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
def test_trust_is_ignored_for_clients_that_do_not_know_it_and_for_files_given_by_path(
    home: Path, client: str, path: str, section: str
) -> None:
    write(home / path, {section: {"fine": PLANTED}})
    result = imported(home, client)
    assert servers_of(home) == {"fine": {"command": "/bin/planted"}}
    assert "fine.trust was ignored" in result.stderr
    assert "(trust)" not in result.stdout


@pytest.mark.requirement("cli.import.own-files")
def test_trust_in_a_users_own_file_is_shown_and_imported_if_the_client_knows_it(home: Path) -> None:
    write(home / ".qwen/settings.json", {"mcpServers": {"fine": PLANTED}})
    assert "its tools run without a question (trust)\n" in imported(home, "qwen").stdout
    assert servers_of(home) == {"fine": PLANTED}


@pytest.mark.requirement("cli.config.import")
@pytest.mark.parametrize("answer", [b"\n", b"no\n", b"\x04"], ids=["nothing", "no", "the end"])
def test_a_person_who_does_not_agree_keeps_their_file_as_it_is(home: Path, answer: bytes) -> None:
    own = write(settings_of(home), {"media": "notice"})
    before = own.read_bytes()
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    result = imported(home, "cursor", answer=answer)
    assert (result.returncode, own.read_bytes()) == (1, before)
    assert "would add: one, x\n" in result.stdout
    assert f"Add this to {own}? [y/N]" in result.stderr
    assert "nothing was added" in result.stderr


@pytest.mark.requirement("cli.config.import")
def test_if_nobody_can_be_asked_the_servers_are_shown_and_not_added(home: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    result = imported(home, "cursor", answer=None)
    assert (result.returncode, settings_of(home).exists()) == (1, False)
    assert "would add: one, x\n" in result.stdout
    assert "nobody can answer here" in result.stderr


@pytest.mark.requirement("cli.config.import")
def test_import_with_yes_asks_no_question(home: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    result = imported(home, "cursor", "--yes", answer=None)
    assert (result.returncode, result.stderr, servers_of(home)) == (0, "", {"one": {"command": "x"}})


@pytest.mark.requirement("cli.config.import")
def test_import_asks_no_question_if_there_is_nothing_to_add(home: Path) -> None:
    write(settings_of(home), {"mcpServers": {"one": {"command": "mine"}}})
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}}})
    result = imported(home, "cursor", answer=None)
    assert (result.returncode, servers_of(home)) == (0, {"one": {"command": "mine"}})
    assert "There is nothing to add." in result.stdout


# --- content that is written -------------------------------------------------------------------------------------


@pytest.mark.requirement("cli.import.usable")
@pytest.mark.parametrize(
    "entry",
    [
        '{"command": "x", "env": {"A": 1}}',
        '{"command": "x", "connectTimeout": 30.5}',
        '{"description": "nothing to start"}',
        '{"type": [], "command": ["x"], "url": {}}',
        '{"command": "x", "headers": "none"}',
    ],
)
def test_a_server_that_could_not_work_is_skipped_with_a_warning(home: Path, entry: str) -> None:
    write(settings_of(home), {"permissions": {"deny": ["Bash"]}})
    write(home / ".cursor/mcp.json", f'{{"mcpServers": {{"bad": {entry}, "good": {{"command": "y"}}}}}}')
    result = imported(home, "cursor")
    assert result.returncode == 0
    assert list(servers_of(home)) == ["good"]
    assert "The server bad is not used." in result.stderr
    assert run(home, "config", "check").returncode == 0


@pytest.mark.requirement("cli.import.usable")
@pytest.mark.parametrize("arguments", [(), ("--print",)], ids=["added", "printed"])
@pytest.mark.parametrize("key", ["timeout", "description"])
def test_a_number_that_json_cannot_express_is_neither_written_nor_printed(
    home: Path, key: str, arguments: tuple[str, ...]
) -> None:
    own = write(settings_of(home), {"permissions": {"deny": ["Bash"]}})
    before = own.read_bytes()
    write(home / ".cursor/mcp.json", f'{{"mcpServers": {{"bad": {{"command": "x", "{key}": 1e999}}}}}}')
    result = imported(home, "cursor", *arguments)
    assert (result.returncode, own.read_bytes()) == (1, before)
    assert "Infinity" not in result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.requirement("cli.import.usable")
def test_nothing_is_added_to_settings_that_are_invalid_already(home: Path) -> None:
    own = write(settings_of(home), {"limits": {"readLines": "many"}})
    before = own.read_bytes()
    write(home / ".cursor/mcp.json", {"mcpServers": {"good": {"command": "y"}}})
    result = imported(home, "cursor")
    assert (result.returncode, own.read_bytes()) == (1, before)
    assert f"{own}: limits.readLines is" in result.stderr
    assert "skipped" not in result.stderr


@pytest.mark.requirement("cli.import.usable")
def test_a_placeholder_ends_where_its_text_ends(home: Path) -> None:
    servers = {
        "a": {"command": "${input:", "args": ["x}"]},
        "b": {"command": "echo", "args": ["${env:", "}", "-c", "${input:9-key}"], "description": "${input:not-here}"},
        "c": {"command": "x", "args": ['say "${env:WORD}"', "\\${userHome}"]},
    }
    write(home / ".config/Code/User/mcp.json", {"servers": servers})
    result = imported(home, "vscode", "--print", answer=None)
    assert "Traceback" not in result.stderr
    servers_printed: dict[str, Any] = json.loads(result.stdout)["mcpServers"]
    assert servers_printed["b"]["args"][1:] == ["}", "-c", "${_9_KEY}"]
    assert servers_printed["b"]["description"] == "${input:not-here}"
    assert servers_printed["c"]["args"] == ['say "${WORD}"', "\\${HOME}"]
    assert servers_printed["a"]["args"] == ["x}"]
    assert "not-here" not in result.stderr


@pytest.mark.requirement("cli.import.usable")
def test_an_entry_that_is_not_an_object_is_skipped_with_a_word(home: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": {"command": "x"}, "e": "str"}})
    result = imported(home, "cursor")
    assert list(servers_of(home)) == ["one"]
    assert "e is not an object, so it was skipped." in result.stderr


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
def test_a_file_that_others_can_read_is_made_private_before_secrets_are_added(
    home: Path, entry: dict[str, Any], mode: int
) -> None:
    own = write(settings_of(home), {"media": "notice"})
    own.chmod(0o644)
    write(home / ".cursor/mcp.json", {"mcpServers": {"one": entry}})
    result = imported(home, "cursor")
    assert list(servers_of(home)) == ["one"]
    assert stat.S_IMODE(own.stat().st_mode) == mode
    assert ("now readable only by you" in result.stderr) is (mode == 0o600)


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
    result = imported(home, {".cursor/mcp.json": "cursor", ".gemini/settings.json": "gemini"}.get(file, str(path)))
    assert result.returncode == 0, result.stderr
    assert servers_of(home)["one"]["timeout"] == imported_as
    assert ("one.timeout is 60, which was read as seconds (60000 ms)." in result.stderr) is is_told


@pytest.mark.requirement("settings.seconds")
def test_config_check_and_doctor_warn_of_a_time_that_is_probably_in_seconds(home: Path) -> None:
    entry = {"command": "true", "timeout": 60, "connectTimeout": 30, "listTimeout": 1000}
    write(settings_of(home), {"mcpServers": {"one": entry}})
    for words in (("config", "check"), ("doctor",)):
        result = run(home, *words)
        output = result.stdout + result.stderr
        warning = "mcpServers.one.timeout is 60 ms, but some clients use seconds; for 60 s write 60000."
        assert warning in output, output
        assert "mcpServers.one.connectTimeout is 30 ms" in output
        assert "listTimeout is" not in output
