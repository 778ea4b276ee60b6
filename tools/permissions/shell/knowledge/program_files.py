"""Programs that read and write what their operands and options name, as a table, and what no table tells.

A row says of some programs, field by field:

- `reads`, `writes`, `changes` (both), `fetches`: what operands are touched for; `last writes`: what the last one of
  several is touched for.
- `skip 1 e f`: how many operands stand before the files, and the options that take their place.
- `valued`: options whose value is not a file. `from`, `into`, `hosts`: options whose value is read, written, reached.
  `lists`: options whose value is a file that names further files to read.
- `always writes`: what is touched besides that cannot be known.
- `searches`: it reads the folder it is in if no file is named; with options: only where one of them is given.
- `copies`: the last operand, or the value of `-t`, may be a folder that takes the others by their names; with options:
  by their whole paths where one of them is given.
- `follows`: options with which it goes through the links that it finds.
- `suffix`, `prefix`: options that say how the name of a backup, or of a packed file, differs from the file's.
- `network`: it reaches other hosts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from tools.contract.permission_subjects import Access
from tools.permissions.shell.syntax.parser import changed_to
from tools.permissions.shell.syntax.words import CONTENTS, FOUND, Word, literal, names, parse, read_word, unknown

R, W, F = Access.READ, Access.WRITE, Access.FETCH
Targets = Iterator[tuple[Access, Word | None]]  # what is touched, for what; `None` for what cannot be known
# How git itself calls the top of the work tree that a folder is in; a path may stand behind it
TOP_OF_REPOSITORY = ":/"
REMOTE_PATH = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)|[a-z][a-z0-9+.-]*://(?:[^/@]*@)?([^/:]+)", re.ASCII)


class Reach(StrEnum):
    """What is touched where a path is a folder."""

    ITSELF = "itself"  # nothing that is in it
    BELOW = "below"  # what is in it now
    STORED = "stored"  # what a repository has stored of it, now or before
    NAMED = "named"  # the same; of the whole repository where there is no such path, since it is a revision then
    UNTRACKED = "untracked"  # what is in it now and git neither tracks nor ignores
    IGNORED = "ignored"  # what is in it now and git does not track
    MATCHED = "matched"  # what fits it as a pattern of git's, now, and what is in it


# What is written or removed by names that no word says, but that can be looked up
TAKEN = (Reach.UNTRACKED, Reach.IGNORED, Reach.MATCHED)
_TABLE = """
cat less more most rev bat zcat bzcat xzcat zstdcat zless zmore bzless xzless tsort sum cksum crc32 stat readlink
    realpath nm objdump readelf size ldd source . view vimdiff comm: reads
tac: reads | valued s separator
md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum md5: reads | valued a l algorithm length
nl: reads | valued b d f h i l n s v w
cmp: reads | valued i n bytes ignore-initial
diff diff3 sdiff colordiff: reads | from S X exclude-from from-file to-file | into o output
    | valued C F I L U W x context exclude ignore-matching-lines label show-function-line unified width
diff colordiff: follows r recursive
od: reads | valued A N S j t w address-radix format read-bytes skip-bytes strings width
hexdump hd: reads | valued e n s | from f
strings: reads | valued e n s t bytes encoding output-separator radix target
file: reads | valued F P e parameter separator | from m | lists f files-from
base32 base64 basenc: reads | valued w wrap | from i | into o
expand unexpand: reads | valued t tabs
pr: reads | valued D N S W e h i l n o s w
head tail: reads | valued c n s bytes lines max-unchanged-stats pid sleep-interval
wc: reads | valued total | lists files0-from
fold: reads | valued w width
fmt: reads | valued g p w goal prefix width
column: reads | valued E H N O R T W c d i l n o p r s output-width separator table-columns
cut: reads | valued b c d f bytes characters delimiter fields output-delimiter
paste: reads | valued d delimiters
join: reads | valued 1 2 a e i j o t v
ls dir vdir: reads | valued I T w block-size hide ignore tabsize width | searches
tree: reads | valued H I L P T charset filelimit sort timefmt | from gitfile infofile | into o output | lists fromfile
    | searches | follows l
du: reads | valued B d t block-size exclude max-depth threshold | from X exclude-from | lists files0-from | searches
    | follows L D H dereference dereference-args
grep egrep fgrep zgrep zegrep zfgrep bzgrep xzgrep: reads | skip 1 e f file regexp | from f exclude-from file
    | valued A B C D d e m after-context before-context binary-files context devices directories exclude exclude-dir
    include label max-count regexp | searches R r dereference-recursive recursive
