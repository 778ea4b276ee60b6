"""The terminal: colour, questions, keys, what is waited for, exit codes, and how commands end."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from server.cli import command_parser
from server.console import UsageError
from server.console.call_command import RawArguments
from server.console.terminal import ColourChoice, Spinner, has_colour
from tests.forked_commands import run_forked
from tests.harness import LAUNCHER, command_line, stdio_upstream, write_config
from tests.terminals import at_terminal
from tests.variants import one_in

DENIES = [(b"[y/N]", b"n")]


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    if "input" not in more:
        return run_forked(arguments, **more)
    return subprocess.run(command_line(*arguments), capture_output=True, text=True, timeout=100, check=False, **more)


def command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Stream(io.StringIO):
    """A text stream that says whether it is a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.requirement("cli.colour")
@pytest.mark.parametrize(
    ("choice", "environ", "is_terminal", "expected"),
    [
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {}, True, True),
        ("auto", {}, False, False),
    ],
)
def test_the_option_wins_over_the_environment_and_that_over_the_terminal(
    choice: ColourChoice, environ: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    assert has_colour(Stream(is_terminal=is_terminal), choice, environ) is expected


@pytest.mark.requirement("cli.colour")
def test_serving_imports_nothing_for_terminals(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-P", str(LAUNCHER), "--workspace", str(tmp_path)]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "server.app" in imported
    assert not [name for name in imported if name.split(".")[0] in ("rich", "pygments")]


@pytest.mark.requirement("cli.output")
def test_what_is_shown_is_not_cut_where_the_terminal_is_narrow() -> None:
    program = "from server.console.terminal import *; show('[b]' * 100); show_table('ab', [['c' * 90, 'd']])"
    code, seen = at_terminal([sys.executable, "-c", program], environ={"PYTHONPATH": str(LAUNCHER.parent)})
    assert code == 0
    assert seen.startswith("[b]" * 100 + "\r\n")
    assert seen.endswith("c" * 90 + "  d\r\n")


@pytest.mark.requirement("cli.question")
def test_a_question_shows_the_diff_in_colour_with_the_reason_and_is_answered_by_one_key(root: Path) -> None:
    (root / "a.txt").write_text("old [red]\n")
    call = ("call", "edit", "file_path=a.txt", "old_string=old", "new_string=fresh", "--workspace", str(root))
    code, seen = at_terminal(command_line(*call), answers=[(b"[y/N]", b"xy")])
    assert code == 0, seen
    before, _, after = seen.partition("[y/N]")
    assert "\x1b[32m+fresh [red]" in before
    assert "\x1b[31m-old [red]" in before
    assert "Asked because: edit needs consent" in before
    assert "y  Allow once" in before
    assert "in this session" not in before
    assert "Allow once" in after
    assert (root / "a.txt").read_text() == "fresh [red]\n"


@pytest.mark.requirement("cli.question")
def test_what_was_typed_before_a_question_answers_nothing_and_ctrl_d_leaves_it(root: Path) -> None:
    path = root / "new.txt"
    call = ("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    code, seen = at_terminal(command_line(*call), answers=[(b"", b"y"), (b"[y/N]", b"\x04")])
    assert code == 77, seen
    assert not path.exists()


@pytest.mark.requirement("cli.question")
def test_always_is_offered_where_it_can_be_saved_and_nowhere_for_the_session_alone(root: Path, tmp_path: Path) -> None:
    settings = tmp_path / "home/.config/coretools-mcp/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    call = ("call", "write_file", "file_path=new.txt", "content=x", "--workspace", str(root))
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}
    code, seen = at_terminal(command_line(*call), answers=[(b"[y/a/N]", b"a")], environ=environ)
    assert code == 0, seen
    assert "a  Always allow edits in" in seen
    assert "in this session" not in seen
    assert json.loads(settings.read_text())["permissions"]["allow"] == [f"Edit(/{root})"]


@pytest.mark.requirement("cli.question")
@pytest.mark.anyio
async def test_the_log_waits_for_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    spinner = Spinner()
    async with spinner.running("waiting"):
        spinner.write("before\n")
        spinner.pause()
        spinner.write("meanwhile\n")
        assert capsys.readouterr().err == "before\n"
        spinner.resume()
        assert capsys.readouterr().err == "meanwhile\n"


@pytest.mark.requirement("cli.question")
def test_a_command_is_shown_as_it_is_with_what_hides_in_it_visible(root: Path) -> None:
    command = "command=echo '[red]x[/red]' \x1b[2J\u202e; touch made"
    code, seen = at_terminal(command_line("call", "run_shell_command", command, "--workspace", str(root)), DENIES)
    assert code == 77, seen
    assert "[red]x[/red]" in seen
    assert "␛[2J<U+202E>; touch made" in seen
    assert not (root / "made").exists()


@pytest.mark.requirement("cli.question")
def test_without_colour_nothing_but_text_is_written(root: Path) -> None:
    call = ("call", "write_file", f"file_path={root}/x", "content=x", "--workspace", str(root), "--color=never")
    code, seen = at_terminal(command_line(*call), answers=[(b"[y/N]", b"n")], environ={"TERM": "dumb"})
    assert code == 77
    assert "\x1b" not in seen
    assert "Deny" in seen.partition("[y/N]")[2]


@pytest.mark.requirement("cli.call.yes")
def test_yes_allows_the_call_once_and_its_exit_status_is_ours(root: Path) -> None:
    done = run("call", "run_shell_command", "command=touch made; exit 7", "--yes", "--workspace", str(root))
    assert done.returncode == 7, done.stderr
    assert (root / "made").exists()
    ended = run("call", "run_shell_command", "command=kill -9 $$", "--yes", "--workspace", str(root))
    assert ended.returncode == 137, ended.stdout


@pytest.mark.requirement("cli.call.exit-codes")
@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("call",), 64, "required: tool\n"),
        (("call", "read_file", "no-equals-sign"), 64, "key=value"),
        (("call", "read_file", "--arguments", "{"), 64, "JSON"),
        (("call", "read_file", "--json", "{}"), 64, "use --arguments for an object"),
        (("call", "read_file", "--arguments", "[]"), 64, "object"),
        (("call", "read_file", "--arguments", "@/no/such/file"), 64, "/no/such/file"),
        (("call", "read_file", "a=1", "a=2"), 64, "given twice"),
        (("call", "run_shell_command", "command=x", "is_background=true"), 64, "would end with this call"),
        (("call", "read_file", "file_path=gone", "--config", "/no/such/file.json"), 78, "/no/such/file.json"),
    ],
)
def test_what_is_wrong_with_a_call_is_a_sentence_and_an_exit_code_of_its_own(
    arguments: tuple[str, ...], code: int, expected: str
) -> None:
    done = run(*arguments)
    assert (done.returncode, expected in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("cli.call.exit-codes")
def test_a_failed_tool_and_an_absent_server_have_exit_codes_of_their_own(root: Path, tmp_path: Path) -> None:
    gone = {"mcpServers": {"gone": {"command": "no-such-program-anywhere"}}}
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, gone)))
    assert run("call", "read_file", "file_path=gone.txt", *options).returncode == 65
    assert run("call", "gone__echo", "text=x", *options).returncode == 69


