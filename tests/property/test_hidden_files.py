"""The one look before a command finds what asking about every file finds."""

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
LISTED = st.lists(PATTERNS, max_size=3)
IGNORED = st.dictionaries(
    st.sampled_from(["", "a", "a/b", "conf"]),
    st.lists(
        st.sampled_from(["a", "b/", "/b", "*.key", "!x.key", "a/b", "a/*", "**", "!/conf", "conf/**"]), max_size=3
    ),
    max_size=2,
)


def rule(text: str, verdict: Verdict, home: str) -> Rule:
    return parse_rule(text, verdict, f"permissions.{verdict}", lambda name: name, home)


def in_one(files: tuple[HiddenFile, ...], path: str) -> bool:
    return is_inside(path, [file.path for file in files])


def plant(top: Path, files: set[str]) -> None:
    for name in sorted(files):
        path = top / name
        if any((top / above).is_file() for above in Path(name).parents) or path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.requirement("hidden.found")
@examples(100)
@given(TREES, TREES, LISTED, LISTED, LISTED, LISTED, IGNORED, st.sampled_from(["", "a", "conf"]))
@example({"a/b/x.key", "a/b/c"}, {"a"}, ["a/**"], [], [], [], {}, "")
def test_a_look_finds_what_rules_and_agent_ignore_files_say_of_each_file(
    files: set[str],
    others: set[str],
    denied: list[str],
    asked: list[str],
    kept: list[str],
    kept_unless_asked: list[str],
    ignored: dict[str, list[str]],
    nested: str,
) -> None:
    with tempfile.TemporaryDirectory() as made:
        top = Path(os.path.realpath(made)) / "w"
        root, home = top / "ws", top
        plant(root, files)
        plant(top, {f"home/{name}" for name in others} | {name for name in others if not name.startswith("ws")})
        root.mkdir(exist_ok=True)
        for folder, lines in ignored.items():
            if (root / folder).is_dir():
                (root / folder / ".qwenignore").write_text("\n".join(lines))
        roots = [str(root), *([str(root / nested)] if nested and (root / nested).is_dir() else [])]
        workspace = Workspace(roots)
        rules = Rules(
            deny=tuple(
                rule(f"{tool}({each})", Verdict.DENY, str(home))
                for tool, some in (("Read", denied), ("Edit", kept))
                for each in some
            ),
            ask=tuple(
                rule(f"{tool}({each})", Verdict.ASK, str(home))
                for tool, some in (("Read", asked), ("Edit", kept_unless_asked))
                for each in some
            ),
        )
        scanner = HiddenFileScanner()
        found = scanner.scan(workspace, rules)
        assert scanner.scan(workspace, rules) == found

        def fits(path: str, some: tuple[Rule, ...], tool: str) -> bool:
            return any(each.name == tool and each.fits_path((path,), workspace.roots) for each in some)

        hidden_roots = [each for each in workspace.roots if fits(each, (*rules.deny, *rules.ask), "Read")]
        assert bool(found.problem) == bool(hidden_roots) or any(roots[1:]), found.problem
        if hidden_roots:
            return
        entries = [
            os.path.join(folder, name) for folder, folders, names in os.walk(root) for name in (*folders, *names)
        ]
        view = restrictions(found, rules, workspace.roots, ViewKind.READING, (), lifted=LiftedLimits(), is_asked=False)
        for path in entries:
            is_denied = fits(path, rules.deny, "Read")
            is_ignored = agent_ignore_file(workspace, workspace.at(path), own_files=False) is not None
            assert in_one(found.denied, path) >= is_denied
            assert is_inside(path, view.masked) >= (is_denied or is_ignored or fits(path, rules.ask, "Read"))
            if not is_denied:
                assert in_one((*found.asked, *found.denied), path) >= fits(path, rules.ask, "Read")
                assert in_one((*found.protected, *found.denied), path) >= fits(path, rules.deny, "Edit")
                both = (*found.protected, *found.protected_unless_asked, *found.denied)
                assert in_one(both, path) >= fits(path, rules.ask, "Edit")
                assert in_one((*found.ignored, *found.denied), path) >= is_ignored
        # Of what is outside, what rules about the home name
        of_home = tuple(each for each in rules.deny if "(~/" in each.text)
        for folder, folders, names in os.walk(top):
            for path in (os.path.join(folder, name) for name in (*folders, *names)):
                if fits(path, of_home, "Read"):
                    assert in_one(found.denied, path)
        # And nothing else, but folders in which everything is hidden
        for group, some, tool in (
            (found.denied, rules.deny, "Read"),
            (found.asked, rules.ask, "Read"),
            (found.protected, rules.deny, "Edit"),
            (found.protected_unless_asked, rules.ask, "Edit"),
        ):
            for file in group:
                assert fits(file.path, some, tool) or (
                    file.is_folder and fits(os.path.join(file.path, "any name"), some, tool)
                )
