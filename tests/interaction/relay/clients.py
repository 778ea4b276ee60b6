"""Clients that take what comes as it is, in both eras, over every transport; and servers of ours for them."""

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
"""What a client announces that can do everything."""

UPSTREAM_KEY = "coretools-mcp/upstream"
"""Under this key stands whose question it is."""

PROGRESS = "notifications/progress"

Answer = Callable[[str, Json], "Json | Awaitable[Json | None] | None"]
"""Answers a question; `None` is no answer at all, an `error` in it is one."""


class AnswerError(Exception):
    """A request was answered with an error, as it came."""

    def __init__(self, error: Json) -> None:
        super().__init__(json.dumps(error))
        self.error = error


@dataclass(slots=True)
class _Open:
    done: anyio.Event
    answer: Json | None = None
    error: Json | None = None


class WireClient:
    """One client.

    Args:
        streams: To the server.
        era: What it speaks.
        capabilities: What it announces.
        answer: Answers what it is asked.
        name: What it calls itself.
    """

    def __init__(self, streams: Any, era: str, capabilities: Json, answer: Answer | None, name: str) -> None:
        self.info = {"name": name, "version": "1"}
        self._read, self._write = streams[:2]
        self.era = era
        self.capabilities = capabilities
        self.answer = answer
        self.messages: list[tuple[str, Json]] = []
        """Notifications as they came; the end of a request stands there as `answer`."""
        self.questions: list[tuple[str, Json]] = []
        """What it was asked while it waited, or in rounds."""
        self.handshake: Json = {}
        self._open: dict[int, _Open] = {}
        self._numbers = itertools.count(1)
        self._news = anyio.Event()
        self._questions: dict[Any, anyio.CancelScope] = {}

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
        self._hear("answer", {"id": identity})
        if (entry := self._open.pop(int(identity), None)) is not None:
            entry.answer, entry.error = result, error
            entry.done.set()

    def _on_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and (scope := self._questions.get(params["requestId"])):
            scope.cancel()
        self._hear(method, params)

    def _hear(self, method: str, params: Json) -> None:
        self.messages.append((method, params))
        self._news.set()
        self._news = anyio.Event()

    async def wait_for_notifications(self, method: str, count: int = 1) -> list[Json]:
        """Wait for so many notifications of a kind."""
        while len(found := [params for name, params in self.messages if name == method]) < count:
            await self._news.wait()
        return found

    async def wait_for_questions(self, count: int = 1) -> None:
        """Wait until so much was asked."""
        while len(self.questions) < count:
            await self._news.wait()

    async def _on_question(self, identity: Any, method: str, params: Json) -> None:
        with anyio.CancelScope() as scope:
            self._questions[identity] = scope
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
            return {"roots": []}  # the server itself wants to know
        self.questions.append((method, params))
        self._hear("asked", {"method": method})
        assert self.answer is not None, f"nobody wanted to be asked: {method} {params}"
        result = self.answer(method, params)
        return await result if inspect.isawaitable(result) else result

    async def _send(self, message: types.JSONRPCMessage, headers: Mapping[str, str]) -> None:
        await self._write.send(SessionMessage(message, ClientMessageMetadata(headers=dict(headers))))

    async def notify(self, method: str, params: Json | None = None) -> None:
        headers = {"mcp-protocol-version": REVISIONS[self.era]}
        await self._send(types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params), headers)

    async def request(self, method: str, params: Json | None = None, meta: Json | None = None) -> Json:
        """Ask, and wait; given up, it is cancelled.

        Raises:
            AnswerError: The answer is an error.
        """
        identity = next(self._numbers)
        stamped: Json = {**(meta or {})}
        headers = {"mcp-protocol-version": REVISIONS[self.era]} if method != "initialize" else {}
        if self.is_modern:
            keys = {
                "protocolVersion": REVISIONS["modern"],
                "clientCapabilities": self.capabilities,
                "clientInfo": self.info,
            }
            stamped |= {f"io.modelcontextprotocol/{key}": value for key, value in keys.items()}
            named = {"resources": "uri", "tasks": "taskId"}.get(method.partition("/")[0], "name")
            name = (params or {}).get(named)
            headers |= {"mcp-method": method, **({"mcp-name": name} if name is not None else {})}
        if stamped.get("progressToken") == "mine":
            stamped["progressToken"] = identity
        sent = {**(params or {}), **({"_meta": stamped} if stamped else {})}
        entry = self._open[identity] = _Open(anyio.Event())
        await self._send(types.JSONRPCRequest(jsonrpc="2.0", id=identity, method=method, params=sent), headers)
        try:
            await entry.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.notify("notifications/cancelled", {"requestId": identity})
            raise
        if entry.error is not None:
            raise AnswerError(entry.error)
        return entry.answer or {}

    async def initialize(self) -> None:
        """Introduce itself."""
        if self.is_modern:
            self.handshake = await self.request("server/discover")
            return
        params = {"protocolVersion": REVISIONS["handshake"], "capabilities": self.capabilities, "clientInfo": self.info}
        self.handshake = await self.request("initialize", params)
        await self.notify("notifications/initialized")

    async def ask_in_rounds(self, method: str, params: Json, meta: Json | None = None) -> Json:
        """Ask, and answer the questions of a server that returns them."""
        result = await self.request(method, params, meta)
        while result.get("resultType") == "input_required":
            result = await self.request(method, {**params, **await self.answers_to(result)}, meta)
        return result

    async def answers_to(self, result: Json) -> Json:
        """What goes back with the next round."""
        answers: Json = {}
        for key, question in result.get("inputRequests", {}).items():
            answer = await self._answer_to(question["method"], question.get("params") or {})
            if answer is not None:
                answers[key] = answer
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": answers, **state}

    async def call(self, tool: str, arguments: Json | None = None, meta: Json | None = None) -> Json:
        """Call a tool; questions are answered."""
        return await self.ask_in_rounds("tools/call", call_params(tool, arguments), meta)

    async def call_and_parse(self, tool: str, arguments: Json | None = None) -> Any:
        """What a tool tells, read as JSON where it is some."""
        return text_or_json(await self.call(tool, arguments))

    async def items_by_name(self, kind: str) -> dict[str, Json]:
        """What is listed, by its name."""
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
    """How the clients of a test call tools: by their names, or through call_tool where these are searched for."""

    uses_call_tool = False


