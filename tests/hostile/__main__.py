"""Points hostile cases at any MCP server, and prints how each one ends.

    python -m tests.hostile --target 'COMMAND' | URL [--workspace DIR] [--only GROUP,...]

In COMMAND `{ws}` stands for a workspace that is made, `{out}` for a folder beside it, `{upstream}` for a file with
`mcpServers`. A server behind a URL is told where its workspace is by `--workspace`. Besides the standard library this
needs the MCP SDK alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.hostile.any_server.run import FAILED, GROUPS, Target, run
from tests.hostile.any_server.table import row, summary


def main() -> int:
    """Run the cases; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description="Hostile cases for any MCP server.")
    parser.add_argument("--target", required=True, metavar="COMMAND|URL", help="the server")
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="the workspace of a server behind a URL")
    parser.add_argument("--only", default=",".join(GROUPS), metavar="GROUP,...", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON that goes into the file of {upstream}")
    chosen = parser.parse_args()
    is_url = chosen.target.startswith(("http://", "https://"))
    settings = chosen.settings.read_text() if chosen.settings else "{}"
    command, url = (None, chosen.target) if is_url else (chosen.target, None)
    target = Target(command, url, chosen.workspace, settings)
    report = run(target, chosen.only.split(","), lambda outcome: print(row(outcome), flush=True))  # noqa: T201
    print(summary(report))  # noqa: T201
    return 1 if report.count(FAILED) else 0


if __name__ == "__main__":
    sys.exit(main())
