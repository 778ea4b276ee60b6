"""Spans and histograms following the OpenTelemetry conventions for MCP, sent by the SDK in the pip extra `otel`.

The providers are private, not global: with global ones, the MCP SDK would create its own spans, which would duplicate
this module's spans and contain client text. Attributes that a client chooses (a URI, a string id), and the session id,
which is a credential, are omitted.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from typing import Any

import anyio
from opentelemetry import context as contexts
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import (
    Link,
    NoOpTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
)
from opentelemetry.trace import set_span_in_context as with_span
from starlette.requests import Request

from server import VERSION
from server.protocol.json_rpc import Json, as_mapping
from server.protocol.request_table import RequestContext
from server.telemetry.metrics import BUCKETS, MAX_CODES, MAX_NAMES, Names, Operation, UpstreamInfo
from tools.contract.display import visible_line
from tools.machine.installation import install_command
from tools.machine.threads import THREADS

logger = logging.getLogger(__name__)

LAST_SECONDS = 3.0  # limit for sending the last spans and metrics at shutdown
MAX_LOG_CHARS = 300  # maximum length of an SDK message in this log
MAX_LENGTHS: Mapping[str, int] = {"traceparent": 128, "tracestate": 512, "baggage": 8_192}
"""The parts of a trace context in `_meta` (SEP-414), with their maximum length (from W3C, except for `traceparent`)."""
_OPERATION = contexts.create_key("coretools-mcp-operation")


class _OneLineHandler(logging.Handler):
    """Writes each message of the SDK to this log on one line, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        text = visible_line(record.getMessage()[:MAX_LOG_CHARS])
        logger.log(min(record.levelno, logging.WARNING), "OpenTelemetry: %s", text)


def telemetry_of_environment() -> Telemetry | None:
    """Build the telemetry that the `OTEL_*` variables ask for.

    Returns `None` if they ask for nothing, or if it cannot be built, which is logged.
    """
    exporters = {  # OpenTelemetry treats an empty variable like a missing one
        kind: {name.strip() for name in (os.environ.get(f"OTEL_{kind}_EXPORTER") or "otlp").lower().split(",")}
        for kind in ("TRACES", "METRICS")
    }
    for kind, names in exporters.items():
        for name in sorted(names - {"otlp", "console", "none", ""}):
            message = "OTEL_%s_EXPORTER names '%s', which is unknown here; use otlp, console or none"
            logger.warning(message, kind, re.sub(r"[^a-z0-9_-]", "?", name[:40]))
    if not any(names & {"otlp", "console"} for names in exporters.values()):
        return None
    sdk_logger = logging.getLogger("opentelemetry")
    sdk_logger.handlers, sdk_logger.propagate = [_OneLineHandler()], False
    if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http").startswith("grpc"):
        logger.warning(
            "OTEL_EXPORTER_OTLP_PROTOCOL asks for grpc; this server sends http/protobuf, usually to port 4318"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk import metrics, resources, trace  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter  # noqa: PLC0415

        resource = resources.Resource.create()
        if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(resources.Resource({"service.name": "coretools-mcp"}))
        resource = resources.Resource({"service.version": VERSION}).merge(resource)
        # Console exporters write to standard error, because standard output belongs to the protocol.
        processors = [BatchSpanProcessor(OTLPSpanExporter())] if "otlp" in exporters["TRACES"] else []
        if "console" in exporters["TRACES"]:
            processors.append(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if "otlp" in exporters["METRICS"] else []
        if "console" in exporters["METRICS"]:
            readers.append(PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr)))
        tracers = trace.TracerProvider(resource=resource, shutdown_on_exit=False)
        for processor in processors:
            tracers.add_span_processor(processor)
        meters = metrics.MeterProvider(readers, resource, shutdown_on_exit=False)
    except ImportError:
        logger.warning(
            "OTEL_* variables ask for traces or metrics, but the `otel` extra is not installed: run %s, or set "
            "OTEL_SDK_DISABLED=true",
            install_command("otel"),
        )
        return None
    except Exception:  # noqa: BLE001 - whatever the variables contain, the server must start
        logger.warning("OTEL_* variables have values that OpenTelemetry rejects, so no traces or metrics are sent")
        return None

    # If traces are off, no spans are created: a span that is never sent costs as much as any other, and would be a
    # missing parent between the client's span and the upstream's.
    return Telemetry(
        tracers if processors else NoOpTracerProvider(),
        meters if readers else NoOpMeterProvider(),
        (tracers.shutdown, lambda: meters.shutdown(LAST_SECONDS * 1000)),
    )


