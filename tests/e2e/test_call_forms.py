"""What `call` asks for the forms and addresses of servers, and what it starts and prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import forked
from tests.forked_commands import run_forked
from tests.harness import LAUNCHER, PEERS, command_line, stdio_upstream, write_config
from tests.terminals import Answers, at_terminal

URL = {"mode": "url", "message": "Look", "url": "https://example.org/", "elicitationId": "e1"}


def asking_call(params: dict[str, Any], root: Path, folder: Path, *options: str) -> list[str]:
    """Return a call that makes its server ask this question, and prints the answer that the server got."""
    entry = {"command": sys.executable, "args": forked([str(PEERS / "asking_upstream.py"), "handshake"]), "trust": True}
    config = str(write_config(folder, {"mcpServers": {"up": entry}}))
    arguments = json.dumps({"questions": [{"method": "elicitation/create", "params": params}]})
    return ["call", "up__ask", f"--arguments={arguments}", "--workspace", str(root), "--config", config, *options]


def filled_in(field: dict[str, Any], answers: Answers, root: Path, folder: Path) -> str:
    schema = {"type": "object", "properties": {"it": {"title": "It", **field}}, "required": ["it"]}
    code, output = at_terminal(
        command_line(*asking_call({"message": "How?", "requestedSchema": schema}, root, folder)), answers
    )
    assert code == 0, output
    return output


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize(("key", "action"), [(b"n", "decline"), (b"\r", "decline"), (b"y", "accept")])
def test_a_servers_address_is_accepted_only_if_the_person_says_so(
    key: bytes, action: str, root: Path, tmp_path: Path
) -> None:
    call = command_line(*asking_call(URL, root, tmp_path, "--yes"))
    code, output = at_terminal(call, [(b"[y/N] ", key)])
    assert code == 0, output
    assert "https://example.org/" in output
    assert f'"action": "{action}"' in output


@pytest.mark.requirement("cli.question")
def test_a_servers_address_is_declined_with_a_word_if_nobody_can_answer(root: Path, tmp_path: Path) -> None:
    result = run_forked(asking_call(URL, root, tmp_path, "--yes"))
    assert '"action": "decline"' in result.stdout, result
    assert "Nobody can answer here (standard input is not a terminal), so this is declined." in result.stderr


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize(
    ("field", "answers", "sent"),
    [
        (
            {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
            [(b"(a whole number, at least 1 and at most 9) [2]: ", b"12\n"), (b"at most 9.", b""), (b"[2]: ", b"\n")],
            "2",
        ),
        (
            {"type": "string", "format": "email"},
            [(b"(an email address): ", b"\n"), (b"This needs an answer.", b""), (b"): ", b"a\n"), (b"): ", b"a@b\n")],
            '"a@b"',
        ),
        ({"type": "string", "format": "date"}, [(b"): ", b"1.2.2026\n"), (b"): ", b"2026-02-01\n")], '"2026-02-01"'),
        ({"type": "string", "format": "uri"}, [(b"): ", b"here\n"), (b"): ", b"x:y\n")], '"x:y"'),
        ({"enum": ["a", "b"], "default": "b"}, [(b"[1-2; default 2]: ", b"c\n"), (b"]: ", b"\n")], '"b"'),
        ({"enum": ["3", "2", "1"], "default": "3"}, [(b"[1-3; default 1]: ", b"\n")], '"3"'),
        ({"minLength": 3}, [(b"It: ", b"ab\n"), (b"at least 3 characters.", b""), (b"It: ", b"abc\n")], '"abc"'),
        ({"type": "boolean", "default": True}, [(b"It [Y/n] ", b"\r")], "true"),
    ],
    ids=["number", "email", "date", "uri", "choice", "numbers as choices", "length", "boolean"],
)  # fmt: skip
def test_a_form_shows_defaults_and_limits_and_asks_again_for_an_invalid_answer(
    field: dict[str, Any], answers: Answers, sent: str, root: Path, tmp_path: Path
) -> None:
    assert f'"it": {sent}' in filled_in(field, answers, root, tmp_path)


@pytest.mark.requirement("cli.question")
@pytest.mark.parametrize(("key", "action"), [(b"n", "decline"), (b"\r", "decline"), (b"y", "accept")])
def test_a_form_without_fields_is_accepted_only_if_the_person_says_so(
    key: bytes, action: str, root: Path, tmp_path: Path
) -> None:
    params: dict[str, Any] = {"message": "Delete it?", "requestedSchema": {"type": "object", "properties": {}}}
    code, output = at_terminal(command_line(*asking_call(params, root, tmp_path)), [(b"[y/N] ", key)])
    assert code == 0, output
    assert f'"action": "{action}"' in output


@pytest.mark.requirement("cli.question")
def test_a_servers_form_with_another_decision_is_not_answered_as_consent(root: Path, tmp_path: Path) -> None:
    fields = {"decision": {"enum": ["once", "monthly"]}}
    params = {"message": "Pay?", "requestedSchema": {"type": "object", "properties": fields, "required": ["decision"]}}
    code, output = at_terminal(command_line(*asking_call(params, root, tmp_path, "--yes")), [(b"[1-2]: ", b"2\n")])
    assert code == 0, output
    assert '"decision": "monthly"' in output


@pytest.mark.requirement("cli.question")
def test_a_call_asks_before_it_acts_although_questions_have_no_fields_in_simple_style(
    root: Path, tmp_path: Path
) -> None:
    config = str(write_config(tmp_path, {"confirmation": {"style": "simple"}}))
    arguments = ["write_file", f"file_path={root / 'new.txt'}", "content=x"]
    call = command_line("call", *arguments, "--workspace", str(root), "--config", config)
    code, output = at_terminal(call, [(b"[y/N] ", b"n")])
    assert code == 77, output
    assert not (root / "new.txt").exists()


@pytest.mark.requirement("cli.call")
def test_a_call_of_a_built_in_tool_starts_no_server(root: Path, tmp_path: Path) -> None:
    program = f"open({str(root / 'started')!r}, 'w')"
    entry = {"command": sys.executable, "args": ["-c", program]}
    config = str(write_config(tmp_path, {"mcpServers": {"up": entry}}))
    command = "for i in $(seq 30); do test -e started && echo started && break; sleep 0.1; done; echo done"
    call = ["call", "run_shell_command", f"command={command}", "--yes", "--workspace", str(root), "--config", config]
    result = run_forked(call)
    assert (result.returncode, result.stderr) == (0, "")
    assert "done" in result.stdout
    assert not (root / "started").exists()


@pytest.mark.requirement("cli.call")
def test_what_a_server_writes_to_standard_error_appears_only_at_log_level_info(root: Path, tmp_path: Path) -> None:
    peer = str(PEERS / "plain_upstream.py")
    program = f"import runpy, sys; print('Starting', file=sys.stderr); runpy.run_path({peer!r}, run_name='__main__')"
    for level in ("warning", "info"):
        entry = stdio_upstream() | {"args": ["-S", "-c", program]}
        config = str(write_config(tmp_path, {"mcpServers": {"demo": entry}, "log": {"level": level}}))
        call = ["call", "demo__echo", "text=x", "--yes", "--workspace", str(root), "--config", config]
        result = run_forked(call)
        assert result.returncode == 0, result
        assert ("INFO upstream demo: Starting" in result.stderr) is (level == "info"), result.stderr


@pytest.mark.requirement("cli.output")
def test_a_pipe_that_closes_in_the_middle_of_the_output_ends_a_call_with_141(root: Path) -> None:
    (root / "long.txt").write_text("a line\n" * 100_000)
    arguments = ("file_path=long.txt", "limit=100000", "--workspace", str(root))
    settings = root / "settings.json"
    settings.write_text('{"limits": {"readLines": 1000000, "readChars": 10000000}}')
    command = [sys.executable, "-P", str(LAUNCHER), "call", "read_file", *arguments, "--config", str(settings)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(root), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.wait(60) == 141, "the exit code is not that of SIGPIPE"
