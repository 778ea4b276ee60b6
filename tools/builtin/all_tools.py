"""The table of built-in tools, and the only module that imports them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tools.builtin.ask_user_question import AskUserQuestionTool
from tools.builtin.background_jobs import ListJobsTool, ReadOutputTool, StopJobTool
from tools.builtin.edit import EditTool, NotebookEditTool, WriteFileTool
from tools.builtin.lsp import LspTool
from tools.builtin.plan_mode import EnterPlanModeTool, ExitPlanModeTool
from tools.builtin.read_file import ReadFileTool, ReadManyFilesTool
from tools.builtin.run_shell_command import ShellTool
from tools.builtin.save_memory import MemoryTool
from tools.builtin.search_tools import GlobTool, GrepTool, LSTool
from tools.builtin.skill import SkillTool
from tools.builtin.todo_write import TodoLists, TodoWriteTool
from tools.builtin.undo import ListChangesTool, UndoChangeTool
from tools.builtin.web import WebFetchTool, WebSearchTool
from tools.call.base_tool import BaseTool
from tools.memory.memory_files import MemoryFiles
from tools.web.search_settings import SearchSettings

if TYPE_CHECKING:
    from tools.agent_programs import AgentCommand
    from tools.lsp.code_intelligence import CodeIntelligence
    from tools.shell.command_runner import ProgramRunner
    from tools.skill_folders import SkillFolders
    from tools.web.page_fetcher import PageFetcher


def builtin_tools(
    *,
    fetcher: Callable[[], PageFetcher] | None = None,
    search: SearchSettings | None = None,
    memory: MemoryFiles | None = None,
    todos: TodoLists | None = None,
    agents: Sequence[AgentCommand] = (),
    programs: Callable[[], ProgramRunner] | None = None,
    undo: bool = True,
    code: Callable[[], CodeIntelligence] | None = None,
    has_language_servers: Callable[[], bool] = lambda: True,
    skills: SkillFolders | None = None,
) -> list[BaseTool[Any]]:
    """Create every built-in tool, in the order in which they are listed.

    By default, only public addresses are fetched, no search provider is set up, memories belong to the project, and
    there are no skills. The `task` tool is created only if `agents` and `programs` are given. `undo` adds the tools
    that list and undo changes, and `has_language_servers` decides whether `lsp` is listed.
    """

    @cache
    def public_pages() -> PageFetcher:
        from tools.web.page_fetcher import PageFetcher  # noqa: PLC0415 - not needed at startup
        from tools.web.url_opener import UrlOpener  # noqa: PLC0415 - not needed at startup

        return PageFetcher(UrlOpener())

    pages = fetcher or public_pages
    tasks: list[BaseTool[Any]] = []
    if agents and programs is not None:
        from tools.builtin.task import TaskTool  # noqa: PLC0415 - rarely needed

        tasks = [TaskTool(agents, programs)]
    return [
        LSTool(),
        ReadFileTool(),
        WriteFileTool(),
        EditTool(),
        NotebookEditTool(),
        *([ListChangesTool(), UndoChangeTool()] if undo else []),
        GlobTool(),
        GrepTool(),
        ReadManyFilesTool(),
        LspTool(code, is_listed=has_language_servers),
        ShellTool(),
        ListJobsTool(),
        ReadOutputTool(),
        StopJobTool(),
        WebFetchTool(pages),
        WebSearchTool(search or SearchSettings(), lambda: pages().opener),
        MemoryTool(memory),
        TodoWriteTool(todos),
        SkillTool(skills),
        *tasks,
        AskUserQuestionTool(),
        EnterPlanModeTool(),
        ExitPlanModeTool(),
    ]
