"""Commands at a terminal: colour, questions, keys, progress, exit codes, and interrupts."""

from __future__ import annotations

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
from server.console.call_command import RawArguments
from server.console.terminal import ColourChoice, has_colour
from tests.fork_server import forked
from tests.forked_commands import run_forked
from tests.harness import LAUNCHER, PEERS, command_line, stdio_upstream, write_config
from tests.terminals import at_terminal
from tests.variants import one_in

DENIES = [(b"[y/N]", b"n")]
PROJECT_PATH = {"PYTHONPATH": str(LAUNCHER.parent)}  # with this, a program can import this project


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    if "input" not in options:
        return run_forked(arguments, **options)
    return subprocess.run(command_line(*arguments), capture_output=True, text=True, timeout=100, check=False, **options)


def command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Stream(io.StringIO):
    """A text stream that claims to be a terminal, or not."""

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
def test_the_option_takes_precedence_over_the_environment_and_the_environment_over_the_terminal(
    choice: ColourChoice, environ: dict[str, str], is_terminal: bool, expected: bool
) -> None:
    assert has_colour(Stream(is_terminal=is_terminal), choice, environ) is expected


@pytest.mark.requirement("cli.colour")
def test_the_server_imports_no_terminal_libraries(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-P", str(LAUNCHER), "--workspace", str(tmp_path)]
    result = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=True)
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "server.app" in modules
    assert not [name for name in modules if name.split(".")[0] in ("rich", "pygments")]


@pytest.mark.requirement("cli.output")
def test_output_is_not_cut_at_the_width_of_a_narrow_terminal() -> None:
    program = "from server.console.terminal import *; show('[b]' * 100); show_table('ab', [['c' * 90, 'd']])"
    code, output = at_terminal([sys.executable, "-c", program], environ=PROJECT_PATH)
    assert code == 0
    assert output.startswith("[b]" * 100 + "\r\n")
    assert output.endswith("c" * 90 + "  d\r\n")


@pytest.mark.requirement("cli.question")
def test_a_question_shows_a_coloured_diff_and_the_reason_and_is_answered_with_one_key(root: Path) -> None:
    (root / "a.txt").write_text("old [red]\n")
    call = ("call", "edit", "file_path=a.txt", "old_string=old", "new_string=fresh", "--workspace", str(root))
    code, output = at_terminal(command_line(*call), answers=[(b"[y/N]", b"xy")])
    assert code == 0, output
    before, _, after = output.partition("[y/N]")
    assert "\x1b[32m+fresh [red]" in before
    assert "\x1b[31m-old [red]" in before
    assert "Asked because: edit needs consent" in before
    assert "y  Allow once" in before
    assert "in this session" not in before
    assert "Allow once" in after
    assert (root / "a.txt").read_text() == "fresh [red]\n"


@pytest.mark.requirement("cli.question")
def test_keys_typed_before_a_question_do_not_answer_it_and_ctrl_d_declines(root: Path) -> None:
    path = root / "new.txt"
    call = ("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    code, output = at_terminal(command_line(*call), answers=[(b"", b"y"), (b"[y/N]", b"\x04")])
    assert code == 77, output
    assert not path.exists()


@pytest.mark.requirement("cli.question")
def test_always_is_offered_if_it_can_be_saved_and_never_for_the_session_only(root: Path, tmp_path: Path) -> None:
    settings = tmp_path / "home/.config/coretools-mcp/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{}")
    call = ("call", "write_file", "file_path=new.txt", "content=x", "--workspace", str(root))
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}
    code, output = at_terminal(command_line(*call), answers=[(b"[y/a/N]", b"a")], environ=environ)
    assert code == 0, output
    assert "a  Always allow edits in" in output
    assert "in this session" not in output
    assert json.loads(settings.read_text())["permissions"]["allow"] == [f"Edit(/{root})"]


