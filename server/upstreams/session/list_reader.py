"""Reads an upstream's lists page by page, within limits, and drops whatever clients could not read.

In copies for people, invisible characters in titles and descriptions are made visible, also in the forms of questions.
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

from server.protocol.json_rpc import METHOD_NOT_FOUND, Json, as_mapping
from server.upstreams.session.protocol_era import Era
from server.upstreams.wire.json_rpc_channel import RelayError, UpstreamError, why_failed
from server.upstreams.wire.own_meta import OF_THIS_SERVER, THIS_SERVER, chain_of, has_passed_here
from tools.contract.display import visible, visible_line

MAX_PAGES = 100  # maximum number of pages per list, so that an endless cursor cannot block this server
MAX_ITEMS = 10_000  # maximum number of items per list
MAX_BYTES = 16 << 20  # maximum size of a list's items as JSON, because every client gets the whole list

MAX_TOLD, MAX_TOLD_CHARS = 20, 200  # limits for reporting omissions from a list: entries, and characters per entry

TURN_SECONDS = 0.002
"""How long items are processed before other tasks may run."""

DEEPEST = 64  # maximum depth to which schemas are searched

_TEXTS = frozenset({"title", "description", "$comment", "markdownDescription", "deprecationMessage", "errorMessage"})
_LISTS_OF_TEXTS = frozenset({"enumNames", "enumDescriptions", "markdownEnumDescriptions"})
"""Keywords whose value is a list of names or descriptions, one for each value of `enum`."""

_VALUES = frozenset({"const", "default", "enum", "examples"})  # JSON Schema keywords whose values are data

_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
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


class Known(NamedTuple):
    """A processed list item: a digest of the original, its accepted form, and where parts were removed from it."""

    digest: bytes
    item: Json
    dropped: tuple[str, ...] = ()


@dataclass(slots=True)
class Offer:
    """The lists of one upstream, in wire format."""

    lists: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    digests: dict[str, dict[str, Known]] = field(default_factory=dict[str, "dict[str, Known]"])
    """The processed items of each list, keyed by name, so that an unchanged item is not processed again."""
    left_out: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Items, and parts of items, that were omitted from each list because clients could not read them."""
    cut: set[str] = field(default_factory=set[str])  # lists that exceeded `MAX_BYTES`
    stored: set[str] = field(default_factory=set[str])  # lists from the last run that the upstream has not sent yet

    def items(self, kind: OfferedKind) -> list[Json]:
        return self.lists.get(kind.field, [])

    def note_losses(self, session: Lister, kind: OfferedKind, left_out: list[str], *, is_cut: bool) -> None:
        """Record what was omitted from a list, and log new omissions."""
        if left_out and left_out != self.left_out.get(kind.field):
            message = "upstream %s: %s has parts that not every client can read; they were dropped: %s"
            session.log.warning(message, session.alias, kind.method, ", ".join(told(left_out)))
        self.left_out[kind.field] = left_out
        if not is_cut:
            self.cut.discard(kind.field)
        elif kind.field not in self.cut:
            self.cut.add(kind.field)
            message = "upstream %s: %s is longer than %d bytes; %d items fit, and the others were dropped"
            session.log.warning(message, session.alias, kind.method, MAX_BYTES, len(self.digests[kind.field]))


