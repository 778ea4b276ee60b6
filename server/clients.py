"""Who is calling, which folders they work in, and what their requests act in.

Over stdio the process has one client. Over HTTP a client is the principal of the token it shows, in however many
sessions, else its session, and is forgotten with that. An anonymous client of the 2026-07-28 revision cannot be told
from another, so it gets a fresh state for every request and nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request

from server.client_request import TOKEN_KEY, Exchange, rights_of
from server.file_uris import UriRefusedError, path_of_uri
from server.principals import principal_of
from server.sdk_seams import Connection, RequestContext, client_name, connection_of, sse_session
from server.settings.files import real_path
from server.settings.models import WorkspaceSettings
from server.upstreams.call_relay import CallContext
from tools.call.context import ClientState, Services, ToolContext
from tools.contract.errors import ExhaustedError, ToolError, ToolErrorType
from tools.contract.limits import ApprovalMode, Limits, MediaHandling
from tools.contract.threads import THREADS
from tools.files.workspace import Forbidden, Workspace, contains
from tools.permissions.rights import ALL_RIGHTS, Rights
from tools.shell.jobs import JobTable

logger = logging.getLogger(__name__)

MAX_CLIENTS = 10_000  # client states kept, more than there are sessions and tokens at once; the most silent goes first
MOST_CALLS = 256  # of one client over the network at once; each holds its result until that is read
LOOK_SECONDS = 0.5  # silent clients are forgotten so long after their time, so that many go together
STDIO_KEY = "stdio"
SESSION_KEYS = ("http:", "sse:")  # what the keys of clients begin with that show no token
ROOTS_WAIT_SECONDS = 1.0  # how long a file call waits for the client's answer to `roots/list`
QUIET_SECONDS = 0.1  # how long a client says nothing of its roots until that is seen to; no call waits for it
LONGEST_FLOOD_SECONDS = 5.0  # how long that is waited for where it says so all the time
MAX_ROOTS = 1_000  # roots of one client that are looked at; every path is held against each of them
MAX_KEPT_WORKSPACES = 1_000  # workspaces kept by the roots of their clients; clients of one project share one


class TooManyCallsError(ToolError):
    def __init__(self) -> None:
        said = f"This was not done: {MOST_CALLS} of your calls are already running."
        super().__init__(ToolErrorType.TOO_MANY_CALLS, f"{said} Wait for their answers, and call again.")


@dataclass(frozen=True, slots=True)
class ClientRoots:
    """The real paths of the folders that a client works in; why none of those it named can be used, if so."""

    folders: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class Client:
    """One client between its requests."""

    state: ClientState
    name: str = ""  # and version, as it says; empty where it does not
    version: str = ""  # of the protocol, in its first request
    readable: tuple[str, ...] = ()  # folders whose files it may read beside its workspace
    roots: ClientRoots | None = None  # the folders it works in, while they are known
    roots_changes: int = 0  # how often it said that those are other ones
    roots_news: RequestContext | None = None  # where it said so last, while that is being seen to
    # How it is notified outside of its requests, in eras that have connections.
    sessions: dict[Connection, ServerSession] = field(default_factory=dict[Connection, ServerSession])
    last_seen: float = field(default_factory=time.monotonic)  # of its latest request
    calls: int = 0
    rights: Rights = ALL_RIGHTS  # what the token of its latest request gives, for who looks on

    def __enter__(self) -> None:
        """A call of it is at work until `__exit__`; a client of the network with too many of them is refused."""
        # Not by a generator, which takes three times as long: each call has one.
        if self.calls >= MOST_CALLS and self.state.key != STDIO_KEY:
            raise TooManyCallsError
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1
        self.last_seen = time.monotonic()


@dataclass(slots=True)
class ClientTable:
    """Finds the client of a request, and forgets clients that are silent too long."""

    approval_mode: ApprovalMode
    idle_seconds: float
    readable: Callable[[str], tuple[str, ...]]  # folders whose files a client may read besides, by its key
    on_new: Callable[[RequestContext], None]  # called with the first request of a client
    on_forget: Callable[[ClientState], None]
    _clients: OrderedDict[str, Client] = field(default_factory=OrderedDict[str, Client], init=False)
    _next_look: asyncio.TimerHandle | None = field(default=None, init=False)

    def of(self, ctx: RequestContext) -> Client:
        key = client_key(ctx)
        client = None if key is None else self._clients.get(key)
        if client is None:
            self.on_new(ctx)
        if key is None:
            return Client(ClientState("", self.approval_mode))
        if client is None:
            self._forget_silent()
            if key != STDIO_KEY:
                self._look_later(self.idle_seconds)
            state = ClientState(key, self.approval_mode, jobs=JobTable())
            client = Client(state, client_name(ctx), ctx.protocol_version, self.readable(key))
            self._clients[key] = client
            if key.startswith(SESSION_KEYS):
                # From its first request on: it may never say that it is initialized.
                connection_of(ctx.session).exit_stack.callback(self._forget, client)
        client.last_seen, client.rights = time.monotonic(), rights_of(ctx)
        self._clients.move_to_end(key)
        return client

    def follow(self, ctx: RequestContext) -> bool:
        """Remember a way to notify the client of a request until its connection ends; whether there was none yet."""
        sessions, connection = self.of(ctx).sessions, connection_of(ctx.session)
        if connection in sessions:
            return False
        sessions[connection] = ctx.session
        connection.exit_stack.callback(sessions.pop, connection, None)
        return True

    def _forget(self, client: Client) -> None:
        if self._clients.get(client.state.key) is client:
            del self._clients[client.state.key]
            self.on_forget(client.state)

    def all(self) -> Sequence[Client]:
        return tuple(self._clients.values())

    def sessions(self) -> Iterator[ServerSession]:
        for client in self.all():
            yield from tuple(client.sessions.values())

    def job_tables(self) -> list[JobTable]:
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
            self._look_later(oldest.last_seen + self.idle_seconds - time.monotonic() + LOOK_SECONDS)

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for _ in range(len(self._clients)):
            key, oldest = next(iter(self._clients.items()))
            if key == STDIO_KEY or (oldest.last_seen >= now - self.idle_seconds and len(self._clients) < MAX_CLIENTS):
                return
            if oldest.calls:
                # It waits for us.
                oldest.last_seen = now
                self._clients.move_to_end(key)
                continue
            self._forget(oldest)


def client_key(ctx: RequestContext) -> str | None:
    """Whose state a request may use; `None` for a client that cannot be told from others."""
    if ctx.request is None or not isinstance(ctx.request, Request):
        return STDIO_KEY
    request = cast("Request", ctx.request)
    if (principal := principal_of(request)) is not None:
        return f"{TOKEN_KEY}{principal.display_name}"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    # Not of `request.url`, which is built anew for each request.
    if request.scope["path"].startswith("/messages"):
        return f"{SESSION_KEYS[1]}{sse_session(request.query_params.get('session_id'))}"
    session = request.headers.get("mcp-session-id")
    return f"{SESSION_KEYS[0]}{session}" if session else None


class WorkspacePolicy:
    """Chooses which folders a client's calls may touch: the operator's, else the client's, else the working folder.

    The operator's are those of its token, else those of all. `hidden` tells what the rules for a client hide below some
    folders; in what is `private` no tool reads or writes.
    """

    def __init__(
        self,
        settings: WorkspaceSettings,
        hidden: Callable[[Sequence[str], Rights], Forbidden | None],
        private: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._private = private
        self._hidden = hidden
        self._operator_roots = tuple(real_path(root) for root in settings.roots)
        self._intersect = settings.client_roots == "intersect"  # whether the client's roots narrow the operator's
        self.asks_for_roots = self._intersect or not self._operator_roots
        # Each is made when a call first needs it.
        self.built: dict[tuple[ClientRoots | None, tuple[str, ...], Rights], Workspace] = {}

    def workspace(
        self, client_roots: ClientRoots | None, readable: tuple[str, ...] = (), rights: Rights = ALL_RIGHTS
    ) -> Workspace:
        """The workspace for a client; its roots are `None` if it has some and has not told them."""
        key = (client_roots, readable, rights)
        if key not in self.built:
            if len(self.built) >= MAX_KEPT_WORKSPACES:
                self.built.clear()
            folders, problem = self._folders(client_roots, rights)
            self.built[key] = Workspace(
                folders,
                problem,
                respect_git_ignore=self._settings.respect_git_ignore,
                respect_agent_ignore=self._settings.respect_agent_ignore,
                readable=readable,
                forbidden=self._hidden(folders, rights),
                private=self._private,
            )
        return self.built[key]

    def _folders(self, client_roots: ClientRoots | None, rights: Rights) -> tuple[Sequence[str], str]:
        operators = tuple(map(real_path, rights.roots)) or self._operator_roots
        if operators and not self._intersect:
            return operators, ""
        if rights.scopes is not None and not operators:
            # Whoever shows a token of an issuer is a person elsewhere, whose folders are of another machine.
            client_roots = ClientRoots()
        if client_roots is None:
            return (), (
                "The client has announced roots and does not list them, so it is not known which folders it means. Try "
                "again; if it stays so, the operator has to name the folders with --workspace."
            )
        folders = client_roots.folders
        if client_roots.problem:
            return (), client_roots.problem
        if operators and not folders:
            return operators, ""  # there is nothing to narrow by
        if operators:
            # The smaller folder of each pair that overlaps.
            inside = [root for root in folders if any(contains(own, root) for own in operators)]
            return inside + [own for own in operators if any(contains(root, own) for root in folders)], (
                "The client's roots lie outside the folders that the operator allows (workspace.clientRoots is "
                "intersect), so no folder is left. The client has to open a folder inside them, or the operator has to "
                "add one with --workspace."
            )
        if folders:
            return folders, ""
        try:
            folder = os.path.realpath(os.getcwd())
        except OSError:
            problem = "No workspace is set, and the folder that the server was started in is gone. Use --workspace DIR."
            return (), problem
        home, installation = os.path.realpath(Path.home()), os.path.realpath(os.path.dirname(sys.executable))
        if folder == home:
            what = "your home folder"
        elif folder == os.path.dirname(folder):
            what = "the root of the file system"
        elif folder == installation or contains(os.path.realpath(sys.prefix), folder):
            what = "an installation folder"
        else:
            return (folder,), ""
        return (), (
            f"No workspace is set, and the server was started in {what} ('{folder}'), which is never taken by itself. "
            "The operator can start it with --workspace DIR or set workspace.roots in the settings."
        )


_NO_ROOT_USABLE = (
    "The client's roots are not existing folders (file:// URIs of folders are expected), so no folder is left. The "
    "client has to open one, or the operator has to name one with --workspace."
)


class _Listed(types.Result):
    """The answer to `roots/list`; the SDK's model would drop all roots for one that is not `file://`."""

    roots: list[dict[str, Any]]


