"""Finds the package that a command fetches, and whether its version is pinned. An unpinned package may change."""

from __future__ import annotations

import re
from collections.abc import Sequence

_VERSION = re.compile(r"v?\d+(?:\.\d+)+(?:[-+.]?[0-9A-Za-z]+)*")  # one version: no range, tag or wildcard
_COMMIT = re.compile(r"[#@][0-9a-f]{40}$")
_PLACE = re.compile(r"[./~\\]|[A-Za-z]:[\\/]|file:")  # the start of a local path, so nothing is downloaded
_ADDRESS = re.compile(r"[a-z+]+://|(?:git|github|gitlab|gist|bitbucket):|[\w.-]+/[\w.-]+$")
_ENDINGS = re.compile(r"\.(?:cmd|exe|bat|ps1)$", re.IGNORECASE)

_NPM_OPTIONS = frozenset(("-c", "--call", "--registry", "--cache", "--userconfig", "--prefix", "-w", "--workspace"))
_UV_OPTIONS = frozenset(
    (
        *("-p", "--python", "--with", "--with-editable", "--with-requirements", "-i", "--index-url", "--index"),
        *("--extra-index-url", "--default-index", "--find-links", "-f", "--directory", "--env-file", "-c"),
    )
)
# For each command that fetches a package: the options that name the package, and the other options that take a value.
_RUNNERS: dict[tuple[str, ...], tuple[frozenset[str], frozenset[str]]] = {
    **dict.fromkeys(
        (("npx",), ("pnpx",), ("bunx",), ("npm", "exec"), ("npm", "x"), ("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x")),
        (frozenset(("-p", "--package")), _NPM_OPTIONS),
    ),
    **dict.fromkeys((("uvx",), ("uv", "tool", "run")), (frozenset(("--from",)), _UV_OPTIONS)),
    ("pipx", "run"): (frozenset(("--spec",)), frozenset(("--python", "-i", "--index-url", "--pip-args", "--with"))),
}


def unpinned_package(command: str | None, args: Sequence[str]) -> str | None:
    """Return the first package that a command fetches without a pinned version; `None` if there is none."""
    words = [_ENDINGS.sub("", re.split(r"[\\/]", command or "")[-1]).lower(), *args]
    if words[0] in ("cmd", "env"):  # these run another program, named in their arguments
        rest = words[1:]
        while rest and (rest[0].startswith(("/", "-")) or "=" in rest[0]):
            rest.pop(0)
        return unpinned_package(rest[0], rest[1:]) if rest else None
    runner = next((runner for runner in _RUNNERS if tuple(words[: len(runner)]) == runner), None)
    if runner is None:
        return None
    naming, valued = _RUNNERS[runner]
    named: list[str] = []
    rest = words[len(runner) :]
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            named = named or [word]  # if options have named the package, this word is a command in it
            break
        if option in naming and (equals or rest):
            named.append(value if equals else rest.pop(0))
        elif option in valued and not equals and rest:
            rest.pop(0)
    return next((package for package in named if not _is_pinned(package)), None)


def _is_pinned(package: str) -> bool:
    if _PLACE.match(package) or _COMMIT.search(package):
        return True
    if not package.startswith("@") and _ADDRESS.match(package):
        return False
    _, separator, version = package[1:].replace("==", "@", 1).rpartition("@")
    return bool(separator) and _VERSION.fullmatch(version) is not None