grep egrep fgrep zgrep: follows R dereference-recursive
rg ag ack: reads | skip 1 e f file files regexp type-list | from f file ignore-file | searches
    | valued A B C E M T d e g j m r t after-context before-context color colors context encoding engine glob iglob
    max-columns max-count max-depth max-filesize maxdepth regexp replace sort sortr threads type type-add type-not
rg: follows L follow
ag: follows f follow
ack: follows follow
sort: reads | valued S k t batch-size buffer-size compress-program field-separator key parallel sort
    | from random-source | into T o output temporary-directory | lists files0-from
shuf: reads | valued i n head-count input-range | from random-source | into o output
uniq: reads | last writes | valued f s w check-chars skip-chars skip-fields
xxd: reads | last writes | valued R c g l n o s cols groupsize len name offset seek
date: valued d s date set | from f r file reference

mkdir rmdir rm unlink tee mkfifo mknod: writes
vi vim nvim nano emacs ed ex pico micro: changes
touch: writes | valued d t date time | from r reference
shred: writes | valued n s iterations size | from random-source
truncate: writes | valued s size | from r reference
# A mode may look like an option (`chmod -x f`), and then nothing stands before the files.
chmod: writes | skip 1 X r s t w x reference | from reference
chown chgrp: writes | skip 1 reference | from reference
chattr: writes | valued p v
setfacl: writes | valued m x modify remove | from M X restore
cp: reads | last writes | valued S context sparse suffix | into t target-directory | copies parents
    | follows L H dereference | suffix S suffix
ln: reads | last writes | valued S suffix | into t target-directory | copies | suffix S suffix
link: reads | last writes
mount: reads | last writes | valued o t options types
mv: changes | last writes | valued S suffix | into t target-directory | copies | suffix S suffix
# With `-d` each operand is a folder to be made.
install: changes | last writes | valued S g m o group mode owner strip-program suffix | into t target-directory
    | copies | suffix S suffix
# Options of wrappers; those of the command within count too, which tells rather too much.
xargs: valued E I L P d n s | from a arg-file
parallel: valued I N d j | from a arg-file | into joblog results
time strace ltrace: valued e f p s | into o output
script: writes | valued c command
rename rename.ul prename file-rename perl-rename: changes | skip 1
split: reads | last writes | valued C a b l n t bytes filter line-bytes lines number suffix-length | always writes
csplit: reads | valued b f n digits prefix suffix-format | always writes
gzip gunzip bzip2 bunzip2 xz unxz lzma zstd unzstd: changes | valued S suffix | suffix S suffix
patch: changes | valued B D F V Y g p z fuzz ifdef prefix strip suffix | from i input | always writes
    | into d o r directory output reject-file | suffix z suffix | prefix B Y basename-prefix prefix

curl: fetches | network
    | valued A C F H Q U X Y b d e m r t u w y z connect-timeout connect-to cookie data data-ascii data-binary data-raw
    data-urlencode form header json max-time range referer request resolve retry url-query user user-agent variable
    write-out
    | into D c o alt-svc cookie-jar dump-header etag-save hsts libcurl output output-dir stderr trace trace-ascii
    | from E K T cacert cert config etag-compare key netrc-file upload-file
    | hosts x doh-url preproxy proxy proxy1.0 socks4 socks4a socks5 socks5-hostname url
wget: fetches | network | from i body-file ca-certificate config input-file load-cookies post-file
    | valued A D I R T U e l t accept execute header level password reject timeout tries user user-agent
    | into O P a o append-output directory-prefix hsts-file output-document output-file rejected-log save-cookies
    warc-file
ping ping6 dig host nslookup nc ncat telnet ftp sftp traceroute whois mosh: fetches | network
ssh: fetches | network | valued B D I J L O Q R W b c e l m o p w | from F i | into E S
rsync: reads | last writes | network | copies R relative | lists files-from | suffix suffix
    | valued B M e f block-size chmod chown exclude filter include port rsh rsync-path suffix timeout
    | from compare-dest copy-dest exclude-from include-from link-dest password-file read-batch
    | into T backup-dir log-file partial-dir temp-dir write-batch
    | follows L k copy-links copy-unsafe-links copy-dirlinks
scp: reads | last writes | network | valued D J P S X c l o | from F i | copies
gh glab hub tea: always fetches | network
http https aria2c lynx w3m links elinks axel: fetches | always fetches | network

