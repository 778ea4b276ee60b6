"""Reads the text of a command once, from left to right, and finds every simple command in it.

What stands inside substitutions, groups, loops and functions is found on the way: open constructs are kept on a stack
of our own, so nesting costs no recursion. What has its own rules of quoting (backticks, here-documents) comes out as a
further text to read. The reader knows as much of the grammar as it takes to tell where a command begins and ends;
whatever it does not expect is a doubt, and it goes on as well as it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from tools.permissions.shell.syntax import words as lexis
from tools.permissions.shell.syntax.folders import CHANGING, START, UNKNOWN, Folders, Whereabouts
from tools.permissions.shell.syntax.words import Word, literal, names, read_word

UNFINISHED = "it ends in the middle of something"
UNEXPECTED = "its grammar is not understood"
DOCUMENT = "a here-document in it cannot be followed"
EVALUATION = "an expansion in it can run commands"
ARITHMETIC = "arithmetic with variables can run commands"
FUNCTION = "it defines a function"
COPROCESS = "it starts a coprocess"
TOO_DEEP = "it is nested too deep to be followed"

PRINTING = names("echo printf print tar gtar bsdtar")
"""Commands that print their words, or names among them, and nothing of what they are given to read."""

MAX_TEXTS = 64
"""Texts that one command is given to read; one more tells that there are more."""


@dataclass(slots=True)
class Redirection:
    """An operator such as `>` or `<&`, and the word behind it. Here-documents and here-strings are none."""

    operator: str
    target: Word


@dataclass(slots=True)
class Found:
    """A simple command as it was found.

    Args:
        start: Where its first word stands, behind assignments and redirections; -1 if it has no words.
        source: It, as it is written.
        folders: Where it runs.
        is_certain: Whether it runs, in the shell that reads the text, before all that stands behind it.
        loops: The variables of the loops that it stands in.
        inputs: What it is given to read, as far as the text says so: here-documents, here-strings, what is printed into
            the pipeline that it stands in. Each is a text of words with a blank between them.
    """

    start: int
    source: str
    words: list[Word]
    assignments: list[Word]
    redirections: list[Redirection]
    folders: Folders
    is_certain: bool = False
    loops: frozenset[str] = frozenset()
    inputs: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])

    @property
    def outputs(self) -> list[Sequence[Word]]:
        """What it may print, as far as its words and its input tell: what it reads may pass through it."""
        return [self.words[1:]] if self.words and self.words[0].text in PRINTING else self.inputs


@dataclass(frozen=True, slots=True)
class Loop:
    """The head of a loop.

    Args:
        variable: Its name.
        head: All words of the head; what the variable stands for in turn is behind `in`. `None` if that is not known.
        folders: Where it runs.
    """

    variable: str
    head: list[Word] | None
    folders: Folders


@dataclass(slots=True)
class InnerText:
    """A text within the text that is read by itself.

    Args:
        text: It, without the quoting of the outer text.
        folders: Where its commands run.
        base: Where it stands in the outer text; `None` if its places are not those of the outer text.
        is_document: Whether it is the text of a here-document, in which only substitutions run.
    """

    text: str
    folders: Folders
    base: int | None = None
    is_document: bool = False


@dataclass(slots=True)
class Reading:
    """What was found in a text.

    Args:
        commands: In the order in which they end.
        inner: What is to be read further.
        doubts: What was not understood, in the order in which it was met; the values mean nothing.
        is_lost: Whether the text could not be followed, so that commands may have been missed.
        loops: Heads of loops.
        has_background: Whether anything runs beside what follows it, in a shell of its own.
    """

    commands: list[Found] = field(default_factory=list[Found])
    inner: list[InnerText] = field(default_factory=list[InnerText])
    doubts: dict[str, None] = field(default_factory=dict[str, None])
    is_lost: bool = False
    loops: list[Loop] = field(default_factory=list[Loop])
    has_background: bool = False

    def doubt(self, doubt: str) -> None:
        """Note what is not understood."""
        self.doubts[doubt] = None

    def lose(self, doubt: str) -> None:
        """Note that commands may have been missed, and why."""
        self.doubts[doubt] = None
        self.is_lost = True


@dataclass(slots=True)
class Frame:
    """An open construct, and the command that is being read in it.

    Args:
        kind: `list`, `array`, `quoted`, `document` or `parameter`.
        where: In which folder its next command runs.
        is_group: Whether it is a subshell, not part of a word.
        mode: What a list is in: a `command`, a `test` (`[[`), the head of a `for`, `case` or `function`, or a
            `pattern` of a case.
        open: How many loops, conditions and groups in braces are open.
        cases: How many of them are cases.
        word: Where the word that is being read begins, or -1.
        begin: Where the command begins, or -1.
        start: Where its first word begins, or -1.
        operator: A redirection that waits for its word.
        is_closed: Whether the last thing was a closed compound command.
        is_piped: Whether the command stands in a pipeline, or behind `!`.
        is_joined: Whether it stands behind `&&` or `||`.
        loops: The variables of open loops; `None` for one to come, empty for a loop without one.
        needs_more: Whether the last thing was an operator that wants a command behind it.
        is_defining: Whether the last thing was the name of a function.
        inputs: Texts that redirections of the current command hold.
        piped: What is printed into the pipeline that the next command stands in.
        piped_at: How many constructs were open where that pipeline began; what is opened in it reads the same.
    """

    kind: str
    where: Whereabouts
    is_group: bool = False
    mode: str = "command"
    open: int = 0
    cases: int = 0
    word: int = -1
    begin: int = -1
    start: int = -1
    operator: str = ""
    is_closed: bool = False
    is_piped: bool = False
    is_joined: bool = False
    loops: list[str | None] = field(default_factory=list[str | None])
    needs_more: bool = False
    is_defining: bool = False
    words: list[Word] = field(default_factory=list[Word])
    assignments: list[Word] = field(default_factory=list[Word])
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    inputs: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    piped: list[Sequence[Word]] = field(default_factory=list[Sequence[Word]])
    piped_at: int = 0

    @property
    def is_at_command(self) -> bool:
        """Whether a command may begin here."""
        return self.mode == "command" and self.word < 0 and not (self.words or self.assignments or self.operator)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a command has been read."""
        return not (self.words or self.assignments or self.redirections or self.inputs)

    def begin_body(self, mode: str = "command") -> None:
        """Leave a head for what stands behind it."""
        self.mode, self.is_closed = mode, False
        self.clear()

    def clear(self) -> None:
        """Begin a new command."""
        self.begin = self.start = -1
        self.words, self.assignments, self.redirections, self.inputs = [], [], [], []

    def end_pipeline(self) -> None:
        """Forget what is printed into a pipeline that ends here."""
        if self.open <= self.piped_at:
            self.piped = []


