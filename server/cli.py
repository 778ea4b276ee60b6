"""The command line: arguments, settings, logging, exit codes. What the commands do stands elsewhere.

Exit codes: 0 done, 1 the call or the listing failed, 2 wrong usage or settings, 3 the address cannot be served.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from server.log import flush_log, start_log
from server.settings import SettingsError, SettingsReport, load_settings

EXIT_USAGE = 2
EXIT_ADDRESS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help", "--version")):
        given.insert(0, "serve")
    arguments = _parse(given)
    try:
        report = load_settings(arguments.config, _overrides(arguments), os.environ)
    except SettingsError as error:
        return _fail(str(error), EXIT_USAGE)
    start_log(report.settings.log.level)
    for warning in report.warnings:
        logging.getLogger("server.settings").warning(warning)
    code: int = arguments.run(arguments, report)
    flush_log()
    return code


def _parse(given: Sequence[str]) -> argparse.Namespace:
    """Read the arguments. Those of a call may stand after options too, where argparse takes no more of them."""
    parser = _parser()
    arguments, rest = parser.parse_known_args(given)
    unknown = [argument for argument in rest if argument.startswith("-") or not hasattr(arguments, "pairs")]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if rest:
        arguments.pairs += rest
    return arguments


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"coretools-mcp: {message}\n")
    return code


def _serve(arguments: argparse.Namespace, report: SettingsReport) -> int:
    # What is imported here stays until the end; looking for garbage in it meanwhile costs a tenth of the start.
    gc.disable()
    from server.serving import ListenError, leave, serve  # noqa: PLC0415 - the SDK is imported only where needed

    gc.freeze()
    # A large result makes ten thousands of small objects that are all in use: looking at them for garbage every 700
    # costs a twentieth of such a call.
    gc.set_threshold(10_000, 10, 10)
    gc.enable()

    try:
        serve(report, arguments.transport)
    except ListenError as error:
        return _fail(str(error), EXIT_ADDRESS)
    return leave(0)


def _tools(arguments: argparse.Namespace, report: SettingsReport) -> int:
    from server.terminal import show_tools  # noqa: PLC0415 - the SDK is imported only where it is needed

    return show_tools(report, as_json=arguments.json)


def _call(arguments: argparse.Namespace, report: SettingsReport) -> int:
    from server.terminal import UsageError, make_call, read_arguments  # noqa: PLC0415 - as above

    del report  # checked here for a clear error; the server that answers the call loads it again
    try:
        given = read_arguments(arguments.pairs, arguments.json)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    return make_call(arguments.tool, given, _server_options(arguments))


def _explain(arguments: argparse.Namespace, report: SettingsReport) -> int:
    from server.explain import explain_call, read_call  # noqa: PLC0415 - the SDK is imported only where needed
    from server.terminal import UsageError  # noqa: PLC0415 - as above

    try:
        call = read_call(arguments.tool, arguments.pairs, arguments.arguments)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    return explain_call(report, call, as_json=arguments.json)


def _server_options(arguments: argparse.Namespace) -> list[str]:
    """The options of this command as options of `serve`."""
    options: list[str] = []
    for name in ("workspace", "config"):
        for value in getattr(arguments, name):
            options += [f"--{name}", value]
    if arguments.approval_mode:
        options += ["--approval-mode", arguments.approval_mode]
    return options


def _overrides(arguments: argparse.Namespace) -> Mapping[str, Any]:
    """What the command line says, in the shape of a settings file."""
    overrides: dict[str, Any] = {}
    if arguments.workspace:
        for folder in arguments.workspace:
            if not os.path.isdir(folder):
                raise SettingsError([f"--workspace '{folder}' is not an existing folder. Name one that exists."])
        overrides["workspace"] = {"roots": [os.path.abspath(folder) for folder in arguments.workspace]}
    if arguments.approval_mode:
        overrides["approvalMode"] = arguments.approval_mode
    http = {name: value for name in ("host", "port") if (value := getattr(arguments, name, None)) is not None}
    if http:
        overrides["http"] = http
    return overrides


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--workspace", action="append", default=[], metavar="DIR", help="a folder the tools may touch (repeatable)"
    )
    shared.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="a settings file (repeatable, later ones win)"
    )
    shared.add_argument(
        "--approval-mode", choices=("plan", "default", "auto-edit", "yolo"), help="how much may happen unasked"
    )
    parser = argparse.ArgumentParser(
        prog="coretools-mcp",
        description="The core tools of Qwen Code and Gemini CLI for any MCP client, and a proxy for other MCP servers.",
    )
    parser.add_argument("--version", action="version", version=f"coretools-mcp {metadata.version('coretools-mcp')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", parents=[shared], help="serve MCP; the command where none is given")
    serve.add_argument("--transport", choices=("stdio", "http", "sse"), default="stdio")
    serve.add_argument("--host", help="loopback address to listen on (http, sse; default 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on (http, sse; default 8808; 0 for any)")
    serve.set_defaults(run=_serve)
    tools = commands.add_parser("tools", parents=[shared], help="list what a client would see")
    tools.add_argument("--json", action="store_true", help="as a JSON array")
    tools.set_defaults(run=_tools)
    call = commands.add_parser("call", parents=[shared], help="make one call and show the result")
    call.add_argument("tool", help="the tool's name")
    call.add_argument("pairs", nargs="*", metavar="key=value", help="its arguments")
    call.add_argument("--json", metavar="ARGS", help="its arguments as a JSON object")
    call.set_defaults(run=_call)
    permissions = commands.add_parser("permissions", help="what calls may do")
    about = permissions.add_subparsers(title="commands", metavar="COMMAND", required=True)
    explain = about.add_parser("explain", parents=[shared], help="what would be decided on a call, and why")
    explain.add_argument("tool", metavar="CALL", help="the tool's name, or a call like 'Bash(git push)'")
    explain.add_argument("pairs", nargs="*", metavar="key=value", help="its arguments")
    explain.add_argument("--arguments", metavar="ARGS", help="its arguments as a JSON object")
    explain.add_argument("--json", action="store_true", help="answer as JSON")
    explain.set_defaults(run=_explain)
    return parser
