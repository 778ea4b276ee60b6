"""MCP clients that keep every message as it came, in both eras and over every transport, and servers to test with."""

from __future__ import annotations

import inspect
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from server.app import App
from server.settings import load_settings
from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import PEERS, own_state, server_arguments, write_config
from tests.in_process import in_process
from tests.waiting import CEILING

Json = dict[str, Any]
Era = Literal["handshake", "modern"]

REVISIONS: Mapping[str, str] = {"handshake": "2025-11-25", "modern": "2026-07-28"}

ALL: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
"""The capabilities of a client that can do everything."""

UPSTREAM_KEY = "coretools-mcp/upstream"
"""The key in `_meta` under which a question names its upstream."""

PROGRESS = "notifications/progress"

Answer = Callable[[str, Json], "Json | Awaitable[Json | None] | None"]
"""Returns the answer to a question: `None` sends no answer, and a result with `error` sends that error."""


class AnswerError(Exception):
    """A request was answered with this error."""

    def __init__(self, error: Json) -> None:
        super().__init__(json.dumps(error))
        self.error = error


@dataclass(slots=True)
class _PendingRequest:
    finished: anyio.Event
    answer: Json | None = None
    error: Json | None = None


class WireClient:
    """A client of one server.

    Args:
        streams: The streams from and to the server.
        era: The era of the protocol that it speaks.
        capabilities: The capabilities that it announces.
        answer: Answers the questions of the server.
        name: The name that it gives itself.
    """

    def __init__(self, streams: Any, era: str, capabilities: Json, answer: Answer | None, name: str) -> None:
        self.info = {"name": name, "version": "1"}
        self._read, self._write = streams[:2]
        self.era = era
        self.capabilities = capabilities
        self.answer = answer
        self.messages: list[tuple[str, Json]] = []
        """All notifications in order. An `answer` entry marks the end of a request, and an `asked` entry a question."""
        self.questions: list[tuple[str, Json]] = []
        """All questions, whether the server sent them as requests or in a result that asks for another round."""
        self.handshake: Json = {}
        self._pending: dict[int, _PendingRequest] = {}
        self._numbers = itertools.count(1)
        self._message_event = anyio.Event()
        self._question_scopes: dict[Any, anyio.CancelScope] = {}

    @property
    def is_modern(self) -> bool:
        return self.era == "modern"

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for item in self._read:
                if not isinstance(item, SessionMessage):
                    continue
                match item.message:
                    case types.JSONRPCResponse(id=identity, result=result):
                        self._finish(identity, result, None)
                    case types.JSONRPCError(id=identity, error=error):
                        self._finish(identity, None, error.model_dump(mode="json", exclude_unset=True))
                    case types.JSONRPCRequest(id=identity, method=method, params=params):
                        tasks.start_soon(self._on_question, identity, method, dict(params or {}))
                    case types.JSONRPCNotification(method=method, params=params):
                        self._on_notification(method, dict(params or {}))

    def _finish(self, identity: Any, result: Json | None, error: Json | None) -> None:
        self._record("answer", {"id": identity})
        if (entry := self._pending.pop(int(identity), None)) is not None:
            entry.answer, entry.error = result, error
            entry.finished.set()

    def _on_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and (scope := self._question_scopes.get(params["requestId"])):
            scope.cancel()
        self._record(method, params)

    def _record(self, method: str, params: Json) -> None:
        self.messages.append((method, params))
        self._message_event.set()
        self._message_event = anyio.Event()

    async def wait_for_notifications(self, method: str, count: int = 1) -> list[Json]:
        """Wait until at least `count` notifications of this method have come, and return their parameters."""
        while len(matches := [params for name, params in self.messages if name == method]) < count:
            await self._message_event.wait()
        return matches

    async def wait_for_questions(self, count: int = 1) -> None:
        """Wait until at least `count` questions have come."""
        while len(self.questions) < count:
            await self._message_event.wait()

    async def _on_question(self, identity: Any, method: str, params: Json) -> None:
        with anyio.CancelScope() as scope:
            self._question_scopes[identity] = scope
            result = await self._answer_to(method, params)
            if result is None:
                return
            if "error" in result:
                message = types.JSONRPCError(jsonrpc="2.0", id=identity, error=types.ErrorData(**result["error"]))
            else:
                message = types.JSONRPCResponse(jsonrpc="2.0", id=identity, result=result)
            await self._send(message, {})

    async def _answer_to(self, method: str, params: Json) -> Json | None:
        if method == "roots/list" and UPSTREAM_KEY not in params.get("_meta", {}):
            return {"roots": []}  # the server asks this for itself
        self.questions.append((method, params))
        self._record("asked", {"method": method})
        assert self.answer is not None, f"unexpected question: {method} {params}"
        result = self.answer(method, params)
        return await result if inspect.isawaitable(result) else result

    async def _send(self, message: types.JSONRPCMessage, headers: Mapping[str, str]) -> None:
        await self._write.send(SessionMessage(message, ClientMessageMetadata(headers=dict(headers))))

    async def notify(self, method: str, params: Json | None = None) -> None:
        headers = {"mcp-protocol-version": REVISIONS[self.era]}
        await self._send(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params), headers)

    async def request(self, method: str, params: Json | None = None, meta: Json | None = None) -> Json:
        """Send a request and wait for its result. If this wait is cancelled, so is the request.

        Raises:
            AnswerError: The answer is an error.
        """
        identity = next(self._numbers)
        meta_fields: Json = {**(meta or {})}
        headers = {"mcp-protocol-version": REVISIONS[self.era]} if method != "initialize" else {}
        if self.is_modern:
            keys = {
                "protocolVersion": REVISIONS["modern"],
                "clientCapabilities": self.capabilities,
                "clientInfo": self.info,
            }
            meta_fields |= {f"io.modelcontextprotocol/{key}": value for key, value in keys.items()}
            name_key = {"resources": "uri", "tasks": "taskId"}.get(method.partition("/")[0], "name")
            name = (params or {}).get(name_key)
            headers |= {"mcp-method": method, **({"mcp-name": name} if name is not None else {})}
        if meta_fields.get("progressToken") == "mine":
            meta_fields["progressToken"] = identity
        request_params = {**(params or {}), **({"_meta": meta_fields} if meta_fields else {})}
        entry = self._pending[identity] = _PendingRequest(anyio.Event())
        await self._send(
            types.JSONRPCRequest(jsonrpc="2.0", id=identity, method=method, params=request_params), headers
        )
        try:
            await entry.finished.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.notify("notifications/cancelled", {"requestId": identity})
            raise
        if entry.error is not None:
            raise AnswerError(entry.error)
        return entry.answer or {}

    async def initialize(self) -> None:
        """Perform the handshake, or its modern equivalent `server/discover`."""
        if self.is_modern:
            self.handshake = await self.request("server/discover")
            return
        params = {"protocolVersion": REVISIONS["handshake"], "capabilities": self.capabilities, "clientInfo": self.info}
        self.handshake = await self.request("initialize", params)
        await self.notify("notifications/initialized")

    async def ask_in_rounds(self, method: str, params: Json, meta: Json | None = None) -> Json:
        """Send a request, and send it again with answers while the result asks questions."""
        result = await self.request(method, params, meta)
        while result.get("resultType") == "input_required":
            result = await self.request(method, {**params, **await self.answers_to(result)}, meta)
        return result

    async def answers_to(self, result: Json) -> Json:
        """Return the parameters that answer the questions of a result in the next round."""
        answers: Json = {}
        for key, question in result.get("inputRequests", {}).items():
            answer = await self._answer_to(question["method"], question.get("params") or {})
            if answer is not None:
                answers[key] = answer
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": answers, **state}

    async def call(self, tool: str, arguments: Json | None = None, meta: Json | None = None) -> Json:
        """Call a tool, and answer the questions that its result asks."""
        return await self.ask_in_rounds("tools/call", call_params(tool, arguments), meta)

    async def call_and_parse(self, tool: str, arguments: Json | None = None) -> Any:
        """Call a tool, and return its text, parsed if it is JSON."""
        return text_or_json(await self.call(tool, arguments))

    async def items_by_name(self, kind: str) -> dict[str, Json]:
        """List all items of a kind, keyed by their names or URIs."""
        method, key = {
            "tools": ("tools/list", "name"),
            "prompts": ("prompts/list", "name"),
            "resources": ("resources/list", "uri"),
            "resourceTemplates": ("resources/templates/list", "uriTemplate"),
        }[kind]
        result = await self.request(method)
        assert "nextCursor" not in result
        return {item[key]: item for item in result[kind]}


