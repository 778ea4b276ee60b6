"""Prompts, resources, completion, changes of lists: everything beside tools crosses too."""

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
async def test_prompts_resources_and_completion_cross_whole(
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
        assert len(prompts) == 10, "all pages"
        prompt = await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "Ada"}})
        content = {"type": "text", "text": "Greet Ada", **UNKNOWN}
        assert prompt["messages"] == [{"role": "user", "content": content, **UNKNOWN}]
        assert prompt["x-unknown"] == UNKNOWN["x-unknown"]

        resources = await client.items_by_name("resources")
        assert resources["test://text"] == {"uri": "test://text", "name": "text", **UNKNOWN, "_meta": ORIGIN}
        assert len(resources) == 11
        assert list(await client.items_by_name("resourceTemplates")) == ["test://item/{id}"]
        read = await client.request("resources/read", {"uri": "test://item/7"})
        assert read["contents"] == [{"uri": "test://item/7", "text": "text of test://item/7", **UNKNOWN}]
        assert (read["x-unknown"], read["_meta"]["kept"]) == (UNKNOWN["x-unknown"], 1)
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
async def test_what_two_upstreams_have_under_one_uri_is_told_apart(remote: Entry, tmp_path: Path) -> None:
    servers = {"a": remote("handshake"), "b": remote("modern")}
    async with proxy_client(tmp_path, servers, "modern") as client:
        resources = await client.items_by_name("resources")
        assert {"a+test://text", "b+test://text"} <= set(resources)
        read = await client.request("resources/read", {"uri": "b+test://text"})
        assert read["contents"][0]["uri"] == "b+test://text"
        with pytest.raises(AnswerError):
            await client.request("resources/read", {"uri": "nobody://has/this"})


def linked(content: list[Json]) -> list[str]:
    """The URIs in blocks of content."""
    return [block.get("resource", block)["uri"] for block in content if block["type"].startswith("resource")]


@pytest.mark.requirement("relay.links")
@by_eras
async def test_links_in_results_lead_to_the_upstream_that_gave_them(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    given = ["test://text", "test://text", "test://binary"]
    assert linked(CONTENT) == given
    servers = {"a": remote(upstream_era), "b": remote(upstream_era)}
    async with proxy_client(tmp_path, servers, client_era) as client:
        await client.items_by_name("resources")
        content = (await client.call("b__content", {}))["content"]
        assert linked(content) == [f"b+{uri}" for uri in given]
        assert json.loads(json.dumps(content).replace("b+test:", "test:")) == CONTENT
        prompt = await client.request("prompts/get", {"name": "b__greet", "arguments": {"who": "link"}})
        assert [message["content"] for message in prompt["messages"]] == content
        assert prompt["messages"][0]["x-unknown"] == UNKNOWN["x-unknown"]
        read = await client.request("resources/read", {"uri": linked(content)[0]})
        (contents,) = read["contents"]
        assert (contents["uri"], contents["text"]) == (linked(content)[0], "text of test://text")


@pytest.mark.requirement("relay.features")
@by_eras
async def test_changed_lists_are_told_once_for_many_changes(
    client_era: str, upstream_era: str, remote: Entry, tmp_path: Path
) -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    async with (
        proxy_client(tmp_path, {"up": remote(upstream_era)}, client_era) as client,
        anyio.create_task_group() as tasks,
    ):
        assert "up__added_0" not in await client.items_by_name("tools")
        await start_listening(client, tasks, wanted)
        client.messages.clear()
        await client.call("up__change", {"times": 20})
        for kind, count in (("tools", 16), ("prompts", 11), ("resources", 12)):
            heard = 0
            while len(await client.items_by_name(kind)) != count:
                heard += 1
                await client.wait_for_notifications(f"notifications/{kind}/list_changed", heard)
        told = [method for method, _ in client.messages if method.endswith("list_changed")]
        assert len(told) <= 12, "sixty changes were said"
        tasks.cancel_scope.cancel()


async def held_open(*, task_status: anyio.abc.TaskStatus[anyio.abc.TaskGroup]) -> None:
    """A group of tasks that can be cancelled alone."""
    async with anyio.create_task_group() as tasks:
        task_status.started(tasks)
        await anyio.sleep_forever()


@pytest.mark.requirement("relay.subscriptions")
@by_eras
@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_a_watched_resource_is_told_of_until_it_is_watched_no_longer(
    client_era: str, upstream_era: str, way: str, remote: Entry, tmp_path: Path
) -> None:
    entry = stdio_entry(upstream_era) if way == "stdio" else remote(upstream_era)
    async with proxy_client(tmp_path, {"up": entry}, client_era) as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        watching = await tasks.start(held_open)
        if client.is_modern:
            await start_listening(client, watching, {"resourceSubscriptions": ["test://text", "test://item/5"]})
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
            watching.cancel_scope.cancel()
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
async def test_a_resource_tells_how_every_server_stands(era: str, remote: Entry, tmp_path: Path) -> None:
    servers: Json = {
        "good": remote(era),
        "bare": remote(era, prefix="none", rename={"echo": "glob"}),
        "bad": {"command": "/nowhere/to-be-found"},
    }
    async with proxy_client(tmp_path, servers, era, settings={"tools": {"builtIn": True}}) as client:
        assert "coretools://upstreams" in await client.items_by_name("resources")
        read = await client.request("resources/read", {"uri": "coretools://upstreams"})
        (content,) = read["contents"]
        assert (content["uri"], content["mimeType"]) == ("coretools://upstreams", "application/json")
        told: dict[str, Any] = {each["alias"]: each for each in json.loads(content["text"])["upstreams"]}
    good, bad = told["good"], told["bad"]
    assert (good["state"], good["transport"], good["instructions"]) == ("connected", "http", "Ask away.")
    assert good["protocolVersion"] == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert (good["serverInfo"]["name"], good["tools"], good["prompts"], good["resources"]) == ("asking", 15, 10, 11)
    assert good["connectMs"] > 0
    assert (bad["state"], bad["problem"]) == ("failed", "its command was not found")
    (hidden,) = told["bare"]["hiddenTools"]
    assert (hidden["tool"], hidden["name"], hidden["holder"]) == ("echo", "glob", "this server itself")


@pytest.mark.requirement("proxy.status")
async def test_without_built_in_tools_there_is_no_resource_of_ours(remote: Entry, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"up": remote("handshake")}, "handshake") as client:
        assert "coretools://upstreams" not in await client.items_by_name("resources")
    async with proxy_client(tmp_path, {}, "handshake", settings={"tools": {"builtIn": True}}) as client:
        assert "coretools://upstreams" not in await client.items_by_name("resources")
