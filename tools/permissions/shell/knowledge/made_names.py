"""What a patch writes whose text stands in the command: in a here-document, or as what is printed into the program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import islice

from tools.permissions.auto_run_files import is_data, names_between
from tools.permissions.shell.knowledge.file_programs import WRITERS, Files
from tools.permissions.shell.knowledge.git import folder_of, subcommand
from tools.permissions.shell.knowledge.network import NETWORK
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.options import parse
from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

_SUFFIX = {
    **dict.fromkeys(names("cp mv ln install"), names("-S --suffix")),
    **dict.fromkeys(names("gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd"), names("-S --suffix")),
    "rsync": names("--suffix"),
    "patch": names("-z --suffix"),
}
_PREFIX = {"patch": names("-B --prefix -Y --basename-prefix")}
_IN_PLACE = {
    "sed": re.compile(r"(?:-[nErsuz]*i|--in-p[a-z-]*=)(.+)", re.DOTALL),
    **dict.fromkeys(names("perl ruby"), re.compile(r"-[acflnpsStTuUwWX0-9]*i(.+)", re.DOTALL)),
}
"""What stands behind this is the end of a backup's name, or its whole name with `*` for what there was."""

_UNPACKING = names(
    "gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd uncompress pigz unpigz lz4 brotli gpg gpg2"
)
_RENAMING = names("rename rename.ul prename file-rename perl-rename")


def names_made(name: str, arguments: Sequence[Word], written: Sequence[Word]) -> Iterator[Word]:
    """The files that a program writes by names of which its words are but a part.

    Args:
        name: Its family.
        arguments: The words behind it.
        written: What it writes by the names that they say.
    """
    if name in ("split", "csplit"):
        yield from _parts(name, arguments)
    elif name in _RENAMING:
        yield from _renamed(arguments)
    elif (pattern := _IN_PLACE.get(name)) is not None:
        files = written or [word for word in arguments if word.is_literal and not word.text.startswith("-")]
        for word in arguments:
            if found := pattern.match(word.text):
                end = literal(found[1]) if word.is_literal else unknown(word.source)
                yield from (each for file in files for each in _in_place(file, end))
    elif name in _SUFFIX or name in _UNPACKING:
        options = parse(arguments, _valued(name)).options
        ends = [end for option, end in options if option in _SUFFIX.get(name, ()) and end is not None]
        begins = [begin for option, begin in options if option in _PREFIX.get(name, ()) and begin is not None]
        files = written or [word for word in arguments if not word.text.startswith("-")]
        for file in files:
            yield from (_joined(file, end) for end in ends)
            yield from (_behind(begin, file) for begin in begins)
            if name in _UNPACKING and file.is_literal:
                yield literal(posixpath.splitext(file.text)[0])
                yield from (literal(file.text.removesuffix(end.text)) for end in ends)


def names_backups(assignment: Word) -> bool:
    """Whether a variable, as it is given or exported, says how backups of any file are called."""
    variable, _, value = assignment.source.partition("=")
    return variable == "SIMPLE_BACKUP_SUFFIX" and not (read_word(value).is_literal and is_data(read_word(value).text))


def _valued(name: str) -> frozenset[str]:
    files = WRITERS.get(name) or NETWORK.get(name) or Files()
    return files.valued | files.options.keys() | files.lists


def _joined(first: Word, second: Word) -> Word:
    if first.is_literal and second.is_literal:
        return literal(first.text + second.text)
    return read_word(first.source + second.source)


def _behind(begin: Word, file: Word) -> Word:
    """A file's name with something before the whole of it, or before its last part."""
    folder, last = posixpath.split(file.text)
    is_known = begin.is_literal and file.is_literal
    return literal(posixpath.join(folder, begin.text + last)) if is_known else _joined(begin, file)


