"""Servers whose output a thread reads, so that tests with different event loops can share one."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread
from typing import IO

START_SECONDS = 30.0


@contextmanager
def background_server(command: list[str], pattern: str) -> Generator[str]:
    """Run a server that prints its address on standard error. All its output is read: a full pipe would block it.

    Args:
        command: The command line of the server.
        pattern: A pattern whose group matches the address.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert process.stderr is not None
    address = Future[str]()
    reader = Thread(target=_read, args=(process.stderr, pattern, address))
    reader.start()
    try:
        yield address.result(START_SECONDS)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stderr.close()


@contextmanager
def served_by_thread(server: BaseServer) -> Generator[None]:
    """Run the server in a thread until the context ends, and then close it."""
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def free_port() -> int:
    """Return a port that is free at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _read(stream: IO[str], pattern: str, address: Future[str]) -> None:
    lines: list[str] = []
    for line in stream:
        if address.done():
            continue
        lines.append(line)
        if match := re.search(pattern, line):
            address.set_result(match[1])
    if not address.done():
        address.set_exception(AssertionError(f"it ended without printing its address:\n{''.join(lines)}"))
