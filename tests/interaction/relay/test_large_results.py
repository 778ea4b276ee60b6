"""Results that are too long for a conversation: what the client gets, and how it can read the rest."""

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
from server.upstreams.wire.origin_meta import FACTS_KEY
from tests.harness import HANDSHAKE, MODERN, PEERS, connected, http_client, our_http_server, speaking, write_config
from tests.peers.large_upstream import NEEDLE, rows

pytestmark = pytest.mark.anyio

ENTRY = {"command": sys.executable, "args": ["-S", str(PEERS / "large_upstream.py")], "trust": True}
MAX_BYTES = 4_000  # maximum size of the shortened result
by_revision = pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])


def write_settings(folder: Path, **fields: Any) -> Path:
    return write_config(folder, {"mcpServers": {"up": ENTRY}, **fields})


async def call(client: Client, tool: str, count: int, **meta: Any) -> types.CallToolResult:
    return await client.call_tool(
        f"up__{tool}", {"count": count}, meta=cast("RequestParamsMeta", meta) if meta else None
    )


def text_of(result: types.CallToolResult) -> str:
    (first, *_) = result.content
    assert isinstance(first, types.TextContent)
    return first.text


def file_of(result: types.CallToolResult) -> str:
    match = re.search(r"is in (\S+?): read_file", text_of(result))
    assert match is not None, text_of(result)[:400]
    return match[1]


def cost(result: types.CallToolResult) -> int:
    return len(result.model_dump_json(by_alias=True, exclude_none=True).encode())


@pytest.mark.requirement("results.large")
@by_revision
async def test_a_long_result_has_its_beginning_and_a_file_that_can_be_paged_and_searched(
    revision: str, root: Path, tmp_path: Path
) -> None:
    async with connected("stdio", revision, root, write_settings(tmp_path)) as client:
        result = await call(client, "lines", 400_000)
        assert cost(result) < MAX_BYTES
        assert "line 1\nline 2\n" in text_of(result)
        path = file_of(result)
        page = await client.call_tool("read_file", {"file_path": path, "offset": 300_000, "limit": 1})
        assert "line 300000" in str(page.content)
        matches = await client.call_tool("grep_search", {"pattern": NEEDLE, "path": path})
        assert NEEDLE in str(matches.content)
        assert Path(path).stat().st_mode & 0o077 == 0


@pytest.mark.requirement("results.large")
@pytest.mark.parametrize("count", [45_000, pytest.param(450_000, marks=pytest.mark.long)])
async def test_megabytes_cost_four_kilobytes(count: int, root: Path, tmp_path: Path) -> None:
    async with connected("stdio", HANDSHAKE, root, write_settings(tmp_path)) as client:
        result = await call(client, "rows", count)
        assert result.meta is not None
        assert result.meta["coretools-mcp/facts"]["outputBytes"] > 68 * count
        assert cost(result) < MAX_BYTES
        path = file_of(result)
        matches = await client.call_tool("grep_search", {"pattern": NEEDLE, "path": path})
        assert NEEDLE in str(matches.content)
        last_line = await client.call_tool("read_file", {"file_path": path, "offset": -1})
        assert NEEDLE in str(last_line.content)


@pytest.mark.requirement("results.large")
async def test_json_and_text_on_one_long_line_are_broken_into_lines_that_can_be_shown_whole(
    root: Path, tmp_path: Path
) -> None:
    async with connected("memory", HANDSHAKE, root, write_settings(tmp_path)) as client:
        text = Path(file_of(await call(client, "rows", 5_000))).read_text(encoding="utf-8")
        assert json.loads(text) == rows(5_000)
        assert max(map(len, text.splitlines())) <= 200
        long_run = Path(file_of(await call(client, "run", 150_001))).read_text(encoding="utf-8")
        assert long_run.replace("\n", "") == "x" * 150_001
        assert max(map(len, long_run.splitlines())) <= 2_000


@pytest.mark.requirement("results.large.whole")
@by_revision
async def test_a_result_that_is_short_or_has_a_schema_or_is_requested_whole_stays_whole(
    revision: str, root: Path, tmp_path: Path
) -> None:
    async with connected("memory", revision, root, write_settings(tmp_path)) as client:
        assert NEEDLE in text_of(await call(client, "lines", 5_000))
        typed_result = await call(client, "typed", 5_000)
        assert typed_result.structured_content == {"rows": rows(5_000)}
        whole_result = await call(client, "lines", 30_000, **{"anthropic/maxResultSizeChars": 400_000})
        assert text_of(whole_result).endswith(NEEDLE)
        assert not text_of(await call(client, "claims", 30_000)).endswith(NEEDLE)
    claude = Implementation(name="claude-code", version="2.0.0")
    async with connected("memory", revision, root, write_settings(tmp_path), client_info=claude) as client:
        assert text_of(await call(client, "claims", 30_000)).endswith(NEEDLE)
        assert not text_of(await call(client, "lines", 30_000)).endswith(NEEDLE)


@pytest.mark.requirement("results.large.whole")
async def test_the_limit_is_a_setting_and_null_passes_everything_on(root: Path, tmp_path: Path) -> None:
    async with connected("memory", HANDSHAKE, root, write_settings(tmp_path, limits={"resultChars": 100})) as client:
        assert cost(await call(client, "lines", 1_000)) < MAX_BYTES
    async with connected("memory", HANDSHAKE, root, write_settings(tmp_path, limits={"resultChars": None})) as client:
        assert text_of(await call(client, "lines", 300_000)).endswith(NEEDLE)


