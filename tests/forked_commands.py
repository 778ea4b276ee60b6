"""Commands of ours that run to their end: forked for this process itself, without a program that stands for them.

That program takes longer to start than most commands take. It is needed where signals or a terminal are meant for it.
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
    """What a command says, with nothing on its standard input.

    Args:
        words: Its words, and its options.
        cwd: Its working folder, in place of the one here.
        env: Its environment, in place of the one here.
        seconds: How long it may take.
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
        with open(os.devnull, "rb") as nothing:
            streams = array.array("i", [nothing.fileno(), *writing])
            sent = program.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
            program.sendall(request[sent:])
        for descriptor in writing:
            os.close(descriptor)
        said = _read(reading, words, seconds)
        code = int(program.recv(16) or b"1")
    out, errors = (said[descriptor].decode() for descriptor in reading)
    return CompletedProcess(words, code, out, errors)


def _read(descriptors: Sequence[int], words: Sequence[str], seconds: float) -> dict[int, bytes]:
    """All that comes from each, to their ends."""
    said = dict.fromkeys(descriptors, b"")
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(until - time.monotonic())
            if not ready:
                raise TimeoutExpired(words, seconds, *said.values())
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                said[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return said
