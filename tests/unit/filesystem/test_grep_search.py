"""`grep_search`: what is found, where, in which form, and what is told of the rest."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.contract.context import AbortSignal, Limits, ToolContext
from tools.contract.errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.result import ToolResult
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.search import run as search
from tools.filesystem.search.engines.ripgrep import find_ripgrep
from tools.filesystem.search.engines.scan import MAX_FILE_BYTES
from tools.filesystem.search.narrowing import LARGE_TREE
from tools.filesystem.workspace import Workspace

pytestmark = pytest.mark.anyio


def make(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)


async def grep(context: ToolContext, pattern: str, /, **arguments: Any) -> ToolResult:
    tool = GrepTool()
    return await tool.execute(tool.validate_tool_params({"pattern": pattern, **arguments}), context)


async def lines(context: ToolContext, pattern: str, /, **arguments: Any) -> list[str]:
    """The text without its header."""
    result = await grep(context, pattern, **arguments)
    assert result.structured is None
    return str(result.llm_content).split("\n")[2:]


async def names(context: ToolContext, pattern: str, /, **arguments: Any) -> list[str]:
    """The files with matches."""
    found = await lines(context, pattern, **arguments)
    return [line.removeprefix("File: ") for line in found if line.startswith("File: ")]


async def code_of(context: ToolContext, pattern: str, /, **arguments: Any) -> ToolErrorType:
    with pytest.raises(ToolError) as caught:
        await grep(context, pattern, **arguments)
    return caught.value.code


def real_ripgrep() -> str:
    program = find_ripgrep([])
    beside = os.path.join(sys.prefix, "bin", "rg")
    assert program or os.path.isfile(beside), "the tests need ripgrep: the development environment installs it"
    return program or beside


@pytest.mark.requirement("ignore.nested_search")
@pytest.mark.parametrize("files", [3, search.SMALL_TREE + 50, LARGE_TREE + 200])
@pytest.mark.parametrize(
    ("with_ripgrep", "pattern"),
    [(with_it, text) for with_it in (True, False) for text in ("pin-4711", "(p|pi|.)*-4711")],
)
async def test_no_engine_searches_what_an_agent_ignore_file_in_a_folder_hides(
    context: ToolContext, no_ripgrep: pytest.MonkeyPatch, files: int, with_ripgrep: bool, pattern: str
) -> None:
    root = Path(context.workspace.first_root)
    if with_ripgrep:
        no_ripgrep.setenv("PATH", os.path.join(sys.prefix, "bin"))
    folders = [f"{letter}/deep" for letter in "abcde"]
    texts: dict[str, str | bytes] = {
        f"{folders[number % 5]}/{number}.txt": "pin-4711\n" * (files - number < 20) for number in range(files)
    }
    make(root, texts)
    for folder in folders[1:]:
        make(root, {f"{folder}/secret.key": "pin-4711\n"})
    make(root, {"b/.geminiignore": "deep/secret.*\n", "c/deep/.qwenignore": "*.key\n", "d/.coretoolsignore": "deep\n"})
    make(root, {"e/deep/.qwenignore/broken": "pin-4711\n"})
    searched = [path for path in texts if path[0] in "abc"]
    shown = sorted(path for path in searched if texts[path])
    tool = GrepTool()
    for _ in range(2):  # what was learned of a folder does not open it
        params = tool.validate_tool_params({"pattern": pattern, "names_only": True, "limit": 10_000})
        result = await tool.execute(params, context)
        found = [line for line in str(result.llm_content).splitlines() if "/deep/" in line]
        assert found == shown
        assert result.facts["searched"] == len(searched) + 3
        assert result.facts["hidden"] == {"agent": 4}


@pytest.mark.requirement("grep.text")
async def test_matches_are_grouped_by_file_in_the_order_of_paths(root: Path, context: ToolContext) -> None:
    make(root, {"b.txt": "Hello\n  world hello\n", "a/c.txt": "none\nhello", "a.txt": "x"})
    result = await grep(context, "hello")
    assert str(result.llm_content).split("\n") == [
        f'Found 3 matches for pattern "hello" in the workspace directory {root}:',
        "---",
        "File: a/c.txt",
        "L2: hello",
        "---",
        "File: b.txt",
        "L1: Hello",
        "L2:   world hello",
        "---",
    ]
    assert result.return_display == "Found 3 matches"
    assert result.facts["complete"] is True
    assert result.facts["files"] == 2


@pytest.mark.requirement("grep.none")
async def test_no_match_is_no_failure_and_says_how_much_was_searched(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "a", "b.txt": ""})
    result = await grep(context, "zebra", glob="*.txt")
    assert result.error is None
    assert result.llm_content == (
        f'No matches found for pattern "zebra" in the workspace directory {root} (filter: "*.txt"); 2 files searched.'
    )
    assert result.return_display == "No matches found"


@pytest.mark.requirement("grep.path")
async def test_a_folder_or_a_single_file_can_be_searched(root: Path, context: ToolContext) -> None:
    make(root, {"src/a.py": "foo\n", "src/deep/b.py": "foo\n", "c.py": "foo\n"})
    assert await names(context, "foo", path="src") == ["a.py", "deep/b.py"]
    assert await names(context, "foo", dir_path=str(root / "src" / "deep")) == ["b.py"]
    assert await names(context, "foo", path="src/a.py") == ["a.py"]


@pytest.mark.requirement("grep.glob")
@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.py", ["a.py", "src/b.py"]),
        ("*.{py,ts}", ["a.py", "src/b.py", "src/c.ts"]),
        ("src/**", ["src/b.py", "src/c.ts"]),
        ("src/", ["src/b.py", "src/c.ts"]),
        ("**/src/*.ts", ["src/c.ts"]),
        ("!*.py", ["src/c.ts"]),
        ("*.PY", []),
    ],
)
async def test_a_glob_narrows_the_files(root: Path, context: ToolContext, glob: str, expected: list[str]) -> None:
    make(root, {"a.py": "foo", "src/b.py": "foo", "src/c.ts": "foo"})
    assert await names(context, "foo", include=glob) == expected
    assert await names(context, "foo", include_pattern=glob) == expected


@pytest.mark.requirement("grep.case")
async def test_case_counts_only_on_request(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "foo\nFOO\nStra\u00dfe \u00c4rger\n"})
    assert await lines(context, "FOO") == ["File: a.txt", "L1: foo", "L2: FOO", "---"]
    assert await lines(context, "FOO", case_sensitive=True) == ["File: a.txt", "L2: FOO", "---"]
    assert await lines(context, "\u00e4RGER") == ["File: a.txt", "L3: Stra\u00dfe \u00c4rger", "---"]
    assert await lines(context, "(?i)FOO", case_sensitive=True) == await lines(context, "foo")


@pytest.mark.requirement("grep.fixed")
async def test_fixed_strings_take_the_pattern_as_it_stands(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "f(x[0])\nfx0\n-e --pre=sh\n"})
    assert await lines(context, "f(x[0])", fixed_strings=True) == ["File: a.txt", "L1: f(x[0])", "---"]
    assert await lines(context, "-e", fixed_strings=True) == ["File: a.txt", "L3: -e --pre=sh", "---"]
    assert await lines(context, "(", fixed_strings=True) == ["File: a.txt", "L1: f(x[0])", "---"]


@pytest.mark.requirement("grep.context")
async def test_neighbours_are_shown_on_request_and_never_twice(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "1\n2\nhit\n4\nhit\n6\n7\n8\nhit"})
    assert await lines(context, "hit", context=1) == [
        "File: a.txt",
        "L2- 2",
        "L3: hit",
        "L4- 4",
        "L5: hit",
        "L6- 6",
        "L8- 8",
        "L9: hit",
        "---",
    ]
    assert await lines(context, "hit", before=1, limit=1) == ["File: a.txt", "L2- 2", "L3: hit", "---", LIMITED_1]
    assert (await lines(context, "8", after=5))[1:3] == ["L8: 8", "L9- hit"]


LIMITED_1 = (
    "[Limited to 1 match, there are more. Raise limit, search a narrower path or glob, "
    "leave lines out with exclude_pattern, or use names_only or max_matches_per_file.]"
)


@pytest.mark.requirement("grep.context")
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
@pytest.mark.parametrize("padding", [1, 300])
async def test_neighbours_are_the_same_in_small_and_large_files(
    root: Path, context: ToolContext, mark: bytes, padding: int
) -> None:
    text = "".join(
        f"{number} {'needle' if number in {2, 2_000, 5_000} else '-' * padding}\r\n" for number in range(1, 5_001)
    )
    (root / "a.txt").write_bytes(mark + (text.encode("utf-16-le") if mark == b"\xff\xfe" else text.encode()))
    found = await lines(context, "needle", before=2, after=1)
    shown = [" ".join(line.split()[:2]) for line in found if line.startswith("L")]
    assert shown == [
        *("L1- 1", "L2: 2", "L3- 3"),
        *("L1998- 1998", "L1999- 1999", "L2000: 2000", "L2001- 2001"),
        *("L4998- 4998", "L4999- 4999", "L5000: 5000"),
    ]


@pytest.mark.requirement("grep.limits")
@pytest.mark.parametrize("spelling", ["limit", "total_max_matches", "maxResults"])
async def test_the_limit_is_told_only_where_there_is_more(root: Path, context: ToolContext, spelling: str) -> None:
    make(root, {"a.txt": "x\nx\n", "b.txt": "x\n"})
    three = await grep(context, "x", **{spelling: 3})
    assert "Limited" not in str(three.llm_content)
    two = await grep(context, "x", **{spelling: 2})
    assert "Limited to 2 matches, there are more." in str(two.llm_content)
    assert "Found at least 2 matches" in str(two.llm_content)
    assert two.return_display == "Found 2 matches (limited)"
    assert two.facts["complete"] is False
    one = await grep(context, "x", **{spelling: 1})
    assert "L2" not in str(one.llm_content)
    assert "Limited" in str(one.llm_content)


@pytest.mark.requirement("grep.limits")
async def test_by_default_a_hundred_matches_are_returned(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "x\n" * 150})
    result = await grep(context, "x")
    assert result.facts["matches"] == 100
    assert "L101" not in str(result.llm_content)
    few = await grep(replace(context, limits=Limits(grep_matches=5)), "x")
    assert few.facts["matches"] == 5
    all_of_them = await grep(context, "x", limit=10**15)
    assert all_of_them.facts["matches"] == 150


@pytest.mark.requirement("grep.limits")
async def test_matches_of_one_file_can_be_limited(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "x\nx\nx\n", "b.txt": "x\n"})
    found = await lines(context, "x", max_matches_per_file=2)
    assert found[:-1] == ["File: a.txt", "L1: x", "L2: x", "---", "File: b.txt", "L1: x", "---"]
    assert "At most 2 matches of each file" in found[-1]


@pytest.mark.requirement("grep.names_only")
async def test_only_the_names_of_files_are_returned_on_request(root: Path, context: ToolContext) -> None:
    make(root, {"b.txt": "x\nx\n", "a.txt": "x\n", "c.txt": "y"})
    result = await grep(context, "x", names_only=True)
    header = f'Found 2 files with matches for pattern "x" in the workspace directory {root}:'
    assert str(result.llm_content).split("\n") == [header, "---", "a.txt", "b.txt"]
    one = await grep(context, "x", names_only=True, limit=1)
    assert "Limited to 1 file, there are more." in str(one.llm_content)


@pytest.mark.requirement("grep.exclude_pattern")
async def test_lines_that_match_the_exclude_pattern_are_left_out(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "foo\nfoo test\nfoo\n", "b.txt": "foo test\n"})
    assert await lines(context, "foo", exclude_pattern="TEST$") == ["File: a.txt", "L1: foo", "L3: foo", "---"]
    assert await lines(context, "foo", exclude_pattern="test", names_only=True) == ["a.txt"]
    assert (await lines(context, "foo", exclude_pattern="test", limit=1))[:3] == ["File: a.txt", "L1: foo", "---"]


@pytest.mark.requirement("grep.ignored")
async def test_ignored_files_are_left_out_and_told_and_can_be_asked_for(root: Path, context: ToolContext) -> None:
    make(root, {"a.log": "foo", "dist/b.js": "foo", "c.js": "foo", "node_modules/d.js": "foo", ".ci/e.yml": "foo"})
    make(root, {".git/f": "foo", ".gitignore": "*.log\ndist/\n", "secret.key": "foo", ".coretoolsignore": "*.key\n"})
    assert await names(context, "foo") == [".ci/e.yml", "c.js"]
    notes = "\n".join(await lines(context, "foo"))
    assert "2 git-ignored, 1 agent-ignored" in notes
    assert "Folders left out by default: node_modules." in notes
    assert await names(context, "foo", no_ignore=True) == [
        ".ci/e.yml",
        "a.log",
        "c.js",
        "dist/b.js",
        "node_modules/d.js",
    ]
    assert await names(context, "foo", respect_git_ignore=False) == await names(context, "foo", no_ignore=True)
    assert await names(context, "foo", path="dist") == ["b.js"]
    assert await names(context, "foo", glob="node_modules/**") == ["node_modules/d.js"]


@pytest.mark.requirement("grep.agent_ignored")
async def test_what_is_hidden_from_agents_is_never_searched(root: Path, context: ToolContext) -> None:
    make(root, {"secret.key": "foo", "private/a.txt": "foo", ".coretoolsignore": "*.key\nprivate/\n"})
    assert await names(context, "foo", no_ignore=True) == []
    assert await code_of(context, "foo", path="secret.key") is ToolErrorType.PATH_IGNORED
    assert await code_of(context, "foo", path="private") is ToolErrorType.PATH_IGNORED
    loose = replace(context, workspace=Workspace([str(root)], respect_agent_ignore=False))
    assert await names(loose, "foo") == ["private/a.txt", "secret.key"]


@pytest.mark.requirement("grep.binary")
async def test_binary_files_are_counted_and_marked_text_is_found(root: Path, context: ToolContext) -> None:
    make(root, {"a.bin": b"\0\1foo\n", "b.bin": b"\0nothing\n", "c.txt": "foo \u00e9\r\n".encode("utf-16")})
    make(root, {"d.txt": b"\xef\xbb\xbffoo\r\n", "e.txt": b"foo \xe9\n", "f.txt": "foo".encode("utf-32")})
    found = await lines(context, "^foo")
    assert found[:9] == [
        "File: c.txt",
        "L1: foo \u00e9",
        "---",
        "File: d.txt",
        "L1: foo",
        "---",
        "File: e.txt",
        "L1: foo \ufffd",
        "---",
    ]
    some = await grep(context, "foo")
    assert "1 binary file with matches" in str(some.llm_content)
    assert some.facts["skipped"] == {"binary": 1, "huge": 0, "slow": 0}


@pytest.mark.requirement("grep.huge")
@pytest.mark.parametrize("pattern", ["foo", "(f|g)oo*"])
@pytest.mark.parametrize("files", [1, search.SMALL_TREE + 10])
async def test_huge_files_are_counted_and_not_searched(
    root: Path, context: ToolContext, pattern: str, files: int
) -> None:
    make(root, {f"a{number}.txt": "foo" if number == files - 1 else "none" for number in range(files)})
    with (root / "z-huge.log").open("wb") as stream:
        stream.write(b"foo\n")
        stream.truncate(MAX_FILE_BYTES + 1)
    (root / "z-largest.log").write_bytes(b"foo\n")
    os.truncate(root / "z-largest.log", MAX_FILE_BYTES)
    for path in (None, str(root / "z-huge.log")):
        result = await grep(context, pattern, **({"path": path} if path else {}))
        assert result.facts["files"] == (0 if path else 1)
        assert result.facts["skipped"] == {"binary": 0 if path else 1, "huge": 1, "slow": 0}
        assert result.facts["searched"] == (0 if path else files + 1)
        assert "1 file over 100 MB" in str(result.llm_content)


@pytest.mark.requirement("grep.long_lines")
async def test_a_long_line_is_cut_and_still_found(root: Path, context: ToolContext) -> None:
    make(root, {"min.js": "a" * 300_000 + "needle" + "b" * 300_000 + "\nneedle\n"})
    found = await lines(context, "needle")
    assert found[1] == "L1: " + "a" * 2_000 + "... [truncated]"
    assert found[2] == "L2: needle"


@pytest.mark.requirement("grep.long_lines")
@pytest.mark.parametrize("pattern", ["a", "(a|b)+"])
async def test_a_line_with_a_million_matches_is_one_match(root: Path, context: ToolContext, pattern: str) -> None:
    make(root, {"min.js": "ab" * 1_000_000})
    result = await grep(context, pattern)
    assert result.facts["matches"] == 1
    assert len(str(result.llm_content)) < 3_000


@pytest.mark.requirement("grep.char_budget")
async def test_a_result_that_becomes_too_long_is_cut_and_told(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": ("x" * 1_900 + "\n") * 20, "b.txt": "x\n"})
    result = await grep(context, "x")
    assert len(str(result.llm_content)) < 26_000
    assert "[Cut: the result is too long." in str(result.llm_content)
    assert result.facts["matches"] == 13
    assert result.facts["complete"] is False
    tiny = await grep(replace(context, limits=Limits(read_chars=10)), "x")
    assert tiny.facts["matches"] == 1


@pytest.mark.requirement("grep.roots")
async def test_all_roots_are_searched_once_with_absolute_paths(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    second = tmp_path / "second"
    make(root, {"a.txt": "foo", "inner/b.txt": "foo"})
    make(second, {"c.txt": "foo"})
    several = replace(context, workspace=Workspace([str(root), str(root / "inner"), str(second)]))
    assert sorted(await names(several, "foo")) == sorted(
        [str(root / "a.txt"), str(root / "inner" / "b.txt"), str(second / "c.txt")]
    )


@pytest.mark.requirement("grep.roots")
@pytest.mark.parametrize("pattern", ["foo", "fo*o"])
async def test_numbers_of_several_large_roots_are_added_up(
    root: Path, tmp_path: Path, context: ToolContext, pattern: str
) -> None:
    folders = [root, tmp_path / "second"]
    for folder in folders:
        make(folder, {f"{number // 100}/{number}.txt": "none" for number in range(2 * search.FIRST_BATCH)})
        make(folder, {".git/HEAD": "", ".gitignore": "*.log\n", "0/a.log": "foo", "9/a.log": "foo", "9/found": "foo"})
    several = replace(context, workspace=Workspace([str(folder) for folder in folders]))
    for arguments in ({}, {"glob": "**"}):
        result = await grep(several, pattern, **arguments)
        assert result.facts["matches"] == 2
        assert result.facts["hidden"] == {"git": 4}
        assert result.facts["searched"] == 2 * (2 * search.FIRST_BATCH + 2)
        assert "Folders left out by default" not in str(result.llm_content)


@pytest.mark.requirement("grep.links")
async def test_links_are_not_searched(root: Path, tmp_path: Path, context: ToolContext) -> None:
    make(tmp_path, {"outside.txt": "foo"})
    make(root, {"real/a.txt": "foo"})
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "folder").symlink_to(root / "real")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    assert await names(context, "foo") == ["real/a.txt"]


@pytest.mark.requirement("grep.exchanged")
@pytest.mark.parametrize("pattern", ["secret", "(secre|S)t+"])
async def test_a_folder_exchanged_for_a_link_while_ripgrep_searches_discloses_nothing(
    root: Path, tmp_path: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch, pattern: str
) -> None:
    make(tmp_path, {"outside/a.txt": "secret of others\n"})
    make(root, {f"before/{number}.txt": "none\n" for number in range(search.FIRST_BATCH)})
    make(root, {"before/a.txt": "secret\n", "sub/a.txt": "mine\n"})
    fake = tmp_path / "bin" / "rg"
    exchange = f"[ -d {root}/sub ] && /bin/mv {root}/sub {tmp_path}/away && /bin/ln -s {tmp_path}/outside {root}/sub"
    make(tmp_path, {"bin/rg": f'#!/bin/sh\n[ "$PWD" = {root} ] && {exchange}\nexec {real_ripgrep()} "$@"\n'})
    fake.chmod(0o755)
    no_ripgrep.setenv("PATH", str(fake.parent))
    for arguments in ({}, {"glob": "*.txt"}, {"names_only": True}):
        if (root / "sub").is_symlink():
            (root / "sub").unlink()
            (tmp_path / "away").rename(root / "sub")
        result = await grep(context, pattern, **arguments)
        assert (root / "sub").is_symlink(), "ripgrep was not used"
        assert "of others" not in str(result.llm_content)
        assert "sub/a.txt" not in str(result.llm_content)
        assert result.facts["matches"] == 1
        assert result.facts["files"] == 1


@pytest.mark.requirement("grep.engine_choice")
async def test_a_frequent_pattern_starts_no_process(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make(root, {f"{number // 50:03}/{number}.txt": "foo\n" for number in range(1_500)})
    make(tmp_path, {"bin/rg": f"#!/bin/sh\n: > {tmp_path}/was-started\n"})
    (tmp_path / "bin" / "rg").chmod(0o755)
    no_ripgrep.setenv("PATH", str(tmp_path / "bin"))
    result = await grep(context, "foo")
    assert result.facts["matches"] == 100
    assert "there are more" in str(result.llm_content)
    assert not (tmp_path / "was-started").exists()


@pytest.mark.requirement("grep.order")
@pytest.mark.parametrize("pattern", ["foo", "fo*o", "(f|g)oo*"])
async def test_matches_come_in_the_order_of_paths_whatever_searches(
    root: Path, context: ToolContext, pattern: str
) -> None:
    paths = [f"{folder}/{name}" for folder in ("a", "a-b", "a/b", "a.b", "b") for name in ("0.txt", "z.txt")]
    paths = sorted([*paths, "a.txt", "a0.txt", "0.txt", "z.txt"])
    make(root, dict.fromkeys(paths, "foo\n"))
    small = await names(context, pattern, limit=1_000)
    assert small == paths
    make(root, {f"{folder}/n{number}.txt": "none\n" for folder in ("a", "a/b", "b") for number in range(800)})
    assert await names(context, pattern, limit=1_000) == small
    assert await names(context, pattern, limit=1_000, glob="*.txt") == small
    assert await names(context, pattern, limit=3) == small[:3]


@pytest.mark.requirement("grep.names")
async def test_strange_file_names_are_searched_and_stay_on_one_line(root: Path, context: ToolContext) -> None:
    strange = ["-", "--pre", "..a", "a\nb", "a b", "\u00e9", "[id]", "\udce9", "*", "x\\y"]
    make(root, {f"-first/{number}": "none" for number in range(search.SMALL_TREE)})
    make(root, {f"{folder}/{name}": "foo" for folder in ("-e", "[id]", "\udcff") for name in strange})
    make(root, {f"partly/{name}": "foo" for name in strange})
    make(root, {".git/HEAD": "", ".gitignore": "hidden\n", "partly/hidden": "foo"})
    folders = ("-e", "[id]", "partly", '"\\xff"')
    shown = [{"a\nb": '"a\\nb"', "\udce9": '"\\xe9"'}.get(name, name) for name in strange]
    expected = sorted(f"{folder}/{name}" for folder in folders for name in shown)
    for pattern in ("foo", "f.*o"):
        result = await grep(context, pattern)
        assert "ripgrep" in result.facts["engines"]
        assert sorted(await names(context, pattern)) == expected


@pytest.mark.requirement("grep.refused")
@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("foo(?=bar)", "look-ahead"),
        ("foo(?!bar)", "look-ahead"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        ("(a)\\1", "back-reference"),
        ("(?P<n>a)(?P=n)", "back-reference"),
        ("[[:alpha:]]", "[[:class:]]"),
        ("(?R)", "recursion"),
        ("(?>a)", "atomic"),
        ("a++", "possessive"),
        ("\\p{Lu}", "\\p"),
        ("(?x)a", "(?x)"),
        ("a\\nb", "line by line"),
        ("(a", "not closed"),
        ("a)", "closing parenthesis"),
        ("[a", "not closed"),
        ("*a", "nothing to repeat"),
        ("a{3,1}", "not valid"),
        ("[z-a]", "backwards"),
        ("a\\", "backslash"),
        ("", "empty"),
    ],
)
async def test_what_the_engines_do_not_share_is_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(InvalidToolParamsError) as caught:
        GrepTool().validate_tool_params({"pattern": pattern})
    assert construct in caught.value.message


@pytest.mark.requirement("grep.refused")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"pattern": 5},
        {"pattern": "a", "limit": 0},
        {"pattern": "a", "context": -1},
        {"pattern": "a", "exclude_pattern": "("},
        {"pattern": "a", "glob": "../*"},
        {"pattern": "a", "glob": "/etc/*"},
        {"pattern": "a\nb", "fixed_strings": True},
        {"pattern": "a", "max_matches_per_file": 0},
    ],
)
async def test_wrong_parameters_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidToolParamsError):
        GrepTool().validate_tool_params(arguments)


@pytest.mark.requirement("grep.errors")
async def test_what_cannot_be_searched_has_its_own_code(root: Path, context: ToolContext) -> None:
    assert await code_of(context, "a", path="missing") is ToolErrorType.SEARCH_PATH_NOT_FOUND
    assert await code_of(context, "a", path="..") is ToolErrorType.PATH_NOT_IN_WORKSPACE
    os.mkfifo(root / "pipe")
    assert await code_of(context, "a", path="pipe") is ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY


@pytest.mark.requirement("grep.runaway")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(x+x+)+y", "a.*a.*a.*a.*a.*b"])
async def test_a_pattern_that_would_run_away_is_answered(root: Path, context: ToolContext, pattern: str) -> None:
    make(root, {"a.txt": "a" * 5_000 + "!\n" + "x" * 5_000 + "!\n"})
    result = await grep(context, pattern)
    assert result.error is None
    assert result.facts["engines"] == ["ripgrep"]


@pytest.mark.requirement("grep.budget")
async def test_a_search_that_ran_out_of_time_gives_what_it_has_and_says_so(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "foo"})
    tool = GrepTool()
    tool.seconds = 0.0
    result = await tool.execute(tool.validate_tool_params({"pattern": "foo"}), context)
    assert "PARTIAL RESULT" in str(result.llm_content)
    assert result.facts["timed_out"] is True
    assert str(result.return_display).endswith("(timed out)")


@pytest.mark.requirement("grep.cancelled")
async def test_a_cancelled_search_stops(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "foo"})
    signal = AbortSignal()
    signal.abort()
    assert await code_of(replace(context, signal=signal), "foo") is ToolErrorType.CANCELLED


@pytest.mark.requirement("grep.description")
def test_the_description_of_a_call_names_pattern_filter_and_folder(root: Path, context: ToolContext) -> None:
    tool = GrepTool()
    params = tool.validate_tool_params({"pattern": "foo", "include": "*.py", "dir_path": str(root / "src")})
    assert tool.get_description(params, context) == "Search 'foo' in *.py within src"
