"""The one table of built-in tools; the only module that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tools.contract.base import BaseTool
from tools.execution.list_background_jobs import ListJobsTool
from tools.execution.read_background_output import ReadOutputTool
from tools.execution.run_shell_command import ShellTool
from tools.execution.stop_background_job import StopJobTool
from tools.filesystem.edit import EditTool
from tools.filesystem.glob import GlobTool
from tools.filesystem.grep_search import GrepTool
from tools.filesystem.list_directory import LSTool
from tools.filesystem.read_file import ReadFileTool
from tools.filesystem.read_many_files import ReadManyFilesTool
from tools.filesystem.write_file import WriteFileTool
from tools.memory.memory_files import MemoryFiles
from tools.memory.save_memory import MemoryTool
from tools.planning.ask_user_question import AskUserQuestionTool
from tools.planning.exit_plan_mode import ExitPlanModeTool
from tools.planning.todo_lists import TodoLists
from tools.planning.todo_write import TodoWriteTool
from tools.web.search_settings import SearchSettings
from tools.web.web_fetch import WebFetchTool
from tools.web.web_search import WebSearchTool

if TYPE_CHECKING:
    from tools.execution.program_runner import ProgramRunner
    from tools.planning.agent_command import AgentCommand
    from tools.web.fetcher import PageFetcher
    from tools.web.opener import UrlOpener


def builtin_tools(
    *,
    fetcher: Callable[[], PageFetcher] | None = None,
    search: SearchSettings | None = None,
    opener: Callable[[], UrlOpener] | None = None,
    memory: MemoryFiles | None = None,
    todos: TodoLists | None = None,
    agents: Sequence[AgentCommand] = (),
    programs: Callable[[], ProgramRunner] | None = None,
) -> list[BaseTool[Any]]:
    """A fresh instance of every built-in tool, in the order of listing.

    Args:
        fetcher: Gives what fetches pages, the same one each time; by default only public addresses are fetched.
        search: Who is asked to search the web; by default nobody.
        opener: Gives what opens the addresses of those who search; by default only public ones.
        memory: Which files hold memories; by default the project's alone.
        todos: Where todo lists are kept; by default nobody else sees them.
        agents: Who takes tasks; without any, there is no `task`.
        programs: Gives what runs agents.
    """
    return [
        LSTool(),
        ReadFileTool(),
        WriteFileTool(),
        EditTool(),
        GlobTool(),
        GrepTool(),
        ReadManyFilesTool(),
        ShellTool(),
        ListJobsTool(),
        ReadOutputTool(),
        StopJobTool(),
        WebFetchTool(fetcher or _public_pages()),
        WebSearchTool(search or SearchSettings(), opener or _public_opener),
        MemoryTool(memory),
        TodoWriteTool(todos),
        *_task_tools(agents, programs),
        AskUserQuestionTool(),
        ExitPlanModeTool(),
    ]


def _public_pages() -> Callable[[], PageFetcher]:
    """Gives one fetcher of public pages, made with the first of them."""

    @cache
    def fetcher() -> PageFetcher:
        from tools.web.fetcher import PageFetcher  # noqa: PLC0415 - starting up does not need it

        return PageFetcher(_public_opener())

    return fetcher


def _public_opener() -> UrlOpener:
    from tools.web.opener import UrlOpener  # noqa: PLC0415 - starting up does not need it

    return UrlOpener()


def _task_tools(agents: Sequence[AgentCommand], programs: Callable[[], ProgramRunner] | None) -> list[BaseTool[Any]]:
    if not agents or programs is None:
        return []
    from tools.planning.task import TaskTool  # noqa: PLC0415 - few have agents

    return [TaskTool(agents, programs)]
