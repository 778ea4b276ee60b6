"""Programs with a language of their own, and what their programs name: find, sed, awk, jq, cd."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.permissions.shell.knowledge.files.operands import R, Targets, W
from tools.permissions.shell.knowledge.sed_awk_jq import (
    awk_outputs,
    awk_program,
    is_harmless_jq,
    is_harmless_yq,
    only_prints_awk,
    only_prints_sed,
    sed_scripts,
    sed_writes_unknown,
)
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.folders import changed_to
from tools.permissions.shell.syntax.options import Arguments, parse
from tools.permissions.shell.syntax.words import Word, literal, unknown

_FIND_WRITES = names("-fprint -fls -fprint0 -fprintf")
_FIND_READS = names("-newer -anewer -cnewer -samefile")
_CD = literal("cd")


def of_cd(arguments: Sequence[Word]) -> Targets:
    """The folder that it leads to."""
    target = changed_to([_CD, *arguments])
    yield R, None if target is None else literal(target)


def of_find(arguments: Sequence[Word]) -> Targets:
    """Starting points, and files that tests and actions name."""
    starts = 0
    for word in arguments:
        if word.text.startswith(("-", "(", "!")) and not re.match(r"-[HLPDO]", word.text):
            break
        if not word.text.startswith("-"):
            starts += 1
            yield R, word
    if not starts:
        yield R, literal(".")
    for place, word in enumerate(arguments[:-1]):
        if word.text in _FIND_WRITES:
            yield W, arguments[place + 1]
        elif word.text in _FIND_READS or word.text.startswith("-newer"):
            yield R, arguments[place + 1]
        elif word.text == "-files0-from":
            yield R, arguments[place + 1]
            yield R, None


def of_sed(arguments: Sequence[Word]) -> Targets:
    """Its files, and what a script that does more than print may touch."""
    parsed = parse(arguments, ("e", "f", "l", "expression", "file", "line-length"))
    in_place = any(re.match(r"-i|--?in", name) for name, _ in parsed.options)
    operands = parsed.operands
    if not parsed.has("-e", "-f", "--expression", "--file"):
        operands = operands[1:]
    for name, value in parsed.options:
        if name in ("-f", "--file"):
            yield R, value
    for word in operands:
        yield R, word
        if in_place:
            yield W, word
    scripts = sed_scripts(arguments)
    if scripts is None or not all(word.is_literal and only_prints_sed(word.text) for word in scripts):
        yield from ((R, None), (W, None))
        yield from ((W, unknown("$_")) for word in scripts or arguments if sed_writes_unknown(word))


def of_awk(arguments: Sequence[Word]) -> Targets:
    """Its files, and what a program that does more than print may touch."""
    parsed = parse(arguments, ("F", "v", "f", "i", "l", "e", "E", *_AWK_LONG))
    has_program = parsed.has("-f", "--file", "-e", "--source", "-E", "--exec")
    for name, value in parsed.options:
        if name in ("-f", "--file", "-E", "--exec", "-i", "--include"):
            yield R, value
    for word in parsed.operands if has_program else parsed.operands[1:]:
        yield R, word
    program = awk_program(arguments)
    if program is None or not program.is_literal or not only_prints_awk(program.text):
        yield from ((R, None), (W, None))
    yield from ((W, each) for word in ([program] if program else arguments) for each in awk_outputs(word))


_AWK_LONG = ("field-separator", "assign", "file", "include", "load", "source", "exec")
_JQ_READS = names("-f --from-file -L --rawfile --slurpfile --argfile")


def of_jq(arguments: Sequence[Word]) -> Targets:
    """Each word may be a file; a program with modules reads more."""
    parsed = parse(arguments, ("f", "L", "indent", "from-file"))
    for name, value in parsed.options:
        if name in _JQ_READS:
            yield R, value
    yield from ((R, word) for word in _jq_files(arguments, parsed))
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


def _jq_files(arguments: Sequence[Word], parsed: Arguments) -> Sequence[Word]:
    """All operands behind the program; the values of options that take two words count as such."""
    operands = parsed.operands if parsed.has("-f", "--from-file") else parsed.operands[1:]
    named = any(word.text in ("--rawfile", "--slurpfile", "--argfile", "--arg", "--argjson") for word in arguments)
    return parsed.operands if named else operands
