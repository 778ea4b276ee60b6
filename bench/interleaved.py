"""Servers in turn: A B C, B C A ... in one run, so that the speed of the machine cancels; what counts is the ratio."""

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

from bench.http_client import STARTING_SECONDS, KeptConnection, Listening, check, is_whole
from bench.line_client import LineClient, Start, processes_below
from bench.rows import NotRunError, Scene

ANSWER_SECONDS = 20.0
"""A peer that takes longer for one answer counts as failed."""

ENDING_SECONDS = 3.0
FLOOR = "without a proxy"
"""What is no server of the comparison, but what a proxy adds to."""

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a row.

    Args:
        name: What is measured.
        unit: Of it; more is better where it ends in "/s".
        bar: How many times the best peer's time or memory ours may take; more than 1 where the row's note says why.
    """

    name: str
    unit: str = "ms"
    bar: float = 1.0

    def behind(self, ours: float, theirs: float) -> float:
        """How many times as much time or memory as ours theirs takes: above 1 we are ahead."""
        return ours / theirs if self.unit.endswith("/s") else theirs / ours


Round = Callable[[], Sequence[float]]
Opener = Callable[[Scene], AbstractContextManager[Round]]


@dataclass(frozen=True, slots=True)
class Row:
    """What all its servers do in turn.

    Args:
        figures: What one round of one server gives, in order.
        targets: The servers by name, ours first: each opens, and then gives its figures round after round.
        note: How what they do differs.
        most_rounds: For rows whose one round takes long.
        short: The peers of the short form; none where the row is not in it.
    """

    figures: tuple[Figure, ...]
    targets: Mapping[str, Opener]
    note: str = ""
    most_rounds: int = 5
    short: tuple[str, ...] = ()


@dataclass(slots=True)
class Measured:
    """One figure of all servers.

    Args:
        figure: Which.
        note: Of its row.
        taken: By server, round by round.
        failed: Why a server has none.
    """

    figure: Figure
    note: str
    taken: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    failed: dict[str, str] = field(default_factory=dict[str, str])

    def median(self, server: str) -> float:
        """The median of a server's rounds."""
        return statistics.median(self.taken[server])

    def ratios(self, ours: str) -> dict[str, list[float]]:
        """By peer, round by round: above 1 we are ahead."""
        mine = self.taken.get(ours, [])
        return {
            name: [self.figure.behind(*pair) for pair in zip(mine, theirs, strict=False)]
            for name, theirs in self.taken.items()
            if name != ours and mine and theirs
        }


def measure(row: Row, scene: Scene, rounds: int, servers: Sequence[str]) -> list[Measured]:
    """All rounds of these servers of a row; one that fails is left out, and its failure kept."""
    found = [Measured(figure, row.note) for figure in row.figures]
    with ExitStack() as stack:
        running: dict[str, Round] = {}
        for name in servers:
            with _noting(found, name):
                running[name] = stack.enter_context(row.targets[name](scene))
        for number in range(min(rounds, row.most_rounds)):
            for name in _turned(list(running), number):
                with _noting(found, name):
                    for one, value in zip(found, running[name](), strict=True):
                        one.taken.setdefault(name, []).append(value)
                    continue
                del running[name]
    return found


def _turned(names: list[str], number: int) -> list[str]:
    """Each begins in its turn."""
    first = number % max(1, len(names))
    return names[first:] + names[:first]


@contextmanager
def _noting(found: Sequence[Measured], name: str) -> Generator[None]:
    try:
        yield
    except (NotRunError, AssertionError, RuntimeError, OSError, ValueError) as error:
        for one in found:
            one.failed[name] = f"{type(error).__name__}: {error}"
            one.taken.pop(name, None)


class PeerClient(LineClient):
    """Speaks to any server: passes over what is no answer, waits for none for ever, and ends what does not end.

    Args:
        start: How the server is started.
        patience: How many seconds one answer may take.
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
                ended(self._process)
                return

    def read(self) -> bytes:
        """Read one answer."""
        self._since = time.monotonic()
        while True:
            line = super().read()
            if line.startswith(b"{") and b'"method":' not in line[:60]:
                self._since = None
                return line

    def listed(self) -> list[str]:
        """The names of all tools."""
        self.send("tools/list", {})
        return [tool["name"] for tool in self.receive()["result"]["tools"]]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        below = processes_below(self._process.pid)
        with suppress(OSError):
            self._stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_SECONDS)
        ended(self._process, below)
        self._stdout.close()
        self._stderr.close()


def ended(process: subprocess.Popen[bytes], below: Sequence[int] = ()) -> None:
    """End a process and all that it started."""
    for pid in {*below, *processes_below(process.pid)}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def memory(pids: Sequence[int]) -> float:
    """Megabytes that these processes hold; what several share counts by its share (PSS)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(text.partition("\nPss:")[2].split()[0])
    return total / 1024


def memory_of_all(pid: int) -> float:
    """Megabytes of a process and all that it started."""
    return memory([pid, *processes_below(pid)])


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def serving(start: Start, port: int) -> Generator[Listening]:
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
        until = time.monotonic() + STARTING_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(address, 1):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the server does not listen")
            time.sleep(0.02)
        yield Listening(address, process.pid)
    finally:
        below = processes_below(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
        ended(process, below)


def http_rate(clients: Sequence[KeptConnection], tool: str, arguments: dict[str, Any], seconds: float) -> float:
    """Calls a second with one call in flight on each connection."""
    for client in clients:
        client.connect_again()
    selector = selectors.DefaultSelector()
    answers = dict.fromkeys(clients, b"")
    started = time.perf_counter()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.socket.sendall(client.tool_request(tool, arguments))
    done, waiting = 0, len(clients)
    while waiting:
        ready = selector.select(ANSWER_SECONDS)
        if not ready:
            raise RuntimeError("no answer in time")
        for key, _ in ready:
            client: KeptConnection = key.data
            data = client.socket.recv(1 << 16)
            if not data:
                raise RuntimeError("the server closed a connection")
            answers[client] += data
            if not is_whole(answers[client]):
                continue
            check(answers[client])
            answers[client] = b""
            done += 1
            if time.perf_counter() - started < seconds:
                client.socket.sendall(client.tool_request(tool, arguments))
            else:
                waiting -= 1
    selector.close()
    return done / (time.perf_counter() - started)
