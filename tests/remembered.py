"""Work that each server does for itself, done once for the many that tests fork.

What it comes to is tested elsewhere: in `unit/execution/test_sandbox.py` and `unit/test_parameters.py`, and wherever a
server is started by itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from tools.builtin.all_tools import builtin_tools
from tools.call import base_tool
from tools.contract.command_views import ViewKind
from tools.files.workspace import is_inside
from tools.shell.sandbox import reading_view
from tools.shell.sandbox.bubblewrap import USUAL_FOLDER, BubblewrapConfinement
from tools.text.secrets import redact

_programs = reading_view._programs  # pyright: ignore[reportPrivateUsage]
_probe = BubblewrapConfinement._probe  # pyright: ignore[reportPrivateUsage]


def remember_probes(folder: str) -> None:
    """Have this process, and what it forks, try out once whether bubblewrap holds: it takes two starts of Python.

    Args:
        folder: Where it is kept that a view holds; the processes that are given the same one share it.
    """

    async def probe(self: BubblewrapConfinement, program: str, kind: ViewKind) -> str | None:
        kept = os.path.join(folder, f"{kind.value}-view-holds")
        is_usual = os.path.dirname(program) == USUAL_FOLDER
        if is_usual and os.path.exists(kept):
            return None
        failure = await _probe(self, program, kind)
        if is_usual and failure is None:
            with suppress(OSError):
                Path(kept).touch()
        return failure

    BubblewrapConfinement._probe = probe  # pyright: ignore[reportPrivateUsage]


def remember_programs() -> None:
    """The same for the programs of this machine, of which hundreds are links: they are followed once for all roots."""

    @cache
    def of_the_machine(*given: Any) -> tuple[str, ...]:
        return _programs(*given, ())

    def programs(stamps: Sequence[tuple[str, Any]], *given: Any) -> tuple[str, ...]:
        is_of_a_test = any(is_inside(os.path.realpath(path), (gettempdir(),)) for path, _ in stamps)
        return _programs(stamps, *given) if is_of_a_test else of_the_machine(stamps, *given[:-1])

    reading_view._programs = programs  # pyright: ignore  # noqa: PGH003
    reading_view.reading_view_paths(os.path.expanduser("~"), os.environ["PATH"], [gettempdir()])


def remember_parts() -> None:
    """The same for schemas of our tools, and for patterns that are compiled when first used."""
    base_tool.full_schema = cache(base_tool.full_schema)
    for tool in builtin_tools():
        assert tool.parameter_schema
    redact(TEXT)


TEXT = """
https://me:x@example.org/%20?a=b <<< x session: y --password z
mysql -px; zip -P x; openssl -k x; redis-cli -a x; isql -P x; ldapadd -w x; docker login -p x; xh -a x; secret set x
"""
"""Something for each pattern by which secrets are found."""
