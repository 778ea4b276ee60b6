"""Extensions of the protocol that pass between clients and upstreams, and which of them clients are told of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from server.json_rpc import Json, as_mapping
from server.upstreams.connection import Upstream

TASKS = "io.modelcontextprotocol/tasks"
"""A call may be answered with a task, whose result is asked for later (SEP-2663)."""

RELAYED_EXTENSIONS = frozenset({TASKS})
"""Those that we bring to the right upstream and back."""

_OF_2026 = frozenset({TASKS})  # those that an upstream of the handshake era cannot have


def relayed_extensions(upstreams: Iterable[Upstream]) -> dict[str, Json]:
    """What a client of 2026-07-28 is told that asks now: what upstreams have, and is relayed.

    Clients seldom ask again, so an upstream that is still in its first attempt counts as having all of it.
    """
    found: dict[str, Json] = {}
    for upstream in upstreams:
        if not upstream.tried.is_set():
            found = {name: found.get(name, {}) for name in RELAYED_EXTENSIONS}
        elif (era := upstream.era) is not None:
            had = as_mapping(era.capabilities.get("extensions"))
            usable = RELAYED_EXTENSIONS if era.is_modern else RELAYED_EXTENSIONS - _OF_2026
            found |= {name: as_mapping(had[name]) for name in usable & had.keys()}
    return found


def declares(capabilities: Mapping[str, Any], extension: str) -> bool:
    return extension in as_mapping(capabilities.get("extensions"))


def with_extension(capabilities: Json, extension: str) -> Json:
    return {**capabilities, "extensions": {**as_mapping(capabilities.get("extensions")), extension: {}}}
