"""The command line: arguments, settings, logging and exit codes. The commands themselves are in `server/console/`."""

from __future__ import annotations

import argparse
import errno
import gc
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, cast

from server import VERSION
from server.administration.log import flush_log, start_log
from server.administration.watchdog import Watchdog, start_watchdog
from server.console import (
    CALL_BROKEN,
    CALL_SETTINGS,
    CALL_USAGE,
    EXIT_ADDRESS,
    EXIT_CLOSED_PIPE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    CommandFailure,
    UsageError,
)
from tools.contract.display import visible
from tools.contract.tool_errors import exhaustion_of

if TYPE_CHECKING:
    from server.settings import SettingsReport

CALL_CODES = (
    "The exit code is 0, or the code of the command that ran. Codes of coretools-mcp itself: 64 wrong usage; 65 the "
    "tool failed; 69 the tool's server is unavailable; 70 internal error; 77 the call was refused; 78 invalid "
    "settings; 130 Ctrl-C."
)


def main(argv: Sequence[str] | None = None) -> int:
    command_line = list(sys.argv[1:] if argv is None else argv)
    if not os.environ.get("HOME", "unset"):
        del os.environ["HOME"]  # an empty variable would stand for `/`, so the real home folder would not be protected
    if command_line[:1] == ["help"]:
        command_line = [*command_line[1:], "--help"]
    elif command_line == ["version"]:
        command_line = ["--version"]
    elif not command_line or (
        command_line[0].startswith("-") and command_line[0] not in ("-h", "--help", "-V", "--version")
    ):
        command_line = with_command(command_line)
    try:
        try:
            arguments = parse(command_line)
        finally:
            sys.stdout.flush()  # even if --help or --version exits the process
    except OSError as error:
        return _fail_with(error, is_call=False)
    watchdog = None
    if arguments.command in ("serve", "call") and sys.platform == "linux":
        from tools.shell.broker.confinement import make_private  # noqa: PLC0415 - loads ctypes for a system call

        make_private()  # called before the watchdog starts, because the watchdog is a fork of this process
    if arguments.command == "serve":
        watchdog = start_watchdog(has_wire=arguments.transport == "stdio")
        gc.disable()
    try:
        code = _run(arguments) if watchdog is None else _serve(arguments, watchdog)
        sys.stdout.flush()
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 - no traceback for users
        if watchdog is not None:
            watchdog.leaving()
        code = _fail_with(error, is_call=arguments.command == "call")
    flush_log()
    if watchdog is not None:
        os._exit(code)  # an abandoned worker thread must not keep the process alive
    return code


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        at_its_start = "\r" if code == EXIT_INTERRUPTED and sys.stderr.isatty() else ""  # overwrites ^C on the terminal
        sys.stderr.write(f"{at_its_start}coretools-mcp: {visible(message)}\n")
    return code


def _fail_with(error: BaseException, *, is_call: bool) -> int:
    # This is imported only here, because memory pages that exist when the watchdog is forked may be copied later.
    from server.settings import SettingsError  # noqa: PLC0415

    failure_code = CALL_BROKEN if is_call else EXIT_FAILED
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    match error:
        case KeyboardInterrupt():
            return _fail("interrupted", EXIT_INTERRUPTED)
        case SettingsError():
            return _fail(str(error), CALL_SETTINGS if is_call else EXIT_USAGE)
        case UsageError():
            return _fail(str(error), CALL_USAGE if is_call else EXIT_USAGE)
        case CommandFailure():
            return _fail(str(error), failure_code)
        case OSError(errno=errno.EPIPE | errno.ENOSPC | errno.EDQUOT as number):
            # This prevents a second failure when the interpreter flushes output at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if number == errno.EPIPE:
                return EXIT_CLOSED_PIPE
            return _fail("there is no space left for the output", failure_code)
        case _ if (exhaustion := exhaustion_of(error)) is not None:
            advice = "raise the limits (those that `ulimit -a` shows, or the container's)"
            return _fail(f"{exhaustion.why}; {advice}", failure_code)
        case _:
            logging.getLogger("server").debug("an internal error", exc_info=error)
            advice = "please report it; with log.level debug, the log says where it happened"
            return _fail(f"an internal error ({type(error).__name__}); {advice}", failure_code)


