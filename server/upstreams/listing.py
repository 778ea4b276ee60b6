"""What an upstream offers: its lists, read whole and as they came."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import anyio

from server.upstreams.chain import chain_of, chained, has_passed_here
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


@dataclass(slots=True)
class Offer:
    """What one upstream offers, in wire shape."""

    lists: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    servers: frozenset[str] = frozenset()
    """Servers like this one that gave the lists."""

    def of(self, kind: Kind) -> list[Json]:
        """One of the lists."""
        return self.lists.get(kind.field, [])


async def read_lists(
    session: UpstreamSession, kinds: tuple[Kind, ...], seconds: float, take: Callable[[Kind, list[Json]], None]
) -> frozenset[str]:
    """Read lists side by side. What is not announced is not asked for, but for tools, which some forget to announce.

    Args:
        session: With the upstream.
        kinds: Which ones.
        seconds: How long each may take.
        take: Gets each as it comes.

    Returns:
        The servers like this one that gave them.

    Raises:
        UpstreamError: The tools cannot be listed.
        UnusableAnswerError: What came is no list.
        TimeoutError: They cannot be listed in time.
        ConnectionLostError: There is no connection any more.
    """
    servers: set[str] = set()
    problems: list[Exception] = []

    async def read(kind: Kind) -> None:
        try:
            items, passed = await _read_list(session, kind, seconds)
            servers.update(passed)
            take(kind, items)
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
    return frozenset(servers)


async def _read_list(session: UpstreamSession, kind: Kind, seconds: float) -> tuple[list[Json], set[str]]:
    found: dict[str, Json] = {}
    servers: set[str] = set()
    cursor: str | None = None
    seen: set[str] = set()
    with anyio.fail_after(seconds):
        for _ in range(MAX_PAGES):
            params: Json = {"_meta": chained({}), **({"cursor": cursor} if cursor is not None else {})}
            page = await session.request(kind.method, params)
            servers.update(chain_of(as_mapping(page.get("_meta"))))
            for item in _items(page.get(kind.field)):
                if isinstance(name := item.get(kind.key), str) and not has_passed_here(item):
                    found.setdefault(name, item)
            following = page.get("nextCursor")
            if not isinstance(following, str) or following in seen or len(found) >= MAX_ITEMS:
                break
            seen.add(following)
            cursor = following
        else:
            logger.warning("upstream %s: %s has more than %d pages", session.alias, kind.method, MAX_PAGES)
    return list(found.values())[:MAX_ITEMS], servers


def _items(value: Any) -> list[Json]:
    if not isinstance(value, list):
        return []
    return [cast("Json", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
