"""What could be commands of a text that cannot be followed, or is too long to be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tools.permissions.shell.analysis import SubCommand
from tools.permissions.shell.knowledge.families import family_of
from tools.permissions.shell.knowledge.wrappers import wrapper_called
from tools.permissions.shell.names import names
from tools.permissions.shell.spellings import bare_name, rule_name
from tools.permissions.shell.syntax.lexis import ASSIGNMENT
from tools.permissions.shell.syntax.words import Word

TOO_NESTED = "wrappers or texts within texts are nested too deep to be followed"
GUESSED = "it is only guessed to be a command"
_PIECE = re.compile(r"[^\s;&|()<>`{}!][^;&|()<>`{}\n]*")
_WRAPPED = re.compile(r"-|\d|[A-Za-z_]\w*=", re.ASCII)
_KEYWORDS = names("if then elif else while until do time coproc in case for select function")
_NO_QUOTES = str.maketrans("", "", "'\"\\")
_QUOTES_AS_ENDS = str.maketrans("'\"", "\n\n", "\\")


def _command_words(piece: str) -> list[str]:
    """The words of a piece of text, from what could be the name on."""
    words = piece.split()
    for place, word in enumerate(words):
        if word not in _KEYWORDS and not ASSIGNMENT.match(word) and word.strip("$'\"\\-"):
            return words[place:]
    return []


def guessed(text: str) -> Iterator[list[str]]:
    """What could be commands of a text, however it is quoted, each once."""
    versions = dict.fromkeys((text, text.replace("\\\n", "").translate(_NO_QUOTES), text.translate(_QUOTES_AS_ENDS)))
    seen: set[str] = set()
    for version in versions:
        for piece in _PIECE.finditer(version):
            if piece[0] not in seen:
                seen.add(piece[0])
                if words := _command_words(piece[0]):
                    yield words


def skimmed(text: str) -> Iterator[SubCommand]:
    """The same of a text that is too long to be judged in detail; wrappers are passed over by their names."""
    for words in guessed(text):
        places = (at for at, word in enumerate(words) if not _is_passed_over(word))
        place = next(places, 0)
        for begin in {0, place}:
            part = (rule_name(words[begin]), *words[begin + 1 :])
            spelled = " ".join(part)
            yield SubCommand(words=part, text=spelled, source=spelled, doubts=(GUESSED,))


def _is_passed_over(word: str) -> bool:
    return wrapper_called(family_of(bare_name(word))) is not None or _WRAPPED.match(word) is not None


def last_of(words: Sequence[Word]) -> SubCommand:
    """The first word that is no wrapper, with all that is behind it."""
    place = next((at for at, word in enumerate(words) if wrapper_called(family_of(bare_name(word.text))) is None), 0)
    rest = words[place:]
    text = " ".join(word.text for word in rest)
    return SubCommand(words=tuple(word.text for word in rest), text=text, source=text, doubts=(TOO_NESTED,))
