"""Two servers on the network share one store: they share each login, and use none of its refresh tokens twice."""

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
from tests.interaction.login.pages import TOKENS, LinkCollector, log_in, record_call
from tests.interaction.login.scene import ALIAS, ECHO, HANDSHAKE, TOKEN_LIFETIME, Scene, visit
from tests.interaction.network.wires import connection, modern, modern_headers, post
from tests.interaction.raw_clients import wait_until_time
from tests.interaction.relay.clients import http_transport
from tests.interaction.replicas.scene import KEY, SERVING, Program
from tests.valkey_servers import DURABLE, ValkeyServer, valkey_server
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

NAMES = ("r1", "r2")
STORE_UNAVAILABLE = "the store that the replicas of this server share is unavailable"


class Replicas:
    """The two servers, which the test starts; each has its own state folder."""

    def __init__(self, scene: Scene, folder: Path, store: ValkeyServer, stack: ExitStack) -> None:
        self.store = store
        self._scene, self._folder, self._stack = scene, folder, stack
        self.programs: dict[str, Program] = {}

    def start(self, name: str, port: int = 0) -> None:
        arguments = server_arguments(None, self._scene.config, "--transport", "http", "--port", str(port))
        variables = {**self._scene.variables, "XDG_STATE_HOME": str(self._folder / name)}
        program = Program([sys.executable, *forked(arguments)], self._folder / f"{name}.log", variables)
        program.start()
        self._stack.callback(program.end, signal.SIGKILL)
        self.programs[name] = program

    async def url(self, name: str) -> str:
        """Wait until a server listens, and return its URL."""
        return (await anyio.to_thread.run_sync(self.programs[name].wait_for_output, SERVING))[1]

    @asynccontextmanager
    async def client(self, name: str) -> AsyncGenerator[Client]:
        """A client of one server."""
        url = await self.url(name)
        async with speaking(HANDSHAKE, streamable_http_client(f"{url}/mcp")) as client:
            yield client

    @asynccontextmanager
    async def clients(self) -> AsyncGenerator[list[Client]]:
        """Start both servers, and yield a client of each after its first successful call."""
        for name in NAMES:
            self.start(name)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self.client(name)) for name in NAMES]
            for client in clients:
                await self._scene.wait_for_successful_call(client)
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


async def call_all(scene: Scene, clients: list[Client]) -> list[types.CallToolResult]:
    """Call through all clients at the same time; return the results."""
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
        assert [text_of(result) for result in await call_all(scene, clients)] == ["hello"] * 2
        assert scene.server.grants("authorization_code") == 1
        (login,) = json.loads((await scene.run("login", "--list", "--json")).stdout)
        assert (login["server"], login["state"]) == (ALIAS, "valid")
        assert "Logged out" in (await scene.run("logout", ALIAS)).stdout
        with anyio.fail_after(CEILING):
            while not all(result.is_error for result in await call_all(scene, clients)):  # noqa: ASYNC110 - only polled
                await anyio.sleep(0.2)
        await scene.log_in()
        for client in clients:
            await scene.wait_for_successful_call(client)
    stored_bytes = b"".join(path.read_bytes() for path in (tmp_path / "replicas").rglob("*") if path.is_file())
    assert b"login" in stored_bytes
    assert not [secret for secret in scene.server.secrets if secret.encode() in stored_bytes]
    assert not list(tmp_path.rglob("coretools-mcp/logins"))


@pytest.mark.requirement("login.replicas")
async def test_a_terminal_without_the_keys_of_the_replicas_says_so(scene: Scene, replicas: Replicas) -> None:
    del replicas
    scene.variables.pop("STATE_KEY")
    for command in (("login", ALIAS), ("logout", ALIAS), ("login", "--list")):
        result = await scene.run(*command)
        assert result.returncode != 0
        assert "http.stateKeys[0].env names the variable 'STATE_KEY', which is not set" in result.stderr


@pytest.mark.requirement("login.replicas-renewal")
async def test_a_token_that_both_replicas_must_renew_at_once_is_renewed_once(scene: Scene, replicas: Replicas) -> None:
    await scene.log_in()
    async with replicas.clients() as clients:
        scene.upstream.post("/refuse")
        assert [text_of(result) for result in await call_all(scene, clients * 3)] == ["hello"] * 6
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)


@pytest.mark.requirement("login.replicas-renewal")
async def test_a_replica_that_is_killed_while_it_renews_leaves_the_others_a_login_that_works(
    scene: Scene, replicas: Replicas
) -> None:
    scene.server.switch(seconds=TOKEN_LIFETIME)
    await scene.log_in()
    wait_until_time(time.time() + TOKEN_LIFETIME)
    # The killed server's request is finally answered with a web page, so its refresh token remains unused.
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
        await scene.wait_for_successful_call(client)
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


