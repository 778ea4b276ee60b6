"""Variables that make other programs run something, or make the shell read the rest of a command in another way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tools.permissions.shell.knowledge.interpreters import DECLARING, variables_set
from tools.permissions.shell.knowledge.running_options import option_tables, options_used
from tools.permissions.shell.syntax.words import Word, literal, names, read_word, unknown

# A list of beginnings and endings rather than of names: there are too many programs to know each name
_SENSITIVE = re.compile(
    r"""
    HOME | IFS | ENV | SHELL | PS[0-4] | SHELLOPTS | TERM | TERMCAP | VISUAL | BROWSER | CC | CXX | LD | AR | KUBECONFIG
    | [EF]?GREP | DIFF | CMP | ZIP | RM | LEX | YACC | FC | CPP | NM | RANLIB | STRIP | GET | M4 | .*_PREFIX
    | SSLKEYLOGFILE
    | TCL_LIBRARY | IPYTHONDIR | CLOUDSDK_.* | AWS_(?!PROFILE\Z|REGION\Z|DEFAULT_|PAGER).* | VIRTUALENV_.*
    | MAILCAPS | EXINIT | ZDOTDIR | GLOBIGNORE | EXECIGNORE | POSIXLY_CORRECT | CORECLR_.* | COR_.* | COMPLUS_.*
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
        | CONFIG | CONFIG_FILE | CONFIG_DIR | (?<!S)RC | RCFILE | HOOK | HOOKS | SHELL | DRIVER | PLUGIN | PLUGINS
        | WRAPPER | LAUNCHER | HOST | (?<![A-Z])BASE_URL | ENDPOINT | REGISTRY | TOOL | STARTUP | _HOME | _ARGS
        | _INIT | _LOADER | _COMPILER | _INTERPRETER | _EXECUTABLE )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_HARMLESS = names("NODE_ENV RUST_LOG RUST_BACKTRACE PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE GOOS")
