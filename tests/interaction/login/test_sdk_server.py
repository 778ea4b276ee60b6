"""A server built with the official SDK, which is its own authorization server."""

from __future__ import annotations

import sys
from collections.abc import Generator

import httpx2
import pytest

from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import PEERS, text_of
from tests.interaction.login.scene import ALIAS, HANDSHAKE, Peer, Scene
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio


@pytest.fixture
def sdk_server(scene: Scene) -> Generator[Peer]:
    """A server of the SDK, which the scene's settings name."""
    command = [sys.executable, *forked([str(PEERS / "sdk_login_server.py")])]
    with background_server(command, r"serving (\S+)") as base, httpx2.Client(base_url=base, timeout=CEILING) as http:
        scene.entry["httpUrl"] = f"{base}/mcp"
        yield Peer(base, http)


@pytest.mark.requirement("login.sdk")
@pytest.mark.usefixtures("sdk_server")
async def test_a_person_logs_in_to_a_server_of_the_sdk_and_out_again(scene: Scene) -> None:
    await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "hello"
    logout = await scene.run("logout", ALIAS)
    assert (logout.stdout, logout.stderr) == (f"Logged out of {ALIAS}.\n", "")
