"""The authorization server and the upstream, which all tests of a worker share; each test resets them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.conformance.fetch import is_fetched
from tests.interaction.login.scene import AuthorizationServer, Peer, Scene, authorization_server, protected_upstream


@pytest.fixture(scope="session")
def login_server() -> Generator[AuthorizationServer]:
    """The authorization server of this worker."""
    if not is_fetched():
        pytest.skip("not run: the authorization server is missing; `python -P tests/conformance/fetch.py` fetches it")
    with authorization_server() as server:
        yield server


@pytest.fixture(scope="session")
def login_upstream(login_server: AuthorizationServer) -> Generator[Peer]:
    """The upstream that requires tokens of this authorization server."""
    with protected_upstream(login_server.base) as upstream:
        yield upstream


@pytest.fixture
def scene(tmp_path: Path, login_server: AuthorizationServer, login_upstream: Peer) -> Scene:
    """The scene of one test, with both servers reset."""
    login_server.post("/reset")
    login_upstream.post("/reset")
    return Scene(tmp_path, login_server, login_upstream)
