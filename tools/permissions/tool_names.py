"""The names of tools in permission rules, in the words of Qwen Code, Gemini CLI and Claude Code.

The tools themselves define tool names, class names and older names. This module has the names for groups of tools, and
those that only rules use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.contract.permission_subjects import Access

SHELL = "run_shell_command"
FETCHING = "web_fetch"
DELEGATING = "task"
READING = frozenset({"read_file", "read_many_files", "grep_search", "glob", "list_directory"})
WRITING = frozenset({"edit", "write_file", "notebook_edit"})
# The tools that a rule about edits covers. Memories go to a fixed file, and only changes by tools can be undone, so the
# last two do not matter for commands.
EDITING = WRITING | {"save_memory", "undo_change"}
# Names in rules, and the tools that they mean
GROUPS: Mapping[str, frozenset[str]] = {
    "Read": READING | {"lsp"}, "Edit": EDITING, "Write": EDITING, "MultiEdit": EDITING, "Bash": frozenset({SHELL}),
    "Shell": frozenset({SHELL}), "Grep": frozenset({"grep_search"}), "Glob": frozenset({"glob"}),
    "LS": frozenset({"list_directory"}), "WebFetch": frozenset({FETCHING}), "WebSearch": frozenset({"web_search"}),
    "Task": frozenset({DELEGATING}), "Agent": frozenset({DELEGATING}), "TodoWrite": frozenset({"todo_write"}),
    "ExitPlanMode": frozenset({"exit_plan_mode"}), "AskUserQuestion": frozenset({"ask_user_question"}),
    "NotebookEdit": frozenset({"notebook_edit"}), "EnterPlanMode": frozenset({"enter_plan_mode"}),
    "Skill": frozenset({"skill"}),
}  # fmt: skip

STARTING = frozenset({"lsp"})
"""Tools that may start a program without a sandbox. A rule that allows this must name one of them, or everything,
because a rule about reading files does not include programs."""

# The built-in tools of each profile. A profile that is not listed has all tools
PROFILES: Mapping[str, frozenset[str]] = {
    "core": READING
    | WRITING
    | {SHELL, "list_background_jobs", "read_background_output", "stop_background_job", "list_changes", "undo_change"}
}


def access_of(tools: frozenset[str]) -> frozenset[Access]:
    """Return the kinds of access by shell commands that rules about these tools also govern."""
    governed = {Access.READ: READING, Access.WRITE: WRITING, Access.FETCH: {FETCHING}}
    return frozenset(access for access, group in governed.items() if tools & group)


# Between a server's alias and a tool's name. No alias contains it or ends in a part of it, so its first occurrence
# counts.
BETWEEN = "__"
# Prefixes of upstream tools in the rules of Claude Code and Qwen Code, and of Gemini CLI
_CLAUDE, _GEMINI = "mcp__", "mcp_"


def names_of_upstream_tool(server: str, tool: str) -> tuple[str, ...]:
    """Return an upstream tool's names in rules: this server's, Claude Code's and Qwen Code's, and Gemini CLI's."""
    return f"{server}{BETWEEN}{tool}", f"{_CLAUDE}{server}{BETWEEN}{tool}", f"{_GEMINI}{server}_{tool}"


def names_of_server(server: str) -> tuple[str, ...]:
    """Return the names in rules for all tools of an upstream server."""
    return (f"{_CLAUDE}{server}",)


def names_of_any_tool(server: str) -> tuple[str, ...]:
    """Return the names that a rule about a whole server matches: the server, or a tool with any name."""
    return (*names_of_upstream_tool(server, "\0"), *names_of_server(server))


def one_meaning(name: str) -> str:
    """Return the single meaning of a name in an allow rule. Upstream tools get this server's spelling.

    A name may be ambiguous: `mcp_git_hub_search` could be `hub_search` of `git` or `search` of `git_hub`, and
    `mcp__git` could be the tool `git` of a server `mcp`. Ask and deny rules apply to all meanings. An allow rule
    applies to one meaning, regardless of which servers exist. A name that begins with `mcp__` is `mcp__server__tool`,
    or `mcp__server` for all its tools. Any other name that begins with `mcp_` is `mcp_server_tool`, and the server ends
    at the first `_` (Gemini CLI).
    """
    if name.startswith(_CLAUDE):
        server, between, tool = name.removeprefix(_CLAUDE).partition(BETWEEN)
        return f"{server}{BETWEEN}{tool if between else '*'}"
    if name.startswith(_GEMINI):
        server, between, tool = name.removeprefix(_GEMINI).partition("_")
        return f"{server}{BETWEEN}{tool}" if between or "*" not in server else f"{server}{BETWEEN}*"
    return name


def rule_for(name: str) -> str:
    """Return the name in an allow rule for the tool published as `name`. `server__*` means all tools of a server."""
    return f"{_CLAUDE}{name}" if name.startswith(_GEMINI) else name


def names_to_allow(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a tool that `one_meaning` maps to its own name, which comes first."""
    return (*names[:1], *(name for name in names[1:] if not name.startswith(_GEMINI)))
