"""Takes a wrapper's command line apart: which commands and which texts it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from tools.permissions.shell.knowledge.interpreters import SHELLS, Wrapper, evaluated_texts, texts_run, wrapper_called
from tools.permissions.shell.knowledge.running_options import texts_of_options
from tools.permissions.shell.syntax.parser import UNKNOWN, Folders, joined
from tools.permissions.shell.syntax.words import ASSIGNMENT, FOUND, Word, expand_braces, literal, names, words_in_braces

# Words that are taken for the beginning of the inner command where it is not known which one it is
MAX_CANDIDATES = 16
MAX_FIND_RUNS = 64  # commands of one `find` that are looked at
MAX_FIND_WORDS = 4_096  # words that stand in several of them
_FIND_RUNS_MANY = names("-exec -execdir")
FIND_RUNS = _FIND_RUNS_MANY | names("-ok -okdir")
_UNCLEAR = "it is not known where the command begins that it runs"
_LOGIN = names("l i login interactive rcfile init-file")
_STARTING_SHELLS = names("sudo doas unshare nsenter chroot ssh busybox parallel runuser")


@dataclass(slots=True)
class Unwrapped:
    folders: Folders
    commands: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])  # commands, as words
    scripts: list[str] = field(default_factory=list[str])  # texts that a shell reads
    # Words of which the shell makes such texts, each with a blank between them.
    open_scripts: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    documents: list[str] = field(default_factory=list[str])  # texts of which a shell only expands what is in them
    assignments: list[Word] = field(default_factory=list[Word])
    doubts: list[str] = field(default_factory=list[str])
    is_transparent: bool = False  # whether the wrapper does nothing itself that needs a permission
    is_unclear: bool = False  # whether the commands are but candidates: each begins at another word of the same
    is_other: bool = False  # whether it is a shell that may read texts, or set variables, in another way
    mark: str = ""  # what stands in the commands for names that it puts there, besides `{}`
    appends: bool = False  # whether it puts names behind them
    found: Sequence[str] | None = None  # what `{}` stands for in them, in turn; `None` if it is not known


def unwrap(name: str, arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    """What a command runs in turn; `None` if it runs nothing."""
    wrapper, result = wrapper_called(name), None
    if name == "find":
        arguments = expand_braces(arguments)
        result = _unwrap_find(arguments, folders)
    elif wrapper is not None:
        arguments = expand_braces(arguments)
        result = _WrapperReader(name, wrapper, arguments, folders).read()
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


class _WrapperReader:
    """Reads one wrapper's words from left to right."""

    def __init__(self, name: str, wrapper: Wrapper, arguments: Sequence[Word], folders: Folders) -> None:
        self._name = name
        self._is_shell = name in SHELLS
        self._wrapper = wrapper
        self._words = arguments
        self._at = 0
        self._has_script = False
        self._is_query = False
        self._result = Unwrapped(
            UNKNOWN if wrapper.elsewhere else folders,
            is_transparent=wrapper.transparent,
            doubts=[wrapper.doubt] if wrapper.doubt else [],
            is_other=bool(wrapper.doubt) and self._is_shell,
        )

    def read(self) -> Unwrapped:
        wrapper, result = self._wrapper, self._result
        if wrapper.loose:
            if self._words:
                self._add_candidates()
            return result
        while self._at < len(self._words):
            word = self._words[self._at]
            if self._is_shell and word.text.startswith("+"):
                self._at += 2 if word.text in ("+O", "+o") else 1
            elif word.may_be_option:
                if not word.is_literal:
                    self._add_candidates()
                    return result
                self._at += 1
                if word.text == "--":
                    break
                if not self._take_option(word.text):
                    result.doubts.append(f"{self._name} with {word.text} is not known")
                    result.is_other = self._is_shell
                    self._add_candidates()
                    return result
            elif wrapper.operands < 0:
                self._at += 1
            else:
                break
        if self._is_query:
            pass
        elif self._is_shell:
            if self._has_script:
                script = self._next()
                self._add_script(script)
                result.is_transparent = result.is_transparent and (script is None or script.is_literal)
            else:
                result.is_transparent = False
                result.doubts.append("it runs commands from a file or from its input")
        elif self._name == "trap":
            self._add_script(self._next())
        elif wrapper.operands >= 0:
            self._add_command()
        elif not self._has_script:
            result.doubts.append("it starts a shell")
        return result

    def _take_option(self, text: str) -> bool:
        """Take a word of options, and the value of the last one; whether they are known."""
        wrapper = self._wrapper
        if text.startswith("--"):
            name, equals, value = text[2:].partition("=")
            known = wrapper.flags | wrapper.valued | wrapper.script | wrapper.queries
            fitting = [each for each in known if len(each) > 1 and each.startswith(name)]
            if name not in known and len(fitting) == 1:
                name = fitting[0]
            return self._option(name, literal(value) if equals else None, is_joined=bool(equals))
        if text == "-":
            return "-" in wrapper.flags
        if text[1:] in wrapper.valued and len(text) > 2:
            return self._option(text[1:], None, is_joined=False)
        for place, letter in enumerate(text[1:], start=2):
            takes_rest = letter in wrapper.valued or (letter in wrapper.script and not self._is_shell)
            rest = text[place:]
            if not self._option(letter, literal(rest) if takes_rest and rest else None, is_joined=bool(rest)):
                return False
            if takes_rest:
                break
        return True

    def _option(self, name: str, value: Word | None, *, is_joined: bool) -> bool:
        wrapper, result = self._wrapper, self._result
        if name in wrapper.queries:
            self._is_query = True
            return True
        if self._is_shell and name in _LOGIN:
            result.doubts.append("it reads start-up files")
            result.is_other = True
            return name in ("l", "i", "login")
        if name in wrapper.script:
            self._has_script = True
            if not self._is_shell:
                self._add_script(value or self._next())
            return True
        if name not in wrapper.valued:
            return name in wrapper.flags and (value is None or not is_joined)
        taken = value or self._next()
        if taken is not None:
            if name in ("C", "chdir", "D", "wd", "w") and self._name in ("env", "sudo", "unshare"):
                path = taken.path
                result.folders = tuple(None if path is None else joined(f, path) for f in result.folders)
            if self._name == "xargs" and name in ("I", "J", "R", "replace"):
                result.mark = taken.text
        if self._is_shell and name == "O":
            result.doubts.append("it sets options of the shell")
            result.is_other = True
        # What becomes several words brings others to the place of the command.
        return taken is None or not _may_be_several(taken)

    def _next(self) -> Word | None:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else None

    def _add_script(self, script: Word | None) -> None:
        """Take a text for a shell. What `env` splits is its own command line, with options and all."""
        if script is None or not script.is_literal:
            self._result.doubts.append(f"the text that {self._name} runs is not literal")
            if script is not None:
                before = [literal("env")] if self._name == "env" else []
                self._result.open_scripts.append([*before, script])
        elif self._name != "env":
            self._result.scripts.append(script.text)
        else:
            text = script.text
            if "$" in text or "\\" in text or "#" in text:
                self._result.doubts.append("env -S with escapes or variables is not understood")
            try:
                words = [literal(word) for word in shlex.split(text)]
            except ValueError:
                words = [literal(word) for word in text.split()]
            self._words = [*words, *self._words[self._at :]]
            self._at = 0

    def _add_command(self) -> None:
        """What is left is assignments, operands of the wrapper, and the inner command."""
        wrapper, words, result = self._wrapper, self._words, self._result
        while wrapper.assigns and self._at < len(words) and ASSIGNMENT.match(words[self._at].source):
            result.assignments.append(words[self._at])
            self._at += 1
        if any(_may_be_several(word) for word in words[self._at : self._at + wrapper.operands]):
            self._add_candidates()
            return
        rest = words[self._at + wrapper.operands :]
        if not rest:
            if self._name in _STARTING_SHELLS:
                result.doubts.append("it starts a shell, or something else that is not named")
        elif self._name in ("flock", "sg") and rest[0].text == "-c":
            self._add_script(rest[1] if len(rest) > 1 else None)
        elif not wrapper.joins:
            result.commands.append(rest)
            result.appends = self._name == "xargs" and not result.mark
        elif not all(word.is_literal for word in rest):
            result.doubts.append(f"the text that {self._name} runs is not literal")
            result.open_scripts.append(rest)
        else:
            texts = [word.text for word in rest]
            if self._name == "parallel":
                # It puts names from its input behind the words, or in place of `{}`, `{.}` and the like.
                texts = [re.sub(r"\{[^{}\s]*\}", FOUND, text) for text in texts] + [FOUND, FOUND]
            result.scripts.append(" ".join(texts))

    def _add_candidates(self) -> None:
        """Any word from here on may begin the inner command."""
        result = self._result
        result.is_transparent = False
        result.doubts.append(_UNCLEAR)
        result.is_unclear = True
        candidates = (at for at in range(self._at, len(self._words)) if not self._words[at].text.startswith("-"))
        for at in islice(candidates, MAX_CANDIDATES):
            word = self._words[at]
            if " " in word.text or "\n" in word.text or (self._has_script and not word.is_literal):
                result.open_scripts.append([word])
            else:
                result.commands.append(self._words[at:])


