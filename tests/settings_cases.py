"""Writes and loads settings files, and lists all keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from docs.settings_tables import KeyDescription, key_descriptions
from server.settings import SettingsError, SettingsReport, load_settings
from server.settings.section_model import dotted


def write(path: Path, content: str | Mapping[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def load(path: Path, content: str | Mapping[str, Any], environ: Mapping[str, str], **overrides: Any) -> SettingsReport:
    return load_settings([write(path, content)], overrides, environ)


def refusal(path: Path, content: str | Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return why the settings cannot be used, or else why entries of servers are left out: one problem per line."""
    try:
        report = load(path, content, environ)
    except SettingsError as error:
        return str(error)
    problems = [problem for entry in report.entries for problem in entry.problems]
    assert problems
    assert not {entry.alias for entry in report.entries if entry.problems} & report.upstreams.keys()
    assert set(problems) <= set(report.warnings)
    return "\n".join(problems)


def sources(report: SettingsReport) -> dict[str, str]:
    """Return the source of each value that is set, keyed by its dotted key."""
    return {dotted(value.path): value.source for value in report.values}


def settings_with(key: KeyDescription, value: Any) -> dict[str, Any]:
    """Return settings that set one key."""
    *sections, last = key.path.replace("NAME", "chosen").split(".")
    tree: dict[str, Any] = {last: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree


KEYS = list(key_descriptions())
every_key = pytest.mark.parametrize("key", KEYS, ids=[key.path for key in KEYS])
