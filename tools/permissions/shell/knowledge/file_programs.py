"""Programs that are told to write their settings, or hooks, by names that no word of theirs says."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from tools.contract.subjects import Access
from tools.permissions.shell.knowledge.links import copies_links
from tools.permissions.shell.knowledge.options import RUNNERS, RUNNERS_ALONE
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
from tools.permissions.shell.syntax.folders import changed_to
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.options import TAR_VALUED, Arguments, dashed, parse
from tools.permissions.shell.syntax.words import CONTENTS, FOUND, Word, literal, read_word, unknown

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
        relative: Options with which it takes them by their whole paths.
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
    relative: frozenset[str] = frozenset()


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
        yield from _copies(parsed, operands, keeps_paths=_is_given(files.relative, parsed))


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
        if word.text.startswith("@"):
            # To many programs that is a file with further words.
            yield R, literal(word.text[1:]) if word.is_literal else word
        if files.last is not None and (remote := REMOTE_PATH.match(word.text)):
            yield F, host(remote[1] or remote[2], word)


def _is_given(options: frozenset[str], parsed: Arguments) -> bool:
    """Whether one of some options is given, shortened or not."""
    return any(
        name == option or (len(name) > len("--") and name.startswith("--") and option.startswith(name))
        for name, _ in parsed.options
        for option in options
    )


def _copies(parsed: Arguments, operands: Sequence[Word], *, keeps_paths: bool) -> Targets:
    """Where the copies come to lie if the place for them is a folder."""
    folders = [value for name, value in parsed.options if name in ("-t", "--target-directory") and value is not None]
    sources = operands
    if not folders and len(operands) > 1:
        sources, folders = operands[:-1], [operands[-1]]
    for folder in folders[:1] or [literal(".")]:
        for source in sources:
            path = source.text.rpartition("/./")[2].lstrip("/") if keeps_paths else source.text
            name = posixpath.normpath(path) if keeps_paths else posixpath.basename(path.rstrip("/"))
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


_GREP = Files(
    (R,),
    skip=1,
    unless=names("-e -f --regexp --file"),
    valued=names(
        "e A B C m D d regexp after-context before-context context max-count include exclude exclude-dir label"
        " binary-files devices directories"
    ),
    options={"f": R, "file": R, "exclude-from": R},
    searches=True,
)
_RG = replace(
    _GREP,
    unless=names("-e -f --regexp --file --files --type-list"),
    valued=names(
        "e A B C m g t T d j r E M regexp after-context before-context context max-count glob iglob type type-not"
        " type-add max-depth maxdepth threads replace encoding max-columns sort sortr color colors engine"
        " max-filesize"
    ),
    options={"f": R, "file": R, "ignore-file": R},
)
_HASHES = "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum md5"

READERS: dict[str, Files] = {
    **for_each(
        "cat less more most rev tac bat zcat bzcat xzcat zstdcat zless zmore bzless xzless tsort sum cksum"
        " crc32 stat readlink realpath nm objdump readelf size ldd source . view vimdiff",
        Files((R,)),
    ),
    **for_each(_HASHES, Files((R,), valued=names("l a length algorithm"))),
    "nl": Files((R,), valued=names("b d f h i l n s v w")),
    "tac": Files((R,), valued=names("s separator")),
    **for_each("comm", Files((R,))),
    "cmp": Files((R,), valued=names("i n ignore-initial bytes")),
    **for_each(
        "diff diff3 sdiff colordiff",
        Files(
            (R,),
            valued=names("C U I L F W x label ignore-matching-lines exclude show-function-line width context unified"),
            options={"from-file": R, "to-file": R, "exclude-from": R, "X": R, "S": R, "o": W, "output": W},
        ),
    ),
    "od": Files((R,), valued=names("A j N t w S address-radix skip-bytes read-bytes format width strings")),
    **for_each("hexdump hd", Files((R,), valued=names("e n s"), options={"f": R})),
    "strings": Files((R,), valued=names("n t e s bytes radix encoding target output-separator")),
    "file": Files((R,), valued=names("e F P separator parameter"), lists=names("f files-from"), options={"m": R}),
    **for_each("base32 base64 basenc", Files((R,), valued=names("w wrap"), options={"i": R, "o": W})),
    **for_each("expand unexpand", Files((R,), valued=names("t tabs"))),
    "pr": Files((R,), valued=names("D h l N o s S w W e i n")),
    **for_each("head tail", Files((R,), valued=names("n c s lines bytes sleep-interval pid max-unchanged-stats"))),
    "wc": Files((R,), valued=names("total"), lists=names("files0-from")),
    "fold": Files((R,), valued=names("w width")),
    "fmt": Files((R,), valued=names("w g p width goal prefix")),
    "column": Files((R,), valued=names("c s o N H R O W E T r p i n d l output-width separator table-columns")),
    "cut": Files((R,), valued=names("b c d f bytes characters delimiter fields output-delimiter")),
    "paste": Files((R,), valued=names("d delimiters")),
    "join": Files((R,), valued=names("a e i j o t v 1 2")),
    **for_each("ls dir vdir", Files((R,), valued=names("I w T ignore hide width tabsize block-size"), searches=True)),
    "tree": Files(
        (R,),
        valued=names("I L P H T filelimit charset sort timefmt"),
        options={"o": W, "output": W, "gitfile": R, "infofile": R},
        lists=names("fromfile"),
        searches=True,
    ),
    "du": Files(
        (R,),
        valued=names("d B t max-depth block-size threshold exclude"),
        options={"X": R, "exclude-from": R},
        lists=names("files0-from"),
        searches=True,
    ),
    **for_each("grep egrep fgrep", replace(_GREP, recursive=names("-r -R --recursive --dereference-recursive"))),
    **for_each("zgrep zegrep zfgrep bzgrep xzgrep", replace(_GREP, recursive=names("-r -R --recursive"))),
    **for_each("rg ag ack", _RG),
    "sort": Files(
        (R,),
        valued=names("k t S key field-separator buffer-size parallel batch-size sort compress-program"),
        options={"o": W, "output": W, "T": W, "temporary-directory": W, "random-source": R},
        lists=names("files0-from"),
    ),
    "shuf": Files((R,), valued=names("n i head-count input-range"), options={"o": W, "output": W, "random-source": R}),
    "uniq": Files((R,), last=(W,), valued=names("f s w skip-fields skip-chars check-chars")),
    "xxd": Files((R,), last=(W,), valued=names("c g l o s n R cols groupsize len offset seek name")),
    "date": Files(options={"f": R, "file": R, "r": R, "reference": R}, valued=names("d s date set")),
}


_SCRIPTED = {
    **dict.fromkeys(names("ed ex"), re.compile("")),
    **dict.fromkeys(
        names("vi vim nvim gvim view vimdiff"),
        re.compile(r"-(?!c\Z|[RnbdoOpmMZ]+\d*\Z|-(?!cmd)).+|\+(?!\d*\Z|/[^|]*\Z).*", re.DOTALL),
    ),
    "emacs": re.compile(r"--?(?:e[vx]|l|f|script|batch|insert).*"),
}
_PLAIN_EDIT = re.compile(r"\d+|\$|/[^|\n]*|(?:q|w|wq|x|qa|wa|wqa|xa)!?|set? \w+")
_INTO = {"t": W, "target-directory": W}

WRITERS: dict[str, Files] = {
    **for_each("mkdir rmdir rm unlink tee mkfifo mknod", Files((W,))),
    **for_each("vi vim nvim nano emacs ed ex pico micro", Files((R, W))),
    "touch": Files((W,), valued=names("d t date time"), options={"r": R, "reference": R}),
    "shred": Files((W,), valued=names("n s iterations size"), options={"random-source": R}),
    "truncate": Files((W,), valued=names("s size"), options={"r": R, "reference": R}),
    # A mode may look like an option (`chmod -x f`), and then nothing stands before the files.
    "chmod": Files((W,), skip=1, unless=names("-r -w -x -X -s -t --reference"), options={"reference": R}),
    **for_each("chown chgrp", Files((W,), skip=1, unless=names("--reference"), options={"reference": R})),
    "chattr": Files((W,), valued=names("v p")),
    "setfacl": Files((W,), valued=names("m x modify remove"), options={"M": R, "X": R, "restore": R}),
    "cp": Files(
        (R,),
        last=(W,),
        options=_INTO,
        valued=names("S suffix context sparse"),
        copies=True,
        relative=names("--parents"),
    ),
    "ln": Files((R,), last=(W,), options=_INTO, valued=names("S suffix"), copies=True),
    "link": Files((R,), last=(W,)),
    "mount": Files((R,), last=(W,), valued=names("t o types options")),
    "mv": Files((R, W), last=(W,), options=_INTO, valued=names("S suffix"), copies=True),
    # With `-d` each operand is a folder to be made.
    "install": Files(
        (R, W), last=(W,), options=_INTO, valued=names("m o g S mode owner group suffix strip-program"), copies=True
    ),
    # Options of wrappers; those of the command within count too, which tells rather too much.
    "xargs": Files(valued=names("d E I L n P s"), options={"a": R, "arg-file": R}),
    "parallel": Files(valued=names("j d N I"), options={"a": R, "arg-file": R, "joblog": W, "results": W}),
    **for_each("time strace ltrace", Files(valued=names("e f p s"), options={"o": W, "output": W})),
    "script": Files((W,), valued=names("c command")),
    **for_each("rename rename.ul prename file-rename perl-rename", Files((R, W), skip=1)),
    "split": Files(
        (R,), last=(W,), always=(W,), valued=names("b l n a C t bytes lines number suffix-length filter line-bytes")
    ),
    "csplit": Files((R,), always=(W,), valued=names("f b n prefix suffix-format digits")),
    **for_each("gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd", Files((R, W), valued=names("S suffix"))),
    "patch": Files(
        (R, W),
        always=(W,),
        valued=names("p F B V Y z D g strip fuzz prefix suffix ifdef"),
        options={"i": R, "input": R, "o": W, "output": W, "r": W, "reject-file": W, "d": W, "directory": W},
    ),
}


def of_crontab(arguments: Sequence[Word]) -> Targets:
    """It reads a file, and writes the table of what runs at another time."""
    parsed = parse(arguments, ("u",))
    yield from ((R, word) for word in parsed.operands)
    if not parsed.has("-l"):
        yield W, literal("/var/spool/cron/crontabs")


def runs_script(name: str, arguments: Sequence[Word]) -> bool:
    """Whether an editor is told to do what may write any file, by its options or from its input.

    Args:
        name: Its family.
        arguments: The words behind it.
    """
    scripted = _SCRIPTED.get(name)
    return scripted is not None and (
        not scripted.pattern
        or any(scripted.fullmatch(word.text) for word in arguments)
        or any(word.text == "-c" and not _PLAIN_EDIT.fullmatch(after.text) for word, after in pairwise(arguments))
    )


def sources_of_links(name: str, arguments: Sequence[Word]) -> Iterator[Word | None]:
    """What gets another name by `ln`, or by a copy of a link: who writes the new name writes this.

    Args:
        name: Its family.
        arguments: The words behind it.
    """
    if name == "rsync":
        yield from (value for option, value in parse(arguments, ("link-dest",)).options if option == "--link-dest")
    if name not in ("ln", "link", "mount") and not (name == "cp" and copies_links(arguments)):
        return
    files = WRITERS[name]
    parsed = parse(arguments, files.valued | files.options.keys())
    folders = [value for option, value in parsed.options if option in ("-t", "--target-directory")]
    sources = parsed.operands if folders or len(parsed.operands) == 1 else parsed.operands[:-1]
    places = folders or parsed.operands[len(sources) :]
    for source in sources:
        yield source
        # The text of a link is taken from the folder that the link is in.
        for place in places[-1:] if name == "ln" else ():
            if (
                place is not None
                and place.path is not None
                and source.path is not None
                and source.path[:1] not in "/~$"
            ):
                yield literal(posixpath.join(posixpath.dirname(place.path), source.path))
                yield literal(posixpath.join(place.path, source.path))


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


MAX_WORDS = 32
"""How far behind the name it is told what is done."""

MAX_VALUES = 4
"""Values of options that may stand there."""

_TABLE = r"""
npm pnpm: (?:config|conf|c)\s(?:.*\s)?(?:set|delete|rm|edit|fix)\b(?!-)|(?:\S+\s)?set\s | .npmrc
yarn: config\s(?:.*\s)?(?:set|unset|delete)\b(?!-)|(?:set\sversion|policies\sset-version|plugin\simport)\b | .yarnrc.yml
pip: config\s(?:.*\s)?(?:set|unset|edit)\b | ~/.config/pip/pip.conf
mise: (?:use|u|set|unset|unuse|settings\s(?:set|add|unset))\b | mise.toml
asdf: (?:local|global|set)\b | .tool-versions
direnv: (?:edit|allow|permit|grant)\b | .envrc
pre-commit pre_commit: (?:install|uninstall|init-templatedir|migrate-config|autoupdate)\b | .git/hooks/pre-commit
lefthook: (?:install|uninstall|add)\b | .git/hooks .git/config
husky: | .husky/pre-commit .git/config
gh: (?:alias\s(?:set|import)|config\sset|extension\s(?:install|upgrade))\b | ~/.config/gh/config.yml
kubectl oc: config\sset(?:-credentials)?\b(?!-) | ~/.kube/config
aws: configure\b(?!\s(?:list|get)) | ~/.aws/config
jj: config\s(?:.*\s)?(?:set|edit|unset)\b | .jj/repo/config.toml
hg: config\s(?:.*\s)?(?:--edit|-e|--local|-l)\b | .hg/hgrc
claude gemini qwen codex: mcp\s(?:add|remove|add-json|import)\b|config\s(?:set|add)\b | .mcp.json
git-lfs: install\b | .git/hooks .git/config
git: lfs\s(?:install|update)\b | .git/hooks .git/config
docker: plugin\sinstall\b | ~/.docker/cli-plugins/x
"""


def _entries() -> Iterator[tuple[str, tuple[re.Pattern[str], tuple[str, ...]]]]:
    for line in _TABLE.strip().splitlines():
        heads, _, rest = line.partition(":")
        pattern, _, paths = rest.rpartition(" | ")
        yield from ((head, (re.compile(pattern.strip(), re.DOTALL), tuple(paths.split()))) for head in heads.split())


_WRITTEN = dict(_entries())
_OTHER_WORDS = names("run run-script exec x install i add")


def settings_written(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The files that a program is told to write without their names, also where another one runs it.

    Args:
        name: Its family.
        arguments: The words behind it.
    """
    runs_other = name in RUNNERS and any(word.text in _OTHER_WORDS for word in arguments[:1])
    if name in _WRITTEN and not runs_other:
        pattern, paths = _WRITTEN[name]
        texts = [word.text for word in arguments[:MAX_WORDS] if not word.text.startswith("-") or name == "hg"]
        # An option may have a value, so each of the first words may begin what it is told.
        if any(pattern.match(" ".join(texts[at:])) for at in range(MAX_VALUES)):
            yield from map(literal, paths)
    if name in RUNNERS | RUNNERS_ALONE or name.startswith("python"):
        for at, word in enumerate(arguments[:MAX_WORDS]):
            if word.text in _WRITTEN and word.text not in RUNNERS:
                yield from settings_written(word.text, arguments[at + 1 :])
