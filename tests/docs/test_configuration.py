"""docs/configuration.md and the JSON Schema describe exactly the keys of the models, and agree with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.settings_tables import key_descriptions
from server.settings import server_models
from server.settings.canonical_form import KEY_ALIASES
from server.settings.section_model import Diagnostics, dotted
from server.settings.settings_files import parse
from tests.fork_server import forked
from tests.tables import all_cases
from tools.web.search_settings import SEARCH_VARIABLES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "configuration.md"
SCHEMA = Path(server_models.__file__).with_name("settings.schema.json")

KEYS = list(key_descriptions())


def rows() -> list[list[str]]:
    """Return the cells of every table row of the page that begins with a key."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


@pytest.mark.requirement("settings.defaults")
def test_the_tables_are_current() -> None:
    result = subprocess.run([sys.executable, *forked([str(DOCS / "settings_tables.py"), "--check"])], check=False)
    assert result.returncode == 0, "run .venv/bin/python -P docs/settings_tables.py"


@pytest.mark.requirement("settings.defaults")
def test_every_key_has_one_row_with_its_type_and_its_default_and_a_sentence() -> None:
    key_rows = [row for row in rows() if len(row) == 4]
    with all_cases() as case:
        for key in KEYS:
            rows_of_key = [row for row in key_rows if row[0] == f"`{key.path}`"]
            with case(key.path):
                assert [row[1:3] for row in rows_of_key] == [[key.type, f"`{json.dumps(key.default)}`"]]
                assert rows_of_key[0][3].endswith(".")


@pytest.mark.requirement("settings.defaults")
def test_the_page_names_the_variable_of_every_key_of_a_search_provider() -> None:
    sentences = {row[0].strip("`"): row[3] for row in rows() if len(row) == 4}
    for provider, variables in SEARCH_VARIABLES.items():
        for key, variable in variables.items():
            assert variable in sentences[f"web.search.{provider}.{key}"]


@pytest.mark.requirement("settings.defaults")
def test_the_page_has_no_other_key() -> None:
    paths = {row[0] for row in rows() if len(row) == 4}
    assert paths == {f"`{key.path}`" for key in KEYS}


@pytest.mark.requirement("settings.defaults")
def test_the_page_lists_every_key_alias() -> None:
    pairs = [(alias.strip("` "), row[1]) for row in rows() if len(row) == 2 for alias in row[0].split(", ")]
    meanings = {alias: meaning.strip("`") for alias, meaning in pairs}
    assert "mcpServers.NAME.enabled" in meanings.pop("mcpServers.NAME.disabled")
    assert meanings == {dotted(alias): dotted(ours) for alias, ours in KEY_ALIASES.items()}


VALIDATOR: Any = Draft202012Validator(json.loads(SCHEMA.read_bytes()))


def problems(settings: Any) -> list[str]:
    """Return the errors that the published schema finds in settings."""
    return [error.message for error in VALIDATOR.iter_errors(settings)]


@pytest.mark.requirement("settings.schema")
def test_the_schema_file_is_current() -> None:
    result = subprocess.run([sys.executable, *forked([str(DOCS / "settings_schema.py"), "--check"])], check=False)
    assert result.returncode == 0, "run .venv/bin/python -P docs/settings_schema.py"


@pytest.mark.requirement("settings.schema")
def test_the_schema_accepts_the_default_of_every_key_and_refuses_unknown_keys() -> None:
    with all_cases() as case:
        for key in KEYS:
            *parents, last = key.path.split(".")
            for name, is_right in ((last, True), (f"{last}X", False)):
                settings: Any = {name: key.default}
                for step in reversed(parents):
                    settings = {step: settings}
                with case(f"{key.path} as {name}"):
                    assert (problems(settings) == []) is is_right


@pytest.mark.requirement("settings.schema")
@pytest.mark.parametrize(
    ("settings", "is_right"),
    [
        ({"approvalMode": "auto-edit"}, True),
        ({"approvalMode": "yolo"}, False),
        ({"shell": {"timeout": "1000"}}, False),
        ({"tools": {"discoveryCommand": "my-tools --list", "callCommand": ["my-tools", "call"]}}, True),
        ({"tools": {"toolDiscoveryCommand": "my-tools --list"}, "coreTools": ["ReadFileTool"]}, True),
        ({"mcpServers": {"a": {"command": "a", "disabled": True}}}, True),
        ({"mcpServers": {"a": {"comand": "a"}}}, False),
        ({"$schema": "./settings.schema.json"}, True),
    ],
)
def test_the_schema_distinguishes_right_settings_from_wrong_ones(settings: Any, is_right: bool) -> None:
    assert (problems(settings) == []) is is_right


@pytest.mark.requirement("settings.schema")
def test_the_schema_accepts_the_example() -> None:
    example = (DOCS.parent / "mcp.json.example").read_bytes()
    assert problems(parse(example, "mcp.json.example", Diagnostics())) == []
