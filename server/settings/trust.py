"""Settings that come with a workspace: which a person has trusted, and what in them counts.

Whoever can write into a workspace can write these files. So they start nothing, add nothing and allow nothing until
`coretools-mcp trust` was run on what they hold; that is remembered outside of the workspace. When a file changes, or
another one appears beside it, it has to be looked at again. Trusted ones still cannot change what belongs to the
operator.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast

from server.settings.agent_cli import FILE, AgentCli, translated
from server.settings.files import (
    FileState,
    IrregularFileError,
    Layer,
    Rank,
    SettingsFile,
    Tree,
    own_folder,
    parse,
    put,
    read_regular,
    table_at,
    take,
    value_at,
)
from server.settings.section import Findings, SettingsError, dotted
from tools.contract.limits import ApprovalMode
from tools.contract.names_on_one_line import UNSEEN
from tools.memory.memory_files import MEMORY_ENDING, is_memory_name

Folders = Mapping[str, Mapping[str, str]]
"""Real path of a folder, to relative path of a file, to the SHA-256 of its content."""


def trust_file(environ: Mapping[str, str]) -> str | None:
    """Where trust is kept: beside the user's own settings; `None` where there is no home folder."""
    folder = own_folder(environ)
    return os.path.join(folder, "trusted.json") if folder is not None else None


def digest(content: bytes) -> str:
    """The SHA-256 of a file's content, by which it is trusted."""
    import hashlib  # noqa: PLC0415 - only workspaces with settings need it

    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class Trust:
    """What is trusted.

    Args:
        folders: The folders, and in each the files as they were seen.
    """

    folders: Folders = field(default_factory=dict[str, Mapping[str, str]])

    def state_of(self, folder: str, name: str, content: bytes) -> FileState:
        """Whether a file may be read as settings.

        Args:
            folder: Real path of the workspace folder.
            name: The file below it.
            content: What it holds now.
        """
        seen = self.folders.get(folder)
        if seen is None:
            return FileState.UNTRUSTED
        return FileState.READ if seen.get(name) == digest(content) else FileState.CHANGED


def read_trust(path: str | None, findings: Findings) -> Trust:
    """What was trusted so far. A store that cannot be read trusts nothing, with a warning."""
    if path is None:
        return Trust()
    try:
        return Trust(_folders(read_regular(path)))
    except FileNotFoundError:
        return Trust()
    except (OSError, SettingsError):
        findings.warn(path, "this file cannot be read, so no workspace is trusted; coretools-mcp trust writes it anew.")
        return Trust()


def _folders(content: bytes) -> Folders:
    tree = parse(content, "trust", Findings()) if content.strip() else {}
    return {
        folder: {name: str(value) for name, value in cast("dict[str, Any]", files).items()}
        for folder, files in table_at(tree, "folders").items()
        if isinstance(files, dict)
    }


def trust_folder(path: str, folder: str, files: Mapping[str, str]) -> None:
    """Trust a folder's settings files as they were seen; what was trusted of it before no longer counts.

    Args:
        path: The store.
        folder: Real path of the folder.
        files: Relative path to SHA-256.

    Raises:
        ToolError, OSError: The store cannot be written.
    """
    _change(path, lambda folders: {**folders, folder: dict(files)})


def forget_folder(path: str, folder: str) -> bool:
    """Stop trusting a folder; whether it was trusted.

    Raises:
        ToolError, OSError: The store cannot be written.
    """
    had: list[bool] = []

    def without(folders: Folders) -> Folders:
        had.append(folder in folders)
        return {name: files for name, files in folders.items() if name != folder}

    _change(path, without)
    return had[-1]