@pytest.mark.requirement("results.large.parts")
async def test_images_stay_and_structured_content_without_a_schema_goes_to_the_file(root: Path, tmp_path: Path) -> None:
    async with connected("memory", HANDSHAKE, root, write_settings(tmp_path)) as client:
        mixed_result = await call(client, "mixed", 100_000)
        assert mixed_result.is_error
        assert [block.type for block in mixed_result.content] == ["text", "image"]
        text = Path(file_of(mixed_result)).read_text(encoding="utf-8")
        assert text.startswith("before\nup+a://b:\ny\ny\n")
        assert text.endswith(NEEDLE)
        data_result = await call(client, "data", 5_000)
        assert data_result.structured_content is None
        assert [block.type for block in data_result.content] == ["text", "text"]
        assert json.loads(Path(file_of(data_result)).read_text(encoding="utf-8")) == {"rows": rows(5_000)}


@pytest.mark.requirement("results.large.link")
@by_revision
async def test_a_client_without_file_tools_gets_a_link_that_it_can_read(
    revision: str, root: Path, tmp_path: Path
) -> None:
    for transport, fields in (
        ("memory", {"tools": {"builtIn": False}}),
        ("stdio", {"permissions": {"deny": ["read_file"]}}),
    ):
        async with connected(transport, revision, root, write_settings(tmp_path, **fields)) as client:
            result = await call(client, "lines", 30_000)
            assert cost(result) < MAX_BYTES
            (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
            assert link.uri.startswith(RESULTS_URI)
            (contents,) = (await client.read_resource(link.uri)).contents
            assert isinstance(contents, types.TextResourceContents)
            assert contents.text.endswith(NEEDLE)
            for odd_uri in (f"{RESULTS_URI}../x", f"{RESULTS_URI}output-0.txt", RESULTS_URI):
                with pytest.raises(Exception, match=r"(?i)not found|no such|unknown|resource"):
                    await client.read_resource(odd_uri)


@pytest.mark.requirement("results.large.link")
async def test_a_client_whose_token_does_not_allow_file_tools_gets_a_link_too(root: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t" * 64)
    (tmp_path / "token").chmod(0o600)
    rules = {"allow": [], "ask": [], "deny": ["read_file"]}
    tokens = {"file": str(tmp_path / "token"), "rules": rules}
    config = write_settings(tmp_path, http={"tokens": {"bot": tokens}})
    async with (
        our_http_server(root, config) as url,
        httpx2.AsyncClient(headers={"authorization": f"Bearer {'t' * 64}"}) as http,
        speaking(HANDSHAKE, streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        result = await call(client, "lines", 30_000)
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert f"is in the resource {link.uri}." in text_of(result)
        (contents,) = (await client.read_resource(link.uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text.endswith(NEEDLE)


@pytest.mark.requirement("results.large.private")
@pytest.mark.parametrize("has_tools", [False, True])
async def test_a_link_that_has_replaced_the_file_of_a_result_is_not_followed_and_the_result_is_saved_again(
    has_tools: bool, root: Path, tmp_path: Path
) -> None:
    (secret := tmp_path / "secret.txt").write_text("secret")
    config = write_settings(tmp_path, tools={"builtIn": has_tools})
    async with connected("memory", HANDSHAKE, root, config) as client:
        result = await call(client, "lines", 30_000)
        path = (result.meta or {})[FACTS_KEY]["outputFile"]
        os.unlink(path)
        os.symlink(secret, path)
        if has_tools:
            refusal = await client.call_tool("read_file", {"absolute_path": path})
            assert refusal.is_error
            assert "secret" not in str(refusal.content[0]).replace(str(secret), "")
        else:
            with pytest.raises(Exception, match=r"(?i)not found|no such|unknown|resource"):
                await client.read_resource(RESULTS_URI + os.path.basename(path))
        saved_again = await call(client, "lines", 30_000)
        assert (saved_again.meta or {})[FACTS_KEY]["outputFile"] not in (None, path)


@pytest.mark.requirement("results.large.link")
async def test_no_other_session_can_read_a_result_and_a_client_without_a_session_gets_it_whole(
    root: Path, tmp_path: Path
) -> None:
    config = write_settings(tmp_path, tools={"builtIn": False})
    async with (
        our_http_server(root, config) as url,
        http_client(url, "http", HANDSHAKE) as owner,
        http_client(url, "http", HANDSHAKE) as stranger,
        http_client(url, "http", MODERN) as sessionless,
    ):
        result = await call(owner, "lines", 30_000)
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        assert (await owner.read_resource(link.uri)).contents
        with pytest.raises(Exception, match=r"(?i)not found|no such|unknown|resource"):
            await stranger.read_resource(link.uri)
        assert text_of(await call(sessionless, "lines", 30_000)).endswith(NEEDLE)


@pytest.mark.requirement("results.large.lost")
async def test_a_disk_that_takes_too_long_is_reported_like_a_full_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_results, "WRITE_SECONDS", 0.0)
    async with connected("memory", HANDSHAKE, root, write_settings(tmp_path)) as client:
        result = await call(client, "lines", 30_000)
        assert "could not be written" in text_of(result)
        assert result.meta is not None
        assert result.meta["coretools-mcp/facts"]["outputFile"] is None


@pytest.mark.requirement("results.large.lost")
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of file sizes")
async def test_if_the_file_cannot_be_written_the_result_says_so_and_has_a_longer_text(
    root: Path, tmp_path: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with connected("memory", HANDSHAKE, root, write_settings(tmp_path)) as client:
        assert NEEDLE in text_of(await call(client, "lines", 10))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            result = await call(client, "lines", 30_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert "could not be written" in text_of(result)
        assert len(text_of(result)) > MAX_SHOWN * 20
        assert "line 9000\n" in text_of(result)
