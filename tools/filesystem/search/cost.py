"""What matching a pattern can cost, and which text every match must hold: what the choice of an engine rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tools.filesystem.search.tree import UNLIMITED, Anchor, Chain, Char, CharClass, Choice, Node, Repeat

MAX_STEPS = 128
"""Steps that one place in a text may cost at worst in our own process; a match cannot be interrupted."""

MAX_WIDTH = 1_024
"""Characters that a match may cover, but for a repetition at its end."""

_TOO_MANY_WAYS = MAX_STEPS + 1
"""Ways are not counted further: whatever comes after so many is looked at too often."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The worst case of matching at one place.

    Args:
        width: The most characters a match covers.
        steps: The most characters that are looked at; one for what is empty, since to try it costs as much.
        ways: In how many ways it can match, each of which may be tried; at most `_TOO_MANY_WAYS`.
    """

    width: int
    steps: int
    ways: int


def bounds(tree: Node) -> Bounds | None:
    """The bounds of a pattern whose cost is linear in the text, or `None` if that is not certain.

    A repetition without limit is bounded only at the very end and of single characters: nothing comes after it, so
    it is never taken back. Its width beyond the least count is left out.
    """
    parts = list(tree.items) if isinstance(tree, Chain) else [tree]
    if parts and isinstance(last := parts[-1], Repeat) and last.most == UNLIMITED and _is_single(last.item):
        parts[-1] = Repeat(last.item, last.least, last.least)
    found = _measure(Chain(tuple(parts)))
    fits = found is not None and found.steps <= MAX_STEPS and found.width <= MAX_WIDTH
    return found if fits else None


def _is_single(node: Node) -> bool:
    return isinstance(node, Char | CharClass)


def _measure(node: Node) -> Bounds | None:
    match node:
        case Char() | CharClass():
            return Bounds(1, 1, 1)
        case Anchor():
            return Bounds(1, 1, 1)  # the character that it looks at
        case Chain(items):
            return _one_after_the_other(items)
        case Choice(items):
            measured = [_measure(item) for item in items]
            known = [item for item in measured if item is not None]
            if len(known) < len(measured):
                return None
            width = max(item.width for item in known)
            steps, ways = sum(item.steps for item in known), sum(item.ways for item in known)
            return Bounds(width, steps, ways) if steps <= MAX_STEPS else None
        case Repeat(item, least, most):
            inner = _measure(item)
            return None if inner is None or most == UNLIMITED else _repeated(inner, least, most)


def _one_after_the_other(items: tuple[Node, ...]) -> Bounds | None:
    width, steps, ways = 0, 0, 1
    for item in items:
        found = _measure(item)
        if found is None:
            return None
        width += found.width
        steps += ways * found.steps
        ways = min(ways * found.ways, _TOO_MANY_WAYS)
        if steps > MAX_STEPS:
            return None
    return Bounds(width, max(steps, 1), ways)


def _repeated(inner: Bounds, least: int, most: int) -> Bounds | None:
    steps, ways, repeated = 0, 0, 1
    for count in range(most + 1):
        ways = min(ways + repeated, _TOO_MANY_WAYS) if count >= least else ways
        steps += repeated * inner.steps if count < most else 0
        repeated = min(repeated * inner.ways, _TOO_MANY_WAYS)
        if steps > MAX_STEPS:
            return None
    return Bounds(inner.width * most, max(steps, 1), ways)


def runaway_part(tree: Node) -> str:
    """What of a pattern makes its cost grow the most, as it was written; empty if that is no single part of it."""
    repeats = [node for node in _nodes(tree) if isinstance(node, Repeat) and node.most == UNLIMITED]
    nested = (repeat for repeat in repeats if any(map(_varies, _nodes(repeat.item))))
    worst = next(nested, None) or next(iter(repeats), None)
    return worst.spelled if worst else ""


def _varies(node: Node) -> bool:
    return isinstance(node, Choice) or (isinstance(node, Repeat) and node.least != node.most)


def _nodes(tree: Node) -> Iterator[Node]:
    yield tree
    match tree:
        case Chain(items) | Choice(items):
            for item in items:
                yield from _nodes(item)
        case Repeat(item):
            yield from _nodes(item)
        case _:
            pass


def required_text(tree: Node) -> str:
    """The longest text that every match certainly holds; empty if none is certain."""
    runs = [""]
    for item in tree.items if isinstance(tree, Chain) else (tree,):
        match item:
            case Char(value):
                runs[-1] += value
            case Chain():
                runs += [required_text(item), ""]
            case Repeat(inner, least) if least > 0:
                runs += [required_text(inner), ""]
            case Anchor():
                pass
            case _:
                runs.append("")
    return max(runs, key=len)
