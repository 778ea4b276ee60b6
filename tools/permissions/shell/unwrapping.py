"""Takes a wrapper's command line apart: which commands and which texts it runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from tools.permissions.shell.folders import UNKNOWN, Folders, joined
from tools.permissions.shell.lexis import ASSIGNMENT
from tools.permissions.shell.words import Word, literal
from tools.permissions.shell.wrappers import SHELLS, WRAPPERS, Wrapper

MAX_CANDIDATES = 16
"""How many words are taken for the beginning of the inner command where it is not known which one it is."""

_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_UNCLEAR = "it is not known where the command begins that it runs"
_LOGIN = frozenset({"l", "i", "login", "interactive", "rcfile", "init-file"})


@dataclass(slots=True)
class Unwrapped:
    """What a wrapper runs.

    Args:
        commands: Commands, as words.
        scripts: Texts that a shell reads.
        assignments: What it sets for them.
        doubts: What is not understood.
        folders: Where they run.
        is_transparent: Whether the wrapper does nothing itself that needs a permission.
        is_unclear: Whether the commands are but candidates: each begins at another word of the same.
    """

    folders: Folders
    commands: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    scripts: list[str] = field(default_factory=list[str])
    assignments: list[Word] = field(default_factory=list[Word])
    doubts: list[str] = field(default_factory=list[str])
    is_transparent: bool = False
    is_unclear: bool = False


def unwrap(name: str, arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    """What a command runs in turn; `None` if it is no wrapper.

    Args:
        name: Its name, without a folder.
        arguments: The words behind it.
        folders: Where it runs.
    """
    if name == "find":
        return _unwrap_find(arguments, folders)
    wrapper = WRAPPERS.get(name)
    if wrapper is None:
        return None
    result = Unwrapped(UNKNOWN if wrapper.loses_folder else folders, is_transparent=wrapper.is_transparent)
    if wrapper.doubt:
        result.doubts.append(wrapper.doubt)
    _Unwrapping(name, wrapper, arguments, result).run()
    return result


class _Unwrapping:
    """Reads one wrapper's words from left to right."""

    def __init__(self, name: str, wrapper: Wrapper, arguments: Sequence[Word], result: Unwrapped) -> None:
        self._name = name
        self._wrapper = wrapper
        self._words = arguments
        self._result = result
        self._at = 0
        self._has_script = False
        self._is_query = False

    def run(self) -> None:
        while self._at < len(self._words):
            word = self._words[self._at]
            if not word.may_be_option and self._wrapper.operands < 0:
                self._at += 1
                continue
            if not word.may_be_option:
                break
            if not word.is_literal:
                self._unclear()
                return
            self._at += 1
            if word.text == "--":
                break
            known = self._long(word.text) if word.text.startswith("--") else self._cluster(word.text)
            if not known:
                self._result.doubts.append(f"{self._name} with {word.text} is not known")
                self._unclear()
                return
        self._run_rest()

    def _long(self, text: str) -> bool:
        name, equals, value = text[2:].partition("=")
        return self._option(name, literal(value) if equals else None, is_joined=bool(equals))

    def _cluster(self, text: str) -> bool:
        if text == "-":
            return "-" in self._wrapper.flags
        if text[1:] in self._wrapper.valued and len(text) > 2:  # noqa: PLR2004 - a dash and a letter
            return self._option(text[1:], None, is_joined=False)
        for place, letter in enumerate(text[1:], start=2):
            takes_rest = letter in self._wrapper.valued or (letter in self._wrapper.script and self._name not in SHELLS)
            rest = text[place:]
            if not self._option(letter, literal(rest) if takes_rest and rest else None, is_joined=bool(rest)):
                return False
            if takes_rest:
                break
        return True

    def _option(self, name: str, value: Word | None, *, is_joined: bool) -> bool:
        wrapper = self._wrapper
        if name in wrapper.queries:
            self._is_query = True
            return True
        if self._name in SHELLS and name in _LOGIN:
            self._result.doubts.append("it reads start-up files")
            return name in ("l", "i", "login")
        if name in wrapper.script:
            self._has_script = True
            if self._name not in SHELLS:
                self._add_script(value or self._next())
            return True
        if name in wrapper.valued:
            taken = value or self._next()
            self._note_value(name, taken)
            return True
        return name in wrapper.flags and (value is None or not is_joined)

    def _note_value(self, name: str, value: Word | None) -> None:
        if value is not None and name in ("C", "chdir", "D", "wd", "w") and self._name in ("env", "sudo", "unshare"):
            path = value.path
            self._result.folders = tuple(None if path is None else joined(f, path) for f in self._result.folders)
        if self._name in SHELLS and name == "O":
            self._result.doubts.append("it sets options of the shell")

    def _next(self) -> Word | None:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else None

    def _add_script(self, text: Word | None) -> None:
        if text is None or not text.is_literal:
            self._result.doubts.append(f"the text that {self._name} runs is not literal")
        elif self._name == "env":
            self._split_string(text.text)
        else:
            self._result.scripts.append(text.text)

    def _split_string(self, text: str) -> None:
        if "$" in text or "\\" in text or "#" in text:
            self._result.doubts.append("env -S with escapes or variables is not understood")
        try:
            words = [literal(word) for word in shlex.split(text)]
        except ValueError:
            words = [literal(word) for word in text.split()]
        # What env makes of it is its own command line, with options and all.
        self._words = [*words, *self._words[self._at :]]
        self._at = 0

    def _run_rest(self) -> None:
        if self._is_query:
            return
        if self._name in SHELLS:
            self._run_shell()
        elif self._name == "trap":
            self._add_script(self._next())
        elif self._wrapper.operands >= 0:
            self._run_command()
        elif not self._has_script:
            self._result.doubts.append("it starts a shell")

    def _run_command(self) -> None:
        """What is left is assignments, operands of the wrapper, and the inner command."""
        wrapper, words = self._wrapper, self._words
        while wrapper.assigns and self._at < len(words) and ASSIGNMENT.match(words[self._at].source):
            self._result.assignments.append(words[self._at])
            self._at += 1
        if any(word.may_split for word in words[self._at : self._at + wrapper.operands]):
            self._unclear()
            return
        rest = words[self._at + wrapper.operands :]
        if not rest:
            self._without_command()
        elif wrapper.joins:
            self._join(rest)
        elif self._name == "flock" and rest[0].text == "-c":
            self._add_script(rest[1] if len(rest) > 1 else None)
        else:
            self._result.commands.append(rest)

    def _without_command(self) -> None:
        if self._name in ("sudo", "doas", "unshare", "nsenter", "chroot", "ssh", "busybox", "parallel", "runuser"):
            self._result.doubts.append("it starts a shell, or something else that is not named")

    def _join(self, words: Sequence[Word]) -> None:
        if not all(word.is_literal for word in words):
            self._result.doubts.append(f"the text that {self._name} runs is not literal")
            self._result.commands.append(words)
            return
        self._result.scripts.append(" ".join(word.text for word in words))

    def _run_shell(self) -> None:
        if not self._has_script:
            self._result.is_transparent = False
            self._result.doubts.append("it runs commands from a file or from its input")
            return
        script = self._next()
        self._add_script(script)
        if script is not None and not script.is_literal:
            self._result.is_transparent = False

    def _unclear(self) -> None:
        """Any word from here on may begin the inner command."""
        self._result.is_transparent = False
        self._result.doubts.append(_UNCLEAR)
        self._result.is_unclear = True
        candidates = (at for at in range(self._at, len(self._words)) if not self._words[at].text.startswith("-"))
        for at in islice(candidates, MAX_CANDIDATES):
            word = self._words[at]
            if word.is_literal and (" " in word.text or "\n" in word.text):
                self._result.scripts.append(word.text)
            else:
                self._result.commands.append(self._words[at:])


def _unwrap_find(arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    """Each command behind `-exec` and the like, up to `;` or `+`. The found files are its further arguments."""
    result = Unwrapped(folders)
    place = 0
    while place < len(arguments):
        name = arguments[place].text
        place += 1
        if name not in _FIND_RUNS:
            continue
        end = place
        while end < len(arguments) and arguments[end].text not in (";", "+"):
            end += 1
        result.commands.append(arguments[place:end])
        if name in ("-execdir", "-okdir"):
            result.folders = UNKNOWN
        place = end + 1
    if not result.commands:
        return None
    result.is_transparent = result.folders is folders
    return result
