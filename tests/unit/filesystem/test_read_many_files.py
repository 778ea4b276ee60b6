"""`read_many_files`: which files it reads, in which form, and what it reports about the others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.image_files import png
from tools.builtin.read_file import ReadManyFilesTool
from tools.call.base_tool import ToolContext
from tools.contract.call_options import AbortSignal, Deadline, Limits, MediaHandling
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import InlineDataPart, Part, TextPart, ToolResult
from tools.files.read import several_files
from tools.files.read.several_files import END_MARKER, Batch, Candidate
from tools.files.workspace import Workspace

pytestmark = pytest.mark.anyio


def pdf() -> bytes:
    """Return the smallest document: one empty page."""
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>",
    )
    body = b"%PDF-1.4\n"
    offsets: list[int] = []
    for number, item in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj %s endobj\n" % (number, item)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer << /Size 4 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(body)
    return body + b"xref\n0 4\n0000000000 65535 f \n" + table + trailer


PDF = pdf()


def make(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode() if isinstance(content, str) else content)


async def run(context: ToolContext, *paths: str, **arguments: Any) -> ToolResult:
    tool = ReadManyFilesTool()
    params = tool.validate_tool_params({"paths": list(paths), **arguments})
    result = await tool.execute(params, context)
    assert result.structured is None
    return result


async def read(context: ToolContext, *paths: str, **arguments: Any) -> list[str]:
    """Return the files that were read, relative to the first root."""
    result = await run(context, *paths, **arguments)
    return [os.path.relpath(path, context.workspace.first_root) for path in result.facts["files"]]


def parts(result: ToolResult) -> list[Part | str]:
    assert isinstance(result.llm_content, list)
    return result.llm_content


def texts(result: ToolResult) -> list[str]:
    part_texts = (part.text if isinstance(part, TextPart) else part for part in parts(result))
    return [part for part in part_texts if isinstance(part, str)]


def reasons(result: ToolResult) -> dict[str, str]:
    return {entry["path"]: entry["reason"] for entry in result.facts["skipped"]}


@pytest.mark.requirement("many.text")
async def test_each_text_has_a_separator_and_the_end_is_marked(root: Path, context: ToolContext) -> None:
    make(root, {"b.txt": "Content B\n", "a/a.txt": "Content A"})
    result = await run(context, "b.txt", "a/*.txt")
    assert texts(result) == [
        f"--- {root}/a/a.txt ---\n\nContent A\n\n",
        f"--- {root}/b.txt ---\n\nContent B\n\n\n",
        END_MARKER,
    ]
    assert "Read the content of **2 files**" in str(result.return_display)
    assert f"- `{root}/a/a.txt`" in str(result.return_display)


@pytest.mark.requirement("many.paths")
@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["a.py"], ["a.py"]),
        (["src/**/*.py"], ["src/b.py", "src/deep/c.py"]),
        (["src"], ["src/b.py", "src/deep/c.py", "src/d.md"]),
        (["src/"], ["src/b.py", "src/deep/c.py", "src/d.md"]),
        (["*.PY", "src/d.md", "a.py"], ["a.py", "src/d.md"]),
        (["app/[id]/(x).ts"], ["app/[id]/(x).ts"]),
        (["app/[id]/*"], ["app/[id]/(x).ts"]),
        (["my file.txt"], ["my file.txt"]),
    ],
)
async def test_files_folders_and_globs_are_read_in_the_order_of_paths(
    root: Path, context: ToolContext, paths: list[str], files: list[str]
) -> None:
    names = ["a.py", "src/b.py", "src/deep/c.py", "src/d.md", "app/[id]/(x).ts", "my file.txt"]
    make(root, dict.fromkeys(names, "text"))
    assert await read(context, *paths) == sorted(files)
    absolute_paths = [str(root / path) for path in paths]
    assert await read(context, *absolute_paths) == sorted(files)


@pytest.mark.requirement("many.paths")
@pytest.mark.parametrize(
    "arguments",
    [
        {"include": ["a.txt", "b.txt"]},
        {"paths": ["a.txt"], "include": ["b.txt"]},
        {"paths": '["a.txt", "b.txt"]'},
        {"paths": ["*.txt"], "recursive": False, "use_default_excludes": True},
        {"paths": "*.txt"},
    ],
)
async def test_include_and_single_strings_are_accepted_as_paths(
    root: Path, context: ToolContext, arguments: dict[str, Any]
) -> None:
    make(root, {"a.txt": "a", "b.txt": "b"})
    tool = ReadManyFilesTool()
    result = await tool.execute(tool.validate_tool_params(arguments), context)
    assert result.facts["files"] == [str(root / "a.txt"), str(root / "b.txt")]


@pytest.mark.requirement("many.paths")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"paths": []},
        {"paths": [""]},
        {"paths": [" "]},
        {"paths": [5.5]},
        {"paths": ["a"], "exclude": [5.5]},
        {"include": 5},
    ],
)
async def test_wrong_parameters_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidToolParamsError):
        ReadManyFilesTool().validate_tool_params(arguments)


@pytest.mark.requirement("many.skipped")
async def test_files_outside_the_workspace_are_skipped_with_the_reason(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    make(tmp_path, {"secret.txt": "secret"})
    make(root, {"a.txt": "a"})
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    result = await run(context, "a.txt", "../secret.txt", str(tmp_path / "*.txt"), "link.txt", "*.txt")
    assert result.facts["files"] == [str(root / "a.txt")]
    assert reasons(result) == dict.fromkeys(
        ["../secret.txt", str(tmp_path / "*.txt"), "link.txt"], "outside the workspace"
    )
    assert "secret" not in "".join(texts(result)).replace("secret.txt", "")


@pytest.mark.requirement("many.none")
async def test_a_result_without_files_names_the_missing_paths(root: Path, context: ToolContext) -> None:
    result = await run(context, "missing.txt", "*.nothing")
    assert result.error is None
    assert texts(result)[0] == "No matching files were found, or all of them were skipped."
    assert reasons(result) == {"missing.txt": "does not exist"}
    assert END_MARKER not in texts(result)
    assert "No files were read." in str(result.return_display)


@pytest.mark.requirement("many.exclude")
async def test_excludes_apply_to_files_folders_and_named_paths(root: Path, context: ToolContext) -> None:
    names = ["a.ts", "a.test.ts", "src/b.test.ts", "src/b.ts", "gen/c.ts", "src/gen/d.ts"]
    make(root, dict.fromkeys(names, "x"))
    assert await read(context, "**/*.ts", exclude=["*.test.ts", "**/gen/**"]) == ["a.ts", "src/b.ts"]
    assert await read(context, "src", exclude=["src/gen/**"]) == ["src/b.test.ts", "src/b.ts"]
    assert await read(context, "a.test.ts", exclude=["*.test.ts"]) == []
    with pytest.raises(InvalidToolParamsError):
        await run(context, "a.ts", exclude=["../x"])


@pytest.mark.requirement("many.exclude")
async def test_default_excludes_can_be_switched_off_and_named_files_ignore_them(
    root: Path, context: ToolContext
) -> None:
    names = ["a.js", "node_modules/b.js", "dist/c.js", "__pycache__/d.js", ".env", "AGENTS.md", "x.zip", ".vscode/e.js"]
    make(root, dict.fromkeys(names, "x"))
    assert await read(context, "**") == ["a.js"]
    assert await read(context, "**", useDefaultExcludes=False) == sorted(names)
    assert await read(context, ".env", "dist/c.js", "AGENTS.md") == [".env", "AGENTS.md", "dist/c.js"]
    assert await read(context, "dist/**/*.js", "node_modules") == ["dist/c.js", "node_modules/b.js"]


@pytest.mark.requirement("many.exclude")
async def test_ignore_files_filter_what_is_found_and_agent_rules_block_what_is_named(
    root: Path, context: ToolContext
) -> None:
    make(root, {".git/HEAD": "", "a.log": "log", "b.txt": "b", "c.key": "key"})
    make(root, {".gitignore": "*.log\n", ".coretoolsignore": "*.key\n"})
    assert await read(context, "*.{log,txt,key}") == ["b.txt"]
    assert await read(context, "a.log") == ["a.log"]
    assert await read(context, "*.log", file_filtering_options={"respect_git_ignore": False}) == ["a.log"]
    assert await read(context, "*.log", respect_git_ignore=False) == ["a.log"]
    named_result = await run(context, "c.key")
    assert reasons(named_result) == {str(root / "c.key"): "hidden from agents by .coretoolsignore"}
    glob_result = await run(context, "*.key", file_filtering_options={"respect_agent_ignore": False})
    assert reasons(glob_result) == {str(root / "c.key"): "hidden from agents by .coretoolsignore"}
    permissive_context = replace(context, workspace=Workspace([str(root)], respect_agent_ignore=False))
    assert await read(permissive_context, "*.key") == ["c.key"]


@pytest.mark.requirement("many.media")
@pytest.mark.parametrize("path", ["pic.png", "*.png", "**/*.PNG", "sub/other.png"])
async def test_pictures_are_sent_if_they_are_requested(root: Path, context: ToolContext, path: str) -> None:
    make(root, {"pic.png": png(), "sub/other.png": png()})
    result = await run(context, path)
    first_part = parts(result)[0]
    assert isinstance(first_part, InlineDataPart)
    assert first_part.mime_type == "image/png"
    assert first_part.data == png()


@pytest.mark.requirement("many.media")
async def test_media_and_binary_files_that_only_a_glob_found_are_skipped(root: Path, context: ToolContext) -> None:
    make(root, {"pic.png": png(), "doc.pdf": PDF, "blob.dump": b"\0\1\2", "a.txt": "a"})
    result = await run(context, "**")
    assert result.facts["files"] == [str(root / "a.txt")]
    assert reasons(result) == {
        str(root / "blob.dump"): "binary file",
        str(root / "doc.pdf"): "pdf file; name it, or its extension, to read it",
        str(root / "pic.png"): "image file; name it, or its extension, to read it",
    }
    result = await run(context, "**/*", "*.pdf")
    assert str(root / "doc.pdf") in result.facts["files"]


@pytest.mark.requirement("many.media")
async def test_pictures_have_a_budget_of_their_own(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_files, "MAX_MEDIA_BYTES", len(png()) + 10)
    make(root, {"a.png": png(), "b.png": png(), "c.txt": "c"})
    result = await run(context, "*.png", "c.txt")
    assert result.facts["files"] == [str(root / "a.png"), str(root / "c.txt")]
    assert result.facts["not_read"] == [str(root / "b.png")]


@pytest.mark.requirement("many.budget")
async def test_files_beyond_the_number_are_listed_by_name_and_size(root: Path, context: ToolContext) -> None:
    make(root, {f"{number}.txt": "x" * number for number in range(5)})
    limited_context = replace(context, limits=Limits(read_many_files=2))
    result = await run(limited_context, "*.txt")
    assert len(result.facts["files"]) == 2
    assert result.facts["not_read"] == [str(root / f"{number}.txt") for number in (2, 3, 4)]
    notes = texts(result)[-2]
    assert notes.startswith("[3 more files not read, because the result is full.")
    assert f"- {root}/4.txt (4 bytes)" in notes
    assert "**3 files not read**" in str(result.return_display)


@pytest.mark.requirement("many.budget")
async def test_the_characters_of_all_files_together_are_limited(root: Path, context: ToolContext) -> None:
    line = "x" * 99 + "\n"
    make(root, {"a.txt": line * 6, "b.txt": line * 6, "c.txt": line})
    result = await run(replace(context, limits=Limits(read_many_chars=1_000)), "*.txt")
    assert result.facts["files"] == [str(root / "a.txt"), str(root / "b.txt")]
    assert result.facts["not_read"] == [str(root / "c.txt")]
    assert sum(text.count("x" * 99) for text in texts(result)) <= 10
    assert "[WARNING: only part of this file is shown." in texts(result)[1]


@pytest.mark.requirement("many.budget")
async def test_a_long_file_is_warned_about_and_shown_up_to_the_limit(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "".join(f"line {number}\n" for number in range(3_000))})
    text = texts(await run(context, "a.txt"))[0]
    assert "[WARNING: only part of this file is shown. Use read_file to see the rest.]" in text
    assert "line 1999\n" in text
    assert "line 2000" not in text


@pytest.mark.requirement("many.skipped")
async def test_one_file_that_cannot_be_read_does_not_stop_the_rest(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "a", "c.txt": "c", "wide.txt": b"\xff\xfe" + b"a\0" * 10})
    with (root / "b.txt").open("wb") as stream:
        stream.write(b"\xff\xfea\0")
        stream.truncate(70_000_000)
    os.mkfifo(root / "pipe")
    result = await run(context, "*.txt", "pipe")
    assert [Path(path).name for path in result.facts["files"]] == ["a.txt", "c.txt", "wide.txt"]
    assert set(reasons(result)) == {str(root / "b.txt"), "pipe"}


@pytest.mark.requirement("many.paths")
async def test_every_root_is_searched(root: Path, tmp_path: Path, context: ToolContext) -> None:
    second_root = tmp_path / "second"
    make(root, {"a.txt": "a"})
    make(second_root, {"b.txt": "b", "sub/c.txt": "c"})
    two_roots = replace(context, workspace=Workspace([str(root), str(second_root)]))
    result = await run(two_roots, "*.txt", "sub/c.txt")
    files = sorted([str(root / "a.txt"), str(second_root / "b.txt"), str(second_root / "sub" / "c.txt")])
    assert result.facts["files"] == files
    assert reasons(result) == {}


@pytest.mark.requirement("many.paths")
async def test_a_folder_with_an_absolute_path_is_searched_only_once(
    root: Path, tmp_path: Path, context: ToolContext
) -> None:
    (tmp_path / "second").mkdir()
    make(root, {"sub/a.txt": "a", "sub/b.log": "b", ".gitignore": "*.log\n"})
    (root / ".git").mkdir()
    two_roots = replace(context, workspace=Workspace([str(root), str(tmp_path / "second")]))
    assert "1 git-ignored" in str((await run(two_roots, str(root / "sub"))).llm_content)


@pytest.mark.requirement("many.budget")
def test_when_the_time_for_pdf_files_is_used_up_other_media_are_still_read(root: Path, context: ToolContext) -> None:
    make(root, {"a.pdf": PDF, "b.png": png()})
    batch = Batch(
        *(context.workspace, Limits(), MediaHandling.INLINE, Deadline(context.signal, 30), None),
        entries=["a.pdf", "b.png"],
        is_checked=True,
        _pdf_seconds=0,
    )
    batch.read([Candidate(location.name, location) for location in map(context.workspace.locate, batch.entries)])
    assert batch.read_paths == [str(root / "b.png")]
    ((path, reason),) = batch.skipped
    assert path == str(root / "a.pdf")
    assert "earlier PDF files used up the time" in reason


@pytest.mark.requirement("many.budget")
async def test_what_was_read_is_remembered_for_later_writes(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "a"})
    await run(context, "a.txt")
    assert context.client.reads is not None
    assert context.client.reads.get(str(root / "a.txt")) is not None


@pytest.mark.requirement("many.budget")
async def test_a_cancelled_call_stops(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "a"})
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        await run(replace(context, signal=signal), "a.txt")
    assert error_info.value.code is ToolErrorType.CANCELLED


@pytest.mark.requirement("many.text")
def test_the_description_of_a_call_names_the_first_entries(context: ToolContext) -> None:
    tool = ReadManyFilesTool()
    params = tool.validate_tool_params({"paths": ["a", "b\n", "c", "d"]})
    assert tool.get_description(params, context) == "Read files: a, b\\n, c, ..."


@pytest.mark.requirement("many.none")
@pytest.mark.parametrize(
    ("path", "real_path"), [("readme.MD", "README.md"), ("SRC/a.md", "src/A.md"), ("dist/b.MD", "dist/B.md")]
)
async def test_a_name_that_differs_in_case_is_only_suggested(
    root: Path, context: ToolContext, path: str, real_path: str
) -> None:
    make(root, {"README.md": "x", "src/A.md": "x", "dist/B.md": "x"})
    result = await run(context, path)
    assert result.facts["files"] == []
    assert reasons(result) == {path: f"does not exist. Did you mean '{real_path}'?"}


@pytest.mark.requirement("many.none")
async def test_a_name_that_differs_in_case_is_suggested_from_any_root(
    root: Path, context: ToolContext, tmp_path: Path
) -> None:
    second_root = tmp_path / "second"
    make(second_root, {"src/Main.py": "x"})
    two_roots = replace(context, workspace=Workspace([str(root), str(second_root)]))
    result = await run(two_roots, "SRC/main.py")
    assert reasons(result) == {"SRC/main.py": f"does not exist. Did you mean '{second_root / 'src/Main.py'}'?"}


@pytest.mark.requirement("many.none")
async def test_many_missing_paths_are_reported_as_missing(root: Path, context: ToolContext) -> None:
    make(root, {"a.txt": "a"})
    missing_paths = [f"{number}.txt" for number in range(400)]
    result = await run(context, *missing_paths, "a.txt")
    assert result.facts["files"] == [str(root / "a.txt")]
    assert reasons(result) == dict.fromkeys(missing_paths[:100], "does not exist")
    assert "[400 entries skipped:" in texts(result)[-2]
    assert "- and 380 more" in texts(result)[-2]


@pytest.mark.requirement("many.paths")
async def test_the_error_for_too_many_globs_is_about_their_number(root: Path, context: ToolContext) -> None:
    with pytest.raises(InvalidToolParamsError) as error_info:
        await run(context, *(f"{number}*.txt" for number in range(300)))
    assert "there are too many globs" in error_info.value.message
    assert "braces" not in error_info.value.message
    with pytest.raises(InvalidToolParamsError) as error_info:
        await run(context, "a.txt", "{1..300}.txt")
    assert "'{1..300}.txt' cannot be used: its braces expand to more" in error_info.value.message


@pytest.mark.requirement("many.none")
async def test_long_names_and_reasons_are_cut_in_the_result(root: Path, context: ToolContext) -> None:
    long_folder = "/".join(["n" * 200] * 4)
    make(root, {f"{long_folder}/{number:03d}.dump": b"\0" for number in range(200)} | {"a.txt": "a"})
    result = await run(context, "**")
    assert len(texts(result)[-2]) < 10_000
    assert len(str(result.facts)) < 50_000
    assert len(str(result.return_display)) < 4_000
    make(root, {f"{long_folder}/{number:03d}.txt": "x" for number in range(200)})
    result = await run(replace(context, limits=Limits(read_many_files=2)), "**/*.txt")
    assert "[199 more files not read" in texts(result)[-2]
    assert len(texts(result)[-2]) < 12_000
    assert all(path.endswith(".txt") for path in result.facts["not_read"])


@pytest.mark.requirement("many.budget")
async def test_a_call_that_ran_out_of_time_says_so(root: Path, context: ToolContext) -> None:
    make(root, {f"{number}.txt": "x" for number in range(3)})
    tool = ReadManyFilesTool()
    tool.seconds = 0.0
    paths = [f"{number}.txt" for number in range(3)]
    result = await tool.execute(tool.validate_tool_params({"paths": paths}), context)
    assert result.facts["files"] == []
    assert result.facts["partial"]
    assert "time limit" in texts(result)[-1]


@pytest.mark.requirement("many.skipped")
async def test_a_pipe_is_skipped_however_it_is_named(root: Path, context: ToolContext) -> None:
    os.mkfifo(root / "pipe")
    result = await run(context, "pipe", str(root / "pipe"))
    assert reasons(result) == {"pipe": "not a regular file", str(root / "pipe"): "not a regular file"}


@pytest.mark.requirement("many.skipped")
@pytest.mark.parametrize("path_pattern", ["hid", "hid/", "hid/deep", "link", "{root}/hid", "hid/*", "hid/a.txt"])
async def test_a_hidden_folder_is_not_read_however_it_is_named(
    path_pattern: str, root: Path, context: ToolContext
) -> None:
    (root / "hid" / "deep").mkdir(parents=True)
    for path in ("hid/a.txt", "hid/deep/b.txt"):
        (root / path).write_text("SECRET")
    (root / "link").symlink_to("hid")
    (root / ".qwenignore").write_text("hid/\n")
    tool = ReadManyFilesTool()
    params = tool.validate_tool_params({"paths": [path_pattern.format(root=root)]})
    result = await tool.execute(params, context)
    assert "SECRET" not in str(result.llm_content)
    assert result.facts["files"] == []
