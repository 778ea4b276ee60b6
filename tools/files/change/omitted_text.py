"""Finds placeholders for omitted text, such as `// ... existing code ...`. Writing one would delete that text.

A placeholder line has only comment marks, dots or brackets around words that are typical of placeholders. Real files
contain a few similar lines. An ambiguous line therefore counts only if it is not next to other comments, and if it
would take the place of old lines.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate

from tools.contract.tool_errors import InvalidToolParamsError

MAX_OMISSION_CHARS = 120  # longer lines are not examined
MAX_UNKNOWN_WORDS = 3  # maximum number of unlisted words in a placeholder, such as the name of an omitted function
_MAX_WORDS = 12
_MORE_GONE = 2  # ambiguous lines count if the edit removes this many times as many lines as it adds
_LINE = re.compile(
    r"""([\W_]*) ((?:[^\W_](?:[\w\ ,./'`\u2019\u2026()\[\]:-]*[^\W_])?)?) ([\W_]*)""",
    re.VERBOSE,
)
_COMMENT = re.compile(r"//|\#|--|;|%|\*|[{(]?/?\*|\{[/\#-]|<!--|<%|@\*|\{\{!")
# Words that begin a comment, as in `REM ...`; dots after them belong to the placeholder
_COMMENT_WORD = re.compile(r"(?:rem|dnl|c|\#\w+)\s+(?=\W*(?:\.\.|\u2026|\w+ of\b))", re.IGNORECASE)
_DOTS = re.compile(r"(?<!\.)\.{2,5}(?![./])|[\u2026\u22ef]")
_AROUND = " \t._\u2026\u22ef"  # characters allowed between brackets and words
_BRACKETS = frozenset(("()", "[]", "<>", "{}", "\u00ab\u00bb"))
_MARKDOWN = ".md", ".mdx", ".markdown"
_HEADING = re.compile(r"#+ [^.\u2026\u22ef\[(<{]+")
_ONLY_DOTS = frozenset(("...", "\u2026", "[\u2026]", "(\u2026)"))
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_SIGN_WORDS = """
existing rest remaining remainder unchanged same previous prior keep kept omitted unmodified elided truncated
snip snipped abbreviated untouched identical
"""
# Words that are the subject or the predicate of a sentence in a placeholder
_SUBJECT_WORDS = "existing rest remaining remainder other others else everything previous prior lines"
_PREDICATE_WORDS = "unchanged same omitted unmodified elided untouched identical intact remain remains stay stays"
# Other words that occur in placeholders
_OTHER_WORDS = """
above all already and any are as at be been before below block blocks body brevity but by changes class classes code
component components config configuration constructor content contents continue continues css current declarations
definition definitions document earlier element else end etc everything exactly exports field fields file files footer
for from function functions go goes handlers has have header helper helpers here html implementation implementations
import imports in intact into is it javascript js json jsx left line lines listing logic lower main markup method
methods model module more nav no not of on original other others our out page parameters part parts properties props
remain remained remains render route routes rows rule rules script section sections settings setup shown source space
state statements stay stays still stuff styles table tags template test tests text that the there these things this
those to type types unaltered unedited up upper variables was way we were with without you your
"""
_SIGNS = frozenset(_SIGN_WORDS.split())
_SUBJECTS = frozenset(_SUBJECT_WORDS.split())
_PREDICATES = frozenset(_PREDICATE_WORDS.split())
_WORDS = _SIGNS.union(_OTHER_WORDS.split())
# Every placeholder, converted to lower case, contains one of these; most other lines contain none
_HINTS = "..", "\u2026", "\u22ef", *_SIGN_WORDS.split()


def first_omission(new: str, old: str | None, known: str | None = None, *, path: str = "") -> str | None:
    """Return the first line that is a placeholder for old lines that the new text lacks.

    Args:
        new: The text to be written.
        old: The text that it replaces, or `None` if the old text must not influence the result.
        known: Text whose lines are never reported; by default, `old`.
        path: The path of the file. In Markdown, `#` begins a heading.
    """
    lowered = new.lower()
    hints = [hint for hint in _HINTS if hint in lowered]
    if not hints:
        return None
    lowered_lines, whole = lowered.splitlines(), new.splitlines()
    lines = [line.strip() for line in whole]
    found: dict[int, bool] = {}  # the number of each placeholder line, and whether it is unambiguous
    for number in sorted({at for hint in hints for at, line in enumerate(lowered_lines) if hint in line}):
        is_sure = _is_sure(whole[number])
        if is_sure is None or (path.lower().endswith(_MARKDOWN) and _HEADING.fullmatch(lines[number])):
            continue
        around = [whole[at] for at in (number - 1, number + 1) if 0 <= at < len(whole)]
        if is_sure or not any(_COMMENT.match(other.lstrip()) and _is_sure(other) is None for other in around):
            found[number] = is_sure
    if not found or old is None:
        return lines[min(found)] if found else None
    before = _stripped(old)
    held = set(before if known is None else _stripped(known))
    gone = len({*before} - {*lines, ""})
    most_goes = gone >= _MORE_GONE * len({*lines} - {"", *map(lines.__getitem__, found)})
    counts, new_counts = Counter(before), Counter(lines)
    places = {line: at for at, line in enumerate(before) if line and counts[line] == new_counts[line] == 1}
    texts = [0, *accumulate(line != "" for line in before)]  # number of non-blank lines before each position
    # `last` is the position in `before` of the last common line. Since that line, `came` counts the non-blank new
    # lines, and `waiting` has the ambiguous ones.
    last, came, waiting = -1, 0, list[str]()
    for number, line in enumerate([*lines, None]):
        at = len(before) if line is None else places.get(line)
        if at is not None:
            went = texts[at] - texts[last + 1] if at > last else texts[-1]
            if waiting and gone and went > _MORE_GONE * came:
                return waiting[0]
            last, came, waiting = at, 0, []
            continue
        came += line != ""
        if line is not None and number in found and line not in held:
            if gone and (found[number] or most_goes):
                return line
            waiting.append(line)
    return None


def placeholder_error(tool: str, line: str, advice: str) -> InvalidToolParamsError:
    """Return the error for a line that `first_omission` found. `line` may say which parameter it is in."""
    problem = f"the line {line} is a placeholder for omitted text; writing it would delete that text. {advice}"
    return InvalidToolParamsError(tool, problem)


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _is_sure(line: str) -> bool | None:
    """Return True for a certain placeholder, False for a possible one, and `None` for other lines."""
    if line.rstrip() in _ONLY_DOTS:
        return False
    line = line.strip()
    if not line or len(line) > MAX_OMISSION_CHARS:
        return None
    mark = _COMMENT_WORD.match(line)
    parts = _LINE.fullmatch(line, mark.end() if mark else 0)
    if parts is None:
        return None
    left, right = parts[1], parts[3]
    words = [word.lower() for word in _WORD.findall(parts[2])]
    is_comment = mark is not None or _COMMENT.match(left) is not None
    dots = _DOTS.search(left) is not None, _DOTS.search(right) is not None
    if not words:
        return False if is_comment and dots[0] else None
    unknown = sum(not (word in _WORDS or word.isdecimal()) for word in words)
    if len(words) > _MAX_WORDS or unknown > MAX_UNKNOWN_WORDS:
        return None
    # In code, dots directly before a name are a spread operator.
    is_marked = any(dots) and (is_comment or not left.endswith("..."))
    is_bracketed = left.rstrip(_AROUND)[-1:] + right.lstrip(_AROUND)[:1] in _BRACKETS
    if _SIGNS.isdisjoint(words):
        return False if is_comment and any(dots) and (all(dots) or not unknown) else None
    is_told = not (_SUBJECTS.isdisjoint(words) or _PREDICATES.isdisjoint(words)) and (
        mark is not None or left.strip() not in "-*+>"
    )
    if is_comment and not unknown and (is_marked or is_bracketed or is_told):
        return True
    if (is_marked and (is_comment or all(dots) or not unknown)) or is_told or (is_bracketed and not unknown):
        return False if len(words) > 1 or is_comment else None
    is_label = not left[-1:].isspace() or left[0] == "*" or right[:1] == ":"
    return False if is_comment and not unknown and len(words) > 1 and not is_label else None
