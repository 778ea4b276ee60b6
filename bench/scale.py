"""The capacity of one process: processor time per call, memory per client. The input of `docs/scale.md`.

python bench/scale.py [--only TEXT] [--rounds N]     Linux only; prints the minimum of all rounds
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.http_client import PersistentConnection, RunningServer, listening
from bench.line_client import REQUEST_META, LineClient, Start
from bench.rows import LAUNCHER, PYTHON, SERVERS

WARMING = 100
CALLS = 400
QUESTIONS = 100
SESSIONS = 800
"""Fewer than a process keeps open (`MAX_SESSIONS`), so that all of them still exist at the end."""
CONNECTIONS = 300
TOKENS = 300
PATIENT_MS = 30_000
MICRO, KILO = "µs", "kB"
_META = REQUEST_META["_meta"]
ASKABLE: dict[str, Any] = {
    "_meta": {**_META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
}
YES = {"action": "accept", "content": {"decision": "once"}}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: its name, its unit, and a function that measures it in a new folder."""

    name: str
    unit: str
    measure: Callable[[Path], float]


def _cpu(pid: int) -> float:
    """Return the processor time of all threads of a process in microseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def _memory(pid: int) -> float:
    """Return the private memory of a process in kilobytes (its resident pages without those of files)."""
    _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 1000


@contextmanager
def _serving(folder: Path, settings: dict[str, Any], **environment: str) -> Generator[RunningServer]:
    config = folder / "config.json"
    config.write_text(json.dumps({"shell": {"sandbox": "off"}, **settings}))
    (folder / "small.txt").write_text("small\n")
    options = ["--workspace", str(folder), "--config", str(config), "--transport", "http", "--port", "0"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with listening(Start([PYTHON, str(LAUNCHER), "serve", *options], {**inherited, **environment})) as server:
        yield server


def _cost_per_call(server: RunningServer, count: int, call: Callable[[], object]) -> float:
    """Return the processor time of the server per call."""
    for _ in range(WARMING):
        call()
    cpu_before = _cpu(server.pid)
    for _ in range(count):
        call()
    return (_cpu(server.pid) - cpu_before) / count


def _reading(folder: Path) -> dict[str, Any]:
    return {"name": "read_file", "arguments": {"absolute_path": str(folder / "small.txt")}}


def _plain(folder: Path, *, modern: bool) -> float:
    with _serving(folder, {}) as server:
        client = PersistentConnection(server, modern=modern)
        cost = _cost_per_call(server, CALLS, lambda: client.exchange(client.request("tools/call", _reading(folder))))
        client.close()
        return cost


def _over_stdio(folder: Path) -> float:
    (folder / "small.txt").write_text("small\n")
    call = _reading(folder)
    with LineClient(Start([PYTHON, str(LAUNCHER), "serve", "--workspace", str(folder)])) as client:
        server = RunningServer(("", 0), client.pid)
        return _cost_per_call(server, CALLS, lambda: client.call(call["name"], call["arguments"]))


def _write(folder: Path, *, is_asked: bool) -> float:
    """Measure a write that a rule or a person allows. If a person is asked, both requests count."""
    with _serving(folder, {} if is_asked else {"permissions": {"allow": ["write_file"]}}) as server:
        client = PersistentConnection(server, modern=True)

        def write() -> None:
            arguments = {"file_path": str(folder / "new.txt"), "content": secrets.token_hex(8)}
            call = {"name": "write_file", "arguments": arguments, **ASKABLE}
            result = _result(client.exchange(client.request("tools/call", call)))
            if is_asked:
                answers = dict.fromkeys(result["inputRequests"], YES)
                continuation = {"inputResponses": answers, "requestState": result["requestState"]}
                result = _result(client.exchange(client.request("tools/call", {**call, **continuation})))
            assert result["resultType"] == "complete", result

        cost = _cost_per_call(server, QUESTIONS, write)
        client.close()
        return cost


def _result(answer: bytes) -> dict[str, Any]:
    match = re.search(rb'\{"jsonrpc".*\}', answer)
    assert match is not None, answer
    return json.loads(match[0])["result"]


def _relayed(folder: Path) -> float:
    upstream = {"command": PYTHON, "args": [str(SERVERS / "bare_loop.py")], "trust": True, "protocol": "legacy"}
    with _serving(folder, {"mcpServers": {"up": upstream}, "proxy": {"firstListWait": PATIENT_MS}}) as server:
        client = PersistentConnection(server)
        client.exchange(client.request("tools/list", {}))
        cost = _cost_per_call(server, CALLS, lambda: client.exchange(client.tool_request("up__echo", {})))
        client.close()
        return cost


def _idle(folder: Path) -> float:
    with _serving(folder, {}) as server:
        return _memory(server.pid)


def _sessions(folder: Path) -> float:
    def open_one(server: RunningServer) -> None:
        client = PersistentConnection(server)
        client.exchange(client.request("tools/call", _reading(folder)))
        client.vanish()

    with _serving(folder, {}) as server:
        for _ in range(WARMING):
            open_one(server)
        baseline = _memory(server.pid)
        for _ in range(SESSIONS):
            open_one(server)
        return (_memory(server.pid) - baseline) / SESSIONS


def _connections(folder: Path) -> float:
    with _serving(folder, {}) as server:
        clients: list[PersistentConnection] = []
        baseline = 0.0
        try:
            for number in range(WARMING + CONNECTIONS):
                if number == WARMING:
                    baseline = _memory(server.pid)
                client = PersistentConnection(server, modern=True)
                clients.append(client)
                client.exchange(client.request("tools/call", _reading(folder)))
            return (_memory(server.pid) - baseline) / CONNECTIONS
        finally:
            for client in clients:
                client.close()


def _tokens(folder: Path) -> float:
    tokens = {f"SCALE_{number}": secrets.token_hex(32) for number in range(WARMING + TOKENS)}
    sources = {name.lower(): {"env": name} for name in tokens}
    with _serving(folder, {"http": {"tokens": sources}}, **tokens) as server:
        client = PersistentConnection(server, modern=True)
        baseline = 0.0
        for number, token in enumerate(tokens.values()):
            if number == WARMING:
                baseline = _memory(server.pid)
            client.token = token
            client.exchange(client.request("tools/call", _reading(folder)))
        client.close()
        return (_memory(server.pid) - baseline) / TOKENS


ROWS = (
    Row("plain call over stdio", MICRO, _over_stdio),
    Row("plain call over HTTP, handshake", MICRO, lambda folder: _plain(folder, modern=False)),
    Row("plain call over HTTP, 2026-07-28", MICRO, lambda folder: _plain(folder, modern=True)),
    Row("call that writes a file, 2026-07-28", MICRO, lambda folder: _write(folder, is_asked=False)),
    Row("call with a question, 2026-07-28", MICRO, lambda folder: _write(folder, is_asked=True)),
    Row("call to an upstream over HTTP", MICRO, _relayed),
    Row("memory of a process without clients", KILO, _idle),
    Row("memory of an idle session, handshake", KILO, _sessions),
    Row("memory of an open connection, 2026-07-28", KILO, _connections),
    Row("memory of a client with a token", KILO, _tokens),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose names contain this text")
    parser.add_argument("--rounds", type=int, default=3, help="number of measurements per row; the minimum counts")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        print("not run: the times and the memory of a process are read from /proc")
        return 0
    for row in ROWS:
        if options.only not in row.name:
            continue
        values: list[float] = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as name:
                values.append(row.measure(Path(name).resolve()))
        print(f"{min(values):10,.0f} {row.unit:2}  {row.name}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
