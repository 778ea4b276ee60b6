"""Fixtures of the tests of what any client sees, over the transports and protocol revisions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness import Route
from tests.interaction.serving import CHEAP_ROUTES, Connect, Served


@pytest.fixture(params=CHEAP_ROUTES, ids=str)
def route(request: pytest.FixtureRequest) -> Route:
    """A transport and a revision.

    A test that uses this fixture or `connect` runs over all cheap routes, unless `by_route` names others.
    """
    return request.param


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """The servers that the tests of a module share. They end with the module, because idle servers poll their files."""
    with ExitStack() as stack:
        yield Served(tmp_path_factory.mktemp("served").resolve(), stack)


@pytest.fixture
def place(served: Served) -> Path:
    """A folder of the shared workspace that only this test uses."""
    return served.place()


@pytest.fixture
def connect(route: Route, served: Served) -> Connect:
    """Connects clients over this route: `async with connect(settings, **callbacks) as client`."""
    return Connect(route, served)
