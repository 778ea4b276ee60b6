"""An upstream that goes on when its input has ended and when it is asked to stop; it tells its process id in a file."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[1]).write_text(str(os.getpid()))
signal.alarm(60)
while True:
    signal.pause()
