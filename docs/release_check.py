"""Check that release files agree, and that nothing is left to fill in. Prints a line per problem; exits with 1 if any.

python docs/release_check.py [FOLDER]     FOLDER is the checkout by default
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT, CHANGELOG, README = "pyproject.toml", "CHANGELOG.md", "README.md"
CODE = "server/__init__.py"
REGISTRY, IMAGE = "server.json", "Dockerfile"
MANIFEST, BUNDLE = "packaging/mcpb/manifest.json", "packaging/mcpb/pyproject.toml"
DESCRIPTIONS = (PYPROJECT, CODE, README, CHANGELOG, REGISTRY, MANIFEST, BUNDLE, IMAGE)
"""The files that describe a release."""

PLACEHOLDER = re.compile(r"example\.invalid|\bOWNER\b")
"""Placeholders for the repository's address and the publisher."""


def main(arguments: list[str]) -> int:
    """Print what blocks a release, and return 1 if anything does."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    texts = {name: (root / name).read_text(encoding="utf-8") for name in DESCRIPTIONS}
    problems = [*disagreements(texts), *placeholders(texts)]
    print("".join(f"{problem}\n" for problem in problems), end="")
    return 1 if problems else 0


def disagreements(texts: dict[str, str]) -> Iterator[str]:
    """Yield the disagreements between files."""
    project: dict[str, Any] = tomllib.loads(texts[PYPROJECT])["project"]
    registry, manifest = json.loads(texts[REGISTRY]), json.loads(texts[MANIFEST])
    bundle: dict[str, Any] = tomllib.loads(texts[BUNDLE])["project"]
    (package,) = registry["packages"]
    (dependency,) = bundle["dependencies"]
    version, name, address = project["version"], project["name"], project["urls"]["Repository"]
    server_name = registry["name"]
    for label, value, expected in (
        (f"the newest version in {CHANGELOG}", _first(r"^## \[(\d.*?)\]", texts[CHANGELOG]), version),
        (f"the version in {CODE}", _first(r'^VERSION = "(.*?)"', texts[CODE]), version),
        (f"the version in {REGISTRY}", registry["version"], version),
        (f"the version of the package in {REGISTRY}", package["version"], version),
        (f"the version in {MANIFEST}", manifest["version"], version),
        (f"the version in {BUNDLE}", bundle["version"], version),
        (f"what {BUNDLE} installs", dependency, f"{name}[full]=={version}"),
        (f"the package in {REGISTRY}", package["identifier"], name),
        (f"the name in {MANIFEST}", manifest["name"], name),
        (f"the name in {REGISTRY}, behind the slash", server_name.rpartition("/")[2], name),
        (f"the mcp-name in {README}", _first(r"<!-- mcp-name: (\S+) -->", texts[README]), server_name),
        (f"the label in {IMAGE}", _first(r'server\.name="(.*?)"', texts[IMAGE]), server_name),
        (f"the repository in {REGISTRY}", registry["repository"]["url"], address),
        (f"the repository in {MANIFEST}", manifest["repository"]["url"], address),
    ):
        if value != expected:
            yield f"{label} is '{value}'; it must be '{expected}'"


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else "not there"


def placeholders(texts: dict[str, str]) -> Iterator[str]:
    """Yield the places where the address or the owner is still missing."""
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            if PLACEHOLDER.search(line):
                yield f"{name}:{number} has a placeholder: {line.strip()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
