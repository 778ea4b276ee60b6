"""Starts a server whose memory and state tests can read without root's rights, because it is not made private.

python readable_server.py SERVER-ARGUMENT...
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server import cli
from tools.shell.broker import confinement

if __name__ == "__main__":
    confinement.make_private = lambda: None
    raise SystemExit(cli.main())
