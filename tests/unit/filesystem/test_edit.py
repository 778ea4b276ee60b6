"""The tool `edit`: what it replaces, what it refuses and why, and what it reports."""

from __future__ import annotations

import codecs
import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tools.builtin.edit import EditTool
from tools.builtin.read_file import ReadFileTool
from tools.call.base_tool import ToolContext
from tools.contract.confirmation import Answer, Decision, EditConfirmation
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import FileDiff, ToolResult
from tools.files.change import text_edit, text_match
from tools.files.path_opener import identity_of
from tools.files.workspace import SeenFile, Workspace

pytestmark = pytest.mark.anyio


ONE_TWO = hashlib.sha256(b"one\ntwo\n").hexdigest()


async def edit(context: ToolContext, answer: str | None = None, **arguments: Any) -> ToolResult:
    """Ask and execute, as a call does. The person answers with a text, or only agrees."""
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", **arguments})
    await tool.should_confirm_execute(params, context)
    if answer is not None:
        context = replace(context, answer=Answer(Decision.ONCE, content=answer))
    result = await tool.execute(params, context)
    assert len(str(result.llm_content).encode()) < 8_000
    return result


async def refusal(context: ToolContext, **arguments: Any) -> ToolError:
    """Return the error of an edit. The preview and the execution must fail in the same way."""
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", **arguments})
    with pytest.raises(ToolError) as preview_error:
        await tool.should_confirm_execute(params, context)
    with pytest.raises(ToolError) as execution_error:
        await tool.execute(params, context)
    assert preview_error.value.message == execution_error.value.message
    return execution_error.value


def facts(result: ToolResult) -> dict[str, Any]:
    assert result.structured is not None
    return dict(result.structured)


@pytest.mark.requirement("edit.replace")
async def test_one_place_is_replaced_and_shown(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1, 31)))
    result = await edit(context, old_string="line 15\n", new_string="changed\nadded\n")
    after = path.read_bytes()
    assert after.decode().splitlines()[13:17] == ["line 14", "changed", "added", "line 16"]
    region = "line 10\nline 11\nline 12\nline 13\nline 14\nchanged\nadded\nline 16\nline 17"
    text = str(result.llm_content)
    assert text.startswith(f"Edited {path}: 1 replacement, +2 -1 lines; now {len(after)} bytes, utf-8, lf.")
    assert f"---\n{region}" in text
    assert facts(result) == {
        "path": str(path),
        "created": False,
        "added": 2,
        "removed": 1,
        "bytes": len(after),
        "encoding": "utf-8",
        "eol": "lf",
        "sha256": hashlib.sha256(after).hexdigest(),
        "links_broken": 0,
        "user_modified": False,
        "notes": [],
        "diff": "",
        "replacements": 1,
        "strategy": "exact",
        "lines": [15],
        "regions": facts(result)["regions"],
    }
    assert facts(result)["regions"][0]["first"] == 10
    display = result.return_display
    assert isinstance(display, FileDiff)
    assert "--- a.txt\tOriginal\n+++ a.txt\tWritten\n" in display.file_diff


