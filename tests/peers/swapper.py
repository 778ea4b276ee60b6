"""Swaps a folder and a link, as fast as it can, until its input ends. Both names exist at every moment.

python swapper.py FOLDER LINK
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

AT_FDCWD = -100
RENAME_EXCHANGE = 2


def end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


folder, link = (os.fsencode(path) for path in sys.argv[1:])
rename = ctypes.CDLL(None).renameat2
threading.Thread(target=end_with_input, daemon=True).start()
assert rename(AT_FDCWD, folder, AT_FDCWD, link, RENAME_EXCHANGE) == 0
print("swapping", flush=True)  # noqa: T201 - awaited by the test
while True:
    rename(AT_FDCWD, folder, AT_FDCWD, link, RENAME_EXCHANGE)
