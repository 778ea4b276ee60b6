"""`list_directory`: names, kinds, order, hidden entries, pages."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.search_tools import LSTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal, Limits
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio


async def ls(context: ToolContext, path: str = ".", **arguments: Any) -> ToolResult:
    tool = LSTool()
    return await tool.execute(tool.validate_tool_params({"path": path, **arguments}), context)


def lines(result: ToolResult) -> list[str]:
    assert isinstance(result.llm_content, str)
    return result.llm_content.split("\n")


def entries(result: ToolResult) -> list[str]:
    assert result.structured is not None
    return [entry["name"] for entry in result.structured["entries"]]


async def code_of(context: ToolContext, path: str, **arguments: Any) -> ToolErrorType:
    with pytest.raises(ToolError) as error_info:
        await ls(context, path, **arguments)
    return error_info.value.code


@pytest.mark.requirement("ls.entries")
async def test_folders_come_first_then_names_in_any_case_with_sizes(root: Path, context: ToolContext) -> None:
    for name in ("zeta", "Alpha"):
        (root / name).mkdir()
    for name, text in (("b.txt", "12345"), ("A.txt", ""), (".hidden", "1")):
        (root / name).write_text(text)
    result = await ls(context)
    assert lines(result) == [
        f"Listed 5 items in {root}:",
        "---",
        "[DIR] Alpha",
        "[DIR] zeta",
        ".hidden (1 byte)",
        "A.txt (0 bytes)",
        "b.txt (5 bytes)",
    ]
    assert result.structured == {
        "path": str(root),
        "entries": [
            {"name": "Alpha", "type": "directory", "size": None, "target": None},
            {"name": "zeta", "type": "directory", "size": None, "target": None},
            {"name": ".hidden", "type": "file", "size": 1, "target": None},
            {"name": "A.txt", "type": "file", "size": 0, "target": None},
            {"name": "b.txt", "type": "file", "size": 5, "target": None},
        ],
        "total": 5,
        "hidden": {"git": 0, "agent": 0},
        "next_offset": None,
    }
    assert result.return_display == "Listed 5 items"


@pytest.mark.requirement("ls.entries")
async def test_one_entry_is_reported_in_the_singular_and_without_a_note_about_truncation(
    root: Path, context: ToolContext
) -> None:
    (root / "a").write_text("a")
    result = await ls(context)
    assert lines(result)[0] == f"Listed 1 item in {root}:"
    assert "truncated" not in str(result.return_display)
    assert "more" not in str(result.llm_content)


@pytest.mark.requirement("ls.entries")
async def test_an_empty_folder_is_not_an_error(root: Path, context: ToolContext) -> None:
    result = await ls(context)
    assert result.error is None
    assert result.llm_content == f"Directory {root} is empty."
    (root / "a.log").touch()
    assert (await ls(context, ignore=["*.log"])).llm_content == f"Nothing to list in {root}."


@pytest.mark.requirement("ls.links")
async def test_links_show_their_target_and_broken_ones_are_listed(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    (root / "folder").mkdir()
    (root / "file").write_text("123")
    for name, target in (("to-folder", "folder"), ("to-file", "file"), ("broken", "nowhere"), ("out", str(tmp_path))):
        (root / name).symlink_to(target)
    result = await ls(context)
    assert lines(result)[2:] == [
        "[DIR] folder",
        "[DIR] to-folder -> folder",
        "broken -> nowhere (broken link)",
        "file (3 bytes)",
        f"out -> {tmp_path} (leads outside the workspace)",
        "to-file -> file (3 bytes)",
    ]
    assert result.structured is not None
    kinds = {entry["name"]: (entry["type"], entry["target"]) for entry in result.structured["entries"]}
    assert kinds["to-folder"] == ("directory", "folder")
    assert kinds["broken"] == ("link", "nowhere")
    assert kinds["out"] == ("link", str(tmp_path))


@pytest.mark.requirement("ls.links")
async def test_a_pipe_is_listed_and_never_opened(root: Path, context: ToolContext) -> None:
    os.mkfifo(root / "pipe")
    result = await ls(context)
    assert lines(result)[2] == "pipe (not a regular file)"


@pytest.mark.requirement("ls.links")
async def test_a_name_with_a_line_feed_stays_on_its_line(root: Path, context: ToolContext) -> None:
    (root / "a\n[DIR] fake").write_text("")
    result = await ls(context)
    assert lines(result)[2:] == ['"a\\n[DIR] fake" (0 bytes)']
    assert entries(result) == ["a\n[DIR] fake"]


@pytest.mark.requirement("ls.ignore")
async def test_ignore_patterns_hide_base_names(root: Path, context: ToolContext) -> None:
    for name in ("a.log", "b.LOG", "tmp1", "tmp12", "[x].txt", "keep"):
        (root / name).write_text("")
    result = await ls(context, ignore=["*.log", "tmp?", "[x].txt", "ke"])
    assert entries(result) == ["b.LOG", "keep", "tmp12"]


@pytest.mark.requirement("ls.ignore")
async def test_git_and_agent_ignored_entries_are_hidden_and_counted(root: Path, context: ToolContext) -> None:
    for name in (".git", "dist"):
        (root / name).mkdir()
    for name in ("a.log", "b.key", "c.txt"):
        (root / name).write_text("")
    (root / ".gitignore").write_text("dist/\n*.log\n")
    (root / ".geminiignore").write_text("*.key\n")
    result = await ls(context)
    assert entries(result) == [".geminiignore", ".gitignore", "c.txt"]
    assert result.structured is not None
    assert result.structured["hidden"] == {"git": 3, "agent": 1}
    assert "3 git-ignored, 1 hidden from agents" in str(result.llm_content)


@pytest.mark.requirement("ls.ignore")
@pytest.mark.parametrize(
    "arguments",
    [
        {"file_filtering_options": {"respect_git_ignore": False}},
        {"respect_git_ignore": False},
        {"file_filtering_options": '{"respect_git_ignore": "false"}'},
    ],
)
async def test_git_rules_can_be_switched_off(root: Path, context: ToolContext, arguments: dict[str, Any]) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("a.log\n")
    (root / "a.log").write_text("")
    assert "a.log" in entries(await ls(context, **arguments))


@pytest.mark.requirement("ls.ignore")
@pytest.mark.parametrize("name", ["respect_agent_ignore", "respect_qwen_ignore", "respect_gemini_ignore"])
async def test_agent_rules_can_be_switched_off_under_every_name(root: Path, context: ToolContext, name: str) -> None:
    (root / ".qwenignore").write_text("a.key\n")
    (root / "a.key").write_text("")
    assert "a.key" not in entries(await ls(context))
    assert "a.key" in entries(await ls(context, file_filtering_options={name: False}))


@pytest.mark.requirement("ls.ignore")
async def test_the_settings_of_the_workspace_are_the_default(root: Path, context: ToolContext) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("a.log\n")
    (root / "a.log").write_text("")
    permissive_context = replace(context, workspace=Workspace([str(root)], respect_git_ignore=False))
    assert "a.log" in entries(await ls(permissive_context))
    assert "a.log" not in entries(await ls(permissive_context, respect_git_ignore=True))


@pytest.mark.requirement("ls.ignore")
async def test_a_folder_hidden_from_agents_is_refused_and_a_git_ignored_one_is_not(
    root: Path, context: ToolContext
) -> None:
    for name in (".git", "dist", "private"):
        (root / name).mkdir()
    (root / "dist" / "a.js").write_text("")
    (root / ".gitignore").write_text("dist/\n")
    (root / ".coretoolsignore").write_text("private/\n")
    assert entries(await ls(context, "dist")) == ["a.js"]
    assert await code_of(context, "private") is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("ls.entries")
async def test_relative_absolute_escaped_and_aliased_paths_name_the_same_folder(
    root: Path, context: ToolContext
) -> None:
    (root / "my dir").mkdir()
    (root / "my dir" / "a").write_text("")
    for path in ("my dir", str(root / "my dir"), "my\\ dir"):
        assert entries(await ls(context, path)) == ["a"]
    tool = LSTool()
    params = tool.validate_tool_params({"dir_path": "my dir"})
    assert params.path == "my dir"
    assert tool.get_description(tool.validate_tool_params({"path": str(root / "my dir")}), context) == "List my dir"


@pytest.mark.requirement("ls.entries")
async def test_a_second_root_is_listed(root: Path, tmp_path: Path, context: ToolContext) -> None:
    second_root = tmp_path / "second"
    second_root.mkdir()
    (second_root / "b").write_text("")
    two_roots = replace(context, workspace=Workspace([str(root), str(second_root)]))
    assert entries(await ls(two_roots, str(second_root))) == ["b"]


@pytest.mark.requirement("ls.errors")
async def test_what_cannot_be_listed_has_its_own_code(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("")
    assert await code_of(context, "a.txt") is ToolErrorType.PATH_IS_NOT_A_DIRECTORY
    assert await code_of(context, "missing") is ToolErrorType.FILE_NOT_FOUND
    assert await code_of(context, "a.txt/x") is ToolErrorType.FILE_NOT_FOUND
    assert await code_of(context, "..") is ToolErrorType.PATH_NOT_IN_WORKSPACE


@pytest.mark.requirement("ls.errors")
@pytest.mark.parametrize("arguments", [{}, {"path": ""}, {"path": ".", "limit": -1}, {"path": ".", "ignore": [1.5]}])
async def test_wrong_parameters_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidToolParamsError):
        LSTool().validate_tool_params(arguments)


@pytest.mark.requirement("ls.pages")
async def test_a_long_listing_is_cut_and_its_pages_have_all_entries(root: Path, context: ToolContext) -> None:
    for number in range(250):
        (root / f"f{number:03}").write_text("")
    first_page = await ls(context)
    assert lines(first_page)[0] == f"Listed 250 items in {root}:"
    assert lines(first_page)[-1] == "[150 more items not shown; continue with offset=100]"
    assert str(first_page.return_display).endswith("(truncated)")
    names: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await ls(context, offset=offset)
        assert page.structured is not None
        names += entries(page)
        offset = page.structured["next_offset"]
    assert names == [f"f{number:03}" for number in range(250)]


@pytest.mark.requirement("ls.pages")
async def test_the_limit_of_the_call_and_of_the_server_apply(root: Path, context: ToolContext) -> None:
    for name in "abc":
        (root / name).write_text("")
    assert entries(await ls(context, limit=2)) == ["a", "b"]
    assert entries(await ls(replace(context, limits=Limits(list_entries=1)))) == ["a"]
    empty_page = await ls(context, offset=9)
    assert entries(empty_page) == []
    assert "offset 9 is past the end" in str(empty_page.llm_content)


@pytest.mark.requirement("ls.pages")
async def test_the_text_stays_under_8_kb_whatever_the_names(root: Path, context: ToolContext) -> None:
    for number in range(120):
        (root / (f"{number:03}" + "x" * 200)).write_text("")
    names: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await ls(context, offset=offset, limit=1000)
        assert page.structured is not None
        assert len(str(page.llm_content).encode()) < 8_000
        names += entries(page)
        offset = page.structured["next_offset"]
    assert len(names) == 120


@pytest.mark.requirement("ls.errors")
async def test_a_cancelled_listing_stops(root: Path, context: ToolContext) -> None:
    (root / "a").write_text("")
    signal = AbortSignal()
    signal.abort()
    assert await code_of(replace(context, signal=signal), ".") is ToolErrorType.CANCELLED


@pytest.mark.requirement("ls.ignore")
async def test_patterns_with_very_many_stars_are_answered(root: Path, context: ToolContext) -> None:
    names = ["a" * 250, "a" * 249 + "b", "keep"]
    for name in names:
        (root / name).write_text("")
    result = await ls(context, ignore=["*a" * 400 + "c", "*a" * 100 + "*b"] * 10)
    assert entries(result) == [names[0], "keep"]
