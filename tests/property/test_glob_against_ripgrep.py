"""Glob patterns find the same files as ripgrep's globs, where both have the same meaning.

They differ on purpose:

- For a pattern without a slash, ripgrep looks at any depth, and `glob` only in the folder itself. So ripgrep gets the
  pattern with a slash in front. The file filter of `grep_search` reads it as ripgrep does.
- If a file with exactly the pattern as its name exists, `glob` finds that file, so no name here has a wildcard.
- After a trailing slash, ripgrep finds only folders, and `glob` finds everything below.
- `?` and brackets match one byte in ripgrep and one character in `glob`, so the name beyond ASCII is longer than that.
- Braces with a single choice are ordinary characters for `glob`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.ripgrep import listed_files
from tools.builtin.search_tools import GlobTool, GrepTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.call_options import Limits
from tools.files.workspace import Workspace

NAMES = ["a", "b", "ab", "A", "a.py", "b.ts", "B.TS", ".h", "x y", "a-b", "\u00e9t\u00e9"]
SEGMENTS = [
    *["a", "b", "*", "?", "*.py", "*.{py,ts}", "[ab]", "[!a]", "[^b]", "[a-c]*", "a*", "*b*", ".h", "?b", "*.*", "x y"],
    *["{a,b}", "{a,ab,.h}", "a{-b,.py}", "[-a]*", "\u00e9*", "*t\u00e9", "*.[pt][ys]", "B"],
]
PATTERNS = st.lists(st.sampled_from([*SEGMENTS, "**"]), min_size=1, max_size=4).map("/".join)
PATHS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), max_size=12)


def build(root: Path, paths: list[str]) -> None:
    for path in paths:
        target = root / path
        if any(parent.is_file() for parent in target.parents) or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("word\n")


def context_of(root: Path) -> ToolContext:
    return ToolContext(workspace=Workspace([str(root)]), limits=Limits(), client=ClientState(key="test"))


def glob_result(root: Path, pattern: str, *, case_sensitive: bool) -> set[str]:
    tool = GlobTool()
    params = tool.validate_tool_params({"pattern": pattern, "case_sensitive": case_sensitive})
    result = asyncio.run(tool.execute(params, context_of(root)))
    files = cast("dict[str, Any]", result.structured)
    assert files["next_offset"] is None
    return {os.path.relpath(path, root) for path in files["files"]}


def filter_result(root: Path, glob: str) -> set[str]:
    tool = GrepTool()
    params = tool.validate_tool_params({"pattern": "word", "names_only": True, "glob": glob})
    result = asyncio.run(tool.execute(params, context_of(root)))
    assert isinstance(result.llm_content, str)
    assert result.facts["complete"]
    return {line for line in result.llm_content.split("\n---\n")[-1].split("\n") if (root / line).is_file()}


@pytest.mark.requirement("walk.like_ripgrep")
@examples(90, database=None)
@given(pattern=PATTERNS, paths=PATHS, case_sensitive=st.booleans())
def test_glob_finds_the_files_that_ripgrep_lists(pattern: str, paths: list[str], case_sensitive: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        build(root, paths)
        case = () if case_sensitive else ("--glob-case-insensitive",)
        assert glob_result(root, pattern, case_sensitive=case_sensitive) == listed_files(root, [f"/{pattern}"], *case)


@pytest.mark.requirement("walk.like_ripgrep")
@examples(60, database=None)
@given(pattern=PATTERNS, paths=PATHS, is_negated=st.booleans())
def test_the_file_filter_of_a_search_selects_the_files_that_ripgrep_selects(
    pattern: str, paths: list[str], is_negated: bool
) -> None:
    glob = f"!{pattern}" if is_negated else pattern
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        build(root, paths)
        assert filter_result(root, glob) == listed_files(root, [glob])
