"""Approvals of tools that replicas share: for one content of the lock file, not forgeable, and never lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path

import anyio
import pytest

from server.app import App
from server.protocol.json_rpc import Json
from server.settings import load_settings
from server.settings.load import LockContent
from server.settings.settings_files import LOCK_NAME
from server.store.replica import Replica
from server.store.sealing import MAX_TRIES, Sealer
from server.store.shared_store import StoreUnavailableError
from server.store.valkey_store import ValkeyStore
from server.upstreams.catalog.lock_file import Lock, lock_text, read_lock, tool_entry
from server.upstreams.catalog.shared_approvals import SharedApprovals
from tests.harness import own_state, write_config
from tests.interaction.replicas.scene import needs_redis
from tests.valkey_servers import DURABLE, ValkeyServer, valkey_server
from tests.waiting import until
from tools.contract.tool_errors import ToolError, ToolErrorType

pytestmark = [pytest.mark.anyio, needs_redis]

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
TOOL = tool_entry({"name": "find", "description": "Finds.", "inputSchema": {"type": "object"}})
OTHER_TOOL = tool_entry({"name": "find", "description": "Something else.", "inputSchema": {"type": "object"}})


def lock_of(servers: Json) -> Lock:
    lock = read_lock(LockContent("/mcp.lock.json", lock_text(servers)))
    assert lock is not None
    return lock


FILE = lock_of({"up": {"tools": {"find": OTHER_TOOL, "same": TOOL}}, "other": {"tools": {}}})
OTHER_FILE = lock_of({"up": {"tools": {}}})


class Judge:
    """A replica that records the lock that it currently uses."""

    def __init__(self, store: ValkeyStore, file: Lock | None = FILE, keys: Sequence[bytes] = (KEY,)) -> None:
        self.lock: Lock | None = None
        self.approvals = SharedApprovals(Replica("one", store, keys), file, self.use)

    async def use(self, lock: Lock | None) -> None:
        self.lock = lock

    @property
    def finds(self) -> Json | None:
        return None if self.lock is None else self.lock.tool("up", "find")

    async def tool(self, name: str = "find") -> Json | None:
        """Read the store, and return the tool as the lock approves it."""
        await self.approvals.refresh()
        return None if self.lock is None else self.lock.tool("up", name)


@pytest.fixture
def server(tmp_path: Path) -> Generator[ValkeyServer]:
    with valkey_server(tmp_path, *DURABLE) as running:
        yield running


@pytest.fixture
async def store(server: ValkeyServer) -> AsyncGenerator[ValkeyStore]:
    store = ValkeyStore(server.url, "")
    yield store
    await store.aclose()


def row_of(lock: Lock) -> str:
    return f"approvals:{lock.digest}"


@pytest.mark.requirement("lock.replicas")
async def test_an_approval_counts_only_for_the_lock_file_content_that_it_was_given_for(store: ValkeyStore) -> None:
    first, second = Judge(store), Judge(store)
    await first.approvals.approve(FILE, "up", {"find": TOOL})
    assert first.finds == TOOL
    assert await second.tool() == TOOL
    assert await second.tool("same") == TOOL
    assert await Judge(store, OTHER_FILE).tool() is None
    await second.approvals.use_file(OTHER_FILE)
    await second.approvals.approve(FILE, "up", {"late": TOOL})  # the person was asked before the file changed
    assert [await second.tool(name) for name in ("find", "late")] == [None, None]
    await second.approvals.use_file(FILE)
    assert [await second.tool(name) for name in ("find", "late")] == [TOOL, TOOL]


@pytest.mark.requirement("lock.replicas")
async def test_approvals_do_not_count_without_a_usable_lock_file(store: ValkeyStore) -> None:
    damaged_lock = read_lock(LockContent("/mcp.lock.json", b"damaged"))
    judge = Judge(store)
    await judge.approvals.approve(FILE, "up", {"find": TOOL})
    for file in (damaged_lock, None):
        await judge.approvals.use_file(file)
        assert judge.lock is file


@pytest.mark.requirement("lock.replicas")
async def test_concurrent_approvals_of_several_replicas_all_count(store: ValkeyStore) -> None:
    judges = [Judge(store) for _ in range(MAX_TRIES)]
    async with anyio.create_task_group() as tasks:
        for number, judge in enumerate(judges):
            tasks.start_soon(judge.approvals.approve, FILE, "up", {f"t{number}": TOOL})
    assert [await Judge(store).tool(f"t{number}") for number in range(MAX_TRIES)] == [TOOL] * MAX_TRIES


@pytest.mark.requirement("lock.replicas")
async def test_a_forged_row_approves_nothing_and_is_overwritten(
    store: ValkeyStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def row(file: Lock, keys: Sequence[bytes]) -> str:
        await Judge(store, file, keys).approvals.approve(file, "up", {"find": TOOL})
        row_value = await store.get(row_of(file))
        assert row_value is not None
        await store.delete(row_of(file))
        return row_value.value

    others_row, other_file_row = await row(FILE, [OTHER_KEY]), await row(OTHER_FILE, [KEY])
    other_purpose_row = Sealer(Replica("x", store, (KEY,)).keys_for(f"grants {FILE.digest}")).seal(
        lock_text({"up": {"tools": {"find": TOOL}}})
    )
    caplog.set_level(logging.WARNING)
    for row_content in (others_row, other_file_row, other_purpose_row, lock_text({}).decode(), "", "\N{SNOWMAN}"):
        await store.put(row_of(FILE), row_content)
        caplog.clear()
        judge = Judge(store)
        assert await judge.tool() == OTHER_TOOL
        assert "not encrypted with this server's keys; it is ignored" in caplog.text
        await judge.approvals.refresh()
        assert caplog.text.count("it is ignored") == 1, "an unchanged row was opened again"
        await judge.approvals.approve(FILE, "up", {"find": TOOL})
        assert await Judge(store).tool() == TOOL


@pytest.mark.requirement("lock.replicas")
async def test_a_key_can_be_removed_once_each_replica_has_started_with_the_new_one_first(store: ValkeyStore) -> None:
    await Judge(store).approvals.approve(FILE, "up", {"find": TOOL})
    assert await Judge(store, keys=[OTHER_KEY]).tool() == OTHER_TOOL
    assert await Judge(store, keys=[OTHER_KEY, KEY]).tool() == TOOL
    assert await Judge(store, keys=[OTHER_KEY]).tool() == TOOL


@pytest.mark.requirement("lock.replicas-away")
async def test_while_the_store_is_away_known_approvals_count_and_new_ones_fail(
    server: ValkeyServer, store: ValkeyStore
) -> None:
    judge = Judge(store)
    await judge.approvals.approve(FILE, "up", {"find": TOOL})
    server.stop()
    assert await judge.tool() == TOOL
    new_judge = Judge(store)
    assert await new_judge.tool() == OTHER_TOOL
    with pytest.raises(ToolError, match="the store that the replicas of this server share is unavailable") as error:
        await judge.approvals.approve(FILE, "up", {"find": OTHER_TOOL})
    assert error.value.code is ToolErrorType.STORE_UNAVAILABLE
    assert "Try again a little later" in error.value.message
    assert await judge.tool() == TOOL
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(new_judge.approvals.follow)
        server.start()
        await until(lambda: new_judge.finds == TOOL)
        tasks.cancel_scope.cancel()
    server.command("FLUSHALL")
    assert await judge.tool() == OTHER_TOOL  # an approval that the store has lost is not valid any more


class HesitantStore(ValkeyStore):
    """Refuses the first write."""

    has_refused = False

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        if not self.has_refused:
            self.has_refused = True
            raise StoreUnavailableError("it is a read-only replica")
        return await super().put(key, value, seconds, if_version=if_version)


@pytest.mark.requirement("lock.replicas-away")
async def test_a_key_can_be_removed_even_if_resealing_the_row_failed_at_first(
    server: ValkeyServer, store: ValkeyStore
) -> None:
    await Judge(store).approvals.approve(FILE, "up", {"find": TOOL})
    hesitant = HesitantStore(server.url, "")
    judge = Judge(hesitant, keys=[OTHER_KEY, KEY])
    assert await judge.tool() == TOOL
    assert hesitant.has_refused
    await judge.approvals.refresh()
    assert await Judge(store, keys=[OTHER_KEY]).tool() == TOOL
    await hesitant.aclose()


class SilentStore(ValkeyStore):
    """Writes, and then fails to answer."""

    async def put(
        self, key: str, value: str, seconds: float | None = None, *, if_version: str | None = None
    ) -> str | None:
        await super().put(key, value, seconds, if_version=if_version)
        raise StoreUnavailableError("it does not answer")


@pytest.mark.requirement("lock.replicas-away")
async def test_an_approval_that_the_store_did_not_confirm_counts_once_it_is_read(server: ValkeyServer) -> None:
    store = SilentStore(server.url, "")
    judge = Judge(store)
    with pytest.raises(ToolError, match="if the tool is still blocked"):
        await judge.approvals.approve(FILE, "up", {"find": TOOL})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(judge.approvals.follow)
        await until(lambda: judge.finds == TOOL)
        tasks.cancel_scope.cancel()
    await store.aclose()


@pytest.mark.requirement("lock.replicas")
async def test_approvals_are_read_before_tools_are_listed(store: ValkeyStore, tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(lock_text({}))
    file = lock_of({})
    await Judge(store, file).approvals.approve(file, "up", {"find": TOOL})
    report = load_settings([str(write_config(tmp_path, {}))], {}, own_state())
    app = App(report, "network", replica=Replica("one", store, (KEY,)))
    async with app.running():
        lock = app.pool.catalog.lock
        assert lock is not None
        assert lock.tool("up", "find") == TOOL
