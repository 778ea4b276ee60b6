"""Takes a wrapper's command line apart: which commands and which texts it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from tools.permissions.shell.knowledge.interpreters import evaluated_texts, texts_run
from tools.permissions.shell.knowledge.running_options import texts_of_options
from tools.permissions.shell.knowledge.wrappers import SHELLS, Wrapper, wrapper_called
from tools.permissions.shell.syntax.folders import UNKNOWN, Folders, joined
from tools.permissions.shell.syntax.words import ASSIGNMENT, FOUND, Word, braced, literal, names, spread

MAX_CANDIDATES = 16
"""How many words are taken for the beginning of the inner command where it is not known which one it is."""

MAX_FIND_RUNS = 64
MAX_FIND_WORDS = 4_096
"""How many commands of one `find` are looked at, and how many words that stand in several of them."""

_FIND_RUNS_MANY = names("-exec -execdir")
_FIND_RUNS = _FIND_RUNS_MANY | names("-ok -okdir")
_ENDLESS = "it is not known where a command of find ends"
_UNCLEAR = "it is not known where the command begins that it runs"
_LOGIN = names("l i login interactive rcfile init-file")


@dataclass(slots=True)
class Unwrapped:
    """What a wrapper runs.

    Args:
        commands: Commands, as words.
        scripts: Texts that a shell reads.
        open_scripts: Words of which the shell makes such texts, each with a blank between them.
        documents: Texts of which a shell only expands what is in them.
        assignments: What it sets for them.
        doubts: What is not understood.
        folders: Where they run.
        is_transparent: Whether the wrapper does nothing itself that needs a permission.
        is_unclear: Whether the commands are but candidates: each begins at another word of the same.
        is_other: Whether it is a shell that may read texts, or set variables, in another way.
        mark: What stands in the commands for names that it puts there, besides `{}`.
        appends: Whether it puts names behind them.
        found: What `{}` stands for in them, in turn; `None` if it is not known.
    """

    folders: Folders
    commands: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    scripts: list[str] = field(default_factory=list[str])
    open_scripts: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    documents: list[str] = field(default_factory=list[str])
    assignments: list[Word] = field(default_factory=list[Word])
    doubts: list[str] = field(default_factory=list[str])
    is_transparent: bool = False
    is_unclear: bool = False
    is_other: bool = False
    mark: str = ""
    appends: bool = False
    found: Sequence[str] | None = None


def unwrap(name: str, arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    """What a command runs in turn; `None` if it runs nothing.

    Args:
        name: Its family, without a folder.
        arguments: The words behind it.
        folders: Where it runs.
    """
    if name == "find" or wrapper_called(name) is not None:
        arguments = spread(arguments)
    result = _unwrap_find(arguments, folders) if name == "find" else _unwrap_wrapper(name, arguments, folders)
    texts = texts_of_options(name, arguments)
    scripts, documents = texts_run(name, arguments), evaluated_texts(name, arguments)
    if not (texts or scripts or documents):
        return result
    result = result or Unwrapped(folders)
    result.is_transparent = False
    if not all(text.is_literal for text in texts):
        result.doubts.append(f"a text that {name} runs is not literal")
    result.scripts += scripts
    result.open_scripts += [[text] for text in texts]
    result.documents += documents
    return result


def _unwrap_wrapper(name: str, arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    wrapper = wrapper_called(name)
    if wrapper is None:
        return None
    result = Unwrapped(UNKNOWN if wrapper.loses_folder else folders, is_transparent=wrapper.is_transparent)
    if wrapper.doubt:
        result.doubts.append(wrapper.doubt)
        result.is_other = name in SHELLS
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
        if self._wrapper.is_loose:
            if self._words:
                self._unclear()
            return
        while self._at < len(self._words):
            word = self._words[self._at]
            if self._name in SHELLS and word.text.startswith("+"):
                self._at += 2 if word.text in ("+O", "+o") else 1
            elif word.may_be_option:
                if not self._take_option(word):
                    self._unclear()
                    return
                if word.text == "--":
                    break
            elif self._wrapper.operands < 0:
                self._at += 1
            else:
                break
        self._run_rest()

    def _take_option(self, word: Word) -> bool:
        """Go past an option and its value; whether it is known."""
        if not word.is_literal:
            return False
        self._at += 1
        if word.text == "--":
            return True
        is_known = self._long(word.text) if word.text.startswith("--") else self._cluster(word.text)
        if not is_known:
            self._result.doubts.append(f"{self._name} with {word.text} is not known")
            self._result.is_other = self._name in SHELLS
        return is_known

    def _long(self, text: str) -> bool:
        written, equals, value = text[2:].partition("=")
        name = self._whole(written)
        return self._option(name, literal(value) if equals else None, is_joined=bool(equals))

    def _whole(self, written: str) -> str:
        """The only long option that begins so, or what is written."""
        wrapper = self._wrapper
        known = wrapper.flags | wrapper.valued | wrapper.script | wrapper.queries
        if written in known:
            return written
        fitting = [name for name in known if len(name) > 1 and name.startswith(written)]
        return fitting[0] if len(fitting) == 1 else written

    def _cluster(self, text: str) -> bool:
        if text == "-":
            return "-" in self._wrapper.flags
        if text[1:] in self._wrapper.valued and len(text) > 2:
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
            self._result.is_other = True
            return name in ("l", "i", "login")
        if name in wrapper.script:
            self._has_script = True
            if self._name not in SHELLS:
                self._add_script(value or self._next())
            return True
        if name in wrapper.valued:
            taken = value or self._next()
            self._note_value(name, taken)
            # What becomes several words brings others to the place of the command.
            return taken is None or not _may_be_several(taken)
        return name in wrapper.flags and (value is None or not is_joined)

    def _note_value(self, name: str, value: Word | None) -> None:
        if value is not None and name in ("C", "chdir", "D", "wd", "w") and self._name in ("env", "sudo", "unshare"):
            path = value.path
            self._result.folders = tuple(None if path is None else joined(f, path) for f in self._result.folders)
        if self._name == "xargs" and name in ("I", "J", "R", "replace") and value is not None:
            self._result.mark = value.text
        if self._name in SHELLS and name == "O":
            self._result.doubts.append("it sets options of the shell")
            self._result.is_other = True

    def _next(self) -> Word | None:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else None

    def _add_script(self, text: Word | None) -> None:
        if text is None or not text.is_literal:
            self._result.doubts.append(f"the text that {self._name} runs is not literal")
            if text is not None:
                # What env splits is its own command line, with options and all.
                before = [literal("env")] if self._name == "env" else []
                self._result.open_scripts.append([*before, text])
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
        if any(_may_be_several(word) for word in words[self._at : self._at + wrapper.operands]):
            self._unclear()
            return
        rest = words[self._at + wrapper.operands :]
        if not rest:
            self._without_command()
        elif self._name in ("flock", "sg") and rest[0].text == "-c":
            self._add_script(rest[1] if len(rest) > 1 else None)
        elif wrapper.joins:
            self._join(rest)
        else:
            self._result.commands.append(rest)
            self._result.appends = self._name == "xargs" and not self._result.mark

    def _without_command(self) -> None:
        if self._name in ("sudo", "doas", "unshare", "nsenter", "chroot", "ssh", "busybox", "parallel", "runuser"):
            self._result.doubts.append("it starts a shell, or something else that is not named")

    def _join(self, words: Sequence[Word]) -> None:
        if not all(word.is_literal for word in words):
            self._result.doubts.append(f"the text that {self._name} runs is not literal")
            self._result.open_scripts.append(words)
            return
        texts = [word.text for word in words]
        if self._name == "parallel":
            # It puts names from its input behind the words, or in place of `{}`, `{.}` and the like.
            texts = [re.sub(r"\{[^{}\s]*\}", FOUND, text) for text in texts] + [FOUND, FOUND]
        self._result.scripts.append(" ".join(texts))

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
            if " " in word.text or "\n" in word.text or (self._has_script and not word.is_literal):
                self._result.open_scripts.append([word])
            else:
                self._result.commands.append(self._words[at:])


def _unwrap_find(arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    """Each command behind `-exec` and the like. The found files are its further arguments.

    Such a word within another command is one as well: the first may have been the value of a test.
    """
    begins = [place for place, word in enumerate(arguments, start=1) if word.text in _FIND_RUNS]
    if not begins:
        return None
    result = Unwrapped(folders)
    left = MAX_FIND_WORDS + len(arguments)
    for place in begins:
        if left < 0 or len(result.commands) == MAX_FIND_RUNS:
            result.doubts.append(_UNCLEAR)
            break
        name = arguments[place - 1].text
        end = _end_of_run(arguments, place, takes_plus=name in _FIND_RUNS_MANY)
        command = arguments[place:end]
        left -= len(command)
        if end == len(arguments) or any(word.text == "+" for word in command):
            result.doubts.append(_ENDLESS)
        result.commands.append(command)
        if name in ("-execdir", "-okdir"):
            result.folders = UNKNOWN
    result.is_transparent = result.folders is folders and not result.doubts
    return result


def _end_of_run(arguments: Sequence[Word], place: int, *, takes_plus: bool) -> int:
    """Where a command of `find` ends: at `;`, or at a `+` that stands directly behind `{}`."""
    for end in range(place, len(arguments)):
        text = arguments[end].text
        if text == ";" or (takes_plus and text == "+" and end > place and arguments[end - 1].text == "{}"):
            return end
    return len(arguments)


def _may_be_several(word: Word) -> bool:
    """Whether the shell may make several words of one, by blanks in a value or a list in braces."""
    return word.may_split or (not word.is_literal and braced(word.source) != [word.source])