@pytest.mark.requirement("cli.call.types")
def test_values_are_typed_by_the_schema_that_the_server_lists(root: Path, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "exact": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "flag": {"type": "boolean"},
            "items": {"type": "array", "items": {"type": "integer"}},
            "more": {"$ref": "#/$defs/More"},
            "text": {"type": ["string", "integer"]},
        },
        "$defs": {"More": {"type": "object"}},
    }
    peer = tmp_path / "peer.py"
    peer.write_text(TYPED_PEER.replace("SCHEMA", repr(schema)))
    servers = {"typed": {"command": sys.executable, "args": ["-S", str(peer)], "trust": True}}
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, {"mcpServers": servers})))
    pairs = ("count=3", "exact=null", "flag=true", "items=[1, 2]", 'more={"a": 1}', "text=7", "other=8")
    done = run("call", "typed__say", *pairs, *options)
    assert done.returncode == 0, done.stderr
    told: Any = json.loads(done.stdout)
    assert told == {
        "count": 3,
        "exact": None,
        "flag": True,
        "items": [1, 2],
        "more": {"a": 1},
        "text": "7",
        "other": "8",
    }
    wrong = run("call", "typed__say", "count=three", *options)
    assert wrong.returncode == 64
    assert "count must be an integer, not 'three'." in wrong.stderr


