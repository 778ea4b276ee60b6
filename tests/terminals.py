"""A person at a real terminal: the output of coretools-mcp, and the keys that the person presses."""

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
    """Run a command at a terminal, and type each answer once its prompt appears. Return the exit code and the output.

    Leading answers with an empty prompt are typed before the command prints anything. A command that does not end is
    killed, and its exit code is -9.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background processes ignore it
        os.execve(command[0], command, {**os.environ, "TERM": "xterm", **(environ or {})})  # noqa: S606 - as a shell
    output, answered, pending = b"", 0, list(answers)
    while pending and not pending[0][0]:
        os.write(terminal, pending.pop(0)[1])
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
        output += data
        while pending and pending[0][0] in output[answered:]:
            prompt, answer = pending.pop(0)
            answered = output.index(prompt, answered) + len(prompt)
            os.write(terminal, answer)
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), output.decode(errors="replace")


def run_alone(
    home: Path, *arguments: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a coretools-mcp command with its own home folder, and without a terminal to ask questions."""
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
    """Run a command and answer its question, after `meanwhile` has run. If it asks nothing, `meanwhile` does not run.

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
        prompt = b""
        while not prompt.endswith(b"[y/N] "):
            if not (byte := process.stderr.read(1)):
                break
            prompt += byte
        else:
            meanwhile()
            os.write(terminal, answer)
        stdout, stderr = process.communicate(timeout=100)
        return process.returncode, stdout.decode(), (prompt + stderr).decode()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
