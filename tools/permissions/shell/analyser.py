"""From the text of a command to its sub-commands: reads, unwraps, and asks the tables about each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tools.contract.subject import Access
from tools.display import visible
from tools.permissions.shell.analysis import Analysis, SubCommand
from tools.permissions.shell.effects import effects_of, possible_accesses, redirection_effects
from tools.permissions.shell.knowledge.doubtful import doubts_of_program
from tools.permissions.shell.knowledge.families import family_of
from tools.permissions.shell.knowledge.git import without_harmless_options
from tools.permissions.shell.knowledge.links import follows_links, links_left
from tools.permissions.shell.knowledge.read_only import is_read_only
from tools.permissions.shell.knowledge.variables import changes_only_looks, doubts_of, is_sensitive
from tools.permissions.shell.knowledge.wrappers import wrapper_called
from tools.permissions.shell.names import names
from tools.permissions.shell.possible_reads import WITHOUT_FILES, possible_effects
from tools.permissions.shell.scope import scope_of
from tools.permissions.shell.spellings import bare_name, has_hidden_verb, open_beginnings_of, rule_name, spellings_of
from tools.permissions.shell.syntax import second_reading
from tools.permissions.shell.syntax.folders import START, UNKNOWN, Folders
from tools.permissions.shell.syntax.lexis import ASSIGNMENT, LINE_CONTINUED_IN_WORD
from tools.permissions.shell.syntax.reader import read
from tools.permissions.shell.syntax.reading import Found, Reading, Redirection
from tools.permissions.shell.syntax.words import Word, literal
from tools.permissions.shell.unwrapping import Unwrapped, unwrap

MAX_READ_CHARS = 131_072
"""Linux starts no program with a longer argument, so a longer command is none that `bash -c` could be given."""

MAX_READ_ALTOGETHER = 4 * MAX_READ_CHARS
"""Characters of a command and all texts within it. What was guessed is read in several ways."""

MAX_NESTED = 12
"""Texts within texts, and wrappers around wrappers."""

HIDES_TEXT = "it hides text: control or invisible characters, or a long run of blanks"
DIFFERS = "two readings of it differ"
TOO_LONG = f"it is longer than {second_reading.MAX_CHARS:,} characters or {second_reading.MAX_COMMANDS:,} commands"
UNREAD = f"it is longer than {MAX_READ_CHARS:,} characters and is not read"
CONTINUED = "a line is continued within a word"
GUESSED = "it is only guessed to be a command"
TOO_MANY_OPTIONS = "so many options hide what it is told to do"
TOO_NESTED = "wrappers or texts within texts are nested too deep to be followed"

_LONG_RUN = re.compile(r"\s{200,}")
_PIECE = re.compile(r"[^\s;&|()<>`{}!][^;&|()<>`{}\n]*")
_WRAPPED = re.compile(r"-|\d|[A-Za-z_]\w*=", re.ASCII)
_KEYWORDS = names("if then elif else while until do time coproc in case for select function")
_TEXT_DOUBTS = {"alias": "it defines an alias", "trap": "it runs something at another time"}


@dataclass(slots=True)
class _Text:
    """A text to read."""

    text: str
    folders: Folders = START
    base: int | None = None
    is_document: bool = False
    depth: int = 0


@dataclass(slots=True)
class _Command:
    """Words to judge."""

    words: Sequence[Word]
    source: str
    folders: Folders
    assignments: Sequence[Word] = ()
    redirections: Sequence[Redirection] = ()
    doubts: tuple[str, ...] = ()
    depth: int = 0
    is_candidate: bool = False


def analyse(command: str) -> Analysis:
    """Tell what a command would run. Nothing is run or looked at, and no text is an error.

    The cost is linear in the length of the command.
    """
    analyser = _Analyser(command)
    return analyser.run()


class _Analyser:
    """One analysis. What is found on the way is queued, so nothing recurses."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._texts: deque[_Text] = deque([_Text(command, base=0)])
        self._budget = MAX_READ_ALTOGETHER
        self._found: list[SubCommand] = []
        self._doubts: dict[str, None] = {}
        self._starts: set[int] = set()

    def run(self) -> Analysis:
        command = self._command
        if visible(command) != command or _LONG_RUN.search(command):
            self._doubts[HIDES_TEXT] = None
        if LINE_CONTINUED_IN_WORD.search(command):
            self._doubts[CONTINUED] = None
            self._texts.append(_Text(LINE_CONTINUED_IN_WORD.sub("", command)))
        if len(command) > MAX_READ_CHARS:
            self._doubts[UNREAD] = None
            return Analysis(tuple(_skimmed(command)), tuple(self._doubts))
        while self._texts:
            self._read(self._texts.popleft())
        self._compare()
        return Analysis(tuple(self._found), tuple(self._doubts))

    def _read(self, text: _Text) -> None:
        self._budget -= len(text.text)
        if text.depth > MAX_NESTED or self._budget < 0:
            self._doubts[TOO_NESTED] = None
            self._found.extend(_skimmed(text.text))
            return
        reading = read(text.text, text.folders, is_document=text.is_document)
        self._doubts.update(reading.doubts)
        for name in reading.variables:
            if is_sensitive(name):
                self._doubts[f"it sets {name}, which decides what runs"] = None
        for inner in reading.inner:
            base = None if text.base is None or inner.base is None else text.base + inner.base
            self._texts.append(_Text(inner.text, inner.folders, base, inner.is_document, text.depth + 1))
        self._note_starts(reading, text)
        for found in reading.commands:
            if found.words or found.redirections or doubts_of(found.assignments):
                self._add(_command_of(found, text.depth))
        if reading.is_lost:
            self._guess(text.text, text.depth + 1)

    def _note_starts(self, reading: Reading, text: _Text) -> None:
        if text.base is not None:
            self._starts.update(text.base + found.start for found in reading.commands if found.start >= 0)

    def _compare(self) -> None:
        """Hold our reading against the grammar's, unless there is doubt already."""
        if self._doubts:
            return
        command = self._command
        if len(command) > second_reading.MAX_CHARS or len(self._starts) > second_reading.MAX_COMMANDS:
            self._doubts[TOO_LONG] = None
            return
        starts = second_reading.beginnings(_TIME.sub(lambda found: " " * len(found[0]), command))
        if starts is not None and starts == self._starts:
            return
        self._doubts[DIFFERS] = None
        self._guess(command, 1)

    def _guess(self, text: str, depth: int) -> None:
        """List whatever could be a command of a text that cannot be followed."""
        for words in _guessed(text):
            spelled = " ".join(words)
            literals = [literal(word) for word in words]
            self._add(_Command(literals, spelled, UNKNOWN, doubts=(GUESSED,), depth=depth))

    def _add(self, command: _Command) -> None:
        """Judge a command and what it runs in turn."""
        pending = [command]
        while pending:
            current = pending.pop()
            sub, unwrapped = _judge(current)
            self._found.append(sub)
            name = sub.words[0] if sub.words else ""
            if name in _TEXT_DOUBTS:
                self._doubts[_TEXT_DOUBTS[name]] = None
            if unwrapped is not None:
                pending += self._inside(current, unwrapped)

    def _inside(self, outer: _Command, unwrapped: Unwrapped) -> list[_Command]:
        depth = outer.depth + 1
        if depth > MAX_NESTED:
            self._doubts[TOO_NESTED] = None
            for script in (*unwrapped.scripts, *unwrapped.documents):
                self._found.extend(_skimmed(script))
            self._found.extend(_last_of(words) for words in unwrapped.commands[:1])
            return []
        for script in unwrapped.scripts:
            self._texts.append(_Text(script, unwrapped.folders, depth=depth))
        for document in unwrapped.documents:
            self._texts.append(_Text(document, unwrapped.folders, is_document=True, depth=depth))
        if outer.is_candidate:
            # Whatever it could run is a candidate itself already.
            return []
        return [
            _Command(
                words,
                " ".join(word.source for word in words),
                unwrapped.folders,
                depth=depth,
                is_candidate=unwrapped.is_unclear,
            )
            for words in reversed(unwrapped.commands)
        ]


