"""The known language servers, the files that they handle, and how to find their programs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.files.child_process import find_configured, find_program, is_program
from tools.text.file_names import sendable_name


@dataclass(frozen=True, slots=True)
class LanguageServer:
    name: str  # the language, or the operator's name for the server
    languages: Mapping[str, str]  # file name extensions, mapped to the protocol's names for languages
    commands: tuple[tuple[str, ...], ...] = field(repr=False)  # programs with arguments; the first one found is used
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)  # `initializationOptions`
    # Settings, keyed by section, that make the server also report on files that are not open
    whole_workspace: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def _endings(**languages: str) -> dict[str, str]:
    return {f".{ending}": language for language, endings in languages.items() for ending in endings.split()}


# The options and environments prevent downloads, installations and the start of programs in the workspace.
KNOWN = (
    LanguageServer(
        "python",
        _endings(python="py pyi"),
        (("basedpyright-langserver", "--stdio"), ("pyright-langserver", "--stdio")),
        whole_workspace={
            section: {"analysis": {"diagnosticMode": "workspace"}} for section in ("basedpyright", "pyright", "python")
        },
    ),
    LanguageServer(
        "typescript",
        _endings(typescript="ts mts cts", typescriptreact="tsx", javascript="js mjs cjs", javascriptreact="jsx"),
        (("typescript-language-server", "--stdio"),),
        {"disableAutomaticTypingAcquisition": True},
    ),
    LanguageServer(
        "go", _endings(go="go"), (("gopls",),), environment={"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    ),
    LanguageServer(
        "rust",
        _endings(rust="rs"),
        (("rust-analyzer",),),
        {"cargo": {"buildScripts": {"enable": False}}, "procMacro": {"enable": False}, "checkOnSave": False},
        environment={"CARGO_NET_OFFLINE": "true"},
    ),
    LanguageServer("c", _endings(c="c h", cpp="cc cpp cxx hh hpp hxx"), (("clangd",),)),
)
# Folders of packages that code may depend on: a folder's environment variable, the subfolder in it, the default path
DEPENDENCIES = (
    ("GOMODCACHE", "", "~/go/pkg/mod"),
    ("GOPATH", "pkg/mod", "~/go/pkg/mod"),
    ("CARGO_HOME", "registry", "~/.cargo/registry"),
    ("CARGO_HOME", "git", "~/.cargo/git"),
    ("", "", "~/.m2/repository"),
    ("PYTHONUSERBASE", "lib", "~/.local/lib"),
)
IN_WORKSPACE = ("node_modules/.bin", ".venv/bin")  # where workspaces keep their own programs


def dependency_folders(environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the real paths of the `DEPENDENCIES` folders that exist. Blocking."""
    folders: dict[str, None] = {}
    for variable, subfolder, default_path in DEPENDENCIES:
        value = environment.get(variable) if variable else None
        path = os.path.join(value, subfolder) if value else home + default_path[1:]
        if os.path.isdir(path):
            folders[os.path.realpath(path)] = None
    return tuple(folders)


def programs_in(folder: str) -> dict[str, str]:
    """Return the SHA-256 of each language server program in a workspace folder, keyed by relative path. Blocking.

    For a symlink, the digest is that of the target.
    """
    names = dict.fromkeys(command[0] for server in KNOWN for command in server.commands)
    paths = (f"{place}/{name}" for place in IN_WORKSPACE for name in names)
    return {path: digest for path in paths if (digest := _digest(os.path.join(folder, path))) is not None}


def _digest(program: str) -> str | None:
    if not is_program(program):
        return None
    try:
        with open(program, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class ServerPrograms:
    search_path: str  # like `PATH`; entries inside a workspace are skipped
    # The operator's servers, which take precedence over known servers and replace those of the same name
    configured_servers: tuple[LanguageServer, ...] = ()
    # Returns the trusted programs of each folder: the SHA-256 of the trusted content, keyed by relative path
    trusted_programs: Callable[[], Mapping[str, Mapping[str, str]]] = dict

    @property
    def servers(self) -> tuple[LanguageServer, ...]:
        names = {server.name for server in self.configured_servers}
        return (*self.configured_servers, *(server for server in KNOWN if server.name not in names))

    def server_for(self, path: str) -> LanguageServer | None:
        ending = os.path.splitext(path)[1].lower()
        return next((server for server in self.servers if ending in server.languages), None)

    def command(self, server: LanguageServer, roots: Collection[str]) -> tuple[str, ...] | None:
        """Return the absolute path and the arguments of a server's program, or `None` if no program is found. Blocking.

        For a known server, a program in the workspace takes precedence over the search path if it has not changed since
        it was trusted. For the program of a configured server, see `find_configured`.
        """
        if server in self.configured_servers:
            name, *arguments = server.commands[0]
            program = find_configured(name, self.search_path, None, tuple(roots))
            return (program, *arguments) if program is not None else None
        trusted_digests = self.trusted_programs()
        for name, *arguments in server.commands:
            workspace_programs = (
                path
                for root in roots
                for place in IN_WORKSPACE
                if (digest := trusted_digests.get(sendable_name(root), {}).get(f"{place}/{name}")) is not None
                and _digest(path := os.path.join(root, place, name)) == digest
            )
            if program := next(workspace_programs, None) or find_program(name, self.search_path, tuple(roots)):
                return (program, *arguments)
        return None

    def are_any(self, roots: Collection[str]) -> bool:
        """Return True if a server is available for `roots`, or if any workspace has trusted programs. Blocking."""
        has_trusted = any(name.startswith(IN_WORKSPACE) for files in self.trusted_programs().values() for name in files)
        return has_trusted or any(self.command(server, roots) for server in self.servers)
