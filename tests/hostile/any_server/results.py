"""Installs other servers, runs the hostile cases against them and this one, and writes docs/hostile-results.md.

python -m tests.hostile.any_server.results [FOLDER]

It takes half an hour, needs npm, and installs into FOLDER, by default ~/.cache/coretools-mcp-peers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.hostile.any_server.table import page

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "hostile-results.md"
NPM = {"@modelcontextprotocol/server-filesystem": "2026.8.31", "@wonderwhy-er/desktop-commander": "0.2.52"}
FASTMCP = "4.2.3"
# One allowed folder, a few of the usual blocked commands, no telemetry. The server has no options for these settings.
COMMANDER = """#!/bin/sh
mkdir -p "$HOME/.claude-server-commander"
printf '{"allowedDirectories": ["%s"], "blockedCommands": ["dd", "sudo", "su"], "telemetryEnabled": false}' "$1" \\
    > "$HOME/.claude-server-commander/config.json"
exec "$(dirname "$0")/node_modules/.bin/desktop-commander"
"""


def install(folder: Path) -> None:
    """Install the other servers, in the versions that the page shows."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = [f"{name}@{version}" for name, version in NPM.items()]
    quiet = {**os.environ, "PUPPETEER_SKIP_DOWNLOAD": "1"}
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *packages], check=True, env=quiet)
    subprocess.run([sys.executable, "-m", "venv", folder / "fastmcp"], check=True)
    subprocess.run([folder / "fastmcp/bin/pip", "install", "--quiet", f"fastmcp=={FASTMCP}"], check=True)
    starter = folder / "desktop-commander.sh"
    starter.write_text(COMMANDER)
    starter.chmod(0o755)


def main() -> None:
    """Run the cases against one server after the other, and write the page."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path.home() / ".cache" / "coretools-mcp-peers").resolve()
    install(folder)
    settings = str(Path(__file__).with_name("ours.json"))
    ours = "--workspace {ws} --config {upstream}"
    runs: list[tuple[str, str, str, Sequence[str]]] = [
        (f"coretools-mcp {ours}", f"{sys.executable} -P -m coretools_mcp {ours}", "", ("--settings", settings)),
        ("mcp-server-filesystem {ws}", f"{folder}/node_modules/.bin/mcp-server-filesystem {{ws}}", "2026.8.31", ()),
        ("desktop-commander", f"{folder}/desktop-commander.sh {{ws}}", "0.2.52", ()),
        (
            "fastmcp run {upstream}",
            f"{folder}/fastmcp/bin/fastmcp run --no-banner {{upstream}}",
            FASTMCP,
            ("--only", "protocol,proxy"),
        ),
    ]
    paths: list[Path] = []
    for number, (shown_as, command, version, options) in enumerate(runs):
        paths.append(folder / f"run{number}.json")
        arguments = ["--target", command, "--shown-as", shown_as, "--version", version, "--save", str(paths[-1])]
        subprocess.run([sys.executable, "-m", "tests.hostile", *arguments, *options], cwd=ROOT, check=False)
    PAGE.write_text(page(paths))


if __name__ == "__main__":
    main()
