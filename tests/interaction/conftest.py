"""Fixtures of the tests of what any client sees, over the transports and protocol revisions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness import Route
from tests.interaction.serving import CHEAP_ROUTES, Connect, SharedServers


@pytest.fixture(params=CHEAP_ROUTES, ids=str)
def route(request: pytest.FixtureRequest) -> Route:
    """A transport and a revision.

    A test that uses this fixture or `connect` runs over all cheap routes, unless `by_route` names others.
    """
    return request.param


@pytest.fixture(scope="module")
def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[SharedServers]:
    """The servers that the tests of a module share. They end with the module, because idle servers poll their files."""
    with ExitStack() as stack:
        yield SharedServers(tmp_path_factory.mktemp("served").resolve(), stack)


@pytest.fixture
def place(shared_servers: SharedServers) -> Path:
    """A folder of the shared workspace that only this test uses."""
    return shared_servers.place()


@pytest.fixture
def connect(route: Route, shared_servers: SharedServers) -> Connect:
    """Connects clients over this route: `async with connect(settings, **callbacks) as client`."""
    return Connect(route, shared_servers)
