"""How much of a command a lasting permission covers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.permissions.shell.knowledge.families import RUN_OTHERS, RUNNERS, RUNNERS_ALONE, family_of
from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.knowledge.interpreters import is_interpreter
from tools.permissions.shell.names import names
from tools.permissions.shell.spellings import bare_name
from tools.permissions.shell.syntax.words import Word

_GROUPS = names(
    "git npm pnpm yarn docker podman kubectl helm cargo go pip pip3 pipx uv poetry gh glab aws gcloud"
    " az systemctl apt apt-get brew terraform make just dotnet mvn gradle gradlew mvnw rustup"
    " conda nix composer bundle rails dnf yum pacman snap flatpak service journalctl"
)
"""Programs whose first argument says what they do. A permission covers that one thing."""

_NEVER = names(
    "eval source . exec sudo doas su runuser ssh bash sh zsh dash ksh ash mksh xargs parallel trap alias"
    " unalias chroot unshare nsenter script watch busybox toybox find env command builtin enable hash"
)
"""They run whatever they are given, so that a permission for them would be one for everything."""

_ELSEWHERE = names("docker podman nerdctl kubectl oc machinectl vagrant")
_RUNNING_ELSEWHERE = names("run exec compose debug attach ssh cp create")
"""What these run is not told by the word that follows."""

_RUNNING_FILES = {("go", "run"), ("npm", "exec"), ("npm", "x")}
"""These run a file that may be another one tomorrow, or take options wherever they stand."""

_FILES_OR_CLASSES = names("java javaw tsx ts-node ts-node-esm babel-node nix-shell gdb lldb")
"""They run what a file or an option names."""

_PLAIN = re.compile(r"[\w./:@%+,=-]+(?: [\w./:@%+,=-]+){0,2}")
"""What stands for itself in a rule: no star, no parenthesis, no blank within a word."""


def scope_of(name: str, words: Sequence[Word]) -> str:
    """What a lasting permission for a command would cover: the beginning of its text. Empty if there can be none.

    There is none for interpreters either: a file that one of them runs may hold another program tomorrow.

    Args:
        name: Its name, as rules see it.
        words: All its words.
    """
    program = family_of(bare_name(name))
    if _runs_anything(program):
        return ""
    scope = _scope(name, program, words[1:])
    return scope if _PLAIN.fullmatch(scope) else ""


def _scope(name: str, program: str, arguments: Sequence[Word]) -> str:
    if program == "git":
        found = subcommand(arguments)
        is_plain = found is not None and bool(arguments) and arguments[0].text == found[0]
        return f"{name} {found[0]}" if found is not None and is_plain else ""
    if program in RUNNERS_ALONE:
        return _with_program(name, arguments)
    if program not in _GROUPS | RUNNERS | _ELSEWHERE:
        return name
    scope = _with_next(name, arguments)
    verb = arguments[0].text if scope else ""
    if (program in _ELSEWHERE and verb in _RUNNING_ELSEWHERE) or (program, verb) in _RUNNING_FILES:
        return ""
    return _with_program(scope, arguments[1:]) if verb in RUN_OTHERS and program in RUNNERS else scope


def _with_next(scope: str, arguments: Sequence[Word]) -> str:
    """The scope and one word more, which says what is done; none without such a word."""
    first = arguments[0] if arguments else None
    if first is None or not first.is_literal or first.text.startswith("-") or " " in first.text:
        return ""
    return f"{scope} {first.text}"


def _with_program(scope: str, arguments: Sequence[Word]) -> str:
    """The same where the word is a program that is run."""
    return "" if arguments and _runs_anything(bare_name(arguments[0].text)) else _with_next(scope, arguments)


def _runs_anything(program: str) -> bool:
    known = family_of(program)
    return known in _NEVER or known in _FILES_OR_CLASSES or is_interpreter(known)
