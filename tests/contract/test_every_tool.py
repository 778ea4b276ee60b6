"""The requirements for every tool. A new built-in tool is included automatically; it only needs a sample call."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.result_schemas import RESULT_SCHEMAS
from server.requests.wire_results import tool_to_wire
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tests.peers.search_server import SEARXNG_PATH, search_server
from tests.peers.web_server import answer, web_server
from tests.processes import NoSandbox
from tests.tables import all_cases
from tests.unit.web.fetching import opener_for
from tools.agent_programs import AgentCommand
from tools.builtin.all_tools import builtin_tools
from tools.builtin.edit import WriteFileTool
from tools.builtin.todo_write import TodoLists
from tools.builtin.web import WebSearchTool
from tools.call.base_tool import BaseTool, Services, ToolContext
from tools.contract.call_options import AbortSignal, ApprovalMode
from tools.contract.command_views import NO_RESTRICTIONS, CommandSite, Engine, FileRestrictions
from tools.contract.confirmation import Answer, Decision
from tools.contract.tool_errors import InvalidToolParamsError, ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.files.change.journal import Journal
from tools.lsp.code_intelligence import CodeIntelligence
from tools.lsp.language_servers import LanguageServer, ServerPrograms
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.command_runner import CommandRunner, ProgramRunner, ShellOptions
from tools.shell.job_table import JobTable
from tools.shell.private_folders import PrivateFolders
from tools.shell.running_program import CommandRequest
from tools.skill_folders import SkillFolders
from tools.web.page_fetcher import PageFetcher
from tools.web.search_settings import ProviderSettings, SearchSettings
from tools.web.url_opener import UrlOpener

pytestmark = pytest.mark.anyio

Tool = BaseTool[Any]
LANGUAGE_SERVER = Path(__file__).parents[1] / "peers" / "language_server.py"


async def upstream_answer(_tool: object, _arguments: object, _context: ToolContext) -> ToolResult:
    return ToolResult(verbatim={"content": []})


UPSTREAM_TOOL = DiscoveredMCPTool("up", "up__tool", {"name": "tool"}, trusted=False, call=upstream_answer)
TODOS = TodoLists()


@dataclass
class OutsideServices:
    """The services outside the workspace that the tools use in one test."""

    fetcher: PageFetcher | None = None
    programs: ProgramRunner | None = None
    code: CodeIntelligence | None = None
    page: str = ""
    trusted_skills: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    search: str = ""

    def pages(self) -> PageFetcher:
        assert self.fetcher is not None
        return self.fetcher

    def runner(self) -> ProgramRunner:
        assert self.programs is not None
        return self.programs

    def intelligence(self) -> CodeIntelligence:
        assert self.code is not None
        return self.code


def nothing_hidden(_workspace: object, _rights: object) -> tuple[FileRestrictions, str]:
    return NO_RESTRICTIONS, ""


class SandboxedSite(NoSandbox):
    """Claims to be a sandbox, but is none."""

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        del workspace_roots, search_path
        return CommandSite(Engine.BUBBLEWRAP)


OUTSIDE = OutsideServices()
WORKER = AgentCommand(name="worker", command="/bin/sh", args=("-c", "cat; : > made"))
SKILLS = SkillFolders(trusted_skills=lambda: OUTSIDE.trusted_skills)
BUILTIN = builtin_tools(
    fetcher=OUTSIDE.pages,
    todos=TODOS,
    agents=[WORKER],
    programs=OUTSIDE.runner,
    code=OUTSIDE.intelligence,
    skills=SKILLS,
)
TOOLS: list[Tool] = [*BUILTIN, UPSTREAM_TOOL]

SAMPLES: dict[str, dict[str, Any]] = {
    "list_directory": {"path": "."},
    "read_file": {"file_path": "a.txt"},
    "write_file": {"file_path": "new/b.txt", "content": "text\n"},
    "edit": {"file_path": "a.txt", "old_string": "one", "new_string": "two"},
    "notebook_edit": {"notebook_path": "n.ipynb", "new_source": "x = 1", "edit_mode": "insert"},
    "list_changes": {},
    "undo_change": {},
    "glob": {"pattern": "**/*.txt"},
    "grep_search": {"pattern": "one"},
    "read_many_files": {"paths": ["*.txt"]},
    "lsp": {"operation": "documentSymbol", "filePath": "a.txt"},
    "run_shell_command": {"command": "echo x > made"},
    "list_background_jobs": {},
    "read_background_output": {"job_id": "JOB"},
    "stop_background_job": {"job_id": "JOB"},
    "web_fetch": {"url": "PAGE"},
    "web_search": {"query": "tabs"},
    "save_memory": {"fact": "Tabs."},
    "todo_write": {"todos": [{"id": "1", "content": "Read", "status": "pending"}]},
    "skill": {"skill": "sew"},
    "enter_plan_mode": {},
    "exit_plan_mode": {"plan": "1. Do it."},
    "ask_user_question": {"questions": [{"question": "What name?", "header": "Name"}]},
    "task": {"prompt": "Look around."},
    "up__tool": {"anything": [1, 2]},
}

PLAN_MODE_TOOLS = {"exit_plan_mode"}
"""Tools that only make sense in plan mode."""

CLIENT_STATE_TOOLS = {"stop_background_job", "todo_write", "enter_plan_mode"}
"""Tools that change only the client's own state: its background jobs, its todo list, its mode."""

