"""Which options of a command make its program do what its other words do not say: run, load or write something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tools.permissions.shell.knowledge.expansions import may_be_options
from tools.permissions.shell.knowledge.families import RUN_OTHERS, RUNNERS, RUNNERS_ALONE
from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.knowledge.interpreters import is_python, module_run
from tools.permissions.shell.knowledge.option_tables import Options, tables
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.options import TAR_VALUED, dashed, parse
from tools.permissions.shell.syntax.words import Word, literal, read_word, unknown

_GIT_REST = {"submodule": "foreach", "bisect": "run", "for-each-repo": ""}
"""Sub-commands of git that run what stands behind this word."""

MAX_NESTED = 8
"""Programs that are named in each other's words; what is behind more counts as not known."""

MAX_NAME_CHARS = 64
MAX_VALUE_CHARS = 512
"""What is longer is no name or value that anything is known of."""

_GIT_RUNNING = names(
    "filter-branch for-each-repo hook daemon instaweb shell remote-ext remote-fd merge-index web--browse cvsserver p4"
    " http-backend upload-archive upload-pack receive-pack"
)
"""Sub-commands of git that run what their operands, or those who call, say."""

_PASSED_ON = {
    ("cargo", "rustc"): "rustc", ("cargo", "rustdoc"): "rustdoc", ("cargo", "clippy"): "rustc",
    ("gh", "clone"): "git clone",
}  # fmt: skip
"""What these are given behind `--` is for another program."""

_COMPOSE = {"docker-compose": "docker", "podman-compose": "podman"}
_COMPILER = re.compile(
    r"(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|c[89]9|cpp|clang|clang\+\+|clang-cpp|clang-cl|gfortran|gdc|gnat|icx?|icpx|tcc|nvcc"
    r"|emcc|em\+\+|xgcc|xg\+\+)(?:-[\d.]+)?"
)
_LINKER = re.compile(r"(?:[\w.]+-)*(?:ld|ld\.(?:bfd|gold|lld|mold)|ld64|lld|gold|mold)(?:-[\d.]+)?")
_VERSIONED = re.compile(r"(?:(?:[\w.]+-)*(?=(?:as|ar|nm|ranlib|strip|objdump|objcopy)\Z))?([a-z][a-z._-]*?)-?[\d.]*")
_RUNNING_MODULES = names("coverage kernprof memray scalene viztracer pyinstrument debugpy cProfile profile trace pdb")
"""Programs that are told by `-m`, as Python is, which module they run."""

_JS_RUNNERS = names("npm pnpm yarn bun")
_PASSING_ON = _JS_RUNNERS | {"composer"}
"""Runners that take away the `--` before what is for the program that they run."""

_SCRIPT_VERBS = names("run run-script rum urn test t tst start stop restart")
_NAMED_SCRIPTS = names("run run-script rum urn")
_JS_VERBS = names(
    "add audit autoclean bin bugs cache check ci config constraints create dedupe deploy deprecate diff dist-tag docs"
    " doctor edit explain explore fetch fund get global help i import info init install install-test link list"
    " licenses login logout ls node npm org outdated owner pack patch patch-commit ping pkg plugin pm policies profile"
    " prune publish rebuild remove repo rm root sbom search self-update set setup stage store team token uninstall"
    " unlink unplug up update upgrade version versions view whoami why workspaces"
)
"""What package managers do themselves; any other word is what a script, or an installed program, is called."""
_HERE = re.compile(r"\$(?:PWD\b|\{PWD\}|\(pwd\))")
_PLAIN_DATE = re.compile(r"\$\(date \+(?:%[FYmdHMSsj]|[\w-])+\)")
_TRANSPORT = re.compile(r"[^:]*\b(?:ext|fd)::")


_DOES = {
    "runs": "{} makes {} run a program",
    "sets": "{} can make {} run a program",
    "loads": "{} makes {} take code or settings from elsewhere",
    "writes": "{} makes {} write or remove files that its other words do not name",
}


