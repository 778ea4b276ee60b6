"""Rules for the code that no linter checks: names, words, sentences, imports and the layout of the project."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from tests.mutation.targets import TARGETS

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
"""The modules whose purpose is to print for people. Everywhere else, stdout belongs to the protocol."""

DISK_CALLS = re.compile(
    r"os\.(open|fdopen|stat|lstat|fstat|scandir|listdir|walk|readlink|access|read|write|replace|rename|remove|unlink"
    r"|mkdir|makedirs|rmdir|link|symlink|chmod|chown|utime|truncate"
    r"|path\.(exists|lexists|isfile|isdir|islink|getsize|getmtime|realpath|samefile))"
)
"""Calls that access the disk or a descriptor without the path opener."""

DISK_MODULES = {
    "path_opener.py",
    "ignore_files.py",
    "child_process.py",
    "workspace.py",
    "change/journal.py",
    "change/writer.py",
}
"""Modules that may access the disk directly: the path opener and the writer; the journal, which is outside all roots;
ignore files, which may be above a root; the workspace; and child processes with their programs."""

EMPTY_NAMES = re.compile(r"(?i)(^|_)(utils?|helpers?|common|misc|manager)(_|$)")
"""Names that do not say what a thing is."""

EMPTY_CLASSES = re.compile(r"^\s*class \w*(Utils?|Helpers?|Manager|Common)\b", re.MULTILINE)

PRINTING = re.compile(r"(?<![\w.])print\(")

UNFINISHED = re.compile(r"^[^\n\"']*(?:#|<!--).*\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b", re.MULTILINE)
"""Markers of unfinished work in a comment."""

GREEDY_GROUP = re.compile(r"(?<!\()\)(?:[*+?]|\{\{?[\d,]+\}?\})\+|[a-zA-Z_]\}\+\+")
"""A group with a possessive quantifier, with which Python before 3.11.5 matches too much."""

MAX_WORDS = 35
HABITS = re.compile(r" \(ours\)|\b(?:of ours|(?:is|are|be) told of|anew|whoever)\b", re.IGNORECASE)
MANAGEMENT = re.compile(
    r"(?ix) \b(issues?|tickets?|milestones?|sprints?|phases?) \s+ \#?\d"
    r"| \b(part|phase|stage|track) \s [a-d]\b (?! \s* [=:(])"
    r"| \b(in|by|with) \s the \s next \s (issue|session|pull \s request)"
    r"| (?<![\w./-]) /[w]ork/ (main|shared)"
)
"""Words about how the work is organised. The project describes itself, not how it was made."""


@cache
def _sources() -> dict[str, str]:
    """Return all Python files of the project, by their path from the root."""
    paths = [path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "coretools_mcp.py", *sorted(paths))
    }


def _texts() -> Iterator[tuple[str, str]]:
    """Yield everything that people read: the code, the documentation and the configuration files."""
    yield from _sources().items()
    papers = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".ci").iterdir()]
    for path in (*papers, ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.toml")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def _importers(pattern: str) -> list[str]:
    """Return the files that import a module whose name matches, or something from it."""
    imports = re.compile(rf"^\s*(?:from|import) (?:{pattern})\b", re.MULTILINE)
    return [name for name, text in _sources().items() if imports.search(text)]


def _matches_in(pattern: re.Pattern[str], texts: Iterable[tuple[str, str]]) -> list[str]:
    """Return each file in which the pattern matches, with the first match."""
    return [f"{name}: {match[0]}" for name, text in texts if (match := pattern.search(text))]


@pytest.mark.requirement("project.layout")
def test_the_top_level_has_exactly_the_expected_entries() -> None:
    ignore_rules = GitIgnoreSpec.from_lines((ROOT / ".gitignore").read_text(encoding="utf-8").splitlines())
    entries = {
        entry.name
        for entry in os.scandir(ROOT)
        if entry.name != ".git" and not ignore_rules.match_file(entry.name + ("/" if entry.is_dir() else ""))
    }
    assert entries == TOP_LEVEL


@pytest.mark.requirement("project.form")
def test_every_module_has_a_docstring_and_defers_its_annotations() -> None:
    docstring_start = re.compile(r'(?:#!.*\n)?r?"""\S')
    future_import = re.compile(r"^from __future__ import annotations$|\A(?:[^\n]|\n(?!import |from ))*\Z", re.MULTILINE)
    failures = [
        name for name, text in _sources().items() if not (docstring_start.match(text) and future_import.search(text))
    ]
    assert failures == ["coretools_mcp.py"], "only the launcher must also run on older interpreters"


