"""Logging in and out at the terminal, and what the servers that run make of it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import mcp_types as types
import pytest

from server.settings.models import OAuthSettings
from server.upstreams.login.login_storage import FileLogins, TokenStore
from server.upstreams.login.upstream_login import Login
from tests.harness import text_of
from tests.interaction.login.scene import ALIAS, ECHO, ERAS, HANDSHAKE, LOGIN, Scene, redirect_of
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("login.command")
async def test_a_login_opens_one_browser_and_serves_every_server_that_comes_after(scene: Scene) -> None:
    await scene.log_in()
    assert [urlsplit(tab).netloc for tab in scene.tabs] == [urlsplit(scene.server.base).netloc]
    for revision in ERAS:
        async with scene.serving(revision) as client:
            assert ECHO in await scene.tools(client)
            assert text_of(await scene.call(client)) == "hello"
    assert len(scene.tabs) == scene.server.registrations == scene.server.grants("authorization_code") == 1


@pytest.mark.requirement("login.paste")
async def test_without_a_browser_the_address_is_shown_and_the_one_that_it_leads_to_is_pasted(scene: Scene) -> None:
    command = scene.command("login", ALIAS, "--no-browser")
    async with await anyio.open_process(command, env=scene.environment, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        said = b""
        with anyio.fail_after(CEILING):
            while not (found := re.search(rb"(http://\S+/auth\?\S+)\s", said)):
                said += await process.stdout.receive()
            await process.stdin.send(f"{await redirect_of(found[1].decode())}\n".encode())
            await process.stdin.aclose()
            assert await process.wait() == 0
    assert scene.tabs == []
    async with scene.serving(HANDSHAKE) as client:
        assert ECHO in await scene.tools(client)


@pytest.mark.requirement("login.refused")
async def test_a_person_who_says_no_there_is_told_so_and_may_say_yes_later(scene: Scene) -> None:
    scene.server.switch(denies=True)
    done = await scene.run("login", ALIAS)
    assert done.returncode == 1
    assert "refused it" in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    scene.server.switch(denies=False)
    await scene.log_in()
    assert scene.server.registrations == 1


@pytest.mark.requirement("login.out")
async def test_what_is_logged_out_wants_a_login_again(scene: Scene) -> None:
    await scene.log_in()
    listed = await scene.run("login", "--list", "--json")
    assert ALIAS in listed.stdout
    json.loads(listed.stdout)
    assert ALIAS in (await scene.run("login", "--list")).stdout
    assert (await scene.run("logout", ALIAS)).returncode == 0
    assert json.loads((await scene.run("login", "--list", "--json")).stdout) == []
    async with scene.serving(HANDSHAKE) as client:
        assert await scene.tools(client) == {LOGIN}


@pytest.mark.requirement("login.live")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_server_that_runs_tells_the_command_and_has_the_tools_after_it(revision: str, scene: Scene) -> None:
    async with scene.serving(revision) as client:
        assert await scene.tools(client) == {LOGIN}
        refused = await scene.call(client, LOGIN)
        assert refused.is_error
        assert f"coretools-mcp login {ALIAS}" in text_of(refused)
        resource = await client.read_resource("coretools://upstreams")
        assert f"coretools-mcp login {ALIAS}" in resource.model_dump_json()
        assert scene.tabs == []
        await scene.log_in()
        await scene.until_listed(client, ECHO)
        assert text_of(await scene.call(client)) == "hello"
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.live")
async def test_a_client_is_told_that_the_tools_have_changed_by_a_login(scene: Scene) -> None:
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    async with scene.serving(HANDSHAKE, message_handler=hear) as client:
        assert await scene.tools(client) == {LOGIN}
        heard.clear()
        await scene.log_in()
        await until(lambda: any(isinstance(each, types.ToolListChangedNotification) for each in heard))
        await scene.until_listed(client, ECHO)


@pytest.mark.requirement("login.command")
async def test_a_login_of_somebody_else_that_is_there_is_told_without_one_of_the_person_of_this_machine(
    scene: Scene,
) -> None:
    scene.principals = ("laptop", "build")
    for told in ("Logged in", "Already logged in"):
        done = await scene.run("login", ALIAS, "--as", "laptop")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{told} to {ALIAS} as laptop")
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.command")
async def test_a_person_of_an_issuer_is_logged_in_by_the_command_that_they_are_told(
    scene: Scene, tmp_path: Path
) -> None:
    scene.issuer = {"issuer": "https://login.example.com", "resource": "https://tools.example.com/mcp"}
    person = "https://login.example.com ada; touch 'here'"
    store = FileLogins(TokenStore(str(tmp_path), "file"))
    told = Login(store, ALIAS, "https://up.example.com/mcp", OAuthSettings(), person, scene.port).command
    _, *arguments = shlex.split(told)
    assert arguments == ["login", ALIAS, "--as", person]
    done = await scene.run(*arguments)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"Logged in to {ALIAS} as {person}")
    done = await scene.run("login", ALIAS, "--as", "https://other.example.com ada")
    assert done.returncode == 2
    assert "nor a user of http.oauth.issuer" in done.stderr


@pytest.mark.requirement("login.command")
@pytest.mark.parametrize("shared", [False, True])
async def test_a_login_that_nobody_would_use_is_not_made(shared: bool, scene: Scene) -> None:
    scene.principals = ("build", *(("laptop",) if shared else ()))
    scene.entry["oauth"] = {"shared": shared}
    done = await scene.run("login", ALIAS, "--as", "laptop")
    assert done.returncode == 2
    assert ("oauth.shared" if shared else "'laptop' is neither") in done.stderr
    assert scene.tabs == []


@pytest.mark.requirement("login.command")
async def test_a_server_may_be_named_as_the_settings_write_it(scene: Scene) -> None:
    scene.others = {"My Server": scene.entry}
    done = await scene.run("login", "My Server")
    assert done.returncode == 0, done.stderr
    done = await scene.run("logout", "My Server")
    assert done.stdout == "Logged out of My-Server.\n"
