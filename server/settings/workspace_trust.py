"""Settings that come with a workspace: which a person has trusted, and what in them counts.

Anyone who can write into a workspace can write these files. So they start nothing, add nothing and allow nothing until
`coretools-mcp trust` was run on what they hold; that is remembered outside of the workspace. When a file changes, or
another one appears beside it, it has to be looked at again. Trusted ones still cannot change what belongs to the
operator.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from server.settings.agent_cli import FILE, AgentCli, translate
from server.settings.layers import REFUSING, FileState, Layer, SettingsFile, SettingsScope
from server.settings.nested_values import Tree, pop_value, set_default, table_at, value_at
from server.settings.section_model import Diagnostics, SettingsError, dotted, key_paths
from server.settings.settings_files import own_folder, parse, read_regular
from server.settings.stored_json import read_stored
from tools.contract.limits import AbortSignal, ApprovalMode
from tools.memory.memory_files import MEMORY_ENDING, is_memory_name
from tools.text.file_names import UNSEEN, sendable_name

# By folder, as `sendable_name` gives it, and relative path of a file: SHA-256 of its content
Folders = Mapping[str, Mapping[str, str]]


def trust_file(environ: Mapping[str, str]) -> str | None:
    """Where trust is kept: beside the user's own settings; `None` where there is no home folder."""
    folder = own_folder(environ)
    return os.path.join(folder, "trusted.json") if folder is not None else None


def digest(content: bytes) -> str:
    """What a file is known by as it was seen: SHA-256 of its content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_trust(path: str | None, diagnostics: Diagnostics) -> Folders:
    """The folders that are trusted, with their files as they were seen. A store that cannot be read trusts nothing."""
    try:
        return _folders(read_regular(path)) if path is not None else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        said = "this file cannot be read, so no workspace is trusted; coretools-mcp trust writes it again."
        diagnostics.warn(str(path), said)
        return {}


@dataclass(frozen=True, slots=True)
class _Trusted:
    folders: dict[str, dict[str, str]]


def _folders(content: bytes) -> Folders:
    return read_stored(_Trusted, content).folders if content.strip() else {}


def trust_folder(path: str, folder: str, files: Mapping[str, str] | None) -> bool:
    """Trust a folder's settings files as they were seen, or with `None` no more; whether it was trusted before.

    Raises:
        ToolError: The store cannot be written.
        OSError: Its folder cannot be made.
    """
    from server.settings.file_rewriting import rewrite  # noqa: PLC0415 - reading settings needs no writer

    was_trusted, folder = False, sendable_name(folder)

    def change(content: bytes) -> bytes:
        nonlocal was_trusted
        try:
            before = _folders(content)
        except ValueError:
            before: Folders = {}
        was_trusted = folder in before
        after = {name: known for name, known in before.items() if name != folder}
        after |= {folder: dict(files)} if files is not None else {}
        return content if after == before else json.dumps({"folders": after}, indent=2).encode() + b"\n"

    rewrite(path, change, AbortSignal())
    return was_trusted


def trusted_files(environ: Mapping[str, str]) -> Folders:
    """What is trusted now."""
    return read_trust(trust_file(environ), Diagnostics())


OWN_FOLDER = ".coretools"  # our own folder in a workspace


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A settings file of a workspace folder."""

    folder: str
    name: str  # path of the file below it, with `/`
    scope: SettingsScope
    cli: AgentCli | None
    content: bytes | None  # its bytes; `None` where nothing is there
    problem: str = ""  # why it cannot be read, as the end of a sentence; empty if it can

    @property
    def path(self) -> str:
        return os.path.join(self.folder, *self.name.split("/"))

    def layer(self, diagnostics: Diagnostics) -> Layer:
        """What it says.

        Raises:
            SettingsError: It cannot be used.
        """
        data = parse(self.content or b"", self.path, diagnostics)
        if self.cli is not None:
            data = translate(data, self.path, diagnostics)
        return Layer(self.scope, self.path, data, os.path.dirname(self.path))


def find_files(folder: str, clis: Iterable[AgentCli]) -> list[WorkspaceFile]:
    """The files in which a workspace folder may have settings, each with what is there now."""
    found: list[WorkspaceFile] = []
    own = (OWN_FOLDER, SettingsScope.WORKSPACE, None)
    for name, scope, cli in (*((cli.folder, SettingsScope.CLI_PROJECT, cli) for cli in clis), own):
        content, problem = b"", ""
        try:
            content = read_regular(os.path.join(folder, name, FILE))
        except (FileNotFoundError, NotADirectoryError):
            content = None
        except OSError as error:
            is_irregular = error.errno in (errno.EISDIR, errno.ENODEV)
            problem = "it is not a regular file" if is_irregular else "it cannot be read"
        found.append(WorkspaceFile(folder, f"{name}/{FILE}", scope, cli, content, problem))
    return found


