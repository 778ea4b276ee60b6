"""Starts programs through the broker, in namespaces or with Landlock, for tests.

python confined_runner.py [nobody]

With an argument, it becomes a user without rights. It reads JSON objects from standard input, one a line, and answers
each with a JSON object. An object either starts a program or has the field `ask`:

- `argv`, `folder` and `environment` describe the program. `key` puts it in the loopback of that client. `readable` and
  `writable` confine it with Landlock. Unless `waits` is false, the answer is sent when the program has ended.
- `ask` is `failure` (why Landlock does not work here, if it does not), `descriptors` (how many this process has open),
  `forget` (the loopback of `key`), or `filter` (from then on, programs with Landlock can send no signals).

The user without rights may not be able to read the interpreter and the checkout, so everything is imported before.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import sys
import tempfile
from concurrent.futures import thread
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import anyio
from anyio._backends import _asyncio  # pyright: ignore[reportPrivateUsage]

from tests.other_user import become_nobody
from tools.shell import supervisor_pool
from tools.shell.broker import confinement
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.loopback import SessionLoopbacks
from tools.shell.process_spec import Process, ProcessSpec, StartFailedError
from tools.shell.sandbox.landlock_and_seccomp import landlock_failure, landlock_rules, seccomp_program

USED_LATER = (_asyncio, confinement, ctypes, fcntl, resource, supervisor_pool, thread)


class Runner:
    """Answers requests."""

    def __init__(self) -> None:
        self._starter = BrokeredStarter()
        self._loopbacks = SessionLoopbacks(self._starter)
        self._running: list[Process] = []
        self._may_signal = True

    async def close(self) -> None:
        """End all programs."""
        self._loopbacks.close()
        for process in self._running:
            process.close()
        await self._starter.aclose()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        if request.get("ask") == "failure":
            parent = tempfile.mkdtemp()
            failure = await landlock_failure(self._starter, parent)
            os.rmdir(parent)  # fails if the probe has left a file
            return {"failure": failure}
        if request.get("ask") == "forget":
            self._loopbacks.forget(request["key"])
            return {}
        if request.get("ask") == "descriptors":
            return {"open": len(os.listdir("/proc/self/fd"))}
        if request.get("ask") == "filter":
            self._may_signal = False
            return {}
        spec = ProcessSpec(tuple(request["argv"]), request.get("folder", "/"), request.get("environment", {}))
        if "key" in request:
            namespaces = await self._loopbacks.namespaces(request["key"], request.get("bubblewrap", "/usr/bin/bwrap"))
            if namespaces is None:
                return {"none": True}
            spec = replace(spec, namespaces=namespaces)
        if "readable" in request:
            rules = landlock_rules(request["readable"], request["writable"])
            if not self._may_signal:
                program = seccomp_program(os.uname().machine, only_reads=True, may_signal=False)
                rules = replace(rules, calls=program or b"")
            spec = replace(spec, landlock=rules)
        try:
            process = await self._starter.start(spec)
        except StartFailedError as error:
            return {"error": error.number}
        if not request.get("waits", True):
            self._running.append(process)
            return {"pid": process.pid}
        output = bytearray()
        with anyio.move_on_after(60):
            while True:
                try:
                    part = os.read(process.output, 1 << 16)
                except BlockingIOError:
                    await anyio.wait_readable(process.output)
                else:
                    output += part
                    if not part:
                        break
        await process.end(0)
        process.close()
        status = await process.wait()
        return {"code": status.code, "signal": status.signal, "output": output.decode("utf-8", "replace")}


async def main() -> None:
    runner = Runner()
    async for line in anyio.wrap_file(sys.stdin):
        print(json.dumps(await runner.answer(json.loads(line))), flush=True)  # noqa: T201 - read by the test
    await runner.close()


if __name__ == "__main__":
    os.chdir("/")
    if sys.argv[1:]:
        become_nobody()
        # The interpreter for the broker. This user may not be able to read the current one.
        sys.executable, sys.prefix, sys.base_prefix = "/usr/bin/python3", "/usr", "/usr"
    anyio.run(main)
