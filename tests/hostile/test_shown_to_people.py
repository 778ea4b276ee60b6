"""Questions show people what is really there: long lines, invisible characters, hosts that look like others."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.upstreams.session.upstream_questions import labelled
from tests.examples import examples
from tests.tables import each_of
from tools.contract.confirmation import (
    EditConfirmation,
    ExecConfirmation,
    InfoConfirmation,
    McpConfirmation,
    PlanConfirmation,
    Question,
)
from tools.contract.display import CUT_HERE, cut_at_line, display_block, render_question, true_hosts, visible
from tools.contract.tool_results import FileDiff
from tools.files.change.diff import unified_diff

LONG = 40_000


def line_of(length: int, seed: str) -> str:
    """Return a line in which no part repeats."""
    return "".join(f"{seed}{number:06}" for number in range(length // 7 + 1))[:length]


def edit_question(old: str | None, new: str) -> str:
    """Return the text of the question about a change."""
    diff = unified_diff(old, new)
    text = diff.text("f", ("Current", "Proposed"))
    details = EditConfirmation(
        title="t",
        file_path="/w/f",
        file_diff=text,
        added=diff.added,
        removed=diff.removed,
        state="s",
        truncated=diff.truncated,
    )
    return render_question(Question("Edit f", details, "f"))


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("length", [2_001, 10_004, 23_990])
def test_a_new_line_of_a_few_thousand_characters_is_shown_in_full(length: int) -> None:
    line = line_of(length, "n")
    for old, new in ((None, line), ("a\nb\nc\n", f"a\nb\n{line}\nc\n"), ("x\n", f"{line}\n")):
        text = edit_question(old, new)
        assert f"+{line}\n" in text
        assert "Cut here: it is too long" not in text


def shown_line(text: str, mark: str) -> tuple[str, int]:
    """Return the shown text of the only line with a mark, and the number of characters that it says are left out."""
    (line,) = (line[1:] for line in text.splitlines() if line.startswith(mark) and not line.startswith(mark * 3))
    line, note, length = line.partition(" [a line of ")
    gaps = [int(number.replace(",", "")) for number in re.findall(r"\[\.\.\. ([\d,]+) characters \.\.\.\]", line)]
    parts_shown = re.sub(r"\[\.\.\. [\d,]+ characters \.\.\.\]", "", line)
    assert not note or len(parts_shown) + sum(gaps) == int(length.split()[0].replace(",", ""))
    return parts_shown, sum(gaps)


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("unit", ["var a=1;", "word ", "ab;", "x"])
@pytest.mark.parametrize(
    "places", [(0, 8_000, 16_000), (0, 3, 9_000, 9_300, 16_000), (5_000, 11_000), tuple(range(39))]
)
def test_each_of_several_changes_of_a_long_line_is_shown(unit: str, places: tuple[int, ...]) -> None:
    old_line = unit * (16_000 // len(unit))
    new_line = old_line
    for number, place in reversed([*enumerate(places)]):
        at = place // len(unit) * len(unit) if len(places) < 39 else place * 400 // len(unit) * len(unit)
        new_line = f"{new_line[:at]}EVIL{number}();{new_line[at:]}"
    for old, new, mark in ((old_line, new_line, "+"), (new_line, old_line, "-")):
        text, gaps = shown_line(edit_question(old, new), mark)
        assert all(f"EVIL{number}();" in text for number in range(len(places)))
        assert len(text) + gaps == len(new_line)


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("length", [30_000, LONG, 200_000, 2_000_000])
@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\r"])
def test_of_a_very_long_new_line_the_beginning_and_the_length_are_shown(length: int, ending: str) -> None:
    line = line_of(length, "n")
    for old, new in (
        (None, line + ending),
        ("old\n", f"old\n{line}{ending}"),
        ("a\nb\nc\n", f"a\nb\n{line}\nc\n"),
        ("x\n", f"{'short' * 10}\n" * 20 + line + ending),
    ):
        text = edit_question(old, new)
        assert line[:200] in text
        assert re.search(rf"a line of (?:{length:,}|{length + 1:,}) characters", text)
        assert "Cut here: it is too long" in text
        assert len(text) < 40_000


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("at", [0, 1, 250, 5_000, 19_999, 30_000, LONG - 301, LONG - 2, LONG - 1])
def test_a_change_within_a_long_line_is_shown_with_its_surroundings(at: int) -> None:
    old_line = line_of(LONG, "o")
    for insertion, removal_length in (("<EVIL>", 0), ("<EVIL>", 1), ("<EVIL>" + "e" * 5_000 + "<END>", 3)):
        new_line = old_line[:at] + insertion + old_line[at + removal_length :]
        for old, new in ((old_line, new_line), (f"a\n{old_line}\nb\n", f"a\n{new_line}\nb\n")):
            text = edit_question(old, new)
            assert "<EVIL>" in text
            assert ("<END>" in text) is ("<END>" in insertion)
            assert old_line[max(at - 50, 0) : at] in text
        reverse_text = edit_question(new_line, old_line)
        assert "<EVIL>" in reverse_text


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize(
    ("first", "last"), [("", ""), ("x\n", ""), ("x\n" * 5, "y\n"), (f"{line_of(LONG, 'p')}\n", "")]
)
def test_a_change_of_a_long_line_is_shown_where_other_lines_are_new_too(first: str, last: str) -> None:
    old_line = line_of(3_800_000, "o")
    change = f"{line_of(9_000, 'a')}<EVIL>{line_of(9_000, 'b')}"
    for removal_length in (0, 5_000):
        at = len(old_line) // 2
        new_line = old_line[:at] + change + old_line[at + removal_length :]
        (changed_line,) = (
            line for line in unified_diff(old_line, f"{first}{new_line}\n{last}").hunks.split("\n") if "<EVIL>" in line
        )
        assert change in changed_line


@pytest.mark.requirement("display.question")
@given(st.integers(0, 6_000), st.integers(0, 6_000), st.integers(0, 200), st.sampled_from(["", "\n"]))
@examples(60)
def test_the_shown_parts_of_a_long_line_are_parts_of_it_and_in_order(
    length: int, at: int, insertion_length: int, ending: str
) -> None:
    old_line = line_of(length, "o")
    new_line = old_line[:at] + "+" * insertion_length + old_line[at:]
    for mark, full_line in (("-", old_line), ("+", new_line)):
        for line in unified_diff(old_line + ending, new_line + ending).hunks.split("\n"):
            if line.startswith(mark):
                text = re.sub(r" \[a line of [\d,]+ characters, shown in part\]$", "", line[1:])
                parts = re.split(r"\[\.\.\. ([\d,]+) characters \.\.\.\]", text)
                lengths = [
                    len(part) if number % 2 == 0 else int(part.replace(",", "")) for number, part in enumerate(parts)
                ]
                assert sum(lengths) == len(full_line)
                for number, part in enumerate(parts[::2]):
                    start = sum(lengths[: number * 2])
                    assert full_line[start : start + len(part)] == part


@pytest.mark.requirement("display.question")
def test_short_lines_are_shown_as_they_are() -> None:
    line = line_of(2_000, "n")
    diff = unified_diff("a\n", f"a\n{line}\n")
    assert f"+{line}\n" in diff.hunks
    assert not diff.truncated


@pytest.mark.requirement("display.question")
def test_of_a_long_line_of_arguments_or_of_a_plan_the_beginning_is_shown() -> None:
    line = line_of(LONG, "n")
    for details in (
        McpConfirmation(title="t", server_name="up", tool_name="x", arguments={"a": 1, "text": line}),
        PlanConfirmation(title="t", plan=f"# Plan\n\n{line}\n"),
        InfoConfirmation(title="t", prompt=f"one\n{line}"),
    ):
        question_text = render_question(Question("Do it", details, "f"))
        assert line[:1_000] in question_text
        assert "[a line of 40,0" in question_text
        assert "Cut here: it is too long" in question_text
        assert len(question_text.encode()) < 33_000
    text, is_cut = cut_at_line(f"a\n{'é' * 3_000}\nb", 1_000)
    assert (len(text.encode()) <= 1_000, is_cut) == (True, True)
    block = display_block(FileDiff("f", unified_diff("", f"{line}\n" * 3).text("f", ("a", "b")), 3, 0))
    assert block is not None
    assert line[:200] in block
    assert len(block.encode()) <= 4_096


DEFAULT_IGNORABLE = [
    *(
        "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200b\u200d\u202e\u2060\u206f\u3164\ufe00\ufe0e\ufeff"
    ),
    *("\uffa0\ufff0\ufff8\U0001bca0\U0001d173\U000e0000\U000e0001\U000e0041\U000e0100\U000e01ef\U000e0fff"),
]
VISIBLE_FORMAT_CHARACTERS = {*range(0x600, 0x606), 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Format characters that are visible: Arabic and Kaithi signs."""


