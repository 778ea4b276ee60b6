"""Write docs/demo/demo.svg, a picture of the demo's question. `--check` only checks that it is current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path

DEMO = Path(__file__).resolve().with_name("run.py")
PICTURE = DEMO.with_name("demo.svg")

COLUMNS = 104
CELL = 7.9, 19  # pixels per character and per line, in the font below
MARGIN = 20
COLOURS = {
    r"== ": "#7ee0ff",
    r"\s+\$ |\s+> ": "#ffd479",
    r"\s+\| -": "#ff8f8f",
    r"\s+\| \+": "#93e6a0",
    r"\s+(\| |The (server|person) )": "#d3b8ff",
}
"""Colours for headings, calls, removed and added lines, and questions, by the start of a line; the first match wins."""


def main(arguments: list[str]) -> int:
    """Bring the picture up to date, or with `--check` return 1 if it is not."""
    svg = picture(excerpt(demo_output()))
    if arguments == ["--check"]:
        return int(not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != svg)
    PICTURE.write_text(svg, encoding="utf-8")
    return 0


def demo_output() -> str:
    """Return what the demo prints on a machine without settings or keys, with its folder replaced by `/tmp/demo`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        (place / "home").mkdir()
        variables = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "TMPDIR": str(place)}
        command = [sys.executable, "-P", str(DEMO)]
        result = subprocess.run(command, env=variables, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return re.sub(re.escape(str(place)) + r"/coretools-demo-\w+", "/tmp/demo", result.stdout)  # noqa: S108 - only shown


def excerpt(text: str) -> str:
    """Return the part of the demo to show: the edit, from its heading to the person's answer."""
    text = text[text.index("== Fix it") :]
    end = text.index("The person answers: once") + len("The person answers: once")
    return "\n".join(line for line in text[:end].splitlines() if line.strip(" |"))


def picture(text: str) -> str:
    """Return an SVG image of a terminal with this text."""
    rows = [
        row
        for line in text.strip("\n").splitlines()
        for row in textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 15, break_on_hyphens=False) or [""]
    ]
    width, height = round(COLUMNS * CELL[0] + 2 * MARGIN), len(rows) * CELL[1] + 2 * MARGIN
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img">',
        "<title>The question before an edit</title>",
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13" fill="#e6e6e6">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1c2128"/>',
    ]
    for number, row in enumerate(rows):
        colour = next((f' fill="{value}"' for start, value in COLOURS.items() if re.match(start, row)), "")
        bottom = MARGIN + number * CELL[1] + 14
        if row:
            elements.append(
                f'<text x="{MARGIN}" y="{bottom}" xml:space="preserve"{colour}>{escape(row, quote=False)}</text>'
            )
    return "\n".join([*elements, "</g>", "</svg>\n"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
