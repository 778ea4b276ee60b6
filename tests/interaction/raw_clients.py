"""Clients that write and read JSON-RPC themselves, over stdio, Streamable HTTP and SSE, in both protocol eras.

A client library would correct what it sends and hide what it receives. These clients send exactly the messages that a
test gives them, one after the other, without threads or an event loop.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.fork_server import forked
from tests.harness import MODERN, server_arguments
from tests.waiting import CEILING

Message = dict[str, Any]

QUESTION = "elicitation/create"

FORM: Mapping[str, Any] = {"elicitation": {"form": {}}}
"""The capabilities of a client that can show forms."""


class Wire(Protocol):
    """Carries messages to a server and back."""

    def send(self, message: Message) -> bool:
        """Send one message. Return False if the transport itself refuses it because it is not JSON-RPC."""
        ...

    def receive(self, identity: int) -> Message:
        """Return the next message that belongs to this request: its answer, or an earlier request of the server."""
        ...

    def close(self) -> None:
        """Disconnect without telling the server."""
        ...


class _Inbox:
    """Sorts the messages of a stream that all requests share."""

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()

    def take(self, identity: int) -> Message | None:
        """Remove and return the first message that answers this request or is itself a request."""
        for message in self._waiting:
            if "method" in message or message.get("id") == identity:
                self._waiting.remove(message)
                return message
        return None

    def keep(self, message: Message) -> None:
        """Keep a message, unless it is a notification. No test waits for those."""
        if "id" in message:
            self._waiting.append(message)


class StdioWire:
    """The pipes of a server process, which has only this client."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._inbox = _Inbox()
        self._unread = b""

    def send(self, message: Message) -> bool:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        self._stdin.flush()
        return True

    def receive(self, identity: int) -> Message:
        while (message := self._inbox.take(identity)) is None:
            self._inbox.keep(json.loads(self._line()))
        return message

    def _line(self) -> bytes:
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._stdout], [], [], CEILING)
            assert readable, "the server sent nothing in time"
            data = os.read(self._stdout.fileno(), 1 << 16)
            assert data, f"the server closed its output: {self._error_output()}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _error_output(self) -> str:
        assert self.process.stderr is not None
        self.process.wait(CEILING)
        return self.process.stderr.read().decode()

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()


