"""The rules that no linter knows: sizes, names, words, the layout of the project."""

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
"""The modules whose purpose is to print for a person. Everywhere else stdout belongs to the protocol."""

DISK_CALLS = re.compile(
    r"os\.(open|fdopen|stat|lstat|fstat|scandir|listdir|walk|readlink|access|read|write|replace|rename|remove|unlink"
    r"|mkdir|makedirs|rmdir|link|symlink|chmod|chown|utime|truncate"
    r"|path\.(exists|lexists|isfile|isdir|islink|getsize|getmtime|realpath|samefile))"
)
"""What reaches the disk, or a descriptor, past the opener."""

DISK_MODULES = {
    "path_opener.py",
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

EMPTY_CLASSES = re.compile(r"^\s*class \w*(Utils?|Helpers?|Manager|Common)\b", re.MULTILINE)

PRINTING = re.compile(r"(?<![\w.])print\(")

UNFINISHED = re.compile(r"^[^\n\"']*(?:#|<!--).*\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b", re.MULTILINE)
"""Words of work that is left, in a comment."""

GREEDY_GROUP = re.compile(r"(?<!\()\)(?:[*+?]|\{\{?[\d,]+\}?\})\+|[a-zA-Z_]\}\+\+")
"""A group of an expression that is matched possessively."""

MAX_WORDS = 35
HABITS = re.compile(r" \(ours\)|\b(?:of ours|(?:is|are|be) told of|anew|whoever)\b", re.IGNORECASE)
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


def _texts() -> Iterator[tuple[str, str]]:
    """Everything that people read: the code and the papers around it."""
    yield from _sources().items()
    papers = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".ci").iterdir()]
    for path in (*papers, ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.toml")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def _importers(pattern: str) -> list[str]:
    """The files that import a module with such a name, or something of it."""
    imports = re.compile(rf"^\s*(?:from|import) (?:{pattern})\b", re.MULTILINE)
    return [name for name, text in _sources().items() if imports.search(text)]


def _found(pattern: re.Pattern[str], texts: Iterable[tuple[str, str]]) -> list[str]:
    """Each file in which a pattern is found, with what it has found first."""
    return [f"{name}: {match[0]}" for name, text in texts if (match := pattern.search(text))]


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
    begun = re.compile(r'(?:#!.*\n)?r?"""\S')
    deferred = re.compile(r"^from __future__ import annotations$|\A(?:[^\n]|\n(?!import |from ))*\Z", re.MULTILINE)
    lacking = [name for name, text in _sources().items() if not (begun.match(text) and deferred.search(text))]
    assert lacking == ["coretools_mcp.py"], "which older interpreters read, too"


@pytest.mark.requirement("project.form")
def test_names_say_what_a_thing_is() -> None:
    empty = [name for name in _sources() if any(EMPTY_NAMES.search(part) for part in Path(name).with_suffix("").parts)]
    assert empty + _found(EMPTY_CLASSES, _sources().items()) == []


@pytest.mark.requirement("project.stdout")
def test_only_modules_made_for_it_print() -> None:
    shipped = [(name, text) for name, text in _sources().items() if name.startswith(("server/", "tools/"))]
    assert {found.partition(":")[0] for found in _found(PRINTING, shipped)} <= WRITES_TO_STDOUT


@pytest.mark.requirement("project.form")
def test_nothing_is_marked_as_unfinished_or_speaks_of_how_the_work_is_organised() -> None:
    assert _found(UNFINISHED, _texts()) == []
    assert _found(MANAGEMENT, _texts()) == []


@pytest.mark.requirement("project.words")
def test_nobody_writes_in_habits_that_readers_stumble_over() -> None:
    assert HABITS.search("one of ours")
    written = ((name, text) for name, text in _texts() if not name.startswith(("tests/", "bench/")))
    assert _found(HABITS, written) == []


@pytest.mark.requirement("project.words")
def test_no_sentence_of_the_documents_is_longer_than_a_reader_holds() -> None:
    long = [f"{name}: {sentence}" for name, text in _texts() if name.endswith(".md") for sentence in _long_ones(text)]
    assert long == []
    assert [*_long_ones("word " * MAX_WORDS + "word.")]


def _long_ones(page: str) -> Iterator[str]:
    """The sentences with too many words, outside code, tables and headings."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*|] )|\n\d+\. ", re.sub(r"```.*?```", "", page, flags=re.DOTALL)):
        if not paragraph.strip("\n").startswith(("|", "    ", "#")):
            sentences = re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])", " ".join(paragraph.split()))
            yield from (sentence for sentence in sentences if len(sentence.split()) > MAX_WORDS)


@pytest.mark.requirement("project.old-python")
def test_no_group_is_matched_possessively() -> None:
    assert all(GREEDY_GROUP.search(group) for group in (r"(?:a b)*+", "(?:a){{0,4}}+", "{_NAME}++"))
    assert _found(GREEDY_GROUP, ((name, text) for name, text in _sources().items() if name[:6] != "tests/")) == []


@pytest.mark.requirement("project.tests")
def test_nothing_is_mocked() -> None:
    assert _importers("unittest") == []


@pytest.mark.requirement("project.import-rule")
def test_nothing_imports_the_launcher() -> None:
    assert [name for name in _importers("coretools_mcp") if name.startswith(("server/", "tools/"))] == []


@pytest.mark.requirement("project.import-rule")
def test_the_tools_know_neither_the_server_nor_what_serves() -> None:
    serving = _importers("mcp|mcp_types|server|starlette|uvicorn|httpx2")
    assert [name for name in serving if name.startswith("tools/")] == []
    assert serving, "the server does"


@pytest.mark.requirement("project.import-rule")
def test_only_the_doors_of_the_file_layer_touch_the_disk() -> None:
    touching = {
        name.removeprefix("tools/files/")
        for name, text in _sources().items()
        if name.startswith("tools/files/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _is_disk_call(ast.unparse(node.func))
    }
    assert touching == DISK_MODULES


def _is_disk_call(function: str) -> bool:
    return function in {"open", "io.open"} or DISK_CALLS.fullmatch(function) is not None


@pytest.mark.requirement("project.mutation")
def test_what_is_mutated_is_there_and_has_tests() -> None:
    for name, target in TARGETS.items():
        missing = [module for module in target.modules if not (ROOT / module).is_file()]
        assert not missing, name
        missing = [pattern for pattern in target.tests if not [*(ROOT / "tests").glob(pattern)]]
        assert not missing, name
