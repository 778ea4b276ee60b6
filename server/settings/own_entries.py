"""Recognizes an entry of `mcpServers` that starts or reaches this program itself, however it is spelled."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit

PROGRAM = "coretools-mcp"
DEFAULT_PORT = 8808  # the value of `http.port` if the settings do not set it
_DEFAULTS = re.compile(r"\$\{\w+:-([^{}]*)\}")  # the default in `${NAME:-default}`
_NAMES = frozenset({PROGRAM, "coretools_mcp"})
_ENDINGS = re.compile(r"\.(?:exe|cmd|bat|ps1|py|pyw)\Z")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?|py")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish", "cmd", "powershell", "pwsh"})
_WRAPPERS = frozenset({"env", "nice", "nohup", "exec", "command", "time", "stdbuf", "setsid"})
_RUNNERS = frozenset(
    {"timeout", "sudo", "doas", "su", "ionice", "chrt", "taskset", "poetry", "hatch", "pdm", "pixi"}
    | {"mise", "asdf", "direnv", "nix", "wsl", "docker", "podman"}
)
"""Programs that run a command from their arguments, after optional subcommands."""
_TAKES_VALUE = re.compile(
    r"--(?:from|with|with-editable|with-requirements|python|index|index-url|default-index|extra-index-url|find-links"
    r"|directory|project|cache-dir|config-file|env-file|refresh-package|spec|pip-args|package|constraints|overrides"
    r"|extra|group|only-group|unset|chdir|adjustment)|-[pifcWXuCn]"
)
"""Options that take the next word as their value: those of Python, uv, pipx and the programs in `_WRAPPERS`."""


def options_for_us(command: Any, args: Any) -> list[str] | None:
    """Return the options that a command line passes to this program, directly or through other programs.

    Returns `None` if the command line does not start this program.
    """
    given = cast("list[Any]", args) if isinstance(args, list) else []
    words = [str(word) for word in given]
    if not isinstance(command, str):
        return None
    if "coretools" not in " ".join([command, *words]).casefold() and not os.path.islink(command):
        return None
    return _options([command, *words])


def _options(words: Sequence[str]) -> list[str] | None:
    if not words:
        return None
    program, rest = _name_of(words[0]), list(words[1:])
    if program in _NAMES or (os.path.isabs(words[0]) and _name_of(os.path.realpath(words[0])) in _NAMES):
        return rest
    if program in _SHELLS:
        option = next((at for at, word in enumerate(rest) if re.fullmatch(r"-\w*c|/[cCkK]|-Command", word)), None)
        if option is None:
            return _options(_from_first_argument(rest))
        line = rest[option + 1 :]
        return _options_in_line(line[0] if len(line) == 1 or program not in ("cmd", "powershell") else " ".join(line))
    if _PYTHON.fullmatch(program):
        joined = next(
            (at for at, word in enumerate(rest) if word.startswith("-m") and _name_of(word[2:]) in _NAMES), None
        )
        if joined is not None:
            return rest[joined + 1 :]
        if "-m" in rest[:-1] and _name_of(rest[rest.index("-m") + 1]) in _NAMES:
            return rest[rest.index("-m") + 2 :]
        script = _from_first_argument(rest)
        return _options(script) if script and _name_of(script[0]) in _NAMES else None
    if program in ("uv", "pipx"):
        while rest and rest[0] != "run":  # other words may come first, as in `uv --offline tool run`
            rest.pop(0)
        rest = rest[1:]
    elif program == "uvx" or program in _WRAPPERS:
        while program == "env" and rest and re.match(r"\w+=", rest[0]):
            rest.pop(0)
    elif re.search(r"\s", words[0]) and not os.path.exists(words[0]):
        return _options_in_line(" ".join(words))  # a whole command line in place of a program
    elif program in _RUNNERS:
        # A word after a long option is skipped: it may be the option's value, such as a folder named like this program.
        named = (
            at
            for at, word in enumerate(rest)
            if _name_of(word.rpartition("#")[2]) in _NAMES and not (at and re.match("--.", rest[at - 1]))
        )
        at = next(named, None)
        return rest[at + 1 :] if at is not None else None
    else:
        return None
    return _options(_from_first_argument(rest))


def _options_in_line(line: str) -> list[str] | None:
    """Apply `options_for_us` to a shell command line; the first command that starts this program counts."""
    import shlex  # noqa: PLC0415 - needed only for a shell command line

    try:
        words = shlex.split(line.replace("\\", "/"))
    except ValueError:
        return None
    for at, word in enumerate(words):
        begins = at == 0 or words[at - 1] in ("&&", "||", ";", "exec", "&") or words[at - 1].endswith(";")
        if begins and not re.search(r"\s", word) and (found := _options(words[at:])) is not None:
            return found
    return None


def _from_first_argument(words: Sequence[str]) -> Sequence[str]:
    """Return the words from the first one that is neither an option nor an option's value; empty if there is none."""
    skips = False
    for at, word in enumerate(words):
        if skips:
            skips = False
        elif word.startswith("-"):
            skips = _TAKES_VALUE.fullmatch(word) is not None
        elif not re.match(r"[A-Za-z_]\w*=", word):
            return words[at:]
    return ()


def _name_of(word: str) -> str:
    """Return the name of a program or package in lower case, without folders, file ending, version or extras."""
    name = _ENDINGS.sub("", re.split(r"[/\\]", word.strip().rstrip("/\\"))[-1].casefold())
    return re.split(r"[\[@=<>~!:]", name)[0]


def _is_our_address(address: str, ports: Sequence[int]) -> bool:
    try:
        parts = urlsplit(_DEFAULTS.sub(r"\1", address.strip()))
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return False
    host = (parts.hostname or "").rstrip(".")
    is_here = host == "localhost"
    with suppress(OSError, ValueError):
        # `inet_aton` also accepts other spellings of an address, such as `127.1` and `2130706433`, as clients do.
        found = ip_address(host if ":" in host else socket.inet_ntoa(socket.inet_aton(host)))
        found = getattr(found, "ipv4_mapped", None) or found
        is_here = found.is_loopback or found.is_unspecified
    is_ours = parts.path.rstrip("/") in ("/mcp", "/sse")
    return parts.scheme in ("http", "https") and is_here and port in ports and is_ours


def is_own(entry: Mapping[str, Any], ports: Sequence[int]) -> bool:
    """Return whether an entry, in the format of any client, starts this program or reaches it at one of these ports."""
    command, args = entry.get("command"), entry.get("args")
    if isinstance(command, dict):  # the format of older versions of Zed
        program = cast("dict[str, Any]", command)
        command, args = program.get("path"), program.get("args")
    elif isinstance(command, list) and command:  # the whole command in one list
        command, *args = cast("list[Any]", command)
    # A bridge program gets the address as an argument.
    addresses = [entry.get(key) for key in ("url", "httpUrl", "serverUrl")]
    for given in (entry.get("args"), args):
        addresses += cast("list[Any]", given) if isinstance(given, list) else []
    return options_for_us(command, args) is not None or any(
        isinstance(address, str) and _is_our_address(address, ports) for address in addresses
    )
