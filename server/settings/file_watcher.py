"""The watcher of the settings files: a change takes effect without a restart, a broken file does not.

Files are looked at once a second, by what the directory says of them: that works on every system and file system, and
costs a handful of `stat` calls.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import anyio

from server.settings.errors import SettingsError
from server.settings.load import SettingsInputs, SettingsReport, read_settings
from server.settings.trust import trust_file
from tools.contract.threads import THREADS

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are looked at (ours). A change counts once it has been there for a second look, so that an
editor has finished writing."""

MOST_LOOKS = 4
"""After so many looks a change counts although the file changes still (ours): what never rests must not keep a rule
from counting."""

Mark = tuple[int, int, int, int] | None
"""What tells one state of a file from another; `None` where there is none."""

Marks = Mapping[str, Mark]


@dataclass(slots=True)
class _Changes:
    """Which files have changed since they were read. Each is waited for by itself.

    Args:
        read: How each file was when it was last read. One that is not there has to be read.
        last: How each was at the last look.
        looks: For each that has changed, how many looks ago that was noticed.
    """

    read: dict[str, Mark] = field(default_factory=dict[str, Mark])
    last: Marks = field(default_factory=dict[str, Mark])
    looks: dict[str, int] = field(default_factory=dict[str, int])

    def note(self, now: Marks) -> bool:
        """Take down how the files are; whether they are to be read, which they count as then."""
        changed = [path for path, mark in now.items() if path not in self.read or self.read[path] != mark]
        self.looks = {path: self.looks.get(path, 0) + 1 for path in changed}
        due = [
            path
            for path in changed
            if (path in self.last and self.last[path] == now[path]) or self.looks[path] >= MOST_LOOKS
        ]
        self.last = now
        for path in due:
            self.read[path] = now[path]
            del self.looks[path]
        return bool(due)


async def new_settings(report: SettingsReport, look_seconds: float = LOOK_SECONDS) -> AsyncGenerator[SettingsReport]:
    """The settings anew after each change of a file that they come from, or could come from.

    Settings that cannot be used are told in the log, and the last good ones stay; whatever is wrong, this goes on.

    Args:
        report: The settings that count now.
        look_seconds: How often to look.
    """
    inputs = report.inputs
    if inputs is None:
        return
    paths: list[str] | None = None
    changes = _Changes()  # nothing counts as read: a file may have changed between the start and now
    while True:
        await anyio.sleep(look_seconds)
        try:
            paths = await THREADS.run(partial(_watched, report, inputs)) if paths is None else paths
            if not changes.note(await THREADS.run(partial(_marks, paths))):
                continue
            fresh = await THREADS.run(partial(read_settings, inputs, report))
        except SettingsError as error:
            for problem in error.problems:
                logger.warning("settings changed and cannot be used, so the last ones stay: %s", problem)
            continue
        except Exception:
            logger.exception("settings changed and cannot be read because of an internal error, so the last ones stay")
            continue
        if fresh == report:
            continue
        for warning in fresh.warnings:
            if warning not in report.warnings:
                logger.warning(warning)
        report, paths = fresh, None
        yield report


def _watched(report: SettingsReport, inputs: SettingsInputs) -> list[str]:
    """Without what is behind a pipe, such as a shell's `<(...)`: that was read once and is gone. Blocking."""
    paths = [inputs.path_read_for(file.path) for file in report.candidates]
    store = trust_file(inputs.environ)
    paths += [store] if store is not None else []
    return [path for path in paths if os.path.isfile(path) or not os.path.exists(path)]


def _marks(paths: Iterable[str]) -> Marks:
    """How the files are. Blocking."""
    marks: dict[str, Mark] = {}
    for path in paths:
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            marks[path] = None
        else:
            marks[path] = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    return marks
