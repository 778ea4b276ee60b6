"""A pattern as a tree, and how it is written for the engines. A pattern never crosses a line."""

from __future__ import annotations

from dataclasses import dataclass, field

UNLIMITED = -1
"""The upper count of `*`, `+` and `{m,}`."""

_UNDECODABLE = "\\ud800-\\udfff"
"""What bytes that are no UTF-8 become in Python."""


@dataclass(frozen=True, slots=True)
class Char:
    """One literal character."""

    value: str


@dataclass(frozen=True, slots=True)
class CharClass:
    r"""One character of a set: `.`, `\w`, `[a-z]`.

    Args:
        body: What stands between the brackets when it is written out.
        negated: The characters outside are meant. A line feed is never one of them.
    """

    body: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    r"""`^`, `$`, `\b` or `\B`: a place, no character."""

    kind: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Several things, one after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several things."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same thing several times; `most` may be `UNLIMITED`, `spelled` is how it was written."""

    item: Node
    least: int
    most: int
    lazy: bool = False
    spelled: str = field(default="", compare=False)


Node = Char | CharClass | Anchor | Chain | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that both engines understand.

    Args:
        tree: What it means.
        ignore_case: Whether it says so itself, by a leading `(?i)`.
    """

    tree: Node
    ignore_case: bool

    def written(self, *, tolerant: bool = False) -> str:
        """The pattern as both engines read it.

        Args:
            tolerant: For Python on text with undecodable bytes (as surrogates), which no class may match.
        """
        return _write(self.tree, tolerant=tolerant)


def write_character(character: str) -> str:
    """A literal character, within and without brackets, for both engines."""
    if character.isalnum() or (not character.isascii() and character.isprintable()):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _write(node: Node, *, tolerant: bool) -> str:
    """A node for both engines; tolerant for text with undecodable bytes, which no negated class may match."""
    match node:
        case Char(value):
            return write_character(value)
        case CharClass(body, negated):
            never = f"\\n{_UNDECODABLE}" if tolerant else "\\n"
            return f"[^{never}{body}]" if negated else f"[{body}]"
        case Anchor(kind):
            return _write_anchor(kind, tolerant=tolerant)
        case Chain(items):
            return "".join(_write(item, tolerant=tolerant) for item in items)
        case Choice(items):
            return f"(?:{'|'.join(_write(item, tolerant=tolerant) for item in items)})"
        case Repeat(item, least, most, lazy):
            count = {(0, UNLIMITED): "*", (1, UNLIMITED): "+", (0, 1): "?"}.get(
                (least, most), f"{{{least},{most if most != UNLIMITED else ''}}}"
            )
            return f"(?:{_write(item, tolerant=tolerant)}){count}{'?' if lazy else ''}"


def _write_anchor(kind: str, *, tolerant: bool) -> str:
    if kind == "$":
        return "(?:\\r?$)"
    if kind == "\\B" and tolerant:
        # ripgrep's engine sees no place beside bytes that are no text.
        return f"(?<![{_UNDECODABLE}])\\B(?![{_UNDECODABLE}])"
    return kind
