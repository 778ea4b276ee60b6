"""One upstream, owned by one task, which connects, reads the lists, watches for changes, and reconnects after a loss.

This task opens and closes connections; other tasks send requests through them. While the upstream is down, a request
fails at once or, if the server has lost the session, after an attempt to reconnect. The error gives the upstream's
state, or asks for a login.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, cast

import anyio

from server.clients.client_request import Exchange
from server.protocol.json_rpc import Json
from server.settings import UpstreamSettings
from server.upstreams.session.list_reader import (
    KINDS,
    SKILLS,
    TOOLS,
    IsThisServerError,
    Lister,
    Offer,
    OfferedKind,
    omission_messages,
    read_lists,
)
from server.upstreams.session.protocol_era import Era, IncompatibleError, era_choice_for
from server.upstreams.session.upstream_questions import SessionOptions
from server.upstreams.session.upstream_session import ChangeStream, UpstreamSession, open_session
from server.upstreams.wire.json_rpc_channel import (
    Challenge,
    ConnectionLostError,
    NeedsAuthenticationError,
    Observer,
    ProgramEnd,
    RelayError,
    UnreachableError,
    UnusableAnswerError,
    UpstreamError,
    why_failed,
)
from server.upstreams.wire.upstream_transports import Transport, transports_to
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.permissions.permission_policy import Rights
from tools.permissions.tool_names import BETWEEN

if TYPE_CHECKING:
    from server.upstreams.login.upstream_login import Login
    from tools.shell.process_spec import ProcessStarter

logger = logging.getLogger(__name__)

# Initial and maximum pause before retrying a lost or failed connection; doubles after each attempt
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0

CRASH_SECONDS = 10.0  # a connection that is lost this soon after the attempt to open it counts as a crash
MAX_CRASHES = 3  # after this many crashes in a row, the pauses get longer and longer
MAX_WARNINGS = 20  # maximum number of warnings per upstream until a connection lasts longer than `CRASH_SECONDS`

# Initial and maximum pause between restarts for newer lists; doubles each time
FIRST_RENEWAL_SECONDS, LAST_RENEWAL_SECONDS = 60.0, 3_600.0

RENEWED = "it is started again, because a newer process lists other tools"

MAX_LIST_AGE_SECONDS = 60.0  # the maximum age of a list, if the upstream does not announce changes
NEW_SESSION_LIST_AGE_SECONDS = 5.0  # the maximum age of a list when a client gets a new session

STORE_SECONDS = 5.0  # time limit for storing the lists for the next run

# How long list changes are collected before lists are read: at first, and at most; doubles while changes continue
SETTLE_SECONDS, LONGEST_SETTLE_SECONDS = 0.05, 2.0

SessionKey = tuple[str, int, str]  # identifies a client with one connection and one set of capabilities


class UpstreamState(StrEnum):
    """The state of an upstream, as shown to people."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    CRASHING = "crashing again and again"
    NEEDS_AUTHENTICATION = "needs authentication"
    LEFT_OUT = "left out"


WAYS_TO_AUTHENTICATE = 'Put a token into the headers of its entry (for example "Authorization": "Bearer ${TOKEN}").'
NO_WORKSPACE = "no workspace is known for it. Set one with --workspace or workspace.roots, or give its entry a cwd"
LOGIN_TOOL = "login"  # published for a server that lists nothing before a login
LOGIN_CHECK_SECONDS = 1.0  # how often to check whether somebody has logged in or out at a terminal


