"""Texts of prompts, resources and templates, shown so that nothing hides in them.

Those of tools and of forms: `visible_schemas.py`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio
from mcp_types.methods import validate_server_result
from pydantic_core import to_json

from server.json_rpc import Json, as_mapping
from server.upstreams.session.session import UpstreamSession
from server.upstreams.wire.chain import THIS_SERVER, chain_of, chained, has_passed_here
from server.upstreams.wire.peer import Pieces, RelayError, UpstreamError
from tools.contract.display import visible, visible_line

logger = logging.getLogger(__name__)

MAX_PAGES = 100
"""Pages of a list that are followed; an upstream whose cursor never ends cannot hold us."""

MAX_ITEMS = 10_000
"""Items of one list that are taken."""

MOST_BYTES = 16 << 20
"""What the items of one list may come to, as JSON: every client is sent all of it (ours)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the lists.

    Args:
        method: Asks for it.
        field: Where it stands in the result.
        key: What names an item.
        capability: What the upstream announces that has it.
    """

    method: str
    field: str
    key: str
    capability: Literal["tools", "prompts", "resources"]


TOOLS = Kind("tools/list", "tools", "name", "tools")
PROMPTS = Kind("prompts/list", "prompts", "name", "prompts")
RESOURCES = Kind("resources/list", "resources", "uri", "resources")
TEMPLATES = Kind("resources/templates/list", "resourceTemplates", "uriTemplate", "resources")
KINDS = (TOOLS, PROMPTS, RESOURCES, TEMPLATES)


class IsThisServerError(Exception):
    """The upstream is this very server."""


@dataclass(slots=True)
class Offer:
    """What one upstream offers, in wire shape."""

    lists: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """In which revision of the protocol each was read."""
    marked: dict[str, dict[str, tuple[bytes, Json]]] = field(default_factory=dict[str, dict[str, tuple[bytes, Json]]])
    """Each item with a digest of it, by its name: what comes again need not be looked at anew."""
    cut: set[str] = field(default_factory=set[str])
    """Which were too long to be taken whole."""

    def of(self, kind: Kind) -> list[Json]:
        """One of the lists."""
        return self.lists.get(kind.field, [])


async def read_lists(
    session: UpstreamSession,
    kinds: tuple[Kind, ...],
    seconds: float,
    take: Callable[[Kind, list[Json]], Awaitable[None]],
    offer: Offer,
) -> None:
    """Read lists side by side. What is not announced is not asked for, but for tools, which some forget to announce.

    Args:
        session: With the upstream.
        kinds: Which ones.
        seconds: How long each may take.
        take: Gets each as it comes.
        offer: What it offered until now; how each list was read is noted in it.

    Raises:
        IsThisServerError: A list has come through this very server.
        UpstreamError: The tools cannot be listed.
        UnusableAnswerError: What came is no list.
        TimeoutError: They cannot be listed in time.
        ConnectionLostError: There is no connection any more.
    """
    problems: list[Exception] = []

    async def read(kind: Kind) -> None:
        try:
            items = await _read_list(session, kind, seconds, offer)
        except (RelayError, TimeoutError) as error:
            if kind is TOOLS and (session.era.announces("tools") or not isinstance(error, UpstreamError)):
                problems.append(error)
            elif kind is not TOOLS:
                logger.warning("upstream %s: %s did not work", session.alias, kind.method)
        else:
            await take(kind, items)

    async with anyio.create_task_group() as tasks:
        for kind in kinds:
            if kind is TOOLS or session.era.announces(kind.capability):
                tasks.start_soon(read, kind)
    if problems:
        raise problems[0]


async def _read_list(session: UpstreamSession, kind: Kind, seconds: float, offer: Offer) -> list[Json]:
    reading = _Reading(session, kind, offer)
    cursor: str | None = None
    seen: set[str] = set()
    with anyio.fail_after(seconds):
        for _ in range(MAX_PAGES):
            params: Json = {"_meta": chained({}), **({"cursor": cursor} if cursor is not None else {})}
            page = await session.request(kind.method, params)
            if THIS_SERVER in chain_of(as_mapping(page.get("_meta"))):
                raise IsThisServerError
            await reading.take(_items(page.get(kind.field)))
            following = page.get("nextCursor")
            if not isinstance(following, str) or following in seen or reading.is_full:
                break
            seen.add(following)
            cursor = following
        else:
            logger.warning("upstream %s: %s has more than %d pages", session.alias, kind.method, MAX_PAGES)
    reading.finish()
    return list(reading.found.values())


class _Reading:
    """One list, as far as it is read.

    Args:
        session: With the upstream.
        kind: Which list.
        offer: What was listed until now: what is the same again is known to be usable. `finish` changes it.
    """

    def __init__(self, session: UpstreamSession, kind: Kind, offer: Offer) -> None:
        self.found: dict[str, Json] = {}
        self._session = session
        self._kind = kind
        self._offer = offer
        version = session.era.version
        # Looked at by the rules of another revision, an item may be another thing.
        self._known = offer.marked.get(kind.field, {}) if offer.versions.get(kind.field) == version else {}
        self._marked: dict[str, tuple[bytes, Json]] = {}
        self._bytes = 0
        self._unusable = 0
        self._is_cut = False

    @property
    def is_full(self) -> bool:
        """Whether no more is taken."""
        return self._is_cut or len(self.found) >= MAX_ITEMS

    async def take(self, items: list[Any]) -> None:
        """Take a page."""
        pieces = Pieces()
        for item in items:
            self._take(item)
            await pieces.rest()

    def _take(self, item: Any) -> None:
        kind, known = self._kind, _completed(self._kind, item)
        name: Any = known.get(kind.key) if known is not None else None
        if known is None or not isinstance(name, str):
            self._unusable += 1
            return
        encoded = _encoded(known)
        mark = hashlib.blake2b(encoded, digest_size=16).digest()
        before, same = self._known.get(name, (b"", known))
        if before == mark:
            known = same
        elif not _is_usable(kind, known, self._session.era.version):
            self._unusable += 1
            return
        if len(self.found) >= MAX_ITEMS or name in self.found or has_passed_here(known):
            return
        if self._bytes + len(encoded) > MOST_BYTES:
            self._is_cut = True
            return
        self._bytes += len(encoded)
        self.found[name] = known
        self._marked[name] = (mark, known)

    def finish(self) -> None:
        """All is read: tell what is not taken, and note how it was read."""
        kind, alias = self._kind, self._session.alias
        if self._unusable:
            message = "upstream %s: %d items of %s are left out, since no client could read them"
            logger.warning(message, alias, self._unusable, kind.method)
        if not self._is_cut:
            self._offer.cut.discard(kind.field)
        elif kind.field not in self._offer.cut:
            self._offer.cut.add(kind.field)
            message = "upstream %s: %s is longer than %d bytes; %d items fit, and the others are left out"
            logger.warning(message, alias, kind.method, MOST_BYTES, len(self.found))
        self._offer.versions[kind.field] = self._session.era.version
        self._offer.marked[kind.field] = self._marked


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _completed(kind: Kind, item: Any) -> Json | None:
    """An item with what many servers leave out of a tool, and what can mean only one thing."""
    if not isinstance(item, dict):
        return None
    known = cast("Json", item)
    if kind is TOOLS and isinstance(schema := known.get("inputSchema", {}), dict) and "type" not in schema:
        return {**known, "inputSchema": {"type": "object", **cast("Json", schema)}}
    return known


def _encoded(item: Json) -> bytes:
    try:
        return to_json(item)
    except ValueError:  # half a character, which Python's own encoder lets pass
        return json.dumps(item).encode()


def _is_usable(kind: Kind, item: Json, version: str) -> bool:
    """Whether clients can read an item: many refuse a whole list for one that is wrong."""
    whole = {kind.field: [item], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    try:
        validate_server_result(kind.method, version, whole)
    except ValueError:
        return False
    return True


def item_with_visible_texts(kind: Kind, item: Mapping[str, Any]) -> dict[str, Any]:
    """An item in which every character of what people and models read is seen.

    What names something in a request stays as it is, hence the name of an argument too. A resource is named by its URI,
    and its `name` is only read.

    Args:
        kind: The list that it is from: prompts, resources or templates.
        item: In wire shape.
    """
    shown = _with_visible(item)
    if kind is not PROMPTS:
        shown["name"] = visible_line(shown["name"])
    elif isinstance(arguments := shown.get("arguments"), list):
        shown["arguments"] = [_with_visible(each) for each in cast("list[dict[str, Any]]", arguments)]
    return shown


def _with_visible(item: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(item)
    if isinstance(title := shown.get("title"), str):
        shown["title"] = visible_line(title)
    if isinstance(description := shown.get("description"), str):
        shown["description"] = visible(description)
    return shown
