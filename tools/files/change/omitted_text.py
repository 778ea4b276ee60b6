"""Finds placeholders for omitted text, such as `// ... existing code ...`.

Writing a placeholder would delete the omitted text. A placeholder line has only comment marks, dots or brackets around
words that are typical of placeholders. A few lines of real files look like placeholders. An ambiguous line therefore
counts only if it is not next to other comments, and if it would take the place of old lines.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate

from tools.contract.tool_errors import InvalidToolParamsError

MAX_OMISSION_CHARS = 120  # longer lines are not examined
MAX_UNKNOWN_WORDS = 3  # maximum number of unlisted words in a placeholder, such as the name of an omitted function
_MAX_WORDS = 12
# An ambiguous line is a placeholder if at least this many old lines are removed per other new line, or if more than
# this many are replaced per new line between two common lines
_REMOVAL_RATIO = 2
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


def first_omission(new: str, old: str | None, exempt_text: str | None = None, *, path: str = "") -> str | None:
    """Return the first line that is a placeholder for old lines that the new text lacks.

    `old` is `None` if the old text must not influence the result. Lines of `exempt_text` (by default, `old`) are never
    reported, and neither are Markdown headings if `path` is that of a Markdown file.
    """
    lower_text = new.lower()
    hints = [hint for hint in _HINTS if hint in lower_text]
    if not hints:
        return None
    lower_lines, raw_lines = lower_text.splitlines(), new.splitlines()
    lines = [line.strip() for line in raw_lines]
    placeholders: dict[int, bool] = {}  # for the index of each placeholder line, whether it is unambiguous
    for number in sorted({at for hint in hints for at, line in enumerate(lower_lines) if hint in line}):
        is_sure = _is_sure(raw_lines[number])
        if is_sure is None or (path.lower().endswith(_MARKDOWN) and _HEADING.fullmatch(lines[number])):
            continue
        neighbours = [raw_lines[at] for at in (number - 1, number + 1) if 0 <= at < len(raw_lines)]
        if is_sure or not any(
            _COMMENT.match(neighbour.lstrip()) and _is_sure(neighbour) is None for neighbour in neighbours
        ):
            placeholders[number] = is_sure
    if not placeholders or old is None:
        return lines[min(placeholders)] if placeholders else None
    old_lines = _strip_lines(old)
    exempt_lines = set(old_lines if exempt_text is None else _strip_lines(exempt_text))
    removals = len({*old_lines} - {*lines, ""})
    removes_most = removals >= _REMOVAL_RATIO * len({*lines} - {"", *map(lines.__getitem__, placeholders)})
    counts, new_counts = Counter(old_lines), Counter(lines)
    places = {line: at for at, line in enumerate(old_lines) if line and counts[line] == new_counts[line] == 1}
    line_counts = [0, *accumulate(line != "" for line in old_lines)]  # number of non-blank lines before each position
    # `last` is the position in `old_lines` of the last common line. `new_count` counts the non-blank new lines since
    # that line, and `pending` contains the ambiguous placeholders among them.
    last, new_count, pending = -1, 0, list[str]()
    for number, line in enumerate([*lines, None]):
        at = len(old_lines) if line is None else places.get(line)
        if at is not None:
            old_count = line_counts[at] - line_counts[last + 1] if at > last else line_counts[-1]
            if pending and removals and old_count > _REMOVAL_RATIO * new_count:
                return pending[0]
            last, new_count, pending = at, 0, []
            continue
        new_count += line != ""
        if line is not None and number in placeholders and line not in exempt_lines:
            if removals and (placeholders[number] or removes_most):
                return line
            pending.append(line)
    return None


def placeholder_error(tool: str, line: str, advice: str) -> InvalidToolParamsError:
    """Return the error for a placeholder. `line` is the quoted line, with or without the name of its parameter."""
    problem = f"the line {line} is a placeholder for omitted text; writing it would delete that text. {advice}"
    return InvalidToolParamsError(tool, problem)


def _strip_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _is_sure(line: str) -> bool | None:
    """Return True for a definite placeholder, False for a possible one, and `None` for other lines."""
    if line.rstrip() in _ONLY_DOTS:
        return False
    line = line.strip()
    if not line or len(line) > MAX_OMISSION_CHARS:
        return None
    mark = _COMMENT_WORD.match(line)
    parts = _LINE.fullmatch(line, mark.end() if mark else 0)
    if parts is None:
        return None
    prefix, suffix = parts[1], parts[3]
    words = [word.lower() for word in _WORD.findall(parts[2])]
    is_comment = mark is not None or _COMMENT.match(prefix) is not None
    dots = _DOTS.search(prefix) is not None, _DOTS.search(suffix) is not None
    if not words:
        return False if is_comment and dots[0] else None
    unknown = sum(not (word in _WORDS or word.isdecimal()) for word in words)
    if len(words) > _MAX_WORDS or unknown > MAX_UNKNOWN_WORDS:
        return None
    # In code, dots directly before a name are a spread operator.
    is_marked = any(dots) and (is_comment or not prefix.endswith("..."))
    is_bracketed = prefix.rstrip(_AROUND)[-1:] + suffix.lstrip(_AROUND)[:1] in _BRACKETS
    if _SIGNS.isdisjoint(words):
        return False if is_comment and any(dots) and (all(dots) or not unknown) else None
    is_sentence = not (_SUBJECTS.isdisjoint(words) or _PREDICATES.isdisjoint(words)) and (
        mark is not None or prefix.strip() not in "-*+>"
    )
    if is_comment and not unknown and (is_marked or is_bracketed or is_sentence):
        return True
    if (is_marked and (is_comment or all(dots) or not unknown)) or is_sentence or (is_bracketed and not unknown):
        return False if len(words) > 1 or is_comment else None
    is_label = not prefix[-1:].isspace() or prefix[0] == "*" or suffix[:1] == ":"
    return False if is_comment and not unknown and len(words) > 1 and not is_label else None
