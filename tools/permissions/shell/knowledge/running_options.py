"""Which options of a command make its program do what its other words do not say: run, load or write something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.knowledge.option_tables import Options, option_table_of, option_tables
from tools.permissions.shell.syntax.arguments import TAR_VALUED, parse, with_dashes
from tools.permissions.shell.syntax.words import Word, literal, names, read_word, unknown

MAX_NESTED = 8  # programs that are named in each other's words; what is behind more counts as not known
MAX_VALUE_CHARS = 512  # what is longer is not a value that anything is known of

RUNNERS = names(
    "npm pnpm yarn bun uv poetry pipenv pdm hatch rye conda mamba micromamba bundle mise asdf direnv devbox dotenv op"
    " aws-vault chamber doppler pipx"
)
RUN_OTHERS = names("run exec x dlx")  # words behind which a runner is told what to run
RUNNERS_ALONE = names("npx uvx bunx pnpx")
"""Programs that run another one by its name, from a project's own or any other."""


_GIT_REST = {"submodule": "foreach", "bisect": "run", "for-each-repo": ""}
"""Sub-commands of git that run what stands behind this word."""

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

_RUNNING_MODULES = names("coverage kernprof memray scalene viztracer pyinstrument debugpy cProfile profile trace pdb")
"""Programs that are told by `-m`, as Python is, which module they run."""

_JS_RUNNERS = names("npm pnpm yarn bun")
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
MODULE_OPTION = re.compile(r"-[bBdEhiIOPqRsSuvx]*m(.*)", re.DOTALL)  # the option of Python that names a module


_DOES = {
    "runs": "{} makes {} run a program",
    "sets": "{} can make {} run a program",
    "loads": "{} makes {} take code or settings from elsewhere",
    "writes": "{} makes {} write or remove files that its other words do not name",
}


@dataclass(frozen=True, slots=True)
class OptionUse:
    """An option that does what the other words of its command do not say."""

    name: str  # how it is named in the command: `--exec`, `core.sshCommand`
    word: str  # the whole word that names it
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


def options_used(name: str, arguments: Sequence[Word], text: str) -> list[OptionUse]:
    """The options that are to be asked about."""
    uses = [use for label, table, words in _programs(name, arguments) for use in _uses(label, table, words, text)]
    if name == "git":
        for word in arguments:
            if transport := re.match(r"[^:]*\b(?:ext|fd)::", word.text):
                does = f"{transport[0][:80]} makes git run what the address names"
                uses.append(OptionUse(transport[0], word.text, does))
        found = subcommand(arguments)
        if found is None and (word := next((word for word in arguments if not word.is_literal), None)) is not None:
            does = f"it is not known what {word.source[:80]} tells git to do"
            uses.append(OptionUse(word.source, word.source, does))
        elif found is not None and found[0] in _GIT_RUNNING:
            uses.append(OptionUse(found[0], found[0], f"git {found[0]} runs what it is told to"))
    if name in ("tar", "cpio", "mt"):
        # An archive on another host is reached by `rsh`; a colon behind a slash is a part of a name.
        words = with_dashes(arguments, TAR_VALUED) if name == "tar" else arguments
        archives = names("-f --file -F -O -I") if name == "cpio" else names("-f --file")
        for option, value in parse(words, (*TAR_VALUED, *"FOI", "file")).options:
            if option not in archives or value is None:
                continue
            known = _PLAIN_DATE.sub("x", value.source)
            is_open = not value.is_literal and (":" in text or "$(" in known or "`" in known)
            if is_open or (value.is_literal and ":" in value.text.partition("/")[0]):
                does = f"{name} reaches another host by a program for {value.source[:80]}"
                uses.append(OptionUse(option, value.text, does))
    return list(dict.fromkeys(uses))


def texts_of_options(name: str, arguments: Sequence[Word]) -> list[Word]:
    """The command lines that options of a program name."""
    texts: list[Word] = []
    for _, table, words in _programs(name, arguments):
        for given in _given(table, words):
            kind, value = table.kinds[given.option], given.value
            if value is not None and (kind == "runs" or (kind == "sets" and not value.is_literal)):
                texts.append(value)
            elif value is not None and kind == "sets" and not _is_harmless(table, given):
                texts.append(literal(re.split(r"[=\s]", value.text, maxsplit=1)[-1].lstrip().removeprefix("!")))
    verb, rest = (subcommand(arguments) if name == "git" else None) or ("", ())
    if verb in _GIT_REST:
        place = next((at for at, word in enumerate(rest, start=1) if word.text == _GIT_REST[verb]), len(rest))
        words = rest[place:]
        while words and words[0].text.startswith("-"):
            words = words[1:]
        if words:
            text = " ".join(word.text for word in words)
            texts.append(literal(text) if all(word.is_literal for word in words) else unknown(text))
    if verb == "config":
        texts += (literal(word.text[1:]) for word in rest if word.text.startswith("!"))
    return list(dict.fromkeys(texts))


