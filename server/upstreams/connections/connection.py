"""One upstream, kept by one owner task: connect with a deadline, list, watch, come back after a loss.

The task that enters a connection is the task that leaves it. Everybody else sends requests through it and gets,
while it is down, an answer at once that tells its state.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

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
from server.upstreams.session.upstream_session import UpstreamSession, open_session
from server.upstreams.session.upstream_subscriptions import ChangeStream
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
"""A lost or failed connection is tried again after these pauses, doubling from the first to the last."""

SOON_SECONDS = 10.0  # a connection that is lost within this time after it was tried counts as a crash
CRASHES = 3  # after so many crashes in a row an upstream is left alone for longer and longer
MOST_WARNINGS = 20  # failures of one upstream that are warnings until it is connected for longer

LOOK_SECONDS = 60.0  # how old a list may be that a client wants, where nothing tells that it has changed
LEAST_LOOK_SECONDS = 5.0  # the same where a client has a new session

SETTLE_SECONDS = 0.05
LONGEST_SETTLE_SECONDS = 2.0
STORE_SECONDS = 5.0  # how long what it lists may take to be kept for the next run
"""How long changes of lists are gathered before they are read; doubling while there is no end of them."""

SessionKey = tuple[str, int, str]
"""A client with one connection and one set of capabilities, which has sessions of its own."""


class UpstreamState(StrEnum):
    """Where an upstream stands, as people are told."""

    WAITING = "waiting"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    FAILED = "failed"
    CRASHING = "crashing again and again"
    NEEDS_AUTHENTICATION = "needs authentication"
    LEFT_OUT = "left out"


WAYS_TO_AUTHENTICATE = 'Put a token into its headers (for example "Authorization": "Bearer ${TOKEN}").'
NO_WORKSPACE = "no workspace is known for it. Name one with --workspace or workspace.roots, or give its entry a cwd"
LOGIN_TOOL = "login"  # published of a server that shows nothing before a login
LOGIN_LOOK_SECONDS = 1.0  # between two looks at whether somebody has logged in by the command


@dataclass(slots=True)
class UpstreamStatus:
    """What is known of an upstream's connection."""

    state: UpstreamState = UpstreamState.WAITING
    problem: str = ""  # why it is not connected, in our own words
    last_error: str = ""  # the latest of these, also after it has come back
    connect_ms: float | None = None  # how long the latest connection took, until it had initialized
    list_ms: float | None = None  # how long its lists took then
    since: float = field(default_factory=time.time)  # seconds since the epoch of the latest change of its state
    attempts: int = 0  # attempts to connect since it was connected last
    program_end: ProgramEnd | None = None  # how its program ended, where it was one and has ended
    losses: int = 0  # how often a connection was lost soon after it was there, in a row
    challenge: Challenge | None = None  # how it said last that it wants a login

    def change(self, state: UpstreamState, problem: str = "") -> None:
        if (state, problem) != (self.state, self.problem):
            self.since = time.time()
        self.state, self.problem = state, problem
        if problem:
            self.last_error = problem

    def as_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"state": self.state.value, "since": round(self.since, 3)}
        if self.problem:
            facts["problem"] = self.problem
        elif self.last_error:
            facts["lastError"] = self.last_error
        if self.connect_ms is not None:
            facts["connectMs"] = round(self.connect_ms, 1)
        if self.list_ms is not None:
            facts["listMs"] = round(self.list_ms, 1)
        if self.attempts:
            facts["attempts"] = self.attempts
        return facts


_FAILURES: tuple[tuple[type[Exception], UpstreamState, str], ...] = (
    (IsThisServerError, UpstreamState.LEFT_OUT, "it is this very server"),
    (FileNotFoundError, UpstreamState.FAILED, "its command was not found"),
    (NotADirectoryError, UpstreamState.FAILED, "its working folder was not found"),
    (PermissionError, UpstreamState.FAILED, "its command may not be executed"),
    (ConnectionLostError, UpstreamState.FAILED, "it ended or did not answer while connecting"),
    (TimeoutError, UpstreamState.FAILED, "it did not tell its tools in time"),
    (IncompatibleError, UpstreamState.FAILED, "it shares no protocol revision with this server"),
)
"""Why a connection failed, in words of this server: texts of exceptions may hold addresses and secrets."""