@pytest.mark.requirement("login.replicas-away")
async def test_without_the_store_tokens_stay_valid_and_are_not_renewed_until_it_is_back(
    scene: Scene, replicas: Replicas
) -> None:
    await scene.log_in()
    async with replicas.clients() as clients:
        replicas.store.stop()
        assert [text_of(result) for result in await call_all(scene, clients)] == ["hello"] * 2
        scene.upstream.post("/refuse")
        for refusal in await call_all(scene, clients):
            assert refusal.is_error
            assert STORE_UNAVAILABLE in text_of(refusal)
        for command in (("login", ALIAS), ("logout", ALIAS), ("logout", "other"), ("login", "--list")):
            command_result = await scene.run(*command)
            assert command_result.returncode != 0
            assert "unavailable" in command_result.stderr
            assert "There " not in command_result.stdout
        assert scene.server.refreshes == 0
        replicas.store.start()
        for client in clients:
            await scene.wait_for_successful_call(client)
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
        assert [text_of(result) for result in results] == ["hello"]
        assert STORE_UNAVAILABLE in text_of(await scene.call(second))
        replicas.store.start()
        await scene.wait_for_successful_call(second)
        assert text_of(await scene.call(first)) == "hello"
    assert (scene.server.refreshes, scene.server.reuses) == (1, 0)
    assert len(scene.tabs) == 1


def address_for_people(scene: Scene) -> int:
    """Let the replicas send people to login pages at a free port; return the port. Both principals get a token."""
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
    await scene.log_in()  # the login with which the servers list tools
    replicas.start("r1", port)
    replicas.start("r2")
    first_url, second_url = [await replicas.url(name) for name in NAMES]
    call = {"name": ECHO, "arguments": {"text": "hello"}}

    async def result_of(url: str, params: dict[str, Any]) -> dict[str, Any]:
        message = modern(1, "tools/call", params, elicitation={"url": {}})
        async with connection(url) as wire:
            head = await post(
                wire, "/mcp", message, {"Authorization": f"Bearer {TOKENS['ada']}"} | modern_headers(message)
            )
            return [answer async for answer in wire.messages(head)][-1]["result"]

    question_result, results = dict[str, Any](), list[dict[str, Any]]()
    with anyio.fail_after(CEILING):
        while question_result.get("resultType") != "input_required":  # until the server is connected to the upstream
            question_result = await result_of(first_url, call)
    ((key, question),) = question_result["inputRequests"].items()
    link = question["params"]["url"]
    assert link.startswith(f"{first_url}/connect/r1~")
    acceptance = {"inputResponses": {key: {"action": "accept"}}, "requestState": question_result["requestState"]}

    async def answer() -> None:
        results.append(await result_of(second_url, {**call, **acceptance}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        assert "You are logged in" in await log_in(link, first_url)
    assert [result["content"][0]["text"] for result in results] == ["hello"]
    assert scene.server.grants("authorization_code") == 2  # one of them is the operator's
    response = await visit(f"{second_url}{link.removeprefix(first_url)}")
    assert (response.status_code, "repeat the call to get a new link" in response.text) == (404, True)
    response = await visit(f"{second_url}/oauth/callback?code=x&state=r1~y")
    assert (response.status_code, "no longer open" in response.text) == (400, True)


@pytest.mark.requirement("login.replicas-links")
async def test_calls_at_two_replicas_that_have_both_asked_go_on_with_the_one_login_that_was_made(
    scene: Scene, replicas: Replicas
) -> None:
    port = address_for_people(scene)
    await scene.log_in()  # the login with which the servers list tools
    replicas.start("r1", port)
    replicas.start("r2")
    people, results = [LinkCollector(), LinkCollector()], list[types.CallToolResult]()
    async with AsyncExitStack() as stack:
        clients: list[Client] = []
        for name, person in zip(NAMES, people, strict=True):
            wire = http_transport(f"{await replicas.url(name)}/mcp", TOKENS["ada"])
            clients.append(
                await stack.enter_async_context(speaking(HANDSHAKE, wire, elicitation_callback=person.on_elicitation))
            )
            await scene.wait_for_tool(clients[-1], ECHO)
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(record_call, scene, client, results)
            await until(lambda: all(person.links for person in people))
            assert "You are logged in" in await log_in(people[0].links[0], await replicas.url("r1"))
    assert [text_of(result) for result in results] == ["hello"] * 2
    assert scene.server.grants("authorization_code") == 2  # one of them is the operator's
