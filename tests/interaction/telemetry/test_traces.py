"""Telemetry that processes send to a collector, and that servers in this process send to exporters in memory."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from server.app import App
from server.settings import load_settings
from server.telemetry.metrics import BUCKETS, MAX_NAMES, OTHER, Names, Operation
from server.telemetry.observation import Observation
from server.telemetry.open_telemetry import Telemetry
from tests.background_servers import served_by_thread
from tests.fork_server import forked
from tests.harness import HANDSHAKE, MODERN, PEERS, own_state, server_arguments, speaking, stdio_upstream, write_config
from tests.in_process import in_process
from tests.interaction.raw_clients import http_server
from tests.variants import one_in
from tests.waiting import CEILING, until
from tools.machine.installation import install_command

pytestmark = pytest.mark.anyio

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "hunter2-" + "s" * 20
CLIENT, SERVER = 3, 2  # kinds of spans in OTLP


@contextmanager
def collector() -> Generator[tuple[str, list[Any]]]:
    """Run an OTLP collector over HTTP. Yields its address and the list of spans that it receives."""
    spans: list[Any] = []

    class CollectorHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                spans.extend(
                    span
                    for resource in request.resource_spans
                    for scope in resource.scope_spans
                    for span in scope.spans
                )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), CollectorHandler)
    with served_by_thread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}", spans


@pytest.mark.requirement("telemetry.trace")
@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
async def test_a_call_through_the_proxy_is_one_trace_of_three_processes(
    root: Path, tmp_path: Path, revision: str
) -> None:
    with collector() as (url, spans):
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none"}
        entry = {
            "command": sys.executable,
            "args": forked([str(PEERS / "traced_upstream.py")]),
            "env": otel,
            "trust": True,
        }
        config = write_config(tmp_path, {"mcpServers": {"sums": entry}})
        parameters = StdioServerParameters(
            command=sys.executable, args=forked(server_arguments(root, config)), env={**own_state(), **otel}
        )
        async with speaking(revision, stdio_client(parameters)) as client:
            await client.list_tools()
            await client.call_tool("sums__add", {"a": 2, "b": 3}, meta={"traceparent": TRACEPARENT})
        await until(lambda: len([span for span in spans if span.name.startswith("tools/call")]) >= 3)
    of_call = [span for span in spans if span.trace_id.hex() == TRACE]
    server_span, client_span, upstream_span = (
        next(span for span in of_call if (span.kind, span.name) == key)
        for key in ((SERVER, "tools/call sums__add"), (CLIENT, "tools/call add"), (SERVER, "tools/call add"))
    )
    assert server_span.parent_span_id.hex() == PARENT
    assert client_span.parent_span_id == server_span.span_id
    assert upstream_span.parent_span_id == client_span.span_id
    assert len(of_call) == 3
    attributes = {attribute.key: attribute.value.string_value for attribute in client_span.attributes}
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["coretools_mcp.upstream"] == "sums"
    assert attributes["network.transport"] == "pipe"


@pytest.mark.requirement("telemetry.context")
async def test_where_no_span_is_sent_the_context_of_the_client_reaches_the_upstream(root: Path, tmp_path: Path) -> None:
    with collector() as (url, spans):
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none"}
        entry = {
            "command": sys.executable,
            "args": forked([str(PEERS / "traced_upstream.py")]),
            "env": otel,
            "trust": True,
        }
        config = write_config(tmp_path, {"mcpServers": {"sums": entry}})
        variables = {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        parameters = StdioServerParameters(
            command=sys.executable, args=forked(server_arguments(root, config)), env={**own_state(), **variables}
        )
        async with speaking(HANDSHAKE, stdio_client(parameters)) as client:
            await client.list_tools()
            await client.call_tool("sums__add", {"a": 2, "b": 3}, meta={"traceparent": TRACEPARENT})
            await client.call_tool("sums__add", {"a": 2, "b": 3})
        await until(lambda: sum(span.name == "tools/call add" for span in spans) >= 2)
    child_span, root_span = (span for span in spans if span.name == "tools/call add")
    assert {span.kind for span in (child_span, root_span)} == {SERVER}
    assert (child_span.trace_id.hex(), child_span.parent_span_id.hex()) == (TRACE, PARENT)
    assert root_span.trace_id.hex() != TRACE
    assert not root_span.parent_span_id


@pytest.mark.requirement("telemetry.context")
async def test_a_context_in_meta_takes_precedence_over_that_of_the_http_header_which_is_linked(
    root: Path, tmp_path: Path
) -> None:
    header_trace = "c" * 32
    headers = {"traceparent": f"00-{header_trace}-{PARENT}-01", "accept": "application/json, text/event-stream"}
    envelope = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in envelope.items()}
    headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    with collector() as (url, spans):
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none", "OTEL_BSP_SCHEDULE_DELAY": "50"}
        with http_server(root, write_config(tmp_path, {}), {**own_state(), **otel}) as base:
            async with httpx2.AsyncClient(base_url=base, headers=headers) as http:
                for context in ({}, {"traceparent": TRACEPARENT}):
                    params = {"_meta": {**meta, **context}}
                    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
                    answer = await http.post("/mcp", json=message)
                    assert answer.status_code == 200, answer.text
            await until(lambda: sum(span.name == "tools/list" for span in spans) == 2)
    by_header, by_meta = (span for span in spans if span.name == "tools/list")
    assert (by_header.trace_id.hex(), by_header.parent_span_id.hex()) == (header_trace, PARENT)
    assert (by_meta.trace_id.hex(), by_meta.parent_span_id.hex()) == (TRACE, PARENT)
    assert [link.trace_id.hex() for link in by_meta.links] == [header_trace]


class Recorder:
    """Records the spans and measurements of a server in this process."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(tracers, self._meters, [self._meters.shutdown])

    def spans(self, name: str, kind: SpanKind = SpanKind.SERVER) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name and span.kind is kind]

    def everything(self) -> str:
        return "".join(span.to_json() for span in self._spans.get_finished_spans()) + str(
            self._reader.get_metrics_data()
        )

    def points(self, name: str) -> list[HistogramDataPoint]:
        data = self._reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        metrics = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        return [
            point for metric in metrics for point in metric.data.data_points if isinstance(point, HistogramDataPoint)
        ]


