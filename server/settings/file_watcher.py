"""The watcher of the settings files, looked at once a second: that works on every file system, and costs little."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Mapping
from functools import partial

import anyio

from server.settings.load import SettingsReport, read_settings
from server.settings.section import SettingsError
from server.settings.trust import trust_file
from tools.contract.threads import THREADS

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are looked at (ours). A change counts once it has been there for a second look, so that an
editor has finished writing."""
MAX_LOOKS = 4
"""After so many looks a change counts although the file changes still (ours): a file that never rests must not keep a
rule from counting."""
FileMark = tuple[int, int, int, int] | None  # what tells one state of a file from another; `None` where there is none


async def new_settings(report: SettingsReport, look_seconds: float = LOOK_SECONDS) -> AsyncGenerator[SettingsReport]:
    """The settings anew after each change of a file that may give some. What cannot be used is logged."""
    inputs = report.inputs
    if inputs is None:
        return
    store = trust_file(inputs.environ)

    def look() -> dict[str, FileMark]:
        """How the files are now. What is behind a pipe, such as a shell's `<(...)`, was read once and is gone."""
        candidates = [file.path for file in report.candidates if file.path not in inputs.streams]
        marks: dict[str, FileMark] = {}
        for path in [inputs.links.get(path, path) for path in candidates] + ([store] if store is not None else []):
            try:
                info = os.stat(path)
            except (OSError, ValueError):
                marks[path] = None
            else:
                marks[path] = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        return marks

    read: dict[str, FileMark] = {}  # nothing counts as read: a file may have changed between the start and now
    last: Mapping[str, FileMark] = {}
    looks: dict[str, int] = {}  # for each file that has changed since it was read, at how many looks it had
    while True:
        await anyio.sleep(look_seconds)
        try:
            now = await THREADS.run(look)
            looks = {path: looks.get(path, 0) + 1 for path, mark in now.items() if read.get(path, ()) != mark}
            due = {
                path
                for path, count in looks.items()
                if count >= MAX_LOOKS or (path in last and last[path] == now[path])
            }
            last = now
            if not due:
                continue
            read |= {path: now[path] for path in due}
            looks = {path: count for path, count in looks.items() if path not in due}
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
        report = fresh
        yield report
