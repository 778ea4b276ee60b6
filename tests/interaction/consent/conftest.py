"""Fixtures of the tests of consent: the servers that a module shares, and a folder for each test."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interaction.consent.servers import Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[Servers]:
    """The servers that the tests of a module share. When they have ended, every folder must be as its test left it."""
    folder = tmp_path_factory.mktemp("consent").resolve()
    with ExitStack() as stack:
        shared_servers = Servers(folder, stack)
        yield shared_servers
    shared_servers.check()


@pytest.fixture
def place(servers: Servers) -> Generator[Path]:
    """A folder of the workspace that only this test uses."""
    folder = servers.place()
    yield folder
    servers.remember(folder)
