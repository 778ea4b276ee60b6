"""Upstream tasks: calls that immediately return a task, whose result is fetched later (SEP-2663).

A client that supports tasks gets the upstream's tasks, each under an id from this server. For any other client, this
server fetches the result while the call waits. Each question of a task is answered only once, no matter how often the
task is fetched.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import anyio

from server.clients.client_request import Exchange
from server.protocol.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    Json,
    MCPError,
    as_list,
    as_mapping,
)
from server.protocol.request_table import RequestContext, display_name
from server.protocol.revisions import CLIENT_INFO_META_KEY, SUBSCRIPTION_ID_META_KEY
from server.store.replica import Replica
from server.store.sealing import SealedStates
from server.upstreams.connections.connection import Upstream
from server.upstreams.connections.pool import UpstreamPool
from server.upstreams.relay.relayed_results import (
    CalledTool,
    LargeResults,
    NoAnswerError,
    checked_result,
    protocol_error,
    protocol_error_for,
    readable_result,
    with_links,
)
from server.upstreams.session.list_reader import TOOLS
from server.upstreams.session.protocol_era import TASKS, declares
from server.upstreams.session.upstream_questions import MAX_OPEN, round_of
from server.upstreams.session.upstream_session import ACKNOWLEDGED, UpstreamSession
from server.upstreams.wire.json_rpc_channel import CANCEL_SECONDS, RelayError, UnusableAnswerError, UpstreamError
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.permissions.permission_policy import Rights

USUAL_POLL_SECONDS = 1.0  # polling interval if a task does not set one
LEAST_POLL_SECONDS = 0.05  # the shortest interval, even if a task sets a shorter one

# How long a session stays open after the latest report on a task; shorter if the upstream keeps the task for less time
LONGEST_KEPT_SECONDS = 3_600.0

LONGEST_MS = 10**12  # a longer lifetime or polling interval of a task (more than 30 years) is ignored
MAX_ID_CHARS = 10_000  # an upstream's longer task id is rejected, because clients send it, encrypted, in a header
# Maximum number of tasks whose questions are remembered. Above this limit, the client with the most of these tasks
# loses the questions of its oldest task.
MAX_ASKING = 1_000
MAX_LISTENED = 100  # maximum number of tasks that one stream of a client reports
ACKNOWLEDGE_SECONDS = 2.0  # time limit for an upstream to acknowledge a subscription to tasks

_TASK = "task"  # the purpose for which this server's task ids are encrypted
_FINAL = ("completed", "failed", "cancelled")
_STATUS_FIELDS = frozenset({"inputRequests", "requestState", "result", "error"})
_PROGRESS_FIELDS = ("status", "statusMessage", "lastUpdatedAt")  # fields that change when a task makes progress

NO_SUCH_TASK: Json = {
    "code": INVALID_PARAMS,
    "message": (
        "There is no such task: it is unknown or expired, or its server was restarted or is no longer used. Call the "
        "tool again if the result is still needed."
    ),
}
"""The error for every unusable id, regardless of the reason."""


def at_other_replica(name: str) -> MCPError:
    """Return the error for a call or task that another replica has; the next request may reach that replica."""
    return MCPError(
        INTERNAL_ERROR,
        f"The replica '{name}' of this server has this call, but the request reached another one. Nothing was "
        "done. Send the request again; if the answer is the same, that replica is gone: call the tool again.",
        {"type": ToolErrorType.WRONG_REPLICA.value},
    )


TASKS_REQUIRED: Json = {
    "code": MISSING_REQUIRED_CLIENT_CAPABILITY,
    "message": f"Only a client that declares the extension {TASKS} can request tasks.",
    "data": {"requiredCapabilities": {"extensions": {TASKS: {}}}},
}


def knows_tasks(exchange: Exchange) -> bool:
    return exchange.is_modern and declares(exchange.capabilities, TASKS)


def requires_tasks(error: UpstreamError) -> bool:
    """Return whether an upstream refuses a call because only a client that supports tasks may make it."""
    required_capabilities = as_mapping(as_mapping(error.error.get("data")).get("requiredCapabilities"))
    return error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and declares(required_capabilities, TASKS)


def as_task_client(exchange: Exchange) -> Exchange:
    """Return the request as if its client supported tasks. This server handles the tasks in place of the client."""
    extensions: Json = {**as_mapping(exchange.capabilities.get("extensions")), TASKS: {}}
    return replace(exchange, capabilities={**exchange.capabilities, "extensions": extensions})


def _id_of(task: Json) -> str:
    identity = task.get("taskId")
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_ID_CHARS:
        raise UnusableAnswerError("the task that it created has no id, or one that is too long")
    return identity


def _state_of(task: Json) -> Json:
    """Return a task without the fields that only one status has, and without the `requestState` of its questions."""
    return {key: value for key, value in task.items() if key not in _STATUS_FIELDS}


def _result_of(task: Json) -> Json:
    result = checked_result(as_mapping(task.get("result")), "tools/call", is_modern=False)
    # If the client does not support tasks, `Relay.call` later adapts this result to the client's revision.
    return readable_result(result, is_modern=True)


def _error_of(task: Json) -> Json:
    error = as_mapping(task.get("error"))
    if isinstance(error.get("code"), int) and isinstance(error.get("message"), str):
        return error
    return {"code": INTERNAL_ERROR, "message": "The task failed, but the server sent no valid error."}


def _milliseconds(value: Any) -> float | None:
    """Return a duration that a task gives, in milliseconds; `None` if it is invalid or unreasonably long."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < LONGEST_MS else None


