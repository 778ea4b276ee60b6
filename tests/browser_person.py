"""A browser for tests, with a person who does what the page asks: `BROWSER="PYTHON browser_person.py FILE %s"`.

Each address it is given is a line of FILE before it is looked at, so that tests count tabs; of a local page that leads
on by itself, it is where that leads. Redirects are followed with cookies, to the end.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import httpx2


def main() -> None:
    """Open one address."""
    tabs, address = sys.argv[1:]
    if address.startswith("file://"):
        page = Path(address.removeprefix("file://")).read_text(encoding="utf-8")
        (address,) = (html.unescape(found) for found in re.findall(r'content="0;url=([^"]*)"', page))
    with Path(tabs).open("a", encoding="utf-8") as file:
        file.write(f"{address}\n")
    with httpx2.Client(follow_redirects=True, timeout=60) as client:
        client.get(address)


if __name__ == "__main__":
    main()
