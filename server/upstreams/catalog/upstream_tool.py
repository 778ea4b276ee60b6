"""Upstream tools as clients see them, the history of their definitions, and their apps.

MCP Apps (SEP-1865) are pages that serve as a tool's user interface. Clients take a page's URI from the tool's `_meta`,
which must therefore contain the published URI. A page calls tools by the names that its own server uses, because it
knows no other server.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
import textwrap
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from os.path import commonprefix
from typing import Any, Literal, cast

from server.protocol.json_rpc import Json, as_list, as_mapping
from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import WATCHED
from server.upstreams.catalog.published_names import full_name, is_changed, rule_name
from server.upstreams.session.list_reader import tool_with_visible_texts
from server.upstreams.wire.origin_meta import chain_of, with_origin
from tools.call.base_tool import BaseTool, Behaviour, ToolContext
from tools.contract.confirmation import ConfirmationDetails, McpConfirmation
from tools.contract.display import visible, visible_line
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_results import ToolResult
from tools.machine.unlocked_cached_property import cached_property
from tools.permissions.tool_names import BETWEEN, names_of_server, names_of_upstream_tool
from tools.text.file_names import brief

logger = logging.getLogger(__name__)

MAX_LOGGED_NAMES = 20  # maximum number of changed, blocked or hidden tools that the log names per list change

# Maximum total length, in characters and per upstream, of the stored first versions of changed and unlisted tools
MAX_KEPT_CHARS = 2_000_000
MAX_REMEMBERED = 10_000  # maximum number of remembered tools per upstream; listed tools are always remembered
FLAT_KEY = "ui/resourceUri"  # the `_meta` key of an app's URI in a draft of the extension

_FORGOTTEN = "forgotten"  # replaces the digest of a forgotten tool, and never equals a real digest


@dataclass(slots=True)
class ToolRecord:
    """A tool's history in this run, as digests of its definitions."""

    first_digest: str  # the digest when the tool was first listed; empty if unknown
    # The current digest; empty after the operator has changed the server's entry, `_FORGOTTEN` for a forgotten tool
    current_digest: str
    is_blocked: bool = False  # whether the lock file blocks the tool
    # The first version's watched fields, as texts, if the tool has since changed or been unlisted; `None` if not known
    first_texts: Mapping[str, str] | None = None
    # Pairs of a client's key and a digest that the person behind that client agreed to
    consents: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def of_version(self, digest: str, listed_definition: Mapping[str, Any], *, is_approved: bool) -> ToolRecord:
        """Return the record of the version that a client's own session lists, with the same consents."""
        texts = _watched_texts(listed_definition) if self.current_digest == self.first_digest else self.first_texts
        first_digest = digest if is_approved else self.first_digest
        return ToolRecord(first_digest, digest, first_texts=texts, consents=self.consents)


