"""The process that stands in for a forked server (see `fork_server.py`). It starts in 10 ms, with few imports."""

from __future__ import annotations

import os
import signal
import sys

sys.path.append(os.path.join(os.path.dirname(os.__file__), "lib-dynload"))  # `-S` leaves it out
import _socket  # `socket` takes as long as all the rest

address, state, *arguments = sys.argv[1:]
variables = {**({"XDG_STATE_HOME": state} if state else {}), **os.environ}
texts = [os.getcwd(), str(len(arguments)), *arguments, *(f"{name}={value}" for name, value in variables.items())]
request = b"".join(os.fsencode(text) + b"\0" for text in texts) + b"\0"
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect(address)
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
sent = server.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(request[sent:])
# Killed itself, it would be gone before the server is; by SIGUSR1 the server is killed, and it ends with it.
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    sent = signal.SIGKILL if number == signal.SIGUSR1 else number
    signal.signal(number, lambda _number, _frame, sent=sent: server.sendall(bytes((sent,))))
nothing = os.open(os.devnull, os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(nothing, number)
code = int(server.recv(16) or b"1")
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
