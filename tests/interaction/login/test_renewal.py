"""Expired tokens are renewed without a person, and only once for all their users."""

from __future__ import annotations

import time

import anyio
import pytest

from tests.harness import MODERN, text_of
from tests.interaction.login.scene import ALIAS, ECHO, ERAS, HANDSHAKE, TOKEN_LIFETIME, Scene
from tests.interaction.raw_clients import wait_until_time

pytestmark = pytest.mark.anyio

CONNECTIONS = 100
"""The most connections that our HTTP client (httpx2) opens at once; a failed call must not keep one of them"""


@pytest.mark.requirement("login.restart")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_server_that_starts_with_an_expired_token_renews_it_and_opens_no_browser(
    revision: str, scene: Scene
) -> None:
    scene.server.switch(seconds=TOKEN_LIFETIME)
    await scene.log_in()
    scene.server.switch(seconds=600)
    wait_until_time(time.time() + TOKEN_LIFETIME)
    scene.upstream.post("/reset")
    async with scene.serving(revision) as client:
        assert ECHO in await scene.tools(client)
        assert text_of(await scene.call(client)) == "hello"
    assert len(scene.tabs) == scene.server.registrations == scene.server.requests("/auth") == 1
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert set(scene.upstream.get("/counts")["outcomes"]) == {"served"}


@pytest.mark.requirement("login.renewal")
@pytest.mark.parametrize("revision", ERAS)
async def test_calls_whose_token_is_refused_share_one_renewal_and_go_on(revision: str, scene: Scene) -> None:
    await scene.log_in()
    async with scene.serving(revision) as client:
        assert text_of(await scene.call(client)) == "hello"
        scene.upstream.post("/refuse")
        texts: list[str] = []

        async def call() -> None:
            texts.append(text_of(await scene.call(client)))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
        assert texts == ["hello"] * 20
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.renewal")
async def test_each_refresh_token_is_used_once(scene: Scene) -> None:
    scene.server.switch(seconds=TOKEN_LIFETIME)
    await scene.log_in()
    for _ in range(3):
        wait_until_time(time.time() + TOKEN_LIFETIME)
        async with scene.serving(HANDSHAKE) as client:
            assert text_of(await scene.call(client)) == "hello"
    assert scene.server.refreshes >= 3
    assert scene.server.reuses == 0
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.renewal")
async def test_a_login_outlasts_an_authorization_server_that_answers_with_a_page(scene: Scene) -> None:
    await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "hello"
        scene.upstream.post("/refuse")
        scene.server.switch(html=["/token"])
        for _ in range(CONNECTIONS + 1):
            failure = await scene.call(client)
            assert failure.is_error
            assert "its login cannot be used now" in text_of(failure)
        scene.server.switch(html=[])
        assert text_of(await scene.call(client)) == "hello"
    assert len(scene.tabs) == scene.server.grants("authorization_code") == 1


@pytest.mark.requirement("login.ended")
@pytest.mark.parametrize(("revision", "forgotten"), [(HANDSHAKE, "Grant"), (MODERN, "Client")])
async def test_a_login_that_the_authorization_server_has_ended_needs_a_person_and_the_next_one_works(
    revision: str, forgotten: str, scene: Scene
) -> None:
    await scene.log_in()
    async with scene.serving(revision) as client:
        assert text_of(await scene.call(client)) == "hello"
        scene.upstream.post("/refuse")
        scene.server.switch(forget=forgotten)
        refusal = await scene.call(client)
        assert refusal.is_error
        assert f"coretools-mcp login {ALIAS}" in text_of(refusal)
        await scene.wait_for_login_hint(client)
        assert len(scene.tabs) == 1
        await scene.log_in()
        await scene.wait_for_successful_call(client)
    assert len(scene.tabs) == 2
    assert scene.server.registrations == (2 if forgotten == "Client" else 1)