zip: changes | valued P b i n t x TT tt unzip-command | lists @ R recurse-patterns | always writes
unzip: reads | valued P x | into d | always writes
7z 7za 7zr unrar rar cpio pax ar jar: changes | always changes
tar: valued F H I K L N V b checkpoint-action exclude info-script rsh-command to-command use-compress-program
    | from X exclude-from | into g index-file listed-incremental | lists T files-from | follows h dereference
"""


@dataclass(frozen=True, slots=True)
class Files:
    """A row of the table: what a program does with its operands and its options, whose names are without dashes."""

    operands: tuple[Access, ...] = ()
    last: tuple[Access, ...] | None = None
    skip: int = 0
    unless: frozenset[str] = frozenset()
    options: dict[str, Access] = field(default_factory=dict[str, Access])
    lists: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()  # every option with a value, whatever that is
    always: tuple[Access, ...] = ()
    searches: frozenset[str] | None = None
    copies: frozenset[str] | None = None
    follows: frozenset[str] = frozenset()
    suffix: frozenset[str] = frozenset()
    prefix: frozenset[str] = frozenset()
    network: bool = False

    def with_fields(self, fields: Sequence[tuple[str, str]]) -> Files:
        """It with what a row of the table says besides."""
        accesses = {"reads": (R,), "writes": (W,), "changes": (R, W), "fetches": (F,)}
        new: dict[str, Any] = {"options": self.options}
        for kind, text in fields:
            if kind in accesses:
                new["operands"] = accesses[kind]
            elif kind in ("last", "always"):
                new[kind] = accesses[text]
            elif kind == "skip":
                number, _, unless = text.partition(" ")
                new |= {"skip": int(number), "unless": names(unless)}
            elif kind in ("from", "into", "hosts"):
                access = {"from": R, "into": W, "hosts": F}[kind]
                new["options"] = new["options"] | dict.fromkeys(text.split(), access)
            else:
                new[kind] = True if kind == "network" else names(text)
        files = replace(self, **new)
        return replace(files, valued=files.valued | files.options.keys() | files.lists)


def table_rows(table: str) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """The rows of a table, such as `cp mv: reads | valued S suffix`, which go on in indented lines.

    Each is the names in front, and the fields as their first word and the rest.
    """
    for row in table.replace("\n    ", " ").split("\n"):
        heads, colon, rest = row.partition(": ")
        if colon and not row.startswith("#"):
            parts = (each.strip().partition(" ") for each in rest.split(" | "))
            yield heads.split(), [(kind, text.strip()) for kind, _, text in parts]


# What is not here, and not judged by a function of its own, has effects that are not known
FILES: dict[str, Files] = {}
for _heads, _fields in table_rows(_TABLE):
    FILES.update((head, FILES.get(head, Files()).with_fields(_fields)) for head in _heads)
NETWORK = frozenset(name for name, files in FILES.items() if files.network)  # programs that reach other hosts


def gives_option(text: str, options: frozenset[str]) -> bool:
    """Whether a word gives one of some options: in a cluster of letters, or as a long name, which may be shortened."""
    if not text.startswith("--"):
        return text.startswith("-") and (text[1:] in options or any(letter in options for letter in text[1:]))
    name = text[2:].partition("=")[0]
    return bool(name) and any(len(option) > 1 and option.startswith(name) for option in options)


def targets(files: Files, arguments: Sequence[Word]) -> Targets:
    """What a command line touches, by the row of its program."""
    parsed = parse(arguments, files.valued)
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
    for access in files.always:
        yield access, None
    given = {option.lstrip("-") for option, _ in parsed.options}
    operands = parsed.operands[0 if given & files.unless else files.skip :]
    if files.searches is not None and not operands and (not files.searches or given & files.searches):
        yield R, literal(".")
    folders = parsed.values("-t", "--target-directory")
    for place, word in enumerate(operands):
        is_last = place == len(operands) - 1 and len(operands) > 1 and not folders
        for access in files.last if files.last is not None and is_last else files.operands:
            yield access, word
        if word.text.startswith("@"):
            # To many programs that is a file with further words.
            yield R, literal(word.text[1:]) if word.is_literal else word
        if files.last is not None and (remote := REMOTE_PATH.match(word.text)):
            yield F, host(remote[1] or remote[2], word)
    if files.copies is None:
        return
    # Where the copies come to lie if the place for them is a folder.
    keeps_paths = any(gives_option(option, files.copies) for option, _ in parsed.options)
    known = [folder for folder in folders if folder is not None]
    sources = operands
    if not known and len(operands) > 1:
        sources, known = operands[:-1], [operands[-1]]
    folder = known[0] if known else literal(".")
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


def follows_links(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a command goes through the links that it finds below what it is told to read."""
    texts = [word.text for word in arguments]
    if name == "find":
        return "-L" in texts or "-follow" in texts
    if name in ("ls", "dir", "vdir"):
        # A listing goes deep only where it is told to.
        needed = names("L dereference"), names("R recursive")
        return all(any(gives_option(text, options) for text in texts) for options in needed)
    files = FILES.get(name)
    return files is not None and any(gives_option(text, files.follows) for text in texts)


