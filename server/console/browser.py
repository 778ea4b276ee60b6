"""Opening a link in the person's browser, so that nobody else sees it."""

from __future__ import annotations

import html
import os
import webbrowser
from contextlib import suppress


def open_in_browser(link: str, file: str) -> bool:
    """Have the browser opened at a link, which it is given by a file that only we may read; whether that was possible.

    Others see the arguments of programs. The file is for the caller to remove, once the browser has read it.
    """
    content = (
        f'<!doctype html><title>coretools-mcp</title><meta http-equiv="refresh" content="0;url={html.escape(link)}">'
    )
    with suppress(OSError, webbrowser.Error):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(content)
        return webbrowser.open(f"file://{file}")
    return False