@dataclass(frozen=True, slots=True)
class OptionUse:
    """An option that does what the other words of its command do not say.

    Args:
        name: How it is named in the command: `--exec`, `core.sshCommand`.
        word: The whole word that names it.
        reason: What it does, as a phrase.
    """

    name: str
    word: str
    reason: str

    def is_named_in(self, pattern: str) -> bool:
        """Whether the words of a rule name it: by the whole word, or by a beginning with a star behind it."""
        if f" {self.word} " in f" {pattern} ":
            return True
        beginnings = (word.rstrip("*") for word in pattern.split() if word.endswith("*"))
        return any(beginning.startswith(self.name) and self.word.startswith(beginning) for beginning in beginnings)


@dataclass(frozen=True, slots=True)
class _Given:
    """A listed option in a command: what it is called in the table, how it is written, and with which value."""

    option: str
    written: str
    word: Word
    value: Word | None
    is_attached: bool


@lru_cache(maxsize=512)
def option_table_of(name: str) -> str:
    """The name in the tables of a program that may be called by a version, or by what it builds for."""
    if name in tables() or len(name) > MAX_NAME_CHARS:
        return name
    if _COMPILER.fullmatch(name):
        return "gcc"
    if _LINKER.fullmatch(name):
        return "ld"
    versioned = _VERSIONED.fullmatch(name.removesuffix(".exe"))
    return versioned[1] if versioned else name


def options_used(name: str, arguments: Sequence[Word], text: str) -> list[OptionUse]:
    """The options that are to be asked about.

    Args:
        name: The family of a program.
        arguments: The words behind it.
        text: All that is known to be read by the same shell, for what its variables hold.
    """
    uses = [use for label, table, words in _tables(name, arguments) for use in _uses(label, table, words, text)]
    if name == "git":
        uses += _of_git(arguments)
    if name in ("tar", "cpio", "mt"):
        uses += _of_archives(name, dashed(arguments, TAR_VALUED) if name == "tar" else arguments, text)
    return list(dict.fromkeys(uses))


def texts_of_options(name: str, arguments: Sequence[Word]) -> list[Word]:
    """The command lines that options of a program name."""
    texts = [text for _, table, words in _tables(name, arguments) for text in _texts(table, words)]
    found = subcommand(arguments) if name == "git" else None
    if found is not None:
        verb, rest = found
        if verb in _GIT_REST:
            place = next((at for at, word in enumerate(rest) if word.text == _GIT_REST[verb]), None)
            texts += _joined(rest[place + 1 :] if place is not None else ())
        if verb == "config":
            texts += (literal(word.text[1:]) for word in rest if word.text.startswith("!"))
    return list(dict.fromkeys(texts))


def outputs_of_options(name: str, arguments: Sequence[Word]) -> Iterator[Word | None]:
    """The files that options of a program say it is there to write."""
    for _, table, words in _tables(name, arguments):
        yield from (given.value for given in _given(table, words) if table.kinds[given.option] == "output")


def _tables(name: str, arguments: Sequence[Word], depth: int = 0) -> Iterator[tuple[str, Options, Sequence[Word]]]:
    """Each program that a command line is for, by name, with its table and its words."""
    if depth > MAX_NESTED:
        yield name, tables()["..."], arguments[:1]
        return
    if name == "git":
        yield from _tables_of_git(arguments)
        return
    if name in _COMPOSE:
        yield from _tables(_COMPOSE[name], [literal("compose"), *arguments], depth + 1)
        return
    family = option_table_of(name)
    table = tables().get(family)
    own = arguments
    if (found := _inner_of(family, table, arguments)) is not None:
        inner, own, rest = found
        yield from _tables(inner, rest, depth + 1)
    if table is not None:
        words = _own_words(table, own)
        yield name, table, dashed(arguments, TAR_VALUED) if family == "tar" else words
    texts = [word.text for word in arguments]
    if f"{family}-run" in tables():
        yield from _tables_of_verbs(name, family, arguments)
    for verb in dict.fromkeys(texts):
        if (to := _PASSED_ON.get((family, verb))) is not None and "--" in texts:
            inner, *first = to.split()
            yield from _tables(inner, [*map(literal, first), *arguments[texts.index("--") + 1 :]], depth + 1)


