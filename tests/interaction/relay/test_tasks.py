"""Tasks of upstreams: clients that support tasks get ids of this server; for other clients, the server waits itself."""

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

from server.settings import load_settings
from server.store.replica import lone_replica
from server.store.sealing import SealedStates
from server.upstreams.connections.client_sessions import ClientSessions
from server.upstreams.relay import upstream_tasks
from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import PEERS, server_arguments, write_config
from tests.in_process import in_process
from tests.interaction.network.wires import modern, modern_headers
from tests.interaction.relay.clients import (
    ALL,
    PROGRESS,
    AnswerError,
    Json,
    WireClient,
    accept_forms,
    app_of,
    call_params,
    client_on,
    proxy_client,
    text_or_json,
)
from tests.interaction.relay.eras import ERAS, with_call_tool
from tests.interaction.relay.network import TOKENS, network
from tests.interaction.relay.questions import URL
from tests.waiting import until

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/tasks"
TASK_CAPABILITIES: Json = {**ALL, "extensions": {EXTENSION: {}}}
"""The capabilities of a client that supports tasks."""

PEER = str(PEERS / "task_upstream.py")
STDIO_ENTRY: Json = {"command": sys.executable, "args": forked([PEER, "stdio"]), "trust": True}
SERVING_PATTERN = r"serving MCP at (http://\S+?),"
TASK_STATUS = "notifications/tasks"
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
    """Return settings entries for an upstream with tasks, by transport."""
    url = f"http://127.0.0.1:{task_port}{tmp_path}/mcp"
    return {"stdio": STDIO_ENTRY, "http": {"httpUrl": url, "type": "http", "trust": True}}


def task_client(folder: Path, entry: Json, **options: Any) -> AbstractAsyncContextManager[WireClient]:
    """Start a proxy, and yield its client, which supports tasks."""
    return proxy_client(folder, {"up": entry}, "modern", capabilities=TASK_CAPABILITIES, **options)


async def begin_task(client: WireClient, label: str = "one", **fields: Any) -> str:
    """Start a task, which stays as it is until `settle` is called, and return its id."""
    arguments = {"label": label, "fields": {**QUICK, **fields}}
    result = await client.request("tools/call", call_params("up__manual", arguments))
    assert (result["resultType"], result["status"]) == ("task", "working")
    return result["taskId"]


async def settle(client: WireClient, status: str, label: str = "one", **fields: Any) -> None:
    await client.call("up__settle", {"label": label, "status": status, **fields})


async def received_requests(client: WireClient, *methods: str) -> list[Json]:
    """Return the requests of these methods that the upstream has received."""
    return [request for request in (await client.call_and_parse("up__told"))["told"] if request["method"] in methods]


async def refusal_error(client: WireClient, method: str, params: Json) -> Json:
    with pytest.raises(AnswerError) as error:
        await client.request(method, params)
    return error.value.error


