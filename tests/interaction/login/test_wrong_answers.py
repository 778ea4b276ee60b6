"""Faulty authorization servers and faulty redirects."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import anyio.abc
import httpx2
import pytest

from tests.interaction.login.scene import ALIAS, Scene, authorization_server, protected_upstream, redirect_of, visit
from tests.variants import one_in
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")

FAULTS: dict[str, tuple[dict[str, Any], str, int]] = {
    "without PKCE": ({"withoutPkce": True}, "PKCE", 0),
    "another issuer": ({"issuer": "https://example.org"}, "an authorization server other than", 1),
    "a page for its metadata": ({"html": METADATA}, "publishes no metadata", 0),
    "a page for a registration": ({"html": ["/reg"]}, "did not register", 0),
    "a page for a token": ({"html": ["/token"]}, "not JSON", 1),
    "no answer": ({"delays": {"/reg": 600_000}}, "could not be reached", 0),
}
"""For each fault: the switches of the authorization server, a part of the message, and the number of opened tabs"""


@pytest.mark.requirement("login.faults")
@pytest.mark.parametrize("fault", one_in(3, FAULTS))
async def test_a_faulty_authorization_server_is_reported_in_a_sentence_and_the_next_login_works(
    fault: str, scene: Scene
) -> None:
    switches, message, tabs = FAULTS[fault]
    scene.server.switch(**switches)
    result = await scene.run("login", ALIAS)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(scene.tabs) == tabs
    if fault == "another issuer":
        assert scene.server.requests("/token") == 0
    scene.server.switch(withoutPkce=False, issuer=None, html=[], delays={})
    await scene.log_in()


@pytest.mark.requirement("login.faults")
async def test_an_unreachable_authorization_server_is_reported_in_a_sentence(scene: Scene) -> None:
    with authorization_server() as server:
        pass
    with protected_upstream(server.base) as upstream:
        scene.entry["httpUrl"] = f"{upstream.base}/mcp"
        result = await scene.run("login", ALIAS)
    assert result.returncode == 1
    assert "could not be reached" in result.stderr
    assert scene.tabs == []


@asynccontextmanager
async def _login(scene: Scene) -> AsyncGenerator[tuple[anyio.abc.Process, str]]:
    """Begin a login at the terminal; yield its process, and the callback URL that a browser would be sent to."""
    command = scene.command("login", ALIAS, "--no-browser")
    async with await anyio.open_process(command, env=scene.environment, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        output = b""
        with anyio.fail_after(CEILING):
            while not (match := re.search(rb"(http://\S+/auth\?\S+)\s", output)):
                output += await process.stdout.receive()
        try:
            yield process, await redirect_of(match[1].decode())
        finally:
            if process.returncode is None:
                process.kill()


async def _status_of(url: str) -> int:
    """The HTTP status of a URL, or 0 if nobody answers."""
    try:
        return (await visit(url)).status_code
    except httpx2.HTTPError:
        return 0


@pytest.mark.requirement("login.redirect")
async def test_the_redirect_of_a_stranger_is_refused_and_the_login_stays_open(scene: Scene) -> None:
    async with _login(scene) as (process, address):
        callback = address.partition("?")[0]
        for query in ("code=x&state=y&iss=z", "code=x", "error=access_denied", ""):
            assert await _status_of(f"{callback}?{query}") == 400
        assert await _status_of(f"{callback}/other?{urlsplit(address).query}") == 404
        assert scene.server.requests("/token") == 0
        assert await _status_of(address) == 200
        with anyio.fail_after(CEILING):
            assert await process.wait() == 0


@pytest.mark.requirement("login.redirect")
async def test_a_redirect_that_comes_twice_counts_once(scene: Scene) -> None:
    statuses: list[int] = []

    async def follow(address: str) -> None:
        statuses.append(await _status_of(address))

    async with _login(scene) as (process, address):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, address)
            tasks.start_soon(follow, address)
        with anyio.fail_after(CEILING):
            assert await process.wait() == 0
    assert statuses.count(200) == 1
    assert scene.server.requests("/token") == 1


@pytest.mark.requirement("login.redirect")
async def test_a_redirect_that_comes_late_is_not_taken_for_that_of_the_next_login(scene: Scene) -> None:
    async with _login(scene) as (process, late_address):
        process.kill()
        await process.wait()
    async with _login(scene) as (process, address):
        assert await _status_of(late_address) == 400
        assert scene.server.requests("/token") == 0
        assert await _status_of(address) == 200
        with anyio.fail_after(CEILING):
            assert await process.wait() == 0


@pytest.mark.requirement("login.redirect")
@pytest.mark.parametrize("suffix", ["%2Fother", "%2F"])
async def test_a_redirect_of_another_issuer_ends_the_login_before_the_code_is_used(scene: Scene, suffix: str) -> None:
    issuer = quote(scene.server.base, safe="")
    async with _login(scene) as (process, address):
        assert f"iss={issuer}" in address
        await _status_of(address.replace(f"iss={issuer}", f"iss={issuer}{suffix}"))
        with anyio.fail_after(CEILING):
            assert await process.wait() == 1
    assert scene.server.requests("/token") == 0
