"""The names of tools in permission rules, as spelled by Qwen Code, Gemini CLI and Claude Code.

The tools themselves define tool names, class names and older names. This module defines the names for groups of tools,
and the names that occur only in rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tools.contract.permission_subjects import Access

SHELL = "run_shell_command"
FETCHING = "web_fetch"
DELEGATING = "task"
READING = frozenset({"read_file", "read_many_files", "grep_search", "glob", "list_directory"})
WRITING = frozenset({"edit", "write_file", "notebook_edit"})
# The tools that a rule about edits covers. `save_memory` writes only a fixed file, and `undo_change` only undoes tools'
# changes, so neither matters when the rule is applied to commands.
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
"""Tools that may start a program without a sandbox. An allow rule for a group, such as `Read`, does not cover them,
because consent to reading files does not include running programs. An allow rule covers such a tool only if it has the
tool's own name, or a matching name that contains a star."""

# The built-in tools of each profile. A profile that is not listed includes all tools
PROFILES: Mapping[str, frozenset[str]] = {
    "core": READING
    | WRITING
    | {SHELL, "list_background_jobs", "read_background_output", "stop_background_job", "list_changes", "undo_change"}
}


# For each kind of access by shell commands, the tools whose rules also govern it
GOVERNED_BY: Mapping[Access, frozenset[str]] = {
    Access.READ: READING,
    Access.WRITE: WRITING,
    Access.FETCH: frozenset({FETCHING}),
}

# The separator between a server's alias and a tool's name. No alias contains it or ends in `_`, so its first occurrence
# in a name is the separator.
BETWEEN = "__"
# Prefixes of upstream tools in rules: first that of Claude Code and Qwen Code, then that of Gemini CLI
_CLAUDE, _GEMINI = "mcp__", "mcp_"


def names_of_upstream_tool(server: str, tool: str) -> tuple[str, ...]:
    """Return an upstream tool's names in rules: this server's, that of Claude Code and Qwen Code, and Gemini CLI's."""
    return f"{server}{BETWEEN}{tool}", f"{_CLAUDE}{server}{BETWEEN}{tool}", f"{_GEMINI}{server}_{tool}"


def names_of_server(server: str) -> tuple[str, ...]:
    """Return the names in rules for all tools of an upstream server."""
    return (f"{_CLAUDE}{server}",)


def names_of_any_tool(server: str) -> tuple[str, ...]:
    """Return names that only rules about a whole server match: the server's names, and those of a tool called NUL.

    No tool is called NUL, so a rule about tools matches only if its pattern covers all tools of the server.
    """
    return (*names_of_upstream_tool(server, "\0"), *names_of_server(server))


def one_meaning(name: str) -> str:
    """Return the single meaning of a name in an allow rule, which for an upstream tool is this server's own spelling.

    A name may be ambiguous: `mcp_git_hub_search` could be `hub_search` of `git` or `search` of `git_hub`, and
    `mcp__git` could be the `git` tool of a server `mcp`. Ask and deny rules apply to all meanings. An allow rule
    applies to one meaning, regardless of which servers exist. A name that begins with `mcp__` is `mcp__server__tool`,
    or `mcp__server` for all its tools. Any other name that begins with `mcp_` is `mcp_server_tool`, in which the
    server's alias ends at the first `_`, as in Gemini CLI.
    """
    if name.startswith(_CLAUDE):
        server, between, tool = name.removeprefix(_CLAUDE).partition(BETWEEN)
        return f"{server}{BETWEEN}{tool if between else '*'}"
    if name.startswith(_GEMINI):
        server, between, tool = name.removeprefix(_GEMINI).partition("_")
        return f"{server}{BETWEEN}{tool}" if between or "*" not in server else f"{server}{BETWEEN}*"
    return name


def rule_for(name: str) -> str:
    """Return an allow rule's name for the tool published as `name`, or for all tools of a server (`server__*`)."""
    return f"{_CLAUDE}{name}" if name.startswith(_GEMINI) else name


def names_to_allow(names: Sequence[str]) -> tuple[str, ...]:
    """Return the tool's own name (the first of `names`) and the other names that `one_meaning` leaves unchanged."""
    return (*names[:1], *(name for name in names[1:] if not name.startswith(_GEMINI)))