def call_params(tool: str, arguments: Json | None = None) -> Json:
    """The parameters of a call, in the way of the test."""
    given = {} if arguments is None else {"arguments": arguments}
    if CallStyle.uses_call_tool and "__" in tool:
        return {"name": "call_tool", "arguments": {"name": tool, **given}}
    return {"name": tool, **given}


def settings_for_call_style(settings: Json) -> Json:
    """Settings for the way of the test. Tools stay in the list, so that a test sees there what it waits for."""
    if not CallStyle.uses_call_tool:
        return settings
    servers = {alias: {"alwaysLoad": True, **entry} for alias, entry in settings["mcpServers"].items()}
    return {**settings, "mcpServers": servers, "proxy": {"search": "on", **settings.get("proxy", {})}}


def refusal_of(result: Json) -> str:
    """What a call that was denied is told."""
    assert result["isError"]
    assert result["_meta"]["coretools-mcp/error"]["type"] == "execution_denied"
    return result["content"][0]["text"]


def text_or_json(result: Json) -> Any:
    """The text of a result, read as JSON where it is some."""
    text = result["content"][0]["text"]
    assert not result.get("isError"), text
    try:
        return json.loads(text)
    except ValueError:
        return text


def accept_forms(content: Json | None = None) -> Answer:
    """Accepts every form."""

    def answer(method: str, params: Json) -> Json:
        assert method == "elicitation/create"
        return {"action": "accept", "content": content or {}}

    return answer


def answer_with(**results: Json) -> Answer:
    """Answers by the first word of the method."""
    return lambda method, _: results[method.partition("/")[0]]


@asynccontextmanager
async def client_on(
    transport: AbstractAsyncContextManager[Any],
    era: str,
    capabilities: Json | None = None,
    answer: Answer | None = None,
    name: str = "wire",
) -> AsyncGenerator[WireClient]:
    """A client that has introduced itself."""
    with anyio.fail_after(CEILING):
        async with transport as streams, anyio.create_task_group() as tasks:
            client = WireClient(streams, era, ALL if capabilities is None else capabilities, answer, name)
            tasks.start_soon(client.run)
            await client.initialize()
            yield client
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def http_transport(url: str, token: str | None = None) -> AsyncGenerator[Any]:
    """Streamable HTTP, or SSE where the address says so."""
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
    """A server of ours in this process, as it is over stdio."""
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
    """A client of a proxy of its own; the proxy is in this process, or over stdio in another one."""
    written: Json = {"tools": {"builtIn": False}, "mcpServers": servers, **(settings or {})}
    config = write_config(folder, settings_for_call_style(written))
    if transport == "stdio":
        command = StdioServerParameters(command=sys.executable, args=forked(server_arguments(None, config)))
        async with client_on(stdio_client(command), era, capabilities, answer) as client:
            yield client
        return
    app = app_of(config)
    async with app.running(), client_on(in_process(app), era, capabilities, answer) as client:
        yield client


def stdio_entry(era: str, **more: Any) -> Json:
    """An upstream over stdio that speaks this era."""
    return {"command": sys.executable, "args": forked([str(PEERS / "asking_upstream.py"), era]), "trust": True, **more}


async def wait_for_file(path: Path) -> None:
    """Wait for a file that the upstream leaves."""
    while not path.exists():  # noqa: ASYNC110 - nobody tells of a file that appears
        await anyio.sleep(0.005)


def listing_entry(name: str, *, entry: Json | None = None, **orders: Any) -> Json:
    """A settings entry for an upstream that lists what it is told to, and says its name.

    Args:
        name: What it says.
        entry: What else stands in the settings.
        orders: As `listing_upstream.py` takes them.
    """
    peer = str(PEERS / "listing_upstream.py")
    return {"command": sys.executable, "args": ["-S", peer, json.dumps({"name": name, **orders})], **(entry or {})}


def named_resources(*uris: str) -> list[Json]:
    """Resources or templates with nothing but a name."""
    return [{"uriTemplate" if "{" in uri else "uri": uri, "name": uri} for uri in uris]


def scripted_entry(name: str, era: str = "handshake", *, entry: Json | None = None, **orders: Any) -> Json:
    """A settings entry for an upstream that answers each method as it is told.

    Args:
        name: What it tells as its own.
        era: What it speaks.
        entry: What else stands in the settings.
        orders: As `scripted_upstream.py` takes them.
    """
    told = json.dumps({"name": name, "era": era, **orders})
    peer = str(PEERS / "scripted_upstream.py")
    return {"command": sys.executable, "args": ["-S", peer, told], "trust": True, **(entry or {})}


@contextmanager
def scripted_http_entry(**orders: Any) -> Generator[Json]:
    """The same over HTTP; an entry as long as this lasts."""
    command = [
        sys.executable,
        "-S",
        str(PEERS / "scripted_upstream.py"),
        json.dumps({"name": "up", "era": "modern", **orders}),
    ]
    with background_server([*command, "http"], r"port (\d+)") as port:
        yield {"httpUrl": f"http://127.0.0.1:{port}/mcp", "trust": True}
