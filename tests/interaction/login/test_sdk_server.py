"""A server built with the official SDK, which is its own authorization server."""

from __future__ import annotations

import sys
from collections.abc import Generator
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import PEERS, text_of
from tests.interaction.login.scene import ALIAS, ERAS, HANDSHAKE, Peer, Person, Scene
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


@pytest.mark.requirement("login.ended")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_person_gets_no_link_with_a_client_that_the_authorization_server_has_forgotten(
    revision: str, scene: Scene, sdk_server: Peer
) -> None:
    await scene.log_in()
    person = Person()
    async with scene.serving(revision, person) as client:
        assert text_of(await scene.call(client)) == "hello"
        sdk_server.post("/forget/tokens")  # the token, which never expires, has no refresh token
        sdk_server.post("/forget/clients")
        assert text_of(await scene.call(client)) == "hello"
    assert len(person.urls) == 1


@pytest.mark.requirement("login.ended")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_call_waits_for_a_login_as_long_as_for_an_answer_and_the_next_one_registers_again(
    revision: str, scene: Scene, sdk_server: Peer
) -> None:
    await scene.log_in()
    scene.confirmation = {"timeout": 2000}
    person = Person(visits=False)
    async with scene.serving(revision, person) as client:
        sdk_server.post("/forget/tokens")
        for count in (1, 2):
            failure = await scene.call(client)
            assert "within 2 s (confirmation.timeout)" in text_of(failure)
            assert len(person.urls) == count
    clients = {parse_qs(urlsplit(url).query)["client_id"][0] for url in person.urls}
    assert len(clients) == 2, "the first link may have been dead"