ASKING_TOOLS = {"ask_user_question"}
"""Tools that ask although they change nothing, because the answer is their purpose."""

REQUEST_TOOLS = {"web_fetch", "web_search"}
"""Tools that change nothing here, but send the user's request to other servers."""


def by_tool(tools: list[Tool]) -> Any:
    return pytest.mark.parametrize("tool", tools, ids=[tool.name for tool in tools])


@pytest.fixture
def tree(root: Path) -> Path:
    (root / "a.txt").write_text("one\nthree\n")
    (root / "n.ipynb").write_text('{"cells": [], "nbformat": 4}')
    main = root / ".qwen" / "skills" / "sew" / "SKILL.md"
    main.parent.mkdir(parents=True)
    main.write_text("---\nname: sew\ndescription: Sews.\n---\nThread it.\n")
    OUTSIDE.trusted_skills = {str(root): {".qwen/skills/sew/SKILL.md": hashlib.sha256(main.read_bytes()).hexdigest()}}
    (root / "sub").mkdir()
    (root / "sub" / "c.txt").write_text("c\n")
    return root


@pytest.fixture
async def context(context: ToolContext, tmp_path: Path) -> AsyncGenerator[ToolContext]:
    """Return a context that can run commands and reach the servers in `OUTSIDE`."""
    broker = BrokeredStarter()
    options = ShellOptions({"PATH": os.defpath})
    folders = PrivateFolders(str(tmp_path))
    runner = CommandRunner(broker, NoSandbox(), options, folders)
    jobs = JobTable()
    async with web_server({"/": answer("<p>Tabs.</p>")}) as site, search_server() as searching:
        OUTSIDE.fetcher, OUTSIDE.page = PageFetcher(opener_for(site)), site.url()
        OUTSIDE.search, OUTSIDE.programs = searching.url(SEARXNG_PATH), ProgramRunner(broker, folders)
        server = LanguageServer("text", {".txt": "text"}, ((sys.executable, str(LANGUAGE_SERVER)),))
        OUTSIDE.code = CodeIntelligence(
            ServerPrograms(os.defpath, (server,)), broker, SandboxedSite(), folders, dict, "/", nothing_hidden
        )
        journal = Journal(str(tmp_path / "journal"), 1_000_000, 1, 100_000)
        services = Services(lambda: runner, journal=lambda: journal)
        yield replace(context, client=replace(context.client, jobs=jobs), services=services)
        journal.close()
    await OUTSIDE.code.aclose()
    await jobs.aclose()
    await broker.aclose()
    await folders.aclose()


async def prepare_sample(tool: Tool, context: ToolContext) -> tuple[Tool, Any, ToolContext]:
    """Return the tool as configured for the tests, the parameters of a sample call, and a context that fits it.

    `PAGE` in the samples is replaced by a URL, and the value of `job_id` by the id of a new job.
    """
    mode = ApprovalMode.PLAN if tool.name in PLAN_MODE_TOOLS else ApprovalMode.DEFAULT
    context.client.approval_mode = mode
    TODOS.forget(context.client.key)
    if tool.name in ASKING_TOOLS:
        context = replace(context, answer=Answer(Decision.ONCE, answers=(("acme",),)))
    if tool.name == "web_search":
        tool = WebSearchTool(SearchSettings((ProviderSettings("searxng", OUTSIDE.search),)), UrlOpener)
    if tool.name in ("list_changes", "undo_change"):
        write = WriteFileTool()
        await write.execute(write.validate_tool_params({"file_path": "d.txt", "content": "d"}), context)
    arguments = {name: OUTSIDE.page if value == "PAGE" else value for name, value in SAMPLES[tool.name].items()}
    jobs, commands = context.client.jobs, context.services.commands
    if "background" in tool.name and jobs is not None and commands is not None:
        root = context.workspace.first_root
        job = await commands().start_job(CommandRequest("sleep 60", root, [root], "test", 60), jobs)
        arguments = {"job_id": job.id} if arguments else {}
    return tool, tool.validate_tool_params(arguments), context


def state_of(folder: Path, context: ToolContext) -> dict[str, str]:
    """Return everything that a call may change: files, running jobs, the todo list and the client's approval mode."""
    jobs = context.client.jobs
    files = {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    running = {job.id: "runs" for job in jobs.running()} if jobs is not None else {}
    todos = {f"todo {todo.id}": todo.status for todo in TODOS.read(context.client.key, context.workspace)}
    return {**files, **running, **todos, "mode": context.client.approval_mode}


@pytest.mark.requirement("contract.declared")
@by_tool(TOOLS)
def test_a_tool_has_a_unique_name_a_title_a_description_and_a_valid_schema(tool: Tool) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name)
    assert [tool_in_list.name for tool_in_list in TOOLS].count(tool.name) == 1
    assert tool.display_name
    assert tool.description
    Draft202012Validator.check_schema(dict(tool.parameter_schema))
    assert tool.parameter_schema["type"] == "object"
    wire = tool_to_wire(tool)
    assert wire["name"] == tool.name
    assert wire["annotations"]["readOnlyHint"] is tool.behaviour.read_only


