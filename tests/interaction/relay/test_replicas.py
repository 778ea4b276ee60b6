"""Two replicas with the same keys and one store: each continues, once, the calls whose questions the other asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from server.store.replica import Replica
from server.store.shared_store import Store
from server.store.sqlite_store import SqliteStore
from server.store.valkey_store import ValkeyStore
from tests.interaction.relay.changing import Person, change
from tests.interaction.relay.clients import AnswerError, Json, WireClient, stdio_entry, text_or_json
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.network import network
from tests.interaction.relay.questions import FORM, call_until_question
from tests.interaction.relay.test_tasks import STDIO_ENTRY, TASK_CAPABILITIES, begin_task
from tests.interaction.relay.watching import start_listening
from tests.valkey_servers import silenceable_proxy, valkey_server
from tests.waiting import until

pytestmark = pytest.mark.anyio

TOOLS_CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def two_replicas(
    tmp_path: Path,
    entry: Json,
    other_entry: Json | None = None,
    stores: tuple[Store, Store] | None = None,
    capabilities: Json | None = None,
    **settings: Json,
) -> AsyncGenerator[tuple[WireClient, WireClient]]:
    """Run two replicas, and yield a client at each. Both clients belong to the same user.

    Args:
        tmp_path: The folder for the settings of both.
        entry: The upstream's entry in the settings.
        other_entry: Its entry at the second replica, if it differs there.
        stores: The store as each replica reaches it; by default, one in a file.
        capabilities: The capabilities of both clients.
        settings: Further settings of both replicas.
    """
    file = str(tmp_path / "store.db")
    both_stores = stores or (SqliteStore(file), SqliteStore(file))
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    replica_a, replica_b = (Replica(name, store, (b"k" * 32,)) for name, store in zip("ab", both_stores, strict=True))
    async with (
        network(folders[0], {"up": entry}, replica=replica_a, settings=settings) as server_a,
        server_a.client("modern", "ada", capabilities=capabilities) as client_a,
    ):
        await client_a.items_by_name("tools")  # the upstream creates its room for the first client
        async with (
            network(folders[1], {"up": other_entry or entry}, replica=replica_b, settings=settings) as server_b,
            server_b.client("modern", "ada", capabilities=capabilities) as client_b,
        ):
            await client_b.items_by_name("tools")
            yield client_a, client_b
    for store in both_stores:
        await store.aclose()


async def message_of(client: WireClient, params: Json) -> str:
    with pytest.raises(AnswerError) as error:
        await client.request("tools/call", params)
    return str(error.value.error["message"])


@pytest.mark.requirement("store.reach")
async def test_a_question_of_one_replica_is_answered_at_the_other_and_then_nowhere(
    remote: Entry, tmp_path: Path
) -> None:
    async with two_replicas(tmp_path, remote("modern")) as (client_a, client_b):
        params, result = await call_until_question(client_a, "up__ask", {"questions": [FORM]})
        answered_params = {**params, **await client_a.answers_to(result)}
        assert text_or_json(await client_b.request("tools/call", answered_params)) == [
            {"action": "accept", "content": {"name": "ada"}}
        ]
        for client in (client_a, client_b):
            assert "already used" in await message_of(client, answered_params)


@pytest.mark.requirement("store.reach")
async def test_consent_to_a_tool_counts_at_the_other_replica_once(remote: Entry, tmp_path: Path) -> None:
    async with two_replicas(tmp_path, {**remote("modern"), "trust": False}) as (client_a, client_b):
        client_a.answer = Person()
        params, result = await call_until_question(client_a, "up__whoami", {})
        answered_params = {**params, **await client_a.answers_to(result)}
        assert text_or_json(await client_b.request("tools/call", answered_params))["pid"]
        assert (await client_a.request("tools/call", answered_params))["resultType"] == "input_required"


@pytest.mark.requirement("store.reach")
async def test_consent_counts_for_nothing_where_another_server_has_the_alias(remote: Entry, tmp_path: Path) -> None:
    entry = {**remote("modern"), "trust": False}
    async with two_replicas(tmp_path, entry, {**entry, "headers": {"x-other": "1"}}) as (client_a, client_b):
        client_a.answer = Person()
        params, result = await call_until_question(client_a, "up__whoami", {})
        answered_params = {**params, **await client_a.answers_to(result)}
        assert (await client_b.request("tools/call", answered_params))["resultType"] == "input_required"
        own_params, own_result = await call_until_question(client_a, "up__whoami", {})
        assert text_or_json(
            await client_a.request("tools/call", {**own_params, **await client_a.answers_to(own_result)})
        )["pid"]


@pytest.mark.requirement("store.elsewhere")
async def test_an_answer_for_a_call_that_waits_in_another_replica_is_refused_and_counts_there(
    tmp_path: Path,
) -> None:
    async with two_replicas(tmp_path, stdio_entry("handshake")) as (client_a, client_b):
        params, result = await call_until_question(client_a, "up__ask", {"questions": [FORM]})
        answered_params = {**params, **await client_a.answers_to(result)}
        assert "The replica 'a' of this server has this call" in await message_of(client_b, answered_params)
        assert text_or_json(await client_a.request("tools/call", answered_params)) == [
            {"action": "accept", "content": {"name": "ada"}}
        ]


@pytest.mark.requirement("store.elsewhere")
async def test_a_task_of_a_program_behind_one_replica_is_known_to_that_replica_only(tmp_path: Path) -> None:
    async with two_replicas(tmp_path, STDIO_ENTRY, capabilities=TASK_CAPABILITIES) as (client_a, client_b):
        task_id = await begin_task(client_a)
        params = {"taskId": task_id}
        with pytest.raises(AnswerError) as error:
            await client_b.request("tasks/get", params)
        assert "The replica 'a' of this server has this call" in error.value.error["message"]
        assert (await client_a.request("tasks/get", params))["status"] == "working"


@pytest.mark.requirement("store.away")
async def test_while_the_store_is_away_an_answer_is_refused_in_a_result_and_plain_calls_work(
    remote: Entry, tmp_path: Path
) -> None:
    entry = remote("modern")
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two_replicas(tmp_path, entry, stores=stores) as (client_a, client_b):
            assert (await client_b.call("up__whoami")).get("isError") is not True
            params, result = await call_until_question(client_a, "up__ask", {"questions": [FORM]})
            answered_params = {**params, **await client_a.answers_to(result)}
            server.stop()
            refusal = await client_b.request("tools/call", answered_params)
            assert refusal["isError"]
            assert "[store_unavailable]" in refusal["content"][0]["text"]
            assert "Nothing was done." in refusal["content"][0]["text"]
            prompt_params = {"name": "up__greet", "arguments": {"who": "?"}}
            prompt = await client_a.request("prompts/get", prompt_params)
            with pytest.raises(AnswerError) as error:
                await client_b.request("prompts/get", {**prompt_params, **await client_a.answers_to(prompt)})
            assert error.value.error["data"] == {"type": "store_unavailable"}
            assert (await client_b.call("up__whoami")).get("isError") is not True
            server.start()
            assert "already used" in await message_of(
                client_b, answered_params
            )  # nobody knows what the restarted store has lost
            params, result = await call_until_question(client_a, "up__ask", {"questions": [FORM]})
            answered_params = {**params, **await client_a.answers_to(result)}
            assert "already used" in await message_of(
                client_a, answered_params
            )  # the question was sealed for the store before its restart
            params, result = await call_until_question(client_a, "up__ask", {"questions": [FORM]})
            assert text_or_json(await client_b.request("tools/call", {**params, **await client_a.answers_to(result)}))


@pytest.mark.requirement("store.grants")
async def test_what_a_user_allows_for_a_session_counts_at_the_other_replica(remote: Entry, tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two_replicas(tmp_path, {**remote("modern"), "trust": False}, stores=stores) as (client_a, client_b):
            client_a.answer = Person("always")
            assert text_or_json(await client_a.call("up__whoami"))["pid"]
            assert text_or_json(await client_b.call("up__whoami"))["pid"]
            assert client_b.questions == []
            server.stop()  # what this replica already knows still counts
            assert text_or_json(await client_b.call("up__whoami"))["pid"]
            params, _ = await call_until_question(
                client_b, "up__content", {}
            )  # and a tool without consent is asked about
            assert params["name"] == "up__content"


@pytest.mark.requirement("store.grants")
async def test_what_a_user_allows_counts_for_nothing_where_another_server_has_the_alias(
    remote: Entry, tmp_path: Path
) -> None:
    entry = {**remote("modern"), "trust": False}
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two_replicas(tmp_path, entry, {**entry, "headers": {"x-other": "1"}}, stores=stores) as (
            client_a,
            client_b,
        ):
            client_a.answer = Person("always")
            assert text_or_json(await client_a.call("up__whoami"))["pid"]
            await call_until_question(client_b, "up__whoami", {})


async def call_until_refused(*clients: WireClient) -> int:
    """Call by turns until a call is refused, and return how many succeeded."""
    for count in range(100):
        result = await clients[count % len(clients)].call("up__whoami")
        if result.get("isError"):
            assert "limits.callsPerMinute" in result["content"][0]["text"]
            return count
    return 100


@pytest.mark.requirement("store.limits")
@pytest.mark.parametrize("is_away", [False, True])
async def test_calls_of_a_client_are_counted_by_all_replicas_together_and_by_each_while_the_store_is_away(
    is_away: bool, remote: Entry, tmp_path: Path
) -> None:
    limit = 5
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        async with two_replicas(tmp_path, remote("modern"), stores=stores, limits={"callsPerMinute": limit}) as (
            client_a,
            client_b,
        ):
            if is_away:
                server.stop()
                assert await call_until_refused(client_a, client_b) >= 2 * limit
            else:
                assert (
                    limit <= await call_until_refused(client_a, client_b) < 2 * limit
                )  # a new minute may begin between the calls


class SlowStore(SqliteStore):
    """A store that does not count before it is allowed to."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.waiting = 0
        self.may_count = anyio.Event()

    async def add(self, key: str, count: int, seconds: float) -> int:
        self.waiting += 1
        await self.may_count.wait()
        return await super().add(key, count, seconds)


