"""Points hostile cases at any MCP server, and prints how each one ends.

    python -m tests.hostile --target 'COMMAND' | URL [--workspace DIR] [--only GROUP,...]

In COMMAND `{ws}` stands for a workspace that is made, `{out}` for a folder beside it, `{upstream}` for a file with
`mcpServers`, `{port}` for that of a web server. A server behind a URL is told where its workspace is by `--workspace`.
Besides the standard library this needs the MCP SDK alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.hostile.any_server import table
from tests.hostile.any_server.run import FAILED, GROUPS, Target, run
from tests.hostile.any_server.wire import LostError, NoAnswerError


def main() -> int:
    """Run the cases; 1 if one failed, 2 if the server cannot be reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description="Hostile cases for any MCP server.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--target", metavar="COMMAND|URL", help="the server")
    what.add_argument("--page", type=Path, nargs="+", metavar="FILE", help="print a page of saved runs")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="the workspace of a server behind a URL")
    parser.add_argument("--only", default=",".join(GROUPS), metavar="GROUP,...", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON that goes into the file of {upstream}")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the run for --page")
    parser.add_argument("--shown-as", default="", metavar="TEXT", help="the command, as a page shows it")
    parser.add_argument("--version", default="", metavar="TEXT", help="the version, as a page shows it")
    chosen = parser.parse_args()
    if chosen.page:
        sys.stdout.write(table.page(chosen.page))
        return 0
    is_url = chosen.target.startswith(("http://", "https://"))
    settings = chosen.settings.read_text() if chosen.settings else "{}"
    command, url = (None, chosen.target) if is_url else (chosen.target, None)
    target = Target(command, url, chosen.workspace, settings)
    try:
        report = run(target, chosen.only.split(","), lambda outcome: print(table.row(outcome), flush=True))  # noqa: T201
    except (LostError, NoAnswerError, OSError, ExceptionGroup) as error:
        sys.stderr.write(f"The server did not start, or not again: {error}\n")
        return 2
    if chosen.save:
        table.save(report, chosen.shown_as or chosen.target, chosen.version, chosen.save)
    print(table.summary(report))  # noqa: T201
    return 1 if report.count(FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
