"""Which language servers there are, for which files, and where the program of one is taken from."""

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
    """One kind of language server."""

    name: str  # the language, or what the operator calls it
    languages: Mapping[str, str]  # ending of a file's name -> what the protocol calls the language
    commands: tuple[tuple[str, ...], ...] = field(repr=False)  # programs with arguments, of which the first counts
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)  # `initializationOptions`
    # Settings by section that make it report on files that are not open
    whole_workspace: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def _endings(**languages: str) -> dict[str, str]:
    return {f".{ending}": language for language, endings in languages.items() for ending in endings.split()}


# Each without what would fetch or install something, or start programs of the workspace that are not needed to answer.
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
# Where packages lie that code depends on: the variable that names a folder, what of it is meant, and the usual place.
DEPENDENCIES = (
    ("GOMODCACHE", "", "~/go/pkg/mod"),
    ("GOPATH", "pkg/mod", "~/go/pkg/mod"),
    ("CARGO_HOME", "registry", "~/.cargo/registry"),
    ("CARGO_HOME", "git", "~/.cargo/git"),
    ("", "", "~/.m2/repository"),
    ("PYTHONUSERBASE", "lib", "~/.local/lib"),
)
IN_WORKSPACE = ("node_modules/.bin", ".venv/bin")  # where a workspace brings programs of its own


def dependency_folders(environment: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Real paths of the folders of packages that are there. Blocking."""
    found: dict[str, None] = {}
    for variable, below, usual in DEPENDENCIES:
        given = environment.get(variable) if variable else None
        path = os.path.join(given, below) if given else home + usual[1:]
        if os.path.isdir(path):
            found[os.path.realpath(path)] = None
    return tuple(found)


def programs_in(folder: str) -> dict[str, str]:
    """The programs of language servers that a workspace folder brings, by path below it, with their SHA-256. Blocking.

    Of a link it is that of what runs.
    """
    names = dict.fromkeys(command[0] for server in KNOWN for command in server.commands)
    paths = (f"{place}/{name}" for place in IN_WORKSPACE for name in names)
    return {path: seen for path in paths if (seen := _digest(os.path.join(folder, path))) is not None}


def _digest(program: str) -> str | None:
    """The SHA-256 of a program; `None` where there is none that can be read."""
    if not is_program(program):
        return None
    try:
        with open(program, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class ServerPrograms:
    """Finds the programs of language servers."""

    search_path: str  # as `PATH`; what of it lies in a workspace is passed over
    configured: tuple[
        LanguageServer, ...
    ] = ()  # by the operator; each counts before those that are known, and in place of its name
    # What is trusted: by folder, the files as they were seen, each with its SHA-256
    trusted: Callable[[], Mapping[str, Mapping[str, str]]] = dict

    @property
    def servers(self) -> tuple[LanguageServer, ...]:
        names = {server.name for server in self.configured}
        return (*self.configured, *(server for server in KNOWN if server.name not in names))

    def server_for(self, path: str) -> LanguageServer | None:
        """The server for a file, by its name."""
        ending = os.path.splitext(path)[1].lower()
        return next((server for server in self.servers if ending in server.languages), None)

    def command(self, server: LanguageServer, roots: Collection[str]) -> tuple[str, ...] | None:
        """The program of a server by its absolute path, and its arguments; `None` where there is none. Blocking.

        What a workspace brings counts before what is on the search path, where it is as it was when it was trusted.
        """
        if server in self.configured:
            name, *arguments = server.commands[0]
            program = find_configured(name, self.search_path, None, tuple(roots))
            return (program, *arguments) if program is not None else None
        trusted = self.trusted()
        for name, *arguments in server.commands:
            inside = (
                path
                for root in roots
                for place in IN_WORKSPACE
                if (seen := trusted.get(sendable_name(root), {}).get(f"{place}/{name}")) is not None
                and _digest(path := os.path.join(root, place, name)) == seen
            )
            if program := next(inside, None) or find_program(name, self.search_path, tuple(roots)):
                return (program, *arguments)
        return None

    def are_any(self, roots: Collection[str]) -> bool:
        """Whether there is a server for anything, in the operator's workspace or another that is trusted. Blocking."""
        own = any(name.startswith(IN_WORKSPACE) for files in self.trusted().values() for name in files)
        return own or any(self.command(each, roots) for each in self.servers)
