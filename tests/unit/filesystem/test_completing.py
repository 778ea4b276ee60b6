"""Paths that a person is typing: how they are parsed, and which completions are offered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.builtin.internal_file_tools import CompletePathTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.find.path_suggestions import (
    Candidates,
    entries_that_start_with,
    files_containing,
    last_typed,
    quoted_path,
    typed_paths,
)
from tools.files.workspace import Workspace


def complete(root: Path, start: str = "", folder: str = ".", limit: int = 100) -> Candidates:
    workspace = Workspace([str(root)])
    return entries_that_start_with(workspace, workspace.locate(folder), start, limit, AbortSignal())


def files_below(root: Path, text: str, limit: int = 100) -> Candidates:
    workspace = Workspace([str(root)])
    return files_containing(workspace, workspace.locate("."), text, limit, AbortSignal())


@pytest.mark.requirement("at.typed")
@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("README.md", ["README.md"]),
        ("a b,c, d\t e\n", ["a", "b", "c", "d", "e"]),
        ("@a @b,@c", ["a", "b", "c"]),
        ("@@types", ["@types"]),
        ('"my notes.txt" x', ["my notes.txt", "x"]),
        ("@'my notes.txt',x", ["my notes.txt", "x"]),
        ('src/"my notes".txt', ["src/my notes.txt"]),
        ("don't.txt isn't.txt", ["don't.txt", "isn't.txt"]),
        ("'n'roll.txt", ["'n'roll.txt"]),
        ("src/*.{ts,tsx} b", ["src/*.{ts,tsx}", "b"]),
        ("{a,b c}", ["{a", "b", "c}"]),
        ("", []),
        (" , @ ,", []),
        ('""', []),
    ],
)
def test_a_line_is_split_at_blanks_and_commas_outside_quotes_and_braces(line: str, paths: list[str]) -> None:
    assert [item.path for item in typed_paths(line)] == paths


@pytest.mark.skipif(os.sep == "\\", reason="on Windows, the backslash separates folders")
@pytest.mark.requirement("at.typed")
def test_a_backslash_protects_a_blank_a_comma_and_a_quote_and_nothing_else() -> None:
    line = r"my\ notes.txt a\,b \"q\" a\b\[1\]"
    assert [item.path for item in typed_paths(line)] == ["my notes.txt", "a,b", '"q"', r"a\b\[1\]"]


@pytest.mark.requirement("at.typed")
@pytest.mark.parametrize(
    ("line", "path", "start", "is_open"),
    [
        ("", "", 0, False),
        ("a", "a", 0, False),
        ("a ", "", 2, False),
        ("a, @b", "b", 3, False),
        ('a "my no', "my no", 2, True),
        ("@'my no", "my no", 0, True),
        ('"my folder/"re', "my folder/re", 0, False),
    ],
)
def test_the_last_path_of_a_line_is_the_one_that_is_being_typed(
    line: str, path: str, start: int, is_open: bool
) -> None:
    item = last_typed(line)
    assert (item.path, item.start, item.is_open) == (path, start, is_open)


@pytest.mark.requirement("at.typed")
@pytest.mark.parametrize(
    "path",
    ["plain.txt", "my notes.txt", "a,b", "don't", 'say "hi" now', "@types/x", "@a b", "[id].tsx", "{a,b}.c", "tab\tx"],
)
def test_a_quoted_path_is_read_back_as_the_same_path(path: str) -> None:
    assert [item.path for item in typed_paths(f"x {quoted_path(path)},y")] == ["x", path, "y"]


@pytest.mark.requirement("completion.entries")
def test_entries_are_completed_in_any_case_folders_first_and_dotfiles_last(root: Path) -> None:
    for name in ("Sources", "scripts", ".ssh"):
        (root / name).mkdir()
    for name in ("setup.py", "SUMMARY.md", "other.txt", ".settings"):
        (root / name).write_text("x")
    assert complete(root, "s").names == ("scripts/", "Sources/", "setup.py", "SUMMARY.md")
    assert complete(root).names[-2:] == (".ssh/", ".settings")
    assert complete(root, ".s").names == (".ssh/", ".settings")
    assert complete(root, "nothing") == Candidates()


@pytest.mark.requirement("completion.entries")
def test_only_the_folder_that_is_typed_is_listed(root: Path) -> None:
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "app.py").write_text("x")
    (root / "src" / "deep" / "app2.py").write_text("x")
    assert complete(root, "app", "src").names == ("app.py",)
    assert complete(root, "app").names == ()


@pytest.mark.requirement("completion.entries")
def test_a_long_folder_is_cut_and_its_entries_are_counted(root: Path) -> None:
    for number in range(250):
        (root / f"file{number:03}").write_text("")
    candidates = complete(root, "file", limit=100)
    assert len(candidates.names) == 100
    assert candidates.names[0] == "file000"
    assert (candidates.total, candidates.partial) == (250, False)


@pytest.mark.requirement("completion.entries")
def test_what_ignore_files_hide_is_not_completed(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("dist/\n*.log\n")
    (root / ".coretoolsignore").write_text("secret*\n")
    for folder in ("dist", "docs", "secrets"):
        (root / folder).mkdir()
        (root / folder / "a.txt").write_text("x")
    for name in ("a.log", "a.txt", "secret.txt"):
        (root / name).write_text("x")
    assert complete(root).names == ("docs/", "a.txt", ".coretoolsignore", ".gitignore")
    assert complete(root, folder="dist").names == ("a.txt",), (
        "a folder that is named outright is completed, as it is listed"
    )
    assert complete(root, folder="secrets") == Candidates()
    assert files_below(root, "a.").names == ("a.txt", "docs/a.txt")


@pytest.mark.skipif(os.name != "posix", reason="links and named pipes need POSIX")
@pytest.mark.requirement("completion.entries")
def test_links_are_completed_as_what_they_lead_to_and_never_out_of_the_workspace(root: Path, tmp_path: Path) -> None:
    outside_folder = tmp_path / "outside"
    outside_folder.mkdir()
    (outside_folder / "a.txt").write_text("x")
    (root / ".coretoolsignore").write_text("hidden.txt\n")
    (root / "folder").mkdir()
    (root / "file.txt").write_text("x")
    (root / "hidden.txt").write_text("x")
    for name, target in (
        ("l-folder", root / "folder"),
        ("l-file", root / "file.txt"),
        ("l-out", outside_folder),
        ("l-out-file", outside_folder / "a.txt"),
        ("l-broken", root / "absent"),
        ("l-circle", root / "l-circle"),
        ("l-hidden", root / "hidden.txt"),
    ):
        (root / name).symlink_to(target)
    os.mkfifo(root / "l-pipe")
    assert complete(root, "l-").names == ("l-folder/", "l-file")


@pytest.mark.requirement("completion.entries")
def test_nothing_is_completed_in_a_file_or_in_a_folder_that_is_not_there(root: Path) -> None:
    (root / "file.txt").write_text("x")
    assert complete(root, folder="file.txt") == Candidates()
    assert complete(root, folder="absent") == Candidates()


@pytest.mark.requirement("completion.entries")
def test_files_in_subfolders_are_found_by_part_of_their_name_the_nearest_first(root: Path) -> None:
    for path in ("a/b/application.py", "x/my_app.py", "a/app.py", "a/other.py", "node_modules/app.js"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    assert files_below(root, "APP").names == ("a/app.py", "a/b/application.py", "x/my_app.py")
    assert files_below(root, "app", limit=1) == Candidates(("a/app.py",), 3)


@pytest.mark.requirement("completion.entries")
def test_a_search_in_subfolders_ends_at_a_thousand_files_and_says_so(root: Path) -> None:
    for number in range(1_050):
        (root / f"file{number}").write_text("")
    candidates = files_below(root, "file")
    assert (len(candidates.names), candidates.total, candidates.partial) == (100, 1_000, True)


@pytest.mark.requirement("completion.entries")
def test_a_cancelled_search_in_subfolders_ends(root: Path) -> None:
    (root / "file").write_text("")
    workspace, signal = Workspace([str(root)]), AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        files_containing(workspace, workspace.locate("."), "file", 100, signal)
    assert error_info.value.code is ToolErrorType.CANCELLED


@pytest.mark.anyio
@pytest.mark.requirement("completion.entries")
async def test_a_folder_outside_the_workspace_is_refused(root: Path, context: ToolContext) -> None:
    tool = CompletePathTool()
    params = tool.validate_tool_params({"path": str(root.parent), "start": ""})
    assert tool.get_description(params, context).startswith("Complete a path in ")
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, context)
    assert error_info.value.code is ToolErrorType.PATH_NOT_IN_WORKSPACE
