"""A browser for tests that does what each page asks: `BROWSER="PYTHON browser_person.py FILE %s"`.

Each address is added to FILE as a line before it is opened, so that tests can count tabs. For a local page that
redirects, the target is added and opened. HTTP redirects are followed, with cookies.
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
        (address,) = (html.unescape(target) for target in re.findall(r'content="0;url=([^"]*)"', page))
    with Path(tabs).open("a", encoding="utf-8") as file:
        file.write(f"{address}\n")
    with httpx2.Client(follow_redirects=True, timeout=60) as client:
        client.get(address)


if __name__ == "__main__":
    main()
