"""Two servers that share keys and a store: what one of them has asked, the other one goes on with, once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from server.store.replica import Replica
from server.store.shared_store import MemoryStore, Store
from server.store.valkey_store import ValkeyStore
from tests.interaction.relay.changing import Person, change
from tests.interaction.relay.clients import AnswerError, Json, WireClient, stdio_entry, text_or_json
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.network import network
from tests.interaction.relay.questions import FORM, call_until_question
from tests.interaction.relay.test_tasks import KNOWING, OVER_STDIO, begun
from tests.interaction.relay.watching import start_listening
from tests.valkey_servers import silenceable_proxy, valkey_server
from tests.waiting import until

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def two(
    tmp_path: Path,
    entry: Json,
    other_entry: Json | None = None,
    stores: tuple[Store, Store] | None = None,
    capabilities: Json | None = None,
    **settings: Json,
) -> AsyncGenerator[tuple[WireClient, WireClient]]:
    """The same client at two replicas, the second one with an entry of its own perhaps."""
    shared = MemoryStore()
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = (Replica(name, store, (b"k" * 32,)) for name, store in zip("ab", stores or (shared,) * 2, strict=True))
    async with (
        network(folders[0], {"up": entry}, replica=one, settings=settings) as first,
        first.client("modern", "ada", capabilities=capabilities) as here,
    ):
        await here.items_by_name("tools")  # the room of the upstream is made by the first who comes
        async with (
            network(folders[1], {"up": other_entry or entry}, replica=other, settings=settings) as second,
            second.client("modern", "ada", capabilities=capabilities) as there,
        ):
            await there.items_by_name("tools")
            yield here, there


async def message_of(client: WireClient, params: Json) -> str:
    with pytest.raises(AnswerError) as error:
        await client.request("tools/call", params)
    return str(error.value.error["message"])


@pytest.mark.requirement("store.reach")
async def test_a_question_of_one_replica_is_answered_at_the_other_and_then_nowhere(
    remote: Entry, tmp_path: Path
) -> None:
    async with two(tmp_path, remote("modern")) as (here, there):
        params, result = await call_until_question(here, "up__ask", {"questions": [FORM]})
        answered = {**params, **await here.answers_to(result)}
        assert text_or_json(await there.request("tools/call", answered)) == [
            {"action": "accept", "content": {"name": "ada"}}
        ]
        for client in (here, there):
            assert "already used" in await message_of(client, answered)


@pytest.mark.requirement("store.reach")
async def test_consent_to_a_tool_counts_at_the_other_replica_once(remote: Entry, tmp_path: Path) -> None:
    async with two(tmp_path, {**remote("modern"), "trust": False}) as (here, there):
        here.answer = Person()
        params, result = await call_until_question(here, "up__whoami", {})
        answered = {**params, **await here.answers_to(result)}
        assert text_or_json(await there.request("tools/call", answered))["pid"]
        assert (await here.request("tools/call", answered))["resultType"] == "input_required"


@pytest.mark.requirement("store.reach")
async def test_consent_counts_for_nothing_where_another_server_has_the_alias(remote: Entry, tmp_path: Path) -> None:
    entry = {**remote("modern"), "trust": False}
    async with two(tmp_path, entry, {**entry, "headers": {"x-other": "1"}}) as (here, there):
        here.answer = Person()
        params, result = await call_until_question(here, "up__whoami", {})
        answered = {**params, **await here.answers_to(result)}
        assert (await there.request("tools/call", answered))["resultType"] == "input_required"
        asking, question = await call_until_question(here, "up__whoami", {})
        assert text_or_json(await here.request("tools/call", {**asking, **await here.answers_to(question)}))["pid"]


@pytest.mark.requirement("store.elsewhere")
async def test_a_call_that_waits_in_one_replica_goes_on_there_though_its_answer_came_to_the_other(
    tmp_path: Path,
) -> None:
    async with two(tmp_path, stdio_entry("handshake")) as (here, there):
        params, result = await call_until_question(here, "up__ask", {"questions": [FORM]})
        answered = {**params, **await here.answers_to(result)}
        assert "The replica 'a' of this server has this call" in await message_of(there, answered)
        assert text_or_json(await here.request("tools/call", answered)) == [
            {"action": "accept", "content": {"name": "ada"}}
        ]


@pytest.mark.requirement("store.elsewhere")
async def test_a_task_of_a_program_behind_one_replica_is_told_of_by_that_one_alone(tmp_path: Path) -> None:
    async with two(tmp_path, OVER_STDIO, capabilities=KNOWING) as (here, there):
        task = await begun(here)
        asked = {"taskId": task}
        with pytest.raises(AnswerError) as error:
            await there.request("tasks/get", asked)
        assert "The replica 'a' of this server has this call" in error.value.error["message"]
        assert (await here.request("tasks/get", asked))["status"] == "working"


@pytest.mark.requirement("store.away")
async def test_an_answer_is_refused_as_a_result_while_the_store_is_away_and_plain_calls_go_on(
    remote: Entry, tmp_path: Path
) -> None:
    entry = remote("modern")
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two(tmp_path, entry, stores=stores) as (here, there):
            assert (await there.call("up__whoami")).get("isError") is not True
            params, result = await call_until_question(here, "up__ask", {"questions": [FORM]})
            answered = {**params, **await here.answers_to(result)}
            server.stop()
            refused = await there.request("tools/call", answered)
            assert refused["isError"]
            assert "[store_unavailable]" in refused["content"][0]["text"]
            assert "Nothing was done." in refused["content"][0]["text"]
            about = {"name": "up__greet", "arguments": {"who": "?"}}
            prompt = await here.request("prompts/get", about)
            with pytest.raises(AnswerError) as error:
                await there.request("prompts/get", {**about, **await here.answers_to(prompt)})
            assert error.value.error["data"] == {"type": "store_unavailable"}
            assert (await there.call("up__whoami")).get("isError") is not True
            server.start()
            assert "already used" in await message_of(there, answered)  # nobody knows what it has forgotten
            params, result = await call_until_question(here, "up__ask", {"questions": [FORM]})
            answered = {**params, **await here.answers_to(result)}
            assert "already used" in await message_of(here, answered)  # it was sealed for the store as it was
            params, result = await call_until_question(here, "up__ask", {"questions": [FORM]})
            assert text_or_json(await there.request("tools/call", {**params, **await here.answers_to(result)}))


@pytest.mark.requirement("store.grants")
async def test_what_a_user_allows_for_a_session_counts_at_the_other_replica(remote: Entry, tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two(tmp_path, {**remote("modern"), "trust": False}, stores=stores) as (here, there):
            here.answer = Person("always")
            assert text_or_json(await here.call("up__whoami"))["pid"]
            assert text_or_json(await there.call("up__whoami"))["pid"]
            assert there.questions == []
            server.stop()  # what counts here already counts on
            assert text_or_json(await there.call("up__whoami"))["pid"]
            unknown, _ = await call_until_question(there, "up__content", {})  # and what is not known is asked
            assert unknown["name"] == "up__content"


@pytest.mark.requirement("store.grants")
async def test_what_a_user_allows_counts_for_nothing_where_another_server_has_the_alias(
    remote: Entry, tmp_path: Path
) -> None:
    entry = {**remote("modern"), "trust": False}
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two(tmp_path, entry, {**entry, "headers": {"x-other": "1"}}, stores=stores) as (here, there):
            here.answer = Person("always")
            assert text_or_json(await here.call("up__whoami"))["pid"]
            await call_until_question(there, "up__whoami", {})


async def let_in(*clients: WireClient) -> int:
    """How many calls are, by turns, until one is refused."""
    for number in range(100):
        result = await clients[number % len(clients)].call("up__whoami")
        if result.get("isError"):
            assert "limits.callsPerMinute" in result["content"][0]["text"]
            return number
    return 100


@pytest.mark.requirement("store.limits")
@pytest.mark.parametrize("is_away", [False, True])
async def test_calls_of_a_client_are_counted_over_all_replicas_and_by_each_while_the_store_is_away(
    is_away: bool, remote: Entry, tmp_path: Path
) -> None:
    most = 5
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two(tmp_path, remote("modern"), stores=stores, limits={"callsPerMinute": most}) as (
            here,
            there,
        ):
            if is_away:
                server.stop()
                assert await let_in(here, there) >= 2 * most
            else:
                assert most <= await let_in(here, there) < 2 * most  # the next minute may begin in between


class SlowStore(MemoryStore):
    """Counts once it is let."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.may_count = anyio.Event()

    async def add(self, key: str, count: int, seconds: float) -> int:
        self.waiting += 1
        await self.may_count.wait()
        return await super().add(key, count, seconds)

    async def subscribe(self, channel: str) -> AsyncGenerator[str | None]:
        del channel
        yield None
        await anyio.sleep_forever()


