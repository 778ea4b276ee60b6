"""Logging in and out at the terminal, and its effects on running servers."""

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

from server.settings.server_models import OAuthSettings
from server.upstreams.login.login_storage import FileLogins, TokenStore
from server.upstreams.login.upstream_login import Login
from tests.harness import stdio_upstream, text_of
from tests.interaction.login.scene import ALIAS, ECHO, ERAS, HANDSHAKE, LOGIN, Person, Scene, redirect_of
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


@pytest.mark.requirement("login.command")
async def test_a_login_does_not_warn_about_rules_for_the_other_servers_in_the_settings(scene: Scene) -> None:
    scene.other_servers, scene.allowed = {"mem": stdio_upstream()}, ["mcp__mem", "mcp__nobody"]
    result = await scene.run("login", ALIAS)
    assert result.returncode == 0
    assert "'mcp__nobody' names it" in result.stderr
    assert "mcp__mem" not in result.stderr


@pytest.mark.requirement("login.paste")
async def test_without_a_browser_the_url_is_shown_and_the_callback_url_is_pasted(scene: Scene) -> None:
    command = scene.command("login", ALIAS, "--no-browser")
    async with await anyio.open_process(command, env=scene.environment, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        output = b""
        with anyio.fail_after(CEILING):
            while not (match := re.search(rb"(http://\S+/auth\?\S+)\s", output)):
                output += await process.stdout.receive()
            await process.stdin.send(f"{await redirect_of(match[1].decode())}\n".encode())
            await process.stdin.aclose()
            assert await process.wait() == 0
    assert scene.tabs == []
    async with scene.serving(HANDSHAKE) as client:
        assert ECHO in await scene.tools(client)


@pytest.mark.requirement("login.refused")
async def test_a_person_who_refuses_at_the_authorization_server_is_told_so_and_may_agree_later(scene: Scene) -> None:
    scene.server.switch(denies=True)
    result = await scene.run("login", ALIAS)
    assert result.returncode == 1
    assert "refused it" in result.stderr
    assert len(result.stderr.splitlines()) <= 3
    scene.server.switch(denies=False)
    await scene.log_in()
    assert scene.server.registrations == 1


@pytest.mark.requirement("login.out")
async def test_after_a_logout_a_login_is_needed_again(scene: Scene) -> None:
    await scene.log_in()
    listing = await scene.run("login", "--list", "--json")
    assert ALIAS in listing.stdout
    json.loads(listing.stdout)
    assert ALIAS in (await scene.run("login", "--list")).stdout
    assert (await scene.run("logout", ALIAS)).returncode == 0
    assert json.loads((await scene.run("login", "--list", "--json")).stdout) == []
    async with scene.serving(HANDSHAKE) as client:
        assert await scene.tools(client) == {LOGIN}


@pytest.mark.requirement("login.out")
async def test_a_running_server_without_requests_shows_that_somebody_has_logged_out(scene: Scene) -> None:
    await scene.log_in()
    async with scene.serving(HANDSHAKE) as client:
        assert text_of(await scene.call(client)) == "hello"
        assert (await scene.run("logout", ALIAS)).returncode == 0
        await scene.wait_for_login_hint(client)


@pytest.mark.requirement("login.out")
async def test_a_logout_ends_the_login_for_which_a_call_and_another_terminal_wait(scene: Scene) -> None:
    person, texts, output = Person(visits=False), list[str](), b""
    async with scene.serving(HANDSHAKE, person) as client, anyio.create_task_group() as tasks:
        assert await scene.tools(client) == {LOGIN}

        async def call() -> None:
            texts.append(text_of(await scene.call(client, LOGIN)))

        tasks.start_soon(call)
        await until(lambda: person.urls)
        command = scene.command("login", ALIAS)
        async with await anyio.open_process(command, env=scene.environment, stderr=subprocess.STDOUT) as terminal:
            assert terminal.stdout is not None
            with anyio.fail_after(CEILING):
                while b"To end it, run coretools-mcp logout up" not in output:
                    output += await terminal.stdout.receive()
            assert texts == []
            assert (await scene.run("logout", ALIAS)).returncode == 0
            async for chunk in terminal.stdout:
                output += chunk
            assert await terminal.wait() == 0
    assert "it was ended by coretools-mcp logout up" in texts[0]
    assert b"Logged in to up" in output


@pytest.mark.requirement("login.live")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_running_server_names_the_login_command_and_has_the_tools_after_it(revision: str, scene: Scene) -> None:
    async with scene.serving(revision) as client:
        assert await scene.tools(client) == {LOGIN}
        refusal = await scene.call(client, LOGIN)
        assert refusal.is_error
        assert f"coretools-mcp login {ALIAS}" in text_of(refusal)
        resource = await client.read_resource("coretools://upstreams")
        assert f"coretools-mcp login {ALIAS}" in resource.model_dump_json()
        assert scene.tabs == []
        await scene.log_in()
        await scene.wait_for_tool(client, ECHO)
        assert text_of(await scene.call(client)) == "hello"
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.live")
async def test_a_client_is_told_that_the_tools_have_changed_by_a_login(scene: Scene) -> None:
    messages: list[object] = []

    async def on_message(message: object) -> None:
        messages.append(message)

    async with scene.serving(HANDSHAKE, message_handler=on_message) as client:
        assert await scene.tools(client) == {LOGIN}
        messages.clear()
        await scene.log_in()
        await until(lambda: any(isinstance(message, types.ToolListChangedNotification) for message in messages))
        await scene.wait_for_tool(client, ECHO)


@pytest.mark.requirement("login.command")
async def test_the_login_of_another_principal_is_found_even_without_a_login_of_the_local_user(
    scene: Scene,
) -> None:
    scene.principals = ("laptop", "build")
    for outcome in ("Logged in", "Already logged in"):
        result = await scene.run("login", ALIAS, "--as", "laptop")
        assert (result.returncode, result.stdout.splitlines()[-1]) == (0, f"{outcome} to {ALIAS} as laptop")
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.command")
async def test_a_user_of_an_issuer_can_log_in_with_the_command_that_they_are_told(scene: Scene, tmp_path: Path) -> None:
    scene.issuer = {"issuer": "https://login.example.com", "resource": "https://tools.example.com/mcp"}
    person = "https://login.example.com ada; touch 'here'"
    store = FileLogins(TokenStore(str(tmp_path), "file"))
    command = Login(store, ALIAS, "https://up.example.com/mcp", OAuthSettings(), person, scene.port).command
    _, *arguments = shlex.split(command)
    assert arguments == ["login", ALIAS, "--as", person]
    result = await scene.run(*arguments)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, f"Logged in to {ALIAS} as {person}")
    result = await scene.run("login", ALIAS, "--as", "https://other.example.com ada")
    assert result.returncode == 2
    assert "nor a user of http.oauth.issuer" in result.stderr


