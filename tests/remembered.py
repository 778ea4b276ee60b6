"""Work that each server does for itself at its start, done once for the many servers of tests.

What it comes to is tested elsewhere: in `unit/execution/test_sandbox.py` and `unit/test_parameters.py`, and wherever a
server is started by itself.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import metadata
from pathlib import Path

from tools.builtin.all_tools import builtin_tools
from tools.call import base_tool
from tools.contract.command_views import ViewKind
from tools.contract.secrets import redact
from tools.shell.sandbox.bubblewrap import USUAL_FOLDER, BubblewrapConfinement

_probe = BubblewrapConfinement._probe  # pyright: ignore[reportPrivateUsage]


def remember_probes(folder: str) -> None:
    """Have this process, and what it forks, try out once whether bubblewrap holds: it takes two starts of Python.

    Args:
        folder: Where it is kept that a view holds; the processes that are given the same one share it.
    """

    async def probe(self: BubblewrapConfinement, program: str, kind: ViewKind) -> str | None:
        kept = Path(folder, f"{kind.value}-view-holds")
        is_usual = os.path.dirname(program) == USUAL_FOLDER
        if is_usual and kept.exists():
            return None
        failure = await _probe(self, program, kind)
        if is_usual and failure is None:
            kept.touch()
        return failure

    BubblewrapConfinement._probe = probe  # pyright: ignore[reportPrivateUsage]


def remember_parts() -> None:
    """The same for schemas of our tools, for patterns that are compiled when first used, and for our version."""
    base_tool.full_schema = cache(base_tool.full_schema)
    for tool in builtin_tools():
        assert tool.parameter_schema
    redact(TEXT)
    metadata.version = cache(metadata.version)


TEXT = """
https://me:x@example.org/%20?a=b <<< x session: y --password z
mysql -px; zip -P x; openssl -k x; redis-cli -a x; isql -P x; ldapadd -w x; docker login -p x; xh -a x; secret set x
"""
"""Something for each pattern by which secrets are found."""
