"""Which files a command reads and writes and which hosts it reaches, as far as its words tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tools.contract.subjects import Access
from tools.permissions.shell.analysis import HARMLESS_FILES, Effect
from tools.permissions.shell.knowledge.file_programs import (
    ARCHIVES,
    READERS,
    WRITERS,
    F,
    Files,
    R,
    Targets,
    W,
    names_unpacked,
    of_awk,
    of_cd,
    of_crontab,
    of_dd,
    of_find,
    of_jq,
    of_sed,
    of_tar,
    of_unzip,
    of_yq,
    runs_script,
    settings_written,
    sources_of_links,
    targets,
)
from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.knowledge.git_files import of_git, of_repository
from tools.permissions.shell.knowledge.interpreters import reads_folders
from tools.permissions.shell.knowledge.made_names import names_in_patch, names_made
from tools.permissions.shell.knowledge.network import NETWORK, of_curl, of_download, of_wget
from tools.permissions.shell.knowledge.options import outputs_of_options
from tools.permissions.shell.possible_reads import unknown_effects
from tools.permissions.shell.syntax.folders import Folders, joined
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.reader import Redirection
from tools.permissions.shell.syntax.words import FOUND, Word, unknown

_NETWORK_FILE = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/")
_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/@\s]*@)?(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d*)?(?:[/?#].*)?",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)

_FILES: dict[str, Files] = READERS | WRITERS | NETWORK | ARCHIVES
"""What is not here has effects that are not known; it is never read-only by itself."""

_SPECIAL: dict[str, Callable[[Sequence[Word]], Targets]] = {
    "cd": of_cd,
    "pushd": of_cd,
    "find": of_find,
    "sed": of_sed,
    "awk": of_awk,
    "jq": of_jq,
    # It reads the language of jq, and has `-i` like yq.
    **dict.fromkeys(("yq", "jaq"), of_yq),
    "curl": of_curl,
    "wget": of_wget,
    "aria2c": of_download,
    "dd": of_dd,
    "tar": of_tar,
    "git": of_git,
    "unzip": of_unzip,
    "crontab": of_crontab,
}
"""Programs whose command lines no table can tell."""


_WITHOUT_FILES = ("mkdir", "rmdir")
"""They make and remove folders, and so nothing that a program could run."""

_READING_DATA = names("read mapfile readarray wait pbcopy xclip wl-copy mail sendmail")
"""What these read is data."""

_NAMING_NO_FILES = names(
    "kill killall pkill pgrep sleep exit return shift wait ulimit umask set trap export declare typeset local readonly"
    " unset printf type command builtin let getopts alias unalias jobs fg bg disown make ninja npm pnpm yarn systemctl"
    " service useradd userdel usermod groupadd mktemp getent"
)
"""Programs without a table whose words are numbers, variables, processes, targets or names of other things."""

_CHECKING_OUT = ("checkout", "restore", "switch")
"""What these write is what git has stored; a word of theirs is a branch as well as a file."""


def effects_of(name: str, arguments: Sequence[Word], folders: Folders, text: str = "") -> Iterator[Effect]:
    """What a command touches by its arguments.

    Args:
        name: Its family, without a folder.
        arguments: The words behind it.
        folders: Where it may run.
        text: All that is known to be read by the same shell.
    """
    special = _SPECIAL.get(name)
    files = _FILES.get(name)
    touched = special(arguments) if special else targets(files, arguments) if files else ()
    verb = subcommand(arguments) if name == "git" else None
    says_names = name not in _WITHOUT_FILES and (verb is None or verb[0] not in _CHECKING_OUT)
    touched = list(touched)
    written = [word for access, word in touched if access is W and word is not None]
    touched += ((W, word) for word in names_made(name, arguments, written))
    touched += ((W, word) for word in settings_written(name, arguments))
    # A patch may also move what is there to another name.
    touched += ((access, word) for word in names_in_patch(name, arguments, text) for access in (R, W))
    if reads_folders(name, arguments):
        touched.append((R, None))
    if runs_script(name, arguments):
        touched.append((W, unknown("$_")))
    for access, word in touched:
        for effect in _effects(access, word, folders):
            yield effect if says_names or effect.target is not None else replace(effect, is_named=False)
    for access, word, reach in of_repository(arguments) if name == "git" else ():
        yield from (replace(effect, reach=reach) for effect in _effects(access, word, folders))
    for word in outputs_of_options(name, arguments):
        yield from _effects(W, word, folders)
    for word in sources_of_links(name, arguments):
        yield from (replace(effect, is_source=True) for effect in _effects(W, word, folders))


def effects_of_input(
    name: str, arguments: Sequence[Word], inputs: Sequence[Sequence[Word]], folders: Folders
) -> Iterator[Effect]:
    """What a command that unpacks touches by what it is given to read; the arguments are those of `names_unpacked`."""
    for access, word in names_unpacked(name, arguments, inputs) if name in ("tar", "cpio", "pax") else ():
        yield from _effects(access, word, folders)


def possible_accesses(name: str, *, is_plain: bool) -> tuple[Access, ...]:
    """What a command's words may be touched for besides what `effects_of` tells.

    Args:
        name: Its family; by a path of its own it is no program of the tables.
        is_plain: Whether nothing about it is doubtful.
    """
    if name in NETWORK or (name in ("awk", "sed") and not is_plain):
        return R, W, F
    if name == "git":
        return (R,)
    return () if name in _SPECIAL or name in _FILES else (R, W, F)


def effects_of_unknown_words(name: str, arguments: Sequence[Word], folders: Folders) -> Iterator[Effect]:
    """What a program may read that no table knows, by words of which it is not known what they stand for.

    Args:
        name: Its family.
        arguments: The words behind it.
        folders: Where it may run.
    """
    if name in _NAMING_NO_FILES:
        return
    for word in arguments:
        is_option = word.prefix.startswith("-") and "=" not in word.prefix
        if not word.is_literal and word.path is None and not is_option:
            yield from unknown_effects(R, word, folders)


def takes_program(name: str, accesses: Sequence[Access]) -> bool:
    """Whether a program may take what it is given to read for a program, or for names.

    Args:
        name: Its family.
        accesses: What its words may be touched for.
    """
    return W in accesses and name not in NETWORK and name not in _SPECIAL and name not in _READING_DATA


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
            effects.append(Effect(Access.FETCH, network[1]))
            continue
        if target.is_literal and target.text in HARMLESS_FILES:
            continue
        accesses = {"<": (Access.READ,), "<&": (Access.READ,), "<>": (Access.READ, Access.WRITE)}.get(
            operator, (Access.WRITE,)
        )
        for access in accesses:
            effects += _effects(access, target, folders, is_redirection=True)
    return effects, doubts


def _effects(access: Access, word: Word | None, folders: Folders, *, is_redirection: bool = False) -> Iterator[Effect]:
    if access is Access.FETCH:
        host = _HOST.fullmatch(word.text) if word is not None and word.is_literal else None
        yield Effect(access, host[1].strip("[]").lower() if host else None)
        return
    path = None if word is None or FOUND in word.text else word.path
    if path is None or "\0" in path:
        yield from unknown_effects(access, word, folders, is_redirection=is_redirection)
        return
    for folder in folders if not path.startswith(("/", "~", "$")) else ("",):
        if folder is not None and folder.startswith(("~", "$")):
            yield Effect(access, joined(folder, path), "", is_redirection)
        else:
            yield Effect(access, path, folder, is_redirection)