def failure_of(error: BaseException) -> tuple[UpstreamState, str]:
    """What a failed connection means: the state that the upstream is in, and why."""
    error = _cause(error)
    if isinstance(error, UnreachableError):
        return UpstreamState.FAILED, f"it could not be reached: {error.why}"
    for kind, state, why in _FAILURES:
        if isinstance(error, kind):
            return state, why
    challenge = challenge_of(error)
    if challenge is not None and (challenge.could_be_met or isinstance(error, NeedsAuthenticationError)):
        return UpstreamState.NEEDS_AUTHENTICATION, challenge.told
    if isinstance(error, RelayError):
        return UpstreamState.FAILED, why_failed(error)
    logger.warning("a connection to an upstream failed (%s)", type(error).__name__)
    return UpstreamState.FAILED, "the connection failed; the log names the error"


def challenge_of(error: BaseException) -> Challenge | None:
    """How a server said that it wants a login, where that is why a connection failed."""
    cause = _cause(error)
    return cause.challenge if isinstance(cause, NeedsAuthenticationError | UnusableAnswerError) else None


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


class LoginNeededError(ToolError):
    """A person has to log in to a server first; the message says how."""

    def __init__(self, login: Login, why: str = "needs authentication") -> None:
        if login.challenge is not None:
            why += f" (HTTP status {login.challenge.status})"
        told = (
            f"The server {login.alias} {why}. A person has to log in: ask the user to run `{login.command}` in a "
            "terminal, and try the call again after that; or go on without it."
        )
        if login.challenge is None or not login.challenge.schemes:
            told += f" If it takes a token instead, the operator can give it one. {WAYS_TO_AUTHENTICATE}"
        super().__init__(ToolErrorType.UPSTREAM_UNAVAILABLE, told)
        self.login = login


FoldersOf = Callable[[Exchange | None], Awaitable[tuple[str, ...]]]
"""Gives the folders of a client's workspace, or of that of all; where there are none, programs see nothing."""


async def _no_folders(_: Exchange | None) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Audience:
    """Who is behind this server."""

    announced: Json  # the capabilities that are announced to upstreams for them
    client: Exchange | None  # the one client, where there is just one and it can be reached at any time
    is_one: bool
    is_modern: bool  # whether the 2026-07-28 revision is what it, or most of them, speak
    question_seconds: float
    observer_of: Callable[[str, UpstreamSettings], Observer] | None = None
    """Makes the observer of the requests in a session with an upstream, by its alias and its entry."""
    folders_of: FoldersOf = _no_folders


