"""The command as a person uses it: a child process, its output and its exit code."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import LAUNCHER, stdio_upstream, write_config


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-W", "error", str(LAUNCHER), *arguments]
    return subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.requirement("cli.tools")
def test_tools_lists_what_a_client_would_see_upstreams_included(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream()}})
    done = run("tools", "--json", "--workspace", str(root), "--config", str(config))
    names = [tool["name"] for tool in json.loads(done.stdout)]
    assert done.returncode == 0
    assert names[0] == "list_directory"
    assert "demo__echo" in names


@pytest.mark.requirement("cli.tools")
def test_tools_tells_which_upstream_is_missing_and_fails(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"gone": {"command": "no-such-program-anywhere"}}})
    done = run("tools", "--workspace", str(root), "--config", str(config))
    assert done.returncode == 1
    assert "gone" in done.stderr
    assert "not found" in done.stderr
    assert "read_file" in done.stdout


@pytest.mark.requirement("cli.call")
def test_call_shows_a_result(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    done = run("call", "read_file", f"absolute_path={root / 'a.txt'}", "--workspace", str(root))
    assert done.returncode == 0
    assert "hello" in done.stdout


@pytest.mark.requirement("cli.call")
def test_arguments_of_a_call_may_stand_after_options(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    done = run("call", "--workspace", str(root), "read_file", "--approval-mode", "plan", "file_path=a.txt")
    assert done.returncode == 0
    assert "hello" in done.stdout


@pytest.mark.requirement("cli.call")
def test_call_takes_arguments_as_json(root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    done = run("call", "glob", "--json", '{"pattern": "*.txt"}', "--workspace", str(root))
    assert done.returncode == 0
    assert "a.txt" in done.stdout


@pytest.mark.requirement("cli.call")
def test_call_refuses_a_change_where_nobody_can_answer(root: Path) -> None:
    path = root / "new.txt"
    done = run("call", "write_file", f"file_path={path}", "content=x", "--workspace", str(root))
    assert done.returncode == 1
    assert "execution_denied" in done.stdout
    assert not path.exists()


@pytest.mark.requirement("cli.call")
def test_call_asks_on_the_terminal_and_shows_the_diff(root: Path) -> None:
    path = root / "new.txt"
    command = [sys.executable, "-P", str(LAUNCHER), "call", "write_file", f"file_path={path}", "content=fresh"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*command, "--workspace", str(root)])  # noqa: S606 - a terminal needs the fork
    seen = b""
    has_answered = False
    for _ in range(600):
        ready, _, _ = select.select([terminal], [], [], 0.1)
        if not ready:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
        if b"[y/N]" in seen and not has_answered:
            os.write(terminal, b"y\n")
            has_answered = True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0, seen.decode(errors="replace")
    assert path.read_text() == "fresh"
    assert b"\x1b[32m+fresh" in seen


@pytest.mark.requirement("cli.call")
def test_call_of_an_unknown_tool_proposes_the_nearest(root: Path) -> None:
    done = run("call", "read_fil", "--workspace", str(root))
    assert done.returncode == 1
    assert "read_file" in done.stderr


@pytest.mark.requirement("cli.usage")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("call", "read_file", "no-equals-sign"), "key=value"),
        (("call", "read_file", "--json", "{"), "JSON"),
        (("call", "read_file", "--json", "[]"), "object"),
        (("serve", "--workspace", "/no/such/folder/anywhere"), "not an existing folder"),
        (("serve", "--config", "/no/such/file.json"), "/no/such/file.json"),
        (("unheard-of",), "invalid choice"),
    ],
)
def test_wrong_usage_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...], expected: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("cli.usage")
def test_a_bad_settings_file_names_file_key_and_expected_value(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"limits": {"readLines": "many"}})
    done = run("serve", "--config", str(config))
    assert done.returncode == 2
    for expected in (str(config), "limits.readLines", "many"):
        assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requirement("cli.port")
def test_a_port_in_use_is_a_sentence_and_exit_code_3(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("serve", "--transport", "http", "--port", port, "--workspace", str(root))
    assert done.returncode == 3
    assert "in use" in done.stderr
    assert "--port" in done.stderr


@pytest.mark.requirement("cli.loopback")
def test_an_address_that_is_not_loopback_is_refused(root: Path) -> None:
    done = run("serve", "--transport", "http", "--host", "0.0.0.0", "--workspace", str(root))  # noqa: S104
    assert done.returncode == 3
    assert "loopback" in done.stderr


@pytest.mark.requirement("cli.explain")
def test_explain_tells_what_would_be_decided_part_by_part_and_runs_nothing(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"permissions": {"deny": ["Bash(rm)"]}})
    options = ("--workspace", str(root), "--config", str(config))
    done = run("permissions", "explain", "Bash(touch made; git log && rm -rf x)", "--json", *options)
    assert done.returncode == 0
    explained = json.loads(done.stdout)
    assert explained["verdict"] == "deny"
    assert [(part["part"], part["verdict"]) for part in explained["parts"]] == [
        ("touch made", "ask"),
        ("git log", "allow"),
        ("rm -rf x", "deny"),
    ]
    assert not (root / "made").exists()
    shown = run("permissions", "explain", "write_file", "file_path=.git/hooks/x", "content=x", *options)
    assert shown.stdout.startswith("ask: ")
    assert "hooks" in shown.stdout
    wrong = run("permissions", "explain", "Nothing(x)", *options)
    assert wrong.returncode == 2