@pytest.mark.requirement("project.form")
def test_names_of_files_and_classes_are_not_vague() -> None:
    file_names = [
        name for name in _sources() if any(EMPTY_NAMES.search(part) for part in Path(name).with_suffix("").parts)
    ]
    assert file_names + _matches_in(EMPTY_CLASSES, _sources().items()) == []


@pytest.mark.requirement("project.stdout")
def test_only_the_command_line_module_prints() -> None:
    sources = [(name, text) for name, text in _sources().items() if name.startswith(("server/", "tools/"))]
    assert {line.partition(":")[0] for line in _matches_in(PRINTING, sources)} <= WRITES_TO_STDOUT


@pytest.mark.requirement("project.form")
def test_no_text_is_marked_as_unfinished_or_mentions_how_the_work_is_organised() -> None:
    assert _matches_in(UNFINISHED, _texts()) == []
    assert _matches_in(MANAGEMENT, _texts()) == []


@pytest.mark.requirement("project.words")
def test_no_text_uses_phrases_that_readers_stumble_over() -> None:
    assert HABITS.search("one of ours")
    product_texts = ((name, text) for name, text in _texts() if not name.startswith(("tests/", "bench/")))
    assert _matches_in(HABITS, product_texts) == []


@pytest.mark.requirement("project.words")
def test_no_sentence_of_the_documentation_is_too_long() -> None:
    long_sentences = [
        f"{name}: {sentence}" for name, text in _texts() if name.endswith(".md") for sentence in _long_sentences(text)
    ]
    assert long_sentences == []
    assert [*_long_sentences("word " * MAX_WORDS + "word.")]


def _long_sentences(page: str) -> Iterator[str]:
    """Yield the sentences with too many words, outside code, tables and headings."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*|] )|\n\d+\. ", re.sub(r"```.*?```", "", page, flags=re.DOTALL)):
        if not paragraph.strip("\n").startswith(("|", "    ", "#")):
            sentences = re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])", " ".join(paragraph.split()))
            yield from (sentence for sentence in sentences if len(sentence.split()) > MAX_WORDS)


@pytest.mark.requirement("project.old-python")
def test_no_regular_expression_has_a_possessive_group() -> None:
    assert all(GREEDY_GROUP.search(group) for group in (r"(?:a b)*+", "(?:a){{0,4}}+", "{_NAME}++"))
    assert _matches_in(GREEDY_GROUP, ((name, text) for name, text in _sources().items() if name[:6] != "tests/")) == []


@pytest.mark.requirement("project.tests")
def test_nothing_is_mocked() -> None:
    assert _importers("unittest") == []


@pytest.mark.requirement("project.import-rule")
def test_nothing_imports_the_launcher() -> None:
    assert [name for name in _importers("coretools_mcp") if name.startswith(("server/", "tools/"))] == []


@pytest.mark.requirement("project.import-rule")
def test_the_tools_import_neither_the_server_nor_its_frameworks() -> None:
    importers = _importers("mcp|mcp_types|server|starlette|uvicorn|httpx2")
    assert [name for name in importers if name.startswith("tools/")] == []
    assert importers, "the search finds no imports at all, although the server has some"


@pytest.mark.requirement("project.import-rule")
def test_only_the_listed_modules_of_the_file_layer_access_the_disk() -> None:
    modules = {
        name.removeprefix("tools/files/")
        for name, text in _sources().items()
        if name.startswith("tools/files/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _is_disk_call(ast.unparse(node.func))
    }
    assert modules == DISK_MODULES


def _is_disk_call(function: str) -> bool:
    return function in {"open", "io.open"} or DISK_CALLS.fullmatch(function) is not None


@pytest.mark.requirement("project.mutation")
def test_all_modules_and_tests_of_mutation_targets_exist() -> None:
    for name, target in TARGETS.items():
        missing = [module for module in target.modules if not (ROOT / module).is_file()]
        assert not missing, name
        missing = [pattern for pattern in target.tests if not [*(ROOT / "tests").glob(pattern)]]
        assert not missing, name