_COPYING_LINKS = names("a d P r R archive no-dereference preserve recursive")
_MAKING_LINKS = names("s l symbolic-link link")


def copies_links(arguments: Sequence[Word]) -> bool:
    """Whether `cp` may copy a link as a link."""
    return any(gives_option(word.text, _COPYING_LINKS) for word in arguments)


def makes_links(name: str, arguments: Sequence[Word]) -> bool:
    """Whether a program gives another name to what is already there."""
    return name in ("ln", "link", "mount") or (
        name == "cp" and any(gives_option(word.text, _MAKING_LINKS) for word in arguments)
    )


def sources_of_links(name: str, arguments: Sequence[Word]) -> Iterator[Word | None]:
    """What gets another name by `ln`, or by a copy of a link: who writes the new name writes this."""
    if name == "rsync":
        yield from parse(arguments, ("link-dest",)).values("--link-dest")
    if not makes_links(name, arguments) and not (name == "cp" and copies_links(arguments)):
        return
    parsed = parse(arguments, FILES[name].valued)
    folders = parsed.values("-t", "--target-directory")
    sources = parsed.operands if folders or len(parsed.operands) == 1 else parsed.operands[:-1]
    places = folders or parsed.operands[len(sources) :]
    place = places[-1].path if name == "ln" and places and places[-1] is not None else None
    for source in sources:
        yield source
        if place is not None and source.path is not None and source.path[:1] not in "/~$":
            # The text of a link is taken from the folder that the link is in.
            yield literal(posixpath.join(posixpath.dirname(place), source.path))
            yield literal(posixpath.join(place, source.path))


# What a table cannot tell


def of_crontab(arguments: Sequence[Word]) -> Targets:
    """It reads a file, and writes the table of what runs at another time."""
    parsed = parse(arguments, ("u",))
    yield from ((R, word) for word in parsed.operands)
    if not parsed.has("-l"):
        yield W, literal("/var/spool/cron/crontabs")


def of_dd(arguments: Sequence[Word]) -> Targets:
    """`if=` is read, `of=` is written."""
    for word in arguments:
        name, _, value = word.text.partition("=")
        if name in ("if", "of"):
            path = read_word(word.source.partition("=")[2]).path
            yield R if name == "if" else W, replace(word, text=value, path=path)


def of_cd(arguments: Sequence[Word]) -> Targets:
    target = changed_to([literal("cd"), *arguments])
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
    for word, value in pairwise(arguments):
        if re.fullmatch(r"-fprint[0f]?|-fls", word.text):
            yield W, value
        elif re.match(r"-newer|-(?:anewer|cnewer|samefile|files0-from)\Z", word.text):
            yield R, value
            if word.text == "-files0-from":
                yield R, None


# Words with which editors do what may write any file; with an empty pattern they always do
_SCRIPTED = {
    **dict.fromkeys(names("ed ex"), re.compile("")),
    **dict.fromkeys(
        names("vi vim nvim gvim view vimdiff"),
        re.compile(r"-(?!c\Z|[RnbdoOpmMZ]+\d*\Z|-(?!cmd)).+|\+(?!\d*\Z|/[^|]*\Z).*", re.DOTALL),
    ),
    "emacs": re.compile(r"--?(?:e[vx]|l|f|script|batch|insert).*"),
}
_PLAIN_EDIT = re.compile(r"\d+|\$|/[^|\n]*|(?:q|w|wq|x|qa|wa|wqa|xa)!?|set? \w+")


def runs_script(name: str, arguments: Sequence[Word]) -> bool:
    """Whether an editor is told to do what may write any file, by its options or from its input."""
    scripted = _SCRIPTED.get(name)
    return scripted is not None and (
        not scripted.pattern
        or any(scripted.fullmatch(word.text) for word in arguments)
        or any(word.text == "-c" and not _PLAIN_EDIT.fullmatch(after.text) for word, after in pairwise(arguments))
    )
