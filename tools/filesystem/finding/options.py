"""What discovery tools share: the options that switch ignore files off, the folder to look in, what was left out."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import Field

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.parameters import ToolParams, coerce
from tools.filesystem.finding.walk import DEFAULT_EXCLUDED_FOLDERS, Walk
from tools.filesystem.ignore import HiddenBy, agent_ignore_file
from tools.filesystem.paths import MAX_SHOWN_PATH
from tools.filesystem.workspace import Location, Workspace

OPTIONS = "file_filtering_options"

MAX_TEXT_BYTES = 7_800
"""A text beside structured content stays under 8 kB; this leaves room for what closes it."""

_OPTION_SPELLINGS = {
    "respect_git_ignore": "respect_git_ignore",
    "respect_agent_ignore": "respect_agent_ignore",
    "respect_gemini_ignore": "respect_agent_ignore",
    "respect_qwen_ignore": "respect_agent_ignore",
}


MAX_PATTERNS = 200
"""Patterns of one call; each costs a little for every file looked at."""

ShortPattern = Annotated[str, Field(min_length=1, max_length=1_000)]
"""A pattern of a length that somebody may have meant."""


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
    """Put the options, wherever and however they were spelled, under `file_filtering_options`.

    What is spelled outright beside the object counts more than what is in it.
    """
    given = coerce(arguments.get(OPTIONS), {"type": "object"})
    if given is not None and not isinstance(given, dict):
        return arguments
    inside = cast("dict[str, Any]", given or {})
    beside = {name: arguments[name] for name in _OPTION_SPELLINGS if arguments.get(name) is not None}
    gathered = {_OPTION_SPELLINGS.get(name, name): value for name, value in (*inside.items(), *beside.items())}
    rest = {name: value for name, value in arguments.items() if name not in _OPTION_SPELLINGS and name != OPTIONS}
    return rest | ({OPTIONS: gathered} if gathered else {})


def respects(workspace: Workspace, options: FileFilteringOptions | None) -> tuple[bool, bool]:
    """Whether the rules of git and of the agent-ignore files apply to a call."""
    git = options.respect_git_ignore if options else None
    agent = options.respect_agent_ignore if options else None
    return (
        workspace.respect_git_ignore if git is None else git,
        workspace.respect_agent_ignore if agent is None else agent,
    )


def refuse_hidden(workspace: Workspace, location: Location) -> None:
    """Do not look into what an agent-ignore file hides.

    Raises:
        ToolError: `path_ignored`.
    """
    hidden_by = agent_ignore_file(workspace, location)
    if hidden_by is not None:
        raise ToolError(
            ToolErrorType.PATH_IGNORED,
            f"'{location.spelled}' is hidden from agents by {hidden_by}, so it is not searched. "
            "If it is needed, ask the user to change that file.",
        )


@dataclass(frozen=True, slots=True)
class Start:
    """Where a search begins.

    Args:
        location: A folder, or for a content search perhaps a file.
        is_file: Whether it is one.
    """

    location: Location
    is_file: bool = False


def search_starts(workspace: Workspace, path: str | None, *, agent: bool) -> list[Start]:
    """The folder that was named, or every root.

    Args:
        workspace: Whose roots count.
        path: As given in the call; `None` or blank for all roots.
        agent: Whether agent-ignore files apply.

    Raises:
        ToolError: `search_path_not_found`, `search_path_not_a_directory` (a device, pipe or socket), `path_ignored`,
            `path_not_in_workspace`, `no_workspace`.
    """
    if path is None or not path.strip():
        return [Start(root) for root in workspace.root_locations()]
    location = workspace.locate(path)
    info = workspace.stat(location)
    if info is None:
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_FOUND,
            f"'{path}' does not exist, so nothing was searched. Use list_directory or glob to see what is there.",
        )
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        raise ToolError(
            ToolErrorType.SEARCH_PATH_NOT_A_DIRECTORY,
            f"'{path}' is neither a folder nor a regular file (a device, pipe or socket); it is never opened.",
        )
    if agent:
        refuse_hidden(workspace, location)
    return [Start(location, is_file=stat.S_ISREG(info.st_mode))]


def excluded_folders(
    starts: Sequence[Start], named: frozenset[str], folders: frozenset[str] | None = None
) -> frozenset[str]:
    """The folders left out by default, but those that the call names: in its pattern, or above where it starts."""
    above = {part for start in starts for part in start.location.relative.split("/")}
    return (DEFAULT_EXCLUDED_FOLDERS if folders is None else folders) - above - named


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 item`, `2 items`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def one_line(name: str) -> str:
    """A file name as it stands in a text of lines: what is not printable, a line feed above all, is escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


def brief(text: str) -> str:
    """A pattern within the one line that describes a call."""
    line = one_line(text)
    return line if len(line) <= MAX_SHOWN_PATH else f"{line[:MAX_SHOWN_PATH]}..."


def hidden_note(hidden: Mapping[HiddenBy, int]) -> str:
    """`2 git-ignored, 1 agent-ignored`, or nothing."""
    return ", ".join(f"{hidden[by]:,} {by.value}-ignored" for by in HiddenBy if hidden.get(by))


def walk_notes(walk: Walk) -> list[str]:
    """What a walk left out, as sentences."""
    notes: list[str] = []
    if hidden := hidden_note(walk.hidden):
        notes.append(f"Ignore files left out files or folders: {hidden}.")
    named = sorted(name for name in walk.folders_excluded if name != ".git")
    if named:
        notes.append(f"Folders left out by default: {', '.join(named)}.")
    if walk.unreadable:
        notes.append(f"{count(walk.unreadable, 'folder')} could not be read.")
    if walk.timed_out:
        notes.append(
            f"PARTIAL RESULT: the time limit of {walk.deadline.seconds:g} s was reached before all folders were "
            "searched. Name a folder as path, or a narrower pattern."
        )
    return notes


def fitting(lines: Sequence[str], first: Sequence[str]) -> int:
    """How many lines fit the text beside structured content, after some first ones; at least one."""
    room = MAX_TEXT_BYTES - sum(len(line.encode("utf-8", "replace")) + 1 for line in first)
    for number, line in enumerate(lines):
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0 and number:
            return number
    return len(lines)