_ONLY_SHOWN = _HARMLESS | names(
    "LANG LANGUAGE TZ COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLORTERM CI DEBUG VERBOSE"
)
# Most sessions have these, so that they reach programs although nobody exports them here
_OF_ENVIRONMENT = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TZ")
MAX_VALUE_CHARS = 1_024  # a longer value is none that anything is known of
_HERE = re.compile(r"\$(?:PWD\b|\{PWD\})")
_NAMED = re.compile(r"[\"']?([A-Za-z_]\w*)(?:\[[^\]]*\])?(?:\+?=(.*))?", re.ASCII | re.DOTALL)
# Variables that hold options of a program
_OPTIONS_OF = {
    **dict.fromkeys(names("CFLAGS CXXFLAGS CPPFLAGS LDFLAGS"), "gcc"),
    "NODE_OPTIONS": "node", "RUSTFLAGS": "rustc", "PYTEST_ADDOPTS": "pytest", "MAKEFLAGS": "make", "GOFLAGS": "go",
}  # fmt: skip
_INSIDE = r"(?:\.|\./[\w@.+/-]+|\w[\w@.+/-]*)"
_STANDARD = r"/(?:usr|opt|bin|sbin|snap|nix)(?:/[\w.+-]+)*"
_OF_HOME = r"(?:~|\$HOME|\$\{HOME\})/(?:\.[\w.+-]+/(?:[\w.+-]+/)*(?:s?bin|shims)|(?:go/)?bin)"
# What these variables may be given without running or loading anything but what runs in the folder anyway
_HARMLESS_VALUES = [
    (re.compile(name), re.compile(value, re.DOTALL))
    for name, value in (
        (r"PYTHONPATH", rf"(?:(?:{_INSIDE}|\$\{{?PYTHONPATH\}}?)?(?::|\Z))+"),
        (r"PATH", rf"(?:(?:{_STANDARD}|{_OF_HOME}|\$\{{?PATH\}}?)(?::(?=.)|\Z))+"),
        (r"(?:GIT_)?(?:SEQUENCE_)?(?:EDITOR|PAGER)|VISUAL|MANPAGER|\w+_PAGER", r":|true|false|cat|"),
        (r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)", r"[^$`]*"),
        (r"GO(?:OS|ARCH|ARM|AMD64|MAXPROCS|GC|111MODULE)|GIT_(?:TERMINAL_PROMPT|OPTIONAL_LOCKS)", r"\w*"),
        (r"PYTHON(?:UTF8|HASHSEED|IOENCODING|FAULTHANDLER|WARNINGS)|DOCKER_BUILDKIT|CARGO_TERM_\w+", r"[\w:-]*"),
        (r"CARGO_INCREMENTAL|COMPOSE_PROJECT_NAME|PIP_NO_\w+|PIP_DISABLE_\w+|npm_config_loglevel", r"[\w-]*"),
        (r"TERM", r"[\w-]+"),
        (r"DISPLAY", r":\d+(?:\.\d+)?"),
    )
]


def is_harmless(name: str, value: Word) -> bool:
    """Whether a variable that decides what runs is given a value that lets run what would run without it."""
    # The folder that a command is in lies in the workspace.
    text = value.text if value.is_literal else _HERE.sub(".", value.source.strip('"'))
    if ".." in text or (value.is_literal and "$" in text) or len(text) > MAX_VALUE_CHARS:
        return False
    if any(pattern.fullmatch(name) and values.fullmatch(text) for pattern, values in _HARMLESS_VALUES):
        return True
    if name in ("CC", "CXX", "CPP", "LD", "AR", "FC"):
        assigns = option_tables()["make"].assigns
        return value.is_literal and re.fullmatch(assigns, f"{name}={text}", re.DOTALL) is None
    words = [literal(word) for word in text.split()]
    are_options = all(word.text.startswith("-") or at for at, word in enumerate(words))
    return (
        name in _OPTIONS_OF
        and are_options
        and re.fullmatch(r"[\w\s=./:,+-]*", text, re.ASCII) is not None
        and not options_used(_OPTIONS_OF[name], words, "")
    )


def is_sensitive(name: str) -> bool:
    """Whether giving this variable a value may run something or change what the rest of a command means."""
    return name not in _HARMLESS and _SENSITIVE.fullmatch(name) is not None


def changes_only_looks(assignment: Word) -> bool:
    """Whether a command that only reads still only reads what its words tell when it is given this variable.

    A list of names: any other variable may be a file that some program reads (`MAGIC=x file y`). A path counts for none
    of them, since locales and time zones are files as well.
    """
    name, _, value = assignment.source.partition("=")
    if name != "TZ" and name not in _ONLY_SHOWN and not name.startswith("LC_"):
        return False
    decoded = read_word(value)
    form = r"[A-Za-z]+(?:/[A-Za-z_]+)*(?:[+-]?\d+)?(?:[A-Z]+)?" if name == "TZ" else r"[\w.@+,-]*"
    return decoded.is_literal and re.fullmatch(form, decoded.text, re.ASCII) is not None


def value_of(assignment: Word) -> str | None:
    """The value of an assignment as a path is spelled, or `None` if it is not known."""
    return read_word(assignment.source.partition("=")[2]).path


def doubts_of(assignments: Iterable[Word], command: str = "") -> list[str]:
    """What is doubtful about assignments such as `PATH=.`, before a command or behind one that declares variables."""
    doubts: list[str] = []
    for word in assignments:
        name, value = _split(word)
        if not name:
            doubts.append(f"it is not known which variable it sets: {word.source[:80]}")
        elif is_sensitive(name) and not is_harmless(name, value) and not (name == "IFS" and command == "read"):
            doubts.append(f"it sets {name}, which decides what runs")
        elif _OF_ENVIRONMENT.fullmatch(name) and not changes_only_looks(word):
            doubts.append(f"it sets {name}, which may name a file that programs load")
    return doubts


def is_free(assignment: Word) -> bool:
    """Whether it gives a variable that decides what runs a value that is harmless: folders in it are but searched."""
    name, value = _split(assignment)
    return is_sensitive(name) and is_harmless(name, value)


def declared(name: str, arguments: Sequence[Word]) -> list[Word]:
    """What a builtin sets, as assignments; one without a value holds what is not known. Other programs set nothing."""
    if name not in DECLARING:
        return [
            unknown(f"{word.text}=$_") for word in variables_set(name, arguments) if re.match("[A-Za-z_]", word.text)
        ]
    words = [word for word in arguments if not word.text.startswith("-")]
    if any(re.match(r"-[A-Za-z]*n", word.text) for word in arguments) and name != "export":
        # Such a variable is another name for the one that its value names.
        words += [unknown(f"{value.text}=$_") for word in words if (value := _split(word)[1]).text]
    return [word for word in words if "=" in word.source]


def _split(word: Word) -> tuple[str, Word]:
    """The name and the value of an assignment, in whatever quotes; no name if it is not known."""
    if word.is_literal:
        name, _, value = word.text.partition("=")
        return name.rstrip("+").partition("[")[0], literal(value)
    found = _NAMED.match(word.source)
    if found is None:
        return "", word
    quote = word.source[0] if word.source[0] in "\"'" else ""
    return found[1], read_word(quote + (found[2] or ""))
