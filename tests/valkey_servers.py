"""Valkey servers for replicas, and a proxy that can fall silent."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import SocketAttribute, SocketStream

from tests.background_servers import free_port
from tests.waiting import wait_until

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""Options with which all confirmed writes survive a kill."""


class ValkeyServer:
    """A server on a free local port. After a restart it is empty, unless its options make it durable."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self._process = subprocess.Popen(
            ["redis-server", *options, *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def restart(self) -> None:
        """Kill the server and start it again. Connected clients lose their connections."""
        await anyio.to_thread.run_sync(self.stop)
        await anyio.to_thread.run_sync(self.start)

    def command(self, *words: str) -> bytes:
        """Send a command and return the answer."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(1 << 16)

    def _answers(self) -> bool:
        with suppress(OSError):
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        return False


@contextmanager
def valkey_server(folder: Path, *options: str) -> Generator[ValkeyServer]:
    server = ValkeyServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def silenceable_proxy(port: int) -> AsyncGenerator[tuple[int, anyio.Event]]:
    """Yield a port that forwards to another one. Once the event is set, it drops all data."""
    is_silent = anyio.Event()

    async def forward(client: SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", port) as server, anyio.create_task_group() as tasks:

            async def carry(source: SocketStream, target: SocketStream) -> None:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    while True:
                        data = await source.receive()
                        if not is_silent.is_set():
                            await target.send(data)
                tasks.cancel_scope.cancel()

            tasks.start_soon(carry, client, server)
            tasks.start_soon(carry, server, client)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, forward)
        yield listener.extra_attributes[SocketAttribute.local_port](), is_silent
        group.cancel_scope.cancel()
