"""The routes over which a server can ask a question of a client that writes JSON-RPC itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.harness import ROUTES as ALL_ROUTES
from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, Action

ROUTES = [route for route in ALL_ROUTES if route.has_forms and route.transport != "memory"]

REVISIONS = tuple(dict.fromkeys(route.revision for route in ROUTES))
"""The revisions that have elicitation."""

TRANSPORTS = tuple(dict.fromkeys(route.transport for route in ROUTES))

HANDSHAKE_ROUTES = [route for route in ROUTES if not route.is_modern]
"""The routes with live questions: requests of the server, which waits for the answer."""

MODERN_ROUTES = [route for route in ROUTES if route.is_modern]

KNOWN_ROUTES = [route for route in ROUTES if route.tells_clients_apart]
"""The routes over which the server can tell clients apart."""

NETWORK_ROUTES = [route for route in ROUTES if route.is_network]


def by_route_and_action(routes: Iterable[Route], actions: list[Action] = ACTIONS) -> Any:
    """Repeat a test for each of these routes with one action, which alternates over transports and revisions."""
    pairs = [(route, actions[(_column(route) + _row(route)) % len(actions)]) for route in routes]
    return pytest.mark.parametrize(("route", "action"), pairs, ids=str)


def spread(cases: Mapping[str, Any], route: Route, transports: tuple[str, ...] = TRANSPORTS) -> list[Spread]:
    """Return the cases to try over this route, each with its name and the action to try it with.

    Over all routes, every case is tried with each revision, each transport and each action.
    """
    revision = _row(route)
    return [
        (name, case, ACTIONS[(number // len(transports) + 2 * revision) % len(ACTIONS)])
        for number, (name, case) in enumerate(cases.items())
        if transports[(number + revision) % len(transports)] == route.transport
    ]


Spread = tuple[str, Any, Action]


def _row(route: Route) -> int:
    return REVISIONS.index(route.revision)


def _column(route: Route) -> int:
    return TRANSPORTS.index(route.transport)
