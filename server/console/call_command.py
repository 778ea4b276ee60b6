"""`call`: starts a server as a child process for one tool call, and asks the server's questions at the terminal."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from server import VERSION
from server.console import CALL_BROKEN, CALL_FAILED, CALL_REFUSED, CALL_UNAVAILABLE, CALL_USAGE, UsageError
from server.console.terminal import DECISION, Spinner, diff_text, fill_in, is_consent, question_text, show
from server.protocol import json_rpc
from server.protocol.json_rpc import Json, MCPError, as_mapping
from server.protocol.revisions import LATEST_HANDSHAKE_VERSION
from server.requests.protocol_mapping import DISPLAY_KEY, ERROR_KEY, FACTS_KEY
from server.run_server import until_signal
from server.settings import SettingsReport
from server.settings.load import LockContent
from server.settings.settings_files import LOCK_NAME
from server.transports.json_lines import LineSplitter
from tools.contract.confirmation import Decision
from tools.contract.display import visible, visible_line
from tools.contract.tool_errors import HOW_TO_LIST, ToolErrorType
from tools.contract.tool_parameters import coerce
from tools.machine.threads import THREADS
from tools.permissions.tool_names import BETWEEN
from tools.shell.private_folders import PREFIX as OUTPUTS

END_SECONDS = 2.0  # how long the server may take to exit on its own, and again after SIGTERM (as in the official SDKs)
MESSAGE_BYTES = 256 << 20  # this server never sends a longer message
LAUNCHER = Path(__file__).resolve().parents[2] / "coretools_mcp.py"  # also valid in an installed package
MAX_LIST_WAIT = 60_000  # milliseconds; the maximum of proxy.firstListWait
MAX_OPTIONS = 50  # maximum number of schema parts searched for the type of one property
REST_SECONDS = 0.5  # how long to wait for the last log lines after the server exits
SHELL_NAMES = frozenset({"run_shell_command", "ShellTool", "Shell", "Bash"})
_CODES = {
    ToolErrorType.EXECUTION_DENIED: CALL_REFUSED,
    ToolErrorType.UPSTREAM_UNAVAILABLE: CALL_UNAVAILABLE,
    ToolErrorType.INVALID_TOOL_PARAMS: CALL_USAGE,
}
_KINDS = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array, as JSON",
    "object": "an object, as JSON",
    "null": "null",
}
"""A description of each JSON Schema type except string, in the order in which conversions to the types are tried."""

Ask = Callable[[Json], Awaitable[Json]]
"""Answers a server's question: fills in a form or opens an address. Raises `MCPError` if nobody can."""


