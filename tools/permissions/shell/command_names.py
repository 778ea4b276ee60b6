"""What a command is called: its names as rules see them, and how much of it a lasting permission covers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.knowledge.interpreters import is_interpreter
from tools.permissions.shell.knowledge.running_options import RUN_OTHERS, RUNNERS, RUNNERS_ALONE, family_of
from tools.permissions.shell.syntax.words import Word, names

# Options and their values before what a program is told to do. Where there are more it is not known what that is.
MAX_PLACES = 128
# How much of a command is compared from a later place on, so that all spellings of many options stay short
MAX_CHARS = 8_192
_STANDARD = re.compile(r"/(?:usr/(?:local/)?)?s?bin/(?=[^/]+\Z)|/opt/homebrew/bin/(?=[^/]+\Z)")
_EMPTY_STEPS = re.compile(r"/(?:\.?/)+")


def rule_name(name: str) -> str:
    """A name as rules see it: without a standard folder for programs. What `..` leads to depends on links."""
    if not name.startswith("/") or "/../" in name:
        return name
    plain = _EMPTY_STEPS.sub("/", name)
    found = _STANDARD.match(plain)
    return plain[found.end() :] if found else name


def bare_name(name: str) -> str:
    """A name without any folder: what a program by that path most likely is."""
    return posixpath.basename(name) or name


def spellings_of(words: Sequence[Word]) -> tuple[str, ...]:
    """What a command could be called.

    It may be called by any path, by the name of its family, and without the options before what it is told to do:
    `git --no-pager push` is `git push`, and so is `git -C x push`: each option may take the word behind it.
    """
    if not words:
        return ()
    written = words[0].text
    bare = bare_name(written)
    called = dict.fromkeys((rule_name(written), bare, bare.lower(), bare.lower().removesuffix(".exe"), family_of(bare)))
    texts = [word.text for word in words[1:]]
    found = [" ".join((name, *texts)) for name in called]
    for place in islice(_places(words[1:]), 1, MAX_PLACES):
        behind = " ".join(texts[place : place + MAX_CHARS])[:MAX_CHARS]
        found += [f"{name} {behind}".rstrip() for name in called]
    # Where the command may begin that a runner of programs is given.
    verb = -1 if bare in RUNNERS_ALONE else None
    if bare in RUNNERS:
        verb = next((at for at, text in enumerate(texts) if text in RUN_OTHERS), None)
    if verb is not None:
        inner = (at for at in range(verb + 1, len(texts)) if not texts[at].startswith("-"))
        found += [" ".join(texts[at:]) for at in islice(inner, 4)]
    return tuple(dict.fromkeys(found))


def open_beginnings_of(words: Sequence[Word]) -> tuple[str, ...]:
    """What is known of a command before a word that is not: `git $X` begins with `git `, and may be `git push`."""
    if not words or all(word.is_literal for word in words[1:]):
        return ()
    bare, arguments = bare_name(words[0].text), words[1:]
    places: Iterable[int] = islice(_places(arguments), MAX_PLACES)
    if bare == "git":
        # Where it is told what to do, as far as its own options are known.
        verb = subcommand(arguments)
        unknown = next((place for place, word in enumerate(arguments) if not word.is_literal), len(arguments))
        places = [unknown if verb is None else len(arguments) - len(verb[1]) - 1]
    found: dict[str, None] = {}
    for place in places:
        behind = takewhile(lambda word: word.is_literal, arguments[place : place + MAX_CHARS])
        known = (bare, *(word.text for word in behind))
        if len(known) <= len(arguments) - place:
            found[" ".join(known)[:MAX_CHARS] + " "] = None
    return tuple(found)


def has_hidden_verb(arguments: Sequence[Word]) -> bool:
    """Whether there are more options than are looked behind."""
    return next(islice(_places(arguments), MAX_PLACES, None), None) is not None


def _places(arguments: Sequence[Word]) -> Iterator[int]:
    """Where what it is told to do may begin: at first, and behind options that may each have a value."""
    reached = 0
    for place, word in enumerate(arguments):
        if place > reached:
            return
        yield place
        if word.may_be_option or word.text.startswith("+"):
            reached = place + 2
    if not arguments or reached >= len(arguments):
        yield len(arguments)


# Programs whose first argument says what they do. A permission covers that one thing.
_GROUPS = names(
    "git npm pnpm yarn docker podman kubectl helm cargo go pip pip3 pipx uv poetry gh glab aws gcloud"
    " az systemctl apt apt-get brew terraform make just dotnet mvn gradle gradlew mvnw rustup"
    " conda nix composer bundle rails dnf yum pacman snap flatpak service journalctl"
)
# They run whatever they are given, so that a permission for them would be one for everything
_NEVER = names(
    "eval source . exec sudo doas su runuser ssh bash sh zsh dash ksh ash mksh xargs parallel trap alias"
    " unalias chroot unshare nsenter script watch busybox toybox find env command builtin enable hash"
)
_ELSEWHERE = names("docker podman nerdctl kubectl oc machinectl vagrant")
# What these run is not told by the word that follows
_RUNNING_ELSEWHERE = names("run exec compose debug attach ssh cp create")
# These run a file that may be another one tomorrow, or take options wherever they stand
_RUNNING_FILES = {("go", "run"), ("npm", "exec"), ("npm", "x")}
# They run what a file or an option names
_FILES_OR_CLASSES = names("java javaw tsx ts-node ts-node-esm babel-node nix-shell gdb lldb")
# What stands for itself in a rule: no star, no parenthesis, no blank within a word
_PLAIN = re.compile(r"[\w./:@%+,=-]+(?: [\w./:@%+,=-]+){0,2}")


def scope_of(name: str, words: Sequence[Word]) -> str:
    """What a lasting permission for a command would cover: the beginning of its text. Empty if there can be none.

    There is none for interpreters either: a file that one of them runs may hold another program tomorrow.
    """
    program, arguments = family_of(bare_name(name)), words[1:]
    verb = arguments[0].text if arguments else ""
    scope = name
    if _runs_anything(program):
        return ""
    if program == "git":
        found = subcommand(arguments)
        scope = f"{name} {verb}" if found is not None and verb == found[0] else ""
    elif program in RUNNERS_ALONE:
        scope = _with_program(name, arguments)
    elif program in _GROUPS | RUNNERS | _ELSEWHERE:
        scope = _with_next(name, arguments)
        if (program in _ELSEWHERE and verb in _RUNNING_ELSEWHERE) or (program, verb) in _RUNNING_FILES:
            return ""
        if scope and verb in RUN_OTHERS and program in RUNNERS:
            scope = _with_program(scope, arguments[1:])
    return scope if _PLAIN.fullmatch(scope) else ""


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
