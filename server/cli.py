"""The command: settings, logging, exit codes. What the commands do stands elsewhere."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from server.arguments import EXIT_ADDRESS, EXIT_FAILED, EXIT_USAGE, Command, overrides_of, parse, server_options
from server.log import flush_log, start_log
from server.settings import SettingsError, SettingsReport, default_settings, load_settings
from server.watchdog import start_watchdog
from tools.contract.display import visible
from tools.contract.exhaustion import ExhaustedError, exhaustion_of, share_arenas
from tools.shell.broker.process_privacy import make_private


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help", "--version")):
        given.insert(0, "serve")
    arguments = parse(given, COMMANDS)
    try:
        code: int = arguments.run(arguments)
    except SettingsError as error:
        return _fail(str(error), EXIT_USAGE)
    except (ExhaustedError, MemoryError, OSError, RuntimeError) as error:
        exhaustion = exhaustion_of(error)
        if exhaustion is None:
            raise
        return _fail(f"{exhaustion.why}; raise the limits (`ulimit -a`, those of the container)", EXIT_FAILED)
    flush_log()
    return code


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"coretools-mcp: {visible(message)}\n")
    return code


def _read(arguments: argparse.Namespace) -> SettingsReport:
    return load_settings(arguments.config, overrides_of(arguments), os.environ, cli=arguments.settings)


def _settings(arguments: argparse.Namespace) -> SettingsReport:
    """The settings for a command that works with them: the log is started, and has the warnings.

    Raises:
        SettingsError: They cannot be used.
    """
    report = _read(arguments)
    start_log(report.settings.log.level)
    for warning in report.warnings:
        logging.getLogger("server.settings").warning(warning)
    return report


def _serve(arguments: argparse.Namespace) -> int:
    make_private()  # before there is a watchdog, which is a copy of this process
    share_arenas()
    watchdog = start_watchdog(has_wire=arguments.transport == "stdio")
    try:
        report = _settings(arguments)
    except BaseException:
        watchdog.close()
        raise
    # What is imported here stays until the end; looking for garbage in it meanwhile costs a tenth of the start.
    gc.disable()
    from server.serving import ListenError, leave, serve  # noqa: PLC0415 - the SDK is imported only where needed

    gc.freeze()
    # A large result makes ten thousands of small objects that are all in use: looking at them for garbage every 700
    # costs a twentieth of such a call.
    gc.set_threshold(10_000, 10, 10)
    gc.enable()

    try:
        serve(report, arguments.transport, watchdog)
    except ListenError as error:
        return _fail(str(error), EXIT_ADDRESS)
    return leave(0)


def _tools(arguments: argparse.Namespace) -> int:
    report = _settings(arguments)
    from server.console.tools import show_tools  # noqa: PLC0415 - the SDK, which takes long, only with settings it can use

    return show_tools(report, as_json=arguments.json)


def _call(arguments: argparse.Namespace) -> int:
    _read(arguments)  # for a clear error; the server that answers the call reads them again, and tells the warnings
    from server.console.call import UsageError, make_call, read_arguments  # noqa: PLC0415 - as above

    try:
        given = read_arguments(arguments.pairs, arguments.arguments)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    return make_call(arguments.tool, given, server_options(arguments))


def _explain(arguments: argparse.Namespace) -> int:
    report = _settings(arguments)
    from server.console.call import UsageError  # noqa: PLC0415
    from server.console.explain import explain_call, read_call  # noqa: PLC0415 - as above

    try:
        call = read_call(arguments.tool, arguments.pairs, arguments.arguments)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    return explain_call(report, call, as_json=arguments.json)


def _trust(arguments: argparse.Namespace) -> int:
    from server.console import trust  # noqa: PLC0415 - only this command needs it
    from server.console.prompts import Failure  # noqa: PLC0415

    try:
        if arguments.list:
            return trust.list_trusted(os.environ)
        if arguments.remove:
            return trust.remove(arguments.folder, os.environ)
        return trust.add(arguments.folder, os.environ, is_sure=arguments.yes)
    except Failure as failure:
        return _fail(str(failure), EXIT_FAILED)


def _doctor(arguments: argparse.Namespace) -> int:
    overrides_of(arguments)  # what is wrong with the command itself is no finding
    problems: tuple[str, ...] = ()
    try:
        report = _settings(arguments)
    except SettingsError as error:
        report, problems = default_settings(os.environ), error.problems
    from server.console.doctor import examine  # noqa: PLC0415 - as above

    return examine(report, problems, as_json=arguments.json)


def _config_check(arguments: argparse.Namespace) -> int:
    from server.console.config import check  # noqa: PLC0415 - only this command needs it

    arguments.config += [arguments.file] if arguments.file is not None else []
    return check(lambda: _read(arguments))


def _config_show(arguments: argparse.Namespace) -> int:
    from server.console.config import show  # noqa: PLC0415 - only this command needs it

    return show(_settings(arguments), as_json=arguments.json)


def _config_import(arguments: argparse.Namespace) -> int:
    from server.console.config import import_servers  # noqa: PLC0415
    from server.console.prompts import Failure  # noqa: PLC0415 - only this command needs it

    try:
        return import_servers(
            arguments.client, os.environ, prints=arguments.print, force=arguments.force, is_sure=arguments.yes
        )
    except Failure as failure:
        return _fail(str(failure), EXIT_FAILED)


COMMANDS: Mapping[str, Command] = {
    "serve": _serve,
    "tools": _tools,
    "call": _call,
    "permissions explain": _explain,
    "trust": _trust,
    "doctor": _doctor,
    "config check": _config_check,
    "config show": _config_show,
    "config import": _config_import,
}
"""What each command does."""
