"""Variables that make other programs run something, or make the shell read the rest of a command in another way."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.words import Word, read_word

_SENSITIVE = re.compile(
    r"""
    HOME | IFS | ENV | SHELL | PS[0-4] | SHELLOPTS | TERM | TERMCAP | VISUAL | BROWSER | CC | CXX | LD | AR | KUBECONFIG
    | EXINIT | ZDOTDIR | GLOBIGNORE | EXECIGNORE | POSIXLY_CORRECT | CORECLR_.* | COR_.* | COMPLUS_.*
    | (?: BASH | LD_ | DYLD_ | GIT_ | LESS | MAN | PYTHON | PERL | RUBY | NODE_ | JAVA_ | _JAVA | JDK_ | MAKE | CARGO
        | RUST | GO[A-Z] | PIP_ | UV_ | NPM_ | YARN_ | DOCKER_ | GCONV | MALLOC_ | GLIBC | XDG_ | SSH_ | GPG | GNUPG
        | SUDO_ | RSYNC_ | TAR_ | TAPE | GREP_ | RIPGREP_ | SYSTEMD_ | HIST | PROMPT | DISPLAY | LUA | VIM | PHP
        | OPENSSL_ | DENO_ | BUN_ | DOTNET_ | GEM_ | BUNDLE_ | JULIA_ | ERL_ | ELIXIR_ | R_ | GTK_ | QT_ | NIX_ | CURL_
        | TF_CLI_ | ANSIBLE_ | HG | SVN_ | CVS_ | JJ_ | GRADLE | MAVEN | SBT_ | WAYLAND_ | MOZ_ | ELECTRON_ | GCC_
        | COMPOSE_ | DEPENDENCIES_ | SUNPRO_
        | CCACHE_ | CMAKE_ | VIRTUAL_ENV | CONDA_ | PYENV_ | COVERAGE_ | TOX_ | NOX_ | POETRY_ | PIPENV_ | PDM_
        | PYTEST_ | DJANGO_SETTINGS | FLASK_APP | PNPM_ | COREPACK_ | NVM_ | VOLTA_ | ASDF_ | MISE_ | RBENV_ | TS_NODE_
        | JEST_ | HELM_ | BAZEL | ANT_ | LEIN_ | MAGICK_ | GST_ | KRB5 | ODBC ) .*
    | .* (?: PATH | PAGER | EDITOR | COMMAND | CMD | ASKPASS | PRELOAD | OPTS | OPTIONS | OPT | FLAGS | RSH | PROXY
        | CONFIG | CONFIG_FILE | CONFIG_DIR | RC | RCFILE | HOOK | HOOKS | SHELL | DRIVER | PLUGIN | PLUGINS | WRAPPER
        | LAUNCHER | HOST | BASE_URL | ENDPOINT | REGISTRY | TOOL | STARTUP | _HOME | _ARGS | _INIT | _LOADER
        | _COMPILER | _INTERPRETER | _EXECUTABLE )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""A list of beginnings and endings rather than of names: there are too many programs to know each name."""

_HARMLESS = names("NODE_ENV RUST_LOG RUST_BACKTRACE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE GOOS")

_ONLY_SHOWN = _HARMLESS | names(
    "LANG LANGUAGE TZ COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLORTERM CI DEBUG VERBOSE"
)
_OF_ENVIRONMENT = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TZ")
"""Most sessions have these, so that they reach programs although nobody exports them here."""

_NO_EDITOR = re.compile(r"(?:GIT_EDITOR|GIT_SEQUENCE_EDITOR|EDITOR|VISUAL)=(?:true|:)")
"""As an editor, these take a text as it is."""

_PLAIN_VALUE = re.compile(r"[\w.@+,-]*", re.ASCII)
_TIME_ZONE = re.compile(r"[A-Za-z]+(?:/[A-Za-z_]+)*(?:[+-]?\d+)?(?:[A-Z]+)?", re.ASCII)


def is_sensitive(name: str) -> bool:
    """Whether giving this variable a value may run something or change what the rest of a command means."""
    return name not in _HARMLESS and _SENSITIVE.fullmatch(name) is not None


def changes_only_looks(assignment: Word) -> bool:
    """Whether a command that only reads still only reads what its words tell when it is given this variable.

    A list of names: any other variable may be a file that some program reads (`MAGIC=x file y`). A path counts for none
    of them, since locales and time zones are files as well.

    Args:
        assignment: Such as `LANG=C`.
    """
    name, _, value = assignment.source.partition("=")
    if name != "TZ" and name not in _ONLY_SHOWN and not name.startswith("LC_"):
        return False
    decoded = read_word(value)
    form = _TIME_ZONE if name == "TZ" else _PLAIN_VALUE
    return decoded.is_literal and form.fullmatch(decoded.text) is not None


def value_of(assignment: Word) -> str | None:
    """The value of an assignment as a path is spelled, or `None` if it is not known."""
    return read_word(assignment.source.partition("=")[2]).path


def doubts_of(assignments: Iterable[Word]) -> list[str]:
    """What is doubtful about assignments such as `PATH=.`."""
    doubts: list[str] = []
    for word in assignments:
        name = word.source.partition("=")[0].rstrip("+").partition("[")[0]
        if is_sensitive(name) and not _NO_EDITOR.fullmatch(word.source):
            doubts.append(f"it sets {name}, which decides what runs")
        elif _OF_ENVIRONMENT.fullmatch(name) and not changes_only_looks(word):
            doubts.append(f"it sets {name}, which may name a file that programs load")
    return doubts
