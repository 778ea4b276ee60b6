"""Renders text as a terminal would finally show it, without colours or overwritten text."""

from __future__ import annotations

import re

# The rest of a control string, up to its terminator or else the end of the line.
_STRING = r"[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
# The first line matches CSI sequences, then OSC, DCS, SOS, PM and APC strings, then all shorter sequences. The other
# lines match the 8-bit forms of CSI sequences and of control strings. If a sequence is not terminated, the part that
# matches is removed.
_SEQUENCE = (
    rf"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_]{_STRING}|[ -/]*[0-~]?)"
    rf"|\x9b[0-?]*[ -/]*[@-~]?"
    rf"|[\x90\x98\x9d-\x9f]{_STRING}"
)
# Sequences that move the cursor or erase text. The groups are the number and the final character, which is the kind.
_MOVING = r"(?:\x1b\[|\x9b)(\d{0,4})([ABDEFGJK])"
_STEP = re.compile(rf"(\n)|(\r)|(\x08+)|{_MOVING}|{_SEQUENCE}|([^\n\r\x08\x1b\x90\x98\x9b\x9d-\x9f]+)")
_OVER = re.compile(rf"[\r\x08]|{_MOVING}")
_SEQUENCES = re.compile(_SEQUENCE)


def terminal_text(text: str) -> str:
    """Return the lines that a person would see on a terminal of unlimited size."""
    text = text.replace("\r\n", "\n")
    if _OVER.search(text) is None:
        return _SEQUENCES.sub("", text)
    lines: list[list[str]] = [[]]
    row = column = 0
    for step in _STEP.finditer(text):
        ending, start, back, number, kind, characters = step.groups()
        if characters:
            line = lines[row]
            column = min(column, len(line))  # no spaces are added, because a program could move the cursor very far
            line[column : column + len(characters)] = characters
            column += len(characters)
        elif ending:
            row, column = row + 1, 0
            if row == len(lines):
                lines.append([])
        elif start:
            column = 0
        elif back:
            column = max(0, column - len(back))
        elif kind == "K":
            column = 0 if number == "2" else column
            if number in {"", "0", "2"}:
                del lines[row][column:]
        elif kind == "J":
            if number in {"", "0"}:
                del lines[row][column:], lines[row + 1 :]
        elif kind:
            count = int(number or 0) or 1
            if kind in "DG":
                column = max(0, column - count) if kind == "D" else count - 1
            else:
                row = min(max(0, row - count if kind in "AF" else row + count), len(lines) - 1)
                column = 0 if kind in "EF" else column
    return "\n".join(map("".join, lines))