@asynccontextmanager
async def recorded_client(
    root: Path, config: Path, revision: str = MODERN, **callbacks: Any
) -> AsyncGenerator[tuple[Client, Recorder]]:
    """Yield a client of a server in this process, and the recorder of the server's telemetry."""
    recorder = Recorder()
    report = load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state())
    app = App(report, "stdio", Observation(telemetry=recorder.telemetry))
    async with app.running():
        if revision == MODERN:
            async with Client(in_process(app), mode=MODERN, cache=None, **callbacks) as client:
                yield client, recorder
        else:
            async with speaking(revision, in_process(app), **callbacks) as client:
                yield client, recorder
    await recorder.telemetry.aclose()


POISONED: Mapping[str, Mapping[str, Any]] = {
    "huge": {"traceparent": "00-" + "a" * 1_000_000},
    "not a text": {"traceparent": {"deep": [TRACEPARENT]}, "baggage": 7},
    "nothing but zeros": {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"},
    "a line of its own": {"traceparent": TRACEPARENT + "\r\nx: y"},
    "capitals": {"traceparent": TRACEPARENT.upper()},
}


@pytest.mark.requirement("telemetry.context")
@pytest.mark.parametrize("meta", POISONED.values(), ids=POISONED)
async def test_a_poisoned_trace_context_is_dropped(root: Path, tmp_path: Path, meta: Mapping[str, Any]) -> None:
    async with recorded_client(root, write_config(tmp_path, {})) as (client, recorder):
        await client.call_tool("list_directory", {"path": str(root)}, meta=dict(meta))  # type: ignore[arg-type]
        (span,) = recorder.spans("tools/call list_directory")
        assert span.parent is None


@pytest.mark.requirement("telemetry.context")
async def test_parts_of_a_context_that_are_too_long_are_dropped_and_the_others_count(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meta = {"traceparent": TRACEPARENT, "tracestate": "a=" + SECRET * 1_000, "baggage": f"{SECRET};;=,=" * 100}
    config = write_config(tmp_path, {"mcpServers": {"up": stdio_upstream(trust=True)}})
    async with recorded_client(root, config) as (client, recorder):
        await client.list_tools()
        result = await client.call_tool("up__echo", {"text": "x"}, meta=dict(meta))  # type: ignore[arg-type]
        assert not result.is_error
        (span,) = recorder.spans("tools/call up__echo")
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}" == TRACE
        (client_span,) = recorder.spans("tools/call echo", SpanKind.CLIENT)
        assert client_span.parent is not None
        assert span.context is not None
        assert client_span.parent.span_id == span.context.span_id
        assert SECRET not in recorder.everything()
    assert SECRET not in caplog.text


@pytest.mark.requirement("telemetry.attributes")
async def test_nothing_that_a_client_says_is_in_a_span_or_a_measured_duration(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"mcpServers": {"up": stdio_upstream(trust=True)}})
    async with recorded_client(root, config, HANDSHAKE) as (client, recorder):
        await client.list_tools()
        await client.call_tool("up__echo", {"text": SECRET})
        await client.call_tool("read_file", {"absolute_path": f"/{SECRET}"})
        for ask in (client.call_tool, client.get_prompt, client.read_resource):
            with pytest.raises(MCPError):
                await ask(f"file:///{SECRET}")
        telemetry_text = recorder.everything()
        assert SECRET not in telemetry_text
        (failed_span,) = recorder.spans("tools/call read_file")
        assert failed_span.attributes is not None
        assert failed_span.attributes["error.type"] == "tool_error"
        (unknown_span,) = recorder.spans(f"tools/call {OTHER}")
        assert unknown_span.attributes is not None
        assert unknown_span.attributes["rpc.response.status_code"] == "-32602"


