"""Settings that come with a workspace: read only where a person trusted them, and never with the operator's word.

Whoever can write into a workspace can write these files. So they start nothing, add nothing and allow nothing until
`coretools-mcp trust` was run on what they hold. After that they still cannot change what belongs to the operator.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from server.settings.agent_cli import FILE, AgentCli, translated
from server.settings.errors import Findings, SettingsError, dotted
from server.settings.files import MAX_FILE_BYTES, parse
from server.settings.layers import FileState, Layer, Rank, SettingsFile
from server.settings.merge import Tree, holder_of
from server.settings.trust import Trust
from tools.contract.context import ApprovalMode
from tools.contract.unseen import UNSEEN
from tools.memory.memory_files import MEMORY_ENDING, is_memory_name

OWN_FOLDER = ".coretools"
"""Our own folder in a workspace."""

OPERATORS = (
    ("workspace",),
    ("http",),
    ("log",),
    ("confirmation",),
    ("proxy",),
    ("shell", "sandbox"),
    ("shell", "network"),
    ("shell", "readable"),
    ("shell", "writable"),
    ("web", "search"),
    ("web", "allowPrivateHosts"),
    ("web", "allowedPorts"),
    ("tools", "builtIn"),
    ("tools", "include"),
    ("memory", "globalFolder"),
    ("memory", "section"),
)
"""Keys that only the operator gives: what there is at all, what may be touched and reached, where keys are sent, who is
asked, and what is remembered for all projects."""

SERVER_COMMAND = ("mcp", "serverCommand")
COMMAND_ALIAS = "mcp"
"""The alias of the server that `mcp.serverCommand` starts, as in Qwen Code and Gemini CLI."""

ONLY_IF_NOT_GIVEN = (
    (("tools", "core"),),
    (("mcp", "allowed"),),
    (SERVER_COMMAND,),
    (("tools", "discoveryCommand"), ("tools", "callCommand")),
)
"""Keys that a workspace gives only where the operator says nothing: replacing these would open what they close, or run
something else under a name that rules allow. Those that stand together are the operator's if one of them is."""

MEMORY_NAME, PROJECT_MEMORY_NAME = ("memory", "fileName"), ("memory", "projectFileName")

ENTRIES = ("mcpServers", "agents")
"""Tables of named entries: rules speak of these names, so a workspace cannot take one over."""

