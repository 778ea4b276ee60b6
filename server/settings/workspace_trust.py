"""Settings that come with a workspace: which of them a person has trusted, and which keys they may set.

Anyone who can write to a workspace can write these files. Therefore they start nothing, add nothing and allow nothing
until a person trusts their content with `coretools-mcp trust`. The record of trusted content is outside the workspace.
If a file changes or another one appears, the folder must be reviewed again. Even trusted files cannot change settings
that belong to the operator.
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

from server.settings.gemini_and_qwen_files import FILE, AgentCli, translate
from server.settings.layers import REFUSING, FileState, Layer, SettingsFile, SettingsScope
from server.settings.section_model import Diagnostics, KeyPath, SettingsError, dotted, key_paths
from server.settings.settings_files import (
    Tree,
    own_folder,
    parse,
    pop_value,
    read_regular,
    read_stored,
    set_default,
    table_at,
    value_at,
)
from tools.contract.call_options import ApprovalMode
from tools.memory.memory_files import MEMORY_ENDING, is_memory_name
from tools.text.file_names import UNSEEN, sendable_name

# The SHA-256 of each file's content, keyed by the folder (as `sendable_name` writes it), then by the relative path
Folders = Mapping[str, Mapping[str, str]]


def trust_file(environ: Mapping[str, str]) -> str | None:
    """Return the path of the trust record, next to the user's own settings; `None` without a home folder."""
    folder = own_folder(environ)
    return os.path.join(folder, "trusted.json") if folder is not None else None


def digest(content: bytes) -> str:
    """Return the identity of reviewed content: its SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_trust(path: str | None, diagnostics: Diagnostics) -> Folders:
    """Return the trusted folders, with the digests of their reviewed files; none if the record is unreadable."""
    try:
        return _folders(read_regular(path)) if path is not None else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        message = "this file cannot be read, so no workspace is trusted; to rewrite it, run: coretools-mcp trust"
        diagnostics.warn(str(path), message)
        return {}


@dataclass(frozen=True, slots=True)
class _Trusted:
    folders: dict[str, dict[str, str]]


def _folders(content: bytes) -> Folders:
    return read_stored(_Trusted, content).folders if content.strip() else {}


def trust_folder(path: str, folder: str, files: Mapping[str, str] | None) -> bool:
    """Trust a folder's settings files with the digests in `files`; `None` revokes the trust.

    Return whether the folder was trusted before. If the record cannot be written, raise `ToolError` or `OSError`.
    """
    from server.settings.document_editor import rewrite  # noqa: PLC0415 - needed only to change the record

    was_trusted, folder = False, sendable_name(folder)

    def change(content: bytes) -> bytes:
        nonlocal was_trusted
        try:
            before = _folders(content)
        except ValueError:
            before: Folders = {}
        was_trusted = folder in before
        after = {name: digests for name, digests in before.items() if name != folder}
        after |= {folder: dict(files)} if files is not None else {}
        return content if after == before else json.dumps({"folders": after}, indent=2).encode() + b"\n"

    rewrite(path, change)
    return was_trusted


def trusted_files(environ: Mapping[str, str]) -> Folders:
    return read_trust(trust_file(environ), Diagnostics())


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    folder: str
    name: str  # path of the file relative to `folder`, with `/` as the separator
    scope: SettingsScope
    cli: AgentCli | None
    content: bytes | None  # `None` if there is no file
    problem: str = ""  # why the file cannot be read, as the end of a sentence; empty if it can be read

    @property
    def path(self) -> str:
        return os.path.join(self.folder, *self.name.split("/"))

    def layer(self, diagnostics: Diagnostics) -> Layer:
        data = parse(self.content or b"", self.path, diagnostics)
        if self.cli is not None:
            data = translate(data, self.path, diagnostics)
        return Layer(self.scope, self.path, data, os.path.dirname(self.path))


def find_files(folder: str, clis: Iterable[AgentCli]) -> list[WorkspaceFile]:
    """Return the possible settings files of a workspace folder, each with its current content."""
    files: list[WorkspaceFile] = []
    own = (".coretools", SettingsScope.WORKSPACE, None)
    for name, scope, cli in (*((cli.folder, SettingsScope.CLI_PROJECT, cli) for cli in clis), own):
        content, problem = b"", ""
        try:
            content = read_regular(os.path.join(folder, name, FILE))
        except (FileNotFoundError, NotADirectoryError):
            content = None
        except OSError as error:
            is_irregular = error.errno in (errno.EISDIR, errno.ENODEV)
            problem = "it is not a regular file" if is_irregular else "it cannot be read"
        files.append(WorkspaceFile(folder, f"{name}/{FILE}", scope, cli, content, problem))
    return files


def read_trusted(
    files: Sequence[WorkspaceFile], trust: Folders, diagnostics: Diagnostics
) -> tuple[list[Layer], list[SettingsFile]]:
    """Return the layers of the trusted files of one folder, and the state of each file.

    A file that cannot be read or parsed is skipped with a warning, so it never keeps the server from starting. One more
    warning lists the files that are not trusted or have changed.
    """
    layers: list[Layer] = []
    file_states: list[SettingsFile] = []
    for file in files:
        state = FileState.READ
        if file.content is None:
            state = FileState.ABSENT
        elif file.problem:
            state = FileState.UNUSABLE
            diagnostics.warn(file.path, f"this workspace settings file is not read: {file.problem}.")
        elif (digests := trust.get(sendable_name(file.folder))) is None:
            state = FileState.UNTRUSTED
        elif digests.get(file.name) != digest(file.content):
            state = FileState.CHANGED
        if state is FileState.READ:
            try:
                layers.append(file.layer(diagnostics))
            except SettingsError as error:
                diagnostics.warnings += error.problems
                state = FileState.UNUSABLE
        file_states.append(SettingsFile(file.path, file.scope, state))
    left_out = [file for file in file_states if file.state in (FileState.UNTRUSTED, FileState.CHANGED)]
    if left_out:
        import shlex  # noqa: PLC0415 - needed only for this warning

        folder = files[0].folder
        is_changed = any(file.state is FileState.CHANGED for file in left_out)
        reason = "they have changed since they were trusted" if is_changed else "they are not trusted"
        names = " and ".join(os.path.relpath(file.path, folder) for file in left_out)
        command = f"coretools-mcp trust {shlex.quote(folder)}"
        diagnostics.warn(folder, f"the settings in {names} are ignored: {reason}. Review them, then run: {command}")
    return layers, file_states


OPERATOR_KEYS = key_paths("""
    workspace http store log confirmation proxy undo lsp
    shell.sandbox shell.network shell.readable shell.writable permissions.sandboxedCommands
    web.search web.allowPrivateHosts web.allowedPorts
    tools.builtIn tools.profile tools.include memory.globalFolder memory.section
