"""What reading a text finds: simple commands, texts within the text, and what was not understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.folders import START, Folders, Whereabouts
from tools.permissions.shell.syntax.words import Word

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
