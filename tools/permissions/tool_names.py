"""The names that rules call tools by, in the words of Qwen Code, Gemini CLI and Claude Code.

Wire names, class names and older names belong to the tools themselves; here stand the names for groups of tools, and
those that only rules use.
"""

from __future__ import annotations

from collections.abc import Mapping

from tools.contract.subject import Access

SHELL = "run_shell_command"
FETCHING = "web_fetch"
DELEGATING = "task"

READING = frozenset({"read_file", "read_many_files", "grep_search", "glob", "list_directory"})
WRITING = frozenset({"edit", "write_file"})

EDITING = WRITING | {"save_memory"}
"""What a rule about edits is about. Saving a memory is no way to write any file, so it says nothing of commands."""

GROUPS: Mapping[str, frozenset[str]] = {
    "Read": READING,
    "Edit": EDITING,
    "Write": EDITING,
    "MultiEdit": EDITING,
    "Bash": frozenset({SHELL}),
    "Shell": frozenset({SHELL}),
    "Grep": frozenset({"grep_search"}),
    "Glob": frozenset({"glob"}),
    "LS": frozenset({"list_directory"}),
    "WebFetch": frozenset({FETCHING}),
    "WebSearch": frozenset({"web_search"}),
    "Task": frozenset({DELEGATING}),
    "Agent": frozenset({DELEGATING}),
    "TodoWrite": frozenset({"todo_write"}),
    "ExitPlanMode": frozenset({"exit_plan_mode"}),
    "AskUserQuestion": frozenset({"ask_user_question"}),
}
"""A name in a rule, and the tools it stands for."""


def access_of(tools: frozenset[str]) -> frozenset[Access]:
    """What rules about these tools also govern when a shell command does it."""
    found: set[Access] = set()
    if tools & READING:
        found.add(Access.READ)
    if tools & WRITING:
        found.add(Access.WRITE)
    if FETCHING in tools:
        found.add(Access.FETCH)
    return frozenset(found)


def names_of_upstream_tool(server: str, tool: str) -> tuple[str, ...]:
    """How a rule may call a tool of another server: our way, Claude Code's and Qwen Code's, Gemini CLI's."""
    return f"{server}__{tool}", f"mcp__{server}__{tool}", f"mcp_{server}_{tool}"


def names_of_server(server: str) -> tuple[str, ...]:
    """How a rule may call all tools of another server."""
    return (f"mcp__{server}",)