@pytest.mark.requirement("telemetry.histograms")
async def test_the_four_histograms_of_the_conventions_are_recorded(root: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    config = write_config(tmp_path, {"mcpServers": {"up": stdio_upstream(trust=True)}})
    report = load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, own_state())
    app = App(report, "stdio", Observation(telemetry=recorder.telemetry))
    async with app.running(), speaking(HANDSHAKE, in_process(app)) as client:
        await client.list_tools()
        await client.call_tool("up__echo", {"text": "x"})
    for side in ("server", "client"):
        calls = [
            point
            for point in recorder.points(f"mcp.{side}.operation.duration")
            if (point.attributes or {}).get("mcp.method.name") == "tools/call"
        ]
        assert [point.count for point in calls] == [1], side
        assert tuple(calls[0].explicit_bounds) == BUCKETS
        (session,) = recorder.points(f"mcp.{side}.session.duration")
        assert session.count == 1
    await recorder.telemetry.aclose()


@pytest.mark.requirement("telemetry.ending")
async def test_traces_that_cannot_be_sent_at_the_end_keep_no_measurement_from_being_sent() -> None:
    is_measured = Event()
    wait_results: list[bool] = []

    def fail() -> None:
        raise RuntimeError("the collector is gone")

    shutdowns = (fail, lambda: wait_results.append(is_measured.wait(CEILING)), is_measured.set)
    await Telemetry(TracerProvider(), MeterProvider(), shutdowns).aclose()
    assert wait_results == [True]


@pytest.mark.requirement("telemetry.attributes")
def test_a_flood_of_names_and_codes_is_measured_as_a_few(root: Path) -> None:
    recorder = Recorder()
    names = Names(MAX_NAMES)
    assert {names(f"tool-{number}") for number in range(10_000)} == {f"tool-{n}" for n in range(MAX_NAMES)} | {OTHER}
    for number in range(3_000):
        operation = Operation("tools/call", tool=f"tool-{number}", error=str(-32_000 - number))
        operation.end()
        span, token = recorder.telemetry.begin_server_span(operation, _Context())  # type: ignore[arg-type]
        recorder.telemetry.end_server_span(operation, span, token)
    assert len(recorder.points("mcp.server.operation.duration")) <= 2 * (MAX_NAMES + 1)


