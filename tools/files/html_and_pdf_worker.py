"""Extracts the text of a PDF file or web page. The document may be built to exhaust time and memory.

This module runs as a script, in a process that can be killed at any time and has none of the server's environment.
`child_process.py` starts it. The arguments are the kind of document, the memory limit in bytes, the time limit in
seconds, and then arguments that depend on the kind. Standard input is the document itself, so no path is opened here.
Each line of standard output is a JSON object.

`pdf FIRST LAST` (page numbers from 1; a LAST of 0 means the last page of the file) writes

    {"pages": 12}                   the number of pages, before anything else
    {"page": 3, "text": "...", "cut": false}    or {"page": 3, "failed": "broken"}, in order
    {"end": "done"}                 or why reading stopped: encrypted, broken, memory, missing (no PDF library)

`html URL` (with an empty URL, the text has no links) writes

    {"title": "...", "text": "...", "is_partial": false, "hides": false, "refresh": [], "frames": [], "end": "done"}

Here `is_partial` means that deeply nested elements are missing, and `hides` means that text hidden on the page is left
out. `refresh` lists the contents of meta refreshes, and `frames` lists the URLs of frames.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from html_to_markdown import ConversionResult


MAX_PAGE_CHARS = 500_000  # characters per PDF page in the output; a book page has about 3,000
MAX_GROWTH = 8  # if the text is this many times as long as the page (due to a long `<base>`), links are dropped
FREE_CHARS = 100_000  # text up to this length always keeps its links
# Elements of a page that are not content
NOISE = (
    "nav", "[role=navigation]", "button", "select", "textarea", "iframe", "svg", "template", "[aria-hidden=true]",
)  # fmt: skip
HIDDEN = ("template", "[aria-hidden=true]")  # elements with text that a page may show later, or to some users
MAX_TRIED = 2_000_000  # pages with more characters are not converted a second time to find hidden text
MAX_TARGETS = 10  # maximum number of meta refreshes, and of frames, in the output
NICENESS = 10  # lower priority than the server, because many clients wait for the server
_NOT_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_ENDINGS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# Markup that may hide text; a second conversion finds out whether it does
_MAY_HIDE = re.compile(
    r"\shidden[\s=>/]|visibility\s{0,9}:\s{0,9}(?:hidden|collapse)|display\s{0,9}:\s{0,9}none|<template\b|aria-hidden",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"<(?:(!--)|(script|style|template)\b|(meta|i?frame)\b([^<>]{0,4000})>)", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([a-z-]{1,20})\s{0,9}=\s{0,9}(?:"([^"]*)"|'([^']*)'|([^\s"']+))""", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^>]*>(.{0,2000}?)</title", re.IGNORECASE | re.DOTALL)


