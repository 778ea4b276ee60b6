"""The options that switch ignore files off, and the patterns that a call may give."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import Field

from tools.contract.parameters import MAX_UNKNOWN, ToolParams, coerce
from tools.files.workspace import Workspace

OPTIONS = "file_filtering_options"
_OPTION_ALIASES = {
    "respect_git_ignore": "respect_git_ignore",
    "respect_agent_ignore": "respect_agent_ignore",
    "respect_gemini_ignore": "respect_agent_ignore",
    "respect_qwen_ignore": "respect_agent_ignore",
}
MAX_PATTERNS = 200  # patterns of one call; each costs a little for every file looked at
# A pattern of a length that somebody may have meant
ShortPattern = Annotated[str, Field(min_length=1, max_length=1_000)]


class FileFilteringOptions(ToolParams):
    """Which ignore files count."""

    respect_git_ignore: bool | None = Field(
        default=None, description="False also shows what .gitignore hides. Default: the server's setting, usually true."
    )
    respect_agent_ignore: bool | None = Field(
        default=None,
        description="False also shows what .coretoolsignore, .qwenignore and .geminiignore hide. "
        "Default: the server's setting, usually true.",
    )


def gather_options(arguments: dict[str, Any]) -> dict[str, Any]:
    """Put the options, wherever and however they were named, under `file_filtering_options`.

    What is given outright beside the object counts more than what is in it.
    """
    given = coerce(arguments.get(OPTIONS), {"type": "object"})
    if given is not None and not isinstance(given, dict):
        return arguments
    inside = cast("dict[str, Any]", given or {})
    if len(inside) > MAX_UNKNOWN:
        # They are refused where all arguments are looked at.
        return arguments
    beside = {name: arguments[name] for name in _OPTION_ALIASES if arguments.get(name) is not None}
    gathered = {_OPTION_ALIASES.get(name, name): value for name, value in (*inside.items(), *beside.items())}
    rest = {name: value for name, value in arguments.items() if name not in _OPTION_ALIASES and name != OPTIONS}
    return rest | ({OPTIONS: gathered} if gathered else {})


def respects(workspace: Workspace, options: FileFilteringOptions | None) -> tuple[bool, bool]:
    """Whether the rules of git and of the agent-ignore files apply to a call."""
    git, agent = (options.respect_git_ignore, options.respect_agent_ignore) if options else (None, None)
    return (
        workspace.respect_git_ignore if git is None else git,
        workspace.respect_agent_ignore if agent is None else agent,
    )