@pytest.mark.requirement("cli.call.types")
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "2", 2),
        ({"type": ["boolean", "integer"]}, "1", 1),
        ({"type": ["null", "array"]}, "[null]", [None]),
        ({}, "1", "1"),
        ({"enum": ["1"]}, "1", "1"),
        ({"$ref": "#/$defs/Loop"}, "1", "1"),
    ],
)
def test_a_value_becomes_what_one_property_takes(schema: dict[str, Any], text: str, value: object) -> None:
    whole = {"properties": {"it": schema}, "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}
    assert RawArguments({}, {"it": text}).typed(whole) == {"it": value}


@pytest.mark.requirement("cli.call.types")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number", "NaN"),
        ("number", "[" * 9_999),
        ("integer", "1.5"),
        ("boolean", "maybe"),
        ("object", "[]"),
        ("null", "0"),
    ],
)
def test_a_value_that_a_property_cannot_take_is_refused(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match="it must be"):
        RawArguments({}, {"it": text}).typed({"properties": {"it": {"type": kind}}})


TYPED_PEER = """
import json, sys

SAID = {"capabilities": {"tools": {}}, "serverInfo": {"name": "typed", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        result = {**SAID, "protocolVersion": params["protocolVersion"]}
    elif method == "tools/list":
        result = {"tools": [{"name": "say", "inputSchema": SCHEMA}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    elif "id" in message and method == "ping":
        result = {}
    elif "id" in message:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.requirement("cli.call")
def test_arguments_come_from_standard_input_or_a_file_and_the_result_as_json(root: Path, tmp_path: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    (tmp_path / "given.json").write_text('{"file_path": "a.txt"}')
    options = ("--workspace", str(root), "--output", "json")
    piped = run("call", "read_file", "--arguments", "-", *options, input='{"file_path": "a.txt"}')
    named = run("call", "read_file", "--arguments", f"@{tmp_path}/given.json", *options)
    short = run("call", "read_file", "file_path=a.txt", "--workspace", str(root), "--json")
    for done in (piped, named, short):
        assert done.returncode == 0, done.stderr
        assert "hello" in json.loads(done.stdout)["content"][0]["text"]


@pytest.mark.requirement("cli.interrupt")
def test_ctrl_c_ends_a_call_in_one_line_and_what_it_runs_with_it(root: Path) -> None:
    running = f"command=exec -a {root}/running sleep 100"
    call = ("call", "run_shell_command", running, "--yes", "--workspace", str(root))
    code, seen = at_terminal(command_line(*call), answers=[(b"exec -a", b"\x03")])
    assert code == 130, seen
    assert seen.replace("\r", "\n").rstrip().splitlines()[-1].endswith("coretools-mcp: interrupted")
    assert "Traceback" not in seen
    assert not [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if str(root).encode() in command_of(pid)]


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize("pressed", [b"\r", b"\x1b[A\x1b[Dn", b"xn"])
def test_enter_is_no_and_a_key_that_is_no_answer_is_none(root: Path, pressed: bytes) -> None:
    call = ("call", "write_file", "file_path=new.txt", "content=x", "--workspace", str(root))
    code, seen = at_terminal(command_line(*call), answers=[(b"[y/N]", pressed)])
    assert code == 77, seen
    trusts = root / ".coretools/settings.json"
    trusts.parent.mkdir()
    trusts.write_text("{}")
    code, seen = at_terminal(
        command_line("trust", str(root)), [(b"[y/N]", pressed)], environ={"HOME": str(root.parent)}
    )
    assert (code, "nothing was trusted." in seen) == (1, True), seen


@pytest.mark.requirement("cli.question")
def test_who_chooses_an_answer_is_not_asked_for_one_in_their_own_words(root: Path) -> None:
    options = [{"label": "Red"}, {"label": "Blue"}]
    asked = {"questions": [{"question": "Which?", "header": "Colour", "options": options}]}
    call = command_line("call", "ask_user_question", f"--arguments={json.dumps(asked)}", "--workspace", str(root))
    code, seen = at_terminal(call, [(b"[1-3]: ", b"1\n")])
    assert (code, "Colour: Red" in seen) == (0, True), seen
    assert "Other:" not in seen
    code, seen = at_terminal(call, [(b"[1-3]: ", b"3\n"), (b"Other: ", b"Green\n")])
    assert (code, "Colour: Green" in seen) == (0, True), seen


@pytest.mark.requirement("cli.interrupt")
def test_ctrl_c_at_a_question_is_no_answer(root: Path) -> None:
    path = root / "new.txt"
    call = ("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    code, seen = at_terminal(command_line(*call), answers=[(b"[y/N]", b"\x03")])
    assert code == 130, seen
    assert seen.count("interrupted") == 1
    assert "Traceback" not in seen
    assert not path.exists()


@pytest.mark.requirement("cli.output")
def test_a_full_disk_is_one_line_and_a_closed_pipe_is_silent(root: Path) -> None:
    command = command_line("config", "show", "--workspace", str(root))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        of_help = [command_line(*words) for words in (["install", "--help"], ["--version"])]
        told = [subprocess.run(each, stdout=full, stderr=subprocess.PIPE, text=True, check=False) for each in of_help]
    for each in (done, *told):
        assert (each.returncode, each.stderr) == (1, "coretools-mcp: there is no space left for the output\n")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (128 + 13, ""), errno.EPIPE


@pytest.mark.requirement("cli.spinner")
def test_what_takes_long_is_named_at_a_terminal_and_only_once_in_a_pipe(root: Path, tmp_path: Path) -> None:
    slow = {"mcpServers": {"slow": stdio_upstream(connectTimeout=3_000)}}
    slow["mcpServers"]["slow"]["args"] = ["-c", "import time; time.sleep(100)"]
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, slow)))
    code, seen = at_terminal(command_line("tools", *options))
    assert code == 1, seen
    assert "waiting for slow" in seen
    for command, waits in (("tools", "waiting for slow"), ("lock", "waiting for slow"), ("doctor", "server slow")):
        piped = run(command, *options)
        assert piped.stderr.count(waits) == 1, piped.stderr
        assert "waiting for" not in piped.stdout
        assert "\x1b" not in piped.stdout + piped.stderr


DYING_PEER = """
import sys
print("Traceback (most recent call last):", file=sys.stderr)
print("KeyError: API_KEY\\x1b[2J", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.requirement("cli.failed-servers")
def test_of_a_server_that_ended_its_last_words_and_its_exit_code_are_told(root: Path, tmp_path: Path) -> None:
    peer = tmp_path / "dying.py"
    peer.write_text(DYING_PEER)
    servers = {"dying": {"command": sys.executable, "args": [str(peer)]}}
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, {"mcpServers": servers})))
    listed = run("tools", *options)
    assert listed.returncode == 1
    found = json.loads(run("doctor", "--json", *options).stdout)["findings"]
    finding = next(each for each in found if each["subject"] == "server dying")
    for told in (listed.stderr, finding["text"]):
        assert f"its command is '{sys.executable}'; it ended with exit code 3" in told
    assert "its output: KeyError: API_KEY" in listed.stderr
    assert finding["said"][0] == "Traceback (most recent call last):"
    assert "\x1b" not in listed.stderr
    shown = run("doctor", *options).stdout
    assert "its output: KeyError: API_KEY" in shown


