"""Which paths hold the server's own settings: what the permission policy and the sandbox keep as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator

from server.settings import SettingsReport
from server.settings.layers import Rank
from server.settings.trust import trust_file
from tools.memory.memory_files import is_memory_name
from tools.permissions.guarded_paths import GuardedPaths

_OF_WORKSPACES = (Rank.CLI_PROJECT, Rank.WORKSPACE)
"""These are known by their names, and a changed one counts no more until a person has seen it."""


def settings_files(report: SettingsReport) -> Iterator[str]:
    """The files that say what the server does, or are read as soon as they are there; what is trusted; the audit."""
    yield from (file.path for file in report.candidates if file.rank not in _OF_WORKSPACES)
    if report.inputs is not None:
        trusted = trust_file(report.inputs.environ)
        yield from [trusted] if trusted is not None else []
        yield from report.inputs.config_files
        yield from report.inputs.links.values()
    audit = audit_file(report)
    if audit is not None:
        yield audit


def audit_file(report: SettingsReport) -> str | None:
    """The file that every decision is appended to, or `None`."""
    audit = report.settings.log.audit
    return os.path.abspath(os.path.expanduser(audit)) if audit is not None else None


def guarded_paths(report: SettingsReport) -> GuardedPaths:
    """What nobody may write without a person's consent. Blocking: links are followed.

    The user's own folder counts as a whole, but for the memory that tools are to write there.
    """
    own = report.own_folder
    return GuardedPaths.of(settings_files(report), [own] if own is not None else [], _free_files(report))


def _free_files(report: SettingsReport) -> Iterator[str]:
    """The global memory, where it is a memory: no other file becomes free by its name, or by a link of its name."""
    memory = report.settings.memory
    folder = memory.global_folder or report.own_folder
    if folder is None:
        return
    path = os.path.join(folder, memory.file_name[0])
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return  # a link that cannot be followed, or no path at all
    if is_memory_name(path) and is_memory_name(real):
        yield path
