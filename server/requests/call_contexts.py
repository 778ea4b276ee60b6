"""The client of a request, and the context in which its calls run.

Over stdio, the process has one client. Over HTTP, a client is the principal of a token, across any number of sessions.
Without a token, a client is a session and is forgotten with it. Anonymous clients of the 2026-07-28 revision cannot be
told apart, so each request gets a fresh state that is not kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from uuid import UUID

from server.clients.client_request import TOKEN_KEY, VARIABLE_NAME, Exchange, exchange_of, principal_of, rights_of
from server.clients.client_workspaces import PLACE_WAIT_SECONDS, ClientRoots, RootsState, WorkspacePolicy, learn_roots
from server.protocol.json_rpc import Json, as_list, as_mapping
from server.protocol.request_table import McpConnection, RequestContext, progress_token
from server.upstreams.relay.request_relay import CallContext
from tools.call.base_tool import ClientState, Services, ToolContext
from tools.contract.call_options import ApprovalMode, Limits, MediaHandling, no_progress
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import MAX_PATH_CHARS, SCRATCH_NAME, ReadLedger, Scratch, Workspace
from tools.permissions.permission_policy import ALL_RIGHTS, Rights
from tools.shell.job_table import JobTable

logger = logging.getLogger(__name__)

MAX_CLIENTS = 10_000  # maximum number of client states; beyond this, the longest-idle client is forgotten
MAX_CALLS = 256  # maximum number of concurrent calls per network client; limits how many unsent results are in memory
MAX_PROGRAMS = 16  # maximum number of programs without a session, per token, whose reads are tracked separately
CLEANUP_SECONDS = 0.5  # added to `idle_seconds`, so that several silent clients are forgotten together
STDIO_KEY = "stdio"
SESSION_KEYS = ("http:", "sse:")  # key prefixes for clients without a token


class TooManyCallsError(ToolError):
    def __init__(self) -> None:
        message = f"This was not done: {MAX_CALLS} of your calls are already running."
        super().__init__(ToolErrorType.TOO_MANY_CALLS, f"{message} Wait for their results, and call again.")


@dataclass(slots=True)
class Client:
    """One client, with the state that is kept between its requests."""

    state: ClientState
    name: str = ""  # the client's name and version; empty if not given
    version: str = ""  # the protocol revision of the client's first request
    readable: tuple[str, ...] = ()  # folders outside the client's workspace whose files the client may read
    # The client's `/tmp` outside plan mode, and the one in plan mode. A string is the reason why there is none; it is
    # empty if commands see the machine's `/tmp`.
    scratch: tuple[Scratch | str, Scratch | str] = ("", "")
    folders: RootsState = field(default_factory=RootsState)  # the client's roots
    connections: dict[McpConnection, None] = field(default_factory=dict[McpConnection, None])
    """The client's connections for notifications outside of requests; the 2026-07-28 revision has none."""
    # When the client last sent a request, or when its last call ended
    last_seen: float = field(default_factory=time.monotonic)
    calls: int = 0
    rights: Rights = ALL_RIGHTS  # the rights of the client's latest request, for the dashboard
    # What each program without a session has read, keyed by the program's name.
    reads: OrderedDict[str, ReadLedger] = field(default_factory=OrderedDict[str, ReadLedger])

    def __enter__(self) -> None:
        """Begin a call, which lasts until `__exit__`. A network client with too many calls is refused."""
        # This is not a `@contextmanager`, which would take three times as long: every call uses this method.
        if self.calls >= MAX_CALLS and self.state.key != STDIO_KEY:
            raise TooManyCallsError
        self.calls += 1

    def __exit__(self, *_: object) -> None:
        self.calls -= 1
        self.last_seen = time.monotonic()


