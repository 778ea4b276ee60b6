"""Tasks of upstreams: under ids of ours for clients that know tasks, and waited for in place of all others."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from server.store.replica import lone_replica
from server.store.sealing import SealedStates
from server.upstreams.connections.client_sessions import ClientSessions
from server.upstreams.relay import tasks as upstream_tasks
from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import PEERS, server_arguments, write_config
from tests.interaction.network.wires import modern, modern_headers
from tests.interaction.relay.clients import (
    ALL,
    PROGRESS,
    AnswerError,
    Json,
    WireClient,
    accept_forms,
    call_params,
    proxy_client,
    text_or_json,
)
from tests.interaction.relay.eras import ERAS, with_call_tool
from tests.interaction.relay.network import TOKENS, network
from tests.interaction.relay.questions import URL
from tests.waiting import until

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/tasks"
KNOWING: Json = {**ALL, "extensions": {EXTENSION: {}}}
"""What a client announces that knows tasks."""

PEER = str(PEERS / "task_upstream.py")
OVER_STDIO: Json = {"command": sys.executable, "args": forked([PEER, "stdio"]), "trust": True}
SERVING = r"serving MCP at (http://\S+?),"
NEWS = "notifications/tasks"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
QUICK: Json = {"pollIntervalMs": 50}
FORM: Json = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}

by_way = pytest.mark.parametrize("way", ["stdio", "http"])
by_way_each_way = with_call_tool(["way"], [["stdio"], ["http"]], ["http"])
by_client = pytest.mark.parametrize("era", ERAS)


@pytest.fixture(scope="session")
def task_port() -> Generator[str]:
    with background_server([sys.executable, *forked([PEER, "http"])], r"port (\d+)") as port:
        yield port


@pytest.fixture
def entries(task_port: str, tmp_path: Path) -> dict[str, Json]:
    """An upstream with tasks by the way to it."""
    url = f"http://127.0.0.1:{task_port}{tmp_path}/mcp"
    return {"stdio": OVER_STDIO, "http": {"httpUrl": url, "type": "http", "trust": True}}


def knowing(folder: Path, entry: Json, **more: Any) -> AbstractAsyncContextManager[WireClient]:
    """A client that knows tasks."""
    return proxy_client(folder, {"up": entry}, "modern", capabilities=KNOWING, **more)


async def begun(client: WireClient, label: str = "one", **fields: Any) -> str:
    """The id of a task that stays as it is until `settle` is called."""
    given = {"label": label, "fields": {**QUICK, **fields}}
    result = await client.request("tools/call", call_params("up__manual", given))
    assert (result["resultType"], result["status"]) == ("task", "working")
    return result["taskId"]


async def settle(client: WireClient, status: str, label: str = "one", **fields: Any) -> None:
    await client.call("up__settle", {"label": label, "status": status, **fields})


async def told(client: WireClient, *methods: str) -> list[Json]:
    """The requests of these methods that the upstream got."""
    return [each for each in (await client.call_and_parse("up__told"))["told"] if each["method"] in methods]


async def refused(client: WireClient, method: str, params: Json) -> Json:
    with pytest.raises(AnswerError) as error:
        await client.request(method, params)
    return error.value.error


@pytest.mark.requirement("tasks.announced")
@by_way
async def test_the_extension_is_announced_where_an_upstream_has_it(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with knowing(tmp_path, entries[way]) as client:
        # Before the first attempt to reach it is over, what it has is not known, and it may be this.
        assert client.handshake["capabilities"]["extensions"][EXTENSION] == {}
        await client.items_by_name("tools")
        known = await client.request("server/discover")
        assert known["capabilities"]["extensions"][EXTENSION] == {}
        assert "tasks" not in known["capabilities"]
    async with proxy_client(tmp_path, {"up": entries[way]}, "handshake") as client:
        assert EXTENSION not in client.handshake["capabilities"]["extensions"]


@pytest.mark.requirement("tasks.announced")
@pytest.mark.parametrize("era", ERAS)
async def test_it_is_not_announced_where_no_upstream_has_it(era: str, remote: Any, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": remote(era)}, "modern", capabilities=KNOWING) as client:
        await client.items_by_name("tools")
        assert EXTENSION not in (await client.request("server/discover"))["capabilities"]["extensions"]
        assert (await refused(client, "tasks/get", {"taskId": "x"}))["code"] == -32602


@pytest.mark.requirement("tasks.ids")
@by_way
@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_a_task_is_asked_for_changed_and_cancelled_under_an_id_of_ours(
    transport: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with knowing(tmp_path, entries[way], transport=transport) as client:
        name = await begun(client)
        task = await client.request("tasks/get", {"taskId": name})
        assert (task["taskId"], task["status"], task["resultType"], task["ttlMs"]) == (
            name,
            "working",
            "complete",
            60_000,
        )
        assert "requestState" not in task
        for method in ("tasks/update", "tasks/cancel"):
            answer = await client.request(method, {"taskId": name, "inputResponses": {}})
            assert answer.keys() == {"resultType", "_meta"}
        assert (await client.request("tasks/get", {"taskId": name}))["status"] == "cancelled"
        asked = await told(client, "tasks/get", "tasks/update", "tasks/cancel")
        assert [each["method"] for each in asked] == ["tasks/get", "tasks/update", "tasks/cancel", "tasks/get"]
        (own,) = {each["taskId"] for each in asked}
        assert own not in name
        assert {each["header"] for each in asked} == {own if way == "http" else None}
        assert all(each["knows"] for each in asked)


@pytest.mark.requirement("tasks.ids")
async def test_a_header_that_is_not_the_id_is_refused(entries: dict[str, Json], tmp_path: Path) -> None:
    async with (
        network(tmp_path, {"up": entries["http"]}) as served,
        served.client("modern", "ada", capabilities=KNOWING) as ada,
        httpx2.AsyncClient() as http,
    ):
        name = await begun(ada)
        message = modern(1, "tasks/get", {"taskId": name}, **KNOWING)
        common = {**modern_headers(message), "authorization": f"Bearer {TOKENS['ada']}"}
        for more in ({}, {"mcp-name": "other"}):
            answer = await http.post(f"{served.url}/mcp", json=message, headers={**common, **more})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)
        answer = await http.post(f"{served.url}/mcp", json=message, headers={**common, "mcp-name": name})
        assert answer.json()["result"]["taskId"] == name


@pytest.mark.requirement("tasks.unknown")
@by_way
async def test_an_id_of_another_client_is_refused_as_one_that_was_made_up(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with (
        network(tmp_path, {"up": entries[way]}) as served,
        served.client("modern", "ada", capabilities=KNOWING) as ada,
        served.client("modern", "bob", capabilities=KNOWING) as bob,
    ):
        name = await begun(ada)
        await ada.request("tasks/get", {"taskId": name})
        original = (await told(ada, "tasks/get"))[-1]["taskId"]
        forged = SealedStates("task", 60, lone_replica()).seal("task", "token:ada", {})
        errors = [
            await refused(bob, method, {"taskId": given} if given else {})
            for given in (name, original, "made-up", forged, "")
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
        ]
        assert [errors[0]] * len(errors) == errors
        assert errors[0]["code"] == -32602
        listened = {"notifications": {"taskIds": [name]}}
        async with anyio.create_task_group() as listening:
            listening.start_soon(bob.request, "subscriptions/listen", listened)
            (acknowledged,) = await bob.wait_for_notifications(ACKNOWLEDGED)
            assert acknowledged["notifications"] == {}
            listening.cancel_scope.cancel()
        assert (await ada.request("tasks/get", {"taskId": name}))["status"] == "working"


@pytest.mark.requirement("tasks.unknown")
async def test_a_task_of_a_server_that_was_started_anew_is_gone(tmp_path: Path) -> None:
    async with knowing(tmp_path, OVER_STDIO) as client:
        name = await begun(client)
        await client.call("up__leave")

        async def is_back() -> bool:
            result = await client.call("up__told")
            return not result.get("isError")

        with anyio.fail_after(100):
            while not await is_back():  # noqa: ASYNC110 - nobody tells of it
                await anyio.sleep(0.05)
        error = await refused(client, "tasks/get", {"taskId": name})
        assert error["code"] == -32602
        assert "restarted" in error["message"]
        assert await told(client, "tasks/get") == []


@pytest.mark.requirement("tasks.unknown")
async def test_a_task_that_its_server_does_not_know_any_more_is_gone(entries: dict[str, Json], tmp_path: Path) -> None:
    async with knowing(tmp_path, entries["http"]) as client:
        name = await begun(client)
        await settle(client, "input_required", inputRequests={"one": FORM})
        await client.request("tasks/get", {"taskId": name})
        unknown = await refused(client, "tasks/get", {"taskId": "made-up"})
        await client.call("up__forget", {"label": "one"})
        answers = {"taskId": name, "inputResponses": {"one": {"action": "decline"}}}
        assert await refused(client, "tasks/update", answers) == unknown
        assert await refused(client, "tasks/get", {"taskId": name}) == unknown
        assert await refused(client, "tasks/cancel", {"taskId": name}) == unknown


@pytest.mark.requirement("tasks.unknown")
async def test_an_id_that_is_not_ours_is_no_warning_in_the_log(
    entries: dict[str, Json], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.store.sealing")
    async with knowing(tmp_path, entries["http"]) as client:
        await refused(client, "tasks/get", {"taskId": "made-up"})
    assert [record for record in caplog.records if record.name == "server.store.sealing"] == []


@pytest.mark.requirement("tasks.undeclared")
@by_client
async def test_who_does_not_know_tasks_cannot_ask_for_them(era: str, entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, era) as client:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await refused(client, method, {"taskId": "x", "inputResponses": {}})
            if era == "handshake":
                assert error["code"] == -32601
                continue
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"] == {"extensions": {EXTENSION: {}}}
        for method in ("tasks/result", "tasks/list"):
            assert (await refused(client, method, {"taskId": "x"}))["code"] == -32601
        if era == "modern":
            error = await refused(client, "subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
            assert error["code"] == -32021


@pytest.mark.requirement("tasks.result")
@by_way_each_way
async def test_the_result_of_a_task_is_given_as_that_of_a_call(
    way: str, entries: dict[str, Json], remote: Any, tmp_path: Path
) -> None:
    servers = {"up": entries[way], "other": remote("modern")}
    async with proxy_client(tmp_path, servers, "modern", capabilities=KNOWING) as client:
        await client.items_by_name("resources")
        done, odd = await begun(client), await begun(client, "odd")
        link = {"type": "resource_link", "uri": "test://text", "name": "text"}
        await settle(client, "completed", result={"content": [link], "isError": True, "x-unknown": 1})
        task = await client.request("tasks/get", {"taskId": done})
        assert task["result"] == {"content": [{**link, "uri": "up+test://text"}], "isError": True, "x-unknown": 1}
        await settle(client, "completed", "odd", result={"resultType": "task", "taskId": "x"})
        assert "no usable answer" in (await refused(client, "tasks/get", {"taskId": odd}))["message"]
        failed = await begun(client, "failed")
        await settle(client, "failed", "failed", error={"code": -32050, "message": "why", "data": [1]})
        assert (await client.request("tasks/get", {"taskId": failed}))["error"] == {
            "code": -32050, "message": "why", "data": [1],
        }  # fmt: skip


@pytest.mark.requirement("tasks.questions")
@by_way_each_way
async def test_questions_of_a_task_say_whose_they_are_and_each_is_answered_once(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with knowing(tmp_path, entries[way]) as client:
        name = await begun(client)
        bad = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
        asked = {"one": FORM, "coretools-mcp/confirm": FORM, "bad": bad}
        await settle(client, "input_required", inputRequests=asked)
        first = await client.request("tasks/get", {"taskId": name})
        again = await client.request("tasks/get", {"taskId": name})
        assert first["inputRequests"] == again["inputRequests"]
        assert set(first["inputRequests"]) == {"one", "of:up/coretools-mcp/confirm"}
        assert {each["params"]["message"] for each in first["inputRequests"].values()} == {"[up] Who?"}

        async def answer(**responses: Json) -> None:
            given = {key.replace("own", "of:up/coretools-mcp/confirm"): each for key, each in responses.items()}
            await client.request("tasks/update", {"taskId": name, "inputResponses": given})

        accepted: Json = {"action": "accept", "content": {"name": "Ada"}}
        await answer(one=accepted, bad=accepted, unknown=accepted)
        assert set((await client.request("tasks/get", {"taskId": name}))["inputRequests"]) == {
            "of:up/coretools-mcp/confirm"
        }
        await answer(one={"action": "decline"})
        await answer(own=accepted)
        task = await client.request("tasks/get", {"taskId": name})
        assert text_or_json(task["result"]) == {
            "bad": {"action": "cancel"}, "one": accepted, "coretools-mcp/confirm": accepted,
        }  # fmt: skip
        passed = [each["inputResponses"] for each in await told(client, "tasks/update")]
        assert passed == [{"bad": {"action": "cancel"}}, {"one": accepted}, {}, {"coretools-mcp/confirm": accepted}]


@pytest.mark.requirement("tasks.questions")
async def test_a_question_that_was_answered_is_not_shown_while_its_server_still_shows_it(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with knowing(tmp_path, entries["http"]) as client:
        name = await begun(client)
        await settle(client, "input_required", inputRequests={"one": FORM})
        await client.request("tasks/get", {"taskId": name})
        answers = {"taskId": name, "inputResponses": {"one": {"action": "decline"}}}
        await client.call("up__keep", {"label": "one"})
        await client.request("tasks/update", answers)
        task = await client.request("tasks/get", {"taskId": name})
        assert task["status"] == "working"
        assert "inputRequests" not in task


LOST: Json = {"code": -32602, "message": "not what was asked for"}


@pytest.mark.requirement("tasks.questions")
async def test_an_answer_that_did_not_arrive_can_be_given_again(entries: dict[str, Json], tmp_path: Path) -> None:
    async with knowing(tmp_path, {**entries["http"], "timeout": 1_000}) as client:
        name = await begun(client)
        await settle(client, "input_required", inputRequests={"one": FORM})
        answers = {"taskId": name, "inputResponses": {"one": {"action": "decline"}}}
        await client.request("tasks/get", {"taskId": name})
        await client.call("up__trouble", {"label": "one", "method": "tasks/update", "errors": [None, LOST]})
        assert "neither a result" in (await refused(client, "tasks/update", answers))["message"]
        assert "one" in (await client.request("tasks/get", {"taskId": name}))["inputRequests"]
        assert await refused(client, "tasks/update", answers) == LOST
        await client.request("tasks/update", answers)
        assert (
            text_or_json((await client.request("tasks/get", {"taskId": name}))["result"]) == answers["inputResponses"]
        )


@pytest.mark.requirement("tasks.questions")
async def test_a_refusal_of_ours_that_did_not_arrive_is_given_again(entries: dict[str, Json], tmp_path: Path) -> None:
    async with knowing(tmp_path, {**entries["http"], "timeout": 3_000}) as client:
        name = await begun(client)
        bad = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
        await settle(client, "input_required", inputRequests={"bad": bad})
        await client.call("up__trouble", {"label": "one", "method": "tasks/update", "errors": [None, LOST]})
        for _ in range(3):
            task = await client.request("tasks/get", {"taskId": name})
            assert (task["status"], "inputRequests" in task) == ("working", False)
        assert text_or_json((await client.request("tasks/get", {"taskId": name}))["result"]) == {
            "bad": {"action": "cancel"}
        }


@pytest.mark.requirement("tasks.questions")
async def test_what_creates_a_task_brings_no_questions_and_no_result(entries: dict[str, Json], tmp_path: Path) -> None:
    fields: Json = {"status": "input_required", "inputRequests": {"one": FORM}, "result": {}, "error": {}}
    async with knowing(tmp_path, entries["http"]) as client:
        given = {"name": "up__manual", "arguments": {"fields": fields, "whole": True}}
        created = await client.request("tools/call", given)
        assert created["status"] == "input_required"
        assert not created.keys() & {"inputRequests", "result", "error"}
        task = await client.request("tasks/get", {"taskId": created["taskId"]})
        assert task["inputRequests"]["one"]["params"]["message"] == "[up] Who?"


@pytest.mark.requirement("tasks.questions")
async def test_nothing_but_a_task_that_asks_brings_questions(entries: dict[str, Json], tmp_path: Path) -> None:
    round_of_questions: Json = {"resultType": "input_required", "inputRequests": {"one": FORM}, "requestState": "x"}
    async with knowing(tmp_path, entries["http"]) as client:
        more: Json = {"x-reply": round_of_questions, "x-unknown": 1}
        for status in ("working", "failed", "cancelled"):
            name = await begun(client, status, **more)
            await settle(client, status, status, **round_of_questions)
            task = await client.request("tasks/get", {"taskId": name})
            assert (task["status"], task["resultType"], task["x-unknown"]) == (status, "complete", 1)
            assert not task.keys() & {"inputRequests", "requestState", "result"}
            error: Json = task.get("error", {})
            assert error.get("code") == (-32603 if status == "failed" else None)
        for method in ("tasks/update", "tasks/cancel"):
            reply = await client.request(method, {"taskId": name, "inputResponses": {}})
            assert not reply.keys() & round_of_questions.keys() - {"resultType"}
            assert reply["resultType"] == "complete"


@pytest.mark.requirement("tasks.questions")
async def test_of_many_questions_of_a_task_some_wait_until_others_are_answered(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with knowing(tmp_path, entries["http"]) as client:
        name = await begun(client)
        keys = [str(number) for number in range(100)]
        await settle(client, "input_required", inputRequests=dict.fromkeys(keys, FORM))
        answer: Json = {"action": "decline"}
        for expected in (keys[:64], keys[64:]):
            task = await client.request("tasks/get", {"taskId": name})
            assert list(task["inputRequests"]) == expected
            responses = dict.fromkeys(keys, answer)
            await client.request("tasks/update", {"taskId": name, "inputResponses": responses})
        assert text_or_json((await client.request("tasks/get", {"taskId": name}))["result"]) == dict.fromkeys(
            keys, answer
        )


@pytest.mark.requirement("tasks.questions")
async def test_a_question_that_a_task_asks_no_more_is_forgotten(entries: dict[str, Json], tmp_path: Path) -> None:
    async with knowing(tmp_path, entries["http"]) as client:
        name = await begun(client)
        await client.call("up__keep", {"label": "one"})
        for asked in ({"one": FORM}, {"two": FORM}, {"one": FORM}):
            await settle(client, "input_required", inputRequests=asked)
            task = await client.request("tasks/get", {"taskId": name})
            assert task["inputRequests"].keys() == asked.keys()
            responses = {key: {"action": "decline"} for key in ("one", "two")}
            await client.request("tasks/update", {"taskId": name, "inputResponses": responses})
        passed = [list(each["inputResponses"]) for each in await told(client, "tasks/update")]
        assert passed == [["one"], ["two"], ["one"]]


@pytest.mark.requirement("tasks.questions")
async def test_the_questions_of_one_client_do_not_push_those_of_another_out(
    entries: dict[str, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_tasks, "MAX_ASKING", 2)
    async with (
        network(tmp_path, {"up": entries["http"]}) as served,
        served.client("modern", "ada", capabilities=KNOWING) as ada,
        served.client("modern", "bob", capabilities=KNOWING) as bob,
    ):
        names: dict[str, str] = {}
        for label, client in (("ada", ada), ("one", bob), ("two", bob)):
            names[label] = await begun(client, label)
            await settle(client, "input_required", label, inputRequests={label: FORM})
            await client.request("tasks/get", {"taskId": names[label]})
        for label, client in (("ada", ada), ("one", bob), ("two", bob)):
            responses = {label: {"action": "decline"}}
            await client.request("tasks/update", {"taskId": names[label], "inputResponses": responses})
        passed = [list(each["inputResponses"]) for each in await told(ada, "tasks/update")]
        assert passed == [["ada"], [], ["two"]]


@pytest.mark.requirement("tasks.stream")
@by_way
@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_a_stream_tells_of_the_tasks_that_it_asked_for(
    transport: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with knowing(tmp_path, entries[way], transport=transport) as client:
        name, other = await begun(client), await begun(client, "other")
        async with anyio.create_task_group() as listening:
            wanted: Json = {"toolsListChanged": True, "taskIds": [name, name, "made-up", 7, {}]}
            listening.start_soon(client.request, "subscriptions/listen", {"notifications": wanted})
            (acknowledged,) = await client.wait_for_notifications(ACKNOWLEDGED)
            assert acknowledged["notifications"] == {"toolsListChanged": True, "taskIds": [name]}
            await settle(client, "working", "other", statusMessage="unheard")
            await settle(client, "input_required", inputRequests={"one": FORM})
            (asking,) = await client.wait_for_notifications(NEWS)
            assert (asking["taskId"], asking["status"]) == (name, "input_required")
            assert asking["inputRequests"]["one"]["params"]["message"] == "[up] Who?"
            await client.request("tasks/update", {"taskId": name, "inputResponses": {"one": {"action": "decline"}}})
            done = (await client.wait_for_notifications(NEWS, 2))[-1]
            assert text_or_json(done["result"]) == {"one": {"action": "decline"}}
            meta = acknowledged["_meta"]["io.modelcontextprotocol/subscriptionId"]
            assert done["_meta"]["io.modelcontextprotocol/subscriptionId"] == meta
            listening.cancel_scope.cancel()
        await settle(client, "completed", "other", result={"content": []})
        assert (await client.request("tasks/get", {"taskId": other}))["status"] == "completed"
        assert len([params for method, params in client.messages if method == NEWS]) == 2


@pytest.mark.requirement("tasks.stream")
async def test_a_server_that_reads_nothing_holds_no_stream_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_tasks, "ACKNOWLEDGE_SECONDS", 0.1)
    async with knowing(tmp_path, OVER_STDIO) as client, anyio.create_task_group() as tasks:
        name = await begun(client)
        await client.call("up__deafen")
        for _ in range(3):
            tasks.start_soon(client.call, "up__greet", {"much": "x" * 6_000_000})
        for _ in range(2):
            await client.items_by_name("tools")  # what was to be sent before has begun after two round trips
        tasks.start_soon(client.request, "subscriptions/listen", {"notifications": {"taskIds": [name]}})
        (acknowledged,) = await client.wait_for_notifications(ACKNOWLEDGED)
        assert acknowledged["notifications"] == {}
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("tasks.stream")
async def test_a_server_that_takes_no_refusal_holds_up_no_news_of_others(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    servers = {"slow": entries["stdio"], "up": entries["http"]}
    async with (
        proxy_client(tmp_path, servers, "modern", capabilities=KNOWING) as client,
        anyio.create_task_group() as listening,
    ):
        name = await begun(client)
        slow = (await client.request("tools/call", {"name": "slow__manual", "arguments": {"label": "slow"}}))["taskId"]
        listening.start_soon(client.request, "subscriptions/listen", {"notifications": {"taskIds": [slow, name]}})
        (acknowledged,) = await client.wait_for_notifications(ACKNOWLEDGED)
        assert set(acknowledged["notifications"]["taskIds"]) == {slow, name}
        await client.call("slow__trouble", {"label": "slow", "method": "tasks/update", "errors": [None]})
        bad = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
        await client.call("slow__settle", {"label": "slow", "status": "input_required", "inputRequests": {"bad": bad}})
        while "tasks/update" not in json.dumps(await client.call_and_parse("slow__told")):  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.02)
        await settle(client, "completed", result={"content": []})
        (news,) = await client.wait_for_notifications(NEWS)
        assert (news["taskId"], news["status"]) == (name, "completed")
        listening.cancel_scope.cancel()


@pytest.mark.requirement("tasks.stream")
async def test_a_stream_ends_when_the_server_of_its_tasks_is_gone(tmp_path: Path) -> None:
    async with knowing(tmp_path, OVER_STDIO) as client:
        name = await begun(client)
        ended: list[Json] = []

        async def listen() -> None:
            ended.append(await client.request("subscriptions/listen", {"notifications": {"taskIds": [name]}}))

        async with anyio.create_task_group() as listening:
            listening.start_soon(listen)
            await client.wait_for_notifications(ACKNOWLEDGED)
            await client.call("up__leave")
        assert ended[0]["resultType"] == "complete"


@pytest.mark.requirement("tasks.stream")
async def test_news_of_tasks_reach_nobody_who_has_not_asked_for_them(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": OVER_STDIO}, "handshake") as client:
        for _ in range(3):
            await client.call("up__shout")
        assert NEWS not in [method for method, _ in client.messages]


async def follow(client: WireClient, label: str, results: list[Json], meta: Json | None = None, **fields: Any) -> None:
    """Call a tool that promises a task whether or not its client knows tasks."""
    given: Json = {"label": label, "anyway": True, "fields": {**QUICK, **fields}}
    try:
        results.append(await client.call("up__manual", given, meta))
    except AnswerError as error:
        results.append(error.error)


async def until_polled(client: WireClient, count: int = 1) -> None:
    with anyio.fail_after(100):
        while len(await told(client, "tasks/get")) < count:  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.02)


async def until_begun(client: WireClient, label: str) -> None:
    with anyio.fail_after(100):
        while label not in (await client.call_and_parse("up__told"))["labels"]:  # noqa: ASYNC110 - nobody tells of it
            await anyio.sleep(0.02)


@pytest.mark.requirement("tasks.followed")
@by_way
@by_client
async def test_a_client_that_knows_no_tasks_gets_the_result(
    era: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    result: Json = {
        "content": [{"type": "text", "text": "done", "x-unknown": 1}],
        "structuredContent": {"a": 1},
    }
    async with proxy_client(tmp_path, {"up": entries[way]}, era) as client:
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            calls.start_soon(follow, client, "one", results, {"progressToken": "mine"})
            await until_polled(client)
            for text in ("half", "more"):
                await settle(client, "working", statusMessage=text)
                await until(lambda text=text: text in [params.get("message") for _, params in client.messages])
            await settle(client, "completed", result=result)
        assert {name: results[0][name] for name in result} == result
        assert "taskId" not in results[0]
        assert ("resultType" in results[0]) == (era == "modern")
        heard = [(params["progress"], params["message"]) for method, params in client.messages if method == PROGRESS]
        assert heard == [(1, "half"), (2, "more")]
        assert await told(client, "tasks/cancel") == []


@pytest.mark.requirement("tasks.followed")
@by_client
async def test_a_task_that_fails_or_is_cancelled_or_lost_fails_the_call(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, era) as client:
        results: list[Json] = []

        async def end(label: str, tool: str, **given: Any) -> None:
            async with anyio.create_task_group() as calls:
                calls.start_soon(follow, client, label, results)
                seen = len(await told(client, "tasks/get"))
                await until_polled(client, seen + 1)
                await client.call(f"up__{tool}", {"label": label, **given})

        await end("failed", "settle", status="failed", error={"code": -32050, "message": "why", "data": 1})
        await end("cancelled", "settle", status="cancelled")
        await end("lost", "forget")
        await end("odd", "settle", status="odd")
        assert results[0] == {"code": -32050, "message": "why", "data": 1}
        for result, why in zip(
            results[1:], ("cancelled the task", "no longer knows the task", "not a task"), strict=True
        ):
            assert result["isError"]
            assert why in result["content"][0]["text"]


@pytest.mark.requirement("tasks.followed")
@by_way
@by_client
async def test_questions_of_a_followed_task_are_asked_in_the_usual_way(
    era: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries[way]}, era, answer=accept_forms({"name": "Ada"})) as client:
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            calls.start_soon(follow, client, "one", results)
            await until_polled(client)
            bad = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
            await settle(client, "input_required", inputRequests={"one": FORM, "two": FORM, "bad": bad})
        accepted = {"action": "accept", "content": {"name": "Ada"}}
        assert text_or_json(results[0]) == {"one": accepted, "two": accepted, "bad": {"action": "cancel"}}
        assert [params["message"] for _, params in client.questions] == ["[up] Who?", "[up] Who?"]


@pytest.mark.requirement("tasks.followed")
@by_client
async def test_a_followed_task_that_is_done_when_it_is_created_is_asked_for_its_result(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    error = {"code": -32050, "message": "why", "data": 1}
    async with proxy_client(tmp_path, {"up": entries["http"]}, era) as client:
        results: list[Json] = []
        await follow(client, "done", results, status="completed", result={"content": [{"type": "text", "text": "yes"}]})
        await follow(client, "failed", results, status="failed", error=error)
        assert text_or_json(results[0]) == "yes"
        assert results[1] == error
        assert len(await told(client, "tasks/get")) == 2


@pytest.mark.requirement("tasks.followed")
async def test_the_answer_to_a_followed_task_counts_once(entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "modern") as client:
        asked: list[Json] = []
        given: Json = {"name": "up__manual", "arguments": {"label": "one", "anyway": True, "fields": QUICK}}

        async def call() -> None:
            asked.append(await client.request("tools/call", given))

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await until_polled(client)
            await settle(client, "input_required", inputRequests={"one": FORM})
        client.answer = accept_forms()
        answers = await client.answers_to(asked[0])
        assert "content" in await client.request("tools/call", {**given, **answers})
        assert (await refused(client, "tools/call", {**given, **answers}))["code"] == -32602
        assert len(await told(client, "tasks/update")) == 1


@pytest.mark.requirement("tasks.followed.ends")
@by_way
@by_client
async def test_a_followed_task_is_cancelled_with_its_call(
    era: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries[way]}, era) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(follow, client, "one", list[Json]())
            await until_polled(client)
            calls.cancel_scope.cancel()
        with anyio.fail_after(100):
            while not await told(client, "tasks/cancel"):  # noqa: ASYNC110 - nobody tells of it
                await anyio.sleep(0.02)


@pytest.mark.requirement("tasks.followed.ends")
@by_client
async def test_a_followed_task_without_news_is_cancelled_after_the_time_of_the_call(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    entry = {**entries["http"], "timeout": 2_000}
    async with proxy_client(tmp_path, {"up": entry}, era) as client:
        await client.items_by_name("tools")
        results: list[Json] = []
        # It wants to be asked for once an hour: the time of the call ends sooner.
        await follow(client, "one", results, pollIntervalMs=3_600_000)
        assert results[0]["isError"]
        assert "neither a result nor progress" in results[0]["content"][0]["text"]
        assert len(await told(client, "tasks/cancel")) == 1


@pytest.mark.requirement("tasks.followed.ends")
async def test_a_followed_task_whose_question_nobody_answers_is_cancelled(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    settings: Json = {"confirmation": {"timeout": 1_000}}
    async with proxy_client(tmp_path, {"up": entries["http"]}, "modern", settings=settings) as client:
        given: Json = {"name": "up__manual", "arguments": {"label": "one", "anyway": True, "fields": QUICK}}
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.request, "tools/call", given)
            await until_polled(client)
            await settle(client, "input_required", inputRequests={"one": FORM})
        with anyio.fail_after(100):
            while not await told(client, "tasks/cancel"):  # noqa: ASYNC110 - nobody tells of it
                await anyio.sleep(0.02)


@pytest.mark.requirement("tasks.followed.ends")
async def test_a_followed_task_of_a_server_that_is_gone_has_no_place_there(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": {**OVER_STDIO, "maxConcurrent": 1, "timeout": 3_000}}, "modern") as client:
        pid = (await client.call_and_parse("up__told"))["pid"]
        given: Json = {"name": "up__confirm_delete", "arguments": {"anyway": True, "fields": QUICK}}
        assert (await client.request("tools/call", given))["resultType"] == "input_required"
        os.kill(pid, signal.SIGKILL)
        while (result := await client.call("up__greet", {"name": "Ada"})).get("isError"):
            assert "is busy" not in result["content"][0]["text"]
            await anyio.sleep(0.05)
        assert text_or_json(result) == "Hello, Ada!"


@pytest.mark.requirement("tasks.followed.pace")
async def test_a_followed_task_is_asked_for_no_more_often_than_it_wants(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "handshake") as client:
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            calls.start_soon(partial(follow, client, "slow", results, pollIntervalMs=3_600_000))
            calls.start_soon(follow, client, "quick", results)
            await until_polled(client, 5)
            await settle(client, "completed", "quick", result={"content": []})
            await until(lambda: results)
            (quick,) = {each["taskId"] for each in await told(client, "tasks/get")}
            slow = (await client.call_and_parse("up__told"))["labels"]["slow"]
            assert slow != quick
            calls.cancel_scope.cancel()


@pytest.mark.requirement("tasks.required")
@by_way
async def test_a_tool_that_is_done_as_a_task_only_works_for_clients_of_the_handshake(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries[way]}, "handshake") as client:
        result = await client.call("up__failing_job")
        assert (result["content"][0]["text"], result["isError"]) == ("it failed", True)
        with pytest.raises(AnswerError) as broken:
            await client.call("up__protocol_error_job")
        assert broken.value.error == {"code": -32603, "message": "it broke"}
        calls = [each["knows"] for each in await told(client, "tools/call") if each["name"] == "failing_job"]
        assert calls == [False, True]
        assert text_or_json(await client.call("up__slow_compute")) == "computed"


@pytest.mark.requirement("tasks.required")
async def test_a_client_of_2026_is_told_what_to_declare(entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "modern") as client:
        error = await refused(client, "tools/call", {"name": "up__failing_job", "arguments": {}})
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == {"extensions": {EXTENSION: {}}}


ODD_IDS = (7, "", "x" * 20_000)
ODD_TIMES = (10**400, -1, 0.5, "soon", None, True)


@pytest.mark.requirement("tasks.odd")
async def test_what_an_upstream_promises_is_taken_only_where_it_can_be_a_task(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    given: Json = {"label": "one", "anyway": True}
    async with knowing(tmp_path, entries["http"]) as client:
        for odd in ODD_IDS:
            result = await client.call("up__manual", {**given, "fields": {"taskId": odd}})
            assert "no usable answer" in result["content"][0]["text"], odd
        for odd in ODD_TIMES:
            name = await begun(client, pollIntervalMs=odd, ttlMs=odd)
            assert (await client.request("tasks/get", {"taskId": name}))["pollIntervalMs"] == odd
        await client.items_by_name("resources")
        error = await refused(client, "resources/read", {"uri": "test://text"})
        assert "not a tool call" in error["message"]
    entry = {**OVER_STDIO, "args": forked([PEER, "old"])}
    async with knowing(tmp_path, entry) as client:
        assert "a revision without tasks" in (await client.call("up__manual", given))["content"][0]["text"]
        assert EXTENSION not in (await client.request("server/discover"))["capabilities"]["extensions"]


@pytest.mark.requirement("tasks.odd")
async def test_a_followed_task_with_odd_times_is_followed(entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "handshake") as client:
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            for number, odd in enumerate(ODD_TIMES):
                calls.start_soon(partial(follow, client, str(number), results, pollIntervalMs=odd))
            for number in range(len(ODD_TIMES)):
                await until_begun(client, str(number))
                await settle(client, "completed", str(number), result={"content": []})
        assert len(results) == len(ODD_TIMES)
        assert not any(result.get("isError") for result in results)


@pytest.mark.requirement("tasks.consent")
async def test_no_task_begins_without_the_consent_that_a_call_needs(entries: dict[str, Json], tmp_path: Path) -> None:
    entry = {**entries["http"], "trust": False}
    answers: list[Json] = [{"action": "decline"}, {"action": "accept", "content": {"decision": "once"}}]

    def answer(method: str, params: Json) -> Json:
        del method, params
        return answers.pop(0)

    given: Json = {"label": "one", "fields": QUICK}
    async with knowing(tmp_path, entry, answer=answer) as client:
        assert (await client.call("up__manual", given))["isError"]
        result = await client.call("up__manual", given)
        assert result["resultType"] == "task"
        name = result["taskId"]
        assert (await client.request("tasks/get", {"taskId": name}))["status"] == "working"
    settings: Json = {"permissions": {"deny": ["mcp__up__manual"]}}
    async with knowing(tmp_path, entries["http"], settings=settings) as client:
        assert (await client.call("up__manual", given))["isError"]
        assert [each["name"] for each in await told(client, "tools/call")] == ["manual"]


@pytest.mark.requirement("tasks.chain")
@by_way
async def test_tasks_cross_two_proxies(way: str, entries: dict[str, Json], tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    config = write_config(inner, {"tools": {"builtIn": False}, "mcpServers": {"up": entries[way]}})
    command = [sys.executable, *forked(server_arguments(None, config, "--transport", "http", "--port", "0"))]
    with background_server(command, SERVING) as url:
        between: Json = {"httpUrl": f"{url}/mcp", "type": "http", "trust": True, "prefix": "none"}
        async with knowing(tmp_path, between, answer=accept_forms()) as client:
            await client.items_by_name("tools")
            name = await begun(client)
            async with anyio.create_task_group() as listening:
                wanted = {"notifications": {"taskIds": [name]}}
                listening.start_soon(client.request, "subscriptions/listen", wanted)
                (acknowledged,) = await client.wait_for_notifications(ACKNOWLEDGED)
                assert acknowledged["notifications"] == {"taskIds": [name]}
                await settle(client, "input_required", inputRequests={"one": FORM})
                (news,) = await client.wait_for_notifications(NEWS)
                assert news["inputRequests"]["one"]["params"]["message"] == "[up] [up] Who?"
                listening.cancel_scope.cancel()
            answers = {"taskId": name, "inputResponses": {"one": {"action": "decline"}}}
            await client.request("tasks/update", answers)
            assert text_or_json((await client.request("tasks/get", {"taskId": name}))["result"]) == {
                "one": {"action": "decline"}
            }
            assert (await refused(client, "tasks/get", {"taskId": "made-up"}))["code"] == -32602
        async with proxy_client(tmp_path, {"up": between}, "handshake", capabilities={}) as client:
            await client.items_by_name("tools")
            assert (await client.call("up__failing_job"))["isError"]


@pytest.mark.requirement("tasks.old")
async def test_tasks_of_2025_do_not_pass(entries: dict[str, Json], tmp_path: Path) -> None:
    async with knowing(tmp_path, entries["http"]) as client:
        tools = await client.items_by_name("tools")
        assert "execution" not in json.dumps(tools)
        called: Json = {"name": "up__greet", "arguments": {"name": "Ada"}, "task": {"ttl": 60_000}}
        assert text_or_json(await client.request("tools/call", called)) == "Hello, Ada!"
        (call,) = await told(client, "tools/call")
        assert "task" not in call


@pytest.mark.requirement("tasks.kept")
async def test_a_session_is_not_idle_while_a_task_of_it_is_to_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientSessions, "idle_seconds", 0.2)
    async with (
        network(tmp_path, {"up": OVER_STDIO}) as served,
        served.client("modern", "ada", capabilities=KNOWING) as ada,
        served.client("modern", "bob", capabilities=KNOWING) as bob,
    ):
        name = await begun(ada)
        brief = await begun(bob, ttlMs=1)
        await until(lambda: served.sessions() == 1)
        assert (await ada.request("tasks/get", {"taskId": name}))["status"] == "working"
        assert (await refused(bob, "tasks/get", {"taskId": brief}))["code"] == -32602
        assert upstream_tasks.LONGEST_KEPT_SECONDS >= 60


@pytest.mark.requirement("tasks.kept")
async def test_a_session_is_not_idle_while_a_task_of_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientSessions, "idle_seconds", 0.2)
    async with (
        network(tmp_path, {"up": OVER_STDIO}) as served,
        served.client("modern", "ada") as ada,
        served.client("modern", "bob") as bob,
    ):
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            calls.start_soon(follow, ada, "one", results)
            await until_begun(ada, "one")
            await bob.call("up__greet", {"name": "Bob"})
            await until(lambda: served.sessions() == 1)
            await settle(ada, "completed", result={"content": [{"type": "text", "text": "done"}]})
        assert text_or_json(results[0]) == "done"
