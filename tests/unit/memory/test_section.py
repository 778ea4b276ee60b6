"""The section of a memory file: how a fact becomes an entry, and where the entry is inserted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.tables import each_of
from tools.memory.memory_entries import entries_in, entry_of, similar_entry, with_entry
from tools.memory.memory_files import MemoryFiles

HEADINGS = MemoryFiles().headings
DEFAULT, QWEN, GEMINI = HEADINGS


@pytest.mark.requirement("memory.entry")
@each_of(
    ("fact", "entry"),
    [
        ("Tests run with make test.", "- Tests run with make test."),
        ("  --- - Tabs, not blanks ", "- Tabs, not blanks"),
        ("one\n## Other\r\n- two\u2028three\x85four\x00five\tsix", "- one ## Other - two three four five six"),
        ("# Title", "- \\# Title"),
        ("> quoted", "- \\> quoted"),
        ("* * *", "- \\* * *"),
        ("+ plus", "- \\+ plus"),
        ("**bold** stays", "- **bold** stays"),
        ("1. first", "- 1\\. first"),
        ("2026) was", "- 2026\\) was"),
        ("3.11 is the oldest Python", "- 3.11 is the oldest Python"),
        ("```sh", "- \\```sh"),
        ("[//]: # (unseen)", "- \\[//]: # (unseen)"),
        ("a <!-- b --> c", "- a &lt;!-- b --> c"),
        ("List<String> stays", "- List<String> stays"),
        ("@/etc/passwd and @./x, a@b.org", "- \\@/etc/passwd and \\@./x, a@b.org"),
        ("left\u202eright\U000e0041tag\ud800", "- left right tag"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "- \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("-- \n\t-", ""),
    ],
)
def test_a_fact_becomes_one_entry_whatever_it_contains(fact: str, entry: str) -> None:
    assert entry_of(fact) == entry


@pytest.mark.requirement("memory.entry")
@examples(100)
@given(st.text(alphabet=st.sampled_from("a1 \n\r\t-#>*+`~.)(<!?@[]:\\\u2028\u202e\x00é")), st.sampled_from(["", "x\n"]))
def test_no_fact_adds_more_than_one_line_or_is_kept_twice(fact: str, before: str) -> None:
    entry = entry_of(fact)
    if not entry:
        return
    text = with_entry(before, entry, HEADINGS)
    assert len(text.splitlines()) == len(before.splitlines()) + (3 if before else 2)
    for entry_text in (entry, entry_of(entry)):
        assert set(entries_in(entry_text)) <= set(entries_in(text))
    assert "<!" not in text
    assert "<?" not in text


@pytest.mark.requirement("memory.insert")
@each_of(
    ("before", "after"),
    [
        ("", f"{DEFAULT}\n- new\n"),
        ("text", f"text\n\n{DEFAULT}\n- new\n"),
        ("text\n", f"text\n\n{DEFAULT}\n- new\n"),
        ("text\n\n", f"text\n\n{DEFAULT}\n- new\n"),
        ("text\n  ", f"text\n  \n{DEFAULT}\n- new\n"),
        ("a\r\nb\r\n", f"a\r\nb\r\n\r\n{DEFAULT}\r\n- new\r\n"),
        ("a\rb\r", f"a\rb\r\r{DEFAULT}\r- new\r"),
        (f"{DEFAULT}\n- old\n", f"{DEFAULT}\n- old\n- new\n"),
        (f"{DEFAULT}\n- old", f"{DEFAULT}\n- old\n- new\n"),
        (f"{DEFAULT}", f"{DEFAULT}\n- new\n"),
        (f"{DEFAULT}\n\n- old\n\n\n", f"{DEFAULT}\n\n- old\n- new\n\n\n"),
        (f"{DEFAULT}\n- old\n\n## Next\nx\n", f"{DEFAULT}\n- old\n- new\n\n## Next\nx\n"),
        (f"{DEFAULT}\n- old\n### Below\n- y\n# Next", f"{DEFAULT}\n- old\n### Below\n- y\n- new\n\n# Next"),
        (f"{DEFAULT}\r\n## Next\r\n", f"{DEFAULT}\r\n- new\r\n\r\n## Next\r\n"),
        (f"{QWEN}\n- old\n", f"{QWEN}\n- old\n- new\n"),
        (f"{GEMINI}  \n- old\n\n## Z\n", f"{GEMINI}  \n- old\n- new\n\n## Z\n"),
        (f"{QWEN}\n- old\n\n{DEFAULT}\n", f"{QWEN}\n- old\n\n{DEFAULT}\n- new\n"),
        (f"See {DEFAULT} below.\n", f"See {DEFAULT} below.\n\n{DEFAULT}\n- new\n"),
        (f"```\n{DEFAULT}\n- old\n```\n", f"```\n{DEFAULT}\n- old\n```\n\n{DEFAULT}\n- new\n"),
        (f"{DEFAULT}\n~~~~\n# x\n~~~\n~~~~\n# y\n", f"{DEFAULT}\n~~~~\n# x\n~~~\n~~~~\n- new\n\n# y\n"),
        (f"{DEFAULT}\n- old\n```\n# x\n", f"{DEFAULT}\n- old\n- new\n\n```\n# x\n"),
        (f"```sh\n{DEFAULT}\n", f"{DEFAULT}\n- new\n\n```sh\n{DEFAULT}\n"),
        (f"{DEFAULT}\n- old\n<!--\n# x\n", f"{DEFAULT}\n- old\n- new\n\n<!--\n# x\n"),
        (f"<!-- a\n{DEFAULT}\n- old\n-->\n", f"<!-- a\n{DEFAULT}\n- old\n-->\n\n{DEFAULT}\n- new\n"),
        (f"<!-- a -->\n{DEFAULT}\n- old\n", f"<!-- a -->\n{DEFAULT}\n- old\n- new\n"),
    ],
)
def test_an_entry_goes_to_the_end_of_its_section_and_nothing_else_changes(before: str, after: str) -> None:
    assert with_entry(before, "- new", HEADINGS) == after


@pytest.mark.requirement("memory.insert")
def test_further_entries_before_an_unclosed_code_block_add_no_blank_lines() -> None:
    text = with_entry(f"{DEFAULT}\n- old\n```\n# x\n", "- new", HEADINGS)
    assert with_entry(text, "- newer", HEADINGS) == f"{DEFAULT}\n- old\n- new\n- newer\n\n```\n# x\n"


@pytest.mark.requirement("memory.insert")
@examples(100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", " ", "x", "- old", "## Next", "# Top", "### Low", DEFAULT, QWEN]),
            st.sampled_from(["\n", "\r\n", "\r"]),
        )
    ),
    st.sampled_from(["", "x", "- old", DEFAULT]),
)
def test_the_old_text_stays_character_by_character(lines: list[tuple[str, str]], last: str) -> None:
    old_text = "".join(body + ending for body, ending in lines) + last
    new_text = with_entry(old_text, "- new entry", HEADINGS)
    growth = len(new_text) - len(old_text)
    places = [
        place
        for place in range(len(old_text) + 1)
        if old_text[:place] + new_text[place : place + growth] + old_text[place:] == new_text
    ]
    assert places
    assert "- new entry" in new_text.splitlines()


@pytest.mark.requirement("memory.insert")
def test_a_section_that_the_settings_name_counts_before_the_known_ones() -> None:
    headings = MemoryFiles(section="Facts").headings
    assert with_entry("", "- new", headings) == "## Facts\n- new\n"
    assert with_entry(f"{QWEN}\n", "- new", headings) == f"{QWEN}\n- new\n"
    assert with_entry(f"{QWEN}\n## Facts\n", "- new", headings) == f"{QWEN}\n## Facts\n- new\n"


@pytest.mark.requirement("memory.similar")
@each_of(
    ("old_entry", "new_entry", "is_similar"),
    [
        ("use tabs.", "Use tabs", True),
        ("Use **tabs**", "use tabs in Go", True),
        ("Use tabs in Go, spaces elsewhere", "Use tabs in Go", True),
        ("Use tabs", "Use spaces", False),
        ("...", "Use tabs", False),
    ],
)
def test_a_similar_entry_is_found(old_entry: str, new_entry: str, is_similar: bool) -> None:
    assert similar_entry(["other", old_entry], new_entry) == (old_entry if is_similar else None)


@pytest.mark.requirement("memory.insert")
@pytest.mark.parametrize(
    ("text", "has_entry"),
    [
        ("- use @angular and <!x>\n", True),
        ("* use  \\@angular and &lt;!x>\n", True),
        ("text\n\n  - use @angular and <!x>", True),
        ("use @angular and <!x>\n", False),
        ("- use @angular and <!x> too\n", False),
        ("", False),
    ],
)
def test_an_entry_is_recognised_however_it_is_escaped(text: str, has_entry: bool) -> None:
    assert (entries_in(entry_of("use @angular and <!x>"))[0] in entries_in(text)) is has_entry