def _unwrap_find(arguments: Sequence[Word], folders: Folders) -> Unwrapped | None:
    """Each command behind `-exec` and the like. The found files are its further arguments.

    Such a word within another command is one as well: the first may have been the value of a test.
    """
    begins = [place for place, word in enumerate(arguments, start=1) if word.text in FIND_RUNS]
    if not begins:
        return None
    result = Unwrapped(folders)
    left = MAX_FIND_WORDS + len(arguments)
    for begin in begins:
        if left < 0 or len(result.commands) == MAX_FIND_RUNS:
            result.doubts.append(_UNCLEAR)
            break
        name = arguments[begin - 1].text
        # It ends at `;`, or at a `+` that stands directly behind `{}`.
        end = begin
        while end < len(arguments) and arguments[end].text != ";":
            is_plus = name in _FIND_RUNS_MANY and arguments[end].text == "+" and end > begin
            if is_plus and arguments[end - 1].text == "{}":
                break
            end += 1
        command = arguments[begin:end]
        left -= len(command)
        if end == len(arguments) or any(word.text == "+" for word in command):
            result.doubts.append("it is not known where a command of find ends")
        result.commands.append(command)
        if name in ("-execdir", "-okdir"):
            result.folders = UNKNOWN
    result.is_transparent = result.folders is folders and not result.doubts
    return result


def _may_be_several(word: Word) -> bool:
    """Whether the shell may make several words of one, by blanks in a value or a list in braces."""
    return word.may_split or (not word.is_literal and words_in_braces(word.source) != [word.source])
