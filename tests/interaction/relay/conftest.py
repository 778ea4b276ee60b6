"""One process serves the HTTP and SSE upstreams of all tests of a worker; each test uses rooms of its own."""

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
    """Run a test twice: once its clients call tools by their names, once through `call_tool`."""
    CallStyle.uses_call_tool = request.param
    yield
    CallStyle.uses_call_tool = False


_ROOMS = itertools.count(1)


@pytest.fixture(scope="session")
def upstream_port() -> Generator[str]:
    """Yield the port of the process that serves all rooms."""
    command = [sys.executable, *forked([str(PEERS / "asking_upstream.py"), "http"])]
    with background_server(command, r"port (\d+)") as port:
        yield port


@pytest.fixture
def remote(upstream_port: str) -> Entry:
    """Return a function that makes a settings entry for an upstream over HTTP or SSE, in a new room."""

    def entry(era: str, transport: str = "http", **fields: Any) -> dict[str, Any]:
        path = "sse" if transport == "sse" else "mcp"
        url = f"http://127.0.0.1:{upstream_port}/{era}/{next(_ROOMS)}/{path}"
        return {("httpUrl" if transport == "http" else "url"): url, "type": transport, "trust": True, **fields}

    return entry
