"""Reads the text of a command once, from left to right, and finds every simple command in it.

What stands inside substitutions, groups, loops and functions is found on the way: open constructs are kept on a stack
of our own, so nesting costs no recursion. What has its own rules of quoting (backticks, here-documents) comes out as a
further text to read. The reader knows as much of the grammar as it takes to tell where a command begins and ends;
whatever it does not expect is a doubt, and it goes on as well as it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from tools.permissions.shell.syntax import lexis
from tools.permissions.shell.syntax.documents import Document, read_documents, take_target
from tools.permissions.shell.syntax.folders import CHANGING, START, UNKNOWN, Folders
from tools.permissions.shell.syntax.reading import (
    ARITHMETIC,
    DOCUMENT,
    EVALUATION,
    MAX_TEXTS,
    TOO_DEEP,
    UNEXPECTED,
    UNFINISHED,
    Found,
    Frame,
    InnerText,
    Reading,
    new_frame,
)
from tools.permissions.shell.syntax.reserved import add_to_head, define, end_of_prefix, take, take_operator
from tools.permissions.shell.syntax.words import Word, literal, read_word

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
