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
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple, Self, cast
from urllib.parse import quote, unquote, urlsplit

from pydantic_core import from_json, to_json

from tools.contract.command_views import FileRestrictions
from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.ignore_files import why_hidden
from tools.files.path_opener import FileIdentity, identity_of
from tools.files.text_encodings import shown_text
from tools.files.workspace import Location, Workspace, contains
from tools.lsp.language_servers import LanguageServer
from tools.machine.threads import THREADS
from tools.text.file_names import one_line

logger = logging.getLogger(__name__)
HEAD_BYTES = 1 << 12  # maximum size of a message's header
MESSAGE_BYTES, MESSAGE_PARTS = 8 << 20, 300_000  # parts are limited, because even small JSON values cost memory
LARGE_BYTES = 1 << 18  # larger messages are parsed in a thread
MESSAGES_A_SECOND, BYTES_A_SECOND = 5_000, 64 << 20  # at a higher rate, the connection is ended
WAITING_BYTES = 32 << 20  # maximum amount of data that the server has not read yet
METHOD_NOT_FOUND = -32601
Json = Mapping[str, Any]


def as_object(value: Any) -> Json:
    """Return the value if it is a JSON object, else an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


class AnswerError(Exception):
    """The server answered a request with an error. The text of that error is the message of this exception."""


class EndedError(Exception):
    """The connection has ended. The connection's `problem` says why."""