class _Context:
    """The context of a request over stdio, with only what a span needs."""

    http_request = None
    params: Mapping[str, Any] | None = None
    request_id = 1


def log_imports(arguments: list[str]) -> list[str]:
    """Return the arguments with which a new interpreter runs the same and logs its imports."""
    return ["-X", "importtime", *arguments]


def run_server(
    root: Path, environ: Mapping[str, str], start: Callable[[list[str]], list[str]] = forked
) -> subprocess.CompletedProcess[str]:
    """Run a server with these variables on one `initialize` request, and return the ended process."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) + "\n"
    command = [sys.executable, *start(server_arguments(root, None))]
    env = {**own_state(), **environ}
    return subprocess.run(command, input=line, capture_output=True, encoding="utf-8", timeout=100, check=True, env=env)


ON = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}


@pytest.mark.requirement("telemetry.off")
@pytest.mark.parametrize(
    "environ",
    one_in(3, [{}, {**ON, "OTEL_SDK_DISABLED": "true"}, {"OTEL_METRICS_EXPORTER": "none"}]),
    ids=["not asked for", "disabled", "asked for no metrics"],
)
async def test_where_nobody_asks_for_telemetry_nothing_of_it_is_imported(root: Path, environ: dict[str, str]) -> None:
    process = run_server(root, environ, log_imports)
    assert "server.app" in process.stderr
    assert not re.search(
        r"\| +(server\.telemetry|server\.clients\.rate|server\.requests\.call_limits|opentelemetry\.(sdk|metrics))",
        process.stderr,
    )


@pytest.mark.requirement("telemetry.off")
async def test_spans_for_the_console_go_to_standard_error(root: Path) -> None:
    process = run_server(root, ON)
    assert [json.loads(line)["id"] for line in process.stdout.splitlines()] == [1]
    assert '"mcp.method.name": "initialize"' in process.stderr


@pytest.mark.requirement("telemetry.trace")
async def test_an_empty_variable_for_the_exporter_means_the_default_exporter(root: Path) -> None:
    with collector() as (url, spans):
        otel = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": ""}
        run_server(root, otel)
    assert [span.name for span in spans] == ["initialize"]


WITHOUT_EXTRA = """
import sys
sys.modules["opentelemetry.sdk"] = None
sys.argv = {arguments!r}
from coretools_mcp import main
sys.exit(main())
"""


@pytest.mark.requirement("telemetry.missing")
def test_a_missing_extra_is_reported_in_a_sentence_and_the_server_works(root: Path) -> None:
    _, _, _, launcher, *options = server_arguments(root, None)
    code = WITHOUT_EXTRA.format(arguments=[launcher, *options])
    environ = {**own_state(), **ON, "PYTHONPATH": str(Path(launcher).parent)}
    process = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        input="",
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        env=environ,
    )
    assert process.returncode == 0
    assert install_command("otel") in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.requirement("telemetry.missing")
@pytest.mark.parametrize(
    ("environ", "warning"),
    [
        ({**ON, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "few"}, "values that OpenTelemetry rejects"),
        ({**ON, "OTEL_BSP_SCHEDULE_DELAY": "soon"}, "WARNING OpenTelemetry: "),
        ({**ON, "OTEL_TRACES_EXPORTER": "zipkin"}, "names 'zipkin', which is unknown here"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, ""),
    ],
    ids=["rejected value", "ignored value", "unknown exporter", "nobody listens"],
)
def test_unusable_variables_do_not_stop_the_server(root: Path, environ: dict[str, str], warning: str) -> None:
    process = run_server(root, environ)
    assert [json.loads(line)["id"] for line in process.stdout.splitlines()] == [1]
    assert warning in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.requirement("telemetry.trace")
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_what_was_traced_is_sent_when_a_signal_ends_the_server(root: Path) -> None:
    with collector() as (url, spans):
        otel = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        }
        command = [sys.executable, *server_arguments(root, None)]
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) + "\n"
        env = {**own_state(), **otel}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line.encode())
            process.stdin.flush()
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            process.wait(CEILING)
    assert [span.name for span in spans] == ["initialize"]
