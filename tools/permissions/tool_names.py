"""The names of tools in permission rules, in the words of Qwen Code, Gemini CLI and Claude Code.

Tool names, class names and older names are defined by the tools themselves. This module has the names for groups of
tools, and those that only rules use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.contract.permission_subjects import Access

SHELL = "run_shell_command"
FETCHING = "web_fetch"
DELEGATING = "task"
READING = frozenset({"read_file", "read_many_files", "grep_search", "glob", "list_directory"})
WRITING = frozenset({"edit", "write_file", "notebook_edit"})
# What a rule about edits covers. A memory goes to a fixed file, and only changes by tools can be undone, so these two
# say nothing about commands.
EDITING = WRITING | {"save_memory", "undo_change"}
# A name in a rule, and the tools that it stands for
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
"""Tools that may start a program without a sandbox. A rule that allows this must name one of them, or everything:
a rule about reading files does not include programs."""

# The built-in tools of a profile; a profile that is not here has all of them
PROFILES: Mapping[str, frozenset[str]] = {
    "core": READING
    | WRITING
    | {SHELL, "list_background_jobs", "read_background_output", "stop_background_job", "list_changes", "undo_change"}
}


def access_of(tools: frozenset[str]) -> frozenset[Access]:
    """Return the kinds of access by shell commands that rules about these tools govern as well."""
    governed = {Access.READ: READING, Access.WRITE: WRITING, Access.FETCH: {FETCHING}}
    return frozenset(access for access, group in governed.items() if tools & group)


# Between a server's alias and its tool's name. No alias contains it or ends in a part of it, so the first one counts.
BETWEEN = "__"
# Prefixes of upstream tools in the rules of Claude Code and Qwen Code, and of Gemini CLI
_CLAUDE, _GEMINI = "mcp__", "mcp_"


def names_of_upstream_tool(server: str, tool: str) -> tuple[str, ...]:
    """Return the names for an upstream tool in rules: this server's, Claude Code's and Qwen Code's, Gemini CLI's."""
    return f"{server}{BETWEEN}{tool}", f"{_CLAUDE}{server}{BETWEEN}{tool}", f"{_GEMINI}{server}_{tool}"


def names_of_server(server: str) -> tuple[str, ...]:
    """Return the names for all tools of an upstream server in rules."""
    return (f"{_CLAUDE}{server}",)


def names_of_any_tool(server: str) -> tuple[str, ...]:
    """Return what a rule about a whole server matches: the server itself, or a tool with any name."""
    return (*names_of_upstream_tool(server, "\0"), *names_of_server(server))


def one_meaning(name: str) -> str:
    """Return the single meaning of a name in an allow rule, for upstream tools in this server's spelling.

    A name may be ambiguous: `mcp_git_hub_search` could be `hub_search` of `git` or `search` of `git_hub`, and
    `mcp__git` the tool `git` of a server `mcp`. Rules that ask or deny apply to all of them. Allow rules apply to one,
    whatever servers exist. A name that begins with `mcp__` is `mcp__server__tool`, or `mcp__server` for all its tools.
    Any other name that begins with `mcp_` is `mcp_server_tool`, where the server ends at the first `_` (Gemini CLI).
    """
    if name.startswith(_CLAUDE):
        server, between, tool = name.removeprefix(_CLAUDE).partition(BETWEEN)
        return f"{server}{BETWEEN}{tool if between else '*'}"
    if name.startswith(_GEMINI):
        server, between, tool = name.removeprefix(_GEMINI).partition("_")
        return f"{server}{BETWEEN}{tool}" if between or "*" not in server else f"{server}{BETWEEN}*"
    return name


def rule_for(name: str) -> str:
    """Return the name for an allow rule that means the tool published as `name`; `server__*` means all of a server."""
    return f"{_CLAUDE}{name}" if name.startswith(_GEMINI) else name


def names_to_allow(names: Sequence[str]) -> tuple[str, ...]:
    """Return those names of a tool that `one_meaning` returns: its own, which comes first, and none of other tools."""
    return (*names[:1], *(name for name in names[1:] if not name.startswith(_GEMINI)))
