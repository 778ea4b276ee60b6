"""An upstream of 2026-07-28 whose tools are done as tasks (SEP-2663), written on the wire.

python task_upstream.py stdio      over stdio
python task_upstream.py old        over stdio, in the revision 2025-11-25, in which it promises tasks all the same
python task_upstream.py http       on a free port, told on standard error; each path is a server of its own

The tools up to `test_tool_with_task` are those that the official conformance suite wants. Besides, `manual` is a task
that stays as it is until `settle` changes it, and needs a client that knows tasks unless it is to be done `anyway`.
What creates it tells no result, error or questions unless it is to be told `whole`. After `forget` it is not known any
more, after `keep` it goes on to show questions that were answered, and `trouble` has its next requests of a method
answered with `errors`, or never where one of these is null. `shout` tells of a task where nobody has asked for that,
and to read the resource becomes a task, which it may not. `told` lists the requests that came, the ids of tasks and
that of the program, which reads nothing after `deafen` and is ended by `leave`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]
Tell = Callable[[Json], Awaitable[None]]

EXTENSION = "io.modelcontextprotocol/tasks"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
FINAL = ("completed", "failed", "cancelled")
NAMES = (
    "greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input",
    "test_tool_with_task", "manual", "settle", "forget", "keep", "trouble", "shout", "told", "deafen", "leave",
)  # fmt: skip
CAPABILITIES: Json = {"tools": {}, "resources": {}, "extensions": {EXTENSION: {}}}
RESOURCE = {"uri": "test://text", "name": "text"}


class ProtocolError(Exception):
    """Answered with this error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


def fields_of(value: Any) -> Json:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - keys are texts


