"""The languages of sed and awk, as far as it takes to see that a program in them only prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.permissions.shell.words import Word

_BRACKET = r"\[\^?\]?[^\]\\\n/|,\#:@!]*\]"
_PART = rf"(?:(?!\1)[^\\\n\[]|\\.|{_BRACKET})*+"
_ADDRESS = rf"(?:\d++(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\.|{_BRACKET})++/I?)"
_SED_COMMAND = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~]\d+))?)?\s*!?\s*"
    rf"(?:[pdDPgGhHxnNl=]|[qQ]\d*|s([/|,\#:@!]){_PART}\1{_PART}\1[gpiIM0-9]*|[{{}}])?\s*(?:[;\n]|\Z|(?=\}}))"
)
_SED_FLAGS = re.compile(
    r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|null-data|posix|separate|unbuffered|sandbox|debug)"
)
_AWK_ACTION = re.compile(r"system|getline|fflush|close|[|>@`]|/inet")
_AWK_OPERAND = re.compile(r"/inet")


def is_harmless_sed(arguments: Sequence[Word]) -> bool:
    """Whether every script is literal and only prints: no `e`, `w`, `r`, no `-i`, no script from a file."""
    scripts: list[Word] = []
    operands: list[Word] = []
    rest = iter(arguments)
    for word in rest:
        text = word.text
        if word.is_literal and text in ("-e", "-ne", "-Ee", "-nEe", "--expression"):
            script = next(rest, None)
            if script is None:
                return False
            scripts.append(script)
        elif word.may_be_option and text != "-":
            if not word.is_literal or not _SED_FLAGS.fullmatch(text):
                return False
        else:
            operands.append(word)
    if not scripts:
        scripts = operands[:1]
    return bool(scripts) and all(word.is_literal and _only_prints(word.text) for word in scripts)


def _only_prints(script: str) -> bool:
    position = 0
    while position < len(script):
        command = _SED_COMMAND.match(script, position)
        if not command or command.end() == position:
            return False
        position = command.end()
    return True


def is_harmless_awk(arguments: Sequence[Word]) -> bool:
    """Whether the program is literal and only prints: nothing is run, opened by name or taken from a file."""
    place = 0
    while place < len(arguments) and arguments[place].may_be_option:
        word = arguments[place]
        if not word.is_literal or not re.match(r"-[Fv]|--\Z", word.text):
            return False
        place += 1 if len(word.text) > len("-F") or word.text == "--" else 2
        if word.text == "--":
            break
    if place >= len(arguments) or not arguments[place].is_literal:
        return False
    return not _AWK_ACTION.search(arguments[place].text) and not any(
        _AWK_OPERAND.search(word.text) for word in arguments
    )