def _read(arguments: argparse.Namespace) -> SettingsReport:
    from server.settings import load_settings  # noqa: PLC0415 - imported only after the watchdog is forked

    overrides = overrides_of(arguments)
    report = load_settings(arguments.config, overrides, os.environ, cli=arguments.settings)
    if included_names := overrides.get("tools", {}).get("include"):
        from server.settings.rule_names import unknown_tools  # noqa: PLC0415 - rarely needed

        if problems := list(unknown_tools(included_names, report)):
            raise UsageError("\n".join(f"--include-tools: {problem}" for problem in problems))
    return report


def _settings(arguments: argparse.Namespace) -> SettingsReport:
    """Load the settings for a command, start the log, and log the warnings."""
    report = _read(arguments)
    start_log(report.settings.log.level)
    for warning in report.warnings:
        logging.getLogger("server.settings").warning(warning)
    return report


def _serve(arguments: argparse.Namespace, watchdog: Watchdog) -> int:
    report = _settings(arguments)
    from server.run_server import serve  # noqa: PLC0415 - the SDK is imported only where needed
    from server.transports.http_options import ListenError  # noqa: PLC0415

    # Objects imported so far live until exit. Collecting garbage among them would take a tenth of the startup time.
    gc.freeze()
    # A large result creates tens of thousands of small objects that are all in use. A garbage collection after every
    # 700 objects would take a twentieth of such a call's time.
    gc.set_threshold(10_000, 10, 10)
    gc.enable()

    try:
        number = serve(report, arguments.transport, watchdog)
    except ListenError as error:
        return _fail(str(error), EXIT_ADDRESS)
    if number == signal.SIGINT and sys.stderr.isatty():
        return _fail("interrupted", EXIT_INTERRUPTED)
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Run a terminal command. Its module is imported only here, and the SDK only if the settings are valid."""
    raw = cast("io.TextIOWrapper[Any]", sys.stdout).buffer
    if isinstance(raw, io.RawIOBase):  # with PYTHONUNBUFFERED, the rest of an incomplete write would be lost silently
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), sys.stdout.encoding, line_buffering=True)
    # Escape characters that the terminal cannot encode, instead of failing.
    cast("io.TextIOWrapper[Any]", sys.stdout).reconfigure(errors="backslashreplace")
    from server.console.terminal import choose_colour  # noqa: PLC0415 - serve does not need it

    choose_colour(arguments.color)
    match arguments.command:
        case "tools":
            report = _settings(arguments)
            from server.console.tools_and_permissions import show_tools  # noqa: PLC0415

            return show_tools(report, as_json=arguments.json)
        case "lock":
            report = _settings(arguments)
            from server.console.lock_command import lock  # noqa: PLC0415

            action = "check" if arguments.check else "diff" if arguments.diff else "write"
            return lock(report, action, arguments.approve, as_json=arguments.json, is_sure=arguments.yes)
        case "call":
            report = _settings(arguments)
            from server.console.call_command import make_call, read_arguments  # noqa: PLC0415

            tool, call_arguments = arguments.tool, read_arguments(arguments.pairs, arguments.arguments)
            return make_call(tool, call_arguments, report, is_sure=arguments.yes, as_json=arguments.output == "json")
        case "permissions explain":
            report = _settings(arguments)
            from server.console.tools_and_permissions import explain_call, read_call  # noqa: PLC0415

            tool, call_arguments = read_call(arguments.tool, arguments.pairs, arguments.arguments)
            return explain_call(report, tool, call_arguments, arguments.principal, as_json=arguments.json)
        case "trust":
            from server.console import trust_command  # noqa: PLC0415

            if arguments.list:
                return trust_command.list_trusted(os.environ)
            if arguments.remove:
                return trust_command.remove(arguments.folder or ".", os.environ)
            return trust_command.add(arguments.folder or ".", os.environ, is_sure=arguments.yes)
        case "changes" | "undo" as command:
            report = _settings(arguments)
            from server.console import undo_commands  # noqa: PLC0415

            if command == "changes":
                return undo_commands.show_changes(report, as_json=arguments.json)
            if arguments.forget:
                return undo_commands.forget(report, is_sure=arguments.yes)
            return undo_commands.undo(report, arguments.id, is_sure=arguments.yes)
        case "install" | "uninstall" as command:
            from server.console.install_commands import InstallOptions, install, list_clients, uninstall  # noqa: PLC0415

            client, is_sure, is_dry = arguments.client, arguments.yes, arguments.dry_run
            options = InstallOptions(client, arguments.name, arguments.scope, is_sure=is_sure, is_dry=is_dry)
            if command == "uninstall":
                return uninstall(options, os.environ)
            if client is None:
                return list_clients(os.environ)
            tool_options = {"profile": arguments.profile, "approval_mode": arguments.approval_mode}
            folders, imports, prints = tuple(arguments.workspace), arguments.imports, arguments.print
            options = replace(options, workspaces=folders, imports=imports, prints=prints, **tool_options)
            return install(options, os.environ)
        case "login" | "logout" as command:
            report = _settings(arguments)
            from server.console import login_commands  # noqa: PLC0415

            if command == "login" and arguments.list:
                return login_commands.list_logins(report, as_json=arguments.json)
            alias, principal = arguments.server, arguments.principal
            if command == "logout":
                return login_commands.log_out(report, alias, principal)
            return login_commands.log_in(report, alias, principal, opens_browser=not arguments.no_browser)
        case "doctor":
            overrides_of(arguments)  # reports an invalid command line at once, instead of as a finding
            from server.console.doctor import examine  # noqa: PLC0415

            return examine(lambda: _settings(arguments), os.environ, as_json=arguments.json)
        case "status" | "logs" | "dashboard" as command:
            if sys.platform == "win32":
                raise UsageError(f"{command} is not available on Windows, where running servers cannot be queried")
            from server.console.status import ServerSelection, open_dashboard, show_logs, show_status  # noqa: PLC0415

            selection = ServerSelection(arguments.workspace, arguments.pid)
            if command == "status":
                return show_status(os.environ, selection, as_json=arguments.json)
            if command == "dashboard":
                return open_dashboard(os.environ, selection, opens_browser=not arguments.no_browser)
            return show_logs(os.environ, arguments.server, selection, follows=arguments.follow)
        case "completion":
            from server.console.shell_completion import script  # noqa: PLC0415

            sys.stdout.write(script(arguments.shell, *command_parser()))
            return 0
        case "config init" | "config add" | "config remove" | "config enable" | "config disable" as words:
            from server.console import config_commands as edits  # noqa: PLC0415

            edit = edits.EditOptions(arguments.config, is_sure=arguments.yes, is_dry=arguments.dry_run)
            if words == "config init":
                return edits.init(edit, os.environ)
            if words != "config add":
                return edits.change_server(words.removeprefix("config "), arguments.name, edit, os.environ)
            words, variables, headers = arguments.server, arguments.env, arguments.header
            entry = edits.entry_for(words, arguments.transport, variables, headers, arguments.cwd)
            optional_fields = {"description": arguments.description, "trust": arguments.trust}
            entry |= {key: value for key, value in optional_fields.items() if value}
            force, connects = arguments.force, not arguments.no_check
            return edits.add(arguments.name, entry, edit, os.environ, replaces=force, connects=connects)
        case "config check":
            from server.console.config_commands import check  # noqa: PLC0415

            arguments.config = [*arguments.config, *([arguments.file] if arguments.file is not None else [])]
            return check(lambda: _read(arguments))
        case "config show":
            report = _settings(arguments)
            from server.console.config_commands import show_settings  # noqa: PLC0415

            return show_settings(report, as_json=arguments.json)
        case "config import":
            from server.console.config_commands import import_servers  # noqa: PLC0415

            is_sure, force = arguments.yes, arguments.force
            return import_servers(arguments.client, os.environ, prints=arguments.print, force=force, is_sure=is_sure)
        case words:
            raise AssertionError(f"nothing runs the command {words}")


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error as a message and a reference to `--help`, without argparse's usage text."""

    usage_code = EXIT_USAGE  # the exit code after an error; `call` has its own

    def error(self, message: str) -> NoReturn:
        text = message.replace("invalid int value:", "expected a number, got")  # argparse's wording
        self.exit(self.usage_code, f"coretools-mcp: {text}\nSee {self.prog} --help.\n")


