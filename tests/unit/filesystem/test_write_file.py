"""The tool `write_file`: what a person is asked, what is written, and what the result says about it."""

from __future__ import annotations

import codecs
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.edit import WriteFileTool
from tools.builtin.read_file import ReadFileTool
from tools.call.base_tool import ClientState, ToolContext
from tools.contract.confirmation import Answer, Decision, EditConfirmation
from tools.contract.display import question_parts
from tools.contract.tool_errors import InvalidToolParamsError, PathNotInWorkspaceError, ToolError, ToolErrorType
from tools.contract.tool_results import FileDiff, ToolResult
from tools.files.path_opener import identity_of
from tools.files.workspace import SeenFile, Workspace

pytestmark = pytest.mark.anyio


ONE_TWO = hashlib.sha256(b"one\ntwo\n").hexdigest()


async def ask(context: ToolContext, **arguments: Any) -> EditConfirmation:
    tool = WriteFileTool()
    details = await tool.should_confirm_execute(tool.validate_tool_params(arguments), context)
    assert isinstance(details, EditConfirmation)
    return details


async def write(context: ToolContext, answer: str | None = None, **arguments: Any) -> ToolResult:
    """Ask and execute, as a call does. The person answers with a text, or only agrees."""
    tool = WriteFileTool()
    params = tool.validate_tool_params(arguments)
    await tool.should_confirm_execute(params, context)
    if answer is not None:
        context = replace(context, answer=Answer(Decision.ONCE, content=answer))
    return await tool.execute(params, context)


def facts(result: ToolResult) -> dict[str, Any]:
    assert result.structured is not None
    return dict(result.structured)


