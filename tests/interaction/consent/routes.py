"""The ways on which a question can travel, between a server and a client that writes JSON-RPC itself."""

from __future__ import annotations

from tests.harness import ROUTES as ALL_ROUTES
from tests.harness import Route
from tests.interaction.serving import by_route

__all__ = [
    "HANDSHAKE_ROUTES",
    "KNOWN_ROUTES",
    "MODERN_ROUTES",
    "NETWORK_ROUTES",
    "REVISIONS",
    "ROUTES",
    "TRANSPORTS",
    "Route",
    "by_route",
]

ROUTES = [route for route in ALL_ROUTES if route.has_forms and route.transport != "memory"]

REVISIONS = tuple(dict.fromkeys(route.revision for route in ROUTES))
"""Those that have elicitation."""

TRANSPORTS = tuple(dict.fromkeys(route.transport for route in ROUTES))

HANDSHAKE_ROUTES = [route for route in ROUTES if not route.is_modern]
"""Those with live questions."""

MODERN_ROUTES = [route for route in ROUTES if route.is_modern]

KNOWN_ROUTES = [route for route in ROUTES if route.tells_clients_apart]

NETWORK_ROUTES = [route for route in ROUTES if route.is_network]
