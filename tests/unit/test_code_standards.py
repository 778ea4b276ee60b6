"""The rules that no linter knows: sizes, names, words, the layout of the project."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens

import pytest
from pathspec import GitIgnoreSpec

ROOT = Path(__file__).resolve().parents[2]

CODE_FOLDERS = ("server", "tools", "tests", "bench", "docs", "packaging")

TOP_LEVEL = {
    ".ci",
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench",
    "constraints.txt",
    "coretools_mcp.py",
    "deploy",
    "docs",
    "mcp.json.example",
    "packaging",
    "pyproject.toml",
    "server",
    "server.json",
    "tests",
    "tools",
}

WRITES_TO_STDOUT = {"server/cli.py"}
"""The modules whose purpose is to print for a person. Everywhere else stdout belongs to the protocol."""

DISK_CALLS = re.compile(
    r"os\.(open|fdopen|stat|lstat|fstat|scandir|listdir|walk|readlink|access|read|write|replace|rename|remove|unlink"
    r"|mkdir|makedirs|rmdir|link|symlink|chmod|chown|utime|truncate"
    r"|path\.(exists|lexists|isfile|isdir|islink|getsize|getmtime|realpath|samefile))"
)
"""What reaches the disk, or a descriptor, past the opener."""

DISK_MODULES = {
    "opener.py",
    "ignore_files.py",
    "child_process.py",
    "workspace.py",
    "change/journal.py",
    "change/writer.py",
}
"""The opener and the writer; the journal, which lies in no root; ignore files, which may stand above one; processes and
the program they run."""

EMPTY_NAMES = re.compile(r"(?i)(^|_)(utils?|helpers?|common|misc|manager)(_|$)")
"""Names that do not say what a thing is."""

UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")

GREEDY_GROUP = re.compile(r"(?<!\()\)(?:[*+?]|\{\{?[\d,]+\}?\})\+|[a-zA-Z_]\}\+\+")
"""A group of an expression that is matched possessively."""

MANAGEMENT = re.compile(
    r"(?ix) \b(issues?|tickets?|milestones?|sprints?|phases?) \s+ \#?\d"
    r"| \b(part|phase|stage|track) \s [a-d]\b (?! \s* [=:(])"
    r"| \b(in|by|with) \s the \s next \s (issue|session|pull \s request)"
    r"| (?<![\w./-]) /[w]ork/ (main|shared)"
)
"""Words about how the work is organised. The project speaks of itself, not of its making."""


@cache
def _sources() -> dict[str, str]:
    """All Python files of the project, by their path from the root."""
    paths = [path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "coretools_mcp.py", *sorted(paths))
    }


@cache
def _trees() -> dict[str, ast.Module]:
    return {name: ast.parse(text) for name, text in _sources().items()}


def _shipped(name: str) -> bool:
    return name.startswith(("server/", "tools/")) or name == "coretools_mcp.py"


def _texts() -> Iterator[tuple[str, str]]:
    """Everything that people read: the code and the papers around it."""
    yield from _sources().items()
    papers = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".ci").iterdir()]
    for path in (*papers, ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.toml")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def _remarks(name: str, text: str) -> str:
    """What the authors say about a file: of code its comments and docstrings, of a paper all of it."""
    if name == "docs/tools.md":
        return ""  # written from the tools, whose texts give examples
    if not name.endswith(".py"):
        return text
    comments = [token.string for token in generate_tokens(StringIO(text).readline) if token.type == COMMENT]
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(_trees()[name]) if isinstance(node, documented)]
    return "\n".join(comments + docstrings)


@cache
def _imported(tree: ast.Module) -> frozenset[str]:
    """The modules that a module imports, by their full names."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def _importers(forbidden: str) -> list[str]:
    prefix = forbidden + "."
    return [
        name
        for name, tree in _trees().items()
        if any(module == forbidden or module.startswith(prefix) for module in _imported(tree))
    ]


@pytest.mark.requirement("project.layout")
def test_the_top_level_holds_exactly_the_named_entries() -> None:
    ignored = GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text(encoding="utf-8").splitlines())
    entries = {
        entry.name
        for entry in os.scandir(ROOT)
        if entry.name != ".git" and not ignored.match_file(entry.name + ("/" if entry.is_dir() else ""))
    }
    assert entries == TOP_LEVEL


@pytest.mark.requirement("project.form")
def test_every_module_says_what_it_is_for_and_defers_its_annotations() -> None:
    lacking: list[str] = []
    for name, tree in _trees().items():
        if ast.get_docstring(tree) is None:
            lacking.append(f"{name}: no docstring")
        has_code = len(tree.body) > 1 and name != "coretools_mcp.py"
        if has_code and "__future__.annotations" not in _imported(tree):
            lacking.append(f"{name}: no `from __future__ import annotations`")
    assert lacking == []


@pytest.mark.requirement("project.form")
def test_names_say_what_a_thing_is() -> None:
    empty = [name for name in _sources() if any(EMPTY_NAMES.search(part) for part in Path(name).with_suffix("").parts)]
    empty += [
        f"{name}:{node.name}"
        for name, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and re.search(r"(Utils?|Helpers?|Manager|Common)$", node.name)
    ]
    assert empty == []


@pytest.mark.requirement("project.stdout")
def test_only_modules_made_for_it_print() -> None:
    printing = {
        name
        for name, tree in _trees().items()
        if _shipped(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= WRITES_TO_STDOUT


@pytest.mark.requirement("project.form")
def test_nothing_is_marked_as_unfinished() -> None:
    marked = [(name, line) for name, text in _texts() for line in _remarks(name, text).splitlines()]
    assert [(name, line) for name, line in marked if UNFINISHED.search(line)] == []


@pytest.mark.requirement("project.form")
def test_the_project_speaks_only_of_itself() -> None:
    lines = [(name, line) for name, text in _texts() for line in text.splitlines()]
    assert [(name, line) for name, line in lines if MANAGEMENT.search(line)] == []


@pytest.mark.requirement("project.old-python")
def test_no_group_is_matched_possessively() -> None:
    assert all(GREEDY_GROUP.search(group) for group in (r"(?:a b)*+", "(?:a){{0,4}}+", "{_NAME}++"))
    lines = [(name, line) for name, text in _sources().items() for line in text.splitlines()]
    assert [(name, line) for name, line in lines if not name.startswith("tests/") and GREEDY_GROUP.search(line)] == []


@pytest.mark.requirement("project.tests")
def test_nothing_is_mocked() -> None:
    assert _importers("unittest") == []


@pytest.mark.requirement("project.import-rule")
def test_nothing_imports_the_launcher() -> None:
    assert _importers("coretools_mcp") == []


@pytest.mark.requirement("project.import-rule")
@pytest.mark.parametrize("foreign", ["mcp", "mcp_types", "server", "starlette", "uvicorn", "httpx2"])
def test_the_tools_know_neither_the_server_nor_what_serves(foreign: str) -> None:
    assert [name for name in _importers(foreign) if name.startswith("tools/")] == []


@pytest.mark.requirement("project.import-rule")
def test_only_the_doors_of_the_file_layer_touch_the_disk() -> None:
    touching = {
        name.removeprefix("tools/files/")
        for name, tree in _trees().items()
        if name.startswith("tools/files/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_disk_call(ast.unparse(node.func))
    }
    assert touching == DISK_MODULES


def _is_disk_call(function: str) -> bool:
    return function in {"open", "io.open"} or DISK_CALLS.fullmatch(function) is not None
