"""Lines that stand for text that a model left out, such as `// ... existing code ...`: written, they would delete it.

Such a line is nothing but comment marks, dots or brackets around words that people use for this. Real files hold a
few of them. So one that only may be meant so counts if it stands apart from other comments and most of the old text
would go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_OMISSION_CHARS = 120  # of a line that is looked at
MAX_UNKNOWN_WORDS = 3  # behind dots, such as the name of what is left out
_MAX_WORDS = 10
_LINE = re.compile(r"""([\W_]*) ((?:[^\W_](?:[\w\ ,./'\u2019\u2026()\[\]:-]*[^\W_])?)?) ([\W_]*)""", re.VERBOSE)
_EDGE = re.compile(r"[\s.\u2026/*#;%!<>(){}\[\]~=@|:,_\u2013\u2014-]*")
_COMMENT = re.compile(r"//|\#|--|;|%|\*|[{(]?/?\*|\{[/\#-]|<!--|<%|@\*|\{\{!")
_DOTS = re.compile(r"(?<!\.)\.{3,4}(?!\.)|\u2026")
_ONLY_DOTS = frozenset(("...", "\u2026", "[\u2026]", "(\u2026)"))
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_SIGN_WORDS = """
existing rest remaining remainder unchanged same previous prior keep kept omitted unmodified elided truncated
snip snipped abbreviated untouched
"""
# What else such lines consist of
_OTHER_WORDS = """
above all already and any are as at be been before below block blocks body brevity but by class classes code
component components config configuration constructor content contents continue continues css current data
declarations definition definitions document earlier element elements else end entries etc everything exactly
exports field fields file files footer for from function functions go goes handlers has have header helper helpers
here html implementation implementations import imports in intact into is it items javascript js json jsx left
length line lines list listing lists logic lower main markup method methods model module more nav no not of on
options original other others our out page parameters part parts properties props remain remained remains render
route routes rows rule rules script section sections settings setup shown source space state statements stay stays
still stuff styles table tags template test tests text that the there these things this those to type types
unaltered unedited up upper value values variables was way we were with without you your
"""
_SIGNS = frozenset(_SIGN_WORDS.split())
_WORDS = _SIGNS.union(_OTHER_WORDS.split())


def first_omission(new: str, old: str | None, known: str | None = None) -> str | None:
    """The first line of a text that stands for lines of the old one which the new one does not have.

    Args:
        new: The text to be written.
        old: The text in whose place it comes; `None` where it must not matter what that is.
        known: A text whose lines may be repeated, by default the old one.
    """
    found = list(_omissions(new.splitlines()))
    if not found:
        return None
    if old is None:
        return found[0][0]
    held = _distinct(old if known is None else known)
    lines = _distinct(new)
    gone = len(_distinct(old) - lines)
    needed = 2 * len(lines.difference(line for line, _ in found))
    return next((line for line, is_sure in found if line not in held and gone and (is_sure or gone >= needed)), None)


def _distinct(text: str) -> set[str]:
    """The lines of a text, blank ones left out."""
    return {line.strip() for line in text.splitlines()} - {""}


def _omissions(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each line that stands for others, and whether it can mean nothing else."""
    for number, line in enumerate(lines):
        is_sure = _is_sure(line)
        if is_sure is None:
            continue
        around = [lines[at] for at in (number - 1, number + 1) if 0 <= at < len(lines)]
        if is_sure or not any(_COMMENT.match(other.lstrip()) and _is_sure(other) is None for other in around):
            yield line.strip(), is_sure


def _is_sure(line: str) -> bool | None:
    """Whether a line can only be an omission, or may be one; `None` if it is none."""
    if line.rstrip() in _ONLY_DOTS:
        return False
    line = line.strip()
    if not line or len(line) > MAX_OMISSION_CHARS:
        return None
    parts = _LINE.fullmatch(line)
    if parts is None or not (_EDGE.fullmatch(parts[1]) and _EDGE.fullmatch(parts[3])):
        return None
    left, right = parts[1], parts[3]
    words = [word.lower() for word in _WORD.findall(parts[2])]
    is_comment = _COMMENT.match(left) is not None
    is_led_by_dots = _DOTS.search(left) is not None
    has_dots = is_led_by_dots or _DOTS.search(right) is not None
    is_bracketed = ("(" in left and ")" in right) or ("[" in left and "]" in right)
    if not words:
        return False if is_comment and has_dots else None
    unknown = sum(not (word in _WORDS or word.isdecimal()) for word in words)
    if len(words) > _MAX_WORDS or unknown > (MAX_UNKNOWN_WORDS if is_comment and is_led_by_dots else 0):
        return None
    if _SIGNS.isdisjoint(words):
        return False if is_comment and has_dots and not unknown else None
    if is_comment and (has_dots or is_bracketed):
        return not unknown
    if is_comment:
        return False if left[-1].isspace() and left[0] != "*" and right[:1] != ":" else None
    # Code spreads values by dots that a name follows at once.
    is_apart = has_dots and not left.endswith("...")
    return False if len(words) > 1 and (is_apart or is_bracketed) else None
