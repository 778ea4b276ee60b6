"""Memories and todo lists over real clients: saved, asked about, read back as resources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from tests.harness import HANDSHAKE, MODERN, REVISIONS, connected, http_client, in_memory, our_http_server, write_config

pytestmark = pytest.mark.anyio

TODOS = [{"id": "1", "content": "Read", "status": "in_progress"}]


def settings(tmp_path: Path, **other_settings: Any) -> Path:
    memory: Mapping[str, Any] = {"globalFolder": str(tmp_path / "home"), "fileName": ["MEMORY.md", "AGENTS.md"]}
    return write_config(tmp_path, {"memory": memory, "approvalMode": "auto-edit", **other_settings})


async def text_of(client: Client, uri: str) -> str:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, types.TextResourceContents)
    return contents.text


@pytest.mark.requirement("memory.resources")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_what_is_saved_is_read_back(mode: str, root: Path, tmp_path: Path) -> None:
    async with in_memory(mode, root, settings(tmp_path, permissions={"allow": ["save_memory"]})) as client:
        assert (await client.list_resources()).resources == []
        for scope in ("project", "global"):
            result = await client.call_tool("save_memory", {"fact": f"For {scope}.", "scope": scope})
            assert result.is_error is not True, result.content
        assert (root / "MEMORY.md").read_text() == "## Added Memories\n- For project.\n"
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert uris == ["memory://global", "memory://project"]
        for scope in ("project", "global"):
            assert await text_of(client, f"memory://{scope}") == f"## Added Memories\n- For {scope}.\n"
        with pytest.raises(MCPError):
            await client.read_resource("memory://other")


@pytest.mark.requirement("todo.owner")
@pytest.mark.parametrize("mode", REVISIONS)
async def test_a_todo_list_is_shown_to_people_and_read_back(mode: str, root: Path, tmp_path: Path) -> None:
    async with in_memory(mode, root, settings(tmp_path)) as client:
        result = await client.call_tool("todo_write", {"todos": TODOS})
        model, people = result.content
        assert isinstance(model, types.TextContent)
        assert isinstance(people, types.TextContent)
        assert people.annotations is not None
        assert (people.text, people.annotations.audience) == ("[>] Read", ["user"])
        assert result.structured_content == {"todos": TODOS, "kept": True, "notes": []}
        assert (result.meta or {})["coretools-mcp/display"] == {"type": "todo_list", "todos": TODOS}
        assert [resource.uri for resource in (await client.list_resources()).resources] == ["todo://list"]
        assert json.loads(await text_of(client, "todo://list")) == {"todos": TODOS}


@pytest.mark.requirement("todo.owner")
async def test_anonymous_clients_have_no_todo_list_and_sessions_have_each_their_own(root: Path, tmp_path: Path) -> None:
    async with our_http_server(root, settings(tmp_path)) as url:
        async with http_client(url, "http", MODERN) as client:
            result = await client.call_tool("todo_write", {"todos": TODOS})
            assert (result.structured_content or {})["kept"] is False
            assert (await client.list_resources()).resources == []
        async with http_client(url, "http", HANDSHAKE) as client, http_client(url, "http", HANDSHAKE) as other_client:
            await client.call_tool("todo_write", {"todos": TODOS})
            assert len((await client.list_resources()).resources) == 1
            assert (await other_client.list_resources()).resources == []


@pytest.mark.requirement("memory.bytes")
@pytest.mark.parametrize("mode", [HANDSHAKE, MODERN])
async def test_servers_that_save_at_the_same_time_lose_nothing(mode: str, root: Path, tmp_path: Path) -> None:
    config = settings(tmp_path, approvalMode="default")

    async def run(server: int) -> None:
        async with connected("stdio", mode, root, config) as client, anyio.create_task_group() as calls:
            for number in range(20):
                calls.start_soon(save, client, f"server {server} fact {number}")

    async def save(client: Client, fact: str) -> None:
        result = await client.call_tool("save_memory", {"fact": fact})
        assert result.is_error is not True, result.content

    with anyio.fail_after(50):
        async with anyio.create_task_group() as servers:
            for server in range(2):
                servers.start_soon(run, server)
    lines = (root / "MEMORY.md").read_text().splitlines()
    assert lines[0] == "## Added Memories"
    assert sorted(lines[1:]) == sorted(f"- server {server} fact {n}" for server in range(2) for n in range(20))
