"""The tools of all upstreams in the registry, each under its name: what they list comes in here, anew at any time."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from mcp.shared.inbound import x_mcp_header_map

from server.json_rpc import Json, as_mapping
from server.settings import UpstreamSettings
from server.settings.files import LOCK_NAME
from server.upstreams.catalog.apps import app_links, is_for_apps, name_in_apps
from server.upstreams.catalog.names import NameList, NameMap, Origin, full_name, is_included, name_map, rule_name
from server.upstreams.lock_file import (
    COMMAND,
    WATCHED,
    Difference,
    Lock,
    approve,
    hash_of,
    tool_differences,
    tool_entry,
)
from server.upstreams.session.listing import in_turns
from server.upstreams.session.visible_texts import tool_with_visible_texts
from server.upstreams.wire.own_meta import with_origin
from tools.call.base_tool import BaseTool, Behaviour
from tools.call.context import ToolContext
from tools.call.registry import ToolRegistry
from tools.contract.confirmation import ApprovalConfirmation, Channel, ConfirmationDetails, McpConfirmation
from tools.contract.display import visible, visible_line
from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.permission_subjects import Kind
from tools.contract.results import ToolResult
from tools.contract.threads import THREADS
from tools.permissions.tool_names import BETWEEN, names_of_server, names_of_upstream_tool

logger = logging.getLogger(__name__)

MOST_TOLD = 20  # changed tools, or hidden ones, that one change of a list tells of in the log (ours)

MOST_REMEMBERED = 10_000
"""Tools of one upstream that are remembered; those that it lists now are, however many they are (ours)."""


_FORGOTTEN = "forgotten"  # in place of a digest, and like none

_SERIALS = itertools.count(1)


@dataclass(slots=True)
class ToolRecord:
    """A tool in this run. What it is, or was, is told by digests of its definitions."""

    first: str  # what it was when it was first listed; empty where that is not known any more
    now: str  # what it is now; empty once its entry is not used any more
    is_stopped: bool = False  # whether the lock file keeps it from being called
    # tells it from a tool of the same name whose server is reached in another way
    serial: int = field(default_factory=_SERIALS.__next__)
    agreed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])  # which client, and to which digest

    def agree(self, client_key: str, digest: str) -> None:
        """The person behind a client has agreed to exactly this; nothing is kept of one like any other."""
        if client_key and digest != self.first:
            self.agreed.add((client_key, digest))


class ToolHistory:
    """Every tool of every upstream as it was and is.

    An upstream may list other names each time. So those that it has not listed for longest are forgotten, and from then
    on nobody can tell a name that is new from one that comes back as something else.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, ToolRecord]] = {}  # by alias and name; what was listed last is last
        self._forgetful: set[str] = set()  # of which something is forgotten

    def note(self, alias: str, digests: Mapping[str, str], *, is_first: bool = False) -> None:
        """Take in each tool that an upstream lists now, with its digest; changes are told in the log.

        It may be the first list of this run: what was listed in the last one counts for nothing.
        """
        log = logging.LoggerAdapter(logger, {"upstream": alias})
        changed: list[str] = []
        earlier = self._known.get(alias, {})
        if is_first:
            earlier = {name: known for name, known in earlier.items() if known.now == digests.get(name)}
        listed: dict[str, ToolRecord] = {}
        for name, now in digests.items():
            known = earlier.get(name)
            if known is None:
                known = ToolRecord("" if alias in self._forgetful else now, now)
            elif known.now != now:
                known.now = now
                changed.append(name)
            listed[name] = known
        unlisted = {name: known for name, known in earlier.items() if name not in listed}
        # What is too much of what it lists no more is forgotten.
        surplus = min(len(unlisted), len(unlisted) + len(listed) - MOST_REMEMBERED)
        for name in list(itertools.islice(unlisted, max(surplus, 0))):
            unlisted.pop(name).now = _FORGOTTEN  # an answer that still comes is not for what has the name then
        if surplus > 0 and alias not in self._forgetful:
            self._forgetful.add(alias)
            message = (
                "upstream %s has listed more than %d different tools, and the oldest are forgotten; "
                "whoever calls one that is new from now on is asked for consent"
            )
            log.warning(message, alias, MOST_REMEMBERED)
        self._known[alias] = unlisted | listed
        for name in changed[:MOST_TOLD]:
            said = f"upstream {alias} has changed its tool '{name}'; whoever calls it next is asked for consent"
            log.warning("%s", visible_line(said))
        if len(changed) > MOST_TOLD:
            log.warning("upstream %s has changed %d more tools", alias, len(changed) - MOST_TOLD)

    def of(self, alias: str, name: str) -> ToolRecord:
        return self._known[alias][name]

    def forget(self, alias: str) -> None:
        """The operator has changed the entry: it may be another server now."""
        for known in self._known.pop(alias, {}).values():
            known.now = ""
        self._forgetful.discard(alias)


