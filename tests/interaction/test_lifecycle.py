"""The stdio server from outside: what is on the wire, how the server ends, and what a bad line does."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest

from tests.fork_server import forked
from tests.harness import PEERS, server_arguments, stdio_upstream, write_config
from tests.processes import is_running
from tests.variants import one_in

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Server:
    """A server process with its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr

    def send(self, *messages: Any) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.stdin.write(line + b"\n")
        self.stdin.flush()

    def answer(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, "the server closed its output"
        return json.loads(line)

    def remaining_messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.read().splitlines()]


def by_itself(arguments: list[str]) -> list[str]:
    """Return the arguments unchanged. The server then runs in its own process, not in a fork of another."""
    return arguments


@contextmanager
def running(
    root: Path, config: Path | None = None, *options: str, start: Callable[[list[str]], list[str]] = forked
) -> Generator[Server]:
    command = [sys.executable, *start(server_arguments(root, config, *options))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield Server(process)
    finally:
        process.kill()
        process.wait(timeout=20)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """An initialized server that many tests share. It must survive the invalid messages that they send."""
    with running(tmp_path_factory.mktemp("shared_server").resolve()) as server:
        server.send(INITIALIZE)
        assert server.answer()["id"] == 0
        server.send(INITIALIZED)
        yield server


def call(identity: int | str, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


@pytest.mark.requirement("stdio.drain")
def test_answers_are_sent_though_the_input_has_ended(root: Path) -> None:
    (root / "a.txt").write_text("content of a\n")
    with running(root) as server:
        server.send(INITIALIZE, INITIALIZED, call(1, "read_file", absolute_path=str(root / "a.txt")))
        server.stdin.close()
        answers = {message["id"]: message for message in server.remaining_messages() if "id" in message}
        assert "content of a" in answers[1]["result"]["content"][0]["text"]
        assert server.process.wait(20) == 0


@pytest.mark.requirement("stdio.drain")
def test_a_question_that_is_open_when_the_input_ends_is_a_refusal(root: Path) -> None:
    initialize = json.loads(json.dumps(INITIALIZE))
    initialize["params"]["capabilities"] = {"elicitation": {}}
    with running(root) as server:
        server.send(initialize, INITIALIZED, call(1, "write_file", file_path=str(root / "a.txt"), content="x\n"))
        assert server.answer()["id"] == 0
        question = server.answer()
        assert question["method"] == "elicitation/create"
        server.stdin.close()
        answers = [message for message in server.remaining_messages() if message.get("id") == 1 and "result" in message]
        assert answers[0]["result"]["isError"]
        assert server.process.wait(20) == 0
    assert not (root / "a.txt").exists()


@pytest.mark.requirement("stdio.end")
@pytest.mark.parametrize(
    ("number", "start"), [(signal.SIGTERM, by_itself), (signal.SIGINT, forked)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_ends_the_server_cleanly(
    number: signal.Signals, start: Callable[[list[str]], list[str]], root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}})
    with running(root, config, start=start) as server:
        server.send(INITIALIZE, INITIALIZED, call(1, "demo__echo", text="up"))
        while server.answer().get("id") != 1:
            pass
        server.process.send_signal(number)
        assert server.process.wait(20) == 0
        assert b"Traceback" not in server.stderr.read()


@pytest.mark.requirement("stdio.wire")
def test_only_json_rpc_is_on_standard_output(root: Path, tmp_path: Path) -> None:
    noisy = {"command": sys.executable, "args": ["-c", "print('noise from a child')"]}
    config = write_config(tmp_path, {"mcpServers": {"noisy": noisy}, "log": {"level": "debug"}})
    with running(root, config) as server:
        server.send(INITIALIZE, INITIALIZED, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        server.stdin.close()
        messages = server.remaining_messages()
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert {0, 1} <= {message.get("id") for message in messages}


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize(
    "line",
    [
        b"this is not json",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"jsonrpc":"2.0"}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","method":"notifications/unheard/of"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
        b'{"jsonrpc":"2.0","id":77,"result":{}}',
    ],
    ids=["text", "cut", "batch", "string", "bytes", "empty", "deep", "notification", "odd cancel", "odd answer"],
)
def test_a_line_that_is_no_request_is_dropped_and_the_server_lives_on(line: bytes, shared_server: Server) -> None:
    identity = str(uuid4())
    shared_server.send(line, {"jsonrpc": "2.0", "id": identity, "method": "ping"})
    assert shared_server.answer() == {"jsonrpc": "2.0", "id": identity, "result": {}}


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize(
    "wrong_params",
    [{"_meta": []}, {"_meta": {"progressToken": {}}}, {"_meta": {"progressToken": 1.5}}, {"task": 5}],
    ids=str,
)
def test_a_call_with_parameters_of_wrong_types_is_refused(wrong_params: dict[str, Any], shared_server: Server) -> None:
    identity = str(uuid4())
    params = {"name": "list_directory", "arguments": {"path": "."}, **wrong_params}
    shared_server.send({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params})
    answer = shared_server.answer()
    assert answer["id"] == identity
    assert answer["error"]["code"] == -32602


@pytest.mark.requirement("protocol.wrong_types")
@pytest.mark.parametrize(
    ("arguments", "kind"), [([1], "an array"), ("{}", "a string"), (True, "a boolean"), (1.5, "a number")]
)
def test_arguments_that_are_not_an_object_are_refused_with_an_example_of_one(
    arguments: Any, kind: str, shared_server: Server
) -> None:
    identity = str(uuid4())
    params = {"name": "list_directory", "arguments": arguments}
    shared_server.send({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params})
    error = shared_server.answer()["error"]
    message = f'The arguments of a call must be an object, such as {{"path": "src"}}, but {kind} was sent.'
    assert (error["code"], error["message"]) == (-32602, message)


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7},
        {"jsonrpc": "1.0", "id": 7, "method": "ping"},
        {"id": 7, "method": "ping"},
        {"jsonrpc": "2.0", "id": 7, "method": 5},
    ],
)
def test_json_with_an_id_that_is_no_request_is_answered_with_invalid_request(
    message: dict[str, Any], shared_server: Server
) -> None:
    shared_server.send(message)
    answer = shared_server.answer()
    assert (answer["id"], answer["error"]["code"]) == (7, -32600)


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize("id_first", [True, False])
def test_an_oversized_request_is_refused_by_its_id_and_the_server_lives_on(
    id_first: bool, root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"limits": {"requestBytes": 1_000_000}})
    request = call(9, "write_file", file_path=str(root / "big.txt"), content="x" * 3_000_000)
    if not id_first:
        identity = request.pop("id")
        request["id"] = identity
    with running(root, config) as server:
        server.send(INITIALIZE, INITIALIZED)
        assert server.answer()["id"] == 0
        server.send(request)
        refusal = server.answer()
        assert (refusal["id"], refusal["error"]["code"]) == (9, -32600)
        assert "limits.requestBytes" in refusal["error"]["message"]
        server.send({"jsonrpc": "2.0", "id": 10, "method": "ping"})
        assert server.answer()["id"] == 10
    assert not (root / "big.txt").exists()