def outputs_of_options(name: str, arguments: Sequence[Word]) -> Iterator[Word | None]:
    """The files that options of a program say it is there to write."""
    for _, table, words in _programs(name, arguments):
        yield from (given.value for given in _given(table, words) if table.kinds[given.option] == "output")


# Which programs a command line is for


def _programs(name: str, arguments: Sequence[Word], depth: int = 0) -> Iterator[tuple[str, Options, Sequence[Word]]]:
    """Each program that a command line is for, by name, with its row of the table and its words."""
    tables = option_tables()
    if depth > MAX_NESTED:
        yield name, tables["..."], arguments[:1]
        return
    if name == "git":
        verb, rest = subcommand(arguments) or ("", ())
        yield "git", tables["git"], arguments[: len(arguments) - len(rest) - bool(verb)]
        if (table := tables.get(f"git-{verb}")) is not None:
            yield f"git {verb}", table, rest
        # What is not literal counts by the table of the sub-command alone.
        words = [word for word in rest if word.is_literal or word.prefix.startswith("--")]
        yield f"git {verb}", tables["git-*"], words
        return
    if name in ("docker-compose", "podman-compose"):
        yield from _programs(name.removesuffix("-compose"), [literal("compose"), *arguments], depth + 1)
        return
    family = option_table_of(name)
    table = tables.get(family)
    own = arguments
    if (found := _inner_program(family, table, arguments)) is not None:
        inner, own, rest = found
        yield from _programs(inner, rest, depth + 1)
    if table is not None:
        yield name, table, with_dashes(arguments, TAR_VALUED) if family == "tar" else _own_words(table, own)
    if f"{family}-run" in tables:
        # Each word that may say what is done makes something of the words behind it.
        verbs = [at for at, word in enumerate(arguments) if not word.is_literal or f"{family}-{word.text}" in tables]
        for at in verbs[:MAX_NESTED]:
            verb = arguments[at].text if arguments[at].is_literal else "run"
            table = tables[f"{family}-{verb}"]
            yield f"{name} {verb}", table, _own_words(table, arguments[at + 1 :])
            if not arguments[at].is_literal:
                break
        else:
            if len(verbs) > MAX_NESTED:
                yield name, tables["..."], arguments[:1]
    texts = [word.text for word in arguments]
    for verb in dict.fromkeys(texts):
        if (to := _PASSED_ON.get((family, verb))) is not None and "--" in texts:
            inner, *first = to.split()
            yield from _programs(inner, [*map(literal, first), *arguments[texts.index("--") + 1 :]], depth + 1)


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


def _inner_program(
    family: str, table: Options | None, arguments: Sequence[Word]
) -> tuple[str, Sequence[Word], Sequence[Word]] | None:
    """The program that another one is told to run: its name, the words before it, and those behind it."""

    def place_of_operand(place: int) -> int:
        """Where the first word is, from some place on, that is neither an option nor the value of one."""
        while place < len(arguments) and arguments[place].text.startswith("-"):
            place += 2 if table is not None and arguments[place].text.lstrip("-") in table.valued else 1
        return place

    if is_python(family) or family in _RUNNING_MODULES:
        found = next(modules_run(arguments), None)
        return None if found is None else (found[0], arguments[: found[1]], arguments[found[1] :])
    place, is_script = 0, False
    if family in _JS_RUNNERS:
        place = place_of_operand(0)
        if place < len(arguments) and arguments[place].text == "workspace":
            place = place_of_operand(place + 2)
        verb = arguments[place].text if place < len(arguments) else ""
        is_script = verb in _NAMED_SCRIPTS
        if verb in RUN_OTHERS - _SCRIPT_VERBS or is_script:
            place += 1
        elif verb in _SCRIPT_VERBS or verb not in _JS_VERBS:
            is_script = True
        else:
            return None
    elif family in RUNNERS or family == "composer":
        place = next((at for at, word in enumerate(arguments, start=1) if word.text in RUN_OTHERS), len(arguments))
    elif family not in RUNNERS_ALONE:
        return None
    place = place_of_operand(place)
    if place >= len(arguments) or not arguments[place].is_literal:
        return None
    name = arguments[place].text.rpartition("/")[2].partition("@")[0]
    own, rest = arguments[:place], arguments[place + 1 :]
    if family in _JS_RUNNERS or family == "composer":
        # They take away the `--` before what is for the program that they run.
        end = next((at for at, word in enumerate(rest) if word.text == "--"), len(rest))
        # npm takes what stands before that for itself, wherever it stands.
        own = arguments if family == "npm" else own
        rest = [*rest[:end], *rest[end + 1 :]]
    return "package-script" if is_script and name not in option_tables() else name, own, rest


