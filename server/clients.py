"""Who is calling, and what belongs to them: the one table of client states.

Over stdio the process has one client. Over HTTP a client is the token it shows, else its session. An anonymous
client of the 2026-07-28 revision cannot be told from another, so it gets a fresh state for every request and
nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from tools.contract.context import ApprovalMode, ClientState
from tools.execution.jobs import JobTable

RequestContext = ServerRequestContext[Any, Any]

MAX_CLIENTS = 10_000
"""Client states kept; the one that was silent longest goes first. The SDK keeps as many HTTP sessions."""

LOOK_SECONDS = 0.5
"""How long after its time a silent client is forgotten, so that clients who came together go together."""

STDIO_KEY = "stdio"


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
        session: A way to notify it outside of its requests, where the era has one.
        last_seen: Monotonic seconds of its latest request.
    """

    state: ClientState
    readable: tuple[str, ...] = ()
    roots: ClientRoots | None = None
    session: ServerSession | None = None
    last_seen: float = field(default_factory=time.monotonic)


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
        client.last_seen = time.monotonic()
        self._clients.move_to_end(key)
        return client

    def sessions(self) -> Iterator[ServerSession]:
        """The sessions of all clients that can be notified."""
        for client in tuple(self._clients.values()):
            if client.session is not None:
                yield client.session

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
        horizon = time.monotonic() - self._idle_seconds
        while self._clients:
            key, oldest = next(iter(self._clients.items()))
            if key == STDIO_KEY or (oldest.last_seen >= horizon and len(self._clients) < MAX_CLIENTS):
                return
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
    if request.url.path.startswith("/messages"):
        session = request.query_params.get("session_id")
        return f"sse:{session}" if session else None
    session = request.headers.get("mcp-session-id")
    return f"http:{session}" if session else None
