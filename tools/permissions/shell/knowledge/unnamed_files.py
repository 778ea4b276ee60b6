"""Files and links that a command makes by names that its words do not say.

Parts, backups, patches, settings, hooks; what an archive holds, and what another host sends.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice

from tools.permissions.auto_run_files import is_data, names_between
from tools.permissions.shell.knowledge import program_files
from tools.permissions.shell.knowledge.git import brings_links, folder_of, subcommand
from tools.permissions.shell.knowledge.program_files import FILES, F, Files, R, Targets, W
from tools.permissions.shell.knowledge.running_options import RUNNERS, RUNNERS_ALONE
from tools.permissions.shell.syntax.words import (
    TAR_VALUED,
    Word,
    literal,
    names,
    parse,
    read_word,
    unknown,
    with_dashes,
)


class Links(StrEnum):
    """What a command may leave where it writes, in the order of certainty."""

    NONE = "none"
    MAYBE = "maybe"  # links among what it copies, moves or unpacks
    MADE = "made"  # another name for something that is there already


_ONLY_LISTING = {"tar": re.compile(r"-?[A-Za-z]*[tc]|--(?:list|create)"), "unzip": re.compile(r"-[lvtZ]")}
_BRINGING_LINKS = names("mv rsync tar unzip 7z 7za 7zr unrar cpio pax ar jar patch scp")


def links_left(name: str, arguments: Sequence[Word]) -> Links:
    """What a command may leave where it writes: through a link, a path leads elsewhere than it seems."""
    if program_files.makes_links(name, arguments):
        return Links.MADE
    if name == "git":
        return Links.MAYBE if brings_links(arguments) else Links.NONE
    listing = _ONLY_LISTING.get(name)
    only_lists = listing is not None and bool(arguments) and listing.match(arguments[0].text) is not None
    brings = (name in _BRINGING_LINKS and not only_lists) or (name == "cp" and program_files.copies_links(arguments))
    return Links.MAYBE if brings else Links.NONE


# What stands behind this is the end of a backup's name, or its whole name with `*` for what there was
_IN_PLACE = {
    "sed": re.compile(r"(?:-[nErsuz]*i|--in-p[a-z-]*=)(.+)", re.DOTALL),
    **dict.fromkeys(names("perl ruby"), re.compile(r"-[acflnpsStTuUwWX0-9]*i(.+)", re.DOTALL)),
}
_UNPACKING = names(
    "gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd uncompress pigz unpigz lz4 brotli gpg gpg2"
)


def names_made(name: str, arguments: Sequence[Word], written: Sequence[Word]) -> Iterator[Word]:
    """The files that a program writes by names of which its words are but a part."""
    row = FILES.get(name, Files())
    if name in ("split", "csplit"):
        # Of what other programs run, what is called like a part of a file may be: the letters in between are counted.
        parsed = parse(arguments, row.valued | names("f additional-suffix"))
        given = {option: value for option, value in parsed.options if value is not None}
        begin = given.get("-f", given.get("--prefix")) if name == "csplit" else (*parsed.operands, None, None)[1]
        end = given.get("--additional-suffix")
        last = end.text if end is not None and end.is_literal else ""
        folder, first = posixpath.split(begin.text if begin is not None else "")
        if begin is not None and not begin.is_literal:
            yield from () if is_data(last) else (begin,)
        elif first:
            # Letters alone make no such name.
            yield from (literal(posixpath.join(folder, each)) for each in names_between(first, last))
    elif name in ("rename", "rename.ul", "prename", "file-rename", "perl-rename"):
        operands = parse(arguments).operands
        if len(operands) > 2 and all(word.is_literal for word in operands) and not re.search(r"[/;]", operands[0].text):
            old, new = operands[0].text, operands[1].text
            for count in (1, -1):
                yield from (literal(word.text.replace(old, new, count)) for word in operands[2:])
        elif operands:
            # What an expression of Perl makes of names is not known.
            yield unknown("$_")
    elif (pattern := _IN_PLACE.get(name)) is not None:
        files = written or [word for word in arguments if word.is_literal and not word.text.startswith("-")]
        for word in arguments:
            if not (found := pattern.match(word.text)):
                continue
            end = literal(found[1]) if word.is_literal else unknown(word.source)
            for file in files:
                if "*" not in end.text or not (file.is_literal and end.is_literal):
                    yield _joined(file, end)
                    continue
                folder, last = posixpath.split(file.text)
                made = end.text.replace("*", last)
                yield literal(posixpath.join(folder, made))
                if "/" in made:
                    yield literal(made)
    elif row.suffix or name in _UNPACKING:
        given = [(o.lstrip("-"), value) for o, value in parse(arguments, row.valued).options if value is not None]
        ends = [value for option, value in given if option in row.suffix]
        for file in written or [word for word in arguments if not word.text.startswith("-")]:
            yield from (_joined(file, end) for end in ends)
            for begin in (value for option, value in given if option in row.prefix):
                # It stands before the whole of a file's name, or before its last part.
                folder, last = posixpath.split(file.text)
                is_known = begin.is_literal and file.is_literal
                yield literal(posixpath.join(folder, begin.text + last)) if is_known else _joined(begin, file)
            if name in _UNPACKING and file.is_literal:
                yield literal(posixpath.splitext(file.text)[0])
                yield from (literal(file.text.removesuffix(end.text)) for end in ends)


def _joined(first: Word, second: Word) -> Word:
    if first.is_literal and second.is_literal:
        return literal(first.text + second.text)
    return read_word(first.source + second.source)


def names_backups(assignment: Word) -> bool:
    """Whether a variable, as it is given or exported, says how backups of any file are called."""
    variable, _, value = assignment.source.partition("=")
    return variable == "SIMPLE_BACKUP_SUFFIX" and not (read_word(value).is_literal and is_data(read_word(value).text))


MAX_HEADERS = 1_024  # names in one patch that are looked at; of more it is not known what is written
MAX_DEPTH = 16  # folders in one name that are looked at
_HEADER = re.compile(
    r"(?:\+\+\+|---|\*\*\*|(?:rename|copy) (?:from|to)|Index:|diff --git)[ \t]+"
    r"((?:\"(?:\\.|[^\"\\])*\"|[^\n\t\\]|\\[^nt])+)"
)
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|(.))", re.DOTALL)
_ESCAPED_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def names_in_patch(name: str, arguments: Sequence[Word], text: str) -> Iterator[Word]:
    """The files that a text of a patch says it is about. How many folders are stripped off is an option."""
    found = subcommand(arguments) if name == "git" else None
    if name != "patch" and (found is None or found[0] not in ("apply", "am")):
        return
    top = folder_of(arguments) if name == "git" else ""
    parsed = parse(found[1] if found else arguments, ("d", "directory", "p", "C"))
    given = [value.path for value in parsed.values("-d", "--directory") if value is not None]
    folders = [top if each is None else posixpath.join(top or "", each) for each in (None, *given)]
    headers = list(islice(_HEADER.finditer(text), MAX_HEADERS + 1))
    if len(headers) > MAX_HEADERS:
        yield unknown("$_")

    def unescaped(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 8)) if escape[1] else _ESCAPED_LETTERS.get(escape[2], escape[2])

    paths: dict[str, None] = {}
    # A line may mean all of it, up to a time behind it, or two names.
    for piece in (piece for header in headers for piece in (header[1].strip(), *header[1].split())):
        quoted = re.fullmatch(r"\\?\"(.*?)\\?\"|'?(.*?)['\"]*", piece, re.DOTALL)
        if quoted and quoted[1] is not None:
            paths[_ESCAPE.sub(unescaped, quoted[1])] = None
        elif quoted and quoted[2]:
            paths[quoted[2]] = None
    for path in paths:
        if "$" in path or "`" in path:
            yield unknown(path)
            continue
        parts = path.split("/")
        suffixes = ["/".join(parts[at:]) for at in range(min(len(parts), MAX_DEPTH))]
        yield from (literal(posixpath.join(folder or "", each)) for each in suffixes if each for folder in folders)


# What programs are told, as a pattern, and the settings or hooks that they write then
_SETTINGS = r"""
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

