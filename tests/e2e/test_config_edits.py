"""`config add`, `remove`, `enable`, `disable` and `init`: what they show, write and refuse."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from jsonschema import Draft202012Validator

from server.settings import server_models
from server.settings.settings_files import LOCK_NAME, parse
from server.upstreams.catalog.lock_file import lock_text, parse_lock
from tests.fork_server import forked
from tests.harness import PEERS, command_line, listening, stdio_upstream
from tests.terminals import answer_at_terminal, at_terminal, run_alone
from tests.variants import one_in

UPSTREAM = stdio_upstream()
COMMAND = [UPSTREAM["command"], *UPSTREAM["args"]]
SCHEMA = Path(server_models.__file__).with_name("settings.schema.json")
OWN = """{
\t// mine
\t"mcpServers": {
\t\t"files": {"command": "npx", "args": ["-y", "files"]}, // why
\t\t"two words": {"command": "x"}
\t}
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    return folder


def run(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_alone(home, "config", *arguments, variables=variables)


def settings_of(home: Path) -> Path:
    return home / ".config/coretools-mcp/settings.json"


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def servers_of(file: Path) -> dict[str, Any]:
    return parse(file.read_bytes(), str(file))["mcpServers"]


# --- add -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("cli.config.add")
def test_add_shows_the_change_asks_and_says_that_the_server_works(home: Path) -> None:
    file = write(settings_of(home), OWN)
    code, stdout, stderr = answer_at_terminal(
        home, "config", "add", "demo", "--description", "for trials", "--", *COMMAND
    )
    assert code == 0, stderr
    assert f"--- {file}" in stdout
    assert "+mcpServers.demo.command = " in stdout
    assert f"Change {file}? [y/N]" in stderr
    assert "Connected to demo: 10 tools\n" in stdout
    assert file.read_text().startswith(OWN[: OWN.index("\n\t}")])
    assert servers_of(file)["demo"] == {**UPSTREAM, "description": "for trials"}
    assert run(home, "check").returncode == 0


@pytest.mark.requirement("cli.config.add.approves")
def test_a_new_server_is_offered_for_approval_if_there_is_a_lock_file(home: Path) -> None:
    file = write(settings_of(home), "{}")
    lock = write(file.parent / LOCK_NAME, lock_text({}))
    answers = [(b"[y/N]", b"y"), (b"[y/N]", b"y")]
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    code, output = at_terminal(command_line("config", "add", "demo", "--", *COMMAND), answers, environ=environ)
    assert code == 0, output
    assert "demo: 10 tools (" in output
    assert len(parse_lock(lock.read_bytes())["demo"]["tools"]) == 10
    code, output = at_terminal(
        command_line("config", "add", "two", "--", *COMMAND), [answers[0], (b"[y/N]", b"\r")], environ=environ
    )
    assert (code, list(parse_lock(lock.read_bytes()))) == (0, ["demo"]), output
    assert "Its tools are blocked until they are approved: coretools-mcp lock --approve two" in output
    without_terminal = run(home, "add", "three", "--yes", "--", *COMMAND)
    assert "coretools-mcp lock --approve three" in without_terminal.stderr
    assert "WARNING" not in without_terminal.stderr


@pytest.mark.requirement("cli.config.add")
@pytest.mark.parametrize(
    ("arguments", "entry"),
    [
        (["docs", "https://example.org/mcp"], {"url": "https://example.org/mcp"}),
        (["docs", "-t", "sse", "https://example.org/sse"], {"type": "sse", "url": "https://example.org/sse"}),
        (
            ["--transport", "http", "-H", "X-Region: eu: 1", "docs", "https://example.org/mcp"],
            {"type": "http", "url": "https://example.org/mcp", "headers": {"X-Region": "eu: 1"}},
        ),
        (["docs", "npx", "files"], {"command": "npx", "args": ["files"]}),
        (["docs", "--trust", "--", "npx", "-y", "--", "--trust"], {"args": ["-y", "--", "--trust"], "trust": True}),
        (
            ["-e", "A=1=2", "docs", "-e", "HOME", "--cwd", ".", "--", "npx"],
            {"command": "npx", "env": {"A": "1=2", "HOME": "${HOME}"}, "cwd": "."},
        ),
    ],
)
def test_add_accepts_the_arguments_that_other_command_lines_accept(
    home: Path, arguments: list[str], entry: dict[str, Any]
) -> None:
    result = run(home, "add", "--yes", "--no-check", *arguments)
    assert result.returncode == 0, result.stderr
    entry_in_file = servers_of(settings_of(home))["docs"]
    expected = {**entry, **({"cwd": str(home)} if "cwd" in entry else {})}
    assert {**({"command": "npx"} if "trust" in entry else {}), **expected} == entry_in_file
    assert stat.S_IMODE(settings_of(home).stat().st_mode) == 0o600
    assert run(home, "check").returncode == 0


@pytest.mark.requirement("cli.config.add")
def test_config_selects_the_file_to_change_and_a_dry_run_changes_nothing(home: Path) -> None:
    other_file = write(home / "team/mcp.json", "{}\n")
    result = run(home, "add", "docs", "--config", str(other_file), "--dry-run", "--", "x")
    assert (result.returncode, other_file.read_text()) == (0, "{}\n")
    assert f"+++ {other_file}" in result.stdout
    assert run(home, "add", "docs", "--config", str(other_file), "--yes", "--no-check", "--", "x").returncode == 0
    assert servers_of(other_file) == {"docs": {"command": "x"}}
    assert not settings_of(home).exists()


@pytest.mark.requirement("cli.config.add")
def test_an_existing_server_is_replaced_only_with_force(home: Path) -> None:
    file = write(settings_of(home), OWN)
    refusal = run(home, "add", "files", "--yes", "--", "y")
    assert (refusal.returncode, file.read_text()) == (1, OWN)
    assert f"{file} already has a server files" in refusal.stderr
    replacement = run(home, "add", "two-words", "--force", "--yes", "--no-check", "--", "y")
    assert replacement.returncode == 0, replacement.stderr
    assert file.read_text() == OWN.replace('{"command": "x"}', '{\n\t\t\t"command": "y"\n\t\t}')
    repetition = run(home, "add", "two-words", "--force", "--no-check", "--", "y")
    assert (repetition.returncode, "already has this entry" in repetition.stdout) == (0, True)


@pytest.mark.requirement("cli.config.add.connects")
def test_a_server_that_does_not_connect_stays_and_the_reason_is_shown(home: Path) -> None:
    result = run(home, "add", "broken", "--yes", "--", sys.executable, "-c", "import sys; sys.exit('no luck')")
    assert result.returncode == 1
    assert "broken was added but does not work" in result.stderr
    assert "It stays in the settings. To remove it: coretools-mcp config remove broken\n" in result.stderr
    assert "its output: no luck" in result.stderr
    assert "broken" in servers_of(settings_of(home))


@pytest.mark.anyio
@pytest.mark.requirement("cli.config.add.connects")
@pytest.mark.parametrize(("kind", "options"), [("http", []), ("sse", []), ("sse", ["-t", "sse"])])
async def test_a_server_is_reached_by_its_address(home: Path, kind: str, options: list[str]) -> None:
    async with listening([sys.executable, *forked([str(PEERS / "upstream.py"), kind])], r"port (\d+)") as port:
        address = f"http://127.0.0.1:{port}/{'mcp' if kind == 'http' else 'sse'}"
        result = await anyio.to_thread.run_sync(run, home, "add", "far", address, "--yes", *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Connected to far: 10 tools\n" in result.stdout
    assert servers_of(settings_of(home))["far"]["url"] == address


@pytest.mark.requirement("cli.config.add.connects")
def test_only_the_new_server_is_started(home: Path) -> None:
    trace = home / "started"
    other_entry = {"command": "sh", "args": ["-c", f"touch {trace}"]}
    write(settings_of(home), json.dumps({"mcpServers": {"other": other_entry}}))
    result = run(home, "add", "demo", "--yes", "--", *COMMAND)
    assert (result.returncode, result.stderr, trace.exists()) == (0, "", False)


@pytest.mark.requirement("cli.config.add.connects")
@pytest.mark.parametrize(
    ("settings", "option", "reason"),
    [("{}", ["-e", "NEEDED"], "NEEDED is not set"), ('{"mcp": {"excluded": ["demo"]}}', [], "It is in mcp.excluded.")],
)
def test_a_server_that_would_not_be_used_is_not_started_and_the_reason_is_shown(
    home: Path, settings: str, option: list[str], reason: str
) -> None:
    write(settings_of(home), settings)
    result = run(home, "add", "demo", *option, "--yes", "--", "sh", "-c", "touch started")
    assert (result.returncode, (home / "started").exists()) == (1, False)
    assert "demo was added but is not used" in result.stderr
    assert reason in result.stderr


@pytest.mark.requirement("cli.config.add.secrets")
@pytest.mark.parametrize(
    ("arguments", "variables", "place", "value"),
    [
        (["-e", "API_KEY=hunter2", "s", "--", "x"], {"API_KEY": "hunter2"}, ("env", "API_KEY"), "${API_KEY}"),
        (
            ["-H", "Authorization: Bearer hunter2hunter2", "s", "https://example.org/mcp"],
            {"DOCS_TOKEN": "hunter2hunter2"},
            ("headers", "Authorization"),
            "Bearer ${DOCS_TOKEN}",
        ),
        (
            ["s", "--", "x", "--token", "hunter2hunter2"],
            {"DOCS_TOKEN": "hunter2hunter2"},
            ("args", 1),
            "${DOCS_TOKEN}",
        ),
        (
            ["s", "--", "x", "https://example.org/?api_key=hunter2hunter2", "-y"],
            {"DOCS_TOKEN": "hunter2hunter2"},
            ("args", 0),
            "https://example.org/?api_key=${DOCS_TOKEN}",
        ),
        (["s", "--", "x", "postgres://me:${PW}@host/db"], {"PW": "1"}, ("args", 0), "postgres://me:${PW}@host/db"),
    ],
)
def test_a_secret_that_is_the_value_of_a_variable_is_written_as_a_reference_to_it(
    home: Path, arguments: list[str], variables: dict[str, str], place: tuple[Any, Any], value: str
) -> None:
    result = run(home, "add", "--yes", "--no-check", *arguments, **variables)
    assert result.returncode == 0, result.stderr
    assert "looks like a secret" not in result.stderr
    assert servers_of(settings_of(home))["s"][place[0]][place[1]] == value
    assert "hunter2" not in settings_of(home).read_text() + result.stdout + result.stderr


@pytest.mark.requirement("cli.config.add.secrets")
@pytest.mark.parametrize(
    ("arguments", "place"),
    one_in(
        2,
        [
            (["-e", "API_KEY=hunter2", "s", "--", "x"], "env.API_KEY"),
            (["-e", f"PLAIN=ghp_{'a1' * 18}", "s", "--", "x"], "env.PLAIN"),
            (["-H", "Authorization: Bearer hunter2", "s", "https://example.org/mcp"], "headers.Authorization"),
            (["s", "https://me:hunter2@example.org/mcp"], "url"),
            (["s", "--", "x", "--password", "hunter2"], "args"),
        ],
    ),
)
def test_any_other_secret_is_refused_or_written_with_yes_and_a_warning(
    home: Path, arguments: list[str], place: str
) -> None:
    file = write(settings_of(home), "{}")
    file.chmod(0o644)
    refusal = run(home, "add", "--no-check", *arguments)
    assert (refusal.returncode, refusal.stdout, file.read_text()) == (1, "", "{}")
    assert f"what looks like a secret: {place}" in refusal.stderr
    assert ("--env" in refusal.stderr) is ("--" in arguments)  # --env has no effect for an address
    confirmation = run(home, "add", "--no-check", "--yes", *arguments)
    assert confirmation.returncode == 0
    assert f"{file} stores in plain text what looks like a secret: {place}" in confirmation.stderr
    assert "now readable only by you" in confirmation.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2" not in refusal.stderr + confirmation.stderr


@pytest.mark.requirement("cli.config.edits.usage")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "docs"], "give a command or an address"),
        (["add", "docs", "ftp://example.org"], "must begin with http:// or https://"),
        (["add", "two words", "--", "x"], "two-words would work"),
        (["add", "", "--", "x"], "cannot be the name of a server"),
        (["add", "a__b", "--", "x"], "a-b would work"),
        (["add", "docs", "-t", "http", "--", "npx"], "takes an address that begins with http://"),
        (["add", "docs", "-t", "stdio", "https://example.org"], "takes a command"),
        (["add", "docs", "https://example.org", "more"], "an address takes no arguments"),
        (["add", "docs", "https://example.org", "-e", "A=1"], "--env has no effect"),
        (["add", "docs", "https://example.org", "--cwd", "/"], "--cwd has no effect"),
        (["add", "docs", "-H", "A: 1", "--", "x"], "--header has no effect"),
        (["add", "docs", "-H", "A", "https://example.org"], "needs a colon"),
        (["add", "docs", "-e", "=1", "--", "x"], "--env needs a name"),
        (["add", "docs", "--cwd", "nowhere", "--", "x"], "is not an existing folder"),
        (["add", "docs", "--", "caf\udce9"], "an argument contains bytes that are not UTF-8"),
        (["add", "docs", "npx", "-y"], "after --."),
        (["add", "docs", "--trusted", "--", "x"], "Did you mean --trust?"),
        (["remove", "a", "b"], "too many words: b"),
        (["inti"], "Did you mean config init?"),
    ],
)
def test_wrong_usage_is_a_sentence_and_nothing_is_written(home: Path, arguments: list[str], message: str) -> None:
    result = run(home, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert list(home.iterdir()) == []


@pytest.mark.requirement("cli.config.edits.refused")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"mcpServers": ', "not valid JSON"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ("[]", "one JSON object"),
        ('{"mcpServers": []}', "mcpServers is not an object"),
        ('{"mcpServers": {}, "mcpServers": {"a": {"command": "x"}}}', "mcpServers occurs more than once"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "mcpServers.a occurs more than once"),
        ('{"limits": {"readLines": "many"}}', "limits.readLines is"),
    ],
)
def test_a_file_that_cannot_be_changed_for_certain_stays_as_it_is(
    home: Path, content: str | bytes, message: str
) -> None:
    file = write(settings_of(home), content)
    before = file.read_bytes()
    result = run(home, "add", "a", "--force", "--yes", "--", "x")
    assert (result.returncode, file.read_bytes(), "Traceback" in result.stderr) == (1, before, False)
    assert message in result.stderr