def read_trusted(
    files: Sequence[WorkspaceFile], trust: Folders, diagnostics: Diagnostics
) -> tuple[list[Layer], list[SettingsFile]]:
    """The layers of those files of one folder that are trusted, and what became of each file.

    None of them keeps the server from starting: what cannot be used is left out, with one warning for the folder.
    """
    layers: list[Layer] = []
    seen: list[SettingsFile] = []
    for file in files:
        state = FileState.READ
        if file.content is None:
            state = FileState.ABSENT
        elif file.problem:
            state = FileState.UNUSABLE
            diagnostics.warn(file.path, f"this settings file of the workspace is not read, because {file.problem}.")
        elif (trusted := trust.get(sendable_name(file.folder))) is None:
            state = FileState.UNTRUSTED
        elif trusted.get(file.name) != digest(file.content):
            state = FileState.CHANGED
        if state is FileState.READ:
            try:
                layers.append(file.layer(diagnostics))
            except SettingsError as error:
                diagnostics.warnings += error.problems
                state = FileState.UNUSABLE
        seen.append(SettingsFile(file.path, file.scope, state))
    left_out = [file for file in seen if file.state in (FileState.UNTRUSTED, FileState.CHANGED)]
    if left_out:
        import shlex  # noqa: PLC0415 - only this warning needs it

        folder = files[0].folder
        is_changed = any(file.state is FileState.CHANGED for file in left_out)
        why = "is not as it was when it was trusted" if is_changed else "is not trusted"
        names = " and ".join(os.path.relpath(file.path, folder) for file in left_out)
        command = f"coretools-mcp trust {shlex.quote(folder)}"
        diagnostics.warn(folder, f"{names} {why}, so nothing in it counts. Look at it, then run: {command}")
    return layers, seen


OPERATOR_KEYS = key_paths("""
    workspace http store log confirmation proxy undo lsp
    shell.sandbox shell.network shell.readable shell.writable permissions.sandboxedCommands
    web.search web.allowPrivateHosts web.allowedPorts
    tools.builtIn tools.profile tools.include memory.globalFolder memory.section
""")
"""Keys that only the operator gives: what there is at all, what may be touched and reached, where keys are sent, who is
asked, and what is remembered for all projects."""

SERVER_COMMAND = ("mcp", "serverCommand")
COMMAND_ALIAS = "mcp"  # the alias of the server that `mcp.serverCommand` starts, as in Qwen Code and Gemini CLI

ONLY_IF_NOT_GIVEN = tuple(
    map(key_paths, ("tools.core", "mcp.allowed", "mcp.serverCommand", "tools.discoveryCommand tools.callCommand"))
)
"""Keys that a workspace gives only where the operator says nothing: replacing these would open what they close, or run
something else under a name that rules allow. Those in one group are the operator's if one of them is."""

MEMORY_NAME, PROJECT_MEMORY_NAME = ("memory", "fileName"), ("memory", "projectFileName")
ENTRIES = ("mcpServers", "agents")  # rules speak of the names in these tables, so a workspace cannot take one over
_MODES = [mode.value for mode in ApprovalMode]  # from least to most