def new_frame(kind: str, folders: Folders = START) -> Frame:
    """The frame of a whole text."""
    return Frame(kind, Whereabouts(folders, folders))


_BEFORE_COMMAND = names("if then elif else while until do { ! time coproc")
_OPENING = names("if while until { for select case")
_CLOSING = frozenset({"fi", "done", "esac", "}"})
_LOOPS = names("for while until select")
_HEADS = {"for": "for", "select": "for", "case": "case", "function": "function"}


def take(frame: Frame, word: str, result: Reading) -> bool:
    """Act on a word where a command may begin, if it is a reserved one.

    Returns:
        Whether it is one.
    """
    if word in _OPENING:
        frame.open += 1
    if word in _LOOPS:
        frame.loops.append(None if word == "for" else "")
    if word in _HEADS:
        frame.mode = _HEADS[word]
    elif word in _CLOSING:
        _close(frame, word, result)
    elif word in _BEFORE_COMMAND:
        frame.is_closed, frame.needs_more = False, True
        frame.is_piped = frame.is_piped or word == "!"
        if word == "coproc":
            result.doubt(COPROCESS)
    else:
        return False
    return True


def end_of_prefix(text: str, word: str, end: int) -> int:
    """Where a command may begin behind `coproc` and a name, or `time` and its option.

    Args:
        text: The whole text.
        word: The reserved word.
        end: Where it ends.
    """
    further = {"coproc": lexis.COPROCESS_NAME, "time": lexis.TIME_OPTION}.get(word)
    found = further.match(text, end) if further else None
    return found.end() if found else end


def add_to_head(frame: Frame, word: Word, result: Reading) -> None:
    """Take a word of a head: the name and words of a loop, what a case looks at, a pattern, a function's name."""
    frame.words.append(word)
    match frame.mode, len(frame.words):
        case "for", 1:
            result.loops.append(Loop(word.text, None, frame.where.now))
            if frame.loops and frame.loops[-1] is None:
                frame.loops[-1] = word.text
        case "for", 2 if word.source == "do":
            frame.begin_body()
        case "for", 2 if word.source == "in":
            result.loops[-1] = Loop(frame.words[0].text, frame.words, frame.where.now)
        case "case", 2:
            if word.source != "in":
                result.lose(UNEXPECTED)
            frame.cases += 1
            frame.begin_body("pattern")
        case "function", 1:
            define(frame, result)
        case "pattern", 1 if word.source == "esac":
            frame.begin_body()
            _close(frame, "esac", result)
        case _:
            pass