@pytest.mark.requirement("cli.config.edits.refused")
def test_a_file_with_a_hard_link_is_left_alone_and_a_symbolic_link_stays_one(home: Path) -> None:
    real = write(home / "dotfiles/settings.json", OWN)
    settings_of(home).parent.mkdir(parents=True)
    settings_of(home).symlink_to(real)
    assert run(home, "disable", "files", "--yes").returncode == 0
    assert settings_of(home).is_symlink()
    assert servers_of(real)["files"]["enabled"] is False
    (home / "second.json").hardlink_to(real)
    result = run(home, "enable", "files", "--yes")
    assert (result.returncode, servers_of(real)["files"]["enabled"]) == (1, False)
    assert "has a second name" in result.stderr


@pytest.mark.requirement("cli.config.edits.refused")
@pytest.mark.parametrize(
    "command",
    [["coretools-mcp"], ["uvx", "coretools-mcp"], ["http://127.0.0.1:8808/mcp"]],
    ids=["started", "started by another", "reached"],
)
def test_this_server_cannot_be_its_own_upstream_except_with_other_settings(home: Path, command: list[str]) -> None:
    result = run(home, "add", "core", "--yes", "--no-check", "--", *command)
    assert (result.returncode, settings_of(home).exists()) == (1, False)
    assert "cannot be its own upstream" in result.stderr
    chain = [*command[:-1], "coretools-mcp", "--config", "other.json"]
    assert run(home, "add", "core", "--yes", "--no-check", "--", *chain).returncode == 0