@pytest.mark.requirement("edit.literal")
@pytest.mark.parametrize("new", ["$", "$$", "$&", "$`", "$'", "$1", "\\1", "\\n", "\\", "&lt;", "", "\0"])
async def test_the_replacement_is_literal(new: str, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(b"x OLD y OLD z\n")
    await edit(context, old_string="OLD", new_string=new, replace_all=True)
    assert (root / "a.txt").read_bytes() == f"x {new} y {new} z\n".encode()


@pytest.mark.requirement("edit.ambiguous")
async def test_an_edit_with_several_matches_changes_nothing_and_lists_them(root: Path, context: ToolContext) -> None:
    content = "x = 1\ny = 2\n" * 12
    (root / "a.txt").write_text(content)
    error = await refusal(context, old_string="x = 1", new_string="x = 3")
    assert error.code is ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH
    assert "12 times" in error.message
    assert "lines 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and more" in error.message
    assert "replace_all" in error.message
    assert (root / "a.txt").read_text() == content


@pytest.mark.requirement("edit.literal")
@pytest.mark.parametrize("spelling", ["replace_all", "allow_multiple"])
@pytest.mark.parametrize("value", [True, "true"])
async def test_every_match_is_replaced_on_demand(spelling: str, value: Any, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x\n" * 300)
    result = await edit(context, old_string="x", new_string="yy", **{spelling: value})
    assert (root / "a.txt").read_text() == "yy\n" * 300
    assert facts(result)["replacements"] == 300
    assert facts(result)["lines"] == list(range(1, 101))


@pytest.mark.requirement("edit.literal")
async def test_an_expected_count_is_an_assertion(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x x x\n")
    for count in (1, 2, "4"):
        error = await refusal(context, old_string="x", new_string="y", expected_replacements=count)
        assert error.code is ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH
        assert "is 3 (lines " in error.message
    await edit(context, old_string="x", new_string="y", expected_replacements="3", instruction="ignored")
    assert (root / "a.txt").read_text() == "y y y\n"
    with pytest.raises(InvalidToolParamsError, match="greater than or equal to 1, got -1") as error_info:
        await edit(context, old_string="y", new_string="z", expected_replacements=-1)
    assert "Unknown:" not in error_info.value.message


METHOD = "c:\n    def f():\n        a\n"


@pytest.mark.requirement("edit.relaxed")
@pytest.mark.parametrize(
    "change",
    [
        ("\tc:\n\t\ta\n", "c:\n    a", "    c:\n        b"),
        (METHOD, "def f():\n    a", "  def f():\n      a\n      b"),
    ],
)
async def test_an_indentation_of_neither_the_file_nor_the_old_text_is_refused(
    change: tuple[str, str, str], root: Path, context: ToolContext
) -> None:
    before, old, new = change
    (root / "a.txt").write_text(before)
    with pytest.raises(ToolError) as error_info:
        await edit(context, old_string=old, new_string=new)
    assert error_info.value.code is ToolErrorType.EDIT_NO_OCCURRENCE_FOUND
    assert "the file's indentation" in error_info.value.message
    assert (root / "a.txt").read_text() == before


@pytest.mark.requirement("edit.relaxed")
@pytest.mark.parametrize(
    "change",
    [
        (
            METHOD,
            "def f():\n        a",
            "    def f():\n        b\n        a",
            "c:\n    def f():\n        b\n        a\n",
        ),
        (METHOD, "a", "        if b:\n            a", "c:\n    def f():\n        if b:\n            a\n"),
        (METHOD, "a", "    a", "c:\n    def f():\n            a\n"),
        (METHOD, "a", "    a\n    b", "c:\n    def f():\n            a\n    b\n"),
    ],
)
async def test_indentation_before_the_match_is_not_added_twice(
    change: tuple[str, str, str, str], root: Path, context: ToolContext
) -> None:
    before, old, new, after = change
    for name, prefix in (("a.txt", ""), ("b.txt", "x\n" * 1_000)):  # near the beginning of the file, and far from it
        (root / name).write_text(prefix + before)
        await edit(context, file_path=name, old_string=old, new_string=new)
        assert (root / name).read_text() == prefix + after


@pytest.mark.requirement("edit.relaxed")
async def test_a_blank_first_line_does_not_lose_the_indentation_of_the_line_after_it(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("c:\n    x\n\n    def f():\n        a\n")
    await edit(context, old_string="\ndef f():\n    a\n", new_string="\ndef f():\n        b\n")
    assert (root / "a.txt").read_text() == "c:\n    x\n\n    def f():\n        b\n"


@pytest.mark.requirement("edit.relaxed")
@pytest.mark.parametrize("replace_all", [True, False])
async def test_a_relaxed_match_must_be_unique(replace_all: bool, root: Path, context: ToolContext) -> None:
    content = "a \nb\n\na\t\nb\n"
    (root / "a.txt").write_text(content)
    error = await refusal(context, old_string="a\nb", new_string="c", replace_all=replace_all)
    assert error.code is ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH
    assert "lines 1, 4" in error.message
    assert (root / "a.txt").read_text() == content


@pytest.mark.requirement("edit.relaxed")
@pytest.mark.parametrize(
    ("change", "strategy"),
    [
        (
            (
                "say \u201chi\u201d now it\u2019s",
                'say "hi" now it',
                'say "ho" now it',
                "say \u201cho\u201d now it\u2019s",
            ),
            "look_alikes",
        ),
        (
            ("\u201csmart\u201d quotes \u2014", '"smart" quotes -', '"dumb" q', '"dumb" q'),
            "look_alikes",
        ),
        (
            ("it\u2019s Bob\u2019s", "it's Bob's", "it's Al's car, isn't it", "it\u2019s Al's car, isn't it"),
            "look_alikes",
        ),
        (("\u2018a\u2019", "'a'", "'a', the dogs'", "\u2018a\u2019, the dogs'"), "look_alikes"),
        (("it\u2019s", "it's", "it's the dogs' bowl", "it\u2019s the dogs' bowl"), "look_alikes"),
        (("\u201cab c\u201d", '"ab', '"x" y', '"x" y c\u201d'), "look_alikes"),
        (("\u201eab\u201c c", '"ab"', '"x", "y"', '"x", "y" c'), "look_alikes"),
        (('"ab" \u2014 c', "\u201cab\u201d - c", "\u201cx\u201d", "\u201cx\u201d"), "look_alikes"),
        (("\u201ca\" \u2014 'b\u2019", "\"a\" - 'b'", "\"a\" + 'b'", "\u201ca\" + 'b\u2019"), "look_alikes"),
        # No new pair is half the file's and half the model's.
        (("\u201eab\u201c c", '"ab', '"x" y', '"x" y\u201c c'), "look_alikes"),
        (('\u201ca\u201d \u2014 "b"', '"a" - "b"', '"ab"', '"ab"'), "look_alikes"),
        # New text keeps its marks, because it may be code.
        (("x()  # \u201ca\u201d", 'x()  # "a"', 'x("b")  # "a"', 'x("b")  # \u201ca\u201d'), "look_alikes"),
        (("x = 1  # it\u2019s", "x = 1  # it's", "x = 'a'  # it's", "x = 'a'  # it\u2019s"), "look_alikes"),
        (
            ("# \u201ca\u201d\nx = 1", '# "a"\nx = 1', '# "b"\nx = "b"', '# \u201cb\u201d\nx = "b"'),
            "look_alikes",
        ),
        (("a  \nb\nc\n", "a\nb", "a\nB  ", "a  \nB  \nc\n"), "trailing_whitespace"),
        (("a  \nb\nc\n", "a\nb\n", "x\na\nb\n", "x\na  \nb\nc\n"), "trailing_whitespace"),
        (("a\nend", "end\n", "END\n", "a\nEND"), "final_newline"),
        (
            (
                "class A:\n    def f(self):\n        return 1\n\n    x = 2\n",
                "def f(self):\n    return 1",
                "def f(self):\n    if self:\n        return 2\n\n    return 3",
                "class A:\n    def f(self):\n        if self:\n            return 2\n\n        return 3\n\n    x = 2\n",
            ),
            "indentation",
        ),
        (
            (
                "\tif a:\n\t\tb()\n",
                "  if a:\n    b()",
                "  if a:\n    if c:\n      b()",
                "\tif a:\n\t\tif c:\n\t\t\tb()\n",
            ),
            "indentation",
        ),
        (("  a:\n    b\n", "\ta:\n\t\tb", "\ta:\n\t\tc:\n\t\t\tb", "  a:\n    c:\n      b\n"), "indentation"),
        (("  a:\n    b\n", "a:\n  b", "  a:\n    b\n\n  c:\n    d", "  a:\n    b\n\n  c:\n    d\n"), "indentation"),
        (("  a:\n    b\n", "a:\n  b", "a:\n  b\n  c", "  a:\n    b\n    c\n"), "indentation"),
        (
            ("  a:\n    b\n      c\n", "a:\n  b\n    c", "a:\n    x\n    c", "  a:\n      x\n      c\n"),
            "indentation",
        ),
        # In this case and the following ones, the new text already has the file's indentation, so it is not changed.
        (("  a:\n    b\n", "a:\n  b", "  x:\n    y", "  x:\n    y\n"), "indentation"),
        (
            (METHOD, "def f():\n    a", "    def f():\n        b\n\nX", "c:\n    def f():\n        b\n\nX\n"),
            "indentation",
        ),
        (
            (METHOD, "def f():\n    a", '    def f():\n        """\nb\n"""', 'c:\n    def f():\n        """\nb\n"""\n'),
            "indentation",
        ),
        (
            (METHOD, "def f():\n    a", "def f():\n        b\n        a", "c:\n    def f():\n        b\n        a\n"),
            "indentation",
        ),
        (("\tc:\n\t\ta\n", "c:\n    a", "\tc:\n\t\tb\nd", "\tc:\n\t\tb\nd\n"), "indentation"),
        (
            ("        a()\n        b()\n", "    a()\n    b() ", "x()\n    a()", "    x()\n        a()\n"),
            "indentation",
        ),
    ],
)
async def test_a_unique_relaxed_match_is_replaced_and_reported(
    change: tuple[str, str, str, str], strategy: str, root: Path, context: ToolContext
) -> None:
    before, old, new, after = change
    (root / "a.txt").write_text(before, newline="")
    result = await edit(context, old_string=old, new_string=new)
    assert (root / "a.txt").read_bytes().decode() == after
    assert facts(result)["strategy"] == strategy
    assert len(facts(result)["notes"]) == 1
    assert facts(result)["notes"][0] in str(result.llm_content)


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize(
    "change",
    [
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", b"a\r\nx\r\nb\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc\r\n"),
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "a\nc\nd", b"a\r\nc\r\nd\n"),
        (b"a\r\nb\r\n", "a\r\n", "x\r\ny\r\n", b"x\r\ny\r\nb\r\n"),
        (b"a\nb\n", "a\n", "x\r\ny\r\n", b"x\ny\nb\n"),
        (b"a\nb\nc\n", "a\rb", "a\rx\rb", b"a\nx\nb\nc\n"),
        (b"a\rb\r", "b", "x\ny", b"a\rx\ry\r"),
        (b"a\r\nb", "b", "x\ny", b"a\r\nx\r\ny"),
        (b"one line", "line", "x\ny", b"one x\ny"),
        (b"a\nb\r\nc\n", "c", "c\nd", b"a\nb\r\nc\nd\n"),
        (b"a\nb\r\nc\n", "b", "b\nd", b"a\nb\r\nd\r\nc\n"),
        (b"a\nb\r\nc", "c", "c\nd", b"a\nb\r\nc\r\nd"),
        (b"a\nb\r\nc\r\nd\r\n", "a\nb\nc\nd", "x\ny\nd", b"x\ny\nd\r\n"),
        (b"x\r\nfoo\r\n", "\nfoo", "\nbar", b"x\r\nbar\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\nb", b"a\nb\r\n"),
    ],
)
async def test_new_lines_have_the_line_endings_of_the_lines_around_them(
    change: tuple[bytes, str, str, bytes], root: Path, context: ToolContext
) -> None:
    before, old, new, after = change
    (root / "a.txt").write_bytes(before)
    await edit(context, old_string=old, new_string=new)
    assert (root / "a.txt").read_bytes() == after


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize(
    "change",
    [
        (b"a\nb\n", "b\n", "b", b"a\nb"),
        (b"a\nb", "b", "b\n", b"a\nb\n"),
        (b"a\nb\n", "b", "c", b"a\nc\n"),
        (b"a\nb", "b", "c", b"a\nc"),
    ],
)
async def test_the_final_line_ending_can_be_added_removed_or_kept(
    change: tuple[bytes, str, str, bytes], root: Path, context: ToolContext
) -> None:
    before, old, new, after = change
    (root / "a.txt").write_bytes(before)
    await edit(context, old_string=old, new_string=new)
    assert (root / "a.txt").read_bytes() == after


@pytest.mark.requirement("edit.endings")
@pytest.mark.parametrize(
    ("before", "old", "after"),
    [
        (b"a\nfoo\nb\n", "foo", b"a\nb\n"),
        (b"a\r\nfoo\r\nb\r\n", "foo", b"a\r\nb\r\n"),
        (b"a\nfoo\nb\n", "foo\n", b"a\nb\n"),
        (b"a\nx foo\nb\n", " foo", b"a\nx\nb\n"),
        (b"a\nfoo x\nb\n", "foo ", b"a\nx\nb\n"),
        (b"foo", "foo", b""),
        (b"a\nfoo", "foo", b"a\n"),
        (b"a\n\n\nfoo\n\nb\n", "foo", b"a\n\n\n\nb\n"),
    ],
)
async def test_deleting_whole_lines_leaves_no_empty_line(
    before: bytes, old: str, after: bytes, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes(before)
    await edit(context, old_string=old, new_string="")
    assert (root / "a.txt").read_bytes() == after


@pytest.mark.requirement("edit.endings")
async def test_deleting_counts_before_it_takes_line_endings(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("foo bar foo\nfoo\n")
    error = await refusal(context, old_string="foo", new_string="")
    assert "3 times" in error.message
    await edit(context, old_string="foo", new_string="", replace_all=True)
    assert (root / "a.txt").read_text() == " bar \n"


@pytest.mark.requirement("edit.bytes")
@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "utf-8-bom"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32-be"),
    ],
)
async def test_encoding_and_mark_stay(mark: bytes, codec: str, name: str, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(mark + "ä = 1\r\nö = 2\r\n".encode(codec))
    result = await edit(context, old_string="ö = 2", new_string="世界 = 3")
    assert (root / "a.txt").read_bytes() == mark + "ä = 1\r\n世界 = 3\r\n".encode(codec)
    assert facts(result)["encoding"] == name


@pytest.mark.requirement("edit.unknown_encoding")
@pytest.mark.parametrize("codec", ["latin-1", "cp1252", "gb18030", "shift_jis", "big5", "euc_jp", "koi8-r"])
async def test_ascii_in_an_unknown_encoding_is_changed_and_nothing_else(
    codec: str, root: Path, context: ToolContext
) -> None:
    words = {"latin-1": "Äpfel süß", "cp1252": "Äpfel \u2013 süß", "koi8-r": "привет мир"}.get(codec, "日本 表 世界")
    data = f"# {words}\r\nname = old\n{words} end\r\n".encode(codec)
    (root / "a.txt").write_bytes(data)
    result = await edit(context, old_string="name = old", new_string="name = new\nother = 1")
    assert (root / "a.txt").read_bytes() == data.replace(b"name = old", b"name = new\nother = 1")
    assert facts(result)["encoding"] == "unknown-8bit"


@pytest.mark.requirement("edit.unknown_encoding")
@pytest.mark.parametrize(("old", "new"), [("café", "x"), ("name", "naïve")])
async def test_other_characters_in_an_unknown_encoding_are_refused_with_a_way_out(
    old: str, new: str, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes("café name\n".encode("latin-1"))
    error = await refusal(context, old_string=old, new_string=new)
    assert error.code is ToolErrorType.READ_CONTENT_FAILURE
    assert "UTF-8" in error.message


@pytest.mark.requirement("edit.unknown_encoding")
async def test_half_of_a_character_is_never_replaced(root: Path, context: ToolContext) -> None:
    data = "表".encode("shift_jis") + b"\n"
    assert data[1:2] == b"\\"
    (root / "a.txt").write_bytes(data)
    error = await refusal(context, old_string="\\", new_string="/")
    assert error.code is ToolErrorType.EDIT_NO_OCCURRENCE_FOUND
    assert (root / "a.txt").read_bytes() == data


@pytest.mark.requirement("edit.create")
@pytest.mark.parametrize("data", [b"\0\1binary OLD", codecs.BOM_UTF16_LE + b"\0\xd8!"])
async def test_files_that_are_not_text_are_not_edited(data: bytes, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(data)
    error = await refusal(context, old_string="OLD", new_string="NEW")
    assert error.code is ToolErrorType.READ_CONTENT_FAILURE


@pytest.mark.requirement("edit.create")
@pytest.mark.parametrize("content", ["x = 1\n", "", "a\r\nb\r\n"])
async def test_an_empty_old_string_creates_a_file(content: str, root: Path, context: ToolContext) -> None:
    result = await edit(context, file_path="new/a.txt", old_string="", new_string=content)
    assert (root / "new" / "a.txt").read_bytes() == content.encode()
    assert facts(result)["created"] is True
    assert (facts(result)["replacements"], facts(result)["strategy"]) == (0, None)


@pytest.mark.requirement("edit.create")
@pytest.mark.parametrize("content", ["", "held\n"])
async def test_an_existing_file_is_not_created_again(content: str, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text(content)
    error = await refusal(context, old_string="", new_string="new")
    assert error.code is ToolErrorType.ATTEMPT_TO_CREATE_EXISTING_FILE
    assert (root / "a.txt").read_text() == content


@pytest.mark.requirement("edit.create")
async def test_refusals_have_their_codes(root: Path, context: ToolContext) -> None:
    error = await refusal(context, file_path="missing.txt", old_string="a", new_string="b")
    assert error.code is ToolErrorType.FILE_NOT_FOUND
    assert "empty old_string" in error.message
    (root / "folder").mkdir()
    error = await refusal(context, file_path="folder", old_string="a", new_string="b")
    assert error.code is ToolErrorType.TARGET_IS_DIRECTORY
    (root / "a.txt").write_text("same same\n")
    error = await refusal(context, old_string="same same", new_string="same same")
    assert error.code is ToolErrorType.EDIT_NO_CHANGE
    error = await refusal(context, old_string="same", new_string="same")
    assert error.code is ToolErrorType.EDIT_NO_CHANGE
    assert "old_string and new_string are the same" in error.message
    error = await refusal(context, old_string="same", new_string="other")
    assert error.code is ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH
    error = await refusal(context, old_string="same same", new_string="\udc80")
    assert error.code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("edit.create")
async def test_an_edit_that_results_in_the_same_bytes_is_refused(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(b"a\r\nb\r\n")
    error = await refusal(context, old_string="a\nb", new_string="a\r\nb")
    assert error.code is ToolErrorType.EDIT_NO_CHANGE


@pytest.mark.requirement("edit.create")
async def test_a_placeholder_in_the_replacement_is_refused(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("a\n// rest of code ...\n")
    with pytest.raises(InvalidToolParamsError, match="placeholder for omitted text"):
        await edit(context, old_string="a", new_string="b\n// unchanged code ...")
    await edit(context, old_string="a\n// rest of code ...", new_string="b\n// rest of code ...")
    assert (root / "a.txt").read_text() == "b\n// rest of code ...\n"


@pytest.mark.requirement("edit.stale")
async def test_a_file_changed_since_it_was_read_is_not_edited(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("one\n")
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    path.write_text("one and two\n")
    error = await refusal(context, old_string="one", new_string="1")
    assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    await edit(context, old_string="one", new_string="1")
    await edit(context, old_string="two", new_string="2")
    assert path.read_text() == "1 and 2\n"


@pytest.mark.requirement("edit.stale")
async def test_the_error_of_a_stale_edit_names_the_lines_that_differ(root: Path, context: ToolContext) -> None:
    path, reader = root / "a.txt", ReadFileTool()
    old = [f"line {number}" for number in range(1, 31)]

    async def stale_message(new: list[str]) -> str:
        path.write_text("\n".join(old) + "\n")
        await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
        path.write_text("\n".join(new) + "\n")
        return (await refusal(context, old_string="line 9", new_string="9")).message

    assert "(now different: lines 2-3, 20)" in await stale_message([*old[:1], "x", "y", *old[3:19], "z", *old[20:]])
    assert "(now different: line 5)" in await stale_message([*old[:4], *old[6:]])
    assert "(now different: lines 1, 32)" in await stale_message(["new", *old, "last"])
    message = await stale_message([f"{line}!" if number % 2 else line for number, line in enumerate(old)])
    assert "(now different: lines 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and more)" in message


@pytest.mark.requirement("edit.stale")
async def test_the_error_names_no_lines_of_a_file_that_may_not_be_read(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("old\n")
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    (root / "a.txt").write_text("new\n")
    workspace = Workspace([str(root)], forbidden=lambda path: "rule" if path.endswith("a.txt") else None)
    error = await refusal(replace(context, workspace=workspace), old_string="old", new_string="x")
    assert error.code is ToolErrorType.PATH_IGNORED
    assert "different" not in error.message


@pytest.mark.requirement("edit.stale")
async def test_an_edit_with_a_wrong_expected_digest_is_refused(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("one\n")
    digest = hashlib.sha256(b"other\n").hexdigest()
    error = await refusal(context, old_string="one", new_string="1", expected_sha256=digest)
    assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    result = await edit(context, old_string="one", new_string="1", expected_sha256=hashlib.sha256(b"one\n").hexdigest())
    await edit(context, old_string="1", new_string="one", expected_sha256=facts(result)["sha256"])


@pytest.mark.requirement("edit.confirm")
async def test_the_question_shows_the_change_and_binds_it_to_the_content(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "two", "new_string": "  two"})
    details = await tool.should_confirm_execute(params, context)
    assert isinstance(details, EditConfirmation)
    assert details.title == "Confirm Edit: a.txt"
    assert "-two\n+  two\n" in details.file_diff
    assert details.state == f"{ONE_TWO} {details.file_path}"
    assert details.editable == "  two"
    assert (root / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.requirement("edit.confirm")
async def test_the_replacement_that_the_user_typed_is_used_and_reported(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    result = await edit(context, answer="ZWEI", old_string="two", new_string="2")
    assert (root / "a.txt").read_text() == "one\nZWEI\n"
    assert facts(result)["user_modified"] is True
    assert "-two\n+ZWEI\n" in facts(result)["diff"]
    assert "-two\n+ZWEI\n" in str(result.llm_content)


@pytest.mark.requirement("edit.stale")
async def test_an_edit_applies_to_the_content_at_the_time_of_execution(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("one\ntwo\n")
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "two", "new_string": "2"})
    await tool.should_confirm_execute(params, context)
    path.write_text("put before\none\ntwo\n")
    await tool.execute(params, context)
    assert path.read_text() == "put before\none\n2\n"


@pytest.mark.requirement("edit.concurrent")
async def test_simultaneous_edits_of_one_file_all_succeed(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("".join(f"<{number}>\n" for number in range(12)))
    async with anyio.create_task_group() as tasks:
        for number in range(12):
            arguments = {"old_string": f"<{number}>", "new_string": f"done {number}"}
            tasks.start_soon(partial(edit, context, **arguments))
    assert path.read_text() == "".join(f"done {number}\n" for number in range(12))


@pytest.mark.requirement("edit.concurrent")
async def test_a_cancelled_edit_writes_nothing(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("one\n")
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "one", "new_string": "1"})
    await tool.should_confirm_execute(params, context)
    context.signal.abort()
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, context)
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert os.listdir(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "one\n"


@pytest.mark.requirement("edit.agent_ignore")
async def test_the_mode_stays_and_broken_hard_links_are_reported(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("one\n")
    path.chmod(0o640)
    os.link(path, root / "b.txt")
    result = await edit(context, old_string="one", new_string="1")
    assert path.stat().st_mode & 0o777 == 0o640
    assert (root / "b.txt").read_text() == "one\n"
    assert facts(result)["links_broken"] == 1


@pytest.mark.requirement("edit.agent_ignore")
async def test_a_hidden_file_is_not_edited_and_errors_do_not_disclose_its_content(
    root: Path, context: ToolContext
) -> None:
    (root / ".qwenignore").write_text("a.txt\n")
    (root / "a.txt").write_text("KEY=secret\n")
    guesses = [{"old_string": text, "new_string": "x"} for text in ("KEY=secret", "KEY=sacret", "KEY")]
    guesses += [{"old_string": "KEY", "new_string": "KEY"}, {**guesses[0], "expected_replacements": 7}]
    guesses += [{**guesses[0], "expected_sha256": "0" * 64}]
    errors = [await refusal(context, **guess) for guess in guesses]
    assert {(error.code, error.message) for error in errors} == {(ToolErrorType.PATH_IGNORED, errors[0].message)}
    assert (root / "a.txt").read_text() == "KEY=secret\n"


@pytest.mark.requirement("edit.agent_ignore")
async def test_a_file_that_a_rule_hides_is_edited_once_this_client_knows_what_it_holds(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("KEY=secret\n")
    workspace = Workspace([str(root)], forbidden=lambda _path: "permissions.ask rule Read(a.txt)")
    context = replace(context, workspace=workspace)
    wrong_guess = {"old_string": "KEY=sacret", "new_string": "x"}
    error = await refusal(context, **wrong_guess)
    assert (error.code, "secret" in error.message) == (ToolErrorType.PATH_IGNORED, False)
    assert "the permissions.ask rule Read(a.txt)" in error.message
    assert context.reads is not None
    context.reads.record(str(root / "a.txt"), SeenFile(identity_of((root / "a.txt").stat()), None))
    assert "KEY=secret" in (await refusal(context, **wrong_guess)).message
    await edit(context, old_string="secret", new_string="new")
    assert (root / "a.txt").read_text() == "KEY=new\n"
    (root / "a.txt").write_text("KEY=newer\n")
    assert (await refusal(context, **wrong_guess)).code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("edit.replace")
async def test_distant_regions_are_shown_separately_and_long_ones_are_cut(root: Path, context: ToolContext) -> None:
    lines = [f"line {number}" for number in range(1, 101)]
    lines[9] = lines[89] = "target"
    lines[49] = "target" + "x" * 20_000
    (root / "a.txt").write_text("\n".join(lines))
    result = await edit(context, old_string="target", new_string="hit", replace_all=True)
    regions = facts(result)["regions"]
    assert [(region["first"], region["last"]) for region in regions] == [(5, 15), (45, 55)]
    assert "[cut here]" in regions[1]["text"]
    assert "Lines 5-15 now:\n---\nline 5\n" in str(result.llm_content)


@pytest.mark.requirement("edit.description")
@pytest.mark.parametrize(
    ("old", "new", "description"),
    [
        ("a = 1", "a = 2", "Edit src/a.py: a = 1 => a = 2"),
        ("first\nsecond", "x" * 40, f"Edit src/a.py: first... => {'x' * 30}..."),
        ("def f():\n    return 1", "def f():\n    return 2", "Edit src/a.py: ...return 1 => ...return 2"),
        ("x" * 50 + "a();", "x" * 50 + "b();", f"Edit src/a.py: ...{'x' * 10}a(); => ...{'x' * 10}b();"),
        ("", "x", "Create src/a.py"),
        ("same", "same", "No changes to src/a.py"),
    ],
)
async def test_the_description_is_short(old: str, new: str, description: str, context: ToolContext) -> None:
    tool = EditTool()
    params = tool.validate_tool_params({"path": "src/a.py", "old_string": old, "new_string": new})
    assert tool.get_description(params, context) == description


@pytest.mark.requirement("edit.description")
async def test_older_spellings_are_not_published() -> None:
    tool = EditTool()
    assert set(tool.parameter_schema["properties"]) == {
        "file_path",
        "old_string",
        "new_string",
        "encoding",
        "replace_all",
        "expected_sha256",
    }
    assert tool.parameter_schema["required"] == ["file_path", "old_string", "new_string"]
    assert "replace" in tool.aliases
    assert tool.behaviour.destructive
    assert not tool.behaviour.idempotent
    assert not tool.behaviour.read_only


@pytest.mark.requirement("edit.bounded")
async def test_an_edit_whose_result_would_be_huge_is_refused_before_it_is_built(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("a line of text here\n" * 50_000)
    with pytest.raises(ToolError) as error_info:
        await edit(context, old_string="e", new_string="Z" * 10_000, replace_all=True)
    assert error_info.value.code is ToolErrorType.FILE_TOO_LARGE
    assert (root / "a.txt").stat().st_size == 1_000_000


@pytest.mark.requirement("edit.bounded")
async def test_a_file_may_become_as_large_as_the_limit_and_no_larger(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.files.change.text_edit.MAX_CHANGED_BYTES", 20)
    (root / "a.txt").write_text("ab" * 9)
    await edit(context, old_string="ab", new_string="b", replace_all=True)
    await edit(context, old_string="b", new_string="cd", replace_all=True)
    await edit(context, old_string="cd" * 9, new_string="e" * 20)
    with pytest.raises(ToolError, match="larger than 20 bytes"):
        await edit(context, old_string="e" * 20, new_string="e" * 21)
    await edit(context, old_string="e", new_string="f", replace_all=True)
    assert (root / "a.txt").read_text() == "f" * 20


@pytest.mark.requirement("edit.confirm")
async def test_an_answer_counts_only_for_the_file_that_was_shown(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("same\n")
    (root / "b.txt").write_text("same\n")
    tool = EditTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "old_string": "same", "new_string": "other"})
    details = await tool.should_confirm_execute(params, context)
    (root / "a.txt").unlink()
    (root / "a.txt").symlink_to("b.txt")
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, replace(context, confirmed=details, memo={}))
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert (root / "b.txt").read_text() == "same\n"


@pytest.mark.requirement("edit.ambiguous")
async def test_more_matches_than_one_edit_changes_are_counted_and_refused(
    root: Path, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (text_edit, text_match):
        monkeypatch.setattr(module, "MAX_MATCHES", limit := 1_000)
    path = root / "a.txt"
    path.write_text("ab" * (limit + 7))
    error = await refusal(context, old_string="ab", new_string="c", replace_all=True)
    assert error.code is ToolErrorType.EDIT_EXPECTED_OCCURRENCE_MISMATCH
    assert f"{limit + 7:,} times" in error.message
    assert path.read_text() == "ab" * (limit + 7)


@pytest.mark.requirement("edit.ambiguous")
async def test_very_many_matches_are_all_replaced_and_only_the_first_are_shown(
    root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_text("ab\n" * 50_000)
    result = await edit(context, old_string="ab", new_string="cd", replace_all=True)
    assert (root / "a.txt").read_text() == "cd\n" * 50_000
    assert facts(result)["replacements"] == 50_000
