"""The names that rules call tools by, in the words of Qwen Code, Gemini CLI and Claude Code.

Wire names, class names and older names belong to the tools themselves; here stand the names for groups of tools, and
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
# What a rule about edits is about. A memory cannot be saved to just any file, and only changes by tools can be undone,
# so these say nothing of commands.
EDITING = WRITING | {"save_memory", "undo_change"}
# A name in a rule, and the tools it stands for
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
"""Tools that may start a program without a sandbox. To allow that, a rule names one of them, or everything: one for the
reading of files means no program."""

# The built-in tools of a profile; one that is not here has all of them
PROFILES: Mapping[str, frozenset[str]] = {
    "core": READING
    | WRITING
    | {SHELL, "list_background_jobs", "read_background_output", "stop_background_job", "list_changes", "undo_change"}
}


def access_of(tools: frozenset[str]) -> frozenset[Access]:
    """What rules about these tools also govern when a shell command does it."""
    governed = {Access.READ: READING, Access.WRITE: WRITING, Access.FETCH: {FETCHING}}
    return frozenset(access for access, group in governed.items() if tools & group)


# Stands between a server and its tool. No alias holds it or ends with a part of it, so the first one counts.
BETWEEN = "__"
# What the names of tools of other servers begin with in the rules of Claude Code and Qwen Code, and of Gemini CLI
_CLAUDE, _GEMINI = "mcp__", "mcp_"


def names_of_upstream_tool(server: str, tool: str) -> tuple[str, ...]:
    """How a rule may call a tool of another server: our way, Claude Code's and Qwen Code's, Gemini CLI's."""
    return f"{server}{BETWEEN}{tool}", f"{_CLAUDE}{server}{BETWEEN}{tool}", f"{_GEMINI}{server}_{tool}"


def names_of_server(server: str) -> tuple[str, ...]:
    """How a rule may call all tools of another server."""
    return (f"{_CLAUDE}{server}",)


def names_of_any_tool(server: str) -> tuple[str, ...]:
    """What a rule fits that is about a server as a whole: the server itself, or a tool whatever it is called."""
    return (*names_of_upstream_tool(server, "\0"), *names_of_server(server))


def one_meaning(name: str) -> str:
    """The one thing that a rule which allows means by a name: for tools of other servers, in our spelling.

    Several servers may answer to one name: `mcp_git_hub_search` could be `hub_search` of `git` or `search` of
    `git_hub`, and `mcp__git` the tool `git` of a server `mcp`. To ask and to deny, all of them count. To allow, one
    counts, whatever servers there are: what begins with `mcp__` is `mcp__server__tool`, or `mcp__server` for all its
    tools; what else begins with `mcp_` is `mcp_server_tool`, where the server ends at the first `_`, as in Gemini CLI.
    """
    if name.startswith(_CLAUDE):
        server, between, tool = name.removeprefix(_CLAUDE).partition(BETWEEN)
        return f"{server}{BETWEEN}{tool if between else '*'}"
    if name.startswith(_GEMINI):
        server, between, tool = name.removeprefix(_GEMINI).partition("_")
        return f"{server}{BETWEEN}{tool}" if between or "*" not in server else f"{server}{BETWEEN}*"
    return name


def rule_for(name: str) -> str:
    """The name by which a rule that allows means what is published as `name`; `server__*` for all of a server."""
    return f"{_CLAUDE}{name}" if name.startswith(_GEMINI) else name


def names_to_allow(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names of a tool that `one_meaning` gives: its own, which is the first, and none of another tool."""
    return (*names[:1], *(name for name in names[1:] if not name.startswith(_GEMINI)))
