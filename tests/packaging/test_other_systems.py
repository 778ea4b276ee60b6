"""Every module can be imported without the POSIX-only parts of the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_POSIX = """
import builtins, importlib, os, pkgutil, select, signal, socket, sys

MISSING_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
MISSING_NAMES = {
    os: ["O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "chown", "fchmod", "fchown",
         "fork", "forkpty", "getpgid", "geteuid", "getgid", "getuid", "killpg", "setpgid", "setsid", "uname"],
    signal: ["SIGHUP", "SIGKILL", "SIGUSR1", "SIGCHLD", "SIGPIPE", "pthread_sigmask"],
    select: ["poll", "epoll"],
    socket: ["AF_UNIX", "SCM_RIGHTS"],
}

# Import the dependencies first: only our own modules must work without these parts.
import mcp, mcp.server.lowlevel, mcp.client.sse, mcp.client.streamable_http
import anyio._backends._asyncio, httpx2, pathspec, pydantic, starlette.applications, uvicorn

known = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "").partition(".")[0]
    if importer in ("server", "tools") and name.partition(".")[0] in MISSING_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return known(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
for module, names in MISSING_NAMES.items():
    for name in names:
        vars(module).pop(name, None)

imported = []
for package in ("tools", "server"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
            imported.append(found.name)
from tools.builtin.all_tools import builtin_tools
assert builtin_tools()
print(*imported, sep="\\n")
"""


@pytest.mark.requirement("project.other-systems")
def test_every_module_can_be_imported_without_the_posix_modules() -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    assert result.returncode == 0, result.stderr
    modules = set(result.stdout.split())
    assert {"server.cli", "server.app", "tools.call.tool_runner", "tools.files.workspace"} <= modules
