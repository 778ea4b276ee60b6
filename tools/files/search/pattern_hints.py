"""What a search makes of a pattern that is written for another one: a hint where it found nothing, or cannot search."""

from __future__ import annotations

import re

_ELEMENT = re.compile(r"\\.|[^\\]", re.DOTALL)
_ACROSS_LINES = re.compile(r"\(\?[a-z]*s[a-z]*[):]|\[\\s\\S\]|\[\\S\\s\]")
_BASIC = re.compile(r"\\\{\d*,?\d*\\\}|^\\\(.*\\\)$")  # repetitions and groups of basic regular expressions
_SLASHES = re.compile(r"/.+/[a-z]*")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_CODE = re.compile(r"\w[(\[{]|\(\)|\[\]|\$\w|\?\.|\+\+|\*\w")  # where signs of a pattern stand in code
_SYNTAX = re.compile(r"\\.|\.[*+]|\w\|\w|^\^|\$$")


def pattern_hint(pattern: str, *, fixed: bool) -> str:
    """A sentence on what of a pattern means something else here than was probably meant; mostly empty."""
    if fixed:
        return (
            "With fixed_strings every character stands for itself; leave it out for a regular expression."
            if _SYNTAX.search(pattern)
            else ""
        )
    elements = frozenset(_ELEMENT.findall(pattern))
    if not elements.isdisjoint(("\\n", "\\r")) or _ACROSS_LINES.search(pattern):
        return (
            "Files are searched line by line, so no pattern finds a line break; search for one of the lines, with "
            "context to see those around it."
        )
    if _LOOK_AROUND.search(pattern):
        return "Search without the look-around; exclude_pattern leaves out lines."
    if not elements.isdisjoint(("\\|", "\\+")) or _BASIC.search(pattern):
        return (
            "A sign behind a backslash stands for itself here: alternatives are written 'a|b', repetitions 'a+' or "
            "'a{2}', groups '(a)', without a backslash."
        )
    if _SLASHES.fullmatch(pattern):
        return "Slashes around a pattern are searched for, too; leave them out if they only mark it."
    if _CODE.search(pattern):
        return (
            "Brackets, braces, '$', '*', '+' and '?' are signs of the pattern, not text; write a backslash before one, "
            "or set fixed_strings to search for literal text."
        )
    return ""
