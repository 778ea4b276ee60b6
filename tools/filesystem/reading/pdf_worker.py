"""The text of a PDF, page by page: run as a script, in a process that can be killed at any time.

It is started by its path and without the import path of the server; of ours it imports only its limits. Standard input
is the file itself, open for reading, so no path is opened here. Arguments: the first page and the last one (from 1;
0 is the end), bytes of memory, seconds. Each line on standard output is one JSON object:

    {"pages": 12}                   how many there are, first of all
    {"page": 3, "text": "..."}      or {"page": 3, "failed": "broken"}, in order
    {"end": "done"}                 or why nothing more comes: encrypted, broken, memory, missing
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PdfReader

MAX_PAGE_CHARS = 500_000
"""Characters of one page that are passed on; a page of a book has about 3,000."""

NICENESS = 10
"""The server, which is waited for, comes first where processors are scarce."""

_NOT_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_ENDINGS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")


def main(first: int, last: int, memory: int, seconds: int) -> None:
    """Write the pages, and why no more of them come."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    from tools.filesystem.child_limits import limit_this_process  # noqa: PLC0415 - the path has to be known first

    if sys.platform != "win32":
        os.nice(NICENESS)
    limit_this_process(memory, seconds)
    try:
        end = _extract(first, last)
    except MemoryError:
        end = "memory"
    except Exception:  # noqa: BLE001 - a damaged file makes the library fail in any way
        end = "broken"
    _say({"end": end})


def _extract(first: int, last: int) -> str:
    try:
        import pypdf  # noqa: PLC0415 - the limits come first
    except ImportError:
        return "missing"
    import logging  # noqa: PLC0415 - pypdf has it by now

    logging.disable()
    _forbid_writing()
    reader = pypdf.PdfReader(sys.stdin.buffer)
    # Many documents are encrypted with an empty password, to say what a viewer should forbid.
    if reader.is_encrypted and not _opens_without_password(reader):
        return "encrypted"
    count = len(reader.pages)
    _say({"pages": count})
    for number in range(first, min(last or count, count) + 1):
        _say({"page": number, **_page(reader, number)})
    return "done"


def _opens_without_password(reader: PdfReader) -> bool:
    try:
        return bool(reader.decrypt(""))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - an unknown method, a missing cipher: it stays closed
        return False


def _page(reader: PdfReader, number: int) -> dict[str, Any]:
    try:
        text = reader.pages[number - 1].extract_text()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - one damaged page does not keep the others back
        return {"failed": "broken"}
    shown = _NOT_TEXT.sub("", _ENDINGS.sub("\n", text[:MAX_PAGE_CHARS]))
    return {"text": shown, "cut": len(text) > MAX_PAGE_CHARS}


def _say(message: dict[str, Any]) -> None:
    line = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(1)  # nobody listens any more


def _forbid_writing() -> None:
    """No file can grow from here on; before, the import may have cached its byte code."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not everywhere

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:5]))