def _tables_of_verbs(
    name: str, family: str, arguments: Sequence[Word]
) -> Iterator[tuple[str, Options, Sequence[Word]]]:
    """What each word that may say what is done makes of the words behind it."""
    verbs = [
        (at, word) for at, word in enumerate(arguments) if not word.is_literal or f"{family}-{word.text}" in tables()
    ]
    for at, word in verbs[:MAX_NESTED]:
        verb = word.text if word.is_literal else "run"
        table = tables()[f"{family}-{verb}"]
        yield f"{name} {verb}", table, _own_words(table, arguments[at + 1 :])
        if not word.is_literal:
            return
    if len(verbs) > MAX_NESTED:
        yield name, tables()["..."], arguments[:1]


def _own_words(table: Options, arguments: Sequence[Word]) -> Sequence[Word]:
    """The words up to the first that is an operand for certain, where all behind that are for another program."""
    is_after_option = False
    for at, word in enumerate(arguments) if table.ends_at_operand else ():
        is_operand = not word.text.startswith(("-", "@") if table.has_response else "-")
        if word.is_literal and is_operand and not is_after_option:
            return arguments[:at]
        is_flag = "=" in word.text or word.text.lstrip("-") in table.flags
        is_after_option = word.may_be_option and not (word.is_literal and is_flag)
    return arguments


def _tables_of_git(arguments: Sequence[Word]) -> Iterator[tuple[str, Options, Sequence[Word]]]:
    verb, rest = subcommand(arguments) or ("", ())
    yield "git", tables()["git"], arguments[: len(arguments) - len(rest) - bool(verb)]
    if (table := tables().get(f"git-{verb}")) is not None:
        yield f"git {verb}", table, rest
    # What is not literal counts by the table of the sub-command alone.
    yield f"git {verb}", tables()["git-*"], [word for word in rest if word.is_literal or word.prefix.startswith("--")]


def _inner_of(
    family: str, table: Options | None, arguments: Sequence[Word]
) -> tuple[str, Sequence[Word], Sequence[Word]] | None:
    """The program that another one is told to run: its name, the words before it, and those behind it."""
    if is_python(family) or family in _RUNNING_MODULES:
        found = module_run(arguments)
        return None if found is None else (found[0], arguments[: found[1]], arguments[found[1] :])
    verbs = RUN_OTHERS if family in RUNNERS | {"composer"} else None
    if verbs is None and family not in RUNNERS_ALONE:
        return None
    place, is_script = 0, False
    if family in _JS_RUNNERS:
        place, is_script = _place_of_script(table, arguments)
    elif verbs is not None:
        place = next((at + 1 for at, word in enumerate(arguments) if word.text in verbs), len(arguments))
    place = _place_of_operand(table, arguments, place)
    if place >= len(arguments) or not arguments[place].is_literal:
        return None
    name = arguments[place].text.rpartition("/")[2].partition("@")[0]
    own, rest = arguments[:place], arguments[place + 1 :]
    if family in _PASSING_ON:
        end = next((at for at, word in enumerate(rest) if word.text == "--"), len(rest))
        # npm takes what stands before that for itself, wherever it stands.
        own = arguments if family == "npm" else own
        rest = [*rest[:end], *rest[end + 1 :]]
    return ("package-script" if is_script and name not in tables() else name), own, rest


def _place_of_script(table: Options | None, arguments: Sequence[Word]) -> tuple[int, bool]:
    """From where on it says what a package manager runs, and whether that may be a script; the end for nothing."""
    place = _place_of_operand(table, arguments, 0)
    if place < len(arguments) and arguments[place].text == "workspace":
        place = _place_of_operand(table, arguments, place + 2)
    verb = arguments[place].text if place < len(arguments) else ""
    if verb in RUN_OTHERS - _SCRIPT_VERBS or verb in _NAMED_SCRIPTS:
        return place + 1, verb in _NAMED_SCRIPTS
    if verb in _SCRIPT_VERBS or verb not in _JS_VERBS:
        return place, True
    return len(arguments), False


