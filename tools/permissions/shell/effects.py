"""Which files a command reads and writes and which hosts it reaches: as far as its words tell, and what they may name.

No table knows all options of all programs. So each word of a command that only reads, or that no table knows, counts as
a file that it may read or write, and so do the parts of a word: what is attached to an option, what stands behind `=`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tools.contract.permission_subjects import Access
from tools.permissions.auto_run_files import why_protected
from tools.permissions.shell.command_analysis import HARMLESS_FILES, Effect
from tools.permissions.shell.knowledge import interpreters, program_files, unnamed_files
from tools.permissions.shell.knowledge.git import of_git, of_repository, subcommand
from tools.permissions.shell.knowledge.program_files import FILES, NETWORK, F, R, Targets, W
from tools.permissions.shell.knowledge.running_options import outputs_of_options
from tools.permissions.shell.knowledge.variables import value_of
from tools.permissions.shell.syntax.parser import joined
from tools.permissions.shell.syntax.words import CONTENTS, FOUND, NUMBER, Word, names, read_word, unknown

_NETWORK_FILE = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/")
_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/@\s]*@)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d*)?(?:[/?#].*)?",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
# `jaq` reads the language of jq, and has `-i` like yq.
# Programs whose command lines no table can tell
_SPECIAL: dict[str, Callable[[Sequence[Word]], Targets]] = {
    "git": of_git,
    **dict.fromkeys(("cd", "pushd"), program_files.of_cd), "find": program_files.of_find, "dd": program_files.of_dd,
    "crontab": program_files.of_crontab, "sed": interpreters.of_sed, "awk": interpreters.of_awk,
    "jq": interpreters.of_jq, **dict.fromkeys(("yq", "jaq"), interpreters.of_yq), "curl": unnamed_files.of_curl,
    "wget": unnamed_files.of_wget, "aria2c": unnamed_files.of_aria2, "tar": unnamed_files.of_tar,
    "unzip": unnamed_files.of_unzip,
}  # fmt: skip
_FOLDER_COMMANDS = ("mkdir", "rmdir")  # they make and remove folders, and so nothing that a program could run
_READING_DATA = names("read mapfile readarray wait pbcopy xclip wl-copy mail sendmail")  # what these read is data
# Programs without a table whose words are numbers, variables, processes, targets or names of other things
_NAMING_NO_FILES = names(
    "kill killall pkill pgrep sleep exit return shift wait ulimit umask set trap export declare typeset local readonly"
    " unset printf type command builtin let getopts alias unalias jobs fg bg disown make ninja npm pnpm yarn systemctl"
    " service useradd userdel usermod groupadd mktemp getent"
)
# What these write is what git has stored; a word of theirs is a branch as well as a file
_CHECKING_OUT = ("checkout", "restore", "switch")
MAX_PATH_CHARS = 4_096  # Linux opens no longer path
MAX_PIECES = 64  # parts of a word that are looked at
MAX_LETTERS = 16  # letters of options that a value may be attached to
MAX_NAMES = 4_096  # names in the text of a program that are looked at
_URL = re.compile(r"[a-z0-9+.-]{1,32}://", re.IGNORECASE | re.ASCII)
_URL_HOST = re.compile(r"(?:[^/?#@\s]*@)?(\[[0-9a-f:.]+\]|[^/?#:\s'\"]*)", re.IGNORECASE | re.ASCII)
_PLAIN_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]", re.IGNORECASE | re.ASCII)
_BETWEEN = re.compile(r"[=:,;@<>]+")
_MARKS = re.compile(r"\$(?:\w+|\{[^}]*\})|['\"\\]", re.ASCII)
_BETWEEN_NAMES = re.compile(r"(?:\\[nrt0]?|[=:,;@<>'\"`()\[\]{}|&\s])+")


def effects_of(
    name: str, arguments: Sequence[Word], folder: str | None, text: str = "", inputs: Sequence[Sequence[Word]] = ()
) -> Iterator[Effect]:
    """What a command touches by its arguments, and by what it is given to unpack."""
    special = _SPECIAL.get(name)
    files = FILES.get(name)
    touched = list(special(arguments) if special else program_files.targets(files, arguments) if files else ())
    verb = subcommand(arguments) if name == "git" else None
    says_names = name not in _FOLDER_COMMANDS and (verb is None or verb[0] not in _CHECKING_OUT)
    written = [word for access, word in touched if access is W and word is not None]
    touched += ((W, word) for word in unnamed_files.names_made(name, arguments, written))
    touched += ((W, word) for word in unnamed_files.settings_written(name, arguments))
    # A patch may also move what is there to another name.
    touched += ((access, word) for word in unnamed_files.names_in_patch(name, arguments, text) for access in (R, W))
    if interpreters.reads_folders(name, arguments):
        touched.append((R, None))
    if program_files.runs_script(name, arguments):
        touched.append((W, unknown("$_")))
    for access, word in touched:
        effect = _effect(access, word, folder)
        yield effect if says_names or effect.target is not None else replace(effect, is_named=False)
    for access, word, reach in of_repository(arguments) if name == "git" else ():
        yield replace(_effect(access, word, folder), reach=reach)
    for word in outputs_of_options(name, arguments):
        yield _effect(W, word, folder)
    for word in program_files.sources_of_links(name, arguments):
        yield replace(_effect(W, word, folder), is_source=True)
    for access, word in unnamed_files.names_unpacked(name, arguments, inputs) if name in ("tar", "cpio", "pax") else ():
        yield _effect(access, word, folder)


def possible_accesses(name: str, *, is_plain: bool) -> tuple[Access, ...]:
    """What a command's words may be touched for besides what `effects_of` tells.

    A program by a path of its own is none of the tables.
    """
    if name in NETWORK or (name in ("awk", "sed") and not is_plain):
        return R, W, F
    if name == "git":
        return (R,)
    return () if name in _SPECIAL or name in FILES else (R, W, F)


def takes_program(name: str, accesses: Sequence[Access]) -> bool:
    """Whether a program may take what it is given to read for a program, or for names."""
    return W in accesses and name not in NETWORK and name not in _SPECIAL and name not in _READING_DATA


def effects_of_unknown_words(name: str, arguments: Sequence[Word], folder: str | None) -> Iterator[Effect]:
    """What a program may read that no table knows, by words of which it is not known what they stand for."""
    for word in arguments if name not in _NAMING_NO_FILES else ():
        is_option = word.prefix.startswith("-") and "=" not in word.prefix
        if not word.is_literal and word.path is None and not is_option:
            yield _unknown_effect(R, word, folder)


def redirection_effects(operator: str, target: Word, folder: str | None) -> tuple[list[Effect], str]:
    """What the shell opens for a redirection, and what is doubtful about it, else nothing."""
    if operator in (">&", "<&") and re.fullmatch(r"\d*-|\d+", target.text):
        return [], ""
    if network := _NETWORK_FILE.match(target.text):
        return [Effect(F, network[1])], f"it opens a connection: {target.source}"
    if target.is_literal and target.text in HARMLESS_FILES:
        return [], ""
    accesses = {"<": (R,), "<&": (R,), "<>": (R, W)}.get(operator, (W,))
    return [_effect(access, target, folder, is_redirection=True) for access in accesses], ""


def _effect(access: Access, word: Word | None, folder: str | None, *, is_redirection: bool = False) -> Effect:
    """What is touched by one word."""
    if access is F:
        host = _HOST.fullmatch(word.text) if word is not None and word.is_literal else None
        return Effect(access, host[1].strip("[]").lower() if host else None)
    path = None if word is None or FOUND in word.text else word.path
    if path is None or "\0" in path:
        return _unknown_effect(access, word, folder, is_redirection=is_redirection)
    if path.startswith(("/", "~", "$")):
        folder = ""
    elif folder is not None and folder.startswith(("~", "$")):
        path, folder = joined(folder, path), ""
    return Effect(access, path, folder, is_redirection)


def _unknown_effect(access: Access, word: Word | None, folder: str | None, *, is_redirection: bool = False) -> Effect:
    """What a word is touched for that stands for a path which is not known, but for its beginning or its end."""
    if word is None:
        return Effect(access, None, None, is_redirection, is_named=access is not W)
    is_open = is_named = False
    if access is not W:
        is_named = True
    else:
        # All that is not known may be a number or a date, and no such path an auto-run file.
        forms = (read_word(NUMBER.sub(number, word.source)) for number in ("0", ""))
        is_numbered = (
            FOUND not in word.source
            and NUMBER.search(word.source) is not None
            and all(f.is_literal and why_protected(f.text) is None and ".." not in f.text.split("/") for f in forms)
        )
        if not is_numbered:
            is_open, is_named = word.is_open, CONTENTS not in word.source
    return Effect(
        access,
        None,
        folder if word.beginning else None,
        is_redirection,
        word.beginning,
        word.ending,
        is_open,
        is_named=is_named,
        # The shell itself opens one file only.
        name_end=word.name_end(is_one=is_redirection) if access is W else "",
    )


def possible_effects(
    words: Sequence[Word], assignments: Sequence[Word], accesses: Sequence[Access], folder: str | None
) -> Iterator[Effect]:
    """What the words of a command, and the variables that it is given, may name. Values of these count in any case."""
    values = [literal for word in assignments if (literal := value_of(word)) is not None]
    in_values = [piece for value in values for piece in _pieces(value)]
    open_words = [word for word in words if not word.is_literal]
    for access in dict.fromkeys((*accesses, R)):
        if access is F:
            for word in (*words, *assignments):
                for found in islice(_URL.finditer(word.text), MAX_PIECES):
                    if not found[0].lower().endswith("file://"):
                        host = _URL_HOST.match(word.text, found.end())
                        name = host[1] if host else ""
                        yield Effect(access, name.strip("[]").lower() if _PLAIN_HOST.fullmatch(name) else None)
            continue
        named = [path for word in words for path in _paths_in(word)] if access in accesses else []
        named += in_values
        # A word of several words may be a program; of one that is not literal, the names in it may be what it becomes.
        texts = [word.text for word in (words if access is W else open_words)]
        texts += [_MARKS.sub("", word.source) for word in open_words]
        pieces = dict.fromkeys(piece for text in texts for piece in _BETWEEN_NAMES.split(text) if piece)
        named += islice(pieces, MAX_NAMES)
        yield from (Effect(access, path, folder) for path in dict.fromkeys(named))
        for word in words if access in accesses else ():
            if word.path is None and (word.beginning or word.ending):
                yield _unknown_effect(access, word, folder)
    if W not in accesses:
        # Programs write logs and state where variables say.
        yield from (Effect(W, piece, folder) for piece in in_values)
    # No table tells the value of an option that is not literal.
    for path in dict.fromkeys(path for word in open_words for path in _values_in(word)):
        yield Effect(W, path, folder)


def _paths_in(word: Word) -> Iterator[str]:
    """The paths that an argument may name: itself, its parts, what is attached to the letters of options."""
    path = word.path if word.path is not None else word.text
    if len(path) > MAX_PATH_CHARS or "\0" in path:
        return
    if path.startswith("-") and not path.startswith("--"):
        yield from (path[place:] for place in range(2, min(len(path), MAX_LETTERS)))
    elif not path.startswith("-") and not _URL.search(path):
        yield path
    if not word.is_literal:
        yield from _values_in(word)
    yield from _pieces(path)


def _values_in(word: Word) -> Iterator[str]:
    """The paths in a word that is not literal: behind `=`, and attached to an option."""
    for source in (word.source.partition("=")[2], word.source[2:] if word.source.startswith("-") else ""):
        if source and (path := read_word(source).path) is not None:
            yield path


def _pieces(path: str) -> Iterator[str]:
    """A text, what follows its first `=`, and what stands between marks such as colons."""
    if _URL.search(path) and not path.lower().startswith("file:"):
        return
    if len(path) <= MAX_PATH_CHARS and not path.startswith("-"):
        yield path
    value = path.partition("=")[2]
    if value:
        yield value
    yield from (piece for piece in islice(_BETWEEN.split(path), MAX_PIECES) if piece and not piece.startswith("-"))
