"""Finds an edit's `old_string` in a file. Deterministic strategies are tried in a fixed order.

The first strategy with a match decides, and only its matches count. Later strategies ignore greater differences, and
from the third strategy on, a match must be unique. Nothing is guessed by similarity.

Large text is searched in pieces, so that other work can run and a call can be cancelled. Strategies that need an object
per line are skipped for very large text (`Haystack.too_large_for_relaxed`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

from tools.files.text_encodings import UTF_8, Encoding, LineEndings, to_lf
from tools.machine.unlocked_cached_property import cached_property
from tools.text.look_alikes import fold

BLANKS = " \t"  # the white space to ignore; other space characters count as look-alikes
# Limit on the number of matches; this many take about 50 MB and one second
MAX_MATCHES = 200_000
PIECE_CHARS = 1 << 16  # characters searched per step; in repetitive text, a step takes a few milliseconds
# Longer text is not compared line by line, because copies of this many characters take up to 100 MB
MAX_RELAXED_CHARS = 8_000_000
# Text with more lines is not compared line by line; this many take about 50 MB and half a second
MAX_RELAXED_LINES = 300_000
# In GB18030, Shift JIS and Big5, ASCII bytes in this range may be later bytes of a character (0x30 to 0x39 only in
# GB18030's characters of four bytes)
_FIRST_TRAIL, _LAST_TRAIL = "\x30", "\x7e"


class Strategy(StrEnum):
    EXACT = "exact"
    LINE_ENDINGS = "line_endings"
    FINAL_NEWLINE = "final_newline"
    LOOK_ALIKES = "look_alikes"
    TRAILING_WHITESPACE = "trailing_whitespace"
    LOOK_ALIKES_AND_TRAILING_WHITESPACE = "look_alikes_and_trailing_whitespace"
    INDENTATION = "indentation"

    @property
    def is_relaxed(self) -> bool:
        """True if the strategy ignores more than the form of line endings, so that a match must be unique."""
        return self not in {Strategy.EXACT, Strategy.LINE_ENDINGS}

    @property
    def differences(self) -> str:
        """What the strategy ignores, in words."""
        return self.value.replace("look_alikes", "look-alike characters").replace("_", " ")


@dataclass(frozen=True, slots=True)
class Span:
    """The characters `start:end` of the searched text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextMatch:
    """All matches of one strategy, in order and without overlaps."""

    strategy: Strategy
    spans: tuple[Span, ...]  # positions in the raw text; empty only if all matches were skipped
    skipped: int = 0  # matches dropped because they may begin inside a character (unknown encodings)


def no_checkpoint() -> None:
    """Do nothing. Serves as the checkpoint for work that cannot be cancelled."""


