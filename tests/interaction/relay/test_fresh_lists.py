"""Lists of servers that announce no changes are read again when there is a reason, and changes are announced."""

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

TOOLS_CHANGED = "notifications/tools/list_changed"


def set_tools(orders: Path, *names: str) -> None:
    """Make the server list these tools from now on. The file is replaced atomically."""
    new_file = orders.with_suffix(".fresh")
    new_file.write_text(json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}))
    new_file.replace(orders)


def servers_of(orders: Path, live: object = True) -> Json:
    return {"up": listing_entry("up", entry={"trust": True}, orders=str(orders), live=live)}


@pytest.mark.requirement("proxy.lists.fresh")
@pytest.mark.requirement("proxy.lists.announced")
@pytest.mark.parametrize("live", [True, -32602, -32601])
@by_era
async def test_a_call_of_a_tool_that_its_server_does_not_know_makes_the_list_be_read_again(
    era: str, live: object, tmp_path: Path
) -> None:
    orders = tmp_path / "orders"
    set_tools(orders, "old")
    async with proxy_client(tmp_path, servers_of(orders, live), era) as client, anyio.create_task_group() as tasks:
        assert list(await client.items_by_name("tools")) == ["up__old"]
        await start_listening(client, tasks, {"toolsListChanged": True})
        set_tools(orders, "new")
        if live is True:
            assert (await client.call("up__old", {}))["isError"] is True
        else:
            with pytest.raises(AnswerError):
                await client.call("up__old", {})
        await client.wait_for_notifications(TOOLS_CHANGED)
        assert list(await client.items_by_name("tools")) == ["up__new"]
        # The first list is not announced.
        assert [method for method, _ in client.messages].count(TOOLS_CHANGED) == 1
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.lists.fresh")
@pytest.mark.requirement("relay.chain")
@by_era
async def test_a_tool_that_is_gone_behind_a_second_proxy_is_gone_here_too(era: str, tmp_path: Path) -> None:
    orders, folder = tmp_path / "orders", tmp_path / "inner"
    set_tools(orders, "old")
    folder.mkdir()
    inner = write_config(folder, {"tools": {"builtIn": False}, "mcpServers": servers_of(orders)})
    entry = {"command": sys.executable, "args": forked(server_arguments(None, inner)), "trust": True}
    answer = answer_with(roots={"roots": []})
    async with proxy_client(tmp_path, {"in": entry}, era, answer=answer) as client, anyio.create_task_group() as tasks:
        assert list(await client.items_by_name("tools")) == ["in__up__old"]
        await start_listening(client, tasks, {"toolsListChanged": True})
        set_tools(orders, "new")
        await client.call("in__up__old", {})
        await client.wait_for_notifications(TOOLS_CHANGED)
        assert list(await client.items_by_name("tools")) == ["in__up__new"]
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("proxy.lists.fresh")
@by_era
async def test_a_list_that_is_too_old_is_read_again_when_a_client_lists(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = tmp_path / "orders"
    set_tools(orders, "old")
    async with proxy_client(tmp_path, servers_of(orders), era) as client:
        assert list(await client.items_by_name("tools")) == ["up__old"]
        set_tools(orders, "new")
        assert list(await client.items_by_name("tools")) == ["up__old"]
        monkeypatch.setattr("server.upstreams.connections.connection.MAX_LIST_AGE_SECONDS", 0.0)
        monkeypatch.setattr("server.upstreams.connections.pool.REREAD_WAIT_SECONDS", 60.0)
        assert list(await client.items_by_name("tools")) == ["up__new"]
