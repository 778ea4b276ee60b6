"""An upstream that reads everything, answers nothing, and ignores SIGTERM."""

from __future__ import annotations

import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _line in sys.stdin:
    pass
