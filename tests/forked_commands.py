"""Runs coretools-mcp commands to their end, forked by the fork server, without the program `forked_server.py`.

Starting that program takes longer than most commands. It is needed only for signals and terminals.
"""

from __future__ import annotations

import array
import os
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

from tests.fork_server import LAUNCHER, forked


def run_forked(
    words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 100.0
) -> CompletedProcess[str]:
    """Run a command with an empty standard input, and return its output.

    Args:
        words: The subcommand and its options.
        cwd: Working folder, by default that of this process.
        env: Environment, by default that of this process.
        seconds: Time limit.
    """
    _, _, _, address, state, *arguments = forked([str(LAUNCHER), *words])
    variables = {**({"XDG_STATE_HOME": state} if state else {}), **(os.environ if env is None else env)}
    texts = [
        str(cwd or os.getcwd()),
        str(len(arguments)),
        *arguments,
        *(f"{key}={variables[key]}" for key in variables),
    ]
    request = b"".join(os.fsencode(text) + b"\0" for text in texts) + b"\0"
    with ExitStack() as stack:
        reading, writing = zip(*(os.pipe() for _ in range(2)), strict=True)
        for descriptor in reading:
            stack.callback(os.close, descriptor)
        program = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        program.connect(address)
        with open(os.devnull, "rb") as null_device:
            streams = array.array("i", [null_device.fileno(), *writing])
            sent_bytes = program.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
            program.sendall(request[sent_bytes:])
        for descriptor in writing:
            os.close(descriptor)
        outputs = _read(reading, words, seconds)
        code = int(program.recv(16) or b"1")
    out, errors = (outputs[descriptor].decode() for descriptor in reading)
    return CompletedProcess(words, code, out, errors)


def _read(descriptors: Sequence[int], words: Sequence[str], seconds: float) -> dict[int, bytes]:
    """Read all descriptors to their ends."""
    outputs = dict.fromkeys(descriptors, b"")
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                raise TimeoutExpired(words, seconds, *outputs.values())
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                outputs[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return outputs
