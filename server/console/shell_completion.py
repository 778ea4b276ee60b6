"""`completion`: prints a completion script, generated from the command-line parser so that the two always match."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import shtab

from server.console.known_clients import client_configs
from tools.builtin.all_tools import builtin_tools

_OWN_SERVERS = (
    "coretools-mcp config show 2> /dev/null | sed -n 's/^mcpServers[.]\\([A-Za-z0-9_-]*\\)[.].*/\\1/p' | sort -u"
)
"""A shell command that lists the servers in the current settings."""


def script(shell: str, parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the completion script for a shell. This changes the parser, which must not be used afterwards."""
    for option in _arguments(commands["serve"]):  # `serve` may be omitted
        if option.dest != "help":
            parser._add_action(option)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no public equivalent
    for words, command in commands.items():
        command.description = (command.description or "").partition(".")[0]  # shells show it on one line
        for argument in _arguments(command):
            if argument.metavar == "CLIENT":
                argument.choices = list(client_configs({}))
            elif argument.dest == "tool":
                argument.choices = [tool.name for tool in builtin_tools()]
            elif argument.metavar in ("DIR", "FILE"):
                argument.complete = shtab.DIRECTORY if argument.metavar == "DIR" else shtab.FILE
            elif words in ("config remove", "config enable", "config disable") and not argument.option_strings:
                # `shtab.cmd` would run the command whenever zsh loads the script, instead of for each completion.
                argument.complete = {**shtab.cmd(_OWN_SERVERS), "zsh": "{compadd -- \\$(" + _OWN_SERVERS + ")}"}
    return shtab.complete(parser, shell)


def _arguments(parser: argparse.ArgumentParser) -> list[Any]:
    return list(parser._actions)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no public list