def _change(path: str, change: Callable[[Folders], Folders]) -> None:
    from server.settings.settings_writer import rewrite  # noqa: PLC0415 - reading settings needs no writer
    from tools.contract.limits import AbortSignal  # noqa: PLC0415 - as above

    def rewritten(content: bytes) -> bytes:
        try:
            folders = _folders(content)
        except SettingsError:
            folders = dict[str, Mapping[str, str]]()
        after = change(folders)
        return content if after == folders else json.dumps({"folders": after}, indent=2).encode() + b"\n"

    rewrite(path, rewritten, AbortSignal())


OWN_FOLDER = ".coretools"
"""Our own folder in a workspace."""


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
            SettingsError: It cannot be used as settings.
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
    found: list[WorkspaceFile] = []
    for name, rank, cli in (*((cli.folder, Rank.CLI_PROJECT, cli) for cli in clis), (OWN_FOLDER, Rank.WORKSPACE, None)):
        content, problem = b"", ""
        try:
            content = read_regular(os.path.join(folder, name, FILE))
        except (FileNotFoundError, NotADirectoryError):
            content = None
        except (IrregularFileError, IsADirectoryError):
            problem = "it is not a regular file"
        except OSError:
            problem = "it cannot be read"
        found.append(WorkspaceFile(folder, f"{name}/{FILE}", rank, cli, content, problem))
    return found


def read_trusted(
    files: Sequence[WorkspaceFile], trust: Trust, findings: Findings
) -> tuple[list[Layer], list[SettingsFile]]:
    """The layers of those files of one folder that are trusted, and what became of each file.

    None of them keeps the server from starting: what cannot be used is left out, with one warning for the folder.
    """
    layers: list[Layer] = []
    places: list[SettingsFile] = []
    for file in files:
        if file.content is None:
            state = FileState.ABSENT
        elif file.problem:
            state = FileState.UNUSABLE
            findings.warn(file.path, f"this settings file of the workspace is not read, because {file.problem}.")
        else:
            state = trust.state_of(file.folder, file.name, file.content)
        if state is FileState.READ:
            try:
                layers.append(file.layer(findings))
            except SettingsError as error:
                findings.warnings += error.problems
                state = FileState.UNUSABLE
        places.append(SettingsFile(file.path, file.rank, state))
    left_out = [place for place in places if place.state in (FileState.UNTRUSTED, FileState.CHANGED)]
    if left_out:
        import shlex  # noqa: PLC0415 - only this warning needs it

        folder = files[0].folder
        changed = any(place.state is FileState.CHANGED for place in left_out)
        why = "is not as it was when it was trusted" if changed else "is not trusted"
        names = " and ".join(os.path.relpath(place.path, folder) for place in left_out)
        command = f"coretools-mcp trust {shlex.quote(folder)}"
        findings.warn(folder, f"{names} {why}, so nothing in it counts. Look at it, then run: {command}")
    return layers, places


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


def confine(layer: Layer, operators: Sequence[Layer], findings: Findings) -> None:
    """Take out of a workspace's layer what it has no right to say, in place, with a warning for each thing.

    Args:
        layer: In canonical form.
        operators: The layers of the operator, in canonical form.
        findings: Takes the warnings.
    """
    for path in OPERATORS:
        if take(layer.data, path) is not None:
            findings.warn(layer.source, f"{dotted(path)} is ignored: only the operator's own settings say it.")
    for paths in ONLY_IF_NOT_GIVEN:
        is_given = any(value_at(other.data, path) is not None for other in operators for path in paths)
        for path in paths if is_given else ():
            if take(layer.data, path) is not None:
                findings.warn(layer.source, f"{dotted(path)} is ignored: the operator's own settings say it already.")
    _keep_names(layer, operators, findings)
    _settle_memory_name(layer, operators, findings)
    # An approval mode counts only if no more happens unasked in it than in the one that the operator gives.
    wanted: Any = layer.data.get("approvalMode")
    by_rank = sorted(operators, key=lambda other: other.rank)
    given: list[Any] = [mode for other in by_rank if (mode := other.data.get("approvalMode")) in _MODES]
    if given and wanted in _MODES and _MODES.index(wanted) > _MODES.index(given[-1]):
        del layer.data["approvalMode"]
        said = "is ignored: the operator's own settings say"
        findings.warn(layer.source, f'approvalMode "{wanted}" {said} "{given[-1]}".')
    for name, entry in table_at(layer.data, "mcpServers").items():
        if isinstance(entry, dict) and cast("Tree", entry).pop("trust", False):
            shown = dotted(("mcpServers", name, "trust"))
            findings.warn(layer.source, f"{shown} is ignored: only the operator's own settings say it.")