async def read_lists(
    session: Lister,
    kinds: tuple[OfferedKind, ...],
    seconds: float,
    take: Callable[[OfferedKind, list[Json]], Awaitable[None]],
    offer: Offer,
) -> None:
    """Read lists concurrently.

    A list whose capability is missing is not requested. The list of tools is an exception, because some servers forget
    to declare the `tools` capability.

    Each list must arrive within `seconds`, and is passed to `take` as soon as it has been read. `offer` records the
    items and what was omitted. Raises an error if the tools cannot be listed, or if a list has come through this server
    itself.
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
            await take(kind, items)

    async with anyio.create_task_group() as tasks:
        for kind in kinds:
            if kind is TOOLS or session.era.announces(kind.capability):
                tasks.start_soon(read, kind)
    if problems:
        raise problems[0]


async def read_list(session: Lister, kind: OfferedKind, offer: Offer) -> list[Json]:
    """Read all pages of one list. Items that have not changed since the last time are not checked again.

    Raises:
        IsThisServerError: The list has come through this server itself.
        RelayError: A page cannot be read.
    """
    before = offer.digests.get(kind.field, {})
    found: dict[str, Known] = {}
    left_out: list[str] = []
    size = position = 0
    is_cut = False
    params: Json = {"_meta": OF_THIS_SERVER}
    seen: set[str] = set()
    from server.protocol.item_schemas import UnfitError, fitted  # noqa: PLC0415 - imported with the first list

    for _ in range(MAX_PAGES):
        page = await session.request(kind.method, params)
        if THIS_SERVER in chain_of(as_mapping(page.get("_meta"))):
            raise IsThisServerError
        listed = page.get(kind.field)
        async for each in in_turns(cast("list[Any]", listed) if isinstance(listed, list) else ()):
            position += 1
            item: Json = as_mapping(each)
            name: Any = item.get(kind.key)
            if not isinstance(name, str) or not name:
                left_out.append(f"item {position} (it has no {kind.key})")
                continue
            if kind is TOOLS and isinstance(schema := item.get("inputSchema", {}), dict) and "type" not in schema:
                # Many servers omit `type`, although it can only be `object`.
                item = {**item, "inputSchema": {"type": "object", **cast("Json", schema)}}
            try:
                encoded = to_json(item)
                # The digest depends on the revision, because an item may be treated differently in another revision.
                digest = hashlib.blake2b(encoded, digest_size=16, key=session.era.version.encode()).digest()
                known = before.get(name)
                if known is None or known.digest != digest:
                    known = Known(digest, *(fitted(kind.item, item, encoded) if kind.item else (item, ())))
                if len(found) >= MAX_ITEMS or name in found or has_passed_here(item):
                    continue
            except Exception as error:  # noqa: BLE001 - an invalid item must not affect the others
                why = str(error) if isinstance(error, UnfitError) else "it cannot be read"
                left_out.append(f"'{name}' ({why})")
                continue
            if size + len(encoded) > MAX_BYTES:
                is_cut = True
                continue
            size += len(encoded)
            found[name] = known
            left_out += [f"{where} of '{name}'" for where in known.dropped]
        following = page.get("nextCursor")
        if not isinstance(following, str) or following in seen or is_cut or len(found) >= MAX_ITEMS:
            break
        seen.add(following)
        params = {**params, "cursor": following}
    else:
        session.log.warning("upstream %s: %s has more than %d pages", session.alias, kind.method, MAX_PAGES)
    offer.digests[kind.field] = found
    offer.note_losses(session, kind, left_out, is_cut=is_cut)
    return [known.item for known in found.values()]


def told(left_out: Sequence[str]) -> list[str]:
    """Return readable descriptions of what was omitted from a list: the first `MAX_TOLD`, and how many more."""
    more = [f"and {len(left_out) - MAX_TOLD} more"] if len(left_out) > MAX_TOLD else []
    return [*(visible_line(each[:MAX_TOLD_CHARS]) for each in left_out[:MAX_TOLD]), *more]


def tool_with_visible_texts(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with every character of its titles and descriptions visible; default values are unchanged."""
    shown = dict(definition)
    for key in ("title", "description"):
        if isinstance(text := shown.get(key), str):
            shown[key] = visible(text)
    annotations: Any = shown.get("annotations")
    if isinstance(annotations, dict) and isinstance(title := cast("dict[str, Any]", annotations).get("title"), str):
        shown["annotations"] = {**cast("dict[str, Any]", annotations), "title": visible(title)}
    for key in ("inputSchema", "outputSchema"):
        if key in shown:
            shown[key] = _schema(shown[key], DEEPEST)
    return shown


def prompt_with_visible_texts(prompt: Mapping[str, Any]) -> dict[str, Any]:
    """Return a prompt with every character visible, except in its name and its arguments' names."""
    shown = _item(prompt)
    if isinstance(arguments := shown.get("arguments"), list):
        shown["arguments"] = [_item(each) for each in cast("list[dict[str, Any]]", arguments)]
    return shown


def resource_with_visible_texts(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource or template with every character visible, except in its URI.

    Its name is changed too, which is safe because requests identify resources by URI.
    """
    shown = _item(resource)
    shown["name"] = visible_line(shown["name"])
    return shown


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(item)
    if isinstance(title := shown.get("title"), str):
        shown["title"] = visible_line(title)
    if isinstance(description := shown.get("description"), str):
        shown["description"] = visible(description)
    return shown


def with_visible_form(schema: Any) -> Any:
    """Return a form's schema with every character visible, except in the names of fields and in choices."""
    shown = _schema(schema, DEEPEST)
    fields: Any = cast("dict[str, Any]", shown).get("properties") if isinstance(shown, dict) else None
    if not isinstance(fields, dict):
        return cast("Any", shown)
    # Copy the fields, because `_schema` may return objects from the upstream's message, which must not change.
    named = dict(cast("dict[str, Any]", fields))
    for name, given in named.items():
        if isinstance(given, dict):
            field = named[name] = dict(cast("dict[str, Any]", given))
            if visible(name) != name:
                field.setdefault("title", visible(name))
            if isinstance(default := field.get("default"), str) and not field.keys() & {"enum", "oneOf", "anyOf"}:
                field["default"] = visible(default)
    return {**cast("dict[str, Any]", shown), "properties": named}


def _schema(schema: Any, depth: int) -> Any:
    """Return a schema with every character of its texts visible.

    Unchanged parts stay the same objects, so that 10,000 tools are not stored twice.
    """
    if depth == 0:
        return schema
    if isinstance(schema, list):
        items = cast("list[Any]", schema)
        shown_items = [_schema(item, depth - 1) for item in items]
        return items if all(map(operator.is_, items, shown_items)) else shown_items
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    shown: dict[str, Any] = {}
    for key, value in keywords.items():
        if key in _TEXTS and isinstance(value, str):
            shown[key] = visible(value)
        elif key in _LISTS_OF_TEXTS and isinstance(value, list):
            shown[key] = [visible(text) if isinstance(text, str) else text for text in cast("list[Any]", value)]
        elif key in _VALUES:
            shown[key] = value
        elif key in _MAPS and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            schemas = {name: _schema(each, depth - 1) for name, each in named.items()}
            shown[key] = named if all(map(operator.is_, named.values(), schemas.values())) else schemas
        else:
            shown[key] = _schema(value, depth - 1)
    return keywords if all(map(operator.is_, keywords.values(), shown.values())) else shown
