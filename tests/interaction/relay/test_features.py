"""Prompts, resources, completions and changes of lists are relayed like tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.interaction.relay.clients import AnswerError, Json, proxy_client, stdio_entry
from tests.interaction.relay.conftest import Entry
from tests.interaction.relay.eras import by_era, by_eras
from tests.interaction.relay.watching import UPDATED, start_listening
from tests.peers.asking_upstream import CONTENT, PIXEL, UNKNOWN
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

ORIGIN = {"coretools-mcp/upstream": {"server": "up"}}


@pytest.mark.requirement("relay.features")
@by_eras
async def test_prompts_resources_and_completions_cross_unchanged(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    async with proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client:
        prompts = await client.items_by_name("prompts")
        assert prompts["up__greet"] == {
            "name": "up__greet",
            "arguments": [{"name": "who", "x-unknown": 1}],
            **UNKNOWN,
            "_meta": ORIGIN,
        }
        assert len(prompts) == 10, "the prompts of all pages"
        prompt = await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "Ada"}})
        content = {"type": "text", "text": "Greet Ada", **UNKNOWN}
        assert prompt["messages"] == [{"role": "user", "content": content, **UNKNOWN}]
        assert prompt["x-unknown"] == UNKNOWN["x-unknown"]

        resources = await client.items_by_name("resources")
        assert resources["test://text"] == {"uri": "test://text", "name": "text", **UNKNOWN, "_meta": ORIGIN}
        assert len(resources) == 11
        assert list(await client.items_by_name("resourceTemplates")) == ["test://item/{id}"]
        result = await client.request("resources/read", {"uri": "test://item/7"})
        assert result["contents"] == [{"uri": "test://item/7", "text": "text of test://item/7", **UNKNOWN}]
        assert (result["x-unknown"], result["_meta"]["kept"]) == (UNKNOWN["x-unknown"], 1)
        (binary,) = (await client.request("resources/read", {"uri": "test://binary"}))["contents"]
        assert binary["blob"] == PIXEL

        argument, context = {"name": "who", "value": "A"}, {"arguments": {"x": "y"}}
        by_prompt = {"type": "ref/prompt", "name": "up__greet", "x-unknown": 1}
        by_template = {"type": "ref/resource", "uri": "test://item/{id}"}
        for ref, own in ((by_prompt, {**by_prompt, "name": "greet"}), (by_template, by_template)):
            params = {"ref": ref, "argument": argument, "context": context}
            completion = (await client.request("completion/complete", params))["completion"]
            assert [json.loads(value) for value in completion["values"]] == [own, argument, context]
            assert (completion["total"], completion["hasMore"], completion["x-unknown"]) == (9, True, 1)


@pytest.mark.requirement("relay.features")
async def test_resources_of_two_upstreams_under_one_uri_are_told_apart(remote: Entry, tmp_path: Path) -> None:
    servers = {"a": remote("handshake"), "b": remote("modern")}
    async with proxy_client(tmp_path, servers, "modern") as client:
        resources = await client.items_by_name("resources")
        assert {"a+test://text", "b+test://text"} <= set(resources)
        result = await client.request("resources/read", {"uri": "b+test://text"})
        assert result["contents"][0]["uri"] == "b+test://text"
        with pytest.raises(AnswerError):
            await client.request("resources/read", {"uri": "nobody://has/this"})


def uris_of(content: list[Json]) -> list[str]:
    """Return the URIs in blocks of content."""
    return [block.get("resource", block)["uri"] for block in content if block["type"].startswith("resource")]


@pytest.mark.requirement("relay.links")
@by_eras
async def test_links_in_results_lead_to_the_upstream_that_sent_them(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    uris = ["test://text", "test://text", "test://binary"]
    assert uris_of(CONTENT) == uris
    servers = {"a": remote(upstream_era), "b": remote(upstream_era)}
    async with proxy_client(tmp_path, servers, client_era) as client:
        await client.items_by_name("resources")
        content = (await client.call("b__content", {}))["content"]
        assert uris_of(content) == [f"b+{uri}" for uri in uris]
        assert json.loads(json.dumps(content).replace("b+test:", "test:")) == CONTENT
        prompt = await client.request("prompts/get", {"name": "b__greet", "arguments": {"who": "link"}})
        assert [message["content"] for message in prompt["messages"]] == content
        assert prompt["messages"][0]["x-unknown"] == UNKNOWN["x-unknown"]
        result = await client.request("resources/read", {"uri": uris_of(content)[0]})
        (contents,) = result["contents"]
        assert (contents["uri"], contents["text"]) == (uris_of(content)[0], "text of test://text")


@pytest.mark.requirement("relay.features")
@by_eras
async def test_many_changes_of_a_list_cause_few_notifications(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    notifications = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    async with (
        proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client,
        anyio.create_task_group() as tasks,
    ):
        assert "up__added_0" not in await client.items_by_name("tools")
        await start_listening(client, tasks, notifications)
        client.messages.clear()
        await client.call("up__change", {"times": 20})
        for kind, count in (("tools", 16), ("prompts", 11), ("resources", 12)):
            wait_count = 0
            while len(await client.items_by_name(kind)) != count:
                wait_count += 1
                await client.wait_for_notifications(f"notifications/{kind}/list_changed", wait_count)
        methods = [method for method, _ in client.messages if method.endswith("list_changed")]
        assert len(methods) <= 12, "the upstream has announced sixty changes"
        tasks.cancel_scope.cancel()


async def hold_open(*, task_status: anyio.abc.TaskStatus[anyio.abc.TaskGroup]) -> None:
    """Start a task group that can be cancelled separately."""
    async with anyio.create_task_group() as tasks:
        task_status.started(tasks)
        await anyio.sleep_forever()


@pytest.mark.requirement("relay.subscriptions")
@by_eras
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_updates_of_a_watched_resource_arrive_until_it_is_no_longer_watched(
    client_era: str, upstream_era: str, transport: str, remote: Entry, tmp_path: Path
) -> None:
    entry = stdio_entry(upstream_era) if transport == "stdio" else remote(upstream_era)
    async with proxy_client(tmp_path, {"up": entry}, client_era) as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        listeners = await tasks.start(hold_open)
        if client.is_modern:
            await start_listening(client, listeners, {"resourceSubscriptions": ["test://text", "test://item/5"]})
        else:
            for uri in ("test://text", "test://item/5"):
                assert await client.request("resources/subscribe", {"uri": uri}) == {}
        for _ in range(2):
            with anyio.fail_after(CEILING):
                while UPDATED not in [method for method, _ in client.messages]:
                    await client.call_and_parse("up__touch", {"uri": "test://text"})
                    await anyio.sleep(0.02)
            first = (await client.wait_for_notifications(UPDATED))[0]
            assert first["uri"] == "test://text"
            await client.call_and_parse("up__whoami")
            client.messages.clear()
        if client.is_modern:
            listeners.cancel_scope.cancel()
        else:
            assert await client.request("resources/unsubscribe", {"uri": "test://text"}) == {}
        watchers = None
        while upstream_era == "handshake" and watchers != 0:
            watchers = await client.call_and_parse("up__touch", {"uri": "test://text"})
            await anyio.sleep(0.02)
        client.messages.clear()
        await client.call_and_parse("up__touch", {"uri": "test://text"})
        await client.call_and_parse("up__whoami")
        if upstream_era == "handshake":
            assert UPDATED not in [method for method, _ in client.messages]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.status")
@by_era
async def test_a_resource_shows_the_status_of_every_server(era: str, remote: Entry, tmp_path: Path) -> None:
    servers: Json = {
        "good": remote(era),
        "bare": remote(era, prefix="none", rename={"echo": "glob"}),
        "bad": {"command": "/nowhere/to-be-found"},
    }
    async with proxy_client(tmp_path, servers, era, settings={"tools": {"builtIn": True}}) as client:
        assert "coretools://upstreams" in await client.items_by_name("resources")
        result = await client.request("resources/read", {"uri": "coretools://upstreams"})
        (content,) = result["contents"]
        assert (content["uri"], content["mimeType"]) == ("coretools://upstreams", "application/json")
        reports: dict[str, Any] = {report["alias"]: report for report in json.loads(content["text"])["upstreams"]}
    good, bad = reports["good"], reports["bad"]
    assert (good["state"], good["transport"], good["instructions"]) == ("connected", "http", "Ask away.")
    assert good["protocolVersion"] == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert (good["serverInfo"]["name"], good["tools"], good["prompts"], good["resources"]) == ("asking", 15, 10, 11)
    assert good["connectMs"] > 0
    assert (bad["state"], bad["problem"]) == ("failed", "its command was not found")
    (hidden_tool,) = reports["bare"]["hiddenTools"]
    assert (hidden_tool["tool"], hidden_tool["name"], hidden_tool["holder"]) == ("echo", "glob", "this server itself")


@pytest.mark.requirement("proxy.status")
async def test_without_built_in_tools_or_upstreams_there_is_no_status_resource(remote: Entry, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": remote("handshake")}, "handshake") as client:
        assert "coretools://upstreams" not in await client.items_by_name("resources")
    async with proxy_client(tmp_path, {}, "handshake", settings={"tools": {"builtIn": True}}) as client:
        assert "coretools://upstreams" not in await client.items_by_name("resources")