def _keep_names(layer: Layer, operators: Sequence[Layer], findings: Findings) -> None:
    """Take out the entries whose names the operator's rules, or a person, could take for the operator's."""
    for table in ENTRIES:
        taken = _names_taken(table, operators)
        entries = table_at(layer.data, table)
        for name in list(entries):
            other = taken.get(alike(name))
            if other is not None:
                del entries[name]
                layer.names.pop(name, None)
                findings.warn(layer.source, f"{dotted((table, name))} is ignored: {_why_taken(name, other)}")
    other = _names_taken("mcpServers", operators).get(COMMAND_ALIAS)
    if other is not None and take(layer.data, SERVER_COMMAND) is not None:
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
    names = [name for other in operators for name in table_at(other.data, table)]
    if table == "mcpServers":
        names += [COMMAND_ALIAS] * any(value_at(other.data, SERVER_COMMAND) is not None for other in operators)
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
    listed = take(layer.data, MEMORY_NAME)
    if listed is not None:
        names = cast("list[Any]", listed if isinstance(listed, list) and listed else [listed])
        put(layer.data, PROJECT_MEMORY_NAME, names[0])
    name = value_at(layer.data, PROJECT_MEMORY_NAME)
    if isinstance(name, str) and not is_memory_name(name):
        take(layer.data, PROJECT_MEMORY_NAME)
        said = f"the memory file {json.dumps(name)} is ignored: its name has to end with {MEMORY_ENDING}."
        findings.warn(layer.source, said)
    stronger = [other for other in operators if other.rank > layer.rank]
    if any(value_at(other.data, path) is not None for other in stronger for path in (MEMORY_NAME, PROJECT_MEMORY_NAME)):
        take(layer.data, PROJECT_MEMORY_NAME)


RESTRICTING = (
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("tools", "core"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("mcp", "allowed"),
    ("mcp", "excluded"),
)
"""Keys that open nothing: they ask, refuse or leave out."""

Restrictions = Mapping[str, Layer]
"""Path of a workspace's settings file, to what restricts in its last content that was trusted."""


def restrictions_of(layers: Iterable[Layer]) -> dict[str, Layer]:
    """What restricts in each of these layers, by its source; nothing for those that restrict nothing.

    Args:
        layers: In canonical form. They are left as they are.
    """
    found: dict[str, Layer] = {}
    for layer in layers:
        restricting = Layer(layer.rank, layer.source, {}, layer.folder)
        for path in RESTRICTING:
            value = value_at(layer.data, path)
            if value:
                put(restricting.data, path, deepcopy(value))
        if restricting.data:
            found[layer.source] = restricting
    return found


def still_counting(restrictions: Restrictions, places: Iterable[SettingsFile], findings: Findings) -> list[Layer]:
    """What restricts in those files that were trusted and are no longer, while the server runs.

    Otherwise one blank that somebody writes into such a file would take away the rules that ask and refuse.

    Args:
        restrictions: What restricted so far.
        places: What became of the files now.
        findings: Takes a warning for each.
    """
    lost = [place for place in places if place.state is not FileState.READ and place.path in restrictions]
    for place in lost:
        said = "what asks, refuses or leaves out in the last content of this file that was trusted still counts"
        findings.warn(place.path, f"{said}, until the file is trusted again or this server is started again.")
    return [deepcopy(restrictions[place.path]) for place in lost]