@pytest.mark.requirement("stdio.wire")
def test_input_from_a_file_is_served_too(root: Path, tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    lines = [
        json.dumps(message) for message in (INITIALIZE, INITIALIZED, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    ]
    requests.write_text("\n".join(lines) + "\n")
    with requests.open("rb") as stdin:
        command = [sys.executable, *forked(server_arguments(root, None))]
        process = subprocess.run(command, stdin=stdin, capture_output=True, timeout=20, check=True)
    assert json.loads(process.stdout.splitlines()[0])["id"] == 0


@pytest.mark.requirement("stdio.end")
def test_a_client_that_vanishes_ends_the_server(root: Path) -> None:
    with running(root) as server:
        server.send(INITIALIZE, INITIALIZED)
        assert server.answer()["id"] == 0
        server.stdout.close()
        server.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert server.process.wait(20) == 0


@pytest.mark.requirement("stdio.end")
def test_a_slow_call_never_delays_a_ping(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}})
    with running(root, config) as server:
        server.send(INITIALIZE, INITIALIZED, call(1, "demo__wait"))
        server.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        identities: list[Any] = []
        while 2 not in identities:
            identities.append(server.answer().get("id"))
        assert 1 not in identities


@pytest.mark.requirement("upstream.isolated")
def test_a_hung_and_a_crashed_upstream_do_not_delay_the_others(root: Path, tmp_path: Path) -> None:
    servers = {
        "good": stdio_upstream(trust=True),
        "hung": {"command": sys.executable, "args": [str(PEERS / "hung.py")]},
        "crashed": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]},
        "missing": {"command": str(tmp_path / "no-such-program")},
    }
    config = write_config(tmp_path, {"mcpServers": servers, "proxy": {"firstListWait": 5000}})
    with running(root, config) as server:
        server.send(INITIALIZE, INITIALIZED, call(1, "good__echo", text="still here"))
        server.send(call(2, "crashed__anything"), call(3, "missing__anything"))
        answers: dict[Any, Any] = {}
        while not {0, 1, 2, 3} <= answers.keys():
            message = server.answer()
            answers[message.get("id")] = message
    assert answers[1]["result"]["content"][0]["text"] == "still here"
    for identity in (2, 3):
        assert answers[identity]["result"]["isError"]
        assert "upstream_unavailable" in answers[identity]["result"]["content"][0]["text"]


