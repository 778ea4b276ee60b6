"""Clients that send too slowly, read too slowly or send nothing are cut off, and no other client notices."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import anyio
import httpx2
import pytest
import uvicorn

from server.transports.http_server import ClientConnection
from tests.waiting import CEILING

pytestmark = pytest.mark.anyio

HEAD = b"POST /take HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"


class ImpatientConnection(ClientConnection):
    """The server's connection class, with shorter timeouts."""

    head_seconds: ClassVar[float] = 0.3
    body_seconds: ClassVar[float] = 0.3
    unread_seconds: ClassVar[float] = 0.3


class Application:
    """Takes a body, or answers with a stream and counts the bytes that it sent.

    Args:
        sends: The number of bytes to send before it waits until the client disconnects; 0 means that it never stops.
    """

    def __init__(self, sends: int = 0) -> None:
        self.sent_bytes = 0
        self._sends = sends
        self.has_ended = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/stream":
            try:
                if self._sends:
                    await send({"type": "http.response.body", "body": bytes(self._sends), "more_body": True})
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    return
                while True:
                    with anyio.fail_after(CEILING):
                        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
                    self.sent_bytes += 1 << 16
                    # uvicorn silently drops data for a client that has disconnected.
                    if self.sent_bytes > 1 << 30 or await _is_gone(receive):
                        return
            finally:
                self.has_ended.set()
        has_more = True
        while has_more:
            has_more = (await receive()).get("more_body", False)
        await send({"type": "http.response.body", "body": b"taken"})


async def _is_gone(receive: Any) -> bool:
    """Whether the server has noticed that the client has disconnected."""
    with anyio.move_on_after(0):
        return (await receive())["type"] == "http.disconnect"
    return False


@asynccontextmanager
async def application_server(
    application: Application, protocol: type[ClientConnection] = ImpatientConnection, max_connections: int | None = None
) -> AsyncGenerator[int]:
    """Serve the application on a free port; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            application, http=protocol, limit_concurrency=max_connections, log_config=None, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            while not server.started:  # noqa: ASYNC110 - uvicorn sets no event
                await anyio.sleep(0.01)
            yield listener.getsockname()[1]
            server.should_exit = True


async def read_until_cut_off(data: bytes, port: int) -> bytes:
    """Send bytes and then nothing; return what the server sends until it cuts the client off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    output = b""
    try:
        with anyio.fail_after(CEILING):
            while chunk := await reader.read(1 << 16):
                output += chunk
    except ConnectionResetError:
        pass
    finally:
        writer.close()
    return output


@pytest.mark.requirement("network.slow")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /take HT",
        b"POST /take HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        HEAD,
        HEAD + b"x" * 500,
        b"GET /take HTTP/1.1\r\nHost: localhost\r\n\r\nGET /ta",
    ],
    ids=["nothing", "a line", "a header", "no body", "half a body", "half a second request"],
)
async def test_a_client_that_stops_in_the_middle_is_cut_off(data: bytes) -> None:
    async with application_server(Application()) as port:
        await read_until_cut_off(data, port)
        async with httpx2.AsyncClient(timeout=CEILING) as client:
            assert (await client.post(f"http://127.0.0.1:{port}/take", content=b"x")).text == "taken"


@pytest.mark.requirement("network.slow")
async def test_a_client_that_stops_in_the_head_of_a_later_request_is_cut_off() -> None:
    async with application_server(Application()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"x" * 1000)
        with anyio.fail_after(CEILING):
            assert (await reader.readuntil(b"\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            writer.write(b"GET /ta")
            assert await reader.read() == b""
        writer.close()


@pytest.mark.requirement("network.slow")
@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"),
    reason="not run: only Linux can limit the time for which sent data is unread",
)
async def test_a_client_that_does_not_read_a_small_answer_is_cut_off_too() -> None:
    application = Application(sends=200_000)
    async with application_server(application) as port:
        with socket.socket() as client:
            # The answer fits into the send buffer of the server's system, but not into the client's receive buffer. So
            # the server itself does not notice that data is waiting.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with anyio.fail_after(CEILING):
                await application.has_ended.wait()


@pytest.mark.requirement("network.slow")
async def test_a_client_that_sends_in_pieces_in_time_is_served() -> None:
    async with application_server(Application()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in (HEAD[:20], HEAD[20:], b"x" * 400, b"x" * 600):
            writer.write(piece)
            await writer.drain()
        with anyio.fail_after(CEILING):
            assert b"200 OK" in await reader.readline()
        writer.close()


@pytest.mark.requirement("network.slow")
async def test_a_client_that_does_not_read_is_cut_off_and_others_are_served_meanwhile() -> None:
    application = Application()
    async with application_server(application) as port, httpx2.AsyncClient(timeout=CEILING) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # The client no longer reads from the socket.
        transport: Any = writer.transport
        transport.pause_reading()
        writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with anyio.fail_after(CEILING):
            while not application.has_ended.is_set():
                assert (await client.post(f"http://127.0.0.1:{port}/take", content=b"x")).text == "taken"
        # The server sent no more than the system buffers for a connection.
        assert application.sent_bytes < 64 << 20
        assert not reader.at_eof()
        writer.close()


@pytest.mark.requirement("network.many")
async def test_connections_that_bring_no_request_keep_nobody_out() -> None:
    max_connections = 5
    application = Application(sends=1)
    # With the normal timeouts, so that no connection is cut off for being slow.
    async with application_server(application, ClientConnection, max_connections) as port:
        stream, open_stream = await asyncio.open_connection("127.0.0.1", port)
        open_stream.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        kept_reader, kept_writer = await asyncio.open_connection("127.0.0.1", port)
        with anyio.fail_after(CEILING):
            await stream.readuntil(b"\r\n\r\n")
            kept_writer.write(HEAD + b"x" * 1000)
            await kept_reader.readuntil(b"\r\n0\r\n\r\n")
            idle_streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(max_connections * 2)]
            async with httpx2.AsyncClient(timeout=CEILING) as client:
                assert (await client.post(f"http://127.0.0.1:{port}/take", content=b"x")).text == "taken"
            # The connections that were idle longest are cut off, and the connection with a running request stays.
            for reader in (kept_reader, idle_streams[0][0]):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            assert not application.has_ended.is_set()
        for writer in (open_stream, kept_writer, *(writer for _, writer in idle_streams)):
            writer.close()
