"""What servers listed in the last run is listed at once in the next one, and decides nothing."""

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
from server.upstreams.wire.own_meta import CHAIN_KEY
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
NEWS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def tool(name: str, **more: Any) -> Json:
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}


LISTED: Json = {
    "tools": [tool("find"), tool("keep")],
    "prompts": [{"name": "greet"}],
    "resources": named_resources("memo://a"),
    "resources/templates/list": [],
    "resourceTemplates": named_resources("memo://in/{x}"),
}
NAMES = {"up__find", "up__keep", "up__greet", "memo://a", "memo://in/{x}"}


def files() -> list[Path]:
    """What is kept of servers, a file for each."""
    return sorted((Path(os.environ["XDG_STATE_HOME"]) / "coretools-mcp" / "lists").glob("*.json"))


WAIT_UNSET: Json = {"proxy": {"nameBudget": 48}}  # other settings of tests say how long the first list waits


class Changing:
    """A server whose entry stays as it is, while it lists, hangs or ends as it is told.

    Args:
        folder: Where its orders stand.
        alias: Its alias, and its name.
        entry: What else stands in its entry.
        orders: As `listing_upstream.py` takes them; they stay.
    """

    def __init__(self, folder: Path, alias: str = "up", entry: Json | None = None, **orders: Any) -> None:
        self.alias = alias
        self._orders, self._gate = folder / f"{alias}.orders", folder / f"{alias}.gate"
        asked = {"after": str(self._gate), "orders": str(self._orders), **orders}
        self.entry = listing_entry(alias, entry={"trust": True, **(entry or {})}, **asked)

    def answers(self, **lists: Any) -> None:
        self._orders.write_text(json.dumps(lists))
        self._gate.touch()

    def hangs(self) -> None:
        self._gate.unlink(missing_ok=True)


@asynccontextmanager
async def serving(
    folder: Path, *servers: Changing, era: str = "handshake", answer: Answer | None = None, settings: Json | None = None
) -> AsyncGenerator[tuple[App, WireClient]]:
    """A server of ours in this process, and its client."""
    entries = {each.alias: each.entry for each in servers}
    written: Json = {"tools": {"builtIn": False}, "mcpServers": entries, **(settings or {})}
    app = app_of(write_config(folder, settings_for_call_style(written)))
    async with app.running(), client_on(in_process(app), era, answer=answer) as client:
        yield app, client


async def everything(client: WireClient) -> set[str]:
    return {name for kind in KINDS for name in await client.items_by_name(kind)}


async def run_once(folder: Path, *servers: Changing, era: str = "handshake", settings: Json | None = None) -> set[str]:
    """A run in which they answer, until what they list is kept; what is listed then."""
    before = {file: file.stat().st_ino for file in files()}
    async with serving(folder, *servers, era=era, settings=settings) as (app, client):
        await client.items_by_name("tools")  # the first request starts them
        await app.registry.discover_all_tools()
        listed = await everything(client)
        await until(lambda: len([file for file in files() if before.get(file) != file.stat().st_ino]) >= len(servers))
    return listed


@pytest.mark.requirement("catalogue.first_list")
@pytest.mark.parametrize("transport", ["memory", "stdio"])
@by_era
async def test_the_first_list_is_that_of_the_last_run_while_a_server_hangs(
    era: str, transport: str, tmp_path: Path
) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    servers = {"up": up.entry}
    async with proxy_client(tmp_path, servers, era, transport=transport) as client:
        shown = {kind: await client.items_by_name(kind) for kind in KINDS}
        await until(files)
    assert {name for kind in KINDS for name in shown[kind]} == NAMES
    up.hangs()
    async with proxy_client(tmp_path, servers, era, transport=transport) as client:
        assert {kind: await client.items_by_name(kind) for kind in KINDS} == shown


@pytest.mark.requirement("catalogue.first_list")
async def test_a_server_that_is_not_kept_is_waited_for_as_before(tmp_path: Path) -> None:
    old, new = Changing(tmp_path, "old"), Changing(tmp_path, "new")
    old.answers(tools=[tool("a")])
    assert await run_once(tmp_path, old) == {"old__a"}
    old.hangs()
    new.hangs()
    async with serving(tmp_path, old, new) as (app, client), anyio.create_task_group() as tasks:
        listed: list[str] = []

        async def list_tools() -> None:
            listed.extend(await client.items_by_name("tools"))

        tasks.start_soon(list_tools)
        await until(lambda: app.pool.by_alias["new"].status.attempts)
        assert listed == []
        new.answers(tools=[tool("b")])
        await until(lambda: listed)
        assert listed == ["old__a", "new__b"]
        assert not app.pool.by_alias["old"].known.is_set()


