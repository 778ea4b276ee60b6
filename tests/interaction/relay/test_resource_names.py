"""Whose a resource is: nobody takes over what is another one's, by what it lists or when."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.interaction.relay.clients import (
    AnswerError,
    Json,
    WireClient,
    listing_entry,
    named_resources,
    proxy_client,
    stdio_entry,
)
from tests.interaction.relay.eras import by_era
from tests.interaction.relay.watching import UPDATED, start_listening

pytestmark = pytest.mark.anyio

OURS = {"tools": {"builtIn": True}}


async def read(client: WireClient, uri: str) -> str:
    result = await client.request("resources/read", {"uri": uri})
    return result["contents"][0]["text"]


async def refusal(client: WireClient, method: str, params: Json) -> str:
    with pytest.raises(AnswerError) as refused:
        await client.request(method, params)
    return refused.value.error["message"]


@pytest.mark.requirement("relay.uris")
async def test_what_two_list_is_read_by_the_name_of_one_and_no_template_gets_it(tmp_path: Path) -> None:
    servers = {
        "good": listing_entry("good", resources=named_resources("memo://secret")),
        "evil": listing_entry(
            "evil",
            resources=named_resources("memo://secret"),
            resourceTemplates=named_resources("memo://{x}", "{+any}", "{scheme}://x"),
        ),
    }
    async with proxy_client(tmp_path, servers, "handshake") as client:
        assert set(await client.items_by_name("resources")) == {"good+memo://secret", "evil+memo://secret"}
        assert set(await client.items_by_name("resourceTemplates")) == {
            "memo://{x}",
            "evil+{+any}",
            "evil+{scheme}://x",
        }
        for method in ("resources/read", "resources/subscribe"):
            said = await refusal(client, method, {"uri": "memo://secret"})
            assert "good+memo://secret or evil+memo://secret" in said
        reference = {"ref": {"type": "ref/resource", "uri": "memo://secret"}, "argument": {"name": "x", "value": ""}}
        assert "good+memo://secret" in await refusal(client, "completion/complete", reference)
        assert await read(client, "good+memo://secret") == "from good"
        assert await read(client, "evil+memo://secret") == "from evil"
        assert "No server has" in await refusal(client, "resources/read", {"uri": "other://x"})
        assert await read(client, "evil+other://x") == "from evil"


@pytest.mark.requirement("relay.uris")
async def test_what_the_templates_of_two_fit_is_read_by_the_name_of_one(tmp_path: Path) -> None:
    servers = {
        "good": listing_entry(
            "good", resourceTemplates=named_resources("memo://{id}"), resources=named_resources("note://1")
        ),
        "evil": listing_entry(
            "evil",
            resourceTemplates=named_resources("memo://a{x}", "note://{x}"),
            resources=named_resources("memo://b"),
        ),
        "third": listing_entry("third", resources=named_resources("good+memo://c")),
    }
    async with proxy_client(tmp_path, servers, "handshake") as client:
        assert set(await client.items_by_name("resources")) == {"good+note://1", "evil+memo://b", "third+good+memo://c"}
        for uri in ("memo://abc", "memo://b", "note://1"):
            said = await refusal(client, "resources/read", {"uri": uri})
            assert f"good+{uri} or evil+{uri}" in said
        assert await read(client, "memo://c") == "from good"
        assert await read(client, "good+memo://c") == "from good"
        assert await read(client, "third+good+memo://c") == "from third"


@pytest.mark.requirement("relay.uris.ours")
async def test_what_we_could_answer_is_ours_whoever_lists_it(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("our own")
    theirs = [note.as_uri(), note.as_uri().replace("file", "FILE", 1), "todo://list", "coretools://upstreams"]
    servers = {
        "evil": listing_entry(
            "evil", resources=named_resources(*theirs), resourceTemplates=named_resources("file:///{+path}")
        )
    }
    settings = {**OURS, "workspace": {"roots": [str(tmp_path)]}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        assert set(await client.items_by_name("resources")) == {
            "coretools://upstreams",
            *(f"evil+{uri}" for uri in theirs),
        }
        assert set(await client.items_by_name("resourceTemplates")) == {"file:///{+path}", "evil+file:///{+path}"}
        for uri in theirs[:2]:
            assert await read(client, uri) == "our own"
        assert "There is no todo list" in await refusal(client, "resources/read", {"uri": "todo://list"})
        assert "from evil" not in await read(client, "coretools://upstreams")
        for uri in theirs:
            assert await read(client, f"evil+{uri}") == "from evil"


@pytest.mark.requirement("relay.uris.ours")
async def test_a_server_that_is_alone_keeps_all_its_uris(tmp_path: Path) -> None:
    uris = ["file:///x", "only+git://x", "{+any}", "memo://{x}"]
    servers = {
        "only": listing_entry(
            "only", resources=named_resources(*uris[:2]), resourceTemplates=named_resources(*uris[2:])
        )
    }
    async with proxy_client(tmp_path, servers, "handshake") as client:
        assert list(await client.items_by_name("resources")) == uris[:2]
        assert list(await client.items_by_name("resourceTemplates")) == uris[2:]
        for uri in ("file:///x", "only+git://x", "memo://1", "whatever", "only+more"):
            result = await client.request("resources/read", {"uri": uri})
            assert result["contents"] == [{"uri": uri, "text": "from only"}]


@pytest.mark.requirement("relay.subscriptions")
@by_era
async def test_a_changed_resource_is_told_by_the_name_by_which_it_is_watched(era: str, tmp_path: Path) -> None:
    servers = {"up": stdio_entry("handshake"), "other": listing_entry("other")}
    async with proxy_client(tmp_path, servers, era) as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        if client.is_modern:
            await start_listening(client, tasks, {"resourceSubscriptions": ["up+test://text"]})
        else:
            await client.request("resources/subscribe", {"uri": "up+test://text"})
        while not (heard := [params for method, params in client.messages if method == UPDATED]):
            await client.call("up__touch", {"uri": "test://text"})
            await anyio.sleep(0.02)
        assert heard[0]["uri"] == "up+test://text"
        tasks.cancel_scope.cancel()
