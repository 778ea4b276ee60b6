"""Reads an upstream's lists page by page, within limits, and drops whatever clients could not read.

In published copies of items, and in elicitation forms, invisible characters in titles and descriptions are made
visible.
"""

from __future__ import annotations

import hashlib
import logging
import operator
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

import anyio
import anyio.lowlevel
from pydantic_core import to_json

from server.protocol.json_rpc import METHOD_NOT_FOUND, Json, as_list, as_mapping
from server.upstreams.session.protocol_era import Era
from server.upstreams.wire.json_rpc_channel import RelayError, UpstreamError, why_failed
from server.upstreams.wire.origin_meta import OF_THIS_SERVER, THIS_SERVER, chain_of, has_passed_here
from tools.contract.display import visible, visible_line

MAX_PAGES = 100  # maximum number of pages per list, so that an endless cursor cannot block this server
MAX_ITEMS = 10_000  # maximum number of items per list
MAX_BYTES = 16 << 20  # maximum size of a list's items as JSON, because every client gets the whole list

MAX_REPORTED, MAX_REPORTED_CHARS = 20, 200  # limits for reporting omissions from a list: entries, characters per entry
TURN_SECONDS = 0.002  # how long items are processed before other tasks may run
MAX_DEPTH = 64  # maximum depth to which schemas are searched

_TEXT_KEYWORDS = frozenset(
    {"title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage"}
)
_TEXT_LIST_KEYWORDS = frozenset({"enumNames", "enumDescriptions", "markdownEnumDescriptions"})
"""Keywords whose value is a list of names or descriptions, one for each value of `enum`."""

_DATA_KEYWORDS = frozenset({"const", "default", "enum", "examples"})  # keywords whose values are data, not schemas

_SCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""JSON Schema keywords that map names to schemas."""

Item = TypeVar("Item")


async def in_turns(items: Iterable[Item]) -> AsyncGenerator[Item]:
    """Yield the items, letting other tasks run after each time slice."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > TURN_SECONDS:
            await anyio.lowlevel.checkpoint()
            began = time.perf_counter()


@dataclass(frozen=True, slots=True)
class OfferedKind:
    """A kind of list: its field in a result, the key that identifies an item, and the server capability."""

    method: str
    field: str
    key: str
    capability: Literal["tools", "prompts", "resources"]
    item: str = ""  # the specification's name for the type of an item; empty if items are not checked against a schema


TOOLS = OfferedKind("tools/list", "tools", "name", "tools", "Tool")
PROMPTS = OfferedKind("prompts/list", "prompts", "name", "prompts", "Prompt")
RESOURCES = OfferedKind("resources/list", "resources", "uri", "resources", "Resource")
TEMPLATES = OfferedKind("resources/templates/list", "resourceTemplates", "uriTemplate", "resources", "ResourceTemplate")
KINDS = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)  # the lists that are read when an upstream connects
SKILLS = OfferedKind("skills/list", "skills", "uri", "resources")  # read on demand, because changes are never announced


class IsThisServerError(Exception):
    """The upstream is this server itself."""


class Lister(Protocol):
    """A source of lists: a session, or stored lists."""

    @property
    def alias(self) -> str: ...

    @property
    def era(self) -> Era: ...

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]: ...

    async def request(self, method: str, params: Json) -> Json: ...


class CheckedItem(NamedTuple):
    """A processed list item: a digest of the original, its accepted form, and where parts were removed from it."""

    digest: bytes
    item: Json
    removed_parts: tuple[str, ...] = ()