_SETTINGS_WRITTEN = {
    head: (re.compile(pattern.strip(), re.DOTALL), paths.split())
    for row in _SETTINGS.strip().splitlines()
    for heads, _, rest in [row.partition(":")]
    for pattern, _, paths in [rest.rpartition(" | ")]
    for head in heads.split()
}
MAX_WORDS = 32  # how far behind the name of the program its mode may stand
MAX_VALUES = 4  # values of options that may stand there


def settings_written(name: str, arguments: Sequence[Word]) -> Iterator[Word]:
    """The files that a program is told to write without their names, also where another one runs it."""
    runs_other = name in RUNNERS and any(
        word.text in ("run", "run-script", "exec", "x", "install", "i", "add") for word in arguments[:1]
    )
    if name in _SETTINGS_WRITTEN and not runs_other:
        pattern, paths = _SETTINGS_WRITTEN[name]
        texts = [word.text for word in arguments[:MAX_WORDS] if not word.text.startswith("-") or name == "hg"]
        # An option may have a value, so each of the first words may begin what it is told.
        if any(pattern.match(" ".join(texts[at:])) for at in range(MAX_VALUES)):
            yield from map(literal, paths)
    if name in RUNNERS | RUNNERS_ALONE or name.startswith("python"):
        for at, word in enumerate(arguments[:MAX_WORDS]):
            if word.text in _SETTINGS_WRITTEN and word.text not in RUNNERS:
                yield from settings_written(word.text, arguments[at + 1 :])


