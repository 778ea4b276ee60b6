"""Reads the text of a command once, from left to right, and finds every simple command in it.

What stands inside substitutions, groups, loops and functions is found on the way: open constructs are kept on a stack
of our own, so nesting costs no recursion. What has its own rules of quoting (backticks, here-documents) comes out as a
further text to read. The reader knows as much of the grammar as it takes to tell where a command begins and ends;
whatever it does not expect is a doubt, and it goes on as well as it can.

In which folder a command runs is told as far as `cd` tells. A second opinion on where commands begin is the grammar of
tree-sitter: where two readings of a text differ, one of them is wrong about what a shell would do, so nobody vouches
for the text. The grammar takes quadratic time and memory on some long texts with errors; it gets only short texts that
our own reading follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tools.permissions.shell.syntax.words import ASSIGNMENT, Word, literal, names, read_word

if TYPE_CHECKING:
    from tree_sitter import Parser

import posixpath

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


UNFINISHED = "it ends in the middle of something"
UNEXPECTED = "its grammar is not understood"
DOCUMENT = "a here-document in it cannot be followed"
EVALUATION = "an expansion in it can run commands"
ARITHMETIC = "arithmetic with variables can run commands"
FUNCTION = "it defines a function"
COPROCESS = "it starts a coprocess"
TOO_DEEP = "it is nested too deep to be followed"
MAX_DEPTH = 50  # constructs within constructs. Each level repeats the text of all levels below it.
MAX_TEXTS = 64  # texts that one command is given to read; one more tells that there are more
# Commands that print their words, or names among them, and nothing of what they are given to read
PRINTING = names("echo printf print tar gtar bsdtar")
# A sum longer than 100 characters is not looked for: reading stays linear
_EXPANSIONS = r"""(?P<variable>\$(?:[A-Za-z_]\w*|[0-9*@\#?$!-]))
    |(?P<arithmetic>\$\(\((?P<sum>[\w\s+\-*/%<>=!&|^~?:,$]{0,100}|[\d\s+\-*/%=!^~?:,()]{0,100})\)\))
    |(?P<substitution>\$\()
    |(?P<old_arithmetic>\$\[)
    |(?P<parameter>\$\{)
    |(?P<backtick>`(?P<quoted_command>(?:[^`\\]|\\.)*)`)"""
# What may follow in a list of commands
_LIST_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r\f\v]|\\\n(?=[ \t\n]|\\\n|\Z)|(?<![^ \t\n])\\\n)+)
    |(?P<newline>\n)
    |(?P<comment>(?<![^ \t\r\n;&|()<>])\#[^\n]*)
    |(?P<plain>(?:[^ \t\r\f\v\n\\'"`$;&|<>()]++
        |\\[^\n]|\\\n(?=[^ \t\n\\])|'[^']*'|\$'(?:\\.|[^'\\])*'|\$(?![\w{(\["'`*@\#?$!-]))+)
    |"""
    + _EXPANSIONS.replace(r"\$\(\(", r"\$?\(\(")
    + r"""
    |(?P<double>\$?")
    |(?P<process>[<>]\()
    |(?P<redirect>&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<|>)
    |(?P<operator>;;&|;;|;&|;|&&|&|\|\||\|&|\|)
    |(?P<open>\()
    |(?P<close>\))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

# What may follow in double quotes, and in the text of a here-document, where a quote is a character like any
_QUOTED_TOKEN = re.compile(
    rf"""(?P<text>(?:[^"\\$`]++|\\.|\$(?![\w{{(\[*@\#?$!-]))+)
    |{_EXPANSIONS}
    |(?P<quote>")
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

# What may follow in `${name...}` behind the name
_PARAMETER_TOKEN = re.compile(
    rf"""(?P<text>(?:[^"'\\$`}}<>]++|\\.|\$(?![\w{{(\[*@\#?$!"'-])|[<>](?!\())+)
    |(?P<single>'[^']*')
    |(?P<ansi>\$'(?:\\.|[^'\\])*')
    |{_EXPANSIONS}
    |(?P<double>\$?")
    |(?P<process>[<>]\()
    |(?P<close>\}})
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_TOKENS = {"quoted": _QUOTED_TOKEN, "document": _QUOTED_TOKEN, "parameter": _PARAMETER_TOKEN}
# A parameter whose expansion runs nothing: no `!` (indirection), `[` and `:n` (arithmetic), `=`, `@` (evaluation)
_PARAMETER_HEAD = re.compile(r"\#?(?:[A-Za-z_]\w*|[0-9]+|[*@\#?$!-])(?=:?[-+?]|[\#%/^,}])|\#(?=\})", re.ASCII)
_EMPTY_PARENTHESES = re.compile(r"[ \t]*\([ \t]*\)")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_ARITHMETIC_LOOP = re.compile(r"\(\([\w\s+\-*/%<>=!&|^~?:,;$]{0,200}\)\)", re.ASCII)
_DESCRIPTOR = re.compile(r"[0-9]+\Z|\{[A-Za-z_]\w*\}\Z", re.ASCII)
# The name of a coprocess and the option of `time`, which stand before a command
_BEHIND_PREFIX = {
    "coproc": re.compile(
        r"[ \t]+[A-Za-z_]\w*(?=[ \t]+(?:[{(]|\[\[|(?:if|while|until|for|case|select)[ \t\n]))", re.ASCII
    ),
    "time": re.compile(r"[ \t]+-p(?=[ \t\n])"),
}
_BEFORE_COMMAND = names("if then elif else while until do { ! time coproc")
_OPENING = names("if while until { for select case")
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_HEADS = {"for": "for", "select": "for", "case": "case", "function": "function"}


@dataclass(slots=True)
class Redirection:
    """An operator such as `>` or `<&`, and the word behind it; not those of here-documents and here-strings."""

    operator: str
    target: Word


@dataclass(slots=True)
class Found:
    start: int  # where its first word stands, behind assignments and redirections; -1 if it has no words
    source: str  # it, as it is written
    words: list[Word]
    assignments: list[Word]
    redirections: list[Redirection]
    folders: Folders
    is_certain: bool = False  # whether it runs, in the shell that reads the text, before all that stands behind it
    loops: frozenset[str] = frozenset()  # the variables of the loops that it stands in
    # What it is given to read, as far as the text says so: here-documents, here-strings, what is printed into the
    # pipeline that it stands in. Each is a text of words with a blank between them.
    inputs: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])

    @property
    def outputs(self) -> list[Sequence[Word]]:
        """What it may print, as far as its words and its input tell: what it reads may pass through it."""
        return [self.words[1:]] if self.words and self.words[0].text in PRINTING else self.inputs


@dataclass(frozen=True, slots=True)
class Loop:
    variable: str
    # All words of the head; what the variable stands for in turn is behind `in`. `None` if that is not known.
    head: list[Word] | None
    folders: Folders


@dataclass(slots=True)
class InnerText:
    """A text within the text that is read by itself."""

    text: str  # it, without the quoting of the outer text
    folders: Folders
    base: int | None = None  # where it stands in the outer text; `None` if its places are not those of the outer text
    is_document: bool = False


@dataclass(slots=True)
class Reading:
    commands: list[Found] = field(default_factory=list[Found])  # in the order in which they end
    inner: list[InnerText] = field(default_factory=list[InnerText])
    # What was not understood, in the order in which it was met; the values mean nothing.
    doubts: dict[str, None] = field(default_factory=dict[str, None])
    is_lost: bool = False  # whether the text could not be followed, so that commands may have been missed
    loops: list[Loop] = field(default_factory=list[Loop])
    has_background: bool = False  # whether anything runs beside what follows it, in a shell of its own

    def doubt(self, doubt: str) -> None:
        self.doubts[doubt] = None

    def lose(self, doubt: str) -> None:
        """Note that commands may have been missed, and why."""
        self.doubts[doubt] = None
        self.is_lost = True


# Tells every reading of the words of a command that runs, in loops with these variables, in these folders
LoopReadings = Callable[[frozenset[str], Sequence[Word], Folders], Sequence[Sequence[Word]]]


def read(
    text: str, folders: Folders = START, *, is_document: bool = False, readings: LoopReadings | None = None
) -> Reading:
    frame = _Frame("document" if is_document else "list", WorkingFolder(folders, folders))
    return _Reader(text, frame, readings).read()


@dataclass(slots=True)
class _Frame:
    """An open construct, and the command that is being read in it."""

    kind: str  # `list`, `array`, `quoted`, `document` or `parameter`
    where: WorkingFolder  # in which folder its next command runs
    is_group: bool = False  # whether it is a subshell, not part of a word
    # What a list is in: a `command`, a `test` (`[[`), the head of a `for`, `case` or `function`, or a `pattern` of a
    # case.
    mode: str = "command"
    open: int = 0  # how many loops, conditions and groups in braces are open
    cases: int = 0  # how many of them are cases
    word: int = -1  # where the word that is being read begins, or -1
    begin: int = -1  # where the command begins, or -1
    start: int = -1  # where its first word begins, or -1
    operator: str = ""  # a redirection that waits for its word
    is_closed: bool = False  # whether the last thing was a closed compound command
    is_piped: bool = False  # whether the command stands in a pipeline, or behind `!`
    is_joined: bool = False  # whether it stands behind `&&` or `||`
    # The variables of open loops; `None` for one to come, empty for a loop without one.
    loops: list[str | None] = field(default_factory=list[str | None])
    needs_more: bool = False  # whether the last thing was an operator that wants a command behind it
    is_defining: bool = False  # whether the last thing was the name of a function
    words: list[Word] = field(default_factory=list[Word])
    assignments: list[Word] = field(default_factory=list[Word])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    # Texts that redirections of the current command hold.
    inputs: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    # What is printed into the pipeline that the next command stands in.
    piped: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    piped_at: int = 0  # how many constructs were open where that pipeline began; what is opened in it reads the same

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.assignments or self.redirections or self.inputs)

    def clear(self) -> None:
        self.begin = self.start = -1
        self.words, self.assignments, self.redirections, self.inputs = [], [], [], []

    def begin_body(self, mode: str = "command") -> None:
        """Leave a head for what stands behind it."""
        self.mode, self.is_closed = mode, False
        self.clear()


@dataclass(frozen=True, slots=True)
class _Document:
    """A here-document whose text is still to come."""

    delimiter: str  # the line that ends it
    strips_tabs: bool  # whether tabs before lines do not count (`<<-`)
    is_quoted: bool  # whether nothing in it is expanded
    depth: int  # how many constructs were open where it was named
    words: list[Word]


class _Reader:
    def __init__(self, text: str, frame: _Frame, readings: LoopReadings | None) -> None:
        self._text = text
        self._readings = readings
        self._moves_in_loop = False
        self._at = 0
        self._stack = [frame]
        self._documents: list[_Document] = []
        self._result = Reading()

    def read(self) -> Reading:
        size = len(self._text)
        while self._at < size:
            frame = self._stack[-1]
            token = _TOKENS.get(frame.kind, _LIST_TOKEN).match(self._text, self._at)
            if token is None:
                self._result.lose(UNFINISHED)
                break
            self._at = token.end()
            self._take(frame, token)
            if len(self._stack) > MAX_DEPTH:
                self._result.lose(TOO_DEEP)
                break
        if len(self._stack) > 1 or self._documents:
            self._result.lose(UNFINISHED)
        while self._stack:
            frame = self._stack.pop()
            if frame.kind == "list":
                self._end_word(frame, self._at)
                self._end_list(frame, self._at)
        if self._moves_in_loop:
            self._result.commands = [replace(found, folders=UNKNOWN) for found in self._result.commands]
            self._result.inner = [replace(inner, folders=UNKNOWN) for inner in self._result.inner]
        return self._result

    def _take(self, frame: _Frame, token: re.Match[str]) -> None:
        start = token.start()
        match token.lastgroup:
            case "plain" | "variable":
                self._begin_word(frame, start)
            case "blank":
                self._end_word(frame, start)
            case "newline":
                self._end_line(frame, start)
            case "operator":
                self._take_operator(frame, token[0], start)
            case "redirect":
                self._take_redirection(frame, token[0], start)
            case "open":
                self._open_parenthesis(frame, start)
            case "close":
                self._close_bracket(frame, start)
            case "double":
                self._begin_word(frame, start)
                self._push("quoted")
            case "quote" if frame.kind == "quoted":
                self._stack.pop()
            case "single" if any(outer.kind in ("quoted", "document") for outer in self._stack):
                # In `"${x:-'}"` a single quote can be a character like any other.
                self._result.lose(UNEXPECTED)
            case "comment" if frame.word >= 0 or frame.mode == "test":
                # Behind `$(...)` the mark goes on with the word; in a test nobody knows.
                self._at = start + 1
                if frame.word < 0:
                    self._result.lose(UNEXPECTED)
                self._begin_word(frame, start)
            case "substitution" | "process":
                self._begin_word(frame, start)
                if self._text.startswith("$((", start):
                    self._result.doubt(ARITHMETIC)
                self._push("list")
            case "parameter":
                self._begin_word(frame, start)
                self._push("parameter")
                if head := _PARAMETER_HEAD.match(self._text, self._at):
                    self._at = head.end()
                elif self._text[self._at : self._at + 1] in " \t\n|(":
                    # Newer shells run what stands in `${ ...; }`.
                    self._result.lose(EVALUATION)
                else:
                    self._result.doubt(EVALUATION)
            case "backtick":
                self._begin_word(frame, start)
                body = token["quoted_command"]
                if '\\"' in body and len(self._stack) > 1:
                    self._result.lose(UNEXPECTED)
                if body.strip():
                    inner = re.sub(r"\\([$`\\])", r"\1", body)
                    self._result.inner.append(InnerText(inner, frame.where.now, None if "\\" in body else start + 1))
            case "old_arithmetic":
                self._begin_word(frame, start)
                self._result.lose(ARITHMETIC)
            case "arithmetic":
                if re.search(r"[$A-Za-z_]", token["sum"]):
                    self._result.doubt(ARITHMETIC)
                is_at_command = frame.mode == "command" and frame.word < 0 and frame.kind == "list"
                if token[0].startswith("$"):
                    self._begin_word(frame, start)
                elif is_at_command and not (frame.words or frame.assignments or frame.operator):
                    frame.is_closed, frame.needs_more = True, False
                else:
                    self._result.lose(UNEXPECTED)
            case _:
                pass

    def _push(self, kind: str, *, is_group: bool = False) -> None:
        # What is opened in a pipeline reads what is printed into it.
        outer = self._stack[-1]
        self._stack.append(_Frame(kind, outer.where, is_group=is_group, piped=outer.piped, piped_at=-1))

    # Words, and where they belong

    def _begin_word(self, frame: _Frame, start: int) -> None:
        if frame.word < 0:
            frame.word = start
            if frame.begin < 0:
                frame.begin = start

    def _end_word(self, frame: _Frame, end: int) -> None:
        if frame.word < 0:
            return
        start, frame.word = frame.word, -1
        word = read_word(self._text[start:end])
        if frame.kind == "array":
            if word.source.startswith("["):
                self._result.doubt(ARITHMETIC)
        elif frame.operator:
            self._take_target(frame, word)
        elif frame.mode in ("for", "case", "function", "pattern"):
            self._add_to_head(frame, word)
            if frame.is_defining and (parentheses := _EMPTY_PARENTHESES.match(self._text, end)):
                self._at = parentheses.end()
            frame.is_defining = False
        elif frame.mode == "test":
            frame.words.append(word)
            if word.source == "]]":
                frame.mode = "command"
                self._end_command(frame, end)
                frame.is_closed = True
        elif frame.is_empty and self._is_reserved(frame, word.source):
            frame.begin = -1
            behind = _BEHIND_PREFIX.get(word.source)
            if behind is not None and (found := behind.match(self._text, end)):
                self._at = max(self._at, found.end())
        elif not frame.words and (assigned := ASSIGNMENT.match(word.source)):
            if assigned[2] and not assigned[2][1:-1].isdigit():
                self._result.doubt(ARITHMETIC)
            frame.assignments.append(word)
        else:
            if not frame.words:
                frame.start = start
                if frame.is_closed:
                    self._result.lose(UNEXPECTED)
                if word.source == "[[":
                    frame.mode = "test"
            frame.words.append(word)

    def _is_reserved(self, frame: _Frame, word: str) -> bool:
        """Act on a word where a command may begin, if it is a reserved one; whether it is one."""
        frame.open += word in _OPENING
        if word in ("for", "while", "until", "select"):
            frame.loops.append(None if word == "for" else "")
        if word in _HEADS:
            frame.mode = _HEADS[word]
        elif word in _CLOSING:
            self._close(frame, word)
        elif word in _BEFORE_COMMAND:
            frame.is_closed, frame.needs_more = False, True
            frame.is_piped = frame.is_piped or word == "!"
            if word == "coproc":
                self._result.doubt(COPROCESS)
        else:
            return False
        return True

    def _close(self, frame: _Frame, word: str) -> None:
        frame.open -= 1
        frame.cases -= word == "esac"
        if word == "done" and frame.loops:
            frame.loops.pop()
        if frame.open < 0 or frame.cases < 0:
            self._result.lose(UNEXPECTED)
            frame.open, frame.cases = max(0, frame.open), max(0, frame.cases)
        frame.is_closed, frame.needs_more = True, False

    def _add_to_head(self, frame: _Frame, word: Word) -> None:
        """Take a word of a head: the name and words of a loop, what a case looks at, a pattern, a function's name."""
        frame.words.append(word)
        match frame.mode, len(frame.words):
            case "for", 1:
                self._result.loops.append(Loop(word.text, None, frame.where.now))
                if frame.loops and frame.loops[-1] is None:
                    frame.loops[-1] = word.text
            case "for", 2 if word.source == "do":
                frame.begin_body()
            case "for", 2 if word.source == "in":
                self._result.loops[-1] = Loop(frame.words[0].text, frame.words, frame.where.now)
            case "case", 2:
                if word.source != "in":
                    self._result.lose(UNEXPECTED)
                frame.cases += 1
                frame.begin_body("pattern")
            case "function", 1:
                self._define(frame)
            case "pattern", 1 if word.source == "esac":
                frame.begin_body()
                self._close(frame, "esac")
            case _:
                pass

    def _define(self, frame: _Frame) -> None:
        """Begin the body of a function. It runs elsewhere, so from here on no folder is known."""
        self._result.doubt(FUNCTION)
        frame.where = WorkingFolder(UNKNOWN, UNKNOWN)
        frame.begin_body()
        frame.needs_more = frame.is_defining = True

    def _take_target(self, frame: _Frame, word: Word) -> None:
        """Take the word behind a redirection: a file, a text, or what ends a here-document."""
        operator, frame.operator = frame.operator, ""
        is_quoted = any(mark in word.source for mark in "\\'\"")
        if operator not in ("<<", "<<-", "<<<"):
            frame.redirections.append(Redirection(operator, word))
            if word.source.startswith("<("):
                frame.inputs.append([word])
        elif operator == "<<<":
            # It is not split, and stars in it mean nothing.
            frame.inputs.append([word if word.is_literal or is_quoted else read_word(f'"{word.source}"')])
        elif (is_quoted and not word.is_literal) or "\n" in word.text:
            # It is not known what ends it.
            self._result.lose(DOCUMENT)
        else:
            announced = _Document(word.text, operator == "<<-", is_quoted, len(self._stack), [])
            frame.inputs.append(announced.words)
            self._documents.append(announced)

    # Commands, and what stands between them

    def _end_command(self, frame: _Frame, end: int) -> None:
        if frame.is_empty or frame.mode != "command":
            return
        is_conditional = frame.open > 0 or frame.is_piped
        loops = frozenset(name for each in (*self._stack, frame) for name in each.loops if name)
        self._result.commands.append(
            Found(
                frame.start if frame.words else -1,
                self._text[frame.begin : end].rstrip(),
                frame.words,
                frame.assignments,
                frame.redirections,
                frame.where.now,
                is_certain=len(self._stack) <= 1 and not is_conditional and not frame.is_joined,
                loops=loops,
                inputs=[*frame.inputs, *frame.piped][: MAX_TEXTS + 1],
            )
        )
        if frame.loops and any(word.text in CHANGING for word in frame.words):
            # The next round begins where this one ends.
            self._moves_in_loop = True
        readings = partial(self._readings, loops) if self._readings else None
        frame.where = frame.where.after(frame.words, readings, is_conditional=is_conditional)
        frame.needs_more = False
        frame.clear()

    def _end_list(self, frame: _Frame, end: int) -> None:
        self._end_command(frame, end)
        if frame.mode != "command" or frame.open or frame.needs_more or frame.operator:
            self._result.lose(UNFINISHED)

    def _end_line(self, frame: _Frame, start: int) -> None:
        self._end_word(frame, start)
        if frame.operator:
            self._result.lose(UNEXPECTED)
            frame.operator = ""
        if frame.kind == "list" and frame.mode in ("command", "for"):
            if frame.mode == "for":
                frame.begin_body()
            self._end_command(frame, start)
            if not frame.needs_more:
                frame.where, frame.is_closed = frame.where.ended(), False
                frame.is_piped = frame.is_joined = False
                if frame.open <= frame.piped_at:
                    frame.piped = []
        elif frame.mode == "function":
            self._result.lose(UNEXPECTED)
        if self._documents:
            if frame.kind != "list" or any(each.depth != len(self._stack) for each in self._documents):
                self._result.lose(DOCUMENT)
            self._read_documents(frame.where.now)

    def _read_documents(self, folders: Folders) -> None:
        """Pass over the texts of here-documents, in which substitutions run."""
        documents, self._documents = self._documents, []
        for document in documents:
            begin = self._at
            while True:
                if self._at >= len(self._text):
                    self._result.lose(DOCUMENT)
                    return
                last = self._at
                end = self._text.find("\n", last)
                end = len(self._text) if end < 0 else end
                line, self._at = self._text[last:end], end + 1
                if (line.lstrip("\t") if document.strips_tabs else line) == document.delimiter:
                    break
            body = self._text[begin:last]
            if document.is_quoted:
                document.words.append(literal(body))
                continue
            # A quote means nothing in such a text; so it is written as in double quotes.
            escaped = re.sub(r'(\\[$`\\\n])|(\\)?"', lambda found: found[1] or (r"\\\"" if found[2] else r"\""), body)
            document.words.append(read_word(f'"{escaped}"'))
            if "\\\n" in body:
                self._result.lose(DOCUMENT)
            if "$" in body or "`" in body:
                self._result.inner.append(InnerText(body, folders, begin, is_document=True))
        self._at = min(self._at, len(self._text))

    def _take_operator(self, frame: _Frame, operator: str, start: int) -> None:
        self._end_word(frame, start)
        if frame.kind != "list" or frame.mode != "command" or frame.operator:
            # No command is read here: it is in a head, in a test, behind a redirection without a word.
            if frame.mode == "for" and operator == ";":
                frame.begin_body()
            elif (frame.mode, operator) not in (("test", "&&"), ("test", "||"), ("pattern", "|")):
                self._result.lose(UNEXPECTED)
                frame.operator = ""
            return
        is_case_end = operator in (";;", ";&", ";;&")
        if (frame.is_empty and not frame.is_closed and not is_case_end) or (is_case_end and not frame.cases):
            self._result.lose(UNEXPECTED)
        is_pipe = operator in ("|", "|&")
        frame.is_piped = frame.is_piped or is_pipe
        is_compound, frame.is_closed = frame.is_closed, False
        self._end_command(frame, start)
        if is_pipe:
            frame.needs_more = True
            if not frame.piped:
                frame.piped_at = frame.open
            # Which of all commands a closed group has is not looked up.
            printing = self._result.commands if is_compound else self._result.commands[-1:]
            printed = {id(text): text for found in printing for text in found.outputs}
            frame.piped = list(printed.values())[: MAX_TEXTS + 1]
            return
        if frame.open <= frame.piped_at:
            frame.piped = []
        frame.is_piped, frame.is_joined = False, operator in ("&&", "||")
        frame.needs_more = frame.is_joined
        self._result.has_background = self._result.has_background or operator == "&"
        if operator == "&&":
            frame.where = frame.where.and_then()
        elif operator == "||":
            frame.where = frame.where.or_else()
        else:
            frame.where = frame.where.ended()
        if is_case_end and frame.cases:
            frame.mode = "pattern"

    def _take_redirection(self, frame: _Frame, operator: str, start: int) -> None:
        if frame.word >= 0 and _DESCRIPTOR.match(self._text[frame.word : start]):
            frame.word = -1
        self._end_word(frame, start)
        if frame.mode == "test" and operator in ("<", ">"):
            return
        if frame.kind != "list" or frame.mode != "command" or frame.operator:
            self._result.lose(UNEXPECTED)
        if frame.begin < 0:
            frame.begin = start
        frame.operator, frame.needs_more = operator, False

    def _open_parenthesis(self, frame: _Frame, start: int) -> None:
        if frame.word >= 0 and _ARRAY.fullmatch(self._text, frame.word, start):
            self._push("array")
            return
        self._end_word(frame, start)
        if frame.mode in ("test", "pattern"):
            return
        parentheses = _EMPTY_PARENTHESES.match(self._text, start)
        if parentheses and frame.mode == "command" and len(frame.words) == 1 and not frame.assignments:
            self._at = parentheses.end()
            self._define(frame)
            frame.is_defining = False
        elif frame.mode == "for" and not frame.words and (loop := _ARITHMETIC_LOOP.match(self._text, start)):
            self._result.doubt(ARITHMETIC)
            self._at = loop.end()
            frame.words.append(literal("(("))
        else:
            is_expected = frame.kind == "list" and frame.mode == "command" and frame.is_empty
            if not is_expected or frame.operator or frame.is_closed:
                self._result.lose(UNEXPECTED)
            if self._text.startswith("((", start):
                self._result.doubt(ARITHMETIC)
            self._push("list", is_group=True)

    def _close_bracket(self, frame: _Frame, start: int) -> None:
        """Take `)`, or the `}` of a parameter."""
        if frame.kind == "parameter":
            self._stack.pop()
            return
        self._end_word(frame, start)
        if frame.mode == "test":
            return
        if frame.mode == "pattern":
            frame.begin_body()
            return
        if len(self._stack) == 1:
            self._result.lose(UNEXPECTED)
            self._end_command(frame, start)
            return
        if frame.kind == "list":
            self._end_list(frame, start)
        if any(each.depth >= len(self._stack) for each in self._documents):
            self._result.lose(DOCUMENT)
        self._stack.pop()
        if frame.is_group:
            self._stack[-1].is_closed, self._stack[-1].needs_more = True, False


MAX_CHARS = 16_384
MAX_COMMANDS = 1_000  # a pipeline of more commands than these takes the grammar too long
_COMMANDS = names("command_name declaration_command unset_command test_command")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@cache
def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - loaded at the first command
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def beginnings(text: str) -> set[int] | None:
    """Where commands begin in a text, by the grammar; `None` if it finds an error in it."""
    # A shell cares for no character beyond ASCII, and so each place is one byte.
    tree = _parser().parse(_NOT_ASCII.sub("x", text).encode())
    if tree.root_node.has_error:
        return None
    cursor = tree.walk()
    found: set[int] = set()
    while True:
        node = cursor.node
        if node is not None and node.type in _COMMANDS and not text.startswith("((", node.start_byte):
            found.add(node.start_byte)
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found
