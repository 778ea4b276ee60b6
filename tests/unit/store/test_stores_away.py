"""Stores that are temporarily unavailable, and stores that come back with other contents or cannot be used."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from server.store import sqlite_store
from server.store.shared_store import Store, StoreUnavailableError
from server.store.sqlite_store import SqliteStore
from server.store.valkey_store import ValkeyStore
from tests.valkey_servers import ValkeyServer, silenceable_proxy, valkey_server
from tests.waiting import until
from tools.contract.tool_errors import ToolErrorType

pytestmark = pytest.mark.anyio

USES: list[Callable[[Store], Awaitable[object]]] = [
    lambda store: store.take_once("key", 60, store.generation),
    lambda store: store.get("key"),
    lambda store: store.put("key", "value"),
    lambda store: store.put("key", "value", if_version="0" * 16),
    lambda store: store.delete("key"),
    lambda store: store.add("count", 1, 60),
    lambda store: store.publish("channel", "text"),
]


async def refusal_reason(store: Store) -> str:
    """Check that every operation is refused with the same reason, and return it."""
    reasons: set[str] = set()
    for use in USES:
        with pytest.raises(StoreUnavailableError) as error_info:
            await use(store)
        assert error_info.value.code is ToolErrorType.STORE_UNAVAILABLE
        reasons.add(error_info.value.reason)
    assert len(reasons) == 1
    return reasons.pop()


async def listen(store: Store, texts: list[str | None]) -> None:
    """Receive the messages of the channel `lists` until cancelled."""
    async with aclosing(store.subscribe("lists")) as messages:
        async for text in messages:
            texts.append(text)  # noqa: PERF401 - each text must be visible at once


@pytest.mark.requirement("store.away")
async def test_a_server_that_is_away_at_the_start_is_used_once_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ValkeyServer(tmp_path)
    store = ValkeyStore(server.url, "")
    try:
        await store.start()
        assert store.generation == ""
        assert await refusal_reason(store) == "it cannot be reached"
        assert len([record for record in caplog.records if "cannot be used" in record.message]) == 1
        server.start()
        assert not await store.take_once("key", 60, store.generation)
        assert await store.take_once("key", 60, store.generation)
        assert "can be used again" in caplog.text
    finally:
        await store.aclose()
        server.stop()


@pytest.mark.requirement("store.away")
async def test_a_server_that_stops_between_two_commands_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        store = ValkeyStore(server.url, "")
        await store.start()
        assert await store.take_once("first", 60, store.generation)
        server.stop()
        assert await refusal_reason(store) == "it cannot be reached"
        server.start()
        assert await store.get("first") is None
        await store.aclose()


@pytest.mark.requirement("store.forgotten")
async def test_a_key_taken_before_a_server_came_back_empty_cannot_be_taken_again(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        stores = [ValkeyStore(server.url, "") for _ in range(2)]
        for store in stores:
            await store.start()
        before = stores[0].generation
        assert stores[1].generation == before
        assert await stores[0].take_once("spent", 60, before)
        await server.restart()
        for store in stores * 2:
            assert not await store.take_once("spent", 60, before)
        assert stores[0].generation == stores[1].generation != before
        assert await stores[1].take_once("asked since", 60, stores[1].generation)
        for store in stores:
            await store.aclose()


@pytest.mark.requirement("store.forgotten")
async def test_a_key_taken_after_the_snapshot_of_a_restarted_server_cannot_be_taken_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with valkey_server(tmp_path) as server:
        store = ValkeyStore(server.url, "")
        await store.start()
        before = store.generation
        assert await store.take_once("before the snapshot", 60, before)
        assert server.command("SAVE").startswith(b"+OK")
        assert await store.take_once("after it", 60, before)
        await server.restart()
        for key in ("before the snapshot", "after it"):
            assert not await store.take_once(key, 60, before)
        assert "asked again" in caplog.text
        assert not await store.take_once("before the snapshot", 60, store.generation)
        assert await store.take_once("asked since", 60, store.generation)
        await store.aclose()


@pytest.mark.requirement("store.forgotten")
@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru"])
async def test_a_key_that_a_server_has_evicted_cannot_be_taken_again(tmp_path: Path, policy: str) -> None:
    with valkey_server(tmp_path, "--maxmemory-policy", policy) as server:
        store = ValkeyStore(server.url, "")
        await store.start()
        before = store.generation
        assert await store.take_once("spent", 60, before)
        server.command("CONFIG", "SET", "maxmemory", "1")
        await store.get("spent")
        server.command("CONFIG", "SET", "maxmemory", "0")
        assert await store.get("spent") is None
        assert not await store.take_once("spent", 60, before)
        assert await store.take_once("asked since", 60, store.generation)
        await store.aclose()


@pytest.mark.requirement("store.strangers")
async def test_values_of_other_programs_that_are_not_text_or_have_another_type_cause_no_crash(
    valkey: ValkeyServer,
) -> None:
    store, texts = ValkeyStore(valkey.url, ""), list[str | None]()
    await store.start()
    valkey.command("SET", "coretools:bytes", r'"\xff\xfe"')
    valkey.command("LPUSH", "coretools:list", "element")
    assert await store.get("bytes") is not None
    assert await store.put("bytes", "value", 60, if_version="0" * 16) is None
    with pytest.raises(StoreUnavailableError, match="unavailable"):
        await store.get("list")
    with pytest.raises(StoreUnavailableError, match="unavailable"):
        await store.add("bytes", 1, 60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen, store, texts)
        await until(lambda: texts == [None])
        valkey.command("PUBLISH", "coretools:lists", r'"\xff"')
        await store.publish("lists", "tools")
        await until(lambda: len(texts) == 3)
        tasks.cancel_scope.cancel()
    assert texts[-1] == "tools"
    await store.aclose()


@pytest.mark.requirement("store.away")
async def test_a_silent_server_is_not_waited_for_longer_than_the_limit(valkey: ValkeyServer) -> None:
    async with silenceable_proxy(valkey.port) as (port, is_silent):
        store = ValkeyStore(f"valkey://127.0.0.1:{port}", "")
        await store.start()
        assert await store.take_once("slow", 60, store.generation)
        is_silent.set()
        with anyio.fail_after(20):  # without the time limits of the store, this would never end
            assert await refusal_reason(store) == "it does not answer within 1 s"
        await store.aclose()


@pytest.mark.requirement("store.away")
async def test_a_silent_server_is_logged_once_however_many_calls_wait_for_it(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    texts, refusals = list[str | None](), list[str]()
    async with silenceable_proxy(valkey.port) as (port, is_silent), anyio.create_task_group() as tasks:
        store = ValkeyStore(f"valkey://127.0.0.1:{port}", "")

        async def read() -> None:
            with pytest.raises(StoreUnavailableError) as error_info:
                await store.get("key")
            refusals.append(error_info.value.reason)

        tasks.start_soon(listen, store, texts)
        await until(lambda: texts == [None])
        is_silent.set()
        for _ in range(4):
            async with anyio.create_task_group() as readers:
                for _ in range(50):  # more than there are connections
                    readers.start_soon(read)
        await store.aclose()
        tasks.cancel_scope.cancel()
    assert len(refusals) == 200
    messages = [record.getMessage() for record in caplog.records if "the store" in record.getMessage()]
    assert len(messages) == len(set(messages)) == len(set(refusals)), messages
    assert not any("can be used again" in message for message in messages), messages


@pytest.mark.requirement("store.away")
async def test_a_cancelled_call_takes_no_answer_away_from_another_one(valkey: ValkeyServer) -> None:
    store = ValkeyStore(valkey.url, "")
    await store.start()
    for number in range(100):
        await store.put(f"number {number}", str(number), 60)

    async def read(number: int) -> None:
        value = await store.get(f"number {number}")
        assert value is not None
        assert value.value == str(number)

    for number in range(100):
        async with anyio.create_task_group() as given_up:
            given_up.start_soon(read, number)
            for _ in range(number % 7):
                await anyio.lowlevel.checkpoint()
            given_up.cancel_scope.cancel()
        await read((number + 50) % 100)
    await store.aclose()


@pytest.mark.requirement("store.away")
async def test_more_calls_than_connections_take_turns(valkey: ValkeyServer) -> None:
    store = ValkeyStore(valkey.url, "")
    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(store.add, "many", number, 60)
    assert await store.add("many", 0, 60) == sum(range(300))
    await store.aclose()


@pytest.mark.requirement("store.password")
@pytest.mark.parametrize("user", ["", "coretools@"])
async def test_the_right_password_is_accepted_and_no_password_is_logged(
    tmp_path: Path, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    password, wrong_password = "correct-horse-battery", "guessed-by-somebody"
    options = (
        ["--user", "coretools", "on", f">{password}", "~*", "&*", "+@all"] if user else ["--requirepass", password]
    )
    with valkey_server(tmp_path, *options) as server:
        url = server.url.replace("//", f"//{user}")
        accepted_store, rejected_store = ValkeyStore(url, password), ValkeyStore(url, wrong_password)
        await accepted_store.start()
        assert await accepted_store.take_once("key", 60, accepted_store.generation)
        await rejected_store.start()
        reason = "it rejects the user name or the password (store.password), or the user lacks a permission"
        assert await refusal_reason(rejected_store) == reason
        assert password not in caplog.text
        assert wrong_password not in caplog.text
        assert password not in repr(accepted_store)
        await accepted_store.aclose()
        await rejected_store.aclose()


@pytest.mark.requirement("store.messages")
async def test_a_subscriber_is_told_that_it_may_have_missed_some_once_the_server_is_back(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        store, texts = ValkeyStore(server.url, ""), list[str | None]()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, store, texts)
            await until(lambda: texts == [None])
            before = store.generation
            await server.restart()
            await until(lambda: texts == [None, None])
            assert store.generation not in ("", before)
            await store.publish("lists", "tools")
            await until(lambda: texts == [None, None, "tools"])
            tasks.cancel_scope.cancel()
        await store.aclose()


@pytest.mark.requirement("store.sqlite")
async def test_a_file_is_private_to_its_user_and_one_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(str(path))
    await store.start()
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), "0o600")
    await store.aclose()
    path.chmod(0o644)
    assert "other users can read or write it, mode 0644: run chmod 600 on it" in await refusal_reason(
        SqliteStore(str(path))
    )


@pytest.mark.requirement("store.sqlite")
async def test_a_file_that_another_process_locks_is_not_waited_for_longer_than_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.1)
    path = str(tmp_path / "store.db")
    store = SqliteStore(path)
    await store.start()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with anyio.fail_after(30):
        assert await refusal_reason(store) == "another process has locked its file for too long"
    connection.execute("ROLLBACK")
    connection.close()
    assert await store.take_once("key", 60, store.generation)
    await store.aclose()


def damage(path: Path) -> None:
    path.touch(0o600)
    path.write_bytes(b"no database at all" * 1_000)


def link(path: Path) -> None:
    path.symlink_to("elsewhere")


def use_for_another_program(path: Path) -> None:
    path.touch(0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE held (other TEXT)")


@pytest.mark.requirement("store.sqlite")
async def test_reading_a_file_does_not_wait_for_a_process_that_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    store = SqliteStore(path)
    await store.put("key", "value")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        value = await store.get("key")
    assert value is not None
    assert value.value == "value"
    await store.aclose()


@pytest.mark.requirement("store.sqlite")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (damage, "not an SQLite database"),
        (Path.mkdir, "Is a directory"),
        (link, "symbolic links"),
        (use_for_another_program, "SQLite cannot use its file"),
    ],
)
async def test_a_path_that_is_not_a_store_is_refused_and_left_unchanged(
    tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "store.db"
    spoil(path)
    store = SqliteStore(str(path))
    assert reason in await refusal_reason(store)
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.db"]
    await store.aclose()


@pytest.mark.requirement("store.forgotten")
async def test_a_new_file_in_the_place_of_a_deleted_one_is_another_generation(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(str(path))
    await store.start()
    before = store.generation
    assert await store.take_once("spent", 60, before)
    for entry in tmp_path.iterdir():
        os.unlink(entry)
    assert not await store.take_once("spent", 60, before)
    assert store.generation != before
    assert await store.take_once("asked since", 60, store.generation)
    await store.aclose()


@pytest.mark.requirement("store.sqlite")
async def test_a_file_whose_folder_is_not_there_is_used_once_it_is(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "folder" / "store.db"))
    await store.start()
    assert "No such file or directory" in await refusal_reason(store)
    (tmp_path / "folder").mkdir()
    assert await store.put("key", "value") is not None
    await store.aclose()
