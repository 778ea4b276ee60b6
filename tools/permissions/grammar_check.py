"""Checks whether bash reads a command as the grammar does, to notice commands that the grammar misreads.

Some text that the grammar treats as plain is run by bash, such as a command in backticks in a here-document. Some
constructs end at another place in bash than in the grammar. Therefore every byte is checked here. Each node must be of
a listed kind and end where it ends in bash. Outside of nested nodes, it must contain nothing that bash evaluates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPED = rb"\\[^\0-\x1f]"
_DOLLAR = rb"\$(?![\w({\[@*#?$!\\`\0-])"  # a literal dollar sign
_WORD = re.compile(rb"(?:[^\0- \x7f\\'\"`$<>|&;()]|%s)+" % _ESCAPED)
_PATTERN = re.compile(rb"(?:[^\0- \x7f\\'\"`$<>&;]|%s|%s)+" % (_ESCAPED, _DOLLAR))
_NAME = rb"(?:\w+|[@*])(?:\[(?:\d+|[@*])\])?"
_OPERAND = rb"(?:[^\\'\"`${}<>]|\\[\w/.*? :+,-]|\"[^\\'\"`${}<>\0]*\")*"
_HEREDOC = re.compile(rb"(?:[^\\`$]|\\.|%s)*" % _DOLLAR, re.DOTALL)
# For each kind of text node, the pattern for text that bash reads as the grammar does. A NUL stands for a nested node
_TEXTS: Mapping[str, re.Pattern[bytes]] = {
    **dict.fromkeys(("word", "number", "test_operator"), _WORD),
    "file_descriptor": re.compile(rb"\d+"),
    **dict.fromkeys(("extglob_pattern", "regex"), _PATTERN),
    "variable_name": re.compile(rb"\w+"),
    "special_variable_name": re.compile(rb"[@*#?$!_0-]"),
    "comment": re.compile(rb"#[^\n]*"),
    "raw_string": re.compile(rb"'[^']*'"),
    "ansi_c_string": re.compile(rb"\$'(?:[^'\\]|\\[^'])*'"),
    "string": re.compile(rb"\"(?:[^\"\\`$]|\\.|%s)*\"" % _DOLLAR, re.DOTALL),
    "simple_expansion": re.compile(rb"\$(?:[ \t]*\w+|[@*#?$!-])"),
    "brace_expression": re.compile(rb"\{-?\w+\.\.-?\w+\}"),
    "expansion": re.compile(
        rb"\$\{(?:#?%(name)s|[#?$!-]|!\w+\[[@*]\]|%(name)s(?::? ?-?\d+(?::-?\d+)?"
        rb"|(?::?[-=?+]|##?|%%%%?|/[/#%%]?|\^\^?|,,?)%(operand)s))\}" % {b"name": _NAME, b"operand": _OPERAND}
    ),
}
_INNER = frozenset((
    "simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion",
))  # fmt: skip
_OF_A_LINE = frozenset((
    "command", "command_name", "declaration_command", "unset_command", "variable_assignment", "variable_assignments",
    "file_redirect", "herestring_redirect", "redirected_statement",
))  # fmt: skip
_OF_LINES = frozenset((
    "program", "list", "pipeline", "subshell", "compound_statement", "if_statement", "elif_clause", "else_clause",
    "while_statement", "for_statement", "do_group", "case_statement", "case_item", "function_definition",
    "negated_command", "command_substitution", "process_substitution", "test_command", "unary_expression",
    "binary_expression", "parenthesized_expression", "heredoc_redirect",
))  # fmt: skip
# What may be between nodes. Bash removes an escaped line end, so an escaped line end alone does not separate words
_IN_A_LINE = re.compile(rb"(?!(?:\\\n)+\Z)(?:[ \t]|\\\n)*")
LOST_DASH = b" - "  # a `-` argument before a redirection, for which the grammar has no node
_IN_LINES = re.compile(rb"(?!(?:\\\n)+\Z)(?:[ \t\n]|\\\n)*")
_BEFORE_A_WORD = b" \t\n;&|()<>"
# The bytes that may be directly before or after a keyword; empty at the start or the end of the text
_AROUND = {b"", b"`", *(bytes((each,)) for each in _BEFORE_A_WORD)}
_KEYWORDS = ("!", "{", "}", "[[", "]]")
_DELIMITER = re.compile(rb"(['\"]?)([\w.-]+)\1")
_NOT_BEHIND_A_DELIMITER = re.compile(rb"<<|\$\(|`|\\\Z")
_RESERVED = frozenset(b"if then elif else fi do done case esac while until for select function { } ! [[ coproc".split())
_NO_NAME = re.compile(rb"[A-Za-z_]\w*(\[.*\])?\+?=.*", re.DOTALL)  # an assignment, which is not a command name
_OF_A_TEST = frozenset(("[", "]", "=", "==", "!=", "!", "-a", "-o"))
_EVALUATING = re.compile(rb"-(?:eq|ne|lt|le|gt|ge)")
_NUMBER = re.compile(rb"-?\d+|\$[#?$!]|\"\$[#?]\"|\$\{#\w+\}")


def is_read_alike(root: Node, source: bytes) -> bool:
    """Return True if bash finds the same commands in `source` as the grammar does, and evaluates nothing else."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        kind, text = node.type, source[node.start_byte : node.end_byte]
        if not node.is_named:
            is_keyword = kind.isalpha() or kind in _KEYWORDS
            if text.strip(b" \t") != kind.encode() or (kind == "$" and _behind(node, source).strip(b" \t\n;|&)")):
                return False
            if is_keyword and not {source[node.start_byte - 1 : node.start_byte], _behind(node, source)} <= _AROUND:
                return False
            continue
        if kind in _TEXTS:
            inner = [*_inner(node)]
            # In bash, a `#` begins a comment only at the start of a word.
            begins = text[:1] == b"#" and kind != "special_variable_name"
            is_comment = node.start_byte == 0 or source[node.start_byte - 1] in _BEFORE_A_WORD
            # In bash, digits right before a redirection are a file descriptor.
            is_descriptor = text.isdigit() and kind != "file_descriptor" and _behind(node, source) in (b"<", b">")
            if (
                not _TEXTS[kind].fullmatch(_without(inner, node.start_byte, node.end_byte, source))
                or (begins and is_comment is not (kind == "comment"))
                or is_descriptor
            ):
                return False
            waiting += inner
        elif kind == "heredoc_redirect":
            inner = _of_heredoc(node, source)
            if inner is None:
                return False
            waiting += inner
        elif (
            (kind != "concatenation" and kind not in _OF_A_LINE and kind not in _OF_LINES)
            or not all(_gaps_fit(node, source))
            or not _is_usual(node, text)
        ):
            return False
        else:
            waiting += node.children
    return True


