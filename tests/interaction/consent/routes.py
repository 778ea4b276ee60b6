"""The ways on which a question can travel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from tests.harness import MODERN


class Route(NamedTuple):
    """A transport, and the protocol revision that is spoken over it."""

    transport: str
    revision: str

    @property
    def is_modern(self) -> bool:
        """Whether there is no handshake, so that questions are results."""
        return self.revision == MODERN

    @property
    def tells_clients_apart(self) -> bool:
        """Whether the server knows one client from another."""
        return self.transport == "stdio" or not self.is_modern


REVISIONS = ("2025-06-18", "2025-11-25", MODERN)
"""Those that have elicitation."""

TRANSPORTS = ("stdio", "http", "sse")

ROUTES = [Route(transport, revision) for transport in TRANSPORTS for revision in REVISIONS]

HANDSHAKE_ROUTES = [route for route in ROUTES if not route.is_modern]
"""Those with live questions."""

MODERN_ROUTES = [route for route in ROUTES if route.is_modern]

KNOWN_ROUTES = [route for route in ROUTES if route.tells_clients_apart]

NETWORK_ROUTES = [route for route in ROUTES if route.transport != "stdio"]


def by_route(routes: Iterable[Route]) -> Any:
    """A test for each of these routes."""
    listed = list(routes)
    return pytest.mark.parametrize("route", listed, ids=["-".join(route) for route in listed])
