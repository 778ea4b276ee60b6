"""An upstream of 2026-07-28 whose tools run as tasks (SEP-2663); it implements the protocol without the SDK's server.

python task_upstream.py stdio      over stdio
python task_upstream.py old        over stdio, in the revision 2025-11-25, where it offers tasks all the same
python task_upstream.py http       on a free port, printed on standard error; each path is a server of its own

The official conformance suite requires the tools up to `test_tool_with_task`. The others are:

- `manual`: a task that does not change until `settle` changes it. The client must know tasks, unless the call says
  `anyway`. The answer to the call leaves out the task's result, error and questions, unless the call says `whole`.
- `forget`: makes a task unknown.
- `keep`: makes a task show its questions even after they were answered.
- `trouble`: answers the next requests of one method about a task with `errors`; an error of null means no answer.
- `shout`: sends a notification about a task to which nobody has subscribed.
- `told`: returns the requests so far, the ids of the tasks, and the process id.
- `deafen`: makes the server read nothing more.
- `leave`: ends the server.

Reading the resource gives a task, which the specification forbids.
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
    """The error that answers a request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


def fields_of(value: Any) -> Json:
    """The value itself if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - keys are texts


def text_of(value: Any) -> Json:
    """A tool result with this text, or with this value as JSON."""
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def form(message: str) -> Json:
    """A question for the user."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "confirm": {"type": "boolean"}}}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def now() -> str:
    """The current time in the format of task fields."""
    return datetime.now(UTC).isoformat()


