"""From the text of a command to its sub-commands: reads, unwraps, and asks the tables about each."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tools.contract.display import visible
from tools.contract.permission_subjects import Access
from tools.permissions.shell import command_names
from tools.permissions.shell.command_analysis import WITHOUT_FILES, Analysis, Effect, SubCommand
from tools.permissions.shell.command_names import bare_name, rule_name
from tools.permissions.shell.effects import (
    effects_of,
    effects_of_unknown_words,
    possible_accesses,
    possible_effects,
    redirection_effects,
    takes_program,
)
from tools.permissions.shell.expansion import Expansion, NamesOnDisk
from tools.permissions.shell.knowledge.git import without_harmless_options
from tools.permissions.shell.knowledge.interpreters import (
    READING_INPUT,
    doubts_of_program,
    names_in_scripts,
    with_given_scripts,
    wrapper_called,
)
from tools.permissions.shell.knowledge.program_files import Reach, follows_links
from tools.permissions.shell.knowledge.read_only import is_read_only
from tools.permissions.shell.knowledge.running_options import family_of, options_used
from tools.permissions.shell.knowledge.unnamed_files import links_left, names_backups
from tools.permissions.shell.knowledge.variables import changes_only_looks, declared, doubts_of, is_free, is_sensitive
from tools.permissions.shell.syntax.parser import (
    MAX_CHARS,
    MAX_COMMANDS,
    MAX_TEXTS,
    START,
    UNKNOWN,
    Folders,
    Redirection,
    beginnings,
    read,
)
from tools.permissions.shell.syntax.words import (
    ASSIGNMENT,
    FOUND,
    LINE_CONTINUED_IN_WORD,
    Word,
    expand_braces,
    literal,
    names,
    unknown,
)
from tools.permissions.shell.unwrapping import Unwrapped, unwrap

# Linux starts no program with a longer argument, so a longer command is none that `bash -c` could be given
MAX_READ_CHARS = 131_072
# Characters of a command and all texts within it. Likely commands are read in several ways.
MAX_READ_ALTOGETHER = 4 * MAX_READ_CHARS
MAX_PASSES = 3  # how often a text is read again, where what it is found to hold sets further variables
MAX_NESTED = 12  # texts within texts, and wrappers around wrappers
TOO_NESTED = "wrappers or texts within texts are nested too deep to be followed"
LIKELY = "it is only guessed to be a command"
HIDES_TEXT = "it hides text: control or invisible characters, or a long run of blanks"
DIFFERS = "two readings of it differ"
TOO_LONG = f"it is longer than {MAX_CHARS:,} characters or {MAX_COMMANDS:,} commands"
UNREAD = f"it is longer than {MAX_READ_CHARS:,} characters and is not read"
CONTINUED = "a line is continued within a word"
TOO_MANY_OPTIONS = "so many options hide what it is told to do"
_TEXT_DOUBTS = {"alias": "it defines an alias", "trap": "it runs something at another time"}
_PIECE = re.compile(r"[^\s;&|()<>`{}!][^;&|()<>`{}\n]*")
_WRAPPED = re.compile(r"-|\d|[A-Za-z_]\w*=", re.ASCII)
_KEYWORDS = names("if then elif else while until do time coproc in case for select function")
_NO_QUOTES = str.maketrans("", "", "'\"\\")
_QUOTES_AS_ENDS = str.maketrans("'\"", "\n\n", "\\")
_LONG_RUN = re.compile(r"\s{200,}")
_TIME = re.compile(r"(?:(?<=[\n;&|({])|\A)[ \t]*time(?:[ \t]+-p)?(?=[ \t])")
# Options whose values are names that are left out, and no files that are opened
_LEAVES_OUT = re.compile(r"--?(?:no-)?(?:exclude|ignore|skip)(?!-?(?:from|file|path))")


def likely_commands(text: str) -> Iterator[list[str]]:
    """What could be commands of a text, however it is quoted, as words, each once."""
    versions = dict.fromkeys((text, text.replace("\\\n", "").translate(_NO_QUOTES), text.translate(_QUOTES_AS_ENDS)))
    seen: set[str] = set()
    for version in versions:
        for piece in _PIECE.finditer(version):
            if piece[0] in seen:
                continue
            seen.add(piece[0])
            words = piece[0].split()
            for place, word in enumerate(words):
                # The first word that could be a name.
                if word not in _KEYWORDS and not ASSIGNMENT.match(word) and word.strip("$'\"\\-"):
                    yield words[place:]
                    break


def skimmed(text: str) -> Iterator[SubCommand]:
    """The same of a text that is too long to be judged in detail; wrappers are passed over by their names."""
    for words in likely_commands(text):
        inner = (
            at
            for at, word in enumerate(words)
            if wrapper_called(family_of(bare_name(word))) is None and not _WRAPPED.match(word)
        )
        for begin in {0, next(inner, 0)}:
            part = (rule_name(words[begin]), *words[begin + 1 :])
            spelled = " ".join(part)
            yield SubCommand(words=part, text=spelled, source=spelled, doubts=(LIKELY,))


def analyse(command: str, disk: NamesOnDisk | None = None) -> Analysis:
    """Tell what a command would run. Nothing is run, and no text is an error.

    The cost is linear in the length of the command, and what words stand for is looked up within bounds. Without a disk
    no names with stars are looked up.
    """
    known = Expansion(is_lost=True)
    for reads in range(MAX_PASSES + 1):
        notes = Expansion(disk)
        analysis = _Analyser(command, known, notes, is_draft=not reads).run()
        # What runs at another time is read like the rest.
        notes.is_lost = notes.is_lost or not {_TEXT_DOUBTS["trap"]}.issuperset(analysis.doubts)
        is_plain = not reads and not notes.is_upset and not notes.is_needed
        if is_plain or (notes.is_lost and notes.is_empty) or (reads and notes.is_within(known)):
            return analysis
        # What words stand for is known only when all is read.
        known = notes
    return _Analyser(command, Expansion(is_lost=True, is_upset=known.is_upset), Expansion()).run()


@dataclass(slots=True)
class _Text:
    text: str
    folders: Folders = START
    base: int | None = None
    is_document: bool = False
    depth: int = 0
    is_main: bool = False
    inputs: Sequence[Sequence[Word]] = ()
    is_open: bool = False


class _Analyser:
    """One analysis. What is found on the way is queued, so nothing recurses."""

    def __init__(self, command: str, known: Expansion, notes: Expansion, *, is_draft: bool = False) -> None:
        self._command = command
        self._is_draft = is_draft
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
        if not self._doubts:
            # Hold our reading against the grammar's.
            if len(command) > MAX_CHARS or len(self._starts) > MAX_COMMANDS:
                self._doubts[TOO_LONG] = None
            else:
                starts = beginnings(_TIME.sub(lambda found: " " * len(found[0]), command))
                if starts is None or starts != self._starts:
                    self._doubts[DIFFERS] = None
                    self._add_likely(command, 1)
        return Analysis(tuple(self._found), tuple(self._doubts))

    def _read(self, text: _Text) -> None:
        self._budget -= len(text.text)
        if text.depth > MAX_NESTED or self._budget < 0:
            self._doubts[TOO_NESTED] = None
            self._found.extend(skimmed(text.text))
            return
        certain = frozenset(self._known.certain) if text.is_main else frozenset[str]()

        def readings(loops: frozenset[str], words: Sequence[Word], folders: Folders) -> Sequence[Sequence[Word]]:
            if self._known.is_upset:
                return [[words[0], unknown("")]]
            folder = folders[0] if len(folders) == 1 else None
            return list(self._known.variants(words, folder, certain=certain | loops))

        reading = read(text.text, text.folders, is_document=text.is_document, readings=readings)
        self._doubts.update(reading.doubts)
        for loop in reading.loops:
            self._notes.note_loop(loop.variable, loop.head, loop.folders)
            if is_sensitive(loop.variable):
                self._doubts[f"it sets {loop.variable}, which decides what runs"] = None
        for inner in reading.inner:
            base = None if text.base is None or inner.base is None else text.base + inner.base
            self._texts.append(
                _Text(inner.text, inner.folders, base, inner.is_document, text.depth + 1, inputs=text.inputs)
            )
        if text.base is not None:
            self._starts.update(text.base + found.start for found in reading.commands if found.start >= 0)
        # What a loop or a group is given to read, any command in it may read.
        shared = [*text.inputs, *(each for found in reading.commands if not found.words for each in found.inputs)]
        for found in reading.commands:
            is_certain = text.is_main and found.is_certain and not reading.has_background
            # In a draft a name that stands in a script may be one that is known when all is read.
            is_named = not found.words or found.words[0].is_literal or not (self._is_draft and text.is_open)
            words = found.words if is_named else [literal(":"), *found.words]
            self._notes.note_command(words, found.assignments, found.folders, is_certain=is_certain)
            for word in (
                *(each.target for each in found.redirections),
                *(word for given in found.inputs for word in given),
            ):
                self._notes.note_use(word)
            if found.words or found.redirections or doubts_of(found.assignments):
                self._add(
                    _Command(
                        found.words,
                        found.source,
                        found.folders,
                        found.assignments,
                        found.redirections,
                        depth=text.depth,
                        text=f"{self._command}\n{text.text}",
                        certain=certain | found.loops,
                        inputs=[*found.inputs, *shared],
                    )
                )
        if reading.is_lost:
            self._add_likely(text.text, text.depth + 1)

    def _add_likely(self, text: str, depth: int) -> None:
        """List whatever could be a command of a text that cannot be followed."""
        for words in likely_commands(text):
            literals = [literal(word) for word in words]
            self._add(_Command(literals, " ".join(words), UNKNOWN, doubts=(LIKELY,), depth=depth))

    def _add(self, command: _Command) -> None:
        """Judge a command and what it runs in turn."""
        pending = [command]
        while pending:
            current = pending.pop()
            if len(words := expand_braces(current.words[:1])) > 1:
                pending.append(replace(current, words=[*words, *current.words[1:]]))
            sub, unwrapped = current.judge(self._known)
            self._found.append(sub)
            name = sub.words[0] if sub.words else ""
            if unwrapped is None and current.inputs and name in READING_INPUT:
                unwrapped = Unwrapped(current.folders)
            if name in _TEXT_DOUBTS:
                self._doubts[_TEXT_DOUBTS[name]] = None
            if unwrapped is not None:
                pending += self._inside(current, unwrapped)
                self._notes.note_command((), unwrapped.assignments, unwrapped.folders)
                if unwrapped.is_other:
                    self._notes.lose(current.words)

    def _inside(self, outer: _Command, unwrapped: Unwrapped) -> list[_Command]:
        """Queue the texts that a wrapper reads; the commands that it runs."""
        depth = outer.depth + 1
        if depth > MAX_NESTED:
            self._doubts[TOO_NESTED] = None
            for script in (*unwrapped.scripts, *unwrapped.documents):
                self._found.extend(skimmed(script))
            for words in unwrapped.commands[:1]:
                # The first word that is not a wrapper, with all that is behind it.
                inner = (at for at, word in enumerate(words) if wrapper_called(family_of(bare_name(word.text))) is None)
                rest = tuple(word.text for word in words[next(inner, 0) :])
                text = " ".join(rest)
                self._found.append(SubCommand(words=rest, text=text, source=text, doubts=(TOO_NESTED,)))
            return []
        reads_input = family_of(bare_name(outer.words[0].text)) in READING_INPUT
        scripts = dict.fromkeys((script, False) for script in unwrapped.scripts)
        # The texts that a shell is given by some words, as far as these are known.
        for words in (*unwrapped.open_scripts, *(outer.inputs[:MAX_TEXTS] if reads_input else ())):
            for folder in outer.folders:
                for variant in self._known.variants(words, folder, outer.found, certain=outer.certain):
                    is_open = not all(word.is_literal for word in variant)
                    scripts[" ".join(word.script for word in variant), is_open] = None
        for script, is_open in scripts:
            # What is put into a text may be any name.
            text = script.replace(outer.mark, FOUND) if outer.mark else script
            self._texts.append(_Text(text, unwrapped.folders, depth=depth, inputs=outer.inputs, is_open=is_open))
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
                inputs=outer.inputs,
            )
            for words in reversed(unwrapped.commands)
        ]


@dataclass(slots=True)
class _Command:
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
    inputs: Sequence[Sequence[Word]] = ()

    def judge(self, known: Expansion) -> tuple[SubCommand, Unwrapped | None]:
        """What is known of it by itself, and what it runs in turn."""
        words = self.words
        effects, doubts = self._redirected(known)
        doubts = [*self.doubts, *doubts, *doubts_of(self.assignments, words[0].text if words else "")]
        if not words:
            sub = SubCommand(
                words=(),
                text="",
                source=self.source,
                is_literal=True,
                is_read_only=not doubts,
                effects=tuple(effects),
                doubts=tuple(doubts),
            )
            return sub, None
        # Only a program of a standard folder is vouched for; what one by another path may do is looked for all the
        # same.
        name, program, arguments = rule_name(words[0].text), family_of(bare_name(words[0].text)), words[1:]
        family = family_of(name)
        if not words[0].is_literal:
            doubts.append(f"its name is not literal: {words[0].source[:80]}")
        elif words[0].text != words[0].source:
            doubts.append(f"its name is written with quotes or escapes: {words[0].source[:80]}")
        given = self.assignments
        unwrapped = unwrap(program, arguments, self.folders)
        if unwrapped is not None:
            doubts += unwrapped.doubts + doubts_of(unwrapped.assignments)
            given = (*given, *unwrapped.assignments)
        set_by_it = declared(program, arguments)
        doubts += doubts_of(set_by_it)
        if command_names.has_hidden_verb(arguments):
            doubts.append(TOO_MANY_OPTIONS)
        options = options_used(program, arguments, self.text)
        if any(names_backups(word) for word in (*given, *set_by_it)):
            effects.append(Effect(Access.WRITE, None, None))
        if program in ("sed", "awk"):
            # A script is judged with what its variables hold.
            readings = self._readings(with_given_scripts(arguments, self.inputs), known)
            judged = [read for _, read in readings]
        else:
            readings = self._readings([w for w in arguments if w not in set_by_it or not is_free(w)], known)
            judged = [arguments]
        doubts += (doubt for each in judged for doubt in doubts_of_program(program, each))
        for folder, read_arguments in readings:
            effects += effects_of(program, read_arguments, folder, self.text, self.inputs)
            if program == "find":
                found = known.found_by(read_arguments, folder)
                if unwrapped is not None:
                    unwrapped.found = found if len(readings) == 1 else None
                if any(word.text == "-delete" for word in read_arguments):
                    for removed in known.variants([literal(FOUND)], folder, found):
                        effects += effects_of("rm", removed, folder)
        if unwrapped is None or family == "find":
            changes_nothing = is_read_only(family, arguments)
        else:
            changes_nothing = unwrapped.is_transparent and wrapper_called(family) is not None
        is_plain = not doubts and not options
        is_reading = is_plain and changes_nothing and all(changes_only_looks(word) for word in given)
        # What its words may be touched for beyond what the tables know. What a wrapper runs is held to its own words.
        if unwrapped is not None and unwrapped.is_transparent and family != "find":
            accesses: tuple[Access, ...] = ()
        elif is_reading:
            accesses = () if family in WITHOUT_FILES else (Access.READ,)
        else:
            accesses = possible_accesses(family, is_plain=is_plain)
        possible: list[Effect] = []
        assignments = [word for word in given if not is_free(word)]
        for folder, read_arguments in readings:
            named = (*read_arguments, *names_in_scripts(program, read_arguments))
            for variables in known.variants(assignments, folder, certain=self.certain):
                possible += possible_effects(named, variables, accesses, folder)
        if not is_reading and unwrapped is None and not {Access.READ, Access.WRITE} <= set(accesses):
            # No table knows all options: what is attached to one may be a file.
            for folder, read_arguments in readings:
                attached = [w for w in read_arguments if w.text.startswith("-") and not _LEAVES_OUT.match(w.text)]
                possible += possible_effects(attached, (), (Access.READ, Access.WRITE), folder)
        if program == "git":
            # What it shows of folders is known by its sub-commands.
            possible = [replace(effect, reach=Reach.ITSELF) for effect in possible]
        is_program_reader = takes_program(program, accesses)
        taken: list[Word] = []
        if is_program_reader or program in READING_INPUT:
            taken = [word for text in self.inputs for word in text]
        if known.is_lost:
            taken += known.values_given(taken)
        if unwrapped is None and is_program_reader:
            for folder, read_arguments in readings:
                effects += effects_of_unknown_words(program, read_arguments, folder)
        if not words[0].is_literal or (unwrapped is not None and unwrapped.open_scripts):
            # What its variables hold may be a command.
            taken += known.values_given(words)
        for folder in self.folders if taken else ():
            for text in known.variants(taken, folder, certain=self.certain):
                possible += possible_effects(text, (), (Access.READ, Access.WRITE, Access.FETCH), folder)
        if taken and len(self.inputs) > MAX_TEXTS:
            effects.append(Effect(Access.WRITE, None, None))
        sub = SubCommand(
            words=tuple(word.text for word in words),
            text=" ".join((name, *(word.text for word in without_harmless_options(name, arguments)))),
            source=self.source,
            scope="" if doubts or options else command_names.scope_of(name, words),
            is_literal=words[0].is_literal and all(word.is_literal for _, read in readings for word in read),
            is_read_only=is_reading,
            effects=tuple(dict.fromkeys(effects)),
            doubts=tuple(dict.fromkeys(doubts)),
            spellings=command_names.spellings_of(words),
            open_beginnings=command_names.open_beginnings_of(words),
            possible=tuple(dict.fromkeys(possible)),
            links=links_left(program, arguments),
            follows_links=follows_links(program, arguments),
            options=tuple(options),
        )
        return sub, unwrapped

    def _redirected(self, known: Expansion) -> tuple[list[Effect], list[str]]:
        """What the shell opens for it in every reading, and what is doubtful about it."""
        effects: dict[Effect, None] = {}
        doubts: dict[str, None] = {}
        for redirection in self.redirections:
            for folder in self.folders:
                for targets in known.variants([redirection.target], folder, certain=self.certain):
                    target = targets[0] if len(targets) == 1 else redirection.target
                    opened, doubt = redirection_effects(redirection.operator, target, folder)
                    effects.update(dict.fromkeys(opened))
                    if doubt:
                        doubts[doubt] = None
        return list(effects), list(doubts)

    def _readings(self, arguments: Sequence[Word], known: Expansion) -> list[tuple[str | None, Sequence[Word]]]:
        """Some arguments as it may be given them, each with a folder that it may run in."""
        if self.mark:
            arguments = [unknown(FOUND) if self.mark in word.source else word for word in arguments]
        if self.appends or any(word.source == FOUND for word in arguments[-1:]):
            # There may be several of them.
            arguments = [*arguments, literal(FOUND), literal(FOUND)]
        return [
            (folder, variant)
            for folder in self.folders
            for variant in known.variants(arguments, folder, self.found, certain=self.certain)
        ]