@dataclass(eq=False, repr=False)
class Haystack:
    """A file's text, and other forms of it that are created on demand.

    If the encoding is unknown, the text has one character per byte, and only ASCII is reliable. Every search calls the
    checkpoint between its steps. The checkpoint can raise an exception to stop the search.
    """

    text: str
    encoding: Encoding = UTF_8
    checkpoint: Callable[[], None] = no_checkpoint
    # Positions are usually requested in order, so counting continues from the previous position.
    _mapped: tuple[int, int] = field(default=(0, 0), init=False)
    _numbered: tuple[int, int] = field(default=(0, 1), init=False)

    @cached_property
    def has_returns(self) -> bool:
        return "\r" in self.text

    @cached_property
    def endings(self) -> LineEndings:
        lf = crlf = cr = 0
        for start, end in self._pieces(0, len(self.text)):
            pairs = self.text.count("\r\n", start, end) if self.has_returns else 0
            crlf += pairs
            lf += self.text.count("\n", start, end) - pairs
            cr += self.text.count("\r", start, end) - pairs if self.has_returns else 0
        return LineEndings(lf, crlf, cr)

    @cached_property
    def too_large_for_relaxed(self) -> bool:
        """True if the text is too large for the strategies after `FINAL_NEWLINE`."""
        endings = self.endings
        return len(self.text) > MAX_RELAXED_CHARS or endings.lf + endings.crlf + endings.cr > MAX_RELAXED_LINES

    @cached_property
    def lf_text(self) -> str:
        if not self.has_returns:
            return self.text
        return "".join([to_lf(self.text[start:end]) for start, end in self._pieces(0, len(self.text))])

    @cached_property
    def line_starts(self) -> array[int]:
        """The start of each line in `lf_text`. Must not be used if `too_large_for_relaxed` is true."""
        return array("Q", accumulate((len(line) + 1 for line in self.lf_text.split("\n")), initial=0))

    def raw(self, position: int) -> int:
        """Convert a position in `lf_text` to the corresponding position in `text`."""
        if not self.has_returns:
            return position
        lf_position, raw_position = self._mapped if self._mapped[0] <= position else (0, 0)
        while lf_position < position:
            self.checkpoint()
            start = raw_position
            raw_position = _not_within_ending(self.text, raw_position + min(position - lf_position, PIECE_CHARS))
            lf_position += raw_position - start - self.text.count("\r\n", start, raw_position)
        self._mapped = lf_position, raw_position
        return raw_position

    def line_number(self, position: int) -> int:
        """Return the line number of a position in the text, from 1. A line ending belongs to the line that it ends."""
        if self.text[max(0, position - 1) : position + 1] == "\r\n":
            position -= 1
        last_position, line = self._numbered if self._numbered[0] <= position else (0, 1)
        for start, end in self._pieces(last_position, position):
            line += self.text.count("\n", start, end)
            if self.has_returns:
                line += self.text.count("\r", start, end) - self.text.count("\r\n", start, end)
        self._numbered = position, line
        return line

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield a range of the text in pieces, none of which ends within a CRLF."""
        while start < stop:
            self.checkpoint()
            end = min(_not_within_ending(self.text, start + PIECE_CHARS), stop)
            yield start, end
            start = end


def find_match(haystack: Haystack, old: str) -> TextMatch | None:
    """Return the matches of the first strategy that has any. `old` must not be empty."""
    haystack.checkpoint()
    for strategy, spans in _searches(haystack, old):
        if spans:
            text, safe_spans = haystack.text, spans
            if not haystack.encoding.is_known:
                # A match after a non-ASCII byte may begin with a later byte of a character.
                safe_spans = [
                    span
                    for span in spans
                    if span.start == 0
                    or text[span.start - 1].isascii()
                    or not _FIRST_TRAIL <= text[span.start] <= _LAST_TRAIL
                ]
            return TextMatch(strategy, tuple(safe_spans), len(spans) - len(safe_spans))
        haystack.checkpoint()
    return None


def _searches(haystack: Haystack, old: str) -> Iterator[tuple[Strategy, list[Span]]]:
    """Yield each strategy's matches, in the fixed order. Each search runs only when its result is requested."""
    text, old_lf = haystack.text, to_lf(old)
    exact_spans = _occurrences(haystack, text, old)
    # A match must not begin or end within a CRLF.
    edges = ((span, text[span.start - 1 : span.start + 1], text[span.end - 1 : span.end + 1]) for span in exact_spans)
    yield Strategy.EXACT, [span for span, start, end in edges if "\r\n" not in (start, end)]

    if not haystack.has_returns:
        yield Strategy.LINE_ENDINGS, _occurrences(haystack, text, old_lf) if "\r" in old else []
    elif haystack.endings.style == "crlf":
        yield Strategy.LINE_ENDINGS, _occurrences(haystack, text, old_lf.replace("\n", "\r\n"))
    else:
        yield Strategy.LINE_ENDINGS, _occurrences_in_lf(haystack, haystack.lf_text, old_lf)

    # If the file lacks only the final line ending of `old`, match at the end of the file.
    core = old_lf.removesuffix("\n")
    if core and core != old_lf:
        # In the file, `core` may have CRLF line endings, which make it at most twice as long.
        tail = Haystack(text[-2 * len(core) :], checkpoint=haystack.checkpoint)
        if tail.lf_text.endswith(core):
            start = len(text) - len(tail.text) + tail.raw(len(tail.lf_text) - len(core))
            yield Strategy.FINAL_NEWLINE, [Span(start, len(text))]

    # The remaining strategies need copies of the whole text, or all its lines.
    if haystack.too_large_for_relaxed or is_too_large_for_relaxed(old):
        return
    may_look_alike = haystack.encoding.is_known and not (old.isascii() and text.isascii())
    if may_look_alike:
        yield Strategy.LOOK_ALIKES, _occurrences_in_lf(haystack, fold(haystack.lf_text), fold(old_lf))
    yield Strategy.TRAILING_WHITESPACE, _line_windows(haystack, old_lf, str.rstrip)
    if may_look_alike:
        yield Strategy.LOOK_ALIKES_AND_TRAILING_WHITESPACE, _line_windows(haystack, old_lf, str.rstrip, fold)
    windows = _line_windows(haystack, old_lf, str.strip)
    nested_alike = [span for span in windows if indentation_map(old_lf, text[span.start : span.end]) is not None]
    yield Strategy.INDENTATION, nested_alike