@pytest.mark.requirement("tasks.announced")
@by_way
async def test_the_extension_is_announced_if_an_upstream_has_it(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with task_client(tmp_path, entries[way]) as client:
        # While the first attempt to connect lasts, the upstream may turn out to have the extension.
        assert client.handshake["capabilities"]["extensions"][EXTENSION] == {}
        await client.items_by_name("tools")
        discovery = await client.request("server/discover")
        assert discovery["capabilities"]["extensions"][EXTENSION] == {}
        assert "tasks" not in discovery["capabilities"]
    async with proxy_client(tmp_path, {"up": entries[way]}, "handshake") as client:
        assert EXTENSION not in client.handshake["capabilities"]["extensions"]


@pytest.mark.requirement("tasks.announced")
@pytest.mark.parametrize("era", ERAS)
async def test_the_extension_is_not_announced_if_no_upstream_has_it(era: str, remote: Any, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": remote(era)}, "modern", capabilities=TASK_CAPABILITIES) as client:
        await client.items_by_name("tools")
        assert EXTENSION not in (await client.request("server/discover"))["capabilities"]["extensions"]
        assert (await refusal_error(client, "tasks/get", {"taskId": "x"}))["code"] == -32602


@pytest.mark.requirement("tasks.ids")
@by_way
@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_a_task_is_read_updated_and_cancelled_under_an_id_of_this_server(
    transport: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with task_client(tmp_path, entries[way], transport=transport) as client:
        task_id = await begin_task(client)
        task = await client.request("tasks/get", {"taskId": task_id})
        assert (task["taskId"], task["status"], task["resultType"], task["ttlMs"]) == (
            task_id,
            "working",
            "complete",
            60_000,
        )
        assert "requestState" not in task
        for method in ("tasks/update", "tasks/cancel"):
            answer = await client.request(method, {"taskId": task_id, "inputResponses": {}})
            assert answer.keys() == {"resultType", "_meta"}
        assert (await client.request("tasks/get", {"taskId": task_id}))["status"] == "cancelled"
        requests = await received_requests(client, "tasks/get", "tasks/update", "tasks/cancel")
        assert [request["method"] for request in requests] == ["tasks/get", "tasks/update", "tasks/cancel", "tasks/get"]
        (upstream_id,) = {request["taskId"] for request in requests}
        assert upstream_id not in task_id
        assert {request["header"] for request in requests} == {upstream_id if way == "http" else None}
        assert all(request["knows"] for request in requests)


@pytest.mark.requirement("tasks.ids")
async def test_a_request_whose_header_does_not_have_the_tasks_id_is_refused(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with (
        network(tmp_path, {"up": entries["http"]}) as server,
        server.client("modern", "ada", capabilities=TASK_CAPABILITIES) as ada,
        httpx2.AsyncClient() as http,
    ):
        task_id = await begin_task(ada)
        message = modern(1, "tasks/get", {"taskId": task_id}, **TASK_CAPABILITIES)
        common_headers = {**modern_headers(message), "authorization": f"Bearer {TOKENS['ada']}"}
        for extra_headers in ({}, {"mcp-name": "other"}):
            answer = await http.post(f"{server.url}/mcp", json=message, headers={**common_headers, **extra_headers})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)
        answer = await http.post(f"{server.url}/mcp", json=message, headers={**common_headers, "mcp-name": task_id})
        assert answer.json()["result"]["taskId"] == task_id


@pytest.mark.requirement("tasks.unknown")
@by_way
async def test_an_id_of_another_client_is_refused_like_an_invented_one(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with (
        network(tmp_path, {"up": entries[way]}) as server,
        server.client("modern", "ada", capabilities=TASK_CAPABILITIES) as ada,
        server.client("modern", "bob", capabilities=TASK_CAPABILITIES) as bob,
    ):
        task_id = await begin_task(ada)
        await ada.request("tasks/get", {"taskId": task_id})
        upstream_id = (await received_requests(ada, "tasks/get"))[-1]["taskId"]
        forged_id = SealedStates("task", 60, lone_replica()).seal("task", "token:ada", {})
        errors = [
            await refusal_error(bob, method, {"taskId": unusable_id} if unusable_id else {})
            for unusable_id in (task_id, upstream_id, "made-up", forged_id, "")
            for method in ("tasks/get", "tasks/update", "tasks/cancel")
        ]
        assert [errors[0]] * len(errors) == errors
        assert errors[0]["code"] == -32602
        notifications = {"notifications": {"taskIds": [task_id]}}
        async with anyio.create_task_group() as listeners:
            listeners.start_soon(bob.request, "subscriptions/listen", notifications)
            (acknowledgement,) = await bob.wait_for_notifications(ACKNOWLEDGED)
            assert acknowledgement["notifications"] == {}
            listeners.cancel_scope.cancel()
        assert (await ada.request("tasks/get", {"taskId": task_id}))["status"] == "working"


@pytest.mark.requirement("tasks.unknown")
async def test_a_task_of_a_server_that_has_restarted_is_gone(tmp_path: Path) -> None:
    async with task_client(tmp_path, STDIO_ENTRY) as client:
        task_id = await begin_task(client)
        await client.call("up__leave")

        async def is_back() -> bool:
            result = await client.call("up__told")
            return not result.get("isError")

        with anyio.fail_after(100):
            while not await is_back():  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.05)
        error = await refusal_error(client, "tasks/get", {"taskId": task_id})
        assert error["code"] == -32602
        assert "restarted" in error["message"]
        assert await received_requests(client, "tasks/get") == []


@pytest.mark.requirement("tasks.unknown")
async def test_a_task_that_its_server_no_longer_knows_is_gone(entries: dict[str, Json], tmp_path: Path) -> None:
    async with task_client(tmp_path, entries["http"]) as client:
        task_id = await begin_task(client)
        await settle(client, "input_required", inputRequests={"one": FORM})
        await client.request("tasks/get", {"taskId": task_id})
        unknown_error = await refusal_error(client, "tasks/get", {"taskId": "made-up"})
        await client.call("up__forget", {"label": "one"})
        answers = {"taskId": task_id, "inputResponses": {"one": {"action": "decline"}}}
        assert await refusal_error(client, "tasks/update", answers) == unknown_error
        assert await refusal_error(client, "tasks/get", {"taskId": task_id}) == unknown_error
        assert await refusal_error(client, "tasks/cancel", {"taskId": task_id}) == unknown_error


@pytest.mark.requirement("tasks.unknown")
async def test_an_unknown_id_causes_no_warning_in_the_log(
    entries: dict[str, Json], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.store.sealing")
    async with task_client(tmp_path, entries["http"]) as client:
        await refusal_error(client, "tasks/get", {"taskId": "made-up"})
    assert [record for record in caplog.records if record.name == "server.store.sealing"] == []


@pytest.mark.requirement("tasks.undeclared")
@by_client
async def test_clients_without_tasks_cannot_use_the_methods_of_tasks(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, era) as client:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await refusal_error(client, method, {"taskId": "x", "inputResponses": {}})
            if era == "handshake":
                assert error["code"] == -32601
                continue
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"] == {"extensions": {EXTENSION: {}}}
        for method in ("tasks/result", "tasks/list"):
            assert (await refusal_error(client, method, {"taskId": "x"}))["code"] == -32601
        if era == "modern":
            error = await refusal_error(client, "subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
            assert error["code"] == -32021


@pytest.mark.requirement("tasks.result")
@by_way_each_way
async def test_the_result_of_a_task_is_treated_like_that_of_a_call(
    way: str, entries: dict[str, Json], remote: Any, tmp_path: Path
) -> None:
    servers = {"up": entries[way], "other": remote("modern")}
    async with proxy_client(tmp_path, servers, "modern", capabilities=TASK_CAPABILITIES) as client:
        await client.items_by_name("resources")
        completed_id, odd_id = await begin_task(client), await begin_task(client, "odd")
        link = {"type": "resource_link", "uri": "test://text", "name": "text"}
        await settle(client, "completed", result={"content": [link], "isError": True, "x-unknown": 1})
        task = await client.request("tasks/get", {"taskId": completed_id})
        assert task["result"] == {"content": [{**link, "uri": "up+test://text"}], "isError": True, "x-unknown": 1}
        await settle(client, "completed", "odd", result={"resultType": "task", "taskId": "x"})
        assert "no usable answer" in (await refusal_error(client, "tasks/get", {"taskId": odd_id}))["message"]
        failed_id = await begin_task(client, "failed")
        await settle(client, "failed", "failed", error={"code": -32050, "message": "why", "data": [1]})
        assert (await client.request("tasks/get", {"taskId": failed_id}))["error"] == {
            "code": -32050, "message": "why", "data": [1],
        }  # fmt: skip


@pytest.mark.requirement("tasks.questions")
@by_way_each_way
async def test_questions_of_a_task_name_their_server_and_each_is_answered_once(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with task_client(tmp_path, entries[way]) as client:
        task_id = await begin_task(client)
        bad_question = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
        questions = {"one": FORM, "coretools-mcp/confirm": FORM, "bad": bad_question}
        await settle(client, "input_required", inputRequests=questions)
        first = await client.request("tasks/get", {"taskId": task_id})
        again = await client.request("tasks/get", {"taskId": task_id})
        assert first["inputRequests"] == again["inputRequests"]
        assert set(first["inputRequests"]) == {"one", "of:up/coretools-mcp/confirm"}
        assert {question["params"]["message"] for question in first["inputRequests"].values()} == {"[up] Who?"}

        async def answer(**responses: Json) -> None:
            renamed_responses = {
                key.replace("own", "of:up/coretools-mcp/confirm"): response for key, response in responses.items()
            }
            await client.request("tasks/update", {"taskId": task_id, "inputResponses": renamed_responses})

        acceptance: Json = {"action": "accept", "content": {"name": "Ada"}}
        await answer(one=acceptance, bad=acceptance, unknown=acceptance)
        assert set((await client.request("tasks/get", {"taskId": task_id}))["inputRequests"]) == {
            "of:up/coretools-mcp/confirm"
        }
        await answer(one={"action": "decline"})
        await answer(own=acceptance)
        task = await client.request("tasks/get", {"taskId": task_id})
        assert text_or_json(task["result"]) == {
            "bad": {"action": "cancel"}, "one": acceptance, "coretools-mcp/confirm": acceptance,
        }  # fmt: skip
        responses = [request["inputResponses"] for request in await received_requests(client, "tasks/update")]
        assert responses == [
            {"bad": {"action": "cancel"}},
            {"one": acceptance},
            {},
            {"coretools-mcp/confirm": acceptance},
        ]


@pytest.mark.requirement("tasks.questions")
async def test_an_answered_question_is_not_shown_even_while_its_server_still_shows_it(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with task_client(tmp_path, entries["http"]) as client:
        task_id = await begin_task(client)
        await settle(client, "input_required", inputRequests={"one": FORM})
        await client.request("tasks/get", {"taskId": task_id})
        answers = {"taskId": task_id, "inputResponses": {"one": {"action": "decline"}}}
        await client.call("up__keep", {"label": "one"})
        await client.request("tasks/update", answers)
        task = await client.request("tasks/get", {"taskId": task_id})
        assert task["status"] == "working"
        assert "inputRequests" not in task


LOST: Json = {"code": -32602, "message": "not what was asked for"}


@pytest.mark.requirement("tasks.questions")
async def test_an_answer_that_did_not_arrive_can_be_sent_again(entries: dict[str, Json], tmp_path: Path) -> None:
    async with task_client(tmp_path, {**entries["http"], "timeout": 1_000}) as client:
        task_id = await begin_task(client)
        await settle(client, "input_required", inputRequests={"one": FORM})
        answers = {"taskId": task_id, "inputResponses": {"one": {"action": "decline"}}}
        await client.request("tasks/get", {"taskId": task_id})
        await client.call("up__trouble", {"label": "one", "method": "tasks/update", "errors": [None, LOST]})
        assert "neither a result" in (await refusal_error(client, "tasks/update", answers))["message"]
        assert "one" in (await client.request("tasks/get", {"taskId": task_id}))["inputRequests"]
        assert await refusal_error(client, "tasks/update", answers) == LOST
        await client.request("tasks/update", answers)
        assert (
            text_or_json((await client.request("tasks/get", {"taskId": task_id}))["result"])
            == answers["inputResponses"]
        )


@pytest.mark.requirement("tasks.questions")
async def test_an_automatic_refusal_that_did_not_arrive_is_sent_again(entries: dict[str, Json], tmp_path: Path) -> None:
    async with task_client(tmp_path, {**entries["http"], "timeout": 3_000}) as client:
        task_id = await begin_task(client)
        bad_question = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
        await settle(client, "input_required", inputRequests={"bad": bad_question})
        await client.call("up__trouble", {"label": "one", "method": "tasks/update", "errors": [None, LOST]})
        for _ in range(3):
            task = await client.request("tasks/get", {"taskId": task_id})
            assert (task["status"], "inputRequests" in task) == ("working", False)
        assert text_or_json((await client.request("tasks/get", {"taskId": task_id}))["result"]) == {
            "bad": {"action": "cancel"}
        }


@pytest.mark.requirement("tasks.questions")
async def test_the_response_that_creates_a_task_has_no_questions_and_no_result(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    fields: Json = {"status": "input_required", "inputRequests": {"one": FORM}, "result": {}, "error": {}}
    async with task_client(tmp_path, entries["http"]) as client:
        params = {"name": "up__manual", "arguments": {"fields": fields, "whole": True}}
        creation = await client.request("tools/call", params)
        assert creation["status"] == "input_required"
        assert not creation.keys() & {"inputRequests", "result", "error"}
        task = await client.request("tasks/get", {"taskId": creation["taskId"]})
        assert task["inputRequests"]["one"]["params"]["message"] == "[up] Who?"


@pytest.mark.requirement("tasks.questions")
async def test_only_a_task_with_the_status_input_required_has_questions(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    round_of_questions: Json = {"resultType": "input_required", "inputRequests": {"one": FORM}, "requestState": "x"}
    async with task_client(tmp_path, entries["http"]) as client:
        extra_fields: Json = {"x-reply": round_of_questions, "x-unknown": 1}
        for status in ("working", "failed", "cancelled"):
            task_id = await begin_task(client, status, **extra_fields)
            await settle(client, status, status, **round_of_questions)
            task = await client.request("tasks/get", {"taskId": task_id})
            assert (task["status"], task["resultType"], task["x-unknown"]) == (status, "complete", 1)
            assert not task.keys() & {"inputRequests", "requestState", "result"}
            error: Json = task.get("error", {})
            assert error.get("code") == (-32603 if status == "failed" else None)
        for method in ("tasks/update", "tasks/cancel"):
            reply = await client.request(method, {"taskId": task_id, "inputResponses": {}})
            assert not reply.keys() & round_of_questions.keys() - {"resultType"}
            assert reply["resultType"] == "complete"


@pytest.mark.requirement("tasks.questions")
async def test_if_a_task_has_many_questions_some_wait_until_others_are_answered(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with task_client(tmp_path, entries["http"]) as client:
        task_id = await begin_task(client)
        keys = [str(number) for number in range(100)]
        await settle(client, "input_required", inputRequests=dict.fromkeys(keys, FORM))
        answer: Json = {"action": "decline"}
        for expected_keys in (keys[:64], keys[64:]):
            task = await client.request("tasks/get", {"taskId": task_id})
            assert list(task["inputRequests"]) == expected_keys
            responses = dict.fromkeys(keys, answer)
            await client.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
        assert text_or_json((await client.request("tasks/get", {"taskId": task_id}))["result"]) == dict.fromkeys(
            keys, answer
        )


@pytest.mark.requirement("tasks.questions")
async def test_a_question_that_a_task_no_longer_asks_is_forgotten(entries: dict[str, Json], tmp_path: Path) -> None:
    async with task_client(tmp_path, entries["http"]) as client:
        task_id = await begin_task(client)
        await client.call("up__keep", {"label": "one"})
        for questions in ({"one": FORM}, {"two": FORM}, {"one": FORM}):
            await settle(client, "input_required", inputRequests=questions)
            task = await client.request("tasks/get", {"taskId": task_id})
            assert task["inputRequests"].keys() == questions.keys()
            responses = {key: {"action": "decline"} for key in ("one", "two")}
            await client.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
        answered_keys = [list(request["inputResponses"]) for request in await received_requests(client, "tasks/update")]
        assert answered_keys == [["one"], ["two"], ["one"]]


@pytest.mark.requirement("tasks.questions")
async def test_the_questions_of_one_client_do_not_displace_those_of_another(
    entries: dict[str, Json], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_tasks, "MAX_ASKING", 2)
    async with (
        network(tmp_path, {"up": entries["http"]}) as server,
        server.client("modern", "ada", capabilities=TASK_CAPABILITIES) as ada,
        server.client("modern", "bob", capabilities=TASK_CAPABILITIES) as bob,
    ):
        task_ids: dict[str, str] = {}
        for label, client in (("ada", ada), ("one", bob), ("two", bob)):
            task_ids[label] = await begin_task(client, label)
            await settle(client, "input_required", label, inputRequests={label: FORM})
            await client.request("tasks/get", {"taskId": task_ids[label]})
        for label, client in (("ada", ada), ("one", bob), ("two", bob)):
            responses = {label: {"action": "decline"}}
            await client.request("tasks/update", {"taskId": task_ids[label], "inputResponses": responses})
        answered_keys = [list(request["inputResponses"]) for request in await received_requests(ada, "tasks/update")]
        assert answered_keys == [["ada"], [], ["two"]]


@pytest.mark.requirement("tasks.stream")
@by_way
@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_a_stream_reports_the_tasks_that_it_asked_for(
    transport: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with task_client(tmp_path, entries[way], transport=transport) as client:
        task_id, other_id = await begin_task(client), await begin_task(client, "other")
        async with anyio.create_task_group() as listeners:
            notifications: Json = {"toolsListChanged": True, "taskIds": [task_id, task_id, "made-up", 7, {}]}
            listeners.start_soon(client.request, "subscriptions/listen", {"notifications": notifications})
            (acknowledgement,) = await client.wait_for_notifications(ACKNOWLEDGED)
            assert acknowledgement["notifications"] == {"toolsListChanged": True, "taskIds": [task_id]}
            await settle(client, "working", "other", statusMessage="unheard")
            await settle(client, "input_required", inputRequests={"one": FORM})
            (question_status,) = await client.wait_for_notifications(TASK_STATUS)
            assert (question_status["taskId"], question_status["status"]) == (task_id, "input_required")
            assert question_status["inputRequests"]["one"]["params"]["message"] == "[up] Who?"
            await client.request("tasks/update", {"taskId": task_id, "inputResponses": {"one": {"action": "decline"}}})
            final_status = (await client.wait_for_notifications(TASK_STATUS, 2))[-1]
            assert text_or_json(final_status["result"]) == {"one": {"action": "decline"}}
            subscription_id = acknowledgement["_meta"]["io.modelcontextprotocol/subscriptionId"]
            assert final_status["_meta"]["io.modelcontextprotocol/subscriptionId"] == subscription_id
            listeners.cancel_scope.cancel()
        await settle(client, "completed", "other", result={"content": []})
        assert (await client.request("tasks/get", {"taskId": other_id}))["status"] == "completed"
        assert len([params for method, params in client.messages if method == TASK_STATUS]) == 2


@pytest.mark.requirement("tasks.stream")
async def test_a_server_that_reads_nothing_delays_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_tasks, "ACKNOWLEDGE_SECONDS", 0.1)
    async with task_client(tmp_path, STDIO_ENTRY) as client, anyio.create_task_group() as tasks:
        task_id = await begin_task(client)
        await client.call("up__deafen")
        for _ in range(3):
            tasks.start_soon(client.call, "up__greet", {"much": "x" * 6_000_000})
        for _ in range(2):
            await client.items_by_name("tools")  # after two round trips, the calls above are being sent
        tasks.start_soon(client.request, "subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        (acknowledgement,) = await client.wait_for_notifications(ACKNOWLEDGED)
        assert acknowledgement["notifications"] == {}
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("tasks.stream")
async def test_a_server_that_does_not_accept_a_refusal_delays_no_notifications_of_others(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    servers = {"slow": entries["stdio"], "up": entries["http"]}
    async with (
        proxy_client(tmp_path, servers, "modern", capabilities=TASK_CAPABILITIES) as client,
        anyio.create_task_group() as listeners,
    ):
        task_id = await begin_task(client)
        slow_id = (await client.request("tools/call", {"name": "slow__manual", "arguments": {"label": "slow"}}))[
            "taskId"
        ]
        listeners.start_soon(client.request, "subscriptions/listen", {"notifications": {"taskIds": [slow_id, task_id]}})
        (acknowledgement,) = await client.wait_for_notifications(ACKNOWLEDGED)
        assert set(acknowledgement["notifications"]["taskIds"]) == {slow_id, task_id}
        await client.call("slow__trouble", {"label": "slow", "method": "tasks/update", "errors": [None]})
        bad_question = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
        await client.call(
            "slow__settle", {"label": "slow", "status": "input_required", "inputRequests": {"bad": bad_question}}
        )
        while "tasks/update" not in json.dumps(await client.call_and_parse("slow__told")):  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.02)
        await settle(client, "completed", result={"content": []})
        (status,) = await client.wait_for_notifications(TASK_STATUS)
        assert (status["taskId"], status["status"]) == (task_id, "completed")
        listeners.cancel_scope.cancel()


@pytest.mark.requirement("tasks.stream")
async def test_a_stream_ends_when_the_server_of_its_tasks_is_gone(tmp_path: Path) -> None:
    async with task_client(tmp_path, STDIO_ENTRY) as client:
        task_id = await begin_task(client)
        stream_results: list[Json] = []

        async def listen() -> None:
            stream_results.append(
                await client.request("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
            )

        async with anyio.create_task_group() as listeners:
            listeners.start_soon(listen)
            await client.wait_for_notifications(ACKNOWLEDGED)
            await client.call("up__leave")
        assert stream_results[0]["resultType"] == "complete"


@pytest.mark.requirement("tasks.stream")
async def test_task_notifications_reach_no_client_that_has_not_asked_for_them(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": STDIO_ENTRY}, "handshake") as client:
        for _ in range(3):
            await client.call("up__shout")
        assert TASK_STATUS not in [method for method, _ in client.messages]


async def follow(client: WireClient, label: str, results: list[Json], meta: Json | None = None, **fields: Any) -> None:
    """Call a tool that creates a task whether or not its client supports tasks, and append its result or error."""
    arguments: Json = {"label": label, "anyway": True, "fields": {**QUICK, **fields}}
    try:
        results.append(await client.call("up__manual", arguments, meta))
    except AnswerError as error:
        results.append(error.error)


async def wait_for_polls(client: WireClient, count: int = 1) -> None:
    with anyio.fail_after(100):
        while len(await received_requests(client, "tasks/get")) < count:  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.02)


async def wait_for_task(client: WireClient, label: str) -> None:
    with anyio.fail_after(100):
        while label not in (await client.call_and_parse("up__told"))["labels"]:  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.02)


@pytest.mark.requirement("tasks.followed")
@by_way
@by_client
async def test_a_client_without_tasks_gets_the_result(
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
            await wait_for_polls(client)
            for text in ("half", "more"):
                await settle(client, "working", statusMessage=text)
                await until(lambda text=text: text in [params.get("message") for _, params in client.messages])
            await settle(client, "completed", result=result)
        assert {field: results[0][field] for field in result} == result
        assert "taskId" not in results[0]
        assert ("resultType" in results[0]) == (era == "modern")
        progress = [(params["progress"], params["message"]) for method, params in client.messages if method == PROGRESS]
        assert progress == [(1, "half"), (2, "more")]
        assert await received_requests(client, "tasks/cancel") == []


@pytest.mark.requirement("tasks.followed")
@by_client
async def test_a_task_that_fails_or_is_cancelled_or_lost_fails_the_call(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, era) as client:
        results: list[Json] = []

        async def end(label: str, tool: str, **arguments: Any) -> None:
            async with anyio.create_task_group() as calls:
                calls.start_soon(follow, client, label, results)
                poll_count = len(await received_requests(client, "tasks/get"))
                await wait_for_polls(client, poll_count + 1)
                await client.call(f"up__{tool}", {"label": label, **arguments})

        await end("failed", "settle", status="failed", error={"code": -32050, "message": "why", "data": 1})
        await end("cancelled", "settle", status="cancelled")
        await end("lost", "forget")
        await end("odd", "settle", status="odd")
        assert results[0] == {"code": -32050, "message": "why", "data": 1}
        for result, reason in zip(
            results[1:], ("cancelled the task", "no longer knows the task", "not a task"), strict=True
        ):
            assert result["isError"]
            assert reason in result["content"][0]["text"]


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
            await wait_for_polls(client)
            bad_question = {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}}
            await settle(client, "input_required", inputRequests={"one": FORM, "two": FORM, "bad": bad_question})
        acceptance = {"action": "accept", "content": {"name": "Ada"}}
        assert text_or_json(results[0]) == {"one": acceptance, "two": acceptance, "bad": {"action": "cancel"}}
        assert [params["message"] for _, params in client.questions] == ["[up] Who?", "[up] Who?"]


@pytest.mark.requirement("tasks.followed")
@by_client
async def test_the_result_of_a_followed_task_that_is_created_complete_is_fetched(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    error = {"code": -32050, "message": "why", "data": 1}
    async with proxy_client(tmp_path, {"up": entries["http"]}, era) as client:
        results: list[Json] = []
        await follow(client, "done", results, status="completed", result={"content": [{"type": "text", "text": "yes"}]})
        await follow(client, "failed", results, status="failed", error=error)
        assert text_or_json(results[0]) == "yes"
        assert results[1] == error
        assert len(await received_requests(client, "tasks/get")) == 2


@pytest.mark.requirement("tasks.followed")
async def test_the_answer_to_a_followed_task_counts_once(entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "modern") as client:
        results: list[Json] = []
        params: Json = {"name": "up__manual", "arguments": {"label": "one", "anyway": True, "fields": QUICK}}

        async def call() -> None:
            results.append(await client.request("tools/call", params))

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await wait_for_polls(client)
            await settle(client, "input_required", inputRequests={"one": FORM})
        client.answer = accept_forms()
        answers = await client.answers_to(results[0])
        assert "content" in await client.request("tools/call", {**params, **answers})
        assert (await refusal_error(client, "tools/call", {**params, **answers}))["code"] == -32602
        assert len(await received_requests(client, "tasks/update")) == 1


@pytest.mark.requirement("tasks.followed.ends")
@by_way
@by_client
async def test_a_followed_task_is_cancelled_with_its_call(
    era: str, way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries[way]}, era) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(follow, client, "one", list[Json]())
            await wait_for_polls(client)
            calls.cancel_scope.cancel()
        with anyio.fail_after(100):
            while not await received_requests(client, "tasks/cancel"):  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.02)


@pytest.mark.requirement("tasks.followed.ends")
@by_client
async def test_a_followed_task_without_progress_is_cancelled_after_the_time_limit_of_the_call(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    entry = {**entries["http"], "timeout": 2_000}
    async with proxy_client(tmp_path, {"up": entry}, era) as client:
        await client.items_by_name("tools")
        results: list[Json] = []
        # The task wants to be polled once an hour; the time limit of the call ends sooner.
        await follow(client, "one", results, pollIntervalMs=3_600_000)
        assert results[0]["isError"]
        assert "neither a result nor progress" in results[0]["content"][0]["text"]
        assert len(await received_requests(client, "tasks/cancel")) == 1


@pytest.mark.requirement("tasks.followed.ends")
async def test_a_followed_task_whose_question_nobody_answers_is_cancelled(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    settings: Json = {"confirmation": {"timeout": 1_000}}
    async with proxy_client(tmp_path, {"up": entries["http"]}, "modern", settings=settings) as client:
        params: Json = {"name": "up__manual", "arguments": {"label": "one", "anyway": True, "fields": QUICK}}
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.request, "tools/call", params)
            await wait_for_polls(client)
            await settle(client, "input_required", inputRequests={"one": FORM})
        with anyio.fail_after(100):
            while not await received_requests(client, "tasks/cancel"):  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.02)


@pytest.mark.requirement("tasks.followed.ends")
async def test_a_followed_task_of_a_lost_server_does_not_count_as_a_concurrent_call(tmp_path: Path) -> None:
    async with proxy_client(
        tmp_path, {"up": {**STDIO_ENTRY, "maxConcurrent": 1, "timeout": 3_000}}, "modern"
    ) as client:
        pid = (await client.call_and_parse("up__told"))["pid"]
        params: Json = {"name": "up__confirm_delete", "arguments": {"anyway": True, "fields": QUICK}}
        assert (await client.request("tools/call", params))["resultType"] == "input_required"
        os.kill(pid, signal.SIGKILL)
        while (result := await client.call("up__greet", {"name": "Ada"})).get("isError"):
            assert "is busy" not in result["content"][0]["text"]
            await anyio.sleep(0.05)
        assert text_or_json(result) == "Hello, Ada!"


@pytest.mark.requirement("tasks.followed.pace")
async def test_a_followed_task_is_polled_no_more_often_than_it_asks_for(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "handshake") as client:
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            calls.start_soon(partial(follow, client, "slow", results, pollIntervalMs=3_600_000))
            calls.start_soon(follow, client, "quick", results)
            await wait_for_polls(client, 5)
            await settle(client, "completed", "quick", result={"content": []})
            await until(lambda: results)
            (quick_id,) = {request["taskId"] for request in await received_requests(client, "tasks/get")}
            slow_id = (await client.call_and_parse("up__told"))["labels"]["slow"]
            assert slow_id != quick_id
            calls.cancel_scope.cancel()


@pytest.mark.requirement("tasks.required")
@by_way
async def test_a_tool_that_requires_a_task_works_for_clients_of_the_handshake_era(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries[way]}, "handshake") as client:
        result = await client.call("up__failing_job")
        assert (result["content"][0]["text"], result["isError"]) == ("it failed", True)
        with pytest.raises(AnswerError) as error_info:
            await client.call("up__protocol_error_job")
        assert error_info.value.error == {"code": -32603, "message": "it broke"}
        calls = [
            request["knows"]
            for request in await received_requests(client, "tools/call")
            if request["name"] == "failing_job"
        ]
        assert calls == [False, True]
        assert text_or_json(await client.call("up__slow_compute")) == "computed"


@pytest.mark.requirement("tasks.required")
async def test_a_client_of_2026_is_told_what_to_declare(entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "modern") as client:
        error = await refusal_error(client, "tools/call", {"name": "up__failing_job", "arguments": {}})
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == {"extensions": {EXTENSION: {}}}


ODD_IDS = (7, "", "x" * 20_000)
ODD_TIMES = (10**400, -1, 0.5, "soon", None, True)


@pytest.mark.requirement("tasks.odd")
async def test_a_task_with_an_invalid_id_is_refused_and_invalid_times_are_passed_on(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    arguments: Json = {"label": "one", "anyway": True}
    async with task_client(tmp_path, entries["http"]) as client:
        for odd_value in ODD_IDS:
            result = await client.call("up__manual", {**arguments, "fields": {"taskId": odd_value}})
            assert "no usable answer" in result["content"][0]["text"], odd_value
        for odd_value in ODD_TIMES:
            task_id = await begin_task(client, pollIntervalMs=odd_value, ttlMs=odd_value)
            assert (await client.request("tasks/get", {"taskId": task_id}))["pollIntervalMs"] == odd_value
        await client.items_by_name("resources")
        error = await refusal_error(client, "resources/read", {"uri": "test://text"})
        assert "its result has a type that" in error["message"]
    entry = {**STDIO_ENTRY, "args": forked([PEER, "old"])}
    async with task_client(tmp_path, entry) as client:
        assert "its result has a type that" in (await client.call("up__manual", arguments))["content"][0]["text"]
        assert EXTENSION not in (await client.request("server/discover"))["capabilities"]["extensions"]


@pytest.mark.requirement("tasks.odd")
async def test_a_followed_task_with_odd_times_is_followed(entries: dict[str, Json], tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": entries["http"]}, "handshake") as client:
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            for number, odd_time in enumerate(ODD_TIMES):
                calls.start_soon(partial(follow, client, str(number), results, pollIntervalMs=odd_time))
            for number in range(len(ODD_TIMES)):
                await wait_for_task(client, str(number))
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

    arguments: Json = {"label": "one", "fields": QUICK}
    async with task_client(tmp_path, entry, answer=answer) as client:
        assert (await client.call("up__manual", arguments))["isError"]
        result = await client.call("up__manual", arguments)
        assert result["resultType"] == "task"
        task_id = result["taskId"]
        assert (await client.request("tasks/get", {"taskId": task_id}))["status"] == "working"
    settings: Json = {"permissions": {"deny": ["mcp__up__manual"]}}
    async with task_client(tmp_path, entries["http"], settings=settings) as client:
        assert (await client.call("up__manual", arguments))["isError"]
        assert [request["name"] for request in await received_requests(client, "tools/call")] == ["manual"]


@pytest.mark.requirement("tasks.chain")
@by_way
async def test_tasks_cross_two_proxies(way: str, entries: dict[str, Json], tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    config = write_config(inner, {"tools": {"builtIn": False}, "mcpServers": {"up": entries[way]}})
    command = [sys.executable, *forked(server_arguments(None, config, "--transport", "http", "--port", "0"))]
    with background_server(command, SERVING_PATTERN) as url:
        inner_entry: Json = {"httpUrl": f"{url}/mcp", "type": "http", "trust": True, "prefix": "none"}
        async with task_client(tmp_path, inner_entry, answer=accept_forms()) as client:
            await client.items_by_name("tools")
            task_id = await begin_task(client)
            async with anyio.create_task_group() as listeners:
                notifications = {"notifications": {"taskIds": [task_id]}}
                listeners.start_soon(client.request, "subscriptions/listen", notifications)
                (acknowledgement,) = await client.wait_for_notifications(ACKNOWLEDGED)
                assert acknowledgement["notifications"] == {"taskIds": [task_id]}
                await settle(client, "input_required", inputRequests={"one": FORM})
                (status,) = await client.wait_for_notifications(TASK_STATUS)
                assert status["inputRequests"]["one"]["params"]["message"] == "[up] [up] Who?"
                listeners.cancel_scope.cancel()
            answers = {"taskId": task_id, "inputResponses": {"one": {"action": "decline"}}}
            await client.request("tasks/update", answers)
            assert text_or_json((await client.request("tasks/get", {"taskId": task_id}))["result"]) == {
                "one": {"action": "decline"}
            }
            assert (await refusal_error(client, "tasks/get", {"taskId": "made-up"}))["code"] == -32602
        async with proxy_client(tmp_path, {"up": inner_entry}, "handshake", capabilities={}) as client:
            await client.items_by_name("tools")
            assert (await client.call("up__failing_job"))["isError"]


@pytest.mark.requirement("tasks.old")
async def test_tasks_of_2025_are_not_passed_on(entries: dict[str, Json], tmp_path: Path) -> None:
    async with task_client(tmp_path, entries["http"]) as client:
        tools = await client.items_by_name("tools")
        assert "execution" not in json.dumps(tools)
        params: Json = {"name": "up__greet", "arguments": {"name": "Ada"}, "task": {"ttl": 60_000}}
        assert text_or_json(await client.request("tools/call", params)) == "Hello, Ada!"
        (call,) = await received_requests(client, "tools/call")
        assert "task" not in call


@pytest.mark.requirement("tasks.kept")
async def test_a_session_is_not_idle_while_one_of_its_tasks_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientSessions, "idle_seconds", 0.2)
    async with (
        network(tmp_path, {"up": STDIO_ENTRY}) as server,
        server.client("modern", "ada", capabilities=TASK_CAPABILITIES) as ada,
        server.client("modern", "bob", capabilities=TASK_CAPABILITIES) as bob,
    ):
        task_id = await begin_task(ada)
        brief_id = await begin_task(bob, ttlMs=1)
        await until(lambda: server.sessions() == 1)
        assert (await ada.request("tasks/get", {"taskId": task_id}))["status"] == "working"
        assert (await refusal_error(bob, "tasks/get", {"taskId": brief_id}))["code"] == -32602
        assert upstream_tasks.LONGEST_KEPT_SECONDS >= 60


@pytest.mark.requirement("tasks.kept")
async def test_a_session_is_not_idle_while_a_call_waits_for_one_of_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientSessions, "idle_seconds", 0.2)
    async with (
        network(tmp_path, {"up": STDIO_ENTRY}) as server,
        server.client("modern", "ada") as ada,
        server.client("modern", "bob") as bob,
    ):
        results: list[Json] = []
        async with anyio.create_task_group() as calls:
            calls.start_soon(follow, ada, "one", results)
            await wait_for_task(ada, "one")
            await bob.call("up__greet", {"name": "Bob"})
            await until(lambda: server.sessions() == 1)
            await settle(ada, "completed", result={"content": [{"type": "text", "text": "done"}]})
        assert text_or_json(results[0]) == "done"


@pytest.mark.requirement("results.large")
@by_way_each_way
async def test_a_long_result_of_a_task_is_shortened_and_saved_like_that_of_a_call(
    way: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    text = "".join(f"line {number}\n" for number in range(1_000))
    async with task_client(tmp_path, entries[way], settings={"limits": {"resultChars": 500}}) as client:
        name = await begin_task(client)
        await settle(client, "completed", result={"content": [{"type": "text", "text": text}]})
        note, link = (await client.request("tasks/get", {"taskId": name}))["result"]["content"]
        assert note["text"].startswith("Note: the result of up__manual is ")
        assert "line 999" not in note["text"]
        (saved,) = (await client.request("resources/read", {"uri": link["uri"]}))["contents"]
        assert saved["text"] == text
        assert (await client.request("tasks/get", {"taskId": name}))["result"]["content"] == [note, link]


@pytest.mark.requirement("tasks.followed")
@by_client
async def test_a_task_that_failed_without_a_valid_error_gets_one_with_a_message(
    era: str, entries: dict[str, Json], tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": entries["stdio"]}, era, capabilities=ALL) as client:
        fields = {**QUICK, "status": "failed", "error": {"code": "odd"}}
        with pytest.raises(AnswerError) as refusal:
            await client.call("up__manual", {"label": "one", "fields": fields, "anyway": True})
        assert refusal.value.error["message"] == "The task failed, but the server sent no valid error."


@pytest.mark.requirement("relay.addresses")
async def test_links_in_the_error_of_a_task_are_shown_as_in_that_of_a_call(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    link = {"message": "Look", "url": "https://example.org", "elicitationId": "e1"}
    data = {"elicitations": [link, {**link, "url": "file:///etc/passwd"}]}
    error = {"code": -32042, "message": "First log in", "data": data}
    async with task_client(tmp_path, entries["stdio"]) as client:
        name = await begin_task(client)
        await settle(client, "failed", error=error)
        (shown_link,) = (await client.request("tasks/get", {"taskId": name}))["error"]["data"]["elicitations"]
        assert shown_link["message"].startswith("[up] Look\n")
        assert "leads to the host example.org." in shown_link["message"]


@pytest.mark.requirement("permissions.deny-server")
async def test_a_stream_no_longer_reports_the_tasks_of_a_server_that_is_denied(
    entries: dict[str, Json], tmp_path: Path
) -> None:
    settings: Json = {"tools": {"builtIn": False}, "mcpServers": {"up": entries["http"], "other": entries["http"]}}
    app = app_of(config := write_config(tmp_path, settings))
    async with (
        app.running(),
        client_on(in_process(app), "modern", TASK_CAPABILITIES) as client,
        anyio.create_task_group() as tasks,
    ):
        names: list[str] = []
        for alias in ("up", "other"):
            arguments = call_params(f"{alias}__manual", {"label": alias, "fields": QUICK})
            names.append((await client.request("tools/call", arguments))["taskId"])
        tasks.start_soon(client.request, "subscriptions/listen", {"notifications": {"taskIds": names}})
        await client.wait_for_notifications(ACKNOWLEDGED)
        for count, deny in ((2, list[str]()), (3, ["mcp__up"])):
            write_config(tmp_path, {**settings, "permissions": {"deny": deny}})
            await app.live.apply(load_settings([str(config)], {}, {}), tasks)
            for label in ("up", "other"):
                await client.call("other__settle", {"label": label, "status": "working", "statusMessage": str(count)})
            await client.wait_for_notifications(TASK_STATUS, count)
        reported_names = [params["taskId"] for method, params in client.messages if method == TASK_STATUS]
        assert (reported_names.count(names[0]), reported_names[-1]) == (1, names[1])
        tasks.cancel_scope.cancel()
