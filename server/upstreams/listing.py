"""What an upstream offers: its lists, read whole and as they came."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio
from mcp_types.methods import validate_server_result

from server.upstreams.chain import THIS_SERVER, chain_of, chained, has_passed_here
from server.upstreams.peer import Json, RelayError, UpstreamError, as_mapping
from server.upstreams.session import UpstreamSession

logger = logging.getLogger(__name__)

MAX_PAGES = 100
"""Pages of a list that are followed; an upstream whose cursor never ends cannot hold us."""

MAX_ITEMS = 10_000
"""Items of one list that are taken."""


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

    def of(self, kind: Kind) -> list[Json]:
        """One of the lists."""
        return self.lists.get(kind.field, [])


async def read_lists(
    session: UpstreamSession, kinds: tuple[Kind, ...], seconds: float, take: Callable[[Kind, list[Json]], None]
) -> None:
    """Read lists side by side. What is not announced is not asked for, but for tools, which some forget to announce.

    Args:
        session: With the upstream.
        kinds: Which ones.
        seconds: How long each may take.
        take: Gets each as it comes.

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
            take(kind, await _read_list(session, kind, seconds))
        except (RelayError, TimeoutError) as error:
            if kind is TOOLS and (session.era.announces("tools") or not isinstance(error, UpstreamError)):
                problems.append(error)
            elif kind is not TOOLS:
                logger.warning("upstream %s: %s did not work", session.alias, kind.method)

    async with anyio.create_task_group() as tasks:
        for kind in kinds:
            if kind is TOOLS or session.era.announces(kind.capability):
                tasks.start_soon(read, kind)
    if problems:
        raise problems[0]


async def _read_list(session: UpstreamSession, kind: Kind, seconds: float) -> list[Json]:
    found: dict[str, Json] = {}
    cursor: str | None = None
    seen: set[str] = set()
    unusable = 0
    with anyio.fail_after(seconds):
        for _ in range(MAX_PAGES):
            params: Json = {"_meta": chained({}), **({"cursor": cursor} if cursor is not None else {})}
            page = await session.request(kind.method, params)
            if THIS_SERVER in chain_of(as_mapping(page.get("_meta"))):
                raise IsThisServerError
            for item in _items(page.get(kind.field)):
                usable = _usable(kind, item, session.era.version)
                if usable is None:
                    unusable += 1
                elif len(found) < MAX_ITEMS and not has_passed_here(usable):
                    found.setdefault(usable[kind.key], usable)
            following = page.get("nextCursor")
            if not isinstance(following, str) or following in seen or len(found) >= MAX_ITEMS:
                break
            seen.add(following)
            cursor = following
        else:
            logger.warning("upstream %s: %s has more than %d pages", session.alias, kind.method, MAX_PAGES)
    if unusable:
        logger.warning(
            "upstream %s: %d items of %s are left out, since no client could read them",
            session.alias,
            unusable,
            kind.method,
        )
    return list(found.values())


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _usable(kind: Kind, item: Any, version: str) -> Json | None:
    """An item as it came, if clients can read it: many refuse a whole list for one item that is wrong.

    What many servers leave out of a tool, and what can mean only one thing, is put in.
    """
    if not isinstance(item, dict):
        return None
    known = cast("Json", item)
    if kind is TOOLS and isinstance(schema := known.get("inputSchema", {}), dict) and "type" not in schema:
        known = {**known, "inputSchema": {"type": "object", **cast("Json", schema)}}
    whole = {kind.field: [known], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    try:
        validate_server_result(kind.method, version, whole)
    except ValueError:
        return None
    return known
