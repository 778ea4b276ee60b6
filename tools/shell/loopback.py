"""The loopback that the commands of one client share: a server that one of them starts answers the next one.

It is a network namespace in which there is nothing else, so nothing outside reaches it and it reaches nothing.
bubblewrap makes it, since that is what may make namespaces where few programs may. Open descriptors hold it then, which
commands join one by one; no process stays in it.
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

SECONDS = 5.0  # how long it may take; it takes milliseconds
RETRY_SECONDS = 30.0  # after so long it is tried again where it could not be made
_GET_OWNER = 0xB701  # NS_GET_USERNS, from linux/nsfs.h
_INFO = 10  # the descriptor to which bubblewrap tells its process
_EVERYTHING = ("--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/")
# Once its child prints, bubblewrap has set up the loopback; that waits until its namespaces were opened.
_HOLD = ("--unshare-net", "--info-fd", str(_INFO), *_EVERYTHING, "--", "/bin/sh", "-c", "echo; read x")
# What commands need in the sandbox beside them; some containers refuse to mount `/proc` in joined namespaces.
_TRIAL = ("--unshare-pid", *_EVERYTHING, "--dev", "/dev", "--proc", "/proc", "--", "/bin/sh", "-c", ":")


@dataclass(slots=True)
class _Loopback:
    making: Lock = field(default_factory=Lock)
    namespaces: tuple[int, ...] | None = None
    retry_at: float = 0.0
    is_forgotten: bool = False

    def forget(self) -> None:
        self.is_forgotten = True
        for descriptor in self.namespaces or ():
            os.close(descriptor)
        self.namespaces = None


class SessionLoopbacks:
    """Makes and holds the loopbacks of clients. Linux only; elsewhere nobody has one."""

    def __init__(self, starter: ProcessStarter) -> None:
        self._starter = starter
        self._loopbacks: dict[str, _Loopback] = {}
        self._is_tried = False

    async def of(self, client_key: str, bubblewrap: str) -> tuple[int, ...] | None:
        """The namespaces that a client's commands join (`ProcessSpec.namespaces`), made by the program bubblewrap.

        `None` for a client without a key, and for some time where they cannot be made. The descriptors stay ours: who
        starts a program with them has to have done so before the client is forgotten.
        """
        if not client_key:
            return None
        loopback = self._loopbacks.setdefault(client_key, _Loopback())
        async with loopback.making:
            if loopback.namespaces is None and not loopback.is_forgotten and monotonic() >= loopback.retry_at:
                made = None
                with suppress(OSError, StartFailedError, ValueError, IndexError), move_on_after(SECONDS):
                    made = await self._make(bubblewrap)
                loopback.namespaces = made
                if loopback.is_forgotten:
                    loopback.forget()
                elif made is None:
                    loopback.retry_at = monotonic() + RETRY_SECONDS
            return loopback.namespaces

    def forget(self, client_key: str) -> None:
        """Let go of a client's loopback; it goes on for commands that are in it."""
        loopback = self._loopbacks.pop(client_key, None)
        if loopback is not None:
            loopback.forget()

    def close(self) -> None:
        """Forget all clients."""
        for client_key in list(self._loopbacks):
            self.forget(client_key)

    async def _make(self, bubblewrap: str) -> tuple[int, ...] | None:
        """Have bubblewrap make the namespaces; `None`, or an error, where they cannot be made or joined."""
        if sys.platform != "linux":
            return None
        import fcntl  # noqa: PLC0415 - not on every system

        with ExitStack() as held:

            def hold(descriptor: int) -> int:
                held.callback(os.close, descriptor)
                return descriptor

            waited, _ = map(hold, os.pipe())
            ready, telling = map(hold, os.pipe())
            os.set_blocking(ready, False)
            user = () if is_root() else ("--unshare-user",)
            spec = ProcessSpec((bubblewrap, *user, *_HOLD), "/", {}, descriptors={0: waited, _INFO: telling})
            process = await self._starter.start(spec)
            try:
                await wait_readable(process.output)
                if os.read(process.output, 4096) != b"\n":
                    return None
                pid = int(os.read(ready, 4096).split(b'"child-pid":')[1].split()[0].rstrip(b",}"))
                namespaces = [os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)]
                held.callback(lambda: [os.close(descriptor) for descriptor in namespaces])
                # Still running, so it was this one and no later process of that id; and it has one of its own.
                if pid not in await process.left_running() or os.path.samestat(
                    os.fstat(namespaces[0]), os.stat("/proc/self/ns/net")
                ):
                    return None
                if not is_root():
                    namespaces.insert(0, fcntl.ioctl(namespaces[0], _GET_OWNER))
            finally:
                process.close()
                await process.end(0)
            if not self._is_tried:
                spec = ProcessSpec((bubblewrap, *user, *_TRIAL), "/", {}, namespaces=tuple(namespaces))
                process = await self._starter.start(spec)
                try:
                    if await process.wait() != ExitStatus(0, None):
                        return None
                finally:
                    process.close()
                    await process.end(0)
                self._is_tried = True
            made = tuple(namespaces)
            namespaces.clear()  # they are the caller's now
        return made
