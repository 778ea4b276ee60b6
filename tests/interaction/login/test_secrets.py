"""The secrets of a login are nowhere but in the stored login."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

from tests.harness import text_of
from tests.interaction.login.scene import ALIAS, ERAS, LOGIN, Person, Scene
from tests.processes import needs_root
from tools.text.secrets import HIDDEN

pytestmark = pytest.mark.anyio


@pytest.mark.long
@pytest.mark.requirement("login.secrets")
async def test_programs_write_tokens_only_to_the_stored_login(scene: Scene) -> None:
    for html in (["/reg"], ["/token"], []):
        scene.server.switch(html=html)
        await scene.run("login", ALIAS)
    for revision in ERAS:
        async with scene.serving(revision, Person()) as client:
            await scene.tools(client)
            assert text_of(await scene.call(client)) == "hello"
            scene.upstream.post("/refuse")
            assert text_of(await scene.call(client)) == "hello"
            await scene.run("status", "--json")
            scene.outputs.append((await client.read_resource("coretools://upstreams")).model_dump_json())
            scene.upstream.post("/refuse")
            scene.server.switch(forget="Grant")
            scene.server.switch(html=["/token"])
            await scene.call(client)
            await scene.call(client, LOGIN)
            scene.server.switch(html=[])
            await scene.call(client, LOGIN)
    for arguments in (["login", "--list"], ["login", "--list", "--json"], ["config", "show"], ["logout", ALIAS]):
        await scene.run(*arguments)
    secrets = scene.server.secrets
    assert len(secrets) >= 8
    output = "\n".join(scene.outputs)
    assert [secret for secret in secrets if secret in output] == []
    folder = Path(os.environ["XDG_STATE_HOME"])
    for path in folder.rglob("*"):
        if path.is_file() and "logins" not in path.parts:
            content = path.read_bytes()
            assert [secret for secret in secrets if secret.encode() in content] == [], path


@pytest.mark.requirement("login.secrets")
async def test_the_upstream_sees_only_the_access_tokens(scene: Scene) -> None:
    await scene.log_in()
    async with scene.serving(ERAS[0]) as client:
        assert text_of(await scene.call(client)) == "hello"
        scene.upstream.post("/refuse")
        assert text_of(await scene.call(client)) == "hello"
    counts = scene.upstream.get("/counts")
    assert set(counts["paths"]) <= {"/mcp", "/.well-known/oauth-protected-resource/mcp"}
    assert all(
        token.count(".") == 2 for token in counts["tokens"]
    )  # of all issued secrets, only access tokens are JWTs


@pytest.mark.requirement("login.secrets")
@pytest.mark.parametrize("revision", ERAS)
async def test_a_result_that_repeats_the_access_token_arrives_without_it(scene: Scene, revision: str) -> None:
    await scene.log_in()
    async with scene.serving(revision) as client:
        assert text_of(await scene.call(client)) == "hello"
        (token,) = scene.upstream.get("/counts")["tokens"]
        assert text_of(await scene.call(client, text=f"a bearer token: {token}!")) == f"a bearer token: {HIDDEN}!"
        header = base64.b64encode(f"Bearer {token}".encode()).decode()
        assert text_of(await scene.call(client, text=header)).rstrip("=") == HIDDEN


@needs_root
@pytest.mark.requirement("login.secrets")
async def test_a_login_is_private_to_the_user(scene: Scene) -> None:
    await scene.log_in()
    files = [path for path in Path(os.environ["XDG_STATE_HOME"]).rglob("*") if "logins" in path.parts]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.is_dir()} == {0o700}
