"""Patterns that run away, without ripgrep: the process is killed, the file named, the others searched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tools.contract.context import AbortSignal, ToolContext
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import FolderFiles
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.search.cost import runaway_part
from tools.filesystem.search.dialect import parse_pattern
from tools.filesystem.search.engines import worker
from tools.filesystem.search.engines.engine import Batch, Query, Runaways
from tools.filesystem.search.engines.worker import WorkerEngine, Workers
from tools.filesystem.workspace import Workspace


@pytest.fixture
def workers() -> Iterator[Workers]:
    """Processes that are gone at the end."""
    kept = Workers()
    yield kept
    kept.close()


HOSTILE = "a" * 60 + "!\n"


@pytest.mark.anyio
@pytest.mark.requirement("grep.runaway_file")
async def test_a_file_on_which_a_pattern_runs_away_is_named_and_the_others_are_searched(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    for name, text in {"a": "found aab\n", "b": HOSTILE, "c": "none\n", "d": "found ab\n"}.items():
        (root / f"{name}.txt").write_text(text)
    tool = GrepTool()
    with anyio.fail_after(20):
        result = await tool.execute(tool.validate_tool_params({"pattern": "x|(a+)+b"}), context)
    text = str(result.llm_content)
    assert "File: a.txt\nL1: found aab" in text
    assert "File: d.txt\nL1: found ab" in text
    assert "took too long for this pattern: b.txt. There '(a+)+' can match" in text
    assert "PARTIAL" not in text
    assert result.return_display == "Found 2 matches (not all searched)"
    assert result.facts["skipped"] == {"binary": 0, "huge": 0, "slow": 1}
    assert (result.facts["searched"], result.facts["complete"], result.facts["timed_out"]) == (3, False, False)


@pytest.mark.anyio
@pytest.mark.requirement("grep.runaway_file")
async def test_a_pattern_that_runs_away_again_ends_the_search_with_what_it_has(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        (root / f"{number}.txt").write_text(HOSTILE if number % 2 else "found ab\n")
    tool = GrepTool()
    with anyio.fail_after(20):
        result = await tool.execute(tool.validate_tool_params({"pattern": "(a+)+b"}), context)
    text = str(result.llm_content)
    assert "File: 0.txt" in text
    assert "File: 2.txt" in text
    assert "File: 4.txt" not in text
    assert "1.txt, 3.txt." in text
    assert "PARTIAL RESULT: after 2 such files" in text
    assert result.facts["skipped"]["slow"] == 2
    assert result.facts["complete"] is False
    assert "worker" in result.facts["engines"]


@pytest.mark.anyio
@pytest.mark.requirement("grep.runaway_file")
async def test_nothing_is_shown_of_a_file_on_which_the_excluding_pattern_runs_away(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    (root / "a.txt").write_text("found aaab\nfound\n")
    (root / "b.txt").write_text(f"found\n{HOSTILE}")
    tool = GrepTool()
    with anyio.fail_after(20):
        params = tool.validate_tool_params({"pattern": "found", "exclude_pattern": "(a+)+b"})
        result = await tool.execute(params, context)
    text = str(result.llm_content)
    assert "File: a.txt\nL2: found\n---" in text
    assert "File: b.txt" not in text
    assert "took too long for this pattern: b.txt." in text
    assert result.facts["matches"] == 1


@pytest.mark.requirement("grep.runaway_file")
def test_a_file_whose_parts_are_slow_but_end_is_searched_to_its_end(
    root: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "STEP_SECONDS", 0.3)
    lines = 40_000
    (root / "a.txt").write_text(("x" * 60 + "\n") * lines + "xxyz\n")
    (root / "b.txt").write_text("xz\n")
    searched = Batch(Workspace([str(root)]).root_locations()[0], [FolderFiles("", ["a.txt", "b.txt"], True)], 2)
    runaways = Runaways()
    started = time.monotonic()
    run = WorkerEngine(workers, runaways).start(
        searched, Query(parse_pattern("x+y?z"), ignore_case=False), Deadline(AbortSignal(), 60.0)
    )
    with closing(run), closing(run.hits()) as hits:
        assert [(hit.path, list(hit.lines)) for hit in hits] == [("a.txt", [lines + 1]), ("b.txt", [1])]
    assert time.monotonic() - started > worker.STEP_SECONDS, "the file is too small to tell anything"
    assert not runaways.files
    assert run.tally.searched == 2


@pytest.mark.requirement("grep.runaway_file")
@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("(a+)+$", "(a+)+"),
        ("b(?:a|aa)*c", "(?:a|aa)*"),
        ("foo.*bar", ".*"),
        ("x+(y{2,}z?)+w", "(y{2,}z?)+"),
        ("\\w{500}x", ""),
    ],
)
def test_the_part_of_a_pattern_that_runs_away_is_told_as_it_was_written(pattern: str, part: str) -> None:
    assert runaway_part(parse_pattern(pattern).tree) == part