@pytest.mark.requirement("login.command")
@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_login_that_nobody_would_use_is_not_made(is_shared: bool, scene: Scene) -> None:
    scene.principals = ("build", *(("laptop",) if is_shared else ()))
    scene.entry["oauth"] = {"shared": is_shared}
    result = await scene.run("login", ALIAS, "--as", "laptop")
    assert result.returncode == 2
    assert ("oauth.shared" if is_shared else "'laptop' is neither") in result.stderr
    assert scene.tabs == []


@pytest.mark.requirement("login.command")
async def test_a_server_may_be_named_as_the_settings_write_it(scene: Scene) -> None:
    scene.other_servers = {"My Server": scene.entry}
    result = await scene.run("login", "My Server")
    assert result.returncode == 0, result.stderr
    result = await scene.run("logout", "My Server")
    assert result.stdout == "Logged out of My-Server.\n"


@pytest.mark.requirement("login.command")
async def test_at_a_terminal_a_person_is_told_the_command_that_logs_in(scene: Scene) -> None:
    call = await scene.run("call", ECHO, "text=x", "--yes")
    assert call.returncode in (69, 77)
    assert f"The server {ALIAS} needs a login. Run: coretools-mcp login {ALIAS}" in call.stdout
    assert "continue without it" not in call.stdout + call.stderr
    assert "WARNING" not in call.stderr
    addition = await scene.run("config", "add", "crm", scene.entry["httpUrl"], "--yes")
    assert addition.returncode == 1
    assert "Run: coretools-mcp login crm" in addition.stderr