@dataclass(frozen=True, slots=True)
class RawArguments:
    """The arguments of a call as written: an object, and pairs that are added to it or override its members."""

    whole: Mapping[str, Any]
    pairs: Mapping[str, str]

    def as_text(self) -> dict[str, Any]:
        """Return all arguments, with the pairs unconverted, for a tool that converts strings itself."""
        return {**self.whole, **self.pairs}

    def typed(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return all arguments, each pair converted to its type in the tool's schema; refuse one that does not fit."""
        return {**self.whole, **{key: _value(key, text, schema) for key, text in self.pairs.items()}}


def read_arguments(pairs: Sequence[str], as_json: str | None) -> RawArguments:
    """Read `key=value` pairs, and a JSON object given as JSON text, as `@FILE`, or as `-` for standard input."""
    whole: Any = {}
    if as_json is not None:
        text = as_json
        try:
            if as_json == "-":
                text = sys.stdin.read()
            elif as_json.startswith("@"):
                text = Path(as_json[1:]).read_text(encoding="utf-8")
            whole = json.loads(text)
        except OSError:
            raise UsageError(f"the file '{as_json[1:]}', given with --arguments, cannot be read.") from None
        except (ValueError, RecursionError):
            raise UsageError("--arguments is not valid JSON. Quote it as one word in the shell.") from None
        if not isinstance(whole, dict):
            raise UsageError('--arguments must be an object, for example \'{"path": "src"}\'.')
    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            hint = "; use --arguments for an object" if pair.startswith("{") else ""
            raise UsageError(f"'{pair}' is not of the form key=value{hint}.")
        if key in texts:
            raise UsageError(f"{key} is given twice. Give it once; write an array as JSON: {key}='[1, 2]'.")
        try:
            pair.encode()
        except UnicodeEncodeError:
            message = f"The argument {key} contains bytes that are not UTF-8. JSON strings cannot contain such bytes."
            raise UsageError(message) from None
        texts[key] = value
    return RawArguments(cast("Json", whole), texts)


def _value(key: str, text: str, schema: Mapping[str, Any]) -> Any:
    """Convert a string to the type that the property `key` has in the tool's schema."""
    typed_options: list[Mapping[str, Any]] = []
    options = [as_mapping(as_mapping(schema.get("properties")).get(key))]
    for _ in range(MAX_OPTIONS):  # a schema may refer to itself
        if not options:
            break
        option = options.pop(0)
        for alternatives in (option.get("anyOf"), option.get("oneOf")):
            options += map(as_mapping, cast("list[Any]", alternatives)) if isinstance(alternatives, list) else ()
        reference = option.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            options.append(as_mapping(as_mapping(schema.get("$defs")).get(reference.removeprefix("#/$defs/"))))
        kind: Any = option.get("type")
        types = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        typed_options += [{**option, "type": type_name} for type_name in types if isinstance(type_name, str)]
    kinds = {str(option["type"]) for option in typed_options}
    if not kinds or "string" in kinds:
        return text
    for option in sorted(typed_options, key=lambda option: [*_KINDS, option["type"]].index(option["type"])):
        match option["type"]:
            case "null" if text == "null":
                return None
            case "number":
                with suppress(ValueError):
                    number = float(text)
                    if math.isfinite(number):
                        return int(number) if number.is_integer() and "." not in text else number
            case _ if not isinstance(value := coerce(text, option), str):
                return value
            case _:
                pass
    expected = " or ".join(type_words for kind, type_words in _KINDS.items() if kind in kinds) or "another type"
    raise UsageError(f"{key} must be {expected}, not '{visible_line(text[:80])}'.")


def make_call(
    tool: str,
    call_arguments: RawArguments,
    report: SettingsReport,
    options: Sequence[str],
    *,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Make one call through a new server over stdio, and print the result.

    Return the exit status of the command if the call ran one, 0 for other calls that succeeded, or a code of 64 or
    above that says why the call failed.
    """
    if tool in SHELL_NAMES and call_arguments.as_text().get("is_background") not in (None, False, "false"):
        raise UsageError("a background job would end with this call. Omit is_background to wait for the command.")
    alias = tool.partition(BETWEEN)[0] if BETWEEN in tool else ""
    spinner = Spinner()
    has_noted_refusal = False  # whether the user has been told that nobody can answer the question

    async def ask(params: Json) -> Json:
        nonlocal has_noted_refusal
        spinner.pause()
        has_noted_refusal = not (is_sure or sys.stdin.isatty())
        try:
            return await _ask(params, is_sure=is_sure)
        finally:
            spinner.resume()

    async def arguments(server: OwnServer) -> Json:
        """Return the arguments as the tool expects them. Built-in tools convert strings; others are looked up."""
        if not call_arguments.pairs or not (report.upstreams or report.settings.tools.discovery_command):
            return call_arguments.as_text()
        tools = (await server.request("tools/list")).get("tools", [])
        schema = next((entry["inputSchema"] for entry in tools if entry["name"] == tool), None)
        return call_arguments.as_text() if schema is None else call_arguments.typed(schema)

    async def call() -> int:
        command = [sys.executable, "-P", str(LAUNCHER), "serve", *options]
        if alias in report.upstreams:
            path = await THREADS.run(lambda: _settings_for(alias, report.lock, folder))
            command.append(f"--config={path}")
        environment = dict(os.environ)  # the settings may refer to any of these variables
        async with (
            spinner.running("starting the server for this call"),
            _log_of_server(spinner) as log,
            open_server(command, os.getcwd(), environment, log, ask) as server,
        ):
            try:
                spinner.say(f"waiting for {tool}")
                params: Json = {"name": tool, "arguments": await arguments(server)}
                result = await server.request("tools/call", params, spinner.say)
            except MCPError as error:
                if error.code == json_rpc.CONNECTION_CLOSED:
                    raise
                message = error.message.replace(HOW_TO_LIST, "Run coretools-mcp tools to list them.")
                spinner.write(f"coretools-mcp: {visible(message)}\n")
                return CALL_USAGE if error.code == json_rpc.INVALID_PARAMS else CALL_FAILED
            finally:
                spinner.say("")
                spinner.erase()
            result = await THREADS.run(lambda: _with_copied_output(result))
            code = _exit_code(result)
            if as_json or not (has_noted_refusal and code == CALL_REFUSED):
                _show(result, as_json=as_json)
        return code

    try:
        with tempfile.TemporaryDirectory() as folder:
            return anyio.run(until_signal, call)
    except* MCPError:
        sys.stderr.write("coretools-mcp: the server for this call ended early; its output is above.\n")
    return CALL_BROKEN


def _settings_for(alias: str, lock: LockContent | None, folder: str) -> str:
    """Write settings for a call to one upstream, and return their path. Blocks.

    Only this upstream matters, so the call waits until it is connected or has failed. Long results are not written to
    files, because the files would be removed at the end of the call.
    """
    settings = {
        "mcp": {"allowed": [alias]},
        "proxy": {"firstListWait": MAX_LIST_WAIT, "catalogue": False},
        "limits": {"resultChars": None},
    }
    path = Path(folder, "settings.json")
    path.write_text(json.dumps(settings), encoding="utf-8")
    if lock is not None and (lock.content is not None or lock.problem):
        lock_copy = Path(folder, LOCK_NAME)  # the server looks for its lock file next to the last settings file
        try:
            lock_copy.symlink_to(lock.path)
        except OSError:  # on Windows, not every user can create links
            lock_copy.write_bytes(lock.content or b"")
    return str(path)


@asynccontextmanager
async def _log_of_server(spinner: Spinner) -> AsyncGenerator[TextIO]:
    """Show the standard error of the call's server; except on Windows, hold it back while a question is open."""
    if sys.platform == "win32":
        yield sys.stderr  # on Windows, a pipe cannot be awaited
        return
    read_end, write_end = os.pipe()
    is_at_end = anyio.Event()

    async def pass_on() -> None:
        while True:
            await anyio.wait_readable(read_end)
            data = os.read(read_end, 65_536)
            if not data:
                break
            spinner.write(data.decode("utf-8", "replace"))
        is_at_end.set()

    async with anyio.create_task_group() as group:
        group.start_soon(pass_on)
        log = os.fdopen(write_end, "w")
        try:
            yield log
        finally:
            log.close()
            with anyio.move_on_after(REST_SECONDS):
                await is_at_end.wait()
            group.cancel_scope.cancel()
    os.close(read_end)


def _with_copied_output(result: Json) -> Json:
    """Copy a long output's file, which disappears with the server; return the result with the copy's path. Blocks."""
    path = as_mapping(as_mapping(result.get("_meta")).get(FACTS_KEY)).get("outputFile")
    folder = tempfile.gettempdir()
    # Check the path, because an upstream could name any file as its output file.
    is_output = re.compile(rf"{re.escape(folder)}/{OUTPUTS}[0-9a-f]+/\w+/output-\w+\.txt").fullmatch
    if not isinstance(path, str) or not is_output(path):
        return result
    descriptor, copy = tempfile.mkstemp(".txt", f"{OUTPUTS}output-", folder)
    with os.fdopen(descriptor, "wb") as target, open(path, "rb") as source:
        shutil.copyfileobj(source, target)
    return json.loads(json.dumps(result).replace(json.dumps(path)[1:-1], copy))


def _show(result: Json, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False, indent=2) + "\n")
        return
    display = as_mapping(as_mapping(result.get("_meta")).get(DISPLAY_KEY))
    if diff := visible(str(display.get("fileDiff") or "")):
        show(diff_text(diff))
        return
    job = as_mapping(as_mapping(result.get("_meta")).get(FACTS_KEY)).get("jobId")
    for block in map(as_mapping, result.get("content", [])):
        if as_mapping(block.get("annotations")).get("audience") != ["user"]:
            text = visible(str(block["text"])) if block.get("type") == "text" else f"[{block.get('type')}]"
            if isinstance(job, str):
                # The job is about to be stopped, so the lines about it are useless. The command's own output follows
                # "Output:".
                job_lines = rf"\A((?:(?!Output:).*\n)*?)[\w ]+: {re.escape(job)} \(.*\n"
                text = re.sub(job_lines, r"\1", text)
            sys.stdout.write(f"{text}\n")
    if isinstance(job, str):
        sys.stdout.flush()
        sys.stderr.write("coretools-mcp: processes that the command left running are stopped when this call ends\n")


def _exit_code(result: Json) -> int:
    meta = as_mapping(result.get("_meta"))
    if result.get("isError"):
        return _CODES.get(as_mapping(meta.get(ERROR_KEY)).get("type", ""), CALL_FAILED)
    facts = as_mapping(meta.get(FACTS_KEY))
    name, code = facts.get("signal"), facts.get("exitCode")
    if isinstance(name, str):
        return 128 + getattr(signal, name, signal.SIGTERM)
    return code if isinstance(code, int) else 0


async def _ask(params: Json, *, is_sure: bool) -> Json:
    message, schema = str(params.get("message")), as_mapping(params.get("requestedSchema"))
    if params.get("mode") == "url":
        if not sys.stdin.isatty():
            raise MCPError(json_rpc.INVALID_REQUEST, "Nobody can open an address here.")
        show(question_text(message), f"Open this address in a browser: {params.get('url')}", stream=sys.stderr)
        return {"action": "accept"}
    if is_sure and is_consent(schema):
        return {"action": "accept", "content": {DECISION: Decision.ONCE.value}}
    if not sys.stdin.isatty():
        show(question_text(message), stream=sys.stderr)
        outcome = "nothing was done. Use --yes to allow what the call asks for"
        outcome = outcome if is_consent(schema) else "the question stays unanswered"
        show(f"Nobody can answer here (standard input is not a terminal), so {outcome}.", stream=sys.stderr)
        return {"action": "decline"}
    content = await fill_in(message, schema)
    return {"action": "cancel"} if content is None else {"action": "accept", "content": content}


class OwnServer:
    """A server to which only one task sends requests."""

    def __init__(self, stdin: ByteSendStream, stdout: ByteReceiveStream, ask: Ask | None) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._ask = ask
        self._splitter = LineSplitter(MESSAGE_BYTES)
        self._lines: list[bytes] = []
        self._count = 0

    async def request(
        self, method: str, params: Json | None = None, on_progress: Callable[[str], None] | None = None
    ) -> Json:
        """Send a request and return its result. An error response, or the end of the server, raises `MCPError`."""
        self._count += 1
        if on_progress is not None:
            params = {**(params or {}), "_meta": {"progressToken": self._count}}
        await self.send({"id": self._count, "method": method, "params": params or {}})
        while True:
            message = json_rpc.read_message(await self._line())
            if isinstance(message, json_rpc.Response) and message.id == self._count:
                return message.result
            if isinstance(message, json_rpc.ErrorResponse) and message.id == self._count:
                error = message.error
                raise MCPError(error["code"], error["message"], error.get("data"))
            if isinstance(message, json_rpc.Request):
                await self._answer(message)
            elif isinstance(message, json_rpc.Notification) and message.method == "notifications/progress":
                text = as_mapping(message.params).get("message")
                if on_progress is not None and text:
                    on_progress(str(text))

    async def _answer(self, request: json_rpc.Request) -> None:
        answer: Json = {"id": request.id}
        try:
            if request.method == "ping":
                answer["result"] = {}
            elif request.method == "elicitation/create" and self._ask is not None:
                answer["result"] = await self._ask(request.params or {})
            else:
                answer["error"] = {"code": json_rpc.METHOD_NOT_FOUND, "message": "Method not found"}
        except MCPError as error:
            answer["error"] = error.to_json()
        await self.send(answer)

    async def send(self, message: Json) -> None:
        try:
            await self._stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise _exit_error() from None

    async def _line(self) -> bytes:
        while not self._lines:
            try:
                self._lines.extend(self._splitter.feed(await self._stdout.receive()))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise _exit_error() from None
            if self._splitter.oversized:
                raise MCPError(json_rpc.INTERNAL_ERROR, "The server sent a message that is too long.")
        return self._lines.pop(0)


def _exit_error() -> MCPError:
    return MCPError(json_rpc.CONNECTION_CLOSED, "The server has ended.")


@asynccontextmanager
async def open_server(
    command: Sequence[str], folder: str, environment: Mapping[str, str], log: TextIO, ask: Ask | None = None
) -> AsyncGenerator[OwnServer]:
    """Start a server and initialize it; it ends when this context exits. If it ends early, requests raise `MCPError`.

    `log` receives the server's standard error. `ask` answers its questions; `None` means that nobody can be asked.
    """
    process = await anyio.open_process(command, stderr=log, cwd=folder, env=environment)
    try:
        server = OwnServer(cast("ByteSendStream", process.stdin), cast("ByteReceiveStream", process.stdout), ask)
        capabilities: Json = {"elicitation": {"form": {}, "url": {}}} if ask is not None else {}
        client_info = {"name": "coretools-mcp", "version": VERSION}
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": capabilities, "clientInfo": client_info}
        await server.request("initialize", params)
        await server.send({"method": "notifications/initialized"})
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            # Close the input, as a client would, so that the server exits on its own. If it does not, terminate it.
            if process.stdin is not None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await process.stdin.aclose()
            for end in (process.terminate, process.kill):
                with anyio.move_on_after(END_SECONDS):
                    await process.wait()
                    break
                with suppress(ProcessLookupError):
                    end()
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
