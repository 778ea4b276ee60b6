"""Memory files and the todo list as resources: what is listed, what can be read, and which rules apply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from server.requests.prompts_and_resources import JSON, MARKDOWN, TODO_LIST, MemoryResources
from tests.people import Person
from tests.unit.memory.memories import save
from tools.builtin.internal_file_tools import FileResourceTool
from tools.builtin.todo_write import TodoLists, TodoWriteTool
from tools.call.base_tool import ClientState, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.confirmation import Question, Unavailable
from tools.contract.tool_errors import ToolErrorType
from tools.contract.tool_results import FunctionCall, TextPart, ToolResult, package
from tools.files.workspace import Workspace
from tools.memory.memory_files import MemoryFiles
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import Rules, hidden_paths, parse_rule
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

PROJECT, GLOBAL = "memory://project", "memory://global"


class ResourceReader:
    """The memory resources of one server, and the call flow that reads them."""

    def __init__(self, folder: Path, denied_rules: Sequence[str] = ()) -> None:
        self.files = MemoryFiles(global_folder=str(folder))
        self.todos = TodoLists()
        self.resources = MemoryResources(self.files, self.todos)
        deny = tuple(parse_rule(text, Verdict.DENY, "permissions.deny", str, "/home/none") for text in denied_rules)
        self.rules = Rules(deny=deny)
        registry = ToolRegistry()
        registry.register_tool(FileResourceTool())
        self._flow = ToolRunner(registry, PermissionPolicy(self.rules))

    async def _run(self, call: FunctionCall, context: ToolContext) -> ToolResult | Question:
        nobody = Person(Unavailable(client_decides=False, way_out=""))
        return await self._flow.run(call, context, nobody)

    async def uris(self, context: ToolContext) -> list[str]:
        return [resource["uri"] for resource in await self.resources.list_resources(context)]

    async def read(self, uri: str, context: ToolContext) -> ToolResult:
        assert self.resources.knows(uri)
        outcome = await self.resources.read(uri, context, self._run)
        assert isinstance(outcome, ToolResult)
        return outcome


def text_of(result: ToolResult) -> str:
    assert result.error is None
    (part,) = package("", result).parts
    assert isinstance(part, TextPart)
    return part.text


@pytest.mark.requirement("memory.resources")
async def test_memory_files_are_listed_once_they_are_there_and_read_whole(
    tmp_path: Path, root: Path, context: ToolContext
) -> None:
    reader = ResourceReader(tmp_path / "home")
    assert await reader.uris(context) == []
    for uri in (PROJECT, GLOBAL):
        failure = await reader.read(uri, context)
        assert failure.error is not None
        assert failure.error.code is ToolErrorType.FILE_NOT_FOUND
        assert "save_memory creates one" in failure.error.message
    await save(context, reader.files, fact="Tabs.")
    assert await reader.uris(context) == [PROJECT]
    await save(context, reader.files, fact="Blanks.", scope="global")
    assert await reader.uris(context) == [GLOBAL, PROJECT]
    assert await reader.uris(replace(context, workspace=Workspace([]))) == [GLOBAL]
    for uri, fact in ((PROJECT, "Tabs."), (GLOBAL, "Blanks.")):
        result = await reader.read(uri, context)
        assert text_of(result) == f"## Added Memories\n- {fact}\n"
        assert result.facts["mime_type"] == MARKDOWN
    assert {resource["mimeType"] for resource in await reader.resources.list_resources(context)} == {MARKDOWN}
    assert not reader.resources.knows("memory://other")
    assert not reader.resources.knows((root / "AGENTS.md").as_uri())


@pytest.mark.requirement("memory.resources")
async def test_a_memory_hidden_from_agents_is_neither_listed_nor_read(
    tmp_path: Path, root: Path, context: ToolContext
) -> None:
    reader = ResourceReader(tmp_path / "home")
    await save(context, reader.files, fact="Tabs.")
    (root / ".qwenignore").write_text("AGENTS.md\n")
    assert await reader.uris(context) == []
    failure = await reader.read(PROJECT, context)
    assert failure.error is not None
    assert failure.error.code is ToolErrorType.PATH_IGNORED


@pytest.mark.requirement("memory.resources")
@pytest.mark.parametrize("uri", [PROJECT, GLOBAL])
async def test_a_memory_that_rules_forbid_to_read_is_neither_listed_nor_read(
    uri: str, tmp_path: Path, root: Path, context: ToolContext
) -> None:
    folder = root if uri == PROJECT else tmp_path / "home"
    reader = ResourceReader(tmp_path / "home", [f"Read(/{folder}/AGENTS.md)"])
    for scope in ("project", "global"):
        await save(context, reader.files, fact="Tabs.", scope=scope)
    forbidden = hidden_paths(reader.rules, [str(root)])
    context = replace(context, workspace=Workspace([str(root)], forbidden=forbidden))
    assert await reader.uris(context) == [GLOBAL if uri == PROJECT else PROJECT]
    failure = await reader.read(uri, context)
    assert failure.error is not None
    assert failure.error.code is ToolErrorType.EXECUTION_DENIED


@pytest.mark.requirement("memory.resources")
async def test_a_memory_that_is_a_folder_or_leads_out_is_not_listed(
    tmp_path: Path, root: Path, context: ToolContext
) -> None:
    reader = ResourceReader(tmp_path / "home")
    (tmp_path / "home" / "AGENTS.md").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("secret")
    (root / "AGENTS.md").symlink_to(tmp_path / "secret.md")
    assert await reader.uris(context) == []
    for uri in (PROJECT, GLOBAL):
        failure = await reader.read(uri, context)
        assert failure.error is not None
        assert "secret" not in str(failure)


@pytest.mark.requirement("todo.owner")
async def test_a_client_reads_only_its_own_todo_list(tmp_path: Path, context: ToolContext) -> None:
    reader = ResourceReader(tmp_path / "home")
    tool = TodoWriteTool(reader.todos)
    todos = [{"id": "a", "content": "Say “hi”", "status": "in_progress"}]
    await tool.execute(tool.validate_tool_params({"todos": todos}), context)
    assert await reader.uris(context) == [TODO_LIST]
    result = await reader.read(TODO_LIST, context)
    assert (json.loads(text_of(result)), result.facts["mime_type"]) == ({"todos": todos}, JSON)
    for client in (ClientState("other"), ClientState("")):
        other_context = replace(context, client=client)
        assert await reader.uris(other_context) == []
        failure = await reader.read(TODO_LIST, other_context)
        assert failure.error is not None
        assert failure.error.code is ToolErrorType.FILE_NOT_FOUND
