"""Lists of servers that tell of no changes are read again where there is a reason, and announced where that is news."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

from tests.fork_server import forked
from tests.harness import server_arguments, write_config
from tests.interaction.relay.clients import AnswerError, Json, answer_with, listing_entry, proxy_client
from tests.interaction.relay.eras import by_era
from tests.interaction.relay.watching import start_listening

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"


def write(orders: Path, *names: str) -> None:
    """Have the server list these from now on, all at once."""
    fresh = orders.with_suffix(".fresh")
    fresh.write_text(json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}))
    fresh.replace(orders)


def server(orders: Path, live: object = True) -> Json:
    return {"up": listing_entry("up", entry={"trust": True}, orders=str(orders), live=live)}


@pytest.mark.requirement("proxy.lists.fresh")
@pytest.mark.requirement("proxy.lists.announced")
@pytest.mark.parametrize("live", [True, -32602, -32601])
@by_era
async def test_a_tool_that_its_server_does_not_know_has_the_list_read_again(
    era: str, live: object, tmp_path: Path
) -> None:
    orders = tmp_path / "orders"
    write(orders, "old")
    async with proxy_client(tmp_path, server(orders, live), era) as client, anyio.create_task_group() as tasks:
        assert list(await client.items_by_name("tools")) == ["up__old"]
        await start_listening(client, tasks, {"toolsListChanged": True})
        write(orders, "new")
        if live is True:
            assert (await client.call("up__old", {}))["isError"] is True
        else:
            with pytest.raises(AnswerError):
                await client.call("up__old", {})
        await client.wait_for_notifications(CHANGED)
        assert list(await client.items_by_name("tools")) == ["up__new"]
        # What the first list had was not announced.
        assert [method for method, _ in client.messages].count(CHANGED) == 1
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.lists.fresh")
@pytest.mark.requirement("relay.chain")
@by_era
async def test_a_tool_that_is_gone_behind_another_server_like_this_one_is_gone_here_too(
    era: str, tmp_path: Path
) -> None:
    orders, folder = tmp_path / "orders", tmp_path / "inner"
    write(orders, "old")
    folder.mkdir()
    inner = write_config(folder, {"tools": {"builtIn": False}, "mcpServers": server(orders)})
    entry = {"command": sys.executable, "args": forked(server_arguments(None, inner)), "trust": True}
    answer = answer_with(roots={"roots": []})
    async with proxy_client(tmp_path, {"in": entry}, era, answer=answer) as client, anyio.create_task_group() as tasks:
        assert list(await client.items_by_name("tools")) == ["in__up__old"]
        await start_listening(client, tasks, {"toolsListChanged": True})
        write(orders, "new")
        await client.call("in__up__old", {})
        await client.wait_for_notifications(CHANGED)
        assert list(await client.items_by_name("tools")) == ["in__up__new"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.lists.fresh")
@by_era
async def test_an_old_list_is_read_again_when_a_client_lists(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = tmp_path / "orders"
    write(orders, "old")
    async with proxy_client(tmp_path, server(orders), era) as client:
        assert list(await client.items_by_name("tools")) == ["up__old"]
        write(orders, "new")
        assert list(await client.items_by_name("tools")) == ["up__old"]
        monkeypatch.setattr("server.upstreams.connections.connection.MAX_LIST_AGE_SECONDS", 0.0)
        monkeypatch.setattr("server.upstreams.connections.pool.REREAD_WAIT_SECONDS", 60.0)
        assert list(await client.items_by_name("tools")) == ["up__new"]
