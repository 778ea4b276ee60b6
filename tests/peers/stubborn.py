"""An upstream that goes on when its input ends and when it is asked to stop; it tells its process id."""

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