@dataclass(slots=True)
class TaskQuestions:
    """A task's questions, and a record of those that were answered."""

    # Maps the client's question keys to the upstream's question keys
    keys: dict[str, str] = field(default_factory=dict[str, str])
    answered_keys: set[str] = field(default_factory=set[str])  # the upstream's keys of the answered questions

    async def open_questions(self, session: UpstreamSession, task: Json, exchange: Exchange, seconds: float) -> Json:
        """Return a task's unanswered questions that its client may be asked; refuse the others."""
        requests = as_mapping(task.get("inputRequests"))
        self.answered_keys &= requests.keys()
        open_keys = [key for key in requests if key not in self.answered_keys][:MAX_OPEN]
        questions, round_state = round_of(session.options, {key: requests[key] for key in open_keys}, exchange)
        self.keys = {key: round_state["keys"].get(key, key) for key in questions}
        if refusals := round_state["refused"]:
            params = {"taskId": task.get("taskId"), "inputResponses": refusals, "_meta": exchange.meta}
            # If the refusal is not delivered, the next report triggers it again.
            with suppress(RelayError, TimeoutError):
                await session.request("tasks/update", params, seconds, exchange)
                self.answered_keys |= refusals.keys()
        return questions

    def valid_answers(self, responses: Mapping[str, Any]) -> Json:
        """Return a client's valid answers by the upstream's keys; the caller adds delivered ones to `answered_keys`."""
        answers = {self.keys[key]: response for key, response in responses.items() if key in self.keys}
        return {key: response for key, response in answers.items() if key not in self.answered_keys}