def _inner(node: Node) -> Iterator[Node]:
    """Yield the outermost expansions and substitutions in a node."""
    waiting = [*reversed(node.children)]
    while waiting:
        child = waiting.pop()
        if child.type in _INNER:
            yield child
        else:
            waiting += reversed(child.children)


def _without(inner: list[Node], start: int, end: int, source: bytes) -> bytes:
    """Return the text between two positions, with a NUL in place of each node of `inner`."""
    ends = [start, *(each.end_byte for each in inner)]
    starts = [*(each.start_byte for each in inner), end]
    return b"\0".join(source[one:other] for one, other in zip(ends, starts, strict=True))


def _gaps_fit(node: Node, source: bytes) -> Iterator[bool]:
    """Yield, for each gap between child nodes, whether bash separates or joins the nodes there as the grammar does."""
    children, kind = node.children, node.type
    allowed = _IN_A_LINE if kind in _OF_A_LINE else _IN_LINES
    yield bool(children) or kind == "program"
    if children and kind != "program":
        yield (children[0].start_byte, children[-1].end_byte) == (node.start_byte, node.end_byte)
    elif children:
        yield allowed.fullmatch(source[: children[0].start_byte]) is not None
        yield allowed.fullmatch(source[children[-1].end_byte :]) is not None
    for one, next_one in pairwise(children):
        gap = source[one.end_byte : next_one.start_byte]
        gap = b" " if gap == LOST_DASH and "redirect" in next_one.type else gap
        yield not gap if kind == "concatenation" else allowed.fullmatch(gap) is not None
        if kind in ("command", "declaration_command", "unset_command"):
            yield bool(gap) or "redirect" in one.type + next_one.type
        elif kind == "file_redirect" and one.is_named and next_one.is_named:
            yield bool(gap)


