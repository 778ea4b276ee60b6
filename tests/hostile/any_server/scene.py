"""What a case has: a place in the workspace, one outside of it, and a client; and how cases are written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.hostile.any_server.adapters import Answer, Tools, call, call_named
from tests.hostile.any_server.wire import WAIT, Connection, Json, Person, accept, decline

MARKER = "OUTSIDE-THE-WORKSPACE-7c1f"
"""Stands in every file that no answer may show."""


class BrokenError(Exception):
    """The server did what it must not do, or did not do what it must."""


class NotApplicableError(Exception):
    """The case has no meaning for this server."""


@dataclass
class Scene:
    """What one case acts in.

    Args:
        connection: A client that has shaken hands.
        tools: The tools of the server.
        inside: A folder of the case in the workspace.
        outside: One beside the workspace, with a file `secret`; nothing in it may change.
        home: The home folder of the server, None where this did not start it.
        page: The address of a web server of this machine, `http://127.0.0.1:PORT`.
        visits: The paths that were asked for there.
        start: Starts the server once more, with these upstreams, or with the same.
        url: Where the server listens, if it does.
        answers: What came back so far, after what was called; the runner looks through them.
    """

    connection: Connection
    tools: Tools
    inside: Path
    outside: Path
    home: Path | None
    page: str
    visits: list[str]
    start: Callable[[Json | None], AbstractAsyncContextManager[Connection]] | None
    url: str | None
    answers: list[tuple[str, Answer]] = field(default_factory=list[tuple[str, Answer]])

    async def call(self, use: str, *, wait: float = WAIT, **given: Any) -> Answer:
        """Call the tool for something; paths may be `Path`."""
        told = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
        answer = await call(self.connection, self.tools, use, told, wait)
        self.answers.append((f"{use} {told.get('path') or told.get('command') or told.get('url')}"[-160:], answer))
        return answer

    async def call_named(self, name: str, arguments: Json) -> Answer:
        """Call a tool by its name."""
        answer = await call_named(self.connection, name, arguments)
        self.answers.append((name, answer))
        return answer

    async def file_calls(self, path: Path | str) -> list[Answer]:
        """Call every tool that could show or change what is at a path."""
        calls: list[tuple[str, Json]] = [
            ("read", {}), ("list", {}), ("find", {"pattern": "*"}), ("grep", {"pattern": "OUTSIDE"}),
            ("write", {"content": "written"}), ("edit", {"old": "OUTSIDE", "new": "edited"}), ("make folder", {}),
            ("move", {"to": str(self.inside / "moved")}),
        ]  # fmt: skip
        return [await self.call(use, path=path, **more) for use, more in calls if self.tools.has(use)]

    def file(self, name: str, content: str | bytes) -> Path:
        """Make a file in the workspace."""
        path = self.inside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def link(self, name: str, target: Path | str) -> Path:
        """Make a link in the workspace."""
        path = self.inside / name
        path.symlink_to(target)
        return path

    def answer_with(self, answer: Callable[[Json], Json | None]) -> Person:
        """Have questions answered so from now on."""
        self.connection.person = Person(answer)
        return self.connection.person


@dataclass(frozen=True)
class Case:
    """One hostile case.

    Args:
        group: Where it stands in the table.
        promise: What it holds a server to, by its id in `promises.py`.
        name: What is tried.
        act: Tries it; raises `BrokenError` if the promise is broken.
        needs: What the server must be able to do, as in `adapters.NAMES` and `probe.py`.
        answer: How the person answers questions.
    """

    group: str
    promise: str
    name: str
    act: Callable[[Scene], Awaitable[None]]
    needs: Sequence[str] = ()
    answer: Callable[[Json], Json | None] = accept


CASES: list[Case] = []
Act = Callable[[Scene], Awaitable[None]]


def case(group: str, promise: str, name: str, *needs: str, says_no: bool = False) -> Callable[[Act], Act]:
    """Write a case down."""

    def written(act: Act) -> Act:
        CASES.append(Case(group, promise, name, act, needs, decline if says_no else accept))
        return act

    return written


def rows(
    group: str, act: Callable[[Scene, Any], Awaitable[None]], table: Sequence[tuple[str, str, Any]], *needs: str,
    says_no: bool = False,
) -> None:  # fmt: skip
    """Write a table of cases down that differ in one value: (promise, name, value)."""
    for promise, name, value in table:

        async def acted(scene: Scene, value: Any = value) -> None:
            await act(scene, value)

        case(group, promise, name, *needs, says_no=says_no)(acted)


def check(holds: object, broken: str) -> None:
    """What must hold.

    Raises:
        BrokenError: It does not.
    """
    if not holds:
        raise BrokenError(broken)


def shown(answer: Answer) -> str:
    """The beginning of an answer, for a table."""
    return json.dumps(answer.text[:120])


@contextmanager
def meanwhile(act: Callable[[], object]) -> Generator[None]:
    """Do something again and again in a thread, as another program would."""
    over = Event()

    def again() -> None:
        while not over.is_set():
            with suppress(OSError):
                act()

    thread = Thread(target=again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


@contextmanager
def pinging(connection: Connection) -> Generator[None]:
    """Have the server answer pings all the while, each within ten seconds."""
    slow: list[float] = []

    async def ping() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await connection.ping()
            slow.append(loop.time() - before)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(ping())
    try:
        yield
    finally:
        task.cancel()
    check(not slow or max(slow) <= 10, f"a ping waited {max(slow, default=0):.1f} s meanwhile")