def define(frame: Frame, result: Reading) -> None:
    """Begin the body of a function. It runs elsewhere, so from here on no folder is known."""
    result.doubt(FUNCTION)
    frame.where = Whereabouts(UNKNOWN, UNKNOWN)
    frame.begin_body()
    frame.needs_more = frame.is_defining = True


def take_operator(frame: Frame, operator: str, result: Reading) -> None:
    """Take an operator where no command is read: in a head, in a test, behind a redirection without a word."""
    if frame.mode == "for" and operator == ";":
        frame.begin_body()
    elif (frame.mode, operator) not in (("test", "&&"), ("test", "||"), ("pattern", "|")):
        result.lose(UNEXPECTED)
        frame.operator = ""


def _close(frame: Frame, word: str, result: Reading) -> None:
    frame.open -= 1
    frame.cases -= word == "esac"
    if word == "done" and frame.loops:
        frame.loops.pop()
    if frame.open < 0 or frame.cases < 0:
        result.lose(UNEXPECTED)
        frame.open, frame.cases = max(0, frame.open), max(0, frame.cases)
    frame.is_closed, frame.needs_more = True, False


_QUOTE = re.compile(r'\\[$`\\\n]|\\?"')


@dataclass(frozen=True, slots=True)
class Document:
    """A here-document whose text is still to come.

    Args:
        delimiter: The line that ends it.
        strips_tabs: Whether tabs before lines do not count (`<<-`).
        is_quoted: Whether nothing in it is expanded.
        depth: How many constructs were open where it was named.
        words: Gets its text.
    """

    delimiter: str
    strips_tabs: bool
    is_quoted: bool
    depth: int
    words: list[Word]


def take_target(frame: Frame, word: Word, depth: int, result: Reading) -> list[Document]:
    """Take the word behind a redirection: a file, a text, or what ends a here-document.

    Returns:
        The here-document that it announces, if it does.
    """
    operator, frame.operator = frame.operator, ""
    if operator not in ("<<", "<<-", "<<<"):
        frame.redirections.append(Redirection(operator, word))
        if word.source.startswith("<("):
            frame.inputs.append([word])
    elif operator == "<<<":
        # It is not split, and stars in it mean nothing.
        is_bare = not word.is_literal and not any(mark in word.source for mark in "\\'\"")
        frame.inputs.append([read_word(f'"{word.source}"') if is_bare else word])
    elif announced := _document(operator, word, depth):
        frame.inputs.append(announced.words)
        return [announced]
    else:
        result.lose(DOCUMENT)
    return []


def _document(operator: str, word: Word, depth: int) -> Document | None:
    """`None` if it is not known what ends it."""
    is_quoted = any(mark in word.source for mark in "\\'\"")
    if is_quoted and not word.is_literal:
        return None
    delimiter = word.text if word.is_literal else word.source
    return None if "\n" in delimiter else Document(delimiter, operator == "<<-", is_quoted, depth, [])


def _escaped(quote: re.Match[str]) -> str:
    """A quote, which means nothing in such a text, as it stands in double quotes."""
    return quote[0].replace("\\", r"\\").replace('"', r"\"") if quote[0].endswith('"') else quote[0]


def read_documents(text: str, position: int, documents: list[Document], result: Reading, folders: Folders) -> int:
    """Pass over the texts of here-documents.

    Args:
        text: The whole text.
        position: Where the first one begins.
        documents: They, in order.
        result: Gets the texts in which something may run.
        folders: Where that runs.

    Returns:
        Where the text goes on.
    """
    for current in documents:
        begin = position
        while True:
            if position >= len(text):
                result.lose(DOCUMENT)
                return position
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            line, last, position = text[position:end], position, end + 1
            if (line.lstrip("\t") if current.strips_tabs else line) == current.delimiter:
                break
        body = text[begin:last]
        current.words.append(literal(body) if current.is_quoted else read_word(f'"{_QUOTE.sub(_escaped, body)}"'))
        if not current.is_quoted:
            if "\\\n" in body:
                result.lose(DOCUMENT)
            if "$" in body or "`" in body:
                result.inner.append(InnerText(body, folders, begin, is_document=True))
    return min(position, len(text))


