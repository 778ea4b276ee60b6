"""Keeps the tools of all upstreams in the registry, under their published names, as lists change."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from server.protocol.json_rpc import Json
from server.settings import UpstreamSettings
from server.upstreams.catalog.blocked_tools import BlockedMCPTool, ToolBlock, block_of
from server.upstreams.catalog.lock_file import (
    WATCHED,
    Difference,
    Lock,
    tool_differences,
    tool_entry,
)
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
    MAX_LOGGED_NAMES,
    MAX_REMEMBERED,
    Arguments,
    Definition,
    DiscoveredMCPTool,
    ToolHistory,
    UpstreamCall,
    app_links,
    digest_of,
    is_for,
    name_in_apps,
)
from server.upstreams.session.list_reader import in_turns, tool_with_visible_texts
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.contract.confirmation import ConsentChannel
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.permissions.tool_names import BETWEEN

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _PreparedTool:
    """A listed tool, a digest of the fields that models see, and a copy with invisible characters marked."""

    definition: Definition
    digest: str
    visible_definition: dict[str, Any]
    entry: Json = field(default_factory=dict[str, Any])  # the tool's lock file entry; empty until a lock is used
    lock: Lock | None = None  # the lock that the tool was checked against
    differences: tuple[Difference, ...] = ()  # the differences from the approved entry
    block: ToolBlock | None = None  # why the tool is blocked; `None` if it is approved


@dataclass(frozen=True, slots=True)
class _Listing:
    """The list of an upstream, without the tools that its entry excludes."""

    definitions: Mapping[str, Definition]
    call: UpstreamCall
    names_in_apps: Mapping[str, str]  # the tools that the upstream's apps may call, each with its name in the apps
    blocks: Mapping[str, ToolBlock]
    is_stored: bool  # whether the list is from the last run


class ToolCatalog:
    """Publishes upstreams' tools in the registry. No published name is in `reserved_names` or longer than `budget`."""

    def __init__(self, registry: ToolRegistry, budget: int, reserved_names: Iterable[str] = ()) -> None:
        self.names = NameMap()  # the current meaning of every name
        self._registry = registry
        self._budget = budget
        self._reserved = frozenset(reserved_names)
        self._entries: Mapping[str, UpstreamSettings] = {}
        # Maps each alias to a digest of the settings that say how to reach the upstream
        self._reach_digests: Mapping[str, str] = {}
        self._listings: dict[str, _Listing] = {}
        self.lock: Lock | None = None  # see `use_lock`; `None` approves everything
        self.write_approval: Callable[[Lock, str, Mapping[str, Json]], Awaitable[None]] | None = None
        """Stores approvals of a server's tools in addition to those in the `Lock`, and checks all tools again."""
        self.command_options = ""  # the options with which terminal commands use the same settings
        self.approves_in_file = True  # whether approvals go into the lock file, not into the store
        # By alias and name, the `ToolBlock.standing` that was last logged
        self._logged_standings: dict[str, dict[str, str]] = {}
        self.vanished: dict[str, frozenset[str]] = {}
        """Maps each alias to the names from the last run that are missing from the first list of this run."""
        self._logged_versions = set[str]()
        self._history = ToolHistory()
        self._prepared: dict[str, dict[str, _PreparedTool]] = {}
        self._tools: dict[Origin, DiscoveredMCPTool] = {}
        # The arguments from which `names` was computed
        self._naming_arguments: tuple[list[NameList], set[str]] | None = None
        self._is_publishing = False
        registry.on_change(self._publish)  # custom tools come and go, and their names are reserved

    def configure(self, entries: Mapping[str, UpstreamSettings]) -> None:
        """Use these upstreams from now on. A list stays valid as long as its upstream is reached in the same way."""
        stale_aliases = [
            alias
            for alias, entry in self._entries.items()
            if (now := entries.get(alias)) is None or not entry.is_reached_like(now)
        ]
        self._entries = dict(entries)
        self._reach_digests = {alias: entry.reach_digest() for alias, entry in entries.items()}
        for alias in stale_aliases:
            self._forget(alias)
        for alias in stale_aliases:
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
        self._listings.pop(alias, None)
        self._history.forget(alias)
        self._prepared.pop(alias, None)
        self.vanished.pop(alias, None)

    @contextmanager
    def batch(self) -> Generator[None]:
        """When the context exits, publish everything that was listed within it, all at once."""
        self._is_publishing = True
        try:
            yield
        finally:
            self._is_publishing = False
            self._publish()

    async def prepare(self, alias: str, definitions: Iterable[Definition]) -> None:
        """Do the expensive work for a later `set_listed` with these definitions, and let other tasks run in between."""
        prepared_tools: dict[str, _PreparedTool] = {}
        async for definition in in_turns(definitions):
            prepared_tools[definition["name"]] = self._prepared_of(alias, definition)
        self._prepared[alias] = prepared_tools

    def _prepared_of(self, alias: str, definition: Definition) -> _PreparedTool:
        name, lock = definition["name"], self.lock
        tool = self._prepared.get(alias, {}).get(name)
        if tool is None or tool.definition is not definition:
            tool = _PreparedTool(definition, digest_of(definition), tool_with_visible_texts(definition))
        if tool.lock is lock:
            return tool
        if lock is None:
            return replace(tool, lock=None, differences=(), block=None)
        entry = tool.entry or tool_entry(definition)
        differences = tuple(tool_differences(alias, name, lock.tool(alias, name), entry))
        block = block_of(alias, tool.visible_definition, entry, differences, lock)
        return replace(tool, entry=entry, lock=lock, differences=differences, block=block)

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
        included_tools: dict[str, Definition] = {}
        for definition in definitions:
            name = definition["name"]
            other_names = (full_name(alias, name), *([entry.rename[name]] if name in entry.rename else []))
            if is_ours or is_included(name, entry.include_tools, entry.exclude_tools, other_names):
                included_tools.setdefault(name, definition)
        prepared_tools = {name: self._prepared_of(alias, tool) for name, tool in included_tools.items()}
        previous_listing, previous_names = self._listings.get(alias), self.names
        is_first = previous_listing is not None and previous_listing.is_stored
        # The lock file does not contain this server's own login tool.
        self._prepared[alias] = {} if is_ours else {**self._prepared.get(alias, {}), **prepared_tools}
        digests = {name: tool.digest for name, tool in prepared_tools.items()}
        previous_definitions = None if previous_listing is None else previous_listing.definitions
        self._history.note(alias, digests, previous_definitions, is_first=is_first)
        blocks = {} if self.lock is None or is_ours else self._blocks_of(alias, prepared_tools)
        for name in prepared_tools:
            self._history.record(alias, name).is_blocked = name in blocks
        has_apps = any(True for tool in included_tools.values() for _ in app_links(tool))
        names_in_apps = {
            name: name_in_apps(tool) for name, tool in included_tools.items() if has_apps and is_for("app", tool)
        }
        self._listings[alias] = _Listing(included_tools, call, names_in_apps, blocks, is_stored)
        self._publish()
        if is_first and not is_stored:
            names = (*previous_names.published.items(), *previous_names.full.items())
            self.vanished[alias] = frozenset(
                name for name, origin in names if origin.alias == alias and self.names.find(name) is None
            )

    def _blocks_of(self, alias: str, prepared_tools: Mapping[str, _PreparedTool]) -> dict[str, ToolBlock]:
        """Return the blocks of tools that are not approved, and log each block that is new or has changed."""
        logged_standings = self._logged_standings.get(alias, {})
        blocks: dict[str, ToolBlock] = {}
        for name, tool in prepared_tools.items():
            if tool.block is not None:
                blocks[name] = tool.block
            elif not any(difference.field in WATCHED for difference in tool.differences):
                record = self._history.record(alias, name)
                if record.first_digest != record.current_digest:  # a person has approved exactly this version
                    record.first_digest, record.first_texts = record.current_digest, None
        self._logged_standings[alias] = {name: block.standing for name, block in blocks.items()}
        new_blocks: dict[str, list[str]] = {}  # the names by status; each status gets one line in the log
        for name, block in blocks.items():
            if not block.lock_problem and logged_standings.get(name) != block.standing:
                new_blocks.setdefault(block.standing, []).append(name)
        for standing, names in new_blocks.items():
            omission = f" and {len(names) - MAX_LOGGED_NAMES} more" if len(names) > MAX_LOGGED_NAMES else ""
            listed_names = f"{', '.join(repr(name) for name in names[:MAX_LOGGED_NAMES])}{omission}"
            message = f"upstream {alias}: tools blocked until approved, {standing}: {listed_names}"
            logger.warning("%s", visible_line(message), extra={"upstream": alias})
        return blocks

    def as_listed_to(self, tool: DiscoveredMCPTool, definition: Definition) -> DiscoveredMCPTool:
        """Return a tool as a client's own session lists it, so that a call to it is judged by that definition."""
        alias, name, listing = tool.alias, tool.upstream_name, self._listings.get(tool.alias)
        listed_definition = None if listing is None else listing.definitions.get(name)
        if listing is None or listed_definition is None or listed_definition == definition:
            return tool
        version = self._prepared_of(alias, definition)
        message = f"upstream {alias}: a client's own connection lists another version of the tool '{name}'"
        if message not in self._logged_versions and len(self._logged_versions) < MAX_REMEMBERED:
            self._logged_versions.add(message)
            logger.warning("%s", visible_line(message), extra={"upstream": alias})
        if (block := version.block) is not None:

            def is_current(*_: str) -> bool:
                current_block = self._prepared_of(alias, definition).block
                return current_block is not None and current_block.version == block.version

            options = self.command_options if self.approves_in_file else None
            return BlockedMCPTool(alias, tool.name, block, tool.bare_name, self._approve, is_current, options)
        is_approved = self.lock is not None and not any(change.field in WATCHED for change in version.differences)
        record = self._history.record(alias, name).of_version(
            version.digest, listed_definition, is_approved=is_approved
        )
        return DiscoveredMCPTool(
            alias,
            tool.name,
            definition,
            trusted=self._entries[alias].trust,
            call=listing.call,
            bare_name=tool.bare_name,
            record=record,
            reach=self._reach_digests[alias],
            visible_definition=version.visible_definition,
        )

    def standing(self, alias: str, name: str) -> str:
        """Return the lock status of a tool for people; empty without a lock file."""
        tool = self._prepared.get(alias, {}).get(name)
        if tool is None or tool.lock is None:
            return ""
        if tool.block is not None:
            return tool.block.standing
        fields = ", ".join(difference.field for difference in tool.differences)
        return f"approved ({fields} {'differ' if len(tool.differences) > 1 else 'differs'})" if fields else "approved"

    def standings(self, alias: str) -> Counter[str]:
        """Return how many of a server's tools are approved, changed, new, or blocked by an invalid file."""
        listing = None if self.lock is None else self._listings.get(alias)
        standings = (self.standing(alias, name) for name in (() if listing is None else listing.definitions))
        return Counter(standing.partition(" ")[0] for standing in standings if standing)

    def is_blocked(self, alias: str, definition: Definition) -> bool:
        """Return whether the lock file does not approve a tool that a client's own session may list."""
        return self.lock is not None and self._prepared_of(alias, definition).block is not None

    def is_blocked_as(self, alias: str, name: str, version: str) -> bool:
        """Return whether exactly this version of a tool is blocked."""
        block = self._listings[alias].blocks.get(name) if alias in self._listings else None
        return block is not None and block.version == version

    async def approve(self, tool: BlockedMCPTool) -> None:
        """Approve a tool as it was shown to a person.

        Raises `ToolError` if the tool was changed or approved after it was shown, or if approvals cannot be stored.
        """
        lock, outdated_reason = self.lock, tool.why_outdated()
        if lock is None or tool.block.lock_problem or outdated_reason:
            message = (
                tool.block.lock_problem or f"Nothing was approved: {outdated_reason}. Look at the current version."
            )
            raise ToolError(ToolErrorType.EXECUTION_DENIED, message)
        assert self.write_approval is not None  # noqa: S101 - the pool sets it before tools are blocked
        await self.write_approval(lock, tool.alias, {tool.upstream_name: tool.block.entry})
        logger.warning(
            "a person has approved the current version of %s", visible_line(tool.name), extra={"upstream": tool.alias}
        )

    async def _approve(self, tool: DiscoveredMCPTool, params: Arguments, context: ToolContext) -> NoReturn:
        """Approve a blocked tool that a client has called, after a person has consented. Always raises `ToolError`."""
        del params
        assert isinstance(tool, BlockedMCPTool)  # noqa: S101 - only these tools call this method
        # Consent to an earlier version of the tool does not cover the current one.
        if context.answer is None or context.answer.channel is ConsentChannel.EARLIER:
            message = f"Nothing was sent: {tool.why_asked_again('')}. Call it again to ask the user for approval."
            raise ToolError(ToolErrorType.EXECUTION_DENIED, message)
        await self.approve(tool)
        # An error, because clients check other results against the tool's output schema.
        message = (
            f"The user has approved the current version of {tool.name}; it was not called. List the tools again, or "
            "use describe_tool if you have it, to see its description. Then call it with the arguments that it needs."
        )
        raise ToolError(ToolErrorType.TOOL_NOT_CALLED, message)

    def tools_for_apps(self, name: str) -> list[str]:
        """Return the full names of the tools to which a bare name may refer when an app uses it."""
        return [
            full_name(alias, upstream_name)
            for alias in self._entries
            if alias in self._listings
            for upstream_name, bare_name in self._listings[alias].names_in_apps.items()
            if bare_name == name
        ]

    def has_current_list(self, alias: str) -> bool:
        """Return whether an upstream has listed its tools in this run, even if it has none."""
        return alias in self._listings and not self._listings[alias].is_stored

    def _publish(self) -> None:
        if self._is_publishing:
            return
        self._is_publishing = True
        try:
            taken_names = self._registry.names_except(self._entries) | self._reserved
            self._assign_names(taken_names)
            tools_by_origin: dict[Origin, DiscoveredMCPTool] = {}
            bare_names = self._bare_names(taken_names)
            names_by_origin = {origin: name for name, origin in self.names.published.items()}
            for alias, listing in self._listings.items():
                is_trusted, call = self._entries[alias].trust, listing.call
                listed_tools: list[DiscoveredMCPTool] = []
                hidden_tools: list[DiscoveredMCPTool] = []
                for name, definition in listing.definitions.items():
                    origin, record = Origin(alias, name), self._history.record(alias, name)
                    exposed_name = names_by_origin.get(origin) or rule_name(alias, name)
                    tool = self._tools.get(origin)
                    bare_name = listing.names_in_apps.get(name, "")
                    bare_name = bare_name if bare_name in bare_names else ""
                    # Keep the object of an unchanged tool.
                    is_same = tool is not None and (tool.name, tool.bare_name) == (exposed_name, bare_name)
                    if (block := listing.blocks.get(name)) is not None:
                        if not (is_same and isinstance(tool, BlockedMCPTool) and tool.block is block):
                            options = self.command_options if self.approves_in_file else None
                            tool = BlockedMCPTool(
                                alias, exposed_name, block, bare_name, self._approve, self.is_blocked_as, options
                            )
                    elif tool is None or not (is_same and tool.is_of(definition, call, record, trusted=is_trusted)):
                        tool = DiscoveredMCPTool(
                            alias,
                            exposed_name,
                            definition,
                            trusted=is_trusted,
                            call=call,
                            bare_name=bare_name,
                            record=record,
                            reach=self._reach_digests[alias],
                            visible_definition=self._prepared_of(alias, definition).visible_definition,
                        )
                    tools_by_origin[origin] = tool
                    is_listed = origin in names_by_origin and not (block is not None and block.lock_problem)
                    (listed_tools if is_listed else hidden_tools).append(tool)
                self._registry.replace_source(alias, listed_tools, hidden_tools)
            self._tools = tools_by_origin
        finally:
            self._is_publishing = False

    def _bare_names(self, taken_names: set[str]) -> set[str]:
        """Return the unambiguous names that apps may use without an alias."""
        counts = Counter(name for listing in self._listings.values() for name in listing.names_in_apps.values())
        if not counts:
            return set()
        taken_names = {*self.names.published, *self.names.full, *taken_names}
        prefixes = tuple(f"{alias}{BETWEEN}" for alias in self._entries)
        unique_names = (name for name, count in counts.items() if count == 1)
        return {name for name in unique_names if not (name in taken_names or name.startswith(prefixes))}

    def _assign_names(self, taken_names: set[str]) -> None:
        name_lists: list[NameList] = []
        for alias, entry in self._entries.items():
            names = tuple(self._listings[alias].definitions) if alias in self._listings else ()
            name_lists.append(NameList(alias, names, entry.prefix == "alias", entry.rename))
        if self._naming_arguments == (name_lists, taken_names):
            return
        self._naming_arguments = (name_lists, taken_names)
        previous_names, self.names = self.names, name_map(name_lists, taken_names, self._budget)
        logged_names = set(previous_names.hidden)
        new_hidden_names = [hidden_name for hidden_name in self.names.hidden if hidden_name not in logged_names]
        for hidden_name in new_hidden_names[:MAX_LOGGED_NAMES]:
            logger.warning("%s", hidden_name, extra={"upstream": hidden_name.origin.alias})
        if len(new_hidden_names) > MAX_LOGGED_NAMES:
            logger.warning(
                "further names are taken (%d); run coretools-mcp tools%s to list them",
                len(new_hidden_names) - MAX_LOGGED_NAMES,
                self.command_options,
            )
