"""The control socket of a running server, through which terminal commands of the same user query the server.

The socket is in a folder that other users cannot enter and sandboxed commands cannot see. A query is one line of JSON,
and each line of the response is JSON too. Over stdio, the socket is created after the client's first request.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING

import anyio
from anyio.abc import SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from server import VERSION
from server.administration.log import HISTORY
from server.administration.server_controls import RunningServer
from server.protocol.json_rpc import Json
from server.settings.settings_files import runtime_folders
from tools.files.path_opener import is_ours
from tools.machine.threads import THREADS

if TYPE_CHECKING:
    from server.dashboard.site import Dashboard

if sys.platform == "win32":
    raise ImportError("there is no control socket on Windows")

logger = logging.getLogger(__name__)

MAX_FOLLOWERS = 16  # maximum number of commands that follow the log; leaves room for other queries
MAX_QUESTIONERS = MAX_FOLLOWERS + 16  # maximum number of connections; others are rejected
QUESTION_BYTES = 1 << 16
QUESTION_SECONDS = 5.0  # time limit for receiving a query
ANSWER_SECONDS = 3.0  # time limit for the first line of a response; after that, a server counts as stuck
OPENING_SECONDS = 60.0  # time limit for opening the dashboard, which must first import many modules
PATH_BYTES = 100  # maximum length of the socket's path; the system allows 103 bytes on macOS and 107 on Linux
LISTEN_AGAIN_SECONDS = 1.0
POLL_SECONDS = 0.2  # interval between two checks of the log for a follower
NOT_OPENED = "the running server could not open the dashboard; run coretools-mcp logs to see why"
SUFFIX = ".sock"  # ending of a socket's name once the server accepts connections

_NAME = re.compile(rf"[0-9a-f]{{16}}{re.escape(SUFFIX)}")
Answer = Callable[[Json], AsyncGenerator[Json]]


def _is_private(folder: str) -> bool:
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o077 and is_ours(status)


def _make_room() -> str | None:
    """Remove the sockets of killed servers, and return a path for a new socket if there is a folder for it."""
    for folder in runtime_folders(os.environ):
        path = os.path.join(folder, f"{secrets.token_hex(8)}{SUFFIX}")
        if len(os.fsencode(path)) > PATH_BYTES:
            continue
        with suppress(OSError):
            os.mkdir(folder, 0o700)
        if _is_private(folder):
            for _ in _connections(folder):
                pass
            return path
    return None


def _connections(folder: str) -> Iterator[tuple[str, socket.socket]]:
    """Yield each server's socket path in a folder and a connection to it. Sockets without a server are removed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # One socket that has disappeared must not hide the others.
            with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
                is_socket = stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
                if not is_socket or not _NAME.fullmatch(entry.name):
                    continue
                connection.settimeout(ANSWER_SECONDS)
                try:
                    connection.connect(entry.path)
                except ConnectionRefusedError:
                    os.unlink(entry.path)
                    os.unlink(link_file(entry.path))
                else:
                    yield entry.path, connection