def main(kind: str, memory: int, seconds: int, *arguments: str) -> None:
    """Limit this process, then write the text of the document, and the reason why reading stopped."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - exists only on POSIX
        import signal  # noqa: PLC0415 - needed only here

        # The alarm and the limits stop this process even if no parent is left to kill it.
        os.nice(NICENESS)
        signal.alarm(seconds + 1)
        limits = ((resource.RLIMIT_CPU, seconds + 1), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory))
        for resource_type, limit in limits:
            # macOS defines `RLIMIT_AS` but does not accept it.
            with suppress(OSError, ValueError):
                resource.setrlimit(resource_type, (limit, limit))
    try:
        for message in _READERS[kind](*arguments):
            _write_message(message)
    except MemoryError:
        _write_message({"end": "memory"})
    except Exception:  # noqa: BLE001 - a damaged document can make a library raise anything
        _write_message({"end": "broken"})


def pdf(first: str, last: str) -> Iterator[dict[str, Any]]:
    try:
        import pypdf  # noqa: PLC0415 - loaded only after the limits are set
    except ImportError:
        yield {"end": "missing"}
        return
    import logging  # noqa: PLC0415 - already imported by pypdf

    logging.disable()
    _forbid_writing()
    reader = pypdf.PdfReader(sys.stdin.buffer)
    if reader.is_encrypted:
        # Many documents have an empty password, because they are encrypted only to restrict viewers.
        try:
            is_open = bool(reader.decrypt(""))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the encryption method may be unknown, or its cipher missing
            is_open = False
        if not is_open:
            yield {"end": "encrypted"}
            return
    count = len(reader.pages)
    yield {"pages": count}
    for number in range(int(first), min(int(last) or count, count) + 1):
        try:
            text = reader.pages[number - 1].extract_text()
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - a damaged page must not hide the others
            yield {"page": number, "failed": "broken"}
            continue
        clean_text = _NOT_TEXT.sub("", _ENDINGS.sub("\n", text[:MAX_PAGE_CHARS]))
        yield {"page": number, "text": clean_text, "cut": len(text) > MAX_PAGE_CHARS}
    yield {"end": "done"}


def _forbid_writing() -> None:
    """Forbid writing to files. Must be called after the imports, which may write bytecode to a cache."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - exists only on POSIX

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def html(url: str) -> Iterator[dict[str, Any]]:
    from html import unescape  # noqa: PLC0415 - loaded only after the limits are set

    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert  # noqa: PLC0415

    _forbid_writing()
    page = sys.stdin.buffer.read().decode("utf-8", "replace")

    def convert_page(**extra_options: Any) -> ConversionResult:
        options = ConversionOptions(
            bullets="-",
            compact_tables=True,
            highlight_style="none",
            autolinks=False,
            extract_metadata=False,
            inline_data_media="alt_text_only",
            # Some frameworks put the whole page into one form.
            preprocessing=PreprocessingOptions(remove_navigation=False, remove_forms=False),
            **extra_options,
        )
        return convert(page, options)

    link_options = {"base_url": url} if url else {"output_format": "plain"}
    result = convert_page(**link_options, exclude_selectors=list(NOISE))
    hides = False
    if not (result.content or "").strip():
        # The whole page, with its navigation and hidden text, is better than no text.
        result = convert_page(**link_options, hidden_content="all")
    elif len(page) <= MAX_TRIED and time.process_time() < 1 and _MAY_HIDE.search(page):
        visible_noise = [selector for selector in NOISE if selector not in HIDDEN]
        whole_page = convert_page(**link_options, exclude_selectors=visible_noise, hidden_content="all")
        hides = whole_page.content != result.content
    if len(result.content or "") > MAX_GROWTH * len(page) + FREE_CHARS:
        result = convert_page(output_format="plain", exclude_selectors=list(NOISE))
    title = _TITLE.search(page)
    yield {
        "title": " ".join(unescape(title[1]).split()) if title else "",
        "text": (result.content or "").strip("\n"),
        "is_partial": bool(result.warnings),
        "hides": hides,
        **_refreshes_and_frames(page),
        "end": "done",
    }


def _refreshes_and_frames(page: str) -> dict[str, list[str]]:
    """Find what a page loads on its own: the contents of its meta refreshes, and the URLs of its frames."""
    from html import unescape  # noqa: PLC0415 - loaded only after the limits are set

    targets: dict[str, dict[str, None]] = {"refresh": {}, "frames": {}}
    lower, end = page.lower(), 0
    for match in _MARKUP.finditer(page):
        if match.start() < end:
            continue
        comment, raw_element, tag, attributes_text = match.groups()
        if tag is None:
            end = lower.find("-->" if comment else f"</{raw_element.lower()}", match.end())
            if end < 0:
                break
            continue
        attributes = {
            part[1].lower(): unescape(part[2] or part[3] or part[4] or "")
            for part in _ATTRIBUTE.finditer(attributes_text)
        }
        if tag.lower() != "meta":
            targets["frames"][attributes.get("src", "").strip()] = None
        elif attributes.get("http-equiv", "").strip().lower() == "refresh":
            targets["refresh"][attributes.get("content", "").strip()] = None
    return {kind: list(filter(None, found_targets))[:MAX_TARGETS] for kind, found_targets in targets.items()}


def _write_message(message: dict[str, Any]) -> None:
    line = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(1)  # there is no longer a reader


_READERS = {"pdf": pdf, "html": html}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
