"""Whether the server still answers while a tool works: pings on the connection of the heavy calls."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.file_rows import WINDOW, many_files, numbered_file
from bench.line_client import LineClient, Start
from bench.rows import MEGABYTE, Opener, Pair, Round, Row, Scene
from bench.trees import HUGE, RARE

PING_SECONDS = 0.005
"""Interval between two pings."""

SECONDS = 2.0
"""Duration of the measurement for each protocol revision: 400 pings at most."""

BAR = 50.0

ID = re.compile(rb'"id":\s*(\d+)')

Work = Callable[[], tuple[str, dict[str, Any]]]
"""Makes the next heavy call: a tool and its arguments."""


@dataclass(frozen=True, slots=True)
class Load:
    """Work that keeps the server busy.

    Args:
        start: Command that starts the server.
        work: Returns the next call; `None` means no calls.
        fails: Whether the calls end with a tool error.
    """

    start: Start
    work: Work | None
    fails: bool = False


@dataclass(slots=True)
class PingRun:
    """Sends pings from one thread while another reads all answers.

    Args:
        client: The connection.
        method: The method that serves as ping in the protocol revision.
    """

    client: LineClient
    method: str
    milliseconds: list[float] = field(default_factory=list[float])
    calls: int = 0
    _sent: dict[int, float] = field(default_factory=dict[int, float])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self, load: Load, seconds: float) -> None:
        """Fill `milliseconds` with the duration of each ping, and `calls` with the number of finished calls."""
        sender = threading.Thread(target=self._ping, args=(seconds,))
        busy = self._send_next(load)
        sender.start()
        try:
            while not self._over.is_set() or self._sent:
                line = self.client.read()
                now = time.perf_counter()
                match = ID.search(line, 0, 100)
                number = int(match[1]) if match else None
                if number in self._sent:
                    self.milliseconds.append((now - self._sent.pop(number)) * 1000)
                elif number == busy:
                    assert (b'"isError":true' in line) is load.fails, line[:1000]
                    self.calls += 1
                    busy = self._send_next(load)
        finally:
            self._over.set()
            sender.join()

    def _send_next(self, load: Load) -> int:
        if load.work is None or self._over.is_set():
            return -1
        tool, arguments = load.work()
        with self._lock:
            line = self.client.tool_request(tool, arguments)
            number = self.client.last_id
            self.client.write(line)
        return number

    def _ping(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end and not self._over.wait(PING_SECONDS):
            with self._lock:
                line = self.client.request(self.method, {})
                if now + PING_SECONDS * 2 >= end:
                    self._over.set()  # before the answer that the reader waits for
                self._sent[self.client.last_id] = time.perf_counter()
                self.client.write(line)
        self._over.set()


def _pings_during(prepare: Callable[[Scene], Load]) -> Opener:
    @contextmanager
    def open_row(scene: Scene) -> Generator[Round]:
        load = prepare(scene)

        def one_round() -> Pair:
            eras = [_ping_times(load, modern=modern) for modern in (False, True)]
            worst = max(ping_times[int(len(ping_times) * 0.99)] for ping_times in eras)
            return Pair(worst, note=f"longest {max(ping_times[-1] for ping_times in eras):.0f}")

        yield one_round

    return open_row


def _ping_times(load: Load, *, modern: bool) -> list[float]:
    """Return the milliseconds of each ping in ascending order."""
    with LineClient(load.start, modern=modern) as client:
        pinging = PingRun(client, "server/discover" if modern else "ping")
        pinging.run(load, SECONDS)
    return sorted(pinging.milliseconds)


def _idle(scene: Scene) -> Load:
    return Load(scene.server(scene.folder("nothing")), None)


def _glob(scene: Scene) -> Load:
    return Load(scene.server(scene.tree(HUGE)), lambda: ("glob", {"pattern": "**/*.ts"}))


def _grep(pattern: str) -> Callable[[Scene], Load]:
    def prepare(scene: Scene) -> Load:
        return Load(scene.server(scene.tree(HUGE)), lambda: ("grep_search", {"pattern": pattern}))

    return prepare


def _on_changed_file(path: Path, tool: str, arguments: dict[str, Any]) -> Work:
    """Return calls that find the file changed each time, so that nothing is cached."""

    def work() -> tuple[str, dict[str, Any]]:
        os.utime(path)
        return tool, arguments

    return work


def _read(megabytes: int, line: int | None) -> Callable[[Scene], Load]:
    def prepare(scene: Scene) -> Load:
        folder = scene.folder("read-loop")
        file = numbered_file(folder / "lines.txt", megabytes * MEGABYTE)
        offset = (line or file.lines - WINDOW - 100) - 1
        arguments = {"absolute_path": str(file.path), "offset": offset, "limit": WINDOW}
        return Load(scene.server(folder), _on_changed_file(file.path, "read_file", arguments))

    return prepare


def _read_many(scene: Scene) -> Load:
    folder, options = many_files(scene)
    return Load(scene.server(folder, *options), lambda: ("read_many_files", {"paths": ["many"]}))


def _edit(scene: Scene) -> Load:
    folder = scene.folder("edit-loop")
    file = numbered_file(folder / "lines.txt", 5 * MEGABYTE)
    texts = [f"line {file.lines // 2:08d} of a file", f"line {file.lines // 2:08d} of the file"]

    def work() -> tuple[str, dict[str, Any]]:
        texts.reverse()
        # A run ends before the answer to the last edit, so the file may contain either text.
        old, new = texts if texts[0].encode() in file.path.read_bytes() else reversed(texts)
        return "edit", {"file_path": str(file.path), "old_string": old, "new_string": new}

    return Load(scene.server(folder, "--approval-mode", "auto-edit"), work)


def _edit_of_absent_text(scene: Scene) -> Load:
    """Prepare an edit of an 8 kB text that differs from the file in one word."""
    folder = scene.folder("absent")
    file = numbered_file(folder / "lines.txt", 2 * MEGABYTE)
    lines = file.path.read_text().splitlines(keepends=True)[10_000:10_100]
    lines[50] = lines[50].replace("file", "book")
    arguments = {"file_path": str(file.path), "old_string": "".join(lines), "new_string": "x"}
    return Load(scene.server(folder, "--approval-mode", "auto-edit"), lambda: ("edit", arguments), fails=True)


def _long_output(scene: Scene) -> Load:
    folder = scene.folder("printing")
    options = ("--config", str(scene.scratch / "plain.json"), "--approval-mode", "yolo")
    (scene.scratch / "plain.json").write_text('{"shell": {"sandbox": "off"}}')
    return Load(scene.server(folder, *options), lambda: ("run_shell_command", {"command": "yes | head -c 50000000"}))


def _row(name: str, prepare: Callable[[Scene], Load]) -> Row:
    return Row(f"99 % of pings while {name}", BAR, _pings_during(prepare), most_rounds=1)


ROWS = (
    _row("nothing else happens", _idle),
    _row("glob, 150,000 files", _glob),
    _row("grep, 150,000 files", _grep(RARE)),
    _row("read at line 100,000 of 10 MB, cold", _read(10, 100_000)),
    _row("read near the end of 100 MB, cold", _read(100, None)),
    _row("read_many_files of 500 files", _read_many),
    _row("edit of one line in 5 MB", _edit),
    _row("a command prints 50 MB", _long_output),
    _row("edit of an absent 8 kB text in 2 MB", _edit_of_absent_text),
)
