"""Servers that many tests share, each in its own process, and folders that only one test uses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import Route, write_config
from tests.interaction.consent.actions import NOTES, NOTES_TEXT, Snapshot, snapshot
from tests.interaction.raw_clients import RawClient, connect_http, http_server, initialized_client, stdio_server


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a server.

    Args:
        name: A short name for the settings.
        settings: The content of the settings file.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


DEFAULTS = Setup("defaults")

HASTY_SECONDS = 0.15

HASTY = Setup("hasty", {"confirmation": {"timeout": int(HASTY_SECONDS * 1000)}})
"""Questions expire after a time that a test can wait for."""

SIMPLE = Setup("simple", {"confirmation": {"style": "simple"}})
"""Questions are forms without fields."""


def settings_environment(folder: Path) -> dict[str, str]:
    """Return the variables with which a server reads the user's settings from this folder."""
    return {"XDG_CONFIG_HOME": str(folder)}


class Servers:
    """Servers that many tests share. Each starts when a test first needs it, and ends with the stack.

    Args:
        folder: Holds the workspace and the settings files.
        stack: Ends the servers.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.root = folder / "workspace"
        self.root.mkdir()
        self.environment = settings_environment(folder / "nothing")
        self._folder = folder
        self._stack = stack
        self._stdio: dict[tuple[str, str, Any], RawClient] = {}
        self._urls: dict[str, str] = {}
        self._snapshots: dict[Path, Snapshot] = {}

    @contextmanager
    def client(self, route: Route, setup: Setup = DEFAULTS, **options: Any) -> Generator[RawClient]:
        """Yield an initialized client: over stdio the server's only client, over HTTP a new one."""
        if route.transport == "stdio":
            yield self._stdio_client(route.revision, setup, options)
            return
        with initialized_client(connect_http(self.url(setup), route.transport), route.revision, **options) as client:
            yield client

    @contextmanager
    def new_client(self, route: Route) -> Generator[RawClient]:
        """Yield a client that its server has not seen before. Over stdio, this takes a new server."""
        if route.transport != "stdio":
            with self.client(route) as client:
                yield client
            return
        server = stdio_server(self.root, self.config(DEFAULTS), self.environment)
        with server as wire, initialized_client(wire, route.revision) as client:
            yield client

    def url(self, setup: Setup = DEFAULTS) -> str:
        """Return the base URL of the server with this setup, which serves HTTP and SSE."""
        if setup.name not in self._urls:
            server = http_server(self.root, self.config(setup), self.environment)
            self._urls[setup.name] = self._stack.enter_context(server)
        return self._urls[setup.name]

    def config(self, setup: Setup) -> Path:
        """Write the settings file of a setup and return its path."""
        folder = self._folder / setup.name
        folder.mkdir(exist_ok=True)
        return write_config(folder, setup.settings)

    def place(self) -> Path:
        """Create a folder of the workspace that nothing else uses."""
        folder = self.root / f"cell-{len(self._snapshots)}"
        folder.mkdir()
        (folder / NOTES).write_text(NOTES_TEXT)
        self.remember(folder)
        return folder

    def remember(self, folder: Path) -> None:
        """Record the state of a folder, which must not change from now on."""
        self._snapshots[folder] = snapshot(folder)

    def check(self) -> None:
        """Assert that every folder is still in its recorded state, and that there are no other entries."""
        assert {folder: snapshot(folder) for folder in self._snapshots} == self._snapshots
        assert sorted(self.root.iterdir()) == sorted(self._snapshots)

    def _stdio_client(self, revision: str, setup: Setup, options: Mapping[str, Any]) -> RawClient:
        key = (revision, setup.name, options.get("name"))
        if key not in self._stdio:
            wire = self._stack.enter_context(stdio_server(self.root, self.config(setup), self.environment))
            client = self._stdio[key] = RawClient(wire, revision, **options)
            client.initialize()
        return self._stdio[key]