_MODES = [mode.value for mode in ApprovalMode]
"""From least to most."""


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A settings file of a workspace folder.

    Args:
        folder: Real path of the folder.
        name: Path of the file below it, with `/`.
        rank: What it counts as.
        cli: Whose it is, or `None` for our own.
        content: Its bytes; `None` where nothing is there.
        problem: Why it cannot be read, as the end of a sentence; empty if it can.
    """

    folder: str
    name: str
    rank: Rank
    cli: AgentCli | None
    content: bytes | None
    problem: str = ""

    @property
    def path(self) -> str:
        """Where it is."""
        return os.path.join(self.folder, *self.name.split("/"))

    def layer(self, findings: Findings) -> Layer:
        """What it says.

        Raises:
            SettingsError: It is no settings file.
        """
        data = parse(self.content or b"", self.path, findings)
        if self.cli is not None:
            data = translated(data, self.path, findings)
        return Layer(self.rank, self.path, data, os.path.dirname(self.path))


def find_files(folder: str, clis: Iterable[AgentCli]) -> list[WorkspaceFile]:
    """The places where a workspace folder may have settings, each with what is there now.

    Args:
        folder: Real path of the folder.
        clis: The other CLIs whose files count.
    """
    places = [(cli.folder, Rank.CLI_PROJECT, cli) for cli in clis]
    found: list[WorkspaceFile] = []
    for name, rank, cli in (*places, (OWN_FOLDER, Rank.WORKSPACE, None)):
        content, problem = _content(os.path.join(folder, name, FILE))
        found.append(WorkspaceFile(folder, f"{name}/{FILE}", rank, cli, content, problem))
    return found


def _content(path: str) -> tuple[bytes | None, str]:
    try:
        # Whoever made it may have made a pipe of it, on which an open would wait.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except OSError:
        return b"", "it cannot be opened"
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b"", "it is no regular file"
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(MAX_FILE_BYTES + 1), ""
    except OSError:
        return b"", "it cannot be read"
    finally:
        os.close(descriptor)


def read_trusted(
    files: Sequence[WorkspaceFile], trust: Trust, findings: Findings
) -> tuple[list[Layer], list[SettingsFile]]:
    """The layers of those files of one folder that are trusted, and what became of each file.

    None of them keeps the server from starting: what cannot be used is left out, with one warning for the folder.
    """
    layers: list[Layer] = []
    seen: list[SettingsFile] = []
    for file in files:
        state = _state(file, trust)
        if state is FileState.READ:
            try:
                layers.append(file.layer(findings))
            except SettingsError as error:
                findings.warnings += error.problems
                state = FileState.UNUSABLE
        elif state is FileState.UNUSABLE:
            findings.warn(file.path, f"this settings file of the workspace is not read, because {file.problem}.")
        seen.append(SettingsFile(file.path, file.rank, state))
    _warn_of_untrusted(files, seen, findings)
    return layers, seen


def _state(file: WorkspaceFile, trust: Trust) -> FileState:
    if file.content is None:
        return FileState.ABSENT
    if file.problem:
        return FileState.UNUSABLE
    return trust.state_of(file.folder, file.name, file.content)


def _warn_of_untrusted(files: Sequence[WorkspaceFile], seen: Sequence[SettingsFile], findings: Findings) -> None:
    left_out = [place for place in seen if place.state in (FileState.UNTRUSTED, FileState.CHANGED)]
    if not left_out:
        return
    folder = files[0].folder
    import shlex  # noqa: PLC0415 - only this warning needs it

    changed = any(place.state is FileState.CHANGED for place in left_out)
    why = "is not as it was when it was trusted" if changed else "is not trusted"
    names = " and ".join(os.path.relpath(place.path, folder) for place in left_out)
    said = f"{names} {why}, so nothing of it counts. Look at it, then run: coretools-mcp trust {shlex.quote(folder)}"
    findings.warn(folder, said)


def confine(layer: Layer, operators: Sequence[Layer], findings: Findings) -> None:
    """Take out of a workspace's layer what is not its to say, in place. Each thing is told.

    Args:
        layer: In canonical form.
        operators: The layers of the operator, in canonical form.
        findings: Takes the warnings.
    """
    for path in OPERATORS:
        if _take(layer.data, path):
            findings.warn(layer.source, f"{dotted(path)} is ignored: only the operator's own settings say it.")
    for paths in ONLY_IF_NOT_GIVEN:
        is_given = any(_has(other.data, path) for other in operators for path in paths)
        for path in paths if is_given else ():
            if _take(layer.data, path):
                findings.warn(layer.source, f"{dotted(path)} is ignored: the operator's own settings say it already.")
    _keep_names(layer, operators, findings)
    _settle_memory_name(layer, operators, findings)
    _narrow_mode(layer, operators, findings)
    for name, entry in _table(layer.data, "mcpServers").items():
        if isinstance(entry, dict) and cast("Tree", entry).pop("trust", False):
            shown = dotted(("mcpServers", name, "trust"))
            findings.warn(layer.source, f"{shown} is ignored: only the operator's own settings say it.")


def _keep_names(layer: Layer, operators: Sequence[Layer], findings: Findings) -> None:
    """Take out the entries whose names the operator's rules, or a person, could take for the operator's."""
    for table in ENTRIES:
        taken = _names_taken(table, operators)
        entries = _table(layer.data, table)
        for name in list(entries):
            other = taken.get(alike(name))
            if other is not None:
                del entries[name]
                layer.names.pop(name, None)
                findings.warn(layer.source, f"{dotted((table, name))} is ignored: {_why_taken(name, other)}")
    other = _names_taken("mcpServers", operators).get(COMMAND_ALIAS)
    if other is not None and _take(layer.data, SERVER_COMMAND):
        said = f"{dotted(SERVER_COMMAND)} is ignored: its server would be called {COMMAND_ALIAS}."
        findings.warn(layer.source, f"{said} {_why_taken(COMMAND_ALIAS, other)}")


def _why_taken(name: str, other: str) -> str:
    which = "this name" if name == other else f"the name {dotted((other,))}, which this one could be taken for"
    return f"the operator's own settings have one of {which}."


def _names_taken(table: str, operators: Sequence[Layer]) -> dict[str, str]:
    """What the operator's entries are called, as names are compared, with the name itself.

    The alias of what `mcp.serverCommand` starts is one. So is, of `git_hub`, each part before a `_`: a rule that
    allows `mcp_git_hub_search` means the server `git`.
    """
    names = [name for other in operators for name in _table(other.data, table)]
    if table == "mcpServers":
        names += [COMMAND_ALIAS] * any(_has(other.data, SERVER_COMMAND) for other in operators)
        beginnings = {alike(name[:at]): name for name in names for at, sign in enumerate(name) if sign == "_"}
        return beginnings | {alike(name): name for name in names}
    return {alike(name): name for name in names}


def alike(name: str) -> str:
    """A name as rules and people compare it: without case, blanks around it, widths and what cannot be seen."""
    import unicodedata  # noqa: PLC0415 - only workspaces with settings need it

    seen = UNSEEN.sub("", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def _settle_memory_name(layer: Layer, operators: Sequence[Layer], findings: Findings) -> None:
    """Let a workspace name its own memory file only, a Markdown file, and only where no stronger file names one."""
    holder = holder_of(layer.data, MEMORY_NAME)
    listed: Any = holder.pop(MEMORY_NAME[-1], None) if holder is not None else None
    if holder is None:
        return
    if listed is not None:
        names = cast("list[Any]", listed if isinstance(listed, list) and listed else [listed])
        holder.setdefault(PROJECT_MEMORY_NAME[-1], names[0])
    name: Any = holder.get(PROJECT_MEMORY_NAME[-1])
    if isinstance(name, str) and not is_memory_name(name):
        _take(layer.data, PROJECT_MEMORY_NAME)
        said = f"the memory file {json.dumps(name)} is ignored: its name has to end with {MEMORY_ENDING}."
        findings.warn(layer.source, said)
    stronger = [other for other in operators if other.rank > layer.rank]
    if any(_has(other.data, path) for other in stronger for path in (MEMORY_NAME, PROJECT_MEMORY_NAME)):
        _take(layer.data, PROJECT_MEMORY_NAME)


def _narrow_mode(layer: Layer, operators: Sequence[Layer], findings: Findings) -> None:
    """Take out an approval mode in which more happens unasked than in the one that the operator gives."""
    wanted = _mode(layer)
    given = [mode for other in sorted(operators, key=lambda other: other.rank) if (mode := _mode(other)) is not None]
    if wanted is not None and given and _MODES.index(wanted) > _MODES.index(given[-1]):
        del layer.data["approvalMode"]
        said = "is ignored: the operator's own settings say"
        findings.warn(layer.source, f'approvalMode "{wanted}" {said} "{given[-1]}".')


def _mode(layer: Layer) -> str | None:
    mode = layer.data.get("approvalMode")
    return mode if isinstance(mode, str) and mode in _MODES else None


def _table(data: Tree, name: str) -> Tree:
    table = data.get(name)
    return cast("Tree", table) if isinstance(table, dict) else {}


def _has(data: Tree, path: tuple[str, ...]) -> bool:
    holder = holder_of(data, path)
    return holder is not None and holder.get(path[-1]) is not None


def _take(data: Tree, path: tuple[str, ...]) -> bool:
    """Remove a key; whether it was there."""
    holder = holder_of(data, path)
    had = holder is not None and holder.pop(path[-1], None) is not None
    if had and not holder and len(path) > 1:
        data.pop(path[0], None)
    return had
