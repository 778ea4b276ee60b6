"""Who is calling, and what belongs to them: the one table of client states.

Over stdio the process has one client. Over HTTP a client is the token it shows, in however many sessions, else its
session, and is forgotten with that. An anonymous client of the 2026-07-28 revision cannot be told from another, so it
gets a fresh state for every request and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from server.sdk_seams import Connection, connection_of
from tools.call.context import ClientState
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.limits import ApprovalMode
from tools.shell.jobs import JobTable

RequestContext = ServerRequestContext[Any, Any]

MAX_CLIENTS = 10_000
"""Client states kept; the one that was silent longest goes first. More than there are sessions and tokens at once."""

MOST_CALLS = 256
"""Calls that one client over the network may have at work at once: each holds its result until that is read. Over stdio
reading pauses instead."""

TOO_MANY_CALLS = (
    f"This was not done: {MOST_CALLS} calls of yours are at work already. Wait for their answers, and call again."
)

LOOK_SECONDS = 0.5
"""How long after its time a silent client is forgotten, so that clients who came together go together."""

STDIO_KEY = "stdio"

SESSION_KEYS = ("http:", "sse:")
"""What the keys of clients begin with that show no token."""


class TooManyCallsError(ToolError):
    """A client of the network has that many at work."""

    def __init__(self) -> None:
        super().__init__(ToolErrorType.TOO_MANY_CALLS, TOO_MANY_CALLS)


@dataclass(frozen=True, slots=True)
class ClientRoots:
    """What a client says of the folders it works in.

    Args:
        folders: Their real paths; empty for a client that has none.
        problem: Why none of those it named can be used, or empty.
    """

    folders: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class Client:
    """One client between its requests.

    Args:
        state: What tools may know of it.
        readable: Folders whose files it may read beside its workspace.
        roots: The folders it works in, `None` while that is not known.
        roots_changes: How often it said that those are other ones.
        roots_news: Where it said so last, while that is being seen to.
        sessions: A way to notify it outside of its requests for each of its connections, where the era has them.
        last_seen: Monotonic seconds of its latest request.
        calls: How many calls of it are at work.
    """

    state: ClientState
    readable: tuple[str, ...] = ()
    roots: ClientRoots | None = None
    roots_changes: int = 0
    roots_news: RequestContext | None = None
    sessions: dict[Connection, ServerSession] = field(default_factory=dict[Connection, ServerSession])
    last_seen: float = field(default_factory=time.monotonic)
    calls: int = 0

    def at_work(self) -> AbstractContextManager[None]:
        """Count a call.

        Raises:
            TooManyCallsError: When it is entered: a client of the network has that many at work.
        """
        return _AtWork(self)


class _AtWork:
    """A call that is at work; as a class, since a generator takes three times as long and each call has one."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> None:
        client = self._client
        if client.calls >= MOST_CALLS and client.state.key != STDIO_KEY:
            raise TooManyCallsError
        client.calls += 1

    def __exit__(self, *_: object) -> None:
        self._client.calls -= 1
        self._client.last_seen = time.monotonic()


class ClientTable:
    """Finds the client of a request.

    Args:
        approval_mode: The mode a new client starts in.
        idle_seconds: A client that was silent this long is forgotten.
        readable: The folders whose files a client may read beside its workspace, by its key.
        on_forget: Told of each client that is forgotten.
    """

    def __init__(
        self,
        approval_mode: ApprovalMode,
        idle_seconds: float,
        readable: Callable[[str], tuple[str, ...]],
        on_forget: Callable[[ClientState], None],
    ) -> None:
        self._approval_mode = approval_mode
        self._idle_seconds = idle_seconds
        self._readable = readable
        self._on_forget = on_forget
        self._clients: OrderedDict[str, Client] = OrderedDict()
        self._next_look: asyncio.TimerHandle | None = None

    def of(self, ctx: RequestContext) -> Client:
        """The client that sent this request."""
        key = client_key(ctx)
        if key is None:
            return Client(ClientState("", self._approval_mode))
        client = self._clients.get(key)
        if client is None:
            self._forget_silent()
            if key != STDIO_KEY:
                self._look_later(self._idle_seconds)
            state = ClientState(key, self._approval_mode, jobs=JobTable())
            client = self._clients[key] = Client(state, self._readable(key))
            if key.startswith(SESSION_KEYS):
                # From its first request on: it may never say that it is initialized.
                connection_of(ctx.session).exit_stack.callback(self._ended, client)
        client.last_seen = time.monotonic()
        self._clients.move_to_end(key)
        return client

    def follow(self, ctx: RequestContext) -> bool:
        """Remember a way to notify the client of a request until its connection ends.

        Returns:
            Whether there was none for this connection yet: a client may say any number of times that it is initialized.
        """
        sessions, connection = self.of(ctx).sessions, connection_of(ctx.session)
        if connection in sessions:
            return False
        sessions[connection] = ctx.session
        connection.exit_stack.callback(sessions.pop, connection, None)
        return True

    def _ended(self, client: Client) -> None:
        """Forget a client that is nothing but its session."""
        if self._clients.get(client.state.key) is client:
            self._on_forget(self._clients.pop(client.state.key).state)

    def sessions(self) -> Iterator[ServerSession]:
        """The sessions of all clients that can be notified."""
        for client in tuple(self._clients.values()):
            yield from tuple(client.sessions.values())

    def job_tables(self) -> list[JobTable]:
        """What all clients run in the background."""
        return [client.state.jobs for client in self._clients.values() if client.state.jobs is not None]

    def _look_later(self, seconds: float) -> None:
        """Forget who is silent even if nobody new comes: what they left running is not needed by anybody."""
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._next_look = None
        self._forget_silent()
        if self._clients:
            oldest = next(iter(self._clients.values()))
            self._look_later(oldest.last_seen + self._idle_seconds - time.monotonic() + LOOK_SECONDS)

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for _ in range(len(self._clients)):
            key, oldest = next(iter(self._clients.items()))
            if key == STDIO_KEY or (oldest.last_seen >= now - self._idle_seconds and len(self._clients) < MAX_CLIENTS):
                return
            if oldest.calls:
                # It waits for us.
                oldest.last_seen = now
                self._clients.move_to_end(key)
                continue
            self._on_forget(self._clients.pop(key).state)


def client_key(ctx: RequestContext) -> str | None:
    """Whose state a request may use; `None` for a client that cannot be told from others."""
    if not isinstance(ctx.request, Request):
        return STDIO_KEY
    request = cast("Request", ctx.request)
    token = get_access_token()
    if token is not None:
        return f"token:{token.client_id}"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    # Not of `request.url`, which is built anew for each request.
    if request.scope["path"].startswith("/messages"):
        return f"{SESSION_KEYS[1]}{sse_session(request.query_params.get('session_id'))}"
    session = request.headers.get("mcp-session-id")
    return f"{SESSION_KEYS[0]}{session}" if session else None


def sse_session(spelled: str | None) -> str:
    """The session over SSE that a request names; it may be spelled in many ways, all of which the SDK understands.

    Raises:
        ValueError: It names none.
    """
    return UUID(hex=spelled or "").hex
