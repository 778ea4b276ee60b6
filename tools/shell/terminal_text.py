"""What a command printed, as text: colours and cursor movements gone, overwritten parts dropped, the rest visible.

Made for the few hundred kilobytes that are kept of an output, never for all of it.
"""

from __future__ import annotations

import re

from tools.contract.display import visible

MAX_UTF8_BYTES = 4
# What follows the beginning of a control string, up to its end or, where it has none, up to the end of the line.
_STRING = r"[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
_ERASE_LINE = "\ud800"
# Stand for the two sequences that erase text, while lines are put together. No decoded text has lone surrogates.
_ERASE_REST = "\ud801"
_ERASING = re.compile(r"\x1b\[([02]?)K")
# CSI, then OSC, DCS, SOS, PM and APC, then all shorter ones; each also by its one-character form. Unterminated ones are
# taken as far as they go.
_SEQUENCE = re.compile(
    rf"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_]{_STRING}|[ -/]*[0-~]?)"
    rf"|\x9b[0-?]*[ -/]*[@-~]?"
    rf"|[\x90\x98\x9d-\x9f]{_STRING}"
)
# A line of which parts were overwritten or erased.
_OVERWRITTEN = re.compile(r"(?m)^[^\n\r\x08\ud800\ud801]*[\r\x08\ud800\ud801][^\n]*")
_PLAIN = bytes([*b"\t\n", *range(0x20, 0x7F)])  # the bytes of a text that needs no work
_RUN = re.compile(r"\x08+|[^\x08]+")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\r\n]*\x1b?|[ -/]*)\Z")
LONGEST_SEQUENCE = 256  # bytes of an escape sequence at the end of an output that are waited for; real ones are shorter


def plain_text(data: bytes) -> str:
    """The text that a person would find on a terminal, line by line.

    Bytes that are not UTF-8 become U+FFFD. What a carriage return, an erased line or a backspace took away is left out.
    All other characters that cannot be seen become visible marks.
    """
    odd = data.translate(None, _PLAIN)
    if not odd:
        return data.decode("ascii")
    text = data.decode("utf-8", "replace")
    if b"\x1b" in odd or b"\xc2" in odd:
        marked = _ERASING.sub(lambda found: _ERASE_LINE if found[1] == "2" else _ERASE_REST, text)
        text = _SEQUENCE.sub("", marked)
    if b"\r" in odd or b"\x08" in odd or b"\x1b" in odd:
        text = _OVERWRITTEN.sub(_as_on_a_terminal, text.replace("\r\n", "\n"))
    return visible(text)


def _as_on_a_terminal(found: re.Match[str]) -> str:
    """One line, written from its beginning again after each carriage return."""
    shown = ""
    for written in reversed(found[0].split("\r")):
        text = written.rpartition(_ERASE_LINE)[2]
        if "\b" in text:
            characters: list[str] = []
            for run in _RUN.findall(text.replace(_ERASE_REST, "")):
                if run[0] == "\b":
                    del characters[max(len(characters) - len(run), 0) :]
                else:
                    characters.extend(run)
            kept = "".join(characters)
        else:
            kept = text.replace(_ERASE_REST, "")
        if len(kept) > len(shown):
            shown += kept[len(shown) :]
        if _ERASE_LINE in written or _ERASE_REST in text:
            # What was written before lies under an erased rest.
            break
    return shown


def whole_characters(data: bytes) -> bytes:
    """The bytes without those at the end that begin a character or an escape sequence and do not finish it."""
    end = len(data)
    for back in range(1, min(MAX_UTF8_BYTES, end + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        end -= back if length > back else 0
        break
    unfinished = _UNFINISHED.search(data, max(0, end - LONGEST_SEQUENCE), end)
    return data[: unfinished.start() if unfinished else end]


def from_whole_character(data: bytes) -> bytes:
    """The bytes without those at the beginning that belong to a character whose beginning is missing."""
    start = 0
    while start < min(MAX_UTF8_BYTES - 1, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
