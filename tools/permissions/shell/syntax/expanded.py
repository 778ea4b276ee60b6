"""What the shell makes of a word where the values of its variables are known: braces, variables, quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from tools.permissions.shell.syntax.words import FOUND, PIECE, Word, read_word

MAX_VARIANTS = 128
"""Readings of one command that are looked at, and values of one variable."""

MAX_CUT = 512
"""Characters of a value of which a beginning or an end is cut off."""

VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(%%?|##?)([^{}'\"\\$`\[]*))?\})", re.ASCII)
_QUOTED = re.compile(f'{VARIABLE.pattern}|\\\\[$`"\\\\\n]', re.ASCII)
_OPEN = re.compile(r"\$(?=[\w{(@*!?$#-])")
_OPEN_BARE = re.compile(r"[=:]~|[()]")
_SPLIT = re.compile(r"\s|[*?\[\\]")
_BRACE_TOKEN = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\$\{[^}]*\}|[{},]|[^'\"\\${},]+|.", re.DOTALL)
_RANGE = re.compile(r"(0|-?[1-9]\d{0,3})\.\.(0|-?[1-9]\d{0,3})", re.ASCII)
WILD = re.compile(r"[*?\[]")


def pieces_of(
    source: str, binding: Mapping[str, str], home: str | None, *, is_value: bool
) -> list[tuple[str, bool]] | None:
    """The text of a word in pieces, each with whether its stars mean something."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    if source.startswith("~"):
        if home is None or source[1:2] not in ("", "/"):
            return None
        pieces.append((home, False))
        position = 1
    while position < len(source):
        piece = PIECE.match(source, position)
        if piece is None:
            return None
        position = piece.end()
        kind, text = piece.lastgroup, piece[0]
        if kind == "bare":
            some = _expanded(text, binding, is_bare=True, is_value=is_value)
        elif kind == "double" and text.startswith('"'):
            some = _expanded(text[1:-1], binding, is_bare=False, is_value=is_value)
        else:
            word = read_word(text)
            some = [(word.text, False)] if word.is_literal else None
        if some is None:
            return None
        pieces += some
    return pieces


def _expanded(body: str, binding: Mapping[str, str], *, is_bare: bool, is_value: bool) -> list[tuple[str, bool]] | None:
    """A piece of a word, which is in double quotes or in none, with its variables replaced."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    for variable in (*(VARIABLE if is_bare else _QUOTED).finditer(body), None):
        text = body[position : variable.start() if variable else len(body)]
        if _OPEN.search(text) or (variable is not None and text.endswith("$")) or (is_bare and _OPEN_BARE.search(text)):
            return None
        pieces.append((text.replace(FOUND, binding.get(FOUND, FOUND)), is_bare))
        if variable is not None:
            is_escape = variable[0].startswith("\\")
            value = variable[0][1:].replace("\n", "") if is_escape else value_of(variable, binding)
            if value is None or (is_bare and not is_value and _SPLIT.search(value)):
                return None
            pieces.append((value, False))
            position = variable.end()
    return pieces


def value_of(variable: re.Match[str], binding: Mapping[str, str]) -> str | None:
    """A variable, with what is cut off it: `${f%.txt}`."""
    text = binding.get(variable[1] or variable[2])
    if text is None or not variable[3]:
        return text
    if len(text) > MAX_CUT:
        return None
    is_end, is_longest = variable[3][0] == "%", len(variable[3]) > 1
    places = range(len(text) + 1)
    # The shortest cut is tried first.
    for at in reversed(places) if is_end != is_longest else places:
        cut, rest = (text[at:], text[:at]) if is_end else (text[:at], text[at:])
        if fnmatchcase(cut, variable[4]):
            return rest
    return text


def braced(source: str) -> list[str] | None:
    """The words that a list in braces stands for; `None` for too many, or a list that is not followed."""
    words, done = [source], 0
    while done < len(words):
        split = _first_braces(words[done])
        if split is None:
            done += 1
        else:
            words[done : done + 1] = split
        if split == [] or len(words) > MAX_VARIANTS:
            return None
    return words


def spread(words: Sequence[Word]) -> Sequence[Word]:
    """The words that a shell makes of some words with lists in braces, which come before all else."""
    lists = [None if word.is_literal or "{" not in word.source else braced(word.source) for word in words]
    if not any(sources is not None and len(sources) > 1 for sources in lists):
        return words
    return [
        each
        for word, sources in zip(words, lists, strict=True)
        for each in ([word] if sources is None or len(sources) == 1 else map(read_word, sources))
    ]


def _first_braces(source: str) -> list[str] | None:
    """The words of an innermost list in braces; none for one that is not followed."""
    opened: list[list[int]] = []
    for token in _BRACE_TOKEN.finditer(source):
        if token[0] == "{":
            opened.append([token.start()])
        elif token[0] == "," and opened:
            opened[-1].append(token.start())
        elif token[0] == "}" and opened:
            begins = opened.pop()
            ends = [*begins[1:], token.start()]
            parts = [source[begin + 1 : end] for begin, end in zip(begins, ends, strict=True)]
            if len(parts) > 1 or ".." in parts[0]:
                words = parts if len(parts) > 1 else _range(parts[0])
                return [source[: begins[0]] + word + source[token.end() :] for word in words]
    return None


def _range(text: str) -> list[str]:
    found = _RANGE.fullmatch(text)
    if found is None:
        return []
    first, last = int(found[1]), int(found[2])
    step = 1 if first <= last else -1
    return [str(number) for number in islice(range(first, last + step, step), MAX_VARIANTS + 1)]
