"""Servers that many tests share, and clients that connect to them over every route.

A server over HTTP serves any number of clients, so all tests with the same settings share one. A server over stdio or
in memory has only one client.
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
NO_SETTINGS: Settings = {}

HANDSHAKE_ROUTES = [route for route in ROUTES if not route.is_modern]
MODERN_ROUTES = [route for route in ROUTES if route.is_modern]
NETWORK_ROUTES = [route for route in ROUTES if route.is_network]
FORM_ROUTES = [route for route in ROUTES if route.has_forms]

ENDS_OF_ERAS = ("2024-11-05", "2025-11-25", "2026-07-28")
CHEAP_ROUTES = [route for route in ROUTES if route.is_network or route.revision in ENDS_OF_ERAS]
"""All routes over the network, but only some of those over which each client needs its own server."""


def by_route(routes: Iterable[Route]) -> Any:
    """Repeat a test for each of these routes instead of each cheap one."""
    return pytest.mark.parametrize("route", list(routes), ids=str)


class SharedServers:
    """HTTP servers, one for each set of settings. Each starts when a test first needs it, and ends with the stack.

    Args:
        folder: Holds the workspace and the settings files.
        stack: Ends the servers.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.root = folder / "workspace"
        self.root.mkdir()
        self._stack = stack
        self._urls: dict[Path, str] = {}
        self._places = 0

    def place(self) -> Path:
        """Create a folder of the workspace that nothing else uses."""
        self._places += 1
        folder = self.root / f"place-{self._places}"
        folder.mkdir()
        return folder

    def config(self, settings: Settings) -> Path:
        """Write a settings file and return its path, which is the same for equal settings."""
        name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return write_config(folder, settings)

    def url(self, settings: Settings = NO_SETTINGS) -> str:
        """Return the base URL of the server with these settings, which serves HTTP and SSE."""
        config = self.config(settings)
        if config not in self._urls:
            self._urls[config] = self._stack.enter_context(http_server(self.root, config))
        return self._urls[config]


class Connect:
    """Connects clients over one route.

    Args:
        route: The transport and the revision.
        servers: The shared servers.
    """

    def __init__(self, route: Route, servers: SharedServers) -> None:
        self.route = route
        self._servers = servers

    def __call__(self, settings: Settings = NO_SETTINGS, **callbacks: Any) -> AbstractAsyncContextManager[Client]:
        """Connect a client to a server with these settings. All servers share one workspace.

        Args:
            settings: The operator's settings.
            callbacks: Options of the client, such as `elicitation_callback`.
        """
        transport, revision = self.route
        if self.route.is_network:
            return http_client(self._servers.url(settings), transport, revision, **callbacks)
        return connected(transport, revision, self._servers.root, self._servers.config(settings), **callbacks)
