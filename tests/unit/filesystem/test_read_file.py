"""The tool `read_file`: its parameters, its refusals, its facts, and what it remembers."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.image_files import png
from tests.pdf_files import document
from tools.builtin.read_file import ReadFileTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.tool_errors import InvalidToolParamsError, PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_results import InlineDataPart, TextPart, ToolResult, package

pytestmark = pytest.mark.anyio


async def call(context: ToolContext, **arguments: Any) -> ToolResult:
    tool = ReadFileTool()
    params = tool.validate_tool_params(arguments)
    assert await tool.should_confirm_execute(params, context) is None
    return await tool.execute(params, context)


def text_of(result: ToolResult) -> str:
    part = package("read_file", result).parts[0]
    assert isinstance(part, TextPart)
    return part.text


@pytest.fixture
def twenty_lines(root: Path) -> Path:
    path = root / "twenty.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1, 21)))
    return path


@pytest.mark.requirement("read.whole")
async def test_a_small_file_is_read_raw_and_not_repeated_in_the_display(root: Path, context: ToolContext) -> None:
    path = root / "a.py"
    path.write_text("x = 1  \n")
    result = await call(context, absolute_path=str(path))
    assert text_of(result) == "x = 1  \n"
    assert result.structured is None
    assert result.return_display == ""


@pytest.mark.requirement("read.parameters")
@pytest.mark.parametrize("spelling", ["file_path", "path"])
async def test_a_path_under_another_parameter_name_may_be_relative(
    spelling: str, twenty_lines: Path, context: ToolContext
) -> None:
    assert text_of(await call(context, **{spelling: "twenty.txt"})) == twenty_lines.read_text()


@pytest.mark.requirement("read.parameters")
@pytest.mark.parametrize("path", ["twenty.txt", "./twenty.txt", "", "  ", "/tmp/"])
async def test_the_published_path_must_be_absolute_and_name_a_file(path: str, context: ToolContext) -> None:
    with pytest.raises(InvalidToolParamsError, match="absolute_path"):
        await call(context, absolute_path=path)


@pytest.mark.requirement("read.parameters")
async def test_two_spellings_with_different_values_are_refused(twenty_lines: Path, context: ToolContext) -> None:
    assert await call(context, absolute_path=str(twenty_lines), file_path=str(twenty_lines))
    with pytest.raises(InvalidToolParamsError, match="different values"):
        await call(context, absolute_path=str(twenty_lines), path="other.txt")


@pytest.mark.requirement("read.parameters")
@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ({"start_line": 6, "end_line": 8}, 6, 8),
        ({"start_line": "6", "end_line": "8"}, 6, 8),
        ({"start_line": 19}, 19, 20),
        ({"end_line": 2}, 1, 2),
        ({"offset": 5, "limit": 3}, 6, 8),
        ({"offset": "5", "limit": 3.0}, 6, 8),
        ({"offset": -2}, 19, 20),
        ({"start_line": 6, "end_line": 8, "offset": 5, "limit": 3}, 6, 8),
    ],
)
async def test_lines_may_be_named_in_two_ways(
    arguments: dict[str, Any], first: int, last: int, twenty_lines: Path, context: ToolContext
) -> None:
    result = await call(context, absolute_path=str(twenty_lines), **arguments)
    assert text_of(result).startswith(f"Showing lines {first}-{last} of 20 total lines.")
    assert (result.facts["start"], result.facts["end"], result.facts["total"]) == (first, last, 20)
    assert str(result.return_display).startswith(f"Read lines {first}-{last} of 20 from twenty.txt")


@pytest.mark.requirement("read.parameters")
@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": -1},
        {"offset": 1.5},
        {"offset": "x"},
        {"limit": True},
        {"start_line": 0},
        {"end_line": 0},
        {"start_line": "x"},
        {"start_line": True},
        {"start_line": 5, "end_line": 4},
        {"start_line": 5, "offset": 3},
        {"start_line": 5, "end_line": 6, "limit": 9},
    ],
)
async def test_lines_that_make_no_sense_are_refused(
    arguments: dict[str, Any], twenty_lines: Path, context: ToolContext
) -> None:
    with pytest.raises(InvalidToolParamsError):
        await call(context, absolute_path=str(twenty_lines), **arguments)


@pytest.mark.requirement("read.errors")
async def test_an_unreadable_path_is_refused_with_a_code(root: Path, context: ToolContext) -> None:
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")
    for path, code in (
        ("missing.txt", ToolErrorType.FILE_NOT_FOUND),
        ("folder", ToolErrorType.TARGET_IS_DIRECTORY),
        ("pipe", ToolErrorType.READ_CONTENT_FAILURE),
    ):
        with pytest.raises(ToolError) as error_info:
            await call(context, absolute_path=str(root / path))
        assert error_info.value.code is code
        assert path in error_info.value.message


@pytest.mark.requirement("read.errors")
async def test_a_file_outside_the_workspace_is_refused(tmp_path: Path, root: Path, context: ToolContext) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    for path in (tmp_path / "secret.txt", root / "link.txt"):
        with pytest.raises(PathNotInWorkspaceError):
            await call(context, absolute_path=str(path))


@pytest.mark.requirement("read.errors")
@pytest.mark.parametrize("name", [".qwenignore", ".geminiignore", ".coretoolsignore"])
@pytest.mark.parametrize("path", ["secret.env", "hidden/deep/a.txt"])
async def test_a_file_hidden_from_agents_is_not_read(name: str, path: str, root: Path, context: ToolContext) -> None:
    (root / name).write_text("*.env\nhidden/\n")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("secret")
    (root / "other.txt").write_text("open")
    with pytest.raises(ToolError) as error_info:
        await call(context, absolute_path=str(root / path))
    assert error_info.value.code is ToolErrorType.PATH_IGNORED
    assert name in error_info.value.message
    assert text_of(await call(context, absolute_path=str(root / "other.txt"))) == "open"


@pytest.mark.requirement("read.errors")
async def test_a_file_that_git_ignores_is_read(root: Path, context: ToolContext) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("build/\n")
    (root / "build").mkdir()
    (root / "build" / "out.txt").write_text("made")
    assert text_of(await call(context, absolute_path=str(root / "build" / "out.txt"))) == "made"


@pytest.mark.requirement("read.facts")
async def test_facts_say_what_a_program_needs_to_go_on(twenty_lines: Path, context: ToolContext) -> None:
    facts = (await call(context, absolute_path=str(twenty_lines), limit=3)).facts
    assert facts == {
        "path": str(twenty_lines),
        "kind": "text",
        "start": 1,
        "end": 3,
        "total": 20,
        "encoding": "utf-8",
        "eol": "lf",
        "sha256": hashlib.sha256(twenty_lines.read_bytes()).hexdigest(),
        "truncated": True,
        "next_offset": 3,
    }


@pytest.mark.requirement("read.facts")
async def test_a_read_is_remembered_for_its_client(twenty_lines: Path, context: ToolContext) -> None:
    await call(context, absolute_path=str(twenty_lines), limit=3)
    assert context.client.reads is not None
    seen_file = context.client.reads.get(str(twenty_lines))
    assert seen_file is not None
    assert seen_file.identity.size == twenty_lines.stat().st_size
    assert seen_file.sha256 == hashlib.sha256(twenty_lines.read_bytes()).hexdigest()


@pytest.mark.requirement("read.facts")
async def test_an_anonymous_client_can_read(twenty_lines: Path, context: ToolContext) -> None:
    anonymous = replace(context, client=ClientState(key=""))
    assert text_of(await call(anonymous, absolute_path=str(twenty_lines))) == twenty_lines.read_text()


@pytest.mark.requirement("read.media")
async def test_media_come_as_data_with_a_display(root: Path, context: ToolContext) -> None:
    (root / "a.png").write_bytes(png())
    result = await call(context, absolute_path=str(root / "a.png"))
    (part,) = package("read_file", result).parts
    assert isinstance(part, InlineDataPart)
    assert result.return_display == "Read image file: a.png"
    assert result.facts["kind"] == "image"


@pytest.mark.requirement("pdf.text")
async def test_pages_of_a_pdf_without_text_cannot_be_selected_and_the_result_says_so(
    root: Path, context: ToolContext
) -> None:
    (root / "a.pdf").write_bytes(document(b""))
    path = str(root / "a.pdf")
    assert len(package("read_file", await call(context, absolute_path=path, pages="")).parts) == 2
    *_, note = package("read_file", await call(context, absolute_path=path, pages="1-5")).parts
    assert isinstance(note, TextPart)
    assert "whole document" in note.text


@pytest.mark.requirement("read.facts")
@pytest.mark.parametrize(
    ("arguments", "description"),
    [
        ({}, "Read src/a.py"),
        ({"offset": 5, "limit": 3}, "Read src/a.py (lines 6-8)"),
        ({"offset": 5}, "Read src/a.py (from line 6)"),
        ({"limit": 3}, "Read src/a.py (first 3 lines)"),
        ({"offset": -4}, "Read src/a.py (last 4 lines)"),
    ],
)
async def test_the_description_is_short_and_names_the_lines(
    arguments: dict[str, Any], description: str, root: Path, context: ToolContext
) -> None:
    tool = ReadFileTool()
    params = tool.validate_tool_params({"absolute_path": str(root / "src" / "a.py"), **arguments})
    assert tool.get_description(params, context) == description


@pytest.mark.requirement("read.facts")
async def test_a_long_path_is_shortened_in_the_middle(root: Path, context: ToolContext) -> None:
    tool = ReadFileTool()
    params = tool.validate_tool_params({"absolute_path": str(root / ("a" * 90) / "end.py")})
    description = tool.get_description(params, context)
    assert len(description) <= len("Read ") + 80
    assert description.endswith("end.py")
    assert "..." in description


@pytest.mark.requirement("read.whole")
async def test_the_schema_has_absolute_path_and_no_other_spelling() -> None:
    tool = ReadFileTool()
    assert tool.parameter_schema["required"] == ["absolute_path"]
    assert set(tool.parameter_schema["properties"]) == {"absolute_path", "offset", "limit", "pages", "chars"}
    assert tool.behaviour.read_only
    assert tool.behaviour.idempotent
    assert not tool.behaviour.destructive


@pytest.mark.requirement("read.whole")
async def test_the_result_says_that_a_file_is_empty(root: Path, context: ToolContext) -> None:
    for content in (b"", b"\xef\xbb\xbf"):
        (root / "a.txt").write_bytes(content)
        (part,) = package("read_file", await call(context, absolute_path=str(root / "a.txt"))).parts
        assert part == TextPart("[The file is empty.]")


@pytest.mark.requirement("read.whole")
async def test_one_page_may_be_a_number(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x\n")
    path = str(root / "a.txt")
    assert (await call(context, absolute_path=path, pages=4)).error is None
    with pytest.raises(InvalidToolParamsError):
        await call(context, absolute_path=path, pages=True)
