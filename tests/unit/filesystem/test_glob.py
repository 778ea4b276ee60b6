"""`glob`: patterns, searched folders, order, pages."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tables import each_of
from tools.builtin.search_tools import GlobTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.find.glob_search import PatternRefusedError, compile_patterns, expand_braces, glob_hint
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
DAY = 24 * 60 * 60


def make(root: Path, *paths: str, age: float = 10 * DAY) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
        os.utime(root / path, (NOW - age, NOW - age))


async def run(context: ToolContext, pattern: str, **arguments: Any) -> ToolResult:
    tool = GlobTool()
    params = tool.validate_tool_params({"pattern": pattern, **arguments})
    return await tool.execute(params, replace(context, clock=lambda: NOW))


async def files(context: ToolContext, pattern: str, **arguments: Any) -> list[str]:
    """Return the paths of the result, relative to the first root."""
    result = await run(context, pattern, **arguments)
    assert result.structured is not None
    return [os.path.relpath(path, context.workspace.first_root) for path in result.structured["files"]]


async def code_of(context: ToolContext, pattern: str, **arguments: Any) -> ToolErrorType:
    with pytest.raises(ToolError) as error_info:
        await run(context, pattern, **arguments)
    return error_info.value.code


@pytest.mark.requirement("glob.patterns")
@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**", ["src/b.py", "src/b.test.ts", "src/deep/c.py", "src/deep/d.ts"]),
        ("**/deep/**", ["src/deep/c.py", "src/deep/d.ts"]),
        ("**/*.{ts,tsx}", ["src/b.test.ts", "src/deep/d.ts"]),
        ("{src,docs}/**/*.{py,md}", ["docs/READ ME.md", "src/b.py", "src/deep/c.py"]),
        ("**/[bc].py", ["src/b.py", "src/deep/c.py"]),
        ("**/[!b].py", ["a.py", "src/deep/c.py"]),
        ("?.py", ["a.py"]),
        ("./src//b.py", ["src/b.py"]),
        ("docs/", ["docs/READ ME.md"]),
        ("**/@(b|c).py", ["src/b.py", "src/deep/c.py"]),
        ("**/b?(.test).{py,ts}", ["src/b.py", "src/b.test.ts"]),
        ("docs/READ ME.md", ["docs/READ ME.md"]),
        (".h*", [".hidden"]),
        ("**/nothing", []),
    ],
)
async def test_patterns_find_the_files_that_they_describe(
    root: Path, context: ToolContext, pattern: str, paths: list[str]
) -> None:
    make(root, "a.py", "src/b.py", "src/b.test.ts", "src/deep/c.py", "src/deep/d.ts", "docs/READ ME.md", ".hidden")
    assert await files(context, pattern) == paths


@pytest.mark.requirement("glob.patterns")
def test_braces_stand_for_all_their_alternatives() -> None:
    assert expand_braces("a{b,c{d,e}}f") == ["abf", "acdf", "acef"]
    assert expand_braces("{1..3}") == ["1", "2", "3"]
    assert expand_braces("{c..a}") == ["c", "b", "a"]
    assert expand_braces("{a}{}\\{x,y}") == ["{a}{}\\{x,y}"]
    with pytest.raises(PatternRefusedError):
        expand_braces("{a,b}" * 20)


@pytest.mark.requirement("glob.patterns")
async def test_case_counts_only_on_request(root: Path, context: ToolContext) -> None:
    make(root, "A.TXT", "Dir/b.txt")
    assert await files(context, "**/*.txt") == ["A.TXT", "Dir/b.txt"]
    assert await files(context, "dir/*.txt") == ["Dir/b.txt"]
    assert await files(context, "**/*.txt", case_sensitive=True) == ["Dir/b.txt"]
    assert await files(context, "**/[a].TXT") == ["A.TXT"]
    assert await files(context, "**/[a].TXT", case_sensitive=True) == []


@pytest.mark.requirement("glob.patterns")
@pytest.mark.parametrize(
    "pattern",
    ["app/[id]/(group)/page.tsx", "app/[id]/**", "app/[id]/(group)/*", "**/[id]/**/page.tsx", "app/[id]/*/page.tsx"],
)
async def test_a_name_with_special_characters_is_taken_literally(
    root: Path, context: ToolContext, pattern: str
) -> None:
    make(root, "app/[id]/(group)/page.tsx", "app/other/page.tsx")
    assert await files(context, pattern) == ["app/[id]/(group)/page.tsx"]


@pytest.mark.requirement("glob.patterns")
async def test_a_file_that_exists_as_written_wins_over_the_pattern(root: Path, context: ToolContext) -> None:
    make(root, "{a,b}.txt", "a.txt", "b.txt", "x*.txt", "xy.txt", "open[", "back\\slash")
    assert await files(context, "{a,b}.txt") == ["{a,b}.txt"]
    assert await files(context, "x*.txt") == ["x*.txt"]
    assert await files(context, "open[") == ["open["]
    assert await files(context, "*[") == ["open["]
    assert await files(context, "back\\slash") == ["back\\slash"]


@pytest.mark.requirement("glob.refused")
@pytest.mark.parametrize("pattern", ["", "  ", "../*", "a/../../b", "a\0b", "!(a|b)", "+(a|b).ts", "x" * 5000])
async def test_patterns_that_leave_the_folder_or_mean_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidToolParamsError):
        GlobTool().validate_tool_params({"pattern": pattern})


@pytest.mark.requirement("glob.refused")
async def test_an_absolute_pattern_must_lie_in_a_root(root: Path, tmp_path: Path, context: ToolContext) -> None:
    make(root, "src/a.py")
    (tmp_path / "out.py").write_text("")
    assert await files(context, f"{root}/**/*.py") == ["src/a.py"]
    assert await files(context, f"{root}/src/*.py", path="src") == ["src/a.py"]
    assert await code_of(context, f"{tmp_path}/*.py") is ToolErrorType.PATH_NOT_IN_WORKSPACE
    assert await code_of(context, f"{root}/*.py", path="src") is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("glob.links")
async def test_links_to_files_inside_are_found_and_no_link_is_followed(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    make(root, "real/a.txt", "private/b.txt")
    (tmp_path / "out.txt").write_text("")
    (root / ".coretoolsignore").write_text("private/\n")
    links = {
        "in.txt": "real/a.txt",
        "out.txt": "../out.txt",
        "broken.txt": "no",
        "dir": "real",
        "b.txt": "private/b.txt",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    assert sorted(await files(context, "**/*.txt")) == ["in.txt", "real/a.txt"]


@pytest.mark.requirement("glob.ignored")
async def test_ignored_files_are_left_out_and_counted_but_can_be_requested(root: Path, context: ToolContext) -> None:
    make(root, ".git/HEAD", "a.log", "src/b.log", "src/c.key", "dist/d.log", "x.py")
    (root / ".gitignore").write_text("*.log\ndist/\n")
    (root / ".qwenignore").write_text("*.key\n")
    result = await run(context, "**/*.{log,key}")
    assert result.structured is not None
    assert result.structured == {"files": [], "total": 0, "ignored": 4, "partial": False, "next_offset": None}
    assert "No files found matching pattern" in str(result.llm_content)
    assert "3 git-ignored, 1 hidden from agents" in str(result.llm_content)
    assert await files(context, "**/*.log", respect_git_ignore=False) == ["a.log", "dist/d.log", "src/b.log"]
    assert await files(context, "**/*.key", respect_gemini_ignore=False) == ["src/c.key"]
    assert await files(context, "*.log", path="src") == []


@pytest.mark.requirement("ignore.odd_lines")
async def test_a_folder_whose_agent_ignore_file_is_not_understood_is_left_out_and_named(
    root: Path, context: ToolContext
) -> None:
    make(root, "a.py", "sub/b.py", "sub/deep/c.py")
    (root / "sub" / ".qwenignore").write_text("*.key\n[[:foo:]]\n")
    result = await run(context, "**/*.py")
    assert await files(context, "**/*.py") == ["a.py"]
    assert f".qwenignore in {root}/sub has a pattern on line 2 that is not understood" in str(result.llm_content)
    assert await code_of(context, "**/*.py", path="sub") is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("glob.ignored")
async def test_node_modules_is_searched_only_when_it_is_named(root: Path, context: ToolContext) -> None:
    make(root, "a.js", "node_modules/m/b.js", "lib/node_modules/c.js", ".svn/d.js")
    result = await run(context, "**/*.js")
    assert "Folders skipped by default: .svn, node_modules." in str(result.llm_content)
    assert await files(context, "**/*.js") == ["a.js"]
    assert await files(context, "node_modules/**/*.js") == ["node_modules/m/b.js"]
    assert await files(context, "**/node_modules/**/*.js") == ["lib/node_modules/c.js", "node_modules/m/b.js"]
    assert await files(context, "**/*.js", path="node_modules") == ["node_modules/m/b.js"]


@pytest.mark.requirement("glob.text")
async def test_recent_files_come_newest_first_and_the_rest_by_path(root: Path, context: ToolContext) -> None:
    make(root, "old-b.txt", "z/old-a.txt", age=5 * DAY)
    make(root, "older.txt", age=50 * DAY)
    make(root, "just-too-old.txt", age=DAY)
    make(root, "hour.txt", age=3600)
    make(root, "minute.txt", age=60)
    make(root, "same-a.txt", "same-b.txt", age=7200)
    assert await files(context, "**/*.txt") == [
        "minute.txt",
        "hour.txt",
        "same-a.txt",
        "same-b.txt",
        "just-too-old.txt",
        "old-b.txt",
        "older.txt",
        "z/old-a.txt",
    ]


@pytest.mark.requirement("glob.text")
async def test_the_text_has_a_header_and_absolute_paths(root: Path, context: ToolContext) -> None:
    make(root, "a.txt", "src/b.txt")
    result = await run(context, "**/*.txt")
    order = "those changed in the last 24 hours first (newest first), then by path:"
    header = f'Found 2 files matching "**/*.txt" in the workspace directory, {order}'
    assert str(result.llm_content).split("\n") == [
        header,
        "---",
        f"{root}/a.txt",
        f"{root}/src/b.txt",
    ]
    assert result.return_display == "Found 2 matching files"
    folder_result = await run(context, "b.txt", path="src")
    assert str(folder_result.llm_content).startswith(f'Found 1 file matching "b.txt" within {root}/src:\n')


@pytest.mark.requirement("glob.text")
async def test_a_pattern_that_names_a_folder_or_stays_at_the_top_gets_a_hint(root: Path, context: ToolContext) -> None:
    make(root, "src/b.txt")
    assert "use 'src/**'" in str((await run(context, "src")).llm_content)
    for pattern in ("*.txt", "b.txt"):
        assert f"'**/{pattern}' searches subfolders too" in str((await run(context, pattern)).llm_content)


@pytest.mark.requirement("glob.pages")
async def test_a_long_list_is_cut_and_its_pages_have_all_files(root: Path, context: ToolContext) -> None:
    make(root, *[f"{number:03}{'x' * 60}.txt" for number in range(130)])
    paths: list[str] = []
    offset: int | None = 0
    while offset is not None:
        result = await run(context, "*.txt", offset=offset)
        assert result.structured is not None
        assert len(str(result.llm_content).encode()) < 8_000
        assert result.structured["total"] == 130
        paths += result.structured["files"]
        offset = result.structured["next_offset"]
    assert len(set(paths)) == 130
    limited_result = await run(context, "*.txt", limit=2)
    assert "[128 more files not shown; continue with offset=2]" in str(limited_result.llm_content)
    assert str(limited_result.return_display).endswith("(truncated)")


@pytest.mark.requirement("glob.roots")
async def test_all_roots_are_searched_once_and_a_path_narrows(root: Path, tmp_path: Path, context: ToolContext) -> None:
    second_root = tmp_path / "second"
    make(root, "a.txt", "inner/b.txt")
    make(second_root, "c.txt")
    workspace = Workspace([str(root), str(root / "inner"), str(second_root)])
    several_roots = replace(context, workspace=workspace)
    result = await run(several_roots, "**/*.txt")
    assert result.structured is not None
    assert result.structured["files"] == sorted(
        [str(root / "a.txt"), str(root / "inner" / "b.txt"), str(second_root / "c.txt")]
    )
    assert "across 3 workspace directories" in str(result.llm_content)
    assert await files(several_roots, "**/*.txt", path="inner") == ["inner/b.txt"]


@pytest.mark.requirement("glob.refused")
async def test_what_cannot_be_searched_has_its_own_code(root: Path, context: ToolContext) -> None:
    make(root, "a.txt", "private/b.txt")
    (root / ".coretoolsignore").write_text("private/\n")
    assert await code_of(context, "*", path="missing") is ToolErrorType.SEARCH_PATH_NOT_FOUND
    assert await code_of(context, "*", path="a.txt") is ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY
    assert await code_of(context, "*", path="..") is ToolErrorType.PATH_NOT_IN_WORKSPACE
    assert await code_of(context, "*", path="private") is ToolErrorType.PATH_IGNORED
    with pytest.raises(InvalidToolParamsError):
        GlobTool().validate_tool_params({"pattern": "*", "path": 5.5})


@pytest.mark.requirement("glob.refused")
async def test_without_a_root_the_setting_to_add_is_named(context: ToolContext) -> None:
    no_root_context = replace(context, workspace=Workspace([], "Start the server with --workspace."))
    with pytest.raises(ToolError, match="--workspace") as error_info:
        await run(no_root_context, "*")
    assert error_info.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("glob.roots")
async def test_a_search_that_ran_out_of_time_says_so(root: Path, context: ToolContext) -> None:
    make(root, "a.txt")
    tool = GlobTool()
    tool.seconds = 0.0
    result = await tool.execute(tool.validate_tool_params({"pattern": "**/*"}), context)
    assert result.structured is not None
    assert result.structured["partial"] is True
    assert "PARTIAL RESULT" in str(result.llm_content)


@pytest.mark.requirement("glob.roots")
async def test_a_cancelled_search_stops(root: Path, context: ToolContext) -> None:
    make(root, "a.txt")
    signal = AbortSignal()
    signal.abort()
    assert await code_of(replace(context, signal=signal), "**/*") is ToolErrorType.CANCELLED


@pytest.mark.requirement("glob.bounded")
def test_a_hostile_pattern_does_not_take_forever() -> None:
    pattern = compile_patterns(["**/" * 50 + "*a" * 100 + "b"], ignore_case=True)
    assert not pattern.matches("/".join(["a" * 200] * 50))


@pytest.mark.requirement("glob.text")
def test_the_description_of_a_call_names_the_pattern_and_the_folder(root: Path, context: ToolContext) -> None:
    tool = GlobTool()
    params = tool.validate_tool_params({"pattern": "*.py\n", "dir_path": str(root / "src")})
    assert tool.get_description(params, context) == "Find '*.py\\n' within src"


@pytest.mark.requirement("glob.dialect")
@each_of(
    "pattern, hint_part",
    [
        ("*.c,*.h", "'{*.c,*.h}'"),
        ("*.c, *.h", "'{*.c,*.h}'"),
        ("*.c|*.h", "'{*.c,*.h}'"),
        ("*.c;*.h", "'{*.c,*.h}'"),
        ("**/*.c **/*.h", "'{**/*.c,**/*.h}'"),
        ("src/*.(c|h)", "'src/*.{c,h}'"),
        ("src\\*.c", "'src/*.c'"),
        (".*\\.c$", "not a regular expression"),
        ("my file.txt", ""),
        ("src/**/*.{c,h}", ""),
        ("{a,{b,c}}/*.h", ""),
        ("**/*.{c,h", "Did you mean '**/*.{c,h}'?"),
        ("**/*.c,h}", "an opening brace belongs to each"),
        ("app/[id]/(group)/page.tsx", ""),
    ],
)
def test_a_hint_explains_how_the_dialect_reads_a_pattern(pattern: str, hint_part: str) -> None:
    hint = glob_hint(pattern)
    assert hint_part in hint if hint_part else not hint


@pytest.mark.requirement("glob.dialect")
async def test_a_hint_is_given_only_if_nothing_was_found(root: Path, context: ToolContext) -> None:
    (root / "a,b.c").write_text("")
    assert "In a glob" not in str((await run(context, "a,*.c")).llm_content)
    assert "'{x,*.h}'" in str((await run(context, "x,*.h")).llm_content)
