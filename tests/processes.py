"""Runs programs for tests: their output, and the processes that they leave behind."""

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
from tools.contract.command_views import UNSANDBOXED_SITE, CommandSite
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.private_folders import PrivateFolders
from tools.shell.process_spec import ConfinedCommand, ExitStatus, Process, ProcessSpec, ProcessStarter, ResourceLimits

BASH = "/bin/bash"

ENVIRONMENT = {"PATH": os.defpath, "LANG": "C"}

PRIVATE_FOLDERS = PrivateFolders()
"""The private folders of all tests in this process. The next process that creates some removes leftovers."""

PAUSE = 0.02

CHECKS = 5
"""Number of checks in a row that must find nothing: one check may miss short-lived processes."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root may inspect a broker")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="not run: this system has no /proc")


class NoSandbox:
    """A sandbox that confines nothing: every command runs unchanged."""

    async def make_ready(self, workspace_roots: Sequence[str]) -> None:
        """Do nothing: there is no sandbox to try out."""

    def site(self, workspace_roots: Sequence[str], search_path: str) -> CommandSite:
        """Return the site of commands without a sandbox."""
        del workspace_roots, search_path
        return UNSANDBOXED_SITE

    async def confine(self, spec: ProcessSpec, workspace_roots: Sequence[str], *terms: object) -> ConfinedCommand:
        """Return the command unchanged."""
        del workspace_roots
        return ConfinedCommand(spec)


class SharedBroker(BrokeredStarter):
    """A broker that runs all its programs under one supervisor."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)


class BrokerPerProgram:
    """Starts each program with a broker of its own, which ends with the program."""

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program."""
        starter = BrokeredStarter()
        try:
            return _ProgramOfOneBroker(starter, await starter.start(spec))
        except BaseException:
            await starter.aclose()
            raise


class _ProgramOfOneBroker:
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
    """Return the specification of a Bash command."""
    return ProcessSpec((BASH, "-c", command), os.fspath(folder), environment, limits or ResourceLimits())


async def read(process: Process) -> bytes:
    """Read some output. Returns no bytes at the end."""
    with anyio.fail_after(CEILING):
        while True:
            try:
                return os.read(process.output, 1 << 16)
            except BlockingIOError:
                await anyio.wait_readable(process.output)


async def read_line(process: Process) -> str:
    """Read the first line of the output, without its line ending."""
    text = b""
    while not text.endswith(b"\n"):
        data = await read(process)
        assert data, f"it ended after {text!r}"
        text += data
    return text.decode().splitlines()[0]


async def run(starter: ProcessStarter, spec: ProcessSpec) -> tuple[ExitStatus, str]:
    """Run a program to its end. Return its exit status and its output."""
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
    """Do some work in a fork of this process, which has imported everything: a new interpreter costs two seconds."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the work does not need locks that other threads hold
        process.start()
    return process


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX" or int(fields[17]) > 1


def children_of(pid: int) -> list[int]:
    """Return the ids of the children of a process, zombies included."""
    pids: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            pids.append(int(name))
    return pids


def brokers_of(pid: int) -> list[int]:
    """Return the ids of the brokers that a process has started."""
    return [child for child in children_of(pid) if _runs(child, "broker.py")]


def _runs(pid: int, script: str) -> bool:
    try:
        return script.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def environment_with_mark(mark: str) -> dict[str, str]:
    """Return an environment that marks a program and its descendants."""
    return {**ENVIRONMENT, "MARK": mark}


def pids_with_mark(mark: str) -> list[int]:
    """Return the ids of processes with this mark in their environment. Short-lived ones may be missing."""
    pids: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"MARK={mark}".encode() in environment:
            pids.append(int(name))
    return pids


def descendants_of(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(descendant for child in children for descendant in descendants_of(child))]


async def until_no_process_has_mark(mark: str) -> None:
    """Wait until several checks in a row find no process with this mark."""
    empty_checks = 0
    with anyio.move_on_after(CEILING):
        while empty_checks < CHECKS:
            empty_checks = 0 if pids_with_mark(mark) else empty_checks + 1
            await asyncio.sleep(PAUSE)
    assert pids_with_mark(mark) == []


async def until_ended(pids: Iterable[int]) -> None:
    """Wait until none of the processes runs."""
    running = list(pids)
    with anyio.move_on_after(CEILING):
        while running:
            running = [pid for pid in running if is_running(pid)]
            await asyncio.sleep(PAUSE)
    assert running == []
