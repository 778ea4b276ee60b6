"""Links that are crafted to be expensive: each path is followed only so far, and a listing follows as few as it can."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from mcp.client import Client

from tests.hostile.abort_signals import AbortAfterChecks
from tests.hostile.every_tool import MARKER, answers, changers_of, is_refused, readers_of
from tools.builtin.search_tools import LSTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.folder_listing import MAX_SORTED_LINKS
from tools.files.path_opener import real_path

pytestmark = pytest.mark.anyio

CHAIN = 39
"""The number of links in a chain: one fewer than may be followed."""


def costly_chain(root: Path) -> str:
    """Create a chain of links, each of which enters and leaves a folder as often as possible. Return the first link."""
    (root / "a").mkdir()
    (root / "end").write_text(f"{MARKER}\n")
    for number in range(CHAIN):
        target = f"c{number + 1}" if number < CHAIN - 1 else "end"
        (root / f"c{number}").symlink_to("a/../" * 815 + target)
    return "c0"


@pytest.mark.requirement("paths.bounded_names")
async def test_a_path_through_links_that_hold_very_many_names_is_refused_by_every_tool(
    root: Path, client: Client
) -> None:
    path = costly_chain(root)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        real_path(str(root / path))
    for answer in await answers(client, readers_of(path) + changers_of(path)):
        assert is_refused(answer), (answer.tool, answer.text)
        assert "ELOOP" in answer.text, (answer.tool, answer.text)
    assert (root / "end").read_text() == f"{MARKER}\n"


@pytest.mark.requirement("paths.bounded_names")
def test_links_with_many_names_are_followed_within_the_bound(root: Path) -> None:
    (root / "a").mkdir()
    (root / "end").write_text("")
    (root / "link").symlink_to("a/../" * 800 + "end")
    assert real_path(str(root / "link")) == str(root / "end")


async def ls(context: ToolContext, signal: AbortSignal, limit: int) -> ToolResult:
    tool = LSTool()
    params = tool.validate_tool_params({"path": ".", "limit": limit})
    return await tool.execute(params, replace(context, signal=signal))


def names_of(result: ToolResult) -> list[str]:
    assert result.structured is not None
    return [entry["name"] for entry in result.structured["entries"]]


@pytest.mark.requirement("ls.links_bounded")
async def test_a_cancelled_listing_stops_between_two_links(root: Path, context: ToolContext) -> None:
    for number in range(100):
        (root / f"l{number:03}").symlink_to("nowhere")
    late_signal = AbortAfterChecks(10_000)
    assert names_of(await ls(context, late_signal, limit=1)) == ["l000"]
    assert late_signal.checks >= 100
    early_signal = AbortAfterChecks(50)
    with pytest.raises(ToolError) as error_info:
        await ls(context, early_signal, limit=1)
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert early_signal.checks == 51


@pytest.mark.requirement("ls.links_bounded")
async def test_of_very_many_links_only_those_on_the_page_are_followed_and_listed_among_the_files(
    root: Path, context: ToolContext
) -> None:
    (root / "z-folder").mkdir()
    for number in range(MAX_SORTED_LINKS + 1):
        (root / f"l{number:03}").symlink_to("z-folder")
    signal = AbortAfterChecks(50)
    result = await ls(context, signal, limit=3)
    assert names_of(result) == ["z-folder", "l000", "l001"]
    assert result.structured is not None
    assert result.structured["entries"][1] == {"name": "l000", "type": "directory", "size": None, "target": "z-folder"}
    assert result.structured["total"] == MAX_SORTED_LINKS + 2


@pytest.mark.requirement("ls.links_bounded")
async def test_links_for_which_the_text_has_no_room_are_not_followed(root: Path, context: ToolContext) -> None:
    for number in range(MAX_SORTED_LINKS + 500):
        (root / f"l{number:04}{'x' * 195}").symlink_to("nowhere")
    signal = AbortAfterChecks(200)
    result = await ls(context, signal, limit=10_000)
    assert 20 < len(names_of(result)) < 50


@pytest.mark.requirement("ls.links")
async def test_a_link_that_leads_in_a_circle_is_listed_as_broken(root: Path, context: ToolContext) -> None:
    (root / "circle").symlink_to("circle")
    result = await ls(context, AbortSignal(), limit=10)
    assert "circle -> circle (broken link)" in str(result.llm_content)