def text_of(value: Any) -> Json:
    """A result that tells something."""
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def form(message: str) -> Json:
    """A question for a person."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "confirm": {"type": "boolean"}}}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def now() -> str:
    """As tasks tell times."""
    return datetime.now(UTC).isoformat()


class TaskServer:
    """One server, with the tasks that it knows."""

    def __init__(self, *, is_old: bool = False) -> None:
        self.is_old = is_old
        self.tasks: dict[str, Json] = {}
        self.labels: dict[str, str] = {}
        self.answers: dict[str, Json] = {}
        self.keeping = set[str]()
        self.troubles: dict[tuple[str, str], list[Json | None]] = {}
        self.stop_reading: Callable[[], None] = lambda: None
        self.told: list[Json] = []
        self.streams: list[tuple[Any, list[str], Tell]] = []
        self._numbers = itertools.count(1)
        self._running = set[asyncio.Task[None]]()

    async def answer(self, message: Json, name: str | None, tell: Tell) -> Json:
        """The answer to a request; `name` is its `Mcp-Name` header, where there are headers."""
        method, params = str(message["method"]), fields_of(message.get("params"))
        capabilities = fields_of(fields_of(params.get("_meta")).get("io.modelcontextprotocol/clientCapabilities"))
        knows = EXTENSION in fields_of(capabilities.get("extensions"))
        if method != "tools/call" or params.get("name") != "told":
            more = {key: value for key, value in params.items() if key != "_meta"}
            self.told.append({"method": method, **more, "header": name, "knows": knows, "capabilities": capabilities})
        try:
            result = await self.result(method, params, message["id"], tell, knows=knows)
        except ProtocolError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": error.error}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}

    async def result(self, method: str, params: Json, identity: Any, tell: Tell, *, knows: bool) -> Json:
        cached = {"ttlMs": 0, "cacheScope": "private"}
        match method:
            case "initialize" if self.is_old:
                server = {"name": "tasks", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": server}
            case "server/discover" if not self.is_old:
                return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, **cached}
            case "tools/list":
                tools: list[Json] = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
                tools[2]["execution"] = {"taskSupport": "required"}
                return {"tools": tools, **cached}
            case "resources/list":
                return {"resources": [RESOURCE], **cached}
            case "resources/templates/list":
                return {"resourceTemplates": [], **cached}
            case "resources/read":
                return {"resultType": "task", "taskId": "read", "status": "working"}
            case "tools/call":
                return await self.call(params, tell, knows=knows)
            case "subscriptions/listen":
                return await self.listen(params["notifications"], identity, tell)
            case "tasks/get" | "tasks/update" | "tasks/cancel":
                if not knows:
                    raise self.required()
                task = self.tasks.get(params["taskId"])
                if task is None:
                    raise ProtocolError(-32602, "Failed to retrieve task: Task not found")
                if troubles := self.troubles.get((task["taskId"], method)):
                    if (error := troubles.pop(0)) is not None:
                        raise ProtocolError(error["code"], error["message"])
                    await asyncio.Event().wait()
                if method == "tasks/get":
                    return dict(task)
                if method == "tasks/update":
                    await self.update(task, params["inputResponses"])
                elif task["status"] not in FINAL:
                    await self.change(task, status="cancelled")
                return fields_of(task.get("x-reply"))
            case _:
                raise ProtocolError(-32601, "Method not found")

    def required(self) -> ProtocolError:
        """For who does not know tasks."""
        wanted: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        return ProtocolError(-32021, "Missing required client capability", wanted)

    async def call(self, params: Json, tell: Tell, *, knows: bool) -> Json:
        name, given = str(params["name"]), fields_of(params.get("arguments"))
        match name:
            case "greet":
                return text_of(f"Hello, {given.get('name')}!")
            case "told":
                return text_of({"labels": self.labels, "told": self.told, "pid": os.getpid()})
            case "deafen":
                self.stop_reading()
                return text_of("deaf")
            case "leave":
                os._exit(0)
            case "settle":
                task = self.tasks[self.labels[given.pop("label")]]
                await self.change(task, **given)
                return text_of(task)
            case "forget":
                del self.tasks[self.labels[given["label"]]]
                return text_of("forgotten")
            case "keep":
                self.keeping.add(self.labels[given["label"]])
                return text_of("kept")
            case "trouble":
                self.troubles[self.labels[given["label"]], given["method"]] = given["errors"]
                return text_of("in trouble")
            case "shout":
                task = {"taskId": "x", "status": "working", "_meta": {SUBSCRIPTION: 1}}
                await tell({"jsonrpc": "2.0", "method": "notifications/tasks", "params": task})
                return text_of("said")
            case "slow_compute" if not knows:
                await asyncio.sleep(given.get("seconds", 0))
                return text_of("computed")
            case "test_tool_with_task" if not params.get("inputResponses"):
                return {"resultType": "input_required", "inputRequests": {"who": form("Who?")}, "requestState": "one"}
            case _:
                pass
        if not knows and not given.get("anyway"):
            raise self.required()
        label = given.get("label", name)
        task: Json = {
            "taskId": f"t{next(self._numbers)}-{os.urandom(8).hex()}",
            "status": "working",
            "createdAt": now(),
            "lastUpdatedAt": now(),
            "ttlMs": 60_000,
            "pollIntervalMs": 100,
            **fields_of(given.get("fields")),
        }
        created = {"resultType": "task", **task}
        if not given.get("whole"):
            created = {key: value for key, value in created.items() if key not in ("result", "error", "inputRequests")}
        self.tasks[task["taskId"]] = task
        self.labels[label] = task["taskId"]
        if name != "manual":
            answer = fields_of(fields_of(params.get("inputResponses")).get("who"))
            who = str(fields_of(answer.get("content")).get("name"))
            running = asyncio.create_task(self.run(name, task, given, who))
            self._running.add(running)
            running.add_done_callback(self._running.discard)
        return created

    async def run(self, name: str, task: Json, given: Json, who: str) -> None:
        """Do the work of a task."""
        match name:
            case "slow_compute":
                await asyncio.sleep(given.get("seconds", 0))
                await self.change(task, status="completed", result=text_of("computed"))
            case "failing_job":
                await self.change(task, status="completed", result={**text_of("it failed"), "isError": True})
            case "protocol_error_job":
                await self.change(task, status="failed", error={"code": -32603, "message": "it broke"})
            case "test_tool_with_task":
                await self.change(task, status="completed", result=text_of(f"Hello, {who}!"))
            case "confirm_delete":
                await self.change(task, status="input_required", inputRequests={"sure": form("Sure?")})
            case _:
                both = {"first": form("First?"), "second": form("Second?")}
                await self.change(task, status="input_required", inputRequests=both)

    async def update(self, task: Json, responses: Json) -> None:
        if task["taskId"] in self.keeping:
            return
        asked = fields_of(task.get("inputRequests"))
        counting = {key: response for key, response in responses.items() if key in asked}
        self.answers.setdefault(task["taskId"], {}).update(counting)
        left = {key: question for key, question in asked.items() if key not in counting}
        if left or not counting:
            task["inputRequests"] = left
            return
        del task["inputRequests"]
        await self.change(task, status="completed", result=text_of(self.answers[task["taskId"]]))

    async def change(self, task: Json, **fields: Any) -> None:
        if task["status"] in FINAL:
            return
        task |= {**fields, "lastUpdatedAt": now()}
        if task["status"] != "input_required" and "inputRequests" not in fields:
            task.pop("inputRequests", None)
        for identity, names, tell in self.streams:
            if task["taskId"] in names:
                told = {**task, "_meta": {SUBSCRIPTION: identity}}
                await tell({"jsonrpc": "2.0", "method": "notifications/tasks", "params": told})

    async def listen(self, wanted: Json, identity: Any, tell: Tell) -> Json:
        names = [name for name in wanted.get("taskIds", ()) if name in self.tasks]
        honored = {"taskIds": names} if names else {}
        params = {"notifications": honored, "_meta": {SUBSCRIPTION: identity}}
        await tell({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
        stream = (identity, names, tell)
        self.streams.append(stream)
        try:
            await asyncio.Event().wait()
        finally:
            self.streams.remove(stream)
        return {}


async def over_stdio() -> None:
    """One server for anyone who has started us."""
    server = TaskServer(is_old=sys.argv[1] == "old")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    server.stop_reading = reading.pause_reading
    open_requests: dict[Any, asyncio.Task[None]] = {}

    async def say(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def answer(message: Json) -> None:
        await say(await server.answer(message, None, say))

    while line := await reader.readline():
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            if (running := open_requests.pop(message["params"]["requestId"], None)) is not None:
                running.cancel()
        elif "id" in message and "method" in message:
            open_requests[message["id"]] = asyncio.create_task(answer(message))


def over_http() -> None:
    """A server for each path."""
    servers: dict[str, TaskServer] = {}

    async def take(request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        server = servers.setdefault(request.url.path, TaskServer())
        name, params = request.headers.get("mcp-name"), fields_of(message.get("params"))
        if message["method"].startswith("tasks/") and name != params.get("taskId"):
            error = {"code": -32020, "message": "Mcp-Name is not the taskId"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, 400)
        if message["method"] == "subscriptions/listen":
            return StreamingResponse(events(server, message), media_type="text/event-stream")

        async def tell(message: Json) -> None:
            raise AssertionError(message)

        answer = await server.answer(message, name, tell)
        return JSONResponse(answer, 400 if fields_of(answer.get("error")).get("code") == -32021 else 200)

    async def events(server: TaskServer, message: Json) -> AsyncGenerator[str]:
        queue = asyncio.Queue[Json]()
        listening = asyncio.create_task(server.answer(message, None, queue.put))
        try:
            while True:
                yield f"event: message\ndata: {json.dumps(await queue.get())}\n\n"
        finally:
            listening.cancel()

    app = Starlette(routes=[Route("/{path:path}", endpoint=take, methods=["GET", "POST", "DELETE"])])
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off")
    listener = config.bind_socket()
    sys.stderr.write(f"port {listener.getsockname()[1]}\n")
    sys.stderr.flush()
    asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        over_http()
    else:
        asyncio.run(over_stdio())