class _Events:
    """Reads the server-sent events of one response."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def next(self) -> tuple[str, str]:
        """Return the name and the data of the next event that has data."""
        name, data = "message", list[str]()
        while True:
            raw = self._response.readline()
            assert raw, "the server ended the stream"
            line = raw.decode().rstrip("\r\n")
            field, _, value = line.partition(":")
            if not line and any(data):
                return name, "\n".join(data)
            if field == "event":
                name = value.strip()
            elif field == "data":
                data.append(value.removeprefix(" "))


def _connection(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=CEILING)


def _post(
    url: str, path: str, message: Message, headers: Mapping[str, str]
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = _connection(url)
    content_types = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", path, json.dumps(message), {**content_types, **headers})
    return connection, connection.getresponse()


def _is_accepted(response: http.client.HTTPResponse) -> bool:
    """Return whether the server accepted a message that gets no answer. A refusal must have the status 400."""
    assert response.status in (http.HTTPStatus.ACCEPTED, http.HTTPStatus.BAD_REQUEST), response.read()
    return response.status == http.HTTPStatus.ACCEPTED


class HttpWire:
    """Streamable HTTP with a connection for each message. All messages about a request come in its response."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: str | None = None
        self._open: dict[int, tuple[http.client.HTTPConnection, http.client.HTTPResponse]] = {}

    def send(self, message: Message) -> bool:
        connection, response = _post(self._url, "/mcp", message, self._headers(message))
        if "method" in message and "id" in message:
            self._session = response.headers.get("Mcp-Session-Id", self._session)
            self._open[message["id"]] = connection, response
            return True
        with closing(connection):
            return _is_accepted(response)

    def receive(self, identity: int) -> Message:
        connection, response = self._open[identity]
        if response.headers.get_content_type() == "application/json":
            message: Message = json.loads(response.read())
        else:
            events = _Events(response)
            message = json.loads(events.next()[1])
            while "id" not in message:
                message = json.loads(events.next()[1])
        if "method" not in message:
            connection.close()
            del self._open[identity]
        return message

    def close(self) -> None:
        for connection, response in self._open.values():
            response.close()
            connection.close()
        self._open.clear()

    def end_session(self) -> None:
        """Tell the server that this session is over."""
        with closing(_connection(self._url)) as connection:
            connection.request("DELETE", "/mcp", headers=self._headers({}))
            assert connection.getresponse().status == http.HTTPStatus.OK

    def _headers(self, message: Message) -> dict[str, str]:
        params = message.get("params", {})
        if "_meta" in params:
            name = params.get("name", params.get("uri"))
            name_header = {"Mcp-Name": name} if name is not None else {}
            return {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"], **name_header}
        return {"Mcp-Session-Id": self._session} if self._session is not None else {}


class SseWire:
    """The older HTTP transport: the server sends all its messages on one stream."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = _connection(url)
        self._connection.request("GET", "/sse")
        self._response = self._connection.getresponse()
        self._events = _Events(self._response)
        name, self._endpoint = self._events.next()
        assert name == "endpoint"
        self._inbox = _Inbox()

    def send(self, message: Message) -> bool:
        connection, response = _post(self._url, self._endpoint, message, {})
        with closing(connection):
            return _is_accepted(response)

    def receive(self, identity: int) -> Message:
        while (message := self._inbox.take(identity)) is None:
            self._inbox.keep(json.loads(self._events.next()[1]))
        return message

    def close(self) -> None:
        self._response.close()
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a person, as the client receives it.

    Args:
        identity: The id of the live request, or the key among the input requests.
        message: The text of the question.
        schema: The schema of the form.
        state: In the 2026-07-28 revision, the sealed state that goes back with the answer.
    """

    identity: Any
    message: str
    schema: Mapping[str, Any]
    state: str | None = None

    @property
    def decisions(self) -> list[str]:
        """The values that the form offers, in order."""
        field = self.schema["properties"]["decision"]
        return [choice["const"] for choice in field["oneOf"]] if "oneOf" in field else field["enum"]

    @property
    def titles(self) -> list[str]:
        """The titles of these values, in the same order."""
        field = self.schema["properties"]["decision"]
        return [choice["title"] for choice in field["oneOf"]] if "oneOf" in field else field["enumNames"]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call.

    Args:
        text: The text of the first block, or an empty string if it has none.
        code: The error code, or `None` if the call succeeded.
        other_texts: The texts of the other blocks.
    """

    text: str
    code: str | None
    other_texts: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ProtocolError:
    """A JSON-RPC error, which no model ever sees."""

    code: int
    message: str


Outcome = Question | CallResult | ProtocolError


class RawClient:
    """A client that introduces itself, sends requests and answers questions.

    Args:
        wire: The connection to the server.
        revision: The protocol revision that it speaks.
        capabilities: The capabilities that it announces, once or in every request.
        name: The name that it gives itself.
        roots: The folders it works in, which it lists when the server asks.
        calls_through: Whether it calls tools through call_tool.
    """

    def __init__(
        self,
        wire: Wire,
        revision: str,
        capabilities: Mapping[str, Any] = FORM,
        name: str = "raw",
        roots: Sequence[Path] = (),
        *,
        calls_through: bool = False,
    ) -> None:
        self.calls_through = calls_through
        self.wire = wire
        self.revision = revision
        self._capabilities = dict(capabilities)
        self._info = {"name": name, "version": "1"}
        self._roots = [{"uri": root.as_uri()} for root in roots]
        self._numbers = itertools.count(1)

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the revision without a handshake."""
        return self.revision == MODERN

    def initialize(self) -> Message:
        """Introduce the client: by the handshake, or by `server/discover` in the revision without one."""
        if self.is_modern:
            return self._result("server/discover")
        params = {"protocolVersion": self.revision, "capabilities": self._capabilities, "clientInfo": self._info}
        answer = self._result("initialize", params)
        self.wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def is_answered(self) -> bool:
        """Return whether the server still answers."""
        return "error" not in self._answer(self.request("server/discover" if self.is_modern else "ping"))

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Call:
        """Begin a call."""
        if self.calls_through:
            return Call(self, "call_tool", {"name": tool, "arguments": arguments})
        return Call(self, tool, arguments)

    def tools(self) -> list[Message]:
        """Return the tools that the server lists."""
        return self._result("tools/list")["tools"]

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a request and return its id."""
        identity = next(self._numbers)
        full_params = dict(params or {})
        if self.is_modern:
            keys = {"protocolVersion": MODERN, "clientCapabilities": self._capabilities, "clientInfo": self._info}
            full_params["_meta"] = {f"io.modelcontextprotocol/{key}": value for key, value in keys.items()}
        self.wire.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": full_params})
        return identity

    def send_answer(self, identity: Any, **answer: Any) -> bool:
        """Send an answer, whether or not it was asked for. Return False if the transport itself refuses it."""
        return self.wire.send({"jsonrpc": "2.0", "id": identity, **answer})

    def receive(self, identity: int) -> Message:
        """Return the next message that belongs to this request. Requests for roots are answered on the way."""
        while (message := self.wire.receive(identity)).get("method") == "roots/list":
            self.send_answer(message["id"], result={"roots": self._roots})
        return message

    def _answer(self, identity: int) -> Message:
        message = self.receive(identity)
        assert "method" not in message, "the server sent a request instead of the answer"
        return message

    def _result(self, method: str, params: Mapping[str, Any] | None = None) -> Message:
        return self._answer(self.request(method, params))["result"]


class Call:
    """One tool call, from the request to the result, with the questions in between.

    Args:
        client: The client that makes the call.
        tool: The tool's name.
        arguments: The arguments, which the 2026-07-28 revision sends again with every answer.
    """

    def __init__(self, client: RawClient, tool: str, arguments: Mapping[str, Any]) -> None:
        self._client = client
        self._tool = tool
        self._arguments = dict(arguments)
        self._identity = self._begin({})

    def outcome(self) -> Outcome:
        """Return what the server sends next about this call: a question, a result or an error."""
        message = self._client.receive(self._identity)
        if message.get("method") == QUESTION:
            return Question(message["id"], message["params"]["message"], message["params"]["requestedSchema"])
        if "error" in message:
            return ProtocolError(message["error"]["code"], message["error"]["message"])
        return _outcome_of(message["result"])

    def next_question(self) -> Question:
        """Return the next outcome, which must be a question."""
        outcome = self.outcome()
        assert isinstance(outcome, Question), outcome
        return outcome

    def next_result(self) -> CallResult:
        """Return the next outcome, which must be a result."""
        outcome = self.outcome()
        assert isinstance(outcome, CallResult), outcome
        return outcome

    def answer(self, question: Question, reply: Any) -> bool:
        """Answer a question with any value, valid or not. Return False if the transport itself refuses it."""
        if not self._client.is_modern:
            return self._client.send_answer(question.identity, result=reply)
        self.retry({question.identity: reply}, question.state)
        return True

    def retry(self, responses: Any, state: Any) -> None:
        """Send the call again with these responses, valid or not."""
        self._identity = self._begin({"inputResponses": responses, "requestState": state})

    def _begin(self, extra_params: Mapping[str, Any]) -> int:
        present_params = {key: value for key, value in extra_params.items() if value is not None}
        return self._client.request("tools/call", {"name": self._tool, "arguments": self._arguments, **present_params})


def _outcome_of(result: Message) -> Outcome:
    if result.get("resultType") == "input_required":
        ((key, request),) = result["inputRequests"].items()
        assert request["method"] == QUESTION
        params = request["params"]
        return Question(key, params["message"], params["requestedSchema"], result["requestState"])
    error = result.get("_meta", {}).get("coretools-mcp/error")
    assert bool(result.get("isError")) == (error is not None), result
    first_text, *other_texts = (block.get("text", "") for block in result["content"])
    return CallResult(first_text, error["type"] if error is not None else None, tuple(other_texts))


@contextmanager
def _process(arguments: list[str], environ: Mapping[str, str] | None) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, *forked(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environ or {})},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(CEILING)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@contextmanager
def stdio_server(
    root: Path | None, config: Path | None, environ: Mapping[str, str] | None = None
) -> Generator[StdioWire]:
    """Run a server over stdio. Yields the wire of its only client."""
    with _process(server_arguments(root, config), environ) as process:
        yield StdioWire(process)


@contextmanager
def http_server(root: Path | None, config: Path | None, environ: Mapping[str, str] | None = None) -> Generator[str]:
    """Run a server over Streamable HTTP and SSE on a free port. Yields its base URL."""
    arguments = server_arguments(root, config, "--transport", "http", "--port", "0")
    with _process(arguments, environ) as process:
        assert process.stderr is not None
        output = b""
        while not (match := re.search(rb"serving MCP at (http://\S+?),", output)):
            line = process.stderr.readline()
            assert line, f"the server did not start: {output.decode()}"
            output += line
        yield match[1].decode()


def connect_http(url: str, transport: str) -> HttpWire | SseWire:
    """Open a new connection to a running server."""
    return SseWire(url) if transport == "sse" else HttpWire(url)


@contextmanager
def initialized_client(wire: Wire, revision: str, **options: Any) -> Generator[RawClient]:
    """Yield an initialized client. It disconnects at the end without telling the server."""
    client = RawClient(wire, revision, **options)
    try:
        client.initialize()
        yield client
    finally:
        wire.close()


def wait_until_time(moment: float) -> None:
    """Wait until the clock of this machine, which the server uses too, has passed a moment."""
    ceiling = time.monotonic() + CEILING
    while time.time() <= moment:
        assert time.monotonic() < ceiling
        time.sleep(0.01)
