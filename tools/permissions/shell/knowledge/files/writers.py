"""Programs that make, change, move or remove files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tools.permissions.shell.knowledge.files.operands import Files, R, Targets, W, for_each
from tools.permissions.shell.knowledge.links import copies_links
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.options import parse
from tools.permissions.shell.syntax.words import Word, literal

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
