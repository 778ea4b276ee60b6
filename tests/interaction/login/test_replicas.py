"""Two servers on the network with one store: a login is that of both, and none of its refresh tokens is used twice."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.background_servers import free_port
from tests.fork_server import forked
from tests.harness import server_arguments, speaking, text_of
from tests.interaction.login.pages import TOKENS, Shown, called, log_in
from tests.interaction.login.scene import ALIAS, ECHO, HANDSHAKE, LIFE, Scene, visit
from tests.interaction.network.wires import connection, modern, modern_headers, post
from tests.interaction.raw_clients import wait_until_time
from tests.interaction.relay.clients import http_transport
from tests.interaction.replicas.scene import KEY, SERVING, Program
from tests.valkey_servers import DURABLE, ValkeyServer, valkey_server
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

NAMES = ("r1", "r2")
AWAY = "the store that the replicas of this server share is unavailable"


class Replicas:
    """The two, which are started by the test; each has a state folder of its own."""

    def __init__(self, scene: Scene, folder: Path, store: ValkeyServer, stack: ExitStack) -> None:
        self.store = store
        self._scene, self._folder, self._stack = scene, folder, stack
        self.programs: dict[str, Program] = {}

    def start(self, name: str, port: int = 0) -> None:
        words = server_arguments(None, self._scene.config, "--transport", "http", "--port", str(port))
        variables = {**self._scene.variables, "XDG_STATE_HOME": str(self._folder / name)}
        program = Program([sys.executable, *forked(words)], self._folder / f"{name}.log", variables)
        program.start()
        self._stack.callback(program.end, signal.SIGKILL)
        self.programs[name] = program

    async def url(self, name: str) -> str:
        """Where it listens, once it does."""
        return (await anyio.to_thread.run_sync(self.programs[name].said, SERVING))[1]

    @asynccontextmanager
    async def client(self, name: str) -> AsyncGenerator[Client]:
        """A client of one of them."""
        url = await self.url(name)
        async with speaking(HANDSHAKE, streamable_http_client(f"{url}/mcp")) as client:
            yield client

    @asynccontextmanager
    async def clients(self) -> AsyncGenerator[list[Client]]:
        """One of each, which are started, and have called."""
        for name in NAMES:
            self.start(name)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self.client(name)) for name in NAMES]
            for client in clients:
                await self._scene.until_called(client)
            yield clients


@pytest.fixture
def replicas(scene: Scene, tmp_path: Path) -> Generator[Replicas]:
    folder = tmp_path / "replicas"
    folder.mkdir()
    with ExitStack() as stack:
        store = stack.enter_context(valkey_server(folder, *DURABLE))
        scene.http = {"stateKeys": [{"env": "STATE_KEY"}]}
        scene.store = {"url": store.url}
        scene.variables = {"STATE_KEY": KEY, "XDG_STATE_HOME": str(folder / "terminal")}
        yield Replicas(scene, folder, store, stack)


async def calls(scene: Scene, clients: list[Client]) -> list[types.CallToolResult]:
    """What each of them is answered, all at once."""
    results: list[types.CallToolResult] = []

    async def call(client: Client) -> None:
        results.append(await scene.call(client))

    async with anyio.create_task_group() as tasks:
        for client in clients:
            tasks.start_soon(call, client)
    return results


@pytest.mark.requirement("login.replicas")
async def test_a_login_at_a_terminal_is_that_of_all_replicas_and_so_is_its_end(
    scene: Scene, replicas: Replicas, tmp_path: Path
) -> None:
    await scene.log_in()
    async with replicas.clients() as clients:
        assert [text_of(each) for each in await calls(scene, clients)] == ["hello"] * 2
        assert scene.server.grants("authorization_code") == 1
        (listed,) = json.loads((await scene.run("login", "--list", "--json")).stdout)
        assert (listed["server"], listed["state"]) == (ALIAS, "valid")
        assert "Logged out" in (await scene.run("logout", ALIAS)).stdout
        with anyio.fail_after(CEILING):
            while not all(each.is_error for each in await calls(scene, clients)):  # noqa: ASYNC110 - asked for only
                await anyio.sleep(0.2)
        await scene.log_in()
        for client in clients:
            await scene.until_called(client)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "replicas").rglob("*") if path.is_file())
    assert b"login" in kept
    assert not [secret for secret in scene.server.secrets if secret.encode() in kept]
    assert not list(tmp_path.rglob("coretools-mcp/logins"))


@pytest.mark.requirement("login.replicas")
async def test_a_terminal_without_the_keys_of_the_replicas_says_so(scene: Scene, replicas: Replicas) -> None:
    del replicas
    scene.variables.pop("STATE_KEY")
    for command in (("login", ALIAS), ("logout", ALIAS), ("login", "--list")):
        done = await scene.run(*command)
        assert done.returncode != 0
        assert "http.stateKeys[0].env names the variable 'STATE_KEY', which is not set" in done.stderr


@pytest.mark.requirement("login.replicas-renewal")
async def test_a_token_that_both_replicas_must_renew_at_once_is_renewed_once(scene: Scene, replicas: Replicas) -> None:
    await scene.log_in()
    async with replicas.clients() as clients:
        scene.upstream.post("/refuse")
        assert [text_of(each) for each in await calls(scene, clients * 3)] == ["hello"] * 6
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)


@pytest.mark.requirement("login.replicas-renewal")
async def test_a_replica_that_is_killed_while_it_renews_leaves_the_others_a_login_that_works(
    scene: Scene, replicas: Replicas
) -> None:
    scene.server.switch(seconds=LIFE)
    await scene.log_in()
    wait_until_time(time.time() + LIFE)
    # What the killed one has asked is answered with a page in the end, so its refresh token is as it was.
    scene.server.switch(seconds=600, html=["/token"], delays={"/token": 600_000})
    replicas.start("r1")
    await until(lambda: scene.server.requests("/token") == 2)
    process = replicas.programs["r1"].process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    scene.server.switch(delays={})
    replicas.start("r2")
    async with replicas.client("r2") as client:
        scene.server.switch(html=[])
        await scene.until_called(client)
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.replicas-away")
async def test_without_the_store_tokens_count_on_and_are_not_renewed_and_with_it_they_are_again(
    scene: Scene, replicas: Replicas
) -> None:
    await scene.log_in()
    async with replicas.clients() as clients:
        replicas.store.stop()
        assert [text_of(each) for each in await calls(scene, clients)] == ["hello"] * 2
        scene.upstream.post("/refuse")
        for refused in await calls(scene, clients):
            assert refused.is_error
            assert AWAY in text_of(refused)
        for command in (("login", ALIAS), ("logout", ALIAS), ("logout", "other"), ("login", "--list")):
            done = await scene.run(*command)
            assert done.returncode != 0
            assert "unavailable" in done.stderr
            assert "There " not in done.stdout
        assert scene.server.refreshes == 0
        replicas.store.start()
        for client in clients:
            await scene.until_called(client)
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.replicas-away")
async def test_a_token_that_came_while_the_store_was_away_is_used_by_all_once_it_is_back(
    scene: Scene, replicas: Replicas
) -> None:
    await scene.log_in()
    async with replicas.clients() as (first, second):
        scene.server.switch(late={"/token": 600_000})
        scene.upstream.post("/refuse")
        results: list[types.CallToolResult] = []

        async def call() -> None:
            results.append(await scene.call(first))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await until(lambda: scene.server.refreshes == 1)
            replicas.store.stop()
            scene.server.switch(late={})
        assert [text_of(each) for each in results] == ["hello"]
        assert AWAY in text_of(await scene.call(second))
        replicas.store.start()
        await scene.until_called(second)
        assert text_of(await scene.call(first)) == "hello"
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


def address_for_people(scene: Scene) -> int:
    """Have the replicas lead people to pages at a port, which is returned, with a token for each of two clients."""
    port = free_port()
    scene.http |= {"publicUrl": f"http://127.0.0.1:{port}", "tokens": {name: {"env": name} for name in TOKENS}}
    scene.variables |= TOKENS
    return port


@pytest.mark.requirement("login.replicas-links")
async def test_a_call_that_is_answered_at_another_replica_goes_on_with_the_login_that_was_begun_at_the_first(
    scene: Scene, replicas: Replicas
) -> None:
    port = address_for_people(scene)
    scene.store |= {"replica": "r1"}
    await scene.log_in()  # with it tools are listed
    replicas.start("r1", port)
    replicas.start("r2")
    first, second = [await replicas.url(name) for name in NAMES]
    call = {"name": ECHO, "arguments": {"text": "hello"}}

    async def result_of(url: str, params: dict[str, Any]) -> dict[str, Any]:
        message = modern(1, "tools/call", params, elicitation={"url": {}})
        async with connection(url) as wire:
            head = await post(
                wire, "/mcp", message, {"Authorization": f"Bearer {TOKENS['ada']}"} | modern_headers(message)
            )
            return [answer async for answer in wire.messages(head)][-1]["result"]

    asked, results = dict[str, Any](), list[dict[str, Any]]()
    with anyio.fail_after(CEILING):
        while asked.get("resultType") != "input_required":  # it still connects
            asked = await result_of(first, call)
    ((key, question),) = asked["inputRequests"].items()
    link = question["params"]["url"]
    assert link.startswith(f"{first}/connect/r1~")
    yes = {"inputResponses": {key: {"action": "accept"}}, "requestState": asked["requestState"]}

    async def answer() -> None:
        results.append(await result_of(second, {**call, **yes}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        assert "You are logged in" in await log_in(link, first)
    assert [each["content"][0]["text"] for each in results] == ["hello"]
    assert scene.server.grants("authorization_code") == 2  # one is that of the operator
    missed = await visit(f"{second}{link.removeprefix(first)}")
    assert (missed.status_code, "repeat the call to get a new link" in missed.text) == (404, True)
    missed = await visit(f"{second}/oauth/callback?code=x&state=r1~y")
    assert (missed.status_code, "no longer open" in missed.text) == (400, True)


@pytest.mark.requirement("login.replicas-links")
async def test_calls_at_two_replicas_that_have_both_asked_go_on_with_the_one_login_that_was_made(
    scene: Scene, replicas: Replicas
) -> None:
    port = address_for_people(scene)
    await scene.log_in()  # with it tools are listed
    replicas.start("r1", port)
    replicas.start("r2")
    people, results = [Shown(), Shown()], list[types.CallToolResult]()
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for name, person in zip(NAMES, people, strict=True):
            wire = http_transport(f"{await replicas.url(name)}/mcp", TOKENS["ada"])
            clients.append(await stack.enter_async_context(speaking(HANDSHAKE, wire, elicitation_callback=person.look)))
            await scene.until_listed(clients[-1], ECHO)
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(called, scene, client, results)
            await until(lambda: all(person.links for person in people))
            assert "You are logged in" in await log_in(people[0].links[0], await replicas.url("r1"))
    assert [text_of(each) for each in results] == ["hello"] * 2
    assert scene.server.grants("authorization_code") == 2  # one is that of the operator
