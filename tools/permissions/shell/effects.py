"""Which files a command reads and writes and which hosts it reaches, as far as its words tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tools.contract.subject import Access
from tools.permissions.shell.analysis import Effect
from tools.permissions.shell.folders import Folders, changed_to, joined
from tools.permissions.shell.git import subcommand
from tools.permissions.shell.options import Arguments, parse
from tools.permissions.shell.reading import Redirection
from tools.permissions.shell.words import Word, literal

_NO_FILES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_NETWORK_FILE = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/")
_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/@\s]*@)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d*)?(?:[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
_REMOTE_PATH = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)|[a-z][a-z0-9+.-]*://(?:[^/@]*@)?([^/:]+)", re.ASCII)

_Targets = Iterator[tuple[Access, Word | None]]


@dataclass(frozen=True, slots=True)
class Files:
    """What a command does with its operands and its options.

    Args:
        operands: What operands are touched for, all but those that `skip` and `last` name; `None` for not at all.
        skip: How many operands stand before the files.
        unless: Options that take the place of what is skipped.
        last: What the last one of several operands is touched for.
        valued: Options whose value is no file.
        options: Options whose value is a file, and what that is touched for.
        always: What is touched besides that cannot be known.
        searches: Whether it reads the folder it is in if no file is named.
        recursive: Options with which it does so; none if it always does.
    """

    operands: Access | None = None
    skip: int = 0
    unless: frozenset[str] = frozenset()
    last: Access | None = None
    valued: frozenset[str] = frozenset()
    options: dict[str, Access] = field(default_factory=dict[str, Access])
    always: tuple[Access, ...] = ()
    searches: bool = False
    recursive: frozenset[str] = frozenset()


_R, _W, _F = Access.READ, Access.WRITE, Access.FETCH


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _for_each(names: str, files: Files) -> dict[str, Files]:
    return dict.fromkeys(names.split(), files)


_GREP = Files(
    _R,
    skip=1,
    unless=_set("-e -f --regexp --file --files"),
    valued=_set("e A B C m g t T d D regexp glob type context max-count include exclude exclude-dir"),
    options={"f": _R, "file": _R},
    searches=True,
)

FILES: dict[str, Files] = {
    **_for_each(
        "cat less more nl rev tac comm cmp diff od hexdump strings stat file readlink realpath "
        "base32 base64 expand unexpand tsort md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum sum cksum "
        "bat view zcat bzcat xzcat zless nm objdump readelf source . diff3 sdiff vimdiff pr tail head wc fold fmt "
        "column cut paste join",
        Files(_R, valued=_set("n c d f b w s t lines bytes delimiter fields width max-depth")),
    ),
    **_for_each("ls dir vdir tree du", Files(_R, valued=_set("I L w T P max-depth"), searches=True)),
    **_for_each("grep egrep fgrep zgrep", replace(_GREP, recursive=_set("-r -R --recursive --dereference-recursive"))),
    **_for_each("rg ripgrep ag ack", _GREP),
    **_for_each(
        "awk gawk mawk", Files(_R, skip=1, unless=_set("-f --file"), valued=_set("F v"), options={"f": _R, "file": _R})
    ),
    **_for_each(
        "jq yq",
        Files(
            _R,
            skip=1,
            unless=_set("-f --from-file"),
            options={"f": _R, "from-file": _R, "L": _R},
            valued=_set("indent"),
        ),
    ),
    "sort": Files(
        _R, valued=_set("k t S key buffer-size"), options={"o": _W, "output": _W, "T": _W, "files0-from": _R}
    ),
    "shuf": Files(_R, valued=_set("n i e"), options={"o": _W, "output": _W}),
    "uniq": Files(_R, last=_W, valued=_set("f s w")),
    "xxd": Files(_R, last=_W, valued=_set("c g l o s")),
    **_for_each("touch mkdir rmdir rm unlink shred tee mkfifo mknod vi vim nvim nano emacs ed", Files(_W)),
    "truncate": Files(_W, valued=_set("s size"), options={"r": _R, "reference": _R}),
    **_for_each("chmod chown chgrp chattr setfacl", Files(_W, skip=1, options={"reference": _R})),
    **_for_each(
        "cp ln install rsync scp",
        Files(_R, last=_W, options={"t": _W, "target-directory": _W}, valued=_set("m o g e S")),
    ),
    "mv": Files(_W, last=_W, options={"t": _W, "target-directory": _W}, valued=_set("S")),
    "split": Files(_R, last=_W, always=(_W,), valued=_set("b l n a")),
    **_for_each("gzip gunzip bzip2 bunzip2 xz unxz zstd patch", Files(_W)),
    "zip": Files(_R, skip=0, always=(_W,)),
    "unzip": Files(_R, options={"d": _W}, always=(_W,)),
    "curl": Files(
        _F,
        valued=_set(
            "X H d A u m e b x U w Y y z C r F request header data data-raw data-binary user user-agent max-time retry"
            " referer cookie write-out connect-timeout form proxy url"
        ),
        options={
            **dict.fromkeys(_set("o output D c cookie-jar dump-header output-dir trace trace-ascii stderr"), _W),
            **dict.fromkeys(_set("T K upload-file config E cert key cacert"), _R),
        },
    ),
    "wget": Files(
        _F,
        valued=_set("t T U header user-agent timeout tries user password"),
        options={"O": _W, "output-document": _W, "P": _W, "o": _W, "a": _W, "i": _R, "post-file": _R},
    ),
    **_for_each("ping ping6 dig host nslookup nc ncat netcat telnet ftp sftp traceroute whois", Files(_F)),
    "ssh": Files(_F, valued=_set("p i l o L R D F J b c E e I m O Q S W w B")),
    **_for_each("http https aria2c lynx w3m", Files(_F, always=(_F,))),
}
"""What is not here has effects that are not known; it is never read-only by itself."""


def effects_of(name: str, arguments: Sequence[Word], folders: Folders) -> Iterator[Effect]:
    """What a command touches by its arguments.

    Args:
        name: Its name, without a folder.
        arguments: The words behind it.
        folders: Where it may run.
    """
    special = _SPECIAL.get(name)
    files = FILES.get(name)
    targets = special(arguments) if special else _targets(files, arguments) if files else ()
    for access, word in targets:
        yield from _effects(access, word, folders)


def redirection_effects(redirections: Sequence[Redirection], folders: Folders) -> tuple[list[Effect], list[str]]:
    """What the shell opens for a command, and what is doubtful about it."""
    effects: list[Effect] = []
    doubts: list[str] = []
    for redirection in redirections:
        operator, target = redirection.operator, redirection.target
        if operator in (">&", "<&") and re.fullmatch(r"\d*-|\d+", target.text):
            continue
        if network := _NETWORK_FILE.match(target.text):
            doubts.append(f"it opens a connection: {target.source}")
            effects.append(Effect(_F, network[1]))
            continue
        if target.is_literal and target.text in _NO_FILES:
            continue
        accesses = {"<": (_R,), "<&": (_R,), "<>": (_R, _W)}.get(operator, (_W,))
        for access in accesses:
            effects += _effects(access, target, folders, is_redirection=True)
    return effects, doubts


def _effects(access: Access, word: Word | None, folders: Folders, *, is_redirection: bool = False) -> Iterator[Effect]:
    if access is Access.FETCH:
        host = _HOST.fullmatch(word.text) if word is not None and word.is_literal else None
        yield Effect(access, host[1].strip("[]").lower() if host else None)
        return
    path = None if word is None or "{}" in word.text else word.path
    if path is None or "\0" in path:
        yield Effect(access, None, None, is_redirection)
        return
    for folder in folders if not path.startswith(("/", "~", "$")) else ("",):
        if folder is not None and folder.startswith(("~", "$")):
            yield Effect(access, joined(folder, path), "", is_redirection)
        else:
            yield Effect(access, path, folder, is_redirection)


def _targets(files: Files, arguments: Sequence[Word]) -> _Targets:
    parsed = parse(arguments, files.valued | files.options.keys())
    for name, value in parsed.options:
        access = files.options.get(name.lstrip("-"))
        if access is not None:
            yield access, value
    for access in files.always:
        yield access, None
    operands = parsed.operands
    if files.skip and not any(name in files.unless for name, _ in parsed.options):
        operands = operands[files.skip :]
    if files.searches and not operands and (not files.recursive or parsed.has(*files.recursive)):
        yield Access.READ, literal(".")
    if files.operands is not None:
        yield from _operands(files, parsed, operands)


def _operands(files: Files, parsed: Arguments, operands: Sequence[Word]) -> _Targets:
    has_target_option = parsed.has("-t", "--target-directory")
    for place, word in enumerate(operands):
        is_last = place == len(operands) - 1 and len(operands) > 1 and not has_target_option
        access = files.last if files.last is not None and is_last else files.operands
        if access is None:
            continue
        yield access, word
        if files.last is not None and (remote := _REMOTE_PATH.match(word.text)):
            yield Access.FETCH, Word(word.source, remote[1] or remote[2], word.is_literal, "", False, None)


def _of_cd(arguments: Sequence[Word]) -> _Targets:
    words = [_CD, *arguments]
    target = changed_to(words)
    yield Access.READ, None if target is None else Word(target, target, True, target, False, target)


_CD = Word("cd", "cd", is_literal=True, prefix="cd", may_split=False, path="cd")


def _of_find(arguments: Sequence[Word]) -> _Targets:
    writes = ("-fprint", "-fls", "-fprint0", "-fprintf")
    starts = 0
    while starts < len(arguments) and not arguments[starts].text.startswith(("-", "(", "!")):
        yield Access.READ, arguments[starts]
        starts += 1
    if not starts:
        yield Access.READ, literal(".")
    for place, word in enumerate(arguments[:-1]):
        if word.text in writes:
            yield Access.WRITE, arguments[place + 1]
        elif word.text in ("-files0-from", "-newer", "-samefile"):
            yield Access.READ, arguments[place + 1]
    if any(word.text == "-delete" for word in arguments):
        yield Access.WRITE, None


def _of_sed(arguments: Sequence[Word]) -> _Targets:
    parsed = parse(arguments, ("e", "f", "l", "expression", "file", "line-length"))
    in_place = any(re.match(r"-i|-?-in", name) for name, _ in parsed.options)
    operands = parsed.operands
    if not parsed.has("-e", "-f", "--expression", "--file"):
        operands = operands[1:]
    for name, value in parsed.options:
        if name in ("-f", "--file"):
            yield Access.READ, value
    for word in operands:
        yield Access.READ, word
        if in_place:
            yield Access.WRITE, word


def _of_curl(arguments: Sequence[Word]) -> _Targets:
    """`-d @file` sends a file, `file://` reads one, `-O` writes one that the address names."""
    yield from _targets(FILES["curl"], arguments)
    for word in arguments:
        _, mark, path = word.text.partition("@")
        if (mark and word.text[:1] in ("@", "-")) or (mark and word.text.partition("=")[2].startswith("@")):
            yield Access.READ, literal(path) if word.is_literal else None
        elif word.text.startswith("file:"):
            yield Access.READ, literal(word.text.removeprefix("file://")) if word.is_literal else None
        elif re.match(r"--remote-name|-[a-zA-Z]*O", word.text):
            yield Access.WRITE, None


def _of_wget(arguments: Sequence[Word]) -> _Targets:
    """Without `-O` the address names what is written."""
    yield from _targets(FILES["wget"], arguments)
    if not any(re.match(r"-[a-zA-Z]*O|--output-document", word.text) for word in arguments):
        yield Access.WRITE, None


def _of_dd(arguments: Sequence[Word]) -> _Targets:
    for word in arguments:
        name, _, value = word.text.partition("=")
        if name in ("if", "of"):
            path = value if word.is_literal else None
            access = Access.READ if name == "if" else Access.WRITE
            yield access, Word(word.source, value, word.is_literal, value, False, path)


def _of_tar(arguments: Sequence[Word]) -> _Targets:
    """An archive is written or read; what is unpacked goes to places that the archive names."""
    mode = "".join(word.text for word in arguments[:1])
    creates = "c" in mode.partition("=")[0] or any(word.text in ("-c", "--create") for word in arguments)
    words = [Word(f"-{mode}", f"-{mode}", True, "-", False, None), *arguments[1:]] if mode[:1].isalpha() else arguments
    parsed = parse(words, ("f", "C", "T", "X", "file", "directory"))
    for name, value in parsed.options:
        if name in ("-f", "--file"):
            yield (Access.WRITE if creates else Access.READ), value
        elif name in ("-C", "--directory"):
            yield Access.WRITE, value
    for word in parsed.operands:
        yield (Access.READ if creates else Access.WRITE), word
    if not creates and not any(name in ("-t", "--list") for name, _ in parsed.options):
        yield Access.WRITE, None


def _of_git(arguments: Sequence[Word]) -> _Targets:
    for place, word in enumerate(arguments[:-1]):
        if word.text == "-C":
            yield Access.READ, arguments[place + 1]
    found = subcommand(arguments)
    if found is None:
        return
    name, rest = found
    if name in ("fetch", "pull", "push", "ls-remote", "submodule") or (
        name == "remote" and rest[:1] and rest[0].text == "show"
    ):
        yield Access.FETCH, None
    elif name in ("grep", "show", "diff", "blame", "cat-file"):
        yield Access.READ, literal(".")
    elif name == "clone":
        operands = parse(rest, ("b", "depth", "branch", "o", "origin", "c", "config")).operands
        remote = _REMOTE_PATH.match(operands[0].text) if operands else None
        host = (remote[1] or remote[2]) if remote else None
        yield Access.FETCH, None if host is None else Word(host, host, True, host, False, None)
        yield Access.WRITE, operands[1] if len(operands) > 1 else None


_SPECIAL: dict[str, Callable[[Sequence[Word]], _Targets]] = {
    "cd": _of_cd,
    "pushd": _of_cd,
    "find": _of_find,
    "sed": _of_sed,
    "curl": _of_curl,
    "wget": _of_wget,
    "dd": _of_dd,
    "tar": _of_tar,
    "git": _of_git,
}
