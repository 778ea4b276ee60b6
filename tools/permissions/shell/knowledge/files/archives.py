"""Programs that pack and unpack: what is unpacked goes to places that the archive names."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from tools.permissions.shell.knowledge.files.operands import Files, R, Targets, W, for_each, something_in, targets
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.options import TAR_VALUED, dashed, parse
from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

ARCHIVES: dict[str, Files] = {
    "zip": Files(
        (R, W), always=(W,), valued=names("n x i t tt b P TT unzip-command"), lists=names("@ R recurse-patterns")
    ),
    "unzip": Files((R,), options={"d": W}, always=(W,), valued=names("P x")),
    **for_each("7z 7za 7zr unrar rar cpio pax ar jar", Files((R, W), always=(R, W))),
}

_TAR = Files(
    valued=names("b H I K L N V F use-compress-program to-command checkpoint-action rsh-command info-script exclude"),
    options={"g": W, "listed-incremental": W, "X": R, "exclude-from": R, "index-file": W},
    lists=names("T files-from"),
)


def of_tar(arguments: Sequence[Word]) -> Targets:
    """Old letters in front stand without a dash: `tar xf a`."""
    words = dashed(arguments, TAR_VALUED)
    yield from targets(_TAR, words)
    parsed = parse(words, _TAR.valued | _TAR.options.keys() | _TAR.lists | {"f", "file", "C", "directory"})
    given = [name for name, _ in parsed.options]
    adds = any(
        name in ("-r", "-u", "-A") or _is_short_for(name, "--append", "--update", "--catenate") for name in given
    )
    creates = adds or any(name == "-c" or _is_short_for(name, "--create") for name in given)
    folder: Word | None = literal(".")
    for name, value in parsed.options:
        if name in ("-f", "--file"):
            yield (W if creates or any(_is_short_for(each, "--delete") for each in given) else R), value
        elif name in ("-C", "--directory"):
            yield W, value
            folder = value
    for word in parsed.operands:
        yield (R if creates else W), word
    if creates and parsed.has("-C", "--directory"):
        # What follows starts in another folder, which may be named in between.
        yield R, unknown("-C")
    if any(name.startswith(("--transf", "--xf")) for name, _ in parsed.options):
        yield W, unknown("$_")
    if not creates and not any(name in ("-t", "--list") for name, _ in parsed.options):
        yield W, something_in(folder)


def _is_short_for(name: str, *known: str) -> bool:
    return len(name) > len("--x") and any(each.startswith(name) for each in known)


def names_unpacked(name: str, arguments: Sequence[Word], inputs: Sequence[Sequence[Word]]) -> Targets:
    """What is unpacked, or copied, by names that a program is given to read, or that what packed them was told.

    Args:
        name: Its family.
        arguments: The words behind it.
        inputs: The texts that it is given to read, each of words with a blank between them.
    """
    words = dashed(arguments, TAR_VALUED) if name == "tar" else arguments
    parsed = parse(words, ("f", "file", "C", "directory", "D", "I", "O", "F", "H"))
    if name == "tar" and not parsed.has("-x", "--extract", "--get"):
        return
    folders = [value for option, value in parsed.options if option in ("-C", "--directory", "-D")]
    if name == "pax" or (name == "cpio" and parsed.has("-p", "--pass-through")):
        folders += parsed.operands[-1:]
    folder = folders[-1] if folders else literal(".")
    for word in (word for text in inputs for word in text):
        is_known = word.is_literal and folder is not None and folder.path is not None
        each = word.text.split() if is_known else ()
        yield from ((W, literal(posixpath.join(folder.path, path))) for path in each if folder and folder.path)
        if not is_known:
            yield W, something_in(folder)
    copies = parsed.has("-p", "--pass-through") if name == "cpio" else parsed.has("-r") and parsed.has("-w")
    if name != "tar" and copies and not inputs:
        yield W, unknown("$_")


def of_unzip(arguments: Sequence[Word]) -> Targets:
    """`-d` says where what is in the archive goes."""
    yield from targets(ARCHIVES["unzip"], arguments)
    folders = [value for name, value in parse(arguments, ("d", "P", "x")).options if name == "-d"]
    yield W, something_in(folders[-1] if folders else literal("."))


def of_dd(arguments: Sequence[Word]) -> Targets:
    """`if=` is read, `of=` is written."""
    for word in arguments:
        name, _, value = word.text.partition("=")
        if name in ("if", "of"):
            yield (
                (R if name == "if" else W),
                replace(word, text=value, path=read_word(word.source.partition("=")[2]).path),
            )
