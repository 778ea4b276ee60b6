"""Variables that make other programs run something, or make the shell read the rest of a command in another way."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tools.permissions.shell.words import Word

_SENSITIVE = re.compile(
    r"""
    HOME | IFS | ENV | SHELL | PS[0-4] | SHELLOPTS | TERM | TERMCAP | VISUAL | BROWSER | CC | CXX | LD | AR | KUBECONFIG
    | (?: BASH | LD_ | DYLD_ | GIT_ | LESS | MAN | PYTHON | PERL | RUBY | NODE_ | JAVA_ | _JAVA | JDK_ | MAKE | CARGO
        | RUST | GO[A-Z] | PIP_ | UV_ | NPM_ | YARN_ | DOCKER_ | GCONV | MALLOC_ | GLIBC | XDG_ | SSH_ | GPG | GNUPG
        | SUDO_ | RSYNC_ | TAR_ | GREP_ | RIPGREP_ | SYSTEMD_ | HIST | PROMPT | DISPLAY ) .*
    | .* (?: PATH | PAGER | EDITOR | COMMAND | CMD | ASKPASS | PRELOAD | OPTS | OPTIONS | OPT | FLAGS | RSH | PROXY
        | CONFIG | CONFIG_FILE | CONFIG_DIR | RC | RCFILE | HOOK | HOOKS | SHELL | DRIVER | PLUGIN | PLUGINS | WRAPPER
        | LAUNCHER | HOST | BASE_URL | ENDPOINT | REGISTRY | TOOL | STARTUP )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""A list of beginnings and endings rather than of names: there are too many programs to know each name."""

_HARMLESS = frozenset({"NODE_ENV", "RUST_LOG", "RUST_BACKTRACE", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "GOOS"})


def is_sensitive(name: str) -> bool:
    """Whether giving this variable a value may run something or change what the rest of a command means."""
    return name not in _HARMLESS and _SENSITIVE.fullmatch(name) is not None


def doubts_of(assignments: Iterable[Word]) -> list[str]:
    """What is doubtful about assignments such as `PATH=.`."""
    names = (word.source.partition("=")[0].rstrip("+").partition("[")[0] for word in assignments)
    return [f"it sets {name}, which decides what runs" for name in names if is_sensitive(name)]
