"""The entry point of the command. Makes sure that no other project's code is imported, then runs the command line.

`server` and `tools` are common folder names, and an IDE may start this program in the folder of an untrusted project.
So before importing anything, this module removes that folder from the import path, and loads the two packages from its
own folder. Nothing imports this module; only the console script and `python -m coretools_mcp` start it.
"""
# ruff: noqa: PLC0415 - Imports wait until the path is clean. `sys` and `os` are already loaded at startup.
# `from __future__ import annotations` would be an import too, so this module does without it.

import os
import sys

PACKAGES = ("tools", "server")
"""The project's import packages, which are next to this file in a checkout and in an installation."""


def main() -> int:
    """Run the command line in `sys.argv` and return its exit code."""
    try:
        _open_missing_streams()
        home = os.path.dirname(os.path.realpath(__file__))
        sys.path[:] = _trusted(sys.path, home)
        for name in PACKAGES:
            _load_package(name, home)
        if sys.argv[1:] in (["--version"], ["-V"], ["version"]):
            from server import VERSION

            try:
                sys.stdout.write(f"coretools-mcp {VERSION}\n")
                sys.stdout.flush()
            except OSError:
                pass  # `server.cli` below reports what is wrong with the output
            else:
                return 0
        from server.cli import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("\rcoretools-mcp: interrupted\n")
        return 130


def _open_missing_streams() -> None:
    """Open the standard descriptors that the parent left closed, before other files take their numbers."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115 - open until the process ends


def _trusted(path: list[str], home: str) -> list[str]:
    """Return the import path without the working directory and without entries of `PYTHONPATH` inside it.

    Relative entries always mean folders inside the working directory. The folder of this file stays on the path even if
    it is inside the working directory, because anyone who loaded this file from there already trusts it.
    """
    try:
        cwd = os.path.realpath(os.getcwd())
    except OSError:  # the working directory no longer exists, so nothing can be loaded from it
        return [entry for entry in path if os.path.isabs(entry)]
    named = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)} - {home}
    inside = os.path.join(cwd, "")
    dropped = {entry for entry in named if entry.startswith(inside)} | {cwd}
    return [entry for entry in path if os.path.isabs(entry) and os.path.realpath(entry) not in dropped]


def _load_package(name: str, home: str) -> None:
    """Load a package of this project from `home`, even if something else on the path has its name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec(name, [home])
    if spec is None or spec.loader is None:
        raise SystemExit(f"coretools-mcp is damaged: {os.path.join(home, name)} is missing. Install it again.")
    package = module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    raise SystemExit(main())
