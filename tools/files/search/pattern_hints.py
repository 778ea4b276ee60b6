"""Gives hints about patterns that found nothing or were rejected because they use another program's syntax."""

from __future__ import annotations

import re

_ELEMENT = re.compile(r"\\.|[^\\]", re.DOTALL)
_ACROSS_LINES = re.compile(r"\(\?[a-z]*s[a-z]*[):]|\[\\s\\S\]|\[\\S\\s\]")
_BASIC = re.compile(r"\\\{\d*,?\d*\\\}|^\\\(.*\\\)$")  # repetitions and groups of basic regular expressions
_SLASHES = re.compile(r"/.+/[a-z]*")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_CODE = re.compile(r"\w[(\[{]|\(\)|\[\]|\$\w|\?\.|\+\+|\*\w")  # code with characters that are special in a pattern
_SYNTAX = re.compile(r"\\.|\.[*+]|\w\|\w|^\^|\$$")


def pattern_hint(pattern: str, *, fixed: bool) -> str:
    """Return a hint about characters of a pattern that have a different meaning here. Usually empty."""
    if fixed:
        return (
            "With fixed_strings every character is literal; omit it for a regular expression."
            if _SYNTAX.search(pattern)
            else ""
        )
    elements = frozenset(_ELEMENT.findall(pattern))
    if not elements.isdisjoint(("\\n", "\\r")) or _ACROSS_LINES.search(pattern):
        return (
            "Files are searched line by line, so no pattern matches a line break. Search for one of the lines, with "
            "context to see the others."
        )
    if _LOOK_AROUND.search(pattern):
        return "Search without look-around; exclude_pattern can leave out lines."
    if not elements.isdisjoint(("\\|", "\\+")) or _BASIC.search(pattern):
        return (
            "A backslash makes a character literal here. Write alternatives as 'a|b', repetitions as 'a+' or 'a{2}', "
            "and groups as '(a)', without a backslash."
        )
    if _SLASHES.fullmatch(pattern):
        return "Slashes around a pattern are part of it; omit them if they are only delimiters."
    if _CODE.search(pattern):
        return (
            "Brackets, braces, '$', '*', '+' and '?' have a special meaning; put a backslash before one, or set "
            "fixed_strings to search for literal text."
        )
    return ""
