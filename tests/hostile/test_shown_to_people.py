"""What a person decides by is what is there: long lines, characters that nobody sees, hosts that look like others."""

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
    """A line in which each part is another one."""
    return "".join(f"{seed}{number:06}" for number in range(length // 7 + 1))[:length]


def edit_question(old: str | None, new: str) -> str:
    """The question before a change."""
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
@pytest.mark.parametrize("length", [2_001, 10_004, 11_990])
def test_a_new_line_of_some_thousand_characters_is_shown_whole(length: int) -> None:
    line = line_of(length, "n")
    for old, new in ((None, line), ("a\nb\nc\n", f"a\nb\n{line}\nc\n"), ("x\n", f"{line}\n")):
        shown = edit_question(old, new)
        assert f"+{line}\n" in shown
        assert "Cut here: it is too long" not in shown


def said_in(shown: str, mark: str) -> tuple[str, int]:
    """What is shown of the only line with a mark, and how many characters it says are not."""
    (line,) = (line[1:] for line in shown.splitlines() if line.startswith(mark) and not line.startswith(mark * 3))
    line, told, length = line.partition(" [a line of ")
    gaps = [int(number.replace(",", "")) for number in re.findall(r"\[\.\.\. ([\d,]+) characters \.\.\.\]", line)]
    text = re.sub(r"\[\.\.\. [\d,]+ characters \.\.\.\]", "", line)
    assert not told or len(text) + sum(gaps) == int(length.split()[0].replace(",", ""))
    return text, sum(gaps)


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("unit", ["var a=1;", "word ", "ab;", "x"])
@pytest.mark.parametrize(
    "places", [(0, 8_000, 16_000), (0, 3, 9_000, 9_300, 16_000), (5_000, 11_000), tuple(range(39))]
)
def test_each_of_several_changes_of_a_long_line_is_shown(unit: str, places: tuple[int, ...]) -> None:
    before = unit * (16_000 // len(unit))
    after = before
    for number, place in reversed([*enumerate(places)]):
        at = place // len(unit) * len(unit) if len(places) < 39 else place * 400 // len(unit) * len(unit)
        after = f"{after[:at]}EVIL{number}();{after[at:]}"
    for old, new, mark in ((before, after, "+"), (after, before, "-")):
        text, gaps = said_in(edit_question(old, new), mark)
        assert all(f"EVIL{number}();" in text for number in range(len(places)))
        assert len(text) + gaps == len(after)


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("length", [20_000, LONG, 200_000, 2_000_000])
@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\r"])
def test_a_new_line_is_shown_by_its_head_and_its_length_however_long_it_is(length: int, ending: str) -> None:
    line = line_of(length, "n")
    for old, new in (
        (None, line + ending),
        ("old\n", f"old\n{line}{ending}"),
        ("a\nb\nc\n", f"a\nb\n{line}\nc\n"),
        ("x\n", f"{'short' * 10}\n" * 20 + line + ending),
    ):
        shown = edit_question(old, new)
        assert line[:200] in shown
        assert re.search(rf"a line of (?:{length:,}|{length + 1:,}) characters", shown)
        assert "Cut here: it is too long" in shown
        assert len(shown) < 40_000


@pytest.mark.requirement("display.question")
@pytest.mark.parametrize("at", [0, 1, 250, 5_000, 19_999, 30_000, LONG - 301, LONG - 2, LONG - 1])
def test_a_change_within_a_long_line_is_shown_with_what_is_around_it(at: int) -> None:
    before = line_of(LONG, "o")
    for inserted, removed in (("<EVIL>", 0), ("<EVIL>", 1), ("<EVIL>" + "e" * 5_000 + "<END>", 3)):
        after = before[:at] + inserted + before[at + removed :]
        for old, new in ((before, after), (f"a\n{before}\nb\n", f"a\n{after}\nb\n")):
            shown = edit_question(old, new)
            assert "<EVIL>" in shown
            assert ("<END>" in shown) is ("<END>" in inserted)
            assert before[max(at - 50, 0) : at] in shown
        backwards = edit_question(after, before)
        assert "<EVIL>" in backwards


@pytest.mark.requirement("display.question")
@given(st.integers(0, 6_000), st.integers(0, 6_000), st.integers(0, 200), st.sampled_from(["", "\n"]))
@examples(60)
def test_what_is_shown_of_a_long_line_is_in_it_and_in_order(length: int, at: int, added: int, ending: str) -> None:
    before = line_of(length, "o")
    after = before[:at] + "+" * added + before[at:]
    for mark, whole in (("-", before), ("+", after)):
        for line in unified_diff(before + ending, after + ending).hunks.split("\n"):
            if line.startswith(mark):
                text = re.sub(r" \[a line of [\d,]+ characters, shown in part\]$", "", line[1:])
                parts = re.split(r"\[\.\.\. ([\d,]+) characters \.\.\.\]", text)
                lengths = [
                    len(part) if number % 2 == 0 else int(part.replace(",", "")) for number, part in enumerate(parts)
                ]
                assert sum(lengths) == len(whole)
                for number, part in enumerate(parts[::2]):
                    start = sum(lengths[: number * 2])
                    assert whole[start : start + len(part)] == part


@pytest.mark.requirement("display.question")
def test_short_lines_are_shown_as_they_are() -> None:
    line = line_of(2_000, "n")
    diff = unified_diff("a\n", f"a\n{line}\n")
    assert f"+{line}\n" in diff.hunks
    assert not diff.truncated


@pytest.mark.requirement("display.question")
def test_a_long_line_of_arguments_or_of_a_plan_is_shown_by_its_head() -> None:
    line = line_of(LONG, "n")
    for details in (
        McpConfirmation(title="t", server_name="up", tool_name="x", arguments={"a": 1, "text": line}),
        PlanConfirmation(title="t", plan=f"# Plan\n\n{line}\n"),
        InfoConfirmation(title="t", prompt=f"one\n{line}"),
    ):
        shown = render_question(Question("Do it", details, "f"))
        assert line[:1_000] in shown
        assert "[a line of 40,0" in shown
        assert "Cut here: it is too long" in shown
        assert len(shown.encode()) < 33_000
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
WITH_A_SHAPE = {*range(0x600, 0x606), 0x6DD, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Of format, but written: signs of Arabic and Kaithi."""


def unseen() -> Iterator[str]:
    """Every character without a shape that all see, by its properties."""
    yield from DEFAULT_IGNORABLE
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        is_unseen = kind in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and code not in {9, 10, *WITH_A_SHAPE}
        if is_unseen or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
            yield chr(code)


class Endless(list[int]):
    """A list that goes on for ever."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


@pytest.mark.requirement("questions.bounded")
def test_no_more_of_the_arguments_is_rendered_than_a_question_could_show() -> None:
    def shown(arguments: Mapping[str, Any]) -> str:
        asked = McpConfirmation(title="t", server_name="up", tool_name="x", arguments=arguments)
        return render_question(Question("Count", asked, "f"))

    assert CUT_HERE in shown({"numbers": Endless([1])})
    assert "[a line of more than 399," in shown({"text": "x" * 1_000_000})


@pytest.mark.requirement("display.visible")
def test_every_character_that_is_not_seen_is_marked() -> None:
    raw = [f"U+{ord(character):04X}" for character in unseen() if character in visible(f"a{character}b")]
    assert raw == []


@pytest.mark.requirement("display.visible")
@each_of("before", ["a", "-", " ", "1", "é", "字", "あ", ")", "\ufe0f", "✅\ufe0f", "\n", ""])
def test_the_emoji_selector_is_marked_where_it_makes_no_emoji(before: str) -> None:
    assert visible(f"{before}\ufe0fb").endswith("<U+FE0F>b")


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
def test_no_question_shows_them_raw(character: str) -> None:
    text = f"a{character}b"
    for details in (
        ExecConfirmation(title=text, command=text, directory=text, description=text),
        McpConfirmation(title=text, server_name=text, tool_name=text, arguments={text: [text]}),
        InfoConfirmation(title=text, prompt=text),
        EditConfirmation(title=text, file_path=text, file_diff=f"+{text}", added=1, removed=0, state="s"),
    ):
        shown = render_question(Question(text, details, "f"))
        assert character not in shown
        assert f"<U+{ord(character):04X}>" in shown


@pytest.mark.requirement("display.question")
@each_of("gap", [" ", "\t", "\n", "\u3000", " \n", "\n \t"])
def test_nothing_is_cut_off_because_of_a_gap_however_long(gap: str) -> None:
    details = InfoConfirmation(title="t", prompt=f"before{gap * 700_000}after")
    arguments = {"a": [" " * 300_000, "\u3000" * 300_000], "b": "after"}
    for each in (details, McpConfirmation(title="t", server_name="up", tool_name="x", arguments=arguments)):
        shown = render_question(Question("d", each, "f"))
        assert "after" in shown
        assert "Cut here" not in shown
        assert len(shown) < 1_000


SEEMING = ["bank.example", "bank.example:443", "me:word", "https%3A%2F%2Fbank.example", "a@bank.example", "x" * 500]


@pytest.mark.requirement("display.true_host")
@each_of("seeming", SEEMING)
@each_of("scheme", ["https", "http", "HTTPS"])
@each_of("rest", ["", "/", "/a@b", "?x=@y", ":8443/p", "#bank.example", "\\@bank.example"])
def test_the_true_host_of_a_url_with_a_name_before_it_is_told_in_every_question(
    seeming: str, scheme: str, rest: str
) -> None:
    url = f"{scheme}://{seeming}@evil.example{rest}"
    told = "leads to the host evil.example."
    for details in (
        ExecConfirmation(title="t", command=f"curl '{url}'", directory="/w"),
        McpConfirmation(title="t", server_name="up", tool_name="x", arguments={"go": [url]}),
        InfoConfirmation(title="t", prompt=url),
        PlanConfirmation(title="t", plan=f"Open <{url}>, please."),
    ):
        assert told in render_question(Question("Do it", details, "f"))
    params: Any = {"mode": "url", "url": url, "message": "Sign in", "elicitationId": "1"}
    assert told in labelled("up", "elicitation/create", params)["message"]
    form: Any = {"message": f"Open {url} first", "requestedSchema": {"type": "object", "properties": {}}}
    assert told in labelled("up", "elicitation/create", form)["message"]


BEGINNINGS = [
    *(f"{scheme}:{slashes}" for scheme in ("http", "HTTPS") for slashes in ("", "/", "///", "\\", "\\\\", "/\\")),
    *(f"{scheme}://" for scheme in ("ftp", "ws", "wss", "ssh", "sftp", "git", "git+https", "smb", "myapp")),
    *("//", "\\\\", "/\\"),
]


@pytest.mark.requirement("display.true_host")
@each_of("beginning", BEGINNINGS)
@each_of("seam", ["@", "'@", '"@"', "''@", "\\@", "<@", ":443@", "x" * 3_000 + "@", "`'@"])
def test_a_host_behind_another_one_is_told_however_the_url_is_written(beginning: str, seam: str) -> None:
    for before in ("", "see ", "(", '{"url":"', "x="):
        told = true_hosts(f"{before}{beginning}bank.example{seam}evil.example/path")
        assert any(note.endswith("to the host evil.example.") for note in told), before


@pytest.mark.requirement("display.true_host")
@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("b\u0430nk.example", "xn--bnk-6cd.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
    ],
)
def test_a_host_in_other_letters_is_told_in_those_of_ascii(host: str, plain: str) -> None:
    assert true_hosts(f"see https://{host}/x") == [f"Note: the host {host} in a link is {plain}."]
    assert plain in true_hosts(f"see https://me@{host}/x")[0]


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
def test_nothing_is_told_of_urls_that_lead_where_they_seem_to(text: str) -> None:
    assert true_hosts(text) == []


@pytest.mark.requirement("display.true_host")
def test_what_is_told_of_very_many_or_very_long_hosts_is_short() -> None:
    many = " ".join(f"https://a{number}@b{number}.example" for number in range(10_000))
    assert len("\n".join(true_hosts(many))) < 1_000
    for long in (
        "https://" + "é" * 100_000,
        "https://" + "a@" * 100_000,
        "https://a@" + "b" * 100_000,
        "http://" * 50_000,
        "http:" * 50_000,
        "http:@" * 50_000,
        "//a.b@" * 50_000,
    ):
        assert len("\n".join(true_hosts(long))) < 2_000
