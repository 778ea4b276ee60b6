"""The behaviour that all stores have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import anyio
import pytest

from server.store.shared_store import ABSENT, Store, Versioned
from tests.unit.store.conftest import Opener
from tests.waiting import CEILING, until

pytestmark = pytest.mark.anyio

SHORT = 0.05  # seconds


async def until_true(condition: Callable[[], Awaitable[bool]]) -> None:
    """Check a condition of a store repeatedly until it is true."""
    with anyio.fail_after(CEILING):
        while not await condition():  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(SHORT / 5)


@pytest.mark.requirement("store.claims")
async def test_a_key_is_taken_once_by_whichever_replica_is_first(open_replica: Opener) -> None:
    stores = [open_replica() for _ in range(3)]
    for store in stores:
        await store.start()
    results: list[bool] = []

    async def take(store: Store) -> None:
        results.append(await store.take_once("spent:1", 60, store.generation))

    async with anyio.create_task_group() as tasks:
        for store in stores * 10:
            tasks.start_soon(take, store)
    assert sorted(results) == [False] * 29 + [True]
    assert await stores[0].take_once("spent:2", 60, stores[0].generation)


@pytest.mark.requirement("store.claims")
async def test_a_key_can_be_taken_anew_after_its_seconds(store: Store) -> None:
    assert await store.take_once("spent:1", SHORT, store.generation)
    await until_true(lambda: store.take_once("spent:1", 60, store.generation))
    assert not await store.take_once("spent:1", 60, store.generation)


@pytest.mark.requirement("store.forgotten")
async def test_nothing_can_be_taken_for_another_generation_of_the_store(store: Store) -> None:
    assert store.generation != ""
    assert not await store.take_once("spent:1", 60, "an earlier one")
    assert not await store.take_once("spent:1", 60, "")
    assert await store.take_once("spent:1", 60, store.generation)


@pytest.mark.requirement("store.values")
async def test_a_value_is_replaced_only_over_the_version_that_was_seen(open_replica: Opener) -> None:
    first_store, second_store = open_replica(), open_replica()
    assert await first_store.get("grants") is None
    first_version = await first_store.put("grants", "a", 60, if_version=ABSENT)
    assert first_version is not None
    assert await second_store.get("grants") == Versioned("a", first_version)
    assert await second_store.put("grants", "b", 60, if_version=ABSENT) is None
    second_version = await second_store.put("grants", "b", 60, if_version=first_version)
    assert second_version not in (None, first_version)
    assert await first_store.put("grants", "c", 60, if_version=first_version) is None
    assert await first_store.get("grants") == Versioned("b", str(second_version))
    await first_store.delete("grants", if_version=first_version)
    assert await first_store.get("grants") is not None
    await first_store.delete("grants", if_version=second_version)
    assert await second_store.get("grants") is None
    assert await second_store.put("grants", "c", 60, if_version=str(second_version)) is None


@pytest.mark.requirement("store.values")
async def test_a_value_without_an_expiry_stays_and_others_expire(store: Store) -> None:
    await store.put("long", "ü\n\0 text", None)
    await store.put("short", "text", SHORT)

    async def is_gone() -> bool:
        return await store.get("short") is None

    await until_true(is_gone)
    value = await store.get("long")
    assert value is not None
    assert value.value == "ü\n\0 text"
    await store.delete("long")
    assert await store.get("long") is None
    assert await store.put("short", "again", 60, if_version=ABSENT) is not None


@pytest.mark.requirement("store.values")
async def test_one_of_many_writers_replaces_the_same_version(open_replica: Opener) -> None:
    stores = [open_replica() for _ in range(3)]
    version = str(await stores[0].put("grants", "", 60))
    versions: list[str] = []

    async def write(store: Store) -> None:
        if (new_version := await store.put("grants", "mine", 60, if_version=version)) is not None:
            versions.append(new_version)

    async with anyio.create_task_group() as tasks:
        for store in stores * 5:
            tasks.start_soon(write, store)
    assert len(versions) == 1


@pytest.mark.requirement("store.counters")
async def test_a_counter_adds_up_over_replicas_and_expires_a_fixed_time_after_its_first_count(
    open_replica: Opener,
) -> None:
    first_store, second_store = open_replica(), open_replica()
    assert [
        await first_store.add("calls", 1, 60),
        await second_store.add("calls", 2, 60),
        await first_store.add("calls", 1, 60),
    ] == [1, 3, 4]
    await first_store.add("few", 1, SHORT)

    async def is_first() -> bool:
        return await second_store.add("few", 1, SHORT) == 1

    await until_true(is_first)


@pytest.mark.requirement("store.messages")
async def test_messages_reach_every_subscriber_of_their_channel_in_order(open_replica: Opener) -> None:
    texts_by_listener: dict[int, list[str | None]] = {0: [], 1: []}

    async def listen(number: int) -> None:
        async with aclosing(open_replica().subscribe("lists")) as messages:
            async for text in messages:
                texts_by_listener[number].append(text)

    async with anyio.create_task_group() as tasks:
        for number in texts_by_listener:
            tasks.start_soon(listen, number)
        await until(lambda: all(texts_by_listener.values()))
        speaker = open_replica()
        for text in ("tools", "prompts"):
            await speaker.publish("others", "not for us")
            await speaker.publish("lists", text)
        await until(lambda: all(len(texts) == 3 for texts in texts_by_listener.values()))
        tasks.cancel_scope.cancel()
    assert texts_by_listener == {0: [None, "tools", "prompts"], 1: [None, "tools", "prompts"]}
