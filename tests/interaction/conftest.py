"""The one fixture of the tests of what any client sees: every transport, and every protocol revision."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness import Route
from tests.interaction.serving import CHEAP_ROUTES, Connect, Served


@pytest.fixture(params=CHEAP_ROUTES, ids=str)
def route(request: pytest.FixtureRequest) -> Route:
    """A transport and a revision. A test that takes it, or `connect`, runs over each; `by_route` names others."""
    return request.param


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """The servers that the tests of a module share, by what the operator has set: idle ones look at their files."""
    with ExitStack() as stack:
        yield Served(tmp_path_factory.mktemp("served").resolve(), stack)


@pytest.fixture
def place(served: Served) -> Path:
    """A folder of the shared workspace that only this test uses."""
    return served.place()


@pytest.fixture
def connect(route: Route, served: Served) -> Connect:
    """Connects a client of this route: `async with connect(settings, **callbacks) as client`."""
    return Connect(route, served)
