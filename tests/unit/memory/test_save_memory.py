"""The tool `save_memory`: which file it changes, what a person is asked, what is written, and what the result says."""

from __future__ import annotations

import codecs
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.people import Person
from tests.unit.memory.memories import confirmation_for, save, structured
from tools.builtin.edit import WriteFileTool
from tools.builtin.read_file import ReadFileTool
from tools.builtin.save_memory import MAX_FACT_CHARS, MemoryTool
from tools.call.base_tool import ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import Answer, Decision, EditConfirmation
from tools.contract.permission_subjects import Access, PathSubject
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import FileDiff, FunctionCall, ToolResult
from tools.files.workspace import Workspace
from tools.memory.memory_files import MemoryFiles
from tools.permissions.permission_policy import PermissionPolicy

pytestmark = pytest.mark.anyio


def agreeing_person(content: str | None = None) -> Person:
    """Return a person who agrees to everything, and perhaps changes the content."""
    return Person(Answer(Decision.ONCE, content=content))


async def run(context: ToolContext, person: Person, **arguments: str) -> ToolResult:
    """Make one call through the whole call flow."""
    registry = ToolRegistry()
    registry.register_tool(MemoryTool())
    outcome = await ToolRunner(registry, PermissionPolicy()).run(
        FunctionCall("save_memory", arguments), context, person
    )
    assert isinstance(outcome, ToolResult)
    return outcome


@pytest.fixture
def files(tmp_path: Path) -> MemoryFiles:
    """Memory files with a global folder that does not exist yet."""
    return MemoryFiles(global_folder=str(tmp_path / "home" / "settings"))


@pytest.mark.requirement("memory.scope")
async def test_a_fact_goes_to_the_project_where_there_is_one(
    files: MemoryFiles, root: Path, context: ToolContext
) -> None:
    result = await save(context, files, fact="Tabs.")
    assert (root / "AGENTS.md").read_text() == "## Added Memories\n- Tabs.\n"
    assert structured(result) == {
        "scope": "project",
        "path": str(root / "AGENTS.md"),
        "fact": "Tabs.",
        "saved": True,
        "created": True,
        "sha256": hashlib.sha256(b"## Added Memories\n- Tabs.\n").hexdigest(),
        "user_modified": False,
        "notes": ["The file is new."],
    }
    assert result.llm_content == f"Remembered in the project memory {root}/AGENTS.md: Tabs.\nThe file is new."
    assert isinstance(result.return_display, FileDiff)
    assert "+- Tabs." in result.return_display.file_diff


@pytest.mark.requirement("memory.scope")
async def test_a_fact_goes_to_the_global_memory_where_there_is_no_project(
    files: MemoryFiles, tmp_path: Path, context: ToolContext
) -> None:
    no_project = replace(context, workspace=Workspace([]))
    result = await save(no_project, files, fact="Tabs.")
    path = tmp_path / "home" / "settings" / "AGENTS.md"
    assert path.read_text() == "## Added Memories\n- Tabs.\n"
    assert (structured(result)["scope"], structured(result)["path"]) == ("global", str(path))
    with pytest.raises(ToolError) as error_info:
        await save(no_project, files, fact="Tabs.", scope="project")
    assert error_info.value.code is ToolErrorType.NO_WORKSPACE


@pytest.mark.requirement("memory.scope")
async def test_a_question_about_the_global_memory_creates_no_folder(
    files: MemoryFiles, tmp_path: Path, context: ToolContext
) -> None:
    assert await confirmation_for(context, files, fact="Tabs.", scope="global") is not None
    assert not (tmp_path / "home").exists()
    await save(context, files, fact="Tabs.", scope="global")
    assert (tmp_path / "home" / "settings").stat().st_mode & 0o077 == 0


@pytest.mark.requirement("memory.scope")
async def test_without_a_folder_there_is_no_global_memory(context: ToolContext) -> None:
    with pytest.raises(ToolError, match=r"memory\.globalFolder"):
        await save(context, fact="Tabs.", scope="global")


@pytest.mark.requirement("memory.files")
async def test_name_folder_and_heading_are_those_of_the_settings(
    tmp_path: Path, root: Path, context: ToolContext
) -> None:
    files = MemoryFiles("docs/QWEN.md", str(tmp_path / ".qwen"), "Qwen Added Memories")
    await save(context, files, fact="Tabs.", scope="global")
    await save(context, files, fact="Tabs.")
    for folder in (tmp_path / ".qwen", root):
        assert (folder / "docs" / "QWEN.md").read_text() == "## Qwen Added Memories\n- Tabs.\n"


