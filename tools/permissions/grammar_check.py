"""Checks whether bash reads a command as the grammar does.

Bash runs some text that the grammar treats as plain, such as a command in backticks in a here-document. Bash also ends
some constructs at a different place than the grammar does. Therefore every byte is checked. Each node must be of a
listed kind and end where bash ends it. Outside of nested nodes, its text must contain nothing that bash evaluates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node


_ESCAPED_BYTE = rb"\\[^\0-\x1f]"
_DOLLAR = rb"\$(?![\w({\[@*#?$!\\`\0-])"  # a literal dollar sign
_WORD = re.compile(rb"(?:[^\0- \x7f\\'\"`$<>|&;()]|%s)+" % _ESCAPED_BYTE)
_PATTERN = re.compile(rb"(?:[^\0- \x7f\\'\"`$<>&;]|%s|%s)+" % (_ESCAPED_BYTE, _DOLLAR))
_NAME = rb"(?:\w+|[@*])(?:\[(?:\d+|[@*])\])?"
_OPERAND = rb"(?:[^\\'\"`${}<>]|\\[\w/.*? :+,-]|\"[^\\'\"`${}<>\0]*\")*"
_HEREDOC = re.compile(rb"(?:[^\\`$]|\\.|%s)*" % _DOLLAR, re.DOTALL)
# For each kind of text node, the pattern for text that bash reads as the grammar does. A NUL stands for a nested node
_TEXT_PATTERNS: Mapping[str, re.Pattern[bytes]] = {
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
_NESTED_KINDS = frozenset((
    "simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion",
))  # fmt: skip
_LINE_KINDS = frozenset((
    "command", "command_name", "declaration_command", "unset_command", "variable_assignment", "variable_assignments",
    "file_redirect", "herestring_redirect", "redirected_statement",
))  # fmt: skip
_MULTILINE_KINDS = frozenset((
    "program", "list", "pipeline", "subshell", "compound_statement", "if_statement", "elif_clause", "else_clause",
    "while_statement", "for_statement", "do_group", "case_statement", "case_item", "function_definition",
    "negated_command", "command_substitution", "process_substitution", "test_command", "unary_expression",
    "binary_expression", "parenthesized_expression", "heredoc_redirect",
))  # fmt: skip
# What may be between nodes. Bash removes an escaped newline, so escaped newlines alone do not separate words
_LINE_GAP = re.compile(rb"(?!(?:\\\n)+\Z)(?:[ \t]|\\\n)*")
LOST_DASH = b" - "  # a `-` argument before a redirection, for which the grammar has no node
_MULTILINE_GAP = re.compile(rb"(?!(?:\\\n)+\Z)(?:[ \t\n]|\\\n)*")
_BEFORE_A_WORD = b" \t\n;&|()<>"
# The bytes that may be directly before or after a keyword; empty at the start or the end of the text
_KEYWORD_NEIGHBOURS = {b"", b"`", *(bytes((byte,)) for byte in _BEFORE_A_WORD)}
_KEYWORDS = ("!", "{", "}", "[[", "]]")
_DELIMITER = re.compile(rb"(['\"]?)([\w.-]+)\1")
_FORBIDDEN_AFTER_DELIMITER = re.compile(rb"<<|\$\(|`|\\\Z")
_RESERVED = frozenset(b"if then elif else fi do done case esac while until for select function { } ! [[ coproc".split())
_ASSIGNMENT_WORD = re.compile(rb"[A-Za-z_]\w*(\[.*\])?\+?=.*", re.DOTALL)  # an assignment, which is not a command name
_TEST_OPERATORS = frozenset(("[", "]", "=", "==", "!=", "!", "-a", "-o"))
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
            if text.strip(b" \t") != kind.encode() or (kind == "$" and _byte_after(node, source).strip(b" \t\n;|&)")):
                return False
            neighbours = {source[node.start_byte - 1 : node.start_byte], _byte_after(node, source)}
            if is_keyword and not neighbours <= _KEYWORD_NEIGHBOURS:
                return False
            continue
        if kind in _TEXT_PATTERNS:
            inner = [*_nested_nodes(node)]
            # In bash, a `#` begins a comment only at the start of a word.
            begins = text[:1] == b"#" and kind != "special_variable_name"
            is_comment = node.start_byte == 0 or source[node.start_byte - 1] in _BEFORE_A_WORD
            # In bash, digits right before a redirection are a file descriptor.
            is_descriptor = text.isdigit() and kind != "file_descriptor" and _byte_after(node, source) in (b"<", b">")
            if (
                not _TEXT_PATTERNS[kind].fullmatch(_with_nodes_blanked(inner, node.start_byte, node.end_byte, source))
                or (begins and is_comment is not (kind == "comment"))
                or is_descriptor
            ):
                return False
            waiting += inner
        elif kind == "heredoc_redirect":
            inner = _heredoc_nodes(node, source)
            if inner is None:
                return False
            waiting += inner
        elif (
            (kind != "concatenation" and kind not in _LINE_KINDS and kind not in _MULTILINE_KINDS)
            or not all(_gaps_fit(node, source))
            or not _is_usual(node, text)
        ):
            return False
        else:
            waiting += node.children
    return True


def _nested_nodes(node: Node) -> Iterator[Node]:
    """Yield the outermost expansions and substitutions in a node."""
    waiting = [*reversed(node.children)]
    while waiting:
        child = waiting.pop()
        if child.type in _NESTED_KINDS:
            yield child
        else:
            waiting += reversed(child.children)


def _with_nodes_blanked(inner: list[Node], start: int, end: int, source: bytes) -> bytes:
    """Return the text between two positions, with a NUL in place of each node of `inner`."""
    ends = [start, *(node.end_byte for node in inner)]
    starts = [*(node.start_byte for node in inner), end]
    return b"\0".join(source[first:last] for first, last in zip(ends, starts, strict=True))


def _gaps_fit(node: Node, source: bytes) -> Iterator[bool]:
    """Yield, for each gap between child nodes, whether bash separates or joins the nodes there as the grammar does."""
    children, kind = node.children, node.type
    separator = _LINE_GAP if kind in _LINE_KINDS else _MULTILINE_GAP
    yield bool(children) or kind == "program"
    if children and kind != "program":
        yield (children[0].start_byte, children[-1].end_byte) == (node.start_byte, node.end_byte)
    elif children:
        yield separator.fullmatch(source[: children[0].start_byte]) is not None
        yield separator.fullmatch(source[children[-1].end_byte :]) is not None
    for left, right in pairwise(children):
        gap = source[left.end_byte : right.start_byte]
        gap = b" " if gap == LOST_DASH and "redirect" in right.type else gap
        yield not gap if kind == "concatenation" else separator.fullmatch(gap) is not None
        if kind in ("command", "declaration_command", "unset_command"):
            yield bool(gap) or "redirect" in left.type + right.type
        elif kind == "file_redirect" and left.is_named and right.is_named:
            yield bool(gap)


def _byte_after(node: Node, source: bytes) -> bytes:
    return source[node.end_byte : node.end_byte + 1]


def _heredoc_nodes(node: Node, source: bytes) -> list[Node] | None:
    """Return the nodes in a here-document and on its first line, or `None` if it is unclear where bash ends it."""
    parts = {child.type: child for child in node.children}
    begin, end, body = (parts.get(f"heredoc_{part}") for part in ("start", "end", "body"))
    delimiter = _DELIMITER.fullmatch(begin.text or b"") if begin is not None else None
    if begin is None or end is None or body is None or delimiter is None:
        return None
    first = source.find(b"\n", begin.end_byte) + 1
    if not first or _FORBIDDEN_AFTER_DELIMITER.search(source[begin.end_byte : first - 1]):
        return None
    indent = rb"\t*" if "<<-" in parts else b""
    last = re.compile(rb"^%s%s$" % (indent, re.escape(delimiter[2])), re.MULTILINE).search(source, first)
    if last is None or last.end() != end.end_byte:
        return None
    beside = [child for child in node.children if begin.end_byte <= child.start_byte < first]
    if _with_nodes_blanked(beside, begin.end_byte, first - 1, source).strip(b" \t\0"):
        return None
    if delimiter[1]:
        return beside
    inner = [*_nested_nodes(body)]
    text = _with_nodes_blanked(inner, first, last.start(), source)
    if not _HEREDOC.fullmatch(text) or text.endswith(b"\\\n") or any(b"<<" in (child.text or b"") for child in inner):
        return None
    return [*beside, *inner]


def _is_usual(node: Node, text: bytes) -> bool:
    """Return True if bash reads a node as the grammar does, provided that this is true of the node's children."""
    match node.type:
        case "command":
            return node.children[0].text != b"time" or not any(child.text in _RESERVED for child in node.children)
        case "command_name":
            return text not in _RESERVED and not _ASSIGNMENT_WORD.fullmatch(text)
        case "redirected_statement":  # the command, if any, must precede the redirection
            first = node.children[0]
            return not first.type.endswith("_redirect") or len(node.children) == 1 == sum(
                child.is_named and child.type != "file_descriptor" for child in first.children
            )
        case "test_command":
            # Bash must take the operands of the test literally.
            width = len(node.children[0].type)
            if text[width : width + 1] not in (b" ", b"\t") or text[-width - 1 : -width] not in (b" ", b"\t"):
                return False
            # In bash, `[` is an ordinary command, so `<`, `&&` and newlines do not belong to its test.
            waiting, is_command = [*node.children], width == 1
            if is_command and b"\n" in text:
                return False
            while waiting:
                part = waiting.pop()
                if part.type.endswith("_expression"):
                    waiting += part.children
                    names = [child.text or b"" for child in part.children if child.type == "test_operator"]
                    operands = [child.text or b"" for child in part.children if child.type != "test_operator"]
                    if {b"-v", b"-R"} & {*names} and not all(map(_TEXT_PATTERNS["variable_name"].fullmatch, operands)):
                        return False
                    is_evaluated = not is_command and any(map(_EVALUATING.fullmatch, names))
                    if is_evaluated and not all(map(_NUMBER.fullmatch, operands)):
                        return False
                elif not part.is_named and is_command and part.type not in _TEST_OPERATORS:
                    return False
            return True
        case "command_substitution" if "`" in node.children[0].type:
            # Bash ends a backtick substitution at the very next backtick.
            return text.count(b"`") <= 2 and b"\\" not in text and b"<<" not in text
        case _:
            return not text.startswith((b"((", b"$(("))  # these begin an arithmetic evaluation
