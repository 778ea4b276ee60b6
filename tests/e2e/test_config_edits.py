"""`config add`, `remove`, `enable`, `disable` and `init`, as a person uses them: what is seen, written and refused."""

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

from server.settings import models
from server.settings.settings_files import LOCK_NAME, parse
from server.upstreams.catalog.lock_file import lock_text, parse_lock
from tests.fork_server import forked
from tests.harness import PEERS, command_line, listening, stdio_upstream
from tests.terminals import answer_at_terminal, at_terminal, run_alone
from tests.variants import one_in

UPSTREAM = stdio_upstream()
COMMAND = [UPSTREAM["command"], *UPSTREAM["args"]]
SCHEMA = Path(models.__file__).with_name("settings.schema.json")
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
def test_a_person_sees_what_is_added_agrees_and_hears_that_the_server_works(home: Path) -> None:
    file = write(settings_of(home), OWN)
    code, shown, said = answer_at_terminal(home, "config", "add", "demo", "--description", "for trials", "--", *COMMAND)
    assert code == 0, said
    assert f"--- {file}" in shown
    assert '+\t\t"demo": {' in shown
    assert f"Change {file}? [y/N]" in said
    assert "Connected to demo: 10 tools\n" in shown
    assert file.read_text().startswith(OWN[: OWN.index("\n\t}")])
    assert servers_of(file)["demo"] == {**UPSTREAM, "description": "for trials"}
    assert run(home, "check").returncode == 0


@pytest.mark.requirement("cli.config.add.approves")
def test_a_new_server_is_offered_for_approval_where_there_is_a_lock_file(home: Path) -> None:
    file = write(settings_of(home), "{}")
    lock = write(file.parent / LOCK_NAME, lock_text({}))
    yes = [(b"[y/N]", b"y"), (b"[y/N]", b"y")]
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    code, seen = at_terminal(command_line("config", "add", "demo", "--", *COMMAND), yes, environ=environ)
    assert code == 0, seen
    assert "demo: 10 tools (" in seen
    assert len(parse_lock(lock.read_bytes())["demo"]["tools"]) == 10
    code, seen = at_terminal(
        command_line("config", "add", "two", "--", *COMMAND), [yes[0], (b"[y/N]", b"\r")], environ=environ
    )
    assert (code, list(parse_lock(lock.read_bytes()))) == (0, ["demo"]), seen
    assert "Its tools are blocked until they are approved: coretools-mcp lock --approve two" in seen
    quiet = run(home, "add", "three", "--yes", "--", *COMMAND)
    assert "coretools-mcp lock --approve three" in quiet.stderr
    assert "WARNING" not in quiet.stderr


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
def test_a_server_is_described_as_on_other_command_lines(
    home: Path, arguments: list[str], entry: dict[str, Any]
) -> None:
    done = run(home, "add", "--yes", "--no-check", *arguments)
    assert done.returncode == 0, done.stderr
    written = servers_of(settings_of(home))["docs"]
    expected = {**entry, **({"cwd": str(home)} if "cwd" in entry else {})}
    assert {**({"command": "npx"} if "trust" in entry else {}), **expected} == written
    assert stat.S_IMODE(settings_of(home).stat().st_mode) == 0o600
    assert run(home, "check").returncode == 0


@pytest.mark.requirement("cli.config.add")
def test_another_file_is_changed_where_it_is_named_and_nothing_where_only_the_difference_is_wanted(home: Path) -> None:
    other = write(home / "team/mcp.json", "{}\n")
    done = run(home, "add", "docs", "--config", str(other), "--dry-run", "--", "x")
    assert (done.returncode, other.read_text()) == (0, "{}\n")
    assert f"+++ {other}" in done.stdout
    assert run(home, "add", "docs", "--config", str(other), "--yes", "--no-check", "--", "x").returncode == 0
    assert servers_of(other) == {"docs": {"command": "x"}}
    assert not settings_of(home).exists()


@pytest.mark.requirement("cli.config.add")
def test_a_name_that_is_taken_is_replaced_only_by_force(home: Path) -> None:
    file = write(settings_of(home), OWN)
    refused = run(home, "add", "files", "--yes", "--", "y")
    assert (refused.returncode, file.read_text()) == (1, OWN)
    assert f"{file} already has a server files" in refused.stderr
    forced = run(home, "add", "two-words", "--force", "--yes", "--no-check", "--", "y")
    assert forced.returncode == 0, forced.stderr
    assert file.read_text() == OWN.replace('{"command": "x"}', '{\n\t\t\t"command": "y"\n\t\t}')
    again = run(home, "add", "two-words", "--force", "--no-check", "--", "y")
    assert (again.returncode, "already has this entry" in again.stdout) == (0, True)