@dataclass(eq=False, slots=True)
class FollowedTask:
    """A task that this server polls for a client without task support; cancelled if the client stops waiting."""

    session: UpstreamSession
    exchange: Exchange  # the client's pending request; its capabilities include support for tasks
    task: Json  # the upstream's latest report on the task
    patience: float  # seconds without progress until the task is cancelled
    at_end: Callable[[], None]  # called when the task is finished or cancelled, or its session is gone
    is_suspended: bool = False  # whether a question of the task waits for the client's next request
    _questions: TaskQuestions = field(default_factory=TaskQuestions)
    _last_message: str = ""
    _count: int = 0  # number of progress messages sent

    def __post_init__(self) -> None:
        self.session.task_ends.add(self._end)

    async def poll(self) -> Json:
        """Poll until the task is done, or has questions for its client. Returns the questions; empty if it is done."""
        deadline = anyio.current_time() + self.patience
        if self.task.get("status") in _FINAL:
            await self._refresh()  # the task was already done when it was created, and the first report has no result
        while True:
            text = self.task.get("statusMessage")
            if isinstance(text, str) and text not in ("", self._last_message):
                self._last_message, self._count = text, self._count + 1
                await self.exchange.progress({"progress": self._count, "message": text})
            match self.task.get("status"):
                case status if status in _FINAL:
                    self._end()
                    return {}
                case "input_required":
                    questions = await self._questions.open_questions(
                        self.session, self.task, self.exchange, self.patience
                    )
                    if questions:
                        return questions
                case "working":
                    pass
                case _:
                    raise UnusableAnswerError("its answer is not a task")
            remaining = deadline - anyio.current_time()
            if remaining <= 0:
                raise NoAnswerError
            pause = _milliseconds(self.task.get("pollIntervalMs"))
            await anyio.sleep(
                min(remaining, USUAL_POLL_SECONDS if pause is None else max(LEAST_POLL_SECONDS, pause / 1000))
            )
            previous = self.task
            await self._refresh()
            if any(self.task.get(name) != previous.get(name) for name in _PROGRESS_FIELDS):
                deadline = anyio.current_time() + self.patience

    async def answer(self, responses: Mapping[str, Any]) -> None:
        answers = self._questions.valid_answers(responses)
        await self._request("tasks/update", {"inputResponses": answers})
        self._questions.answered_keys |= answers.keys()

    def result(self) -> Json:
        """Return the result of a finished task. Raises `RelayError` if there is none."""
        match self.task.get("status"):
            case "completed":
                return _result_of(self.task)
            case "failed":
                raise UpstreamError(_error_of(self.task))
            case _:
                raise UnusableAnswerError("it cancelled the task")

    async def cancel(self) -> None:
        """Cancel the task at the upstream, unless the task is over."""
        if self._end in self.session.task_ends:
            self._end()
            with anyio.CancelScope(shield=True), suppress(RelayError, ToolError, TimeoutError):
                await self._request("tasks/cancel", seconds=CANCEL_SECONDS)

    def _end(self) -> None:
        self.session.task_ends.discard(self._end)
        self.at_end()

    async def _refresh(self) -> None:
        self.task = {**await self._request("tasks/get"), "taskId": self.task["taskId"]}

    async def _request(self, method: str, extra_params: Json | None = None, seconds: float | None = None) -> Json:
        params = {"taskId": _id_of(self.task), "_meta": self.exchange.meta, **(extra_params or {})}
        try:
            return await self.session.request(method, params, seconds or self.patience, self.exchange)
        except UpstreamError as error:
            if error.code != INVALID_PARAMS:
                raise
            raise UnusableAnswerError("it no longer knows the task that it created") from None


@dataclass(frozen=True, slots=True)
class TaskRoute:
    """The upstream, session and id of a client's task."""

    upstream: Upstream
    session: UpstreamSession
    id: str  # the task's id at the upstream
    name: str  # the task's id for the client
    tool: CalledTool
    is_of_other: bool  # whether another replica created the task


