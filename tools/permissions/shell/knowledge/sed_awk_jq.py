"""The languages of sed, awk and jq, as far as it takes to see that a program in them only prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from tools.permissions.auto_run_files import is_data
from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

MAX_NAMES = 64
"""Names in one script that are looked at."""

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
_SED_FILE = re.compile(r"(?=[rRwW][ \t]*([^\n]+))")
_SED_UNKNOWN = re.compile(r"""(?:\A["']?|[\s;{}!\d$/|,\#:@][gpiIMme\d]*)[wW](?:[ \t]+[\w./~-]*|[./~]*)[$`]""")
_AWK_UNKNOWN = re.compile(r"\bprintf?\b[^;}\n]*>")
_AWK_TOKEN = re.compile(
    r"""\#[^\n]*|"(?P<text>(?:\\.|[^"\\])*)"|(?:\A|(?<=[(,{;!~&|\n}]))[ \t]*/(?:\\.|[^/\\\n])+/""", re.DOTALL
)
_AWK_PRINT = re.compile(r"\bprintf?\b[^;}\n>|]*>+([^;}\n]*)")
_SCRIPT_FILE = re.compile(r"(?:-[nErsuz]*[fE]|--(?:file|exec)=?)(.*)", re.DOTALL)
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0")
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


def with_given_scripts(arguments: Sequence[Word], inputs: Sequence[Sequence[Word]]) -> Sequence[Word]:
    """The words of sed or awk with the scripts that they are given to read in place of `-f -`.

    Args:
        arguments: The words behind the name.
        inputs: The texts that they are given to read, each of words with a blank between them.
    """
    words: list[Word] = []
    rest = iter(arguments if inputs else ())
    for word in rest:
        option = _SCRIPT_FILE.fullmatch(word.text)
        file = option and (literal(option[1]) if option[1] else next(rest, None))
        if file is None or file.text not in _STANDARD_INPUT:
            words += [word] if file is None or (option and option[1]) else [word, file]
            continue
        for text in inputs:
            is_known = all(each.is_literal for each in text)
            script = " ".join(each.text if is_known else each.source for each in text)
            words += [literal("-e"), literal(script) if is_known else unknown(script)]
    return words or arguments


def names_in_scripts(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """What scripts of sed may name: the rest of a line behind each letter that may read or write a file."""
    for word in arguments if name == "sed" else ():
        if word.is_literal and not word.text.startswith("--"):
            yield from (literal(found[1]) for found in islice(_SED_FILE.finditer(word.text), MAX_NAMES))


def sed_writes_unknown(script: Word) -> bool:
    """Whether a script that is not literal may write a file whose name is not known."""
    return not script.is_literal and _SED_UNKNOWN.search(script.source) is not None


def awk_outputs(program: Word) -> Iterator[Word]:
    """The files that a program of awk prints to; a text with more before it is known by its end."""
    if not program.is_literal:
        if _AWK_UNKNOWN.search(program.source):
            yield unknown(program.source)
        return
    texts: list[str] = []

    def note(found: re.Match[str]) -> str:
        texts.append(found["text"] or "")
        return f'"{len(texts) - 1}"' if found["text"] is not None else " "

    plain = _AWK_TOKEN.sub(note, program.text)
    while (shorter := re.sub(r"\([^()]*\)", " ", plain)) != plain:
        plain = shorter
    for statement in _AWK_PRINT.finditer(plain):
        target = re.fullmatch(r'\s*([^"]*)"(\d+)"\s*', statement[1])
        text = texts[int(target[2])] if target else ""
        is_whole = target is not None and not target[1] and "\\" not in text
        # Of what is put together, only the end is known.
        yield literal(text) if is_whole else read_word(f'"$_{text if is_data(text) else ""}"')


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