class ToolHistory:
    """The past and current definitions of every upstream tool.

    An upstream may list new names each time, so above a limit, the names that have been unlisted the longest are
    forgotten. After that, a seemingly new name may be a forgotten one that is listed again with a different definition.
    """

    def __init__(self) -> None:
        self._records: dict[str, dict[str, ToolRecord]] = {}  # by alias and name; the most recently listed are last
        self._forgetful: set[str] = set()  # upstreams with forgotten tools
        self._kept_chars = Counter[str]()  # by alias: the length of all `first_texts` so far

    def note(
        self,
        alias: str,
        digests: Mapping[str, str],
        previous_definitions: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        is_first: bool = False,
    ) -> None:
        """Record each tool that an upstream lists, with its digest, and log changes.

        `previous_definitions` is the upstream's previous list, by name; `None` if there was none.

        If `is_first` is true, the list is the first one of this run. Differences from the list of the last run then do
        not count as changes.
        """
        log = logging.LoggerAdapter(logger, {"upstream": alias})
        changed_names: list[str] = []
        earlier_records = self._records.get(alias, {})
        if is_first:
            earlier_records = {
                name: record for name, record in earlier_records.items() if record.current_digest == digests.get(name)
            }
        for name, record in earlier_records.items():
            if record.first_texts is None and digests.get(name) != record.current_digest == record.first_digest:
                record.first_texts = self._texts_to_keep(alias, (previous_definitions or {}).get(name))
        listed_records: dict[str, ToolRecord] = {}
        for name, digest in digests.items():
            record = earlier_records.get(name)
            if record is None:
                record = ToolRecord("" if alias in self._forgetful else digest, digest)
            elif record.current_digest != digest:
                record.current_digest = digest
                changed_names.append(name)
            listed_records[name] = record
        unlisted_records = {name: record for name, record in earlier_records.items() if name not in listed_records}
        # Above the limit, forget tools that are no longer listed.
        surplus = min(len(unlisted_records), len(unlisted_records) + len(listed_records) - MAX_REMEMBERED)
        for name in list(itertools.islice(unlisted_records, max(surplus, 0))):
            # A pending answer must not apply to a later tool with this name.
            unlisted_records.pop(name).current_digest = _FORGOTTEN
        if surplus > 0 and alias not in self._forgetful:
            self._forgetful.add(alias)
            message = (
                "upstream %s has listed more than %d different tools, so the oldest are forgotten; from now on, "
                "calls to its new tools need consent"
            )
            log.warning(message, alias, MAX_REMEMBERED)
        self._records[alias] = unlisted_records | listed_records
        for name in changed_names[:MAX_LOGGED_NAMES]:
            warning = f"upstream {alias} has changed its tool '{name}'; the next call to it needs consent"
            log.warning("%s", visible_line(warning))
        if len(changed_names) > MAX_LOGGED_NAMES:
            log.warning("upstream %s has changed further tools (%d)", alias, len(changed_names) - MAX_LOGGED_NAMES)

    def _texts_to_keep(self, alias: str, definition: Mapping[str, Any] | None) -> dict[str, str] | None:
        if definition is None:
            return None
        texts = _watched_texts(definition)
        kept_chars = self._kept_chars[alias] + sum(map(len, texts.values()))
        if kept_chars > MAX_KEPT_CHARS:
            return None
        self._kept_chars[alias] = kept_chars
        return texts

    def record(self, alias: str, name: str) -> ToolRecord:
        return self._records[alias][name]

    def forget(self, alias: str) -> None:
        """Forget a server whose entry the operator has changed, because it may be a different server now."""
        for record in self._records.pop(alias, {}).values():
            record.current_digest = ""
        self._forgetful.discard(alias)
        del self._kept_chars[alias]


def digest_of(definition: Mapping[str, Any]) -> str:
    watched_fields = {key: definition[key] for key in ("name", *WATCHED) if key in definition}
    return hashlib.sha256(json.dumps(watched_fields, sort_keys=True).encode()).hexdigest()


def _watched_texts(definition: Mapping[str, Any]) -> dict[str, str]:
    values = {key: definition[key] for key in WATCHED if key in definition}
    return {
        key: value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
        for key, value in values.items()
    }


def _excerpt(text: str, other: str) -> str:
    """Return a text, indented. A long text is cut to a part that begins shortly before its difference from `other`."""
    if len(text) > MAX_CHANGED_CHARS:
        common = commonprefix((text, other))  # noqa: RUF071 - not paths
        start = max(len(common) - DIFFERENCE_CONTEXT_CHARS, 0)
        place = f"characters {start + 1:,} to {min(start + MAX_CHANGED_CHARS, len(text)):,} of {len(text):,}"
        text = f"[{place}] {text[start : start + MAX_CHANGED_CHARS]}"
    return textwrap.indent(text, "  ")  # so that no line looks like a heading


CLAIMED_KEY = "coretools-mcp/claimedAnnotations"
"""The `_meta` key under which an untrusted upstream's own annotations are published."""

