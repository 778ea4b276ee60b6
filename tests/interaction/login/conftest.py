"""The authorization server and the server behind ours, which all tests of a worker share, set back for each."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.conformance.fetch import is_fetched
from tests.interaction.login.scene import AuthorizationServer, Peer, Scene, authorization_server, protected_upstream


@pytest.fixture(scope="session")
def login_server() -> Generator[AuthorizationServer]:
    """An authorization server."""
    if not is_fetched():
        pytest.skip("not run: the authorization server is not here; `python -P tests/conformance/fetch.py` brings it")
    with authorization_server() as server:
        yield server


@pytest.fixture(scope="session")
def login_upstream(login_server: AuthorizationServer) -> Generator[Peer]:
    """A server that wants its tokens."""
    with protected_upstream(login_server.base) as upstream:
        yield upstream


@pytest.fixture
def scene(tmp_path: Path, login_server: AuthorizationServer, login_upstream: Peer) -> Scene:
    """What one test has around it."""
    login_server.post("/reset")
    login_upstream.post("/reset")
    return Scene(tmp_path, login_server, login_upstream)
