"""Calls every tool that takes a path, through a real client of a complete server, and checks the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client import Client

from tests.waiting import CEILING

Call = tuple[str, Mapping[str, Any]]
"""A tool's name and its arguments."""

MARKER = "OUTSIDE-THE-WORKSPACE-7c1f"
"""The content of every file that no answer may show."""


@dataclass(frozen=True)
class ToolAnswer:
    """One call and its answer."""

    tool: str
    result: types.CallToolResult

    @property
    def text(self) -> str:
        """The text that the model reads."""
        return "\n".join(block.text for block in self.result.content if isinstance(block, types.TextContent))

    @property
    def everything(self) -> str:
        """The whole result as text: content, structured content and metadata."""
        return str(self.result.model_dump())

    @property
    def code(self) -> str | None:
        """The stable error code, if the call failed."""
        return (self.result.meta or {}).get("coretools-mcp/error", {}).get("type") if self.result.is_error else None

    @property
    def structured(self) -> dict[str, Any]:
        """The structured content."""
        assert self.result.structured_content is not None, self.text
        return dict(self.result.structured_content)


async def call(client: Client, tool: str, **arguments: Any) -> ToolAnswer:
    """Call one tool, which must answer in time."""
    with anyio.fail_after(CEILING):
        return ToolAnswer(tool, await client.call_tool(tool, arguments))


def readers_of(path: str) -> list[Call]:
    """Return every call that could show what is at a path or below it."""
    return [
        ("read_file", {"file_path": path}),
        ("list_directory", {"path": path}),
        ("glob", {"pattern": "*", "path": path}),
        ("grep_search", {"pattern": ".", "path": path}),
        ("read_many_files", {"paths": [path]}),
    ]


def changers_of(path: str) -> list[Call]:
    """Return every call that could change what is at a path."""
    return [
        ("write_file", {"file_path": path, "content": "written"}),
        ("edit", {"file_path": path, "old_string": MARKER, "new_string": "edited"}),
        ("edit", {"file_path": path, "old_string": "", "new_string": "created"}),
    ]


def searches_for(path: str) -> list[Call]:
    """Return calls with a path where a pattern is expected. They may succeed without matches."""
    return [
        ("glob", {"pattern": path}),
        ("glob", {"pattern": f"{path}/**"}),
        ("grep_search", {"pattern": ".", "glob": path}),
        ("read_many_files", {"paths": [f"{path}/**", f"{path}*"]}),
    ]


async def answers(client: Client, calls: Sequence[Call]) -> list[ToolAnswer]:
    """Make the calls one after the other, and return the answers."""
    return [await call(client, tool, **arguments) for tool, arguments in calls]


def is_refused(answer: ToolAnswer) -> bool:
    """Return whether a call was refused: it failed with a code, or `read_many_files` skipped every file."""
    if answer.tool == "read_many_files" and not answer.result.is_error:
        return "skipped" in answer.text and "End of content" not in answer.text
    return answer.result.is_error is True and answer.code is not None and f"[{answer.code}]" in answer.text


async def assert_refused(client: Client, path: str, *codes: str) -> None:
    """Check that every tool refuses a path, with one of the codes if there are any, and never shows the marker."""
    for answer in await answers(client, readers_of(path) + changers_of(path)):
        assert is_refused(answer), (answer.tool, answer.text)
        assert not codes or answer.code is None or answer.code in codes, (answer.tool, answer.text)
        assert MARKER not in answer.everything, (answer.tool, answer.text)
    for answer in await answers(client, searches_for(path)):
        assert MARKER not in answer.everything, (answer.tool, answer.text)


async def assert_alive(client: Client) -> None:
    """Check that the server still answers."""
    with anyio.fail_after(CEILING):
        await client.session.send_request(types.PingRequest(), types.EmptyResult)


def state_of(*folders: Path) -> dict[str, object]:
    """Return the inode, mode, modification time, number of links and content of everything in some folders."""
    states: dict[str, object] = {}
    for folder in folders:
        for path in (folder, *sorted(folder.rglob("*"))):
            info = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            states[str(path)] = (info.st_ino, info.st_mode, info.st_mtime_ns, info.st_nlink, content)
    return states
