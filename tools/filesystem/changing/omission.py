"""Placeholders that a model writes where it left text out; written to a file they would delete what they stand for."""

from __future__ import annotations

import re

_OMISSION = re.compile(
    r"""[ \t]*
    (?://|\#|--|;|/\*|<!--)?[ \t]*                             # as a comment, or bare
    \(?[ \t]*
    (?:rest[ ]of(?:[ ](?:the[ ])?(?:methods?|code))?|unchanged[ ](?:code|methods?))
    [ \t]*\.\.\.\.*[ \t]*
    \)?[ \t]*(?:\*/|-->)?[ \t]*""",
    re.IGNORECASE | re.VERBOSE,
)
"""A whole line of the form "rest of code ..." (Gemini CLI's phrases)."""

_MAX_LINE = 80


def omissions(text: str) -> list[str]:
    """The lines that stand for text left out."""
    if "..." not in text:
        return []
    lines = (line.strip() for line in text.splitlines() if "..." in line and len(line) <= _MAX_LINE)
    return [line for line in lines if _OMISSION.fullmatch(line)]


def first_new_omission(text: str, known: str) -> str | None:
    """The first such line that is not in the text known before: what a file held already may be repeated."""
    found = omissions(text)
    if not found:
        return None
    held = set(omissions(known))
    return next((line for line in found if line not in held), None)
