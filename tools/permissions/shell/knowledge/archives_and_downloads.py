"""Archives and downloads: programs that write what an archive, or another host, names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from tools.permissions.auto_run_files import names_between
from tools.permissions.shell.knowledge.program_files import FILES, F, R, Targets, W, gives_option, something_in, targets
from tools.permissions.shell.syntax.arguments import TAR_VALUED, parse, with_dashes
from tools.permissions.shell.syntax.words import Word, literal, names, unknown

_CHOSEN = unknown("$_")  # a file whose name somebody else says


def of_tar(arguments: Sequence[Word]) -> Targets:
    """Old letters in front stand without a dash: `tar xf a`."""
    words = with_dashes(arguments, TAR_VALUED)
    yield from targets(FILES["tar"], words)
    parsed = parse(words, FILES["tar"].valued | names("f file C directory"))

    def is_given(options: frozenset[str]) -> bool:
        return any(gives_option(name, options) for name, _ in parsed.options)

    creates = is_given(names("c create r append u update A catenate"))
    folder: Word | None = literal(".")
    for name, value in parsed.options:
        if name in ("-f", "--file"):
            yield W if creates or is_given(names("delete")) else R, value
        elif name in ("-C", "--directory"):
            yield W, value
            folder = value
    yield from ((R if creates else W, word) for word in parsed.operands)
    if creates and parsed.has("-C", "--directory"):
        # What follows starts in another folder, which may be named in between.
        yield R, unknown("-C")
    if is_given(names("transform xform")):
        yield W, _CHOSEN
    if not creates and not parsed.has("-t", "--list"):
        yield W, something_in(folder)


def of_unzip(arguments: Sequence[Word]) -> Targets:
    """`-d` says where what is in the archive goes."""
    yield from targets(FILES["unzip"], arguments)
    folders = [value for name, value in parse(arguments, ("d", "P", "x")).options if name == "-d"]
    yield W, something_in(folders[-1] if folders else literal("."))


def names_unpacked(name: str, arguments: Sequence[Word], inputs: Sequence[Sequence[Word]]) -> Targets:
    """What is unpacked, or copied, by names that a program is given to read, or that what packed them was told."""
    parsed = parse(
        with_dashes(arguments, TAR_VALUED) if name == "tar" else arguments, names("f file C directory D I O F H")
    )
    if name == "tar" and not parsed.has("-x", "--extract", "--get"):
        return
    folders = [value for option, value in parsed.options if option in ("-C", "--directory", "-D")]
    if name == "pax" or (name == "cpio" and parsed.has("-p", "--pass-through")):
        folders += parsed.operands[-1:]
    folder = folders[-1] if folders else literal(".")
    for word in (word for text in inputs for word in text):
        if word.is_literal and folder is not None and folder.path is not None:
            yield from ((W, literal(posixpath.join(folder.path, path))) for path in word.text.split())
        else:
            yield W, something_in(folder)
    copies = parsed.has("-p", "--pass-through") if name == "cpio" else parsed.has("-r") and parsed.has("-w")
    if name != "tar" and copies and not inputs:
        yield W, _CHOSEN


def of_curl(arguments: Sequence[Word]) -> Targets:
    """`-d @file` sends a file, `file://` reads one, `-O` writes one that the address names.

    `-b file`, `-F 'f=<file'` and what else there is are among the parts of words that any program may mean.
    """
    yield from targets(FILES["curl"], arguments)
    for option, value in parse(arguments, FILES["curl"].valued).options:
        text = value.text if value is not None else ""
        # curl has lists, ranges, quotes and escapes of its own.
        if (option in ("-T", "--upload-file") and re.search(r"[\[{]", text)) or (
            option in ("-F", "--form") and re.search(r"[@<].*[\"\\]", text)
        ):
            yield R, None
        if option in ("-o", "--output") and (found := re.fullmatch(r"(.*?)#\d(?:.*#\d)?(.*)", text, re.DOTALL)):
            yield from ((W, literal(each)) for each in _auto_run_files(found[1], found[2]))
        if option == "-J" or (len(option) >= len("--remote-h") and "--remote-header-name".startswith(option)):
            yield W, _CHOSEN
    for word in arguments:
        text, (_, mark, path) = word.text, word.text.partition("@")
        if re.match(r"--(?:reso|connect-to)", text):
            # A rule about a name says nothing of the address that the name is given here.
            yield F, None
        if text.startswith("--proto-d"):
            # An address without a scheme may be a file then.
            yield R, None
        if mark and (text[:1] in ("@", "-") or text.partition("=")[2].startswith("@")):
            yield R, literal(path) if word.is_literal else None
        elif text.lower().startswith("file:"):
            is_plain = word.is_literal and not re.search(r"[%\[{]", text)
            yield R, literal(text[len("file://") :]) if is_plain else None
        elif re.match(r"--remote-n|-[a-zA-Z]*O", text):
            yield from _named_by_address(arguments, literal("."))
        elif re.match(r"--conf|-[a-zA-Z]*K", text):
            # What is in such a file counts like further arguments.
            yield from ((W, _CHOSEN), (F, None))


def of_wget(arguments: Sequence[Word]) -> Targets:
    """Without `-O` the address names what is written."""
    yield from targets(FILES["wget"], arguments)
    if any(re.match(r"-[a-zA-Z]*e|--exe", word.text) for word in arguments):
        yield F, None
    options = parse(arguments, FILES["wget"].valued).options
    if any(
        name == "-O" or (len(name) >= len("--output-d") and "--output-document".startswith(name)) for name, _ in options
    ):
        return
    chooses = re.compile(r"-[irmp]|--(?:content-d|inp|rec|mir|page-r|trust-s|met|input-m).*", re.DOTALL)
    if any(chooses.fullmatch(name) for name, _ in options):
        yield W, _CHOSEN
    prefixes = [value for name, value in options if name in ("-P", "--directory-prefix")]
    yield from _named_by_address(arguments, prefixes[-1] if prefixes else literal("."))


def of_aria2(arguments: Sequence[Word]) -> Targets:
    """The host names what is written, unless an option does."""
    parsed = parse(arguments, ("o", "out", "output", "d", "dir"))
    yield from ((F, word) for word in (*parsed.operands, None))
    outputs = [value for name, value in parsed.options if name in ("-o", "--out", "--output")]
    folders = [value for name, value in parsed.options if name in ("-d", "--dir") and value is not None]
    for value in outputs:
        known = [literal(posixpath.join(folder.path, value.text)) for folder in folders if value and folder.path]
        yield from ((W, each) for each in known or [value])
    if not outputs:
        yield W, _CHOSEN


def _auto_run_files(begin: str, end: str) -> Iterator[str]:
    """Files that other programs run whose paths begin and end so."""
    folder, first = posixpath.split(begin)
    yield from (posixpath.join(folder, each) for each in names_between(first, posixpath.basename(end)))


def _named_by_address(arguments: Sequence[Word], folder: Word | None) -> Targets:
    """A file by the last name of an address, or by another one, as the other host says."""
    yield W, something_in(folder)
    if folder is None or folder.path is None:
        return
    for word in arguments:
        if found := re.search(r"[\[{].*[\]}]", word.text, re.DOTALL):
            begin = posixpath.basename(word.text[: found.start()])
            made = _auto_run_files(posixpath.join(folder.path, begin), word.text[found.end() :])
            yield from ((W, literal(each)) for each in made)
        name = posixpath.basename(word.text.partition("?")[0])
        if "/" in word.text and name:
            yield W, literal(posixpath.join(folder.path, name)) if word.is_literal else None