class Upstream:
    """One entry of `mcpServers`.

    Args:
        alias: Its name in our configuration, part of every published name.
        entry: How to reach it and what of it to publish.
        changed: Told which of its lists may be other ones now, and whether clients should hear of it.
        resource_updated: Told of a changed resource by its URI, and in whose own session it was said, if in one.
        prepare: Does what is heavy before a list is taken.
        store: Keeps what it lists, in a revision of the protocol, for the next run.
        login_of: The login of a principal to it, where it is one that can be logged in to.
        by_proxy: Whether it is reached by the proxy that the environment names for it.
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
        self.reach = entry.reach_digest()  # tells it from what was reached under the same alias by another entry
        self.status = UpstreamStatus()
        self.login_of = login_of
        self.by_proxy = by_proxy
        self.login = login_of("")  # of the person of this machine, with which it is listed
        self.offer = Offer()
        self.era: Era | None = None  # what it said when it was connected last
        self.known = anyio.Event()
        """Set once it is clear whether this upstream can be reached, and what it has is known."""
        self.tried = anyio.Event()  # set once its tools are known, or it is clear that it cannot be reached
        self.connected = anyio.Event()  # set as long as it is connected, and when it is not used any more
        self.transport: Transport | None = None
        self.session: UpstreamSession | None = None
        self.change_stream: ChangeStream | None = None
        most = entry.max_concurrent
        self.concurrency_limit = None if most is None else anyio.CapacityLimiter(most)
        """Of the calls that are in flight at once."""
        self.rate: Rate | None = None  # of the calls in a minute
        if entry.calls_per_minute is not None:
            from server.clients.rate import Rate  # noqa: PLC0415 - only where the operator limits it

            self.rate = Rate(entry.calls_per_minute)
        self._outcome = anyio.Event()  # set with the end of the attempt to connect that comes next, whichever it is
        self.is_login_offered = False  # whether its only tool is the one to log in
        self.is_awaited = True  # whether the first list waits for it, which has listed something before, or may yet
        self.is_withheld = False  # whether one of our kind was given a list without its tools of the last run
        self._prepare = prepare
        self._store = store
        self._changed = changed
        self._resource_updated = resource_updated
        self._hurry = anyio.Event()
        self._spared_until = 0.0
        self._stale: dict[str, bool] = {}  # by capability: whether the upstream itself says that it has changed
        self._news = anyio.Event()
        self._looked: dict[str, float] = {}  # by capability, when its lists were read last, or are about to be
        self._read_again = anyio.Event()  # set with the end of the reading that comes next
        self._warned = set[str]()
        self._was_forgotten = False  # the latest session, by the server, and no other has been tried yet

    async def run(self, starter: ProcessStarter, audience: Audience) -> None:
        pause = FIRST_RETRY_SECONDS
        transports = transports_to(
            self.alias, self.entry, starter, self._program_ended, self.login, by_proxy=self.by_proxy
        )
        while True:
            self.status.attempts += 1
            self._hurry = anyio.Event()  # here, since somebody may want it while its loss is still being cleared up
            began = anyio.current_time()
            for transport in transports:
                if await self._connect(transport, self.entry.connect_timeout / 1000 / len(transports), audience):
                    transports, pause = [transport], FIRST_RETRY_SECONDS
                    is_refused = self.status.state is UpstreamState.NEEDS_AUTHENTICATION
                    is_soon = anyio.current_time() - began < SOON_SECONDS and not is_refused
                    losses = self.status.losses = self.status.losses + 1 if is_soon else 0
                    if losses >= CRASHES:
                        self.status.change(UpstreamState.CRASHING, f"it ended {losses} times soon after its start")
                    break
            if self.wants_login:
                await self._offer_login()
            else:
                self._withdraw_stored()
            self.settle()
            self._tell_outcome()
            if self.status.state in (UpstreamState.CRASHING, UpstreamState.NEEDS_AUTHENTICATION):
                pause = LAST_RETRY_SECONDS
            # The next attempt comes at the end of the pause, or when the upstream is wanted. Even then
            # one that keeps failing is left alone for a while, so that it is not started for each call.
            respite = FIRST_RETRY_SECONDS if self.status.attempts > 1 else 0.0
            if self.status.losses >= CRASHES:
                respite = FIRST_RETRY_SECONDS * 2 ** min(self.status.losses - CRASHES, 10)
            respite = min(respite, LAST_RETRY_SECONDS)
            self._spared_until = time.monotonic() + respite
            with anyio.move_on_after(None if self.status.state is UpstreamState.LEFT_OUT else pause):
                await anyio.sleep(respite)
                await self._until_wanted()
            pause = min(pause * 2, LAST_RETRY_SECONDS)

    async def _until_wanted(self) -> None:
        """Wait until somebody wants it, or has logged in to it."""
        while not self._hurry.is_set():
            with anyio.move_on_after(LOGIN_LOOK_SECONDS if self.wants_login else None):
                await self._hurry.wait()
            if self.wants_login and self.login is not None and await self.login.has_changed():
                return

    @property
    def wants_login(self) -> bool:
        """Whether a person could log in to it, and nothing but that is missing."""
        is_refused, challenge = self.status.state is UpstreamState.NEEDS_AUTHENTICATION, self.status.challenge
        login = self.login if is_refused else None
        if login is None or challenge is None or not login.needs_person:
            return False
        return challenge.could_be_met and (not challenge.wants_scopes or login.wants_more(challenge))

    @property
    def is_connecting_again(self) -> bool:
        """Whether it has wanted a login, and is just being tried again."""
        return self.status.challenge is not None and self.status.state is UpstreamState.CONNECTING

    def _program_ended(self, end: ProgramEnd) -> None:
        self.status.program_end = end

    async def _connect(self, transport: Transport, patience: float, audience: Audience) -> bool:
        """Hold one connection for as long as it lasts. True if it had been established."""
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
        """Read what the upstream offers. It is there with its tools; what else it has may take longer."""
        began = time.perf_counter()
        read: set[OfferedKind] = set()

        async def take(kind: OfferedKind, items: list[Json]) -> None:
            read.add(kind)
            await self._take(kind, items, is_said=self.offer.of(kind) != items)
            if kind is TOOLS:
                self._set_connected()

        self._looked = {kind.capability: anyio.current_time() for kind in KINDS}
        await read_lists(session, KINDS, self.entry.list_timeout / 1000, take, self.offer)
        for kind in KINDS:
            if kind not in read:
                await self._take(kind, [], is_said=bool(self.offer.of(kind)))
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
        """Offer what it listed in the last run, until it tells what it has now, or cannot be reached."""

        async def take(kind: OfferedKind, items: list[Json]) -> None:
            await self._take(kind, items, is_said=bool(items), is_stored=True)

        await read_lists(last_run, KINDS, self.entry.list_timeout / 1000, take, self.offer)

    async def _offer_login(self) -> None:
        """Offer to log in, in place of tools that it does not show; what is known from the last run stays."""
        if not self.offer.of(TOOLS):
            description = (
                f"The MCP server {self.alias} wants a login before it shows its tools. Call this to have the user log "
                "in; the tools of the server are listed after that."
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
        """Nothing more is to be waited for."""
        self.known.set()
        self.tried.set()

    async def _list_again(self, session: UpstreamSession) -> None:
        """List again whenever the upstream says that its lists have changed."""
        stale: dict[str, bool] = {}

        async def take(kind: OfferedKind, items: list[Json]) -> None:
            # If the upstream says so, it is passed on though the list is the same: what it stands for may have changed.
            if stale[kind.capability] or self.offer.of(kind) != items:
                await self._take(kind, items, is_said=True)

        pause, read, took = SETTLE_SECONDS, -LONGEST_SETTLE_SECONDS, 0.0
        while True:
            if self._store is not None:
                with anyio.move_on_after(STORE_SECONDS):  # a disk may never answer
                    await self._store(self, session.era.version)
            await self._news.wait()
            is_rested = anyio.current_time() > read + LONGEST_SETTLE_SECONDS
            pause = SETTLE_SECONDS if is_rested else min(pause * 2, LONGEST_SETTLE_SECONDS)
            # A burst of changes is one more listing; and reading lists takes no more than half of the time.
            await anyio.sleep(max(pause, read + took - anyio.current_time()))
            self._news = anyio.Event()
            stale, self._stale = self._stale, {}
            kinds = tuple(kind for kind in KINDS if kind.capability in stale)
            began = anyio.current_time()
            try:
                await read_lists(session, kinds, self.entry.list_timeout / 1000, take, self.offer)
            except (UpstreamError, UnusableAnswerError, TimeoutError):
                self.log.warning("upstream %s did not tell its changed lists", self.alias)
            except ConnectionLostError:
                return
            read = anyio.current_time()
            took = read - began
            self._looked |= {kind.capability: read for kind in kinds}
            self._read_again.set()
            self._read_again = anyio.Event()

    def list_changed(self, kind: str, is_said: bool) -> None:
        """Have a list read again. Where the upstream does not say itself that it has changed, it may be the same."""
        self._stale[kind] = self._stale.get(kind, False) or is_said
        self._news.set()

    def session_began(self) -> None:
        """A client has a new session with it: perhaps it was started again, and is another one now."""
        for capability in sorted(self._looked):
            self._look(capability, LEAST_LOOK_SECONDS)

    def look_for_client(self, capability: str) -> anyio.Event | None:
        """Have a list read that a client wants, where it is old and nobody would tell that it has changed.

        Whatever it has promised, a server over HTTP may have no stream to tell it. What is returned is set in the end.
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
        facts: Json = {"alias": self.alias, **self.status.as_facts()}
        if self.transport is not None:
            facts["transport"] = self.transport.name
        if self.session is not None:
            era = self.session.era
            facts |= {"protocolVersion": era.version, "serverInfo": era.server_info}
            if era.instructions:
                facts["instructions"] = era.instructions
        facts |= {kind.field: len(self.offer.of(kind)) for kind in KINDS}
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
        """Tell of a failure in the log, as a warning if it is not one of many alike since it was connected for long."""
        told = f"{what}: {reason}"
        is_news = told not in self._warned and len(self._warned) < MOST_WARNINGS
        if is_news:
            self._warned.add(told)
        self.log.log(logging.WARNING if is_news else logging.DEBUG, "upstream %s %s", self.alias, told)

    @property
    def live_session(self) -> UpstreamSession | None:
        """The session that lists, as long as it is connected."""
        is_connected = self.status.state is UpstreamState.CONNECTED
        return self.session if is_connected and self.session is not None and not self.session.lost.is_set() else None

    @property
    def is_renewing(self) -> bool:
        """Whether there is about to be a session in place of one that the server has forgotten."""
        return self._was_forgotten or (self.session is not None and self.session.is_forgotten)

    def retry_now(self) -> None:
        """Somebody wants it: wait no longer, unless it failed again and again. What is left out stays so."""
        if self.status.state is not UpstreamState.LEFT_OUT:
            self._hurry.set()

    def login_needed(self) -> LoginNeededError | None:
        """What is told where the login with which it is listed is missing."""
        return None if self.login is None else LoginNeededError(self.login)

    async def begin_session(self) -> None:
        """Have a session in place of one that the server does not know any more, as perhaps all others."""
        if (listing := self.live_session) is not None:
            await listing.flush()
        await self.come_back()

    async def come_back(self) -> None:
        """Have it connected, or fail once more, for at most the time that this may take."""
        is_pausing = self.status.state not in (UpstreamState.CONNECTED, UpstreamState.CONNECTING)
        self.retry_now()
        with anyio.move_on_after(self.entry.connect_timeout / 1000):
            for _ in range(1 if is_pausing else 2):  # the end of what has begun before says nothing
                if self.live_session is not None:
                    return
                await self._outcome.wait()

    def unavailable(self) -> ToolError:
        """What is told to anyone who wants it while it is not connected; the connection is tried again at once."""
        if self.wants_login and (needed := self.login_needed()) is not None:
            return needed
        self.retry_now()
        status = self.status
        why = f": {status.problem}" if status.problem else ""
        left = math.ceil(self._spared_until - time.monotonic())
        when = f"in {left} s; try the call after that" if left > 0 else "by itself; try the call later"
        what_next = f"The connection is tried again {when}, or go on without it."
        if status.state is UpstreamState.NEEDS_AUTHENTICATION:
            what_next = f"The operator has to let us in. {WAYS_TO_AUTHENTICATE}"
        elif status.state is UpstreamState.LEFT_OUT:
            what_next = "Use the tools by their own names."
        return ToolError(
            ToolErrorType.UPSTREAM_UNAVAILABLE,
            f"The server {self.alias} is not available now (state {status.state}{why}). {what_next}",
        )