@pytest.mark.requirement("cli.config.edits.asked")
@pytest.mark.parametrize("arguments", [["add", "new", "--", "x"], ["remove", "files"], ["disable", "files"]])
def test_without_a_yes_the_file_stays_as_it_is(home: Path, arguments: list[str]) -> None:
    file = write(settings_of(home), OWN)
    code, stdout, stderr = answer_at_terminal(home, "config", *arguments, answer=b"\n")
    assert (code, file.read_text(), "nothing was changed" in stderr) == (1, OWN, True)
    assert f"+++ {file}" in stdout
    without_terminal = run(home, *arguments)
    assert (without_terminal.returncode, file.read_text()) == (1, OWN)
    assert "nobody can answer here" in without_terminal.stderr
    dry = run(home, arguments[0], "--dry-run", *arguments[1:])
    assert (dry.returncode, dry.stdout, file.read_text()) == (0, stdout, OWN)


@pytest.mark.requirement("cli.config.edits.asked")
def test_a_file_that_changes_while_the_person_thinks_is_not_written(home: Path) -> None:
    file = write(settings_of(home), OWN)
    code, _, stderr = answer_at_terminal(home, "config", "remove", "files", meanwhile=lambda: file.write_text("{}"))
    assert (code, file.read_text()) == (1, "{}")
    assert "has changed in the meantime" in stderr