def digest_of(definition: Mapping[str, Any]) -> str:
    told = {key: definition[key] for key in ("name", *WATCHED) if key in definition}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


CLAIMED_KEY = "coretools-mcp/claimedAnnotations"
"""Under this `_meta` key stand the annotations that an untrusted upstream claims for itself."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
"""A token (RFC 9110, 5.6.2); the limit is ours."""

Arguments = Mapping[str, Any]


class DiscoveredMCPTool(BaseTool[Arguments]):
    """Calls one tool of one upstream. The arguments are the upstream's to validate.

    Args:
        definition: The tool as the upstream lists it, in wire shape.
        trusted: The operator trusts this upstream: no question, and its annotations are published as they are.
        bare_name: This reaches it too, without an alias: apps of its server know no other name. Empty where it may not.
        known: What it was before, and who has agreed to what; `None` for one that was never another. This tool is
            what it is now, and stays that when the upstream changes it.
        shown: The definition with texts that hide nothing, where that is known.
    """

    kind = Kind.OTHER

    def __init__(
        self,
        alias: str,
        exposed_name: str,
        definition: Mapping[str, Any],
        *,
        trusted: bool,
        call: UpstreamCall,
        bare_name: str = "",
        known: ToolRecord | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        self.alias = alias
        self.upstream_name: str = definition["name"]
        self.name = exposed_name
        full = full_name(alias, self.upstream_name)
        self.bare_name = bare_name
        self.aliases = (*([full] if full != exposed_name else ()), *([bare_name] if bare_name else ()))
        self._shown = tool_with_visible_texts(definition) if shown is None else shown
        self.display_name = self._shown.get("title") or f"{self.upstream_name} ({alias})"
        self.description = self._shown.get("description") or f"Tool {self.upstream_name} of the server {alias}."
        self.definition = definition
        self._known = known
        self._digest = known.now if known is not None else ""
        self.version = f"{known.serial}-{known.now}" if known is not None else ""
        self._trusted = trusted
        self._call = call
        claimed: Mapping[str, Any] = definition.get("annotations") or {}
        self.behaviour = (
            Behaviour(
                read_only=(read_only := claimed.get("readOnlyHint") is True),
                destructive=not read_only and claimed.get("destructiveHint") is not False,
                idempotent=claimed.get("idempotentHint") is True,
                open_world=claimed.get("openWorldHint") is not False,
            )
            if trusted
            else Behaviour(read_only=False, destructive=True, idempotent=False, open_world=True)
        )

    def __eq__(self, other: object) -> bool:
        """Equal when a client would see and get the same."""
        return (
            isinstance(other, DiscoveredMCPTool)
            and (self.name, self.bare_name, self._trusted) == (other.name, other.bare_name, other._trusted)
            and self.definition == other.definition
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def is_of(self, definition: Mapping[str, Any], call: UpstreamCall, known: ToolRecord, *, trusted: bool) -> bool:
        """Whether one that is made of all this would be the same."""
        is_same = self.definition is definition and self._call is call and self._trusted == trusted
        return is_same and self._known is known and self._digest == known.now

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The full name, what it is published as with the alias before it, and how the CLIs call both."""
        names = [rule_name(self.alias, self.upstream_name), *names_of_upstream_tool(self.alias, self.upstream_name)]
        prefix = f"{self.alias}{BETWEEN}"
        if self.name.startswith(prefix):
            names += names_of_upstream_tool(self.alias, self.name.removeprefix(prefix))
        return tuple(dict.fromkeys((*names, *names_of_server(self.alias))))

    @property
    def loose_rule_names(self) -> tuple[str, ...]:
        """What it is published as without the alias: whose name that is changes with what is listed."""
        return () if self.name in self.rule_names else (self.name,)

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        """The upstream's own schema; only texts for people may have marks for what is not seen."""
        return self._shown.get("inputSchema") or {"type": "object", "properties": {}}

    @cached_property
    def repeated(self) -> Mapping[tuple[str, ...], str]:
        """Arguments that it wants in HTTP headers too (`x-mcp-header`, 2026-07-28); looked for at the first call."""
        wanted = x_mcp_header_map(as_mapping(self.definition.get("inputSchema")))
        fit = {path: name for path, name in wanted.items() if _HEADER_NAME.fullmatch(name)}
        if len(fit) < len(wanted):
            logger.warning(
                "the tool %s wants arguments in headers under names that HTTP does not allow: these are left out",
                visible(self.upstream_name),
            )
        return fit

    def published(self) -> dict[str, Any]:
        wire = with_origin(self._shown, self.alias, tool=self.upstream_name)
        wire["name"] = self.name
        wire["inputSchema"] = dict(self.parameter_schema)
        # Tasks as they were in 2025-11-25, which do not pass.
        if "taskSupport" in (execution := as_mapping(wire.pop("execution", None))):
            execution = {name: value for name, value in execution.items() if name != "taskSupport"}
        if execution:
            wire["execution"] = execution
        if not self._trusted:
            claimed = dict(wire.get("annotations") or {})
            if claimed:
                wire["_meta"][CLAIMED_KEY] = claimed
            wire["annotations"] = {
                **({"title": claimed["title"]} if isinstance(claimed.get("title"), str) else {}),
                "readOnlyHint": False,
                "destructiveHint": True,
                "idempotentHint": False,
                "openWorldHint": True,
            }
        return wire

    def validate_tool_params(self, arguments: Mapping[str, Any]) -> Arguments:
        return arguments

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        del context
        names = ", ".join(params) or "no arguments"
        return f"Call {self.upstream_name} of the server {self.alias} ({names[:200]})"

    def why_asked_anew(self, client_key: str) -> str:
        known, digest = self._known, self._digest
        if known is None or digest == known.first or (client_key, digest) in known.agreed:
            return ""
        return (
            f"the server {self.alias} has changed this tool (its description or its schema) since it was first listed"
        )

    def consented(self, client_key: str) -> None:
        """This counts as known, whatever the upstream has made of it since."""
        if self._known is not None:
            self._known.agree(client_key, self._digest)

    def why_outdated(self) -> str:
        if self._known is not None and self._known.is_stopped:
            return f"it is not approved in {LOCK_NAME} any more"
        if self._known is None or self._known.now == self._digest:
            return ""
        if not self._known.now:
            return f"the operator has changed the entry of the server {self.alias} since"
        return f"the server {self.alias} has changed this tool since (its description or its schema)"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        if self._trusted and not self.why_asked_anew(context.client.key):
            return None
        return McpConfirmation(
            title=f"Confirm a call of the MCP server {self.alias}",
            server_name=self.alias,
            tool_name=self.upstream_name,
            arguments=params,
        )

    async def execute(self, params: Arguments, context: ToolContext) -> ToolResult:
        return await self._call(self, params, context)


