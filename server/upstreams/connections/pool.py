"""The pool of all upstreams. It starts the upstreams, applies changed settings to them, and publishes their lists."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import TOKEN_KEY, Exchange
from server.protocol.json_rpc import Json
from server.settings import UpstreamSettings
from server.store.replica import Replica
from server.upstreams.catalog.lock_file import Lock, write_approved
from server.upstreams.catalog.stored_lists import NEVER_LISTED, StoredLists, key_of
from server.upstreams.catalog.tool_catalog import ToolCatalog
from server.upstreams.catalog.upstream_tool import UpstreamCall
from server.upstreams.connections.client_sessions import ClientSessions
from server.upstreams.connections.connection import Audience, SessionKey, Upstream
from server.upstreams.session.list_reader import PROMPTS, TOOLS, OfferedKind
from server.upstreams.session.upstream_session import UpstreamSession
from tools.call.tool_registry import ToolRegistry
from tools.machine.threads import THREADS

if TYPE_CHECKING:
    from server.upstreams.catalog.shared_approvals import SharedApprovals
    from server.upstreams.login.connect_pages import ConnectPages
    from server.upstreams.login.login_storage import LoginStore
    from server.upstreams.login.upstream_login import Login
    from tools.shell.brokered_starter import BrokeredStarter


GATHER_WAIT_SECONDS = 0.5  # how long `bounded_gather` waits; longer work continues in the background
GATHER_SECONDS = 10.0  # time limit for the work, including the part in the background
STORED_SECONDS = 1.0  # time limit for reading the stored lists, because a disk may hang
LIST_FIRST_SECONDS = 0.02  # delay before servers start, so that a pending list is sent first
REREAD_WAIT_SECONDS = 1.0  # how long a list request waits for old lists to be read again; later changes are announced
# How long the first list may keep another coretools-mcp server waiting: in a loop, each server waits for the next one.
PROXY_WAIT_SECONDS = 1.0


async def bounded_gather(
    tasks: TaskGroup, work: Iterable[Callable[[], Coroutine[Any, Any, None]]], scope: anyio.CancelScope | None = None
) -> bool:
    """Run the functions in `work`, which must not raise. Returns whether all are done within `GATHER_WAIT_SECONDS`.

    Unfinished work continues in `tasks` until `GATHER_SECONDS` have passed, or until `scope` is cancelled.
    """
    done = anyio.Event()

    async def run() -> None:
        with scope or anyio.CancelScope(), anyio.move_on_after(GATHER_SECONDS):
            async with anyio.create_task_group() as group:
                for function in work:
                    group.start_soon(function)
        done.set()

    tasks.start_soon(run)
    with anyio.move_on_after(GATHER_WAIT_SECONDS):
        await done.wait()
    return done.is_set()


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """How to log in to upstreams, and where to store logins."""

    replica: Replica
    """If the replica has a shared store and keys, logins are kept in the store, otherwise on this machine."""
    state_folder: str | None
    storage: Literal["file", "keyring"] = "file"
    port: int = 18_809  # for redirects, unless an entry sets another one
    options: str = ""  # the command-line options with which `coretools-mcp login` uses the same settings
    has_principals: bool = False  # whether there are several people with their own logins
    is_local: bool = True  # whether a client's browser is on this machine, so that a redirect can reach this server
    pages: ConnectPages | None = None  # the login pages, which any browser can reach


@dataclass(eq=False, slots=True)
class _Logins:
    by_principal: dict[str, Login | None] = field(default_factory=dict[str, "Login | None"])
    closed: str = ""  # why no more logins can be opened; empty if logins can be opened

    def close(self, reason: str) -> None:
        self.closed = reason
        for login in self.by_principal.values():
            if login is not None:
                login.close(reason)


class UpstreamPool:
    """Starts the upstreams and publishes their tools.

    Args:
        first_list_wait_seconds: How long after startup a list waits for upstreams that are still connecting.
        on_offer: Called with the kind of each list that may have changed, and whether clients should be notified.
        waits_again: Whether the first list also waits for a server that was too slow for the last run's first list.
    """

    def __init__(
        self,
        entries: Mapping[str, UpstreamSettings],
        registry: ToolRegistry,
        first_list_wait_seconds: float,
        name_budget: int,
        relay_call_of: Callable[[Upstream], UpstreamCall],
        *,
        on_offer: Callable[[OfferedKind, bool], None] = lambda _kind, _is_announced: None,
        on_updated: Callable[[Upstream, str, SessionKey | None], None] = lambda _upstream, _uri, _session_key: None,
        left_out: Mapping[str, str] | None = None,
        logins: LoginOptions | None = None,
        reserved_names: Iterable[str] = (),
        by_proxy: bool = True,
        waits_again: bool = False,
    ) -> None:
        self.logins = logins
        self._by_proxy = by_proxy
        self._waits_again = waits_again
        self.tasks: TaskGroup | None = None  # the task group of the upstreams
        self._login_store: LoginStore | None = None  # created with the first remote server
        self._runs_logins = False
        self.catalog = ToolCatalog(registry, name_budget, reserved_names)
        self.sessions: dict[Upstream, ClientSessions] = {}  # the client sessions of each running upstream
        self.left_out = left_out or {}
        """Why other configured servers are not used, keyed by alias; changes with the settings."""
        self.written: Mapping[str, UpstreamSettings] = {}
        """Entries with variables unexpanded; changes with the settings."""
        self.is_recalling = False  # whether the stored lists are still being read; no list is sent before that is done
        self.listed: set[str] = set()  # the capabilities whose list a client has received
        self._stored_lists: StoredLists | None = None
        self.approvals: SharedApprovals | None = None  # the shared approvals of replicas, if there are any
        self.catalog.write_approval = self._approve
        self._stored_lists_offered: anyio.Event | None = None  # set once the stored lists are offered
        self._on_offer = on_offer
        self._on_updated = on_updated
        self.registry = registry
        self._relay_call_of = relay_call_of
        self._wait_seconds = first_list_wait_seconds
        self._wait_until: float | None = None
        self._logged_as_late: set[str] = set()  # aliases already logged as late
        self._audience: Audience | None = None
        self._owners: dict[Upstream, anyio.CancelScope] = {}
        self._starter: BrokeredStarter | None = None
        """Starts the programs of all upstreams; closed after the last upstream has ended."""
        self._running = 0
        self._all_ended = anyio.Event()
        self._calls: dict[Upstream, UpstreamCall] = {}
        self._logins: dict[Upstream, _Logins] = {}
        self.upstreams = [self._make_upstream(alias, entry) for alias, entry in entries.items()]
        self.by_alias = {upstream.alias: upstream for upstream in self.upstreams}
        self.catalog.configure(entries)

    def start(self, tasks: TaskGroup, audience: Audience, stored_lists: StoredLists | None = None) -> None:
        """Start each upstream's owner task, and offer its stored lists until it sends its own. Call this only once."""
        self._audience, self._stored_lists, self.tasks = audience, stored_lists, tasks
        self.is_recalling = stored_lists is not None and bool(self.upstreams)
        self._start(self.upstreams, tasks, audience)

    def change(self, entries: Mapping[str, UpstreamSettings], tasks: TaskGroup) -> None:
        """Use new entries from now on. Upstreams that are reached as before keep their connections and calls."""
        kept_upstreams = {
            upstream.alias: upstream
            for upstream in self.upstreams
            if (new_entry := entries.get(upstream.alias)) is not None and upstream.entry.is_reached_like(new_entry)
        }
        removed_upstreams = [upstream for upstream in self.upstreams if upstream.alias not in kept_upstreams]
        for upstream in removed_upstreams:
            self._calls.pop(upstream, None)
            if (owner := self._owners.pop(upstream, None)) is not None:
                owner.cancel()
            if (sessions := self.sessions.pop(upstream, None)) is not None:
                sessions.end()
            self._logins.pop(upstream).close("the server was removed from the settings, or is now reached differently")
            upstream.settle()
            upstream.connected.set()
        old_entries = {upstream: upstream.entry for upstream in kept_upstreams.values()}
        for upstream in old_entries:
            upstream.entry = entries[upstream.alias]
        new_upstreams = {
            alias: self._make_upstream(alias, entry) for alias, entry in entries.items() if alias not in kept_upstreams
        }
        self.upstreams = [kept_upstreams.get(alias) or new_upstreams[alias] for alias in entries]
        self.by_alias = {upstream.alias: upstream for upstream in self.upstreams}
        self.catalog.configure(entries)
        for upstream, old_entry in old_entries.items():
            # Only names or tool settings change; the connection is kept.
            if upstream.entry != old_entry and TOOLS.field in upstream.offer.lists:
                self._on_list_changed(upstream, TOOLS, True)
            if upstream.entry.prefix != old_entry.prefix:
                self._on_list_changed(upstream, PROMPTS, True)
        if self._audience is not None:
            self._start(new_upstreams.values(), tasks, self._audience)

    async def use_lock(self, file: Lock | None) -> None:
        """Check all tools against a new version of the lock file, combined with shared approvals, if there are any."""
        await (self.apply_lock(file) if self.approvals is None else self.approvals.use_file(file))

    async def _approve(self, lock: Lock, alias: str, tools: Mapping[str, Json]) -> None:
        if self.approvals is None:
            new_lock = await THREADS.run(partial(write_approved, lock.path, alias, tools))
            await self.use_lock(replace(new_lock, options=lock.options))
        else:
            await self.approvals.approve(lock, alias, tools)

    async def apply_lock(self, lock: Lock | None) -> None:
        """Check all tools against these approvals, unless they are in use already. Other tasks run in the meantime."""
        if lock == self.catalog.lock:
            return
        # The call that approves a tool may be cancelled, but the remaining tools must still be checked.
        with anyio.CancelScope(shield=True):
            self.catalog.use_lock(lock)
            for upstream in self.upstreams:
                if TOOLS.field in upstream.offer.lists:
                    await self.catalog.prepare(upstream.alias, upstream.offer.items(TOOLS))
                    self._on_list_changed(upstream, TOOLS, True)

    def _make_upstream(self, alias: str, entry: UpstreamSettings) -> Upstream:
        logins, prepare_tools = _Logins(), self.catalog.prepare

        def login_of(principal: str) -> Login | None:
            if principal not in logins.by_principal:
                login = logins.by_principal[principal] = self._login_of(alias, entry, principal)
                if login is not None and logins.closed:
                    login.close(logins.closed)
            return logins.by_principal[principal]

        upstream = Upstream(
            alias, entry, self._on_list_changed, self._on_updated, prepare_tools, self._store, login_of, self._by_proxy
        )
        self._logins[upstream] = logins
        self.registry.declare_source(alias, upstream.known.wait)
        return upstream

    def _login_of(self, alias: str, entry: UpstreamSettings, principal: str) -> Login | None:
        """Return the login of a principal to a server.

        Returns `None` over stdio, if the entry disables logins, if it has an `Authorization` header and no `oauth`, or
        if logins cannot be stored.
        """
        oauth, logins = entry.oauth, self.logins
        has_token = any(name.lower() == "authorization" for name in entry.headers)
        if entry.endpoint is None or logins is None or (oauth is None and has_token):
            return None
        if oauth is not None and not oauth.enabled:
            return None
        from server.settings.server_models import OAuthSettings  # noqa: PLC0415 - loaded with the first remote server
        from server.upstreams.login.upstream_login import Login, login_store  # noqa: PLC0415

        store = self._login_store = self._login_store or login_store(
            logins.replica, logins.state_folder, logins.storage
        )
        if store is None:
            return None
        server = alias, entry.endpoint, oauth or OAuthSettings()
        return Login(store, *server, principal, logins.port, logins.options, logins.pages, by_proxy=self._by_proxy)

    def login_principal(self, upstream: Upstream, exchange: Exchange) -> str:
        """Return the principal whose login is used for a client's requests; empty for this machine's user."""
        oauth = upstream.entry.oauth
        is_shared = upstream.login is None or (oauth is not None and oauth.shared)
        is_named = self.logins is not None and self.logins.has_principals and not is_shared
        return exchange.client_key.removeprefix(TOKEN_KEY) if is_named else ""

    def _key_of(self, upstream: Upstream) -> str:
        return key_of(self.written.get(upstream.alias, upstream.entry))

    async def _store(self, upstream: Upstream, version: str) -> None:
        if self._stored_lists is not None:
            await self._stored_lists.write(self._key_of(upstream), version, upstream.offer.lists)

    async def _offer_stored_lists(
        self, stored_lists: StoredLists, upstreams: Sequence[Upstream], finished: anyio.Event, may_start: anyio.Event
    ) -> None:
        """Offer the stored lists, then let the upstreams start."""
        try:
            keys = {upstream: self._key_of(upstream) for upstream in upstreams}
            with anyio.move_on_after(STORED_SECONDS):
                last_runs = await stored_lists.read(keys.values())
                with self.catalog.batch():
                    for upstream in upstreams:
                        last_run = last_runs.get(keys[upstream])
                        never_listed = last_run is not None and last_run.era.version == NEVER_LISTED
                        upstream.is_awaited = self._waits_again or not never_listed
                        is_used = not never_listed and self.by_alias.get(upstream.alias) is upstream
                        if last_run is not None and is_used:
                            try:
                                await upstream.offer_stored(replace(last_run, alias=upstream.alias))
                            except Exception:
                                # Without stored lists, the server's items are listed once it responds.
                                upstream.log.exception(
                                    "the lists from the last run cannot be used because of an internal error"
                                )
        finally:
            self.is_recalling = False
            finished.set()
        await anyio.sleep(LIST_FIRST_SECONDS)
        may_start.set()

    def _start(self, upstreams: Iterable[Upstream], tasks: TaskGroup, audience: Audience) -> None:
        self._wait_until = anyio.current_time() + self._wait_seconds
        if self._login_store is not None and not self._runs_logins:
            self._runs_logins = True
            tasks.start_soon(self._login_store.run, name="logins")
        upstreams, may_start = list(upstreams), anyio.Event()
        if self._stored_lists is not None and upstreams:
            self._stored_lists_offered = anyio.Event()
            tasks.start_soon(
                self._offer_stored_lists, self._stored_lists, upstreams, self._stored_lists_offered, may_start
            )
        else:
            may_start.set()
        for upstream in upstreams:
            scope = self._owners[upstream] = anyio.CancelScope()
            self._running += 1
            run_upstream = partial(self._run_upstream, upstream, scope, audience, may_start)
            tasks.start_soon(run_upstream, name=f"upstream {upstream.alias}")

    async def _run_upstream(
        self, upstream: Upstream, scope: anyio.CancelScope, audience: Audience, may_start: anyio.Event
    ) -> None:
        """Run an upstream and its client sessions, which are closed together with it."""
        try:
            with scope:
                await may_start.wait()
                if (starter := self._starter) is None:
                    from tools.shell.brokered_starter import BrokeredStarter  # noqa: PLC0415 - loaded on first use

                    starter = self._starter = BrokeredStarter(is_shared=True)
                async with anyio.create_task_group() as tasks:
                    self.sessions[upstream] = ClientSessions(
                        upstream, audience, tasks, starter, partial(self.login_principal, upstream)
                    )
                    await upstream.run(starter, audience)
        finally:
            self.sessions.pop(upstream, None)
            self._running -= 1
            if not self._running:
                starter, self._starter = self._starter, None
                if starter is not None:
                    await starter.aclose()
                self._all_ended.set()

    async def end_within(self, seconds: float) -> None:
        """Stop every upstream. Programs that do not exit in time are killed within two more seconds."""
        starter = self._starter
        for owner in self._owners.values():
            owner.cancel()
        if starter is not None:
            with anyio.move_on_after(seconds):
                await self._all_ended.wait()
            await starter.aclose()

    async def wait_for_first_list(self, max_seconds: float | None = None, *, is_live: bool = False) -> None:
        """Wait for upstreams at startup, for a limited time, so that the first list is complete if possible.

        Without `is_live`, this does not wait for an upstream that still offers its lists from the last run.
        """
        # Even waiting for an event that is already set costs an iteration of the event loop.
        if self._stored_lists_offered is not None and not self._stored_lists_offered.is_set():
            await self._stored_lists_offered.wait()
        if self._wait_until is None or self.is_settled:
            return
        if (now := anyio.current_time()) < self._wait_until:
            with anyio.CancelScope(
                deadline=self._wait_until if max_seconds is None else min(self._wait_until, now + max_seconds)
            ):
                for upstream in self.upstreams:
                    if upstream.is_awaited and (is_live or not upstream.offer.stored):
                        await upstream.known.wait()
        if anyio.current_time() < self._wait_until:
            return
        for upstream in self.upstreams:
            if not (upstream.known.is_set() or upstream.offer.stored or upstream.alias in self._logged_as_late):
                self._logged_as_late.add(upstream.alias)
                if self._stored_lists is not None and self.tasks is not None:
                    self.tasks.start_soon(
                        self._stored_lists.write, self._key_of(upstream), NEVER_LISTED, dict[str, Any]()
                    )
                upstream.log.warning(
                    "upstream %s is late: the first list waited %g s for it, and its tools are announced when they "
                    "arrive. For clients that request the list only once, raise proxy.firstListWait",
                    *(upstream.alias, self._wait_seconds),
                )

    async def before_list(self, capability: str) -> None:
        """Read a list again before a client gets it, if the list is old and its changes may go unannounced."""
        reads = [upstream.schedule_read_for_client(capability) for upstream in self.upstreams]
        if pending_reads := [read for read in reads if read is not None]:
            with anyio.move_on_after(REREAD_WAIT_SECONDS):
                for read in pending_reads:
                    await read.wait()
        self.listed.add(capability)

    async def until_live(self, upstream: Upstream) -> None:
        """Wait until the upstream has sent its current lists or cannot be reached, but no longer than its call timeout.

        Does nothing unless some of the upstream's lists are known only from the last run.
        """
        if upstream.offer.stored:
            with anyio.move_on_after(upstream.entry.timeout / 1000):
                await upstream.known.wait()

    @property
    def has_started(self) -> bool:
        return self._wait_until is not None

    @property
    def is_settled(self) -> bool:
        return self.has_started and all(upstream.known.is_set() for upstream in self.upstreams)

    def sessions_of(self, exchange: Exchange) -> list[UpstreamSession]:
        return [session for sessions in self.sessions.values() for session in sessions.sessions_of(exchange)]

    def forget(self, client_key: str) -> None:
        for sessions in self.sessions.values():
            sessions.end(client_key)

    def report(self) -> list[dict[str, Any]]:
        hidden_tools: dict[str, list[dict[str, str]]] = {}
        for entry in self.catalog.names.hidden:
            row = {"tool": entry.origin.name, "name": entry.name, "holder": entry.holder, "reachedAs": entry.way_out}
            hidden_tools.setdefault(entry.origin.alias, []).append(row)
        return [
            {
                **upstream.report(),
                "hiddenTools": hidden_tools.get(upstream.alias, []),
                **({"approval": dict(counts)} if (counts := self.catalog.standings(upstream.alias)) else {}),
                "clientSessions": len(self.sessions.get(upstream, ())),
            }
            for upstream in self.upstreams
        ]

    def is_unlisted(self, upstream: Upstream) -> bool:
        """Return whether a server may own any name: it has no prefix, and has not sent a current list."""
        return upstream.entry.prefix == "none" and not self.catalog.has_current_list(upstream.alias)

    def _on_list_changed(self, upstream: Upstream, kind: OfferedKind, is_announced: bool) -> None:
        if self.by_alias.get(upstream.alias) is not upstream:
            return
        offer = upstream.offer
        if kind is TOOLS and kind.field not in offer.lists:
            self.catalog.withdraw(upstream.alias)
        elif kind is TOOLS:
            call = self._calls.get(upstream)
            if call is None:
                call = self._calls[upstream] = self._relay_call_of(upstream)
            is_stored, is_ours = kind.field in offer.stored, upstream.is_login_offered
            self.catalog.set_listed(upstream.alias, offer.items(TOOLS), call, is_stored=is_stored, is_ours=is_ours)
        self._on_offer(kind, is_announced and not self.is_recalling)