class Telemetry:
    """Creates the spans of requests, and records their durations. `shutdowns` send what is unsent, and may block."""

    def __init__(
        self, tracers: TracerProvider, meters: MeterProvider, shutdowns: Sequence[Callable[[], object]] = ()
    ) -> None:
        self._tracer = tracers.get_tracer("coretools-mcp", VERSION)
        meter = meters.get_meter("coretools-mcp", VERSION)
        self._server, self._client, self._server_session, self._client_session = (
            meter.create_histogram(f"mcp.{name}.duration", "s", explicit_bucket_boundaries_advisory=BUCKETS)
            for name in ("server.operation", "client.operation", "server.session", "client.session")
        )
        self._shutdowns = shutdowns
        self._tools, self._prompts, self._codes = Names(MAX_NAMES), Names(MAX_NAMES), Names(MAX_CODES)
        # The warnings of these loggers quote client text.
        for name in ("opentelemetry.baggage.propagation", "opentelemetry.trace.span", "opentelemetry.attributes"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

    async def aclose(self) -> None:
        with anyio.move_on_after(LAST_SECONDS, shield=True):
            async with anyio.create_task_group() as tasks:
                for shutdown in self._shutdowns:
                    tasks.start_soon(self._shut_down, shutdown)

    async def _shut_down(self, shutdown: Callable[[], object]) -> None:
        try:
            await THREADS.run(shutdown)
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises, the server must shut down
            logger.warning("the last traces or metrics may not have been sent (%s)", type(error).__name__)

    def begin_server_span(self, operation: Operation, ctx: RequestContext) -> tuple[Span, Token[Context]]:
        """Begin the span of a client's request, as a child of the span in its `_meta`, or else in its HTTP headers."""
        request: Request | None = ctx.http_request
        meta_context = _trace_context(as_mapping((ctx.params or {}).get("_meta")))
        http_context = None if request is None else _trace_context(request.headers)
        context = meta_context or http_context or Context()
        attributes = _attributes(operation) | _network_of(request)
        if isinstance(ctx.request_id, int):
            attributes["jsonrpc.request.id"] = str(ctx.request_id)[:20]
        if request is not None and (client := request.client) is not None:
            attributes |= {"client.address": client.host, "client.port": client.port}
        links = None
        if meta_context is not None and http_context is not None:
            meta_span, http_span = (
                get_current_span(parent).get_span_context() for parent in (meta_context, http_context)
            )
            links = [Link(http_span)] if http_span.trace_id != meta_span.trace_id else None
        span = self._tracer.start_span(_name(operation), context, SpanKind.SERVER, attributes, links)
        return span, contexts.attach(contexts.set_value(_OPERATION, operation, with_span(span, context)))

    def end_server_span(self, operation: Operation, span: Span, token: Token[Context]) -> None:
        if operation.prompt:
            span.update_name(_name(operation))
            span.set_attribute("gen_ai.prompt.name", operation.prompt)
        _end(operation, span)
        self._server.record(operation.seconds, self._metric_attributes(operation), contexts.get_current())
        contexts.detach(token)

    def begin_client_span(self, operation: Operation, params: Json, upstream: UpstreamInfo) -> tuple[Json, Span]:
        """Begin a span. Returns the parameters, with its trace context instead of the caller's, and the span."""
        cause = contexts.get_value(_OPERATION)
        # A request that begins after the request that caused it has ended gets its own trace.
        is_over = isinstance(cause, Operation) and cause.is_done
        context = Context() if is_over else contexts.get_current()
        attributes = _attributes(operation) | _address_of(upstream)
        span = self._tracer.start_span(_name(operation), context, SpanKind.CLIENT, attributes)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, with_span(span, context))
        meta = {name: value for name, value in as_mapping(params.get("_meta")).items() if name not in MAX_LENGTHS}
        return {**params, "_meta": {**meta, **carrier}}, span

    def end_client_span(self, operation: Operation, span: Span, upstream: UpstreamInfo) -> None:
        _end(operation, span)
        attributes = self._metric_attributes(operation) | _address_of(upstream)
        self._client.record(operation.seconds, attributes, with_span(span, Context()))

    def time_session(self, ctx: RequestContext) -> Callable[[], None]:
        started_at, attributes = time.perf_counter(), _network_of(ctx.http_request)
        return lambda: self._server_session.record(time.perf_counter() - started_at, attributes, Context())

    def time_upstream_session(self, upstream: UpstreamInfo) -> Callable[[], None]:
        started_at, attributes = time.perf_counter(), _address_of(upstream) | {"mcp.protocol.version": upstream.version}
        return lambda: self._client_session.record(time.perf_counter() - started_at, attributes, Context())

    def _metric_attributes(self, operation: Operation) -> dict[str, Any]:
        """Return the attributes to record with a duration; each has few possible values."""
        attributes = _attributes(operation)
        if operation.tool:
            attributes["gen_ai.tool.name"] = self._tools(operation.tool)
        if operation.prompt:
            attributes["gen_ai.prompt.name"] = self._prompts(operation.prompt)
        if operation.error:
            attributes["error.type"] = self._codes(operation.error)
        return attributes


