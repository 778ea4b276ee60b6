"""A search shows the same lines as `rg -n` for the same pattern, in the files that the product's walk finds."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.ripgrep import ripgrep
from tools.builtin.search_tools import GrepTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.call_options import AbortSignal, Deadline, Limits
from tools.files.find.folder_walk import Everything, Filters, Walk
from tools.files.text_encodings import decode, shown_text
from tools.files.workspace import Workspace

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


def is_repeatable(atom: str) -> bool:
    return atom not in {"^", "$", "\\b", "\\B"}


@st.composite
def patterns(draw: st.DrawFn, depth: int = 2) -> str:
    """Generate a pattern of the search's regular expressions."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        if depth and draw(st.integers(0, 4)) == 0:
            choices = draw(st.lists(patterns(depth - 1), min_size=1, max_size=3))
            atom = f"({draw(st.sampled_from(['', '?:']))}{'|'.join(choices)})"
        else:
            atom = draw(st.sampled_from([*LITERALS, *SHORTHANDS, *BRACKETS]))
        if is_repeatable(atom) and len(atom) < 20:
            atom += draw(st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{1,2}", "{0,}", "+?", "*?"]))
        parts.append(atom)
    return "".join(parts)


PIECES = [piece for piece in (*ASCII_PIECES, *OTHER_PIECES, *BROKEN_PIECES) if piece != b"\r"]
LINES = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)

LARGE_LIMITS = Limits(read_chars=10_000_000, line_chars=1_000_000)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Generate a text file in UTF-8 or UTF-16, with or without a byte order mark and a last line ending."""
    body = b"\n".join(draw(st.lists(LINES, max_size=6))) + draw(st.sampled_from([b"", b"\n"]))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "marked", "wide"]))
    if kind == "marked":
        return b"\xef\xbb\xbf" + body
    return body.decode("utf-8", "replace").encode("utf-16") if kind == "wide" else body


FILES = st.lists(contents(), min_size=1, max_size=5)


def found_lines(root: Path, pattern: str, **arguments: object) -> set[tuple[str, int]]:
    """Return the lines that the tool shows, each as a file and a line number."""
    tool = GrepTool()
    params = tool.validate_tool_params({"pattern": pattern, "limit": 100_000, **arguments})
    context = ToolContext(workspace=Workspace([str(root)]), limits=LARGE_LIMITS, client=ClientState(key="test"))
    result = asyncio.run(tool.execute(params, context))
    assert isinstance(result.llm_content, str)
    assert result.facts["complete"]
    lines: set[tuple[str, int]] = set()
    name = ""
    for line in result.llm_content.split("\n"):
        if line.startswith("File: "):
            name = line.removeprefix("File: ")
        elif match := re.match(r"L(\d+): ", line):
            lines.add((name, int(match[1])))
    assert len(lines) == result.facts["matches"]
    return lines


def ripgrep_lines(
    root: Path, pattern: str, *, case_sensitive: bool, fixed_strings: bool
) -> set[tuple[str, int]] | None:
    """Return the lines that ripgrep finds, or `None` if it refuses the pattern."""
    options = [
        "--case-sensitive" if case_sensitive else "--ignore-case",
        *(["--fixed-strings"] if fixed_strings else []),
    ]
    arguments = ["--text", "--crlf", "--no-heading", "--with-filename", "--null", "-n", "-e", pattern, "--", "."]
    output = ripgrep(root, *options, *arguments)
    if output is None:
        return None
    matches = re.findall(rb"^\./([^\0\n]+)\0(\d+):", output, re.MULTILINE)
    return {(os.fsdecode(name), int(number)) for name, number in matches}


def compare(files: list[bytes], pattern: str, *, case_sensitive: bool, fixed_strings: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as texts:
        root = Path(folder).resolve()
        for number, content in enumerate(files):
            (root / f"{number}.txt").write_bytes(content)
            # The tool searches files in other encodings as the text that `read_file` shows, so ripgrep gets that text.
            decoded_text = decode(content)
            is_unicode = decoded_text is None or decoded_text.encoding.is_known
            Path(texts, f"{number}.txt").write_bytes(content if is_unicode else shown_text(content).text.encode())
        expected_lines = ripgrep_lines(Path(texts), pattern, case_sensitive=case_sensitive, fixed_strings=fixed_strings)
        assume(expected_lines is not None)
        assert found_lines(root, pattern, case_sensitive=case_sensitive, fixed_strings=fixed_strings) == expected_lines


QUICK = examples(60, database=None)


@pytest.mark.requirement("grep.like_ripgrep")
@QUICK
@given(pattern=patterns(), files=FILES, case_sensitive=st.booleans())
def test_a_pattern_finds_the_lines_that_ripgrep_finds(pattern: str, files: list[bytes], case_sensitive: bool) -> None:
    compare(files, pattern, case_sensitive=case_sensitive, fixed_strings=False)


@pytest.mark.requirement("grep.like_ripgrep")
@QUICK
@given(
    pattern=st.text("abAB1_-.*+?()[]{}|^$\\/ \u00e9\u00c9\u4e2d", min_size=1, max_size=4),
    files=FILES,
    case_sensitive=st.booleans(),
)
def test_a_fixed_string_finds_the_lines_that_ripgrep_finds(
    pattern: str, files: list[bytes], case_sensitive: bool
) -> None:
    compare(files, pattern, case_sensitive=case_sensitive, fixed_strings=True)


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


@pytest.mark.requirement("grep.ignored")
@QUICK
@given(
    paths=st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), min_size=1, max_size=10),
    ignore_files=st.dictionaries(st.sampled_from(["", "a/", "b/", "a/b/"]), IGNORE_FILES, max_size=3),
    is_repository=st.booleans(),
)
def test_a_search_finds_text_in_the_files_that_a_walk_finds(
    paths: set[str], ignore_files: dict[str, str], is_repository: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        texts = {**dict.fromkeys(sorted(paths), "foo\n"), ".git/HEAD" if is_repository else "nothing": "foo\n"}
        texts |= {f"{folder}.gitignore": f"#foo\n{text}" for folder, text in ignore_files.items()}
        for path, text in texts.items():
            with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
        walk = Walk(Workspace([str(root)]), Filters(), Deadline(AbortSignal(), 60))
        files = walk.files(walk.workspace.root_locations()[0], Everything())
        assert found_lines(root, "foo") == {(file.path, 1) for file in files}
