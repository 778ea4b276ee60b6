"""How a program's command line names the files that it touches."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tools.contract.subject import Access
from tools.permissions.shell.syntax.options import Arguments, parse
from tools.permissions.shell.syntax.words import CONTENTS, FOUND, Word, literal, unknown

R, W, F = Access.READ, Access.WRITE, Access.FETCH

Targets = Iterator[tuple[Access, Word | None]]
"""What is touched, for what; `None` for what cannot be known."""

TOP_OF_REPOSITORY = ":/"
"""How git itself calls the top of the work tree that a folder is in; a path may stand behind it."""


class Reach(StrEnum):
    """What is touched where a path is a folder."""

    ITSELF = "itself"
    """Nothing that is in it."""
    BELOW = "below"
    """What is in it now."""
    STORED = "stored"
    """What a repository has stored of it, now or before."""
    NAMED = "named"
    """The same; of the whole repository where there is no such path, since it is a revision then."""
    UNTRACKED = "untracked"
    """What is in it now and git neither tracks nor ignores."""
    IGNORED = "ignored"
    """What is in it now and git does not track."""
    MATCHED = "matched"
    """What fits it as a pattern of git's, now, and what is in it."""


TAKEN = (Reach.UNTRACKED, Reach.IGNORED, Reach.MATCHED)
"""What is written or removed by names that no word says, but that can be looked up."""


REMOTE_PATH = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)|[a-z][a-z0-9+.-]*://(?:[^/@]*@)?([^/:]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Files:
    """What a command does with its operands and its options.

    Args:
        operands: What operands are touched for, all but those that `skip` and `last` name.
        skip: How many operands stand before the files.
        unless: Options that take the place of what is skipped.
        last: What the last one of several operands is touched for; `None` if it is like the others.
        valued: Options of these programs whose value is no file.
        options: Options whose value is a file, and what that is touched for.
        lists: Options whose value is a file that names further files to read.
        always: What is touched besides that cannot be known.
        searches: Whether it reads the folder it is in if no file is named.
        recursive: Options with which it does so; none if it always does.
        copies: Whether the last operand, or the value of `-t`, may be a folder that takes the others by their names.
    """

    operands: tuple[Access, ...] = ()
    skip: int = 0
    unless: frozenset[str] = frozenset()
    last: tuple[Access, ...] | None = None
    valued: frozenset[str] = frozenset()
    options: dict[str, Access] = field(default_factory=dict[str, Access])
    lists: frozenset[str] = frozenset()
    always: tuple[Access, ...] = ()
    searches: bool = False
    recursive: frozenset[str] = frozenset()
    copies: bool = False


def for_each(names: str, files: Files) -> dict[str, Files]:
    """One entry for several programs."""
    return dict.fromkeys(names.split(), files)


def targets(files: Files, arguments: Sequence[Word]) -> Targets:
    """What a command line touches, by the table of its program."""
    parsed = parse(arguments, files.valued | files.options.keys() | files.lists)
    yield from _of_options(files, parsed)
    for access in files.always:
        yield access, None
    operands = parsed.operands
    if files.skip and not any(name in files.unless for name, _ in parsed.options):
        operands = operands[files.skip :]
    if files.searches and not operands and (not files.recursive or parsed.has(*files.recursive)):
        yield R, literal(".")
    yield from _of_operands(files, parsed, operands)
    if files.copies:
        yield from _copies(parsed, operands)


def _of_options(files: Files, parsed: Arguments) -> Targets:
    for option, value in parsed.options:
        name = option.lstrip("-")
        if name in files.lists:
            yield R, value
            yield R, None
        elif (access := files.options.get(name)) is not None:
            yield access, value
    if parsed.has_open:
        # A word that is not known may be any option, and such an option a file that is not known.
        for access in dict.fromkeys(files.options.values()):
            yield access, None


def _of_operands(files: Files, parsed: Arguments, operands: Sequence[Word]) -> Targets:
    has_target_option = parsed.has("-t", "--target-directory")
    for place, word in enumerate(operands):
        is_last = place == len(operands) - 1 and len(operands) > 1 and not has_target_option
        accesses = files.last if files.last is not None and is_last else files.operands
        for access in accesses:
            yield access, word
        if files.last is not None and (remote := REMOTE_PATH.match(word.text)):
            yield F, host(remote[1] or remote[2], word)


def _copies(parsed: Arguments, operands: Sequence[Word]) -> Targets:
    """Where the copies come to lie if the place for them is a folder."""
    folders = [value for name, value in parsed.options if name in ("-t", "--target-directory") and value is not None]
    sources = operands
    if not folders and len(operands) > 1:
        sources, folders = operands[:-1], [operands[-1]]
    for folder in folders[:1] or [literal(".")]:
        for source in sources:
            name = posixpath.basename(source.text.rstrip("/"))
            if folder.path is None:
                yield W, None
            elif not source.is_literal or FOUND in name:
                place = f"{folder.path}/"
                yield W, replace(unknown(place + source.source), prefix=place)
            elif name in ("", ".", ".."):
                yield W, something_in(folder)
            else:
                yield W, literal(posixpath.join(folder.path, name))
                if source.text.endswith("/"):
                    # To some programs that is what is in the folder.
                    yield W, something_in(folder)


def something_in(folder: Word | None) -> Word | None:
    """What lies in a folder by a name that no word of the command says."""
    if folder is None or folder.path is None:
        return folder
    return replace(unknown(f"{folder.path}/{CONTENTS}"), prefix=f"{folder.path}/")


def host(name: str, word: Word) -> Word:
    """A host that is named in a word."""
    return replace(word, text=name, path=None)
