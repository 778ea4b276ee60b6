"""A running language server: JSON-RPC over pipes, and a session with its open documents, reports and requests.

Messages have a Content-Length header. The size and rate of the server's messages are limited, and so is the amount of
data that the server has not read yet.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple, Self, cast
from urllib.parse import quote, unquote, urlsplit

from pydantic_core import from_json, to_json

from tools.contract.call_options import AbortSignal
from tools.contract.command_views import FileRestrictions
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.ignore_files import why_hidden
from tools.files.path_opener import FileIdentity, identity_of
from tools.files.text_encodings import shown_text
from tools.files.workspace import Location, Workspace, contains
from tools.lsp.language_servers import LanguageServer
from tools.machine.threads import THREADS
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)
MAX_HEADER_BYTES = 1 << 12  # maximum size of a message's header
MAX_MESSAGE_BYTES, MAX_MESSAGE_PARTS = 8 << 20, 300_000  # parts are limited, because even small JSON values cost memory
LARGE_MESSAGE_BYTES = 1 << 18  # larger messages are parsed in a thread
MAX_MESSAGES_PER_SECOND, MAX_BYTES_PER_SECOND = 5_000, 64 << 20  # at a higher rate, the connection is ended
MAX_UNREAD_BYTES = 32 << 20  # maximum amount of data that the server has not read yet
METHOD_NOT_FOUND = -32601
Json = Mapping[str, Any]


def as_object(value: Any) -> Json:
    """Return the value if it is a JSON object, else an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


class ConnectionEndedError(Exception):
    """The connection has ended. The connection's `problem` says why."""


