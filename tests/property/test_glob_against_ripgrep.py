"""Glob patterns find what ripgrep's globs find, where both mean the same.

They differ on purpose: ripgrep reads a pattern without a slash as one for any depth, `glob` as one for the folder
itself, so a slash is put before what ripgrep is given; the file filter of `grep_search` reads it as ripgrep does. A
name that exists as it is written is that name for us, so no name here holds a wildcard. For ripgrep a trailing slash
stands for folders only, for us for all that is below. A `?` or a bracket is one byte for ripgrep and one character
for us, so the name that is not ASCII is longer than they reach. Braces with one choice are none for us.
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
from tests.property.ripgrep import listed
from tools.builtin.find_files import GlobTool, GrepTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.limits import Limits
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


def globbed(root: Path, pattern: str, *, case_sensitive: bool) -> set[str]:
    tool = GlobTool()
    params = tool.validate_tool_params({"pattern": pattern, "case_sensitive": case_sensitive})
    result = asyncio.run(tool.execute(params, context_of(root)))
    files = cast("dict[str, Any]", result.structured)
    assert files["next_offset"] is None
    return {os.path.relpath(path, root) for path in files["files"]}


def filtered(root: Path, glob: str) -> set[str]:
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
        assert globbed(root, pattern, case_sensitive=case_sensitive) == listed(root, [f"/{pattern}"], *case)


@pytest.mark.requirement("walk.like_ripgrep")
@examples(60, database=None)
@given(pattern=PATTERNS, paths=PATHS, negated=st.booleans())
def test_the_file_filter_of_a_search_takes_the_files_that_ripgrep_takes(
    pattern: str, paths: list[str], negated: bool
) -> None:
    glob = f"!{pattern}" if negated else pattern
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        build(root, paths)
        assert filtered(root, glob) == listed(root, [glob])
