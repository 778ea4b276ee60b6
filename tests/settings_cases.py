"""Writing and loading settings files in tests, and the list of all keys."""

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
    with pytest.raises(SettingsError) as caught:
        load(path, content, environ)
    return str(caught.value)


def sources(report: SettingsReport) -> dict[str, str]:
    """For each value that is given, by its dotted key, what gave it."""
    return {dotted(given.path): given.source for given in report.given}


def at(key: KeyDescription, value: Any) -> dict[str, Any]:
    """The settings that give one key a value."""
    *sections, last = key.path.replace("NAME", "chosen").split(".")
    tree: dict[str, Any] = {last: value}
    for section in reversed(sections):
        tree = {section: tree}
    return tree


KEYS = list(key_descriptions())
every_key = pytest.mark.parametrize("key", KEYS, ids=[key.path for key in KEYS])