async def follow_roots(client: Client, ctx: RequestContext, take: Callable[[RequestContext], Awaitable[None]]) -> None:
    """Its roots are other ones: `take` sees to that, one at a time, and once more when they changed meanwhile."""
    client.roots = None
    client.roots_changes += 1
    is_seen_to, client.roots_news = client.roots_news is not None, ctx
    if is_seen_to:
        return
    seen_to = 0
    try:
        while seen_to != client.roots_changes:
            seen_to = client.roots_changes
            await take(client.roots_news)
            heard = -1
            with anyio.move_on_after(LONGEST_FLOOD_SECONDS):
                while heard != client.roots_changes:
                    heard = client.roots_changes
                    await anyio.sleep(QUIET_SECONDS)
    finally:
        client.roots_news = None


async def ask_roots(client: Client, ctx: RequestContext, *, related: bool) -> ClientRoots | None:
    """Ask a client for its roots, once, where it announced that it has some; `None` if there is no answer.

    `related` asks on the response stream of this request; over Streamable HTTP the only one sure to be open.
    """
    capabilities = ctx.session.client_capabilities
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or capabilities is None or capabilities.roots is None:
        client.roots = ClientRoots()
        return client.roots
    changes = client.roots_changes
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id) if related else None
    try:
        with anyio.fail_after(ROOTS_WAIT_SECONDS):
            listed = await ctx.session.send_request(types.ListRootsRequest(), _Listed, metadata=metadata)
            # In a thread: it names what it likes, a file system too that does not answer.
            folders = await THREADS.run(partial(_existing_folders, listed.roots[:MAX_ROOTS]))
    except (TimeoutError, MCPError, ValidationError, ExhaustedError):
        logger.warning("the client announced roots and did not list them; asked again at its next file call")
        return None
    if len(folders) < len(listed.roots):
        logger.warning("%d of the client's %d roots were left out", len(listed.roots) - len(folders), len(listed.roots))
    roots = ClientRoots(tuple(folders), _NO_ROOT_USABLE if listed.roots and not folders else "")
    if changes == client.roots_changes:
        client.roots = roots
    return roots


