"""docs/configuration.md says of every key what the models say, and of nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docs.settings_tables import KeyDescription, key_descriptions
from server.settings.agent_cli import KEY_ALIASES
from server.settings.section import dotted

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "configuration.md"

KEYS = list(key_descriptions())


def rows() -> list[list[str]]:
    """The cells of every table row of the page that begins with a key."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


@pytest.mark.requirement("settings.defaults")
def test_the_tables_are_the_ones_the_code_writes() -> None:
    done = subprocess.run([sys.executable, "-P", DOCS / "settings_tables.py", "--check"], check=False)
    assert done.returncode == 0, "run .venv/bin/python -P docs/settings_tables.py"


@pytest.mark.requirement("settings.defaults")
@pytest.mark.parametrize("key", KEYS, ids=[key.path for key in KEYS])
def test_every_key_has_one_row_with_its_type_and_its_default_and_a_sentence(key: KeyDescription) -> None:
    (row,) = [row for row in rows() if row[0] == f"`{key.path}`" and len(row) == 4]
    assert row[1:3] == [key.type, f"`{json.dumps(key.default)}`"]
    assert row[3].endswith(".")


@pytest.mark.requirement("settings.defaults")
def test_the_page_has_no_other_key() -> None:
    documented = {row[0] for row in rows() if len(row) == 4}
    assert documented == {f"`{key.path}`" for key in KEYS}


@pytest.mark.requirement("settings.defaults")
def test_the_page_lists_every_key_alias() -> None:
    pairs = [(other.strip("` "), row[1]) for row in rows() if len(row) == 2 for other in row[0].split(", ")]
    listed = {other: meaning.strip("`") for other, meaning in pairs}
    assert "mcpServers.NAME.enabled" in listed.pop("mcpServers.NAME.disabled")
    assert listed == {dotted(other): dotted(ours) for other, ours in KEY_ALIASES.items()}