_TIME = re.compile(r"(?:(?<=[\n;&|({])|\A)[ \t]*time(?:[ \t]+-p)?(?=[ \t])")
_NO_QUOTES = str.maketrans("", "", "'\"\\")
_QUOTES_AS_ENDS = str.maketrans("'\"", "\n\n", "\\")


def _command_words(piece: str) -> list[str]:
    """The words of a piece of text, from what could be the name on."""
    words = piece.split()
    for place, word in enumerate(words):
        if word not in _KEYWORDS and not ASSIGNMENT.match(word) and word.strip("$'\"\\-"):
            return words[place:]
    return []


def _guessed(text: str) -> Iterator[list[str]]:
    """What could be commands of a text, however it is quoted, each once."""
    versions = dict.fromkeys((text, text.replace("\\\n", "").translate(_NO_QUOTES), text.translate(_QUOTES_AS_ENDS)))
    seen: set[str] = set()
    for version in versions:
        for piece in _PIECE.finditer(version):
            if piece[0] not in seen:
                seen.add(piece[0])
                if words := _command_words(piece[0]):
                    yield words


def _skimmed(text: str) -> Iterator[SubCommand]:
    """The same of a text that is too long to be judged in detail; wrappers are passed over by their names."""
    for words in _guessed(text):
        places = (at for at, word in enumerate(words) if not _is_passed_over(word))
        place = next(places, 0)
        for begin in {0, place}:
            part = (rule_name(words[begin]), *words[begin + 1 :])
            spelled = " ".join(part)
            yield SubCommand(words=part, text=spelled, source=spelled, doubts=(GUESSED,))