class ControlSocket:
    """Answers queries from commands about a running server; `tasks` serves the dashboard."""

    def __init__(self, running_server: RunningServer, transport: str, tasks: TaskGroup) -> None:
        self._running_server, self._transport, self._tasks = running_server, transport, tasks
        self._began = time.monotonic()
        self._questioners = self._followers = 0
        self._pages: list[Dashboard] = []  # the open dashboard, if there is one
        self._opening = anyio.Lock()
        self._answers: dict[str, Answer] = {"status": self._status, "logs": self._logs, "dashboard": self._dashboard}

    async def answer(self, stream: SocketStream) -> None:
        """Answer one query and close the connection."""
        self._questioners += 1
        try:
            async with stream:
                if self._questioners > MAX_QUESTIONERS:
                    return
                with anyio.fail_after(QUESTION_SECONDS):
                    line = await BufferedByteReceiveStream(stream).receive_until(b"\n", QUESTION_BYTES)
                try:
                    question = json.loads(line)
                    lines = self._answers[question["ask"]](question)
                except (ValueError, LookupError, TypeError, RecursionError):
                    logger.info("the control socket received an unknown query")
                    return
                async with aclosing(lines):
                    async for message in lines:
                        await stream.send(json.dumps(message).encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead):
            pass  # the other side has disconnected
        except (anyio.DelimiterNotFound, TimeoutError):
            logger.info("the control socket received an incomplete query")
        except Exception:
            logger.exception("the control socket could not answer because of an internal error")
        finally:
            self._questioners -= 1

    async def _status(self, _: Json) -> AsyncGenerator[Json]:
        identity = {"pid": os.getpid(), "version": VERSION, "transport": self._transport}
        yield {**identity, "seconds": round(time.monotonic() - self._began, 1), **self._running_server.status()}

    async def _logs(self, question: Json) -> AsyncGenerator[Json]:
        alias, follows = question.get("server"), question.get("follow") is True
        if follows and self._followers >= MAX_FOLLOWERS:
            yield {"error": f"{MAX_FOLLOWERS} commands are already following the log, which is the maximum"}
            return
        self._followers, last = self._followers + follows, 0
        try:
            while True:
                last, lines = HISTORY.since(last, alias if isinstance(alias, str) else None)
                yield {"lines": lines}
                if not follows:
                    return
                await anyio.sleep(POLL_SECONDS)
        finally:
            self._followers -= follows

    async def _serve_page(self, page: Dashboard, is_open: anyio.Event) -> None:
        try:
            await page.serve(is_open)
        except Exception:
            logger.exception("the dashboard has ended because of an internal error")
        finally:
            self._pages.clear()
            is_open.set()

    async def _dashboard(self, _: Json) -> AsyncGenerator[Json]:
        try:
            # Imported only here, because the import takes a second, and few people open the dashboard.
            module = await THREADS.run(lambda: import_module("server.dashboard.site"))
        except ModuleNotFoundError as error:
            if error.name != "jinja2":
                raise
            from tools.machine.installation import install_command  # noqa: PLC0415 - needed only if jinja2 is missing

            problem = "the running server lacks what the dashboard needs. Install coretools-mcp with the dashboard"
            message = f"{problem} extra ({install_command('dashboard')}), and restart the server in its client."
            yield {"error": message}
            return
        async with self._opening:
            if not self._pages:
                self._pages.append(module.Dashboard(self._running_server))
                is_open = anyio.Event()
                self._tasks.start_soon(self._serve_page, self._pages[0], is_open)
                await is_open.wait()
            answer = {"link": self._pages[0].link()} if self._pages else {"error": NOT_OPENED}
        yield answer


async def serve_control(running_server: RunningServer, transport: str) -> None:
    """Answer queries until cancelled. If no socket can be created, the server runs without one."""
    path = await THREADS.run(_make_room)
    if path is None:
        logger.info("no control socket: there is no folder for it that other users cannot enter")
        return
    temporary_path = path.removesuffix(SUFFIX)  # the socket gets its final name once the server accepts connections
    try:
        async with (
            await anyio.create_unix_listener(temporary_path, mode=0o600) as listener,
            anyio.create_task_group() as tasks,
        ):
            control = ControlSocket(running_server, transport, tasks)
            os.rename(temporary_path, path)
            while True:
                # If the process has no free file descriptor, it cannot accept connections for a while.
                with suppress(OSError, anyio.BrokenResourceError):
                    await listener.serve(control.answer, tasks)
                await anyio.sleep(LISTEN_AGAIN_SECONDS)
    except OSError as error:
        logger.info("the control socket could not be created (errno %s)", error.errno)
    finally:
        for name in (temporary_path, path, link_file(path)):
            with suppress(OSError):
                os.unlink(name)


def link_file(path: str) -> str:
    """Return the path of the file, removed at exit, that takes a browser to the dashboard of this socket's server."""
    return f"{path.removesuffix(SUFFIX)}.html"


def ask_servers(question: Json, environ: Mapping[str, str]) -> Iterator[tuple[str, list[object]]]:
    """Yield each server's socket path, and the first line of its response in a list; empty if there is no response.

    This call blocks.
    """
    for folder in filter(_is_private, runtime_folders(environ)):
        for path, connection in _connections(folder):
            yield path, [*islice(_lines(connection, question), 1)]


def ask_server(path: str, question: Json) -> Iterator[object]:
    """Yield all lines of the response from the server at this socket. This call blocks."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.settimeout(OPENING_SECONDS)
        connection.connect(path)
        yield from _lines(connection, question)


def _lines(connection: socket.socket, question: Json) -> Iterator[object]:
    """Yield each line of a response, or `None` if it is not JSON. Yield nothing if the response starts too late."""
    with suppress(OSError), connection.makefile("rwb") as stream:
        stream.write(json.dumps(question).encode() + b"\n")
        stream.flush()
        for line in stream:
            connection.settimeout(None)  # a response may pause while the machine sleeps
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            yield message