UpstreamCall = Callable[[DiscoveredMCPTool, Arguments, ToolContext], Awaitable[ToolResult]]


Definition = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A tool as it is listed, the digest of what models are told of it, and with texts in which nothing hides."""

    definition: Definition
    digest: str
    shown: dict[str, Any]
    entry: Json  # as the lock file would have it; empty as long as there is no such file
    lock: Lock | None  # by which it was judged
    differences: tuple[Difference, ...]  # from what was approved
    stop: Stop | None  # what stands in its place, where it is not approved

    @property
    def standing(self) -> str:
        """How it stands to the lock file, in a few words; empty where there is none."""
        if self.lock is None:
            return ""
        if self.stop is None:
            fields = ", ".join(each.field for each in self.differences)
            return (
                f"approved ({fields} {'differ' if len(self.differences) > 1 else 'differs'})" if fields else "approved"
            )
        return self.stop.standing


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    """What keeps a tool from being called."""

    definition: Definition  # what is listed in its place, in words of ours
    shown: Definition  # the tool itself, as a person may see it
    entry: Json  # the same, as the lock file has it once it is approved
    standing: str  # "new", or which fields have changed
    closed: str  # where nothing can be approved: why, and what to do
    version: str  # a hash of all of this


def stop_of(alias: str, shown: Definition, entry: Json, found: Iterable[Difference], lock: Lock) -> Stop | None:
    """What to put in the place of a tool, if it is not approved. No word of its server's is in it, but for its name."""
    name = shown["name"]
    stopping = [each for each in found if each.stops]
    if not stopping and not lock.problem:
        return None
    fields = ", ".join(each.field for each in stopping)
    told = f"has added this tool since its tools were approved ({LOCK_NAME})"
    if fields:
        told = f"has changed this tool ({fields}) since it was approved ({LOCK_NAME})"
    description = (
        f"The server {alias} {told}. Calling it, with no arguments, asks the user to approve it as it is now; what it "
        "does and takes is listed after that."
    )
    definition: Json = {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}}
    visibility: Any = as_mapping(as_mapping(shown.get("_meta")).get("ui")).get("visibility")
    if visibility in (["app"], ["model"], ["app", "model"], ["model", "app"]):
        definition["_meta"] = {"ui": {"visibility": visibility}}
    standing = "closed" if lock.problem else "new" if not fields else f"changed ({fields})"
    version = f"lock-{hash_of([alias, name, entry, standing, lock.problem])}"
    return Stop(definition, shown, entry, standing, lock.why_closed, version)