@dataclass(eq=False, repr=False)
class LanguageServerConnection:
    on_request: Callable[[str, Any], Any]  # answers a request from the server; raises a `LookupError` if it is unknown
    on_notification: Callable[[str, Any], None]
    on_end: Callable[[], None]  # called once when the connection has ended
    # Why the connection has ended, as the rest of a sentence that begins with the server's name. Empty until then.
    problem: str = field(default="", init=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    message_count: int = field(default=0, init=False)  # messages received
    _pending: dict[int, asyncio.Future[Json]] = field(default_factory=dict[int, "asyncio.Future[Json]"], init=False)
    _last_id: int = field(default=0, init=False)
    _writer: asyncio.WriteTransport | None = field(default=None, init=False)
    _reader: asyncio.ReadTransport | None = field(default=None, init=False)
    _read_task: asyncio.Task[None] | None = field(default=None, init=False)

    async def open(self, output_fd: int, input_fd: int) -> None:
        """Start reading from `output_fd` and writing to `input_fd`. Both are closed when the connection ends."""
        loop, stream = asyncio.get_running_loop(), asyncio.StreamReader(MAX_HEADER_BYTES)
        input_pipe = os.fdopen(input_fd, "wb", buffering=0)
        self._writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, input_pipe)
        output_pipe = os.fdopen(output_fd, "rb", buffering=0)
        self._reader, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), output_pipe)
        self._read_task = asyncio.create_task(self._read(stream), name="language server")

    def notify(self, method: str, params: Json | None = None) -> None:
        self._send({"method": method} | ({} if params is None else {"params": params}))

    async def request(self, method: str, params: Json | None, seconds: float) -> Json:
        """Send a request and return the response, which may be an error.

        Raises a `TimeoutError` if it does not arrive in time, or a `ConnectionEndedError` if the connection ends first.
        """
        self._last_id += 1
        request_id, response = self._last_id, asyncio.get_running_loop().create_future()
        self._pending[request_id] = response
        try:
            self._send({"id": request_id, "method": method} | ({} if params is None else {"params": params}))
            async with asyncio.timeout(seconds):
                return await response
        finally:
            del self._pending[request_id]
            if not response.done() or response.cancelled():
                self.notify("$/cancelRequest", {"id": request_id})

    def end(self, problem: str) -> None:
        """Stop reading and writing, and make the pending requests fail. `problem` says why the connection ends."""
        if self.problem:
            return
        self.problem = problem
        self.ended.set()
        if self._reader is not None and not self._reader.is_closing():
            self._reader.close()
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()
        for response in self._pending.values():
            if not response.done():
                response.set_exception(ConnectionEndedError)
        if self._read_task is not None:
            self._read_task.cancel()
        self.on_end()

    def _send(self, message: Json) -> None:
        if self._writer is None or self.problem:
            return
        body = to_json({"jsonrpc": "2.0", **message}, inf_nan_mode="null")
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        if self._writer.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.end("does not read its input")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        window_start, messages, size = loop.time(), 0, 0
        try:
            while True:
                length = _length(await stream.readuntil(b"\r\n\r\n"))
                if loop.time() > window_start + 1:
                    window_start, messages, size = loop.time(), 0, 0
                messages, size = messages + 1, size + length
                if messages > MAX_MESSAGES_PER_SECOND or size > MAX_BYTES_PER_SECOND:
                    return self.end("sent too much data")
                started_at = loop.time()
                body = await stream.readexactly(length)
                is_large = length > LARGE_MESSAGE_BYTES
                self._dispatch(await THREADS.run(partial(_parse, body)) if is_large else _parse(body))
                await asyncio.sleep(min(loop.time() - started_at, 0.05) if length > MAX_HEADER_BYTES else 0)
        except (asyncio.IncompleteReadError, OSError):
            self.end("has ended")
        except Exception:
            logger.info("a message from a language server cannot be parsed", exc_info=True)
            self.end("sent an invalid message")

    def _dispatch(self, raw_message: Any) -> None:
        message, self.message_count = as_object(raw_message), self.message_count + 1
        method, message_id = message.get("method"), message.get("id")
        if isinstance(method, str) and isinstance(message_id, int | str):
            try:
                self._send({"id": message_id, "result": self.on_request(method, message.get("params"))})
            except LookupError:
                self._send({"id": message_id, "error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}})
        elif isinstance(method, str):
            self.on_notification(method, message.get("params"))
        elif isinstance(message_id, int):
            response = self._pending.get(message_id)
            if response is not None and not response.done():
                response.set_result(message)


def _parse(body: bytes) -> Any:
    if sum(map(body.count, (b"[", b"{", b","))) > MAX_MESSAGE_PARTS:
        raise ValueError("too many parts")
    try:
        return from_json(body)
    except ValueError:  # for example, a lone surrogate from a server that cut a string short
        return json.loads(json.dumps(json.loads(body), ensure_ascii=False).encode(errors="replace"))


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = int(value)
            if length <= MAX_MESSAGE_BYTES:
                return length
    raise ValueError("missing or excessive length")


START_SECONDS = 60.0  # how long a server may take to become ready
ANSWER_SECONDS = 60.0
QUIET_SECONDS = 0.25  # a report without a version is final if no other report follows within this time
MAX_DOCUMENT_BYTES = 4_000_000
MAX_OPEN_DOCUMENTS, MAX_OPEN_CHARS = 50, 16_000_000  # above these limits, the least recently used document is closed
MAX_REPORTED_FILES, MAX_DIAGNOSTICS = 1_000, 100  # for how many files diagnostics are kept, and how many per file
MAX_REPORT_BYTES = 8 << 20  # maximum memory for all diagnostics
DIAGNOSTIC_BYTES = 256  # memory of a diagnostic without its strings, in bytes
MESSAGE_CHARS = 400
ERROR, WARNING = 1, 2  # the protocol's severities
SEVERITIES = {ERROR: "error", WARNING: "warning", 3: "information", 4: "hint"}
_LINE_ENDS = re.compile(r"\r\n|\n|\r")
# The protocol's position encodings, each with Python's codec and the size of a code unit in bytes
_UNITS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
_CAPABILITIES = {
    "general": {"positionEncodings": ["utf-32", "utf-16"]},
    "workspace": {"configuration": True, "workspaceFolders": True},
    "textDocument": {
        "publishDiagnostics": {"versionSupport": True},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "definition": {"linkSupport": True},
        "implementation": {"linkSupport": True},
    },
}


def lines_of(text: str) -> list[str]:
    return _LINE_ENDS.split(text)


def uri_of(path: str) -> str:
    return "file://" + quote(os.fsencode(path))


def path_of(uri: Any) -> str | None:
    """Return the local path of a URI, or `None` for other URIs and for paths under `/proc`."""
    if not isinstance(uri, str) or len(uri) > 3 * 4096:
        return None
    try:
        scheme, host, path, _, _ = urlsplit(uri)
    except ValueError:
        return None
    if scheme not in ("file", "") or host not in ("", "localhost"):
        return None
    decoded = os.fsdecode(unquote(path, errors="surrogateescape"))
    path = os.path.normpath(f"/{decoded.lstrip('/')}")
    return None if decoded[:1] != "/" or "\0" in decoded or contains("/proc", path) else path


class DocumentPosition(NamedTuple):
    """A zero-based position, as in the protocol: a line, and an offset in code units."""

    line: int
    units: int


def start_of(raw_range: Any) -> DocumentPosition | None:
    """Return the start of a range in a message, or `None` if it is invalid."""
    start = as_object(as_object(raw_range).get("start"))
    line, units = start.get("line"), start.get("character")
    if type(line) is int and type(units) is int and 0 <= line < 1 << 31 and 0 <= units < 1 << 31:
        return DocumentPosition(line, units)
    return None


class Diagnostic(NamedTuple):
    severity: int
    start: DocumentPosition
    message: str
    rule: str

    def text(self) -> str:
        rule = f" ({self.rule})" if self.rule else ""
        return f"{SEVERITIES[self.severity]}: {self.message}{rule}"


@dataclass(frozen=True, slots=True)
class Report:
    received_at: float
    version: int | None  # version of the document, if the server states it
    items: tuple[Diagnostic, ...]
    total: int  # how many diagnostics the server sent, including those that were dropped

    @property
    def size(self) -> int:
        """The approximate memory use of the report, in bytes."""
        return sum(DIAGNOSTIC_BYTES + getsizeof(item.message) + getsizeof(item.rule) for item in self.items)


@dataclass(slots=True)
class Document:
    """The state of a file as last sent to the server."""

    location: Location
    identity: FileIdentity
    text: str
    version: int
    sent_at: float


def is_hidden(workspace: Workspace, location: Location) -> bool:
    """Return True if a file's content is hidden from a client. Blocking."""
    try:
        return why_hidden(workspace, location) is not None
    except ToolError:
        return True


def read_document(workspace: Workspace, location: Location) -> tuple[FileIdentity, str]:
    """Return a file's current content. Blocking. Raises a `ToolError` if it cannot be read."""
    with workspace.open_file(location) as file:
        if file.info.st_size > MAX_DOCUMENT_BYTES:
            raise ToolError(
                ToolErrorType.FILE_TOO_LARGE,
                f"'{location.shown}' is {file.info.st_size:,} bytes long; language servers are not used for files "
                f"larger than {MAX_DOCUMENT_BYTES:,} bytes. Use grep_search.",
            )
        return identity_of(file.info), shown_text(file.whole(AbortSignal())).text


@dataclass(frozen=True, slots=True)
class HiddenFilesSnapshot:
    """The files that rules and agent-ignore files hide from a server at a given moment."""

    restrictions: FileRestrictions
    problem: str  # why hiding cannot be fully enforced, or an empty string
    identities: tuple[tuple[int, int] | None, ...]  # device and inode of each masked file; `None` if missing


@dataclass(slots=True, eq=False)
class LanguageServerSession:
    server: LanguageServer
    program: str  # the name of the server's program
    root: str
    close: Callable[[], Awaitable[None]]  # stops the process and releases its resources
    read_errors: Callable[[], str]  # returns the last part of the program's standard error
    sees_hidden: bool  # whether the server may be able to read files that are hidden from agents
    hidden_files: HiddenFilesSnapshot  # what was hidden from the server when it started
    notes: dict[str, None] = field(default_factory=dict[str, None])  # notes for the next result
    documents: OrderedDict[str, Document] = field(default_factory=OrderedDict[str, Document])
    reports: OrderedDict[str, Report] = field(default_factory=OrderedDict[str, Report])
    has_dropped_reports: bool = False
    connection: LanguageServerConnection = field(init=False)
    encoding: str = "utf-16"
    active_calls: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # set while no call is in progress
    _reported_bytes: int = 0
    _report_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.connection = LanguageServerConnection(
            self._answer_request, self._handle_notification, self._report_arrived.set
        )
        self.idle.set()

    def __enter__(self) -> Self:
        self.active_calls += 1
        self.idle.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.active_calls -= 1
        if not self.active_calls:
            self.idle.set()

    async def open(self, output_fd: int, input_fd: int) -> None:
        await self.connection.open(output_fd, input_fd)
        root = uri_of(self.root)
        params = {
            "processId": None,  # this process's ID means nothing in the server's own PID namespace
            "rootUri": root,
            "workspaceFolders": [{"uri": root, "name": os.path.basename(self.root)}],
            "capabilities": _CAPABILITIES,
            "initializationOptions": self.server.options,
        }
        result = as_object(await self.request("initialize", params, START_SECONDS))
        encoding = as_object(result.get("capabilities")).get("positionEncoding")
        self.encoding = encoding if isinstance(encoding, str) and encoding in _UNITS else "utf-16"
        self.connection.notify("initialized", {})

    async def request(self, method: str, params: Json, seconds: float | None = None) -> Any:
        """Send a request and return the result. Raises a `ToolError` if there is no result."""
        seconds = ANSWER_SECONDS if seconds is None else seconds
        if self.connection.problem:
            raise self._ended_error()
        message_count = self.connection.message_count
        try:
            message = await self.connection.request(method, params, seconds)
        except TimeoutError:
            if message_count == self.connection.message_count:
                self.connection.end("hung and was stopped")  # the server has sent nothing at all since the request
                raise self._ended_error() from None
            raise ToolError(
                ToolErrorType.LSP_SERVER_FAILED,
                f"{self.program} did not answer within {seconds:g} s. It may still be reading the workspace. Try again "
                "later, or use grep_search.",
            ) from None
        except ConnectionEndedError:
            raise self._ended_error() from None
        if "error" not in message:
            return message.get("result")
        problem = str(as_object(message["error"]).get("message", "")) or "no reason given"
        raise ToolError(
            ToolErrorType.LSP_SERVER_FAILED,
            f"{self.program} cannot answer the request: {one_line(problem)[:MESSAGE_CHARS].rstrip('.')}. Check the "
            "position, or use grep_search.",
        )

    def _ended_error(self) -> ToolError:
        last_line = one_line(self.read_errors().strip())[-MESSAGE_CHARS:]
        output_note = f". Its last output: {last_line}" if last_line else ""
        return ToolError(
            ToolErrorType.LSP_SERVER_FAILED,
            f"The language server {self.program} {self.connection.problem}{output_note}. Repeat the call to start the "
            "server again; if that fails too, use grep_search.",
        )

    def characters(self, line: str, units: int) -> int:
        """Convert an offset in a line from the protocol's units to characters. Stops at the end of the line."""
        codec, size = _UNITS[self.encoding]
        return len(line.encode(codec, "surrogatepass")[: units * size].decode(codec, "ignore"))

    def units(self, line: str, characters: int) -> int:
        codec, size = _UNITS[self.encoding]
        return len(line[:characters].encode(codec, "surrogatepass")) // size

    async def sync(self, workspace: Workspace, target: Location | None = None) -> Document | None:
        """Send the current content of the open documents, and of `target`. Return the document of `target`.

        Documents that are now hidden or cannot be read are closed. Raises a `ToolError` if `target` cannot be read.
        """

        def read_changes() -> list[tuple[Location, FileIdentity | None, str]]:
            changes: list[tuple[Location, FileIdentity | None, str]] = []
            if target is not None and target.path not in self.documents:
                changes.append((target, *read_document(workspace, target)))
            for document in tuple(self.documents.values()):
                is_target = target is not None and document.location.path == target.path
                try:
                    info = workspace.stat(document.location)
                    if not is_target and is_hidden(workspace, document.location):
                        changes.append((document.location, None, ""))
                    elif info is None or identity_of(info) != document.identity:
                        changes.append((document.location, *read_document(workspace, document.location)))
                except ToolError:
                    if is_target:
                        raise
                    changes.append((document.location, None, ""))
            return changes

        async with self._lock:
            for location, identity, text in await THREADS.run(read_changes):
                self._send_document(location, identity, text)
            if target is None:
                return None
            self.documents.move_to_end(target.path)
            while len(self.documents) > MAX_OPEN_DOCUMENTS or (
                len(self.documents) > 1 and sum(len(entry.text) for entry in self.documents.values()) > MAX_OPEN_CHARS
            ):
                self._send_document(next(iter(self.documents.values())).location, None, "")
            return self.documents[target.path]

    def _send_document(self, location: Location, identity: FileIdentity | None, text: str) -> None:
        """Send a document's current content to the server, or close the document if `identity` is `None`."""
        path, previous = location.path, self.documents.get(location.path)
        uri, version = uri_of(path), previous.version + 1 if previous is not None else 1
        if identity is None:
            self.documents.pop(path, None)
            self.connection.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
            return
        if previous is None:
            ending = os.path.splitext(path)[1].lower()
            item = {"uri": uri, "languageId": self.server.languages[ending], "version": version, "text": text}
            self.connection.notify("textDocument/didOpen", {"textDocument": item})
        elif previous.text != text:
            changes, item = [{"text": text}], {"uri": uri, "version": version}
            self.connection.notify("textDocument/didChange", {"textDocument": item, "contentChanges": changes})
        else:
            previous.identity = identity
            return
        self.documents[path] = Document(location, identity, text, version, asyncio.get_running_loop().time())

    async def wait_for_report(self, document: Document, seconds: float) -> Report | None:
        """Wait for the server's report on a document's current version. Return `None` if it does not arrive in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            now, report = loop.time(), self.reports.get(document.location.path)
            remaining = deadline - now
            if report is not None and report.received_at >= document.sent_at:
                if report.version == document.version:
                    return report
                quiet_seconds = report.received_at + QUIET_SECONDS - now
                if report.version is None:
                    if quiet_seconds <= 0 or remaining <= 0:
                        return report
                    remaining = min(remaining, quiet_seconds)
            if self.connection.problem:
                raise self._ended_error()
            if remaining <= 0:
                return None
            self._report_arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._report_arrived.wait(), remaining)

    async def settle(self, seconds: float, quiet: float) -> None:
        """Wait until no report has arrived for `quiet` seconds, but at most `seconds` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (remaining := deadline - loop.time()) > 0:
            if self.connection.problem:
                raise self._ended_error()
            self._report_arrived.clear()
            try:
                await asyncio.wait_for(self._report_arrived.wait(), min(remaining, quiet))
            except TimeoutError:
                return

    def request_all_reports(self) -> bool:
        """Ask the server to report on all files, if it can. Return True if this call sent the request."""
        is_new = self._settings != self.server.whole_workspace
        if is_new:
            self._settings = self.server.whole_workspace
            self.connection.notify("workspace/didChangeConfiguration", {"settings": self._settings})
        return is_new

    def _answer_request(self, method: str, params: Any) -> Any:
        match method:
            case "workspace/configuration":
                sections = (as_object(item).get("section") for item in as_list(as_object(params).get("items"))[:1_000])
                return [self._settings.get(section) if isinstance(section, str) else None for section in sections]
            case "workspace/workspaceFolders":
                return [{"uri": uri_of(self.root), "name": os.path.basename(self.root)}]
            case "workspace/applyEdit":
                self.notes[f"{self.program} tried to change files, which was refused."] = None
                return {"applied": False, "failureReason": "Language servers may not change files here."}
            case "window/showDocument":
                return {"success": False}
            case "client/registerCapability" | "client/unregisterCapability" | "window/workDoneProgress/create":
                return None
            case "window/showMessageRequest":
                return None
            case _:
                raise LookupError(method)

    def _handle_notification(self, method: str, params: Any) -> None:
        if method != "textDocument/publishDiagnostics":
            return
        report_params = as_object(params)
        path, version = path_of(report_params.get("uri")), report_params.get("version")
        items = as_list(report_params.get("diagnostics"))
        if path is None or not contains(self.root, path):
            return
        diagnostics: list[Diagnostic] = []
        for item in map(as_object, items[: 10 * MAX_DIAGNOSTICS]):
            start, severity, message = start_of(item.get("range")), item.get("severity"), item.get("message")
            if start is None or not isinstance(message, str):
                continue
            code = item.get("code")
            rule = one_line(str(code))[:80] if isinstance(code, str | int) else ""
            text = one_line(" ".join(message[: 4 * MESSAGE_CHARS].split()))[:MESSAGE_CHARS]
            severity = severity if type(severity) is int and severity in SEVERITIES else ERROR
            diagnostics.append(Diagnostic(severity, start, text, rule))
        now, previous = asyncio.get_running_loop().time(), self.reports.pop(path, None)
        first_diagnostics = tuple(sorted(diagnostics)[:MAX_DIAGNOSTICS])
        report = Report(now, version if isinstance(version, int) else None, first_diagnostics, len(items))
        self.reports[path] = report
        self._reported_bytes += report.size - (previous.size if previous is not None else 0)
        while len(self.reports) > MAX_REPORTED_FILES or self._reported_bytes > MAX_REPORT_BYTES:
            self._reported_bytes -= self.reports.popitem(last=False)[1].size
            self.has_dropped_reports = True
        self._report_arrived.set()


def new_errors(before: Iterable[Diagnostic], after: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the errors in `after` that are not in `before`. Their positions are not compared."""
    earlier_counts = Counter((item.message, item.rule) for item in before)
    errors: list[Diagnostic] = []
    for item in after:
        if item.severity == ERROR:
            earlier_counts[item.message, item.rule] -= 1
            if earlier_counts[item.message, item.rule] < 0:
                errors.append(item)
    return errors
