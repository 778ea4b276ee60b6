"""Searches that are crafted to be expensive before they begin: nested patterns, and links by the hundred."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.harness import text_of
from tests.hostile.abort_signals import AbortAfterChecks
from tests.hostile.watched_server import MEGABYTE, needs_proc, watched_server
from tools.builtin.read_file import ReadManyFilesTool
from tools.builtin.search_tools import GlobTool
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType

pytestmark = pytest.mark.anyio

NOTHING = "((|){1000}){1000}"
"""A pattern that matches nothing a million times, in two ways each time."""


def nested(pattern: str, times: int) -> str:
    for _ in range(times):
        pattern = f"({pattern}){{2}}"
    return pattern


@needs_proc
@pytest.mark.requirement("grep.budget")
async def test_the_server_answers_pings_while_it_handles_patterns_with_very_many_alternatives(root: Path) -> None:
    (root / "a.txt").write_text("text\n")
    async with watched_server(root) as server:
        await server.call("grep_search", pattern="warm")
        memory_before = server.reset_peak()
        for pattern in (NOTHING, nested(NOTHING, 12), nested("(|){1000}", 90), nested("(a|b)", 19)):
            with anyio.fail_after(50):
                result = await server.call("grep_search", pattern=pattern)
            assert not result.is_error or "[invalid_tool_params]" in text_of(result)
        assert server.peak() - memory_before < 50 * MEGABYTE


@pytest.mark.requirement("glob.links")
async def test_a_cancelled_glob_stops_between_two_links(root: Path, context: ToolContext) -> None:
    (root / "target").write_text("")
    for number in range(100):
        (root / f"l{number:03}").symlink_to("target")
    tool = GlobTool()
    params = tool.validate_tool_params({"pattern": "l*"})
    late_signal = AbortAfterChecks(10_000)
    result = await tool.execute(params, replace(context, signal=late_signal))
    assert result.structured is not None
    assert result.structured["total"] == 100
    assert late_signal.checks >= 100
    early_signal = AbortAfterChecks(50)
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, replace(context, signal=early_signal))
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert early_signal.checks == 51


@pytest.mark.requirement("glob.links")
async def test_a_glob_that_has_timed_out_follows_no_more_links_and_says_so(root: Path, context: ToolContext) -> None:
    (root / "target").write_text("")
    (root / "link").symlink_to("target")
    tool = GlobTool()
    tool.seconds = 0.0
    result = await tool.execute(tool.validate_tool_params({"pattern": "l*"}), context)
    assert result.structured is not None
    assert (result.structured["total"], result.structured["partial"]) == (0, True)


@pytest.mark.requirement("glob.links")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (GlobTool(), {"pattern": "d/{1..100}.txt"}),
        (ReadManyFilesTool(), {"paths": ["d/{1..100}.txt"]}),
    ],
)
async def test_a_cancelled_call_looks_up_no_more_parts_of_its_pattern(
    tool: Any, arguments: dict[str, Any], root: Path, context: ToolContext
) -> None:
    (root / "d").mkdir()
    params = tool.validate_tool_params(arguments)
    early_signal = AbortAfterChecks(30)
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, replace(context, signal=early_signal))
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert early_signal.checks == 31


@pytest.mark.requirement("many.budget")
async def test_entries_that_there_was_no_time_for_are_not_reported_as_missing(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("text\n")
    tool = ReadManyFilesTool()
    tool.seconds = 0.0
    result = await tool.execute(tool.validate_tool_params({"paths": ["a.txt", "b.txt"]}), context)
    assert result.facts["partial"] is True
    assert result.facts["skipped"] == []