def _trace_context(carrier: Mapping[str, Any]) -> Context | None:
    """Return the trace context in a carrier, without malformed and overlong parts; `None` if it has no valid parent."""
    if "traceparent" not in carrier:
        return None
    valid_parts = {
        name: value
        for name, limit in MAX_LENGTHS.items()
        if isinstance(value := carrier.get(name), str) and len(value) <= limit and value.isascii()
    }
    context = propagate.extract(valid_parts, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def _name(operation: Operation) -> str:
    target = operation.tool or operation.prompt
    return f"{operation.method} {target}" if target else operation.method


def _attributes(operation: Operation) -> dict[str, Any]:
    attributes: dict[str, Any] = {"mcp.method.name": operation.method}
    if operation.version:
        attributes["mcp.protocol.version"] = operation.version
    if operation.tool:
        attributes |= {"gen_ai.tool.name": operation.tool, "gen_ai.operation.name": "execute_tool"}
    if operation.prompt:
        attributes["gen_ai.prompt.name"] = operation.prompt
    return attributes


def _network_of(request: Request | None) -> dict[str, Any]:
    if request is None:
        return {"network.transport": "pipe"}
    version = request.scope.get("http_version", "1.1")
    return {"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": version}


def _address_of(upstream: UpstreamInfo) -> dict[str, Any]:
    transport = "tcp" if upstream.is_remote else "pipe"
    attributes: dict[str, Any] = {"coretools_mcp.upstream": upstream.alias, "network.transport": transport}
    if upstream.host:
        attributes["server.address"] = upstream.host
    if upstream.port is not None:
        attributes["server.port"] = upstream.port
    return attributes


def _end(operation: Operation, span: Span) -> None:
    if error := operation.error:
        span.set_attribute("error.type", error)
        if error.lstrip("-").isdigit():
            span.set_attribute("rpc.response.status_code", error)
        span.set_status(Status(StatusCode.ERROR))  # without the error message, which may contain anything
    span.end()