# --- remove, enable, disable ---------------------------------------------------------------------------------------


@pytest.mark.requirement("cli.config.remove")
def test_a_server_is_removed_by_its_name_or_alias_and_a_misspelling_gets_a_suggestion(home: Path) -> None:
    file = write(settings_of(home), OWN)
    misspelling = run(home, "remove", "file", "--yes")
    assert (misspelling.returncode, file.read_text()) == (1, OWN)
    assert f"there is no server file in {file}, so nothing was changed. Did you mean files?" in misspelling.stderr
    for name in ("two-words", "files"):
        result = run(home, "remove", name, "--yes")
        assert result.returncode == 0, result.stderr
    assert file.read_text() == '{\n\t// mine\n\t"mcpServers": { // why\n\t}\n}\n'
    repetition = run(home, "remove", "files")
    assert (repetition.returncode, "Did you mean" in repetition.stderr) == (1, False)


@pytest.mark.requirement("cli.config.remove")
def test_a_server_that_makes_the_settings_invalid_can_be_removed(home: Path) -> None:
    write(settings_of(home), '{"mcpServers": {"bad": {"timeout": "soon"}}}')
    assert run(home, "check").returncode == 1
    assert run(home, "remove", "bad", "--yes").returncode == 0
    assert run(home, "check").returncode == 0


