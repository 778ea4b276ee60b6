"""One upstream, owned by one task, which connects, reads the lists, watches for changes, and reconnects after a loss.

This task opens and closes connections; other tasks send requests through them. While the upstream is down, these tasks
get an immediate error with its state.
"""

from __future__ import annotations

import logging
import math
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
    TOOLS,
    IsThisServerError,
    Lister,
    Offer,
    OfferedKind,
    read_lists,
    told,
)
from server.upstreams.session.protocol_era import Era, IncompatibleError, wanted_for
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
from tools.permissions.tool_names import BETWEEN

if TYPE_CHECKING:
    from server.upstreams.login.upstream_login import Login
    from tools.shell.process_spec import ProcessStarter

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0
"""The first and last pause before a lost or failed connection is retried; pauses double in between."""

SOON_SECONDS = 10.0  # a connection that is lost this soon after its start counts as a crash
CRASHES = 3  # after this many crashes in a row, the pauses get longer and longer
MAX_WARNINGS = 20  # warnings per upstream, until a connection lasts longer than `SOON_SECONDS`

LOOK_SECONDS = 60.0  # the maximum age of a list, if the upstream does not announce changes
LEAST_LOOK_SECONDS = 5.0  # the maximum age of a list when a client gets a new session

STORE_SECONDS = 5.0  # time limit for storing the lists for the next run

SETTLE_SECONDS = 0.05
LONGEST_SETTLE_SECONDS = 2.0
"""List changes are collected for `SETTLE_SECONDS` before lists are read. While changes continue, this time doubles, up
to `LONGEST_SETTLE_SECONDS`.
"""

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


WAYS_TO_AUTHENTICATE = 'Put a token into its headers (for example "Authorization": "Bearer ${TOKEN}").'
NO_WORKSPACE = "no workspace is known for it. Set one with --workspace or workspace.roots, or give its entry a cwd"
LOGIN_TOOL = "login"  # published for a server that lists nothing before a login
LOGIN_LOOK_SECONDS = 1.0  # how often to check whether somebody has logged in with `coretools-mcp login`


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
    """Return the upstream's state and the reason after a failed connection."""
    error = _cause(error)
    if isinstance(error, UnreachableError):
        return UpstreamState.FAILED, f"it could not be reached: {error}"
    for kind, state, why in _FAILURES:
        if isinstance(error, kind):
            return state, why
    challenge = challenge_of(error)
    if challenge is not None and (challenge.could_be_met or isinstance(error, NeedsAuthenticationError)):
        return UpstreamState.NEEDS_AUTHENTICATION, challenge.told
    if isinstance(error, RelayError):
        return UpstreamState.FAILED, why_failed(error)
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
    """A server needs a login first; the message says how."""

    def __init__(self, login: Login, why: str = "needs authentication") -> None:
        if login.challenge is not None:
            why += f" (HTTP status {login.challenge.status})"
        told = (
            f"The server {login.alias} {why}. A person must log in: ask the user to run `{login.command}` in a "
            "terminal, and then try the call again; or continue without it."
        )
        if login.challenge is None or not login.challenge.schemes:
            told += f" If it needs a token instead, the operator can set one. {WAYS_TO_AUTHENTICATE}"
        super().__init__(ToolErrorType.UPSTREAM_UNAVAILABLE, told)
        self.login = login
        self.had = login.latest_header  # the `Authorization` header that was not sufficient, if any


FoldersOf = Callable[[Exchange | None], Awaitable[tuple[str, ...]]]
"""Returns the workspace folders of a client or, for `None`, those that apply to all clients. If there are none, a
program without a `cwd` starts in an empty folder.
"""


async def _no_folders(_: Exchange | None) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Audience:
    """The clients of this server."""

    announced: Json  # the capabilities to declare to upstreams
    client: Exchange | None  # the client, if there is only one and it can be reached at any time
    is_one: bool
    is_modern: bool  # whether the client uses the 2026-07-28 revision; if there are several, whether most of them do
    question_seconds: float
    observer_of: Callable[[str, UpstreamSettings], Observer] | None = None
    """Creates the observer for a session's requests, from the upstream's alias and entry."""
    folders_of: FoldersOf = _no_folders