ASKING_PROGRAM = """
import logging
import anyio
from server.administration.log import flush_log, start_log
from server.console.call_command import TerminalOutbound
from server.console.terminal import Spinner, confirm

async def ask():
    form = {"message": "Really?", "requestedSchema": {"properties": {"sure": {"type": "boolean", "title": "Sure"}}}}
    async with anyio.create_task_group() as group:
        group.start_soon(QUESTION)
        await anyio.sleep(0)
        await anyio.sleep(0)
        logging.warning("meanwhile")
        flush_log()  # before the answer is read

start_log("warning")
anyio.run(ask)
flush_log()
"""


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize(
    "question",
    ['TerminalOutbound(Spinner(), is_sure=False).request, "elicitation/create", form', 'confirm, "Sure?", "failed"'],
    ids=["of a server", "of a command"],
)
def test_log_records_appear_only_after_the_answer_to_a_question(question: str) -> None:
    program = ASKING_PROGRAM.replace("QUESTION", question)
    code, output = at_terminal([sys.executable, "-c", program], [(b"[y/N]", b"y")], environ=PROJECT_PATH)
    assert code == 0, output
    assert output.index("meanwhile") > output.index("[y/N] y"), output


HOLDING_PROGRAM = """
import io, logging, sys, threading
from server.administration import log

class SlowStream(io.StringIO):
    started, may_end = threading.Event(), threading.Event()

    def write(self, text):
        self.started.set()
        self.may_end.wait()
        return super().write(text)

terminal, sys.stderr, log.FLUSH_SECONDS = sys.stderr, SlowStream(), 60
log.start_log("warning")
logging.warning("a record")
SlowStream.started.wait()
threading.Timer(0.05, SlowStream.may_end.set).start()
with log.held_log():
    terminal.write(sys.stderr.getvalue())
    terminal.write("a question")
"""


@pytest.mark.requirement("cli.question")
def test_a_record_that_is_being_written_appears_before_the_question() -> None:
    code, output = at_terminal([sys.executable, "-c", HOLDING_PROGRAM], environ=PROJECT_PATH)
    assert code == 0, output
    assert output.index("a record") < output.index("a question"), output


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize(
    "field",
    ['"str"', '{"type": "string", "enum": ["a"], "enumNames": []}', '{"type": "money", "default": 1}'],
    ids=["no schema", "names missing", "unknown type"],
)
def test_a_malformed_form_is_answered_with_an_error_and_the_call_goes_on(
    field: str, root: Path, tmp_path: Path
) -> None:
    entry = {"command": sys.executable, "args": forked([str(PEERS / "asking_upstream.py"), "handshake"]), "trust": True}
    config = str(write_config(tmp_path, {"mcpServers": {"up": entry}}))
    form = f'{{"message": "Which?", "requestedSchema": {{"properties": {{"it": {field}}}}}}}'
    arguments = f'--arguments={{"questions": [{{"method": "elicitation/create", "params": {form}}}]}}'
    code, output = at_terminal(command_line("call", "up__ask", arguments, "--workspace", str(root), "--config", config))
    assert "Which?" in output
    assert code != 69, output
    assert "connection" not in output, output


@pytest.mark.requirement("cli.spinner")
def test_a_call_without_pairs_waits_only_once_for_its_server(root: Path, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "trust": True}
    config = str(write_config(tmp_path, {"mcpServers": {"silent": entry}}))
    call = command_line("call", "silent__do", "--arguments={}", "--workspace", str(root), "--config", config)
    code, output = at_terminal(call, [(b"waiting for silent", b"\x03")])
    assert code == 130, output
    assert "waiting for silent__do" in output, "it waited for the schema first"


