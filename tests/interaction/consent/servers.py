"""Servers that many tests share, each in a process of its own, with folders that only one test uses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import Route, write_config
from tests.interaction.consent.actions import BEFORE, NOTES, Snapshot, snapshot
from tests.interaction.raw_clients import RawClient, connect_http, http_server, initialized_client, stdio_server


@dataclass(frozen=True, slots=True)
class Setup:
    """What the operator has set.

    Args:
        name: A word for it.
        settings: The settings file.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


DEFAULTS = Setup("defaults")

HASTY_SECONDS = 0.15

HASTY = Setup("hasty", {"confirmation": {"timeout": int(HASTY_SECONDS * 1000)}})
"""An answer counts so shortly that a test can wait for the end."""

SIMPLE = Setup("simple", {"confirmation": {"style": "simple"}})
"""Questions have no fields."""


def settings_environment(folder: Path) -> dict[str, str]:
    """An environment in which this folder holds the settings of the user, and nobody else's count."""
    return {"XDG_CONFIG_HOME": str(folder)}


class Servers:
    """Servers that many tests share: each is started when it is first needed, and ends with the last test.

    Args:
        folder: Where they find workspace and settings.
        stack: Ends them.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.root = folder / "workspace"
        self.root.mkdir()
        self.environment = settings_environment(folder / "nothing")
        self._folder = folder
        self._stack = stack
        self._stdio: dict[tuple[str, str, Any], RawClient] = {}
        self._urls: dict[str, str] = {}
        self._left: dict[Path, Snapshot] = {}

    @contextmanager
    def client(self, route: Route, setup: Setup = DEFAULTS, **announced: Any) -> Generator[RawClient]:
        """A client that has introduced itself; over stdio always the same one, over HTTP one of its own."""
        if route.transport == "stdio":
            yield self._stdio_client(route.revision, setup, announced)
            return
        with initialized_client(connect_http(self.url(setup), route.transport), route.revision, **announced) as client:
            yield client

    @contextmanager
    def new_client(self, route: Route) -> Generator[RawClient]:
        """A client that nobody has known before; over stdio with a server of its own."""
        if route.transport != "stdio":
            with self.client(route) as client:
                yield client
            return
        served = stdio_server(self.root, self.config(DEFAULTS), self.environment)
        with served as wire, initialized_client(wire, route.revision) as client:
            yield client

    def url(self, setup: Setup = DEFAULTS) -> str:
        """The base URL of a server over HTTP and SSE."""
        if setup.name not in self._urls:
            served = http_server(self.root, self.config(setup), self.environment)
            self._urls[setup.name] = self._stack.enter_context(served)
        return self._urls[setup.name]

    def config(self, setup: Setup) -> Path:
        """A settings file."""
        folder = self._folder / setup.name
        folder.mkdir(exist_ok=True)
        return write_config(folder, setup.settings)

    def place(self) -> Path:
        """A folder of the workspace that nothing else uses."""
        folder = self.root / f"cell-{len(self._left)}"
        folder.mkdir()
        (folder / NOTES).write_text(BEFORE)
        self.remember(folder)
        return folder

    def remember(self, folder: Path) -> None:
        """From now on nothing changes here any more."""
        self._left[folder] = snapshot(folder)

    def check(self) -> None:
        """What was seen at the end of each test is what is there at the end of all."""
        assert {folder: snapshot(folder) for folder in self._left} == self._left
        assert sorted(self.root.iterdir()) == sorted(self._left)

    def _stdio_client(self, revision: str, setup: Setup, announced: Mapping[str, Any]) -> RawClient:
        key = (revision, setup.name, announced.get("name"))
        if key not in self._stdio:
            wire = self._stack.enter_context(stdio_server(self.root, self.config(setup), self.environment))
            client = self._stdio[key] = RawClient(wire, revision, **announced)
            client.initialize()
        return self._stdio[key]
