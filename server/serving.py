"""Running one server on one transport until its input ends or somebody asks it to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Literal, NoReturn

import anyio

from server.app import App
from server.log import flush_log
from server.settings import SettingsReport
from server.transports.http_options import HttpOptions, ListenError, open_socket, read_tokens
from server.transports.stdio import serve_stdio
from server.watchdog import Watchdog
from tools.contract.exhaustion import allow_open_files
from tools.contract.subjects import Kind
from tools.contract.threads import THREADS

__all__ = ["ListenError", "Transport", "leave", "serve", "until_signal"]

logger = logging.getLogger(__name__)

Transport = Literal["stdio", "http", "sse"]


def serve(report: SettingsReport, transport: Transport, watchdog: Watchdog) -> None:
    """Serve until the end.

    Args:
        report: The settings.
        transport: Over what.
        watchdog: Sees to it that there is an end.

    Raises:
        ListenError: The address of an HTTP transport cannot be listened on.
        SettingsError: A token cannot be used.
        ExhaustedError: The system gives no thread.
    """
    settings = report.settings
    descriptors = allow_open_files()
    if transport == "stdio":
        anyio.run(_serve_stdio, report, watchdog)
        return
    options = HttpOptions(
        host=settings.http.host,
        port=settings.http.port,
        allowed_hosts=settings.http.allowed_hosts,
        allowed_origins=settings.http.allowed_origins,
        max_body_bytes=settings.limits.request_bytes,
        session_idle_seconds=settings.http.session_idle / 1000,
        tokens=read_tokens(settings.http.tokens, os.environ),
        certificate=settings.http.tls_cert,
        private_key=settings.http.tls_key,
        with_streamable=transport == "http",
    )
    with open_socket(options) as listener:
        anyio.run(_serve_http, report, options, listener, descriptors, watchdog)


async def _serve_stdio(report: SettingsReport, watchdog: Watchdog) -> None:
    _begin(watchdog)
    app = App(report, "stdio")
    max_message_bytes = report.settings.limits.request_bytes

    def runs_command(tool: str) -> bool:
        return app.registry.knows(tool) and app.registry.get_tool(tool).kind is Kind.EXECUTE

    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, group.cancel_scope.cancel)
        async with app.running():
            await serve_stdio(app.server, max_message_bytes, runs_command)
            watchdog.leaving()
        group.cancel_scope.cancel()


async def _serve_http(
    report: SettingsReport, options: HttpOptions, listener: socket.socket, descriptors: int, watchdog: Watchdog
) -> None:
    from server.transports.http import serve_http  # noqa: PLC0415 - the stdio server needs no web server

    _begin(watchdog)
    app = App(report, "network")
    stopping = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, stopping.set)
        async with app.running():
            app.start_upstreams()
            await serve_http(
                app.server,
                options,
                listener,
                stopping,
                is_ready=lambda: app.pool.is_settled,
                descriptors=descriptors,
            )
            watchdog.leaving()
        group.cancel_scope.cancel()


def _begin(watchdog: Watchdog) -> None:
    """In the event loop, before anything else: what has to be there when there is too little of something."""
    THREADS.start()
    watchdog.attach(asyncio.get_running_loop())


async def until_signal(work: Callable[[], Awaitable[int]]) -> int:
    """Run a command that ends in order on SIGTERM and SIGINT, and then has failed."""
    code = 1
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, group.cancel_scope.cancel)
        code = await work()
        group.cancel_scope.cancel()
    return code


async def _stop_on_signal(stop: Callable[[], None]) -> None:
    """Stop in order at the first signal; a second one must not end us before our children are ended."""
    if os.name != "posix":
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    loop = asyncio.get_running_loop()
    caught: asyncio.Queue[int] = asyncio.Queue()

    def catch(number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(caught.put_nowait, number)

    # Not those of the event loop: it would take the descriptor by which the watchdog hears of signals.
    for number in numbers:
        signal.signal(number, catch)
    try:
        while True:
            logger.info("stopping on %s", signal.Signals(await caught.get()).name)
            stop()
    finally:
        # What is left to do is bounded.
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


def leave(code: int) -> NoReturn:
    """End the process now: a worker thread that nobody waits for any more must not hold it."""
    sys.stdout.flush()
    flush_log()
    os._exit(code)
