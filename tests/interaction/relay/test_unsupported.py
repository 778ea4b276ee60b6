"""Requests for what an upstream does not support, although this server declares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.interaction.relay.clients import AnswerError, listing_entry, named_resources, proxy_client
from tests.interaction.relay.eras import by_era, by_eras
from tests.interaction.relay.watching import start_listening

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("relay.unsupported")]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
PROMPTS = [{"name": "greet", "arguments": [{"name": "who", "required": True}, {"name": "how"}]}]
ORDERS: dict[str, dict[str, Any]] = {"handshake": {}, "modern": {"modern": True}}


@pytest.mark.parametrize("upstream_era", ORDERS)
async def test_a_stream_honors_only_subscriptions_that_an_upstream_accepts(upstream_era: str, tmp_path: Path) -> None:
    servers = {
        "up": listing_entry("up", plain=True, resources=named_resources("up://note"), **ORDERS[upstream_era]),
        "full": listing_entry("full", resources=named_resources("full://note")),
    }
    (tmp_path / "a.txt").write_text("a")
    uris = [(tmp_path / "a.txt").as_uri(), "up://note", "nope://x", "full://note"]
    async with proxy_client(tmp_path, servers, "modern") as client, anyio.create_task_group() as tasks:
        await client.items_by_name("resources")
        await start_listening(client, tasks, {"resourceSubscriptions": uris, "toolsListChanged": True})
        (params,) = await client.wait_for_notifications(ACKNOWLEDGED)
        assert params["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["full://note"]}
        tasks.cancel_scope.cancel()


async def test_without_upstreams_a_stream_honors_no_subscription(tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {}, "modern") as client, anyio.create_task_group() as tasks:
        await start_listening(client, tasks, {"resourceSubscriptions": [(tmp_path / "a.txt").as_uri()]})
        (params,) = await client.wait_for_notifications(ACKNOWLEDGED)
        assert params["notifications"] == {}
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("upstream_era", ORDERS)
async def test_a_refused_subscription_names_the_server_that_supports_none(upstream_era: str, tmp_path: Path) -> None:
    entry = listing_entry("up", plain=True, resources=named_resources("up://note"), **ORDERS[upstream_era])
    async with proxy_client(tmp_path, {"up": entry}, "handshake") as client:
        await client.items_by_name("resources")
        with pytest.raises(AnswerError) as error_info:
            await client.request("resources/subscribe", {"uri": "up://note"})
        error = error_info.value.error
        assert (error["code"], error["message"]) == (
            -32602,
            "The server up does not support subscriptions to resources.",
        )
        assert await client.request("resources/unsubscribe", {"uri": "up://note"}) == {}


@by_eras
async def test_an_upstream_without_completion_proposes_nothing(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    entry = listing_entry("up", plain=True, prompts=PROMPTS, **ORDERS[upstream_era])
    async with proxy_client(tmp_path, {"up": entry}, client_era) as client:
        await client.items_by_name("prompts")
        ref = {"type": "ref/prompt", "name": "up__greet"}
        result = await client.request("completion/complete", {"ref": ref, "argument": {"name": "who", "value": "A"}})
        assert result["completion"] == {"values": []}


@by_era
async def test_a_prompt_without_a_required_argument_is_refused_before_its_upstream_is_asked(
    era: str, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    async with proxy_client(tmp_path, {"up": listing_entry("up", prompts=PROMPTS, tale=str(tale))}, era) as client:
        await client.items_by_name("prompts")
        with pytest.raises(AnswerError) as error_info:
            await client.request("prompts/get", {"name": "up__greet", "arguments": {"how": "well"}})
        error = error_info.value.error
        assert (error["code"], error["message"]) == (-32602, "Arguments that the prompt requires are missing: who.")
        assert "prompts/get" not in tale.read_text()
        prompt = await client.request("prompts/get", {"name": "up__greet", "arguments": {"who": "Ada"}})
        assert prompt["messages"]
