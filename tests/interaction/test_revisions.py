"""What clients of all five protocol revisions get, on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.requests.wire_results import result_to_wire
from tests.harness import HANDSHAKES
from tests.interaction.test_lifecycle import INITIALIZED, call, running
from tools.contract.tool_results import FileDataPart, InlineDataPart, ToolResult


def initialize(revision: str) -> dict[str, Any]:
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


@pytest.mark.requirement("mission.transports")
@pytest.mark.parametrize("revision", HANDSHAKES)
def test_every_handshake_revision_lists_and_calls(revision: str, root: Path) -> None:
    (root / "a.txt").write_text("content\n")
    with running(root) as server:
        server.send(initialize(revision))
        answer = server.answer()["result"]
        assert answer["protocolVersion"] == revision
        assert answer["capabilities"]["tools"] == {"listChanged": True}
        assert "edit" in answer["instructions"]
        server.send(INITIALIZED, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert len([tool for tool in server.answer()["result"]["tools"] if tool["name"] != "lsp"]) == 17
        server.send(call(2, "read_file", absolute_path=str(root / "a.txt")))
        assert server.answer()["result"]["content"][0]["text"].startswith("content")


@pytest.mark.requirement("mission.transports")
def test_the_modern_revision_needs_no_handshake(root: Path) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }
    with running(root) as server:
        server.send({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}})
        discovery = server.answer()["result"]
        assert discovery["supportedVersions"] == ["2026-07-28"]
        server.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}})
        assert len([tool for tool in server.answer()["result"]["tools"] if tool["name"] != "lsp"]) == 17


@pytest.mark.requirement("results.rich")
@pytest.mark.parametrize(
    ("revision", "audio", "link"),
    [("2024-11-05", "resource", "text"), ("2025-03-26", "audio", "text"), ("2025-06-18", "audio", "resource_link")],
)
def test_rich_content_has_the_block_types_of_the_revision(revision: str, audio: str, link: str) -> None:
    parts = [
        "text",
        InlineDataPart("image/png", b"i", "file:///i.png"),
        InlineDataPart("audio/wav", b"a", "file:///a.wav"),
        InlineDataPart("application/pdf", b"p", "file:///p.pdf"),
        FileDataPart("file:///big.bin", "big.bin"),
    ]
    wire = result_to_wire("tool", ToolResult(llm_content=parts), "block", revision)
    assert [block["type"] for block in wire["content"]] == ["text", "image", audio, "resource", link]


@pytest.mark.requirement("results.schema")
def test_bytes_of_a_file_name_that_are_no_text_do_not_end_the_connection(root: Path) -> None:
    (root / "b\udcff.txt").write_text("x\n")
    with running(root) as server:
        server.send(initialize("2025-11-25"), INITIALIZED, call(1, "list_directory", path=str(root)))
        assert server.answer()["id"] == 0
        result = server.answer()["result"]
        assert not result.get("isError")
        assert ".txt" in result["content"][0]["text"]
        json.dumps(result, ensure_ascii=False).encode()
