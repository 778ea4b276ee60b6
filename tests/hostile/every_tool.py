"""Every tool that takes a path, called by a real client of the whole server, and all that it gives back."""

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
"""Stands in every file that no answer may show."""


@dataclass(frozen=True)
class Called:
    """One call and its answer."""

    tool: str
    result: types.CallToolResult

    @property
    def text(self) -> str:
        """What the model reads."""
        return "\n".join(block.text for block in self.result.content if isinstance(block, types.TextContent))

    @property
    def everything(self) -> str:
        """All that is sent: content, structured content, metadata."""
        return str(self.result.model_dump())

    @property
    def code(self) -> str | None:
        """The stable code of a failure."""
        return (self.result.meta or {}).get("coretools-mcp/error", {}).get("type") if self.result.is_error else None

    @property
    def structured(self) -> dict[str, Any]:
        """What programs read."""
        assert self.result.structured_content is not None, self.text
        return dict(self.result.structured_content)


async def call(client: Client, tool: str, **arguments: Any) -> Called:
    """Call one tool; it must answer."""
    with anyio.fail_after(CEILING):
        return Called(tool, await client.call_tool(tool, arguments))


def readers_of(path: str) -> list[Call]:
    """Every call that could show what is at a path or below it."""
    return [
        ("read_file", {"file_path": path}),
        ("list_directory", {"path": path}),
        ("glob", {"pattern": "*", "path": path}),
        ("grep_search", {"pattern": ".", "path": path}),
        ("read_many_files", {"paths": [path]}),
    ]


def changers_of(path: str) -> list[Call]:
    """Every call that could change what is at a path."""
    return [
        ("write_file", {"file_path": path, "content": "written"}),
        ("edit", {"file_path": path, "old_string": MARKER, "new_string": "edited"}),
        ("edit", {"file_path": path, "old_string": "", "new_string": "created"}),
    ]


def searches_for(path: str) -> list[Call]:
    """Calls that name a path where a pattern is expected; finding nothing is a good answer."""
    return [
        ("glob", {"pattern": path}),
        ("glob", {"pattern": f"{path}/**"}),
        ("grep_search", {"pattern": ".", "glob": path}),
        ("read_many_files", {"paths": [f"{path}/**", f"{path}*"]}),
    ]


async def answers(client: Client, calls: Sequence[Call]) -> list[Called]:
    """Make calls one after the other."""
    return [await call(client, tool, **arguments) for tool, arguments in calls]


def is_refused(called: Called) -> bool:
    """Whether a call was refused: an error with a code, or for many files the reason why each was left out."""
    if called.tool == "read_many_files" and not called.result.is_error:
        return "skipped" in called.text and "End of content" not in called.text
    return called.result.is_error is True and called.code is not None and f"[{called.code}]" in called.text


async def assert_refused(client: Client, path: str, *codes: str) -> None:
    """No tool takes this path; each failure has one of the codes, where codes are given, and shows nothing of it."""
    for called in await answers(client, readers_of(path) + changers_of(path)):
        assert is_refused(called), (called.tool, called.text)
        assert not codes or called.code is None or called.code in codes, (called.tool, called.text)
        assert MARKER not in called.everything, (called.tool, called.text)
    for called in await answers(client, searches_for(path)):
        assert MARKER not in called.everything, (called.tool, called.text)


async def assert_alive(client: Client) -> None:
    """The server still answers."""
    with anyio.fail_after(CEILING):
        await client.session.send_request(types.PingRequest(), types.EmptyResult)


def state_of(*folders: Path) -> dict[str, object]:
    """Everything below some folders: which file it is, when it was changed, and what it holds."""
    found: dict[str, object] = {}
    for folder in folders:
        for path in (folder, *sorted(folder.rglob("*"))):
            info = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            found[str(path)] = (info.st_ino, info.st_mode, info.st_mtime_ns, info.st_nlink, content)
    return found