MAX_DEPTH = 50
"""Constructs within constructs. Each level repeats the text of all levels below it."""

_TOKENS = {"quoted": lexis.QUOTED_TOKEN, "document": lexis.QUOTED_TOKEN, "parameter": lexis.PARAMETER_TOKEN}


def read(
    text: str, folders: Folders = START, *, is_document: bool = False, readings: LoopReadings | None = None
) -> Reading:
    """Find the commands of a text.

    Args:
        text: A command, or the text of a here-document.
        folders: Where it starts.
        is_document: Whether only the substitutions in it run.
        readings: What is known of words that are not literal.
    """
    return _Reader(text, new_frame("document" if is_document else "list", folders), readings).read()


class LoopReadings(Protocol):
    """Tells every reading of words that are not literal."""

    def __call__(self, words: Sequence[Word], folders: Folders, *, loops: frozenset[str]) -> Sequence[Sequence[Word]]:
        """The words of a command that runs in these folders, in loops with these variables."""
        ...


class _Reader:
    """One reading of one text."""

    def __init__(self, text: str, frame: Frame, readings: LoopReadings | None) -> None:
        self._text = text
        self._readings = readings
        self._moves_in_loop = False
        self._at = 0
        self._stack = [frame]
        self._documents: list[Document] = []
        self._result = Reading()
        self._handlers: dict[str, Callable[[Frame, re.Match[str]], None]] = {
            "plain": self._in_word,
            "variable": self._in_word,
            "old_arithmetic": self._on_old_arithmetic,
            "comment": self._on_comment,
            "blank": self._on_blank,
            "newline": self._on_newline,
            "arithmetic": self._on_arithmetic,
            "substitution": self._on_substitution,
            "process": self._on_substitution,
            "parameter": self._on_parameter,
            "double": self._on_double,
            "quote": self._on_quote,
            "single": self._on_single,
            "backtick": self._on_backtick,
            "redirect": self._on_redirect,
            "operator": self._on_operator,
            "open": self._on_open,
            "close": self._on_close,
        }

    def read(self) -> Reading:
        size = len(self._text)
        while self._at < size:
            frame = self._stack[-1]
            token = _TOKENS.get(frame.kind, lexis.LIST_TOKEN).match(self._text, self._at)
            if token is None:
                self._result.lose(UNFINISHED)
                break
            self._at = token.end()
            handler = self._handlers.get(token.lastgroup or "")
            if handler is not None:
                handler(frame, token)
            if len(self._stack) > MAX_DEPTH:
                self._result.lose(TOO_DEEP)
                break
        self._finish()
        return self._result

    def _finish(self) -> None:
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

    def _end_list(self, frame: Frame, end: int) -> None:
        self._end_command(frame, end)
        if frame.mode != "command" or frame.open or frame.needs_more or frame.operator:
            self._result.lose(UNFINISHED)

    def _push(self, kind: str, *, is_group: bool = False) -> None:
        # What is opened in a pipeline reads what is printed into it.
        outer = self._stack[-1]
        self._stack.append(Frame(kind, outer.where, is_group=is_group, piped=outer.piped, piped_at=-1))

    # Words and what they are made of

    def _in_word(self, frame: Frame, token: re.Match[str]) -> None:
        if frame.word < 0:
            frame.word = token.start()
            if frame.begin < 0:
                frame.begin = token.start()

    def _on_old_arithmetic(self, frame: Frame, token: re.Match[str]) -> None:
        self._in_word(frame, token)
        self._result.lose(ARITHMETIC)

    def _on_double(self, frame: Frame, token: re.Match[str]) -> None:
        self._in_word(frame, token)
        self._push("quoted")

    def _on_quote(self, frame: Frame, _token: re.Match[str]) -> None:
        if frame.kind == "quoted":
            self._stack.pop()

    def _on_single(self, _frame: Frame, _token: re.Match[str]) -> None:
        # In `"${x:-'}"` a single quote can be a character like any other.
        if any(outer.kind in ("quoted", "document") for outer in self._stack):
            self._result.lose(UNEXPECTED)

    def _on_substitution(self, frame: Frame, token: re.Match[str]) -> None:
        self._in_word(frame, token)
        if self._text.startswith("$((", token.start()):
            self._result.doubt(ARITHMETIC)
        self._push("list")

    def _on_parameter(self, frame: Frame, token: re.Match[str]) -> None:
        self._in_word(frame, token)
        self._push("parameter")
        if head := lexis.PARAMETER_HEAD.match(self._text, self._at):
            self._at = head.end()
        elif self._text[self._at : self._at + 1] in " \t\n|(":
            # Newer shells run what stands in `${ ...; }`.
            self._result.lose(EVALUATION)
        else:
            self._result.doubt(EVALUATION)

    def _on_backtick(self, frame: Frame, token: re.Match[str]) -> None:
        self._in_word(frame, token)
        body = token["quoted_command"]
        if '\\"' in body and len(self._stack) > 1:
            self._result.lose(UNEXPECTED)
        if not body.strip():
            return
        inner = lexis.ESCAPED_IN_BACKTICKS.sub(r"\1", body)
        base = None if "\\" in body else token.start() + 1
        self._result.inner.append(InnerText(inner, frame.where.now, base))

    def _on_arithmetic(self, frame: Frame, token: re.Match[str]) -> None:
        if "$" in token["sum"] or lexis.IDENTIFIER.search(token["sum"]):
            self._result.doubt(ARITHMETIC)
        if token[0].startswith("$"):
            self._in_word(frame, token)
        elif frame.is_at_command and frame.kind == "list":
            frame.is_closed, frame.needs_more = True, False
        else:
            self._result.lose(UNEXPECTED)

    def _on_comment(self, frame: Frame, token: re.Match[str]) -> None:
        # Behind `$(...)` the mark goes on with the word; in a test nobody knows.
        if frame.word >= 0 or frame.mode == "test":
            self._at = token.start() + 1
            if frame.word < 0:
                self._result.lose(UNEXPECTED)
            self._in_word(frame, token)

    def _on_blank(self, frame: Frame, token: re.Match[str]) -> None:
        self._end_word(frame, token.start())

    def _end_word(self, frame: Frame, end: int) -> None:
        if frame.word < 0:
            return
        start, frame.word = frame.word, -1
        word = read_word(self._text[start:end])
        if frame.kind == "array":
            if word.source.startswith("["):
                self._result.doubt(ARITHMETIC)
        elif frame.operator:
            self._documents += take_target(frame, word, len(self._stack), self._result)
        elif frame.mode in ("for", "case", "function", "pattern"):
            add_to_head(frame, word, self._result)
            if frame.is_defining and (parentheses := lexis.EMPTY_PARENTHESES.match(self._text, end)):
                self._at = parentheses.end()
            frame.is_defining = False
        else:
            self._add_word(frame, word, start, end)

    def _add_word(self, frame: Frame, word: Word, start: int, end: int) -> None:
        if frame.mode == "test":
            frame.words.append(word)
            if word.source == "]]":
                frame.mode = "command"
                self._end_command(frame, end)
                frame.is_closed = True
        elif frame.is_empty and take(frame, word.source, self._result):
            frame.begin = -1
            self._at = max(self._at, end_of_prefix(self._text, word.source, end))
        elif not frame.words and (assigned := lexis.ASSIGNMENT.match(word.source)):
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

    # Commands and what stands between them

    def _end_command(self, frame: Frame, end: int) -> None:
        if frame.is_empty or frame.mode != "command":
            return
        source = self._text[frame.begin : end].rstrip()
        start = frame.start if frame.words else -1
        where = frame.where
        is_conditional = frame.open > 0 or frame.is_piped
        loops = frozenset(name for each in (*self._stack, frame) for name in each.loops if name)
        is_certain = len(self._stack) <= 1 and not is_conditional and not frame.is_joined
        self._result.commands.append(
            Found(
                start,
                source,
                frame.words,
                frame.assignments,
                frame.redirections,
                where.now,
                is_certain,
                loops,
                [*frame.inputs, *frame.piped][: MAX_TEXTS + 1],
            )
        )
        if frame.loops and any(word.text in CHANGING for word in frame.words):
            # The next round begins where this one ends.
            self._moves_in_loop = True
        readings = partial(self._readings, loops=loops) if self._readings else None
        frame.where = where.after(frame.words, readings, is_conditional=is_conditional)
        frame.needs_more = False
        frame.clear()

    def _on_newline(self, frame: Frame, token: re.Match[str]) -> None:
        self._end_word(frame, token.start())
        if frame.operator:
            self._result.lose(UNEXPECTED)
            frame.operator = ""
        if frame.kind == "list" and frame.mode in ("command", "for"):
            if frame.mode == "for":
                frame.begin_body()
            self._end_command(frame, token.start())
            if not frame.needs_more:
                frame.where, frame.is_closed, frame.is_piped = frame.where.ended(), False, False
                frame.is_joined = False
                frame.end_pipeline()
        elif frame.mode == "function":
            self._result.lose(UNEXPECTED)
        if self._documents:
            if frame.kind != "list" or any(each.depth != len(self._stack) for each in self._documents):
                self._result.lose(DOCUMENT)
            self._at = read_documents(self._text, self._at, self._documents, self._result, frame.where.now)
            self._documents = []

    def _on_operator(self, frame: Frame, token: re.Match[str]) -> None:
        self._end_word(frame, token.start())
        operator = token[0]
        if frame.kind != "list" or frame.mode != "command" or frame.operator:
            take_operator(frame, operator, self._result)
            return
        is_case_end = operator in (";;", ";&", ";;&")
        if (frame.is_empty and not frame.is_closed and not is_case_end) or (is_case_end and not frame.cases):
            self._result.lose(UNEXPECTED)
        frame.is_piped = frame.is_piped or operator in ("|", "|&")
        is_compound = frame.is_closed
        self._end_command(frame, token.start())
        frame.is_closed = False
        if operator in ("|", "|&"):
            frame.needs_more = True
            if not frame.piped:
                frame.piped_at = frame.open
            # Which of all commands a closed group has is not looked up.
            printing = self._result.commands if is_compound else self._result.commands[-1:]
            printed = {id(text): text for found in printing for text in found.outputs}
            frame.piped = list(printed.values())[: MAX_TEXTS + 1]
            return
        frame.end_pipeline()
        frame.is_piped, frame.needs_more = False, operator in ("&&", "||")
        frame.is_joined = frame.needs_more
        self._result.has_background = self._result.has_background or operator == "&"
        match operator:
            case "&&":
                frame.where = frame.where.and_then()
            case "||":
                frame.where = frame.where.or_else()
            case _:
                frame.where = frame.where.ended()
        if is_case_end and frame.cases:
            frame.mode = "pattern"

    def _on_redirect(self, frame: Frame, token: re.Match[str]) -> None:
        if frame.word >= 0 and lexis.DESCRIPTOR.match(self._text[frame.word : token.start()]):
            frame.word = -1
        self._end_word(frame, token.start())
        if frame.mode == "test" and token[0] in ("<", ">"):
            return
        if frame.kind != "list" or frame.mode != "command" or frame.operator:
            self._result.lose(UNEXPECTED)
        if frame.begin < 0:
            frame.begin = token.start()
        frame.operator, frame.needs_more = token[0], False

    def _on_open(self, frame: Frame, token: re.Match[str]) -> None:
        start = token.start()
        if frame.word >= 0 and lexis.ARRAY.fullmatch(self._text, frame.word, start):
            self._push("array")
            return
        self._end_word(frame, start)
        if frame.mode in ("test", "pattern"):
            return
        parentheses = lexis.EMPTY_PARENTHESES.match(self._text, start)
        if parentheses and frame.mode == "command" and len(frame.words) == 1 and not frame.assignments:
            self._at = parentheses.end()
            define(frame, self._result)
            frame.is_defining = False
        elif frame.mode == "for" and not frame.words and (loop := lexis.ARITHMETIC_LOOP.match(self._text, start)):
            self._result.doubt(ARITHMETIC)
            self._at = loop.end()
            frame.words.append(literal("(("))
        else:
            if not frame.is_at_command or frame.kind != "list" or not frame.is_empty or frame.is_closed:
                self._result.lose(UNEXPECTED)
            if self._text.startswith("((", start):
                self._result.doubt(ARITHMETIC)
            self._push("list", is_group=True)

    def _on_close(self, frame: Frame, token: re.Match[str]) -> None:
        if frame.kind == "parameter":
            self._stack.pop()
            return
        self._end_word(frame, token.start())
        if frame.mode == "test":
            return
        if frame.mode == "pattern":
            frame.begin_body()
            return
        if len(self._stack) == 1:
            self._result.lose(UNEXPECTED)
            self._end_command(frame, token.start())
            return
        if frame.kind == "list":
            self._end_list(frame, token.start())
        if any(each.depth >= len(self._stack) for each in self._documents):
            self._result.lose(DOCUMENT)
        self._stack.pop()
        if frame.is_group:
            self._stack[-1].is_closed, self._stack[-1].needs_more = True, False
