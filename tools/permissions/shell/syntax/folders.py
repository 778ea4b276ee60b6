"""In which folder each command of a text runs, as far as `cd` tells."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tools.permissions.shell.syntax.words import Word, names

Folders = tuple[str | None, ...]  # the folders that a command may run in, as `Effect.folder` spells them
START: Folders = ("",)
UNKNOWN: Folders = (None,)
MAX_FOLDERS = 4  # more possible folders than these are as good as none known
CHANGING = names("cd pushd")
Readings = Callable[[Sequence[Word], Folders], Sequence[Sequence[Word]]]
LOSING = names("popd eval source .")  # what may change the folder in a way that is not followed


def joined(folder: str | None, path: str) -> str | None:
    """A path taken from a folder. `cd` goes by names, so `..` takes away the name before it."""
    if path.startswith(("/", "~", "$HOME")):
        return path
    if folder is None:
        return None
    both = posixpath.normpath(posixpath.join(folder, path))
    return "" if both == "." else both


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """Where the next command of a list runs.

    `cd x && ls` runs `ls` in x alone; behind `cd x; ls` it may as well run in the old folder, if there is no x.
    """

    now: Folders = START  # where the next command runs
    seen: Folders = START  # where the commands of this and-or list have run, and where the last one led
    is_sure: bool = True  # whether the list so far is joined by `&&` alone

    def after(self, words: Sequence[Word], readings: Readings | None = None, *, is_conditional: bool) -> WorkingFolder:
        """What holds when a command has run; its words may be read in several ways."""
        name = words[0].text if words else ""
        if name in ("command", "builtin") and len(words) > 1:
            inner = next((at for at, word in enumerate(words) if at and not word.text.startswith("-")), len(words))
            return self.after(words[inner:], readings, is_conditional=is_conditional)
        if name in LOSING or (name in CHANGING and is_conditional):
            return WorkingFolder(UNKNOWN, UNKNOWN, is_sure=False)
        if name not in CHANGING:
            return self
        if [word.text for word in words[1:]] == ["-"] and len(self.seen) > 1:
            return replace(self, now=self.seen)
        targets = [changed_to(each) for each in (readings(words, self.now) if readings else [words])]
        moved = _union(
            tuple(None if target is None else joined(folder, target) for folder in self.now for target in targets)
        )
        return replace(self, now=moved, seen=_union(self.seen + moved))

    def and_then(self) -> WorkingFolder:
        """Behind `&&`."""
        return self if self.is_sure else replace(self, now=self.seen)

    def or_else(self) -> WorkingFolder:
        """Behind `||`."""
        return WorkingFolder(self.seen, self.seen, is_sure=False)

    def ended(self) -> WorkingFolder:
        """Behind `;`, `&` and the end of a line."""
        return WorkingFolder(self.seen, self.seen, is_sure=True)


def changed_to(words: Sequence[Word]) -> str | None:
    """Where `cd` or `pushd` leads, as spelled; `None` if that is not known."""
    arguments = list(words[1:])
    while arguments and arguments[0].text in ("-L", "-e", "--"):
        arguments.pop(0)
    if not arguments:
        return "~" if words[0].text == "cd" else None
    path = arguments[0].path
    if len(arguments) > 1 or path is None or path[:1] in ("", "-", "+"):
        return None
    return path


def _union(folders: Folders) -> Folders:
    distinct = tuple(dict.fromkeys(folders))
    return distinct if len(distinct) <= MAX_FOLDERS and None not in distinct else UNKNOWN
