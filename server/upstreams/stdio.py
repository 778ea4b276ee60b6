"""Upstreams over stdio: programs that the broker starts, so that nothing of what they start outlives us.

The end goes as the specification says: we close its input, and an upstream that has not ended a little later is asked
to, then killed. Whatever it started ends with it; if this server is killed, the broker sees to that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from tools.contract.threads import THREADS
from tools.execution.process import Process, ProcessSpec, ProcessStarter, ResourceLimits, StartFailedError

if sys.platform == "win32":
    raise ImportError("the SDK's transport serves on Windows")

from server.upstreams.inbox import Inbox
from server.upstreams.lines import Incoming, Outgoing
from server.upstreams.standard_error import ErrorReader, Remarks

FLUSH_SECONDS = 0.5
"""How long an upstream may take to read what was sent before its input ends (the SDK's number, like the next two)."""

LEAVING_SECONDS = 2.0
"""How long it may take to end after its input has."""

GRACE_SECONDS = 2.0
"""How long it, and what it started, may take to end when asked to, before they are killed."""

Streams = tuple[Inbox, Outgoing]


@dataclass(frozen=True, slots=True)
class UpstreamProgram:
    """The program of an upstream, as its entry names it.

    Args:
        command: A name that is looked up in the `PATH` of its environment, or a path.
        arguments: Its arguments; no shell reads them.
        folder: The folder it starts in; `None` is ours.
        environment: All of its environment.
    """

    command: str = field(repr=False)
    arguments: tuple[str, ...] = field(repr=False)
    folder: str | None
    environment: Mapping[str, str] = field(repr=False)


@asynccontextmanager
async def stdio_streams(alias: str, program: UpstreamProgram, starter: ProcessStarter) -> AsyncGenerator[Streams]:
    """Start an upstream and speak to it, until the `with` ends: then nothing of it is left.

    Args:
        alias: Its name in our configuration.
        program: What is started.
        starter: Starts it.

    Raises:
        OSError: It cannot be started.
    """
    reading, writing = os.pipe()
    try:
        process = await _started(program, reading, starter)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    os.set_blocking(writing, False)
    remarks = Remarks(alias)
    errors = ErrorReader(process.errors, remarks)
    incoming = Incoming(process.output, remarks)
    outgoing = Outgoing(writing, on_lost=incoming.finish)
    watch = asyncio.create_task(_watch(process, incoming), name=f"end of upstream {alias}")
    try:
        yield incoming.inbox, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            incoming.discard()
            with anyio.move_on_after(FLUSH_SECONDS):
                await outgoing.flush()
            outgoing.close()
            with anyio.move_on_after(LEAVING_SECONDS):
                await process.wait()
            await process.end(GRACE_SECONDS)
            watch.cancel()
            incoming.end()
            errors.stop()
            remarks.close()
            process.close()


async def _watch(process: Process, incoming: Incoming) -> None:
    """The connection ends with the program, also where others hold its output open."""
    await process.wait()
    incoming.finish()


async def _started(program: UpstreamProgram, standard_input: int, starter: ProcessStarter) -> Process:
    path, folder = await THREADS.run(lambda: _located(program))
    spec = ProcessSpec(
        (path, *program.arguments),
        folder,
        program.environment,
        ResourceLimits(core_bytes=None),
        descriptors={0: standard_input},
        separates_errors=True,
    )
    try:
        return await starter.start(spec)
    except StartFailedError as error:
        raise OSError(error.number, "the upstream was not started") from None


def _located(program: UpstreamProgram) -> tuple[str, str]:
    """The absolute paths of the program and of the folder it starts in, from which relative paths are read.

    Raises:
        OSError: One of them is not there.
    """
    folder = os.path.abspath(program.folder or os.getcwd())
    if not os.path.isdir(folder):
        raise NotADirectoryError
    if os.path.dirname(program.command):
        return os.path.join(folder, program.command), folder
    places = program.environment.get("PATH", os.defpath).split(os.pathsep)
    search_path = os.pathsep.join(os.path.join(folder, place) for place in places)
    found = shutil.which(program.command, path=search_path)
    if found is None:
        raise PermissionError if shutil.which(program.command, os.F_OK, search_path) else FileNotFoundError
    return found, folder