_CHOSEN = unknown("$_")  # a file whose name somebody else says


def of_tar(arguments: Sequence[Word]) -> Targets:
    """Old letters in front stand without a dash: `tar xf a`."""
    words = with_dashes(arguments, TAR_VALUED)
    yield from program_files.targets(FILES["tar"], words)
    parsed = parse(words, FILES["tar"].valued | names("f file C directory"))

    def is_given(options: frozenset[str]) -> bool:
        return any(program_files.gives_option(name, options) for name, _ in parsed.options)

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
        yield W, program_files.something_in(folder)


def of_unzip(arguments: Sequence[Word]) -> Targets:
    """`-d` says where what is in the archive goes."""
    yield from program_files.targets(FILES["unzip"], arguments)
    folders = parse(arguments, ("d", "P", "x")).values("-d")
    yield W, program_files.something_in(folders[-1] if folders else literal("."))


def names_unpacked(name: str, arguments: Sequence[Word], inputs: Sequence[Sequence[Word]]) -> Targets:
    """What is unpacked, or copied, by names that a program is given to read, or that what packed them was told."""
    parsed = parse(
        with_dashes(arguments, TAR_VALUED) if name == "tar" else arguments, names("f file C directory D I O F H")
    )
    if name == "tar" and not parsed.has("-x", "--extract", "--get"):
        return
    folders = parsed.values("-C", "--directory", "-D")
    if name == "pax" or (name == "cpio" and parsed.has("-p", "--pass-through")):
        folders += parsed.operands[-1:]
    folder = folders[-1] if folders else literal(".")
    for word in (word for text in inputs for word in text):
        if word.is_literal and folder is not None and folder.path is not None:
            yield from ((W, literal(posixpath.join(folder.path, path))) for path in word.text.split())
        else:
            yield W, program_files.something_in(folder)
    copies = parsed.has("-p", "--pass-through") if name == "cpio" else parsed.has("-r") and parsed.has("-w")
    if name != "tar" and copies and not inputs:
        yield W, _CHOSEN


def of_curl(arguments: Sequence[Word]) -> Targets:
    """`-d @file` sends a file, `file://` reads one, `-O` writes one that the address names.

    `-b file`, `-F 'f=<file'` and what else there is are among the parts of words that any program may mean.
    """
    yield from program_files.targets(FILES["curl"], arguments)
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
    yield from program_files.targets(FILES["wget"], arguments)
    if any(re.match(r"-[a-zA-Z]*e|--exe", word.text) for word in arguments):
        yield F, None
    parsed = parse(arguments, FILES["wget"].valued)
    given = [name for name, _ in parsed.options]
    if any(name == "-O" or (len(name) >= len("--output-d") and "--output-document".startswith(name)) for name in given):
        return
    chooses = re.compile(r"-[irmp]|--(?:content-d|inp|rec|mir|page-r|trust-s|met|input-m).*", re.DOTALL)
    if any(map(chooses.fullmatch, given)):
        yield W, _CHOSEN
    prefixes = parsed.values("-P", "--directory-prefix")
    yield from _named_by_address(arguments, prefixes[-1] if prefixes else literal("."))


def of_aria2(arguments: Sequence[Word]) -> Targets:
    """The host names what is written, unless an option does."""
    parsed = parse(arguments, ("o", "out", "output", "d", "dir"))
    yield from ((F, word) for word in (*parsed.operands, None))
    outputs = parsed.values("-o", "--out", "--output")
    folders = [value for value in parsed.values("-d", "--dir") if value is not None]
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
    yield W, program_files.something_in(folder)
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
