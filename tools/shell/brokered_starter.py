"""Starts programs through the broker, which cleans up all their processes."""

from __future__ import annotations

import errno
import sys
from contextlib import AsyncExitStack

from tools.shell.process_spec import Process, ProcessSpec, ProcessStarter, StartFailedError


class BrokeredStarter:
    """A `ProcessStarter` that uses the broker. Close it in the event loop in which it was used.

    The pool of supervisors is imported and started for the first program, because many servers never run one. On
    Windows there is no broker, so nothing can be started. With `by_group`, only each program's process group is
    tracked, as on systems without subreapers. With `is_shared`, which suits a few long-running programs, one process
    supervises all programs, so a resource limit set for one also applies to all programs started later.
    """

    def __init__(self, *, by_group: bool = False, is_shared: bool = False) -> None:
        self._by_group = by_group
        self._is_shared = is_shared
        self._pool: ProcessStarter | None = None
        self._stack = AsyncExitStack()  # closes the pool; the pool's own type cannot be imported on Windows
        self._is_closed = False

    async def start(self, spec: ProcessSpec) -> Process:
        if sys.platform == "win32" or self._is_closed:
            raise StartFailedError(errno.ENOSYS)
        if self._pool is None:
            from tools.shell.supervisor_pool import SupervisorPool  # noqa: PLC0415 - loaded on first use

            self._pool = pool = SupervisorPool(by_group=self._by_group, is_shared=self._is_shared)
            self._stack.push_async_callback(pool.aclose)
        try:
            return await self._pool.start(spec)
        except ValueError:
            raise StartFailedError(errno.EINVAL) from None
        except OSError as error:
            raise StartFailedError(error.errno or 0) from None

    async def aclose(self) -> None:
        """Stop all running programs and the broker within 1.5 seconds. Shielded from cancellation."""
        self._is_closed = True
        await self._stack.aclose()
