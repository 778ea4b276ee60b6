"""An upstream that uses every feature of the protocol, with fields that no model of the SDK knows.

python asking_upstream.py ERA      over stdio; ERA is handshake, modern or both: the revisions that it speaks
python asking_upstream.py http [PORT]
                                   over HTTP, by default on a free port; prints the port on standard error; paths:
                                   /ERA/ROOM/mcp and /ERA/ROOM/sse

Each room is a server of its own: a change in one room is not visible in another one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

Json = dict[str, Any]

UNKNOWN: Json = {"x-unknown": {"deep": [1, None, "ü"]}}
PAGE = 8
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n-not-a-real-picture").decode()
ANY: Json = {"type": "object"}

SCHEMA: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.org/echo",
    "$defs": {"name": {"$anchor": "named", "type": "string", "x-unknown": True}},
    "type": "object",
    "properties": {"text": {"$ref": "#named"}, "any": {}},
    "x-unknown": 1,
}

ECHO: Json = {
    "name": "echo",
    "title": "Echo",
    "description": "Give back what came.",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object", "properties": {"params": ANY}, "x-unknown": 2},
    "annotations": {"title": "Echo!", "readOnlyHint": True, **UNKNOWN},
    "icons": [{"src": "data:,", "x-unknown": 3}],
    "_meta": {"example.org/kept": [1]},
    **UNKNOWN,
}
NAMES = (
    "content", "steps", "logs", "ask", "ask_twice", "ask_then_wait", "wait", "fail", "refuse", "whoami", "change",
    "touch", "say_closed", "roots",
)  # fmt: skip

EVENTS = {"tools": ToolsListChanged, "prompts": PromptsListChanged, "resources": ResourcesListChanged}


def text_of(value: Any) -> Json:
    """A tool result with this text, or with this value as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return {"content": [{"type": "text", "text": text}]}


