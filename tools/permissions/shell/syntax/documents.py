"""Here-documents: where their text begins and ends, and whether anything in it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.permissions.shell.syntax.folders import Folders
from tools.permissions.shell.syntax.reading import DOCUMENT, Frame, InnerText, Reading, Redirection
from tools.permissions.shell.syntax.words import Word, literal, read_word

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
