"""Every requirement has a test that proves it, and every mark names a requirement."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]

CALL = ".requirement("

ID = re.compile(r"[\w.-]+")
"""One word, such as `edit.ambiguous`."""


@cache
def _requirements() -> list[dict[str, object]]:
    return tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))["requirement"]


def _marks(node: ast.AST) -> Iterator[ast.Call]:
    """Yield every `pytest.mark.requirement(...)` at or below a node."""
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark"))):
                yield inner
            case _:
                pass


def _effective_marks(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the marks of tests: in decorators, in their parameters, or in the module's `pytestmark`."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for decorator in node.decorator_list:
                yield from _marks(decorator)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from _marks(node.value)


def _place(path: Path, call: ast.Call) -> str:
    return f"{path.relative_to(TESTS)}:{call.lineno}: {ast.unparse(call)}"


@cache
def _scan() -> tuple[dict[str, str], list[str]]:
    """Return the ids in use with one place of each, and the marks that belong to no test."""
    places: dict[str, str] = {}
    idle_marks: list[str] = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if CALL not in text:
            continue
        tree = ast.parse(text)
        effective = set(_effective_marks(tree)) if path.name.startswith("test_") else set[ast.Call]()
        # Search the whole file only if it has other marks: the search takes longer than everything else.
        for call in effective if text.count(CALL) == len(effective) else _marks(tree):
            match call.args:
                case [ast.Constant(value=str(name))] if call in effective:
                    places.setdefault(name, _place(path, call))
                case _:
                    idle_marks.append(_place(path, call))
    return places, idle_marks


@pytest.mark.requirement("project.tests")
def test_each_requirement_has_a_unique_id_a_source_and_one_sentence() -> None:
    flaws: list[str] = []
    ids: set[object] = set()
    for entry in _requirements():
        name, source, text = (entry.get(key) for key in ("id", "source", "text"))
        if set(entry) != {"id", "source", "text"} or not (isinstance(name, str) and ID.fullmatch(name)):
            flaws.append(f"{entry}: needs exactly id, source and text; an id is one word, such as `edit.ambiguous`")
        if name in ids:
            flaws.append(f"{name}: occurs twice")
        if not source or not (isinstance(text, str) and text.endswith(".") and "\n" not in text):
            flaws.append(f"{name}: needs a source and one sentence")
        ids.add(name)
    assert flaws == []


@pytest.mark.requirement("project.tests")
def test_every_requirement_has_a_test() -> None:
    places, _ = _scan()
    assert [entry["id"] for entry in _requirements() if entry["id"] not in places] == []


@pytest.mark.requirement("project.tests")
def test_every_mark_has_its_requirement() -> None:
    places, _ = _scan()
    ids = {entry["id"] for entry in _requirements()}
    assert {name: place for name, place in places.items() if name not in ids} == {}


@pytest.mark.requirement("project.tests")
def test_every_mark_belongs_to_a_test_and_has_a_literal_id() -> None:
    _, idle_marks = _scan()
    assert idle_marks == []
