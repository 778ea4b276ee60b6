"""Keeps the tools of all upstreams in the registry, under their published names, as lists change."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from server.protocol.json_rpc import Json
from server.settings import UpstreamSettings
from server.upstreams.catalog.lock_file import WATCHED, Difference, Lock, Stop, stop_of, tool_differences, tool_entry
from server.upstreams.catalog.published_names import (
    NameList,
    NameMap,
    Origin,
    full_name,
    is_included,
    name_map,
    rule_name,
)
from server.upstreams.catalog.upstream_tool import (
    MAX_TOLD,
    Arguments,
    Definition,
    DiscoveredMCPTool,
    StoppedMCPTool,
    ToolHistory,
    UpstreamCall,
    app_links,
    digest_of,
    is_for_apps,
    name_in_apps,
)
from server.upstreams.session.list_reader import in_turns, tool_with_visible_texts
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.contract.confirmation import ConsentChannel
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.permissions.tool_names import BETWEEN

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A listed tool, a digest of the fields that models see, and a copy with invisible characters marked."""

    definition: Definition
    digest: str
    shown: dict[str, Any]
    entry: Json  # its lock file entry; empty without a lock file
    lock: Lock | None  # the lock that it was checked against
    differences: tuple[Difference, ...]  # the differences from the approved entry
    stop: Stop | None  # replaces the tool if it is not approved


