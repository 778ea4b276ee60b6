"""Results that are too long for a conversation: what the client gets, and what it can do with the rest."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any, cast

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, RequestParamsMeta

from server.upstreams.relay import relayed_results
from server.upstreams.relay.relayed_results import MAX_SHOWN, RESULTS_URI
from server.upstreams.wire.own_meta import FACTS_KEY
from tests.harness import HANDSHAKE, MODERN, PEERS, connected, http_client, our_http_server, speaking, write_config
from tests.peers.large_upstream import NEEDLE, rows

pytestmark = pytest.mark.anyio

ENTRY = {"command": sys.executable, "args": ["-S", str(PEERS / "large_upstream.py")], "trust": True}
MAX_BYTES = 4_000  # what the answer to a large result may cost
both_eras = pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])


def settings(folder: Path, **more: Any) -> Path:
    return write_config(folder, {"mcpServers": {"up": ENTRY}, **more})


async def called(client: Client, tool: str, count: int, **meta: Any) -> types.CallToolResult:
    return await client.call_tool(
        f"up__{tool}", {"count": count}, meta=cast("RequestParamsMeta", meta) if meta else None
    )


def told(result: types.CallToolResult) -> str:
    (first, *_) = result.content
    assert isinstance(first, types.TextContent)
    return first.text


def file_of(result: types.CallToolResult) -> str:
    found = re.search(r"is in (\S+?): read_file", told(result))
    assert found is not None, told(result)[:400]
    return found[1]


def cost(result: types.CallToolResult) -> int:
    return len(result.model_dump_json(by_alias=True, exclude_none=True).encode())


@pytest.mark.requirement("results.large")
@both_eras
async def test_a_long_result_is_a_beginning_and_a_file_that_is_paged_and_searched(
    revision: str, root: Path, tmp_path: Path
) -> None:
    async with connected("stdio", revision, root, settings(tmp_path)) as client:
        result = await called(client, "lines", 400_000)
        assert cost(result) < MAX_BYTES
        assert "line 1\nline 2\n" in told(result)
        path = file_of(result)
        page = await client.call_tool("read_file", {"file_path": path, "offset": 300_000, "limit": 1})
        assert "line 300000" in str(page.content)
        found = await client.call_tool("grep_search", {"pattern": NEEDLE, "path": path})
        assert NEEDLE in str(found.content)
        assert Path(path).stat().st_mode & 0o077 == 0


@pytest.mark.requirement("results.large")
@pytest.mark.parametrize("count", [45_000, pytest.param(450_000, marks=pytest.mark.long)])
async def test_megabytes_cost_four_kilobytes(count: int, root: Path, tmp_path: Path) -> None:
    async with connected("stdio", HANDSHAKE, root, settings(tmp_path)) as client:
        result = await called(client, "rows", count)
        assert result.meta is not None
        assert result.meta["coretools-mcp/facts"]["outputBytes"] > 68 * count
        assert cost(result) < MAX_BYTES
        path = file_of(result)
        found = await client.call_tool("grep_search", {"pattern": NEEDLE, "path": path})
        assert NEEDLE in str(found.content)
        last = await client.call_tool("read_file", {"file_path": path, "offset": -1})
        assert NEEDLE in str(last.content)


@pytest.mark.requirement("results.large")
async def test_json_on_one_line_is_the_same_in_lines_that_are_shown_whole(root: Path, tmp_path: Path) -> None:
    async with connected("memory", HANDSHAKE, root, settings(tmp_path)) as client:
        text = Path(file_of(await called(client, "rows", 5_000))).read_text(encoding="utf-8")
        assert json.loads(text) == rows(5_000)
        assert max(map(len, text.splitlines())) <= 200
        run = Path(file_of(await called(client, "run", 150_001))).read_text(encoding="utf-8")
        assert run.replace("\n", "") == "x" * 150_001
        assert max(map(len, run.splitlines())) <= 2_000


@pytest.mark.requirement("results.large.whole")
@both_eras
async def test_what_is_not_too_long_has_a_schema_or_is_wanted_whole_stays_whole(
    revision: str, root: Path, tmp_path: Path
) -> None:
    async with connected("memory", revision, root, settings(tmp_path)) as client:
        assert NEEDLE in told(await called(client, "lines", 5_000))
        typed = await called(client, "typed", 5_000)
        assert typed.structured_content == {"rows": rows(5_000)}
        wanted = await called(client, "lines", 30_000, **{"anthropic/maxResultSizeChars": 400_000})
        assert told(wanted).endswith(NEEDLE)
        assert not told(await called(client, "claims", 30_000)).endswith(NEEDLE)
    claude = Implementation(name="claude-code", version="2.0.0")
    async with connected("memory", revision, root, settings(tmp_path), client_info=claude) as client:
        assert told(await called(client, "claims", 30_000)).endswith(NEEDLE)
        assert not told(await called(client, "lines", 30_000)).endswith(NEEDLE)


@pytest.mark.requirement("results.large.whole")
async def test_the_limit_is_a_setting_and_null_passes_everything_on(root: Path, tmp_path: Path) -> None:
    async with connected("memory", HANDSHAKE, root, settings(tmp_path, limits={"resultChars": 100})) as client:
        assert cost(await called(client, "lines", 1_000)) < MAX_BYTES
    async with connected("memory", HANDSHAKE, root, settings(tmp_path, limits={"resultChars": None})) as client:
        assert told(await called(client, "lines", 300_000)).endswith(NEEDLE)


@pytest.mark.requirement("results.large.parts")
async def test_pictures_stay_and_structured_content_without_a_schema_goes_to_the_file(
    root: Path, tmp_path: Path
) -> None:
    async with connected("memory", HANDSHAKE, root, settings(tmp_path)) as client:
        mixed = await called(client, "mixed", 100_000)
        assert mixed.is_error
        assert [block.type for block in mixed.content] == ["text", "image"]
        text = Path(file_of(mixed)).read_text(encoding="utf-8")
        assert text.startswith("before\nup+a://b:\ny\ny\n")
        assert text.endswith(NEEDLE)
        data = await called(client, "data", 5_000)
        assert data.structured_content is None
        assert [block.type for block in data.content] == ["text", "text"]
        assert json.loads(Path(file_of(data)).read_text(encoding="utf-8")) == {"rows": rows(5_000)}


@pytest.mark.requirement("results.large.link")
@both_eras
async def test_a_client_without_file_tools_gets_a_link_that_it_can_read(
    revision: str, root: Path, tmp_path: Path
) -> None:
    for way, more in (
        ("memory", {"tools": {"builtIn": False}}),
        ("stdio", {"permissions": {"deny": ["read_file"]}}),
    ):
        async with connected(way, revision, root, settings(tmp_path, **more)) as client:
            result = await called(client, "lines", 30_000)
            assert cost(result) < MAX_BYTES
            (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
            assert link.uri.startswith(RESULTS_URI)
            (contents,) = (await client.read_resource(link.uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert contents.text.endswith(NEEDLE)
            for odd in (f"{RESULTS_URI}../x", f"{RESULTS_URI}output-0.txt", RESULTS_URI):
                with pytest.raises(Exception, match=r"(?i)not found|no such|unknown|resource"):
                    await client.read_resource(odd)


@pytest.mark.requirement("results.large.link")
async def test_a_client_whose_own_rights_have_no_file_tools_gets_a_link_too(root: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t" * 64)
    (tmp_path / "token").chmod(0o600)
    rules = {"allow": [], "ask": [], "deny": ["read_file"]}
    tokens = {"file": str(tmp_path / "token"), "rules": rules}
    config = settings(tmp_path, http={"tokens": {"bot": tokens}})
    async with (
        our_http_server(root, config) as url,
        httpx2.AsyncClient(headers={"authorization": f"Bearer {'t' * 64}"}) as http,
        speaking(HANDSHAKE, streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        result = await called(client, "lines", 30_000)
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert f"is in the resource {link.uri}." in told(result)
        (contents,) = (await client.read_resource(link.uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text.endswith(NEEDLE)


@pytest.mark.requirement("results.large.private")
@pytest.mark.parametrize("has_tools", [False, True])
async def test_what_has_come_in_the_place_of_a_result_is_not_read(has_tools: bool, root: Path, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.txt").write_text("secret")
    config = settings(tmp_path, tools={"builtIn": has_tools})
    async with connected("memory", HANDSHAKE, root, config) as client:
        result = await called(client, "lines", 30_000)
        path = (result.meta or {})[FACTS_KEY]["outputFile"]
        os.unlink(path)
        os.symlink(secret, path)
        if has_tools:
            refused = await client.call_tool("read_file", {"absolute_path": path})
            assert refused.is_error
            assert "secret" not in str(refused.content[0]).replace(str(secret), "")
        else:
            with pytest.raises(Exception, match=r"(?i)not found|no such|unknown|resource"):
                await client.read_resource(RESULTS_URI + os.path.basename(path))


@pytest.mark.requirement("results.large.link")
async def test_nobody_else_reads_it_and_who_cannot_come_back_gets_it_whole(root: Path, tmp_path: Path) -> None:
    config = settings(tmp_path, tools={"builtIn": False})
    async with (
        our_http_server(root, config) as url,
        http_client(url, "http", HANDSHAKE) as one,
        http_client(url, "http", HANDSHAKE) as other,
        http_client(url, "http", MODERN) as anonymous,
    ):
        result = await called(one, "lines", 30_000)
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert (await one.read_resource(link.uri)).contents
        with pytest.raises(Exception, match=r"(?i)not found|no such|unknown|resource"):
            await other.read_resource(link.uri)
        assert told(await called(anonymous, "lines", 30_000)).endswith(NEEDLE)


@pytest.mark.requirement("results.large.lost")
async def test_a_disk_that_takes_too_long_is_told_like_a_full_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_results, "WRITE_SECONDS", 0.0)
    async with connected("memory", HANDSHAKE, root, settings(tmp_path)) as client:
        result = await called(client, "lines", 30_000)
        assert "could not be written" in told(result)
        assert result.meta is not None
        assert result.meta["coretools-mcp/facts"]["outputFile"] is None


@pytest.mark.requirement("results.large.lost")
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes there")
async def test_a_file_that_cannot_be_written_is_told_with_as_much_as_is_passed_on(root: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with connected("memory", HANDSHAKE, root, settings(tmp_path)) as client:
        assert NEEDLE in told(await called(client, "lines", 10))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            result = await called(client, "lines", 30_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "could not be written" in told(result)
        assert len(told(result)) > MAX_SHOWN * 20
        assert "line 9000\n" in told(result)
