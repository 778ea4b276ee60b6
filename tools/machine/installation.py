"""How to add an extra to the current installation of this package. Imported only when needed."""

from __future__ import annotations

import json
import os
import shlex
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "coretools-mcp"  # the name of the package


def install_command(extra: str) -> str:
    """Return the command that adds an extra, using the installer and the source of the current installation."""
    origin: dict[str, Any] = {}
    with suppress(PackageNotFoundError):  # run from a checkout that is not installed
        origin = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    url, vcs = str(origin.get("url", "")), origin.get("vcs_info")
    requirement = f"{NAME}[{extra}]"
    option = ""
    if vcs:
        revision = vcs.get("requested_revision")
        requirement += f" @ {vcs['vcs']}+{url}{f'@{revision}' if revision else ''}"
    elif origin.get("dir_info") is not None:
        option = "-e " if origin["dir_info"].get("editable") else ""
        requirement = f"{unquote(urlsplit(url).path)}[{extra}]"
    elif url:
        requirement += f" @ {url}"
    folders = os.path.normpath(sys.prefix).split(os.sep)
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    installer = "pipx install --force" if "pipx" in folders else "uv tool install --force" if "uv" in folders else pip
    return f"{installer} {option}{shlex.quote(requirement)}"