class ToolCatalog:
    """Publishes the tools of upstreams in the registry, under names of at most `budget` characters.

    `reserved` names are never used.
    """

    def __init__(self, registry: ToolRegistry, budget: int, reserved: Iterable[str] = ()) -> None:
        self.names = NameMap()  # the current meaning of every name
        self._registry = registry
        self._budget = budget
        self._reserved = frozenset(reserved)
        self._entries: Mapping[str, UpstreamSettings] = {}
        self._reaches: Mapping[str, str] = {}  # by alias, a digest of the settings with which the upstream is reached
        self._offers: dict[str, tuple[Mapping[str, Definition], UpstreamCall]] = {}
        self.lock: Lock | None = None  # see `use_lock`; `None` approves everything
        self.write_approval: Callable[[Lock, str, Mapping[str, Json]], Awaitable[None]] | None = None
        """Records approvals of a server's tools in addition to those in a lock, and checks the tools again."""
        self.approves_in_file = True  # whether approvals go into the lock file, not into the store
        self._stops: dict[str, dict[str, Stop]] = {}  # by alias and name
        self._told_stops: dict[str, dict[str, str]] = {}  # by alias and name, the `Stop.standing` that was last logged
        # By alias, the tools that the upstream's apps may call, with the names that the apps use
        self._for_apps: dict[str, dict[str, str]] = {}
        self._stored: set[str] = set()  # aliases whose tools are known only from the last run
        self.vanished: dict[str, frozenset[str]] = {}
        """By alias, the names from the last run that are missing in this run."""
        self._known = ToolHistory()
        self._prepared: dict[str, dict[str, _Prepared]] = {}
        self._made: dict[Origin, DiscoveredMCPTool] = {}
        self._named: tuple[list[NameList], set[str]] | None = None  # the arguments from which `names` was computed
        self._is_publishing = False
        registry.on_change(self._publish)  # custom tools come and go, and their names are reserved

    def configure(self, entries: Mapping[str, UpstreamSettings]) -> None:
        """Use these upstreams from now on. A list stays valid as long as its upstream is reached in the same way."""
        gone = [
            alias
            for alias, entry in self._entries.items()
            if (now := entries.get(alias)) is None or not entry.is_reached_like(now)
        ]
        self._entries = dict(entries)
        self._reaches = {alias: entry.reach_digest() for alias, entry in entries.items()}
        for alias in gone:
            self._forget(alias)
        for alias in gone:
            if alias in entries:
                self._registry.replace_source(alias, ())
            else:
                self._registry.drop_source(alias)
        self._publish()

    def use_lock(self, lock: Lock | None) -> None:
        """Check everything listed from now on against this lock file."""
        self.lock = lock
        if lock is not None and lock.problem:
            logger.error("%s", lock.why_closed)

    def withdraw(self, alias: str) -> None:
        """Remove the list from the last run, because the upstream cannot be reached."""
        self._forget(alias)
        self._registry.replace_source(alias, ())
        self._publish()

    def _forget(self, alias: str) -> None:
        self._offers.pop(alias, None)
        self._for_apps.pop(alias, None)
        self._known.forget(alias)
        self._prepared.pop(alias, None)
        self._stops.pop(alias, None)
        self._stored.discard(alias)

    @contextmanager
    def at_once(self) -> Generator[None]:
        """When the context exits, publish everything that was listed within it, all at once."""
        self._is_publishing = True
        try:
            yield
        finally:
            self._is_publishing = False
            self._publish()

    async def prepare(self, alias: str, definitions: Iterable[Definition]) -> None:
        """Do the expensive work for `set_listed`, yielding to other tasks in between."""
        prepared: dict[str, _Prepared] = {}
        async for definition in in_turns(definitions):
            prepared[definition["name"]] = self._prepared_of(alias, definition)
        self._prepared[alias] = prepared

    def _prepared_of(self, alias: str, definition: Definition) -> _Prepared:
        known = self._prepared.get(alias, {}).get(definition["name"])
        if known is not None and known.definition is not definition:
            known = None
        lock = self.lock
        if known is not None and known.lock is lock:
            return known
        digest = digest_of(definition) if known is None else known.digest
        shown = tool_with_visible_texts(definition) if known is None else known.shown
        if lock is None:
            return _Prepared(definition, digest, shown, {}, None, (), None)
        name, entry = definition["name"], (known and known.entry) or tool_entry(definition)
        found = tuple(tool_differences(alias, name, lock.tool(alias, name), entry))
        return _Prepared(definition, digest, shown, entry, lock, found, stop_of(alias, shown, entry, found, lock))

    def set_listed(
        self,
        alias: str,
        definitions: Iterable[Definition],
        call: UpstreamCall,
        *,
        is_stored: bool = False,
        is_ours: bool = False,
    ) -> None:
        """Replace an upstream's published list; of two tools with the same name, the first is used.

        `is_stored` means that the list is from the last run, `is_ours` that it contains this server's own login tool.
        """
        entry = self._entries[alias]
        kept: dict[str, Definition] = {}
        for definition in definitions:
            name = definition["name"]
            others = (full_name(alias, name), *([entry.rename[name]] if name in entry.rename else []))
            if is_ours or is_included(name, entry.include_tools, entry.exclude_tools, others):
                kept.setdefault(name, definition)
        prepared = {name: self._prepared_of(alias, each) for name, each in kept.items()}
        is_first, before = alias in self._stored, self.names
        # The lock file does not contain this server's own login tool.
        self._prepared[alias] = {} if is_ours else {**self._prepared.get(alias, {}), **prepared}
        self._known.note(alias, {name: each.digest for name, each in prepared.items()}, is_first=is_first)
        if self.lock is not None and not is_ours:
            self._judge(alias, prepared)
        else:
            self._stops.pop(alias, None)
        for name in prepared:
            self._known.record(alias, name).is_stopped = name in self._stops.get(alias, {})
        self._offers[alias] = kept, call
        has_apps = any(True for each in kept.values() for _ in app_links(each))
        self._for_apps[alias] = {
            name: name_in_apps(each) for name, each in kept.items() if has_apps and is_for_apps(each)
        }
        if is_stored:
            self._stored.add(alias)
        else:
            self._stored.discard(alias)
        self._publish()
        if is_first and not is_stored:
            names = (*before.published.items(), *before.full.items())
            self.vanished[alias] = frozenset(
                name for name, origin in names if origin.alias == alias and self.names.find(name) is None
            )

    def _judge(self, alias: str, prepared: Mapping[str, _Prepared]) -> None:
        """Block tools that are not approved, and log those that were not blocked before."""
        before = self._told_stops.get(alias, {})
        stops: dict[str, Stop] = {}
        for name, each in prepared.items():
            if each.stop is not None:
                stops[name] = each.stop
            elif not each.differences or not any(found.field in WATCHED for found in each.differences):
                known = self._known.record(alias, name)
                known.first = known.now  # a person has approved exactly this version
        self._stops[alias] = stops
        self._told_stops[alias] = {name: stop.standing for name, stop in stops.items()}
        fresh: dict[str, list[str]] = {}  # the names by status; each status gets one line in the log
        for name, stop in stops.items():
            if not stop.closed and before.get(name) != stop.standing:
                fresh.setdefault(stop.standing, []).append(name)
        for standing, names in fresh.items():
            more = f" and {len(names) - MAX_TOLD} more" if len(names) > MAX_TOLD else ""
            which = f"{', '.join(repr(name) for name in names[:MAX_TOLD])}{more}"
            said = f"upstream {alias}: not approved and blocked, {standing}: {which}"
            logger.warning("%s", visible_line(said), extra={"upstream": alias})

    def standing(self, alias: str, name: str) -> str:
        """Return the lock status of a tool for people; empty without a lock file."""
        known = self._prepared.get(alias, {}).get(name)
        if known is None or known.lock is None:
            return ""
        if known.stop is not None:
            return known.stop.standing
        fields = ", ".join(each.field for each in known.differences)
        return f"approved ({fields} {'differ' if len(known.differences) > 1 else 'differs'})" if fields else "approved"

    def standings(self, alias: str) -> Counter[str]:
        """Return how many of a server's tools are approved, changed, new, or blocked by an invalid file."""
        listed = self._offers[alias][0] if alias in self._offers and self.lock is not None else ()
        standings = (self.standing(alias, name) for name in listed)
        return Counter(each.partition(" ")[0] for each in standings if each)

    def is_stopped_as(self, alias: str, name: str, version: str) -> bool:
        """Return whether exactly this version of a tool is blocked."""
        stop = self._stops.get(alias, {}).get(name)
        return stop is not None and stop.version == version

    async def approve(self, tool: StoppedMCPTool) -> None:
        """Approve a tool as it was shown to a person.

        Raises:
            ToolError: The tool has changed since, or the approval cannot be written.
        """
        lock, outdated = self.lock, tool.why_outdated()
        if lock is None or tool.stop.closed or outdated:
            why = tool.stop.closed or f"Nothing was approved: {outdated}. Look at the current version."
            raise ToolError(ToolErrorType.EXECUTION_DENIED, why)
        assert self.write_approval is not None  # noqa: S101 - the pool sets it before tools are blocked
        await self.write_approval(lock, tool.alias, {tool.upstream_name: tool.stop.entry})
        logger.warning(
            "a person has approved the current version of %s", visible_line(tool.name), extra={"upstream": tool.alias}
        )

    async def _approve(self, tool: DiscoveredMCPTool, params: Arguments, context: ToolContext) -> ToolResult:
        """Handle a call to a blocked tool after a person has agreed."""
        del params
        assert isinstance(tool, StoppedMCPTool)  # noqa: S101 - only these tools call this method
        # Consent to an earlier version of the tool does not cover the current one.
        if context.answer is None or context.answer.channel is ConsentChannel.EARLIER:
            told = f"Nothing was sent: {tool.why_asked_again('')}. Call it again to ask the user for approval."
            raise ToolError(ToolErrorType.EXECUTION_DENIED, told)
        await self.approve(tool)
        return ToolResult(
            f"The user has approved the current version of {tool.name}; it was not called. List the tools again for "
            "its description and arguments, then call it with the arguments that it needs."
        )

    def called_by_apps(self, name: str) -> list[str]:
        """Return the full names of the tools that apps may mean by a bare name."""
        tools = ((alias, own, bare) for alias in self._entries for own, bare in self._for_apps.get(alias, {}).items())
        return [full_name(alias, own) for alias, own, bare in tools if bare == name]

    def lists_anything(self, alias: str) -> bool:
        """Return whether an upstream has listed its tools in this run, even if it has none."""
        return alias in self._offers and alias not in self._stored

    def _publish(self) -> None:
        if self._is_publishing:
            return
        self._is_publishing = True
        try:
            taken = self._registry.names_beside(self._entries) | self._reserved
            self._name_all(taken)
            made: dict[Origin, DiscoveredMCPTool] = {}
            bare = self._bare_names(taken)
            for alias, (definitions, call) in self._offers.items():
                trusted = self._entries[alias].trust
                published = {origin: name for name, origin in self.names.published.items() if origin.alias == alias}
                stops = self._stops.get(alias, {})
                listed: list[DiscoveredMCPTool] = []
                hidden: list[DiscoveredMCPTool] = []
                for name, definition in definitions.items():
                    origin, known = Origin(alias, name), self._known.record(alias, name)
                    called = published.get(origin) or rule_name(alias, name)
                    tool = self._made.get(origin)
                    bare_name = self._for_apps[alias].get(name, "")
                    bare_name = bare_name if bare_name in bare else ""
                    # Keep the object of an unchanged tool.
                    is_same = tool is not None and (tool.name, tool.bare_name) == (called, bare_name)
                    if (stop := stops.get(name)) is not None:
                        if not (is_same and isinstance(tool, StoppedMCPTool) and tool.stop is stop):
                            tool = StoppedMCPTool(
                                *(alias, called, stop, bare_name, self._approve, self.is_stopped_as),
                                in_file=self.approves_in_file,
                            )
                    elif tool is None or not (is_same and tool.is_of(definition, call, known, trusted=trusted)):
                        shown = self._prepared_of(alias, definition).shown
                        tool = DiscoveredMCPTool(
                            alias,
                            called,
                            definition,
                            trusted=trusted,
                            call=call,
                            bare_name=bare_name,
                            known=known,
                            reach=self._reaches[alias],
                            shown=shown,
                        )
                    made[origin] = tool
                    is_listed = origin in published and not (stop is not None and stop.closed)
                    (listed if is_listed else hidden).append(tool)
                self._registry.replace_source(alias, listed, hidden)
            self._made = made
        finally:
            self._is_publishing = False

    def _bare_names(self, taken: set[str]) -> set[str]:
        """Return the unambiguous names that apps may use without an alias."""
        counts = Counter(itertools.chain.from_iterable(each.values() for each in self._for_apps.values()))
        if not counts:
            return set()
        taken = {*self.names.published, *self.names.full, *taken}
        prefixes = tuple(f"{alias}{BETWEEN}" for alias in self._entries)
        alone = (name for name, count in counts.items() if count == 1)
        return {name for name in alone if not (name in taken or name.startswith(prefixes))}

    def _name_all(self, taken: set[str]) -> None:
        listed: list[NameList] = []
        for alias, entry in self._entries.items():
            names = tuple(self._offers[alias][0]) if alias in self._offers else ()
            listed.append(NameList(alias, names, entry.prefix == "alias", entry.rename))
        if self._named == (listed, taken):
            return
        self._named = (listed, taken)
        before, self.names = self.names, name_map(listed, taken, self._budget)
        told = set(before.hidden)
        fresh = [hidden for hidden in self.names.hidden if hidden not in told]
        for hidden in fresh[:MAX_TOLD]:
            logger.warning("%s", hidden, extra={"upstream": hidden.origin.alias})
        if len(fresh) > MAX_TOLD:
            logger.warning("further names are taken (%d); run coretools-mcp tools to list them", len(fresh) - MAX_TOLD)