@pytest.mark.requirement("memory.files")
@pytest.mark.parametrize("name", ["../out.md", "/tmp/out.md"])
async def test_a_file_name_that_leads_out_of_the_folder_is_refused(name: str, root: Path, context: ToolContext) -> None:
    with pytest.raises(ToolError, match=r"memory\.fileName") as error_info:
        await save(context, MemoryFiles(name), fact="Tabs.")
    assert error_info.value.code is ToolErrorType.PATH_NOT_IN_WORKSPACE
    assert not (root / name).exists()


@pytest.mark.requirement("memory.insert")
async def test_a_fact_that_is_there_is_not_added_again_and_nobody_is_asked(root: Path, context: ToolContext) -> None:
    (root / "AGENTS.md").write_text("# Rules\n\n* Tabs,  not blanks\n")
    original_stat = (root / "AGENTS.md").stat()
    assert await confirmation_for(context, fact="Tabs, not blanks") is None
    result = await save(context, fact="Tabs,\nnot blanks")
    assert structured(result)["saved"] is False
    assert "already has this" in str(result.llm_content)
    assert (root / "AGENTS.md").stat() == original_stat


@pytest.mark.requirement("memory.insert")
async def test_a_fact_that_was_there_when_nobody_was_asked_is_not_added_once_it_is_gone(
    root: Path, context: ToolContext
) -> None:
    (root / "AGENTS.md").write_text("- Tabs.\n")
    tool = MemoryTool()
    params = tool.validate_tool_params({"fact": "Tabs."})
    assert await tool.should_confirm_execute(params, context) is None
    (root / "AGENTS.md").write_text("")
    assert structured(await tool.execute(params, context))["saved"] is False
    assert (root / "AGENTS.md").read_text() == ""


@pytest.mark.requirement("memory.bytes")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (codecs.BOM_UTF8 + b"a\r\nb\r\n", b"\r\n## Added Memories\r\n- caf\xc3\xa9\r\n"),
        (codecs.BOM_UTF16_LE + "a\n".encode("utf-16-le"), "\n## Added Memories\n- café\n".encode("utf-16-le")),
        (b"a\n", b"\n## Added Memories\n- caf\xc3\xa9\n"),
    ],
    ids=["bom-crlf", "utf-16", "utf-8"],
)
async def test_encoding_mark_and_line_endings_stay(
    before: bytes, after: bytes, root: Path, context: ToolContext
) -> None:
    (root / "AGENTS.md").write_bytes(before)
    await save(context, fact="café")
    assert (root / "AGENTS.md").read_bytes() == before + after


@pytest.mark.requirement("memory.bytes")
async def test_a_file_in_an_unknown_encoding_takes_ascii_only(root: Path, context: ToolContext) -> None:
    (root / "AGENTS.md").write_bytes(b"caf\xe9 au lait\n")
    with pytest.raises(ToolError, match="plain ASCII"):
        await save(context, fact="thé")
    await save(context, fact="tea")
    assert (root / "AGENTS.md").read_bytes() == b"caf\xe9 au lait\n\n## Added Memories\n- tea\n"


@pytest.mark.requirement("memory.question")
async def test_the_question_shows_the_change_and_a_person_may_rephrase_it(root: Path, context: ToolContext) -> None:
    details = await confirmation_for(context, fact="Tabs.")
    assert isinstance(details, EditConfirmation)
    assert (details.file_path, details.editable) == (str(root / "AGENTS.md"), "Tabs.")
    assert details.file_diff.endswith("+## Added Memories\n+- Tabs.\n")
    person = agreeing_person("Tabs,\n- but not in YAML")
    result = await run(context, person, fact="Tabs.")
    assert (root / "AGENTS.md").read_text() == "## Added Memories\n- Tabs, - but not in YAML\n"
    assert structured(result)["user_modified"] is True
    assert [type(question.details) for question in person.questions] == [EditConfirmation]
    assert (await run(context, agreeing_person("--"), fact="x")).error is not None


@pytest.mark.requirement("memory.question")
async def test_facts_that_are_confirmed_at_the_same_time_are_all_saved(root: Path, context: ToolContext) -> None:
    tool = MemoryTool()
    calls_params = [tool.validate_tool_params({"fact": f"fact {number}"}) for number in range(3)]
    confirmations = [await tool.should_confirm_execute(params, context) for params in calls_params]
    for params, details in zip(calls_params, confirmations, strict=True):
        await tool.execute(params, replace(context, confirmed=details))
    assert (root / "AGENTS.md").read_text() == "## Added Memories\n- fact 0\n- fact 1\n- fact 2\n"


