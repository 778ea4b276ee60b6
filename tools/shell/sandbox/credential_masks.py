"""Finds the files that commands in the sandbox may not see: keys, passwords, browser sessions, and agents' settings.

Everything else stays readable, because toolchains may be anywhere in a home folder. A table lists the known places.
Small files near the top of the home folder are also searched for secrets. Settings files that programs need are shown
if they contain no secret; otherwise an empty file replaces them.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache, lru_cache
from itertools import chain, islice

from tools.files.path_opener import SETTLED_NANOSECONDS
from tools.files.workspace import contains, is_inside
from tools.shell.process_spec import WithheldSecret
from tools.shell.sandbox.auto_run_guard import read_settings
from tools.shell.sandbox.credential_locations import HOME_PLACES, MOVED, SecretPlace
from tools.shell.sandbox.settings_secrets import included_settings, keeps_secret, may_hold_secret

# Files that root can read even without capabilities
_OF_ROOT = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/krb5.keytab
/etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/rancher/k3s/k3s.yaml
/etc/kubernetes /etc/ssl/private /etc/wireguard /etc/NetworkManager/system-connections
"""
SYSTEM_PATHS = _OF_ROOT.split()
INCLUDED = 64  # maximum number of included git settings files to examine
# Limits of the search for secrets: files, size of each, total size, and how long results are cached
SEARCHED_FILES, SEARCHED_FILE_BYTES, SEARCHED_BYTES, SEARCH_SECONDS = 400, 16_384, 2_000_000, 300
_FEW = 4  # a folder with at most this many known names is not listed; each name is looked up instead


@dataclass(frozen=True, slots=True)
class HiddenPaths:
    """Real paths of existing files and folders to hide."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    settings: tuple[str, ...] = ()  # files to replace with an empty one, because programs fail without them
    shown: tuple[str, ...] = ()  # paths that stay visible although they are in a hidden folder
    withheld: tuple[WithheldSecret, ...] = ()  # the known places among the hidden paths, to mention in results

    @property
    def all(self) -> tuple[str, ...]:
        """All paths whose content is not shown."""
        return (*self.folders, *self.files, *self.settings)


def secret_places(
    home: str,
    more: Iterable[str] = (),  # the server's own folders or files
    readable: Sequence[str] = (),  # shown completely, even if they are known places
    roots: Sequence[str] = (),  # real paths of the writable folders
    environ: Mapping[str, str] = os.environ,
) -> HiddenPaths:
    """Return what to hide on this machine now."""
    real_home = os.path.realpath(home)
    whole = tuple(map(os.path.realpath, readable))
    # Sorting puts folders before their contents.
    known = [*sorted(_known_paths(home, environ)), *((path, "") for path in SYSTEM_PATHS)]
    folders: dict[str, None] = {}
    files: dict[str, None] = {}
    settings: dict[str, None] = {}
    withheld: dict[str, WithheldSecret] = {}
    named: list[tuple[str, str]] = []
    tabled = {path for path, _ in known}
    beside = [root for root in roots if not contains(root, real_home)]  # files in these roots belong to the workspace
    found = (each for each in _files_with_secrets(home, time.monotonic() // SEARCH_SECONDS) if each not in tabled)
    others = ((each, each) for each in found if not is_inside(os.path.realpath(each), (*beside, *folders)))
    for path, place in chain(known, named, ((path, None) for path in more), others):
        # Files that this user cannot read need not be hidden, because commands cannot read them either.
        with suppress(OSError):
            if not os.access(path, os.R_OK):
                continue
            real = os.path.realpath(path)
            if real in withheld or contains(real, real_home) or (place is not None and is_inside(real, whole)):
                continue
            entry = HOME_PLACES.get(place) or _found_place(place, real_home) if place else None
            state = os.stat(real)
            # In a workspace outside the home folder, the empty replacement could be mistaken for the real file and
            # committed.
            is_linked = any(contains(root, real) and not contains(root, real_home) for root in roots)
            is_of_settings = entry is not None and entry.is_settings
            if place and is_of_settings and stat.S_ISREG(state.st_mode):
                is_secret, included = _look(real, place, state)
                if len(named) < INCLUDED:
                    named += (
                        (os.path.join(os.path.dirname(path), re.sub(r"^~(?=/)", lambda _: home, each)), place)
                        for each in included
                    )
                if not is_secret and not is_linked and not any(contains(folder, real) for folder in folders):
                    continue
            if stat.S_ISDIR(state.st_mode):
                folders[real] = None
            elif is_of_settings and not is_linked:
                settings[real] = None
            else:
                files[real] = None
            if entry is not None:
                withheld[real] = WithheldSecret(path, entry.programs, is_settings=entry.is_settings)
    covered = tuple(folders)
    return HiddenPaths(
        folders=tuple(sorted(folders)),
        files=tuple(sorted(path for path in files if is_inside(path, roots) or not is_inside(path, covered))),
        settings=tuple(settings),
        shown=tuple(path for path in whole if is_inside(path, covered) and os.path.exists(path)),
        withheld=tuple(withheld.values()),
    )


def _known_paths(home: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the paths that may exist, in the home folder or where variables say, each with its place in the table."""
    yield from _there(home, _names())
    for variable, place in MOVED.items():
        for value in filter(os.path.isabs, environ.get(variable, "").split(os.pathsep)):
            if os.path.normpath(value) == os.path.normpath(f"{home}/{place}"):
                continue
            names = _names()
            for part in map(str.casefold, filter(None, place.split("/"))):
                matching = (known for pattern, known in names.patterns if pattern.match(part))
                names = names.below[part][1] if part in names.below else next(matching, _Names())
                if names.place is not None and not HOME_PLACES[names.place].is_settings:
                    break  # everything in this folder is hidden
            exact = HOME_PLACES.get(place)
            yield from _there(os.path.normpath(value), _Names(place) if exact and exact.is_settings else names)