@pytest.mark.requirement("catalogue.first_list")
async def test_who_has_never_answered_is_waited_for_in_one_run_alone(tmp_path: Path) -> None:
    up, late = Changing(tmp_path), Changing(tmp_path, "late")
    up.answers(tools=[tool("find")])
    late.hangs()
    async with serving(tmp_path, up, late, settings={"proxy": {"firstListWait": 2_000}}) as (_, client):
        await client.items_by_name("tools")
        await until(lambda: len(files()) == 2)
    up.hangs()
    async with serving(tmp_path, up, late, settings=WAIT_UNSET) as (app, client):
        assert await everything(client) == {"up__find"}
        assert not app.pool.by_alias["late"].is_awaited
        late.answers(tools=[tool("found")])
        await client.wait_for_notifications("notifications/tools/list_changed")
        assert await everything(client) == {"up__find", "late__found"}
        await until(lambda: any(b'"found"' in file.read_bytes() for file in files()))
        assert not app.pool.by_alias["up"].known.is_set()
    late.hangs()
    async with serving(tmp_path, up, late) as (_, client):
        assert await everything(client) == {"up__find", "late__found"}


@pytest.mark.requirement("catalogue.first_list")
async def test_who_was_waited_for_in_vain_is_waited_for_again_after_an_hour_and_where_the_wait_is_set(
    tmp_path: Path,
) -> None:
    late, wait = Changing(tmp_path, "late"), {"proxy": {"firstListWait": 100}}
    late.hangs()
    async with serving(tmp_path, late, settings=wait) as (_, client):
        await client.items_by_name("tools")
        await until(files)
    for settings, age, is_awaited in ((WAIT_UNSET, 0, False), (wait, 0, True), (WAIT_UNSET, 2 * 3_600, True)):
        (file,) = files()
        then = file.stat().st_mtime - age
        os.utime(file, (then, then))
        async with serving(tmp_path, late, settings=settings) as (app, client), anyio.create_task_group() as tasks:
            tasks.start_soon(client.items_by_name, "tools")
            await until(lambda app=app: not app.pool.is_recalling and app.pool.by_alias["late"].status.attempts)
            assert app.pool.by_alias["late"].is_awaited is is_awaited
            tasks.cancel_scope.cancel()


@pytest.mark.requirement("catalogue.first_list")
@pytest.mark.parametrize(("first", "then"), [("handshake", "modern"), ("modern", "handshake")])
async def test_what_is_kept_serves_a_client_of_another_kind(first: str, then: str, tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up, era=first)
    up.hangs()
    async with serving(tmp_path, up, era=then) as (_, client):
        assert await everything(client) == NAMES


