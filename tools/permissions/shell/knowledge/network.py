"""Programs that reach other hosts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from tools.permissions.auto_run_files import names_between
from tools.permissions.shell.knowledge.file_programs import F, Files, R, Targets, W, for_each, something_in, targets
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.options import parse
from tools.permissions.shell.syntax.words import Word, literal, unknown

NETWORK: dict[str, Files] = {
    "curl": Files(
        (F,),
        valued=names(
            "X H d A u m e b U w Y y z C r F Q t request header data data-raw data-ascii data-binary"
            " data-urlencode json user user-agent max-time retry referer cookie write-out connect-timeout form"
            " range variable url-query resolve connect-to"
        ),
        options={
            **dict.fromkeys(
                names(
                    "o output D c cookie-jar dump-header output-dir trace trace-ascii stderr hsts alt-svc"
                    " etag-save libcurl"
                ),
                W,
            ),
            **dict.fromkeys(names("T K upload-file config E cert key cacert netrc-file etag-compare"), R),
            **dict.fromkeys(names("url x proxy preproxy proxy1.0 socks4 socks4a socks5 socks5-hostname doh-url"), F),
        },
    ),
    "wget": Files(
        (F,),
        valued=names("t T U e l A R D I header user-agent timeout tries user password execute level accept reject"),
        options={
            **dict.fromkeys(
                names(
                    "O output-document P directory-prefix o output-file a append-output save-cookies hsts-file"
                    " warc-file rejected-log"
                ),
                W,
            ),
            **dict.fromkeys(names("i input-file post-file body-file load-cookies config ca-certificate"), R),
        },
    ),
    **for_each("ping ping6 dig host nslookup nc ncat telnet ftp sftp traceroute whois mosh", Files((F,))),
    "ssh": Files((F,), valued=names("p l o L R D J b c e I m O Q W w B"), options={"i": R, "F": R, "E": W, "S": W}),
    **for_each(
        "rsync",
        Files(
            (R,),
            last=(W,),
            valued=names("e f B M rsh rsync-path filter exclude include block-size port timeout chmod chown suffix"),
            options={
                "T": W, "temp-dir": W, "backup-dir": W, "log-file": W, "partial-dir": W, "write-batch": W,
                "exclude-from": R, "include-from": R, "password-file": R, "read-batch": R,
                "compare-dest": R, "copy-dest": R, "link-dest": R,
            },
            lists=names("files-from"),
            copies=True,
            relative=names("-R --relative"),
        ),
    ),
    "scp": Files(
        (R,), last=(W,), valued=names("c l o P S J D X"), options={"F": R, "i": R}, copies=True
    ),
    # It asks the host that a repository is on, or one that an option names.
    **for_each("gh glab hub tea", Files(always=(F,))),
    **for_each("http https aria2c lynx w3m links elinks axel", Files((F,), always=(F,))),
}  # fmt: skip


_CHOSEN = unknown("$_")
"""A file whose name the other host says."""

_CHOOSING = re.compile(r"--(?:content-d|inp|rec|mir|page-r|trust-s|met|input-m)")
_LIST = re.compile(r"[\[{].*[\]}]", re.DOTALL)


def of_curl(arguments: Sequence[Word]) -> Targets:
    """`-d @file` sends a file, `file://` reads one, `-O` writes one that the address names.

    `-b file`, `-F 'f=<file'` and what else there is are among the parts of words that any program may mean.
    """
    yield from targets(NETWORK["curl"], arguments)
    if any(re.match(r"--(?:reso|connect-to)", word.text) for word in arguments):
        # A rule about a name says nothing of the address that the name is given here.
        yield F, None
    if any(word.text.startswith("--proto-d") for word in arguments):
        # An address without a scheme may be a file then.
        yield R, None
    curl = NETWORK["curl"]
    options = parse(arguments, curl.valued | curl.options.keys()).options
    for option, value in options:
        text = value.text if value is not None else ""
        is_list = option in ("-T", "--upload-file") and re.search(r"[\[{]", text)
        if is_list or (option in ("-F", "--form") and re.search(r"[@<].*[\"\\]", text)):
            # curl has lists, ranges, quotes and escapes of its own.
            yield R, None
        if option in ("-o", "--output") and (found := re.fullmatch(r"(.*?)#\d(?:.*#\d)?(.*)", text, re.DOTALL)):
            yield from ((W, literal(each)) for each in _between(found[1], found[2]))
    if any(option == "-J" or _begins(option, "--remote-header-name", 10) for option, _ in options):
        yield W, _CHOSEN
    for word in arguments:
        _, mark, path = word.text.partition("@")
        if (mark and word.text[:1] in ("@", "-")) or (mark and word.text.partition("=")[2].startswith("@")):
            yield R, literal(path) if word.is_literal else None
        elif word.text.lower().startswith("file:"):
            # curl has lists and ranges of its own, and decodes what is written with `%`.
            is_plain = word.is_literal and not re.search(r"[%\[{]", word.text)
            yield R, literal(word.text[len("file://") :]) if is_plain else None
        elif re.match(r"--remote-n|-[a-zA-Z]*O", word.text):
            yield from _named_by_address(arguments, literal("."))
        elif re.match(r"--conf|-[a-zA-Z]*K", word.text):
            # What is in such a file counts like further arguments.
            yield from ((W, _CHOSEN), (F, None))


def of_wget(arguments: Sequence[Word]) -> Targets:
    """Without `-O` the address names what is written."""
    yield from targets(NETWORK["wget"], arguments)
    if any(re.match(r"-[a-zA-Z]*e|--exe", word.text) for word in arguments):
        yield F, None
    wget = NETWORK["wget"]
    options = parse(arguments, wget.valued | wget.options.keys()).options
    is_output = any(name == "-O" or _begins(name, "--output-document", 10) for name, _ in options)
    if not is_output and any(name in "-i-r-m-p" or _CHOOSING.match(name) for name, _ in options):
        yield W, _CHOSEN
    if not is_output:
        prefixes = [value for name, value in options if name in ("-P", "--directory-prefix")]
        yield from _named_by_address(arguments, prefixes[-1] if prefixes else literal("."))


def of_download(arguments: Sequence[Word]) -> Targets:
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


def _begins(option: str, name: str, shortest: int) -> bool:
    return len(option) >= shortest and name.startswith(option)


def _between(begin: str, end: str) -> Iterator[str]:
    """Auto-run files whose paths begin and end so."""
    folder, first = posixpath.split(begin)
    yield from (posixpath.join(folder, each) for each in names_between(first, posixpath.basename(end)))


def _named_by_address(arguments: Sequence[Word], folder: Word | None) -> Targets:
    """A file by the last name of an address, or by another one, as the other host says."""
    yield W, something_in(folder)
    for word in arguments:
        name = posixpath.basename(word.text.partition("?")[0])
        if folder is not None and folder.path is not None and (found := _LIST.search(word.text)):
            begin = posixpath.basename(word.text[: found.start()])
            made = _between(posixpath.join(folder.path, begin), word.text[found.end() :])
            yield from ((W, literal(each)) for each in made)
        if "/" in word.text and name and folder is not None and folder.path is not None:
            yield W, literal(posixpath.join(folder.path, name)) if word.is_literal else None
