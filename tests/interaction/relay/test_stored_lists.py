"""The lists that servers sent in the last run are listed at once in the next run, but they decide nothing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.app import App
from server.requests.tool_search import LARGE_CHARS
from server.upstreams.wire.origin_meta import CHAIN_KEY
from tests.harness import write_config
from tests.in_process import in_process
from tests.interaction.relay.changing import Person
from tests.interaction.relay.clients import (
    Answer,
    Json,
    WireClient,
    app_of,
    client_on,
    listing_entry,
    named_resources,
    proxy_client,
    settings_for_call_style,
    text_or_json,
)
from tests.interaction.relay.eras import by_era, by_era_each_way
from tests.interaction.relay.network import network
from tests.interaction.relay.watching import start_listening
from tests.variants import one_in
from tests.waiting import until

pytestmark = pytest.mark.anyio

KINDS = ("tools", "prompts", "resources", "resourceTemplates")
ALL_CHANGES = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def tool(name: str, **fields: Any) -> Json:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **fields}


LISTS: Json = {
    "tools": [tool("find"), tool("keep")],
    "prompts": [{"name": "greet"}],
    "resources": named_resources("memo://a"),
    "resources/templates/list": [],
    "resourceTemplates": named_resources("memo://in/{x}"),
}
NAMES = {"up__find", "up__keep", "up__greet", "memo://a", "memo://in/{x}"}


def stored_files() -> list[Path]:
    """Return the files with stored lists, one for each server."""
    return sorted((Path(os.environ["XDG_STATE_HOME"]) / "coretools-mcp" / "lists").glob("*.json"))


WAIT_UNSET: Json = {
    "proxy": {"nameBudget": 48}
}  # replaces the `proxy` default of `write_config`, so the product's own wait applies


class ControlledServer:
    """A server that a test lets answer, hang or end, while its settings entry stays the same.

    Args:
        folder: The folder for the files with its orders.
        alias: Its alias and its name.
        entry: Further fields of its entry.
        orders: Permanent orders for `listing_upstream.py`.
    """

    def __init__(self, folder: Path, alias: str = "up", entry: Json | None = None, **orders: Any) -> None:
        self.alias = alias
        self._orders, self._gate = folder / f"{alias}.orders", folder / f"{alias}.gate"
        all_orders = {"after": str(self._gate), "orders": str(self._orders), **orders}
        self.entry = listing_entry(alias, entry={"trust": True, **(entry or {})}, **all_orders)

    def answer(self, **lists: Any) -> None:
        self._orders.write_text(json.dumps(lists))
        self._gate.touch()

    def hang(self) -> None:
        self._gate.unlink(missing_ok=True)


@asynccontextmanager
async def running_proxy(
    folder: Path,
    *servers: ControlledServer,
    era: str = "handshake",
    answer: Answer | None = None,
    settings: Json | None = None,
) -> AsyncGenerator[tuple[App, WireClient]]:
    """Run a proxy in this process, and yield its app and a client."""
    entries = {server.alias: server.entry for server in servers}
    all_settings: Json = {"tools": {"builtIn": False}, "mcpServers": entries, **(settings or {})}
    app = app_of(write_config(folder, settings_for_call_style(all_settings)))
    async with app.running(), client_on(in_process(app), era, answer=answer) as client:
        yield app, client


async def all_names(client: WireClient) -> set[str]:
    return {name for kind in KINDS for name in await client.items_by_name(kind)}


async def run_once(
    folder: Path, *servers: ControlledServer, era: str = "handshake", settings: Json | None = None
) -> set[str]:
    """Run a proxy until the lists of all servers are stored, and return the names that it lists."""
    old_inodes = {file: file.stat().st_ino for file in stored_files()}
    async with running_proxy(folder, *servers, era=era, settings=settings) as (app, client):
        await client.items_by_name("tools")  # the first request starts the upstreams
        await app.registry.discover_all_tools()
        names = await all_names(client)
        await until(
            lambda: len([file for file in stored_files() if old_inodes.get(file) != file.stat().st_ino]) >= len(servers)
        )
    return names


@pytest.mark.requirement("catalogue.first_list")
@pytest.mark.parametrize("transport", ["memory", "stdio"])
@by_era
async def test_the_first_list_is_that_of_the_last_run_while_a_server_hangs(
    era: str, transport: str, tmp_path: Path
) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    servers = {"up": up.entry}
    async with proxy_client(tmp_path, servers, era, transport=transport) as client:
        items = {kind: await client.items_by_name(kind) for kind in KINDS}
        await until(stored_files)
    assert {name for kind in KINDS for name in items[kind]} == NAMES
    up.hang()
    async with proxy_client(tmp_path, servers, era, transport=transport) as client:
        assert {kind: await client.items_by_name(kind) for kind in KINDS} == items


@pytest.mark.requirement("catalogue.first_list")
async def test_a_server_without_stored_lists_is_waited_for_as_before(tmp_path: Path) -> None:
    old, new = ControlledServer(tmp_path, "old"), ControlledServer(tmp_path, "new")
    old.answer(tools=[tool("a")])
    assert await run_once(tmp_path, old) == {"old__a"}
    old.hang()
    new.hang()
    async with running_proxy(tmp_path, old, new) as (app, client), anyio.create_task_group() as tasks:
        names: list[str] = []

        async def list_tools() -> None:
            names.extend(await client.items_by_name("tools"))

        tasks.start_soon(list_tools)
        await until(lambda: app.pool.by_alias["new"].status.attempts)
        assert names == []
        new.answer(tools=[tool("b")])
        await until(lambda: names)
        assert names == ["old__a", "new__b"]
        assert not app.pool.by_alias["old"].known.is_set()


@pytest.mark.requirement("catalogue.first_list")
async def test_a_server_that_has_never_answered_is_waited_for_in_one_run_only(tmp_path: Path) -> None:
    up, late = ControlledServer(tmp_path), ControlledServer(tmp_path, "late")
    up.answer(tools=[tool("find")])
    late.hang()
    async with running_proxy(tmp_path, up, late, settings={"proxy": {"firstListWait": 2_000}}) as (_, client):
        await client.items_by_name("tools")
        await until(lambda: len(stored_files()) == 2)
    up.hang()
    async with running_proxy(tmp_path, up, late, settings=WAIT_UNSET) as (app, client):
        assert await all_names(client) == {"up__find"}
        assert not app.pool.by_alias["late"].is_awaited
        late.answer(tools=[tool("found")])
        await client.wait_for_notifications("notifications/tools/list_changed")
        assert await all_names(client) == {"up__find", "late__found"}
        await until(lambda: any(b'"found"' in file.read_bytes() for file in stored_files()))
        assert not app.pool.by_alias["up"].known.is_set()
    late.hang()
    async with running_proxy(tmp_path, up, late) as (_, client):
        assert await all_names(client) == {"up__find", "late__found"}


@pytest.mark.requirement("catalogue.first_list")
async def test_a_server_that_never_answered_is_waited_for_again_after_an_hour_or_if_the_wait_is_set(
    tmp_path: Path,
) -> None:
    late, short_wait = ControlledServer(tmp_path, "late"), {"proxy": {"firstListWait": 100}}
    late.hang()
    async with running_proxy(tmp_path, late, settings=short_wait) as (_, client):
        await client.items_by_name("tools")
        await until(stored_files)
    for settings, age, is_awaited in ((WAIT_UNSET, 0, False), (short_wait, 0, True), (WAIT_UNSET, 2 * 3_600, True)):
        (file,) = stored_files()
        timestamp = file.stat().st_mtime - age
        os.utime(file, (timestamp, timestamp))
        async with (
            running_proxy(tmp_path, late, settings=settings) as (app, client),
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(client.items_by_name, "tools")
            await until(lambda app=app: not app.pool.is_recalling and app.pool.by_alias["late"].status.attempts)
            assert app.pool.by_alias["late"].is_awaited is is_awaited
            tasks.cancel_scope.cancel()


@pytest.mark.requirement("catalogue.first_list")
@pytest.mark.parametrize(("first_era", "second_era"), [("handshake", "modern"), ("modern", "handshake")])
async def test_stored_lists_serve_a_client_of_another_era(first_era: str, second_era: str, tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up, era=first_era)
    up.hang()
    async with running_proxy(tmp_path, up, era=second_era) as (_, client):
        assert await all_names(client) == NAMES


@pytest.mark.requirement("catalogue.changes")
@pytest.mark.parametrize("upstream", ["handshake", "modern"])
@by_era
async def test_only_lists_that_have_changed_are_announced_when_a_server_answers(
    era: str, upstream: str, tmp_path: Path
) -> None:
    orders: Json = {"modern": True} if upstream == "modern" else {}
    same_server, new_server = (
        ControlledServer(tmp_path, "same", **orders),
        ControlledServer(tmp_path, "other", **orders),
    )
    same_server.answer(**LISTS)
    new_server.answer(tools=[tool("old"), tool("stays")])
    await run_once(tmp_path, same_server, new_server, era=era)
    same_server.hang()
    new_server.hang()
    async with (
        running_proxy(tmp_path, same_server, new_server, era=era) as (app, client),
        anyio.create_task_group() as tasks,
    ):
        await start_listening(client, tasks, ALL_CHANGES)
        initial_names = await all_names(client)
        assert {"same__find", "other__old"} <= initial_names
        same_server.answer(**LISTS)
        with anyio.fail_after(60):
            await app.pool.by_alias["same"].known.wait()
        new_server.answer(tools=[tool("new"), tool("stays")])
        await client.wait_for_notifications("notifications/tools/list_changed")
        assert await all_names(client) == initial_names - {"other__old"} | {"other__new"}
        with anyio.fail_after(60):
            await app.pool.by_alias["other"].known.wait()
        await client.items_by_name("tools")
        methods = [method for method, _ in client.messages if method.endswith("list_changed")]
        assert methods == ["notifications/tools/list_changed"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("catalogue.calls")
@by_era_each_way
async def test_a_call_waits_for_its_server_and_nobody_is_asked_before(era: str, tmp_path: Path) -> None:
    person = Person()
    up = ControlledServer(tmp_path, entry={"trust": False})
    up.answer(**LISTS)
    await run_once(tmp_path, up, era=era)
    up.hang()
    async with running_proxy(tmp_path, up, era=era, answer=person) as (app, client), anyio.create_task_group() as tasks:
        assert "up__find" in await client.items_by_name("tools")
        texts: list[str] = []

        async def call() -> None:
            texts.append(text_or_json(await client.call("up__find")))

        tasks.start_soon(call)
        await until(lambda: app.pool.by_alias["up"].status.attempts)
        await client.items_by_name("tools")
        assert (texts, person.messages) == ([], [])
        up.answer(tools=[tool("find", description="Something else.")])
        await until(lambda: texts)
        assert texts == ["from up"]
        (message,) = person.messages
        assert "tool: find" in message
        assert "has changed" not in message, "the definition of the last run must not count"


@pytest.mark.requirement("catalogue.calls")
@by_era
async def test_call_tool_of_the_last_run_works_before_anything_is_listed_in_this_run(era: str, tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(tools=[tool("find", description="x" * LARGE_CHARS)])
    assert {"up__find", "call_tool"} & await run_once(tmp_path, up, era=era) == {"call_tool"}
    up.hang()
    async with running_proxy(tmp_path, up, era=era) as (app, client), anyio.create_task_group() as tasks:
        texts: list[str] = []

        async def call() -> None:
            texts.append(text_or_json(await client.call("call_tool", {"name": "up__find"})))

        tasks.start_soon(call)
        await until(lambda: app.pool.by_alias["up"].status.attempts)
        up.answer(tools=[tool("find", description="x" * LARGE_CHARS)])
        await until(lambda: texts)
        assert texts == ["from up"]


@pytest.mark.requirement("catalogue.calls")
@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("is_read_only", [False, True])
async def test_the_current_definition_of_a_tool_decides_on_its_call(is_read_only: bool, tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(tools=[tool("find", annotations={"readOnlyHint": not is_read_only})])
    plan = {"approvalMode": "plan"}
    await run_once(tmp_path, up, settings=plan)
    up.hang()
    async with running_proxy(tmp_path, up, settings=plan) as (_, client), anyio.create_task_group() as tasks:
        assert "up__find" in await client.items_by_name("tools")
        results: list[Json] = []

        async def call() -> None:
            results.append(await client.call("up__find"))

        tasks.start_soon(call)
        up.answer(tools=[tool("find", annotations={"readOnlyHint": is_read_only})])
        await until(lambda: results)
        assert bool(results[0].get("isError")) is not is_read_only


@pytest.mark.requirement("catalogue.calls")
@by_era_each_way
async def test_a_call_of_a_tool_that_its_server_no_longer_has_is_answered_with_a_sentence(
    era: str, tmp_path: Path
) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up, era=era)
    up.hang()
    async with running_proxy(tmp_path, up, era=era) as (_, client), anyio.create_task_group() as tasks:
        assert "up__find" in await client.items_by_name("tools")
        results: list[Json] = []

        async def call() -> None:
            results.append(await client.call("up__find"))

        tasks.start_soon(call)
        up.answer(tools=[tool("other")])
        await until(lambda: results)
        await call()  # as a client that has not heard of the change would
        for result in results:
            assert result["isError"]
            assert "The server up no longer has a tool 'up__find'" in result["content"][0]["text"]


@pytest.mark.requirement("catalogue.calls")
async def test_a_refused_tool_is_not_listed_and_its_call_is_refused_while_its_server_hangs(tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up)
    up.hang()
    async with running_proxy(tmp_path, up, settings={"permissions": {"deny": ["mcp__up__find"]}}) as (app, client):
        assert set(await client.items_by_name("tools")) == {"up__keep"}
        refusal = await client.call("up__find")
        assert refusal["_meta"]["coretools-mcp/error"]["type"] == "execution_denied"
        assert not app.pool.by_alias["up"].tried.is_set()


@pytest.mark.requirement("catalogue.calls")
@pytest.mark.usefixtures("each_way")
async def test_a_call_that_waits_longer_than_its_time_limit_is_answered_and_nobody_is_asked(tmp_path: Path) -> None:
    person = Person()
    up = ControlledServer(tmp_path, entry={"trust": False, "timeout": 100})
    up.answer(**LISTS)
    await run_once(tmp_path, up)
    up.hang()
    async with running_proxy(tmp_path, up, answer=person) as (_, client):
        assert "up__find" in await client.items_by_name("tools")
        result = await client.call("up__find")
        assert "The server up is unavailable (state connecting)" in result["content"][0]["text"]
        assert person.messages == []


@pytest.mark.requirement("catalogue.others")
@by_era
async def test_prompts_resources_and_completions_wait_for_their_server(era: str, tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up, era=era)
    up.hang()
    requests: list[tuple[str, Json, Callable[[Json], Any]]] = [
        ("prompts/get", {"name": "up__greet"}, lambda result: result["messages"][0]["content"]["text"]),
        ("resources/read", {"uri": "memo://a"}, lambda result: result["contents"][0]["text"]),
        ("resources/read", {"uri": "memo://not/listed"}, lambda result: result["contents"][0]["text"]),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "up__greet"}, "argument": {"name": "a", "value": ""}},
            lambda result: result["completion"]["values"][0],
        ),
    ]
    async with running_proxy(tmp_path, up, era=era) as (app, client), anyio.create_task_group() as tasks:
        assert "up__greet" in await client.items_by_name("prompts")
        texts: list[Any] = []

        async def ask(method: str, params: Json, text_of: Callable[[Json], Any]) -> None:
            texts.append(text_of(await client.request(method, params)))

        for request in requests:
            tasks.start_soon(ask, *request)
        await until(lambda: app.pool.by_alias["up"].status.attempts)
        await client.items_by_name("prompts")
        assert texts == []
        up.answer(**LISTS)
        await until(lambda: len(texts) == len(requests))
        assert set(texts) == {"from up"}


@pytest.mark.requirement("catalogue.failed")
@by_era
async def test_the_stored_lists_of_a_server_disappear_if_it_cannot_be_reached(era: str, tmp_path: Path) -> None:
    up, well = ControlledServer(tmp_path), ControlledServer(tmp_path, "well")
    up.answer(**LISTS)
    well.answer(tools=[tool("a")])
    await run_once(tmp_path, up, well, era=era)
    up.hang()
    async with running_proxy(tmp_path, up, well, era=era) as (app, client), anyio.create_task_group() as tasks:
        await start_listening(client, tasks, ALL_CHANGES)
        assert {"up__find", "up__greet"} <= await all_names(client)
        statuses = {server_status["alias"]: server_status for server_status in app.running_server.status()["servers"]}
        assert statuses["up"]["fromLastRun"] == ["tools", "prompts", "resources", "resourceTemplates"]
        up.answer(ends=True)
        await client.wait_for_notifications("notifications/tools/list_changed")
        await client.wait_for_notifications("notifications/prompts/list_changed")
        await client.wait_for_notifications("notifications/resources/list_changed")
        assert await all_names(client) == {"well__a"}
        statuses = {server_status["alias"]: server_status for server_status in app.running_server.status()["servers"]}
        assert "fromLastRun" not in statuses["up"]
        assert statuses["up"]["tools"] == 0
        result = await client.call("up__find")
        assert "The server up is unavailable" in result["content"][0]["text"]
        up.answer(**LISTS)
        while "up__find" not in await client.items_by_name("tools"):
            await client.call("up__find")
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("catalogue.names")
async def test_names_and_texts_of_the_last_run_are_those_of_the_live_lists(tmp_path: Path) -> None:
    rules = {"rename": {"find": "seek"}, "excludeTools": ["hidden"]}
    up, bare = ControlledServer(tmp_path, entry=rules), ControlledServer(tmp_path, "bare", entry={"prefix": "none"})
    tools = [tool("find"), tool("hidden"), tool("x" * 90), tool("a b"), tool("odd", description="A\u202eB")]
    settings = {"proxy": {"nameBudget": 30, "firstListWait": 30_000}}
    for server in (up, bare):
        server.answer(tools=tools)
    await run_once(tmp_path, up, bare, settings=settings)
    for server in (up, bare):
        server.hang()
    async with running_proxy(tmp_path, up, bare, settings=settings) as (app, client):
        stored_tools = await client.items_by_name("tools")
        assert not app.pool.by_alias["up"].known.is_set()
        assert {"up__seek", "find", "hidden"} <= stored_tools.keys()
        assert stored_tools["odd"]["description"] == "A<U+202E>B"
        for server in (up, bare):
            server.answer(tools=tools)
        await app.registry.discover_all_tools()
        assert list((await client.items_by_name("tools")).items()) == list(stored_tools.items())


@pytest.mark.requirement("catalogue.names")
async def test_an_unprefixed_name_of_the_last_run_goes_to_another_server_if_its_own_is_gone(
    tmp_path: Path,
) -> None:
    first, second = (ControlledServer(tmp_path, alias, entry={"prefix": "none"}) for alias in ("first", "second"))
    for server in (first, second):
        server.answer(tools=[tool("find")])
    await run_once(tmp_path, first, second)
    first.hang()
    async with running_proxy(tmp_path, first, second) as (_, client), anyio.create_task_group() as tasks:
        assert set(await client.items_by_name("tools")) == {"find"}
        texts: list[str] = []

        async def call() -> None:
            texts.append(text_or_json(await client.call("find")))

        tasks.start_soon(call)
        first.answer(ends=True)
        await until(lambda: texts)
        assert texts == ["from second"]


@pytest.mark.requirement("catalogue.principals")
async def test_two_people_over_http_get_the_lists_of_the_last_run_and_sessions_of_their_own(tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    async with network(tmp_path, {"up": up.entry}) as server:
        await until(stored_files)
    up.hang()
    async with (
        network(tmp_path, {"up": up.entry}) as server,
        server.client("handshake", "ada") as ada,
        server.client("modern", "bob") as bob,
        anyio.create_task_group() as tasks,
    ):
        assert await all_names(ada) == await all_names(bob) == NAMES
        texts: list[str] = []

        async def call(client: WireClient) -> None:
            texts.append(text_or_json(await client.call("up__find")))

        for client in (ada, bob):
            tasks.start_soon(call, client)
        await ada.items_by_name("tools")
        assert texts == []
        up.answer(**LISTS)
        await until(lambda: len(texts) == 2)
        assert server.sessions() == 2


@pytest.mark.requirement("catalogue.settings")
async def test_with_the_catalogue_switched_off_nothing_is_stored_or_read(tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    catalogue_off = {"proxy": {"catalogue": False, "firstListWait": 100}}
    async with running_proxy(tmp_path, up, settings=catalogue_off) as (app, client):
        await app.registry.discover_all_tools()
        assert "up__find" in await client.items_by_name("tools")
    assert stored_files() == []
    await run_once(tmp_path, up)
    up.hang()
    async with running_proxy(tmp_path, up, settings=catalogue_off) as (_, client):
        assert await client.items_by_name("tools") == {}


@pytest.mark.requirement("catalogue.settings")
async def test_a_server_that_is_not_used_is_not_listed_from_the_last_run(tmp_path: Path) -> None:
    up, well = ControlledServer(tmp_path), ControlledServer(tmp_path, "well")
    for server in (up, well):
        server.answer(**LISTS)
    await run_once(tmp_path, up, well)
    async with running_proxy(tmp_path, up, well, settings={"mcp": {"excluded": ["up"]}}) as (_, client):
        assert set(await client.items_by_name("tools")) == {"well__find", "well__keep"}


@pytest.mark.requirement("catalogue.chain")
@by_era
async def test_a_server_like_this_one_gets_only_live_tools(era: str, tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up, era=era)
    up.hang()
    async with running_proxy(tmp_path, up, era=era) as (_, client), anyio.create_task_group() as tasks:
        await start_listening(client, tasks, ALL_CHANGES)
        chain_meta = {CHAIN_KEY: ["another"]}
        assert (await client.request("tools/list", meta=chain_meta))["tools"] == []
        up.answer(**LISTS)
        await client.wait_for_notifications("notifications/tools/list_changed")
        tools = (await client.request("tools/list", meta=chain_meta))["tools"]
        assert {tool["name"] for tool in tools} == {"up__find", "up__keep"}
        tasks.cancel_scope.cancel()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def nest_deeply(file: Path) -> None:
    file.write_text("[" * 100_000)


def assign_to_another_entry(file: Path) -> None:
    file.write_text(file.read_text().replace(file.stem, "0" * 32))


def set_unknown_revision(file: Path) -> None:
    file.write_text(file.read_text().replace("2025-11-25", "1999-01-01"))


def enlarge(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b" " * (4 << 20))


def replace_with_link(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


def make_writable_by_others(file: Path) -> None:
    file.chmod(0o666)


def replace_with_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def give_to_another_user(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root can give files to another user")
    os.chown(file, 12_345, -1)


SPOILERS = [
    *(
        truncate,
        empty,
        nest_deeply,
        assign_to_another_entry,
        set_unknown_revision,
        enlarge,
        replace_with_link,
        make_writable_by_others,
        replace_with_pipe,
    ),
    give_to_another_user,
]


@pytest.mark.skipif(os.name != "posix", reason="not run: needs file modes and links of POSIX")
@pytest.mark.requirement("catalogue.untrusted")
@pytest.mark.parametrize("spoil", one_in(4, SPOILERS))
async def test_a_file_that_is_not_as_we_wrote_it_is_ignored_with_one_warning_and_replaced(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.upstreams.catalog.stored_lists")
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up)
    (file,) = stored_files()
    spoil(file)
    spoiled_time = file.lstat().st_mtime_ns  # not the inode number, which can be reused
    up.hang()
    async with running_proxy(tmp_path, up, settings={"proxy": {"firstListWait": 100}}) as (_, client):
        assert await all_names(client) == set()
        assert caplog.text.count("the lists of a server from the last run cannot be used") == 1
        link_target = file.with_suffix(".elsewhere")
        target_content = link_target.read_bytes() if link_target.exists() else b""
        up.answer(**LISTS)
        await until(lambda: file.lstat().st_mtime_ns != spoiled_time and b'"find"' in file.read_bytes())
        assert not file.is_symlink()
        assert file.stat().st_mode & 0o777 == 0o600
        assert (link_target.read_bytes() if link_target.exists() else b"") == target_content
    up.hang()
    async with running_proxy(tmp_path, up) as (_, client):
        assert await all_names(client) == NAMES


@pytest.mark.requirement("catalogue.untrusted")
async def test_lists_that_take_too_long_to_check_are_ignored(tmp_path: Path) -> None:
    up, small = ControlledServer(tmp_path), ControlledServer(tmp_path, "other")
    up.answer(tools=[tool(f"t{number}") for number in range(3_000)])
    small.answer(tools=[tool("find")])
    await run_once(tmp_path, up, small)
    up.hang()
    small.hang()
    up.entry["listTimeout"] = 1
    async with running_proxy(tmp_path, up, small, settings={"proxy": {"firstListWait": 100}}) as (_, client):
        assert set(await client.items_by_name("tools")) == {"other__find"}


@pytest.mark.requirement("catalogue.untrusted")
async def test_malformed_items_and_reserved_keys_in_a_forged_file_are_ignored(tmp_path: Path) -> None:
    up = ControlledServer(tmp_path, entry={"trust": False})
    up.answer(tools=[tool("find")])
    await run_once(tmp_path, up)
    (file,) = stored_files()
    content: Json = json.loads(file.read_text())
    forged_tool = tool("forged", description="A\u202eB", _meta={"coretools-mcp/upstream": {"server": "other"}})
    forged_tool["annotations"] = {"readOnlyHint": True}
    content["lists"] = {
        "tools": [forged_tool, {"name": 7}, "no", {"name": "shapeless", "inputSchema": 3}],
        "others": [],
    }
    file.write_text(json.dumps(content))
    up.hang()
    async with running_proxy(tmp_path, up) as (_, client):
        tools = await client.items_by_name("tools")
    assert set(tools) == {"up__forged"}
    listed_tool = tools["up__forged"]
    assert listed_tool["description"] == "A<U+202E>B"
    assert listed_tool["_meta"]["coretools-mcp/upstream"] == {"server": "up", "tool": "forged"}
    assert listed_tool["annotations"]["readOnlyHint"] is False


@pytest.mark.skipif(os.name != "posix", reason="not run: needs file modes of POSIX")
@pytest.mark.requirement("catalogue.private")
async def test_nobody_else_can_read_stored_lists(tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up)
    (file,) = stored_files()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.parent.chmod(0o755)
    await run_once(tmp_path, up)
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("catalogue.bounds")
async def test_lists_that_are_too_large_are_not_stored_and_their_old_file_is_removed(tmp_path: Path) -> None:
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    await run_once(tmp_path, up)
    up.answer(filled=[100, 50_000])
    async with running_proxy(tmp_path, up, settings={"proxy": {"search": "off"}}) as (_, client):
        assert "up__find" in await client.items_by_name("tools")
        await until(lambda: not stored_files())
        assert "up__t99" in await client.items_by_name("tools")


@pytest.mark.requirement("catalogue.bounds")
@pytest.mark.parametrize("state", ["a file", "a folder of a file"])
async def test_where_nothing_can_be_stored_everything_else_works_as_usual(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.upstreams.catalog.stored_lists")
    home = tmp_path / "state"
    if state == "a file":
        home.write_text("")
    else:
        (home / "coretools-mcp").mkdir(parents=True)
        (home / "coretools-mcp" / "lists").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    up = ControlledServer(tmp_path)
    up.answer(**LISTS)
    async with running_proxy(tmp_path, up) as (_, client):
        assert await all_names(client) == NAMES
        assert text_or_json(await client.call("up__find")) == "from up"
        await until(lambda: "cannot be stored for the next run" in caplog.text)