@pytest.mark.requirement("cli.tools")
def test_tools_says_what_is_asked_first_as_explain_does(root: Path, tmp_path: Path) -> None:
    settings = {
        "mcpServers": {"demo": stdio_upstream(), "own": stdio_upstream(trust=True)},
        "permissions": {"deny": ["glob"], "ask": ["read_file"]},
    }
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, settings)))
    lines = [line.split() for line in run("tools", *options).stdout.splitlines()]
    asked = {words[0]: words[1] for words in lines if len(words) > 1}
    expected = {
        "list_directory": "no",
        "read_file": "yes",
        "edit": "yes",
        "run_shell_command": "yes",
        "demo__echo": "yes",
        "own__echo": "no",
    }
    assert {name: asked[name] for name in expected} == expected
    assert "glob" not in asked
    bold = {words[0]: words[1] for words in lines if len(words) > 1 and words[0] == "web_fetch"}
    assert bold == {"web_fetch": "yes"}
    for mode, *expected_answers in (
        ("yolo", "no", "no", "no", "yes"),
        ("plan", "refused", "no", "refused", "yes"),
    ):
        lines = [line.split() for line in run("tools", *options, "--approval-mode", mode).stdout.splitlines()]
        answers = {words[0]: words[1] for words in lines if len(words) > 1}
        names = ("edit", "run_shell_command", "stop_background_job", "ask_user_question")
        assert [answers[name] for name in names] == expected_answers, mode


