"""Starts servers and commands by forking a process that has already imported everything: in 40 ms instead of 600.

`forked` turns a command line into one that runs `forked_server.py`. That program passes its arguments, environment,
folder and standard streams to the fork server, which forks a child that runs the command as the launcher would. The
program forwards signals to the child and exits with its exit code; if the program is killed, so is the child.

This does not test how the launcher starts. The real launcher is used by `packaging/`, by one test at a terminal, by
tests of processes, memory or timing, and by tests that need values that each server generates when it is imported.

`install`, which starts a server itself, gets a replacement launcher that also forks.
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
from server.console import install_commands
from server.settings import load_settings
from tests.cached_startup import cache_probes, cache_programs, cache_schemas_and_patterns

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = ROOT / "coretools_mcp.py"
PROGRAM = Path(__file__).with_name("forked_server.py")
READY = b"ready\n"
MAX_REQUEST = 1 << 20
"""Maximum size of a request in bytes; most of it is the environment."""
END_SECONDS = 10.0
"""Time that the fork server has to end its children."""
INHERITED = ("XDG_RUNTIME_DIR",)
"""Variables that a child inherits from the fork server if its request does not set them."""
INHERITED_BY_SERVERS = ("SSL_CERT_DIR",)
"""Variables that only servers inherit: other commands may list the variables that are set."""


def forked(arguments: list[str]) -> list[str]:
    """Return arguments for Python that start the same script by forking.

    Args:
        arguments: Options of Python (ignored: those of the fork server apply), the script, and its arguments.
    """
    script_index = next(number for number, argument in enumerate(arguments) if argument.endswith(".py"))
    # The state folder is passed as an argument, because MCP clients pass on few variables.
    state = os.environ.get("XDG_STATE_HOME", "")
    return ["-I", "-S", str(PROGRAM), _start(os.getpid())[0], state, *arguments[script_index:]]


def fork_server() -> int:
    """Return the process id of the fork server, whose children are the forked programs."""
    return _start(os.getpid())[1]


@cache
def _start(owner: int) -> tuple[str, int]:
    """Start the fork server, once per process, and return its socket and its id. It ends with this process."""
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
    process.stdin.close()  # this makes it end its children first
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
        listener: The socket that programs connect to.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._children: dict[int, socket.socket] = {}

    def run(self) -> None:
        """Serve until the process that started this one has ended."""
        wakeup_reader, wakeup_writer = socket.socketpair()
        wakeup_reader.setblocking(False)
        wakeup_writer.setblocking(False)
        signal.set_wakeup_fd(wakeup_writer.fileno())
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        while True:
            readable, _, _ = select.select([0, wakeup_reader, self._listener, *self._children.values()], [], [])
            if 0 in readable:
                for pid, program in self._children.items():
                    os.kill(pid, signal.SIGKILL)
                    program.close()
                signal.set_wakeup_fd(-1)
                wakeup_reader.close()
                wakeup_writer.close()
                return
            if wakeup_reader in readable:
                wakeup_reader.recv(1 << 10)
            for pid, program in list(self._children.items()):
                if program in readable:
                    self._pass_on(pid, program.recv(1))
            self._reap()
            if self._listener in readable:
                self._fork([wakeup_reader, wakeup_writer])

    def _pass_on(self, pid: int, number: bytes) -> None:
        """Forward a signal from a program to its child. If there is none, the program has ended."""
        os.kill(pid, number[0] if number else signal.SIGKILL)
        if not number:
            self._children.pop(pid).close()
            os.waitpid(pid, 0)

    def _reap(self) -> None:
        for pid, program in list(self._children.items()):
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if ended_pid:
                del self._children[pid]
                code = os.waitstatus_to_exitcode(status)
                with suppress(OSError):  # it was killed meanwhile
                    program.sendall(str(code).encode())
                program.close()

    def _fork(self, inherited_sockets: list[socket.socket]) -> None:
        program, _ = self._listener.accept()
        streams = array.array("i")
        data, ancillary, _, _ = program.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(3 * streams.itemsize))
        for _level, _kind, content in ancillary:
            streams.frombytes(content)
        while data and not data.endswith(b"\0\0"):
            chunk = program.recv(MAX_REQUEST)
            data = data + chunk if chunk else b""
        if not data:  # the program was killed before it had sent the whole request
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
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for closed_socket in (*inherited_sockets, self._listener, program, *self._children.values()):
            closed_socket.close()
        for stream in streams:
            os.close(stream)
        folder, count, *texts = (os.fsdecode(text) for text in data[:-2].split(b"\0"))
        _run(folder, texts[: int(count)], texts[int(count) :])


def _run(folder: str, arguments: list[str], variables: list[str]) -> None:
    """Become the requested program."""
    os.setsid()
    os.chdir(folder)
    inherited_names = (*INHERITED, *(INHERITED_BY_SERVERS if "serve" in arguments else ()))
    inherited = {name: value for name, value in os.environ.items() if name in inherited_names}
    os.environ.clear()
    os.environ.update(
        inherited | {name: value for name, _, value in (variable.partition("=") for variable in variables)}
    )
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


def _write_launcher(address: str) -> Path:
    """Write a launcher that starts programs by forking, and beside it the script of an installation."""
    launcher = Path(address).with_name(LAUNCHER.name)
    arguments = [address, "", str(LAUNCHER)]
    code = (
        f"import sys\nsys.argv[1:1] = {arguments}\nexec(compile(open({str(PROGRAM)!r}).read(), sys.argv[0], 'exec'))\n"
    )
    launcher.write_text(f"#!{sys.executable} -IS\n{code}", encoding="utf-8")
    launcher.chmod(0o700)
    launcher.with_name("coretools-mcp").symlink_to(launcher)
    return launcher


async def _nothing() -> None:
    """Do nothing. Running it imports the modules of an event loop."""


def _submodels(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield all models that are derived from this one."""
    for submodel in model.__subclasses__():
        yield submodel
        yield from _submodels(submodel)


def main() -> None:
    """Import and build everything that servers need, and wait for requests."""
    launcher = _write_launcher(sys.argv[1])
    install_commands.lasting_command.__defaults__ = (
        sys.prefix,
        str(launcher),
    )  # in place of the interpreter, beside which `lasting_command` looks for the script
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
        "tests.processes",  # used by programs in tests
        "tree_sitter",
        "tree_sitter_bash",
        "uvicorn.lifespan.on",
        "uvicorn.protocols.http.auto",
    ):
        import_module(name)
    cache_probes(os.path.dirname(sys.argv[1]))
    cache_programs()
    cache_schemas_and_patterns()
    anyio.run(_nothing)
    load_settings((), {}, {}, folder=os.devnull)
    for model in _submodels(BaseModel):
        model.model_rebuild()
    cli.command_parser()  # built once: for a short command, this is half of the work
    # Otherwise a child that collects garbage would write to, and so copy, every page that it shares with this process.
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        os.write(1, READY)
        ForkServer(listener).run()


if __name__ == "__main__":
    main()