def _place_of_operand(table: Options | None, arguments: Sequence[Word], place: int) -> int:
    """Where the first word is, from some place on, that is no option and no value of one."""
    while place < len(arguments) and arguments[place].text.startswith("-"):
        place += 2 if table is not None and arguments[place].text.lstrip("-") in _valued(table) else 1
    return place


def _valued(table: Options) -> frozenset[str]:
    return (table.valued | table.kinds.keys()) - table.bare - table.joined


def _given(table: Options, arguments: Sequence[Word]) -> Iterator[_Given]:
    """The listed options, wherever they stand; also where a word may be the value of another: better one too many."""
    for at, word in enumerate(arguments):
        if word.text == "--" and not (at and arguments[at - 1].text.startswith("-")):
            return
        text = word.text if word.is_literal else word.prefix
        if text.startswith("-") and text not in ("-", "--"):
            yield from _in_word(table, word, text, arguments[at + 1] if at + 1 < len(arguments) else None)


def _in_word(table: Options, word: Word, text: str, following: Word | None) -> Iterator[_Given]:
    written, equals, value = text.partition("=")
    bare = written.lstrip("-")
    found = [bare] if len(bare) > 1 and bare in table.kinds else []
    if not found and text.startswith("--") and bare and bare not in table.flags and bare not in table.valued:
        found = [option for option in table.kinds if len(option) > 1 and option.startswith(bare)]
    for option in found:
        takes_next = not equals and option not in table.bare | table.joined
        given = following if takes_next else _attached(word, value) if equals else None
        yield _Given(option, written, word, given, bool(equals))
    if found:
        return
    stem = text.lstrip("-")
    for option in table.kinds:
        if option.endswith("*") and stem.startswith(option[:-1]):
            head = text[: len(text) - len(stem) + len(option) - 1]
            attached = text[len(head) :].removeprefix("=")
            yield _Given(option, head, word, _attached(word, attached) if attached else following, bool(attached))
            return
    if not text.startswith("--"):
        yield from _in_cluster(table, word, text, following)


def _in_cluster(table: Options, word: Word, text: str, following: Word | None) -> Iterator[_Given]:
    """The listed short options in a word, each with what is behind it in the word, or with the next word."""
    for place, letter in enumerate(text[1:], start=1):
        rest = text[place + 1 :].removeprefix("=")
        if letter in table.kinds and not (table.style == "words" and (rest or place > 1)):
            is_attached = bool(rest) or not word.is_literal
            takes_next = not is_attached and letter not in table.bare | table.joined
            value = _attached(word, rest) if is_attached else following if takes_next else None
            yield _Given(letter, text[: place + 1], word, value, is_attached)
            if letter not in table.bare:
                return
        if letter in table.valued or table.style != "getopt":
            return


def _attached(word: Word, value: str) -> Word:
    """The value in a word; not a literal one if the word is not."""
    return literal(value) if word.is_literal else unknown(word.source.partition("=")[2] or word.source)


def _uses(label: str, table: Options, arguments: Sequence[Word], text: str) -> Iterator[OptionUse]:
    for given in _given(table, arguments):
        kind, value, written = table.kinds[given.option], given.value, given.written
        if kind == "output" or _is_harmless(table, given):
            continue
        if kind != "sets" or value is None:
            does = f"{written} {table.does}" if kind == "loads" and table.does else _DOES[kind].format(written, label)
            yield OptionUse(written, given.word.text, does)
            continue
        key = re.split(r"[=\s]", value.text, maxsplit=1)[0]
        does = _DOES[kind].format(f"{written} {key[:80]}", label)
        if given.is_attached:
            yield OptionUse(given.word.text.partition(key)[0] + key, given.word.text, does)
        else:
            yield OptionUse(key, value.text, does)
    for word in arguments:
        if word.text in table.verbs:
            yield OptionUse(word.text, word.text, f"{label} {word.text} runs or writes what the words behind it say")
        elif table.assigns and not word.text.startswith("-") and re.fullmatch(table.assigns, word.text, re.DOTALL):
            name = re.split(r"[:+?!]*[=:]", word.text, maxsplit=1)[0]
            yield OptionUse(name, word.text, f"{name[:80]} can make {label} run a program")
        elif table.has_response and word.text.startswith("@"):
            yield OptionUse(word.text, word.text, f"{word.text[:80]} gives {label} the options in a file")
    if any(kind != "output" for kind in table.kinds.values()):
        yield from _unknown(label, table, arguments, text)


