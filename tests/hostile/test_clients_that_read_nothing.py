"""A client over stdio that sends requests without reading costs bounded memory. Once it reads, it gets all answers."""

from __future__ import annotations

import json
import os
import queue
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import write_config
from tests.interaction.raw_clients import CEILING
from tests.interaction.test_lifecycle import INITIALIZE, INITIALIZED, Server, by_itself, call, running

Json = dict[str, Any]
RequestMaker = Callable[[int], Json]

MAX_MEMORY = 96 << 20
"""How much memory such a client may cost, in addition to an idle server."""

MAX_REQUESTS = 5_000
"""How many requests are sent at most. Without a bound, each kind of request would cost several times the limit."""

MAX_BYTES = 100 << 20
"""How many bytes are sent at most."""

QUIET_SECONDS = 3.0
"""After so long without progress, the server is assumed to have stopped reading."""

UPSTREAM = """
import json, sys

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    identity, method, params = message["id"], message["method"], message.get("params", {})
    result = {}
    if method == "initialize":
        capabilities = {"tools": {}, "logging": {}}
        own = {"name": "u", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": own}
    elif method == "tools/list":
        result = {"tools": [{"name": "large", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        arguments = params["arguments"]
        for number in range(arguments.get("logs", 0)):
            send({"method": "notifications/message", "params": {"level": "error", "data": "z" * 50_000}})
            token = params.get("_meta", {}).get("progressToken")
            if token is not None:
                send({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        result = {"content": [{"type": "text", "text": "x" * arguments["size"]}]}
    send({"id": identity, "result": result})
"""


def _request(identity: int, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


def _with_progress(message: Json) -> Json:
    message["params"]["_meta"] = {"progressToken": message["id"]}
    return message


REQUESTS: dict[str, RequestMaker] = {
    "pings": lambda number: _request(number, "ping"),
    "lists": lambda number: _request(number, "tools/list"),
    "unknown methods": lambda number: _request(number, "no/such", data="y" * 1000),
    "no requests": lambda number: {"jsonrpc": "2.0", "id": number},
    "large requests": lambda number: call(number, "up__large", size=1, more="x" * 200_000),
    "reads": lambda number: call(number, "read_file", absolute_path="large.txt"),
    "reads of several files": lambda number: call(number, "read_many_files", paths=["large.txt", "other.txt"]),
    "commands": lambda number: call(number, "run_shell_command", command="yes | head -c 3000000"),
    "commands with progress": lambda number: _with_progress(
        call(number, "run_shell_command", command="yes | head -c 3000000")
    ),
    "relayed answers of 1 MB": lambda number: call(number, "up__large", size=1_000_000),
    "relayed answers of 5 MB": lambda number: call(number, "up__large", size=5_000_000),
    "relayed logs": lambda number: _with_progress(call(number, "up__large", size=1, logs=20)),
}
KINDS = tuple(REQUESTS.values())
SHORT = ("all of them",)
"""The kinds that `make test` runs. Each kind needs its own server."""

REQUESTS["all of them"] = lambda number: KINDS[number % len(KINDS)](number)


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _config(root: Path, folder: Path) -> Path:
    for name in ("large.txt", "other.txt"):
        (root / name).write_text(("x" * 99 + "\n") * 10_000)
    upstream = {"command": sys.executable, "args": ["-S", "-c", UPSTREAM], "trust": True}
    return write_config(folder, {"mcpServers": {"up": upstream}, "shell": {"sandbox": "off"}})


def _answer(server: Server, identity: int) -> Json:
    while (message := server.answer()).get("id") != identity or "method" in message:
        pass
    return message


def _begin(server: Server) -> int:
    """Initialize the server, use each feature once, and return its peak memory."""
    server.send(INITIALIZE, INITIALIZED)
    uses = [
        call(-1, "up__large", size=1),
        call(-2, "read_file", absolute_path="large.txt"),
        call(-3, "run_shell_command", command="true"),
    ]
    for use in uses:
        server.send(use)
        assert "result" in _answer(server, use["id"])
    return _peak(server.process.pid)


def _flood(server: Server, request_for: RequestMaker, limit: int) -> tuple[int, bytes]:
    """Send requests until the server reads no more. Return their number, and the unsent remainder of the last one."""
    os.set_blocking(server.stdin.fileno(), False)
    number = size = 0
    while number < limit and size < MAX_BYTES:
        number += 1
        remainder = json.dumps(request_for(number)).encode() + b"\n"
        size += len(remainder)
        while remainder:
            _, writable, _ = select.select([], [server.stdin], [], QUIET_SECONDS)
            if not writable:
                return number, remainder
            remainder = remainder[os.write(server.stdin.fileno(), remainder) :]
    return number, b""


@pytest.mark.requirement("stdio.slow_reader")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in REQUESTS],
)
def test_what_a_client_leaves_unread_costs_a_bounded_amount_of_memory(kind: str, root: Path, tmp_path: Path) -> None:
    with running(root, _config(root, tmp_path), "--approval-mode", "yolo", start=by_itself) as server:
        before = _begin(server)
        request_count, _ = _flood(server, REQUESTS[kind], MAX_REQUESTS)
        assert _peak(server.process.pid) - before < MAX_MEMORY, request_count
        # The client leaves without having read anything.
        server.stdout.close()
        server.stdin.close()
        assert server.process.wait(CEILING) == 0


