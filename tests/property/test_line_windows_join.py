"""For any text: the windows of a file, joined, are the whole file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tools.contract.call_options import AbortSignal, Limits
from tools.files.read.line_window import LineRequest, Source, window

LARGE_LIMITS = Limits(read_chars=1_000_000, line_chars=1_000_000)

contents = st.lists(
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n"), max_size=10), max_size=20
).flatmap(lambda lines: st.tuples(st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.just(lines)))


@pytest.mark.requirement("read.window")
@examples(200)
@given(contents, st.integers(1, 5), st.integers(1, 60))
def test_all_pages_joined_are_the_whole_text(content: tuple[str, bool, list[str]], limit: int, read_chars: int) -> None:
    ending, is_closed, lines = content
    text = ending.join(lines) + (ending if is_closed and lines else "")
    source = Source.from_bytes(text.encode())
    limits = Limits(read_chars=read_chars + 12, line_chars=1_000_000)
    pages: list[str] = []
    offset = 0
    while True:
        page = window(source, LineRequest(offset, limit, limits, AbortSignal()))
        assert page.first_truncated is None
        pages.append(page.text + ("" if page.reaches_end else ending))
        offset += page.count
        if page.reaches_end:
            break
    assert "".join(pages) == text
    assert page.total == offset


@pytest.mark.requirement("read.lines")
@examples(150)
@given(contents, st.integers(1, 25))
def test_the_last_lines_are_the_same_counted_from_the_end_and_from_the_start(
    content: tuple[str, bool, list[str]], count: int
) -> None:
    ending, is_closed, lines = content
    source = Source.from_bytes((ending.join(lines) + (ending if is_closed and lines else "")).encode())
    from_end = window(source, LineRequest(-count, 100, LARGE_LIMITS, AbortSignal()))
    total = from_end.total or 0
    from_start = window(source, LineRequest(max(0, total - count), 100, LARGE_LIMITS, AbortSignal()))
    assert from_end == from_start
