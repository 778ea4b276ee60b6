"""Starts programs through `confined_runner.py`, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import forked
from tests.other_user import NOBODY

PROGRAM = Path(__file__).with_name("confined_runner.py")
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "LC_ALL": "C.UTF-8"}
USERS = [
    pytest.param(False, id="as it is"),
    pytest.param(
        True, id="as nobody", marks=pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become nobody")
    ),
]


class Runner:
    """A process that starts programs, and the user that it runs as."""

    def __init__(self, process: subprocess.Popen[str], user: int) -> None:
        self._process = process
        self.user = user
        self.pid = process.pid

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request of `confined_runner.py`, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def bash(self, command: str, **options: Any) -> dict[str, Any]:
        """Run a shell command."""
        return self.ask(argv=["/bin/bash", "-c", command], environment=ENVIRONMENT, **options)


@contextmanager
def runner(is_nobody: bool) -> Generator[Runner]:
    """Run `confined_runner.py` until the context ends."""
    command = [sys.executable, *forked([str(PROGRAM), *(["nobody"] if is_nobody else [])])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Runner(process, NOBODY if is_nobody else os.geteuid())
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def give_ownership(user: int, *folders: Path) -> None:
    """Give folders with their content to a user, who can then also enter their parents."""
    if user == os.geteuid():
        return
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)
        for parent in folder.parents:
            with suppress(PermissionError):
                if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o011)


def bubblewrap_command(command: str, *, options: Sequence[str] = ()) -> list[str]:
    """Return a command as the sandbox runs it, but in the network of its caller."""
    sandbox = (
        "--unshare-pid --unshare-ipc --unshare-uts --new-session --cap-drop ALL --ro-bind / / --dev /dev --proc /proc"
    )
    return ["/usr/bin/bwrap", *sandbox.split(), *options, "--", "/bin/bash", "-c", command]
