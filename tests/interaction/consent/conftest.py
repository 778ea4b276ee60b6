"""Servers that the tests of consent share, and a folder of its own for each call."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interaction.consent.servers import Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[Servers]:
    """Those of a module; after their end nothing may have happened that no test has seen."""
    folder = tmp_path_factory.mktemp("consent").resolve()
    with ExitStack() as stack:
        shared = Servers(folder, stack)
        yield shared
    shared.check()


@pytest.fixture
def place(servers: Servers) -> Generator[Path]:
    """A folder of the workspace for one call."""
    folder = servers.place()
    yield folder
    servers.remember(folder)