def _in_place(file: Word, end: Word) -> Iterator[Word]:
    if "*" not in end.text or not (file.is_literal and end.is_literal):
        yield _joined(file, end)
        return
    folder, last = posixpath.split(file.text)
    made = end.text.replace("*", last)
    yield literal(posixpath.join(folder, made))
    if "/" in made:
        yield literal(made)


def _parts(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """An auto-run file that is called like a part of a file may be: the letters in between are counted."""
    parsed = parse(arguments, (*_valued(name), "f", "additional-suffix"))
    given = {option: value for option, value in parsed.options if value is not None}
    begin = given.get("-f", given.get("--prefix")) if name == "csplit" else (*parsed.operands, None, None)[1]
    end = given.get("--additional-suffix")
    if begin is None:
        return
    folder, first = posixpath.split(begin.text)
    last = end.text if end is not None and end.is_literal else ""
    if not begin.is_literal:
        yield from () if is_data(last) else (begin,)
    elif first:
        # Letters alone make no such name.
        yield from (literal(posixpath.join(folder, each)) for each in names_between(first, last))


def _renamed(arguments: Sequence[Word]) -> Iterator[Word]:
    """`rename from to files`; what an expression of Perl makes of names is not known."""
    operands = parse(arguments).operands
    if len(operands) > 2 and all(word.is_literal for word in operands) and not re.search(r"[/;]", operands[0].text):
        old, new = operands[0].text, operands[1].text
        yield from (literal(word.text.replace(old, new, 1)) for word in operands[2:])
        yield from (literal(word.text.replace(old, new)) for word in operands[2:])
    elif operands:
        yield unknown("$_")


MAX_HEADERS = 1_024
MAX_DEPTH = 16
"""Names in one patch, and folders in one name, that are looked at; of more it is not known what is written."""

_HEADER = re.compile(
    r"(?:\+\+\+|---|\*\*\*|(?:rename|copy) (?:from|to)|Index:|diff --git)[ \t]+"
    r"((?:\"(?:\\.|[^\"\\])*\"|[^\n\t\\]|\\[^nt])+)"
)
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ESCAPED_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def names_in_patch(name: str, arguments: Sequence[Word], text: str) -> Iterator[Word]:
    """The files that a text of a patch says it is about. How many folders are stripped off is an option.

    Args:
        name: The family of the program that is given it.
        arguments: The words behind it.
        text: All that is known to be read by the same shell.
    """
    found = subcommand(arguments) if name == "git" else None
    if name != "patch" and (found is None or found[0] not in ("apply", "am")):
        return
    top = folder_of(arguments) if name == "git" else ""
    options = parse(found[1] if found else arguments, ("d", "directory", "p", "C")).options
    given = [value.path for option, value in options if option in ("-d", "--directory") and value is not None]
    folders = [top if each is None else posixpath.join(top or "", each) for each in (None, *given)]
    headers = list(islice(_HEADER.finditer(text), MAX_HEADERS + 1))
    if len(headers) > MAX_HEADERS:
        yield unknown("$_")
    for path in dict.fromkeys(path for header in headers for path in _names_in(header[1])):
        if "$" in path or "`" in path:
            yield unknown(path)
            continue
        parts = path.split("/")
        suffixes = ["/".join(parts[at:]) for at in range(min(len(parts), MAX_DEPTH))]
        yield from (literal(posixpath.join(folder or "", each)) for each in suffixes if each for folder in folders)


def _names_in(header: str) -> Iterator[str]:
    """What a line may name: all of it, up to a time behind it, or two names."""
    for piece in (header.strip(), *header.split()):
        quoted = re.fullmatch(r"\\?\"(.*?)\\?\"|'?(.*?)['\"]*", piece, re.DOTALL)
        if quoted and quoted[1] is not None:
            yield _ESCAPE.sub(_unescaped, quoted[1])
        elif quoted and quoted[2]:
            yield quoted[2]


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8)) if escape[1] else _ESCAPED_LETTERS.get(escape[2], escape[2])
