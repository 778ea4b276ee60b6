"""Servers that share a store but not their settings and lock files: an approval at one counts at all of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from server.settings.settings_files import LOCK_NAME
from server.upstreams.catalog.lock_file import lock_text, parse_lock
from tests.fork_server import forked
from tests.harness import server_arguments, write_config
from tests.interaction.relay.changing import Person
from tests.interaction.relay.clients import (
    Answer,
    Json,
    WireClient,
    client_on,
    http_transport,
    refusal_of,
)
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.test_lock import YOLO
from tests.interaction.relay.watching import start_listening
from tests.interaction.replicas.scene import KEY, SERVING, Program, needs_redis
from tests.valkey_servers import DURABLE, ValkeyServer, valkey_server
from tests.waiting import CEILING, pause

pytestmark = [pytest.mark.anyio, needs_redis]

EMPTY_LOCK, OTHER_LOCK = lock_text({}), lock_text({"other": {"tools": {}}})
TOOL = "up__content"
TOOLS_CHANGED = "notifications/tools/list_changed"


class Servers:
    """Server processes with one upstream and one store."""

    def __init__(self, folder: Path, entry: Json, store: ValkeyServer, stack: ExitStack) -> None:
        self.store = store
        self._folder, self._entry, self._stack = folder, entry, stack
        self._programs: dict[str, Program] = {}

    def lock(self, name: str) -> Path:
        return self._folder / name / LOCK_NAME

    def start(self, name: str, content: bytes = EMPTY_LOCK, *, has_keys: bool = True) -> None:
        folder = self._folder / name
        folder.mkdir()
        self.lock(name).write_bytes(content)
        keys: Json = {"http": {"stateKeys": [{"env": "STATE_KEY"}]}} if has_keys else {}
        settings: Json = {
            "store": {"url": self.store.url},
            "tools": {"builtIn": False},
            "permissions": YOLO["permissions"],
        }
        config = write_config(folder, {**settings, **keys, "mcpServers": {"up": self._entry}})
        arguments = server_arguments(None, config, "--transport", "http", "--port", "0")
        variables = {"STATE_KEY": KEY, "XDG_STATE_HOME": str(folder / "state")}
        program = Program([sys.executable, *forked(arguments)], folder / "log", variables)
        program.start()
        self._stack.callback(program.end, signal.SIGKILL)
        self._programs[name] = program

    async def restart(self, name: str) -> None:
        program = self._programs[name]
        assert await anyio.to_thread.run_sync(program.end) == 0, program.text()
        program.start()
        await anyio.to_thread.run_sync(program.wait_for_output, SERVING, 2)

    @asynccontextmanager
    async def client(self, name: str, era: str, answer: Answer | None = None) -> AsyncGenerator[WireClient]:
        """Connect a client to the server of this name. Without `answer`, the client cannot be asked questions."""
        url = (await anyio.to_thread.run_sync(self._programs[name].wait_for_output, SERVING))[1]
        capabilities: Json = {} if answer is None else {"elicitation": {}}
        async with client_on(http_transport(f"{url}/mcp"), era, capabilities, answer) as client:
            yield client


@pytest.fixture
async def servers(remote: Entry, tmp_path: Path) -> AsyncGenerator[Servers]:
    entry = remote("modern")
    async with client_on(http_transport(entry["httpUrl"]), "modern"):
        pass  # the upstream creates its room for the first client
    with valkey_server(tmp_path, *DURABLE) as store, ExitStack() as stack:
        yield Servers(tmp_path, entry, store, stack)


async def is_blocked(client: WireClient, tool: str = TOOL) -> bool:
    return "The server up offers this tool, but" in (await client.items_by_name("tools"))[tool].get("description", "")


async def wait_until_callable(client: WireClient, tool: str = TOOL, *, is_callable: bool = True) -> None:
    with anyio.fail_after(CEILING):
        while await is_blocked(client, tool) is is_callable:
            await pause()


async def approve(client: WireClient, tool: str = TOOL) -> None:
    assert "has approved" in (await client.call(tool, {}))["content"][0]["text"]
    assert not await is_blocked(client, tool)


@pytest.mark.requirement("lock.replicas")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_approval_at_one_replica_counts_at_the_other_and_its_client_is_notified(
    era: str, servers: Servers
) -> None:
    servers.start("one")
    servers.start("other")
    async with (
        servers.client("one", era, Person("approve")) as first_client,
        servers.client("other", era) as second_client,
        anyio.create_task_group() as tasks,
    ):
        assert await is_blocked(first_client)
        assert await is_blocked(second_client)
        refusal = refusal_of(await second_client.call(TOOL, {}))
        assert "`coretools-mcp dashboard`" in refusal
        assert (
            "--approve" not in refusal
        )  # that would change the lock file, and approvals in the store count only for the same file
        await start_listening(second_client, tasks, {"toolsListChanged": True})
        second_client.messages.clear()
        await approve(first_client)
        await second_client.wait_for_notifications(TOOLS_CHANGED)
        await wait_until_callable(second_client)
        assert not (await second_client.call(TOOL, {})).get("isError")
        tasks.cancel_scope.cancel()
    await servers.restart("other")
    async with servers.client("other", era) as second_client:
        assert not await is_blocked(second_client)
        assert not (await second_client.call(TOOL, {})).get("isError")
        assert await is_blocked(second_client, "up__ask")
    assert [servers.lock(name).read_bytes() for name in ("one", "other")] == [EMPTY_LOCK] * 2


@pytest.mark.requirement("lock.replicas")
async def test_an_approval_does_not_count_with_another_lock_file(servers: Servers) -> None:
    servers.start("one")
    async with servers.client("one", "modern", Person("approve")) as client:
        await approve(client)
    servers.start("other", OTHER_LOCK)
    async with servers.client("other", "modern") as client:
        for content, is_callable in ((OTHER_LOCK, False), (EMPTY_LOCK, True), (OTHER_LOCK, False)):
            servers.lock("other").write_bytes(content)
            await wait_until_callable(client, is_callable=is_callable)


@pytest.mark.requirement("lock.replicas")
async def test_concurrent_approvals_at_two_replicas_count_at_both(servers: Servers) -> None:
    tools = {"one": TOOL, "other": "up__whoami"}
    for name in tools:
        servers.start(name)
    async with (
        servers.client("one", "modern", Person("approve")) as first_client,
        servers.client("other", "modern", Person("approve")) as second_client,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approve, first_client, tools["one"])
            tasks.start_soon(approve, second_client, tools["other"])
        for client in (first_client, second_client):
            for tool in tools.values():
                await wait_until_callable(client, tool)


@pytest.mark.requirement("lock.replicas-away")
async def test_while_the_store_is_away_approvals_are_refused_and_once_it_is_back_they_count_everywhere(
    servers: Servers,
) -> None:
    servers.start("one")
    async with servers.client("one", "handshake", Person("approve")) as first_client:
        await approve(first_client, "up__ask")
        await anyio.to_thread.run_sync(servers.store.stop)
        refusal = await first_client.call(TOOL, {})
        assert refusal["isError"]
        assert refusal["_meta"]["coretools-mcp/error"]["type"] == "store_unavailable"
        assert "The approval does not count: the store" in refusal["content"][0]["text"]
        assert "Try again a little later" in refusal["content"][0]["text"]
        assert await is_blocked(first_client)
        assert not await is_blocked(first_client, "up__ask")
        servers.start("late")
        async with servers.client("late", "handshake") as late_client:
            assert await is_blocked(late_client, "up__ask")
            await anyio.to_thread.run_sync(servers.store.start)
            await wait_until_callable(late_client, "up__ask")
            await approve(first_client)
            await wait_until_callable(late_client)
    assert [servers.lock(name).read_bytes() for name in ("one", "late")] == [EMPTY_LOCK] * 2


@pytest.mark.requirement("lock.replicas")
async def test_without_keys_an_approval_is_written_into_the_file(servers: Servers) -> None:
    servers.start("one", has_keys=False)
    async with servers.client("one", "handshake", Person("approve")) as client:
        await approve(client)
    assert parse_lock(servers.lock("one").read_bytes())["up"]["tools"].keys() == {"content"}
    assert servers.store.command("KEYS", "*approvals*") == b"*0\r\n"
