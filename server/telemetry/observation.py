"""Measures each request from a client or to an upstream once, for both counters and spans.

Client-chosen text is never recorded: methods come from the protocol, and names from existing tools and prompts.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mcp_types.methods import SPEC_CLIENT_METHODS

from server.protocol.json_rpc import Json, MCPError, as_mapping
from server.protocol.request_table import CallNext, RequestContext
from server.protocol.revisions import KNOWN_PROTOCOL_VERSIONS
from server.settings.server_models import UpstreamSettings
from server.telemetry.metrics import OTHER, Metrics, Operation, UpstreamInfo
from server.upstreams.catalog.published_names import SEARCH_NAMES
from server.upstreams.wire.json_rpc_channel import RpcAnswer, UnusableAnswerError, UpstreamError

if TYPE_CHECKING:
    from server.telemetry.open_telemetry import Telemetry

METHODS = frozenset(SPEC_CLIENT_METHODS) | {
    *("initialize", "server/discover", "skills/list", "skills/get", "resources/directory/read"),
    *("tasks/get", "tasks/update", "tasks/cancel"),
}


@dataclass(slots=True)
class Observation:
    """The middleware that measures clients' requests, and the factory of observers for upstreams."""

    metrics: Metrics | None = None
    telemetry: Telemetry | None = None
    find_tool: Callable[[str], Any] = lambda _: None  # finds an existing tool by name

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> Any:
        if ctx.request_id is None:
            return await call_next(ctx)
        params, version = ctx.params or {}, ctx.connection.protocol_version
        operation = Operation(
            ctx.method if ctx.method in METHODS else OTHER,
            version=version if version in KNOWN_PROTOCOL_VERSIONS else "",
            answers="inputResponses" in params,
        )
        name = params.get("name")
        if ctx.method == "tools/call":
            if name == SEARCH_NAMES[-1]:  # the arguments of `call_tool` name the called tool
                name = as_mapping(params.get("arguments")).get("name")
            tool = self.find_tool(name) if isinstance(name, str) else None
            operation.tool = tool.name if tool is not None else name if name in SEARCH_NAMES else OTHER
        telemetry = self.telemetry
        span = None if telemetry is None else telemetry.begin_server_span(operation, ctx)
        try:
            result = await call_next(ctx)
            operation.take_result(as_mapping(result))
            if ctx.method == "prompts/get" and isinstance(name, str):
                operation.prompt = name  # a result means that the prompt exists
            elif ctx.method == "initialize" and telemetry is not None:
                ctx.connection.at_end(telemetry.time_session(ctx))
        except MCPError as error:
            operation.error = str(error.code)
            raise
        except CancelledError:
            operation.error = "cancelled"
            raise
        except Exception as error:
            operation.error = type(error).__name__
            raise
        else:
            return result
        finally:
            operation.end()
            if self.metrics is not None:
                self.metrics.count_request(operation)
            if telemetry is not None and span is not None:
                telemetry.end_server_span(operation, *span)

    def observer_for(self, alias: str, entry: UpstreamSettings) -> UpstreamObserver:
        url = urlsplit(entry.endpoint or "")
        return UpstreamObserver(self, UpstreamInfo(alias, entry.transport != "stdio", url.hostname or "", url.port))


@dataclass(slots=True)
class UpstreamObserver:
    """Measures the requests to one upstream in one session."""

    observation: Observation
    upstream: UpstreamInfo

    def begin(self, method: str, params: Json) -> tuple[Json, Callable[[RpcAnswer | None], None]]:
        name = params.get("name")
        operation = Operation(method, version=self.upstream.version)
        if method == "tools/call":
            operation.tool = str(name)
        elif method == "prompts/get":
            operation.prompt = str(name)
        telemetry = self.observation.telemetry
        span = None
        if telemetry is not None:
            params, span = telemetry.begin_client_span(operation, params, self.upstream)

        def end(answer: RpcAnswer | None) -> None:
            if answer is None:
                operation.error = "cancelled"
            elif answer.problem is None:
                operation.take_result(answer.result)
            elif isinstance(problem := answer.problem, UpstreamError):
                operation.error = str(problem.code)
            else:
                operation.error = "unusable" if isinstance(problem, UnusableAnswerError) else "connection_lost"
            operation.end()
            if self.observation.metrics is not None:
                self.observation.metrics.count_upstream_request(self.upstream.alias, operation)
            if telemetry is not None and span is not None:
                telemetry.end_client_span(operation, span, self.upstream)

        return params, end

    def begin_session(self, version: str) -> Callable[[], None]:
        self.upstream.version = version
        telemetry = self.observation.telemetry
        return telemetry.time_upstream_session(self.upstream) if telemetry is not None else lambda: None