def _is_passed_over(word: str) -> bool:
    return wrapper_called(family_of(bare_name(word))) is not None or _WRAPPED.match(word) is not None


def _last_of(words: Sequence[Word]) -> SubCommand:
    """The first word that is no wrapper, with all that is behind it."""
    place = next((at for at, word in enumerate(words) if wrapper_called(family_of(bare_name(word.text))) is None), 0)
    rest = words[place:]
    text = " ".join(word.text for word in rest)
    return SubCommand(words=tuple(word.text for word in rest), text=text, source=text, doubts=(TOO_NESTED,))


def _command_of(found: Found, depth: int) -> _Command:
    return _Command(found.words, found.source, found.folders, found.assignments, found.redirections, depth=depth)


def _judge(command: _Command) -> tuple[SubCommand, Unwrapped | None]:
    words, folders = command.words, command.folders
    effects, doubts = redirection_effects(command.redirections, folders)
    doubts = [*command.doubts, *doubts, *doubts_of(command.assignments)]
    assignments = command.assignments
    if not words:
        sub = SubCommand(
            words=(),
            text="",
            source=command.source,
            is_literal=True,
            is_read_only=not doubts,
            effects=tuple(effects),
            doubts=tuple(doubts),
        )
        return sub, None
    # Only a program of a standard folder is vouched for; what one by another path may do is looked for all the same.
    name, program, arguments = rule_name(words[0].text), family_of(bare_name(words[0].text)), words[1:]
    doubts += _doubts_of_name(words[0])
    unwrapped = unwrap(program, arguments, folders)
    if unwrapped is not None:
        doubts += unwrapped.doubts + doubts_of(unwrapped.assignments)
        assignments = (*assignments, *unwrapped.assignments)
    doubts += doubts_of_program(program, arguments)
    if has_hidden_verb(arguments):
        doubts.append(TOO_MANY_OPTIONS)
    effects += effects_of(program, arguments, folders)
    is_reading = (
        not doubts
        and all(changes_only_looks(word) for word in assignments)
        and _changes_nothing(family_of(name), arguments, unwrapped)
    )
    accesses = _accesses(family_of(name), unwrapped, is_reading=is_reading, is_plain=not doubts)
    possible = possible_effects(arguments, assignments, accesses, folders)
    sub = SubCommand(
        words=tuple(word.text for word in words),
        text=" ".join((name, *(word.text for word in without_harmless_options(name, arguments)))),
        source=command.source,
        scope="" if doubts else scope_of(name, words),
        is_literal=all(word.is_literal for word in words),
        is_read_only=is_reading,
        effects=tuple(dict.fromkeys(effects)),
        doubts=tuple(dict.fromkeys(doubts)),
        spellings=spellings_of(words),
        open_beginnings=open_beginnings_of(words),
        possible=tuple(dict.fromkeys(possible)),
        links=links_left(program, arguments),
        follows_links=follows_links(program, arguments),
    )
    return sub, unwrapped


def _accesses(name: str, unwrapped: Unwrapped | None, *, is_reading: bool, is_plain: bool) -> tuple[Access, ...]:
    """What the words of a command may be touched for beyond what the tables know."""
    if unwrapped is not None and unwrapped.is_transparent and name != "find":
        # What it runs is held to its own words.
        return ()
    if is_reading:
        return () if name in WITHOUT_FILES else (Access.READ,)
    return possible_accesses(name, is_plain=is_plain)


def _changes_nothing(name: str, arguments: Sequence[Word], unwrapped: Unwrapped | None) -> bool:
    if unwrapped is None or name == "find":
        return is_read_only(name, arguments)
    return unwrapped.is_transparent and wrapper_called(name) is not None


def _doubts_of_name(word: Word) -> list[str]:
    if not word.is_literal:
        return [f"its name is not literal: {word.source[:80]}"]
    if word.is_disguised:
        return [f"its name is written with quotes or escapes: {word.source[:80]}"]
    return []