async def refusal(context: ToolContext, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as error_info:
        await write(context, **arguments)
    return error_info.value


@pytest.mark.requirement("write.create")
async def test_a_new_file_is_created_with_its_folders(root: Path, context: ToolContext) -> None:
    result = await write(context, file_path="deep/er/a.py", content="x = 1\ny = 2\n")
    path = root / "deep" / "er" / "a.py"
    assert path.read_bytes() == b"x = 1\ny = 2\n"
    assert result.llm_content == f"Created the new file {path}: 2 lines, 12 bytes, utf-8, lf."
    assert facts(result) == {
        "path": str(path),
        "created": True,
        "changed": True,
        "added": 2,
        "removed": 0,
        "lines": 2,
        "bytes": 12,
        "encoding": "utf-8",
        "eol": "lf",
        "sha256": hashlib.sha256(b"x = 1\ny = 2\n").hexdigest(),
        "links_broken": 0,
        "user_modified": False,
        "notes": [],
        "diff": "",
    }


@pytest.mark.requirement("write.create")
async def test_an_empty_file_can_be_written(root: Path, context: ToolContext) -> None:
    result = await write(context, file_path="empty.txt", content="")
    assert (root / "empty.txt").read_bytes() == b""
    assert (facts(result)["lines"], facts(result)["eol"]) == (0, None)


@pytest.mark.requirement("write.overwrite")
async def test_overwriting_reports_the_lines_added_and_removed(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    result = await write(context, file_path="a.txt", content="one\nTWO\n")
    assert str(result.llm_content).startswith(f"Overwrote {root / 'a.txt'}: +1 -2 lines; now 2 lines")
    assert (facts(result)["added"], facts(result)["removed"], facts(result)["created"]) == (1, 2, False)
    display = result.return_display
    assert isinstance(display, FileDiff)
    assert (display.file_name, display.added, display.removed, display.is_new_file) == ("a.txt", 1, 2, False)
    assert "--- a.txt\tOriginal\n+++ a.txt\tWritten\n" in display.file_diff
    assert "-two\n-three\n+TWO\n" in display.file_diff


@pytest.mark.requirement("write.literal")
@pytest.mark.parametrize("content", ['a\\nb\\t\\"c', "\\frac{1}{2}\n", "trailing  \t\n\n", "é\x00\x1b世界", "&lt;"])
async def test_the_content_is_written_byte_for_byte(content: str, root: Path, context: ToolContext) -> None:
    await write(context, file_path="a.txt", content=content)
    assert (root / "a.txt").read_bytes() == content.encode()


@pytest.mark.requirement("write.overwrite")
async def test_the_result_does_not_repeat_the_content(context: ToolContext) -> None:
    result = await write(context, file_path="a.txt", content="needle\n" * 100)
    assert "needle" not in str(result.llm_content)
    assert "needle" not in str(result.structured)


@pytest.mark.requirement("write.overwrite")
async def test_writing_what_is_there_touches_nothing(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("same\n")
    before = identity_of(path.stat())
    result = await write(context, file_path="a.txt", content="same\n")
    assert identity_of(path.stat()) == before
    assert facts(result)["changed"] is False
    assert "nothing was written" in str(result.llm_content)


@pytest.mark.requirement("write.encoding")
@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (b"", "utf-8", "utf-8"),
        (codecs.BOM_UTF8, "utf-8", "utf-8-bom"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32-le"),
    ],
)
async def test_encoding_and_mark_are_kept(mark: bytes, codec: str, name: str, root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(mark + "old\n".encode(codec))
    result = await write(context, file_path="a.txt", content="neu: 世界\n")
    assert (root / "a.txt").read_bytes() == mark + "neu: 世界\n".encode(codec)
    assert facts(result)["encoding"] == name


@pytest.mark.requirement("write.encoding")
@pytest.mark.parametrize("old", ["caf\u00e9\n".encode("latin-1"), b"\0\x01binary", codecs.BOM_UTF16_LE + b"\0\xd8!"])
async def test_a_file_in_an_unknown_encoding_becomes_utf_8_and_the_result_says_so(
    old: bytes, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes(old)
    result = await write(context, file_path="a.txt", content="é\n")
    assert (root / "a.txt").read_bytes() == "é\n".encode()
    assert len(facts(result)["notes"]) == 1
    assert facts(result)["notes"][0] in str(result.llm_content)


@pytest.mark.requirement("write.encoding")
async def test_half_a_surrogate_pair_is_refused(root: Path, context: ToolContext) -> None:
    error = await refusal(context, file_path="a.txt", content="a\ud83d")
    assert error.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert "U+D83D" in error.message
    assert not (root / "a.txt").exists()


@pytest.mark.requirement("write.encoding")
@pytest.mark.parametrize(
    ("old", "content", "new"),
    [
        (b"a\r\nb\r\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\nc\n", "x\ny\n", b"x\r\ny\r\n"),
        (b"a\nb\nc\r\n", "x\ny\n", b"x\ny\n"),
        (b"a\rb\r", "x\ny\n", b"x\ry\r"),
        (b"a\r\nb\r\n", "x\r\ny\n", b"x\r\ny\n"),
        (b"a\nb\n", "x\r\ny\r\n", b"x\r\ny\r\n"),
        (b"no ending", "x\ny\n", b"x\ny\n"),
    ],
)
async def test_plain_line_feeds_become_the_usual_ending_of_the_file(
    old: bytes, content: str, new: bytes, root: Path, context: ToolContext
) -> None:
    (root / "a.txt").write_bytes(old)
    await write(context, file_path="a.txt", content=content)
    assert (root / "a.txt").read_bytes() == new


@pytest.mark.requirement("write.literal")
async def test_a_placeholder_for_left_out_text_is_refused(root: Path, context: ToolContext) -> None:
    (root / "a.js").write_text("a();\nb();\nc();\n")
    error = await refusal(context, file_path="a.js", content="import a\n// ... existing code ...\n")
    assert error.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert "'// ... existing code ...'" in error.message
    assert (root / "a.js").read_text() == "a();\nb();\nc();\n"


@pytest.mark.requirement("write.literal")
async def test_a_placeholder_in_a_new_file_is_written(root: Path, context: ToolContext) -> None:
    await write(context, file_path="new.py", content="# ... rest of code ...\n")
    assert (root / "new.py").read_text() == "# ... rest of code ...\n"


@pytest.mark.requirement("write.literal")
async def test_refusing_a_placeholder_discloses_nothing_about_a_hidden_file(root: Path, context: ToolContext) -> None:
    (root / ".qwenignore").write_text("a.py\n")
    for text in ("# ...\n", "x = 1\n", ""):
        (root / "a.py").write_text(text)
        assert (await refusal(context, file_path="a.py", content="# ...\n")).code is ToolErrorType.INVALID_TOOL_PARAMS


@pytest.mark.requirement("write.literal")
async def test_a_placeholder_that_the_file_holds_already_may_stay(root: Path, context: ToolContext) -> None:
    (root / "a.md").write_text("// rest of code ...\n")
    await write(context, file_path="a.md", content="# Title\n// rest of code ...\n")
    assert (root / "a.md").read_text() == "# Title\n// rest of code ...\n"


@pytest.mark.requirement("write.stale")
async def test_a_file_changed_since_it_was_read_is_not_overwritten(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("read\n")
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    path.write_text("changed by somebody\n")
    error = await refusal(context, file_path="a.txt", content="mine\n")
    assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert path.read_text() == "changed by somebody\n"
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    await write(context, file_path="a.txt", content="mine\n")
    assert path.read_text() == "mine\n"


@pytest.mark.requirement("write.stale")
async def test_a_touched_file_with_the_same_content_is_fresh(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("same\n")
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    os.utime(path, (1, 1))
    await write(context, file_path="a.txt", content="mine\n")
    assert path.read_text() == "mine\n"


@pytest.mark.requirement("write.stale")
async def test_without_a_digest_a_changed_fingerprint_is_stale(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("same\n")
    assert context.client.reads is not None
    context.client.reads.record(str(path), SeenFile(identity_of(path.stat()), None))
    os.utime(path, (1, 1))
    assert (await refusal(context, file_path="a.txt", content="x")).code is ToolErrorType.FILE_CHANGED_SINCE_READ


@pytest.mark.requirement("write.stale")
async def test_a_file_never_read_and_one_just_written_may_be_overwritten(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("never read\n")
    await write(context, file_path="a.txt", content="first\n")
    await write(context, file_path="a.txt", content="second\n")
    assert (root / "a.txt").read_text() == "second\n"


@pytest.mark.requirement("write.expected_sha256")
async def test_an_expected_digest_decides(root: Path, context: ToolContext) -> None:
    anonymous = replace(context, client=ClientState(key=""))
    path = root / "a.txt"
    path.write_text("old\n")
    digest = hashlib.sha256(b"old\n").hexdigest()
    result = await write(anonymous, file_path="a.txt", content="new\n", expected_sha256=digest.upper())
    assert facts(result)["sha256"] == hashlib.sha256(b"new\n").hexdigest()
    error = await refusal(anonymous, file_path="a.txt", content="other\n", expected_sha256=digest)
    assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert path.read_text() == "new\n"
    error = await refusal(anonymous, file_path="missing.txt", content="x", expected_sha256=digest)
    assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert error.message.endswith("it does not exist. Nothing was written. To create it, omit expected_sha256.")
    with pytest.raises(InvalidToolParamsError, match="expected_sha256"):
        await write(anonymous, file_path="a.txt", content="x", expected_sha256="abc")


@pytest.mark.requirement("write.confirm")
async def test_the_question_shows_the_change_and_binds_it_to_the_content(root: Path, context: ToolContext) -> None:
    (root / "src").mkdir()
    path = root / "src" / "a.txt"
    path.write_text("one\ntwo\n")
    details = await ask(context, file_path="src/a.txt", content="one\n2\n")
    assert details.title == "Confirm Write: src/a.txt"
    assert details.file_path == str(path)
    assert "--- a.txt\tCurrent\n+++ a.txt\tProposed\n" in details.file_diff
    assert "-two\n+2\n" in details.file_diff
    assert (details.added, details.removed) == (1, 1)
    assert details.state == f"{ONE_TWO} {details.file_path}"
    assert details.editable == "one\n2\n"
    assert path.read_text() == "one\ntwo\n"


@pytest.mark.requirement("write.confirm")
async def test_the_question_for_a_new_file_shows_all_of_it(context: ToolContext) -> None:
    details = await ask(context, file_path="new.txt", content="one\ntwo")
    assert details.state == f"absent {details.file_path}"
    assert "@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n" in details.file_diff
    long_details = await ask(context, file_path="new.txt", content="é" * 9_000)
    assert long_details.editable is None


@pytest.mark.requirement("write.confirm")
async def test_a_write_that_cannot_succeed_is_not_asked_about(root: Path, context: ToolContext) -> None:
    (root / "folder").mkdir()
    with pytest.raises(ToolError) as error_info:
        await ask(context, file_path="folder", content="x")
    assert error_info.value.code is ToolErrorType.TARGET_IS_DIRECTORY


@pytest.mark.requirement("write.confirm")
async def test_the_text_that_the_user_typed_is_written_and_reported(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("old\n")
    result = await write(context, answer="user's\n", file_path="a.txt", content="model's\n")
    assert (root / "a.txt").read_text() == "user's\n"
    assert facts(result)["user_modified"] is True
    assert "-old\n+user's\n" in facts(result)["diff"]
    assert "The user edited" in str(result.llm_content)
    assert "-old\n+user's\n" in str(result.llm_content)


@pytest.mark.requirement("write.confirm")
@pytest.mark.parametrize("answer", ["", "model's\ntext\n", "model's\r\ntext\r\n"])
async def test_an_empty_or_unchanged_answer_leaves_the_models_text(
    answer: str, root: Path, context: ToolContext
) -> None:
    result = await write(context, answer=answer, file_path="a.txt", content="model's\ntext\n")
    assert (root / "a.txt").read_bytes() == b"model's\ntext\n"
    assert facts(result)["user_modified"] is False


@pytest.mark.requirement("write.stale")
async def test_a_change_between_question_and_write_is_not_overwritten(root: Path, context: ToolContext) -> None:
    path = root / "a.txt"
    path.write_text("one\n")
    tool = WriteFileTool()
    params = tool.validate_tool_params({"file_path": "a.txt", "content": "mine\n"})
    reader = ReadFileTool()
    await reader.execute(reader.validate_tool_params({"file_path": "a.txt"}), context)
    await tool.should_confirm_execute(params, context)
    path.write_text("changed while the question was open\n")
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, context)
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert path.read_text() == "changed while the question was open\n"


@pytest.mark.requirement("write.links")
async def test_a_hard_link_is_broken_and_a_link_inside_is_written_through(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("old\n")
    os.link(root / "a.txt", root / "b.txt")
    (root / "link.txt").symlink_to("a.txt")
    result = await write(context, file_path="link.txt", content="new\n")
    assert (root / "link.txt").is_symlink()
    assert ((root / "a.txt").read_text(), (root / "b.txt").read_text()) == ("new\n", "old\n")
    assert facts(result)["links_broken"] == 1
    assert "1 other name (a hard link)" in str(result.llm_content)
    assert facts(result)["path"] == str(root / "a.txt")


@pytest.mark.requirement("write.links")
async def test_nothing_outside_the_workspace_is_written(tmp_path: Path, root: Path, context: ToolContext) -> None:
    (root / "out").symlink_to(tmp_path)
    for path in (str(tmp_path / "x.txt"), "../x.txt", "out/x.txt"):
        with pytest.raises(PathNotInWorkspaceError):
            await write(context, file_path=path, content="x")
    assert not (tmp_path / "x.txt").exists()


@pytest.mark.requirement("write.errors")
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"content": "x"}, "file_path"),
        ({"file_path": "a.txt"}, "content"),
        ({"file_path": "a.txt", "content": None}, "content"),
        ({"file_path": " ", "content": "x"}, "file_path"),
        ({"file_path": "folder/", "content": "x"}, "folder/"),
        ({"absolute_path": "a.txt", "content": "x"}, "absolute_path"),
        ({"file_path": "a.txt", "content": 5.5}, "content"),
    ],
)
async def test_wrong_parameters_are_named(arguments: dict[str, Any], name: str, context: ToolContext) -> None:
    with pytest.raises(InvalidToolParamsError, match=name):
        await write(context, **arguments)


@pytest.mark.requirement("write.errors")
async def test_the_error_says_that_a_folder_of_the_path_is_a_file(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_text("x")
    error = await refusal(context, file_path="a.txt/b.txt", content="x")
    assert error.code is ToolErrorType.FILE_WRITE_FAILURE
    assert "is a file" in error.message


@pytest.mark.requirement("write.hidden")
async def test_overwriting_a_hidden_file_does_not_show_what_it_held(root: Path, context: ToolContext) -> None:
    (root / ".qwenignore").write_text("*.env\n")
    (root / "a.env").write_text("KEY=secret\nOTHER=x\n")
    result = await write(context, file_path="a.env", content="KEY=new\n")
    assert (root / "a.env").read_text() == "KEY=new\n"
    assert "secret" not in f"{result.llm_content}{result.structured}{result.return_display}"
    second_result = await write(context, file_path="a.env", content="KEY=new\n")
    assert "already has exactly this content" in str(second_result.llm_content)  # this client wrote the content itself
    (root / "a.env").write_bytes("K\xc9Y=s\r\n".encode("utf-16"))
    other_client = replace(context, client=ClientState(key="other"))
    assert (await write(other_client, file_path="a.env", content="KEY=new\n")).structured == result.structured
    third_client = replace(context, client=ClientState(key="third"))
    error = await refusal(third_client, file_path="a.env", content="x", expected_sha256="0" * 64)
    assert hashlib.sha256(b"KEY=new\n").hexdigest() not in error.message


@pytest.mark.requirement("write.hidden")
async def test_a_new_file_holds_nothing_that_could_be_hidden(root: Path, context: ToolContext) -> None:
    (root / ".qwenignore").symlink_to("nowhere")  # a broken link, so nobody knows what it hides
    await write(context, file_path="new.txt", content="x\n")
    assert (root / "new.txt").read_text() == "x\n"


@pytest.mark.requirement("write.hidden")
@pytest.mark.parametrize("hides_all_files", [False, True])
async def test_overwriting_a_file_that_a_rule_hides_does_not_show_what_it_held(
    hides_all_files: bool, root: Path, context: ToolContext
) -> None:
    (root / "a.env").write_text("KEY=secret\n")
    rule = "permissions.ask rule Read"
    workspace = (
        Workspace([str(root)], rule_of_all_reading=rule)
        if hides_all_files
        else Workspace([str(root)], forbidden=lambda path: rule if path.endswith(".env") else None)
    )
    context = replace(context, workspace=workspace)
    tool = WriteFileTool()
    params = tool.validate_tool_params({"file_path": "a.env", "content": "KEY=other\n"})
    details = await tool.should_confirm_execute(params, context)
    result = await write(context, file_path="a.env", content="KEY=new\n")
    assert "secret" not in f"{details}{result.llm_content}{result.structured}{result.return_display}"
    assert f"hidden from agents by the {rule}" in str(result.return_display)


@pytest.mark.requirement("write.hidden")
@pytest.mark.parametrize("lines", [1, 2_000, 40_000])  # the diff is whole, cut, or too long to compare
@pytest.mark.parametrize("is_by_rule", [False, True])
async def test_overwriting_a_hidden_file_is_not_presented_as_a_new_file(
    is_by_rule: bool, lines: int, root: Path, context: ToolContext
) -> None:
    (root / ".env").write_text("SECRET=1\n")
    if is_by_rule:
        context = replace(context, workspace=Workspace([str(root)], forbidden=lambda path: f"Read({path})"))
    else:
        (root / ".geminiignore").write_text(".env\n")
    tool, content = WriteFileTool(), "x=" + "y" * 40 + "\n"
    params = tool.validate_tool_params({"file_path": ".env", "content": content * lines})
    details = await tool.should_confirm_execute(params, context)
    assert isinstance(details, EditConfirmation)
    parts = question_parts(details)
    assert parts.before[1:] == ("Replaces content that is hidden from the model (9 bytes).",)
    assert f"(+{lines} lines)" in parts.before[0]
    assert parts.block.startswith(f"--- .env\tCurrent\n+++ .env\tProposed\n+{content}")
    result = await tool.execute(params, context)
    assert f"{root}/.env, whose old content is hidden from agents; now {lines} line" in str(result.llm_content)
    assert facts(result)["removed"] is None
    texts = [text.replace(str(root), "") for text in (parts.block, str(result.llm_content), str(result.return_display))]
    assert not any("-0" in text for text in texts)


@pytest.mark.requirement("write.hidden")
async def test_expected_digests_do_not_disclose_the_content_of_a_hidden_file(root: Path, context: ToolContext) -> None:
    (root / ".qwenignore").write_text("*.pin\n")
    path = root / "a.pin"
    path.write_text("4711")
    tool = WriteFileTool()
    for client in (context, replace(context, client=ClientState(key=""))):
        errors: set[tuple[ToolErrorType, str]] = set()
        for guess in (b"4710", b"4711", b"4712", b""):
            arguments = {"file_path": "a.pin", "content": "x", "expected_sha256": hashlib.sha256(guess).hexdigest()}
            params = tool.validate_tool_params(arguments)
            for act in (tool.should_confirm_execute, tool.execute):
                with pytest.raises(ToolError) as error_info:
                    await act(params, client)
                errors.add((error_info.value.code, error_info.value.message))
        assert len(errors) == 1
    assert path.read_text() == "4711"


@pytest.mark.requirement("write.hidden")
async def test_only_the_client_that_wrote_a_hidden_file_can_use_its_digest(root: Path, context: ToolContext) -> None:
    (root / ".qwenignore").write_text("*.pin\n")
    (root / "a.pin").write_text("4711")
    first_digest = facts(await write(context, file_path="a.pin", content="ours"))["sha256"]
    other_client = replace(context, client=ClientState(key="other"))
    other_client_error = await refusal(other_client, file_path="a.pin", content="x", expected_sha256=first_digest)
    second_digest = facts(
        await write(context, file_path="a.pin", content="next", expected_sha256=first_digest.upper())
    )["sha256"]
    assert (root / "a.pin").read_text() == "next"
    (root / "a.pin").write_text("of somebody else")
    stale_error = await refusal(context, file_path="a.pin", content="x", expected_sha256=second_digest)
    guess = hashlib.sha256(b"of somebody else").hexdigest()
    guess_error = await refusal(context, file_path="a.pin", content="x", expected_sha256=guess)
    assert {error.message for error in (stale_error, guess_error, other_client_error)} == {stale_error.message}
    assert (root / "a.pin").read_text() == "of somebody else"


@pytest.mark.requirement("write.hidden")
@pytest.mark.parametrize("options", [{}, {"expected_sha256": "0" * 64}])
async def test_a_hidden_file_that_somebody_else_changed_is_replaced_only_after_a_warning(
    options: dict[str, str], root: Path, context: ToolContext
) -> None:
    context = replace(context, workspace=Workspace([str(root)], forbidden=lambda _: "permissions.deny rule Read"))
    await write(context, file_path="a.env", content="ours")
    for content in ("theirs", "theirs again"):
        (root / "a.env").write_text(content)
        error = await refusal(context, file_path="a.env", content="next", **options)
        assert error.code is ToolErrorType.FILE_CHANGED_SINCE_READ
        assert content not in error.message
        assert (root / "a.env").read_text() == content
        await write(context, file_path="a.env", content="next")
        assert (root / "a.env").read_text() == "next"


@pytest.mark.requirement("write.create")
async def test_the_description_names_the_file(context: ToolContext) -> None:
    tool = WriteFileTool()
    params = tool.validate_tool_params({"path": "src/a.py", "content": "x"})
    assert tool.get_description(params, context) == "Write src/a.py"
    assert tool.behaviour.destructive
    assert tool.behaviour.idempotent
    assert not tool.behaviour.read_only


@pytest.mark.requirement("write.encoding")
async def test_a_byte_order_mark_in_the_content_is_not_doubled(root: Path, context: ToolContext) -> None:
    (root / "a.txt").write_bytes(codecs.BOM_UTF8 + b"old")
    tool = WriteFileTool()
    await tool.execute(tool.validate_tool_params({"file_path": "a.txt", "content": "\ufeffa"}), context)
    assert (root / "a.txt").read_bytes() == codecs.BOM_UTF8 + b"a"
