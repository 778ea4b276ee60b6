"""Servers that replicas share, and what may be wrong with the way to them."""

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
"""Options with which all that a server has confirmed survives a kill."""


class ValkeyServer:
    """A server on a free port of this machine, which may end and come back: empty then, unless options keep it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        usual = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self._process = subprocess.Popen(
            ["redis-server", *usual, *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def restart(self) -> None:
        """End it at once, and begin again without anything; anyone who is connected sees the end."""
        await anyio.to_thread.run_sync(self.stop)
        await anyio.to_thread.run_sync(self.start)

    def command(self, *words: str) -> bytes:
        """What it answers to one command."""
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
async def silent_way(port: int) -> AsyncGenerator[tuple[int, anyio.Event]]:
    """A port that leads to another one, until the event is set: from then on nothing comes back."""
    is_silent = anyio.Event()

    async def lead(here: SocketStream) -> None:
        async with here, await anyio.connect_tcp("127.0.0.1", port) as there, anyio.create_task_group() as both:

            async def carry(source: SocketStream, target: SocketStream) -> None:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    while True:
                        data = await source.receive()
                        if not is_silent.is_set():
                            await target.send(data)
                both.cancel_scope.cancel()

            both.start_soon(carry, here, there)
            both.start_soon(carry, there, here)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as ways:
        ways.start_soon(listener.serve, lead)
        yield listener.extra_attributes[SocketAttribute.local_port](), is_silent
        ways.cancel_scope.cancel()