MAX_CHANGED_CHARS = 4_000  # how much of each version of a changed field a question shows
MAX_NAMED_ARGUMENTS = 20  # how many arguments a refusal names
DIFFERENCE_CONTEXT_CHARS = 100  # how much of a longer version the question shows before its first difference
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
"""A token (RFC 9110, 5.6.2); the length limit is this server's own."""

Arguments = Mapping[str, Any]


class DiscoveredMCPTool(BaseTool[Arguments]):
    """Calls one tool of one upstream. The upstream validates the arguments.

    Args:
        trusted: Whether the operator trusts this upstream. If so, annotations are published unchanged, and this tool
            asks for consent only if it has changed, or if its first version is unknown.
        bare_name: The name, without an alias, that the server's apps can use; empty if there is none.
        record: The tool's history, and who has agreed to which version; `None` for a tool that never changes. If the
            upstream changes the tool, this object keeps the version that it was created with.
        reach: A digest of how the server is reached. It distinguishes the tool from one with the same name whose server
            is reached differently.
    """

    kind = ToolKind.OTHER

    def __init__(
        self,
        alias: str,
        exposed_name: str,
        definition: Mapping[str, Any],
        *,
        trusted: bool,
        call: UpstreamCall,
        bare_name: str = "",
        record: ToolRecord | None = None,
        reach: str = "",
        visible_definition: Mapping[str, Any] | None = None,
    ) -> None:
        self.alias = alias
        self.upstream_name: str = definition["name"]
        self.name = exposed_name
        full = full_name(alias, self.upstream_name)
        self.bare_name = bare_name
        self.aliases = (*([full] if full != exposed_name else ()), *([bare_name] if bare_name else ()))
        self._visible_definition = (
            tool_with_visible_texts(definition) if visible_definition is None else visible_definition
        )
        self.display_name = self._visible_definition.get("title") or f"{self.upstream_name} ({alias})"
        self.description = (
            self._visible_definition.get("description") or f"Tool {self.upstream_name} of the server {alias}."
        )
        self.definition = definition
        self._record = record
        self._digest = record.current_digest if record is not None else ""
        self.version = f"{reach}-{record.current_digest}" if record is not None else ""
        self._trusted = trusted
        self._relay_call = call
        # Annotations count only if the server is trusted. Otherwise, the protocol's defaults apply, which assume the
        # worst.
        annotations: Mapping[str, Any] = (definition.get("annotations") or {}) if trusted else {}
        read_only = annotations.get("readOnlyHint") is True
        self.behaviour = Behaviour(
            read_only=read_only,
            destructive=not read_only and annotations.get("destructiveHint") is not False,
            idempotent=annotations.get("idempotentHint") is True,
            open_world=annotations.get("openWorldHint") is not False,
        )

    def __eq__(self, other: object) -> bool:
        """Return whether two tools look and behave the same for clients."""
        return (
            isinstance(other, DiscoveredMCPTool)
            and (self.name, self.bare_name, self._trusted) == (other.name, other.bare_name, other._trusted)
            and self.definition == other.definition
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def is_of(self, definition: Mapping[str, Any], call: UpstreamCall, record: ToolRecord, *, trusted: bool) -> bool:
        """Return whether a tool created from these arguments would be the same as this one."""
        is_same = self.definition is definition and self._relay_call is call and self._trusted == trusted
        return is_same and self._record is record and self._digest == record.current_digest

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The names by which permission rules can refer to this tool.

        They are the full name, the published name if it begins with the alias, the forms of both in Claude Code, Qwen
        Code and Gemini CLI, and `mcp__ALIAS` for all tools of the server.
        """
        names = [rule_name(self.alias, self.upstream_name), *names_of_upstream_tool(self.alias, self.upstream_name)]
        prefix = f"{self.alias}{BETWEEN}"
        if self.name.startswith(prefix):
            names += names_of_upstream_tool(self.alias, self.name.removeprefix(prefix))
        return tuple(dict.fromkeys((*names, *names_of_server(self.alias))))

    @property
    def loose_rule_names(self) -> tuple[str, ...]:
        """The published name, if it does not begin with the alias.

        Which tool has this name depends on the lists of all upstreams. If the published name was changed, the original
        name is included too.
        """
        if self.name in self.rule_names:
            return ()
        return (self.name, self.upstream_name) if is_changed(self.name) else (self.name,)

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        """The upstream's schema. Invisible characters are marked only in text such as titles and descriptions."""
        return self._visible_definition.get("inputSchema") or {"type": "object", "properties": {}}

    @cached_property
    def header_names(self) -> Mapping[tuple[str, ...], str]:
        """The names of the headers that repeat arguments (`x-mcp-header`, 2026-07-28), keyed by the argument's path."""
        if "x-mcp-header" not in json.dumps(schema := as_mapping(self.definition.get("inputSchema"))):
            return {}
        from mcp.shared.inbound import x_mcp_header_map  # noqa: PLC0415 - few tools need it

        headers = x_mcp_header_map(schema)
        valid_headers = {path: name for path, name in headers.items() if _HEADER_NAME.fullmatch(name)}
        if len(valid_headers) < len(headers):
            logger.warning(
                "the tool %s requests arguments in headers whose names are not valid in HTTP; "
                "these headers are omitted",
                visible(self.upstream_name),
            )
        return valid_headers

    def published(self) -> dict[str, Any]:
        wire = with_origin(self._visible_definition, self.alias, tool=self.upstream_name)
        wire["name"] = self.name
        wire["inputSchema"] = dict(self.parameter_schema)
        # Omit `taskSupport`, because tasks of the 2025-11-25 revision are not relayed.
        if "taskSupport" in (execution := as_mapping(wire.pop("execution", None))):
            execution = {name: value for name, value in execution.items() if name != "taskSupport"}
        if execution:
            wire["execution"] = execution
        if not self._trusted:
            annotations = dict(wire.get("annotations") or {})
            if annotations:
                wire["_meta"][CLAIMED_KEY] = annotations
            wire["annotations"] = {
                **({"title": annotations["title"]} if isinstance(annotations.get("title"), str) else {}),
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
        return f"Call {self.upstream_name} on the server {self.alias} ({names[:200]})"

    def why_asked_again(self, client_key: str) -> str:
        record, digest = self._record, self._digest
        if record is None or digest == record.first_digest or (client_key, digest) in record.consents:
            return ""
        if not record.first_digest:
            return f"the server {self.alias} has listed too many tools to know whether this one has changed"
        return (
            f"the server {self.alias} has changed this tool (title, description or schemas) since it was first listed"
        )

    @property
    def _changes(self) -> str:
        """Each changed field that models see, before and now, for the person who is asked again."""
        before, now = None if self._record is None else self._record.first_texts, _watched_texts(self.definition)
        parts: list[str] = []
        for key in WATCHED:
            old = "(no longer known)" if before is None else before.get(key, "(none)")
            new = now.get(key, "(none)")
            if old != new and (key in now or before is not None):
                parts += [f"Its {key} before:", _excerpt(old, new), f"Its {key} now:", _excerpt(new, old)]
        return "\n".join(parts)

    def record_consent(self, client_key: str) -> None:
        """Record consent to exactly this version, even if the upstream has changed the tool since.

        Does nothing for the first version, because it is not a change, or for an empty `client_key` (no client).
        """
        if self._record is not None and client_key and self._digest != self._record.first_digest:
            self._record.consents.add((client_key, self._digest))

    def why_outdated(self) -> str:
        if self._record is not None and self._record.is_blocked:
            return f"it is no longer approved in {LOCK_NAME}"
        if self._record is None or self._record.current_digest == self._digest:
            return ""
        if not self._record.current_digest:
            return f"the operator has changed the entry of the server {self.alias} in the meantime"
        return f"the server {self.alias} has changed this tool in the meantime (title, description or schemas)"

    async def should_confirm_execute(self, params: Arguments, context: ToolContext) -> ConfirmationDetails | None:
        is_asked_again = self.why_asked_again(context.client.key) != ""
        if self._trusted and not is_asked_again:
            return None
        self._refuse_incomplete(params)
        return McpConfirmation(
            title=f"Confirm a call to the MCP server {self.alias}",
            server_name=self.alias,
            tool_name=self.upstream_name,
            arguments=params,
            changes=self._changes if is_asked_again else "",
        )

    @property
    def required_arguments(self) -> list[str]:
        """The required arguments without those that have a default.

        Such an argument may be missing, because some servers list it as required and accept calls without it.
        """
        schema = as_mapping(self.definition.get("inputSchema"))
        properties = as_mapping(schema.get("properties"))
        names = [name for name in as_list(schema.get("required")) if isinstance(name, str)]
        return [name for name in names if "default" not in as_mapping(properties.get(name))]

    def _refuse_incomplete(self, params: Arguments) -> None:
        """Refuse a call without a required argument: the upstream would refuse it after a person had agreed to it."""
        properties = as_mapping(as_mapping(self.definition.get("inputSchema")).get("properties"))
        names = (name for name in self.required_arguments if name not in params)
        missing = [f"'{brief(name)}' is required." for name in islice(names, MAX_NAMED_ARGUMENTS)]
        if missing:
            accepted = ", ".join(map(brief, islice(properties, MAX_NAMED_ARGUMENTS)))
            problem = visible_line(" ".join([*missing, f"Accepted: {accepted or 'anything'}."]))
            raise InvalidToolParamsError(self.name, problem)

    async def execute(self, params: Arguments, context: ToolContext) -> ToolResult:
        return await self._relay_call(self, params, context)


UpstreamCall = Callable[[DiscoveredMCPTool, Arguments, ToolContext], Awaitable[ToolResult]]
"""Calls a tool: `Relay.call`, bound to an upstream. For a blocked tool, it is `ToolCatalog._approve`."""

Definition = Mapping[str, Any]


def app_links(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield the URIs with which a tool refers to its app: those under the current key and under the draft's key."""
    meta = as_mapping(tool.get("_meta"))
    for uri in (as_mapping(meta.get("ui")).get("resourceUri"), meta.get(FLAT_KEY)):
        if isinstance(uri, str):
            yield uri


def with_app_links(tool: Json, published_uri: Callable[[str], str]) -> Json:
    """Return a tool with published URIs in its app links; the rest of its `_meta` is unchanged."""
    changed_uris = {uri: name for uri in app_links(tool) if (name := published_uri(uri)) != uri}
    if not changed_uris:
        return tool
    meta = dict(as_mapping(tool.get("_meta")))
    if isinstance(uri := as_mapping(meta.get("ui")).get("resourceUri"), str):
        meta["ui"] = {**meta["ui"], "resourceUri": changed_uris.get(uri, uri)}
    if isinstance(uri := meta.get(FLAT_KEY), str):
        meta[FLAT_KEY] = changed_uris.get(uri, uri)
    return {**tool, "_meta": meta}


def name_in_apps(tool: Mapping[str, Any]) -> str:
    """Return the name that a server's apps use for a tool, without the aliases of coretools-mcp servers in between."""
    return tool["name"].split(BETWEEN, len(chain_of(as_mapping(tool.get("_meta")))))[-1]


def is_for(caller: Literal["app", "model"], tool: Mapping[str, Any]) -> bool:
    """Return whether a tool may be called by models, or by its server's apps; the default is yes for both."""
    visibility: Any = as_mapping(as_mapping(tool.get("_meta")).get("ui")).get("visibility")
    return caller in cast("list[Any]", visibility) if isinstance(visibility, list) else True
