"""`config check` and `config show`: whether settings can be used, and what they are, each value with its source."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from server.console.shown import as_text, shown_value
from server.exit_codes import EXIT_FAILED
from server.settings import SettingsError, SettingsReport
from server.settings.errors import dotted
from tools.display import visible_line


def check(load: Callable[[], SettingsReport]) -> int:
    """Print all problems and warnings. Exit code 1 where the server would not start.

    Args:
        load: Reads the settings.
    """
    try:
        report = load()
    except SettingsError as error:
        for problem in error.problems:
            sys.stdout.write(f"problem: {visible_line(problem)}\n")
        return EXIT_FAILED
    for warning in report.warnings:
        sys.stdout.write(f"warning: {visible_line(warning)}\n")
    read = ", ".join(visible_line(path) for path in report.files) or "no file"
    sys.stdout.write(f"The settings can be used. Read: {read}\n")
    return 0


def show(report: SettingsReport, *, as_json: bool) -> int:
    """Print every value that was given, as it was written, and where; secrets are hidden."""
    rows = [(dotted(given.path), shown_value(given.path, given.value), given.source) for given in report.given]
    if as_json:
        values = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        found = {"values": values, "files": list(report.files), "warnings": list(report.warnings)}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return 0
    source_before = ""
    for key, value, source in sorted(rows, key=lambda row: _order(row[2], report)):
        if source != source_before:
            gap = "\n" if source_before else ""
            sys.stdout.write(f"{gap}# {visible_line(source)}\n")
        source_before = source
        sys.stdout.write(f"{visible_line(key)} = {as_text(value)}\n")
    sys.stdout.write("\nEverything else has its default.\n" if rows else "Every key has its default.\n")
    return 0


def _order(source: str, report: SettingsReport) -> int:
    """Files in the order in which they count, then the rest."""
    return report.files.index(source) if source in report.files else len(report.files)