@dataclass(slots=True)
class Offer:
    """The lists of one upstream, in wire format."""

    lists: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    digests: dict[str, dict[str, CheckedItem]] = field(default_factory=dict[str, "dict[str, CheckedItem]"])
    """The processed items of each list, keyed by name or URI, so that an unchanged item is not processed again."""
    omissions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Items, and parts of items, that were omitted from each list because clients could not read them."""
    truncated: set[str] = field(default_factory=set[str])  # lists that exceeded `MAX_ITEMS` or `MAX_BYTES`
    stored: set[str] = field(default_factory=set[str])  # lists from the last run that the upstream has not sent yet

    def items(self, kind: OfferedKind) -> list[Json]:
        return self.lists.get(kind.field, [])

    def note_omissions(self, session: Lister, kind: OfferedKind, omissions: list[str], *, is_truncated: bool) -> None:
        """Record what was omitted from a list, and log new omissions."""
        if omissions and omissions != self.omissions.get(kind.field):
            message = "upstream %s: %s has parts that not every client can read; they were dropped: %s"
            session.log.warning(message, session.alias, kind.method, ", ".join(omission_messages(omissions)))
        self.omissions[kind.field] = omissions
        if not is_truncated:
            self.truncated.discard(kind.field)
        elif kind.field not in self.truncated:
            self.truncated.add(kind.field)
            message = "upstream %s: %s has more than %d items or %d bytes; %d fit, and the others were dropped"
            count = len(self.digests[kind.field])
            session.log.warning(message, session.alias, kind.method, MAX_ITEMS, MAX_BYTES, count)


async def read_lists(
    session: Lister,
    kinds: tuple[OfferedKind, ...],
    seconds: float,
    on_list: Callable[[OfferedKind, list[Json]], Awaitable[None]],
    offer: Offer,
) -> None:
    """Read lists concurrently, each within `seconds`, and pass each to `on_list` as soon as it has been read.

    A list whose capability is missing is not requested, except for the tools: some servers forget to declare `tools`.
    `offer` records the items and what was omitted. Raises an error if a list has come through this server itself, or if
    the tools cannot be listed, except if an upstream that does not declare `tools` answers with an error.
    """
    problems: list[Exception] = []

    async def read(kind: OfferedKind) -> None:
        try:
            with anyio.fail_after(seconds):
                items = await read_list(session, kind, offer)
        except (RelayError, TimeoutError) as error:
            if kind is TOOLS and (session.era.announces("tools") or not isinstance(error, UpstreamError)):
                problems.append(error)
            elif kind is not TOOLS and (not isinstance(error, UpstreamError) or error.code != METHOD_NOT_FOUND):
                session.log.warning("upstream %s: %s failed (%s)", session.alias, kind.method, why_failed(error))
        else:
            await on_list(kind, items)

    async with anyio.create_task_group() as tasks:
        for kind in kinds:
            if kind is TOOLS or session.era.announces(kind.capability):
                tasks.start_soon(read, kind)
    if problems:
        raise problems[0]


async def read_list(session: Lister, kind: OfferedKind, offer: Offer) -> list[Json]:
    """Read all pages of one list, and check new and changed items. Raises `IsThisServerError` or a `RelayError`."""
    previous_items = offer.digests.get(kind.field, {})
    items: dict[str, CheckedItem] = {}
    omissions: list[str] = []
    size = position = 0
    is_truncated = False
    params: Json = {"_meta": OF_THIS_SERVER}
    seen_cursors: set[str] = set()
    from server.protocol.item_schemas import UnfitError, fitted  # noqa: PLC0415 - imported with the first list

    for _ in range(MAX_PAGES):
        page = await session.request(kind.method, params)
        if THIS_SERVER in chain_of(as_mapping(page.get("_meta"))):
            raise IsThisServerError
        async for raw_item in in_turns(as_list(page.get(kind.field))):
            position += 1
            item: Json = as_mapping(raw_item)
            name: Any = item.get(kind.key)
            if not isinstance(name, str) or not name:
                omissions.append(f"item {position} (it has no {kind.key})")
                continue
            if len(items) >= MAX_ITEMS:
                is_truncated = is_truncated or not (name in items or has_passed_here(item))
                continue
            if kind is TOOLS and isinstance(schema := item.get("inputSchema", {}), dict) and "type" not in schema:
                # Many servers omit `type`, although it can only be `object`.
                item = {**item, "inputSchema": {"type": "object", **cast("Json", schema)}}
            try:
                encoded = to_json(item)
                # The digest depends on the revision, because an item may be treated differently in another revision.
                digest = hashlib.blake2b(encoded, digest_size=16, key=session.era.version.encode()).digest()
                checked_item = previous_items.get(name)
                if checked_item is None or checked_item.digest != digest:
                    checked_item = CheckedItem(digest, *(fitted(kind.item, item, encoded) if kind.item else (item, ())))
                if name in items or has_passed_here(item):
                    continue
            except Exception as error:  # noqa: BLE001 - an invalid item must not affect the others
                reason = str(error) if isinstance(error, UnfitError) else "it cannot be read"
                omissions.append(f"'{name}' ({reason})")
                continue
            if size + len(encoded) > MAX_BYTES:
                is_truncated = True
                continue
            size += len(encoded)
            items[name] = checked_item
            omissions += [f"{part} of '{name}'" for part in checked_item.removed_parts]
        next_cursor = page.get("nextCursor")
        if not isinstance(next_cursor, str) or next_cursor in seen_cursors or is_truncated:
            break
        seen_cursors.add(next_cursor)
        params = {**params, "cursor": next_cursor}
    else:
        session.log.warning("upstream %s: %s has more than %d pages", session.alias, kind.method, MAX_PAGES)
    offer.digests[kind.field] = items
    offer.note_omissions(session, kind, omissions, is_truncated=is_truncated)
    return [checked_item.item for checked_item in items.values()]


def omission_messages(omissions: Sequence[str]) -> list[str]:
    """Return readable descriptions of what was omitted from a list: the first `MAX_REPORTED`, and how many more."""
    suffix = [f"and {len(omissions) - MAX_REPORTED} more"] if len(omissions) > MAX_REPORTED else []
    return [*(visible_line(text[:MAX_REPORTED_CHARS]) for text in omissions[:MAX_REPORTED]), *suffix]


def tool_with_visible_texts(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with every character of its titles and descriptions visible; default values are unchanged."""
    visible_tool = _visible_item(definition, visible)
    annotations = as_mapping(visible_tool.get("annotations"))
    if isinstance(title := annotations.get("title"), str):
        visible_tool["annotations"] = {**annotations, "title": visible(title)}
    for key in ("inputSchema", "outputSchema"):
        if key in visible_tool:
            visible_tool[key] = _visible_schema(visible_tool[key], MAX_DEPTH)
    return visible_tool