def is_python(name: str) -> bool:
    """Whether a program is Python, by its name without a folder."""
    return re.fullmatch(r"(?:python|pypy)[\d.]*t?w?(?:\.exe)?", name, re.IGNORECASE) is not None


def modules_run(arguments: Sequence[Word]) -> Iterator[tuple[str, int]]:
    """The modules that Python may be told to run by `-m`, and from which of its words on these are for the module."""
    for at, (word, after) in enumerate(pairwise((*arguments, literal(""))), start=1):
        if (option := MODULE_OPTION.fullmatch(word.text)) is not None:
            yield option[1] or after.text, at if option[1] else at + 1


# Which options it is given, and what they do


def _given(table: Options, arguments: Sequence[Word]) -> Iterator[_Given]:
    """The listed options, wherever they stand; also where a word may be the value of another: better one too many."""
    for at, word in enumerate(arguments):
        if word.text == "--" and not (at and arguments[at - 1].text.startswith("-")):
            return
        text = word.text if word.is_literal else word.prefix
        if not text.startswith("-") or text in ("-", "--"):
            continue
        following = arguments[at + 1] if at + 1 < len(arguments) else None
        written, equals, value = text.partition("=")
        bare = written.lstrip("-")
        found = [bare] if len(bare) > 1 and bare in table.kinds else []
        if not found and text.startswith("--") and bare and bare not in table.flags | table.others:
            found = [option for option in table.kinds if len(option) > 1 and option.startswith(bare)]
        for option in found:
            taken = following if option in table.valued else None
            yield _Given(option, written, word, _attached(word, value) if equals else taken, bool(equals))
        if found:
            continue
        stem = text.lstrip("-")
        beginning = next((each for each in table.kinds if each.endswith("*") and stem.startswith(each[:-1])), None)
        if beginning is not None:
            head = text[: len(text) - len(stem) + len(beginning) - 1]
            value = text[len(head) :].removeprefix("=")
            yield _Given(beginning, head, word, _attached(word, value) if value else following, bool(value))
            continue
        # Short options in one word, each with what is behind it in the word, or with the next word.
        for place, letter in enumerate(text[1:] if not text.startswith("--") else "", start=1):
            rest = text[place + 1 :].removeprefix("=")
            if letter in table.kinds and not (table.style == "words" and (rest or place > 1)):
                is_attached = bool(rest) or not word.is_literal
                taken = following if letter in table.valued else None
                yield _Given(
                    letter, text[: place + 1], word, _attached(word, rest) if is_attached else taken, is_attached
                )
                if letter not in table.bare:
                    break
            if letter in table.others or table.style != "getopt":
                break


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
            before = given.word.text.partition(key)[0] if key else f"{written}="
            yield OptionUse(before + key, given.word.text, does)
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
    if all(kind == "output" for kind in table.kinds.values()):
        return
    # Words that may turn out to be listed options.
    previous = ""
    verb = next((word for word in arguments if not word.text.startswith("-")), None) if table.verbs else None
    for word in arguments:
        if word.text == "--" and not previous.startswith("-"):
            return
        is_value = previous.startswith("-") and previous.lstrip("-") in table.valued and not word.may_split
        if not word.is_literal and (word is verb or (not is_value and _may_be_options(word, table.valued, text))):
            source = word.source
            yield OptionUse(source, source, f"it is not known which options {source[:80]} gives {label}")
        previous = word.text


