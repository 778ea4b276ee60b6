"""An upstream that ignores the end of its input and SIGTERM; it prints its process id on standard error."""

from __future__ import annotations

import os
import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stderr.write(f"stubborn process {os.getpid()}\n")
sys.stderr.flush()
signal.alarm(60)
while True:
    signal.pause()