@pytest.mark.requirement("memory.question")
async def test_an_answer_does_not_count_for_another_file(root: Path, context: ToolContext) -> None:
    (root / "AGENTS.md").write_text("")
    tool = MemoryTool()
    params = tool.validate_tool_params({"fact": "Tabs."})
    details = await tool.should_confirm_execute(params, context)
    (root / "AGENTS.md").unlink()
    (root / "other.md").write_text("")
    (root / "AGENTS.md").symlink_to("other.md")
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, replace(context, confirmed=details))
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ
    assert (root / "other.md").read_text() == ""


@pytest.mark.requirement("memory.modes")
async def test_plan_mode_refuses_and_auto_edit_does_not_ask(root: Path, context: ToolContext) -> None:
    person = agreeing_person()
    context.client.approval_mode = ApprovalMode.PLAN
    result = await run(context, person, fact="Tabs.")
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED
    assert not (root / "AGENTS.md").exists()
    context.client.approval_mode = ApprovalMode.AUTO_EDIT
    assert structured(await run(context, person, fact="Tabs."))["saved"] is True
    assert person.questions == []


@pytest.mark.requirement("memory.modes")
async def test_an_anonymous_client_may_save_a_fact(root: Path, context: ToolContext) -> None:
    anonymous = replace(context, client=ClientState(""))
    assert structured(await run(anonymous, agreeing_person(), fact="Tabs."))["saved"] is True
    assert (root / "AGENTS.md").exists()


@pytest.mark.requirement("memory.modes")
async def test_rules_get_the_path_of_the_memory_file(files: MemoryFiles, root: Path, context: ToolContext) -> None:
    (root / "real.md").write_text("")
    (root / "AGENTS.md").symlink_to("real.md")
    tool = MemoryTool(files)
    subjects = tool.subjects(tool.validate_tool_params({"fact": "x"}), context)
    assert subjects == (PathSubject(Access.WRITE, str(root / "real.md"), str(root / "AGENTS.md")),)
    (subject,) = tool.subjects(tool.validate_tool_params({"fact": "x", "scope": "global"}), context)
    assert isinstance(subject, PathSubject)
    assert subject.path == f"{files.global_folder}/AGENTS.md"


@pytest.mark.requirement("resources.ledger")
async def test_saving_a_fact_does_not_mark_unseen_content_as_read(root: Path, context: ToolContext) -> None:
    path, writer, reader = root / "AGENTS.md", WriteFileTool(), ReadFileTool()
    overwrite = writer.validate_tool_params({"file_path": "AGENTS.md", "content": "mine\n"})
    path.write_text("old\n")
    await reader.execute(reader.validate_tool_params({"file_path": "AGENTS.md"}), context)
    await save(context, fact="seen")
    await writer.execute(overwrite, context)
    path.write_text("theirs\n")
    await save(context, fact="unseen")
    with pytest.raises(ToolError) as error_info:
        await writer.execute(overwrite, context)
    assert error_info.value.code is ToolErrorType.FILE_CHANGED_SINCE_READ


@pytest.mark.requirement("memory.params")
@pytest.mark.parametrize(
    "fact", ["", "  \n", "---", "x" * (MAX_FACT_CHARS + 1)], ids=["none", "blank", "dashes", "long"]
)
def test_an_empty_or_too_long_fact_is_refused(fact: str) -> None:
    with pytest.raises(InvalidToolParamsError):
        MemoryTool().validate_tool_params({"fact": fact})


@pytest.mark.requirement("memory.params")
async def test_parameters_that_the_dialogs_of_the_clis_add_are_accepted_and_ignored(
    root: Path, context: ToolContext
) -> None:
    properties = MemoryTool().parameter_schema["properties"]
    assert list(properties) == ["fact", "scope"]
    await save(context, fact="Tabs.", modified_by_user=True, modified_content="all else is gone")
    assert (root / "AGENTS.md").read_text() == "## Added Memories\n- Tabs.\n"


@pytest.mark.requirement("memory.params")
async def test_the_description_is_one_line_that_names_the_scope(context: ToolContext) -> None:
    tool = MemoryTool()
    params = tool.validate_tool_params({"fact": "Tabs,\nnot blanks"})
    assert tool.get_description(params, context) == "Remember for this project: Tabs,\\nnot blanks"
    params = tool.validate_tool_params({"fact": "Tabs", "scope": "global"})
    assert tool.get_description(params, context) == "Remember for all projects: Tabs"


@pytest.mark.requirement("memory.params")
async def test_the_result_says_that_hard_links_keep_the_old_content(root: Path, context: ToolContext) -> None:
    (root / "AGENTS.md").write_text("old\n")
    os.link(root / "AGENTS.md", root / "second.md")
    result = await save(context, fact="Tabs.")
    assert "1 other name (a hard link)" in str(result.llm_content)
    assert (root / "second.md").read_text() == "old\n"