class CallStyle:
    """Whether the clients of a test call the tools of upstreams by their names or through `call_tool`."""

    uses_call_tool = False


def call_params(tool: str, arguments: Json | None = None) -> Json:
    """Return the parameters of a call in the style of the test."""
    argument_params = {} if arguments is None else {"arguments": arguments}
    if CallStyle.uses_call_tool and "__" in tool:
        return {"name": "call_tool", "arguments": {"name": tool, **argument_params}}
    return {"name": tool, **argument_params}


def settings_for_call_style(settings: Json) -> Json:
    """Return settings for the call style of the test. All tools stay listed, so that tests can wait for them."""
    if not CallStyle.uses_call_tool:
        return settings
    servers = {alias: {"alwaysLoad": True, **entry} for alias, entry in settings["mcpServers"].items()}
    return {**settings, "mcpServers": servers, "proxy": {"search": "on", **settings.get("proxy", {})}}


def refusal_of(result: Json) -> str:
    """Return the text of a result, which must be a denial."""
    assert result["isError"]
    assert result["_meta"]["coretools-mcp/error"]["type"] == "execution_denied"
    return result["content"][0]["text"]


def text_or_json(result: Json) -> Any:
    """Return the text of a result, parsed if it is JSON."""
    text = result["content"][0]["text"]
    assert not result.get("isError"), text
    try:
        return json.loads(text)
    except ValueError:
        return text


