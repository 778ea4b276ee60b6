"""Starts servers and commands from a process that has imported them already: with a fork that takes 40 ms, not 600.

`forked` gives a command line like `server_arguments` does. Its program, `forked_server.py`, hands its
arguments, environment, folder and standard streams to a process that waits with all imports made, which forks a child
that runs the command as the launcher would. Signals go on to that child, its exit code comes back, and it is killed
when the program is. How the launcher starts is not tested this way: `packaging/`, one test at a terminal, and
everything that looks at processes, memory or the time until something happens use the real one, and so does what tells
one server from another by what each makes up when it is imported.

A command that starts a server itself, as `call` and `install` do, is forked with a stand-in for the launcher, which has
that server forked too.
"""

from __future__ import annotations

import array
import atexit
import gc
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import anyio
from pydantic import BaseModel

import server
import tools
from server import cli
from server.console import call_command, install_commands
from server.settings import load_settings
from tests.remembered import remember_parts, remember_probes, remember_programs

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "coretools_mcp.py"
PROGRAM = Path(__file__).with_name("forked_server.py")
READY = b"ready\n"
MAX_REQUEST = 1 << 20
"""Bytes of one request: mostly its environment."""
END_SECONDS = 10.0
"""How long the waiting process may take to end its children."""
KEPT = ("XDG_RUNTIME_DIR",)
"""Variables of the waiting process that count where a child is given none, as in `forked`."""
READ = ("SSL_CERT_DIR",)
"""The same for servers alone: other commands may tell which variables there are."""


def forked(arguments: list[str]) -> list[str]:
    """Arguments for Python that start the same script, from a process that waits for it.

    Args:
        arguments: The script and what it is given, behind options of Python: those of the waiting process count.
    """
    at = next(number for number, argument in enumerate(arguments) if argument.endswith(".py"))
    # Where it keeps things goes along by itself: clients pass few variables on.
    state = os.environ.get("XDG_STATE_HOME", "")
    return ["-I", "-S", str(PROGRAM), _waiting(os.getpid())[0], state, *arguments[at:]]


def fork_server() -> int:
    """The id of the waiting process. What it forks are its children."""
    return _waiting(os.getpid())[1]


@cache
def _waiting(owner: int) -> tuple[str, int]:
    """Its socket and its id. It is started with the first server, and ends with this process."""
    folder = tempfile.mkdtemp(prefix=f"fork-server-{owner}-")
    address = os.path.join(folder, "socket")
    command = [sys.executable, "-P", "-W", "error", "-m", "tests.fork_server", address]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == READY
    atexit.register(_end, process, folder)
    return address, process.pid


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    assert process.stdin is not None
    process.stdin.close()  # so that it ends its children first
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    process.kill()
    process.wait()
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


class ForkServer:
    """Forks a child for each program that connects.

    Args:
        listener: Where programs connect.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._children: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Serve until the process that started this one is gone."""
        woken, waker = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        while True:
            readable, _, _ = select.select([0, woken, self._listener, *self._children.values()], [], [])
            if 0 in readable:
                for pid, program in self._children.items():
                    os.kill(pid, signal.SIGKILL)
                    program.close()
                signal.set_wakeup_fd(-1)
                woken.close()
                waker.close()
                return
            if woken in readable:
                woken.recv(1 << 10)
            for pid, program in list(self._children.items()):
                if program in readable:
                    self._pass_on(pid, program.recv(1))
            self._reap()
            if self._listener in readable:
                self._fork([woken, waker])

    def _pass_on(self, pid: int, number: bytes) -> None:
        """Send a child the signal that its program was sent; that one is gone when nothing comes."""
        os.kill(pid, number[0] if number else signal.SIGKILL)
        if not number:
            self._children.pop(pid).close()
            os.waitpid(pid, 0)

    def _reap(self) -> None:
        for pid, program in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[pid]
                code = os.waitstatus_to_exitcode(status)
                with suppress(OSError):  # it was killed meanwhile
                    program.sendall(str(code).encode())
                program.close()

    def _fork(self, others: list[socket.socket]) -> None:
        program, _ = self._listener.accept()
        streams = array.array("i")
        data, ancillary, _, _ = program.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(3 * streams.itemsize))
        for _level, _kind, content in ancillary:
            streams.frombytes(content)
        while data and not data.endswith(b"\0\0"):
            more = program.recv(MAX_REQUEST)
            data = data + more if more else b""
        if not data:  # the program was killed before it had said everything
            program.close()
            for stream in streams:
                os.close(stream)
            return
        pid = os.fork()
        if pid:
            for stream in streams:
                os.close(stream)
            self._children[pid] = program
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for closed in (*others, self._listener, program, *self._children.values()):
            closed.close()
        for stream in streams:
            os.close(stream)
        folder, count, *texts = (os.fsdecode(text) for text in data[:-2].split(b"\0"))
        _run(folder, texts[: int(count)], texts[int(count) :])


def _run(folder: str, arguments: list[str], variables: list[str]) -> None:
    """Be the program that was asked for."""
    os.setsid()
    os.chdir(folder)
    wanted = (*KEPT, *(READ if "serve" in arguments else ()))
    kept = {name: value for name, value in os.environ.items() if name in wanted}
    os.environ.clear()
    os.environ.update(kept | {name: value for name, _, value in (variable.partition("=") for variable in variables)})
    sys.argv = arguments
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)  # noqa: SIM115
    code = 1
    try:
        if arguments[0] == str(LAUNCHER):
            code = cli.main()
        else:
            runpy.run_path(arguments[0], run_name="__main__")
            code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _stand_in(address: str) -> Path:
    """A launcher that has the waiting process fork what it would start, and the script of an installation beside it."""
    launcher = Path(address).with_name(LAUNCHER.name)
    given = [address, "", str(LAUNCHER)]
    code = f"import sys\nsys.argv[1:1] = {given}\nexec(compile(open({str(PROGRAM)!r}).read(), sys.argv[0], 'exec'))\n"
    launcher.write_text(f"#!{sys.executable} -IS\n{code}", encoding="utf-8")
    launcher.chmod(0o700)
    launcher.with_name("coretools-mcp").symlink_to(launcher)
    return launcher


async def _nothing() -> None:
    """What is run to have an event loop's modules."""


def _below(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The models that are made of this one."""
    for each in model.__subclasses__():
        yield each
        yield from _below(each)


def main() -> None:
    """Import and build what servers need at their start or later, and wait."""
    launcher = _stand_in(sys.argv[1])
    call_command.LAUNCHER = launcher
    install_commands.lasting_command.__defaults__ = (
        sys.prefix,
        str(launcher),
    )  # beside its interpreter it looks for the script
    for package in (server, tools):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                import_module(module.name)
    for name in (
        "concurrent.futures.thread",
        "httpx",
        "jsonschema",
        "mcp.server.stdio",
        "pathspec",
        "resource",
        "tests.processes",  # for programs of tests
        "tree_sitter",
        "tree_sitter_bash",
        "uvicorn.lifespan.on",
        "uvicorn.protocols.http.auto",
    ):
        import_module(name)
    remember_probes(os.path.dirname(sys.argv[1]))
    remember_programs()
    remember_parts()
    anyio.run(_nothing)
    load_settings((), {}, {}, folder=os.devnull)
    for model in _below(BaseModel):
        model.model_rebuild()
    cli.command_parser()  # made once: it is half of what a short command does
    # A child that collects garbage would write to every page that it shares with this process.
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        os.write(1, READY)
        ForkServer(listener).run()


if __name__ == "__main__":
    main()