def _behind(node: Node, source: bytes) -> bytes:
    return source[node.end_byte : node.end_byte + 1]


def _of_heredoc(node: Node, source: bytes) -> list[Node] | None:
    """Return the nodes inside and next to a here-document, or `None` if bash may end it elsewhere."""
    parts = {child.type: child for child in node.children}
    begin, end, body = (parts.get(f"heredoc_{part}") for part in ("start", "end", "body"))
    delimiter = _DELIMITER.fullmatch(begin.text or b"") if begin is not None else None
    if begin is None or end is None or body is None or delimiter is None:
        return None
    first = source.find(b"\n", begin.end_byte) + 1
    if not first or _NOT_BEHIND_A_DELIMITER.search(source[begin.end_byte : first - 1]):
        return None
    indent = rb"\t*" if "<<-" in parts else b""
    last = re.compile(rb"^%s%s$" % (indent, re.escape(delimiter[2])), re.MULTILINE).search(source, first)
    if last is None or last.end() != end.end_byte:
        return None
    beside = [child for child in node.children if begin.end_byte <= child.start_byte < first]
    if _without(beside, begin.end_byte, first - 1, source).strip(b" \t\0"):
        return None
    if delimiter[1]:
        return beside
    inner = [*_inner(body)]
    text = _without(inner, first, last.start(), source)
    if not _HEREDOC.fullmatch(text) or text.endswith(b"\\\n") or any(b"<<" in (each.text or b"") for each in inner):
        return None
    return [*beside, *inner]


def _is_usual(node: Node, text: bytes) -> bool:
    """Return True if bash reads a node as the grammar does, provided that this is true of the node's children."""
    match node.type:
        case "command":
            return node.children[0].text != b"time" or not any(child.text in _RESERVED for child in node.children)
        case "command_name":
            return text not in _RESERVED and not _NO_NAME.fullmatch(text)
        case "redirected_statement":  # the command, if any, must precede the redirection
            first = node.children[0]
            return not first.type.endswith("_redirect") or len(node.children) == 1 == sum(
                child.is_named and child.type != "file_descriptor" for child in first.children
            )
        case "test_command":
            return _is_test_usual(node, text)
        case "command_substitution" if "`" in node.children[0].type:
            # Bash ends a backtick substitution at the very next backtick.
            return text.count(b"`") <= 2 and b"\\" not in text and b"<<" not in text
        case _:
            return not text.startswith((b"((", b"$(("))  # these begin an arithmetic evaluation


def _is_test_usual(node: Node, text: bytes) -> bool:
    """Return True if bash takes the operands of a test literally.

    In bash, `[` is an ordinary command, so `<`, `&&` and line ends do not belong to its test.
    """
    width = len(node.children[0].type)
    if text[width : width + 1] not in (b" ", b"\t") or text[-width - 1 : -width] not in (b" ", b"\t"):
        return False
    waiting, is_command = [*node.children], width == 1
    if is_command and b"\n" in text:
        return False
    while waiting:
        each = waiting.pop()
        if each.type.endswith("_expression"):
            waiting += each.children
            names = [child.text or b"" for child in each.children if child.type == "test_operator"]
            operands = [child.text or b"" for child in each.children if child.type != "test_operator"]
            if {b"-v", b"-R"} & {*names} and not all(map(_TEXTS["variable_name"].fullmatch, operands)):
                return False
            if not is_command and any(map(_EVALUATING.fullmatch, names)) and not all(map(_NUMBER.fullmatch, operands)):
                return False
        elif not each.is_named and is_command and each.type not in _OF_A_TEST:
            return False
    return True
