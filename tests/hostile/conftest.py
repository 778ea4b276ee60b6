"""Fixtures: a workspace with neighbouring folders that no tool may reach, and a client of a complete server for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp.client import Client

from tests.harness import HANDSHAKE, in_memory
from tests.hostile.every_tool import MARKER, state_of


@dataclass(frozen=True)
class Neighbourhood:
    """What lies around the workspace.

    Args:
        root: The workspace.
        sibling: A folder whose name begins with the workspace's name. It holds a file `secret`.
        outside: Another folder, with a file `f` and a folder `deep` that holds a file `g`.
    """

    root: Path
    sibling: Path
    outside: Path

    def state(self) -> dict[str, object]:
        """Return the state of the neighbours, which must not change."""
        return state_of(self.sibling, self.outside)


@pytest.fixture
def around(root: Path) -> Neighbourhood:
    """The workspace and its neighbours, whose files hold content that no answer may show."""
    sibling, outside = root.with_name(f"{root.name}-evil"), root.with_name("out")
    (outside / "deep").mkdir(parents=True)
    sibling.mkdir()
    for path in (sibling / "secret", outside / "f", outside / "deep" / "g"):
        path.write_text(f"{MARKER}\n")
    return Neighbourhood(root, sibling, outside)


@pytest.fixture
async def client(root: Path) -> AsyncGenerator[Client]:
    """A client of a new server for the workspace."""
    async with in_memory(HANDSHAKE, root) as client:
        yield client
