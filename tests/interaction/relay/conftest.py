"""One process of upstreams over HTTP and SSE that all tests of a worker share, each in a room of its own."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import PEERS
from tests.interaction.relay.clients import CallStyle

Entry = Callable[..., dict[str, Any]]


@pytest.fixture(params=[False, True], ids=["direct", "call_tool"])
def each_way(request: pytest.FixtureRequest) -> Generator[None]:
    """Tests that use this run twice: once their clients call tools by their names, once through call_tool."""
    CallStyle.uses_call_tool = request.param
    yield
    CallStyle.uses_call_tool = False


_ROOMS = itertools.count(1)


@pytest.fixture(scope="session")
def upstream_port() -> Generator[str]:
    """The port of the rooms."""
    command = [sys.executable, *forked([str(PEERS / "asking_upstream.py"), "http"])]
    with background_server(command, r"port (\d+)") as port:
        yield port


@pytest.fixture
def remote(upstream_port: str) -> Entry:
    """A settings entry for an upstream over HTTP or SSE in a room of its own."""

    def entry(era: str, way: str = "http", **more: Any) -> dict[str, Any]:
        path = "sse" if way == "sse" else "mcp"
        url = f"http://127.0.0.1:{upstream_port}/{era}/{next(_ROOMS)}/{path}"
        return {("httpUrl" if way == "http" else "url"): url, "type": way, "trust": True, **more}

    return entry
