"""A search finds the lines that `rg -n` finds for the same pattern as it was written, with ripgrep and without.

Lines end with LF here: `$` before the CR of a CRLF line is ours. A pattern that ripgrep does not take (a lone brace)
is compared by the other engines only.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.property.ripgrep import ripgrep
from tests.property.test_search_engines_agree import ASCII_PIECES, BROKEN_PIECES, OTHER_PIECES, patterns
from tools.contract.context import ClientState, Limits, ToolContext
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.workspace import Workspace

PIECES = [piece for piece in (*ASCII_PIECES, *OTHER_PIECES, *BROKEN_PIECES) if piece != b"\r"]
LINES = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
CROWD = 310
"""More files than are searched without ripgrep where there is ripgrep."""

ROOMY = Limits(read_chars=10_000_000, line_chars=1_000_000)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """A text file, perhaps with a mark or as UTF-16, perhaps without a last line ending."""
    body = b"\n".join(draw(st.lists(LINES, max_size=6))) + draw(st.sampled_from([b"", b"\n"]))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "marked", "wide"]))
    if kind == "marked":
        return b"\xef\xbb\xbf" + body
    return body.decode("utf-8", "replace").encode("utf-16") if kind == "wide" else body


FILES = st.lists(contents(), min_size=1, max_size=5)


@dataclass
class Place:
    """A folder with a crowd of empty files, and which engine is at hand."""

    root: Path
    engine: str

    def fill(self, files: list[bytes]) -> None:
        for path in self.root.glob("*.txt"):
            path.unlink()
        for number, content in enumerate(files):
            (self.root / f"{number}.txt").write_bytes(content)


@pytest.fixture(params=["ripgrep", "own"])
def place(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[Place]:
    for number in range(CROWD):
        (root / f"crowd{number}").write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "own":
            alone = tmp_path / "python-alone" / "python"
            alone.parent.mkdir()
            alone.symlink_to(sys.executable)
            patch.setenv("PATH", "")
            patch.setattr(sys, "executable", str(alone))
        yield Place(root, request.param)


def found(place: Place, pattern: str, *, case_sensitive: bool, fixed: bool) -> set[tuple[str, int]]:
    """The lines that our search shows."""
    tool = GrepTool()
    arguments = {"pattern": pattern, "case_sensitive": case_sensitive, "fixed_strings": fixed, "limit": 100_000}
    context = ToolContext(workspace=Workspace([str(place.root)]), limits=ROOMY, client=ClientState(key="test"))
    result = asyncio.run(tool.execute(tool.validate_tool_params(arguments), context))
    assert isinstance(result.llm_content, str)
    assert result.facts["complete"]
    assert ("ripgrep" in result.facts["engines"]) == (place.engine == "ripgrep")
    shown: set[tuple[str, int]] = set()
    name = ""
    for line in result.llm_content.split("\n"):
        if line.startswith("File: "):
            name = line.removeprefix("File: ")
        elif match := re.match(r"L(\d+): ", line):
            shown.add((name, int(match[1])))
    assert len(shown) == result.facts["matches"]
    return shown


def expected(root: Path, pattern: str, *, case_sensitive: bool, fixed: bool) -> set[tuple[str, int]] | None:
    """The lines that ripgrep finds."""
    options = ["--case-sensitive" if case_sensitive else "--ignore-case", *(["--fixed-strings"] if fixed else [])]
    asked = ["--text", "--no-heading", "--with-filename", "--null", "-n", "-e", pattern, "--", "."]
    output = ripgrep(root, *options, *asked)
    if output is None:
        return None
    lines = re.findall(rb"^\./([^\0\n]+)\0(\d+):", output, re.MULTILINE)
    return {(os.fsdecode(name), int(number)) for name, number in lines}


def compare(place: Place, files: list[bytes], pattern: str, *, case_sensitive: bool, fixed: bool) -> None:
    place.fill(files)
    path = sys.executable
    with pytest.MonkeyPatch.context() as patch:
        if place.engine == "own":
            # The other opinion is needed all the same.
            patch.setattr(sys, "executable", os.path.join(sys.prefix, "bin", "python"))
        theirs = expected(place.root, pattern, case_sensitive=case_sensitive, fixed=fixed)
    assert sys.executable == path
    assume(theirs is not None)
    assert found(place, pattern, case_sensitive=case_sensitive, fixed=fixed) == theirs


QUICK = settings(
    max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.requirement("grep.like_ripgrep")
@QUICK
@given(pattern=patterns(), files=FILES, case_sensitive=st.booleans())
def test_a_pattern_finds_the_lines_that_ripgrep_finds(
    place: Place, pattern: str, files: list[bytes], case_sensitive: bool
) -> None:
    compare(place, files, pattern, case_sensitive=case_sensitive, fixed=False)


@pytest.mark.requirement("grep.like_ripgrep")
@QUICK
@given(
    pattern=st.text("abAB1_-.*+?()[]{}|^$\\/ \u00e9\u00c9\u4e2d", min_size=1, max_size=4),
    files=FILES,
    case_sensitive=st.booleans(),
)
def test_a_fixed_string_finds_the_lines_that_ripgrep_finds(
    place: Place, pattern: str, files: list[bytes], case_sensitive: bool
) -> None:
    compare(place, files, pattern, case_sensitive=case_sensitive, fixed=True)
