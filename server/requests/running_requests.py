"""Middlewares that follow each request while it runs: for the dashboard, and for the client.

`RecentCalls` records the latest calls for the dashboard; expensive parts are computed only when they are displayed.
`report_waiting` sends progress to clients that asked for it, so that long requests do not time out: clients give up
after a minute or less of silence, even while a person thinks about a question.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar

import anyio

from server.protocol.json_rpc import Json, as_list, as_mapping
from server.protocol.request_table import CallNext, RequestContext, RequestOutbound, progress_token
from server.requests.protocol_mapping import ERROR_KEY
from server.requests.tool_search import CALL
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolErrorType
from tools.text.secrets import without_secrets

MAX_CALLS = 200  # maximum number of calls to keep
MAX_SUMMARY_CHARS = 200  # characters in the summary of a call's arguments
MAX_CHECKED_CHARS = 4 * MAX_SUMMARY_CHARS  # characters of the arguments that are checked for secrets
STEP = 1e-6  # increment if no tool reports progress: negligible next to a tool's own values
MAX_SHOWN_NAME = 100
_WAITING = {
    "elicitation/create": "Waiting for the user to answer a question",
    "sampling/createMessage": "Waiting for an answer from the client's model",
}


@dataclass(slots=True, eq=False)
class RecordedCall:
    client: str  # the client's name and version
    tool: str = ""
    raw_arguments: Any = None  # the beginning of its arguments
    began: float = field(default_factory=time.time)  # seconds since the epoch
    seconds: float | None = None  # its duration; `None` while it runs
    outcome: str = "running"
    size: int = 0  # characters of its result
    summary: str | None = None  # a summary of its arguments; `None` until `arguments` is called

    def arguments(self) -> str:
        """Return the call's arguments as JSON, truncated and without secrets. This is slow the first time."""
        if self.summary is None:
            redacted = without_secrets(self.raw_arguments, max_chars=MAX_CHECKED_CHARS)
            self.summary = json.dumps(redacted, default=str, ensure_ascii=False)[:MAX_SUMMARY_CHARS]
        return self.summary


_SHOW: ContextVar[Callable[[Mapping[str, Any]], None] | None] = ContextVar("how the call is shown", default=None)


def show_as(params: Mapping[str, Any]) -> None:
    """Show the current call on the dashboard with these parameters, instead of those that the client sent."""
    if (show := _SHOW.get()) is not None:
        show(params)


class RecentCalls:
    """A middleware that records the latest calls, newest last."""

    def __init__(self) -> None:
        self.calls: deque[RecordedCall] = deque(maxlen=MAX_CALLS)
        self.on_change: Callable[[], None] = lambda: None

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        call = RecordedCall(ctx.connection.client_name)
        self.calls.append(call)
        self._show(call, as_mapping(ctx.params))
        _SHOW.set(partial(self._show, call))
        began, outcome = time.perf_counter(), "ended without a result"
        try:
            result = await call_next(ctx)
            fields = as_mapping(result)
            code = as_mapping(as_mapping(fields.get("_meta")).get(ERROR_KEY)).get("type")
            failure = "denied" if code == ToolErrorType.EXECUTION_DENIED else "failed"
            outcome = failure if fields.get("isError") else "done"
            if fields.get("resultType") == "input_required":
                outcome = "asks"
            for item in map(as_mapping, as_list(fields.get("content"))):
                for text in (item.get("text"), item.get("data")):
                    call.size += len(text) if isinstance(text, str) else 0
            return result
        finally:
            call.seconds, call.outcome = time.perf_counter() - began, outcome
            self.on_change()

    def _show(self, call: RecordedCall, params: Mapping[str, Any]) -> None:
        call.tool = str(params.get("name"))[:MAX_SUMMARY_CHARS]
        # Keep more than is shown, because a secret that has been truncated may not be recognized.
        call.raw_arguments, call.summary = _truncated(params.get("arguments"), [2 * MAX_CHECKED_CHARS]), None
        self.on_change()


def _truncated(value: Any, room: list[int]) -> Any:
    """Return a JSON value truncated to about `room[0]` characters in total.

    This saves memory: many calls are recorded, but few are displayed.
    """
    room[0] -= 1
    if isinstance(value, str):
        text = value[: max(room[0], 0)]
        room[0] -= len(text)
        return text
    if isinstance(value, dict):
        # A key is copied before its value, because a secret may not be recognized without its key.
        fields = takewhile(lambda _: room[0] > 0, as_mapping(value).items())
        return {_truncated(key, room): _truncated(item, room) for key, item in fields}
    if isinstance(value, list):
        return [_truncated(item, room) for item in takewhile(lambda _: room[0] > 0, as_list(value))]
    return value


class ProgressOutbound:
    """Sends messages to a client within a request that has a progress token. Progress values always increase."""

    pulse_seconds: ClassVar[float] = 10.0  # interval between reports if no tool reports progress

    def __init__(self, ctx: RequestContext, token: str | int) -> None:
        self._outbound: RequestOutbound = ctx.outbound
        self._token = token
        params = as_mapping(ctx.params)
        name = as_mapping(params.get("arguments") if params.get("name") == CALL else params).get("name")
        display_name = visible_line(name[:MAX_SHOWN_NAME]) if isinstance(name, str) else ctx.method
        self._reasons = [f"{display_name} is in progress"]  # what the request is waiting for, latest last
        self._latest: Json = {}  # the parameters of the last report
        self._loop = asyncio.get_running_loop()
        self._last_report = self._loop.time()
        self._timer = self._loop.call_later(self.pulse_seconds, self._check_silence)
        self._pulse: asyncio.Task[None] | None = None

    async def request(self, method: str, params: Json | None) -> Json:
        with self._waiting_for(_WAITING[method]) if method in _WAITING else nullcontext():
            return await self._outbound.request(method, params)

    async def notify(self, method: str, params: Json | None) -> None:
        if method == "notifications/progress" and params is not None:
            previous, now = self._latest.get("progress", -math.inf), params["progress"]
            if now <= previous:
                params = {**params, "progress": max(previous + STEP, math.nextafter(previous, math.inf))}
            self._latest, self._last_report = params, self._loop.time()
        await self._outbound.notify(method, params)

    @contextmanager
    def person_is_asked(self) -> Generator[None]:
        with (
            self._outbound.person_is_asked(),
            self._waiting_for("Waiting for the user to answer a question on the dashboard"),
        ):
            yield

    def close(self) -> None:
        """Stop reporting, because the request is over."""
        self._timer.cancel()
        if self._pulse is not None:
            self._pulse.cancel()

    @contextmanager
    def _waiting_for(self, reason: str) -> Generator[None]:
        self._reasons.append(reason)
        try:
            yield
        finally:
            self._reasons.remove(reason)

    def _check_silence(self) -> None:
        remaining = self._last_report + self.pulse_seconds - self._loop.time()
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._check_silence)
        else:
            self._pulse = self._loop.create_task(self._send_progress())

    async def _send_progress(self) -> None:
        latest, message = {"progress": 0, **self._latest}, self._reasons[-1]
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self.notify("notifications/progress", {**latest, "progressToken": self._token, "message": message})
            self._check_silence()


async def report_waiting(ctx: RequestContext, call_next: CallNext) -> Any:
    """Report progress regularly while a request runs, if its client asked for progress. This is a middleware."""
    if (token := progress_token(ctx.params)) is None or ctx.method == "subscriptions/listen":
        return await call_next(ctx)
    outbound = ProgressOutbound(ctx, token)
    try:
        return await call_next(replace(ctx, outbound=outbound))
    finally:
        outbound.close()