def is_too_large_for_relaxed(old: str) -> bool:
    """Return True if `old` is too large to be compared line by line in any file."""
    return len(old) > MAX_RELAXED_CHARS or old.count("\n") + old.count("\r") > 2 * MAX_RELAXED_LINES


def indentation_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(BLANKS))]


def indentation_map(old: str, raw: str) -> dict[str, str] | None:
    """Map each indentation in `old` to that of the corresponding line in `raw`, which has as many lines.

    Return `None` if an indentation in `old` has two counterparts, because the texts are then nested differently.
    """
    mapping: dict[str, str] = {}
    for old_line, raw_line in zip(to_lf(old).split("\n"), to_lf(raw).split("\n"), strict=True):
        if old_line.strip(BLANKS):
            indentation = indentation_of(raw_line)
            if mapping.setdefault(indentation_of(old_line), indentation) != indentation:
                return None
    return mapping


def find_text(text: str, needle: str, start: int = 0, checkpoint: Callable[[], None] = no_checkpoint) -> int:
    """Like `text.find`, but with a checkpoint before each piece, so that other work can run during a long search."""
    # A step must be at least as long as `needle`, so that the time is linear.
    step = max(PIECE_CHARS, len(needle))
    while start <= len(text) - len(needle):
        checkpoint()
        index = text.find(needle, start, start + step + len(needle))
        if index >= 0:
            return index
        start += step
    return -1


def _occurrences(haystack: Haystack, text: str, needle: str) -> list[Span]:
    spans: list[Span] = []
    position = find_text(text, needle, 0, haystack.checkpoint)
    while position >= 0 and len(spans) <= MAX_MATCHES:
        spans.append(Span(position, position + len(needle)))
        position = find_text(text, needle, position + len(needle), haystack.checkpoint)
    return spans


def _occurrences_in_lf(haystack: Haystack, lf_text: str, needle: str) -> list[Span]:
    spans = _occurrences(haystack, lf_text, needle)
    return [Span(haystack.raw(span.start), haystack.raw(span.end)) for span in spans]


def _not_within_ending(text: str, position: int) -> int:
    """Return `position`, or the next position if `position` is within a CRLF."""
    return position + 1 if text[position - 1 : position + 1] == "\r\n" else position


def _line_windows(
    haystack: Haystack, old: str, strip: Callable[[str, str], str], form: Callable[[str], str] = str
) -> list[Span]:
    """Find runs of whole lines that equal the lines of `old`, after `form` and `strip` have removed differences.

    A single search in the joined lines, instead of a comparison per window, keeps the time linear.
    """
    text, old = (
        "\n".join(strip(line, BLANKS) for line in form(string).split("\n")) for string in (haystack.lf_text, old)
    )
    ends_after_ending = old.endswith("\n")
    core = old.removesuffix("\n")
    if not core.strip("\n"):
        return []
    count = core.count("\n") + 1
    spans: list[Span] = []
    framed_text, framed_core = f"\n{text}\n", f"\n{core}\n"
    line = count_start = 0
    starts = haystack.line_starts
    position = find_text(framed_text, framed_core, 0, haystack.checkpoint)
    while position >= 0 and len(spans) <= MAX_MATCHES:
        line += framed_text.count("\n", count_start, position)
        count_start = position
        next_line = line + count
        if not ends_after_ending or next_line < len(starts) - 1:
            # Without its line ending, the match ends one character before the next line.
            end = starts[next_line] - (not ends_after_ending)
            spans.append(Span(haystack.raw(starts[line]), haystack.raw(end)))
        position = find_text(framed_text, framed_core, position + len(framed_core) - 1, haystack.checkpoint)
    return spans