def _is_harmless(table: Options, given: _Given) -> bool:
    harmless = table.harmless.get(given.option)
    if harmless is None:
        return False
    value = given.value
    if value is None:
        return harmless.fullmatch("") is not None
    if not value.is_literal:
        # The folder that a command is in is inside the workspace, whatever it is called.
        here = _HERE.sub(".", value.source)
        value = read_word(here) if read_word(here).is_literal else read_word(here.strip('"'))
    key = re.split(r"[=\s]", value.text, maxsplit=1)[0] if table.kinds[given.option] == "sets" else value.text
    if not value.is_literal or len(value.text) > MAX_VALUE_CHARS:
        return False
    return (harmless.fullmatch(key) or harmless.fullmatch(value.text)) is not None


def _unknown(label: str, table: Options, arguments: Sequence[Word], text: str) -> Iterator[OptionUse]:
    """The words that may turn out to be listed options."""
    valued, previous = _valued(table), ""
    verb = next((word for word in arguments if not word.text.startswith("-")), None) if table.verbs else None
    for word in arguments:
        if word.text == "--" and not previous.startswith("-"):
            return
        is_value = previous.startswith("-") and previous.lstrip("-") in valued and not word.may_split
        if not word.is_literal and (word is verb or (not is_value and may_be_options(word, valued, text))):
            source = word.source
            yield OptionUse(source, source, f"it is not known which options {source[:80]} gives {label}")
        previous = word.text


def _texts(table: Options, arguments: Sequence[Word]) -> Iterator[Word]:
    for given in _given(table, arguments):
        kind, value = table.kinds[given.option], given.value
        if value is None:
            continue
        if kind == "runs" or (kind == "sets" and not value.is_literal):
            yield value
        elif kind == "sets" and not _is_harmless(table, given):
            yield literal(re.split(r"[=\s]", value.text, maxsplit=1)[-1].lstrip().removeprefix("!"))


def _of_archives(name: str, arguments: Sequence[Word], text: str) -> Iterator[OptionUse]:
    """An archive on another host is reached by `rsh`; a colon behind a slash is a part of a name."""
    for option, value in parse(arguments, (*TAR_VALUED, *"FOI", "file")).options:
        if (option not in ("-f", "--file") and not (name == "cpio" and option in ("-F", "-O", "-I"))) or value is None:
            continue
        known = _PLAIN_DATE.sub("x", value.source)
        is_open = not value.is_literal and (":" in text or "$(" in known or "`" in known)
        if is_open or (value.is_literal and ":" in value.text.partition("/")[0]):
            yield OptionUse(option, value.text, f"{name} reaches another host by a program for {value.source[:80]}")


def _of_git(arguments: Sequence[Word]) -> Iterator[OptionUse]:
    for word in arguments:
        if found := _TRANSPORT.match(word.text):
            yield OptionUse(found[0], word.text, f"{found[0][:80]} makes git run what the address names")
    found = subcommand(arguments)
    if found is None and (word := next((word for word in arguments if not word.is_literal), None)) is not None:
        yield OptionUse(word.source, word.source, f"it is not known what {word.source[:80]} tells git to do")
    elif found is not None and found[0] in _GIT_RUNNING:
        yield OptionUse(found[0], found[0], f"git {found[0]} runs what it is told to")


def _joined(words: Sequence[Word]) -> Iterator[Word]:
    while words and words[0].text.startswith("-"):
        words = words[1:]
    if words:
        text = " ".join(word.text for word in words)
        yield literal(text) if all(word.is_literal for word in words) else unknown(text)
