"""Write the table of tools into README.md, from the tools themselves. `--check` only says whether it is current."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tools.builtins import builtin_tools
from tools.contract.base import BaseTool

README = Path(__file__).resolve().parent.parent / "README.md"
TABLE = re.compile(r"(<!-- tools:begin[^\n]*-->\n).*?(<!-- tools:end -->)", flags=re.DOTALL)


def main(arguments: list[str]) -> int:
    """Bring the table up to date, or with `--check` return 1 if it is not."""
    before = README.read_text(encoding="utf-8")
    after = TABLE.sub(lambda markers: f"{markers[1]}{table()}{markers[2]}", before)
    if arguments == ["--check"]:
        return int(after != before)
    README.write_text(after, encoding="utf-8")
    return 0


def table() -> str:
    """The table in Markdown: each tool, what it does in a sentence, and whether a person is asked first."""
    rows = ["| tool | what it does | asked first |", "| --- | --- | --- |"]
    for tool in builtin_tools():
        sentence = re.split(r"(?<=[.:])\s", tool.description.strip(), maxsplit=1)[0].rstrip(".:").replace("|", "\\|")
        asks = type(tool).should_confirm_execute is not BaseTool[Any].should_confirm_execute
        rows.append(f"| `{tool.name}` | {sentence} | {'yes' if asks else 'no'} |")
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