@dataclass(slots=True)
class UpstreamStatus:
    state: UpstreamState = UpstreamState.WAITING
    problem: str = ""  # why the upstream is not connected, in this server's own words
    last_error: str = ""  # the latest problem, even after the upstream has reconnected
    connect_ms: float | None = None  # how long the latest connection took to initialize
    list_ms: float | None = None  # how long listing took on that connection
    since: float = field(default_factory=time.time)  # when the state last changed, in seconds since the epoch
    attempts: int = 0  # attempts to connect since the last connection
    program_end: ProgramEnd | None = None  # how the upstream's program last exited, if it has exited
    losses: int = 0  # number of consecutive connections that were lost soon after opening
    challenge: Challenge | None = None  # the server's latest demand for a login

    def change(self, state: UpstreamState, problem: str = "") -> None:
        if (state, problem) != (self.state, self.problem):
            self.since = time.time()
        self.state, self.problem = state, problem
        if problem:
            self.last_error = problem


_FAILURES: tuple[tuple[type[Exception], UpstreamState, str], ...] = (
    (IsThisServerError, UpstreamState.LEFT_OUT, "it is this server itself"),
    (FileNotFoundError, UpstreamState.FAILED, "its command was not found"),
    (NotADirectoryError, UpstreamState.FAILED, "its working folder was not found"),
    (PermissionError, UpstreamState.FAILED, "its command is not executable"),
    (ConnectionLostError, UpstreamState.FAILED, "it ended or did not answer during the connection attempt"),
    (TimeoutError, UpstreamState.FAILED, "it did not list its tools in time"),
    (IncompatibleError, UpstreamState.FAILED, "it has no protocol revision in common with this server"),
)
"""Why a connection failed, in this server's words, because exception messages may contain secrets."""


def failure_of(error: BaseException) -> tuple[UpstreamState, str]:
    """Return the state of an upstream after a failed connection, and why the connection failed."""
    error = _cause(error)
    if isinstance(error, UnreachableError):
        return UpstreamState.FAILED, f"it could not be reached: {error}"
    for kind, state, reason in _FAILURES:
        if isinstance(error, kind):
            return state, reason
    challenge = challenge_of(error)
    if challenge is not None and (challenge.could_be_met or isinstance(error, NeedsAuthenticationError)):
        return UpstreamState.NEEDS_AUTHENTICATION, challenge.description
    if isinstance(error, RelayError):
        return UpstreamState.FAILED, why_failed(error)
    # In some subclasses of `OSError`, such as TLS errors, `errno` is not the operating system's number.
    if type(error) in (OSError, BlockingIOError) and isinstance(error, OSError) and error.errno:
        return UpstreamState.FAILED, f"the connection failed: {os.strerror(error.errno)}"
    logger.warning("a connection to an upstream failed (%s)", type(error).__name__)
    return UpstreamState.FAILED, "the connection failed; the log has the error"


def challenge_of(error: BaseException) -> Challenge | None:
    """Return the server's login challenge, if that is why a connection failed."""
    cause = _cause(error)
    return cause.challenge if isinstance(cause, NeedsAuthenticationError | UnusableAnswerError) else None


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


class LoginNeededError(ToolError):
    """A server requires a login; the message says how to log in."""

    def __init__(self, login: Login, reason: str = "needs authentication") -> None:
        if login.challenge is not None:
            reason += f" (HTTP status {login.challenge.status})"
        message = (
            f"The server {login.alias} {reason}. A person must log in: ask the user to run `{login.command}` in a "
            "terminal, and then try the call again; or continue without it."
        )
        if login.challenge is None or not login.challenge.schemes:
            message += f" If it needs a token instead, the operator can set one. {WAYS_TO_AUTHENTICATE}"
        super().__init__(ToolErrorType.UPSTREAM_UNAVAILABLE, message)
        self.login = login
        # The `Authorization` header that was not sufficient, if any. Without a challenge, the latest header is from a
        # login that was completed after the server refused the request.
        self.rejected_header = None if login.challenge is None else login.latest_header


