"""Which language servers there are, for which files, and where the program of one is taken from."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.files.child_process import find_configured, find_program, is_program


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


def programs_in(folder: str, servers: Iterable[LanguageServer] = KNOWN) -> list[str]:
    """The programs of language servers that a workspace folder brings, by their paths below it. Blocking."""
    names = dict.fromkeys(command[0] for server in servers for command in server.commands)
    paths = (f"{place}/{name}" for place in IN_WORKSPACE for name in names)
    return [path for path in paths if is_program(os.path.join(folder, path))]


@dataclass(frozen=True, slots=True)
class ServerPrograms:
    """Finds the programs of language servers."""

    search_path: str  # as `PATH`; what of it lies in a workspace is passed over
    configured: tuple[
        LanguageServer, ...
    ] = ()  # by the operator; each counts before those that are known, and in place of its name
    trusted: Callable[[], Collection[str]] = frozenset  # real paths of folders whose own programs may be started

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

        What a trusted workspace brings counts before what is on the search path.
        """
        if server in self.configured:
            name, *arguments = server.commands[0]
            program = find_configured(name, self.search_path, None, tuple(roots))
            return (program, *arguments) if program is not None else None
        own = [os.path.join(root, place) for root in self.trusted() if root in roots for place in IN_WORKSPACE]
        for name, *arguments in server.commands:
            inside = (path for folder in own if is_program(path := os.path.join(folder, name)))
            if program := next(inside, None) or find_program(name, self.search_path, tuple(roots)):
                return (program, *arguments)
        return None

    def are_any(self, roots: Collection[str]) -> bool:
        """Whether there is a server for anything, in the operator's workspace or another that is trusted. Blocking."""
        return any(map(programs_in, self.trusted())) or any(self.command(each, roots) for each in self.servers)
