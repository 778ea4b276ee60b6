"""What a supervisor is sent to start one program: the request, the outputs and the attachments."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tools.execution.messages import packed
from tools.execution.process import ProcessSpec

if sys.platform == "win32":
    raise ImportError("nothing is launched on Windows")


class Launch:
    """Holds all that is needed to start a program, as long as the `with` lasts.

    Args:
        spec: What is to be started.

    Raises:
        ValueError: The operating system cannot take it, such as a text with NUL in it.
        OSError: There are no descriptors left.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.body = packed(spec)
        """Of the message RUN."""
        self.descriptors: list[int] = []
        """What goes with it: the write end of the output, that of the errors if told apart, the attachments, and what
        is handed on."""
        self._unread: list[int] = []
        self._held = ExitStack()
        self._held.callback(self._close_unread)
        try:
            self.output = self._open_output()
            self.errors = self._open_output() if spec.separates_errors else -1
            for content in spec.attachments.values():
                self.descriptors.append(self._hold(_attachment(content)))
            self.descriptors += spec.descriptors.values()
        except BaseException:
            self._held.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def take_outputs(self) -> tuple[int, int]:
        """The read ends of output and errors, -1 where there is none. From now on they belong to the caller."""
        self._unread.clear()
        return self.output, self.errors

    def _open_output(self) -> int:
        output, written = os.pipe()
        self._unread.append(output)
        self.descriptors.append(self._hold(written))
        os.set_blocking(output, False)
        return output

    def _close_unread(self) -> None:
        while self._unread:
            os.close(self._unread.pop())

    def _hold(self, descriptor: int) -> int:
        self._held.callback(os.close, descriptor)
        return descriptor


def _attachment(content: bytes) -> int:
    """A descriptor from which the content can be read, that belongs to no file in a folder."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("attachment")
    else:
        import tempfile  # noqa: PLC0415 - where it is needed

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