def sanitize(layer: Layer, operators: Sequence[Layer], diagnostics: Diagnostics) -> None:
    """Take out of a workspace's layer what it has no right to say, in place, with a warning for each thing."""
    data, source = layer.data, layer.source
    for path in OPERATOR_KEYS:
        if pop_value(data, path) is not None:
            diagnostics.warn(source, f"{dotted(path)} is ignored: only the operator's own settings say it.")
    for paths in ONLY_IF_NOT_GIVEN:
        is_given = any(value_at(other.data, path) is not None for other in operators for path in paths)
        for path in paths if is_given else ():
            if pop_value(data, path) is not None:
                diagnostics.warn(source, f"{dotted(path)} is ignored: the operator's own settings say it already.")
    # The operator's rules, or a person, could take an entry of the same name for the operator's.
    for table in ENTRIES:
        taken = _names_taken(table, operators)
        entries = table_at(data, table)
        for name in list(entries):
            owner = taken.get(normalized_name(name))
            if owner is not None:
                del entries[name]
                layer.names.pop(name, None)
                diagnostics.warn(source, f"{dotted((table, name))} is ignored: {_why_taken(name, owner)}")
    owner = _names_taken("mcpServers", operators).get(COMMAND_ALIAS)
    if owner is not None and pop_value(data, SERVER_COMMAND) is not None:
        said = f"{dotted(SERVER_COMMAND)} is ignored: its server would be called {COMMAND_ALIAS}."
        diagnostics.warn(source, f"{said} {_why_taken(COMMAND_ALIAS, owner)}")
    # It may name a memory file of its own, a Markdown file, where no stronger file names one.
    names = pop_value(data, MEMORY_NAME)
    if names is not None:
        listed = cast("list[Any]", names if isinstance(names, list) and names else [names])
        set_default(data, PROJECT_MEMORY_NAME, listed[0])
    name = value_at(data, PROJECT_MEMORY_NAME)
    if isinstance(name, str) and not is_memory_name(name):
        pop_value(data, PROJECT_MEMORY_NAME)
        said = f"the memory file {json.dumps(name)} is ignored: its name has to end with {MEMORY_ENDING}."
        diagnostics.warn(source, said)
    stronger = [other for other in operators if other.scope > layer.scope]
    if any(value_at(other.data, path) is not None for other in stronger for path in (MEMORY_NAME, PROJECT_MEMORY_NAME)):
        pop_value(data, PROJECT_MEMORY_NAME)
    # An approval mode counts only if no more happens unasked in it than in the one that the operator gives.
    wanted: Any = data.get("approvalMode")
    by_scope = sorted(operators, key=lambda other: other.scope)
    given: list[Any] = [mode for other in by_scope if (mode := other.data.get("approvalMode")) in _MODES]
    if given and wanted in _MODES and _MODES.index(wanted) > _MODES.index(given[-1]):
        del data["approvalMode"]
        said = "is ignored: the operator's own settings say"
        diagnostics.warn(source, f'approvalMode "{wanted}" {said} "{given[-1]}".')
    for name, entry in table_at(data, "mcpServers").items():
        if isinstance(entry, dict) and cast("Tree", entry).pop("trust", False):
            shown = dotted(("mcpServers", name, "trust"))
            diagnostics.warn(source, f"{shown} is ignored: only the operator's own settings say it.")


def _why_taken(name: str, owner: str) -> str:
    which = "this name" if name == owner else f"the name {dotted((owner,))}, which this one could be taken for"
    return f"the operator's own settings have one of {which}."


def _names_taken(table: str, operators: Sequence[Layer]) -> dict[str, str]:
    """What the operator's entries are called, as names are compared, with the name itself.

    The alias of what `mcp.serverCommand` starts is one. So is, of `git_hub`, each part before a `_`: a rule that
    allows `mcp_git_hub_search` means the server `git`.
    """
    names = [name for other in operators for name in table_at(other.data, table)]
    beginnings: dict[str, str] = {}
    if table == "mcpServers":
        names += [COMMAND_ALIAS] * any(value_at(other.data, SERVER_COMMAND) is not None for other in operators)
        beginnings = {normalized_name(name[:at]): name for name in names for at, sign in enumerate(name) if sign == "_"}
    return beginnings | {normalized_name(name): name for name in names}


def normalized_name(name: str) -> str:
    """A name as rules and people compare it: without case, blanks around it, widths and what cannot be seen."""
    import unicodedata  # noqa: PLC0415 - only workspaces with settings need it

    seen = UNSEEN.sub("", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(unicodedata.normalize("NFKC", seen).split())


RESTRICTING = (*REFUSING, *key_paths("tools.core mcp.allowed"))  # keys that open nothing: they ask, refuse or leave out

Restrictions = Mapping[str, Layer]  # by path of the file, what restricts in its last content that was trusted


def restrictions_of(layers: Iterable[Layer]) -> dict[str, Layer]:
    """What restricts in each of these layers, by its source; nothing for those that restrict nothing."""
    found: dict[str, Layer] = {}
    for layer in layers:
        data: Tree = {}
        for path in RESTRICTING:
            value = value_at(layer.data, path)
            if value:
                set_default(data, path, deepcopy(value))
        if data:
            found[layer.source] = Layer(layer.scope, layer.source, data, layer.folder)
    return found


def retained_restrictions(
    restrictions: Restrictions, files: Iterable[SettingsFile], diagnostics: Diagnostics
) -> list[Layer]:
    """What restricts in those files that were trusted and are no longer, while the server runs.

    Otherwise one blank that somebody writes into such a file would take away the rules that ask and refuse.
    """
    lost = [file.path for file in files if file.state is not FileState.READ and file.path in restrictions]
    for path in lost:
        said = "what asks, refuses or leaves out in the last content of this file that was trusted still counts"
        diagnostics.warn(path, f"{said}, until the file is trusted again or this server is started again.")
    return [deepcopy(restrictions[path]) for path in lost]