@pytest.mark.requirement("cli.call")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_number_in_a_form_is_sent_as_a_number(era: str, root: Path, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": forked([str(PEERS / "asking_upstream.py"), era]), "trust": True}
    config = str(write_config(tmp_path, {"mcpServers": {"up": entry}}))
    fields = {"age": {"type": "integer", "title": "Age"}, "size": {"type": "number", "title": "Size"}}
    params = {"message": "How?", "requestedSchema": {"type": "object", "properties": fields, "required": [*fields]}}
    arguments = json.dumps({"questions": [{"method": "elicitation/create", "params": params}]})
    call = command_line("call", "up__ask", f"--arguments={arguments}", "--workspace", str(root), "--config", config)
    answers = [(b"Age: ", b"old\n"), (b"Age: ", b"7\n"), (b"Size: ", b"inf\n"), (b"Size: ", b"1.5\n")]
    code, output = at_terminal(call, answers)
    assert code == 0, output
    assert '"age": 7,' in output
    assert '"size": 1.5' in output


BLOCKED_PROGRAM = """
import signal, socket
import anyio
from server.run_server import until_signal

async def block():
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    await anyio.sleep(0)
    print("blocked", flush=True)
    while True:
        reader.recv(1)
        print("still blocked", flush=True)

try:
    anyio.run(until_signal, block)
except* KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.requirement("cli.interrupt")
def test_a_second_ctrl_c_ends_a_command_whose_event_loop_is_blocked() -> None:
    presses = [(b"blocked", b"\x03"), (b"still blocked", b"\x03")]
    code, output = at_terminal([sys.executable, "-c", BLOCKED_PROGRAM], presses, environ=PROJECT_PATH)
    assert code == 0, output
    assert output.endswith("interrupted\r\n"), output


@pytest.mark.requirement("cli.question")
def test_a_command_is_shown_literally_with_its_invisible_characters_made_visible(root: Path) -> None:
    command = "command=echo '[red]x[/red]' \x1b[2J\u202e; touch made"
    code, output = at_terminal(command_line("call", "run_shell_command", command, "--workspace", str(root)), DENIES)
    assert code == 77, output
    assert "[red]x[/red]" in output
    assert "␛[2J<U+202E>; touch made" in output
    assert not (root / "made").exists()


@pytest.mark.requirement("cli.question")
def test_without_colour_nothing_but_text_is_written(root: Path) -> None:
    call = ("call", "write_file", f"file_path={root}/x", "content=x", "--workspace", str(root), "--color=never")
    code, output = at_terminal(command_line(*call), answers=[(b"[y/N]", b"n")], environ={"TERM": "dumb"})
    assert code == 77
    assert "\x1b" not in output
    assert "Deny" in output.partition("[y/N]")[2]


@pytest.mark.requirement("cli.call.yes")
def test_yes_allows_the_call_once_and_the_exit_code_is_that_of_the_command(root: Path) -> None:
    result = run("call", "run_shell_command", "command=touch made; exit 7", "--yes", "--workspace", str(root))
    assert result.returncode == 7, result.stderr
    assert (root / "made").exists()
    killed_command = run("call", "run_shell_command", "command=kill -9 $$", "--yes", "--workspace", str(root))
    assert killed_command.returncode == 137, killed_command.stdout


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
def test_a_wrong_call_prints_one_sentence_and_has_its_own_exit_code(
    arguments: tuple[str, ...], code: int, expected: str
) -> None:
    result = run(*arguments)
    assert (result.returncode, expected in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.requirement("cli.call.exit-codes")
@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        (
            "ask_user_question",
            {"questions": [{"question": "Which?", "header": "Name", "type": "text"}]},
            "the question stays unanswered.",
        ),
        ("write_file", {"file_path": "new.txt", "content": "x"}, "Use --yes to allow what the call asks for."),
    ],
)
def test_a_call_about_which_nobody_could_be_asked_is_refused_and_its_json_says_so(
    tool: str, arguments: dict[str, Any], expected: str, root: Path
) -> None:
    call = ("call", "--json", tool, f"--arguments={json.dumps(arguments)}", "--workspace", str(root))
    result = run(*call)
    assert result.returncode == 77, result.stdout
    answer = json.loads(result.stdout)
    (block,) = answer["content"]
    assert (answer["isError"], block["text"].endswith(expected)) == (True, True), answer
    assert "structuredContent" not in answer
    assert block["text"] in result.stderr
    assert not (root / "new.txt").exists()


@pytest.mark.requirement("cli.call.exit-codes")
def test_a_failed_tool_and_an_absent_server_have_their_own_exit_codes(root: Path, tmp_path: Path) -> None:
    settings = {"mcpServers": {"gone": {"command": "no-such-program-anywhere"}}}
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, settings)))
    assert run("call", "read_file", "file_path=gone.txt", *options).returncode == 65
    assert run("call", "gone__echo", "text=x", *options).returncode == 69


@pytest.mark.requirement("cli.call.types")
def test_arguments_are_read_according_to_the_schema_that_the_server_lists(root: Path, tmp_path: Path) -> None:
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
    result = run("call", "typed__say", *pairs, *options)
    assert result.returncode == 0, result.stderr
    arguments: Any = json.loads(result.stdout)
    assert arguments == {
        "count": 3,
        "exact": None,
        "flag": True,
        "items": [1, 2],
        "more": {"a": 1},
        "text": "7",
        "other": "8",
    }


@pytest.mark.requirement("cli.call.types")
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "integer"}, "three", "three"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "array"}, '["\\ud800"]', '["\\ud800"]'),
        ({"type": "array"}, "[" * 9_999, "[" * 9_999),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "1", "1"),
        ({"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}, "[null]", [None]),
        ({"$ref": "#/$defs/Word"}, "1", "1"),
        ({"anyOf": [{"$ref": "#/$defs/Word"}, {"type": "null"}]}, "1", "1"),
        ({"$ref": "#/$defs/Loop"}, "1", 1),
        ({}, "1", "1"),
        ({"enum": ["1"]}, "1", "1"),
    ],
)
def test_a_value_is_read_as_json_only_if_its_property_cannot_be_a_string(
    schema: dict[str, Any], text: str, value: object
) -> None:
    definitions = {"Word": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}
    typed = RawArguments({}, {"it": text}).typed({"properties": {"it": schema}, "$defs": definitions})
    assert typed == {"it": value}


@pytest.mark.requirement("cli.call")
@pytest.mark.parametrize("value", ["NaN", '"\\ud800"'])
def test_arguments_that_no_message_can_contain_are_wrong_usage(value: str, root: Path) -> None:
    result = run("call", "read_file", f'--arguments={{"file_path": {value}}}', "--workspace", str(root))
    assert (result.returncode, result.stdout) == (64, "")
    assert "--arguments is not valid JSON" in result.stderr


@pytest.mark.requirement("cli.call")
def test_a_result_as_json_is_valid_whatever_a_server_sends(root: Path, tmp_path: Path) -> None:
    peer = tmp_path / "peer.py"
    peer.write_text(TYPED_PEER.replace("SCHEMA", "{}").replace('json.dumps(params["arguments"])}]', '""}], "n": 1e999'))
    servers = {"typed": {"command": sys.executable, "args": ["-S", str(peer)], "trust": True}}
    config = str(write_config(tmp_path, {"mcpServers": servers}))
    result = run("call", "typed__say", "--json", "--workspace", str(root), "--config", config)
    assert result.returncode == 0, result.stderr
    assert '"n": null' in result.stdout, result.stdout


@pytest.mark.requirement("cli.call")
def test_a_result_without_text_is_shown_as_its_structured_content(root: Path, tmp_path: Path) -> None:
    peer = tmp_path / "peer.py"
    result = '{"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}'
    structured_result = '{"content": [], "structuredContent": {"size": 1e999, "name": "a\\u202eb"}}'
    peer.write_text(TYPED_PEER.replace("SCHEMA", "{}").replace(result, structured_result))
    servers = {"typed": {"command": sys.executable, "args": ["-S", str(peer)], "trust": True}}
    config = str(write_config(tmp_path, {"mcpServers": servers}))
    done = run("call", "typed__say", "--workspace", str(root), "--config", config)
    assert (done.returncode, done.stdout) == (0, '{\n  "size": null,\n  "name": "a<U+202E>b"\n}\n'), done.stderr


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
    from_stdin = run("call", "read_file", "--arguments", "-", *options, input='{"file_path": "a.txt"}')
    from_file = run("call", "read_file", "--arguments", f"@{tmp_path}/given.json", *options)
    from_pairs = run("call", "read_file", "file_path=a.txt", "--workspace", str(root), "--json")
    for result in (from_stdin, from_file, from_pairs):
        assert result.returncode == 0, result.stderr
        assert "hello" in json.loads(result.stdout)["content"][0]["text"]


@pytest.mark.requirement("cli.call")
def test_invalid_json_is_reported_with_the_place_that_it_came_from(root: Path) -> None:
    (root / "given.json").write_text("{")
    for place, expected in (
        ("-", "standard input is not valid JSON.\n"),
        (f"@{root}/given.json", f"the file '{root}/given.json', given with --arguments, is not valid JSON.\n"),
        (f"@{root}/gone.json", f"the file '{root}/gone.json', given with --arguments, cannot be read.\n"),
        ("{", "--arguments is not valid JSON. Quote it as one word in the shell.\n"),
    ):
        result = run("call", "read_file", "--arguments", place, "--workspace", str(root), input="{")
        assert (result.returncode, result.stderr) == (64, f"coretools-mcp: {expected}")


@pytest.mark.requirement("cli.interrupt")
def test_ctrl_c_ends_a_call_and_its_processes_with_one_line(root: Path) -> None:
    running = f"command=exec -a {root}/running sleep 100"
    call = ("call", "run_shell_command", running, "--yes", "--workspace", str(root))
    code, output = at_terminal(command_line(*call), answers=[(b"exec -a", b"\x03")])
    assert code == 130, output
    assert output.replace("\r", "\n").rstrip().splitlines()[-1].endswith("coretools-mcp: interrupted")
    assert "Traceback" not in output
    assert not [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if str(root).encode() in command_of(pid)]


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize("keys", [b"\r", b"\x1b[A\x1b[Dn", b"xn"])
def test_enter_means_no_and_other_keys_are_ignored(root: Path, keys: bytes) -> None:
    call = ("call", "write_file", "file_path=new.txt", "content=x", "--workspace", str(root))
    code, output = at_terminal(command_line(*call), answers=[(b"[y/N]", keys)])
    assert code == 77, output
    trusted_file = root / ".coretools/settings.json"
    trusted_file.parent.mkdir()
    trusted_file.write_text("{}")
    code, output = at_terminal(command_line("trust", str(root)), [(b"[y/N]", keys)], environ={"HOME": str(root.parent)})
    assert (code, "nothing was trusted." in output) == (1, True), output


@pytest.mark.requirement("cli.question")
def test_a_chosen_answer_needs_no_answer_in_own_words(root: Path) -> None:
    options = [{"label": "Red"}, {"label": "Blue"}]
    arguments = {"questions": [{"question": "Which?", "header": "Colour", "options": options}]}
    call = command_line("call", "ask_user_question", f"--arguments={json.dumps(arguments)}", "--workspace", str(root))
    code, output = at_terminal(call, [(b"[1-3]: ", b"1\n")])
    assert (code, "Colour: Red" in output) == (0, True), output
    assert "Other:" not in output
    code, output = at_terminal(call, [(b"[1-3]: ", b"3\n"), (b"Other: ", b"Green\n")])
    assert (code, "Colour: Green" in output) == (0, True), output


@pytest.mark.requirement("cli.interrupt")
def test_ctrl_c_at_a_question_ends_the_call_without_an_answer(root: Path) -> None:
    path = root / "new.txt"
    call = ("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    code, output = at_terminal(command_line(*call), answers=[(b"[y/N]", b"\x03")])
    assert code == 130, output
    assert output.count("interrupted") == 1
    assert "Traceback" not in output
    assert not path.exists()


@pytest.mark.requirement("cli.output")
def test_a_full_disk_is_reported_in_one_line_and_a_closed_pipe_silently_ends_the_command(root: Path) -> None:
    command = command_line("config", "show", "--workspace", str(root))
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        help_commands = [command_line(*words) for words in (["install", "--help"], ["--version"])]
        help_results = [
            subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False) for argv in help_commands
        ]
    for full_result in (result, *help_results):
        assert (full_result.returncode, full_result.stderr) == (
            1,
            "coretools-mcp: there is no space left for the output\n",
        )
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (128 + 13, ""), "the exit code is not that of SIGPIPE"


@pytest.mark.requirement("cli.spinner")
def test_progress_is_shown_at_a_terminal_and_announced_once_in_a_pipe(root: Path, tmp_path: Path) -> None:
    settings = {"mcpServers": {"slow": stdio_upstream(connectTimeout=3_000)}}
    settings["mcpServers"]["slow"]["args"] = ["-c", "import time; time.sleep(100)"]
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, settings)))
    code, output = at_terminal(command_line("tools", *options))
    assert code == 1, output
    assert "waiting for slow (at most 3 s to connect: connectTimeout)" in output
    assert "coretools-mcp config disable NAME leaves one out" in output
    for command, waits in (("tools", "waiting for slow"), ("lock", "waiting for slow"), ("doctor", "server slow")):
        plain = run(command, *options)
        assert plain.stderr.count(waits) == 1, plain.stderr
        assert "waiting for" not in plain.stdout
        assert "\x1b" not in plain.stdout + plain.stderr


WAITING_PROGRAM = """
import logging, sys
import anyio
from server.administration.log import flush_log, start_log
from server.console.terminal import Spinner

async def wait():
    stderr = sys.stderr
    with Spinner("waiting for it"):
        while sys.stderr is stderr:  # the spinner replaces it when it appears
            await anyio.sleep(0.01)
        print("a result", flush=True)
        logging.warning("a record" + " word" * 40)
        flush_log()

start_log("warning")
anyio.run(wait)
"""


@pytest.mark.requirement("cli.spinner")
def test_log_records_appear_above_the_spinner_and_standard_output_has_only_the_result(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(WAITING_PROGRAM)
    command = f"{sys.executable} {tmp_path}/wait.py > {tmp_path}/out"
    code, output = at_terminal(["/bin/sh", "-c", command], environ=PROJECT_PATH)
    assert code == 0, output
    assert f"\x1b[2Kcoretools-mcp: WARNING a record{' word' * 40}\r\n" in output, output
    assert output.endswith("\x1b[2K"), "the spinner was not erased"
    assert (tmp_path / "out").read_text() == "a result\n"


DYING_PEER = """
import sys
print("Traceback (most recent call last):", file=sys.stderr)
print("KeyError: API_KEY\\x1b[2J", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.requirement("cli.failed-servers")
def test_the_last_output_and_the_exit_code_of_a_server_that_ended_are_shown(root: Path, tmp_path: Path) -> None:
    peer = tmp_path / "dying.py"
    peer.write_text(DYING_PEER)
    servers = {"dying": {"command": sys.executable, "args": [str(peer)]}}
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, {"mcpServers": servers})))
    listing = run("tools", *options)
    assert listing.returncode == 1
    findings = json.loads(run("doctor", "--json", *options).stdout)["findings"]
    finding = next(item for item in findings if item["subject"] == "server dying")
    for text in (listing.stderr, finding["text"]):
        assert f"its command is '{sys.executable}'; it ended with exit code 3" in text
    assert "its output: KeyError: API_KEY" in listing.stderr
    assert finding["said"][0] == "Traceback (most recent call last):"
    assert "\x1b" not in listing.stderr
    doctor_text = run("doctor", *options).stdout
    assert "its output: KeyError: API_KEY" in doctor_text


