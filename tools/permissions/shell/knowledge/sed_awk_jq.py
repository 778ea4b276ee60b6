"""The languages of sed, awk and jq, as far as it takes to see that a program in them only prints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.permissions.shell.syntax.words import Word

_BRACKET = r"\[\^?\]?[^\]\\\n/|,\#:@!]*\]"
_PART = rf"(?:(?!\1)[^\\\n\[]|\\.|{_BRACKET})*+"
_ADDRESS = rf"(?:\d++(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\.|{_BRACKET})++/I?)"
_SED_COMMAND = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,(?:{_ADDRESS}|[+~]\d+))?)?\s*!?\s*"
    rf"(?:(?:[pdDPgGhHxnNl=]|[qQ]\d*|s([/|,\#:@!]){_PART}\1{_PART}\1[gpiIM0-9]*|y/(?:[^/\\\n]|\\.)*+/(?:[^/\\\n]|\\.)*+/"
    rf"|[bt]\s*\w*|:\s*\w+|\}})?\s*(?:[;\n]|\Z|(?=\}}))|\{{|[aic] *[^\s\\][^\n\\]*(?:\n|\Z))",
    re.ASCII,
)
_SED_FLAGS = re.compile(
    r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|null-data|posix|separate|unbuffered|sandbox|debug)"
)
_SED_EDITS = re.compile(r"-[nErsuz]*i.*|--in-p.*|-[nErsuz]+|-l\d+|-b", re.DOTALL)
_AWK_ACTION = re.compile(r"system|getline|fflush|close|[|@`]|/inet|ARGV|ARGC|ENVIRON\s*\[[^\]]*\]\s*=")
_AWK_OPERAND = re.compile(r"/inet")
_JQ_READS = re.compile(r"import|include|modulemeta|get_search_list|input_filename|\$__prog|\$__loc__")
_YQ_READS = re.compile(r"load|system|eval|env|from_file|read")


def is_harmless_sed(arguments: Sequence[Word]) -> bool:
    """Whether every script is literal and only prints: no `e`, `w`, `r`, no `-i`, no script from a file."""
    scripts = sed_scripts(arguments, flags=_SED_FLAGS)
    return bool(scripts) and all(word.is_literal and only_prints_sed(word.text) for word in scripts)


def sed_scripts(arguments: Sequence[Word], flags: re.Pattern[str] = _SED_EDITS) -> list[Word] | None:
    """The scripts of a call of sed; `None` if they cannot be told.

    Args:
        arguments: The words behind the name.
        flags: What options there may be besides scripts.
    """
    scripts: list[Word] = []
    operands: list[Word] = []
    rest = iter(arguments)
    for word in rest:
        text = word.text
        if word.is_literal and text == "--":
            operands.extend(rest)
        elif word.is_literal and re.fullmatch(r"-[nErsuz]*e|--expression", text):
            script = next(rest, None)
            if script is None:
                return None
            scripts.append(script)
        elif word.may_be_option and text != "-":
            is_flag = _SED_FLAGS.fullmatch(text) or flags.fullmatch(text)
            if not word.is_literal or not is_flag:
                return None
        else:
            operands.append(word)
    return scripts or operands[:1]


def only_prints_sed(script: str) -> bool:
    """Whether a script of sed opens no file and runs nothing."""
    position = 0
    while position < len(script):
        command = _SED_COMMAND.match(script, position)
        if not command or command.end() == position:
            return False
        position = command.end()
    return True


def is_harmless_awk(arguments: Sequence[Word]) -> bool:
    """Whether the program is literal and only prints: nothing is run, opened by name or taken from a file."""
    program = awk_program(arguments)
    if program is None or not program.is_literal or not only_prints_awk(program.text):
        return False
    return not any(_AWK_OPERAND.search(word.text) for word in arguments)


def awk_program(arguments: Sequence[Word]) -> Word | None:
    """The program of a call of awk; `None` if it comes from a file or with options that are not known."""
    place = 0
    while place < len(arguments) and arguments[place].may_be_option:
        word = arguments[place]
        if not word.is_literal or not re.match(r"-[Fv]|--\Z", word.text):
            return None
        place += 1 if len(word.text) > len("-F") or word.text == "--" else 2
        if word.text == "--":
            break
    return arguments[place] if place < len(arguments) else None


def only_prints_awk(program: str) -> bool:
    """Whether a program of awk opens no file of its own and runs nothing. `>` compares where nothing is printed."""
    plain = program.replace("||", "")
    return not _AWK_ACTION.search(plain) and not (">" in plain and "print" in plain)


def is_harmless_jq(arguments: Sequence[Word]) -> bool:
    """Whether nothing is loaded: no modules, no program from a file."""
    return not any(_loads(word) or _JQ_READS.search(word.text) for word in arguments)


def is_harmless_yq(arguments: Sequence[Word]) -> bool:
    """The same for yq, whose programs load files by functions."""
    return not any(
        _loads(word) or (not word.text.startswith("-") and _YQ_READS.search(word.text)) for word in arguments
    )


def _loads(word: Word) -> bool:
    if not word.text.startswith("-"):
        return False
    if word.text.startswith("--"):
        name = word.text[2:].partition("=")[0]
        return bool(name) and ("from-file".startswith(name) or "library-path".startswith(name))
    return any(letter in "fL" for letter in word.text[1:])
