"""Our own engine in a process that can be killed: for patterns that may run away, where there is no ripgrep."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterator, Sequence

from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines import scan
from tools.filesystem.search.engines.child import Child, running
from tools.filesystem.search.engines.engine import EngineFailedError, Hits, Query


class WorkerEngine:
    """Runs `scan.py` as a script, by its absolute path and without anything from the environment."""

    name = "worker"

    def search(
        self, folder: str, files: Sequence[str], query: Query, most: int | None, deadline: Deadline, *, ordered: bool
    ) -> Generator[Hits]:
        """Search files one after the other, in the child."""
        del ordered
        if not sys.executable:
            raise EngineFailedError("there is no Python to start")
        request = {
            "expression": query.pattern.written(),
            "tolerant": query.pattern.written(tolerant=True),
            "ignore_case": query.ignore_case,
            "needle": query.needle,
            "most": most,
        }
        paths = b"".join(os.fsencode(path) + b"\0" for path in files)
        arguments = [sys.executable, "-P", "-S", os.path.abspath(scan.__file__)]
        with running(arguments, folder, deadline, json.dumps(request).encode() + b"\n" + paths) as child:
            for line in _lines(child):
                if deadline.check():
                    return
                index, _, numbers = line.partition(b":")
                yield Hits(int(index), [int(number) for number in numbers.split(b",")])
            deadline.check()
            if child.was_killed:
                return
            code, said = child.finish()
            if code != 0:
                raise EngineFailedError(f"the worker ended with {code}: {said[-500:]!r}")


def _lines(child: Child) -> Iterator[bytes]:
    buffer = b""
    while chunk := child.read():
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from lines
