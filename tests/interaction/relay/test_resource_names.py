"""Ownership of resources: no server can take over another server's resource, whatever it lists and whenever."""

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

BUILT_IN = {"tools": {"builtIn": True}}


async def read_text(client: WireClient, uri: str) -> str:
    result = await client.request("resources/read", {"uri": uri})
    return result["contents"][0]["text"]


async def refusal_message(client: WireClient, method: str, params: Json) -> str:
    with pytest.raises(AnswerError) as error_info:
        await client.request(method, params)
    return error_info.value.error["message"]


@pytest.mark.requirement("relay.uris")
async def test_a_resource_that_two_servers_list_is_read_only_by_its_prefixed_uri_and_no_template_gets_it(
    tmp_path: Path,
) -> None:
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
            "evil+memo://{x}",
            "evil+{+any}",
            "evil+{scheme}://x",
        }
        for method in ("resources/read", "resources/subscribe"):
            message = await refusal_message(client, method, {"uri": "memo://secret"})
            assert "good+memo://secret or evil+memo://secret" in message
        completion = {"ref": {"type": "ref/resource", "uri": "memo://secret"}, "argument": {"name": "x", "value": ""}}
        assert "good+memo://secret" in await refusal_message(client, "completion/complete", completion)
        assert await read_text(client, "good+memo://secret") == "from good"
        assert await read_text(client, "evil+memo://secret") == "from evil"
        assert "No server has" in await refusal_message(client, "resources/read", {"uri": "other://x"})
        assert await read_text(client, "evil+other://x") == "from evil"


@pytest.mark.requirement("relay.uris")
async def test_a_resource_of_a_scheme_for_which_two_servers_have_templates_is_read_only_by_its_prefixed_uri(
    tmp_path: Path,
) -> None:
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
        for uri in ("memo://abc", "memo://b", "memo://c", "note://1"):
            message = await refusal_message(client, "resources/read", {"uri": uri})
            assert f"good+{uri} or evil+{uri}" in message
        assert await read_text(client, "good+memo://c") == "from good"
        assert await read_text(client, "third+good+memo://c") == "from third"


@pytest.mark.requirement("relay.uris.ours")
async def test_uris_that_this_server_can_answer_belong_to_it_whoever_lists_them(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text("our own")
    uris = [note.as_uri(), note.as_uri().replace("file", "FILE", 1), "todo://list", "coretools://upstreams"]
    servers = {
        "evil": listing_entry(
            "evil", resources=named_resources(*uris), resourceTemplates=named_resources("file:///{+path}")
        )
    }
    settings = {**BUILT_IN, "workspace": {"roots": [str(tmp_path)]}}
    async with proxy_client(tmp_path, servers, "handshake", settings=settings) as client:
        assert set(await client.items_by_name("resources")) == {
            "coretools://upstreams",
            *(f"evil+{uri}" for uri in uris),
        }
        assert set(await client.items_by_name("resourceTemplates")) == {"file:///{+path}", "evil+file:///{+path}"}
        for uri in uris[:2]:
            assert await read_text(client, uri) == "our own"
        assert "There is no todo list" in await refusal_message(client, "resources/read", {"uri": "todo://list"})
        assert "from evil" not in await read_text(client, "coretools://upstreams")
        for uri in uris:
            assert await read_text(client, f"evil+{uri}") == "from evil"


@pytest.mark.requirement("relay.uris.ours")
async def test_a_single_server_keeps_all_its_uris(tmp_path: Path) -> None:
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
async def test_an_update_names_the_uri_under_which_the_resource_is_watched(era: str, tmp_path: Path) -> None:
    servers = {"up": stdio_entry("handshake"), "other": listing_entry("other")}
    async with proxy_client(tmp_path, servers, era) as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        if client.is_modern:
            await start_listening(client, tasks, {"resourceSubscriptions": ["up+test://text"]})
        else:
            await client.request("resources/subscribe", {"uri": "up+test://text"})
        while not (updates := [params for method, params in client.messages if method == UPDATED]):
            await client.call("up__touch", {"uri": "test://text"})
            await anyio.sleep(0.02)
        assert updates[0]["uri"] == "up+test://text"
        tasks.cancel_scope.cancel()
