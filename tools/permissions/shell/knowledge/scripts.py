"""sed, awk, jq and yq: their files, and their languages as far as it takes to see that a script only prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from tools.permissions.auto_run_files import is_data
from tools.permissions.shell.knowledge.program_files import R, Targets, W, gives_option
from tools.permissions.shell.syntax.arguments import parse
from tools.permissions.shell.syntax.words import Word, literal, names, read_word, unknown

MAX_NAMES = 64  # names in one script that are looked at
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
_SED_FILE = re.compile(r"(?=[rRwW][ \t]*([^\n]+))")
_SED_UNKNOWN = re.compile(r"""(?:\A["']?|[\s;{}!\d$/|,\#:@][gpiIMme\d]*)[wW](?:[ \t]+[\w./~-]*|[./~]*)[$`]""")
_AWK_TOKEN = re.compile(
    r"""\#[^\n]*|"(?P<text>(?:\\.|[^"\\])*)"|(?:\A|(?<=[(,{;!~&|\n}]))[ \t]*/(?:\\.|[^/\\\n])+/""", re.DOTALL
)
_AWK_PRINT = re.compile(r"\bprintf?\b[^;}\n>|]*>+([^;}\n]*)")
_SCRIPT_FILE = re.compile(r"(?:-[nErsuz]*[fE]|--(?:file|exec)=?)(.*)", re.DOTALL)


def sed_scripts(arguments: Sequence[Word], flags: re.Pattern[str] = _SED_EDITS) -> list[Word] | None:
    """The scripts of a call of sed with no options but these and those that change nothing; `None` if not known."""
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
            if not word.is_literal or not (_SED_FLAGS.fullmatch(text) or flags.fullmatch(text)):
                return None
        else:
            operands.append(word)
    return scripts or operands[:1]


def only_prints_sed(scripts: Sequence[Word] | None) -> bool:
    """Whether scripts of sed are known, open no file and run nothing."""
    for script in scripts or ():
        position = 0
        while position < len(script.text):
            command = _SED_COMMAND.match(script.text, position)
            if not script.is_literal or not command or command.end() == position:
                return False
            position = command.end()
    return scripts is not None and all(script.is_literal for script in scripts)


def is_harmless_sed(arguments: Sequence[Word]) -> bool:
    """Whether every script is literal and only prints: no `e`, `w`, `r`, no `-i`, no script from a file."""
    scripts = sed_scripts(arguments, flags=_SED_FLAGS)
    return bool(scripts) and only_prints_sed(scripts)


def of_sed(arguments: Sequence[Word]) -> Targets:
    """Its files, and what a script that does more than print may touch."""
    parsed = parse(arguments, names("e f l expression file line-length"))
    yield from ((R, value) for name, value in parsed.options if name in ("-f", "--file"))
    in_place = any(re.match(r"-i|--?in", name) for name, _ in parsed.options)
    for word in parsed.operands if parsed.has("-e", "-f", "--expression", "--file") else parsed.operands[1:]:
        yield R, word
        if in_place:
            yield W, word
    scripts = sed_scripts(arguments)
    if not only_prints_sed(scripts):
        yield from ((R, None), (W, None))
        # Such a script may write a file whose name is not known.
        for word in scripts or arguments:
            if not word.is_literal and _SED_UNKNOWN.search(word.source):
                yield W, unknown("$_")


def names_in_scripts(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """What scripts of sed may name: the rest of a line behind each letter that may read or write a file."""
    for word in arguments if name == "sed" else ():
        if word.is_literal and not word.text.startswith("--"):
            yield from (literal(found[1]) for found in islice(_SED_FILE.finditer(word.text), MAX_NAMES))


def with_given_scripts(arguments: Sequence[Word], inputs: Sequence[Sequence[Word]]) -> Sequence[Word]:
    """The words of sed or awk with the scripts that they are given to read in place of `-f -`."""
    words: list[Word] = []
    rest = iter(arguments if inputs else ())
    for word in rest:
        option = _SCRIPT_FILE.fullmatch(word.text)
        file = option and (literal(option[1]) if option[1] else next(rest, None))
        if file is None or file.text not in ("-", "/dev/stdin", "/dev/fd/0"):
            words += [word] if file is None or (option and option[1]) else [word, file]
            continue
        for text in inputs:
            is_known = all(each.is_literal for each in text)
            script = " ".join(each.text if is_known else each.source for each in text)
            words += [literal("-e"), literal(script) if is_known else unknown(script)]
    return words or arguments


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


def only_prints_awk(program: Word | None) -> bool:
    """Whether a program of awk is known, opens no file and runs nothing. `>` compares where nothing is printed."""
    plain = program.text.replace("||", "") if program is not None and program.is_literal else "system"
    return not _AWK_ACTION.search(plain) and not (">" in plain and "print" in plain)


def is_harmless_awk(arguments: Sequence[Word]) -> bool:
    """Whether the program is literal and only prints: nothing is run, opened by name or taken from a file."""
    return only_prints_awk(awk_program(arguments)) and not any("/inet" in word.text for word in arguments)


def of_awk(arguments: Sequence[Word]) -> Targets:
    """Its files, and what a program that does more than print may touch."""
    parsed = parse(arguments, names("F v f i l e E field-separator assign file include load source exec"))
    has_program = parsed.has("-f", "--file", "-e", "--source", "-E", "--exec")
    for name, value in parsed.options:
        if name in ("-f", "--file", "-E", "--exec", "-i", "--include"):
            yield R, value
    yield from ((R, word) for word in (parsed.operands if has_program else parsed.operands[1:]))
    program = awk_program(arguments)
    if not only_prints_awk(program):
        yield from ((R, None), (W, None))
    yield from ((W, each) for word in ([program] if program else arguments) for each in _awk_outputs(word))


def _awk_outputs(program: Word) -> Iterator[Word]:
    """The files that a program of awk prints to; a text with more before it is known by its end."""
    if not program.is_literal:
        if re.search(r"\bprintf?\b[^;}\n]*>", program.source):
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


_JQ_READS = re.compile(r"import|include|modulemeta|get_search_list|input_filename|\$__prog|\$__loc__")
_JQ_LOADS = names("f L from-file library-path")


def is_harmless_jq(arguments: Sequence[Word]) -> bool:
    """Whether nothing is loaded: no modules, no program from a file."""
    return not any(gives_option(word.text, _JQ_LOADS) or _JQ_READS.search(word.text) for word in arguments)


def is_harmless_yq(arguments: Sequence[Word]) -> bool:
    """The same for yq, whose programs load files by functions."""
    return not any(
        gives_option(word.text, _JQ_LOADS)
        or (not word.text.startswith("-") and re.search(r"load|system|eval|env|from_file|read", word.text))
        for word in arguments
    )


def of_jq(arguments: Sequence[Word]) -> Targets:
    """Each word behind the program may be a file; a program with modules reads more."""
    parsed = parse(arguments, ("f", "L", "indent", "from-file"))
    for name, value in parsed.options:
        if name in ("-f", "--from-file", "-L", "--rawfile", "--slurpfile", "--argfile"):
            yield R, value
    takes_two = any(re.fullmatch(r"--(?:rawfile|slurpfile|arg(?:file|json)?)", word.text) for word in arguments)
    # The values of options that take two words count as files.
    has_program = takes_two or parsed.has("-f", "--from-file")
    yield from ((R, word) for word in (parsed.operands if has_program else parsed.operands[1:]))
    if not is_harmless_jq(arguments):
        yield R, None


def of_yq(arguments: Sequence[Word]) -> Targets:
    """The same, and its files are written with `-i`."""
    yield from of_jq(arguments)
    if not is_harmless_yq(arguments):
        yield R, None
    if any(re.match(r"-[A-Za-z]*i|--in-?p", word.text) for word in arguments):
        yield from ((W, word) for word in arguments if not word.text.startswith("-"))
    if any(re.match(r"-[A-Za-z]*s|--sp", word.text) for word in arguments):
        yield W, None