class StoppedMCPTool(DiscoveredMCPTool):
    """Stands for a tool that nobody has approved as it is now: a call of it asks for that, and reaches no server.

    Args:
        approve: Writes the tool into the lock file as it was shown, in place of a call.
        is_current: Whether this is still what keeps it from being called.
    """

    def __init__(
        self,
        alias: str,
        exposed_name: str,
        stop: Stop,
        bare_name: str,
        approve: UpstreamCall,
        is_current: Callable[[str, str, str], bool],
    ) -> None:
        super().__init__(alias, exposed_name, stop.definition, trusted=False, call=approve, bare_name=bare_name)
        self.stop = stop
        self.version = stop.version
        self._is_current = is_current

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoppedMCPTool) and self.version == other.version and super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def get_description(self, params: Arguments, context: ToolContext) -> str:
        del params, context
        return f"Approve {self.upstream_name} of the server {self.alias} as it is now"

    def why_asked_anew(self, client_key: str) -> str:
        del client_key
        if self.stop.closed:
            return f"{LOCK_NAME} cannot be used"
        what = "added" if self.stop.standing == "new" else "changed"
        return f"the server {self.alias} has {what} this tool since its tools were approved in {LOCK_NAME}"

    def consented(self, client_key: str) -> None:
        """What is approved counts for everybody."""

    def why_outdated(self) -> str:
        if self._is_current(self.alias, self.upstream_name, self.version):
            return ""
        return f"the server {self.alias} has changed this tool since, or it was approved meanwhile"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        del params, context
        if self.stop.closed:
            raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, self.stop.closed)
        return ApprovalConfirmation(
            title=f"Approve a tool of the MCP server {self.alias}",
            prompt=self.words,
            way_out=f"The user can approve it with `{COMMAND} --approve {shlex.quote(self.name)}` in a terminal, or at "
            "`coretools-mcp dashboard`. Nothing else replaces this question.",
        )

    @property
    def words(self) -> str:
        """The tool as it is now, for the person who approves it."""
        shown = self.stop.shown
        parts = [f"Server: {visible_line(self.alias)}", f"Tool: {visible_line(self.upstream_name)}"]
        description = textwrap.indent(str(shown.get("description") or "(none)"), "  ")  # so that it has no headings
        parts += [f"State: {self.stop.standing}", "Its description now:", description]
        parts += ["Its arguments now:", json.dumps(shown.get("inputSchema"), indent=1, ensure_ascii=False)]
        if "outputSchema" in shown:
            parts += ["Its results now:", json.dumps(shown["outputSchema"], indent=1, ensure_ascii=False)]
        if "annotations" in shown:
            parts.append(f"Its annotations now: {json.dumps(shown['annotations'], ensure_ascii=False)}")
        return "\n".join(parts)