@pytest.mark.requirement("contract.declared")
@by_tool(BUILTIN)
def test_every_published_parameter_is_described(tool: Tool) -> None:
    for name, schema in tool.parameter_schema["properties"].items():
        assert schema.get("description"), name


WRONG_VALUES: list[Any] = [5, True, ["x"], {"a": 1}, None, "\0", ""]


@pytest.mark.requirement("protocol.wrong_types")
@by_tool(BUILTIN)
def test_wrong_values_cause_a_typed_error_and_never_a_crash(tool: Tool) -> None:
    required_names = tool.parameter_schema.get("required", [])
    with all_cases() as case:
        for value in WRONG_VALUES:
            arguments = dict.fromkeys(required_names or ["unknown"], value)
            with case(repr(value)):
                if not required_names and tool.behaviour.read_only:
                    assert tool.validate_tool_params({"unknown": value}) == tool.validate_tool_params({})
                elif isinstance(value, str) or value is WRONG_VALUES[0] or (value is None and not required_names):
                    # Strings, numbers read as strings, and null may be valid here. Any error must be typed.
                    with suppress(InvalidToolParamsError):
                        tool.validate_tool_params(arguments)
                elif not (isinstance(value, list) and tool.name == "read_many_files"):
                    with pytest.raises(InvalidToolParamsError):
                        tool.validate_tool_params(arguments)


@pytest.mark.requirement("protocol.wrong_types")
@by_tool([tool for tool in BUILTIN if tool.parameter_schema.get("required")])
def test_missing_parameters_are_named(tool: Tool) -> None:
    with pytest.raises(InvalidToolParamsError) as error_info:
        tool.validate_tool_params({})
    assert any(f"'{name}'" in error_info.value.message for name in tool.parameter_schema["required"])


@pytest.mark.requirement("contract.results")
@by_tool(TOOLS)
async def test_the_description_of_a_call_is_one_line_and_changes_nothing(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    tool, params, context = await prepare_sample(tool, context)
    before = state_of(tree, context)
    description = tool.get_description(params, context)
    assert description
    assert "\n" not in description
    assert tool.get_description(params, context) == description
    assert state_of(tree, context) == before


@pytest.mark.requirement("contract.results")
@by_tool(TOOLS)
async def test_a_tool_asks_exactly_when_it_may_change_something_and_asking_changes_nothing(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    tool, params, context = await prepare_sample(tool, context)
    before = state_of(tree, context)
    details = await tool.should_confirm_execute(params, context)
    is_unasked = tool.behaviour.read_only and tool.name not in ASKING_TOOLS
    assert (details is None) is (is_unasked or tool.name in CLIENT_STATE_TOOLS)
    assert await tool.should_confirm_execute(params, context) == details
    assert state_of(tree, context) == before


@pytest.mark.requirement("contract.results")
@by_tool(BUILTIN)
async def test_a_call_returns_content_for_the_model_and_its_annotations_are_true(
    tool: Tool, tree: Path, context: ToolContext
) -> None:
    tool, params, context = await prepare_sample(tool, context)
    before = state_of(tree, context)
    result = await tool.execute(params, context)
    assert result.error is None
    assert result.llm_content
    assert (state_of(tree, context) == before) is (tool.behaviour.read_only or tool.name in REQUEST_TOOLS)
    if tool.behaviour.idempotent:
        after = state_of(tree, context)
        await tool.execute(params, replace(context))
        assert state_of(tree, context) == after


@pytest.mark.requirement("results.schema")
@by_tool(BUILTIN)
async def test_structured_content_is_as_documented(tool: Tool, tree: Path, context: ToolContext) -> None:
    tool, params, context = await prepare_sample(tool, context)
    result = await tool.execute(params, context)
    assert (result.structured is None) is (tool.name not in RESULT_SCHEMAS)
    if result.structured is not None:
        Draft202012Validator(dict(RESULT_SCHEMAS[tool.name])).validate(result.structured)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.requirement("cancellation")
@by_tool(BUILTIN)
async def test_work_stops_at_the_abort_signal(tool: Tool, tree: Path, context: ToolContext) -> None:
    signal = AbortSignal()
    signal.abort()
    tool, params, context = await prepare_sample(tool, context)
    before = state_of(tree, context)
    with pytest.raises(ToolError) as error_info:
        await tool.execute(params, replace(context, signal=signal))
    assert error_info.value.code is ToolErrorType.CANCELLED
    assert state_of(tree, context) == before