@pytest.mark.requirement("catalogue.changes")
@pytest.mark.parametrize("upstream", ["handshake", "modern"])
@by_era
async def test_only_the_lists_that_are_other_ones_are_announced_when_a_server_answers(
    era: str, upstream: str, tmp_path: Path
) -> None:
    orders: Json = {"modern": True} if upstream == "modern" else {}
    same, other = Changing(tmp_path, "same", **orders), Changing(tmp_path, "other", **orders)
    same.answers(**LISTED)
    other.answers(tools=[tool("old"), tool("stays")])
    await run_once(tmp_path, same, other, era=era)
    same.hangs()
    other.hangs()
    async with (
        serving(tmp_path, same, other, era=era) as (app, client),
        anyio.create_task_group() as tasks,
    ):
        await start_listening(client, tasks, NEWS)
        before = await everything(client)
        assert {"same__find", "other__old"} <= before
        same.answers(**LISTED)
        with anyio.fail_after(60):
            await app.pool.by_alias["same"].known.wait()
        other.answers(tools=[tool("new"), tool("stays")])
        await client.wait_for_notifications("notifications/tools/list_changed")
        assert await everything(client) == before - {"other__old"} | {"other__new"}
        with anyio.fail_after(60):
            await app.pool.by_alias["other"].known.wait()
        await client.items_by_name("tools")
        news = [method for method, _ in client.messages if method.endswith("list_changed")]
        assert news == ["notifications/tools/list_changed"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("catalogue.calls")
@by_era_each_way
async def test_a_call_waits_for_its_server_and_nobody_is_asked_before(era: str, tmp_path: Path) -> None:
    person = Person()
    up = Changing(tmp_path, entry={"trust": False})
    up.answers(**LISTED)
    await run_once(tmp_path, up, era=era)
    up.hangs()
    async with serving(tmp_path, up, era=era, answer=person) as (app, client), anyio.create_task_group() as tasks:
        assert "up__find" in await client.items_by_name("tools")
        told: list[str] = []

        async def call() -> None:
            told.append(text_or_json(await client.call("up__find")))

        tasks.start_soon(call)
        await until(lambda: app.pool.by_alias["up"].status.attempts)
        await client.items_by_name("tools")
        assert (told, person.messages) == ([], [])
        up.answers(tools=[tool("find", description="Something else.")])
        await until(lambda: told)
        assert told == ["from up"]
        (message,) = person.messages
        assert "tool: find" in message
        assert "has changed" not in message, "what it was in the last run counts for nothing"


@pytest.mark.requirement("catalogue.calls")
@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("is_read_only", [False, True])
async def test_what_a_tool_is_now_decides_on_its_call(is_read_only: bool, tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(tools=[tool("find", annotations={"readOnlyHint": not is_read_only})])
    plan = {"approvalMode": "plan"}
    await run_once(tmp_path, up, settings=plan)
    up.hangs()
    async with serving(tmp_path, up, settings=plan) as (_, client), anyio.create_task_group() as tasks:
        assert "up__find" in await client.items_by_name("tools")
        results: list[Json] = []

        async def call() -> None:
            results.append(await client.call("up__find"))

        tasks.start_soon(call)
        up.answers(tools=[tool("find", annotations={"readOnlyHint": is_read_only})])
        await until(lambda: results)
        assert bool(results[0].get("isError")) is not is_read_only


@pytest.mark.requirement("catalogue.calls")
@by_era_each_way
async def test_a_tool_that_its_server_has_no_more_is_answered_with_a_sentence(era: str, tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up, era=era)
    up.hangs()
    async with serving(tmp_path, up, era=era) as (_, client), anyio.create_task_group() as tasks:
        assert "up__find" in await client.items_by_name("tools")
        results: list[Json] = []

        async def call() -> None:
            results.append(await client.call("up__find"))

        tasks.start_soon(call)
        up.answers(tools=[tool("other")])
        await until(lambda: results)
        await call()  # a client that has not heard of the change
        for result in results:
            assert result["isError"]
            assert "The server up no longer has a tool 'up__find'" in result["content"][0]["text"]


@pytest.mark.requirement("catalogue.calls")
async def test_a_refused_tool_is_not_listed_and_its_call_is_refused_while_its_server_hangs(tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up)
    up.hangs()
    async with serving(tmp_path, up, settings={"permissions": {"deny": ["mcp__up__find"]}}) as (app, client):
        assert set(await client.items_by_name("tools")) == {"up__keep"}
        refused = await client.call("up__find")
        assert refused["_meta"]["coretools-mcp/error"]["type"] == "execution_denied"
        assert not app.pool.by_alias["up"].tried.is_set()


@pytest.mark.requirement("catalogue.calls")
@pytest.mark.usefixtures("each_way")
async def test_a_call_that_waits_longer_than_its_time_is_answered_and_nobody_was_asked(tmp_path: Path) -> None:
    person = Person()
    up = Changing(tmp_path, entry={"trust": False, "timeout": 100})
    up.answers(**LISTED)
    await run_once(tmp_path, up)
    up.hangs()
    async with serving(tmp_path, up, answer=person) as (_, client):
        assert "up__find" in await client.items_by_name("tools")
        result = await client.call("up__find")
        assert "The server up is unavailable (state connecting)" in result["content"][0]["text"]
        assert person.messages == []


@pytest.mark.requirement("catalogue.others")
@by_era
async def test_prompts_resources_and_completions_wait_for_their_server(era: str, tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up, era=era)
    up.hangs()
    asked: list[tuple[str, Json, Callable[[Json], Any]]] = [
        ("prompts/get", {"name": "up__greet"}, lambda it: it["messages"][0]["content"]["text"]),
        ("resources/read", {"uri": "memo://a"}, lambda it: it["contents"][0]["text"]),
        ("resources/read", {"uri": "memo://not/listed"}, lambda it: it["contents"][0]["text"]),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "up__greet"}, "argument": {"name": "a", "value": ""}},
            lambda it: it["completion"]["values"][0],
        ),
    ]
    async with serving(tmp_path, up, era=era) as (app, client), anyio.create_task_group() as tasks:
        assert "up__greet" in await client.items_by_name("prompts")
        told: list[Any] = []

        async def ask(method: str, params: Json, text: Callable[[Json], Any]) -> None:
            told.append(text(await client.request(method, params)))

        for each in asked:
            tasks.start_soon(ask, *each)
        await until(lambda: app.pool.by_alias["up"].status.attempts)
        await client.items_by_name("prompts")
        assert told == []
        up.answers(**LISTED)
        await until(lambda: len(told) == len(asked))
        assert set(told) == {"from up"}