def parse(command_line: Sequence[str]) -> argparse.Namespace:
    """Parse a command line, or print an error and exit. In the result, `command` is the full name of the command."""
    parser, commands = command_parser()
    for count in (1, 2):
        words, known_names = list(command_line[:count]), {tuple(name.split()[:count]) for name in commands}
        is_complete = len(words) < count or words[-1].startswith("-") or " ".join(words[:-1]) in commands
        if not is_complete and tuple(words) not in known_names:
            from server.settings.rule_names import did_you_mean  # noqa: PLC0415 - needed only if the command is mistyped

            candidates = sorted(" ".join(known) for known in known_names if list(known[:-1]) == words[:-1])
            hint = did_you_mean(" ".join(words), candidates, f" The commands are {', '.join(candidates)}.")
            parser.error(f"there is no command '{' '.join(words)}'.{hint}")
    command_words: list[str] = []  # the words after `--`: the command line of another program
    if list(command_line[:2]) == ["config", "add"] and "--" in command_line:
        separator = command_line.index("--")
        command_line, command_words = command_line[:separator], list(command_line[separator + 1 :])
    arguments, after_options = parser.parse_known_args(command_line)
    command = commands[arguments.command]
    unknown = [word.partition("=")[0] for word in after_options if word.startswith("-")]
    if unknown:
        from server.settings.rule_names import nearest  # noqa: PLC0415 - needed only if the command is mistyped

        options = re.findall(r"--[a-z-]+", command.format_help())
        suggestions = [near for word in unknown if (near := nearest(word, options))]
        hint = f" Did you mean {', '.join(suggestions)}?" if suggestions else ""
        hint += " Put the options of the server's command after --." if arguments.command == "config add" else ""
        command.error(f"there is no option {', '.join(unknown)} here.{hint}")
    # Some commands accept any number of words, but argparse collects only consecutive ones.
    words_of = {"call": "pairs", "permissions explain": "pairs", "config add": "server"}.get(arguments.command)
    if after_options and words_of is None:
        command.error(f"too many words: {' '.join(after_options)}")
    if words_of is not None:
        setattr(arguments, words_of, [*getattr(arguments, words_of), *after_options, *command_words])
    if arguments.command == "login" and not arguments.list and arguments.server is None:
        command.error("which server? Name one from mcpServers, or use --list.")
    for option, reason in _without_effect(arguments):
        command.error(f"{option} has no effect {reason}.")
    return arguments


