"""The loopback network of a client's commands: one command can reach a server that another has started.

The loopback is a network namespace that has only a loopback interface, so it has no connections to the outside in
either direction. Bubblewrap creates the namespace, because few other programs are allowed to. Open descriptors then
keep the namespace alive without a process in it, and each command joins it.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic

from anyio import Lock, move_on_after, wait_readable

from tools.shell.process_spec import ExitStatus, ProcessSpec, ProcessStarter, StartFailedError
from tools.shell.resource_limits import is_root

SECONDS = 5.0  # time limit for creating the namespace, which normally takes milliseconds
RETRY_SECONDS = 30.0  # pause before a failed attempt is repeated
_GET_OWNER = 0xB701  # NS_GET_USERNS, from linux/nsfs.h
_INFO = 10  # the descriptor on which bubblewrap reports the id of its child process
_EVERYTHING = ("--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/")
# When the child prints, bubblewrap has finished setting up the loopback. The child waits until its namespaces are
# opened.
_HOLD = ("--unshare-net", "--info-fd", str(_INFO), *_EVERYTHING, "--", "/bin/sh", "-c", "echo; read x")
# Tests whether a sandbox works in the joined namespaces, because some containers refuse to mount `/proc` there.
_TRIAL = ("--unshare-pid", *_EVERYTHING, "--dev", "/dev", "--proc", "/proc", "--", "/bin/sh", "-c", ":")


@dataclass(slots=True)
class _Loopback:
    lock: Lock = field(default_factory=Lock)
    namespaces: tuple[int, ...] | None = None
    retry_at: float = 0.0
    is_forgotten: bool = False

    def forget(self) -> None:
        self.is_forgotten = True
        for descriptor in self.namespaces or ():
            os.close(descriptor)
        self.namespaces = None


class SessionLoopbacks:
    """Creates and holds the loopbacks of clients. Loopbacks exist only on Linux."""

    def __init__(self, starter: ProcessStarter) -> None:
        self._starter = starter
        self._loopbacks: dict[str, _Loopback] = {}
        self._is_tested = False

    async def namespaces(self, client_key: str, bubblewrap: str) -> tuple[int, ...] | None:
        """Return the namespaces for a client's commands, as in `ProcessSpec.namespaces`.

        Creates the namespaces with bubblewrap if they do not exist. Returns `None` for a client without a key, and for
        some time after a failure. This object owns the descriptors, so start any program that uses them before the
        client is forgotten.
        """
        if not client_key:
            return None
        loopback = self._loopbacks.setdefault(client_key, _Loopback())
        async with loopback.lock:
            if loopback.namespaces is None and not loopback.is_forgotten and monotonic() >= loopback.retry_at:
                new_namespaces = None
                with suppress(OSError, StartFailedError, ValueError, IndexError), move_on_after(SECONDS):
                    new_namespaces = await self._make(bubblewrap)
                loopback.namespaces = new_namespaces
                if loopback.is_forgotten:
                    loopback.forget()
                elif new_namespaces is None:
                    loopback.retry_at = monotonic() + RETRY_SECONDS
            return loopback.namespaces

    def forget(self, client_key: str) -> None:
        """Release a client's loopback, which continues to exist while commands use it."""
        loopback = self._loopbacks.pop(client_key, None)
        if loopback is not None:
            loopback.forget()

    def close(self) -> None:
        for client_key in list(self._loopbacks):
            self.forget(client_key)

    async def _make(self, bubblewrap: str) -> tuple[int, ...] | None:
        """Create the namespaces with bubblewrap. If creating or joining them fails, return `None` or raise an error."""
        if sys.platform != "linux":
            return None
        import fcntl  # noqa: PLC0415 - POSIX only

        with ExitStack() as stack:

            def keep_open(descriptor: int) -> int:
                stack.callback(os.close, descriptor)
                return descriptor

            child_input, _ = map(keep_open, os.pipe())
            info_read_end, info_write_end = map(keep_open, os.pipe())
            os.set_blocking(info_read_end, False)
            user = () if is_root() else ("--unshare-user",)
            spec = ProcessSpec(
                (bubblewrap, *user, *_HOLD), "/", {}, descriptors={0: child_input, _INFO: info_write_end}
            )
            process = await self._starter.start(spec)
            try:
                await wait_readable(process.output)
                if os.read(process.output, 4096) != b"\n":
                    return None
                pid = int(os.read(info_read_end, 4096).split(b'"child-pid":')[1].split()[0].rstrip(b",}"))
                namespaces = [os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)]
                stack.callback(lambda: [os.close(descriptor) for descriptor in namespaces])
                # The process must still be running, because otherwise its id may have been reused. It must also have
                # its own namespace.
                if pid not in await process.left_running() or os.path.samestat(
                    os.fstat(namespaces[0]), os.stat("/proc/self/ns/net")
                ):
                    return None
                if not is_root():
                    namespaces.insert(0, fcntl.ioctl(namespaces[0], _GET_OWNER))
            finally:
                process.close()
                await process.end(0)
            if not self._is_tested:
                spec = ProcessSpec((bubblewrap, *user, *_TRIAL), "/", {}, namespaces=tuple(namespaces))
                process = await self._starter.start(spec)
                try:
                    if await process.wait() != ExitStatus(0, None):
                        return None
                finally:
                    process.close()
                    await process.end(0)
                self._is_tested = True
            result = tuple(namespaces)
            namespaces.clear()  # now owned by the caller
        return result