@pytest.mark.requirement("catalogue.failed")
@by_era
async def test_what_a_server_listed_goes_when_it_cannot_be_reached(era: str, tmp_path: Path) -> None:
    up, well = Changing(tmp_path), Changing(tmp_path, "well")
    up.answers(**LISTED)
    well.answers(tools=[tool("a")])
    await run_once(tmp_path, up, well, era=era)
    up.hangs()
    async with serving(tmp_path, up, well, era=era) as (app, client), anyio.create_task_group() as tasks:
        await start_listening(client, tasks, NEWS)
        assert {"up__find", "up__greet"} <= await everything(client)
        facts = {each["alias"]: each for each in app.running_server.status()["servers"]}
        assert facts["up"]["fromLastRun"] == ["tools", "prompts", "resources", "resourceTemplates"]
        up.answers(ends=True)
        await client.wait_for_notifications("notifications/tools/list_changed")
        await client.wait_for_notifications("notifications/prompts/list_changed")
        await client.wait_for_notifications("notifications/resources/list_changed")
        assert await everything(client) == {"well__a"}
        facts = {each["alias"]: each for each in app.running_server.status()["servers"]}
        assert "fromLastRun" not in facts["up"]
        assert facts["up"]["tools"] == 0
        result = await client.call("up__find")
        assert "The server up is unavailable" in result["content"][0]["text"]
        up.answers(**LISTED)
        while "up__find" not in await client.items_by_name("tools"):
            await client.call("up__find")
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("catalogue.names")
async def test_names_and_texts_of_the_last_run_are_those_of_the_live_lists(tmp_path: Path) -> None:
    rules = {"rename": {"find": "seek"}, "excludeTools": ["hidden"]}
    up, bare = Changing(tmp_path, entry=rules), Changing(tmp_path, "bare", entry={"prefix": "none"})
    lists = [tool("find"), tool("hidden"), tool("x" * 90), tool("a b"), tool("odd", description="A\u202eB")]
    settings = {"proxy": {"nameBudget": 30, "firstListWait": 30_000}}
    for each in (up, bare):
        each.answers(tools=lists)
    await run_once(tmp_path, up, bare, settings=settings)
    for each in (up, bare):
        each.hangs()
    async with serving(tmp_path, up, bare, settings=settings) as (app, client):
        stored = await client.items_by_name("tools")
        assert not app.pool.by_alias["up"].known.is_set()
        assert {"up__seek", "find", "hidden"} <= stored.keys()
        assert stored["odd"]["description"] == "A<U+202E>B"
        for each in (up, bare):
            each.answers(tools=lists)
        await app.registry.discover_all_tools()
        assert list((await client.items_by_name("tools")).items()) == list(stored.items())


