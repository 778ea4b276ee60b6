"""The scene of a case (a folder in the workspace, one outside of it, and a client), and how cases are defined."""

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
"""This text is in every file that no answer may show."""


class BrokenError(Exception):
    """The server broke a promise."""


class NotApplicableError(Exception):
    """The case has no meaning for this server."""


@dataclass
class Scene:
    """Everything that one case uses.

    Args:
        connection: A client that has completed the handshake.
        tools: The tools of the server.
        inside: The folder of the case in the workspace.
        outside: A folder next to the workspace, with a file `secret`; nothing in it may change.
        home: The home folder of the server; None if the runner did not start it.
        page: The address of a web server of this machine, `http://127.0.0.1:PORT`.
        visits: The paths that were requested there.
        start: Starts the server once more, with these upstreams, or with the usual one for None.
        url: The URL of a server that listens.
        answers: Each answer so far, with a short description of its call; the runner inspects them.
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

    async def call(self, use: str, *, wait: float = WAIT, **arguments: Any) -> Answer:
        """Call the tool for a use; paths may be `Path`."""
        values = {key: str(value) if isinstance(value, Path) else value for key, value in arguments.items()}
        answer = await call(self.connection, self.tools, use, values, wait)
        self.answers.append(
            (f"{use} {values.get('path') or values.get('command') or values.get('url')}"[-160:], answer)
        )
        return answer

    async def call_named(self, name: str, arguments: Json) -> Answer:
        """Call a tool by its name."""
        answer = await call_named(self.connection, name, arguments)
        self.answers.append((name, answer))
        return answer

    async def file_calls(self, path: Path | str) -> list[Answer]:
        """Call every tool that could show or change a file or folder."""
        calls: list[tuple[str, Json]] = [
            ("read", {}), ("list", {}), ("find", {"pattern": "*"}), ("grep", {"pattern": "OUTSIDE"}),
            ("write", {"content": "written"}), ("edit", {"old": "OUTSIDE", "new": "edited"}), ("make folder", {}),
            ("move", {"to": str(self.inside / "moved")}),
        ]  # fmt: skip
        return [await self.call(use, path=path, **arguments) for use, arguments in calls if self.tools.has(use)]

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
        """Answer questions this way from now on; return the new person."""
        self.connection.person = Person(answer)
        return self.connection.person


@dataclass(frozen=True)
class Case:
    """One hostile case.

    Args:
        group: Its section of the table.
        promise: The id, in `promises.py`, of the promise that it tests.
        name: What it tries.
        act: Runs it; raises `BrokenError` if the promise is broken.
        needs: What the server must be able to do: keys of `adapters.NAMES`, or others that `Run._learn_rest` probes.
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
    """Register a case."""

    def register(act: Act) -> Act:
        CASES.append(Case(group, promise, name, act, needs, decline if says_no else accept))
        return act

    return register


def add_cases(
    group: str, act: Callable[[Scene, Any], Awaitable[None]], table: Sequence[tuple[str, str, Any]], *needs: str,
    says_no: bool = False,
) -> None:  # fmt: skip
    """Register cases that differ in one value. Each row of the table is (promise, name, value)."""
    for promise, name, value in table:

        async def act_on_value(scene: Scene, value: Any = value) -> None:
            await act(scene, value)

        case(group, promise, name, *needs, says_no=says_no)(act_on_value)


def check(condition: object, message: str) -> None:
    """Check a condition.

    Raises:
        BrokenError: The condition is false.
    """
    if not condition:
        raise BrokenError(message)


def excerpt(answer: Answer) -> str:
    """Return the beginning of an answer, for a message."""
    return json.dumps(answer.text[:120])


@contextmanager
def meanwhile(act: Callable[[], object]) -> Generator[None]:
    """Repeat an action in a thread, as another program would."""
    is_over = Event()

    def repeat() -> None:
        while not is_over.is_set():
            with suppress(OSError):
                act()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10)


@contextmanager
def pinging(connection: Connection) -> Generator[None]:
    """Check that the server keeps answering pings, each within ten seconds."""
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    sent_at: float | None = None

    async def ping() -> None:
        nonlocal sent_at
        while True:
            sent_at = loop.time()
            await connection.ping()
            waits.append(loop.time() - sent_at)
            sent_at = None
            await asyncio.sleep(0.05)

    task = asyncio.create_task(ping())
    try:
        yield
    finally:
        task.cancel()
    if sent_at is not None:  # a ping that is still not answered
        waits.append(loop.time() - sent_at)
    longest = max(waits, default=0.0)
    check(longest <= 10, f"a ping waited {longest:.1f} s meanwhile")
