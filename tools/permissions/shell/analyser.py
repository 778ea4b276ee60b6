"""From the text of a command to its sub-commands: reads, unwraps, and asks the tables about each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tools.contract.subject import Access
from tools.display import visible
from tools.permissions.shell.analysis import Analysis, Effect, SubCommand
from tools.permissions.shell.effects import effects_of, possible_accesses, redirection_effects
from tools.permissions.shell.expansion import Disk, Expansion
from tools.permissions.shell.guessing import GUESSED, TOO_NESTED, guessed, last_of, skimmed
from tools.permissions.shell.knowledge.doubtful import doubts_of_program
from tools.permissions.shell.knowledge.families import family_of
from tools.permissions.shell.knowledge.files.made_names import names_backups
from tools.permissions.shell.knowledge.files.operands import Reach
from tools.permissions.shell.knowledge.git import without_harmless_options
from tools.permissions.shell.knowledge.links import follows_links, links_left
from tools.permissions.shell.knowledge.read_only import is_read_only
from tools.permissions.shell.knowledge.running_options import options_used
from tools.permissions.shell.knowledge.sed_awk_jq import names_in_scripts
from tools.permissions.shell.knowledge.variables import changes_only_looks, doubts_of, is_sensitive
from tools.permissions.shell.knowledge.wrappers import SHELLS, wrapper_called
from tools.permissions.shell.names import names
from tools.permissions.shell.possible_reads import WITHOUT_FILES, possible_effects
from tools.permissions.shell.scope import scope_of
from tools.permissions.shell.spellings import bare_name, has_hidden_verb, open_beginnings_of, rule_name, spellings_of
from tools.permissions.shell.syntax import second_reading
from tools.permissions.shell.syntax.expanded import spread
from tools.permissions.shell.syntax.folders import START, UNKNOWN, Folders
from tools.permissions.shell.syntax.lexis import LINE_CONTINUED_IN_WORD
from tools.permissions.shell.syntax.reader import read
from tools.permissions.shell.syntax.reading import Found, Reading, Redirection
from tools.permissions.shell.syntax.words import FOUND, Word, literal, unknown
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
TOO_MANY_OPTIONS = "so many options hide what it is told to do"

_LONG_RUN = re.compile(r"\s{200,}")
_EXPORTING = names("export declare typeset readonly")

_LEAVES_OUT = re.compile(r"--?(?:no-)?(?:exclude|ignore|skip)(?!-?(?:from|file|path))")
"""Options whose values are names that are left out, and no files that are opened."""

_TEXT_DOUBTS = {"alias": "it defines an alias", "trap": "it runs something at another time"}


@dataclass(slots=True)
class _Text:
    """A text to read."""

    text: str
    folders: Folders = START
    base: int | None = None
    is_document: bool = False
    depth: int = 0
    is_main: bool = False


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
    text: str = ""
    is_candidate: bool = False
    certain: frozenset[str] = frozenset()
    found: Sequence[str] | None = None
    mark: str = ""
    appends: bool = False


def analyse(command: str, disk: Disk | None = None) -> Analysis:
    """Tell what a command would run. Nothing is run, and no text is an error.

    The cost is linear in the length of the command, and what words stand for is looked up within bounds.

    Args:
        command: The text.
        disk: What is there, for names with stars. Without it nothing is looked at.
    """
    expansion = Expansion(disk)
    analysis = _Analyser(command, Expansion(is_lost=True), expansion).run()
    # What runs at another time is read like the rest.
    expansion.is_lost = expansion.is_lost or not {_TEXT_DOUBTS["trap"]}.issuperset(analysis.doubts)
    if not expansion.is_upset and (expansion.is_lost or not expansion.is_needed):
        return analysis
    # What words stand for is known only when all is read.
    return _Analyser(command, expansion, Expansion()).run()


class _Analyser:
    """One analysis. What is found on the way is queued, so nothing recurses."""

    def __init__(self, command: str, known: Expansion, notes: Expansion) -> None:
        self._command = command
        self._known = known
        self._notes = notes
        self._texts: deque[_Text] = deque([_Text(command, base=0, is_main=True)])
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
            return Analysis(tuple(skimmed(command)), tuple(self._doubts))
        while self._texts:
            self._read(self._texts.popleft())
        self._compare()
        return Analysis(tuple(self._found), tuple(self._doubts))

    def _read(self, text: _Text) -> None:
        self._budget -= len(text.text)
        if text.depth > MAX_NESTED or self._budget < 0:
            self._doubts[TOO_NESTED] = None
            self._found.extend(skimmed(text.text))
            return
        certain = frozenset(self._known.certain) if text.is_main else frozenset[str]()
        readings = partial(self._readings, certain=certain)
        reading = read(text.text, text.folders, is_document=text.is_document, readings=readings)
        self._doubts.update(reading.doubts)
        for loop in reading.loops:
            self._notes.note_loop(loop.variable, loop.head, loop.folders)
            if is_sensitive(loop.variable):
                self._doubts[f"it sets {loop.variable}, which decides what runs"] = None
        for inner in reading.inner:
            base = None if text.base is None or inner.base is None else text.base + inner.base
            self._texts.append(_Text(inner.text, inner.folders, base, inner.is_document, text.depth + 1))
        self._note_starts(reading, text)
        for found in reading.commands:
            is_certain = text.is_main and found.is_certain and not reading.has_background
            self._notes.note_command(found.words, found.assignments, found.folders, is_certain=is_certain)
            for redirection in found.redirections:
                self._notes.note_use(redirection.target)
            if found.words or found.redirections or doubts_of(found.assignments):
                command = _command_of(found, text, certain | found.loops)
                self._add(replace(command, text=f"{self._command}\n{text.text}"))
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
        for words in guessed(text):
            spelled = " ".join(words)
            literals = [literal(word) for word in words]
            self._add(_Command(literals, spelled, UNKNOWN, doubts=(GUESSED,), depth=depth))

    def _add(self, command: _Command) -> None:
        """Judge a command and what it runs in turn."""
        pending = [command]
        while pending:
            current = pending.pop()
            if len(words := spread(current.words[:1])) > 1:
                pending.append(replace(current, words=[*words, *current.words[1:]]))
            sub, unwrapped = _judge(current, self._known)
            self._found.append(sub)
            name = sub.words[0] if sub.words else ""
            if name in _TEXT_DOUBTS:
                self._doubts[_TEXT_DOUBTS[name]] = None
            if unwrapped is not None:
                pending += self._inside(current, unwrapped)
                self._notes.note_command((), unwrapped.assignments, unwrapped.folders)
                if family_of(bare_name(name)) in SHELLS and unwrapped.doubts:
                    self._notes.lose(current.words)

    def _inside(self, outer: _Command, unwrapped: Unwrapped) -> list[_Command]:
        depth = outer.depth + 1
        if depth > MAX_NESTED:
            self._doubts[TOO_NESTED] = None
            for script in (*unwrapped.scripts, *unwrapped.documents):
                self._found.extend(skimmed(script))
            self._found.extend(last_of(words) for words in unwrapped.commands[:1])
            return []
        for script in unwrapped.scripts:
            # What is put into a text may be any name.
            text = script.replace(outer.mark, FOUND) if outer.mark else script
            self._texts.append(_Text(text, unwrapped.folders, depth=depth))
        for document in unwrapped.documents:
            self._texts.append(_Text(document, unwrapped.folders, is_document=True, depth=depth))
        if outer.is_candidate:
            # Whatever it could run is a candidate itself already.
            return []
        for words in unwrapped.commands:
            self._notes.note_command(words, (), unwrapped.folders)
        return [
            _Command(
                words,
                " ".join(word.source for word in words),
                unwrapped.folders,
                depth=depth,
                text=outer.text,
                is_candidate=unwrapped.is_unclear,
                certain=outer.certain,
                found=unwrapped.found,
                mark=unwrapped.mark,
                appends=unwrapped.appends,
            )
            for words in reversed(unwrapped.commands)
        ]

    def _readings(
        self, words: Sequence[Word], folders: Folders, *, certain: frozenset[str], loops: frozenset[str]
    ) -> Sequence[Sequence[Word]]:
        if self._known.is_upset:
            return [[words[0], unknown("")]]
        folder = folders[0] if len(folders) == 1 else None
        return list(self._known.variants(words, folder, certain=certain | loops))


_TIME = re.compile(r"(?:(?<=[\n;&|({])|\A)[ \t]*time(?:[ \t]+-p)?(?=[ \t])")


def _command_of(found: Found, text: _Text, certain: frozenset[str]) -> _Command:
    return _Command(
        found.words,
        found.source,
        found.folders,
        found.assignments,
        found.redirections,
        depth=text.depth,
        certain=certain,
    )


def _judge(command: _Command, known: Expansion) -> tuple[SubCommand, Unwrapped | None]:
    words, folders = command.words, command.folders
    effects, doubts = _redirected(command, known)
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
    options = options_used(program, arguments, command.text)
    if any(names_backups(word) for word in (*assignments, *(arguments if program in _EXPORTING else ()))):
        effects.append(Effect(Access.WRITE, None, None))
    readings = _readings_of(command, known)
    for folder, read_arguments in readings:
        effects += effects_of(program, read_arguments, (folder,), command.text)
        if program == "find":
            found = known.found_by(read_arguments, folder)
            if unwrapped is not None:
                unwrapped.found = found if len(readings) == 1 else None
            if any(word.text == "-delete" for word in read_arguments):
                for removed in known.variants([literal(FOUND)], folder, found):
                    effects += effects_of("rm", removed, (folder,))
    is_reading = (
        not doubts
        and not options
        and all(changes_only_looks(word) for word in assignments)
        and _changes_nothing(family_of(name), arguments, unwrapped)
    )
    accesses = _accesses(family_of(name), unwrapped, is_reading=is_reading, is_plain=not (doubts or options))
    possible = [
        effect
        for folder, read_arguments in readings
        for given in known.variants(assignments, folder, certain=command.certain)
        for effect in possible_effects(
            (*read_arguments, *names_in_scripts(program, read_arguments)), given, accesses, (folder,)
        )
    ]
    if not is_reading and unwrapped is None and not {Access.READ, Access.WRITE} <= set(accesses):
        # No table knows all options: what is attached to one may be a file.
        possible += [
            effect
            for folder, read_arguments in readings
            for effect in possible_effects(
                [word for word in read_arguments if word.text.startswith("-") and not _LEAVES_OUT.match(word.text)],
                (),
                (Access.READ, Access.WRITE),
                (folder,),
            )
        ]
    if program == "git":
        # What it shows of folders is known by its sub-commands.
        possible = [replace(effect, reach=Reach.ITSELF) for effect in possible]
    sub = SubCommand(
        words=tuple(word.text for word in words),
        text=" ".join((name, *(word.text for word in without_harmless_options(name, arguments)))),
        source=command.source,
        scope="" if doubts or options else scope_of(name, words),
        is_literal=words[0].is_literal and all(word.is_literal for _, read in readings for word in read),
        is_read_only=is_reading,
        effects=tuple(dict.fromkeys(effects)),
        doubts=tuple(dict.fromkeys(doubts)),
        spellings=spellings_of(words),
        open_beginnings=open_beginnings_of(words),
        possible=tuple(dict.fromkeys(possible)),
        links=links_left(program, arguments),
        follows_links=follows_links(program, arguments),
        options=tuple(options),
    )
    return sub, unwrapped


def _redirected(command: _Command, known: Expansion) -> tuple[list[Effect], list[str]]:
    """What the shell opens for a command in every reading, and what is doubtful about it."""
    effects: list[Effect] = []
    doubts: list[str] = []
    for redirection in command.redirections:
        for folder in command.folders:
            for targets in known.variants([redirection.target], folder, certain=command.certain):
                target = targets[0] if len(targets) == 1 else redirection.target
                opened = redirection_effects([Redirection(redirection.operator, target)], (folder,))
                effects += opened[0]
                doubts += opened[1]
    return list(dict.fromkeys(effects)), list(dict.fromkeys(doubts))


def _readings_of(command: _Command, known: Expansion) -> list[tuple[str | None, Sequence[Word]]]:
    """The arguments of a command as it may be given them, each with a folder that it may run in."""
    arguments = command.words[1:]
    if command.mark:
        arguments = [unknown(FOUND) if command.mark in word.source else word for word in arguments]
    if command.appends or any(word.source == FOUND for word in arguments[-1:]):
        # There may be several of them.
        arguments = [*arguments, literal(FOUND), literal(FOUND)]
    return [
        (folder, variant)
        for folder in command.folders
        for variant in known.variants(arguments, folder, command.found, certain=command.certain)
    ]


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