""")
"""Keys that only the operator may set: which tools exist, what they may use and reach, where API keys are sent, who
is asked, and what is remembered for all projects.
"""

SERVER_COMMAND = ("mcp", "serverCommand")
COMMAND_ALIAS = "mcp"  # the alias of the server that `mcp.serverCommand` starts, as in Qwen Code and Gemini CLI

_GROUPS = ("tools.core", "mcp.allowed", "mcp.serverCommand", "tools.discoveryCommand tools.callCommand")
ONLY_IF_UNSET = tuple(map(key_paths, _GROUPS))
"""Keys that a workspace may set only if the operator does not. Replacing the operator's value could allow what that
value forbids, or run something else under an allowed name. If the operator sets one key of a group, the whole group is
the operator's.
"""

MEMORY_NAME, PROJECT_MEMORY_NAME = ("memory", "fileName"), ("memory", "projectFileName")
ENTRIES = ("mcpServers", "agents")  # rules refer to names in these tables, so a workspace must not take over a name
_MODES = [mode.value for mode in ApprovalMode]  # the strictest mode first


def sanitise(layer: Layer, operators: Sequence[Layer], diagnostics: Diagnostics) -> None:
    """Remove, in place, the keys that a workspace's layer may not set, with a warning for each.

    `memory.fileName` becomes `memory.projectFileName`, which is dropped without a warning if the operator's name wins.
    """
    data, source = layer.data, layer.source
    for path in OPERATOR_KEYS:
        if pop_value(data, path) is not None:
            diagnostics.warn(source, f"{dotted(path)} is ignored: only the operator's own settings may set it.")
    for paths in ONLY_IF_UNSET:
        for path in paths if _sets_any(operators, paths) else ():
            if pop_value(data, path) is not None:
                diagnostics.warn(source, f"{dotted(path)} is ignored: the operator's own settings already set it.")
    # Rules for an operator's entry would also apply to a workspace's entry with the same name, and a person could
    # confuse the two.
    for table in ENTRIES:
        owners = _reserved_names(table, operators)
        entries = table_at(data, table)
        for name in list(entries):
            owner = owners.get(normalised_name(name))
            if owner is not None:
                del entries[name]
                layer.names.pop(name, None)
                diagnostics.warn(source, f"{dotted((table, name))} is ignored: {_conflict_reason(name, owner)}")
    owner = _reserved_names("mcpServers", operators).get(COMMAND_ALIAS)
    if owner is not None and pop_value(data, SERVER_COMMAND) is not None:
        message = f"{dotted(SERVER_COMMAND)} is ignored: its server would be called {COMMAND_ALIAS};"
        diagnostics.warn(source, f"{message} {_conflict_reason(COMMAND_ALIAS, owner)}")
    # A workspace may name its own memory file, unless an operator's layer with a higher precedence names one.
    names = pop_value(data, MEMORY_NAME)
    name_list = cast("list[Any]", names if isinstance(names, list) and names else [names])
    if isinstance(name_list[0], str):
        set_default(data, PROJECT_MEMORY_NAME, name_list[0])
    elif name_list[0] is not None:  # the server refuses the value, and says where it is
        set_default(data, MEMORY_NAME, names)
    name = value_at(data, PROJECT_MEMORY_NAME)
    if isinstance(name, str) and not is_memory_name(name):
        pop_value(data, PROJECT_MEMORY_NAME)
        message = f"the memory file {json.dumps(name)} is ignored: its name must end with {MEMORY_ENDING}."
        diagnostics.warn(source, message)
    overriding = [operator for operator in operators if operator.scope > layer.scope]
    if _sets_any(overriding, (MEMORY_NAME, PROJECT_MEMORY_NAME)):
        pop_value(data, PROJECT_MEMORY_NAME)
    # A workspace's approval mode must be at least as strict as the operator's.
    requested_mode: Any = data.get("approvalMode")
    by_scope = sorted(operators, key=lambda operator: operator.scope)
    operator_modes: list[Any] = [mode for operator in by_scope if (mode := operator.data.get("approvalMode")) in _MODES]
    if operator_modes and requested_mode in _MODES and _MODES.index(requested_mode) > _MODES.index(operator_modes[-1]):
        del data["approvalMode"]
        message = "is ignored: the operator's own settings say"
        diagnostics.warn(source, f'approvalMode "{requested_mode}" {message} "{operator_modes[-1]}".')
    for name, entry in table_at(data, "mcpServers").items():
        if isinstance(entry, dict) and cast("Tree", entry).pop("trust", False):
            key_path = dotted(("mcpServers", name, "trust"))
            diagnostics.warn(source, f"{key_path} is ignored: only the operator's own settings may set it.")


def _sets_any(operators: Iterable[Layer], paths: Iterable[KeyPath]) -> bool:
    return any(value_at(operator.data, path) is not None for operator in operators for path in paths)


def _conflict_reason(name: str, owner: str) -> str:
    description = "this name" if name == owner else f"the name {dotted((owner,))}, which may be confused with this one"
    return f"the operator's own settings already use {description}."


def _reserved_names(table: str, operators: Sequence[Layer]) -> dict[str, str]:
    """Return the names of the operator's entries, keyed by their comparable form.

    The names include the alias of the server that `mcp.serverCommand` starts. Each prefix of a server's name that ends
    before a `_` is a key too: an allow rule `mcp_git_hub_search`, written for the server `git_hub`, would allow the
    tool `hub_search` of a server `git`.
    """
    names = [name for operator in operators for name in table_at(operator.data, table)]
    beginnings: dict[str, str] = {}
    if table == "mcpServers":
        names += [COMMAND_ALIAS] * _sets_any(operators, (SERVER_COMMAND,))
        ends = [(name, index) for name in names for index, sign in enumerate(name) if sign == "_"]
        beginnings = {normalised_name(name[:index]): name for name, index in ends}
    return beginnings | {normalised_name(name): name for name in names}


def normalised_name(name: str) -> str:
    """Return a name in comparable form: case-folded, without extra blanks, width variants or invisible characters."""
    import unicodedata  # noqa: PLC0415 - needed only for workspaces with settings

    visible_name = UNSEEN.sub("", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(unicodedata.normalize("NFKC", visible_name).split())


RESTRICTING = (*REFUSING, *key_paths("tools.core mcp.allowed"))  # keys that only restrict

Restrictions = Mapping[str, Layer]  # the restrictions in each file's last trusted content, keyed by path


def restrictions_of(layers: Iterable[Layer]) -> dict[str, Layer]:
    """Return the restrictions in each layer, keyed by the layer's source; layers without any are omitted."""
    restrictions: dict[str, Layer] = {}
    for layer in layers:
        data: Tree = {}
        for path in RESTRICTING:
            value = value_at(layer.data, path)
            # An empty list restricts nothing, except that an empty `mcp.allowed` allows no server.
            if value or (value == [] and path == ("mcp", "allowed")):
                set_default(data, path, deepcopy(value))
        if data:
            restrictions[layer.source] = Layer(layer.scope, layer.source, data, layer.folder)
    return restrictions


def retained_restrictions(
    restrictions: Restrictions, files: Iterable[SettingsFile], diagnostics: Diagnostics
) -> list[Layer]:
    """Return the restrictions of files that are no longer trusted, or whose workspace the settings no longer name.

    If the restrictions no longer applied, adding a single blank to such a file would lift them.
    """
    paths = [file.path for file in files if file.state is not FileState.READ and file.path in restrictions]
    for path in paths:
        message = "the restrictions in the last trusted content of this file still apply"
        diagnostics.warn(path, f"{message}, until this server uses the file again or restarts.")
    return [deepcopy(restrictions[path]) for path in paths]