@pytest.mark.requirement("cli.meant")
@pytest.mark.parametrize(
    ("written", "meant"),
    one_in(2, [("bash2", None), ("sh", "run_shell_command"), ("echo", "demo__echo"), ("dmo__echo", "demo__echo")]),
)
def test_an_unknown_tool_is_answered_with_what_was_perhaps_meant(
    written: str, meant: str | None, root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    done = run("call", written, "--workspace", str(root), "--config", str(config))
    assert done.returncode == 64
    assert (f"Did you mean {meant}" if meant else "Run coretools-mcp tools to list them.") in done.stderr


@pytest.mark.requirement("cli.help")
def test_help_and_version_are_commands_too() -> None:
    assert run("-V").stdout == run("version").stdout == run("--version").stdout
    assert run("help", "call").stdout == run("call", "--help").stdout
    assert "64 wrong usage" in " ".join(run("help", "call").stdout.split())
    assert run("help").stdout == run("--help").stdout


@pytest.mark.requirement("cli.help")
def test_serving_at_a_terminal_says_what_it_waits_for(root: Path) -> None:
    code, seen = at_terminal(command_line("serve", "--workspace", str(root)), answers=[(b"Ctrl-C stops it.", b"\x03")])
    assert "waiting for an MCP client" in seen
    assert seen.rstrip().endswith("coretools-mcp: interrupted")
    assert "Traceback" not in seen
    assert code == 130


@pytest.mark.requirement("cli.interrupt")
@pytest.mark.parametrize(
    "command",
    [("tools",), *(pytest.param(command, marks=pytest.mark.long) for command in (("doctor",), ("trust", ".")))],
)
def test_ctrl_c_ends_every_command_at_once(command: tuple[str, ...], root: Path, tmp_path: Path) -> None:
    (root / ".coretools").mkdir()
    (root / ".coretools/settings.json").write_text('{"limits": {"readLines": 5}}')
    hung = {"mcpServers": {"hung": {"command": "sleep", "args": [f"100.0{os.getpid()}"], "connectTimeout": 60_000}}}
    options = ("--config", str(write_config(tmp_path, hung)), "--workspace", str(root))
    words = ("trust", str(root)) if command[0] == "trust" else (*command, *options)
    asked = {"tools": b"waiting for hung", "doctor": b"checking server hung", "trust": b"[y/N]"}[command[0]]
    # Signals of the terminal reach what was really started there.
    code, seen = at_terminal([sys.executable, "-P", str(LAUNCHER), *words], answers=[(asked, b"\x03")])
    assert code == 130, seen
    assert seen.replace("\r", "\n").rstrip().splitlines()[-1].endswith("coretools-mcp: interrupted")
    assert "Traceback" not in seen
    wanted = f"100.0{os.getpid()}".encode()
    assert not [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if wanted in command_of(pid)]


COMPLETED = """
eval "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); _shtab_coretools_mcp; echo "${COMPREPLY[@]}"
"""


@cache
def completion() -> str:
    return run("completion", "bash").stdout


@pytest.mark.requirement("cli.completion")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["to"], "tools"),
        (["config", ""], "check show import add remove enable disable init"),
        (["config", "add", "docs", "-t", "s"], "stdio sse"),
        (["config", "check", "--co"], "--config --color"),
        (["call", "--output", ""], "text json"),
        (["call", "write"], "write_file"),
        (["install", "c"], "claude-desktop claude-code cursor codex continue"),
        (["config", "import", "z"], "zed"),
        (["completion", "z"], "zsh"),
        (["--transport", "s"], "stdio sse"),
    ],
)
def test_the_script_completes_commands_options_and_their_values(line: list[str], expected: str) -> None:
    words = ["bash", "-c", COMPLETED, "bash", completion(), "coretools-mcp", *line]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == expected


@pytest.mark.requirement("cli.completion")
def test_the_names_of_own_servers_are_those_of_the_settings_at_that_moment(tmp_path: Path) -> None:
    script = run("completion", "bash").stdout
    own = tmp_path / ".config/coretools-mcp/settings.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"mcpServers": {"docs": {"command": "x", "args": ["y"]}, "files": {"command": "x"}}}')
    environ = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line, expected in ((["remove", ""], {"docs", "files"}), (["disable", "d"], {"docs"})):
        words = ["bash", "-c", COMPLETED, "bash", script, "coretools-mcp", "config", *line]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, env=environ, cwd=tmp_path)
        assert {word for word in done.stdout.split() if not word.startswith("-")} == expected


@pytest.mark.requirement("cli.completion")
def test_the_scripts_know_every_command_and_option_there_is() -> None:
    scripts = {shell: run("completion", shell).stdout for shell in ("bash", "zsh", "fish")}
    # zsh looks up the names of servers when it completes them, and not when it loads the script.
    assert not re.search(r"(?<!\\)\$\(coretools-mcp", scripts["zsh"])
    _, commands = command_parser()
    for words, parser in commands.items():
        for option in re.findall(r"--[a-z-]+", parser.format_usage()):
            assert option in scripts["bash"], (words, option)
            assert option in scripts["zsh"], (words, option)
            assert f"-l {option[2:]}" in scripts["fish"], (words, option)
        assert words.split()[-1] in scripts["zsh"]
        assert words.split()[-1] in scripts["fish"]


