"""Glob patterns: from what a model writes to a matcher that a walk can follow folder by folder.

`*`, `?`, `[...]`, `{a,b}`, `{1..3}`, `**`, and the alternatives `@(a|b)` and `?(a|b)`. A part that exists under its
literal name is that name, so `app/[id]/(group)/page.tsx` finds what it says.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

MAX_ALTERNATIVES = 256
"""Patterns that braces may stand for."""

MAX_EXPANDED_CHARS = 32_768
"""Characters of all those together: eight of the longest patterns, or 128 for each of the most."""

_BRACE = re.compile(r"\\.|[{},]", re.DOTALL)
"""What braces are made of; a backslash takes the character behind it along."""

_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})|([A-Za-z])\.\.([A-Za-z])")


class PatternRefusedError(ValueError):
    """A pattern that is not accepted; the text is a sentence for the model."""


def expand_braces(pattern: str) -> list[str]:
    """All patterns that `{a,b}` and `{1..3}` stand for; braces without a comma or a range stay as they are.

    One pass over the pattern; what it may grow to is bounded, so its cost is as well.

    Raises:
        PatternRefusedError: There are too many, or they are too long together.
    """
    groups = [_Group()]
    for piece in _brace_pieces(pattern):
        if not isinstance(piece, _Brace):
            groups[-1].append([piece] if isinstance(piece, str) else piece)
        elif piece is _Brace.OPEN:
            groups.append(_Group())
        else:
            groups[-1].next_choice()
            if piece is _Brace.CLOSE:
                done = groups.pop().done
                groups[-1].append(done)
    return list(dict.fromkeys(groups[0].current))


class _Brace(Enum):
    """What is special about a pattern with braces."""

    OPEN = "{"
    NEXT = ","
    CLOSE = "}"


@dataclass(slots=True)
class _Group:
    """Braces that are being read.

    Args:
        done: What the choices before the current one stand for.
        current: What the current choice stands for so far.
    """

    done: list[str] = field(default_factory=list[str])
    current: list[str] = field(default_factory=lambda: [""])

    def append(self, ends: Sequence[str]) -> None:
        """Let one of these follow."""
        count = len(self.current) * len(ends)
        chars = sum(map(len, self.current)) * len(ends) + sum(map(len, ends)) * len(self.current)
        _check_size(count, chars)
        self.current = [start + end for start in self.current for end in ends]

    def next_choice(self) -> None:
        """Begin another choice."""
        self.done += self.current
        self.current = [""]
        _check_size(len(self.done), sum(map(len, self.done)))


def _check_size(count: int, chars: int) -> None:
    if count > MAX_ALTERNATIVES:
        raise PatternRefusedError(f"its braces stand for more than {MAX_ALTERNATIVES} patterns; use fewer")
    if chars > MAX_EXPANDED_CHARS:
        raise PatternRefusedError(f"its braces stand for more than {MAX_EXPANDED_CHARS} characters; use fewer")


def _brace_pieces(pattern: str) -> Iterator[_Brace | str | list[str]]:
    """The pattern in pieces: the braces that mean something and their commas, ranges, and the text between."""
    marks = _brace_marks(pattern)
    start = 0
    for index in sorted(marks):
        if index > start:
            yield pattern[start:index]
        mark = marks[index]
        start = index + 1
        if isinstance(mark, re.Match):
            yield _range(mark)
            start = mark.end() + 1
        else:
            yield mark
    if start < len(pattern):
        yield pattern[start:]


def _brace_marks(pattern: str) -> dict[int, _Brace | re.Match[str]]:
    """Where braces that mean something open, part and close; where a range opens, the range."""
    marks: dict[int, _Brace | re.Match[str]] = {}
    opened: list[tuple[int, list[int]]] = []
    for found in _BRACE.finditer(pattern):
        index = found.start()
        match found.group():
            case "{":
                opened.append((index, []))
            case "," if opened:
                opened[-1][1].append(index)
            case "}" if opened:
                start, commas = opened.pop()
                if commas:
                    marks |= {start: _Brace.OPEN, index: _Brace.CLOSE} | dict.fromkeys(commas, _Brace.NEXT)
                elif values := _RANGE.fullmatch(pattern, start + 1, index):
                    marks[start] = values
            case _:
                pass
    return marks


def _range(found: re.Match[str]) -> list[str]:
    if found[1] is not None:
        first, last = int(found[1]), int(found[2])
    else:
        first, last = ord(found[3]), ord(found[4])
    step = 1 if first <= last else -1
    if abs(last - first) >= MAX_ALTERNATIVES:
        raise PatternRefusedError(f"its braces stand for more than {MAX_ALTERNATIVES} patterns; use fewer")
    values = range(first, last + step, step)
    return [str(value) if found[1] is not None else chr(value) for value in values]


MAX_PATTERN_CHARS = 4_096
"""As long as a path may be."""

_EXTENDED = re.compile(r"[@?]\(([^()/]*+)\)")
_UNKNOWN_EXTENDED = re.compile(r"!\([^()/]*+\)|[+*]\([^()/|]*+\|[^()/]*+\)")

_WILDCARDS = re.compile(r"[*?\[\\]")
_ESCAPE_OR_BRACKET = re.compile(r"\\(.)|\[\^?", re.DOTALL)

Names = Callable[[str], bool]
"""Whether one name between slashes fits, or a path of several."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """`**`: any number of folders."""


_TREE = _Tree()
_Step = Names | _Tree


@dataclass(slots=True)
class Position:
    """Where in a pattern a folder is: what may come next. Folders of equal standing share one position.

    Args:
        steps: For each place in the pattern that was reached: what it wants, the place behind it, whether that ends
            the pattern.
        pattern: Whose places they are.
    """

    steps: tuple[tuple[_Step, int, bool], ...]
    pattern: PathPattern

    def accepts(self, name: str) -> bool:
        """Whether a file of this name in the folder fits the pattern."""
        return bool(self.chosen([name]))

    def chosen(self, names: list[str]) -> list[str]:
        """The files of the folder that fit the pattern."""
        last = [step for step, _, is_last in self.steps if is_last]
        fits = [step for step in last if not isinstance(step, _Tree)]
        if len(fits) < len(last):
            return names
        if len(fits) == 1:
            return list(filter(fits[0], names))
        return [name for name in names if any(step(name) for step in fits)]

    def enter(self, name: str) -> Position | None:
        """The position of a folder below, or `None` if nothing in it can fit."""
        reached: set[int] = set()
        for step, behind, _ in self.steps:
            if isinstance(step, _Tree):
                reached.update(self.pattern.reach(behind - 1))
            elif step(name):
                reached.update(self.pattern.reach(behind))
        return self.pattern.position(frozenset(reached))

    def covers(self, name: str) -> bool:
        """Whether a folder of this name fits itself, or everything in it does: an exclusion prunes it."""
        if self.accepts(name):
            return True
        below = self.enter(name)
        return below is not None and any(is_last and isinstance(step, _Tree) for step, _, is_last in below.steps)


@dataclass(slots=True)
class PathPattern:
    """A pattern for paths below one folder; also several patterns, of which one has to fit.

    Args:
        alternatives: Each a list of steps; a path fits if it fits one of them.
        literals: The names the pattern holds literally, in lower case.
    """

    alternatives: Sequence[Sequence[_Step]]
    literals: frozenset[str]
    _places: list[_Step | None] = field(default_factory=list["_Step | None"])
    _positions: dict[frozenset[int], Position] = field(default_factory=dict[frozenset[int], Position])
    _starts: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        starts: set[int] = set()
        first_places: list[int] = []
        for steps in self.alternatives:
            first_places.append(len(self._places))
            self._places.extend(steps)
            self._places.append(None)
        for place in first_places:
            starts.update(self.reach(place))
        self._starts = frozenset(starts)

    def start(self) -> Position | None:
        """The position of the folder that the pattern starts from; `None` if nothing can fit."""
        return self.position(self._starts)

    def reach(self, place: int) -> Iterator[int]:
        """The place itself, and those behind it that are reached because `**` may stand for no folder."""
        while self._places[place] is not None:
            yield place
            if not isinstance(self._places[place], _Tree):
                return
            place += 1

    def position(self, places: frozenset[int]) -> Position | None:
        """The shared position for a set of places."""
        if not places:
            return None
        if places not in self._positions:
            steps: list[tuple[_Step, int, bool]] = []
            for place in sorted(places):
                step = self._places[place]
                if step is not None:
                    steps.append((step, place + 1, self._places[place + 1] is None))
            self._positions[places] = Position(tuple(steps), self)
        return self._positions[places]

    def matches(self, path: str) -> bool:
        """Whether a relative path of a file, with forward slashes, fits."""
        *folders, name = path.split("/")
        position = self.start()
        for folder in folders:
            position = position and position.enter(folder)
        return position is not None and position.accepts(name)


def compile_patterns(
    patterns: Sequence[str], *, ignore_case: bool, exists: Names | None = None, at_any_depth: bool = False
) -> PathPattern:
    """Compile patterns of which one has to fit.

    Args:
        patterns: As a model writes them, relative, with forward slashes.
        ignore_case: Whether upper and lower case are the same.
        exists: Whether a relative path exists below the folder they start from; such parts are taken literally.
        at_any_depth: Whether a pattern without a slash fits a name in any folder, as in ignore files.

    Raises:
        PatternRefusedError: One of them is blank, leaves the folder, or uses something that is not supported.
    """
    alternatives: list[list[_Step]] = []
    literals: set[str] = set()
    for pattern in patterns:
        for parts, literal_parts in _alternatives(pattern, exists):
            steps = [_step(part, ignore_case=ignore_case, literal=n < literal_parts) for n, part in enumerate(parts)]
            if at_any_depth and len(parts) == 1:
                steps.insert(0, _TREE)
            alternatives.append(steps)
            literals.update(
                part.lower() for n, part in enumerate(parts) if n < literal_parts or not _WILDCARDS.search(part)
            )
            if len(alternatives) > MAX_ALTERNATIVES:
                raise PatternRefusedError(f"its braces stand for more than {MAX_ALTERNATIVES} patterns; use fewer")
    return PathPattern(alternatives, frozenset(literals))


def _alternatives(pattern: str, exists: Names | None) -> Iterator[tuple[list[str], int]]:
    """The parts of each pattern that braces stand for, and how many at the front exist literally."""
    whole = _parts(pattern)
    if exists is not None and _literal_parts(exists, whole) == len(whole):
        yield whole, len(whole)
        return
    unknown = _UNKNOWN_EXTENDED.search(pattern)
    if unknown:
        raise PatternRefusedError(f"'{unknown.group()}' is not supported; name what you want with braces, like {{a,b}}")
    plain = _EXTENDED.sub(_to_braces, pattern)
    for expanded in expand_braces(plain):
        parts = _parts(expanded)
        yield parts, _literal_parts(exists, parts) if exists is not None else 0


def _parts(pattern: str) -> list[str]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternRefusedError(f"it is longer than {MAX_PATTERN_CHARS} characters")
    if not pattern.strip():
        raise PatternRefusedError("it is blank; give a pattern such as **/*.py")
    if "\0" in pattern:
        raise PatternRefusedError("it holds a NUL character; no file name does")
    slashed = pattern.replace("\\", "/") if os.sep == "\\" else pattern
    if slashed.startswith("/") or os.path.isabs(pattern):
        raise PatternRefusedError("it is absolute; give the folder as the path and a pattern relative to it")
    parts = [part for part in slashed.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PatternRefusedError("it leads out of the folder with '..'; give the folder to search as the path instead")
    if slashed.endswith("/") or not parts:
        parts.append("**")
    return [part for n, part in enumerate(parts) if not (part == "**" and n > 0 and parts[n - 1] == "**")]


def _literal_parts(exists: Names, parts: Sequence[str]) -> int:
    """How many parts from the front on name something that exists."""
    for count in range(len(parts)):
        if not exists("/".join(parts[: count + 1])):
            return count
    return len(parts)


def _to_braces(match: re.Match[str]) -> str:
    choices = match.group(1).replace(",", "\\,").split("|")
    if match.group().startswith("?"):
        choices.insert(0, "")
    return choices[0] if len(choices) == 1 else f"{{{','.join(choices)}}}"


def _step(part: str, *, ignore_case: bool, literal: bool) -> _Step:
    """What one part between slashes wants. A name equal to the part always fits, brackets or not."""
    if part == "**" and not literal:
        return _TREE
    same = part.lower() if ignore_case else part
    if literal or not _WILDCARDS.search(part):
        return _LowerEquals(same).fits if ignore_case else same.__eq__
    if part == "*":
        return _any_name
    if part.startswith("*") and not _WILDCARDS.search(part[1:]):
        return _Ending(same[1:], ignore_case=ignore_case).fits
    return _Wildcards(part, ignore_case=ignore_case).fits


def _any_name(name: str) -> bool:
    return bool(name)


@dataclass(frozen=True, slots=True)
class _LowerEquals:
    text: str

    def fits(self, name: str) -> bool:
        return name.lower() == self.text


@dataclass(frozen=True, slots=True)
class _Ending:
    text: str
    ignore_case: bool

    def fits(self, name: str) -> bool:
        return (name.lower() if self.ignore_case else name).endswith(self.text)


@dataclass(slots=True)
class _Wildcards:
    """A part with wildcards. It is translated when the first name comes: compiling takes time, a walk has a thread."""

    part: str
    ignore_case: bool
    _fits: Callable[[str], object] | None = None

    def fits(self, name: str) -> bool:
        if self._fits is None:
            # `fnmatch` makes stars atomic, so time is of the order of the part's length times the name's.
            expression = fnmatch.translate(_for_fnmatch(self.part))
            self._fits = re.compile(expression, re.IGNORECASE if self.ignore_case else 0).match
        return name == self.part or self._fits(name) is not None


def _for_fnmatch(part: str) -> str:
    """A part as `fnmatch` reads it: it knows no backslash, negates by `!` alone, looks long for the end of `[`."""
    end = part.rfind("]")

    def respelled(found: re.Match[str]) -> str:
        if escaped := found[1]:
            return f"[{escaped}]" if escaped in "*?[" else escaped
        if found.start() > end:
            return f"[[]{found[0][1:]}"
        return found[0].replace("^", "!")

    return _ESCAPE_OR_BRACKET.sub(respelled, part)
