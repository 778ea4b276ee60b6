"""What every store does, wherever it keeps things."""

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


async def comes_true(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask a store again and again, until something is over there."""
    with anyio.fail_after(CEILING):
        while not await condition():  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(SHORT / 5)


@pytest.mark.requirement("store.claims")
async def test_a_key_is_taken_once_by_whichever_replica_is_first(open_replica: Opener) -> None:
    stores = [open_replica() for _ in range(3)]
    for store in stores:
        await store.start()
    won: list[bool] = []

    async def take(store: Store) -> None:
        won.append(await store.take_once("spent:1", 60, store.generation))

    async with anyio.create_task_group() as tasks:
        for store in stores * 10:
            tasks.start_soon(take, store)
    assert sorted(won) == [False] * 29 + [True]
    assert await stores[0].take_once("spent:2", 60, stores[0].generation)


@pytest.mark.requirement("store.claims")
async def test_a_key_can_be_taken_anew_after_its_seconds(store: Store) -> None:
    assert await store.take_once("spent:1", SHORT, store.generation)
    await comes_true(lambda: store.take_once("spent:1", 60, store.generation))
    assert not await store.take_once("spent:1", 60, store.generation)


@pytest.mark.requirement("store.forgotten")
async def test_nothing_is_taken_for_a_generation_that_the_store_is_not_of(store: Store) -> None:
    assert store.generation != ""
    assert not await store.take_once("spent:1", 60, "an earlier one")
    assert not await store.take_once("spent:1", 60, "")
    assert await store.take_once("spent:1", 60, store.generation)


@pytest.mark.requirement("store.values")
async def test_a_value_is_replaced_only_over_the_version_that_was_seen(open_replica: Opener) -> None:
    one, other = open_replica(), open_replica()
    assert await one.get("grants") is None
    first = await one.put("grants", "a", 60, if_version=ABSENT)
    assert first is not None
    assert await other.get("grants") == Versioned("a", first)
    assert await other.put("grants", "b", 60, if_version=ABSENT) is None
    second = await other.put("grants", "b", 60, if_version=first)
    assert second not in (None, first)
    assert await one.put("grants", "c", 60, if_version=first) is None
    assert await one.get("grants") == Versioned("b", str(second))
    await one.delete("grants", if_version=first)
    assert await one.get("grants") is not None
    await one.delete("grants", if_version=second)
    assert await other.get("grants") is None
    assert await other.put("grants", "c", 60, if_version=str(second)) is None


@pytest.mark.requirement("store.values")
async def test_a_value_without_an_end_stays_and_others_go(store: Store) -> None:
    await store.put("long", "ü\n\0 text", None)
    await store.put("short", "text", SHORT)

    async def is_gone() -> bool:
        return await store.get("short") is None

    await comes_true(is_gone)
    held = await store.get("long")
    assert held is not None
    assert held.value == "ü\n\0 text"
    await store.delete("long")
    assert await store.get("long") is None
    assert await store.put("short", "again", 60, if_version=ABSENT) is not None


@pytest.mark.requirement("store.values")
async def test_of_many_who_write_over_the_same_version_one_does(open_replica: Opener) -> None:
    stores = [open_replica() for _ in range(3)]
    version = str(await stores[0].put("grants", "", 60))
    written: list[str] = []

    async def write(store: Store) -> None:
        if (now := await store.put("grants", "mine", 60, if_version=version)) is not None:
            written.append(now)

    async with anyio.create_task_group() as tasks:
        for store in stores * 5:
            tasks.start_soon(write, store)
    assert len(written) == 1


@pytest.mark.requirement("store.counters")
async def test_a_counter_adds_up_over_replicas_and_ends_as_long_after_its_first_count(open_replica: Opener) -> None:
    one, other = open_replica(), open_replica()
    assert [await one.add("calls", 1, 60), await other.add("calls", 2, 60), await one.add("calls", 1, 60)] == [1, 3, 4]
    await one.add("few", 1, SHORT)

    async def is_first() -> bool:
        return await other.add("few", 1, SHORT) == 1

    await comes_true(is_first)


@pytest.mark.requirement("store.messages")
async def test_what_is_published_reaches_every_subscriber_of_its_channel_in_order(open_replica: Opener) -> None:
    heard: dict[int, list[str | None]] = {0: [], 1: []}

    async def listen(number: int) -> None:
        async with aclosing(open_replica().subscribe("lists")) as messages:
            async for text in messages:
                heard[number].append(text)

    async with anyio.create_task_group() as tasks:
        for number in heard:
            tasks.start_soon(listen, number)
        await until(lambda: all(heard.values()))
        speaker = open_replica()
        for text in ("tools", "prompts"):
            await speaker.publish("others", "not for us")
            await speaker.publish("lists", text)
        await until(lambda: all(len(each) == 3 for each in heard.values()))
        tasks.cancel_scope.cancel()
    assert heard == {0: [None, "tools", "prompts"], 1: [None, "tools", "prompts"]}
