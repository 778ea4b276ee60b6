"""One sandbox, from the start of bubblewrap to the end of all that ran in it.

Bubblewrap is started first, which takes about as long as to look at the machine: it waits for its options meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from anyio import CancelScope

from tools.contract.threads import THREADS
from tools.execution.confinement import SteeringChanges
from tools.execution.sandbox.arguments import Descriptors, bubblewrap_options
from tools.execution.sandbox.gate import Gate
from tools.execution.sandbox.lingering import Lingering
from tools.execution.sandbox.mount_table import Expected
from tools.execution.sandbox.steering import is_diverted_repository
from tools.execution.sandbox.view import Prepared

SET_ASIDE = ".untrusted"
"""Stands behind the name of a file that a command must not have made."""


class Setup:
    """Makes one sandbox. To be closed or finished.

    Args:
        prepare: Looks at the machine and holds what has to be held.
        folder: Where the command starts.
        numbers: The descriptors as bubblewrap knows them; `None` where it knows them as we do, with that of `calls`.
        calls: Our descriptor with the filter of system calls, where that is so; `None` for no filter.

    Raises:
        OSError: There are no descriptors left.
    """

    def __init__(
        self,
        prepare: Callable[[], Prepared],
        folder: str,
        numbers: Descriptors | None = None,
        calls: int | None = None,
    ) -> None:
        self.prepare = prepare
        self.gate = Gate()
        self.numbers = numbers or Descriptors(self.gate.info, self.gate.held, self.gate.options, calls)
        self._folder = folder
        self._prepared: Prepared | None = None

    @property
    def descriptors(self) -> dict[int, int]:
        """Ours, by the numbers that bubblewrap has them under."""
        return {
            self.numbers.info: self.gate.info,
            self.numbers.held: self.gate.held,
            self.numbers.options: self.gate.options,
        }

    def say(self) -> tuple[Expected, ...]:
        """Prepare, and tell the bubblewrap that was started what to mount. Blocks.

        Returns:
            What its mount table has to say then.
        """
        self.gate.give_away()
        prepared = self._prepared = self.prepare()
        self.gate.say(bubblewrap_options(prepared.view, self._folder, self.numbers))
        return prepared.view.expected()

    async def begin(self) -> bool:
        """Tell bubblewrap what to mount, and let it begin the command if that is what was mounted.

        Returns:
            Whether it was let on, or has ended by itself before.

        Raises:
            TimeoutError: It takes too long.
        """
        expected: tuple[Expected, ...] = ()
        # Not to be lost on the way: folders are made.
        with CancelScope(shield=True):
            expected = await THREADS.run(self.say)
        return await self.gate.look(expected)

    async def finish(self, lingering: Lingering) -> SteeringChanges:
        """Give back what is held, once everything of the command has ended, or if it was not started.

        Args:
            lingering: Takes over the names that are kept free.
        """
        self.gate.close()
        prepared = self._prepared
        if prepared is None:
            return SteeringChanges()
        changes = SteeringChanges()
        try:
            with CancelScope(shield=True):
                changes = await THREADS.run(partial(_let_go, prepared, lingering.names))
        finally:
            lingering.keep(prepared.placeholders)
        return changes

    def close(self) -> None:
        """The same for one that is only tried out. Blocks."""
        self.gate.close()
        if self._prepared is not None:
            self._prepared.placeholders.close()


def _let_go(prepared: Prepared, spared: frozenset[str]) -> SteeringChanges:
    """Give back all names but some, and tell what has changed."""
    prepared.placeholders.release(spared)
    new: list[str] = []
    set_aside: list[str] = []
    changed = prepared.changed()
    for path in prepared.new():
        # git would take hooks and commands from wherever it points, and nobody but an attacker puts it there.
        aside = _set_aside(path) if is_diverted_repository(path) else None
        if aside is None:
            new.append(path)
        else:
            set_aside.append(aside)
    return SteeringChanges(tuple(new), tuple(set_aside), changed, prepared.uncovered)


def _set_aside(path: str) -> str | None:
    """Give a file a name that no program obeys; where it is now, or `None` where it cannot be renamed."""
    # The first name may be taken, by a folder that the command has made there.
    for aside in (path + SET_ASIDE, f"{path}{SET_ASIDE}-{os.urandom(8).hex()}"):
        with suppress(OSError):
            os.rename(path, aside)
            return aside
    return None
