"""The exit codes of the command besides 0, which is done."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

from server.settings import SettingsError

Command = Callable[[argparse.Namespace], int]
"""Does what a command line asks for, and gives the exit code."""


def parse(given: Sequence[str], commands: Mapping[str, Command]) -> argparse.Namespace:
    """Read a command line; wrong usage ends the process with a sentence. The command stands in `run`.

    Args:
        given: The words after the program's name.
        commands: What each command does, by its words.
    """
    parser = _parser(commands)
    arguments, after_options = parser.parse_known_args(given)
    is_call = hasattr(arguments, "pairs") and not any(word.startswith("-") for word in after_options)
    if after_options and not is_call:
        parser.error(f"unrecognized arguments: {' '.join(after_options)}")
    if after_options:  # argparse takes the arguments of a call only where they stand together
        arguments.pairs += after_options
    return arguments


def _parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    shared = _shared_options()
    parser = argparse.ArgumentParser(
        prog="coretools-mcp",
        description="The core tools of Qwen Code and Gemini CLI for any MCP client, and a proxy for other MCP servers.",
        epilog="Without a command it serves; the options of that: coretools-mcp serve --help",
    )
    parser.add_argument("--version", action="version", version=f"coretools-mcp {metadata.version('coretools-mcp')}")
    names = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = _command(names, "serve", "serve MCP; the command where none is given", parents=[shared])
    serve.add_argument(
        "--transport", choices=("stdio", "http", "sse"), default="stdio", help="how clients connect (default: stdio)"
    )
    serve.add_argument("--host", help="address to listen on (http, sse; default 127.0.0.1); others need a token")
    serve.add_argument("--port", type=int, help="port to listen on (http, sse; default 8808; 0 for any)")
    serve.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    serve.add_argument("--tls-key", metavar="FILE", help="its private key (PEM), where that stands in another file")
    serve.set_defaults(run=commands["serve"])
    tools = _command(names, "tools", "list what a client would see", parents=[shared])
    tools.add_argument("--json", action="store_true", help="as JSON")
    tools.set_defaults(run=commands["tools"])
    call = _command(names, "call", "make one call and show the result", parents=[shared])
    call.add_argument("tool", help="the tool's name")
    call.add_argument("pairs", nargs="*", default=[], metavar="key=value", help="its arguments")
    call.add_argument(
        "--arguments", "--json", metavar="ARGS", dest="arguments", help="its arguments as a JSON object; a pair wins"
    )
    call.set_defaults(run=commands["call"])
    permissions = _command(names, "permissions", "what calls may do")
    about = permissions.add_subparsers(title="commands", metavar="COMMAND", required=True)
    explain = _command(about, "explain", "tell what would be decided on a call, and why", parents=[shared])
    explain.add_argument("tool", metavar="CALL", help="the tool's name, or a call like 'Bash(git push)'")
    explain.add_argument("pairs", nargs="*", default=[], metavar="key=value", help="its arguments")
    explain.add_argument("--arguments", metavar="ARGS", help="its arguments as a JSON object; a pair wins")
    explain.add_argument("--json", action="store_true", help="answer as JSON")
    explain.set_defaults(run=commands["permissions explain"])
    trust = _command(
        names,
        "trust",
        "let the settings of a workspace count, as they are now",
        "A folder's own settings (.coretools/settings.json, with --settings also those of Qwen Code or Gemini CLI) can "
        "start programs and allow calls, so they are not read until a person has looked at them. This shows what they "
        "would do, and asks. After a change of them they have to be trusted again.",
    )
    trust.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", help="the workspace (default: the working folder)"
    )
    trust.add_argument("--yes", action="store_true", help="do not ask")
    instead = trust.add_mutually_exclusive_group()
    instead.add_argument("--remove", action="store_true", help="trust the folder no more")
    instead.add_argument("--list", action="store_true", help="list the folders that are trusted")
    trust.set_defaults(run=commands["trust"])
    doctor = _command(names, "doctor", "tell what works here, and what to do about the rest", parents=[shared])
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.set_defaults(run=commands["doctor"])
    _add_config(names, shared, commands)
    return parser


def _command(
    names: Any, name: str, what: str, more: str = "", parents: Sequence[argparse.ArgumentParser] = ()
) -> argparse.ArgumentParser:
    """One command, with what it does in the list of commands and at the head of its own help."""
    about = f"{what[0].upper()}{what[1:]}. {more}".strip()
    return names.add_parser(name, help=what, description=about, parents=parents)


def _shared_options() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--workspace", action="append", default=[], metavar="DIR", help="a folder the tools may touch (repeatable)"
    )
    shared.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="a settings file (repeatable, later ones win)"
    )
    shared.add_argument("--settings", choices=("qwen", "gemini"), help="read the settings of that CLI too")
    shared.add_argument(
        "--approval-mode", choices=("plan", "default", "auto-edit", "yolo"), help="how much may happen unasked"
    )
    shared.add_argument(
        "--no-builtin-tools", action="store_true", help="only the tools of other servers, and custom ones"
    )
    for option, what in (("--include-tools", "the only tools offered"), ("--exclude-tools", "tools not offered")):
        shared.add_argument(
            option, action="append", default=[], metavar="NAME,...", help=f"{what}, named as in rules (repeatable)"
        )
    shared.add_argument(
        "--no-prefix", action="store_true", help="publish the tools of other servers under their own names"
    )
    return shared


def _add_config(names: Any, shared: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    config = _command(names, "config", "check, show or import settings")
    about = config.add_subparsers(title="commands", metavar="COMMAND", required=True)
    check = _command(about, "check", "tell problems and warnings; 1 if the server would not start", parents=[shared])
    check.add_argument("file", nargs="?", metavar="FILE", help="one more settings file, as with --config")
    check.set_defaults(run=commands["config check"])
    show = _command(about, "show", "show every value that is given, and where; secrets are hidden", parents=[shared])
    show.add_argument("--json", action="store_true", help="as JSON")
    show.set_defaults(run=commands["config show"])
    take = _command(
        about,
        "import",
        "add the servers of another client to the user's own settings",
        "This shows what would be added, and asks. Only the person's own files are looked for; one of a project has to "
        "be named.",
    )
    take.add_argument(
        "client",
        metavar="CLIENT",
        help="claude-desktop, claude-code, cursor, vscode, gemini, qwen, or a file of one of them",
    )
    take.add_argument("--print", action="store_true", help="print them as settings, and change nothing")
    take.add_argument("--force", action="store_true", help="replace servers that have the same name")
    take.add_argument("--yes", action="store_true", help="do not ask")
    take.set_defaults(run=commands["config import"])


def overrides_of(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """What the command line says, in the shape of a settings file."""
    overrides: dict[str, Any] = {}
    if arguments.workspace:
        for folder in arguments.workspace:
            if not os.path.isdir(folder):
                raise SettingsError([f"--workspace '{folder}' is not an existing folder. Name one that exists."])
        overrides["workspace"] = {"roots": [os.path.abspath(folder) for folder in arguments.workspace]}
    if arguments.approval_mode:
        overrides["approvalMode"] = arguments.approval_mode
    included, excluded = (_names(arguments, kind) for kind in ("include_tools", "exclude_tools"))
    tools: dict[str, Any] = {"builtIn": False} if arguments.no_builtin_tools else {}
    tools |= {key: listed for key, listed in (("include", included), ("exclude", excluded)) if listed}
    if tools:
        overrides["tools"] = tools
    if arguments.no_prefix:
        overrides["proxy"] = {"prefix": "none"}
    names = {"host": "host", "port": "port", "tls_cert": "tlsCert", "tls_key": "tlsKey"}
    given = {key: getattr(arguments, name, None) for name, key in names.items()}
    http = {key: value for key, value in given.items() if value is not None}
    if http:
        overrides["http"] = http
    return overrides


def _names(arguments: argparse.Namespace, option: str) -> list[str]:
    """The names that an option lists, however often it is given.

    Raises:
        SettingsError: It lists nothing; to offer all or nothing because of that would be a guess.
    """
    given: list[str] = getattr(arguments, option)
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if given and not names:
        raise SettingsError([f"--{option.replace('_', '-')} names no tool. Give names with commas between them."])
    return names


def server_options(arguments: argparse.Namespace) -> list[str]:
    """The options of this command as options of `serve`."""
    options: list[str] = []
    for name in ("workspace", "config", "include_tools", "exclude_tools"):
        options += [f"--{name.replace('_', '-')}={value}" for value in getattr(arguments, name)]
    options += [f"--{name.replace('_', '-')}" for name in ("no_builtin_tools", "no_prefix") if getattr(arguments, name)]
    for option, value in (("--approval-mode", arguments.approval_mode), ("--settings", arguments.settings)):
        options += [option, value] if value else []
    return options


EXIT_FAILED = 1
"""The call, the listing or the check failed."""

EXIT_USAGE = 2
"""Wrong usage or settings."""

EXIT_ADDRESS = 3
"""The address cannot be served."""
