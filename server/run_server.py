"""Runs one server on one transport until its input ends or a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio

from server.administration.watchdog import Watchdog
from server.app import App
from server.settings import SettingsReport
from server.settings.server_models import Settings
from server.store.replica import Replica, lone_replica, read_replica
from server.transports.configured_secrets import read_state_keys, read_store_password, read_tokens
from server.transports.http_options import HttpOptions, open_socket
from server.transports.stdio_server import serve_stdio
from tools.contract.permission_subjects import ToolKind
from tools.machine.process_limits import allow_open_files
from tools.machine.threads import THREADS

if TYPE_CHECKING:
    from server.telemetry.observation import Observation

logger = logging.getLogger(__name__)

Transport = Literal["stdio", "http", "sse"]
_TELEMETRY = (
    *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
    *("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"),
)
"""Environment variables that turn on OpenTelemetry traces or metrics."""
WAITING_NOTE = (
    "coretools-mcp: waiting for an MCP client to send JSON-RPC on standard input. Clients start this command "
    "themselves; to add it to a client, run coretools-mcp install. For all commands, run coretools-mcp help. Ctrl-C "
    "stops it.\n"
)
CONTROL_SECONDS = 0.1  # seconds before the control socket opens, so that it does not delay the first client's lists


def serve(report: SettingsReport, transport: Transport, watchdog: Watchdog) -> int | None:
    """Serve until the input ends or a signal arrives; return the number of the signal that stopped the server, if any.

    Raises:
        ListenError: The server cannot listen on the address.
        SettingsError: A token, a key, the store or the issuer cannot be used.
        ExhaustedError: The system lacks a resource.
    """
    settings = report.settings
    descriptors = allow_open_files()
    if transport == "stdio":

        async def serve_client(app: App) -> None:
            def runs_command(name: str) -> bool:
                tool = app.registry.find(name)
                return tool is not None and tool.kind is ToolKind.EXECUTE

            if sys.stdin.isatty():
                sys.stderr.write(WAITING_NOTE)
            await serve_stdio(app.table, settings.limits.request_bytes, runs_command)

        return anyio.run(_serve, report, transport, watchdog, lone_replica(), serve_client)
    tokens = read_tokens(settings.http.tokens, os.environ)
    issuer = None
    if settings.http.oauth.is_configured:
        from server.transports.issuer import read_issuer  # noqa: PLC0415 - loaded only if an issuer is set

        issuer = read_issuer(settings.http.oauth, os.environ)
    replica = network_replica(settings)
    if replica.seal_keys and replica.shared_store is None:
        logger.warning(
            "http.stateKeys are set but store.url is memory:, so an answer is valid only on the replica that asked the "
            "question. Set store.url to a store that the replicas share, or remove the keys"
        )
    if replica.shared_store is not None and not replica.seal_keys:
        logger.warning(
            "store.url is set but http.stateKeys are not, so replicas share only call rates and notifications of "
            "changed lists. Set a key"
        )
    options = HttpOptions(settings.http, settings.limits.request_bytes, tokens, transport == "http", issuer)
    with open_socket(options) as listener:
        from server.transports.http_server import serve_http  # noqa: PLC0415 - not loaded over stdio

        stopping = anyio.Event()
        http = settings.http

        def stop() -> None:
            if not stopping.is_set():
                watchdog.draining((http.drain + http.grace) / 1000)
                stopping.set()

        async def serve_network(app: App) -> None:
            app.start_upstreams()
            await serve_http(app, options, listener, stopping, descriptors)

        return anyio.run(_serve, report, transport, watchdog, replica, serve_network, stop)


def network_replica(settings: Settings) -> Replica:
    """Return the replica of a network server; raise `SettingsError` if a key, the password or the store is unusable."""
    state_keys = read_state_keys(settings.http.state_keys, os.environ)
    return read_replica(settings.store, read_store_password(settings.store.password, os.environ), state_keys)


def _observation(*, has_metrics: bool) -> Observation | None:
    """Return the telemetry that the settings and OpenTelemetry variables ask for, importing only what is needed."""
    is_wanted = any(os.environ.get(variable, "none") not in {"", "none"} for variable in _TELEMETRY)
    wants_telemetry = is_wanted and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
    if not has_metrics and not wants_telemetry:
        return None
    from server.telemetry.metrics import Metrics  # noqa: PLC0415 - loaded only if telemetry is on
    from server.telemetry.observation import Observation  # noqa: PLC0415

    observation = Observation(metrics=Metrics() if has_metrics else None)
    if wants_telemetry:
        from server.telemetry.open_telemetry import telemetry_of_environment  # noqa: PLC0415 - loaded only on demand

        observation.telemetry = telemetry_of_environment()
    return observation if observation.metrics or observation.telemetry else None


async def _serve(
    report: SettingsReport,
    transport: Transport,
    watchdog: Watchdog,
    replica: Replica,
    work: Callable[[App], Awaitable[None]],
    stop: Callable[[], None] | None = None,
) -> int | None:
    """Run an `App` until `work` returns. A signal calls `stop`, or cancels `work` if there is no `stop`."""
    ended_by: int | None = None
    # Create the threads now, before the system can run out of them.
    THREADS.start()
    watchdog.attach(asyncio.get_running_loop())
    observation = _observation(has_metrics=transport != "stdio" and report.settings.http.metrics)
    app = App(report, "stdio" if transport == "stdio" else "network", observation, replica)
    async with anyio.create_task_group() as group:

        def end(number: int) -> None:
            nonlocal ended_by
            ended_by = number
            stop() if stop is not None else group.cancel_scope.cancel()

        group.start_soon(_stop_on_signal, end)
        try:
            async with app.running():
                group.start_soon(_serve_control_socket, app, transport)
                try:
                    await work(app)
                finally:
                    watchdog.leaving()
        finally:
            if observation is not None and observation.telemetry is not None:
                await observation.telemetry.aclose()
        group.cancel_scope.cancel()
    return ended_by


async def _serve_control_socket(app: App, transport: Transport) -> None:
    await app.started.wait()
    await anyio.sleep(CONTROL_SECONDS)
    if sys.platform != "win32":
        from server.dashboard.control_socket import serve_control  # noqa: PLC0415 - not needed at startup

        try:
            await serve_control(app.running_server, transport)
        except Exception:
            # The server must continue, no matter what fails here.
            logger.exception("the control socket was closed because of an internal error")


def run_in_app(report: SettingsReport, work: Callable[[App], Awaitable[int]], replica: Replica | None = None) -> int:
    """Run a terminal command in a server of its own, which serves no other client."""

    async def run() -> int:
        app = App(report, "stdio", replica=replica, keeps_tmp=False)
        async with app.running():
            return await work(app)

    return anyio.run(until_signal, run)


async def until_signal(work: Callable[[], Awaitable[int]]) -> int:
    """Run a command that a signal can stop. SIGINT raises `KeyboardInterrupt`; after SIGTERM, the exit code is 143."""
    code, stopped_by = 1, list[int]()
    async with anyio.create_task_group() as group:

        def stop(number: int) -> None:
            stopped_by.append(number)
            group.cancel_scope.cancel()

        group.start_soon(partial(_stop_on_signal, stop, may_interrupt=True))
        code = await work()
        group.cancel_scope.cancel()
    if signal.SIGINT in stopped_by:
        raise KeyboardInterrupt
    return 128 + stopped_by[0] if stopped_by else code


async def _stop_on_signal(stop: Callable[[int], None], *, may_interrupt: bool = False) -> None:
    """Call `stop` on each SIGTERM or SIGINT: a second one must not kill this process before its children exit.

    With `may_interrupt`, a SIGINT interrupts what keeps the event loop from handling an earlier signal, because no
    watchdog ends this process.
    """
    if os.name != "posix":
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    is_pending = False  # whether a signal has arrived that is not handled yet

    def catch(number: int, _frame: object) -> None:
        nonlocal is_pending
        if is_pending and may_interrupt and number == signal.SIGINT:
            raise KeyboardInterrupt
        is_pending = True
        loop.call_soon_threadsafe(signals.put_nowait, number)

    # The event loop's own handlers would take over the descriptor that reports signals to the watchdog.
    for number in numbers:
        signal.signal(number, catch)
    try:
        while True:
            number = await signals.get()
            is_pending = False
            logger.info("stopping on %s", signal.Signals(number).name)
            stop(number)
    finally:
        # The rest of the shutdown takes a bounded time, so signals can be ignored.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
