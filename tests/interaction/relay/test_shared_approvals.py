"""Servers with a store in common, each with settings and a lock file of its own: what people approve counts at all."""

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
    text_or_json,
)
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.test_lock import YOLO
from tests.interaction.relay.watching import start_listening
from tests.interaction.replicas.scene import KEY, SERVING, Program, needs_redis
from tests.valkey_servers import DURABLE, ValkeyServer, valkey_server
from tests.waiting import CEILING, pause

pytestmark = [pytest.mark.anyio, needs_redis]

FILE, OTHER_FILE = lock_text({}), lock_text({"other": {"tools": {}}})
TOOL = "up__content"
CHANGED = "notifications/tools/list_changed"


class Servers:
    """Processes of our own, and what is behind them."""

    def __init__(self, folder: Path, entry: Json, store: ValkeyServer, stack: ExitStack) -> None:
        self.store = store
        self._folder, self._entry, self._stack = folder, entry, stack
        self._programs: dict[str, Program] = {}

    def lock(self, name: str) -> Path:
        return self._folder / name / LOCK_NAME

    def start(self, name: str, content: bytes = FILE, *, has_keys: bool = True) -> None:
        folder = self._folder / name
        folder.mkdir()
        self.lock(name).write_bytes(content)
        keys: Json = {"http": {"stateKeys": [{"env": "STATE_KEY"}]}} if has_keys else {}
        shared: Json = {
            "store": {"url": self.store.url},
            "tools": {"builtIn": False},
            "permissions": YOLO["permissions"],
        }
        config = write_config(folder, {**shared, **keys, "mcpServers": {"up": self._entry}})
        words = server_arguments(None, config, "--transport", "http", "--port", "0")
        variables = {"STATE_KEY": KEY, "XDG_STATE_HOME": str(folder / "state")}
        program = Program([sys.executable, *forked(words)], folder / "log", variables)
        program.start()
        self._stack.callback(program.end, signal.SIGKILL)
        self._programs[name] = program

    async def restart(self, name: str) -> None:
        program = self._programs[name]
        assert await anyio.to_thread.run_sync(program.end) == 0, program.text()
        program.start()
        await anyio.to_thread.run_sync(program.said, SERVING, 2)

    @asynccontextmanager
    async def client(self, name: str, era: str, answer: Answer | None = None) -> AsyncGenerator[WireClient]:
        """A client of one of them, which cannot be asked unless it has an answer."""
        url = (await anyio.to_thread.run_sync(self._programs[name].said, SERVING))[1]
        capabilities: Json = {} if answer is None else {"elicitation": {}}
        async with client_on(http_transport(f"{url}/mcp"), era, capabilities, answer) as client:
            yield client


@pytest.fixture
async def servers(remote: Entry, tmp_path: Path) -> AsyncGenerator[Servers]:
    entry = remote("modern")
    async with client_on(http_transport(entry["httpUrl"]), "modern"):
        pass  # the room of the upstream is made by the first who comes
    with valkey_server(tmp_path, *DURABLE) as store, ExitStack() as stack:
        yield Servers(tmp_path, entry, store, stack)


async def is_stopped(client: WireClient, tool: str = TOOL) -> bool:
    return "The server up has added this tool" in (await client.items_by_name("tools"))[tool].get("description", "")


async def until_callable(client: WireClient, tool: str = TOOL, *, is_callable: bool = True) -> None:
    with anyio.fail_after(CEILING):
        while await is_stopped(client, tool) is is_callable:
            await pause()


async def approve(client: WireClient, tool: str = TOOL) -> None:
    assert "approved" in text_or_json(await client.call(tool, {}))
    assert not await is_stopped(client, tool)


@pytest.mark.requirement("lock.replicas")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_what_a_person_approves_at_one_replica_counts_at_the_other_whose_client_hears_of_it(
    era: str, servers: Servers
) -> None:
    servers.start("one")
    servers.start("other")
    async with (
        servers.client("one", era, Person("approve")) as here,
        servers.client("other", era) as there,
        anyio.create_task_group() as tasks,
    ):
        assert await is_stopped(here)
        assert await is_stopped(there)
        unasked = refusal_of(await there.call(TOOL, {}))
        assert "`coretools-mcp dashboard`" in unasked
        assert "--approve" not in unasked  # which writes the file, and so ends what is approved in the store
        await start_listening(there, tasks, {"toolsListChanged": True})
        there.messages.clear()
        await approve(here)
        await there.wait_for_notifications(CHANGED)
        await until_callable(there)
        assert not (await there.call(TOOL, {})).get("isError")
        tasks.cancel_scope.cancel()
    await servers.restart("other")
    async with servers.client("other", era) as there:
        assert not await is_stopped(there)
        assert not (await there.call(TOOL, {})).get("isError")
        assert await is_stopped(there, "up__ask")
    assert [servers.lock(name).read_bytes() for name in ("one", "other")] == [FILE] * 2


@pytest.mark.requirement("lock.replicas")
async def test_what_was_approved_counts_over_no_other_lock_file(servers: Servers) -> None:
    servers.start("one")
    async with servers.client("one", "modern", Person("approve")) as client:
        await approve(client)
    servers.start("other", OTHER_FILE)
    async with servers.client("other", "modern") as client:
        for content, counts in ((OTHER_FILE, False), (FILE, True), (OTHER_FILE, False)):
            servers.lock("other").write_bytes(content)
            await until_callable(client, is_callable=counts)


@pytest.mark.requirement("lock.replicas")
async def test_what_two_replicas_approve_at_once_counts_at_both(servers: Servers) -> None:
    tools = {"one": TOOL, "other": "up__whoami"}
    for name in tools:
        servers.start(name)
    async with (
        servers.client("one", "modern", Person("approve")) as here,
        servers.client("other", "modern", Person("approve")) as there,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approve, here, tools["one"])
            tasks.start_soon(approve, there, tools["other"])
        for client in (here, there):
            for tool in tools.values():
                await until_callable(client, tool)


@pytest.mark.requirement("lock.replicas-away")
async def test_while_the_store_is_away_an_approval_is_refused_in_words_and_counts_everywhere_once_it_is_back(
    servers: Servers,
) -> None:
    servers.start("one")
    async with servers.client("one", "handshake", Person("approve")) as here:
        await approve(here, "up__ask")
        await anyio.to_thread.run_sync(servers.store.stop)
        refused = await here.call(TOOL, {})
        assert refused["isError"]
        assert refused["_meta"]["coretools-mcp/error"]["type"] == "store_unavailable"
        assert "The approval does not count: the store" in refused["content"][0]["text"]
        assert "Try again a little later" in refused["content"][0]["text"]
        assert await is_stopped(here)
        assert not await is_stopped(here, "up__ask")
        servers.start("late")
        async with servers.client("late", "handshake") as late:
            assert await is_stopped(late, "up__ask")
            await anyio.to_thread.run_sync(servers.store.start)
            await until_callable(late, "up__ask")
            await approve(here)
            await until_callable(late)
    assert [servers.lock(name).read_bytes() for name in ("one", "late")] == [FILE] * 2


@pytest.mark.requirement("lock.replicas")
async def test_without_keys_an_approval_is_written_into_the_file(servers: Servers) -> None:
    servers.start("one", has_keys=False)
    async with servers.client("one", "handshake", Person("approve")) as client:
        await approve(client)
    assert parse_lock(servers.lock("one").read_bytes())["up"]["tools"].keys() == {"content"}
    assert servers.store.command("KEYS", "*approvals*") == b"*0\r\n"