@pytest.mark.requirement("catalogue.names")
async def test_an_unprefixed_name_of_the_last_run_goes_to_another_server_where_its_own_is_not_there(
    tmp_path: Path,
) -> None:
    first, second = (Changing(tmp_path, alias, entry={"prefix": "none"}) for alias in ("first", "second"))
    for each in (first, second):
        each.answers(tools=[tool("find")])
    await run_once(tmp_path, first, second)
    first.hangs()
    async with serving(tmp_path, first, second) as (_, client), anyio.create_task_group() as tasks:
        assert set(await client.items_by_name("tools")) == {"find"}
        told: list[str] = []

        async def call() -> None:
            told.append(text_or_json(await client.call("find")))

        tasks.start_soon(call)
        first.answers(ends=True)
        await until(lambda: told)
        assert told == ["from second"]


@pytest.mark.requirement("catalogue.principals")
async def test_two_people_over_http_get_the_lists_of_the_last_run_and_sessions_of_their_own(tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    async with network(tmp_path, {"up": up.entry}) as net:
        await until(files)
    up.hangs()
    async with (
        network(tmp_path, {"up": up.entry}) as net,
        net.client("handshake", "ada") as ada,
        net.client("modern", "bob") as bob,
        anyio.create_task_group() as tasks,
    ):
        assert await everything(ada) == await everything(bob) == NAMES
        told: list[str] = []

        async def call(client: WireClient) -> None:
            told.append(text_or_json(await client.call("up__find")))

        for client in (ada, bob):
            tasks.start_soon(call, client)
        await ada.items_by_name("tools")
        assert told == []
        up.answers(**LISTED)
        await until(lambda: len(told) == 2)
        assert net.sessions() == 2


@pytest.mark.requirement("catalogue.settings")
async def test_switched_off_nothing_is_kept_and_nothing_is_read(tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    off = {"proxy": {"catalogue": False, "firstListWait": 100}}
    async with serving(tmp_path, up, settings=off) as (app, client):
        await app.registry.discover_all_tools()
        assert "up__find" in await client.items_by_name("tools")
    assert files() == []
    await run_once(tmp_path, up)
    up.hangs()
    async with serving(tmp_path, up, settings=off) as (_, client):
        assert await client.items_by_name("tools") == {}


@pytest.mark.requirement("catalogue.settings")
async def test_a_server_that_is_not_used_is_not_listed_from_the_last_run(tmp_path: Path) -> None:
    up, well = Changing(tmp_path), Changing(tmp_path, "well")
    for each in (up, well):
        each.answers(**LISTED)
    await run_once(tmp_path, up, well)
    async with serving(tmp_path, up, well, settings={"mcp": {"excluded": ["up"]}}) as (_, client):
        assert set(await client.items_by_name("tools")) == {"well__find", "well__keep"}


@pytest.mark.requirement("catalogue.chain")
@by_era
async def test_a_server_like_this_one_is_given_live_tools_alone(era: str, tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up, era=era)
    up.hangs()
    async with serving(tmp_path, up, era=era) as (_, client), anyio.create_task_group() as tasks:
        await start_listening(client, tasks, NEWS)
        like = {CHAIN_KEY: ["another"]}
        assert (await client.request("tools/list", meta=like))["tools"] == []
        up.answers(**LISTED)
        await client.wait_for_notifications("notifications/tools/list_changed")
        listed = (await client.request("tools/list", meta=like))["tools"]
        assert {each["name"] for each in listed} == {"up__find", "up__keep"}
        tasks.cancel_scope.cancel()


def damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def nested(file: Path) -> None:
    file.write_text("[" * 100_000)


def of_another_entry(file: Path) -> None:
    file.write_text(file.read_text().replace(file.stem, "0" * 32))


def of_no_revision(file: Path) -> None:
    file.write_text(file.read_text().replace("2025-11-25", "1999-01-01"))


def oversized(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b" " * (4 << 20))


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


def writable_by_others(file: Path) -> None:
    file.chmod(0o666)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def of_another_user(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root gives files away")
    os.chown(file, 12_345, -1)


SPOILED = [
    *(damaged, empty, nested, of_another_entry, of_no_revision, oversized, linked, writable_by_others, pipe),
    of_another_user,
]


@pytest.mark.skipif(os.name != "posix", reason="not run: modes and links are those of POSIX")
@pytest.mark.requirement("catalogue.untrusted")
@pytest.mark.parametrize("spoil", one_in(4, SPOILED))
async def test_a_file_that_is_not_ours_as_we_wrote_it_is_passed_over_once_and_replaced(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.upstreams.catalog.stored_lists")
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up)
    (file,) = files()
    spoil(file)
    spoiled = file.lstat().st_mtime_ns  # numbers of files are used again
    up.hangs()
    async with serving(tmp_path, up, settings={"proxy": {"firstListWait": 100}}) as (_, client):
        assert await everything(client) == set()
        assert caplog.text.count("the lists of a server from the last run cannot be used") == 1
        elsewhere = file.with_suffix(".elsewhere")
        before = elsewhere.read_bytes() if elsewhere.exists() else b""
        up.answers(**LISTED)
        await until(lambda: file.lstat().st_mtime_ns != spoiled and b'"find"' in file.read_bytes())
        assert not file.is_symlink()
        assert file.stat().st_mode & 0o777 == 0o600
        assert (elsewhere.read_bytes() if elsewhere.exists() else b"") == before
    up.hangs()
    async with serving(tmp_path, up) as (_, client):
        assert await everything(client) == NAMES


@pytest.mark.requirement("catalogue.untrusted")
async def test_lists_that_take_too_long_to_be_checked_are_passed_over(tmp_path: Path) -> None:
    up, other = Changing(tmp_path), Changing(tmp_path, "other")
    up.answers(tools=[tool(f"t{number}") for number in range(3_000)])
    other.answers(tools=[tool("find")])
    await run_once(tmp_path, up, other)
    up.hangs()
    other.hangs()
    up.entry["listTimeout"] = 1
    async with serving(tmp_path, up, other, settings={"proxy": {"firstListWait": 100}}) as (_, client):
        assert set(await client.items_by_name("tools")) == {"other__find"}


@pytest.mark.requirement("catalogue.untrusted")
async def test_items_that_nobody_can_read_and_words_of_ours_in_a_forged_file_count_for_nothing(tmp_path: Path) -> None:
    up = Changing(tmp_path, entry={"trust": False})
    up.answers(tools=[tool("find")])
    await run_once(tmp_path, up)
    (file,) = files()
    told: Json = json.loads(file.read_text())
    forged = tool("forged", description="A\u202eB", _meta={"coretools-mcp/upstream": {"server": "other"}})
    forged["annotations"] = {"readOnlyHint": True}
    told["lists"] = {"tools": [forged, {"name": 7}, "no", {"name": "shapeless", "inputSchema": 3}], "others": []}
    file.write_text(json.dumps(told))
    up.hangs()
    async with serving(tmp_path, up) as (_, client):
        listed = await client.items_by_name("tools")
    assert set(listed) == {"up__forged"}
    shown = listed["up__forged"]
    assert shown["description"] == "A<U+202E>B"
    assert shown["_meta"]["coretools-mcp/upstream"] == {"server": "up", "tool": "forged"}
    assert shown["annotations"]["readOnlyHint"] is False


@pytest.mark.skipif(os.name != "posix", reason="not run: modes are those of POSIX")
@pytest.mark.requirement("catalogue.private")
async def test_nobody_else_may_look_at_what_is_kept(tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up)
    (file,) = files()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    file.parent.chmod(0o755)
    await run_once(tmp_path, up)
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("catalogue.bounds")
async def test_lists_that_are_too_large_are_not_kept_and_what_was_kept_of_them_goes(tmp_path: Path) -> None:
    up = Changing(tmp_path)
    up.answers(**LISTED)
    await run_once(tmp_path, up)
    up.answers(filled=[100, 50_000])
    async with serving(tmp_path, up, settings={"proxy": {"search": "off"}}) as (_, client):
        assert "up__find" in await client.items_by_name("tools")
        await until(lambda: not files())
        assert "up__t99" in await client.items_by_name("tools")


@pytest.mark.requirement("catalogue.bounds")
@pytest.mark.parametrize("state", ["a file", "a folder of a file"])
async def test_where_nothing_can_be_kept_everything_else_is_as_ever(
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
    up = Changing(tmp_path)
    up.answers(**LISTED)
    async with serving(tmp_path, up) as (_, client):
        assert await everything(client) == NAMES
        assert text_or_json(await client.call("up__find")) == "from up"
        await until(lambda: "cannot be stored for the next run" in caplog.text)