@pytest.mark.requirement("store.limits")
async def test_calls_that_wait_for_the_store_count_as_running(remote: Entry, tmp_path: Path) -> None:
    store = SlowStore(str(tmp_path / "store.db"))
    limits: Json = {"callsPerMinute": 100, "callsAtOnce": 1}
    refusals: list[Json] = []
    async with two_replicas(tmp_path, remote("modern"), stores=(store, store), limits=limits) as (client_a, _):

        async def call() -> None:
            result = await client_a.call("up__whoami")
            if result.get("isError"):
                refusals.append(result)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
            await until(lambda: store.waiting + len(refusals) == 4)
            store.may_count.set()
    assert len(refusals) == 3
    assert "limits.callsAtOnce" in refusals[0]["content"][0]["text"]


@pytest.mark.requirement("store.limits")
async def test_a_store_that_does_not_answer_does_not_delay_every_call(remote: Entry, tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        async with silenceable_proxy(server.port) as (port, is_silent):
            stores = ValkeyStore(f"valkey://127.0.0.1:{port}", ""), ValkeyStore(server.url, "")
            settings = {"limits": {"callsPerMinute": 1_000}}
            async with two_replicas(tmp_path, remote("modern"), stores=stores, settings=settings) as (client_a, _):
                is_silent.set()
                with anyio.fail_after(40):  # half the time that 80 waits of a second each would take
                    for _ in range(80):
                        assert not (await client_a.call("up__whoami")).get("isError")


@pytest.mark.requirement("store.lists")
async def test_a_client_that_listens_at_one_replica_is_told_of_changed_lists_of_the_other(tmp_path: Path) -> None:
    with valkey_server(tmp_path) as server:
        stores = ValkeyStore(server.url, ""), ValkeyStore(server.url, "")
        entry = stdio_entry("handshake", isolation="shared")  # each replica has a process of its own
        async with (
            two_replicas(tmp_path, entry, stores=stores) as (client_a, client_b),
            anyio.create_task_group() as tasks,
        ):
            await start_listening(client_b, tasks, {"toolsListChanged": True})
            await until(lambda: b":2\r\n" in server.command("PUBSUB", "NUMSUB", "coretools:lists"))
            await change(client_b, "up")  # of its own replica, which it is also told about
            await client_b.wait_for_notifications(TOOLS_CHANGED)
            client_b.messages.clear()
            await change(client_a, "up")
            await client_b.wait_for_notifications(TOOLS_CHANGED)
            client_b.messages.clear()
            await server.restart()  # a message may have been lost meanwhile
            await client_b.wait_for_notifications(TOOLS_CHANGED)
            tasks.cancel_scope.cancel()