def prompt_with_visible_texts(prompt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prompt with every character of its titles and descriptions visible, including those of its arguments."""
    visible_prompt = _visible_item(prompt)
    if isinstance(arguments := visible_prompt.get("arguments"), list):
        visible_prompt["arguments"] = list(map(_visible_item, cast("list[dict[str, Any]]", arguments)))
    return visible_prompt


def resource_with_visible_texts(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource or template with every character of its name, title and description visible."""
    visible_resource = _visible_item(resource)
    visible_resource["name"] = visible_line(visible_resource["name"])
    return visible_resource


def _visible_item(item: Mapping[str, Any], visible_title: Callable[[str], str] = visible_line) -> dict[str, Any]:
    visible_item = dict(item)
    for key, visible_text in (("title", visible_title), ("description", visible)):
        if isinstance(text := item.get(key), str):
            visible_item[key] = visible_text(text)
    return visible_item


def with_visible_form(schema: Any) -> Any:
    """Return a form's schema with every character visible, except in the names of fields and the values of choices."""
    visible_schema = _visible_schema(schema, MAX_DEPTH)
    # Copy the fields, because `_visible_schema` may return objects from the upstream's message, which must not change.
    fields_by_name = dict(as_mapping(as_mapping(visible_schema).get("properties")))
    if not fields_by_name:
        return visible_schema
    for name, raw_field in fields_by_name.items():
        if isinstance(raw_field, dict):
            form_field = fields_by_name[name] = dict(cast("dict[str, Any]", raw_field))
            if visible(name) != name:
                form_field.setdefault("title", visible(name))
            has_choices = bool(form_field.keys() & {"enum", "oneOf", "anyOf"})
            if isinstance(default := form_field.get("default"), str) and not has_choices:
                form_field["default"] = visible(default)
    return {**visible_schema, "properties": fields_by_name}


def _visible_schema(schema: Any, depth: int) -> Any:
    """Make a schema's texts visible. Unchanged parts stay the same objects, so 10,000 tools are not stored twice."""
    if depth == 0:
        return schema
    if isinstance(schema, list):
        items = cast("list[Any]", schema)
        visible_items = [_visible_schema(item, depth - 1) for item in items]
        return items if all(map(operator.is_, items, visible_items)) else visible_items
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    visible_keywords: dict[str, Any] = {}
    for key, value in keywords.items():
        if key in _TEXT_KEYWORDS and isinstance(value, str):
            visible_keywords[key] = visible(value)
        elif key in _TEXT_LIST_KEYWORDS and isinstance(value, list):
            visible_keywords[key] = [visible(text) if isinstance(text, str) else text for text in as_list(value)]
        elif key in _DATA_KEYWORDS:
            visible_keywords[key] = value
        elif key in _SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
            schemas = as_mapping(value)
            visible_schemas = {name: _visible_schema(subschema, depth - 1) for name, subschema in schemas.items()}
            visible_keywords[key] = _same_or_changed(schemas, visible_schemas)
        else:
            visible_keywords[key] = _visible_schema(value, depth - 1)
    return _same_or_changed(keywords, visible_keywords)


def _same_or_changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return old if all(map(operator.is_, old.values(), new.values())) else new