@pytest.mark.requirement("cli.config.check.names")
def test_config_check_tells_all_that_is_wrong_with_rules_and_keys_at_once(root: Path, tmp_path: Path) -> None:
    settings = {
        "permissions": {"allow": ["Raed", "Read(src/**", "mcp__tme__x", "cat", "Edit", "time__*", "Bash(git log *)"]},
        "limts": {},
        "mcpServers": {"time": {"command": "true"}},
    }
    done = run("config", "check", "--config", str(write_config(tmp_path, settings)), "--workspace", str(root))
    for expected in (
        "limts is not a known key and is ignored. Did you mean limits?",
        "the rule 'Read(src/**' is ignored, because its parenthesis is not closed",
        "there is no tool 'Raed'. Did you mean Read?",
        "there is no server 'tme', but 'mcp__tme__x' names it. Did you mean time__x?",
        "there is no tool 'cat'. Did you mean read_file?",
    ):
        assert expected in done.stdout
    assert done.stdout.count("warning: ") == 5
    assert done.returncode == 0


@pytest.mark.requirement("cli.config.check.names")
def test_config_check_tells_rules_servers_and_wrong_values_together(root: Path, tmp_path: Path) -> None:
    settings = {
        "limits": {"readLines": "many"},
        "permissions": {"allow": ["Raed", "Read(src/**", "time__x", "torn__x", "tme__x"]},
        "mcpServers": {"time": {"command": "true"}, "torn": {"command": 5}, "none": {}},
    }
    done = run("config", "check", "--config", str(write_config(tmp_path, settings)), "--workspace", str(root))
    assert done.returncode == 1
    for expected in (
        "limits.readLines is",
        "mcpServers.torn.command is",
        "mcpServers.none",
        "its parenthesis is not closed",
        "there is no tool 'Raed'. Did you mean Read?",
        "there is no server 'tme', but 'tme__x' names it. Did you mean time__x?",
    ):
        assert expected in done.stdout
    assert (done.stdout.count("problem: "), done.stdout.count("warning: ")) == (3, 3)


@pytest.mark.requirement("cli.config.check.names")
def test_config_check_tells_the_problems_of_all_files_at_once(root: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"a": ')
    bad = write_config(tmp_path, {"limits": {"readLines": "many"}, "log": {"level": "loud"}, "limts": {}})
    files = ("--config", f"{tmp_path}/torn.json", "--config", str(bad), "--config", f"{tmp_path}/gone.json")
    done = run("config", "check", *files, "--workspace", str(root))
    assert done.returncode == 1
    for expected in ("torn.json: this file is not valid JSON", "limits.readLines is", "log.level is", "gone.json"):
        assert expected in done.stdout
    assert "warning: " in done.stdout
    assert "Did you mean limits?" in done.stdout


@pytest.mark.requirement("cli.config.check.names")
@pytest.mark.parametrize("call", ["Bash(ls", "Bash(ls -la"])
def test_a_call_without_its_closing_parenthesis_is_suggested_with_it(call: str, root: Path) -> None:
    done = run("permissions", "explain", call, "--workspace", str(root))
    assert f"'{call}' has no closing parenthesis. Did you mean '{call})'?" in done.stderr
    assert done.returncode == 2


@pytest.mark.requirement("cli.config.check.names")
@pytest.mark.parametrize("command", ["serve", "tools", "doctor"])
def test_a_tool_that_cannot_be_included_is_an_error(command: str, root: Path) -> None:
    done = run(command, "--include-tools", "glob,read_fil", "--workspace", str(root))
    assert "there is no tool 'read_fil'. Did you mean read_file?" in done.stdout + done.stderr
    assert done.returncode in (1, 2)


@pytest.mark.requirement("cli.meant")
@pytest.mark.parametrize("flag", [("--exclude-tools", "glob"), ("--include-tools", "edit")])
def test_a_refusal_names_the_option_where_the_settings_do_not_count(flag: tuple[str, str], root: Path) -> None:
    done = run("call", "glob", "pattern=*", *flag, "--workspace", str(root))
    assert done.returncode == 77
    assert f"The operator can change {flag[0]}" in done.stdout
