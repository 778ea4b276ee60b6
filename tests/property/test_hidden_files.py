"""The one scan before a command finds the same hidden files as checking every file by itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from tools.contract.command_views import ViewKind
from tools.files.ignore_files import agent_ignore_file
from tools.files.workspace import Workspace, is_inside
from tools.permissions.hidden_files import HiddenFile, HiddenFileScanner, LiftedLimits, restrictions
from tools.permissions.permission_rules import Rule, Rules, parse_rule
from tools.permissions.verdict import Verdict

NAMES = ["a", "b", "ab", "x.key", ".env", "conf", "B", "*", "a b", "\u00e9", "!y", "#z"]
PATTERNS = st.sampled_from(
    [
        "a", "b/", "a/b", "/a", "./b", "*.key", "**/.env", "**/a/**", "a/**", "conf/*", "conf/*/", "**/conf/b", "[ab]",
        "[!a]*", "?", "*b", "a/*/b", "**", "/**", "a/**/b", "\\*", "!y", "#z", "\u00e9", "a b", "**/b/", "*/a/",
        "conf", "a/b/**", ".e?v", "~/a", "~/conf/**", "~/*/x.key", "~/**/.env", "//b", "a*/**/x.*",
        "*.key/", "**/a", "!*",
    ]
)  # fmt: skip
TREES = st.sets(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=25)
PATTERN_LISTS = st.lists(PATTERNS, max_size=3)
IGNORE_FILES = st.dictionaries(
    st.sampled_from(["", "a", "a/b", "conf"]),
    st.lists(
        st.sampled_from(["a", "b/", "/b", "*.key", "!x.key", "a/b", "a/*", "**", "!/conf", "conf/**"]), max_size=3
    ),
    max_size=2,
)


def rule(text: str, verdict: Verdict, home: str) -> Rule:
    return parse_rule(text, verdict, f"permissions.{verdict}", lambda name: name, home)


def is_in_any(files: tuple[HiddenFile, ...], path: str) -> bool:
    return is_inside(path, [file.path for file in files])


def create_files(top: Path, files: set[str]) -> None:
    for name in sorted(files):
        path = top / name
        if any((top / parent).is_file() for parent in Path(name).parents) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.requirement("hidden.found")
@examples(100)
@given(
    TREES,
    TREES,
    PATTERN_LISTS,
    PATTERN_LISTS,
    PATTERN_LISTS,
    PATTERN_LISTS,
    IGNORE_FILES,
    st.sampled_from(["", "a", "conf"]),
)
@example({"a/b/x.key", "a/b/c"}, {"a"}, ["a/**"], [], [], [], {}, "")
def test_a_scan_finds_every_file_that_rules_or_agent_ignore_files_hide(
    files: set[str],
    outside_files: set[str],
    denied_reads: list[str],
    asked_reads: list[str],
    denied_edits: list[str],
    asked_edits: list[str],
    ignore_files: dict[str, list[str]],
    nested_root: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder_name:
        top = Path(os.path.realpath(folder_name)) / "w"
        root, home = top / "ws", top
        create_files(root, files)
        create_files(
            top,
            {f"home/{name}" for name in outside_files} | {name for name in outside_files if not name.startswith("ws")},
        )
        root.mkdir(exist_ok=True)
        for folder, lines in ignore_files.items():
            if (root / folder).is_dir():
                (root / folder / ".qwenignore").write_text("\n".join(lines))
        roots = [str(root), *([str(root / nested_root)] if nested_root and (root / nested_root).is_dir() else [])]
        workspace = Workspace(roots)
        rules = Rules(
            deny=tuple(
                rule(f"{tool}({pattern})", Verdict.DENY, str(home))
                for tool, patterns in (("Read", denied_reads), ("Edit", denied_edits))
                for pattern in patterns
            ),
            ask=tuple(
                rule(f"{tool}({pattern})", Verdict.ASK, str(home))
                for tool, patterns in (("Read", asked_reads), ("Edit", asked_edits))
                for pattern in patterns
            ),
        )
        scanner = HiddenFileScanner()
        scan = scanner.scan(workspace, rules)
        assert scanner.scan(workspace, rules) == scan

        def fits(path: str, rules: tuple[Rule, ...], tool: str) -> bool:
            return any(path_rule.name == tool and path_rule.fits_path((path,), workspace.roots) for path_rule in rules)

        hidden_roots = [
            path
            for path in workspace.roots
            if fits(path, (*rules.deny, *rules.ask), "Read")
            or agent_ignore_file(workspace, workspace.at(path), own_files=False) is not None
        ]
        assert bool(scan.problem) == bool(hidden_roots) or any(roots[1:]), scan.problem
        if hidden_roots:
            return
        entries = [
            os.path.join(folder, name) for folder, folders, names in os.walk(root) for name in (*folders, *names)
        ]
        view = restrictions(scan, rules, workspace.roots, ViewKind.READING, (), lifted=LiftedLimits(), is_asked=False)
        for path in entries:
            is_denied = fits(path, rules.deny, "Read")
            is_ignored = agent_ignore_file(workspace, workspace.at(path), own_files=False) is not None
            assert is_in_any(scan.denied, path) >= is_denied
            assert is_inside(path, view.masked) >= (is_denied or is_ignored or fits(path, rules.ask, "Read"))
            if not is_denied:
                assert is_in_any((*scan.asked, *scan.denied), path) >= fits(path, rules.ask, "Read")
                assert is_in_any((*scan.protected, *scan.denied), path) >= fits(path, rules.deny, "Edit")
                candidates = (*scan.protected, *scan.protected_unless_asked, *scan.denied)
                assert is_in_any(candidates, path) >= fits(path, rules.ask, "Edit")
                assert is_in_any((*scan.ignored, *scan.denied), path) >= is_ignored
        # Outside the workspace, the scan finds the files that rules for the home folder deny.
        home_rules = tuple(rule for rule in rules.deny if "(~/" in rule.text)
        for folder, folders, names in os.walk(top):
            for path in (os.path.join(folder, name) for name in (*folders, *names)):
                if fits(path, home_rules, "Read"):
                    assert is_in_any(scan.denied, path)
        # The scan finds nothing else, except folders in which everything is hidden.
        for group, group_rules, tool in (
            (scan.denied, rules.deny, "Read"),
            (scan.asked, rules.ask, "Read"),
            (scan.protected, rules.deny, "Edit"),
            (scan.protected_unless_asked, rules.ask, "Edit"),
        ):
            for file in group:
                assert fits(file.path, group_rules, tool) or (
                    file.is_folder and fits(os.path.join(file.path, "any name"), group_rules, tool)
                )