def _is_harmless(table: Options, given: _Given) -> bool:
    harmless, value = table.harmless.get(given.option), given.value
    if harmless is None or value is None:
        return harmless is not None and harmless.fullmatch("") is not None
    if not value.is_literal:
        # The folder that a command is in is inside the workspace, whatever it is called.
        here = _HERE.sub(".", value.source)
        value = read_word(here) if read_word(here).is_literal else read_word(here.strip('"'))
    if not value.is_literal or len(value.text) > MAX_VALUE_CHARS:
        return False
    key = re.split(r"[=\s]", value.text, maxsplit=1)[0] if table.kinds[given.option] == "sets" else value.text
    return (harmless.fullmatch(key) or harmless.fullmatch(value.text)) is not None


# What a word may turn out to be, as far as the text around it tells what its variables hold

MAX_TEXT_CHARS = 8_192  # in a longer text it is not looked for what a variable holds
_PLAIN_VALUE = r"(?:[\w./:%^][\w./:@%+,^-]*|\"[\w./:%^][\w./:@%+,^-]*\"|'[\w./:%^][\w./:@%+,^-]*'|)(?=[\s;&|)]|\Z)"
_PLAIN_LIST = r"(?:[ \t]+[\w./:%^*?][\w./:@%+,^*?-]*)*[ \t]*(?=[;\n]|\Z)"
_PLAIN_OUTPUT = re.compile(
    r"\$\((?:nproc|pwd|whoami|date(?: \+%[YmdHMSFjs](?:[_.:T-]|%[YmdHMSFjs])*)?"
    r"|git (?:merge-base|rev-parse|describe|symbolic-ref|branch|ls-files)"
    r"(?: (?:[\w./@{}~^:]+|--short|--abbrev-ref|--tags|--abbrev=0|--show-current|--show-toplevel|--verify|-q))*"
    # What these print are options of compilers, from where the system keeps them.
    r"|pkg-config(?: (?:--cflags|--libs|--static|[\w+-]+(?:[.-]\d[\w.]*)?(?!\.)))+|python3?-config(?: --\w+)+)\)"
)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z]\w*)\}|([A-Za-z]\w*))", re.ASCII)
_OF_THE_SHELL = re.compile(r"BASH\w*|REPLY|OPTARG|MAPFILE|PWD|OLDPWD|DIRSTACK|COMP\w*|READLINE\w*|PS4|PROMPT\w*")
_GIVING = re.compile(
    r"\b(?:declare|typeset|local|export|readonly|read|printf|mapfile|readarray|getopts|eval|source|let)\b"
)
_BRACES = re.compile(r"\{[^-@=\s{}$`'\"][^=\s{}$`'\"]*\}")
_GLOB = re.compile(r"[\w./@%+,x-]*[*?][^\s$`'\"(){}]*")


def _may_be_options(word: Word, valued: frozenset[str], text: str) -> bool:
    """Whether a word that is not literal may be an option, or become several words with one among them."""
    if word.source.startswith(("~", "<(", ">(")):
        return False
    source = _PLAIN_OUTPUT.sub("x", word.source)
    source = _VARIABLE.sub(lambda found: "x" if _holds_plain_word(found[1] or found[2], text) else found[0], source)
    if not re.search(r"\{[^{}]*,-", source):
        source = _BRACES.sub("x", source)
    known = read_word(source)
    if known.may_split:
        return True
    if re.match(r'"[^-$`"\\]', source):
        return False
    if word.prefix.startswith("-"):
        # Which option it is has to be known; what its value is has been looked at.
        name = word.prefix.lstrip("-")
        return "=" not in name and name[:1] not in valued and name not in valued
    if known.is_literal or known.prefix:
        return known.prefix.startswith("-")
    return _GLOB.fullmatch(source) is None


def _holds_plain_word(name: str, text: str) -> bool:
    """Whether a variable holds one plain word or none, or what the server was started with."""
    if _OF_THE_SHELL.fullmatch(name) or len(text) > MAX_TEXT_CHARS:
        return False
    others = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", "", _PLAIN_OUTPUT.sub("x", text))
    given = len(re.findall(rf"\b{name}\b", others))
    if not given:
        return _GIVING.search(text) is None
    plain = re.findall(rf"(?<![\w$'\"\\]){name}={_PLAIN_VALUE}|\bfor[ \t]+{name}[ \t]+in\b{_PLAIN_LIST}", others)
    return len(plain) == given and _GIVING.search(text) is None
