"""The process that takes the text out of documents which may be hostile (`document_worker.py`), from our side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

from tools.contract.context import AbortSignal
from tools.filesystem import document_worker
from tools.filesystem.child import Child, Watch
from tools.filesystem.finding.deadline import Deadline

_NO_PROGRAMS = {"PATH": ""}
"""The PDF library looks for programs that decode pictures, and none of them is wanted."""


@dataclass(frozen=True, slots=True)
class DocumentWorker:
    """A running worker.

    Args:
        child: Its process.
        deadline: When it is killed.
    """

    child: Child
    deadline: Deadline

    def messages(self, longest: int) -> Iterator[dict[str, Any]]:
        """What it says; the last one has `end`, unless it was killed or came to an end by itself.

        Args:
            longest: Bytes of one message; none are taken after a longer one.
        """
        for line in self.child.lines(longest):
            yield cast("dict[str, Any]", json.loads(line))


@contextmanager
def document_worker_for(
    kind: str, *arguments: str, document: IO[bytes], memory: int, seconds: float, signal: AbortSignal
) -> Generator[DocumentWorker]:
    """Start a worker; it is gone when the `with` ends. Blocking: call it in a worker thread.

    Args:
        kind: The kind of document.
        arguments: What the kind takes.
        document: The open file that it reads, from its position on; no path is handed over.
        memory: Bytes of address space that it may take.
        seconds: How long it may run.
        signal: It is killed as soon as this is set.

    Raises:
        ChildFailedError: It does not start.
    """
    script = os.path.abspath(document_worker.__file__)
    limits = (str(memory), str(max(1, round(seconds))))
    deadline = Deadline(signal, seconds)
    with (
        Child(
            [sys.executable, "-P", script, kind, *limits, *arguments],
            os.path.dirname(script),
            given=document,
            errors=subprocess.DEVNULL,
            environment=_NO_PROGRAMS,
        ) as child,
        Watch(child, deadline),
    ):
        yield DocumentWorker(child, deadline)
