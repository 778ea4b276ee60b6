"""Programs that pack and unpack: what is unpacked goes to places that the archive names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tools.permissions.shell.knowledge.files.operands import Files, R, Targets, W, for_each, something_in, targets
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.options import TAR_VALUED, dashed, parse
from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

ARCHIVES: dict[str, Files] = {
    "zip": Files((R, W), always=(W,), valued=names("n x i t tt b P TT unzip-command"), lists=names("@")),
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
    creates = any(
        name == "-c" or (len(name) > len("--c") and "--create".startswith(name)) for name, _ in parsed.options
    )
    folder: Word | None = literal(".")
    for name, value in parsed.options:
        if name in ("-f", "--file"):
            yield (W if creates or parsed.has("-r", "-u", "-A", "--append", "--update", "--delete") else R), value
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