class Tasks:
    """Upstream tasks for clients that support tasks. Each task is available only to the client that made the call."""

    def __init__(
        self,
        pool: UpstreamPool,
        published_uri: Callable[[Upstream, str], str],
        why_denied: Callable[[str, Rights], str],
        large_results: LargeResults,
        replica: Replica,
    ) -> None:
        self._pool = pool
        self._large_results = large_results
        self._published_uri = published_uri
        self._why_denied = why_denied
        self._replica = replica.name
        self._ids = SealedStates("task", math.inf, replica)  # ids never expire: the upstream expires tasks
        self._questions: dict[tuple[str, str], TaskQuestions] = {}  # by the client's key and its task id

    def register(
        self, upstream: Upstream, session: UpstreamSession, tool_name: str, result: Json, exchange: Exchange
    ) -> Json:
        """Register a call result that is a task, under an id that only its client can use.

        `tool_name` is the tool's name at the upstream.
        """
        # A local program keeps tasks in its process; a remote server may know them in any session.
        is_program = upstream.transport is not None and upstream.transport.name == "stdio"
        claims = {
            "alias": upstream.alias,
            "reach": upstream.reach,
            "session": session.serial if is_program else 0,
            "replica": self._replica,
            "task": _id_of(result),
            "tool": [exchange.params["name"], tool_name],
        }
        _extend_session(session, result)
        # Omit questions here: later reports contain them, after `_for_client` has checked them.
        return {**_state_of(result), "taskId": self._ids.seal(_TASK, exchange.client_key, claims)}

    async def request(self, method: str, exchange: Exchange) -> Json:
        """Relay `tasks/get`, `tasks/update` or `tasks/cancel` to the upstream that has the task.

        Raises `MCPError` if the request failed, or if this client has no such task.
        """
        params = exchange.params
        route = await self._route(params.get("taskId"), exchange)
        upstream_params: Json = {**params, "taskId": route.id}
        seconds = route.upstream.entry.timeout / 1000
        fetch_exchange = replace(exchange, params={"taskId": route.name, "_meta": exchange.meta})
        if method == "tasks/update" and route.is_of_other and (exchange.client_key, route.name) not in self._questions:
            # Another replica returned the questions, so fetch them before checking the answers.
            await self.request("tasks/get", fetch_exchange)
        questions, answers = self._questions.get((exchange.client_key, route.name), TaskQuestions()), Json()
        if method == "tasks/update":
            answers = upstream_params["inputResponses"] = questions.valid_answers(
                as_mapping(params.get("inputResponses"))
            )
        try:
            try:
                answer = await route.session.request(method, upstream_params, seconds, exchange)
            except UpstreamError as error:
                if error.code != INVALID_PARAMS:
                    raise
                if not answers:
                    raise UpstreamError(NO_SUCH_TASK) from None
                # A `tasks/get` request shows whether the task is unknown or the answers are invalid.
                await self.request("tasks/get", fetch_exchange)
                raise
            questions.answered_keys |= answers.keys()
            if method != "tasks/get":
                return {"resultType": "complete"}
            return await self._for_client(route, answer, exchange)
        except (RelayError, ToolError, TimeoutError) as error:
            raise protocol_error_for(error, route.upstream.alias, exchange) from None

    async def _route(self, name: Any, exchange: Exchange) -> TaskRoute:
        claims = self._ids.read(name, _TASK, exchange.client_key) if isinstance(name, str) else None
        upstream = self._pool.by_alias.get(claims["alias"]) if claims is not None else None
        sessions = self._pool.sessions.get(upstream) if upstream is not None else None
        if (
            claims is None
            or upstream is None
            or sessions is None
            or upstream.reach != claims["reach"]
            or self._why_denied(upstream.alias, exchange.rights)
        ):
            raise protocol_error(NO_SUCH_TASK)
        if claims["session"]:
            if claims["replica"] != self._replica:
                raise at_other_replica(claims["replica"])
            session = sessions.find_open(claims["session"])
            if session is None:
                raise protocol_error(NO_SUCH_TASK)
        else:
            try:
                session = await sessions.session_for(exchange)
            except ToolError as error:
                raise protocol_error_for(error, upstream.alias, exchange) from None
        published_name, tool_name = claims["tool"]
        definition = next((tool for tool in upstream.offer.items(TOOLS) if tool["name"] == tool_name), Json())
        tool = CalledTool(published_name, tool_name, definition)
        return TaskRoute(upstream, session, claims["task"], name, tool, is_of_other=claims["replica"] != self._replica)

    async def _for_client(self, route: TaskRoute, task: Json, exchange: Exchange) -> Json:
        """Convert an upstream's task report for the client."""
        if self._why_denied(route.upstream.alias, exchange.rights):  # the rules may have changed during a stream
            raise UpstreamError(NO_SUCH_TASK)
        report: Json = {**_state_of(task), "taskId": route.name}
        if "resultType" in report:
            report["resultType"] = "complete"
        key = (exchange.client_key, route.name)
        match task.get("status"):
            case "completed":
                published_uri = partial(self._published_uri, route.upstream)
                result = with_links("tools/call", _result_of(task), published_uri)
                client_name = display_name(as_mapping(exchange.meta.get(CLIENT_INFO_META_KEY)))
                report["result"] = await self._large_results.shortened(route.tool, result, exchange, client_name)
            case "failed":
                report["error"] = protocol_error(_error_of(task), route.upstream.alias, exchange).to_json()
            case "input_required":
                questions = self._questions.setdefault(key, TaskQuestions())
                if len(self._questions) > MAX_ASKING:
                    ((greediest, _),) = Counter(owner for owner, _ in self._questions).most_common(1)
                    del self._questions[next(key for key in self._questions if key[0] == greediest)]
                upstream_task, seconds = {**task, "taskId": route.id}, route.upstream.entry.timeout / 1000
                input_requests = await questions.open_questions(route.session, upstream_task, exchange, seconds)
                # If no question is left, the client has answered all of them, or this server has refused them.
                report |= {"inputRequests": input_requests} if input_requests else {"status": "working"}
            case "working" | "cancelled":
                pass
            case _:
                raise UnusableAnswerError("its answer is not a task")
        if task.get("status") in _FINAL:
            self._questions.pop(key, None)
        _extend_session(route.session, task)
        return report

    @asynccontextmanager
    async def listen(self, names: list[Any], ctx: RequestContext, exchange: Exchange) -> AsyncGenerator[RequestContext]:
        """Report tasks on a client's stream, until an upstream ends the stream on which it reports them.

        Yields the request context for the client's stream. With this context, the stream's acknowledgement names the
        tasks that upstreams will report.
        """
        by_session: dict[UpstreamSession, list[TaskRoute]] = {}
        for name in islice(dict.fromkeys(name for name in names if isinstance(name, str)), MAX_LISTENED):
            with suppress(MCPError):
                route = await self._route(name, exchange)
                by_session.setdefault(route.session, []).append(route)
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            stream = _TaskStream(ctx, exchange, self._for_client, group.cancel_scope)
            async with anyio.create_task_group() as start_group:
                for session, routes in by_session.items():
                    ready = anyio.Event()
                    group.start_soon(stream.listen, session, routes, ready)
                    start_group.start_soon(ready.wait)
            try:
                yield replace(ctx, outbound=stream)
            except Exception as error:  # noqa: BLE001 - raised again later, without an exception group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure


