"""One test for each word of the mission: every transport, both eras, built-in tools, upstreams, consent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.harness import PEERS, ROUTES, connected, listening, stdio_upstream, write_config

pytestmark = pytest.mark.anyio

BUILTIN = {"list_directory", "read_file", "write_file", "edit", "glob", "grep_search", "read_many_files"}


class Person:
    """Answers every question with the same decision, and remembers what was asked."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.questions: list[types.ElicitRequestFormParams] = []

    async def __call__(self, _context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.questions.append(params)
        if self.decision in ("decline", "cancel"):
            return types.ElicitResult(action=self.decision)  # pyright: ignore[reportArgumentType]
        return types.ElicitResult(action="accept", content={"decision": self.decision})


def text_of(result: types.CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, types.TextContent)
    return first.text


@pytest.mark.requirement("mission.transports")
@pytest.mark.requirement("mission.proxy")
@pytest.mark.requirement("mission.confirmation")
@pytest.mark.parametrize(("transport", "mode"), ROUTES)
async def test_a_client_lists_everything_and_an_edit_happens_after_consent(
    transport: str, mode: str, root: Path, tmp_path: Path
) -> None:
    target = root / "greeting.txt"
    target.write_text("hello world\n")
    config = write_config(tmp_path, {"mcpServers": {"demo": stdio_upstream(trust=True)}})
    person = Person("once")
    async with connected(transport, mode, root, config, elicitation_callback=person) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names >= BUILTIN
        assert "demo__echo" in names

        echoed = await client.call_tool("demo__echo", {"text": "through the proxy"})
        assert text_of(echoed) == "through the proxy"

        edit = {"file_path": str(target), "old_string": "world", "new_string": "there"}
        result = await client.call_tool("edit", edit)
        assert not result.is_error
    assert target.read_text() == "hello there\n"
    assert len(person.questions) == 1
    assert "-hello world" in person.questions[0].message
    assert "+hello there" in person.questions[0].message


@pytest.mark.requirement("mission.confirmation")
@pytest.mark.parametrize(("transport", "mode"), ROUTES)
async def test_a_refused_edit_changes_nothing(transport: str, mode: str, root: Path) -> None:
    target = root / "greeting.txt"
    target.write_text("hello world\n")
    person = Person("deny")
    async with connected(transport, mode, root, elicitation_callback=person) as client:
        for refusal in ("deny", "decline", "cancel"):
            person.decision = refusal
            edit = {"file_path": str(target), "old_string": "world", "new_string": "there"}
            result = await client.call_tool("edit", edit)
            assert result.is_error, refusal
            assert "[execution_denied]" in text_of(result)
            assert target.read_text() == "hello world\n"
    assert len(person.questions) == 3


@pytest.mark.requirement("mission.proxy")
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_an_upstream_over_http_or_sse_is_listed_and_called(kind: str, root: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(PEERS / "upstream.py"), kind]
    async with listening(command, r"port (\d+)") as port:
        url = f"http://127.0.0.1:{port}/{'mcp' if kind == 'http' else 'sse'}"
        entry = {"url": url, "type": kind, "trust": True}
        config = write_config(tmp_path, {"mcpServers": {"far": entry}})
        async with connected("stdio", "legacy", root, config) as client:
            assert "far__echo" in {tool.name for tool in (await client.list_tools()).tools}
            assert text_of(await client.call_tool("far__echo", {"text": "hi"})) == "hi"


@pytest.mark.requirement("mission.proxy")
async def test_a_bare_url_is_tried_as_streamable_http_and_then_as_sse(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(PEERS / "upstream.py"), "sse"]
    async with listening(command, r"port (\d+)") as port:
        entry = {"url": f"http://127.0.0.1:{port}/sse", "trust": True}
        config = write_config(tmp_path, {"mcpServers": {"far": entry}})
        async with connected("stdio", "legacy", root, config) as client:
            assert text_of(await client.call_tool("far__echo", {"text": "hi"})) == "hi"


@pytest.mark.requirement("mission.confirmation")
@pytest.mark.parametrize(("setting", "is_error"), [("client", False), ("deny", True), (None, False)])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_without_elicitation_the_setting_decides_on_stdio(
    mode: str, setting: str | None, is_error: bool, root: Path, tmp_path: Path
) -> None:
    target = root / "a.txt"
    target.write_text("old\n")
    config = write_config(tmp_path, {"confirmation": {"whenUnavailable": setting}} if setting else {})
    async with connected("stdio", mode, root, config) as client:
        result = await client.call_tool("write_file", {"file_path": str(target), "content": "new\n"})
    assert bool(result.is_error) is is_error
    assert target.read_text() == ("old\n" if is_error else "new\n")
    if is_error:
        assert "confirmation.whenUnavailable" in text_of(result)


@pytest.mark.requirement("mission.confirmation")
@pytest.mark.parametrize(("transport", "mode"), [("http", "legacy"), ("http", "2026-07-28"), ("sse", "legacy")])
async def test_without_elicitation_a_network_client_is_refused(transport: str, mode: str, root: Path) -> None:
    async with connected(transport, mode, root) as client:
        result = await client.call_tool("write_file", {"file_path": str(root / "a.txt"), "content": "new\n"})
    assert result.is_error
    assert "[execution_denied]" in text_of(result)
    assert not (root / "a.txt").exists()
