"""Our command, which kills itself when it is about to create or rename a file.

python killed_command.py COUNT ARGUMENT...     it survives COUNT of these moments
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server.cli import main

remaining = int(sys.argv[1])


def count(event: str, details: tuple[object, ...]) -> None:
    global remaining  # noqa: PLW0603 - an audit hook cannot keep state otherwise
    makes = event == "open" and details[0] != os.devnull and isinstance(details[2], int) and details[2] & os.O_CREAT
    if makes or event == "os.rename":
        remaining -= 1
        if remaining < 0:
            os.kill(os.getpid(), signal.SIGKILL)


sys.dont_write_bytecode = True
sys.addaudithook(count)
sys.exit(main(sys.argv[2:]))