def _extend_session(session: UpstreamSession, task: Json) -> None:
    """Keep a session from being closed as idle while a client may still fetch one of its tasks."""
    lifetime = _milliseconds(task.get("ttlMs"))
    seconds = LONGEST_KEPT_SECONDS if lifetime is None else min(LONGEST_KEPT_SECONDS, lifetime / 1000)
    session.wanted_until = max(session.wanted_until, anyio.current_time() + seconds)


@dataclass(eq=False, repr=False, slots=True)
class _TaskStream:
    """A client's stream with task reports; it replaces `outbound` in the request's context."""

    ctx: RequestContext
    exchange: Exchange
    for_client: Callable[[TaskRoute, Json, Exchange], Awaitable[Json]]
    scope: anyio.CancelScope
    names: list[str] = field(default_factory=list[str])  # the client's ids of the tasks to report
    acknowledged: anyio.Event = field(default_factory=anyio.Event)

    async def listen(self, session: UpstreamSession, routes: list[TaskRoute], ready: anyio.Event) -> None:
        """Have an upstream report tasks. If it accepts any, the client's stream is closed when its own stream ends."""
        by_id = {route.id: route for route in routes}
        reports: dict[str, Json] = {}  # the latest unsent report of each task
        has_reports = asyncio.Event()
        identity, reported_names = "", list[str]()

        def receive(method: str, params: Json) -> None:
            if method == ACKNOWLEDGED and not ready.is_set():
                task_ids = as_list(as_mapping(params.get("notifications")).get("taskIds"))
                reported_names.extend(route.name for route in routes if route.id in task_ids)
                self.names.extend(reported_names)
                limit.deadline = math.inf if reported_names else -math.inf
                ready.set()
            elif (name := str(params.get("taskId"))) in by_id:
                reports[name] = params
                has_reports.set()

        async def send_reports() -> None:
            await self.acknowledged.wait()
            while await has_reports.wait():
                has_reports.clear()
                while reports:
                    name = next(iter(reports))
                    params = reports.pop(name)
                    with suppress(RelayError, ToolError, TimeoutError):
                        report = await self.for_client(by_id[name], params, self.exchange)
                        meta = {**as_mapping(params.get("_meta")), SUBSCRIPTION_ID_META_KEY: self.ctx.request_id}
                        await self.exchange.notify("notifications/tasks", {**report, "_meta": meta})

        params: Json = {"notifications": {"taskIds": list(by_id)}, "_meta": self.exchange.meta}
        try:
            with anyio.move_on_after(ACKNOWLEDGE_SECONDS) as limit:
                async with (
                    aclosing(await session.start("subscriptions/listen", params, self.exchange)) as pending,
                    anyio.create_task_group() as group,
                ):
                    identity = str(pending.identity)
                    session.streams[identity] = receive
                    group.start_soon(send_reports)
                    with suppress(RelayError):
                        await pending.result()
                    group.cancel_scope.cancel()
        except (RelayError, ToolError):
            pass
        finally:
            session.streams.pop(identity, None)
            ready.set()
        if reported_names:
            self.scope.cancel()

    async def notify(self, method: str, params: Json | None) -> None:
        """Send a message to the client. If it is the stream's acknowledgement, add the tasks to it."""
        if method == ACKNOWLEDGED and params is not None and self.names:
            params = {**params, "notifications": {**as_mapping(params.get("notifications")), "taskIds": self.names}}
        await self.ctx.outbound.notify(method, params)
        self.acknowledged.set()

    async def request(self, method: str, params: Json | None) -> Json:
        return await self.ctx.outbound.request(method, params)

    def person_is_asked(self) -> AbstractContextManager[None]:
        return self.ctx.outbound.person_is_asked()
