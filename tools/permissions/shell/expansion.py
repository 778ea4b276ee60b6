"""What words stand for that are not literal, as far as a text and the disk tell: variables, braces, names with stars.

A variable counts with every value that the text gives it anywhere, and with none at all, unless it is given one before
all else. Where something may set variables, or change what words mean, in a way that is not followed, nothing is known;
nor is what would take too long.

Names with stars stand for the files around the command, which are looked up on the disk.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice, pairwise, product

from tools.permissions.auto_run_files import auto_run_names, names_between
from tools.permissions.shell.syntax.parser import Folders, joined
from tools.permissions.shell.syntax.words import (
    ASSIGNMENT,
    FOUND,
    MAX_VARIANTS,
    NUMBER,
    VARIABLE,
    WILD,
    Word,
    expanded_parts,
    names,
    read_word,
    unknown,
    value_of,
    words_in_braces,
)
from tools.permissions.shell.unwrapping import FIND_RUNS

MAX_ENTRIES = 20_000  # names that are looked at for one command
MAX_MATCHES = 128


def with_home(path: str, home: str) -> str:
    """A path as it is written in a command, with the home folder in place of what stands for it."""
    for prefix in ("~", "$HOME", "${HOME}"):
        if path == prefix or path.startswith(f"{prefix}/"):
            return home + path[len(prefix) :]
    return path


class _TooManyError(Exception):
    """More names than are looked at."""


@dataclass(slots=True)
class NamesOnDisk:
    """Looks names up for one command, within bounds. Blocking."""

    home: str
    directory: str
    _left: int = MAX_ENTRIES
    _matched: dict[tuple[str, str], Sequence[str] | None] = field(
        default_factory=dict[tuple[str, str], Sequence[str] | None]
    )

    def matches(self, pattern: str, folder: str) -> Sequence[str] | None:
        """The paths that a pattern stands for, in the order of their bytes; `None` if there are too many.

        `[x]` is a character that means nothing. A relative one starts in the folder, which may be relative as well.
        Auto-run files count also where they are not there: they may be when the command comes to it.
        """
        if (pattern, folder) not in self._matched:
            self._matched[pattern, folder] = self._matches(pattern, folder)
        return self._matched[pattern, folder]

    def _matches(self, pattern: str, folder: str) -> Sequence[str] | None:
        found = {"/" if pattern.startswith("/") else ""}
        *above, last = pattern.split("/")
        try:
            for part, slash in (*((part, "/") for part in above if part), (last, "")):
                names = (
                    (path, name) for path in found for name in (self._fitting(path, part, folder) if part else [""])
                )
                found = {f"{path}{name}{slash}" for path, name in itertools.islice(names, MAX_ENTRIES)}
        except (_TooManyError, ValueError):
            return None
        if not last:
            found = {path for path in found if os.path.isdir(self._absolute(path, folder))}
        return sorted(found) if len(found) <= MAX_MATCHES else None

    def below(self, start: str, name: str, depth: int, folder: str) -> Sequence[str] | None:
        """What lies in a folder down to a depth, and itself, by a pattern of names; `None` if there is too much.

        Here stars stand for dots as well.
        """
        if ".." in start.split("/"):
            return None
        found = [start] if fnmatchcase(os.path.basename(os.path.normpath(start)), name) else []
        pending = [(start, depth)]
        try:
            while pending:
                path, left = pending.pop()
                for entry in self._entries(path, folder) if left else ():
                    below = os.path.join(path, entry.name)
                    if fnmatchcase(entry.name, name):
                        found.append(below)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((below, left - 1))
        except (_TooManyError, ValueError):
            return None
        return found if len(found) <= MAX_MATCHES else None

    def _fitting(self, path: str, part: str, folder: str) -> Iterator[str]:
        """The names in a folder that one part of a pattern fits."""
        absolute = self._absolute(path, folder)
        is_missing = bool(path) and not os.path.lexists(absolute.rstrip("/") or "/")
        if WILD.search(part) is None:
            if is_missing or os.path.lexists(os.path.join(absolute, part)):
                yield part
            return
        if is_missing:
            raise _TooManyError
        yield from auto_run_names(part)
        for entry in self._entries(path, folder):
            if fnmatchcase(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
                yield entry.name

    def _absolute(self, path: str, folder: str) -> str:
        return os.path.join(self.directory, with_home(folder, self.home), with_home(path, self.home))

    def _entries(self, path: str, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._absolute(path, folder)) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        raise _TooManyError
                    yield entry
        except OSError:
            return


# Stands for a file of a name that is new
NEW_FILE = "/tmp/new.0"  # noqa: S108 - where mktemp makes it
MAX_WORK = 4_096  # readings of all commands of a text together
MAX_NESTED = 8  # variables in the values of variables
MAX_CHARS = 4_096  # characters of a word: Linux opens no longer path
# What may set variables, or change what words mean, in ways that are not followed
_SETTING = names(
    "read mapfile readarray getopts let eval source . unset vared setenv shopt enable compgen alias hash local declare"
    " typeset"
)
_EXPORTING = names("export readonly")
_SET_OPTION = re.compile(r"[-+][a-zA-Z]+|pipefail|errexit|nounset|xtrace")
# Variables that change what other words mean, or that shells set themselves
_DECIDING = re.compile(
    r"_|IFS|GLOBIGNORE|BASH\w*|SHELLOPTS|POSIXLY_CORRECT|PATH|TMPDIR|HOME|CDPATH|PWD|OLDPWD|DIRSTACK|REPLY|OPTARG"
    r"|PIPESTATUS|MAPFILE|FUNCNAME|GROUPS|SECONDS|LINENO|EPOCH\w*|COMP_\w+|S?RANDOM|E?UID|PPID|HISTCMD"
)
_UPSETTING = re.compile(r"HOME|CDPATH|OLDPWD|DIRSTACK")  # those with which `~` and `cd` lead elsewhere
_HOME = re.compile(r"(\A|[=:])~|\$HOME\b|\$\{HOME\}", re.ASCII)
# Substitutions whose result nobody chooses: a new file in `/tmp`, the folder
_PLAIN = re.compile(r"\$\((?:(?P<new>mktemp(?: -d)?)|pwd)\)|\$PWD\b|\$\{PWD\}", re.ASCII)
_PLAIN_PATH = re.compile(r"[\w./@%+-]+", re.ASCII)
_NOT_KNOWN = re.compile(r"\$\(|`|[<>]\(")
_PLAIN_GLOB = re.compile(r"((?:\w[\w.-]*/)*)(?:\w[\w.-]*)?\*([\w.-]*)", re.ASCII)
_BEFORE = re.compile(r"\"?((?:\w[\w.-]*/)*)", re.ASCII)
_TAIL = re.compile(r"([\w.-]*)\"?\Z", re.ASCII)
_BRACKET = re.compile(r"\[[!^]?\]?(?:\[:\w+:\]|[^\]/])*\]")
_SIMPLE_BRACKET = re.compile(r"\[[!^]?[^\]\[/:.=!^]+\]")
_NOT_PLAIN_FIND = re.compile(r"-or?|,|!|-not|\(|-prune|-[HLPDO].*|-follow|-files0-from")
# Words of `find` that take no value
_FIND_FLAGS = names(
    "-a -and -true -xdev -mount -depth -d -noleaf -daystart -empty -readable -writable -executable -print -print0"
    " -nouser -nogroup -ls -delete"
)


@dataclass(slots=True)
class Expansion:
    """What is known of the words of one text. It is told first what the text says, and asked then."""

    disk: NamesOnDisk | None = None  # what is there; without it stars stay what they are
    is_needed: bool = False  # whether there is a word that is not literal
    is_lost: bool = False  # whether nothing is known of such words
    is_upset: bool = False  # whether `~` and `cd` may lead elsewhere than they seem to
    # Variables that the text itself gives a value before it uses them.
    certain: set[str] = field(default_factory=set[str])
    _given: dict[str, list[tuple[Word, Folders, bool]]] = field(
        default_factory=dict[str, list[tuple[Word, Folders, bool]]]
    )
    _used: set[str] = field(default_factory=set[str])
    _work: int = MAX_WORK
    _is_folded: bool = False

    def note_command(
        self, words: Sequence[Word], assignments: Sequence[Word], folders: Folders, *, is_certain: bool = False
    ) -> None:
        """Take in what a command sets; a certain one runs before all that stands behind it, and in the same shell."""
        name = words[0].text if words else ""
        for word in assignments:
            self._note_assignment(word, folders, is_certain=is_certain and not words)
        for word in words[1:] if name in _EXPORTING else ():
            self._note_assignment(word, folders, is_exported=True)
        sets_options = name == "set" and not all(_SET_OPTION.fullmatch(word.text) for word in words[1:])
        prints_into = name in ("printf", "wait") and any(
            word.may_be_option for word in words[1:2] if word.source != "$!"
        )
        runs_later = name == "trap" and not all(word.is_literal for word in words)
        if name in _SETTING or sets_options or prints_into or runs_later or (words and not words[0].is_literal):
            self.lose(words)
        for word in (*words, *assignments):
            self.note_use(word)

    def note_use(self, word: Word) -> None:
        if not word.is_literal or FOUND in word.source or word.text == "-delete":
            self.is_needed = True
            self._used.update(re.findall(r"\w+", word.source))

    def note_loop(self, name: str, head: Sequence[Word] | None, folders: Folders) -> None:
        """Take in the head of a loop, `f in a b`; `None` for one of which not all is known."""
        if head is None or _DECIDING.fullmatch(name):
            self.lose([unknown(name)])
            return
        for word in head[2:]:
            self.note_use(word)
        self._given.setdefault(name, []).extend((word, folders, False) for word in head[2:])

    def lose(self, words: Sequence[Word]) -> None:
        """Take in that some words set what is not known."""
        self.is_lost = True
        heads = [(word.is_literal, word.text.partition("=")[0]) for word in words]
        self.is_upset = self.is_upset or any(
            not is_literal or _UPSETTING.search(head) or head == "shopt" for is_literal, head in heads
        )

    def _note_assignment(
        self, word: Word, folders: Folders, *, is_certain: bool = False, is_exported: bool = False
    ) -> None:
        name = word.source.partition("=")[0]
        found = ASSIGNMENT.match(word.source)
        is_list = is_exported and words_in_braces(word.source) != [word.source]
        is_plain = found is not None and found.end() == len(name) + 1 and found[1] == name and not is_list
        if found is None or not is_plain or (_DECIDING.fullmatch(name) and name != "PATH"):
            # A list (`a=(x)`), a part of one, what is added; or only a name, behind `export`.
            if "=" in word.source or word.may_be_option:
                self.lose([word])
            return
        if name == "PATH":
            # It says nothing of what words mean, and what it holds is not told.
            return
        value = read_word(word.source[found.end() :])
        if is_certain and name not in self._used and name not in self._given:
            self.certain.add(name)
        self._given.setdefault(name, []).append((value, folders, True))

    @property
    def is_empty(self) -> bool:
        """Whether no variable is known to be given a value, and `~` and `cd` lead where they seem to."""
        return not self._given and not self.is_upset

    def values_given(self, words: Sequence[Word]) -> list[Word]:
        """All that a text gives the variables of some words anywhere, and those of their values in turn."""
        found: dict[str, None] = {}
        values: list[Word] = []
        pending = list(words)
        while pending:
            for name in re.findall(r"\$\{?(\w+)", pending.pop().source):
                if name not in found:
                    found[name] = None
                    given = [word for word, _, _ in self._given.get(name, ())]
                    values += given
                    pending += given
        return values

    def is_within(self, other: Expansion) -> bool:
        """Whether it knows of nothing that is set, and of no reason to know less, beyond what another one does."""
        if other.is_lost or self.is_lost or self.is_upset != other.is_upset:
            return self.is_lost == other.is_lost and self.is_upset == other.is_upset
        return all(set(values) <= set(other._given.get(name, ())) for name, values in self._given.items())

    def variants(
        self,
        words: Sequence[Word],
        folder: str | None,
        found: Sequence[str] | None = None,
        certain: frozenset[str] = frozenset(),
    ) -> Iterator[list[Word]]:
        """Some words of a command in every reading that there may be. What is not known stays as it is.

        `{}` stands for what was found, in turn, if that is known; the certain variables are given a value before.
        """
        if self.is_upset:
            words = [word if word.is_literal else read_word(_HOME.sub(r"\1$_", word.source)) for word in words]
        if self.is_lost:
            yield list(words)
            return
        sources = [word.source for word in words if not word.is_literal]
        bindings: list[dict[str, str]] = self._bindings(sources, certain, folder=folder)
        marked = [word for word in words if FOUND in word.source]
        # Where nothing is found yet, a name with more around it may still lead to what the text makes.
        if marked and found is not None and (found or all(word.source.strip("'\"") == FOUND for word in marked)):
            bindings = [{**binding, FOUND: each} for binding in bindings for each in found]
        self._work -= len(bindings)
        if len(bindings) > MAX_VARIANTS or self._work < 0:
            bindings = [{}]
        for binding in bindings:
            variant = self._variant(words, folder, binding)
            yield variant
            if any(WILD.search(source) for source in sources):
                # Names are sorted as some language has it, and the last one may be where something is copied to.
                self._is_folded = True
                other = self._variant(words, folder, binding)
                self._is_folded = False
                if other != variant:
                    yield other

    def _variant(self, words: Sequence[Word], folder: str | None, binding: Mapping[str, str]) -> list[Word]:
        def number_or_date(variable: re.Match[str]) -> str:
            """A number or date in place of a variable that is given nothing else."""
            given = [each.source.strip('"') for each, _, _ in self._given.get(variable[1] or variable[2], ())]
            is_number = given and not variable[3] and all(NUMBER.fullmatch(each) for each in given)
            return given[0].replace('"', "") if is_number else variable[0]

        variant: list[Word] = []
        for word in words:
            is_home = word.path is not None and not word.is_literal
            texts = None if is_home else self._texts(word, folder, binding)
            if texts is None:
                variant.append(word if word.is_literal else read_word(VARIABLE.sub(number_or_date, word.source)))
                continue
            for text in texts:
                # A word that stands for a text, whatever is in it.
                path = f"./{text}" if text[:1] in ("~", "$") else text
                variant.append(Word(source=text, text=text, is_literal=True, prefix=text, may_split=False, path=path))
        return variant

    def found_by(self, arguments: Sequence[Word], folder: str | None) -> Sequence[str] | None:
        """What `find` may find, or more; `None` if it is not known."""
        texts = [word.text for word in arguments]
        texts = texts[: next((at for at, text in enumerate(texts) if text in FIND_RUNS), len(texts))]
        depths = [after for text, after in pairwise(texts) if text == "-maxdepth"]
        if self.disk is None or folder is None or self.is_lost or not all(depth.isdigit() for depth in depths):
            return None
        # What another folder calls `./x` is not followed.
        if any(word.text in ("-execdir", "-okdir") for word in arguments):
            return None
        begin = next((at for at, text in enumerate(texts) if text.startswith(("-", "(", "!"))), len(texts))
        if any(_NOT_PLAIN_FIND.fullmatch(text) for text in texts) or not all(
            word.is_literal for word in arguments[:begin]
        ):
            return None
        before = [text for text, after in pairwise(texts) if after == "-name"]
        if any(text.startswith("-") and text not in _FIND_FLAGS for text in before):
            # What looks like `-name` is a value of that.
            return None
        patterns = [word for word, after in zip(arguments[1:], texts, strict=False) if after == "-name"]
        is_plain = len(patterns) == 1 and patterns[0].is_literal and "\\" not in patterns[0].text
        name = _BRACKET.sub("?", patterns[0].text) if is_plain else "*"
        found: list[str] = []
        for start in texts[:begin] or ["."]:
            some = self.disk.below(start, name, int(depths[0]) if depths else MAX_VARIANTS, folder)
            if some is None or len(found) + len(some) > MAX_VARIANTS:
                return None
            found += some
        return found

    def _bindings(
        self,
        sources: Sequence[str],
        certain: frozenset[str],
        within: frozenset[str] = frozenset(),
        folder: str | None = None,
    ) -> list[dict[str, str]]:
        """What the variables of some words may be, in every combination; one that is not known is missing."""
        uses = [(source, found) for source in sources for found in VARIABLE.finditer(source)]
        used = dict.fromkeys(found[1] or found[2] for _, found in uses)
        parts = {found[1] or found[2] for source, found in uses if found[3] or source.strip('"') != found[0]}
        known: dict[str, Sequence[str]] = {}
        for name in used:
            values = self._values(name, certain, within)
            if (
                values is not None
                and name in parts
                and any(WILD.search(each.source) for each, _, _ in self._given[name])
            ):
                # The text may make another such name before, so that a part of it may be any.
                around = [
                    (source, found)
                    for source, found in uses
                    if (found[1] or found[2]) == name and (found[3] or source.strip('"') != found[0])
                ]
                further = self._possible_values(name, around, folder)
                values = None if further is None else tuple(dict.fromkeys((*values, *further)))
            if values is not None:
                known[name] = values
        combinations = islice(product(*known.values()), MAX_VARIANTS + 1)
        return [dict(zip(known, values, strict=True)) for values in combinations]

    def _possible_values(
        self, name: str, uses: Sequence[tuple[str, re.Match[str]]], folder: str | None
    ) -> list[str] | None:
        """What stands for all that a name with a star may become behind a folder, and with an end: `"x/${f%.a}.b"`.

        That is each such name that is there, each auto-run file, and one of the rest.
        """
        values: list[str] = []
        for word, folders, is_value in self._given[name]:
            glob = _PLAIN_GLOB.fullmatch(word.source)
            if glob is None or is_value or self.disk is None or folder is None or folders != (folder,):
                return None
            for source, found in uses:
                cut, tail = (found[4] if found[3] else ""), _TAIL.match(source, found.end())
                before = _BEFORE.fullmatch(source[: found.start()])
                is_end = not found[3] or (found[3].startswith("%") and cut and glob[2].endswith(cut))
                if before is None or tail is None or not is_end:
                    return None
                there = self.disk.matches(f"{before[1]}{glob[1]}*{tail[1]}", folder)
                if there is None:
                    return None
                auto_run = (each for each in names_between("", tail[1]) if not each.startswith("."))
                ends = (*(each.rpartition("/")[2] for each in there), *auto_run, f"x{tail[1]}")
                values += (f"{glob[1]}{end.removesuffix(tail[1])}{cut}" for end in ends)
        return values

    def _values(self, name: str, certain: frozenset[str], within: frozenset[str]) -> Sequence[str] | None:
        if self.is_lost or name in within or len(within) > MAX_NESTED or name not in self._given:
            return None
        values: dict[str, None] = {}
        for word, folders, is_value in self._given[name]:
            folder = folders[0] if len(folders) == 1 else None
            for binding in self._bindings([word.source], certain & self.certain, within | {name}):
                texts = [word.text] if word.is_literal else self._texts(word, folder, binding, is_value=is_value)
                self._work -= 1
                if texts is None or self._work < 0 or len(values) > MAX_VARIANTS:
                    return None
                values.update(dict.fromkeys(texts))
        if name not in certain:
            values[""] = None
        return tuple(values)

    def _texts(
        self, word: Word, folder: str | None, binding: Mapping[str, str], *, is_value: bool = False
    ) -> list[str] | None:
        """The words that a word becomes where variables have these values; `None` if that is not known."""
        is_found = FOUND in binding and FOUND in word.source
        if is_found and word.source.strip("'\"") != FOUND:
            # What stands for a name now may stand for another one once the text has begun to make files.
            return None
        if self.is_lost or len(word.source) > MAX_CHARS or (word.is_literal and not is_found):
            return None
        if word.is_literal:
            return [word.text.replace(FOUND, binding[FOUND])]
        # Lists in braces come before all else: `$X{a,b}` is `$Xa $Xb`.
        sources = [word.source] if is_value else words_in_braces(word.source)
        if sources is None or _NOT_KNOWN.search(_PLAIN.sub("", word.source)):
            return None
        texts: list[str] = []
        for source in sources:
            if "'" not in source and "\\" not in source:
                source = _PLAIN.sub(lambda found: self._plain(found, folder), source)  # noqa: PLW2901
            some = None if _NOT_KNOWN.search(source) else self._text(source, folder, binding, is_value=is_value)
            if some is None:
                return None
            texts += some
        return texts

    def _text(self, source: str, folder: str | None, binding: Mapping[str, str], *, is_value: bool) -> list[str] | None:
        if (variable := VARIABLE.fullmatch(source)) and not is_value:
            # What stands without quotes is split, and vanishes where there is nothing.
            text = value_of(variable, binding)
            return None if text is None or WILD.search(text) or "\\" in text else text.split()
        home = None if self.disk is None or self.is_upset else self.disk.home
        pieces = expanded_parts(source, binding, home, is_value=is_value)
        text = "".join(text for text, _ in pieces or ())
        if pieces is None or len(text) > MAX_CHARS:
            return None
        if not is_value and any(is_bare and WILD.search(text) for text, is_bare in pieces):
            return self._matches(pieces, text, folder)
        return [text] if text or is_value or "'" in source or '"' in source else []

    def _matches(self, pieces: Sequence[tuple[str, bool]], text: str, folder: str | None) -> list[str] | None:
        """What the stars in a word stand for; the word itself where that is nothing."""
        is_simple = not any(is_bare and "[" in _SIMPLE_BRACKET.sub("", piece) for piece, is_bare in pieces)
        if self.disk is None or folder is None or not is_simple:
            return None
        pattern = "".join(
            piece.replace("[^", "[!") if is_bare else re.sub(r"[*?\[]", r"[\g<0>]", piece) for piece, is_bare in pieces
        )
        found = self.disk.matches(pattern, folder)
        if found is not None and self._is_folded:
            found = sorted(found, key=lambda path: re.sub(r"\W|_", "", path).casefold())
        return None if found is None else list(found) or [text]

    def _plain(self, found: re.Match[str], folder: str | None) -> str:
        if found["new"]:
            return NEW_FILE
        if self.disk is None or folder is None or self.is_upset or "PWD" in self._given:
            return found[0]
        path = joined(self.disk.directory, folder)
        return path if path is not None and _PLAIN_PATH.fullmatch(path) else found[0]
