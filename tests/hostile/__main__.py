"""Runs hostile cases against any MCP server, and prints how each one ends.

    python -m tests.hostile --target 'COMMAND' | URL [--workspace DIR] [--only GROUP,...]

In COMMAND, `{ws}` stands for a workspace that is created, `{out}` for a folder next to it, `{upstream}` for a file with
`mcpServers`, and `{port}` for the port of a web server. `--workspace` names the workspace of a server behind a URL.
Apart from the standard library, only the MCP SDK is needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.hostile.any_server import table
from tests.hostile.any_server.run import FAILED, GROUPS, Target, run
from tests.hostile.any_server.wire import LostError, NoAnswerError


def main() -> int:
    """Run the cases. Return 1 if one failed, and 2 if the server cannot be reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description="Hostile cases for any MCP server.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--target", metavar="COMMAND|URL", help="the server")
    source.add_argument("--page", type=Path, nargs="+", metavar="FILE", help="print a page of saved runs")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="the workspace of a server behind a URL")
    parser.add_argument(
        "--only", default=",".join(GROUPS), metavar="GROUP,...", help=f"groups of cases: {', '.join(GROUPS)}"
    )
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON that is added to the {upstream} file")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the run for --page")
    parser.add_argument("--shown-as", default="", metavar="TEXT", help="the command that a page shows")
    parser.add_argument("--version", default="", metavar="TEXT", help="the version that a page shows")
    options = parser.parse_args()
    if options.page:
        sys.stdout.write(table.page(options.page))
        return 0
    is_url = options.target.startswith(("http://", "https://"))
    settings = options.settings.read_text() if options.settings else "{}"
    command, url = (None, options.target) if is_url else (options.target, None)
    target = Target(command, url, options.workspace, settings)
    try:
        report = run(target, options.only.split(","), lambda outcome: print(table.row(outcome), flush=True))  # noqa: T201
    except (LostError, NoAnswerError, OSError, ExceptionGroup) as error:
        sys.stderr.write(f"The server did not start or restart: {error}\n")
        return 2
    if options.save:
        table.save(report, options.shown_as or options.target, options.version, options.save)
    print(table.summary(report))  # noqa: T201
    return 1 if report.count(FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