@dataclass(slots=True)
class ClientTable:
    """Finds the client of a request, and forgets clients that have been silent for too long."""

    approval_mode: ApprovalMode
    idle_seconds: float
    readable: Callable[[str], tuple[str, ...]]  # returns the other folders that the client with a given key may read
    scratch: Callable[[str], tuple[Scratch | str, Scratch | str]]  # returns `Client.scratch` for a client's key
    on_new: Callable[[RequestContext], None]  # called with a client's first request
    on_forget: Callable[[ClientState], None]
    replica: str = ""  # the name of this process, if other replicas serve the same clients
    _clients: OrderedDict[str, Client] = field(default_factory=OrderedDict[str, Client], init=False)
    _cleanup_timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def find(self, ctx: RequestContext) -> Client:
        key = client_key(ctx)
        client = self._clients.get(key)
        if client is None:
            self.on_new(ctx)
            if not key:
                return Client(ClientState("", self.approval_mode), scratch=self.scratch(""))
            self._forget_silent()
            if key != STDIO_KEY:
                self._schedule_cleanup(self.idle_seconds)
            principal = None if ctx.http_request is None else principal_of(ctx.http_request)
            owner_name = principal.readable_name or principal.unique_name if principal is not None else ""
            if principal is not None and principal.issuer is None and owner_name == VARIABLE_NAME:
                owner_name = "this token"  # no user has ever seen its name
            state = ClientState(key, self.approval_mode, jobs=JobTable(self.replica), owner_name=owner_name)
            name, version = ctx.connection.client_name, ctx.connection.protocol_version
            client = Client(state, name, version, self.readable(key), self.scratch(key))
            self._clients[key] = client
            if key.startswith(SESSION_KEYS):
                # Register the callback at the first request, because some clients never send
                # `notifications/initialized`.
                ctx.connection.at_end(partial(self._forget, client))
        client.last_seen, client.rights = time.monotonic(), rights_of(ctx)
        self._clients.move_to_end(key)
        return client

    def follow(self, ctx: RequestContext) -> bool:
        """Use a request's connection for notifications until the connection ends. Returns whether it is new."""
        connections = self.find(ctx).connections
        if ctx.connection in connections:
            return False
        connections[ctx.connection] = None
        ctx.connection.at_end(partial(connections.pop, ctx.connection, None))
        return True

    def _forget(self, client: Client) -> None:
        if self._clients.get(client.state.key) is client:
            del self._clients[client.state.key]
            self.on_forget(client.state)

    def known(self, key: str) -> Client | None:
        return self._clients.get(key)

    def all(self) -> Sequence[Client]:
        return tuple(self._clients.values())

    def connections(self) -> Iterator[McpConnection]:
        for client in self.all():
            yield from tuple(client.connections)

    def job_tables(self) -> list[JobTable]:
        return [client.state.jobs for client in self._clients.values() if client.state.jobs is not None]

    def _schedule_cleanup(self, seconds: float) -> None:
        """Schedule a cleanup, which forgets silent clients, and so stops their processes, even if no request comes."""
        if self._cleanup_timer is None:
            self._cleanup_timer = asyncio.get_running_loop().call_later(seconds, self._clean_up)

    def _clean_up(self) -> None:
        self._cleanup_timer = None
        self._forget_silent()
        if self._clients:
            oldest = next(iter(self._clients.values()))
            self._schedule_cleanup(oldest.last_seen + self.idle_seconds - time.monotonic() + CLEANUP_SECONDS)

    def _forget_silent(self) -> None:
        now = time.monotonic()
        for _ in range(len(self._clients)):
            key, oldest = next(iter(self._clients.items()))
            if key == STDIO_KEY or (oldest.last_seen >= now - self.idle_seconds and len(self._clients) < MAX_CLIENTS):
                return
            if oldest.calls:  # a client that waits for the result of a call is not silent
                oldest.last_seen = now
                self._clients.move_to_end(key)
                continue
            self._forget(oldest)


def client_key(ctx: RequestContext) -> str:
    """Return the key of the client state for a request; empty for a client that cannot be told apart from others."""
    request = ctx.http_request
    if request is None:
        return STDIO_KEY
    if (principal := principal_of(request)) is not None:
        return f"{TOKEN_KEY}{principal.unique_name}"
    if ctx.connection.is_modern:
        return ""
    # Do not use `request.url`, which would be built again for each request.
    if request.scope["path"].startswith("/messages"):
        return f"{SESSION_KEYS[1]}{UUID(hex=request.query_params.get('session_id') or '').hex}"
    session = request.headers.get("mcp-session-id")
    return f"{SESSION_KEYS[0]}{session}" if session else ""