class TaskServer:
    """One server, with the tasks that it knows."""

    def __init__(self, *, is_old: bool = False) -> None:
        self.is_old = is_old
        self.tasks: dict[str, Json] = {}
        self.labels: dict[str, str] = {}
        self.answers: dict[str, Json] = {}
        self.sticky_tasks = set[str]()
        self.troubles: dict[tuple[str, str], list[Json | None]] = {}
        self.stop_reading: Callable[[], None] = lambda: None
        self.requests: list[Json] = []
        self.streams: list[tuple[Any, list[str], Tell]] = []
        self._numbers = itertools.count(1)
        self._runs = set[asyncio.Task[None]]()

    async def answer(self, message: Json, name: str | None, tell: Tell) -> Json:
        """Answer a request; `name` is its `Mcp-Name` header, if there are headers."""
        method, params = str(message["method"]), fields_of(message.get("params"))
        capabilities = fields_of(fields_of(params.get("_meta")).get("io.modelcontextprotocol/clientCapabilities"))
        knows_tasks = EXTENSION in fields_of(capabilities.get("extensions"))
        if method != "tools/call" or params.get("name") != "told":
            fields = {key: value for key, value in params.items() if key != "_meta"}
            self.requests.append(
                {"method": method, **fields, "header": name, "knows": knows_tasks, "capabilities": capabilities}
            )
        try:
            result = await self.result(method, params, message["id"], tell, knows_tasks=knows_tasks)
        except ProtocolError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": error.error}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}

    async def result(self, method: str, params: Json, identity: Any, tell: Tell, *, knows_tasks: bool) -> Json:
        cache_hints = {"ttlMs": 0, "cacheScope": "private"}
        match method:
            case "initialize" if self.is_old:
                server = {"name": "tasks", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": server}
            case "server/discover" if not self.is_old:
                return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, **cache_hints}
            case "tools/list":
                tools: list[Json] = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
                tools[2]["execution"] = {"taskSupport": "required"}
                return {"tools": tools, **cache_hints}
            case "resources/list":
                return {"resources": [RESOURCE], **cache_hints}
            case "resources/templates/list":
                return {"resourceTemplates": [], **cache_hints}
            case "resources/read":
                return {"resultType": "task", "taskId": "read", "status": "working"}
            case "tools/call":
                return await self.call(params, tell, knows_tasks=knows_tasks)
            case "subscriptions/listen":
                return await self.listen(params["notifications"], identity, tell)
            case "tasks/get" | "tasks/update" | "tasks/cancel":
                if not knows_tasks:
                    raise self.missing_capability()
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

    def missing_capability(self) -> ProtocolError:
        """The error for clients that do not know tasks."""
        data: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        return ProtocolError(-32021, "Missing required client capability", data)

    async def call(self, params: Json, tell: Tell, *, knows_tasks: bool) -> Json:
        name, arguments = str(params["name"]), fields_of(params.get("arguments"))
        match name:
            case "greet":
                return text_of(f"Hello, {arguments.get('name')}!")
            case "told":
                return text_of({"labels": self.labels, "told": self.requests, "pid": os.getpid()})
            case "deafen":
                self.stop_reading()
                return text_of("deaf")
            case "leave":
                os._exit(0)
            case "settle":
                task = self.tasks[self.labels[arguments.pop("label")]]
                await self.change(task, **arguments)
                return text_of(task)
            case "forget":
                del self.tasks[self.labels[arguments["label"]]]
                return text_of("forgotten")
            case "keep":
                self.sticky_tasks.add(self.labels[arguments["label"]])
                return text_of("kept")
            case "trouble":
                self.troubles[self.labels[arguments["label"]], arguments["method"]] = arguments["errors"]
                return text_of("in trouble")
            case "shout":
                task = {"taskId": "x", "status": "working", "_meta": {SUBSCRIPTION: 1}}
                await tell({"jsonrpc": "2.0", "method": "notifications/tasks", "params": task})
                return text_of("said")
            case "slow_compute" if not knows_tasks:
                await asyncio.sleep(arguments.get("seconds", 0))
                return text_of("computed")
            case "test_tool_with_task" if not params.get("inputResponses"):
                return {"resultType": "input_required", "inputRequests": {"who": form("Who?")}, "requestState": "one"}
            case _:
                pass
        if not knows_tasks and not arguments.get("anyway"):
            raise self.missing_capability()
        label = arguments.get("label", name)
        task: Json = {
            "taskId": f"t{next(self._numbers)}-{os.urandom(8).hex()}",
            "status": "working",
            "createdAt": now(),
            "lastUpdatedAt": now(),
            "ttlMs": 60_000,
            "pollIntervalMs": 100,
            **fields_of(arguments.get("fields")),
        }
        creation = {"resultType": "task", **task}
        if not arguments.get("whole"):
            creation = {
                key: value for key, value in creation.items() if key not in ("result", "error", "inputRequests")
            }
        self.tasks[task["taskId"]] = task
        self.labels[label] = task["taskId"]
        if name != "manual":
            answer = fields_of(fields_of(params.get("inputResponses")).get("who"))
            person = str(fields_of(answer.get("content")).get("name"))
            run = asyncio.create_task(self.run(name, task, arguments, person))
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)
        return creation

    async def run(self, name: str, task: Json, arguments: Json, person: str) -> None:
        """Do the work of a task."""
        match name:
            case "slow_compute":
                await asyncio.sleep(arguments.get("seconds", 0))
                await self.change(task, status="completed", result=text_of("computed"))
            case "failing_job":
                await self.change(task, status="completed", result={**text_of("it failed"), "isError": True})
            case "protocol_error_job":
                await self.change(task, status="failed", error={"code": -32603, "message": "it broke"})
            case "test_tool_with_task":
                await self.change(task, status="completed", result=text_of(f"Hello, {person}!"))
            case "confirm_delete":
                await self.change(task, status="input_required", inputRequests={"sure": form("Sure?")})
            case _:
                questions = {"first": form("First?"), "second": form("Second?")}
                await self.change(task, status="input_required", inputRequests=questions)

    async def update(self, task: Json, responses: Json) -> None:
        if task["taskId"] in self.sticky_tasks:
            return
        questions = fields_of(task.get("inputRequests"))
        valid_responses = {key: response for key, response in responses.items() if key in questions}
        self.answers.setdefault(task["taskId"], {}).update(valid_responses)
        open_questions = {key: question for key, question in questions.items() if key not in valid_responses}
        if open_questions or not valid_responses:
            task["inputRequests"] = open_questions
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
                params = {**task, "_meta": {SUBSCRIPTION: identity}}
                await tell({"jsonrpc": "2.0", "method": "notifications/tasks", "params": params})

    async def listen(self, notifications: Json, identity: Any, tell: Tell) -> Json:
        names = [name for name in notifications.get("taskIds", ()) if name in self.tasks]
        subscription = {"taskIds": names} if names else {}
        params = {"notifications": subscription, "_meta": {SUBSCRIPTION: identity}}
        await tell({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
        stream = (identity, names, tell)
        self.streams.append(stream)
        try:
            await asyncio.Event().wait()
        finally:
            self.streams.remove(stream)
        return {}


async def over_stdio() -> None:
    """Serve over standard input and output."""
    server = TaskServer(is_old=sys.argv[1] == "old")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    server.stop_reading = transport.pause_reading
    open_requests: dict[Any, asyncio.Task[None]] = {}

    async def say(message: Json) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def answer(message: Json) -> None:
        await say(await server.answer(message, None, say))

    while line := await reader.readline():
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            if (request_task := open_requests.pop(message["params"]["requestId"], None)) is not None:
                request_task.cancel()
        elif "id" in message and "method" in message:
            open_requests[message["id"]] = asyncio.create_task(answer(message))


def over_http() -> None:
    """Serve over HTTP, with a server for each path."""
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
        listener_task = asyncio.create_task(server.answer(message, None, queue.put))
        try:
            while True:
                yield f"event: message\ndata: {json.dumps(await queue.get())}\n\n"
        finally:
            listener_task.cancel()

    app = Starlette(routes=[Route("/{path:path}", endpoint=take, methods=["GET", "POST", "DELETE"])])
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off")
    listener = config.bind_socket()
    listener.listen()  # before the tests know the port
    sys.stderr.write(f"port {listener.getsockname()[1]}\n")
    sys.stderr.flush()
    asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        over_http()
    else:
        asyncio.run(over_stdio())
