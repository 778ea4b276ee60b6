"""How much of a command a lasting permission covers."""

from __future__ import annotations

from collections.abc import Sequence

from tools.permissions.shell.git import subcommand
from tools.permissions.shell.words import Word

_GROUPS = frozenset(
    [
        "git",
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "docker",
        "podman",
        "kubectl",
        "helm",
        "cargo",
        "go",
        "pip",
        "pip3",
        "pipx",
        "uv",
        "poetry",
        "gh",
        "glab",
        "aws",
        "gcloud",
        "az",
        "systemctl",
        "apt",
        "apt-get",
        "brew",
        "terraform",
        "make",
        "just",
        "deno",
        "dotnet",
        "mvn",
        "gradle",
        "./gradlew",
        "./mvnw",
        "rustup",
        "conda",
        "nix",
        "composer",
        "bundle",
        "rails",
        "dnf",
        "yum",
        "pacman",
        "snap",
        "flatpak",
        "service",
        "journalctl",
    ]
)
"""Programs whose first argument says what they do. A permission covers that one thing."""

_PROGRAMS_RUN = frozenset({"python", "python3", "node", "ruby", "perl", "php", "lua", "Rscript", "julia"})
"""Interpreters. A permission covers one program that they run, never a text given to them."""

_NEVER = frozenset(
    [
        "eval",
        "source",
        ".",
        "exec",
        "sudo",
        "doas",
        "su",
        "runuser",
        "ssh",
        "bash",
        "sh",
        "zsh",
        "dash",
        "ksh",
        "ash",
        "mksh",
        "xargs",
        "parallel",
        "trap",
        "alias",
        "unalias",
        "chroot",
        "unshare",
        "nsenter",
        "script",
        "watch",
        "busybox",
        "toybox",
        "find",
        "env",
        "command",
        "builtin",
        "enable",
        "hash",
    ]
)
"""They run whatever they are given, so that a permission for them would be one for everything."""


def root_of(name: str, words: Sequence[Word]) -> str:
    """What a lasting permission for a command would cover: the beginning of its text. Empty if there can be none.

    Args:
        name: Its name, as rules see it.
        words: All its words.
    """
    if name in _NEVER:
        return ""
    arguments = words[1:]
    if name == "git":
        found = subcommand(arguments)
        is_plain = found is not None and bool(arguments) and arguments[0].text == found[0]
        return f"git {found[0]}" if found is not None and is_plain else ""
    if name in _PROGRAMS_RUN:
        return _program(name, arguments)
    if name in _GROUPS:
        first = arguments[0] if arguments else None
        return f"{name} {first.text}" if first and first.is_literal and not first.text.startswith("-") else ""
    return name


def _program(name: str, arguments: Sequence[Word]) -> str:
    if arguments and arguments[0].is_literal and not arguments[0].text.startswith("-"):
        return f"{name} {arguments[0].text}"
    if len(arguments) > 1 and arguments[0].text == "-m" and arguments[1].is_literal:
        return f"{name} -m {arguments[1].text}"
    return ""