class ToolCatalog:
    """Publishes the tools of upstreams in the registry, under names of at most `budget` characters.

    None gets a name that is `reserved`.
    """

    def __init__(self, registry: ToolRegistry, budget: int, reserved: Iterable[str] = ()) -> None:
        self.names = NameMap()  # what every name means now
        self._registry = registry
        self._budget = budget
        self._reserved = frozenset(reserved)
        self._entries: Mapping[str, UpstreamSettings] = {}
        self._offers: dict[str, tuple[Mapping[str, Definition], UpstreamCall]] = {}
        self.lock: Lock | None = None  # what is approved of all of this, see `use_lock`; `None` where everything is
        self.on_approval: Callable[[Lock], Awaitable[None]] | None = None  # called with the file after an approval
        self._stops: dict[str, dict[str, Stop]] = {}  # by alias and name
        self._told_stops: dict[str, dict[str, str]] = {}  # the same, as the log was told of them last
        self._for_apps: dict[str, dict[str, str]] = {}  # what apps of each upstream may call, with the names they use
        self._stored: set[str] = set()  # aliases of those whose tools are known from the last run alone
        self.vanished: dict[str, frozenset[str]] = {}
        """By alias, the names of what it has listed in the last run and not in this one."""
        self._known = ToolHistory()
        self._prepared: dict[str, dict[str, _Prepared]] = {}
        self._made: dict[Origin, DiscoveredMCPTool] = {}
        self._named: tuple[list[NameList], set[str]] | None = None  # what the names of now were made of
        self._is_publishing = False
        registry.on_change(self._publish)  # custom tools come and go, and their names are theirs

    def configure(self, entries: Mapping[str, UpstreamSettings]) -> None:
        """Use these upstreams from now on. What one listed before counts as long as it is reached as it was."""
        gone = [
            alias
            for alias, entry in self._entries.items()
            if (now := entries.get(alias)) is None or not entry.is_reached_like(now)
        ]
        self._entries = dict(entries)
        for alias in gone:
            self._forget(alias)
        for alias in gone:
            if alias in entries:
                self._registry.replace_source(alias, ())
            else:
                self._registry.drop_source(alias)
        self._publish()

    def use_lock(self, lock: Lock | None) -> None:
        """Judge by this lock file what is listed from now on."""
        self.lock = lock
        if lock is not None and lock.problem:
            logger.error("%s", lock.why_closed)

    def withdraw(self, alias: str) -> None:
        """What it listed in the last run is not there: it cannot be reached."""
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
        """Publish what is listed meanwhile in one piece, at the end."""
        self._is_publishing = True
        try:
            yield
        finally:
            self._is_publishing = False
            self._publish()

    async def prepare(self, alias: str, definitions: Iterable[Definition]) -> None:
        """Work out what is heavy before `set_listed`, which is done in one piece; others have their turns meanwhile."""
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
        """Publish what an upstream lists now, in place of what it listed before; of two with one name the first.

        It may be stored, which is what it listed in the last run; or ours, which is the one to log in.
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
        # What is ours stands in no lock file.
        self._prepared[alias] = {} if is_ours else {**self._prepared.get(alias, {}), **prepared}
        self._known.note(alias, {name: each.digest for name, each in prepared.items()}, is_first=is_first)
        if self.lock is not None and not is_ours:
            self._judge(alias, prepared)
        else:
            self._stops.pop(alias, None)
        for name in prepared:
            self._known.of(alias, name).is_stopped = name in self._stops.get(alias, {})
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
        """Stop what is not approved; what is news of that is told in the log."""
        before = self._told_stops.get(alias, {})
        stops: dict[str, Stop] = {}
        for name, each in prepared.items():
            if each.stop is not None:
                stops[name] = each.stop
            elif not each.differences or not any(found.field in WATCHED for found in each.differences):
                known = self._known.of(alias, name)
                known.first = known.now  # a person has approved exactly this, and is not asked anew
        self._stops[alias] = stops
        self._told_stops[alias] = {name: stop.standing for name, stop in stops.items()}
        fresh = [name for name, stop in stops.items() if not stop.closed and before.get(name) != stop.standing]
        for name in fresh[:MOST_TOLD]:
            said = f"upstream {alias}: its tool '{name}' is not as approved and stopped: {stops[name].standing}"
            logger.warning("%s", visible_line(said), extra={"upstream": alias})
        if len(fresh) > MOST_TOLD:
            logger.warning("upstream %s: %d more tools are stopped", alias, len(fresh) - MOST_TOLD)

    def standing(self, alias: str, name: str) -> str:
        """How a tool stands to the lock file, in a few words; empty where there is none."""
        known = self._prepared.get(alias, {}).get(name)
        return known.standing if known is not None else ""

    def standings(self, alias: str) -> Counter[str]:
        """How many tools of a server are approved, changed, new, or closed by a file that cannot be used."""
        listed = self._offers[alias][0] if alias in self._offers and self.lock is not None else ()
        standings = (self.standing(alias, name) for name in listed)
        return Counter(each.partition(" ")[0] for each in standings if each)

    def is_stopped_as(self, alias: str, name: str, version: str) -> bool:
        """Whether a tool is kept from being called by exactly this."""
        stop = self._stops.get(alias, {}).get(name)
        return stop is not None and stop.version == version

    async def approve(self, tool: StoppedMCPTool) -> None:
        """Write a tool into the lock file as a person was shown it.

        Raises:
            ToolError: It is something else now, or the file cannot be written.
        """
        lock, outdated = self.lock, tool.why_outdated()
        if lock is None or tool.stop.closed or outdated:
            why = tool.stop.closed or f"Nothing was approved, because {outdated}. Look at what it is now."
            raise ToolError(ToolErrorType.EXECUTION_DENIED, why)
        entries = {tool.upstream_name: tool.stop.entry}
        written = await THREADS.run(partial(approve, lock.path, tool.alias, entries))
        logger.warning("a person has approved %s as it is now", visible_line(tool.name), extra={"upstream": tool.alias})
        if self.on_approval is not None:
            await self.on_approval(written)

    async def _approve(self, tool: DiscoveredMCPTool, params: Arguments, context: ToolContext) -> ToolResult:
        """What becomes of a call of a stopped tool, after a person has agreed."""
        del params
        assert isinstance(tool, StoppedMCPTool)  # noqa: S101 - nothing else is given this
        # A yes to a call that was at work when the tool has changed is none to what it has become.
        if context.answer is None or context.answer.channel is Channel.EARLIER:
            told = f"Nothing was sent, because {tool.why_asked_anew('')}. Call it again: the user is asked about that."
            raise ToolError(ToolErrorType.EXECUTION_DENIED, told)
        await self.approve(tool)
        return ToolResult(
            f"The user has approved {tool.name} as it is now; it was not called. Look at the list of tools again, "
            "which has its description and its arguments, and call it with what it wants."
        )

    def called_by_apps(self, name: str) -> list[str]:
        """The full names of the tools that apps may mean by a name without an alias."""
        tools = ((alias, own, bare) for alias in self._entries for own, bare in self._for_apps.get(alias, {}).items())
        return [full_name(alias, own) for alias, own, bare in tools if bare == name]

    def lists_anything(self, alias: str) -> bool:
        """Whether it has listed its tools in this run, be they none."""
        return alias in self._offers and alias not in self._stored

    def _publish(self) -> None:
        if self._is_publishing:
            return
        self._is_publishing = True
        try:
            self._name_all()
            made: dict[Origin, DiscoveredMCPTool] = {}
            bare = self._bare_names()
            for alias, (definitions, call) in self._offers.items():
                trusted = self._entries[alias].trust
                published = {origin: name for name, origin in self.names.published.items() if origin.alias == alias}
                stops = self._stops.get(alias, {})
                listed: list[DiscoveredMCPTool] = []
                hidden: list[DiscoveredMCPTool] = []
                for name, definition in definitions.items():
                    origin, known = Origin(alias, name), self._known.of(alias, name)
                    called = published.get(origin) or rule_name(alias, name)
                    tool = self._made.get(origin)
                    bare_name = self._for_apps[alias].get(name, "")
                    bare_name = bare_name if bare_name in bare else ""
                    # A tool that is the same stays.
                    is_same = tool is not None and (tool.name, tool.bare_name) == (called, bare_name)
                    if (stop := stops.get(name)) is not None:
                        if not (is_same and isinstance(tool, StoppedMCPTool) and tool.stop is stop):
                            tool = StoppedMCPTool(alias, called, stop, bare_name, self._approve, self.is_stopped_as)
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
                            shown=shown,
                        )
                    made[origin] = tool
                    is_listed = origin in published and not (stop is not None and stop.closed)
                    (listed if is_listed else hidden).append(tool)
                self._registry.replace_source(alias, listed, hidden)
            self._made = made
        finally:
            self._is_publishing = False

    def _bare_names(self) -> set[str]:
        """What apps may call without an alias: names of one tool each, which mean nothing else here."""
        counts = Counter(itertools.chain.from_iterable(each.values() for each in self._for_apps.values()))
        if not counts:
            return set()
        beside = self._registry.names_beside(self._entries)
        taken = {*self.names.published, *self.names.full, *beside, *self._reserved}
        prefixes = tuple(f"{alias}{BETWEEN}" for alias in self._entries)
        alone = (name for name, count in counts.items() if count == 1)
        return {name for name in alone if not (name in taken or name.startswith(prefixes))}

    def _name_all(self) -> None:
        listed = [
            NameList(
                alias,
                tuple(self._offers[alias][0] if alias in self._offers else ()),
                entry.prefix == "alias",
                entry.rename,
            )
            for alias, entry in self._entries.items()
        ]
        taken = self._registry.names_beside(self._entries) | self._reserved
        if self._named == (listed, taken):
            return
        self._named = (listed, taken)
        before, self.names = self.names, name_map(listed, taken, self._budget)
        told = set(before.hidden)
        fresh = [hidden for hidden in self.names.hidden if hidden not in told]
        for hidden in fresh[:MOST_TOLD]:
            logger.warning("%s", hidden, extra={"upstream": hidden.origin.alias})
        if len(fresh) > MOST_TOLD:
            logger.warning("%d more names are taken; coretools-mcp tools lists them", len(fresh) - MOST_TOLD)