class LanguageServerConnection:
    """The connection to a server. Once it has ended, `problem` says why.

    Args:
        answer: Answers a request from the server. Raises a `LookupError` for an unknown method.
        hear: Receives a notification.
        lose: Called once when the connection has ended.
    """

    def __init__(
        self, answer: Callable[[str, Any], Any], hear: Callable[[str, Any], None], lose: Callable[[], None]
    ) -> None:
        # Why the connection has ended, to complete a sentence that begins with the server's name. Empty before the end.
        self.problem = ""
        self.ended = asyncio.Event()
        self.heard = 0  # number of messages received
        self._answer, self._hear, self._lose = answer, hear, lose
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._last = 0
        self._writer: asyncio.WriteTransport | None = None
        self._reader: asyncio.ReadTransport | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, output: int, given: int) -> None:
        """Start reading from the descriptor `output` and writing to `given`. Both are closed with the connection."""
        loop, stream = asyncio.get_running_loop(), asyncio.StreamReader(HEAD_BYTES)
        writing = os.fdopen(given, "wb", buffering=0)
        self._writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, writing)
        reading = os.fdopen(output, "rb", buffering=0)
        self._reader, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), reading)
        self._reading = asyncio.create_task(self._read(stream), name="language server")

    def notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Json | None, seconds: float) -> Any:
        """Send a request and return the result.

        Raises:
            AnswerError: The server answered with an error.
            TimeoutError: The server did not answer in time.
            EndedError: The connection ended before the answer.
        """
        self._last += 1
        identity, answer = self._last, asyncio.get_running_loop().create_future()
        self._waiting[identity] = answer
        try:
            self._send({"id": identity, "method": method, "params": params})
            async with asyncio.timeout(seconds):
                message = await answer
        finally:
            del self._waiting[identity]
            if not answer.done() or answer.cancelled():
                self.notify("$/cancelRequest", {"id": identity})
        if "error" in message:
            raise AnswerError(str(as_object(message["error"]).get("message", "")) or "no message")
        return message.get("result")

    def end(self, problem: str) -> None:
        """Stop reading and writing, and make the waiting requests fail. `problem` says why the connection ends."""
        if self.problem:
            return
        self.problem = problem
        self.ended.set()
        if self._reader is not None and not self._reader.is_closing():
            self._reader.close()
        if self._writer is not None and not self._writer.is_closing():
            self._writer.abort()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(EndedError)
        if self._reading is not None:
            self._reading.cancel()
        self._lose()

    def _send(self, message: Json) -> None:
        if self._writer is None or self.problem:
            return
        body = to_json({"jsonrpc": "2.0", **message}, inf_nan_mode="null")
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        if self._writer.get_write_buffer_size() > WAITING_BYTES:
            self.end("does not read its input")

    async def _read(self, stream: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        began, messages, size = loop.time(), 0, 0
        try:
            while True:
                length = _length(await stream.readuntil(b"\r\n\r\n"))
                if loop.time() > began + 1:
                    began, messages, size = loop.time(), 0, 0
                messages, size = messages + 1, size + length
                if messages > MESSAGES_A_SECOND or size > BYTES_A_SECOND:
                    return self.end("sent too much data")
                started = loop.time()
                body = await stream.readexactly(length)
                self._take(await THREADS.run(partial(_parsed, body)) if length > LARGE_BYTES else _parsed(body))
                await asyncio.sleep(min(loop.time() - started, 0.05) if length > HEAD_BYTES else 0)
        except (asyncio.IncompleteReadError, OSError):
            self.end("has ended")
        except Exception:
            logger.info("a message from a language server cannot be parsed", exc_info=True)
            self.end("sent an invalid message")

    def _take(self, given: Any) -> None:
        message, self.heard = as_object(given), self.heard + 1
        method, identity = message.get("method"), message.get("id")
        if isinstance(method, str) and isinstance(identity, int | str):
            try:
                self._send({"id": identity, "result": self._answer(method, message.get("params"))})
            except LookupError:
                self._send({"id": identity, "error": {"code": METHOD_NOT_FOUND, "message": f"no method {method}"}})
        elif isinstance(method, str):
            self._hear(method, message.get("params"))
        elif isinstance(identity, int) and (answer := self._waiting.get(identity)) is not None and not answer.done():
            answer.set_result(message)


def _parsed(body: bytes) -> Any:
    if sum(map(body.count, (b"[", b"{", b","))) > MESSAGE_PARTS:
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
            if length <= MESSAGE_BYTES:
                return length
    raise ValueError("missing or excessive length")


START_SECONDS = 60.0  # how long a server may take to become ready
ANSWER_SECONDS = 60.0
QUIET_SECONDS = 0.25  # a report without a version is final if no other report follows within this time
DOCUMENT_BYTES = 4_000_000
OPEN_DOCUMENTS, OPEN_CHARS = 50, 16_000_000  # above these limits, the least recently used document is closed
REPORTED_FILES, REPORTED = 1_000, 100  # for how many files diagnostics are kept, and how many per file
REPORTED_BYTES = 8 << 20  # maximum memory for all diagnostics
DIAGNOSTIC_BYTES = 256  # memory of a diagnostic without its strings, in bytes
MESSAGE_CHARS = 400
ERROR, WARNING = 1, 2  # the protocol's severities
SEVERITIES = {ERROR: "error", WARNING: "warning", 3: "information", 4: "hint"}
_LINE_ENDS = re.compile(r"\r\n|\n|\r")
# The protocol's position encodings, with the codec and the bytes per unit
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
    named = os.fsdecode(unquote(path, errors="surrogateescape"))
    path = os.path.normpath(f"/{named.lstrip('/')}")
    return None if named[:1] != "/" or "\0" in named or contains("/proc", path) else path


class DocumentPosition(NamedTuple):
    """A zero-based position, as on the wire."""

    line: int
    units: int


def start_of(given: Any) -> DocumentPosition | None:
    """Return the start of a range from the wire, or `None` if it is invalid."""
    start = as_object(as_object(given).get("start"))
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
    """A server's report about one file."""

    at: float  # when the report arrived
    version: int | None  # version of the document, if the server states it
    items: tuple[Diagnostic, ...]
    total: int  # how many diagnostics the server sent, including those that were dropped

    @property
    def size(self) -> int:
        """The approximate memory of the report in bytes."""
        return sum(DIAGNOSTIC_BYTES + getsizeof(item.message) + getsizeof(item.rule) for item in self.items)


@dataclass(slots=True)
class Document:
    """The state of a file as last sent to the server."""

    location: Location
    identity: FileIdentity
    text: str
    version: int
    told_at: float


def is_hidden(workspace: Workspace, location: Location) -> bool:
    """Return True if a file's content is hidden from a client. Blocking."""
    try:
        return why_hidden(workspace, location) is not None
    except ToolError:
        return True


def read_document(workspace: Workspace, location: Location) -> tuple[FileIdentity, str]:
    """Return a file's current content. Blocking. Raises a `ToolError` if it cannot be read."""
    with workspace.open_file(location) as opened:
        if opened.info.st_size > DOCUMENT_BYTES:
            raise ToolError(
                ToolErrorType.FILE_TOO_LARGE,
                f"'{location.shown}' has {opened.info.st_size:,} bytes; language servers are not used for files of "
                f"more than {DOCUMENT_BYTES:,}. Use grep_search.",
            )
        return identity_of(opened.info), shown_text(opened.whole(AbortSignal())).text


@dataclass(frozen=True, slots=True)
class Hidden:
    """What rules and agent-ignore files deny to a server at a given moment."""

    files: FileRestrictions
    problem: str  # why hiding cannot be fully enforced, or an empty string
    identities: tuple[tuple[int, int] | None, ...]  # device and inode of the masked files


@dataclass(slots=True, eq=False)
class LanguageServerSession:
    """A session with the server of one folder."""

    server: LanguageServer
    program: str  # the name of the server's program
    root: str
    close: Callable[[], Awaitable[None]]  # stops the process and releases its resources
    last_words: Callable[[], str]  # returns the end of the program's standard error
    sees_hidden: bool  # whether the server can read files that are hidden from agents
    hidden: Hidden  # what was hidden from the server when it started
    notes: dict[str, None] = field(default_factory=dict[str, None])  # notes for the next result
    documents: OrderedDict[str, Document] = field(default_factory=OrderedDict[str, Document])
    reports: OrderedDict[str, Report] = field(default_factory=OrderedDict[str, Report])
    forgets: bool = False  # whether reports had to be dropped
    connection: LanguageServerConnection = field(init=False)
    encoding: str = "utf-16"
    users: int = 0  # calls in progress
    unused: asyncio.Event = field(default_factory=asyncio.Event)  # set while no call is in progress
    _reported_bytes: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.connection = LanguageServerConnection(self._answer, self._hear, self._news.set)
        self.unused.set()

    def __enter__(self) -> Self:
        self.users += 1
        self.unused.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.users -= 1
        if not self.users:
            self.unused.set()

    async def open(self, output: int, given: int) -> None:
        await self.connection.open(output, given)
        root = uri_of(self.root)
        started = as_object(
            await self.ask(
                "initialize",
                {
                    "processId": None,  # this process's ID means nothing in the server's own PID namespace
                    "rootUri": root,
                    "workspaceFolders": [{"uri": root, "name": os.path.basename(self.root)}],
                    "capabilities": _CAPABILITIES,
                    "initializationOptions": self.server.options,
                },
                START_SECONDS,
            )
        )
        encoding = as_object(started.get("capabilities")).get("positionEncoding")
        self.encoding = encoding if isinstance(encoding, str) and encoding in _UNITS else "utf-16"
        self.connection.notify("initialized", {})

    async def ask(self, method: str, params: Json, seconds: float | None = None) -> Any:
        """Send a request and return the result. Raises a `ToolError` if there is no result."""
        seconds = ANSWER_SECONDS if seconds is None else seconds
        if self.connection.problem:
            raise self._lost()
        heard = self.connection.heard
        try:
            return await self.connection.request(method, params, seconds)
        except AnswerError as error:
            raise ToolError(
                ToolErrorType.LSP_SERVER_FAILED,
                f"{self.program} cannot answer the request: {one_line(str(error))[:MESSAGE_CHARS].rstrip('.')}. Check "
                "the position, or use grep_search.",
            ) from None
        except TimeoutError:
            if heard == self.connection.heard:
                self.connection.end("hung and was stopped")  # the server has sent nothing at all since the request
                raise self._lost() from None
            raise ToolError(
                ToolErrorType.LSP_SERVER_FAILED,
                f"{self.program} did not answer within {seconds:g} s. It may still be reading the workspace. Try again "
                "later, or use grep_search.",
            ) from None
        except EndedError:
            raise self._lost() from None

    def _lost(self) -> ToolError:
        last_line = one_line(self.last_words().strip())[-MESSAGE_CHARS:]
        wrote = f". Its last output: {last_line}" if last_line else ""
        return ToolError(
            ToolErrorType.LSP_SERVER_FAILED,
            f"The language server {self.program} {self.connection.problem}{wrote}. Repeat the call to start the "
            "server again; if that fails too, use grep_search.",
        )

    def characters(self, line: str, units: int) -> int:
        """Convert an offset in a line from the protocol's units to characters. Stops at the end of the line."""
        codec, size = _UNITS[self.encoding]
        return len(line.encode(codec, "surrogatepass")[: units * size].decode(codec, "ignore"))

    def units(self, line: str, characters: int) -> int:
        codec, size = _UNITS[self.encoding]
        return len(line[:characters].encode(codec, "surrogatepass")) // size

    async def follow(self, workspace: Workspace, wanted: Location | None = None) -> Document | None:
        """Send the current content of the open documents and of `wanted`. Return the document of `wanted`.

        Documents that are now hidden are closed.
        """

        def look() -> list[tuple[Location, FileIdentity | None, str]]:
            found: list[tuple[Location, FileIdentity | None, str]] = []
            if wanted is not None and wanted.path not in self.documents:
                found.append((wanted, *read_document(workspace, wanted)))
            for document in tuple(self.documents.values()):
                is_wanted = wanted is not None and document.location.path == wanted.path
                try:
                    info = workspace.stat(document.location)
                    if not is_wanted and is_hidden(workspace, document.location):
                        found.append((document.location, None, ""))
                    elif info is None or identity_of(info) != document.identity:
                        found.append((document.location, *read_document(workspace, document.location)))
                except ToolError:
                    if is_wanted:
                        raise
                    found.append((document.location, None, ""))
            return found

        async with self._turn:
            for location, identity, text in await THREADS.run(look):
                self._tell(location, identity, text)
            if wanted is None:
                return None
            self.documents.move_to_end(wanted.path)
            while len(self.documents) > OPEN_DOCUMENTS or (
                len(self.documents) > 1 and sum(len(each.text) for each in self.documents.values()) > OPEN_CHARS
            ):
                self._tell(next(iter(self.documents.values())).location, None, "")
            return self.documents[wanted.path]

    def _tell(self, location: Location, identity: FileIdentity | None, text: str) -> None:
        """Tell the server a document's current content. Without an identity, tell it that the document is closed."""
        path, known = location.path, self.documents.get(location.path)
        uri, version = uri_of(path), known.version + 1 if known is not None else 1
        if identity is None:
            self.documents.pop(path, None)
            self.connection.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        elif known is None:
            ending = os.path.splitext(path)[1].lower()
            item = {"uri": uri, "languageId": self.server.languages[ending], "version": version, "text": text}
            self.connection.notify("textDocument/didOpen", {"textDocument": item})
        elif known.text != text:
            changes, item = [{"text": text}], {"uri": uri, "version": version}
            self.connection.notify("textDocument/didChange", {"textDocument": item, "contentChanges": changes})
        else:
            known.identity = identity
            return
        if identity is not None:
            now = asyncio.get_running_loop().time()
            self.documents[path] = Document(location, identity, text, version, now)

    async def report(self, document: Document, seconds: float) -> Report | None:
        """Wait for the report about a document's current version. Return `None` if it does not arrive in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            now, report = loop.time(), self.reports.get(document.location.path)
            left = deadline - now
            if report is not None and report.at >= document.told_at:
                if report.version == document.version:
                    return report
                quiet = report.at + QUIET_SECONDS - now
                if report.version is None:
                    if quiet <= 0 or left <= 0:
                        return report
                    left = min(left, quiet)
            if self.connection.problem:
                raise self._lost()
            if left <= 0:
                return None
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    async def settle(self, seconds: float, quiet: float) -> None:
        """Wait until no report has arrived for `quiet` seconds, but at most `seconds` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0:
            if self.connection.problem:
                raise self._lost()
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(left, quiet))
            except TimeoutError:
                return

    def widen(self) -> bool:
        """Ask the server to report on all files, if it can. Return True if it had not been asked before."""
        is_new = self._settings != self.server.whole_workspace
        if is_new:
            self._settings = self.server.whole_workspace
            self.connection.notify("workspace/didChangeConfiguration", {"settings": self._settings})
        return is_new

    def _answer(self, method: str, params: Any) -> Any:
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

    def _hear(self, method: str, params: Any) -> None:
        if method != "textDocument/publishDiagnostics":
            return
        given = as_object(params)
        path, version, items = path_of(given.get("uri")), given.get("version"), as_list(given.get("diagnostics"))
        if path is None or not contains(self.root, path):
            return
        found = tuple(sorted(filter(None, map(_diagnostic, items[: 10 * REPORTED])))[:REPORTED])
        at, before = asyncio.get_running_loop().time(), self.reports.pop(path, None)
        report = Report(at, version if isinstance(version, int) else None, found, len(items))
        self.reports[path] = report
        self._reported_bytes += report.size - (before.size if before is not None else 0)
        while len(self.reports) > REPORTED_FILES or self._reported_bytes > REPORTED_BYTES:
            self._reported_bytes -= self.reports.popitem(last=False)[1].size
            self.forgets = True
        self._news.set()


def _diagnostic(given: Any) -> Diagnostic | None:
    item = as_object(given)
    start, severity, message = start_of(item.get("range")), item.get("severity"), item.get("message")
    if start is None or not isinstance(message, str):
        return None
    code = item.get("code")
    rule = one_line(str(code))[:80] if isinstance(code, str | int) else ""
    text = one_line(" ".join(message[: 4 * MESSAGE_CHARS].split()))[:MESSAGE_CHARS]
    return Diagnostic(severity if type(severity) is int and severity in SEVERITIES else ERROR, start, text, rule)


def new_errors(before: Iterable[Diagnostic], after: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the errors in `after` that are not in `before`, wherever they are in the file."""
    known: dict[tuple[str, str], int] = {}
    for item in before:
        known[item.message, item.rule] = known.get((item.message, item.rule), 0) + 1
    found: list[Diagnostic] = []
    for item in after:
        key = item.message, item.rule
        if item.severity == ERROR:
            if known.get(key, 0) > 0:
                known[key] -= 1
            else:
                found.append(item)
    return found
