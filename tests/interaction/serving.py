"""Servers that many tests share, and clients of them over every route.

A server over HTTP serves any number of clients, so there is one for each set of settings. One over stdio, or in
memory, has one client by its nature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from tests.harness import ROUTES, Route, connected, http_client, write_config
from tests.interaction.raw_clients import http_server

Settings = Mapping[str, Any]
NOTHING_SET: Settings = {}

HANDSHAKE_ROUTES = [route for route in ROUTES if not route.is_modern]
MODERN_ROUTES = [route for route in ROUTES if route.is_modern]
NETWORK_ROUTES = [route for route in ROUTES if route.is_network]
FORM_ROUTES = [route for route in ROUTES if route.has_forms]

ENDS_OF_ERAS = ("2024-11-05", "2025-11-25", "2026-07-28")
CHEAP_ROUTES = [route for route in ROUTES if route.is_network or route.revision in ENDS_OF_ERAS]
"""Fewer of those where each client needs a server of its own."""


def by_route(routes: Iterable[Route]) -> Any:
    """A test for each of these routes, in place of all."""
    return pytest.mark.parametrize("route", list(routes), ids=str)


class Served:
    """Servers by what the operator has set: each is started when it is first needed, and ends with the last test.

    Args:
        folder: Where they find workspace and settings.
        stack: Ends them.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.root = folder / "workspace"
        self.root.mkdir()
        self._stack = stack
        self._urls: dict[Path, str] = {}
        self._places = 0

    def place(self) -> Path:
        """A folder of the workspace that nothing else uses."""
        self._places += 1
        folder = self.root / f"place-{self._places}"
        folder.mkdir()
        return folder

    def config(self, settings: Settings) -> Path:
        """A settings file; the same one for the same settings."""
        name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return write_config(folder, settings)

    def url(self, settings: Settings = NOTHING_SET) -> str:
        """The base URL of a server over HTTP and SSE."""
        config = self.config(settings)
        if config not in self._urls:
            self._urls[config] = self._stack.enter_context(http_server(self.root, config))
        return self._urls[config]


class Connect:
    """Connects clients over one route.

    Args:
        route: The transport and the revision.
        served: The shared servers.
    """

    def __init__(self, route: Route, served: Served) -> None:
        self.route = route
        self._served = served

    def __call__(self, settings: Settings = NOTHING_SET, **callbacks: Any) -> AbstractAsyncContextManager[Client]:
        """A client of a server with these settings, whose workspace all share.

        Args:
            settings: What the operator has set.
            callbacks: How the client answers.
        """
        transport, revision = self.route
        if self.route.is_network:
            return http_client(self._served.url(settings), transport, revision, **callbacks)
        return connected(transport, revision, self._served.root, self._served.config(settings), **callbacks)