def accept_forms(content: Json | None = None) -> Answer:
    """Return an answer function that accepts every form with this content."""

    def answer(method: str, params: Json) -> Json:
        assert method == "elicitation/create"
        return {"action": "accept", "content": content or {}}

    return answer


def answer_with(**results: Json) -> Answer:
    """Return an answer function that picks the result by the first word of the method."""
    return lambda method, _: results[method.partition("/")[0]]


@asynccontextmanager
async def client_on(
    transport: AbstractAsyncContextManager[Any],
    era: str,
    capabilities: Json | None = None,
    answer: Answer | None = None,
    name: str = "wire",
) -> AsyncGenerator[WireClient]:
    """Connect a client and initialize it."""
    with anyio.fail_after(CEILING):
        async with transport as streams, anyio.create_task_group() as tasks:
            client = WireClient(streams, era, ALL if capabilities is None else capabilities, answer, name)
            tasks.start_soon(client.run)
            await client.initialize()
            yield client
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def http_transport(url: str, token: str | None = None) -> AsyncGenerator[Any]:
    """Connect over Streamable HTTP, or over SSE if the URL ends with `/sse`."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if url.endswith("/sse"):
        async with sse_client(url, headers=headers) as streams:
            yield streams
        return
    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(CEILING)) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


def app_of(config: Path) -> App:
    """Return an app in this process that behaves as it does over stdio."""
    return App(load_settings([str(config)], {}, own_state()), "stdio")


@asynccontextmanager
async def proxy_client(
    folder: Path,
    servers: Mapping[str, Json],
    era: str,
    *,
    transport: str = "memory",
    settings: Json | None = None,
    capabilities: Json | None = None,
    answer: Answer | None = None,
) -> AsyncGenerator[WireClient]:
    """Start a proxy, in this process or over stdio in another one, and yield its only client."""
    all_settings: Json = {"tools": {"builtIn": False}, "mcpServers": servers, **(settings or {})}
    config = write_config(folder, settings_for_call_style(all_settings))
    if transport == "stdio":
        command = StdioServerParameters(command=sys.executable, args=forked(server_arguments(None, config)))
        async with client_on(stdio_client(command), era, capabilities, answer) as client:
            yield client
        return
    app = app_of(config)
    async with app.running(), client_on(in_process(app), era, capabilities, answer) as client:
        yield client


def stdio_entry(era: str, **fields: Any) -> Json:
    """Return a settings entry for an upstream over stdio that speaks this era."""
    return {
        "command": sys.executable,
        "args": forked([str(PEERS / "asking_upstream.py"), era]),
        "trust": True,
        **fields,
    }


async def wait_for_file(path: Path) -> None:
    """Wait until the upstream has created a file."""
    while not path.exists():  # noqa: ASYNC110 - no event tells that a file appears
        await anyio.sleep(0.005)


def listing_entry(name: str, *, entry: Json | None = None, **orders: Any) -> Json:
    """Return a settings entry for an upstream that lists the items in its orders; its tools return its name.

    Args:
        name: The name of the upstream.
        entry: Further fields of the entry.
        orders: Orders for `listing_upstream.py`.
    """
    peer = str(PEERS / "listing_upstream.py")
    return {"command": sys.executable, "args": ["-S", peer, json.dumps({"name": name, **orders})], **(entry or {})}


def named_resources(*uris: str) -> list[Json]:
    """Return resources or templates that have only a URI and a name."""
    return [{"uriTemplate" if "{" in uri else "uri": uri, "name": uri} for uri in uris]


def scripted_entry(name: str, era: str = "handshake", *, entry: Json | None = None, **orders: Any) -> Json:
    """Return a settings entry for an upstream that answers each method as its orders say.

    Args:
        name: The name of the upstream.
        era: The era of the protocol that it speaks.
        entry: Further fields of the entry.
        orders: Orders for `scripted_upstream.py`.
    """
    script = json.dumps({"name": name, "era": era, **orders})
    peer = str(PEERS / "scripted_upstream.py")
    return {"command": sys.executable, "args": ["-S", peer, script], "trust": True, **(entry or {})}


@contextmanager
def scripted_http_entry(**orders: Any) -> Generator[Json]:
    """Run a scripted upstream over HTTP, and yield its settings entry."""
    command = [
        sys.executable,
        "-S",
        str(PEERS / "scripted_upstream.py"),
        json.dumps({"name": "up", "era": "modern", **orders}),
    ]
    with background_server([*command, "http"], r"port (\d+)") as port:
        yield {"httpUrl": f"http://127.0.0.1:{port}/mcp", "trust": True}
