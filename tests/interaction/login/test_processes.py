"""Several processes of one person, some of which are killed."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import anyio
import pytest

from tests.harness import text_of
from tests.interaction.login.scene import ALIAS, ECHO, HANDSHAKE, LOGIN, TOKEN_LIFETIME, Person, Scene
from tests.interaction.raw_clients import wait_until_time
from tests.variants import one_in
from tests.waiting import until

pytestmark = pytest.mark.anyio

COUNT = 5

STEPS = ("/.well-known/oauth-authorization-server", "/reg", "/interaction/ID", "/token")


@pytest.mark.requirement("login.processes")
async def test_logins_at_the_same_time_open_one_tab_and_register_once(scene: Scene) -> None:
    codes: list[int] = []

    async def log_in() -> None:
        codes.append((await scene.run("login", ALIAS)).returncode)

    async with anyio.create_task_group() as tasks:
        for _ in range(COUNT):
            tasks.start_soon(log_in)
    assert codes == [0] * COUNT
    assert len(scene.tabs) == scene.server.registrations == scene.server.grants("authorization_code") == 1


@pytest.mark.requirement("login.processes")
async def test_a_person_with_several_servers_is_shown_one_url(scene: Scene) -> None:
    person = Person()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(scene.serving(HANDSHAKE, person)) for _ in range(COUNT)]
        for client in clients:
            assert await scene.tools(client) == {LOGIN}
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(scene.call, client, LOGIN)
        for client in clients:
            assert text_of(await scene.call(client)) == "hello"
    assert len(person.urls) == scene.server.registrations == scene.server.grants("authorization_code") == 1


@pytest.mark.requirement("login.processes")
async def test_servers_that_start_at_the_same_time_with_an_expired_token_renew_it_once(scene: Scene) -> None:
    scene.server.switch(seconds=TOKEN_LIFETIME)
    await scene.log_in()
    scene.server.switch(seconds=600)
    wait_until_time(time.time() + TOKEN_LIFETIME)
    texts: list[str] = []

    async def serve() -> None:
        async with scene.serving(HANDSHAKE) as client:
            assert ECHO in await scene.tools(client)
            texts.append(text_of(await scene.call(client)))

    async with anyio.create_task_group() as tasks:
        for _ in range(COUNT):
            tasks.start_soon(serve)
    assert texts == ["hello"] * COUNT
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


@pytest.mark.long
@pytest.mark.requirement("login.processes")
async def test_running_servers_use_the_token_that_one_of_them_has_renewed(scene: Scene) -> None:
    await scene.log_in()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(scene.serving(HANDSHAKE)) for _ in range(COUNT)]
        for client in clients:
            assert text_of(await scene.call(client)) == "hello"
        scene.upstream.post("/refuse")
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(scene.call, client)
        for client in clients:
            assert text_of(await scene.call(client)) == "hello"
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)


@pytest.mark.requirement("login.killed")
@pytest.mark.parametrize("step", one_in(2, STEPS))
async def test_a_login_that_is_killed_leaves_a_next_one_that_works(step: str, scene: Scene) -> None:
    scene.server.switch(delays={step: 600_000})
    async with scene.killed_command("login", ALIAS):
        await until(lambda: scene.server.requests(step))
    scene.server.switch(delays={})
    await scene.log_in()
    assert len(scene.tabs) == (1 if step in STEPS[:2] else 2)
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "hello"


@pytest.mark.requirement("login.killed")
@pytest.mark.parametrize("moment", ["delays", "late"])
async def test_a_server_that_is_killed_while_it_renews_leaves_a_next_login_that_works(
    moment: str, scene: Scene
) -> None:
    scene.server.switch(seconds=TOKEN_LIFETIME)
    await scene.log_in()
    wait_until_time(time.time() + TOKEN_LIFETIME)
    scene.server.switch(seconds=600, **{moment: {"/token": 600_000}})
    async with scene.killed_command("serve"):
        await until(lambda: scene.server.requests("/token") == 2)
        await until(lambda: moment == "delays" or scene.server.refreshes == 1)
    scene.server.switch(delays={}, late={})
    if moment == "late":  # the old refresh token has been used, and nobody has the new one
        async with scene.serving(HANDSHAKE) as client:
            assert f"coretools-mcp login {ALIAS}" in text_of(await scene.call(client))
        await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "hello"
    assert len(scene.tabs) == (2 if moment == "late" else 1)


@pytest.mark.requirement("login.out")
async def test_a_login_that_is_ended_while_a_server_renews_it_does_not_come_back(scene: Scene) -> None:
    scene.server.switch(seconds=TOKEN_LIFETIME)
    await scene.log_in()
    wait_until_time(time.time() + TOKEN_LIFETIME)
    scene.server.switch(seconds=600, delays={"/token": 2_000})
    async with scene.serving(HANDSHAKE) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(scene.tools, client)
        await until(lambda: scene.server.requests("/token") == 2)
        assert (await scene.run("logout", ALIAS)).returncode == 0
        await until(lambda: scene.server.refreshes == 1)
        await scene.tools(client)
    assert (await scene.run("login", "--list", "--json")).stdout == "[]\n"