@pytest.mark.requirement("cli.config.enable")
def test_a_server_is_switched_off_and_on_again_and_the_file_is_as_before(home: Path) -> None:
    file = write(settings_of(home), OWN)
    assert run(home, "disable", "files", "--yes").returncode == 0
    assert file.read_text() == OWN.replace('"files"]}', '"files"], "enabled": false}')
    assert "is already disabled in" in run(home, "disable", "files").stdout
    assert run(home, "enable", "files", "--yes").returncode == 0
    assert file.read_text() == OWN
    assert "is already enabled in" in run(home, "enable", "files").stdout


@pytest.mark.requirement("cli.config.enable")
def test_the_disabled_key_of_other_clients_is_respected(home: Path) -> None:
    file = write(settings_of(home), '{"mcpServers": {"a": {"command": "x", "disabled": true}}}')
    assert run(home, "enable", "a", "--yes").returncode == 0
    assert servers_of(file) == {"a": {"command": "x"}}
    write(file, '{"mcpServers": {"a": {"command": "x", "disabled": false}}}')
    assert run(home, "disable", "a", "--yes").returncode == 0
    assert servers_of(file) == {"a": {"command": "x", "enabled": False}}


@pytest.mark.requirement("cli.config.enable")
def test_enable_says_why_a_server_is_still_not_used(home: Path) -> None:
    settings = {"mcp": {"excluded": ["a"]}, "mcpServers": {"a": {"command": "x", "enabled": False}}}
    write(settings_of(home), json.dumps(settings))
    result = run(home, "enable", "a", "--yes")
    assert result.returncode == 0
    assert "a is still not used: It is in mcp.excluded." in result.stderr


