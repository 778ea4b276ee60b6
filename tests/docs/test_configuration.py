"""docs/configuration.md says of every key what the models say, and of nothing else."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import pytest

from server.settings import models
from server.settings.canonical import OTHER_SPELLINGS
from server.settings.errors import dotted
from server.settings.reference import Described, described_keys
from server.settings.section import NotEnforced, NotUsed

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

KEYS = list(described_keys())


def rows() -> list[list[str]]:
    """The cells of every table row of the page that begins with a key."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


def docstrings() -> dict[tuple[str, str], str]:
    """What stands below each field of the models, on one line."""
    found: dict[tuple[str, str], str] = {}
    for section in ast.parse(inspect.getsource(models)).body:
        if not isinstance(section, ast.ClassDef):
            continue
        for statement, following in zip(section.body, section.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                name, text = ast.unparse(statement.target), ast.literal_eval(following.value)
                found[section.name, name] = " ".join(text.split())
    return found


DOCSTRINGS = docstrings()


def used(key: Described) -> str:
    if isinstance(key.mark, NotEnforced):
        return "refused"
    return "no" if isinstance(key.mark, NotUsed) else "yes"


@pytest.mark.requirement("settings.reference")
@pytest.mark.parametrize("key", KEYS, ids=[key.path for key in KEYS])
def test_the_page_says_of_a_key_what_the_models_say(key: Described) -> None:
    expected = [
        f"`{key.path}`",
        key.type,
        f"`{json.dumps(key.default)}`",
        DOCSTRINGS[key.section.__name__, key.attribute],
        used(key),
    ]
    assert [row for row in rows() if row[0] == f"`{key.path}`"] == [expected]


@pytest.mark.requirement("settings.reference")
def test_the_page_has_no_other_key() -> None:
    documented = {row[0] for row in rows() if len(row) == 5}
    assert documented == {f"`{key.path}`" for key in KEYS}


@pytest.mark.requirement("settings.reference")
def test_every_field_says_what_it_does() -> None:
    fields = {
        (section.__name__, name)
        for section in vars(models).values()
        if isinstance(section, type) and issubclass(section, models.Section) and section is not models.Section
        for name in section.model_fields
    }
    assert set(DOCSTRINGS) == fields


@pytest.mark.requirement("settings.reference")
def test_the_page_lists_every_other_spelling() -> None:
    pairs = [(other.strip("` "), row[1]) for row in rows() if len(row) == 2 for other in row[0].split(", ")]
    listed = {other: meaning.strip("`") for other, meaning in pairs}
    assert "mcpServers.NAME.enabled" in listed.pop("mcpServers.NAME.disabled")
    assert listed == {dotted(other): dotted(ours) for other, ours in OTHER_SPELLINGS.items()}
