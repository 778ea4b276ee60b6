"""The reserved words of bash: what they open and close, and the heads of compound commands."""

from __future__ import annotations

from tools.permissions.shell.names import names
from tools.permissions.shell.syntax import lexis
from tools.permissions.shell.syntax.folders import UNKNOWN, Whereabouts
from tools.permissions.shell.syntax.reading import COPROCESS, FUNCTION, UNEXPECTED, Frame, Loop, Reading
from tools.permissions.shell.syntax.words import Word

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
