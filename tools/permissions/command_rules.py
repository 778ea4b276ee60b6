"""Finds the rules that apply, or may apply, to a simple command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tools.permissions.command_text import (
    MAX_PROGRAMS,
    ONE,
    SEVERAL,
    SimpleCommand,
    is_known,
    joined,
    may_fit,
    plain_name,
    programs_run_by,
    read_command,
    with_input_of_xargs,
)
from tools.permissions.known_commands import is_reader, without_git_options
from tools.permissions.permission_rules import ANYTHING, Rule

# Two words of `git commit`, of which the second is a message, or an option with a message attached
_MESSAGE = re.compile(r"(-a?m|--message) |\S+ --message=")
_GIT_OPTION = re.compile(rf"-[CcpP]\Z|--|{ONE}")  # how an option before git's subcommand begins


def rule_about(command: SimpleCommand, rules: Sequence[Rule], *, allows: bool = False) -> Rule | None:
    """Return a rule about a simple command, or about a program that it runs.

    For allow rules (`allows`), see through only the usual wrappers, such as `env`, and ignore a program's folder only
    if it is a system folder.
    """
    # Quoted unknown words before an allowed program do not change which program runs.
    is_shaped = allows and len(command.shapes) == len(command.words)
    for shapes in programs_run_by(command.shapes if is_shaped else command.words, loosely=not allows):
        words = tuple(word if word is not None and is_known(word) else None for word in shapes)
        name = words[0] if words else None
        if allows and name and " " in name:
            continue  # a program in a folder called `pytest x`, for example, is not `pytest`
        short = name and ((plain_name(name) or name) if allows else os.path.basename(name))
        texts = {joined(words), joined((short, *words[1:]))}
        if short == "git" and not allows:
            texts.add(joined(("git", *without_git_options(words[1:]))))
        for rule in rules:
            if any(map(rule.fits_command, texts)):
                return rule
    return None


def rule_that_may_be_about(
    command: SimpleCommand, rules: Sequence[Rule], *, is_argument: bool = False, has_message: bool = False
) -> Rule | None:
    """Return a rule that may apply to a simple command with unknown words, or to a command in its arguments.

    A command that is itself in an argument (`is_argument`) may be mere text, so its own arguments run nothing. With
    `has_message`, the words after `-m` and `--message` are messages, which are not run either.
    """
    runs_nothing = is_argument or is_reader(command.words)
    for words in programs_run_by(with_input_of_xargs(command.shapes), loosely=True):
        shapes = tuple(SEVERAL if word is None else word for word in words)
        if not shapes:
            continue
        *_, name = re.split(f"[{ONE}{SEVERAL}]", shapes[0])  # the word may begin with an unknown folder
        mark = SEVERAL if SEVERAL in shapes[0] else "" if is_known(shapes[0]) or "/" in name else ONE
        readings = [(mark + os.path.basename(name), *shapes[1:])]
        if readings[0][0] == "git" or (
            may_fit("git", readings[0][:1], anywhere=False) and _GIT_OPTION.match("".join(shapes[1:2]))
        ):
            readings += (("git", *rest) for rest in _possible_git_arguments(shapes[1:]))
        literal = tuple(shape if is_known(shape) and " " not in shape else "" for shape in shapes)
        literal_readings = [literal]
        if "git" in literal[1:]:
            literal_readings.append(_without_later_git_options(literal))
            readings += [_without_later_git_options(readings[0])] if mark else []
        for rule in rules:
            pattern = rule.command_pattern
            bare = pattern.removesuffix(" *")
            patterns = (bare, pattern if ANYTHING in bare else f"{bare} *") if pattern else ()
            # An unknown program may run another program. A known one may too, but this matters only for rules that name
            # more than a program, such as `git push`.
            if any(may_fit(pattern, reading, anywhere=bool(mark)) for pattern in patterns for reading in readings) or (
                " " in (beginning := bare.partition(ANYTHING)[0])
                and not runs_nothing
                and any(
                    may_fit(pattern, reading, anywhere=True)
                    for reading in literal_readings
                    if beginning in joined(reading)
                    for pattern in patterns
                )
            ):
                return rule
    # A program may run the text in one of its arguments.
    pairs = pairwise(command.shapes)
    words = [word for option, word in pairs if not (has_message and _MESSAGE.match(f"{option} {word}"))]
    texts = {text for word in words for text in (word, word.partition("=")[2]) if " " in text.strip()}
    for text in texts if not runs_nothing else ():
        inner = read_command(re.sub(f"[{ONE}{SEVERAL}]", "$_", text))
        for inner_command in (*inner.commands, *inner.inner):
            # Text that is no shell command may look like a program with spaces in its name (`f("a b")` in other
            # languages) or with an unknown name (in a message).
            if " " in (inner_command.name or ""):
                continue
            if (rule := rule_about(inner_command, rules)) is not None:
                return rule
            rule = rule_that_may_be_about(inner_command, rules, is_argument=True) if inner_command.name else None
            if rule is not None:
                return rule
    return None


def _possible_git_arguments(shapes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield git's arguments from the subcommand on. Unknown words before them may also be a subcommand, or options."""
    rest = without_git_options(shapes)
    options = shapes[: len(shapes) - len(rest)]
    is_clear = all(
        is_known(word) or (SEVERAL not in word and (word[0] != "-" or "=" in word.partition(ONE)[0]))
        for word in options
    )
    rest = (*(() if is_clear else (SEVERAL,)), *(word or "" for word in rest))
    yield rest
    if rest and rest[0][:1] == ONE:  # it may be an option, and the next word its value
        yield from (rest[at:] for at in range(1, min(len(rest), MAX_PROGRAMS)))


def _without_later_git_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words without the options right after each later `git`, because the program may run this git."""
    kept, at = [*words[:1]], 1
    while at < len(words):
        kept.append(words[at])
        at += 1
        if kept[-1] == "git":
            at = len(words) - len(without_git_options(tuple(words[at:])))
    return (*kept,)