class Upstream:
    """One entry of `mcpServers`.

    Args:
        alias: The entry's alias, which published names start with unless the entry's `prefix` is none.
        entry: How to reach the upstream, and what to publish.
        changed: Called with the kind of a list that may have changed, and whether clients should be notified.
        resource_updated: Called with the URI of a changed resource, and the key of the client's own session that
            reported the change; `None` if the listing session reported it.
        prepare: Does expensive work before a list is used.
        store: Stores the upstream's lists for the next run, with the protocol revision in which they were sent.
        login_of: Returns the login of a principal, if the server has logins.
        by_proxy: Whether to use the proxy from the environment.
    """

    def __init__(
        self,
        alias: str,
        entry: UpstreamSettings,
        changed: Callable[[Upstream, OfferedKind, bool], None],
        resource_updated: Callable[[Upstream, str, SessionKey | None], None],
        prepare: Callable[[Upstream, OfferedKind, list[Json]], Awaitable[None]] | None = None,
        store: Callable[[Upstream, str], Awaitable[None]] | None = None,
        login_of: Callable[[str], Login | None] = lambda _: None,
        by_proxy: bool = True,
    ) -> None:
        self.alias = alias
        self.log = logging.LoggerAdapter(logger, {"upstream": alias})
        self.entry = entry
        self.reach = entry.reach_digest()  # tells this entry from a later one with the same alias
        self.status = UpstreamStatus()
        self.login_of = login_of
        self.by_proxy = by_proxy
        self.login = login_of("")  # the login of this machine's user, used for listing
        self.offer = Offer()
        self.era: Era | None = None  # the era of the latest connection
        self.known = anyio.Event()
        """Set once the upstream's lists are known, or it is clear that the upstream cannot be reached."""
        self.tried = anyio.Event()  # like `known`, but set as soon as the tools are known
        self.connected = anyio.Event()  # set while the upstream is connected, and once it is no longer used
        self.transport: Transport | None = None
        self.session: UpstreamSession | None = None
        self.change_stream: ChangeStream | None = None
        most = entry.max_concurrent
        self.concurrency_limit = None if most is None else anyio.CapacityLimiter(most)
        """Limits the client requests in progress; `None` without a limit."""
        self.rate: Rate | None = None  # limits calls per minute
        if entry.calls_per_minute is not None:
            from server.clients.rate import Rate  # noqa: PLC0415 - needed only with such a limit

            self.rate = Rate(entry.calls_per_minute)
        self._outcome = anyio.Event()  # set after the next connection attempt, whatever the result
        self.is_login_offered = False  # whether the only tool is the login tool
        self.is_awaited = True  # whether the first list waits for this upstream
        # Whether a coretools-mcp client got a list without this upstream's tools, because they were from the last run.
        self.is_withheld = False
        self._prepare = prepare
        self._store = store
        self._changed = changed
        self._resource_updated = resource_updated
        self._hurry = anyio.Event()
        self._spared_until = 0.0
        self._stale: dict[str, bool] = {}  # keyed by capability: whether the upstream announced a change
        self._news = anyio.Event()
        self._looked: dict[str, float] = {}  # keyed by capability: when its lists were last read or scheduled
        self._read_again = anyio.Event()  # set after the next read
        self._warned = set[str]()
        # Whether the server has lost the latest session, and the next attempt to connect is not over yet.
        self._was_forgotten = False

    async def run(self, starter: ProcessStarter, audience: Audience) -> None:
        pause = FIRST_RETRY_SECONDS
        transports = transports_to(
            self.alias, self.entry, starter, self._program_ended, self.login, by_proxy=self.by_proxy
        )
        while True:
            self.status.attempts += 1
            self._hurry = anyio.Event()  # reset here, because a request may come while a loss is still being handled
            began = anyio.current_time()
            for transport in transports:
                if await self._connect(transport, self.entry.connect_timeout / 1000 / len(transports), audience):
                    transports, pause = [transport], FIRST_RETRY_SECONDS
                    is_refused = self.status.state is UpstreamState.NEEDS_AUTHENTICATION
                    is_soon = anyio.current_time() - began < SOON_SECONDS and not is_refused
                    losses = self.status.losses = self.status.losses + 1 if is_soon else 0
                    if losses >= CRASHES:
                        self.status.change(UpstreamState.CRASHING, f"it exited {losses} times soon after its start")
                    break
            if self.wants_login:
                await self._offer_login()
            else:
                self._withdraw_stored()
            self.settle()
            self._tell_outcome()
            if self.status.state in (UpstreamState.CRASHING, UpstreamState.NEEDS_AUTHENTICATION):
                pause = LAST_RETRY_SECONDS
            # The next attempt starts after the pause, when a request needs the upstream, or when somebody has logged in
            # to it. If the upstream keeps failing, a minimum pause remains, so that it is not restarted for each call.
            respite = FIRST_RETRY_SECONDS if self.status.attempts > 1 else 0.0
            if self.status.losses >= CRASHES:
                respite = FIRST_RETRY_SECONDS * 2 ** min(self.status.losses - CRASHES, 10)
            respite = min(respite, LAST_RETRY_SECONDS)
            self._spared_until = time.monotonic() + respite
            with anyio.move_on_after(None if self.status.state is UpstreamState.LEFT_OUT else pause):
                await anyio.sleep(respite)
                while not self._hurry.is_set():
                    with anyio.move_on_after(LOGIN_LOOK_SECONDS if self.wants_login else None):
                        await self._hurry.wait()
                    if self.wants_login and self.login is not None and await self.login.has_changed():
                        break
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    @property
    def wants_login(self) -> bool:
        """Whether nothing but a person's login keeps the upstream from connecting."""
        is_refused, challenge = self.status.state is UpstreamState.NEEDS_AUTHENTICATION, self.status.challenge
        login = self.login if is_refused else None
        if login is None or challenge is None or not login.needs_person:
            return False
        return challenge.could_be_met and (not challenge.wants_scopes or login.wants_more(challenge))

    @property
    def is_connecting_again(self) -> bool:
        """Whether a new attempt is running after a login challenge."""
        return self.status.challenge is not None and self.status.state is UpstreamState.CONNECTING

    def _program_ended(self, end: ProgramEnd) -> None:
        self.status.program_end = end

    async def _connect(self, transport: Transport, patience: float, audience: Audience) -> bool:
        """Run one connection until it ends. Returns whether it was established."""
        status = self.status
        status.change(UpstreamState.CONNECTING, status.problem)
        established = is_forgotten = False
        refusal: Challenge | None = None
        options = SessionOptions(
            self.alias,
            wanted_for(self.entry.protocol, client_is_modern=audience.is_modern),
            audience.announced,
            audience.question_seconds,
            self.list_changed,
            self.resource_updated,
            is_shared=not audience.is_one,
            client=audience.client,
            observer=audience.observer_of and audience.observer_of(self.alias, self.entry),
        )
        began = time.perf_counter()
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + patience) as scope:
                if transport.name == "stdio":
                    options = replace(options, folders=await audience.folders_of(audience.client))
                    if not (options.folders or self.entry.cwd):
                        self.warn_once("starts in an empty folder", NO_WORKSPACE)
                async with open_session(transport, options) as session:
                    scope.deadline = float("inf")
                    status.connect_ms = (time.perf_counter() - began) * 1000
                    self.transport, self.session, self.era = transport, session, session.era
                    is_modern = session.era.is_modern
                    self.change_stream = ChangeStream(self.alias, session.era, session.request) if is_modern else None
                    await self._serve(session)
                    established = True
                    self.connected.set()
                    try:
                        async with anyio.create_task_group() as group:
                            group.start_soon(self._list_again, session)
                            if self.change_stream is not None:
                                group.start_soon(self.change_stream.run)
                            await session.lost.wait()
                            group.cancel_scope.cancel()
                        refusal, is_forgotten = session.refusal, session.is_forgotten
                    finally:
                        self.connected = anyio.Event()
                    if time.perf_counter() > began + SOON_SECONDS:
                        self._warned.clear()
            state, reason = UpstreamState.FAILED, "it closed the connection"
            if refusal is not None:
                status.challenge = refusal
                state, reason = failure_of(NeedsAuthenticationError(refusal))
            elif not established:
                reason = "it did not connect in time"
        except Exception as error:  # noqa: BLE001 - the task boundary: one bad upstream never takes others down
            state, reason = failure_of(error)
            status.challenge = challenge_of(error)
        finally:
            self.session, self.change_stream, self._was_forgotten = None, None, is_forgotten
        status.change(state, reason)
        self.warn_once("is not available", reason)
        return established

    async def _serve(self, session: UpstreamSession) -> None:
        """Read the upstream's lists. The upstream is available once its tools are known, even without other lists."""
        began = time.perf_counter()
        read: set[OfferedKind] = set()

        async def take(kind: OfferedKind, items: list[Json]) -> None:
            read.add(kind)
            await self._take(kind, items, is_said=self.offer.items(kind) != items)
            if kind is TOOLS:
                self._set_connected()

        self._looked = {kind.capability: anyio.current_time() for kind in KINDS}
        await read_lists(session, KINDS, self.entry.list_timeout / 1000, take, self.offer)
        for kind in KINDS:
            if kind not in read:
                await self._take(kind, [], is_said=bool(self.offer.items(kind)))
        self.status.list_ms = (time.perf_counter() - began) * 1000
        self._set_connected()
        self.settle()
        self.log.info("upstream %s is connected over %s", self.alias, self.transport.name if self.transport else "")

    async def _take(self, kind: OfferedKind, items: list[Json], *, is_said: bool, is_stored: bool = False) -> None:
        if self._prepare is not None:
            await self._prepare(self, kind, items)
        self.offer.lists[kind.field] = items
        self.is_login_offered = self.is_login_offered and is_stored
        if is_stored:
            self.offer.stored.add(kind.field)
        else:
            self.offer.stored.discard(kind.field)
        if kind is TOOLS and self.is_withheld:
            is_said, self.is_withheld = True, False
        self._changed(self, kind, is_said)

    async def offer_stored(self, last_run: Lister) -> None:
        """Offer the lists from the last run until the upstream sends current ones or cannot be reached."""

        async def take(kind: OfferedKind, items: list[Json]) -> None:
            await self._take(kind, items, is_said=bool(items), is_stored=True)

        await read_lists(last_run, KINDS, self.entry.list_timeout / 1000, take, self.offer)

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
            await self._take(TOOLS, [{**tool, "inputSchema": schema}], is_said=True, is_stored=True)

    def _withdraw_stored(self) -> None:
        for kind in KINDS:
            if kind.field in self.offer.stored:
                self.offer.stored.discard(kind.field)
                had_any = bool(self.offer.lists.pop(kind.field, None))
                self._changed(self, kind, had_any)

    def _set_connected(self) -> None:
        self.status.change(UpstreamState.CONNECTED)
        self.status.attempts, self.status.challenge = 0, None
        self._was_forgotten = False
        self._tell_outcome()
        self.tried.set()

    def _tell_outcome(self) -> None:
        self._outcome.set()
        self._outcome = anyio.Event()

    def settle(self) -> None:
        """Release everything that waits for this upstream."""
        self.known.set()
        self.tried.set()

    async def _list_again(self, session: UpstreamSession) -> None:
        """Read lists again whenever the upstream announces that they have changed."""
        stale: dict[str, bool] = {}

        async def take(kind: OfferedKind, items: list[Json]) -> None:
            # An announcement is passed on even if the list is the same as before, because the content that an item
            # refers to may have changed.
            if stale[kind.capability] or self.offer.items(kind) != items:
                await self._take(kind, items, is_said=True)

        pause, read, took = SETTLE_SECONDS, -LONGEST_SETTLE_SECONDS, 0.0
        while True:
            if self._store is not None:
                with anyio.move_on_after(STORE_SECONDS):  # a disk may hang
                    await self._store(self, session.era.version)
            await self._news.wait()
            is_rested = anyio.current_time() > read + LONGEST_SETTLE_SECONDS
            pause = SETTLE_SECONDS if is_rested else min(pause * 2, LONGEST_SETTLE_SECONDS)
            # A burst of changes causes one read, and reads take at most half of the time.
            await anyio.sleep(max(pause, read + took - anyio.current_time()))
            self._news = anyio.Event()
            stale, self._stale = self._stale, {}
            kinds = tuple(kind for kind in KINDS if kind.capability in stale)
            began = anyio.current_time()
            try:
                await read_lists(session, kinds, self.entry.list_timeout / 1000, take, self.offer)
            except (UpstreamError, UnusableAnswerError, TimeoutError):
                self.log.warning("upstream %s did not send its changed lists", self.alias)
            except ConnectionLostError:
                return
            read = anyio.current_time()
            took = read - began
            self._looked |= {kind.capability: read for kind in kinds}
            self._read_again.set()
            self._read_again = anyio.Event()

    def list_changed(self, kind: str, is_said: bool) -> None:
        """Schedule a list to be read again; `is_said` means that the upstream has announced a change."""
        self._stale[kind] = self._stale.get(kind, False) or is_said
        self._news.set()

    def session_began(self) -> None:
        """Schedule reads of older lists when a client has a new session, because the server may have been restarted."""
        for capability in sorted(self._looked):
            self._look(capability, LEAST_LOOK_SECONDS)

    def look_for_client(self, capability: str) -> anyio.Event | None:
        """Schedule a read of a list that a client wants, if the list is old and changes to it may not be announced.

        An HTTP server may have no stream to announce changes, even if it declares that it announces them. The returned
        event is set after the read.
        """
        if self.era is None or self.transport is None:
            return None
        tells = self.era.is_modern or self.transport.name != "http"
        if tells and self.era.announces(capability, "listChanged"):
            return None
        return self._read_again if self._look(capability, LOOK_SECONDS) else None

    def _look(self, capability: str, least_age: float) -> bool:
        now = anyio.current_time()
        if self.live_session is None or now < self._looked.get(capability, now) + least_age:
            return False
        self._looked[capability] = now
        self.list_changed(capability, False)
        return True

    def resource_updated(self, uri: str, whose: SessionKey | None = None) -> None:
        self._resource_updated(self, uri, whose)

    @property
    def announces_resources(self) -> bool:
        return self.session is not None and self.session.era.announces("resources")

    def report(self) -> Json:
        status = self.status
        facts: Json = {"alias": self.alias, "state": status.state.value, "since": round(status.since, 3)}
        if status.problem:
            facts["problem"] = status.problem
        elif status.last_error:
            facts["lastError"] = status.last_error
        if status.connect_ms is not None:
            facts["connectMs"] = round(status.connect_ms, 1)
        if status.list_ms is not None:
            facts["listMs"] = round(status.list_ms, 1)
        if status.attempts:
            facts["attempts"] = status.attempts
        if self.transport is not None:
            facts["transport"] = self.transport.name
        if self.session is not None:
            era = self.session.era
            facts |= {"protocolVersion": era.version, "serverInfo": era.server_info}
            if era.instructions:
                facts["instructions"] = era.instructions
        facts |= {kind.field: len(self.offer.items(kind)) for kind in KINDS}
        if self.wants_login and self.login is not None:
            facts["login"] = self.login.command
        if self.offer.stored and not self.is_login_offered:
            facts["fromLastRun"] = [kind.field for kind in KINDS if kind.field in self.offer.stored]
        if self.offer.cut:
            facts["tooLong"] = [kind.field for kind in KINDS if kind.field in self.offer.cut]
        if any(self.offer.left_out.values()):
            facts["leftOut"] = {field: told(each) for field, each in self.offer.left_out.items() if each}
        return facts

    def warn_once(self, what: str, reason: str) -> None:
        """Log a failure, as a warning at first, and at a lower level if it repeats."""
        told = f"{what}: {reason}"
        is_news = told not in self._warned and len(self._warned) < MAX_WARNINGS
        if is_news:
            self._warned.add(told)
        self.log.log(logging.WARNING if is_news else logging.DEBUG, "upstream %s %s", self.alias, told)

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

        Does nothing if the upstream is left out.
        """
        if self.status.state is not UpstreamState.LEFT_OUT:
            self._hurry.set()

    def login_needed(self) -> LoginNeededError | None:
        """Return the error that requests the login used for listing; `None` if this upstream has no logins."""
        return None if self.login is None else LoginNeededError(self.login)

    async def begin_session(self) -> None:
        """Start a new listing session if needed.

        This is called when the server has lost a session, because it may also have lost the listing session.
        """
        if (listing := self.live_session) is not None:
            await listing.flush()
        await self.come_back()

    async def come_back(self) -> None:
        """Wait until the upstream is connected or has failed again, but no longer than one attempt may take."""
        is_pausing = self.status.state not in (UpstreamState.CONNECTED, UpstreamState.CONNECTING)
        self.retry_now()
        with anyio.move_on_after(self.entry.connect_timeout / 1000):
            for _ in range(1 if is_pausing else 2):  # an attempt that was already running does not count
                if self.live_session is not None:
                    return
                await self._outcome.wait()

    def unavailable(self) -> ToolError:
        """Return the error for a disconnected upstream, and trigger a new attempt."""
        if self.wants_login and (needed := self.login_needed()) is not None:
            return needed
        self.retry_now()
        status = self.status
        why = f"state {status.state}: {status.problem}" if status.problem else f"state {status.state}"
        if status.state is UpstreamState.CONNECTED:
            why = "its connection was just lost"  # the state will be updated in a moment
        left = math.ceil(self._spared_until - time.monotonic())
        when = f"in {left} s; try the call again after that" if left > 0 else "automatically; try the call again later"
        what_next = f"The connection is retried {when}, or continue without it."
        if status.state is UpstreamState.NEEDS_AUTHENTICATION:
            what_next = f"The operator must set credentials. {WAYS_TO_AUTHENTICATE}"
        elif status.state is UpstreamState.LEFT_OUT:
            what_next = "Use this server's own tool names instead."
        return ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The server {self.alias} is unavailable ({why}). {what_next}",
        )
