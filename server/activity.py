"""The calls of clients, as they happen, for a person who looks on. Nothing is recorded before somebody does."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from mcp.server.context import CallNext

from server.json_rpc import as_mapping
from server.sdk_seams import RequestContext, client_name
from tools.call.audit_entries import without_secrets

MAX_CALLS = 200  # the latest ones are remembered
MAX_SUMMARY_CHARS = 200  # of the arguments of one call


@dataclass(slots=True, eq=False)
class RecordedCall:
    """One call of a client."""

    client: str  # its name, as it says
    tool: str = ""
    arguments: str = ""  # as JSON, cut, without secrets
    began: float = field(default_factory=time.time)  # seconds since the epoch
    seconds: float | None = None  # how long it took; `None` while it runs
    outcome: str = "running"
    size: int = 0  # characters of its result


_SHOW: ContextVar[Callable[[Mapping[str, Any]], None] | None] = ContextVar("how the call is shown", default=None)


def show_as(params: Mapping[str, Any]) -> None:
    """Show the call that is at work as one with these parameters, where somebody looks on."""
    if (show := _SHOW.get()) is not None:
        show(params)


class Activity:
    """The latest calls, the newest last. A middleware of the server."""

    def __init__(self) -> None:
        self.calls: deque[RecordedCall] = deque(maxlen=MAX_CALLS)
        self.on_change: Callable[[], None] = lambda: None

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        call = RecordedCall(client_name(ctx))
        self.calls.append(call)
        self._show(call, as_mapping(ctx.params))
        _SHOW.set(partial(self._show, call))
        began, outcome = time.perf_counter(), "ended without a result"
        try:
            result = await call_next(ctx)
            told = as_mapping(result)
            outcome = "failed" if told.get("isError") else "done"
            if told.get("resultType") == "input_required":
                outcome = "asks"
            call.size = sum(map(len, _texts(told.get("content"))))
            return result
        finally:
            call.seconds, call.outcome = time.perf_counter() - began, outcome
            self.on_change()

    def _show(self, call: RecordedCall, params: Mapping[str, Any]) -> None:
        arguments = without_secrets(params.get("arguments"), max_chars=MAX_SUMMARY_CHARS * 4)
        call.tool = str(params.get("name"))[:MAX_SUMMARY_CHARS]
        call.arguments = json.dumps(arguments, default=str, ensure_ascii=False)[:MAX_SUMMARY_CHARS]
        self.on_change()


def _texts(content: Any) -> Generator[str]:
    for item in cast("list[Any]", content) if isinstance(content, list) else ():
        for key in ("text", "data"):
            if isinstance(text := as_mapping(item).get(key), str):
                yield text