# --- init ----------------------------------------------------------------------------------------------------------


def uncommented(text: str) -> str:
    return "\n".join(line.replace('// "', '"', 1) for line in text.splitlines())


@pytest.mark.requirement("cli.config.init")
def test_init_writes_a_schema_and_a_file_whose_commented_keys_are_all_valid(home: Path) -> None:
    result = run(home, "init")
    file, copy = settings_of(home), settings_of(home).with_name("settings.schema.json")
    assert result.returncode == 0, result.stderr
    assert parse(file.read_bytes(), str(file)) == {"$schema": "./settings.schema.json"}
    assert copy.read_bytes() == SCHEMA.read_bytes()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file, copy)]
    assert modes == [0o700, 0o600, 0o600]
    (home / "projects").mkdir()
    file.write_text(uncommented(file.read_text()))
    keys = parse(file.read_bytes(), str(file))
    assert {"approvalMode", "permissions", "workspace", "tools"} < set(keys)
    check = run(home, "check")
    assert (check.returncode, "warning" in check.stdout) == (0, False), check.stdout
    validator: Any = Draft202012Validator(json.loads(copy.read_bytes()))
    assert [error.message for error in validator.iter_errors(keys)] == []
    assert run(home, "add", "docs", "--yes", "--no-check", "https://example.org/mcp").returncode == 0
    assert list(servers_of(file)) == ["docs"]


@pytest.mark.requirement("cli.config.init")
def test_init_asks_before_it_changes_an_existing_file_or_its_schema(home: Path) -> None:
    file = write(settings_of(home), OWN)
    copy = write(file.with_name("settings.schema.json"), old := '{"title": "Settings of coretools-mcp"}')
    code, stdout, stderr = answer_at_terminal(home, "config", "init", answer=b"n\n")
    assert (code, file.read_text()) == (1, OWN)
    assert '+$schema = "./settings.schema.json"' in stdout
    assert "nothing was changed" in stderr
    assert copy.read_text() == old
    assert run(home, "init", "--yes").returncode == 0
    assert copy.read_bytes() == SCHEMA.read_bytes()
    assert file.read_text() == OWN.replace("\t}\n}", '\t},\n\t"$schema": "./settings.schema.json"\n}')
    repetition = run(home, "init")
    assert (repetition.returncode, "left unchanged" in repetition.stdout) == (0, True)


@pytest.mark.requirement("cli.config.init")
@pytest.mark.parametrize("content", ['{"title": "Another"}', "no schema"])
def test_somebody_elses_schema_file_stays_and_nothing_is_written(home: Path, content: str) -> None:
    copy = write(home / "project/settings.schema.json", content)
    result = run(home, "init", "--config", "project/mcp.json", "--yes")
    assert (result.returncode, copy.read_text()) == (1, content)
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


@pytest.mark.requirement("cli.config.init")
def test_a_dry_run_shows_the_new_file_and_writes_nothing(home: Path) -> None:
    result = run(home, "init", "--dry-run")
    assert (result.returncode, list(home.iterdir())) == (0, [])
    assert '+$schema = "./settings.schema.json"' in result.stdout
