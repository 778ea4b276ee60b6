"""What a supervisor is sent to start one program: the request, the output and the attachments."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import astuple
from types import TracebackType
from typing import Self

from tools.execution.process import ProcessSpec

if sys.platform == "win32":
    raise ImportError("nothing is launched on Windows")

OUTPUT_BUFFER_BYTES = 1 << 20
"""What a program may print before somebody reads; Linux gives as much to every user (/proc/sys/fs/pipe-max-size)."""

LOWEST_ATTACHMENT = 3
"""Those below are the standard streams."""

LARGEST_LIMIT = (1 << 63) - 2
"""Of setrlimit; one more means none."""


class Launch:
    """Holds all that is needed to start a program, as long as the `with` lasts.

    Args:
        spec: What is to be started.

    Raises:
        ValueError: The operating system cannot take it, such as a text with NUL in it.
        OSError: There are no descriptors left.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.body = _body(spec)
        """Of the message RUN."""
        self.descriptors: list[int] = []
        """What goes with it: the write end of the output, then the attachments."""
        self._held = ExitStack()
        try:
            self.output = self._open_output()
            for content in spec.attachments.values():
                self.descriptors.append(self._hold(_attachment(content)))
        except BaseException:
            self._held.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def take_output(self) -> int:
        """The read end of the output, which from now on belongs to the caller."""
        output, self.output = self.output, -1
        return output

    def _open_output(self) -> int:
        output, written = os.pipe()
        self._held.callback(self._close_output)
        self.descriptors.append(self._hold(written))
        os.set_blocking(output, False)
        if sys.platform == "linux":
            import fcntl  # noqa: PLC0415 - not on every system

            # A user with many pipes gets no larger ones.
            with suppress(OSError):
                fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, OUTPUT_BUFFER_BYTES)
        return output

    def _close_output(self) -> None:
        output = self.take_output()
        if output >= 0:
            os.close(output)

    def _hold(self, descriptor: int) -> int:
        self._held.callback(os.close, descriptor)
        return descriptor


def _body(spec: ProcessSpec) -> bytes:
    limits = [-1 if limit is None else limit for limit in astuple(spec.limits)]
    numbers = [len(spec.argv), *limits, *spec.attachments]
    texts = [spec.folder, *spec.argv]
    for name, value in spec.environment.items():
        texts += (name, value)
    if (
        not spec.argv
        or any("\0" in text for text in texts)
        or any(not name or "=" in name for name in spec.environment)
        or any(number < LOWEST_ATTACHMENT for number in spec.attachments)
        or not all(-1 <= limit <= LARGEST_LIMIT for limit in limits)
    ):
        raise ValueError("the operating system cannot take this")
    return os.fsencode("\0".join((" ".join(map(str, numbers)), *texts)))


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
