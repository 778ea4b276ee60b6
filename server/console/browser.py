"""Opens a link in the user's browser without showing it to other users."""

from __future__ import annotations

import html
import os
import webbrowser
from contextlib import suppress


def open_in_browser(link: str, file: str) -> bool:
    """Open a link in the browser through a private file, and return whether that worked.

    The link is not passed as an argument, because other users can see a program's arguments. The caller removes the
    file once the browser has read it.
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
