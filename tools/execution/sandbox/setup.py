"""One sandbox, from the start of bubblewrap to the end of all that ran in it.

Bubblewrap is started first, which takes about as long as to look at the machine: it waits for its options meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from anyio import CancelScope

from tools.contract.threads import THREADS
from tools.execution.confinement import SandboxChanges
from tools.execution.sandbox.arguments import Descriptors, bubblewrap_options
from tools.execution.sandbox.gate import Gate
from tools.execution.sandbox.mount_table import Expected
from tools.execution.sandbox.view import Prepared


class Setup:
    """Makes one sandbox. To be closed or finished.

    Args:
        prepare: Looks at the machine.
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
        # Not to be lost on the way: bubblewrap waits.
        with CancelScope(shield=True):
            expected = await THREADS.run(self.say)
        return await self.gate.look(expected)

    async def finish(self) -> SandboxChanges:
        """See to what is left, once everything of the command has ended, or if it was not started."""
        self.gate.close()
        changes = SandboxChanges()
        if self._prepared is not None:
            with CancelScope(shield=True):
                changes = await THREADS.run(self._prepared.settle)
        return changes

    def close(self) -> None:
        """The same for one that is only tried out."""
        self.gate.close()