@pytest.mark.requirement("stdio.slow_reader")
@pytest.mark.parametrize(
    "kind",
    [
        "all of them",
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("lists", "relayed logs", "reads", "commands", "relayed answers of 1 MB")
        ),
    ],
)
def test_all_answers_come_once_the_client_reads(kind: str, root: Path, tmp_path: Path) -> None:
    with running(root, _config(root, tmp_path), "--approval-mode", "yolo") as server:
        _begin(server)
        request_count, remainder = _flood(server, REQUESTS[kind], 60 if kind == "all of them" else 200)
        os.set_blocking(server.stdin.fileno(), True)
        writer = threading.Thread(target=server.send, args=(remainder[:-1],) if remainder else ())
        writer.start()
        open_ids, progress = set(range(1, request_count + 1)), dict[int, list[float]]()
        while open_ids:
            message = server.answer()
            if message.get("method") == "notifications/progress":
                params = message["params"]
                assert params["progressToken"] in open_ids  # no progress comes after the answer
                progress.setdefault(params["progressToken"], []).append(params["progress"])
            elif "method" not in message:
                open_ids.remove(message["id"])  # each request has one answer
        writer.join()
        assert all(values == sorted(values) for values in progress.values())
        server.stdin.close()
        assert server.remaining_messages() == []
        assert server.process.wait(CEILING) == 0


def _call_that_asks(number: int, root: Path) -> Json:
    return call(number, "write_file", file_path=str(root / f"{number}.txt"), content="x\n")


@pytest.mark.long
@pytest.mark.requirement("stdio.slow_reader")
def test_an_answer_to_a_question_is_read_behind_any_number_of_requests(root: Path) -> None:
    initialize = json.loads(json.dumps(INITIALIZE))
    initialize["params"]["capabilities"] = {"elicitation": {}}
    with running(root) as server:
        server.send(initialize, INITIALIZED)
        assert server.answer()["id"] == 0
        messages: queue.SimpleQueue[Json] = queue.SimpleQueue()
        reader = threading.Thread(target=_read_messages, args=(server, messages))
        reader.start()
        # Twice as many bytes as may wait. Every call that runs asks for consent.
        count = 400
        for number in range(1, count + 1):
            message = _call_that_asks(number, root)
            message["params"]["arguments"]["content"] = "x" * 60_000
            server.send(message)
        answers = dict[int, Json]()
        while len(answers) < count:
            message = messages.get(timeout=CEILING)
            if message.get("method") == "elicitation/create":
                server.send({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "decline"}})
            elif "method" not in message:
                answers[message["id"]] = message
        refusals = [answer for answer in answers.values() if "error" in answer]
        assert 0 < len(refusals) < count
        assert all("too many requests" in answer["error"]["message"] for answer in refusals)
        server.stdin.close()
        reader.join(CEILING)
        assert server.process.wait(CEILING) == 0


def _read_messages(server: Server, messages: queue.SimpleQueue[Json]) -> None:
    for line in server.stdout:
        messages.put(json.loads(line))


@pytest.mark.requirement("stdio.slow_reader")
def test_pings_and_cancellations_are_read_while_more_calls_wait_than_may_run(root: Path) -> None:
    count = 1_000
    with running(root, None, "--approval-mode", "yolo") as server:
        server.send(INITIALIZE, INITIALIZED)
        assert server.answer()["id"] == 0
        command = f"until [ -e '{root / 'go'}' ]; do sleep 0.1; done"
        server.send(*[call(number, "run_shell_command", command=command) for number in range(1, count + 1)])
        server.send({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
        assert server.answer() == {"jsonrpc": "2.0", "id": "ping", "result": {}}
        cancel = "notifications/cancelled"
        server.send(*[{"jsonrpc": "2.0", "method": cancel, "params": {"requestId": n}} for n in range(1, count)])
        (root / "go").touch()
        assert server.answer()["id"] == count
        server.stdin.close()
        assert server.remaining_messages() == []
        assert server.process.wait(CEILING) == 0