def _without_effect(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield each option that has no effect in combination with the others, and why, as the end of a sentence."""
    match arguments.command:
        case "serve" if arguments.transport == "stdio":
            for name in ("host", "port", "tls_cert", "tls_key"):
                if getattr(arguments, name) is not None:
                    yield f"--{name.replace('_', '-')}", "over stdio. Add --transport http"
        case "trust" if arguments.list or arguments.remove:
            if arguments.yes:
                yield "--yes", f"with {'--list' if arguments.list else '--remove'}, which needs no confirmation"
            if arguments.list and arguments.folder is not None:
                yield "DIR", "with --list, which lists all folders"
        case "undo" if arguments.forget and arguments.id is not None:
            yield "ID", "with --forget, which forgets all changes"
        case "lock":
            if arguments.approve and arguments.json:
                yield "--json", "with --approve"
            if arguments.yes and (arguments.diff or arguments.check):
                yield "--yes", f"with {'--diff' if arguments.diff else '--check'}, which needs no confirmation"
        case "login" if arguments.list:
            if arguments.server is not None:
                yield "SERVER", "with --list, which lists all logins"
            if arguments.no_browser:
                yield "--no-browser", "with --list"
        case "login" if arguments.json:
            yield "--json", "without --list"
        case _:
            pass


CLIENTS = "claude-desktop, claude-code, cursor, vscode, gemini, qwen, codex, zed, windsurf, opencode, continue"
MODES = ("plan", "default", "auto-edit", "yolo")
PROFILES = ("none", "core", "full")
READS_SETTINGS = frozenset(  # the commands that accept the general options about settings
    {"serve", "tools", "lock", "call", "permissions explain", "login", "logout", "changes", "undo", "doctor"}
    | {"config check", "config show"}
)


def with_command(command_line: Sequence[str]) -> list[str]:
    """Move general options from before the command to after it, or insert `serve` if there is no command."""
    general, commands = _Parser(add_help=False, exit_on_error=False), command_parser()[1]
    _add_general(general.add_argument, is_shared=True, is_shown=True)
    for at, word in enumerate(command_line):
        words = next((words for words in (command_line[at : at + 2], [word]) if " ".join(words) in commands), None)
        with suppress(argparse.ArgumentError):
            if words is not None and not general.parse_known_args(command_line[:at])[1]:
                return [*words, *command_line[:at], *command_line[at + len(words) :]]
    return ["serve", *command_line]


def _path(text: str) -> str:
    """Expand `~/`, as in settings: a client that starts this program without a shell passes it unchanged."""
    return os.path.expanduser(text) if text == "~" or text.startswith(("~/", f"~{os.sep}")) else text


def _add_general(add: Callable[..., object], *, is_shared: bool, is_shown: bool) -> None:
    """Add the general options: with `is_shared`, those about the settings, and with `is_shown`, `--color`."""
    if is_shared:
        several: dict[str, Any] = {"action": "append", "default": []}
        add("--workspace", **several, type=_path, metavar="DIR", help="a folder that the tools may use (repeatable)")
        add("--config", **several, type=_path, metavar="FILE", help="a settings file (repeatable; later files win)")
        add("--settings", choices=("qwen", "gemini"), help="also read the settings of Qwen Code or Gemini CLI")
        add("--approval-mode", choices=MODES, help="how much may happen without a question")
        add("--no-builtin-tools", action="store_true", help="offer only the tools of other servers, and custom tools")
        help_text = "which built-in tools to offer: full (the default), core (files, search and commands) or none"
        add("--profile", choices=PROFILES, help=help_text)
        for option, effect in (("--include-tools", "offer only"), ("--exclude-tools", "do not offer")):
            help_text = f"{effect} these tools, named as in permission rules (repeatable)"
            add(option, **several, metavar="NAME,...", help=help_text)
        add("--no-prefix", action="store_true", help="publish the tools of other servers without a prefix")
    if is_shown:
        colours = "use colour (auto: at a terminal, unless NO_COLOR or TERM=dumb is set; FORCE_COLOR takes precedence)"
        add("--color", choices=("auto", "always", "never"), default="auto", help=colours)


@cache
def command_parser() -> tuple[argparse.ArgumentParser, dict[str, _Parser]]:
    """Return the command-line parser, and the parser of each command, keyed by the command's name."""
    commands: dict[str, _Parser] = {}
    parser = _Parser(
        prog="coretools-mcp",
        description="The core tools of Qwen Code and Gemini CLI for any MCP client, and a proxy for other MCP servers.",
        epilog="The default command is serve. Its options: coretools-mcp serve --help",
    )
    parser.add_argument("-V", "--version", action="version", version=f"coretools-mcp {VERSION}")

    def group(parser: argparse.ArgumentParser) -> Any:
        return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    top = group(parser)
    groups = {"": top}  # the subcommands, keyed by the words before the last word of a command's name

    def command(words: str, summary: str, details: str = "") -> Callable[..., object]:
        """Add a command, and return the method that adds its arguments; `words` is its full name, such as `config add`.

        The list of commands shows `summary`; the command's own help adds `details`.
        """
        description = f"{summary[0].upper()}{summary[1:]}. {details}".strip()
        group_name, _, name = words.rpartition(" ")
        subparser = commands[words] = groups[group_name].add_parser(name, help=summary, description=description)
        subparser.set_defaults(command=words)
        return subparser.add_argument

    add = command("serve", "serve MCP (the default command)")
    add("--transport", choices=("stdio", "http", "sse"), default="stdio", help="how clients connect (default: stdio)")
    add("--host", help="address to listen on (http, sse; default 127.0.0.1); any address but loopback needs a token")
    add("--port", type=int, help="port to listen on (http, sse; default 8808; 0 for any free port)")
    add("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate (PEM)")
    add("--tls-key", metavar="FILE", help="the certificate's private key (PEM), if it is in another file")
    tools = command("tools", "list the tools that a client would see")
    details = (
        "This writes mcp.lock.json next to the last --config file, or else next to your own settings. From then on, a "
        "tool that its server changes or adds is blocked until a person approves it."
    )
    lock = command("lock", "approve the current tools of other servers", details)
    add = commands["lock"].add_mutually_exclusive_group().add_argument
    add("--diff", action="store_true", help="only show the differences from mcp.lock.json")
    help_text = "only show the differences; exit code 1 if they block a tool, else 2 if the file or a server "
    add("--check", action="store_true", help=f"{help_text}cannot be reached")
    add("--approve", nargs="+", default=[], metavar="NAME", help="approve only these tools or servers")
    lock("--yes", action="store_true", help="do not ask for confirmation")
    call = command("call", "make one call and show the result", CALL_CODES)
    commands["call"].usage_code = CALL_USAGE
    call("tool", help="the tool's name")
    help_text, description = "explain what calls may do", "Explains what calls may do."
    groups["permissions"] = group(top.add_parser("permissions", help=help_text, description=description))
    explain = command("permissions explain", "show what would be decided about a call, and why")
    explain("tool", metavar="CALL", help="the tool's name, or a call like 'Bash(git push)'")
    help_text = "decide for this token of http.tokens, or this principal of http.oauth (default: you)"
    explain("--as", dest="principal", default="", metavar="NAME", help=help_text)
    for add in (call, explain):
        add("pairs", nargs="*", default=[], metavar="key=value", help="the tool's arguments")
        help_text = "the arguments as a JSON object, @FILE or - (standard input); key=value pairs override its members"
        add("--arguments", metavar="ARGS", help=help_text)
    call("--output", choices=("text", "json"), default="text", help="how to print the result")
    call("--json", dest="output", action="store_const", const="json", help="the same as --output json")
    call("--yes", action="store_true", help="allow this call if the server asks for consent")
    details = (
        "Without CLIENT, this lists the known clients and shows which of them have this server. With CLIENT, it shows "
        "the change to the client's file, asks for confirmation, starts the server as the client would, and says what "
        "is left to do."
    )
    install = command("install", "add this server to an MCP client", details)
    details = "Restores the original file, or only removes the entry if the file has changed since the install."
    uninstall = command("uninstall", "remove this server from an MCP client", details)
    install("client", metavar="CLIENT", help=CLIENTS, nargs="?")
    uninstall("client", metavar="CLIENT", help=CLIENTS)
    for add in (install, uninstall):
        add("--name", help="the name of the entry (default: core)")
        help_text = "your own file (default), or the project's file in the working folder"
        add("--scope", choices=("user", "project"), default="user", help=help_text)
        add("--yes", action="store_true", help="do not ask for confirmation")
        add("--dry-run", action="store_true", help="show the change without making it")
    help_text = "a folder that the tools may use (repeatable), for clients that do not say which folder is open"
    install("--workspace", action="append", default=[], type=_path, metavar="DIR", help=help_text)
    help_text = "which built-in tools to offer: none (only upstream tools), core or full"
    install("--profile", choices=PROFILES, help=help_text)
    install("--approval-mode", choices=MODES, help="how much may happen without a question")
    install("--print", action="store_true", help="print the entry without changing anything")
    help_text = "move the client's other servers into your settings, so that the client reaches them through this one"
    install("--import", action="store_true", dest="imports", help=help_text)
    details = (
        "A folder's own settings (.coretools/settings.json, and with --settings those of Qwen Code or Gemini CLI) "
        "can start programs and allow calls. They are not read until a person has reviewed them. This shows what "
        "they would do and asks for confirmation. After any change, the settings must be trusted again."
    )
    add = command("trust", "trust the current settings of a workspace", details)
    add("folder", nargs="?", metavar="DIR", help="the workspace (default: the working folder)")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add = commands["trust"].add_mutually_exclusive_group().add_argument
    add("--remove", action="store_true", help="stop trusting the folder")
    add("--list", action="store_true", help="list the trusted folders")
    details = (
        "Opens the server's authorization server in a browser, and stores the login on this machine, or in the store "
        "that replicas share. Running servers use the login at once."
    )
    login = command("login", "log in to an upstream server", details)
    logout = command("logout", "log out of an upstream server")
    login("server", nargs="?", metavar="SERVER", help="the server's alias in mcpServers")
    logout("server", metavar="SERVER", help="the server's alias in mcpServers")
    help_text = "print the address and read the redirect address from standard input"
    login("--no-browser", action="store_true", help=help_text)
    login("--list", action="store_true", help="list the stored logins")
    login("--json", action="store_true", help="with --list: print JSON")
    for add in (login, logout):
        help_text = "the owner of the login: a token of http.tokens, or a user of http.oauth.issuer (default: you)"
        add("--as", dest="principal", default="", metavar="NAME", help=help_text)
    help_text = "list the file changes that can be undone, whichever client made them"
    changes = command(
        "changes", help_text, "Lists changes in the workspace of the settings, or else in the working folder."
    )
    details = (
        "This shows what would change and asks for confirmation. A file that has changed since the tool changed it is "
        "left unchanged. Changes by commands and other programs cannot be undone."
    )
    add = command("undo", "undo a file change that a tool made", details)
    help_text = "the change's number in the output of coretools-mcp changes (default: the latest change not yet undone)"
    add("id", nargs="?", type=int, metavar="ID", help=help_text)
    help_text = "delete everything that is kept to undo changes, for every workspace"
    add("--forget", action="store_true", help=help_text)
    add("--yes", action="store_true", help="do not ask for confirmation")
    doctor = command("doctor", "check what works here, and say how to fix the rest")
    details = "Shows the clients of each server, their folders, and the upstream servers."
    status = command("status", "show what the running servers are doing", details)
    details = "If several servers are running, the one that works in the working folder is used."
    logs = command("logs", "print the latest lines of a running server's log", details)
    logs("server", nargs="?", metavar="SERVER", help="only lines about this upstream server")
    logs("-f", "--follow", action="store_true", help="keep printing new lines, until Ctrl-C")
    details = (
        "The dashboard shows what the server is doing, and asks the user the server's questions if the client cannot. "
        f"This command prints a link that signs in one browser and works once. {details}"
    )
    dashboard = command("dashboard", "open the dashboard of a running server", details)
    dashboard("--no-browser", action="store_true", help="print the link without opening a browser")
    for add in (status, logs, dashboard):
        add("--workspace", type=_path, metavar="DIR", help="the server that works in this folder")
        add("--pid", type=int, help="the process ID of the running server, as status prints it")
    help_text = "check, show or change settings"
    groups["config"] = group(top.add_parser("config", help=help_text, description=f"{help_text.capitalize()}."))
    add = command(
        "config check", "report problems and warnings; exit code 1 if the server would not start or an entry is invalid"
    )
    add("file", nargs="?", metavar="FILE", help="another settings file, added to those of --config")
    show = command("config show", "show every value that is set, and where it is set; secrets are hidden")
    for add in (explain, tools, lock, changes, doctor, status, show):
        add("--json", action="store_true", help="print JSON")
    details = (
        "This shows what would be added and asks for confirmation. It looks only in your own files; to import from a "
        "project's file, name that file."
    )
    add = command("config import", "add the servers of an MCP client to your own settings", details)
    add("client", metavar="CLIENT", help=f"{CLIENTS}, or one of their files")
    add("--print", action="store_true", help="print the servers as settings, without changing anything")
    add("--force", action="store_true", help="replace servers that have the same name")
    add("--yes", action="store_true", help="do not ask for confirmation")
    details = (
        "A server is started by a command, or reached at its address. This shows the change to your own settings, "
        "asks for confirmation, then connects to the server once. If a value contains a secret from the environment, "
        "the settings refer to the environment variable instead."
    )
    add = command("config add", "add an upstream server", details)
    commands["config add"].usage = "coretools-mcp config add [options] NAME (URL | -- COMMAND [ARGS ...])"
    add("name", metavar="NAME", help="the name of the server, also the prefix of its tools")
    add("server", nargs="*", default=[], metavar="COMMAND", help="the command after --, or the address")
    help_text = "the transport (default: stdio for a command; http for a URL, or sse if http fails)"
    add("-t", "--transport", choices=("stdio", "http", "sse"), help=help_text)
    help_text = "a variable for the command (repeatable); KEY alone uses the value from the environment"
    add("-e", "--env", action="append", default=[], metavar="KEY=VALUE", help=help_text)
    help_text = "an HTTP header for the server, as 'Name: value' (repeatable)"
    add("-H", "--header", action="append", default=[], metavar="HEADER", help=help_text)
    add("--cwd", metavar="DIR", help="the command's working folder")
    add("--description", metavar="TEXT", help="what the server is for; clients see this")
    add("--trust", action="store_true", help="run the server's tools without a question")
    add("--force", action="store_true", help="replace a server that has the same name")
    add("--no-check", action="store_true", help="do not connect to the server")
    edits = [add]
    for verb, summary in (
        ("remove", "remove a server from the settings"),
        ("enable", "enable a server that is disabled"),
        ("disable", "keep a server in the settings, but do not use it"),
    ):
        add = command(f"config {verb}", summary, "Shows the change to the file and asks for confirmation.")
        add("name", metavar="NAME", help="the name of the server")
        edits.append(add)
    summary = "write an initial settings file, and next to it the schema for editors"
    details = "If the settings file exists, this only adds a reference to the schema."
    edits.append(command("config init", summary, details))
    for add in edits:
        add("--config", metavar="FILE", help="another settings file instead of your own")
        add("--yes", action="store_true", help="do not ask for confirmation")
        add("--dry-run", action="store_true", help="show the change without making it")
    details = 'For bash: eval "$(coretools-mcp completion bash)"'
    add = command("completion", "print a script that completes command lines in a shell", details)
    add("shell", choices=("bash", "zsh", "fish"), help="the shell")
    command("help", "show help for all commands, or for one")("words", nargs="*", metavar="COMMAND")
    command("version", "show the version")
    for words, subparser in commands.items():  # added last, so that help lists them after the command's own options
        general = subparser.add_argument_group("general options, also accepted before the command")
        _add_general(general.add_argument, is_shared=words in READS_SETTINGS, is_shown=words != "serve")
    return parser, commands


def overrides_of(arguments: argparse.Namespace) -> Mapping[str, Any]:
    from server.settings import SettingsError  # noqa: PLC0415 - imported only after the watchdog is forked

    overrides: dict[str, Any] = {}
    if arguments.workspace:
        for folder in arguments.workspace:
            if not os.path.isdir(folder):
                raise SettingsError([f"--workspace '{folder}' is not an existing folder. Name one that exists."])
        overrides["workspace"] = {"roots": [os.path.abspath(folder) for folder in arguments.workspace]}
    if arguments.approval_mode:
        overrides["approvalMode"] = arguments.approval_mode
    has_none = arguments.no_builtin_tools or arguments.profile == "none"
    tools: dict[str, Any] = {"builtIn": False} if has_none else {}
    tools |= {"profile": arguments.profile} if arguments.profile not in (None, "none") else {}
    for key, values in (("include", arguments.include_tools), ("exclude", arguments.exclude_tools)):
        tool_names = [name.strip() for text in values for name in text.split(",") if name.strip()]
        if tool_names:
            tools[key] = tool_names
        elif values:
            # An empty list is ambiguous: it could stand for all tools, or for none.
            raise SettingsError([f"--{key}-tools names no tool. Separate several names with commas."])
    names = {"host": "host", "port": "port", "tls_cert": "tlsCert", "tls_key": "tlsKey"}
    http = {key: value for name, key in names.items() if (value := getattr(arguments, name, None)) is not None}
    sections = {"tools": tools, "proxy": {"prefix": "none"} if arguments.no_prefix else {}, "http": http}
    return overrides | {name: section for name, section in sections.items() if section}
