"""Names of memory files: only Markdown files are memories, so no other file in their folder is read or written."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from server.requests.prompts_and_resources import MemoryResources
from tests.unit.memory.memories import confirmation_for, save
from tools.builtin.todo_write import TodoLists
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import Workspace
from tools.memory.memory_files import MemoryFiles, MemoryScope
from tools.permissions.permission_rules import Rules, hidden_paths, parse_rule, rule_of_all_reading
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

SECRET = '{"key": "hunter2"}\n- Tabs.\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the global memory, which also has a settings file."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "settings.json").write_text(SECRET)
    return folder


@pytest.mark.requirement("memory.files")
@pytest.mark.parametrize("name", ["settings.json", "AGENTS.md", "sub/../settings.json", "new"])
@pytest.mark.parametrize("scope", ["global", "project"])
async def test_only_a_markdown_file_is_read_and_written_as_a_memory(
    scope: MemoryScope, name: str, home: Path, root: Path, context: ToolContext
) -> None:
    (home / "AGENTS.md").symlink_to("settings.json")
    folder = home if scope == "global" else root
    (root / "settings.json").write_text(SECRET)
    files = MemoryFiles(name, str(home))
    if scope == "project" and name == "AGENTS.md":
        await save(context, files, fact="Tabs.", scope=scope)
        return
    assert await MemoryResources(files, TodoLists()).list_resources(context) == []
    with pytest.raises(ToolError, match=r"not a Markdown file \(\.md\)") as error_info:
        await confirmation_for(context, files, fact="Tabs.", scope=scope)
    assert error_info.value.code is ToolErrorType.EXECUTION_FAILED
    with pytest.raises(ToolError):
        await save(context, files, fact="Blanks.", scope=scope)
    assert (folder / "settings.json").read_text() == SECRET
    assert not os.path.lexists(folder / "new")


@pytest.mark.requirement("memory.files")
async def test_a_link_to_a_markdown_file_of_the_folder_is_that_memory(home: Path, context: ToolContext) -> None:
    (home / "AGENTS.md").symlink_to("NOTES.MD")
    await save(context, MemoryFiles(global_folder=str(home)), fact="Tabs.", scope="global")
    assert "- Tabs." in (home / "NOTES.MD").read_text()


@pytest.mark.requirement("settings.workspace.memory")
async def test_the_memory_of_a_project_may_have_a_name_of_its_own(home: Path, root: Path, context: ToolContext) -> None:
    files = MemoryFiles(global_folder=str(home), project_file_name="PROJECT.md")
    await save(context, files, fact="Tabs.")
    await save(context, files, fact="Blanks.", scope="global")
    assert "- Tabs." in (root / "PROJECT.md").read_text()
    assert "- Blanks." in (home / "AGENTS.md").read_text()
    assert not (root / "AGENTS.md").exists()


@pytest.mark.requirement("memory.insert")
@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.DENY])
@pytest.mark.parametrize("scope", ["global", "project"])
async def test_errors_do_not_disclose_whether_an_unreadable_memory_has_a_fact(
    scope: str, verdict: Verdict, home: Path, root: Path, context: ToolContext
) -> None:
    for folder in (home, root):
        (folder / "AGENTS.md").write_text("- Tabs.\n")
    rule = parse_rule("Read(AGENTS.md)", verdict, "permissions", str, "/home/none")
    rules = Rules(deny=(rule,)) if verdict is Verdict.DENY else Rules(ask=(rule,))
    forbidden = hidden_paths(rules, [str(root)])
    context = replace(context, workspace=Workspace([str(root)], forbidden=forbidden))
    files = MemoryFiles(global_folder=str(home))
    messages: set[str] = set()
    for fact in ("Tabs.", "Blanks."):
        for call in (confirmation_for, save):
            with pytest.raises(ToolError) as error_info:
                await call(context, files, fact=fact, scope=scope)
            assert error_info.value.code is ToolErrorType.PATH_IGNORED
            messages.add(error_info.value.message)
    assert len(messages) == 1


@pytest.mark.requirement("memory.resources")
@pytest.mark.parametrize("scope", ["global", "project"])
async def test_a_rule_about_the_name_of_a_linked_memory_also_hides_its_facts(
    scope: str, home: Path, root: Path, context: ToolContext
) -> None:
    for folder in (home, root):
        (folder / "NOTES.md").write_text("- Tabs.\n")
        (folder / "AGENTS.md").symlink_to("NOTES.md")
    rules = Rules(deny=(parse_rule("Read(AGENTS.md)", Verdict.DENY, "permissions", str, "/home/none"),))
    context = replace(context, workspace=Workspace([str(root)], forbidden=hidden_paths(rules, [str(root)])))
    with pytest.raises(ToolError) as error_info:
        await save(context, MemoryFiles(global_folder=str(home)), fact="Tabs.", scope=scope)
    assert error_info.value.code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("memory.resources")
@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.DENY])
@pytest.mark.parametrize("scope", ["global", "project"])
async def test_under_a_rule_about_all_reading_a_fact_is_saved_and_nothing_tells_what_the_memory_held(
    scope: str, verdict: Verdict, home: Path, root: Path, context: ToolContext
) -> None:
    rule = parse_rule("Read", verdict, "permissions", str, "/home/none")
    bare_rule = rule_of_all_reading(Rules(ask=(rule,)))
    context = replace(context, workspace=Workspace([str(root)], rule_of_all_reading=bare_rule))
    file = (home if scope == "global" else root) / "AGENTS.md"
    outcomes: list[str] = []
    for fact in ("Tabs.", "Use tabs in Go", "Blanks."):  # an entry, nearly an entry, and none
        file.write_text("secret\n\n## Added Memories\n- Tabs.\n- Use tabs in Go.\n")
        question = await confirmation_for(context, MemoryFiles(global_folder=str(home)), fact=fact, scope=scope)
        result = await save(context, MemoryFiles(global_folder=str(home)), fact=fact, scope=scope)
        assert f"- {fact}\n" in file.read_text()
        assert file.read_text().count("- Tabs.") == 1
        outcomes.append(f"{question}{result.llm_content}{result.structured}{result.return_display}".replace(fact, ""))
    assert len(set(outcomes)) == 1
    assert "secret" not in outcomes[0]


@pytest.mark.requirement("memory.resources")
async def test_under_a_rule_about_all_reading_an_agent_ignore_file_still_keeps_a_memory_from_being_changed(
    root: Path, context: ToolContext
) -> None:
    (root / ".geminiignore").write_text("AGENTS.md\n")
    context = replace(context, workspace=Workspace([str(root)], rule_of_all_reading="permissions.ask rule Read"))
    with pytest.raises(ToolError, match=r"hidden from agents by \.geminiignore"):
        await save(context, fact="Tabs.")
