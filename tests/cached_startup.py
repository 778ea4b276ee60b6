"""Caches work that each server does when it starts, so that it is done once for the many servers that tests fork.

Other tests cover this work without a cache: `unit/execution/test_sandbox.py`, `unit/test_parameters.py`, and all tests
that start a server without forking.
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


def cache_probes(folder: str) -> None:
    """Make this process and its forks try bubblewrap only once: a try sets up two sandboxes.

    Args:
        folder: Where successful tries are recorded. Processes with the same folder share them.
    """

    async def probe(self: BubblewrapConfinement, program: str, kind: ViewKind) -> str | None:
        record = os.path.join(folder, f"{kind.value}-view-holds")
        is_usual = os.path.dirname(program) == USUAL_FOLDER
        if is_usual and os.path.exists(record):
            return None
        failure = await _probe(self, program, kind)
        if is_usual and failure is None:
            with suppress(OSError):
                Path(record).touch()
        return failure

    BubblewrapConfinement._probe = probe  # pyright: ignore[reportPrivateUsage]


def cache_programs() -> None:
    """Cache the list of this machine's programs: hundreds of them are symbolic links that must be followed."""

    @cache
    def machine_programs(*arguments: Any) -> tuple[str, ...]:
        return _programs(*arguments, ())

    def programs(stamps: Sequence[tuple[str, Any]], *arguments: Any) -> tuple[str, ...]:
        is_in_test_folder = any(is_inside(os.path.realpath(path), (gettempdir(),)) for path, _ in stamps)
        return _programs(stamps, *arguments) if is_in_test_folder else machine_programs(stamps, *arguments[:-1])

    reading_view._programs = programs  # pyright: ignore  # noqa: PGH003
    reading_view.reading_view_paths(os.path.expanduser("~"), os.environ["PATH"], [gettempdir()])


def cache_schemas_and_patterns() -> None:
    """Build the schemas of the built-in tools, and compile patterns that are otherwise compiled at first use."""
    base_tool.full_schema = cache(base_tool.full_schema)
    for tool in builtin_tools():
        assert tool.parameter_schema
    redact(TEXT)


TEXT = """
https://me:x@example.org/%20?a=b <<< x session: y --password z
mysql -px; zip -P x; openssl -k x; redis-cli -a x; isql -P x; ldapadd -w x; docker login -p x; xh -a x; secret set x
"""
"""A text with a match for each pattern that finds secrets."""