# Returns the workspace folders of a client or, for `None`, those that apply to all clients
FoldersOf = Callable[[Exchange | None], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Audience:
    """The clients of this server."""

    capabilities: Json  # the capabilities to declare to upstreams
    client: Exchange | None  # the client, if there is only one and it can be reached at any time
    is_one: bool
    # whether the client uses the 2026-07-28 revision; also true if there is no client, or if there may be several
    is_modern: bool
    question_seconds: float
    folders_of: FoldersOf
    observer_of: Callable[[str, UpstreamSettings], Observer] | None = None
    """Creates the observer for a session's requests, from the upstream's alias and entry."""
    why_denied: Callable[[str, Rights], str] = lambda _alias, _rights: ""
    """Returns why a server is hidden from clients with these rights; empty if it is visible."""


class Upstream:
    """One entry of `mcpServers`.

    Args:
        on_list_changed: Called with the kind of a list that may have changed, and whether clients should be notified.
        on_resource_updated: Called with the URI of a changed resource, and the key of the client's own session that
            reported the change; `None` if the listing session reported it.
        prepare_tools: Does the expensive processing of a list of tools before the list is used.
        store: Stores the upstream's lists for the next run, with the protocol revision in which they were sent.
    """

    def __init__(
        self,
        alias: str,
        entry: UpstreamSettings,
        on_list_changed: Callable[[Upstream, OfferedKind, bool], None],
        on_resource_updated: Callable[[Upstream, str, SessionKey | None], None],
        prepare_tools: Callable[[str, list[Json]], Awaitable[None]] | None = None,
        store: Callable[[Upstream, str], Awaitable[None]] | None = None,
        login_of: Callable[[str], Login | None] = lambda _: None,
        by_proxy: bool = True,
    ) -> None:
        self.alias = alias
        self.log = logging.LoggerAdapter(logger, {"upstream": alias})
        self.entry = entry
        self.reach = entry.reach_digest()  # distinguishes this entry from a later one with the same alias
        self.status = UpstreamStatus()
        self.login_of = login_of
        self.by_proxy = by_proxy
        self.login = login_of("")  # the login of this machine's user, used for listing
        self.offer = Offer()
        self.era: Era | None = None  # the era of the latest connection
        self.known = anyio.Event()
        """Set once the upstream's lists are known, or its first connection attempt has failed."""
        self.tried = anyio.Event()  # like `known`, but set as soon as the tools are known
        # Set while the upstream is connected; also set when it is no longer used, so that waiting tasks continue
        self.connected = anyio.Event()
        self.transport: Transport | None = None
        self.session: UpstreamSession | None = None
        self.change_stream: ChangeStream | None = None
        limit = entry.max_concurrent
        self.concurrency_limit = None if limit is None else anyio.CapacityLimiter(limit)
        """Limits the client requests in progress; `None` without a limit."""
        self.rate: TokenBucket | None = None  # limits calls per minute
        if entry.calls_per_minute is not None:
            from server.clients.token_bucket import TokenBucket  # noqa: PLC0415 - needed only with such a limit

            self.rate = TokenBucket(entry.calls_per_minute)
        self._outcome = anyio.Event()  # set after the next connection attempt, whatever the result
        self.is_login_offered = False  # whether the only tool is the login tool
        self.is_awaited = True  # whether the first list waits for this upstream
        # Whether a coretools-mcp client got a list without this upstream's tools, because they were from the last run.
        self.is_withheld = False
        self._prepare_tools = prepare_tools
        self._store = store
        self._on_list_changed = on_list_changed
        self._on_resource_updated = on_resource_updated
        self._retry_requested = anyio.Event()
        self._no_retry_before = 0.0
        self._stale: dict[str, bool] = {}  # keyed by capability: whether the upstream announced a change
        self._change_noted = anyio.Event()
        # Keyed by capability: when its lists were last read, or scheduled to be read
        self._last_reads: dict[str, float] = {}
        self._lists_reread = anyio.Event()  # set after the next read
        self._warnings = set[str]()
        # True from the loss of the latest session by the server until the next attempt to connect has ended
        self._was_forgotten = False
        self._is_renewed = False  # whether this server itself has ended the latest session, see `renew`
        self._no_renewal_before, self._renewal_pause = 0.0, FIRST_RENEWAL_SECONDS

    async def run(self, starter: ProcessStarter, audience: Audience) -> None:
        pause = FIRST_RETRY_SECONDS
        transports = transports_to(
            self.alias, self.entry, starter, self._program_ended, self.login, by_proxy=self.by_proxy
        )
        while True:
            self.status.attempts += 1
            # Replace the event before the attempt, so that a request that arrives while a loss is being handled still
            # shortens the pause.
            self._retry_requested = anyio.Event()
            began = anyio.current_time()
            first_failure: UpstreamStatus | None = None
            for transport in transports:
                seconds = self.entry.connect_timeout / 1000 / len(transports)
                is_established = await self._connect(transport, seconds, audience)
                if not is_established and transport is not transports[-1]:
                    first_failure = replace(self.status)
                    problem = first_failure.problem
                    self.log.info("upstream %s cannot be used over %s: %s", self.alias, transport.name, problem)
                    continue
                if not is_established and first_failure is not None:
                    self._add_first_failure(first_failure, transport)
                is_renewed, self._is_renewed = self._is_renewed, False
                if not is_renewed:
                    self.warn_once("is not available", self.status.problem)
                if is_established:
                    transports, pause = [transport], FIRST_RETRY_SECONDS
                    is_refused = self.status.state is UpstreamState.NEEDS_AUTHENTICATION
                    is_crash = anyio.current_time() - began < CRASH_SECONDS and not (is_refused or is_renewed)
                    losses = self.status.losses = self.status.losses + 1 if is_crash else 0
                    if losses >= MAX_CRASHES:
                        self.status.change(
                            UpstreamState.CRASHING,
                            f"its connection was lost {losses} times, each time within {CRASH_SECONDS:.0f} s of the "
                            "attempt to connect",
                        )
                    break
            if self.wants_login:
                await self._offer_login()
            else:
                self._withdraw_stored()
            self.settle()
            self._signal_outcome()
            if self.status.state in (UpstreamState.CRASHING, UpstreamState.NEEDS_AUTHENTICATION):
                pause = LAST_RETRY_SECONDS
            # The next attempt starts after the pause, when a request needs the upstream, or when somebody has logged in
            # to it. If the upstream keeps failing, a minimum pause remains, so that it is not restarted for each call.
            minimum_pause = FIRST_RETRY_SECONDS if self.status.attempts > 1 else 0.0
            if self.status.losses >= MAX_CRASHES:
                minimum_pause = FIRST_RETRY_SECONDS * 2 ** min(self.status.losses - MAX_CRASHES, 10)
            minimum_pause = min(minimum_pause, LAST_RETRY_SECONDS)
            self._no_retry_before = time.monotonic() + minimum_pause
            with anyio.move_on_after(None if self.status.state is UpstreamState.LEFT_OUT else pause):
                await anyio.sleep(minimum_pause)
                while not self._retry_requested.is_set():
                    with anyio.move_on_after(LOGIN_CHECK_SECONDS if self.wants_login else None):
                        await self._retry_requested.wait()
                    if self.wants_login and self.login is not None and await self.login.has_changed():
                        break
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    @property
    def wants_login(self) -> bool:
        """Whether a person's login is all that the upstream needs to connect."""
        is_refused, challenge = self.status.state is UpstreamState.NEEDS_AUTHENTICATION, self.status.challenge
        login = self.login if is_refused else None
        if login is None or challenge is None or not login.needs_person:
            return False
        return challenge.could_be_met and (not challenge.wants_scopes or login.wants_more(challenge))

    def _program_ended(self, end: ProgramEnd) -> None:
        self.status.program_end = end

    def _add_first_failure(self, first: UpstreamStatus, transport: Transport) -> None:
        """After `transport` has failed, report the failure of the first transport too, or only that if it says more."""
        status = self.status
        could_be_met = status.challenge is None or status.challenge.could_be_met
        if status.state is not UpstreamState.FAILED and could_be_met:
            return
        if first.state is not UpstreamState.FAILED:  # a login is needed, or the server is this one
            status.challenge = first.challenge
            if self.login is not None:
                self.login.challenge = first.challenge
            status.change(first.state, first.problem)
        elif first.problem != status.problem:
            status.change(status.state, f"{first.problem}; over {transport.name.upper()}, {status.problem}")

    async def _connect(self, transport: Transport, seconds: float, audience: Audience) -> bool:
        """Run one connection until it ends. Returns whether it was established."""
        status = self.status
        status.change(UpstreamState.CONNECTING, status.problem)
        is_established = is_forgotten = False
        refusal: Challenge | None = None
        options = SessionOptions(
            self.alias,
            era_choice_for(self.entry.protocol, client_is_modern=audience.is_modern),
            audience.capabilities,
            audience.question_seconds,
            self.list_changed,
            self.resource_updated,
            is_shared=not audience.is_one,
            client=audience.client,
            observer=audience.observer_of and audience.observer_of(self.alias, self.entry),
            why_denied=audience.why_denied,
        )
        began = time.perf_counter()
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
                if transport.name == "stdio":
                    options = replace(options, folders=await audience.folders_of(audience.client))
                    if not (options.folders or self.entry.cwd):
                        self.warn_once("starts in an empty folder", NO_WORKSPACE)
                async with open_session(transport, options) as session:
                    scope.deadline = float("inf")
                    status.connect_ms = round((time.perf_counter() - began) * 1000, 1)
                    self.transport, self.session, self.era = transport, session, session.era
                    self.change_stream = ChangeStream(session) if session.era.is_modern else None
                    await self._read_all_lists(session)
                    is_established = True
                    self.connected.set()
                    try:
                        async with anyio.create_task_group() as group:
                            group.start_soon(self._reread_lists, session)
                            group.start_soon(self._end_after_logout, session)
                            if self.change_stream is not None:
                                group.start_soon(self.change_stream.run)
                            await session.lost.wait()
                            self.connected = anyio.Event()
                            group.cancel_scope.cancel()
                        refusal, is_forgotten = session.refusal, session.is_forgotten
                    finally:
                        if self.connected.is_set():
                            self.connected = anyio.Event()
                    if time.perf_counter() > began + CRASH_SECONDS:
                        self._warnings.clear()
            state, reason = UpstreamState.FAILED, RENEWED if self._is_renewed else "it closed the connection"
            if refusal is not None:
                status.challenge = refusal
                state, reason = failure_of(NeedsAuthenticationError(refusal))
            elif not is_established:
                reason = "it did not connect in time"
        except Exception as error:  # noqa: BLE001 - the task boundary: one bad upstream never takes others down
            state, reason = failure_of(error)
            status.challenge = challenge_of(error)
        finally:
            self.session, self.change_stream, self._was_forgotten = None, None, is_forgotten
        status.change(state, reason)
        return is_established

    async def _end_after_logout(self, session: UpstreamSession) -> None:
        """Connect again once somebody has logged out, so that the state is true even without requests."""
        while self.login is not None and self.login.needs_person:
            await anyio.sleep(LOGIN_CHECK_SECONDS)
            if await self.login.has_ended():
                session.lost.set()
                return

    async def _read_all_lists(self, session: UpstreamSession) -> None:
        """Read the lists. The upstream is available once its tools are known, even before the others are read."""
        began = time.perf_counter()
        kinds_read: set[OfferedKind] = set()

        async def use_list(kind: OfferedKind, items: list[Json]) -> None:
            kinds_read.add(kind)
            await self._use_list(kind, items, is_announced=self.offer.items(kind) != items)
            if kind is TOOLS:
                self._set_connected()

        self._last_reads = {kind.capability: anyio.current_time() for kind in KINDS}
        await read_lists(session, KINDS, self.entry.list_timeout / 1000, use_list, self.offer)
        for kind in KINDS:
            if kind not in kinds_read:
                await self._use_list(kind, [], is_announced=bool(self.offer.items(kind)))
        self.status.list_ms = round((time.perf_counter() - began) * 1000, 1)
        self._set_connected()
        self.settle()
        self.log.info("upstream %s is connected over %s", self.alias, self.transport.name if self.transport else "")

    async def _use_list(
        self, kind: OfferedKind, items: list[Json], *, is_announced: bool, is_stored: bool = False
    ) -> None:
        if kind is TOOLS and self._prepare_tools is not None:
            await self._prepare_tools(self.alias, items)
        self.offer.lists[kind.field] = items
        self.is_login_offered = self.is_login_offered and is_stored
        if is_stored:
            self.offer.stored.add(kind.field)
        else:
            self.offer.stored.discard(kind.field)
        if kind is TOOLS and self.is_withheld:
            is_announced, self.is_withheld = True, False
        self._on_list_changed(self, kind, is_announced)

    async def offer_stored(self, last_run: Lister) -> None:
        """Offer the lists from the last run until the upstream sends current ones or cannot be reached."""

        async def use_list(kind: OfferedKind, items: list[Json]) -> None:
            await self._use_list(kind, items, is_announced=bool(items), is_stored=True)

        await read_lists(last_run, KINDS, self.entry.list_timeout / 1000, use_list, self.offer)

    async def _offer_login(self) -> None:
        """Offer a login tool if no tools are known; tools from the last run stay."""
        if not self.offer.items(TOOLS):
            description = (
                f"The MCP server {self.alias} needs a login before it shows its tools. Call this to have the user "
                "log in; the server's tools are listed after that."
            )
            name = LOGIN_TOOL if self.entry.prefix == "alias" else f"{self.alias}{BETWEEN}{LOGIN_TOOL}"
            schema: Json = {"type": "object", "properties": {}, "additionalProperties": False}
            tool: Json = {"name": name, "title": f"Log in to {self.alias}", "description": description}
            self.is_login_offered = True
            await self._use_list(TOOLS, [{**tool, "inputSchema": schema}], is_announced=True, is_stored=True)

    def _withdraw_stored(self) -> None:
        for kind in KINDS:
            if kind.field in self.offer.stored:
                self.offer.stored.discard(kind.field)
                had_any = bool(self.offer.lists.pop(kind.field, None))
                self._on_list_changed(self, kind, had_any)

    def _set_connected(self) -> None:
        self.status.change(UpstreamState.CONNECTED)
        self.status.attempts, self.status.challenge = 0, None
        self._was_forgotten = False
        self._signal_outcome()
        self.tried.set()

    def _signal_outcome(self) -> None:
        self._outcome.set()
        self._outcome = anyio.Event()

    def settle(self) -> None:
        """Release everything that waits for this upstream."""
        self.known.set()
        self.tried.set()

    async def _reread_lists(self, session: UpstreamSession) -> None:
        """Read lists again whenever a read has been scheduled, and store the lists for the next run."""
        stale: dict[str, bool] = {}

        async def use_list(kind: OfferedKind, items: list[Json]) -> None:
            # An announcement is passed on even if the list is the same as before, because the content that an item
            # refers to may have changed.
            if stale[kind.capability] or self.offer.items(kind) != items:
                await self._use_list(kind, items, is_announced=True)

        pause, last_read, read_seconds = SETTLE_SECONDS, -LONGEST_SETTLE_SECONDS, 0.0
        while True:
            if self._store is not None:
                with anyio.move_on_after(STORE_SECONDS):  # a disk may hang
                    await self._store(self, session.era.version)
            await self._change_noted.wait()
            is_rested = anyio.current_time() > last_read + LONGEST_SETTLE_SECONDS
            pause = SETTLE_SECONDS if is_rested else min(pause * 2, LONGEST_SETTLE_SECONDS)
            # Combine a burst of changes into one read, and wait at least as long as the last read took, so that reads
            # take at most half the time.
            await anyio.sleep(max(pause, last_read + read_seconds - anyio.current_time()))
            self._change_noted = anyio.Event()
            stale, self._stale = self._stale, {}
            kinds = tuple(kind for kind in KINDS if kind.capability in stale)
            started_at = anyio.current_time()
            try:
                await read_lists(session, kinds, self.entry.list_timeout / 1000, use_list, self.offer)
            except (UpstreamError, UnusableAnswerError, TimeoutError):
                self.log.warning("upstream %s did not send its changed lists", self.alias)
            except ConnectionLostError:
                return
            last_read = anyio.current_time()
            read_seconds = last_read - started_at
            self._last_reads |= {kind.capability: last_read for kind in kinds}
            self._lists_reread.set()
            self._lists_reread = anyio.Event()

    def list_changed(self, kind: str, is_announced: bool) -> None:
        """Schedule a list to be read again; `is_announced` means that the upstream has announced a change."""
        self._stale[kind] = self._stale.get(kind, False) or is_announced
        self._change_noted.set()

    def session_began(self) -> None:
        """Schedule a read of each list that is not recent, because the upstream may have been restarted meanwhile."""
        for capability in sorted(self._last_reads):
            self._schedule_read(capability, NEW_SESSION_LIST_AGE_SECONDS)

    def schedule_read_for_client(self, capability: str) -> anyio.Event | None:
        """Schedule a read of a list that a client requests, if the list is old and its changes may go unannounced.

        An HTTP server may have no stream to announce changes, even if it declares that it announces them. The returned
        event is set after the read.
        """
        if self.era is None or self.transport is None:
            return None
        can_announce = self.era.is_modern or self.transport.name != "http"
        if can_announce and self.era.announces(capability, "listChanged"):
            return None
        return self._lists_reread if self._schedule_read(capability, MAX_LIST_AGE_SECONDS) else None

    def _schedule_read(self, capability: str, min_age: float) -> bool:
        now = anyio.current_time()
        if self.live_session is None or now < self._last_reads.get(capability, now) + min_age:
            return False
        self._last_reads[capability] = now
        self.list_changed(capability, False)
        return True

    def resource_updated(self, uri: str, session_key: SessionKey | None = None) -> None:
        self._on_resource_updated(self, uri, session_key)

    @property
    def announces_resources(self) -> bool:
        return self.session is not None and self.session.era.announces("resources")

    def report(self) -> Json:
        status, offer = self.status, self.offer
        era = None if self.session is None else self.session.era
        stored = () if self.is_login_offered else offer.stored
        facts: Json = {
            "alias": self.alias,
            "state": status.state.value,
            "since": round(status.since, 3),
            "problem": status.problem or None,
            "lastError": None if status.problem else status.last_error or None,
            "connectMs": status.connect_ms,
            "listMs": status.list_ms,
            "attempts": status.attempts or None,
            "transport": None if self.transport is None else self.transport.name,
            "protocolVersion": None if era is None else era.version,
            "serverInfo": None if era is None else era.server_info,
            "instructions": None if era is None else era.instructions or None,
            **{kind.field: len(offer.items(kind)) for kind in KINDS},
            "login": self.login.command if self.wants_login and self.login is not None else None,
            "fromLastRun": [kind.field for kind in KINDS if kind.field in stored] if stored else None,
            "tooLong": [kind.field for kind in (*KINDS, SKILLS) if kind.field in offer.truncated] or None,
            "leftOut": {field: omission_messages(texts) for field, texts in offer.omissions.items() if texts} or None,
        }
        return {name: fact for name, fact in facts.items() if fact is not None}

    def warn_once(self, failure: str, reason: str) -> None:
        """Log a failure: as a warning, or at a lower level if it repeats or `MAX_WARNINGS` have been logged."""
        message = f"{failure}: {reason}"
        is_new = message not in self._warnings and len(self._warnings) < MAX_WARNINGS
        if is_new:
            self._warnings.add(message)
        self.log.log(logging.WARNING if is_new else logging.DEBUG, "upstream %s %s", self.alias, message)

    @property
    def live_session(self) -> UpstreamSession | None:
        """The listing session while it is connected, otherwise `None`."""
        is_connected = self.status.state is UpstreamState.CONNECTED
        return self.session if is_connected and self.session is not None and not self.session.lost.is_set() else None

    @property
    def is_renewing(self) -> bool:
        """Whether a new session is about to replace one that the server has lost."""
        return self._was_forgotten or (self.session is not None and self.session.is_forgotten)

    def retry_now(self) -> None:
        """Connect again, because a request needs the upstream: at once, or after the minimum pause if attempts failed.

        Does nothing if the upstream is this server itself.
        """
        if self.status.state is not UpstreamState.LEFT_OUT:
            self._retry_requested.set()

    def login_needed(self) -> LoginNeededError | None:
        """Return the error that asks for the login used for listing; `None` if this upstream has no logins."""
        return None if self.login is None else LoginNeededError(self.login)

    def renew(self, *, is_announced: bool) -> None:
        """Start the program that lists for all clients again, because a newer process of it lists other tools.

        The tools may depend on the client instead, so this happens less and less often.
        """
        session = self.live_session
        if session is not None and anyio.current_time() >= self._no_renewal_before:
            self._no_renewal_before = anyio.current_time() + self._renewal_pause
            self._renewal_pause = min(self._renewal_pause * 2, LAST_RENEWAL_SECONDS)
            self.log.info("upstream %s: %s", self.alias, RENEWED)
            self._is_renewed = session.is_forgotten = True
            session.lost.set()
            self.retry_now()
            if is_announced:  # the announcement may be lost with the session
                self.list_changed(TOOLS.capability, True)

    async def begin_session(self) -> None:
        """Replace the listing session if the server, which has just lost another session, has lost it too."""
        if (listing := self.live_session) is not None:
            await listing.flush()
        await self.reconnect()

    async def reconnect(self) -> None:
        """Wait until the upstream is connected or has failed again, but no longer than one attempt may take."""
        is_pausing = self.status.state not in (UpstreamState.CONNECTED, UpstreamState.CONNECTING)
        self.retry_now()
        with anyio.move_on_after(self.entry.connect_timeout / 1000):
            for _ in range(1 if is_pausing else 2):  # an attempt that was already running does not count
                if self.live_session is not None:
                    return
                await self._outcome.wait()

    def unavailable(self) -> ToolError:
        """Return the error for a disconnected upstream, and trigger a new attempt unless a person must log in first."""
        if self.wants_login and (login_error := self.login_needed()) is not None:
            return login_error
        self.retry_now()
        status = self.status
        reason = f"state {status.state}: {status.problem}" if status.problem else f"state {status.state}"
        if status.state is UpstreamState.CONNECTED:
            reason = "its connection was just lost"  # the state will be updated in a moment
        remaining_seconds = math.ceil(self._no_retry_before - time.monotonic())
        retry_time = "automatically; try the call again later"
        if remaining_seconds > 0:
            retry_time = f"in {remaining_seconds} s; try the call again after that"
        advice = f"The connection will be retried {retry_time}; or continue without this server."
        if status.state is UpstreamState.NEEDS_AUTHENTICATION:
            advice = f"The operator must set credentials. {WAYS_TO_AUTHENTICATE}"
        elif status.state is UpstreamState.LEFT_OUT:
            advice = "Use this server's own tool names instead."
        return ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The server {self.alias} is unavailable ({reason}). {advice}",
        )