@pytest.mark.requirement("cli.tools")
def test_tools_shows_for_each_tool_whether_a_question_comes_first(root: Path, tmp_path: Path) -> None:
    settings = {
        "mcpServers": {"demo": stdio_upstream(), "own": stdio_upstream(trust=True)},
        "permissions": {"deny": ["glob"], "ask": ["read_file"]},
    }
    options = ("--workspace", str(root), "--config", str(write_config(tmp_path, settings)))
    lines = [line.split() for line in run("tools", *options).stdout.splitlines()]
    by_tool = {words[0]: words[1] for words in lines if len(words) > 1}
    expected = {
        "list_directory": "no",
        "read_file": "yes",
        "edit": "yes",
        "run_shell_command": "yes",
        "demo__echo": "yes",
        "own__echo": "no",
    }
    assert {name: by_tool[name] for name in expected} == expected
    assert "glob" not in by_tool
    web_answers = {words[0]: words[1] for words in lines if len(words) > 1 and words[0] == "web_fetch"}
    assert web_answers == {"web_fetch": "yes"}
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
    ("name", "suggestion"),
    one_in(2, [("bash2", None), ("sh", "run_shell_command"), ("echo", "demo__echo"), ("dmo__echo", "demo__echo")]),
)
def test_an_unknown_tool_is_answered_with_a_likely_name(
    name: str, suggestion: str | None, root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    result = run("call", name, "--workspace", str(root), "--config", str(config))
    assert result.returncode == 64
    assert (f"Did you mean {suggestion}" if suggestion else "Run coretools-mcp tools to list them.") in result.stderr


@pytest.mark.requirement("cli.help")
def test_help_and_version_are_commands_too() -> None:
    assert run("-V").stdout == run("version").stdout == run("--version").stdout
    assert run("help", "call").stdout == run("call", "--help").stdout
    assert "64 wrong usage" in " ".join(run("help", "call").stdout.split())
    assert run("help").stdout == run("--help").stdout


@pytest.mark.requirement("cli.help")
def test_serving_at_a_terminal_says_what_it_waits_for(root: Path) -> None:
    code, output = at_terminal(
        command_line("serve", "--workspace", str(root)), answers=[(b"Ctrl-C stops it.", b"\x03")]
    )
    assert "waiting for an MCP client" in output
    assert output.rstrip().endswith("coretools-mcp: interrupted")
    assert "Traceback" not in output
    assert code == 130


@pytest.mark.requirement("cli.interrupt")
@pytest.mark.parametrize(
    "command",
    [("tools",), *(pytest.param(command, marks=pytest.mark.long) for command in (("doctor",), ("trust", ".")))],
)
def test_ctrl_c_ends_every_command_at_once(command: tuple[str, ...], root: Path, tmp_path: Path) -> None:
    (root / ".coretools").mkdir()
    (root / ".coretools/settings.json").write_text('{"limits": {"readLines": 5}}')
    settings = {"mcpServers": {"hung": {"command": "sleep", "args": [f"100.0{os.getpid()}"], "connectTimeout": 60_000}}}
    options = ("--config", str(write_config(tmp_path, settings)), "--workspace", str(root))
    words = ("trust", str(root)) if command[0] == "trust" else (*command, *options)
    prompt = {"tools": b"waiting for hung", "doctor": b"checking server hung", "trust": b"[y/N]"}[command[0]]
    # The terminal sends the signal only to processes that were started there, so the command is not forked.
    code, output = at_terminal([sys.executable, "-P", str(LAUNCHER), *words], answers=[(prompt, b"\x03")])
    assert code == 130, output
    assert output.replace("\r", "\n").rstrip().splitlines()[-1].endswith("coretools-mcp: interrupted")
    assert "Traceback" not in output
    argument = f"100.0{os.getpid()}".encode()
    assert not [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if argument in command_of(pid)]


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
def test_the_completion_script_completes_commands_options_and_their_values(line: list[str], expected: str) -> None:
    words = ["bash", "-c", COMPLETED, "bash", completion(), "coretools-mcp", *line]
    result = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == expected


@pytest.mark.requirement("cli.completion")
def test_completion_offers_the_servers_that_are_in_the_settings_at_that_moment(tmp_path: Path) -> None:
    script = run("completion", "bash").stdout
    own = tmp_path / ".config/coretools-mcp/settings.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"mcpServers": {"docs": {"command": "x", "args": ["y"]}, "files": {"command": "x"}}}')
    environ = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line, expected in ((["remove", ""], {"docs", "files"}), (["disable", "d"], {"docs"})):
        words = ["bash", "-c", COMPLETED, "bash", script, "coretools-mcp", "config", *line]
        result = subprocess.run(
            words, capture_output=True, text=True, timeout=60, check=True, env=environ, cwd=tmp_path
        )
        assert {word for word in result.stdout.split() if not word.startswith("-")} == expected


@pytest.mark.requirement("cli.completion")
def test_the_completion_scripts_know_every_command_and_option() -> None:
    scripts = {shell: run("completion", shell).stdout for shell in ("bash", "zsh", "fish")}
    # zsh must look up server names when it completes them, not when it loads the script.
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
def test_config_check_reports_all_wrong_rules_and_keys_at_once(root: Path, tmp_path: Path) -> None:
    right_rules, wrong_rules = ["Edit", "time__*", "Bash(git log *)"], ["Raed", "Read(src/**", "cat"]
    misspelled_servers = ["mcp__tme__x", "mcp__tme", "mcp_tme_x"]
    settings = {
        "permissions": {"allow": [*right_rules, *wrong_rules, *misspelled_servers]},
        "limts": {},
        "mcpServers": {"time": {"command": "true"}},
    }
    result = run("config", "check", "--config", str(write_config(tmp_path, settings)), "--workspace", str(root))
    for expected in (
        "limts is not a known key and is ignored. Did you mean limits?",
        "the rule 'Read(src/**' is ignored, because its parenthesis is not closed",
        "there is no tool 'Raed'. Did you mean Read?",
        "there is no server 'tme', but 'mcp__tme__x' names it. Did you mean time__x?",
        "there is no server 'tme', but 'mcp__tme' names it. Did you mean time__*?",
        "there is no server 'tme', but 'mcp_tme_x' names it. Did you mean time__x?",
        "there is no tool 'cat'. Did you mean read_file?",
    ):
        assert expected in result.stdout
    assert result.stdout.count("warning: ") == 7
    assert result.returncode == 0


@pytest.mark.requirement("cli.config.check.names")
def test_config_check_reports_an_allow_rule_that_misses_the_server_it_seems_to_name(root: Path, tmp_path: Path) -> None:
    permissions = {"allow": ["mcp_git_hub_x", "mcp__x", "mcp__git_hub__x", "git_hub__x"], "deny": ["mcp_git_hub_x"]}
    settings = {"permissions": permissions, "mcpServers": {"git_hub": {"command": "true"}, "mcp": {"command": "true"}}}
    result = run("config", "check", "--config", str(write_config(tmp_path, settings)), "--workspace", str(root))
    for expected in (
        "there is no server 'git', but 'mcp_git_hub_x' names it. Did you mean git_hub__x?",
        "there is no server 'x', but 'mcp__x' names it. Did you mean mcp__mcp__x?",
    ):
        assert f"permissions.allow: {expected}" in result.stdout
    assert result.stdout.count("warning: ") == 2


@pytest.mark.requirement("cli.config.check.names")
def test_config_check_reports_wrong_rules_servers_and_values_together(root: Path, tmp_path: Path) -> None:
    settings = {
        "limits": {"readLines": "many"},
        "permissions": {"allow": ["Raed", "Read(src/**", "time__x", "torn__x", "tme__x"]},
        "mcpServers": {"time": {"command": "true"}, "torn": {"command": 5}, "none": {}},
    }
    result = run("config", "check", "--config", str(write_config(tmp_path, settings)), "--workspace", str(root))
    assert result.returncode == 1
    for expected in (
        "limits.readLines is",
        "mcpServers.torn.command is",
        "mcpServers.none",
        "its parenthesis is not closed",
        "there is no tool 'Raed'. Did you mean Read?",
        "there is no server 'tme', but 'tme__x' names it. Did you mean time__x?",
    ):
        assert expected in result.stdout
    assert (result.stdout.count("problem: "), result.stdout.count("warning: ")) == (3, 3)


@pytest.mark.requirement("cli.config.check.names")
def test_config_check_reports_the_problems_of_all_files_at_once(root: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"a": ')
    bad = write_config(tmp_path, {"limits": {"readLines": "many"}, "log": {"level": "loud"}, "limts": {}})
    files = ("--config", f"{tmp_path}/torn.json", "--config", str(bad), "--config", f"{tmp_path}/gone.json")
    result = run("config", "check", *files, "--workspace", str(root))
    assert result.returncode == 1
    for expected in ("torn.json: this file is not valid JSON", "limits.readLines is", "log.level is", "gone.json"):
        assert expected in result.stdout
    assert "warning: " in result.stdout
    assert "Did you mean limits?" in result.stdout


@pytest.mark.requirement("cli.config.check.names")
@pytest.mark.parametrize("call", ["Bash(ls", "Bash(ls -la"])
def test_a_call_without_its_closing_parenthesis_is_suggested_with_it(call: str, root: Path) -> None:
    done = run("permissions", "explain", call, "--workspace", str(root))
    assert f"'{call}' has no closing parenthesis. Did you mean '{call})'?" in done.stderr
    assert done.returncode == 2


@pytest.mark.requirement("cli.config.check.names")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("Bash(ls) foo", "'Bash(ls) foo' does not end with the closing parenthesis of the call."),
        ("shop2__search(a b)", "'shop2__search(...)' is not a known form."),
        ("read_file file_path=x", "Give the arguments as separate words: read_file key=value."),
    ],
)
def test_no_shell_command_or_parenthesis_is_suggested_for_another_wrong_call(
    call: str, expected: str, root: Path
) -> None:
    done = run("permissions", "explain", call, "--workspace", str(root))
    assert expected in done.stderr
    assert done.returncode == 2


@pytest.mark.requirement("cli.config.check.names")
@pytest.mark.parametrize("command", ["serve", "tools", "doctor"])
def test_a_tool_that_cannot_be_included_is_an_error(command: str, root: Path) -> None:
    result = run(command, "--include-tools", "glob,read_fil", "--workspace", str(root))
    assert "there is no tool 'read_fil'. Did you mean read_file?" in result.stdout + result.stderr
    assert result.returncode in (1, 2)


@pytest.mark.requirement("cli.meant")
@pytest.mark.parametrize("flag", [("--exclude-tools", "glob"), ("--include-tools", "edit")])
def test_a_refusal_names_the_command_line_option_that_causes_it(flag: tuple[str, str], root: Path) -> None:
    result = run("call", "glob", "pattern=*", *flag, "--workspace", str(root))
    assert result.returncode == 77
    assert f"The operator can change {flag[0]}" in result.stdout