@pytest.mark.requirement("consent.changed")
@pytest.mark.parametrize("answer", [{"result": None}, {"result": "accept"}, {"result": []}, {"error": "no"}])
def test_a_question_answered_with_no_response_at_all_is_a_refusal_at_once(answer: dict[str, Any], root: Path) -> None:
    initialize = json.loads(json.dumps(INITIALIZE))
    initialize["params"]["capabilities"] = {"elicitation": {}}
    with running(root) as server:
        server.send(initialize, INITIALIZED, call(1, "write_file", file_path=str(root / "a.txt"), content="x\n"))
        assert server.answer()["id"] == 0
        question = server.answer()
        assert question["method"] == "elicitation/create"
        server.send({"jsonrpc": "2.0", "id": question["id"], **answer})
        refusal = server.answer()
        assert refusal["id"] == 1
        assert refusal["result"]["isError"]
    assert not (root / "a.txt").exists()


@pytest.mark.requirement("stdio.slow_reader")
def test_a_client_that_does_not_read_is_not_read_from_either(root: Path) -> None:
    with running(root) as server:
        server.send(INITIALIZE, INITIALIZED)
        assert server.answer()["id"] == 0
        os.set_blocking(server.stdin.fileno(), False)
        listing = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}).encode() + b"\n"
        byte_count = 0
        is_paused = False
        for _ in range(2000):
            _, writable, _ = select.select([], [server.stdin], [], 3)
            if not writable:
                is_paused = True
                break
            byte_count += os.write(server.stdin.fileno(), listing * 100)
        assert is_paused, f"{byte_count} bytes were read although nobody took the answers"
        server.process.terminate()
        assert server.process.wait(20) == 0


@pytest.mark.requirement("stdio.large")
def test_a_log_that_nobody_reads_holds_nothing_up(root: Path) -> None:
    with running(root) as server:
        server.send(INITIALIZE)
        assert server.answer()["id"] == 0
        server.send(*[b"x"] * 5000, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert server.answer()["id"] == 1
        server.process.terminate()
        assert server.process.wait(20) == 0


@pytest.mark.requirement("stdio.wire")
def test_a_last_line_without_its_end_is_answered_too(root: Path) -> None:
    with running(root) as server:
        server.send(INITIALIZE)
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 8, "method": "ping"}).encode())
        server.stdin.close()
        assert 8 in [message.get("id") for message in server.remaining_messages()]


STUBBORN = {"command": sys.executable, "args": [str(PEERS / "stubborn.py")]}
"""An upstream that ignores the end of its input and SIGTERM, and prints its process id on standard error."""


def read_until(stream: IO[bytes], pattern: bytes) -> re.Match[bytes]:
    """Read lines until one matches. Fail if the stream ends first."""
    for line in stream:
        match = re.search(pattern, line)
        if match is not None:
            return match
    raise AssertionError(f"the stream ended without {pattern!r}")


@pytest.mark.requirement("stdio.end")
@pytest.mark.parametrize(
    ("transport", "signals", "start"), [("stdio", 2, by_itself), ("http", 1, forked)], ids=["stdio", "http"]
)
def test_no_upstream_is_left_after_a_signal_or_two(
    transport: str, signals: int, start: Callable[[list[str]], list[str]], root: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"mcpServers": {"stubborn": STUBBORN}, "log": {"level": "info"}})
    options = ("--transport", "http", "--port", "0") if transport == "http" else ()
    with running(root, config, *options, start=start) as server:
        if transport == "stdio":
            server.send(INITIALIZE, INITIALIZED)
        pid = int(read_until(server.stderr, rb"stubborn process (\d+)").group(1))
        server.process.send_signal(signal.SIGTERM)
        read_until(server.stderr, rb"stopping on SIGTERM")
        if signals > 1:
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert not is_running(pid)


@pytest.mark.requirement("stdio.end")
@pytest.mark.parametrize("closings", one_in(4, ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"]))
def test_closed_standard_descriptors_end_the_server_without_a_traceback(
    closings: str, root: Path, tmp_path: Path
) -> None:
    arguments = " ".join(shlex.quote(argument) for argument in server_arguments(root, None))
    log = tmp_path / "log"
    redirections = "" if "0<&-" in closings else " </dev/null"
    redirections += "" if "1>&-" in closings else f" 1>{log}"
    redirections += "" if "2>&-" in closings else f" 2>>{log}"
    command = f"{shlex.quote(sys.executable)} {arguments}{redirections} {closings}"
    process = subprocess.run(["/bin/sh", "-c", command], timeout=30, check=False)
    assert process.returncode == 0
    assert "Traceback" not in (log.read_text() if log.exists() else "")