@dataclass(slots=True)
class _Names:
    """The known places in a folder and its subfolders."""

    place: str | None = None  # the table's place for the folder itself, if any
    # Keyed by case-folded name, because some file systems ignore case: an entry's exact name, and the known places in
    # it.
    below: dict[str, tuple[str, _Names]] = field(default_factory=dict[str, "tuple[str, _Names]"])
    # The known places in entries whose name matches the pattern.
    patterns: list[tuple[re.Pattern[str], _Names]] = field(default_factory=list["tuple[re.Pattern[str], _Names]"])
    any_pattern: re.Pattern[str] | None = None  # all patterns combined, compiled on first use


@cache
def _names() -> _Names:
    top = _Names()
    patterns: dict[tuple[int, str], _Names] = {}
    for place in HOME_PLACES:
        names = top
        for part in place.split("/"):
            if "*" not in part:
                names = names.below.setdefault(part.casefold(), (part, _Names()))[1]
                continue
            pattern = patterns.setdefault((id(names), part), _Names())
            if all(pattern is not known for _, known in names.patterns):
                names.patterns.append((re.compile(translate(part.casefold())), pattern))
            names = pattern
        names.place = place
    return top


def _there(folder: str, names: _Names) -> Iterator[tuple[str, str]]:
    """Yield the known paths in a folder that may exist. Listing the folder rules out most names."""
    if names.place is not None:
        yield folder, names.place
    present: Iterable[str] = names.below  # a folder that cannot be listed may still allow access by name
    if names.patterns and names.any_pattern is None:
        names.any_pattern = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in names.patterns))
    if len(names.below) > _FEW or names.patterns:
        with suppress(OSError):
            present = os.listdir(folder)
    for entry in present:
        folded = entry.casefold()
        if (known := names.below.get(folded)) is not None:
            yield from _there(f"{folder}/{known[0]}", known[1])
        if names.any_pattern is None or names.any_pattern.match(folded) is None:
            continue
        for pattern, those in names.patterns:
            if pattern.match(folded):
                yield from _there(f"{folder}/{entry}", those)


@lru_cache(maxsize=4)
def _files_with_secrets(home: str, _period: float) -> tuple[str, ...]:
    """Return the small files near the top of a home folder that certainly contain a secret.

    Searches the folder, its dotfolders, and the folders of `.config`. The limits keep the search too short to notice.
    """

    def listed(folder: str) -> list[os.DirEntry[str]]:
        with suppress(OSError), os.scandir(folder) as entries:
            return sorted(entries, key=lambda each: each.name)
        return []

    top, settings = listed(home), listed(f"{home}/.config")
    folders = [each.path for each in top if each.name[0] == "."] + [each.path for each in settings]
    files = (each for entries in (top, *map(listed, folders)) for each in entries if each.is_file())
    found: list[str] = []
    left = SEARCHED_BYTES
    for entry in islice(files, SEARCHED_FILES):
        with suppress(OSError):
            size = entry.stat().st_size
            if not 0 < size <= min(SEARCHED_FILE_BYTES, left):
                continue
            left -= size
            content = read_settings(os.path.realpath(entry.path)) or b""
            if b"\0" not in content and keeps_secret(content.decode("utf-8", "replace")):
                found.append(entry.path)
    return tuple(found)


def _found_place(path: str, home: str) -> SecretPlace:
    """Return a place for a file found by the search. The program's name is probably that of the file or its folder."""
    name = os.path.relpath(path, home).removeprefix(".config/").lstrip(".").split("/")[0].split(".")[0]
    return SecretPlace(frozenset({name, name.removesuffix("rc")}), is_settings=False)


def _look(path: str, place: str, state: os.stat_result) -> tuple[bool, Sequence[str]]:
    """Return whether settings contain a secret or cannot be read, and the files that they include."""
    changed = max(state.st_mtime_ns, state.st_ctime_ns)
    look = _look_into if time.time_ns() - changed > SETTLED_NANOSECONDS else _look_into.__wrapped__
    with suppress(OSError):
        return look(path, place, state.st_dev, state.st_ino, state.st_size, changed)
    return True, ()


@lru_cache(maxsize=256)
def _look_into(path: str, place: str, *_state: int) -> tuple[bool, Sequence[str]]:
    if (content := read_settings(path)) is None:
        return True, ()
    text = content.decode("utf-8", "replace")
    return may_hold_secret(text, place), included_settings(text) if "git" in HOME_PLACES[place].programs else ()
