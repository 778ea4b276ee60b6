"""An upstream that reads everything and answers nothing, and that ignores a polite end."""

from __future__ import annotations

import signal
import sys

signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _line in sys.stdin:
    pass