@pytest.mark.requirement("store.limits")
async def test_calls_that_wait_for_the_store_count_among_those_at_work(remote: Entry, tmp_path: Path) -> None:
    slow = SlowStore()
    limits: Json = {"callsPerMinute": 100, "callsAtOnce": 1}
    refused: list[Json] = []
    async with two(tmp_path, remote("modern"), stores=(slow, slow), limits=limits) as (here, _):

        async def call() -> None:
            result = await here.call("up__whoami")
            if result.get("isError"):
                refused.append(result)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
            await until(lambda: slow.waiting + len(refused) == 4)
            slow.may_count.set()
    assert len(refused) == 3
    assert "limits.callsAtOnce" in refused[0]["content"][0]["text"]


@pytest.mark.requirement("store.limits")
async def test_calls_are_not_held_up_one_by_one_by_a_store_that_says_nothing(remote: Entry, tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        async with silenceable_proxy(server.port) as (port, is_silent):
            stores = ValkeyStore(f"valkey://127.0.0.1:{port}", ""), ValkeyStore(server.url, "")
            settings = {"limits": {"callsPerMinute": 1_000}}
            async with two(tmp_path, remote("modern"), stores=stores, settings=settings) as (here, _):
                is_silent.set()
                with anyio.fail_after(40):  # half of what it would take if each waited for a second
                    for _ in range(80):
                        assert not (await here.call("up__whoami")).get("isError")


@pytest.mark.requirement("store.lists")
async def test_who_listens_at_one_replica_hears_that_a_list_of_the_other_one_has_changed(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        entry = stdio_entry("handshake", isolation="shared")  # a process of each replica
        async with two(tmp_path, entry, stores=stores) as (here, there), anyio.create_task_group() as tasks:
            await start_listening(there, tasks, {"toolsListChanged": True})
            await until(lambda: b":2\r\n" in server.command("PUBSUB", "NUMSUB", "coretools:lists"))
            await change(there, "up")  # of its own, which it hears too
            await there.wait_for_notifications(CHANGED)
            there.messages.clear()
            await change(here, "up")
            await there.wait_for_notifications(CHANGED)
            there.messages.clear()
            await server.restart()  # whatever was said meanwhile
            await there.wait_for_notifications(CHANGED)
            tasks.cancel_scope.cancel()
