"""A middleware that limits how many calls a client makes per minute and concurrently, if the operator sets a limit.

A client is identified by its token, or else by its session. Clients with neither share one limit. Except for sessions,
replicas count calls per minute together in their shared store, and separately while the store is unavailable.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

from server.clients.token_bucket import TokenBucket
from server.protocol.json_rpc import INTERNAL_ERROR, MCPError
from server.protocol.request_table import CallNext, RequestContext
from server.requests.call_contexts import MAX_CLIENTS, SESSION_KEYS, client_key
from server.requests.wire_results import result_to_wire
from server.settings.tool_models import LimitSettings
from server.store.shared_store import Store, StoreUnavailableError
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult

LIMITED = frozenset(
    {"tools/call", "prompts/get", "resources/read", "resources/directory/read", "skills/get", "completion/complete"}
)
RETRY_SECONDS = 10.0  # pause before an unavailable store is tried again; otherwise, each call would wait for the store


@dataclass(slots=True)
class _Usage:
    rate: TokenBucket | None
    in_progress: int = 0


class CallLimits:
    def __init__(self, limits: LimitSettings, store: Store | None) -> None:
        self._per_minute, self._at_once = limits.calls_per_minute, limits.calls_at_once
        self._store = store
        self._retry_store_at = -math.inf
        self._clients: OrderedDict[str, _Usage] = OrderedDict()

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        if ctx.method not in LIMITED:
            return await call_next(ctx)
        key = client_key(ctx)
        usage = self._clients.get(key)
        if usage is None:
            # Above the maximum number of clients, forget those that have been silent for the longest time, unless they
            # have calls in progress.
            surplus = max(len(self._clients) - MAX_CLIENTS + 1, 0)
            for other_key, silent in tuple(islice(self._clients.items(), surplus)):
                if not silent.in_progress:
                    del self._clients[other_key]
            usage = self._clients[key] = _Usage(None if self._per_minute is None else TokenBucket(self._per_minute))
        self._clients.move_to_end(key)
        if self._at_once is not None and usage.in_progress >= self._at_once:
            scope = "of this client" if key else "of clients without a token or session"
            reached = f"The number of concurrent calls {scope} has reached {usage.in_progress} (limits.callsAtOnce)"
            return self._refuse(ctx, f"{reached}. This call was not run: call again when a running call has ended.")
        usage.in_progress += 1
        try:
            wait = 0.0 if usage.rate is None else usage.rate.take(time.monotonic()) or await self._shared_wait(key)
            if wait:
                limit = f"the maximum number of calls per minute is {self._per_minute} (limits.callsPerMinute)"
                return self._refuse(ctx, f"This was not done: {limit}. Call again in {math.ceil(wait)} s.", wait)
            return await call_next(ctx)
        finally:
            usage.in_progress -= 1

    async def _shared_wait(self, key: str) -> float:
        """Return the seconds until a client may call again if it has reached its limit across replicas, otherwise 0."""
        # A session belongs to one replica, so its calls need no shared count.
        if self._store is None or self._per_minute is None or key.startswith(SESSION_KEYS):
            return 0.0
        if time.monotonic() < self._retry_store_at:
            return 0.0
        minute, elapsed = divmod(time.time(), 60)
        client = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        try:
            count = await self._store.add(f"calls:{client}:{minute:.0f}", 1, 120)
        except StoreUnavailableError:
            self._retry_store_at = time.monotonic() + RETRY_SECONDS
            return 0.0
        return 60 - elapsed if count > self._per_minute else 0.0

    def _refuse(self, ctx: RequestContext, message: str, wait: float | None = None) -> Any:
        if ctx.method != "tools/call":
            retry = {} if wait is None else {"retryAfterSeconds": math.ceil(wait)}
            raise MCPError(INTERNAL_ERROR, message, {"type": ToolErrorType.TOO_MANY_CALLS.value, **retry})
        result = ToolResult.failed(ToolError(ToolErrorType.TOO_MANY_CALLS, message))
        return result_to_wire("", result, "block", ctx.connection.protocol_version)
