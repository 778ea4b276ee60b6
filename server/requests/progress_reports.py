"""Sends progress to clients that asked for it, so that long requests do not time out.

Many clients give up after a minute or less of silence, even while a person thinks about a question.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, ClassVar

import anyio

from server.protocol.json_rpc import Json, as_mapping
from server.protocol.request_table import CallNext, RequestContext, RequestOutbound, progress_token
from server.requests.tool_search import CALL
from tools.contract.display import visible_line

STEP = 1e-6  # increment if no tool reports progress: negligible next to a tool's own values
MAX_SHOWN_NAME = 100
_WAITING = {
    "elicitation/create": "Waiting for the user to answer a question",
    "sampling/createMessage": "Waiting for an answer from the client's model",
}


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