@pytest.mark.requirement("cli.config.add.connects")
def test_a_server_that_does_not_connect_stays_and_it_is_told_why(home: Path) -> None:
    done = run(home, "add", "broken", "--yes", "--", sys.executable, "-c", "import sys; sys.exit('no luck')")
    assert done.returncode == 1
    assert "broken was added but does not work" in done.stderr
    assert "It stays in the settings. To remove it: coretools-mcp config remove broken\n" in done.stderr
    assert "its output: no luck" in done.stderr
    assert "broken" in servers_of(settings_of(home))


@pytest.mark.anyio
@pytest.mark.requirement("cli.config.add.connects")
@pytest.mark.parametrize(("kind", "options"), [("http", []), ("sse", []), ("sse", ["-t", "sse"])])
async def test_a_server_is_reached_by_its_address(home: Path, kind: str, options: list[str]) -> None:
    async with listening([sys.executable, *forked([str(PEERS / "upstream.py"), kind])], r"port (\d+)") as port:
        address = f"http://127.0.0.1:{port}/{'mcp' if kind == 'http' else 'sse'}"
        done = await anyio.to_thread.run_sync(run, home, "add", "far", address, "--yes", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Connected to far: 10 tools\n" in done.stdout
    assert servers_of(settings_of(home))["far"]["url"] == address


@pytest.mark.requirement("cli.config.add.connects")
def test_only_the_new_server_is_started(home: Path) -> None:
    trace = home / "started"
    other = {"command": "sh", "args": ["-c", f"touch {trace}"]}
    write(settings_of(home), json.dumps({"mcpServers": {"other": other}}))
    done = run(home, "add", "demo", "--yes", "--", *COMMAND)
    assert (done.returncode, done.stderr, trace.exists()) == (0, "", False)


@pytest.mark.requirement("cli.config.add.connects")
@pytest.mark.parametrize(
    ("own", "option", "told"),
    [("{}", ["-e", "NEEDED"], "NEEDED is not set"), ('{"mcp": {"excluded": ["demo"]}}', [], "It is in mcp.excluded.")],
)
def test_a_server_that_would_not_be_used_is_not_started_and_it_is_told_why(
    home: Path, own: str, option: list[str], told: str
) -> None:
    write(settings_of(home), own)
    done = run(home, "add", "demo", *option, "--yes", "--", "sh", "-c", "touch started")
    assert (done.returncode, (home / "started").exists()) == (1, False)
    assert "demo was added but is not used" in done.stderr
    assert told in done.stderr


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
def test_a_secret_that_a_variable_holds_is_written_as_its_name(
    home: Path, arguments: list[str], variables: dict[str, str], place: tuple[Any, Any], value: str
) -> None:
    done = run(home, "add", "--yes", "--no-check", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert "looks like a secret" not in done.stderr
    assert servers_of(settings_of(home))["s"][place[0]][place[1]] == value
    assert "hunter2" not in settings_of(home).read_text() + done.stdout + done.stderr


@pytest.mark.requirement("cli.config.add.secrets")
@pytest.mark.parametrize(
    ("arguments", "where"),
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
def test_another_secret_is_refused_and_written_only_for_who_is_sure_and_then_it_is_told(
    home: Path, arguments: list[str], where: str
) -> None:
    file = write(settings_of(home), "{}")
    file.chmod(0o644)
    refused = run(home, "add", "--no-check", *arguments)
    assert (refused.returncode, refused.stdout, file.read_text()) == (1, "", "{}")
    assert f"what looks like a secret: {where}" in refused.stderr
    assert ("--env" in refused.stderr) is ("--" in arguments)  # an address has none
    written = run(home, "add", "--no-check", "--yes", *arguments)
    assert written.returncode == 0
    assert f"{file} stores in plain text what looks like a secret: {where}" in written.stderr
    assert "now readable only by you" in written.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2" not in refused.stderr + written.stderr


@pytest.mark.requirement("cli.config.edits.usage")
@pytest.mark.parametrize(
    ("arguments", "told"),
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
        (["add", "docs", "npx", "-y"], "after --."),
        (["add", "docs", "--trusted", "--", "x"], "Did you mean --trust?"),
        (["remove", "a", "b"], "too many words: b"),
        (["inti"], "Did you mean config init?"),
    ],
)
def test_wrong_usage_is_a_sentence_and_nothing_is_written(home: Path, arguments: list[str], told: str) -> None:
    done = run(home, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert list(home.iterdir()) == []


@pytest.mark.requirement("cli.config.edits.refused")
@pytest.mark.parametrize(
    ("content", "told"),
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
def test_a_file_that_cannot_be_changed_for_certain_stays_as_it_is(home: Path, content: str | bytes, told: str) -> None:
    file = write(settings_of(home), content)
    before = file.read_bytes()
    done = run(home, "add", "a", "--force", "--yes", "--", "x")
    assert (done.returncode, file.read_bytes(), "Traceback" in done.stderr) == (1, before, False)
    assert told in done.stderr


@pytest.mark.requirement("cli.config.edits.refused")
def test_a_file_with_a_second_name_is_left_alone_and_a_link_stays_one(home: Path) -> None:
    real = write(home / "dotfiles/settings.json", OWN)
    settings_of(home).parent.mkdir(parents=True)
    settings_of(home).symlink_to(real)
    assert run(home, "disable", "files", "--yes").returncode == 0
    assert settings_of(home).is_symlink()
    assert servers_of(real)["files"]["enabled"] is False
    (home / "second.json").hardlink_to(real)
    done = run(home, "enable", "files", "--yes")
    assert (done.returncode, servers_of(real)["files"]["enabled"]) == (1, False)
    assert "has a second name" in done.stderr


@pytest.mark.requirement("cli.config.edits.refused")
@pytest.mark.parametrize(
    "command",
    [["coretools-mcp"], ["uvx", "coretools-mcp"], ["http://127.0.0.1:8808/mcp"]],
    ids=["started", "started by another", "reached"],
)
def test_this_server_is_not_put_behind_itself_but_one_with_other_settings_is(home: Path, command: list[str]) -> None:
    done = run(home, "add", "core", "--yes", "--no-check", "--", *command)
    assert (done.returncode, settings_of(home).exists()) == (1, False)
    assert "cannot be its own upstream" in done.stderr
    chain = [*command[:-1], "coretools-mcp", "--config", "other.json"]
    assert run(home, "add", "core", "--yes", "--no-check", "--", *chain).returncode == 0


@pytest.mark.requirement("cli.config.edits.asked")
@pytest.mark.parametrize("arguments", [["add", "new", "--", "x"], ["remove", "files"], ["disable", "files"]])
def test_without_a_yes_the_file_stays_as_it_is(home: Path, arguments: list[str]) -> None:
    file = write(settings_of(home), OWN)
    code, shown, said = answer_at_terminal(home, "config", *arguments, answer=b"\n")
    assert (code, file.read_text(), "nothing was changed" in said) == (1, OWN, True)
    assert f"+++ {file}" in shown
    unasked = run(home, *arguments)
    assert (unasked.returncode, file.read_text()) == (1, OWN)
    assert "nobody can answer here" in unasked.stderr
    dry = run(home, arguments[0], "--dry-run", *arguments[1:])
    assert (dry.returncode, dry.stdout, file.read_text()) == (0, shown, OWN)


@pytest.mark.requirement("cli.config.edits.asked")
def test_a_file_that_changes_while_the_person_thinks_is_not_written(home: Path) -> None:
    file = write(settings_of(home), OWN)
    code, _, said = answer_at_terminal(home, "config", "remove", "files", meanwhile=lambda: file.write_text("{}"))
    assert (code, file.read_text()) == (1, "{}")
    assert "has changed in the meantime" in said


# --- remove, enable, disable ---------------------------------------------------------------------------------------


@pytest.mark.requirement("cli.config.remove")
def test_a_server_is_taken_out_by_its_name_or_its_alias_and_a_misspelled_one_is_answered(home: Path) -> None:
    file = write(settings_of(home), OWN)
    wrong = run(home, "remove", "file", "--yes")
    assert (wrong.returncode, file.read_text()) == (1, OWN)
    assert f"there is no server file in {file}, so nothing was changed. Did you mean files?" in wrong.stderr
    for name in ("two-words", "files"):
        done = run(home, "remove", name, "--yes")
        assert done.returncode == 0, done.stderr
    assert file.read_text() == '{\n\t// mine\n\t"mcpServers": { // why\n\t}\n}\n'
    empty = run(home, "remove", "files")
    assert (empty.returncode, "Did you mean" in empty.stderr) == (1, False)


@pytest.mark.requirement("cli.config.remove")
def test_a_server_that_keeps_the_others_from_starting_can_be_taken_out(home: Path) -> None:
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
def test_what_other_clients_call_disabled_counts_too(home: Path) -> None:
    file = write(settings_of(home), '{"mcpServers": {"a": {"command": "x", "disabled": true}}}')
    assert run(home, "enable", "a", "--yes").returncode == 0
    assert servers_of(file) == {"a": {"command": "x"}}
    write(file, '{"mcpServers": {"a": {"command": "x", "disabled": false}}}')
    assert run(home, "disable", "a", "--yes").returncode == 0
    assert servers_of(file) == {"a": {"command": "x", "enabled": False}}


@pytest.mark.requirement("cli.config.enable")
def test_a_server_that_something_else_leaves_out_is_told_of(home: Path) -> None:
    excluded = {"mcp": {"excluded": ["a"]}, "mcpServers": {"a": {"command": "x", "enabled": False}}}
    write(settings_of(home), json.dumps(excluded))
    done = run(home, "enable", "a", "--yes")
    assert done.returncode == 0
    assert "a is still not used: It is in mcp.excluded." in done.stderr


# --- init ----------------------------------------------------------------------------------------------------------


def uncommented(text: str) -> str:
    return "\n".join(line.replace('// "', '"', 1) for line in text.splitlines())


@pytest.mark.requirement("cli.config.init")
def test_a_new_file_names_the_schema_beside_it_and_each_of_its_keys_can_count(home: Path) -> None:
    done = run(home, "init")
    file, copy = settings_of(home), settings_of(home).with_name("settings.schema.json")
    assert done.returncode == 0, done.stderr
    assert parse(file.read_bytes(), str(file)) == {"$schema": "./settings.schema.json"}
    assert copy.read_bytes() == SCHEMA.read_bytes()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file, copy)]
    assert modes == [0o700, 0o600, 0o600]
    (home / "projects").mkdir()
    file.write_text(uncommented(file.read_text()))
    keys = parse(file.read_bytes(), str(file))
    assert {"approvalMode", "permissions", "workspace", "tools"} < set(keys)
    checked = run(home, "check")
    assert (checked.returncode, "warning" in checked.stdout) == (0, False), checked.stdout
    validator: Any = Draft202012Validator(json.loads(copy.read_bytes()))
    assert [error.message for error in validator.iter_errors(keys)] == []
    assert run(home, "add", "docs", "--yes", "--no-check", "https://example.org/mcp").returncode == 0
    assert list(servers_of(file)) == ["docs"]


@pytest.mark.requirement("cli.config.init")
def test_a_file_that_is_there_is_asked_about_and_the_answer_no_leaves_the_schema_as_it_is(home: Path) -> None:
    file = write(settings_of(home), OWN)
    copy = write(file.with_name("settings.schema.json"), old := '{"title": "Settings of coretools-mcp"}')
    code, shown, said = answer_at_terminal(home, "config", "init", answer=b"n\n")
    assert (code, file.read_text()) == (1, OWN)
    assert '+\t"$schema": "./settings.schema.json"' in shown
    assert "nothing was changed" in said
    assert copy.read_text() == old
    assert run(home, "init", "--yes").returncode == 0
    assert copy.read_bytes() == SCHEMA.read_bytes()
    assert file.read_text() == OWN.replace("\t}\n}", '\t},\n\t"$schema": "./settings.schema.json"\n}')
    again = run(home, "init")
    assert (again.returncode, "left unchanged" in again.stdout) == (0, True)


@pytest.mark.requirement("cli.config.init")
@pytest.mark.parametrize("beside", ['{"title": "Another"}', "no schema"])
def test_a_schema_of_somebody_else_stays_and_nothing_is_written(home: Path, beside: str) -> None:
    copy = write(home / "project/settings.schema.json", beside)
    done = run(home, "init", "--config", "project/mcp.json", "--yes")
    assert (done.returncode, copy.read_text()) == (1, beside)
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


@pytest.mark.requirement("cli.config.init")
def test_a_dry_run_shows_the_new_file_and_writes_nothing(home: Path) -> None:
    done = run(home, "init", "--dry-run")
    assert (done.returncode, list(home.iterdir())) == (0, [])
    assert '+  "$schema": "./settings.schema.json"' in done.stdout
