"""Glob patterns match the same paths as a naive matcher that tries every possibility."""

from __future__ import annotations

import fnmatch
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.contract.call_options import AbortSignal, Deadline
from tools.files.find.folder_walk import Filters, Walk
from tools.files.find.glob_search import compile_patterns
from tools.files.workspace import Workspace

NAMES = ["a", "b", "ab", "A", "a.py", "b.ts", "[a]", "(g)", "a{b}", ".h", "x y"]
SEGMENTS = ["a", "b", "*", "**", "?", "*.py", "[ab]", "[!a]", "a*", "*b*", ".h", "(g)", "?b", "*.*", "[a]", "x y", "B"]

PATTERNS = st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=4)
PATHS = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), max_size=12)


def matches_naively(segments: list[str], parts: list[str], *, ignore_case: bool) -> bool:
    """Try every way to match. The last part of the path is a file."""
    if not segments:
        return not parts
    segment, *other_segments = segments
    if segment == "**":
        if not other_segments:
            return bool(parts)
        return matches_naively(other_segments, parts, ignore_case=ignore_case) or (
            len(parts) > 1 and matches_naively(segments, parts[1:], ignore_case=ignore_case)
        )
    if not parts:
        return False
    name, pattern = (parts[0].lower(), segment.lower()) if ignore_case else (parts[0], segment)
    is_match = name == pattern or fnmatch.fnmatchcase(name, pattern)
    return is_match and matches_naively(other_segments, parts[1:], ignore_case=ignore_case)


@pytest.mark.requirement("glob.patterns")
@examples(200, database=None)
@given(segments=PATTERNS, paths=PATHS, ignore_case=st.booleans())
def test_a_path_matches_if_and_only_if_the_naive_matcher_matches_it(
    segments: list[str], paths: list[str], ignore_case: bool
) -> None:
    pattern = compile_patterns(["/".join(segments)], ignore_case=ignore_case)
    for path in paths:
        assert pattern.matches(path) == matches_naively(segments, path.split("/"), ignore_case=ignore_case), path


@pytest.mark.requirement("glob.patterns")
@examples(40, database=None)
@given(first_segments=PATTERNS, second_segments=PATTERNS, paths=PATHS, ignore_case=st.booleans())
def test_a_pruned_walk_misses_nothing(
    first_segments: list[str], second_segments: list[str], paths: list[str], ignore_case: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for path in paths:
            target = root / path
            if any(parent.is_file() for parent in target.parents if parent != root) or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("")
        files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        pattern = compile_patterns(
            [f"{{{'/'.join(first_segments)},{'/'.join(second_segments)}}}"], ignore_case=ignore_case
        )
        walk = Walk(Workspace([str(root)]), Filters(), Deadline(AbortSignal(), 60))
        position = pattern.start
        walked_files = {item.path for item in walk.files(walk.workspace.locate("."), position)}
        assert walked_files == {
            path
            for path in files
            if any(
                matches_naively(segments, path.split("/"), ignore_case=ignore_case)
                for segments in (first_segments, second_segments)
            )
        }