def invisible_characters() -> Iterator[str]:
    """Yield every invisible character, by its Unicode properties."""
    yield from DEFAULT_IGNORABLE
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        is_invisible = kind in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and code not in {9, 10, *VISIBLE_FORMAT_CHARACTERS}
        if is_invisible or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
            yield chr(code)


class Endless(list[int]):
    """A list that never ends."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


@pytest.mark.requirement("questions.bounded")
def test_no_more_of_the_arguments_is_rendered_than_a_question_could_show() -> None:
    def render(arguments: Mapping[str, Any]) -> str:
        details = McpConfirmation(title="t", server_name="up", tool_name="x", arguments=arguments)
        return render_question(Question("Count", details, "f"))

    assert CUT_HERE in render({"numbers": Endless([1])})
    assert "[a line of more than 399," in render({"text": "x" * 1_000_000})


@pytest.mark.requirement("display.visible")
def test_every_invisible_character_is_marked() -> None:
    raw = [f"U+{ord(character):04X}" for character in invisible_characters() if character in visible(f"a{character}b")]
    assert raw == []


@pytest.mark.requirement("display.visible")
@each_of("character", ["a", "-", " ", "1", "é", "字", "あ", ")", "\ufe0f", "✅\ufe0f", "\n", ""])
def test_the_emoji_selector_is_marked_unless_it_makes_an_emoji(character: str) -> None:
    assert visible(f"{character}\ufe0fb").endswith("<U+FE0F>b")


@pytest.mark.requirement("display.visible")
@each_of(
    "text",
    [
        "✅\ufe0f done",
        "❤\ufe0f",
        "⚠\ufe0f x",
        "1\ufe0f\u20e3",
        "©\ufe0f",
        "🛠\ufe0f",
        "日本語",
        "Ω é ß",
        "עברית العربية",
        "a\u3000b",
    ],
)
def test_ordinary_writing_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.requirement("display.visible")
@each_of("character", ["\ufe0f", "\ue000", "\U000f0000", "\ufff1", "\U0010ffff"])
def test_no_question_shows_invisible_characters_unmarked(character: str) -> None:
    text = f"a{character}b"
    for details in (
        ExecConfirmation(title=text, command=text, directory=text, description=text),
        McpConfirmation(title=text, server_name=text, tool_name=text, arguments={text: [text]}),
        InfoConfirmation(title=text, prompt=text),
        EditConfirmation(title=text, file_path=text, file_diff=f"+{text}", added=1, removed=0, state="s"),
    ):
        question_text = render_question(Question(text, details, "f"))
        assert character not in question_text
        assert f"<U+{ord(character):04X}>" in question_text


@pytest.mark.requirement("display.question")
@each_of("gap", [" ", "\t", "\n", "\u3000", " \n", "\n \t"])
def test_a_long_gap_causes_no_cut(gap: str) -> None:
    details = InfoConfirmation(title="t", prompt=f"before{gap * 700_000}after")
    arguments = {"a": [" " * 300_000, "\u3000" * 300_000], "b": "after"}
    for confirmation in (details, McpConfirmation(title="t", server_name="up", tool_name="x", arguments=arguments)):
        text = render_question(Question("d", confirmation, "f"))
        assert "after" in text
        assert "Cut here" not in text
        assert len(text) < 1_000


APPARENT_HOSTS = [
    "bank.example",
    "bank.example:443",
    "me:word",
    "https%3A%2F%2Fbank.example",
    "a@bank.example",
    "x" * 500,
]


@pytest.mark.requirement("display.true_host")
@each_of("apparent_host", APPARENT_HOSTS)
@each_of("scheme", ["https", "http", "HTTPS"])
@each_of("url_end", ["", "/", "/a@b", "?x=@y", ":8443/p", "#bank.example", "\\@bank.example"])
def test_every_question_names_the_true_host_of_a_url_with_a_user_name(
    apparent_host: str, scheme: str, url_end: str
) -> None:
    url = f"{scheme}://{apparent_host}@evil.example{url_end}"
    note = "leads to the host evil.example."
    for details in (
        ExecConfirmation(title="t", command=f"curl '{url}'", directory="/w"),
        McpConfirmation(title="t", server_name="up", tool_name="x", arguments={"go": [url]}),
        InfoConfirmation(title="t", prompt=url),
        PlanConfirmation(title="t", plan=f"Open <{url}>, please."),
    ):
        assert note in render_question(Question("Do it", details, "f"))
    params: Any = {"mode": "url", "url": url, "message": "Sign in", "elicitationId": "1"}
    assert note in labelled("up", "elicitation/create", params)["message"]
    form: Any = {"message": f"Open {url} first", "requestedSchema": {"type": "object", "properties": {}}}
    assert note in labelled("up", "elicitation/create", form)["message"]


BEGINNINGS = [
    *(f"{scheme}:{slashes}" for scheme in ("http", "HTTPS") for slashes in ("", "/", "///", "\\", "\\\\", "/\\")),
    *(f"{scheme}://" for scheme in ("ftp", "ws", "wss", "ssh", "sftp", "git", "git+https", "smb", "myapp")),
    *("//", "\\\\", "/\\"),
]


@pytest.mark.requirement("display.true_host")
@each_of("beginning", BEGINNINGS)
@each_of("seam", ["@", "'@", '"@"', "''@", "\\@", "<@", ":443@", "x" * 3_000 + "@", "`'@"])
def test_a_host_after_an_apparent_host_is_named_in_any_form_of_url(beginning: str, seam: str) -> None:
    for prefix in ("", "see ", "(", '{"url":"', "x="):
        notes = true_hosts(f"{prefix}{beginning}bank.example{seam}evil.example/path")
        assert any(note.endswith("to the host evil.example.") for note in notes), prefix


@pytest.mark.requirement("display.true_host")
@pytest.mark.parametrize(
    ("host", "ascii_host"),
    [
        ("b\u0430nk.example", "xn--bnk-6cd.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
    ],
)
def test_a_host_in_other_letters_is_shown_in_ascii_too(host: str, ascii_host: str) -> None:
    assert true_hosts(f"see https://{host}/x") == [f"Note: the host {host} in a link is {ascii_host}."]
    assert ascii_host in true_hosts(f"see https://me@{host}/x")[0]


@pytest.mark.requirement("display.true_host")
def test_a_host_that_is_not_a_valid_name_is_described_as_such() -> None:
    host = "\u0378b.example"
    assert true_hosts(f"https://{host}/x") == [f"Note: the host {host} in a link is not a valid name."]
    note = "Note: the link with bank.example leads to an invalid host name."
    assert true_hosts(f"https://bank.example@{host}/x") == [note]


@pytest.mark.requirement("display.true_host")
@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/@user?mail=a@b.example",
        "git clone git@host.example:x/y; ssh://git@host.example/x",
        "mail me@host.example or http://[::1]:80/@x",
        "npm i @scope/name https://registry.example/@scope%2fname",
        "https:// nothing @ here",
        "wss://socket.example/me@home.example, ftp://me@files.example, sftp://me@files.example/a.b@c.d",
        "x = a // b.c  # me@host.example",
        "//комментарий @param, // see me@host.example",
        "C:\\\\work\\a@b.c and \\\\server\\share\\a@b.c and src//a/b@c.d",
    ],
)
def test_there_are_no_notes_on_urls_that_lead_where_they_seem_to(text: str) -> None:
    assert true_hosts(text) == []


@pytest.mark.requirement("display.true_host")
def test_the_notes_on_very_many_or_very_long_hosts_are_short() -> None:
    many_urls = " ".join(f"https://a{number}@b{number}.example" for number in range(10_000))
    assert len("\n".join(true_hosts(many_urls))) < 1_000
    for long_url in (
        "https://" + "é" * 100_000,
        "https://" + "a@" * 100_000,
        "https://a@" + "b" * 100_000,
        "http://" * 50_000,
        "http:" * 50_000,
        "http:@" * 50_000,
        "//a.b@" * 50_000,
    ):
        assert len("\n".join(true_hosts(long_url))) < 2_000
