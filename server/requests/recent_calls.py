"""The latest calls by clients, for the dashboard. Expensive parts are computed only when they are displayed."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from server.clients.client_request import principal_of
from server.protocol.json_rpc import as_list, as_mapping
from server.protocol.request_table import CallNext, RequestContext
from server.requests.wire_results import ERROR_KEY
from tools.contract.tool_errors import ToolErrorType
from tools.text.secrets import without_secrets

MAX_CALLS = 200  # maximum number of calls to keep
MAX_SUMMARY_CHARS = 200  # maximum length of the summary of a call's arguments
MAX_CHECKED_CHARS = 4 * MAX_SUMMARY_CHARS  # how many characters of the arguments are checked for secrets


@dataclass(slots=True, eq=False)
class RecordedCall:
    client: str  # the client's name and version
    principal: str = ""  # the principal of the client's token, if it has one
    tool: str = ""
    raw_arguments: Any = None  # the beginning of the call's arguments
    began: float = field(default_factory=time.time)  # seconds since the epoch
    seconds: float | None = None  # the call's duration; `None` while the call runs
    outcome: str = "running"
    size: int = 0  # number of characters of text and encoded data in the result's content
    summary: str | None = None  # a summary of the call's arguments; `None` until `arguments` is called

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
        self.on_change: Callable[[], None] | None = None

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        principal = None if ctx.http_request is None else principal_of(ctx.http_request)
        call = RecordedCall(ctx.connection.client_name, "" if principal is None else principal.unique_name)
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
            if self.on_change is not None:
                self.on_change()

    def _show(self, call: RecordedCall, params: Mapping[str, Any]) -> None:
        call.tool = str(params.get("name"))[:MAX_SUMMARY_CHARS]
        # Keep more than is shown, because a secret that has been truncated may not be recognised.
        call.raw_arguments, call.summary = _truncated(params.get("arguments"), [2 * MAX_CHECKED_CHARS]), None
        if self.on_change is not None:
            self.on_change()


def _truncated(value: Any, room: list[int]) -> Any:
    """Return a JSON value truncated to about `room[0]` characters, because many calls are kept and few are shown."""
    room[0] -= 1
    if isinstance(value, str):
        text = value[: max(room[0], 0)]
        room[0] -= len(text)
        return text
    if isinstance(value, dict):
        # A key is copied before its value, because a secret may not be recognised without its key.
        fields = islice(as_mapping(value).items(), max(room[0], 0))
        return {_truncated(key, room): _truncated(item, room) for key, item in fields if room[0] > 0}
    if isinstance(value, list):
        return [_truncated(item, room) for item in islice(as_list(value), max(room[0], 0)) if room[0] > 0]
    return value
