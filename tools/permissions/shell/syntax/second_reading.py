"""A second opinion on where commands begin: the grammar of tree-sitter, held against our own reading.

Where two readings of a text differ, one of them is wrong about what a shell would do, so nobody vouches for the text.
The grammar takes quadratic time and memory on some long texts with errors; it gets only short texts that our own
reading follows.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from tools.permissions.shell.syntax.words import names

if TYPE_CHECKING:
    from tree_sitter import Parser

MAX_CHARS = 16_384
MAX_COMMANDS = 1_000  # a pipeline of more commands than these takes the grammar too long
_COMMANDS = names("command_name declaration_command unset_command test_command")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


@cache
def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - loaded at the first command
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def beginnings(text: str) -> set[int] | None:
    """Where commands begin in a text, by the grammar; `None` if it finds an error in it."""
    # A shell cares for no character beyond ASCII, and so each place is one byte.
    tree = _parser().parse(_NOT_ASCII.sub("x", text).encode())
    if tree.root_node.has_error:
        return None
    cursor = tree.walk()
    found: set[int] = set()
    while True:
        node = cursor.node
        if node is not None and node.type in _COMMANDS and not text.startswith("((", node.start_byte):
            found.add(node.start_byte)
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return found
