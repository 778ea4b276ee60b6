"""Measures servers in turn (A B C, B C A ...) in one run and compares ratios, so that the machine's speed cancels."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.http_client import STARTING_SECONDS, PersistentConnection, RunningServer, check, is_whole
from bench.line_client import LineClient, Start, descendants_of
from bench.rows import NotRunError, Scene

ANSWER_SECONDS = 30.0
"""A peer that takes longer for one answer counts as failed."""

ENDING_SECONDS = 3.0
FLOOR = "without a proxy"
"""The baseline of proxies: the upstream without a proxy. It is not a peer."""

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a row.

    Args:
        name: What is measured.
        unit: Unit of the figure; more is better if it ends in "/s".
        bar: Allowed multiple of the best peer's time or memory; if it is more than 1, the row's note says why.
    """

    name: str
    unit: str = "ms"
    bar: float = 1.0

    def behind(self, ours: float, theirs: float) -> float:
        """Return the ratio of their time or memory to ours: above 1, this server is ahead."""
        return ours / theirs if self.unit.endswith("/s") else theirs / ours


Round = Callable[[], Sequence[float]]
Opener = Callable[[Scene], AbstractContextManager[Round]]


@dataclass(frozen=True, slots=True)
class Row:
    """Work that several servers do in turn.

    Args:
        figures: The figures of one round of one server, in order.
        targets: The servers by name, ours first. Each is a context manager that yields a function for one round.
        note: Differences between the servers' work.
        most_rounds: Maximum number of rounds, for rows with long rounds.
        short: The peers in the short run; empty if the row is not in it.
    """

    figures: tuple[Figure, ...]
    targets: Mapping[str, Opener]
    note: str = ""
    most_rounds: int = 5
    short: tuple[str, ...] = ()


@dataclass(slots=True)
class Measurement:
    """The values of one figure for all servers.

    Args:
        figure: The figure.
        note: The note of its row.
        values: The values of each server, round by round.
        failures: Reasons why servers have no values.
    """

    figure: Figure
    note: str
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def median(self, server: str) -> float:
        """Return the median over a server's rounds."""
        return statistics.median(self.values[server])

    def ratios(self, ours: str) -> dict[str, list[float]]:
        """Return the ratios by peer and round: above 1, this server is ahead."""
        own_values = self.values.get(ours, [])
        return {
            name: [self.figure.behind(*pair) for pair in zip(own_values, peer_values, strict=False)]
            for name, peer_values in self.values.items()
            if name != ours and own_values and peer_values
        }


def measure(row: Row, scene: Scene, rounds: int, servers: Sequence[str]) -> list[Measurement]:
    """Measure all rounds of a row with these servers. A server that fails is left out, and its failure is recorded."""
    results = [Measurement(figure, row.note) for figure in row.figures]
    with ExitStack() as stack:
        running: dict[str, Round] = {}
        for name in servers:
            with _record_failures(results, name):
                running[name] = stack.enter_context(row.targets[name](scene))
        for number in range(min(rounds, row.most_rounds)):
            for name in _rotate(list(running), number):
                with _record_failures(results, name):
                    for result, value in zip(results, running[name](), strict=True):
                        result.values.setdefault(name, []).append(value)
                    continue
                del running[name]
    return results


def _rotate(names: list[str], number: int) -> list[str]:
    """Rotate the names, so that each server starts a round in turn."""
    first = number % max(1, len(names))
    return names[first:] + names[:first]


@contextmanager
def _record_failures(results: Sequence[Measurement], name: str) -> Generator[None]:
    try:
        yield
    except (NotRunError, AssertionError, RuntimeError, OSError, ValueError) as error:
        for result in results:
            result.failures[name] = f"{type(error).__name__}: {error}"
            result.values.pop(name, None)


class PeerClient(LineClient):
    """A client for any server: it skips notifications, has a timeout, and kills servers that do not end.

    Args:
        start: Command that starts the server.
        patience: Timeout of one answer in seconds.
    """

    def __init__(self, start: Start, patience: float = ANSWER_SECONDS) -> None:
        super().__init__(start)
        self._patience = patience
        self._since: float | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            return super().__enter__()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            if self._since is not None and time.monotonic() - self._since > self._patience:
                kill_tree(self._process)
                return

    def read(self) -> bytes:
        """Read one answer."""
        self._since = time.monotonic()
        while True:
            line = super().read()
            if line.startswith(b"{") and b'"method":' not in line[:60]:
                self._since = None
                return line

    def tool_names(self) -> list[str]:
        """Return the names of all tools."""
        self.send("tools/list", {})
        return [tool["name"] for tool in self.receive()["result"]["tools"]]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        descendants = descendants_of(self._process.pid)
        with suppress(OSError):
            self._stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)
        kill_tree(self._process, descendants)
        self._stdout.close()
        self._stderr.close()


def kill_tree(process: subprocess.Popen[bytes], descendants: Sequence[int] = ()) -> None:
    """Kill a process and all its descendants."""
    for pid in {*descendants, *descendants_of(process.pid)}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def memory(pids: Sequence[int]) -> float:
    """Return the memory of these processes in megabytes. Shared memory counts proportionally (PSS)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(text.partition("\nPss:")[2].split()[0])
    return total / 1024


def memory_of_all(pid: int) -> float:
    """Return the memory of a process and all its descendants in megabytes."""
    return memory([pid, *descendants_of(pid)])


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextmanager
def serving(start: Start, port: int) -> Generator[RunningServer]:
    """Run a server over HTTP until the end of the context."""
    process = subprocess.Popen(
        start.command,
        env=start.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = ("127.0.0.1", port)
    try:
        deadline = time.monotonic() + STARTING_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(address, 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server does not accept connections")
            time.sleep(0.02)
        yield RunningServer(address, process.pid)
    finally:
        descendants = descendants_of(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
        kill_tree(process, descendants)


def http_rate(clients: Sequence[PersistentConnection], tool: str, arguments: dict[str, Any], seconds: float) -> float:
    """Return the calls per second with one call in flight on each connection."""
    for client in clients:
        client.reconnect()
    selector = selectors.DefaultSelector()
    answers = dict.fromkeys(clients, b"")
    start = time.perf_counter()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.socket.sendall(client.tool_request(tool, arguments))
    count, pending = 0, len(clients)
    while pending:
        ready = selector.select(ANSWER_SECONDS)
        if not ready:
            raise RuntimeError("no answer in time")
        for key, _ in ready:
            client: PersistentConnection = key.data
            data = client.socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the server closed a connection")
            answers[client] += data
            if not is_whole(answers[client]):
                continue
            check(answers[client])
            answers[client] = b""
            count += 1
            if time.perf_counter() - start < seconds:
                client.socket.sendall(client.tool_request(tool, arguments))
            else:
                pending -= 1
    selector.close()
    return count / (time.perf_counter() - start)
