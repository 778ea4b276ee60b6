"""A person at a terminal: what our command writes to a real one, and what they press there."""

from __future__ import annotations

import os
import pty
import select
import signal
from collections.abc import Mapping, Sequence

Answers = Sequence[tuple[bytes, bytes]]


def at_terminal(
    command: list[str], answers: Answers = (), *, environ: Mapping[str, str] | None = None, seconds: int = 60
) -> tuple[int, str]:
    """The exit code and the output of a command at a terminal; each answer is given once its prompt has come.

    One that has not ended by then is killed, and its exit code is -9.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs in the background of a shell ignores it
        os.execve(command[0], command, {**os.environ, "TERM": "xterm", **(environ or {})})  # noqa: S606 - as a shell
    seen, told, left = b"", 0, list(answers)
    for _ in range(seconds * 10):
        ready, _, _ = select.select([terminal], [], [], 0.1)
        if not ready:
            continue
        try:
            data = os.read(terminal, 65_536)
        except OSError:
            break
        if not data:
            break
        seen += data
        while left and left[0][0] in seen[told:]:
            prompt, answer = left.pop(0)
            told = seen.index(prompt, told) + len(prompt)
            os.write(terminal, answer)
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), seen.decode(errors="replace")
