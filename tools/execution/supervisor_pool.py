"""The supervisors of this server, and the broker that forks them.

Each runs one program at a time; a few are kept for the next ones. If the broker is lost, the next program starts
another.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

import anyio

from tools.execution.process import Process, ProcessSpec, ResourceLimits, StartFailedError

if sys.platform == "win32":
    raise ImportError("there are no supervisors on Windows")

from tools.execution.broker_process import BrokerProcess
from tools.execution.launch import Launch
from tools.execution.supervised_process import NotTakenError, SupervisorConnection

MOST_IDLE = 4
"""So many supervisors are kept for the next programs."""

ATTEMPTS = MOST_IDLE + 3
"""So many supervisors are asked to run a program, if they are gone before they read of it: all idle ones may be."""

CLOSE_GRACE_SECONDS = 0.2
"""How long programs have to end by themselves when the server ends."""

CLOSE_SECONDS = 1.0
"""How long their end is waited for then."""

BROKER_SECONDS = 0.5
"""After that, how long the broker has to end."""


class SupervisorPool:
    """Starts programs, in supervisors. To be closed in the event loop that it was used in.

    Args:
        by_group: Follow only the group of each program, as on systems without sub-reapers.
    """

    def __init__(self, *, by_group: bool) -> None:
        self._by_group = by_group
        self._broker: BrokerProcess | None = None
        self._connections: set[SupervisorConnection] = set()
        self._idle: list[SupervisorConnection] = []
        self._is_closed = False

    async def start(self, spec: ProcessSpec) -> Process:
        """Start a program. If this is cancelled, nothing of it stays.

        Raises:
            StartFailedError: It cannot be started.
            OSError: The broker cannot, or there are no descriptors left.
            ValueError: A text cannot be passed to a program.
        """
        with Launch(spec) as launch:
            for _ in range(ATTEMPTS):
                if self._is_closed:
                    break
                with suppress(NotTakenError, ConnectionError):
                    connection = self._take_idle(spec.limits) or await self._connect(spec.limits)
                    return await connection.run(launch)
        raise StartFailedError(0)

    async def aclose(self) -> None:
        """End everything that runs, then the broker. Shielded from cancellation, and bounded."""
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            running = [connection.process for connection in self._connections if connection.process is not None]
            with anyio.move_on_after(CLOSE_SECONDS):
                async with anyio.create_task_group() as group:
                    for process in running:
                        group.start_soon(process.end, CLOSE_GRACE_SECONDS)
            for connection in list(self._connections):
                connection.close()
            if self._broker is not None:
                await self._broker.close(BROKER_SECONDS)
                self._broker = None

    def _take_idle(self, limits: ResourceLimits) -> SupervisorConnection | None:
        """A supervisor with these limits; they cannot be widened once it has them."""
        for connection in reversed(self._idle):
            if connection.limits == limits:
                self._idle.remove(connection)
                return connection
        return None

    async def _connect(self, limits: ResourceLimits) -> SupervisorConnection:
        """A new supervisor, of a new broker if there is none."""
        if self._broker is None:
            self._broker = BrokerProcess(by_group=self._by_group, on_lost=self._forget_broker)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            try:
                await self._broker.give(theirs)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        connection = SupervisorConnection(ours, limits, self._keep, self._forget)
        self._connections.add(connection)
        return connection

    def _keep(self, connection: SupervisorConnection) -> None:
        """For the next program, unless there are enough."""
        if len(self._idle) < MOST_IDLE and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()

    def _forget(self, connection: SupervisorConnection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _forget_broker(self) -> None:
        """Its supervisors end what they run; those that run nothing end now."""
        self._broker = None
        for connection in list(self._idle):
            connection.close()