class Upstream(Server[Any]):
    """The server of one room.

    Args:
        era: The revisions that it speaks: handshake, modern or both.
    """

    def __init__(self, era: str) -> None:
        self.bus = InMemorySubscriptionBus()
        super().__init__(
            "asking", version="7", instructions="Ask away.", on_subscriptions_listen=ListenHandler(self.bus)
        )
        self.era = era
        self._changes = 0
        self._description = "Whatever."
        self._subscribers: dict[str, list[Any]] = {}
        self._roots: list[Json] = []
        self._background: set[asyncio.Future[None]] = set()
        self.middleware.clear()
        self.middleware.append(self._answer)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Announce that every list may change."""
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, *args, **kwargs)

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        """Announce every capability."""
        capabilities = super().get_capabilities(*args, **kwargs)
        capabilities.tools = types.ToolsCapability(list_changed=True)
        capabilities.prompts = types.PromptsCapability(list_changed=True)
        capabilities.resources = types.ResourcesCapability(subscribe=True, list_changed=True)
        capabilities.completions = types.CompletionsCapability()
        capabilities.logging = types.LoggingCapability()
        return capabilities

    async def _answer(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        method, params = ctx.method, dict(ctx.params or {})
        if ctx.request_id is None:
            if (
                method in ("notifications/initialized", "notifications/roots/list_changed")
                and "ASKS_ROOTS" in os.environ
            ):
                self._background.add(asyncio.ensure_future(self._ask_roots(ctx.session._connection)))
            return await call_next(ctx)
        is_modern = ctx.protocol_version == "2026-07-28"
        if self.era != "both" and method != "ping" and is_modern is not (self.era == "modern"):
            raise MCPError(code=-32601, message="Method not found")
        handler = getattr(self, f"_on_{method.replace('/', '_')}", None)
        if handler is None:
            return await call_next(ctx)
        answer: Json = await handler(ctx, params)
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer} if is_modern else answer

    # Lists ----------------------------------------------------------------------------------------

    async def _on_tools_list(self, ctx: Any, params: Json) -> Json:
        if os.environ.get("ASKS_ROOTS") == "first" and not self._roots:
            await asyncio.gather(*self._background)
        plain_tools: list[Json] = [
            {"name": name, "description": self._description, "inputSchema": ANY} for name in NAMES
        ]
        added_tools: list[Json] = [{"name": f"added_{number}", "inputSchema": ANY} for number in range(self._changes)]
        return _page("tools", [ECHO, *plain_tools, *added_tools], params)

    async def _on_prompts_list(self, ctx: Any, params: Json) -> Json:
        del ctx
        greet = {"name": "greet", "arguments": [{"name": "who", "x-unknown": 1}], **UNKNOWN}
        return _page("prompts", [greet, *({"name": f"prompt_{number}"} for number in range(self._changes + 9))], params)

    async def _on_resources_list(self, ctx: Any, params: Json) -> Json:
        del ctx
        named_resources: list[Json] = [
            {"uri": "test://text", "name": "text", **UNKNOWN},
            {"uri": "test://binary", "name": "binary", "mimeType": "image/png"},
        ]
        numbered_resources = [
            {"uri": f"test://more/{number}", "name": f"{number}"} for number in range(self._changes + 9)
        ]
        return _page("resources", [*named_resources, *numbered_resources], params)

    async def _on_resources_templates_list(self, ctx: Any, params: Json) -> Json:
        del ctx
        return _page("resourceTemplates", [{"uriTemplate": "test://item/{id}", "name": "item", **UNKNOWN}], params)

    # Resources, prompts and completions -----------------------------------------------------------

    async def _on_resources_read(self, ctx: Any, params: Json) -> Json:
        del ctx
        uri = params["uri"]
        if uri == "test://binary":
            return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PIXEL, **UNKNOWN}]}
        if not uri.startswith("test://"):
            raise MCPError(code=-32002, message="no such thing", data={"uri": uri, **UNKNOWN})
        return {"contents": [{"uri": uri, "text": f"text of {uri}", **UNKNOWN}], **UNKNOWN, "_meta": {"kept": 1}}

    async def _on_resources_subscribe(self, ctx: Any, params: Json) -> Json:
        if Path(os.environ.get("REFUSES_WHERE", "/nowhere")).exists():
            raise MCPError(code=-32602, message="not here")
        self._subscribers.setdefault(params["uri"], []).append(ctx.session._connection)
        return {}

    async def _on_resources_unsubscribe(self, ctx: Any, params: Json) -> Json:
        self._subscribers[params["uri"]].remove(ctx.session._connection)
        return {}

    async def _on_logging_setLevel(self, ctx: Any, params: Json) -> Json:  # noqa: N802 - the method's name
        ctx.session._connection.state["level"] = params["level"]
        return {}

    async def _on_prompts_get(self, ctx: Any, params: Json) -> Json:
        arguments: Json = params.get("arguments") or {}
        if arguments.get("who") == "?":
            (answer,) = await self._ask(ctx, params, [{"method": "elicitation/create", "params": FORM}])
            if "inputRequests" in answer:
                return answer
            arguments = {"who": json.dumps(answer, sort_keys=True)}
        if arguments.get("who") == "link":
            return {"messages": [{"role": "user", "content": block, **UNKNOWN} for block in CONTENT], **UNKNOWN}
        message = {"role": "user", "content": {"type": "text", "text": f"Greet {arguments.get('who')}", **UNKNOWN}}
        return {"description": "A greeting", "messages": [{**message, **UNKNOWN}], **UNKNOWN}

    async def _on_completion_complete(self, ctx: Any, params: Json) -> Json:
        del ctx
        values = [json.dumps(params[key], sort_keys=True) for key in ("ref", "argument", "context") if key in params]
        return {"completion": {"values": values, "total": 9, "hasMore": True, "x-unknown": 1}, **UNKNOWN}

    async def _ask_roots(self, connection: Any) -> None:
        """Ask for the roots outside of any call, and keep the answer."""
        try:
            self._roots.append(await connection.send_raw_request("roots/list", {}))
        except MCPError as error:
            self._roots.append({"error": error.error.code})
        _mark({"mark": os.environ["ROOTS_MARK"]} if "ROOTS_MARK" in os.environ else {})("answered")

    # Tools ----------------------------------------------------------------------------------------

    async def _on_tools_call(self, ctx: Any, params: Json) -> Json:
        handler = getattr(self, f"_tool_{params.get('name')}", None)
        if handler is None:
            return text_of(f"called {params.get('name')}")
        return await handler(ctx, params, params.get("arguments") or {})

    async def _tool_roots(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Return the answers about roots so far; with `ask`, ask again without waiting for the answer."""
        del params
        if arguments.get("ask"):
            self._background.add(asyncio.ensure_future(self._ask_roots(ctx.session._connection)))
            await asyncio.sleep(0)  # the question goes out before the result
        return text_of(self._roots)

    async def _tool_echo(self, ctx: Any, params: Json, arguments: Json) -> Json:
        del ctx, arguments
        block = {"type": "text", "text": "echo", "annotations": {"audience": ["user"], **UNKNOWN}, **UNKNOWN}
        return {"content": [block], "structuredContent": {"params": params}, "_meta": {"kept": [1]}, **UNKNOWN}

    async def _tool_content(self, ctx: Any, params: Json, arguments: Json) -> Json:
        del ctx, params, arguments
        return {"content": CONTENT, "isError": False}

    async def _tool_steps(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Report progress step by step, with a pause after each step."""
        token = params["_meta"]["progressToken"]
        for step in range(1, arguments["steps"] + 1):
            progress = {"progressToken": token, "progress": step, "total": 9, "message": f"step {step}", "x-step": step}
            progress["x-none"] = None  # an unknown field whose value is null
            await ctx.session._request_outbound.notify("notifications/progress", progress)
            await anyio.sleep(arguments.get("pause", 0))
        return text_of("done")

    async def _tool_logs(self, ctx: Any, params: Json, arguments: Json) -> Json:
        for level in ("debug", "info", "error") * arguments.get("times", 1):
            log_message = {"level": level, "logger": "asking", "data": {"said": level}, "x-unknown": 1}
            await ctx.session._request_outbound.notify("notifications/message", log_message)
        request_level = params["_meta"].get("io.modelcontextprotocol/logLevel")
        return text_of({"level": ctx.session._connection.state.get("level", request_level)})

    async def _tool_ask(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Ask all questions at once, and return the answers."""
        mark = _mark(arguments)
        try:
            answers = await self._ask(ctx, params, arguments["questions"])
        except anyio.get_cancelled_exc_class():
            mark("cancelled")
            raise
        mark("answered", answers)
        return answers[0] if "inputRequests" in answers[0] else text_of(answers)

    async def _tool_ask_then_wait(self, ctx: Any, params: Json, arguments: Json) -> Json:
        answers = await self._ask(ctx, params, arguments["questions"])
        if "inputRequests" in answers[0]:
            return answers[0]
        return await self._tool_wait(ctx, params, arguments)

    async def _tool_ask_twice(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Ask the first question, and ask it again after the answer."""
        if ctx.protocol_version != "2026-07-28":
            answers = [(await self._ask(ctx, params, arguments["questions"]))[0] for _ in range(2)]
            return text_of(answers)
        responses: Json = params.get("inputResponses") or {}
        all_responses: list[Json] = [*json.loads(params.get("requestState", "[]")), *responses.values()]
        if len(all_responses) < 2:
            return _input_required(arguments["questions"][:1], json.dumps(all_responses))
        return text_of(all_responses)

    async def _tool_wait(self, ctx: Any, params: Json, arguments: Json) -> Json:
        del ctx, params
        mark = _mark(arguments)
        mark("began")
        try:
            await anyio.sleep_forever()
        finally:
            mark("cancelled")
        raise AssertionError

    async def _tool_fail(self, ctx: Any, params: Json, arguments: Json) -> Json:
        del ctx, params, arguments
        return {**text_of("it went wrong"), "isError": True, "structuredContent": {"why": 1}, **UNKNOWN}

    async def _tool_refuse(self, ctx: Any, params: Json, arguments: Json) -> Json:
        del ctx, params
        code = arguments.get("code", -32050)
        raise MCPError(code=code, message="the upstream's own error", data={"why": ["x"], **UNKNOWN})

    async def _tool_whoami(self, ctx: Any, params: Json, arguments: Json) -> Json:
        del arguments
        client = ctx.session.client_params
        capabilities = client.capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if client else None
        request_capabilities: Json | None = dict[str, Any](params.get("_meta") or {}).get(
            "io.modelcontextprotocol/clientCapabilities"
        )
        return text_of(
            {
                "pid": os.getpid(),
                "session": id(ctx.session._connection),
                "version": ctx.protocol_version,
                "capabilities": request_capabilities if request_capabilities is not None else capabilities,
            }
        )

    async def _tool_change(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Change the lists, and announce the changes `times` times."""
        del params
        self._changes += 1
        self._description = arguments.get("description", self._description)
        for _ in range(arguments.get("times", 1)):
            for kind, event in EVENTS.items():
                if ctx.protocol_version == "2026-07-28":
                    await self.bus.publish(event())
                else:
                    await ctx.session._connection.notify(f"notifications/{kind}/list_changed", {})
        return text_of("changed")

    async def _tool_touch(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Announce that a resource has changed; return how many subscribers were notified, if that is known."""
        del params
        uri = arguments["uri"]
        if ctx.protocol_version == "2026-07-28":
            await self.bus.publish(ResourceUpdated(uri))
            return text_of("?")
        watchers = self._subscribers.get(uri, [])
        for connection in watchers:
            await connection.notify("notifications/resources/updated", {"uri": uri, "x-unknown": 1})
        return text_of(str(len(watchers)))

    async def _tool_say_closed(self, ctx: Any, params: Json, arguments: Json) -> Json:
        """Fail with the code that the SDK reserves for lost connections."""
        del ctx, params, arguments
        raise MCPError(code=-32000, message="the shop is closed")

    # Questions ------------------------------------------------------------------------------------

    async def _ask(self, ctx: Any, params: Json, questions: list[Json]) -> list[Json]:
        """Return the answers; in 2026-07-28, the first call gives a result that carries the questions."""
        if ctx.protocol_version == "2026-07-28":
            if params.get("requestState") != "asked":
                return [_input_required(questions, "asked")]
            responses: Json = params.get("inputResponses") or {}
            return [responses.get(key, {}) for key in _input_required(questions, "")["inputRequests"]]
        answers: list[Json] = [{} for _ in questions]

        async def ask(number: int, question: Json) -> None:
            try:
                answers[number] = await ctx.session._request_outbound.send_raw_request(
                    question["method"], question.get("params") or {}
                )
            except MCPError as error:
                answers[number] = {"error": error.error.code}

        async with anyio.create_task_group() as tasks:
            for number, question in enumerate(questions):
                tasks.start_soon(ask, number, question)
        return answers


FORM: Json = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}

CONTENT: list[Json] = [
    {"type": "text", "text": "text", **UNKNOWN},
    {"type": "image", "data": PIXEL, "mimeType": "image/png", **UNKNOWN},
    {"type": "audio", "data": PIXEL, "mimeType": "audio/wav", **UNKNOWN},
    {"type": "resource_link", "uri": "test://text", "name": "text", "x-unknown": 1},
    {"type": "resource", "resource": {"uri": "test://text", "text": "x", **UNKNOWN}, **UNKNOWN},
    {"type": "resource", "resource": {"uri": "test://binary", "blob": PIXEL, "mimeType": "image/png"}},
]


def _input_required(questions: list[Json], state: str) -> Json:
    requests = {question.get("x-key", f"q{number}"): question for number, question in enumerate(questions)}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": state, **UNKNOWN}


def _mark(arguments: Mapping[str, Any]) -> Callable[..., None]:
    """Return a function that leaves files beside the path that the caller names; each appears with its full content."""

    def mark(word: str, value: Any = None) -> None:
        if "mark" in arguments:
            path = Path(f"{arguments['mark']}.{word}")
            path.with_suffix(".new").write_text(json.dumps(value))
            path.with_suffix(".new").rename(path)

    return mark


def _page(field: str, items: list[Json], params: Json) -> Json:
    start = int(params.get("cursor") or 0)
    next_cursor = {"nextCursor": str(start + PAGE)} if start + PAGE < len(items) else {}
    return {field: items[start : start + PAGE], **next_cursor}


# Serving --------------------------------------------------------------------------------------------


async def serve_stdio(era: str) -> None:
    """Serve one room over stdio."""
    async with stdio_server() as streams:
        await serve_streams(Upstream(era), *streams)


FOREIGN = {"handshake": "server/discover", "modern": "initialize"}
"""The method that a server of each era does not know"""


async def serve_streams(server: Upstream, read_stream: Any, write_stream: Any) -> None:
    """Serve one stream, and refuse the opening request of the other era.

    The SDK derives the era of a whole stream from its first request, even if that request is refused. So the SDK must
    not see the request of the other era.
    """
    send, receive = anyio.create_memory_object_stream[Any](0)

    async def pass_on() -> None:
        async with send:
            async for item in read_stream:
                message = getattr(item, "message", None)
                if isinstance(message, types.JSONRPCRequest) and message.method == FOREIGN.get(server.era):
                    error = types.ErrorData(code=-32601, message="Method not found")
                    refusal = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                    await write_stream.send(SessionMessage(refusal))
                else:
                    await send.send(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_on)
        await server.run(receive, write_stream, server.create_initialization_options())
        tasks.cancel_scope.cancel()


Room = tuple[Upstream, StreamableHTTPSessionManager, SseServerTransport]


class Rooms:
    """An ASGI application that creates each room at the first request to it."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self._tasks = tasks
        self._rooms: dict[str, Room] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request to its room."""
        match = re.fullmatch(r"/(\w+)/([\w.-]+)/(mcp|sse|messages/?)", scope["path"])
        assert match is not None, scope["path"]
        era, name, endpoint = match.groups()
        server, manager, sse = await self._room(era, name)
        if endpoint == "mcp":
            await manager.handle_request(scope, receive, send)
        elif endpoint == "sse":
            async with sse.connect_sse(scope, receive, send) as (read_stream, write_stream):
                await serve_streams(server, read_stream, write_stream)
        else:
            await sse.handle_post_message(scope, receive, send)

    async def _room(self, era: str, name: str) -> Room:
        if (key := f"{era}/{name}") not in self._rooms:
            manager = StreamableHTTPSessionManager(server := Upstream(era))
            self._rooms[key] = server, manager, SseServerTransport(f"/{key}/messages/")
            await self._tasks.start(_run, manager)
        return self._rooms[key]


async def _run(manager: StreamableHTTPSessionManager, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()


async def serve_http(port: int = 0) -> None:
    """Serve all rooms on a port; zero stands for a free one."""
    import socket

    listener = socket.create_server(("127.0.0.1", port))
    sys.stderr.write(f"port {listener.getsockname()[1]}\n")
    sys.stderr.flush()
    async with anyio.create_task_group() as tasks:
        config = uvicorn.Config(Rooms(tasks), log_config=None, timeout_graceful_shutdown=1, lifespan="off")
        await uvicorn.Server(config).serve(sockets=[listener])
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    mode, *ports = sys.argv[1:]
    anyio.run(serve_http, int(*ports)) if mode == "http" else anyio.run(serve_stdio, mode)
