"""Programs for tests of what runs them: what they print, what is left of them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import anyio
import pytest

from tests.waiting import CEILING
from tools.contract.command_views import UNHELD, CommandSite
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import ConfinedCommand, ExitStatus, Process, ProcessSpec, ProcessStarter, ResourceLimits

BASH = "/bin/bash"

ENVIRONMENT = {"PATH": os.defpath, "LANG": "C"}

PRIVATE_FOLDERS = PrivateFolders()
"""Of all tests of a process; what is left of them goes with the next server or process that makes some."""

PAUSE = 0.02

LOOKS = 5
"""As many looks in a row find nothing where there is nothing; one alone may miss what comes and goes."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root may look into a broker")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="not run: this system has no /proc")


class Plain:
    """No sandbox: every command runs as it is."""

    async def make_ready(self, workspace_roots: Sequence[str]) -> None:
        """There is nothing to try out."""

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        """Tell that there is none."""
        del workspace_roots, search_path
        return UNHELD

    async def confine(self, spec: ProcessSpec, workspace_roots: Sequence[str], *terms: object) -> ConfinedCommand:
        """Leave the command as it is."""
        del workspace_roots
        return ConfinedCommand(spec)


class Services(BrokeredStarter):
    """A broker that has all of its programs in one supervisor."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)


class Passing:
    """Starts each program by a broker of its own, which goes with it once it is ended."""

    async def start(self, spec: ProcessSpec) -> Process:
        """Start one."""
        starter = BrokeredStarter()
        try:
            return _Passing(starter, await starter.start(spec))
        except BaseException:
            await starter.aclose()
            raise


class _Passing:
    def __init__(self, starter: BrokeredStarter, process: Process) -> None:
        self._starter = starter
        self._process = process
        self.pid, self.output, self.errors = process.pid, process.output, process.errors
        self.wait, self.left_running, self.wait_gone = process.wait, process.left_running, process.wait_gone
        self.close, self.mount = process.close, process.mount

    async def end(self, grace_seconds: float) -> None:
        await self._process.end(grace_seconds)
        await self._starter.aclose()


def bash(
    command: str,
    folder: str | os.PathLike[str] = "/",
    *,
    environment: Mapping[str, str] = ENVIRONMENT,
    limits: ResourceLimits | None = None,
) -> ProcessSpec:
    """A command of bash."""
    return ProcessSpec((BASH, "-c", command), os.fspath(folder), environment, limits or ResourceLimits())


async def read(process: Process) -> bytes:
    """Some output, nothing at its end."""
    with anyio.fail_after(CEILING):
        while True:
            try:
                return os.read(process.output, 1 << 16)
            except BlockingIOError:
                await anyio.wait_readable(process.output)


async def read_line(process: Process) -> str:
    """The first line that is printed, without its ending."""
    text = b""
    while not text.endswith(b"\n"):
        some = await read(process)
        assert some, f"it ended after {text!r}"
        text += some
    return text.decode().splitlines()[0]


async def run(starter: ProcessStarter, spec: ProcessSpec) -> tuple[ExitStatus, str]:
    """Run a program to its end; how it ended, and all that it printed."""
    process = await starter.start(spec)
    try:
        parts = [await read(process)]
        while parts[-1]:
            parts.append(await read(process))
        with anyio.fail_after(CEILING):
            status = await process.wait()
            await process.wait_gone()
        return status, b"".join(parts).decode()
    finally:
        process.close()
        await process.end(0)


def in_another_process(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """A fork of this process that does some work, with everything imported: a new interpreter costs two seconds."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what the other threads hold, the work doesn't need
        process.start()
    return process


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it does not only wait to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX" or int(fields[17]) > 1


def children_of(pid: int) -> list[int]:
    """The ids of the children of a process, zombies included."""
    found: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(name))
    return found


def brokers_of(pid: int) -> list[int]:
    """The ids of the brokers that a process has started."""
    return [child for child in children_of(pid) if _runs(child, "broker.py")]


def _runs(pid: int, script: str) -> bool:
    try:
        return script.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def marked(mark: str) -> dict[str, str]:
    """An environment by which a program and all that it starts are known."""
    return {**ENVIRONMENT, "MARK": mark}


def carrying(mark: str) -> list[int]:
    """The ids of processes with this mark in their environment. Some that come and go may be missing."""
    found: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"MARK={mark}".encode() in environment:
            found.append(int(name))
    return found


def descendants_of(pid: int) -> list[int]:
    found = children_of(pid)
    return [*found, *(deeper for child in found for deeper in descendants_of(child))]


async def until_none_carries(mark: str) -> None:
    """Wait until, in several looks, there is no process with this mark."""
    empty = 0
    with anyio.move_on_after(CEILING):
        while empty < LOOKS:
            empty = 0 if carrying(mark) else empty + 1
            await asyncio.sleep(PAUSE)
    assert carrying(mark) == []


async def until_ended(pids: Iterable[int]) -> None:
    """Wait until none of them runs."""
    left = list(pids)
    with anyio.move_on_after(CEILING):
        while left:
            left = [pid for pid in left if is_running(pid)]
            await asyncio.sleep(PAUSE)
    assert left == []