def _existing_folders(roots: Sequence[Mapping[str, Any]]) -> list[str]:
    folders: list[str] = []
    for root in roots:
        with suppress(UriRefusedError):
            path = path_of_uri(str(root.get("uri")), may_go_up=True)
            if os.path.isabs(path) and os.path.isdir(path):
                folders.append(real_path(path))
    return folders


@dataclass(frozen=True, slots=True)
class Contexts:
    """Finds what requests act in."""

    workspaces: WorkspacePolicy
    limits: Limits
    services: Services
    media: MediaHandling

    async def of(self, client: Client, ctx: RequestContext) -> ToolContext:
        """What a request of a client for files acts in; where its roots count, and are not known, it is asked first."""
        roots, rights = client.roots, rights_of(ctx)
        if roots is None and self.workspaces.asks_for_roots:
            roots = await ask_roots(client, ctx, related=True)
        return ToolContext(
            workspace=self.workspaces.workspace(roots, client.readable, rights),
            limits=self.limits,
            client=client.state,
            services=self.services,
            media=self.media,
            progress=ctx.session.report_progress,
            rights=rights,
        )

    def of_relayed(self, client: Client, exchange: Exchange) -> CallContext:
        """What a call of an upstream's tool acts in; it touches no files of ours, so no roots are waited for."""
        return CallContext(
            workspace=self.workspaces.workspace(client.roots, client.readable, exchange.rights),
            limits=self.limits,
            client=client.state,
            services=self.services,
            media=self.media,
            exchange=exchange,
            client_name=client.name,
            rights=exchange.rights,
        )