@dataclass(frozen=True, slots=True)
class Contexts:
    workspaces: WorkspacePolicy
    limits: Limits
    services: Services
    media: MediaHandling
    # Returns why commands have no `/tmp` of their own, as a sentence; empty if they have one. Tests the sandbox.
    why_no_scratch: Callable[[Sequence[str]], Awaitable[str]]

    async def for_request(self, client: Client, ctx: RequestContext) -> ToolContext:
        """Return the context of a request that uses files. Asks for the client's roots if they matter."""
        folders, rights = client.folders, rights_of(ctx)
        changes, roots = folders.changes, folders.roots
        if roots is None and self.workspaces.asks_for_roots:
            roots = await learn_roots(folders, exchange_of(ctx, client.state.key))
        is_planning = client.state.approval_mode is ApprovalMode.PLAN
        readable = (*client.readable, *client.state.skill_folders)
        reads: ReadLedger | None = None
        if client.state.reads is not None and not ctx.connection.is_modern:
            reads = ctx.connection.state.get("reads") or ctx.connection.state.setdefault("reads", ReadLedger())
        elif client.state.key.startswith(TOKEN_KEY):
            # Without sessions, programs that share a token are told apart by name.
            reads = client.reads.setdefault(ctx.connection.client_name, ReadLedger(is_shared=True))
            if len(client.reads) > MAX_PROGRAMS:
                client.reads.popitem(last=False)
        return ToolContext(
            workspace=await self.workspace(roots, readable, rights, client.scratch[is_planning], ctx.params),
            limits=self.limits,
            client=client.state,
            services=self.services,
            media=self.media,
            progress=no_progress if progress_token(ctx.params) is None else ctx.report_progress,
            rights=rights,
            reads_of_session=reads,
            keeps_folders=lambda: (
                not self.workspaces.asks_for_roots or folders.changes == changes or folders.roots == roots
            ),
        )

    async def workspace(
        self,
        roots: ClientRoots | None,
        readable: tuple[str, ...],
        rights: Rights,
        scratch: Scratch | str,
        params: Json | None,
    ) -> Workspace:
        """Return the workspace of a request with these parameters. The workspace has the same `/tmp` as commands."""
        workspace = self.workspaces.workspace(roots, readable, rights, scratch)
        if workspace.scratch is None:
            return workspace
        # Whether commands have a `/tmp` of their own is known only after a test, which takes time and starts processes.
        # Only a request that may name a path in `/tmp`, in its URI or an argument, is worth the test.
        fields = as_mapping(params)
        values = [fields.get("uri"), *as_mapping(fields.get("arguments")).values()]
        texts = chain.from_iterable(as_list(value) or [value] for value in values)
        if not any(isinstance(text, str) and text.find(SCRATCH_NAME, 0, MAX_PATH_CHARS) >= 0 for text in texts):
            return workspace
        reason = await self.why_no_scratch(workspace.roots)
        return self.workspaces.workspace(roots, readable, rights, reason) if reason else workspace

    async def folders(self, client: Client | None, exchange: Exchange | None) -> tuple[str, ...]:
        """Return a client's workspace folders for upstream programs, which start in the first one."""
        if client is None or exchange is None:
            return tuple(self.workspaces.folders(ClientRoots(), ALL_RIGHTS)[0])
        roots = client.folders.roots
        if roots is None and self.workspaces.asks_for_roots:
            roots = await learn_roots(client.folders, exchange, PLACE_WAIT_SECONDS)
        return tuple(self.workspaces.folders(roots or ClientRoots(), exchange.rights)[0])

    def for_upstream_call(self, client: Client, exchange: Exchange) -> CallContext:
        """Return the context of a call to an upstream tool, without waiting for roots: the call uses no files here."""
        return CallContext(
            workspace=self.workspaces.workspace(client.folders.roots, client.readable, exchange.rights),
            limits=self.limits,
            client=client.state,
            services=self.services,
            media=self.media,
            exchange=exchange,
            client_name=client.name,
            rights=exchange.rights,
        )
