"""A person at a terminal: what our command writes to a real one, and what they press there."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.forked_commands import run_forked
from tests.harness import command_line

Answers = Sequence[tuple[bytes, bytes]]


def at_terminal(
    command: list[str], answers: Answers = (), *, environ: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The exit code and the output of a command at a terminal; each answer is given once its prompt has come.

    Answers to an empty prompt that come first are typed before the command says anything.
    One that has not ended by then is killed, and its exit code is -9.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs in the background of a shell ignores it
        os.execve(command[0], command, {**os.environ, "TERM": "xterm", **(environ or {})})  # noqa: S606 - as a shell
    seen, told, left = b"", 0, list(answers)
    while left and not left[0][0]:
        os.write(terminal, left.pop(0)[1])
    for _ in range(600):
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


def run_alone(
    home: Path, *arguments: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours with a home of its own, where nobody can be asked."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **(variables or {})}
    return run_forked(arguments, cwd=cwd or home, env=env)


def answer_at_terminal(
    home: Path,
    *arguments: str,
    answer: bytes = b"y\n",
    cwd: Path | None = None,
    meanwhile: Callable[[], object] = lambda: None,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """The same for somebody who answers; once the question is there, something else happens, and then the answer comes.

    Where nothing is asked, nothing of that happens.

    Returns:
        The exit code, standard output and standard error.
    """
    terminal, stdin = pty.openpty()
    process = subprocess.Popen(
        command_line(*arguments),
        cwd=cwd or home,
        env={"HOME": str(home), "PATH": os.environ["PATH"], **(variables or {})},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        os.close(stdin)
        assert process.stderr is not None
        asked = b""
        while not asked.endswith(b"[y/N] "):
            if not (found := process.stderr.read(1)):
                break
            asked += found
        else:
            meanwhile()
            os.write(terminal, answer)
        stdout, stderr = process.communicate(timeout=100)
        return process.returncode, stdout.decode(), (asked + stderr).decode()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
