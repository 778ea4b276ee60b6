"""Uses a bash grammar to parse a shell command into its simple commands, at any depth.

Nothing is expanded: a word whose value depends on an expansion is unknown. What an unknown word may stand for is kept
in `SimpleCommand.shapes`. Options are interpreted only if another command may follow them, as with `env` and `sh -c`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, dropwhile, islice, pairwise, takewhile
from os.path import basename, commonprefix, join
from signal import Signals
from typing import TYPE_CHECKING

from tools.permissions.grammar_check import LOST_DASH, is_read_alike

if TYPE_CHECKING:
    from tree_sitter import Node


MAX_CHARS = 16_384  # maximum characters to parse; takes up to 0.1 s, or 1.5 s for an endless pipeline (`a|a|`...)
MAX_COMMANDS = 2_000
MAX_PROGRAMS = 8  # maximum programs that run each other in a simple command, such as `env nice make`
MAX_FOLDERS = 12  # maximum folders in which a command may work; if there are more, the others are unknown
MAX_CHANGES = 30  # maximum `cd` commands to follow; after more, the current folder is unknown
MAX_NESTED = 4  # maximum depth of nested command strings, such as `sh -c "sh -c '...'"`
Words = tuple[str | None, ...]  # a word is `None` if its value is unknown
# Marks in the shape of a word: `ONE` stands for any text within the word (`"$x"`), `SEVERAL` for any number of words,
# even none (`$x`)
ONE, SEVERAL = "\0", "\1"

# The option for a command string, such as `-lc` of a shell or `--command` of `su`
_COMMAND_STRING_OPTION = re.compile(r"-[a-zA-Z]*c|--[a-z-]*command")
_COMMAND_STRING_GROUP = re.compile(r"-[a-zA-Z]*c[a-zA-Z]+")  # the same option followed by other letters, such as `-cl`
_COMMAND_STRING_PROGRAMS = ("flock", "script", "su")  # programs that pass the text after such an option to a shell
SHELLS = frozenset(("sh", "bash", "rbash", "dash", "ash", "zsh", "ksh"))
_SHELL_OPTION_WITH_VALUE = re.compile(r"[-+][a-zA-Z]*[oO][a-zA-Z]*|--rcfile|--init-file")
_INPUT_OPTION = re.compile(r"-[a-zA-Z]*s[a-zA-Z]*")  # a shell's option to read commands from its input
CONNECTIONS = ("/dev/tcp/", "/dev/udp/")  # in bash, a redirection to such a path opens a connection
# Builtins that run text as code or change what command names mean. The grammar does not show their effect
_OPAQUE_BUILTINS = frozenset(("trap", "eval", "alias", "enable", "hash", "coproc", "compgen", "complete", "bind", "fc"))
# Variables that affect which programs run or what they load, except PYTHONPATH, which is too common. A value does not
# show that it is harmless: the same text names data in one variable and code in another.
_SENSITIVE_VARIABLE = re.compile(
    r"PATH|BASH_ENV|ENV|IFS|PS4|BASHOPTS|SHELLOPTS|PROMPT_COMMAND|SHELL|HOME|XDG_CONFIG_HOME|LD_\w*|DYLD_\w*|GIT_\w*"
    r"|\w*EDITOR|VISUAL|\w*PAGER|BROWSER|LESSOPEN|LESSCLOSE|NODE_(OPTIONS|PATH)|PERL5?(OPT|LIB|DB)|RUBY(OPT|LIB)"
    r"|_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|(GNU)?MAKEFLAGS|GREP_OPTIONS"
    r"|PYTHON(?!(PATH|UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|FAULTHANDLER)$)\w*"
)
# Common assignments to such variables that make nothing else run
_HARMLESS_ASSIGNMENT = re.compile(
    r"(GIT_)?EDITOR=(true|:)|VISUAL=(true|:)|(GIT_)?PAGER=(cat)?|(MAKEFLAGS=-j|NODE_OPTIONS=--max-old-space-size=)\d+"
    r"|JAVA_TOOL_OPTIONS=-Xm[sx]\d+[kKmMgG]"
)
# Builtins that take variable names as arguments. Bash evaluates the index in such a name, and runs the command in
# `a[$(command)]`
_NAMING_BUILTINS = frozenset(("unset", "read", "mapfile", "readarray", "getopts"))
# Builtins that take a variable name after one of these options
_NAMING_OPTIONS = {"printf": "-v", "wait": "-p", "test": "-v -R", "[": "-v -R"}
_DECLARING_BUILTINS = ("declare", "typeset", "export", "readonly", "local")
# Arguments of these builtins that bash does not evaluate: most options, and plain assignments
_PLAIN_DECLARATION = re.compile(r"[-+][^aAin]*|\w+(=[^(\[]*)?", re.ASCII)
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
_PROVIDED_FOLDERS = ("/dev/", "/proc/")  # folders of files that the command itself may provide, such as `/dev/stdin`
_WORD_KINDS = frozenset((
    "word", "number", "string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "brace_expression",
    "simple_expansion", "expansion", "arithmetic_expansion", "command_substitution", "process_substitution",
))  # fmt: skip
_DESCRIPTOR = re.compile(r"\d*-?")
_NON_WORD_KINDS = frozenset(("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"))
_WILDCARD = re.compile(r"(?<!\\)[*?\[]")
_HOME_OF_OTHERS = re.compile(r"~[^/]")  # another user's home, or the previous folder (`~-`)
# An option of `xargs`, such as `-I{}`, in which bash does not expand the braces
_PLACEHOLDER_OPTION = re.compile(r"-\w+\{\}", re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# The text from the first wildcard to the last one
_WILDCARDS = re.compile(r"(?<!\\)[*?](?:.*(?<!\\)[*?])?", re.DOTALL)
_BRACES = re.compile(r"([\w./:@%+=-]*)\{([\w./:@%+=-]+(?:,[\w./:@%+=-]+)+)\}([\w./:@%+=-]*)")
_REPLACE_OPTION = re.compile(r"-[0rtx]*I(.*)", re.DOTALL)  # names the text that `xargs` replaces with its input
_ESCAPED_IN_QUOTES = re.compile(r"\\([$`\"\\\n])")

# Programs that run the program named in their arguments, each with its options that take the next word as their value
_WRAPPERS = {
    "env": "-u -C --unset --chdir", "timeout": "-s -k --signal --kill-after", "nice": "-n --adjustment",
    "nohup": "", "time": "-f -o", "stdbuf": "-i -o -e --input --output --error", "command": "", "exec": "-a",
    "builtin": "",
}  # fmt: skip
# More such programs. Allow rules do not see through them, but other checks do
_LOOSE_WRAPPERS = {
    "sudo": "-u -g -h -p -C -r -t -D -R -T", "doas": "-u -C",
    "xargs": "-I -n -P -L -d -a -s -E --max-args --max-procs --delimiter --arg-file --max-chars",
    "setsid": "", "ionice": "-c -n -p --class --classdata --pid", "chroot": "", "busybox": "", "watch": "-n",
    "flock": "-w -E",
}  # fmt: skip
# The options of these programs that take no value. After any other option, it is unclear which word is the program
_WRAPPER_FLAGS = {
    "env": "-i -0 -v --ignore-environment --null", "timeout": "-v --foreground --preserve-status --verbose",
    "nice": " ".join(f"-{digit}" for digit in range(10)), "time": "-p -v -a -q", "command": "-p -v -V", "exec": "-c -l",
    "sudo": "-n -E -H -S -k -b -A -i -s", "doas": "-n -s", "setsid": "-w -f -c", "ionice": "-t",
    "xargs": "-0 -r -t -x --null --no-run-if-empty --verbose", "watch": "-b -c -d -e -g -t", "flock": "-n -s -x -u -o",
}  # fmt: skip
_CHDIR = re.compile(r"(?:-[0iv]*C|--chdir=?)(.*)", re.DOTALL)  # the option of `env` that changes the folder
_OPERANDS = {"timeout": 1, "chroot": 1, "flock": 1}  # how many operands come before the program
_MAYBE_EMPTY = re.compile(rf"-\w+{ONE}+")  # an option whose attached value may be empty, as in `-f"$X"`
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SYSTEM_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")
# Matches the longest beginning of a line in which every quote is closed and no character changes how the rest is read
_PLAIN_LINE = re.compile(r"""(?:[^'"\\$`#<(\[\n]|'[^']*'|"[^"\\$`]*")*""")
_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
# A program's name that cannot be the number or the signal that `timeout` takes as an operand or an option's value
_NO_OPERAND = re.compile(
    rf"(?!sig|inf|nan|rt|cld|exit|({'|'.join(name[3:] for name in Signals.__members__)})$)[a-z/].*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    source: str  # as written in the command
    words: Words  # the program's name and its arguments
    # The current folder if every earlier `cd` succeeded, relative to the working directory; `None` if unknown
    folder: str | None = ""
    known_words: tuple[str, ...] = ()  # like `words`, but an unknown word is replaced by its likely beginning and a NUL
    # Like `words`, but unknown parts are marked by `ONE` and `SEVERAL`, and simple braces are expanded (`{a,b}`)
    shapes: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The program as written, or `None` if it is not literal. Empty if there are no words."""
        return self.words[0] if self.words else ""

    @property
    def program(self) -> str:
        """The program without its folder; empty if it is not literal."""
        return basename(self.name or "")


@dataclass(frozen=True, slots=True)
class Redirection:
    is_output: bool
    keeps: bool  # whether bash opens the file without truncating it, as for `<`, `<>` and `>>`
    target: str | None  # the redirection's path, or `None` if that path is not literal
    folder: str | None  # as in `SimpleCommand`


@dataclass(slots=True)
class CommandText:
    commands: list[SimpleCommand] = field(default_factory=list[SimpleCommand])
    inner: list[SimpleCommand] = field(default_factory=list[SimpleCommand])  # commands in literal command strings
    redirections: list[Redirection] = field(default_factory=list[Redirection])
    inner_redirections: list[Redirection] = field(default_factory=list[Redirection])  # those in literal command strings
    values: list[str] = field(default_factory=list[str])  # the literal values that the text assigns to variables
    source: str = ""  # the whole text, with spaces in place of output redirections
    # If a `cd` may fail, be skipped or be in a subshell: every folder in which any command may work. Also the folders
    # in which `env` runs programs
    folders: dict[str | None, None] = field(default_factory=dict[str | None, None])
    doubt: str = ""  # why the text was not fully understood, as a clause; else empty
    is_literal: bool = True  # whether the text contains no expansions, loops, branches or functions
    has_assignments: bool = False  # whether the text sets variables
    may_run_more: bool = False  # whether bash may run something that the grammar does not show
    has_background: bool = False  # whether part of the text runs in the background (`&`)


def read_command(text: str) -> CommandText:
    """Parse a command. Never fails; if the command is not understood, the result's `doubt` says why."""
    if len(text) > MAX_CHARS:
        return CommandText(doubt=f"it is longer than {MAX_CHARS:,} characters", source=text)
    reader = _Reader(text)
    result, chars_left = reader.result, MAX_CHARS
    waiting = deque((*inner, reader.result.folders, 1) for inner in reader.texts)
    while waiting:
        command_string, folder, folders, depth = waiting.popleft()
        chars_left -= len(command_string)
        if depth > MAX_NESTED or chars_left < 0:
            result.doubt = result.doubt or "its command strings are nested too deeply"
            break
        reader = _Reader(command_string, folder, folders)
        result.inner += reader.result.commands
        result.inner_redirections += reader.result.redirections
        result.folders |= reader.result.folders
        result.is_literal = result.is_literal and reader.result.is_literal
        result.has_background = result.has_background or reader.result.has_background
        result.may_run_more = result.may_run_more or reader.result.may_run_more
        if reader.result.doubt and not result.doubt:
            result.doubt = f"in a command string for a shell: {reader.result.doubt}"
        waiting.extend((*inner, reader.result.folders, depth + 1) for inner in reader.texts)
    return result


def syntax_error(text: str) -> str:
    """Return why bash certainly cannot parse a line, or an empty string.

    Only lines without escapes, expansions, comments and brackets are checked. Bash parses the whole line before it runs
    anything.
    """
    match = _PLAIN_LINE.match(text)
    if match is None or "\n" in text:
        return ""
    rest = text[match.end() :]
    if rest[:1] in ("'", '"') and rest[0] not in rest[1:] and (rest[0] == "'" or not set("\\$`") & set(rest)):
        return f"a quote ({rest[0]}) is not closed"
    operator = next(filter(text.rstrip(" ").endswith, ("&&", "||", "|")), "")
    return f"nothing follows {operator}" if operator and not rest else ""


def is_wrapper(name: str) -> bool:
    """Return True if a program runs another program, named in its arguments."""
    return name == "find" or name in _WRAPPERS or name in _LOOSE_WRAPPERS


def is_known(word: str) -> bool:
    """Return True if no part of a word's shape is unknown."""
    return ONE not in word and SEVERAL not in word


def plain_name(name: str) -> str:
    """Return a program's base name. Empty if the name includes a folder that is not a system folder."""
    folder, _, base = name.rpartition("/")
    return base if folder in _SYSTEM_FOLDERS else ""


def programs_run_by(words: Words, *, loosely: bool) -> Iterator[Words]:
    """Yield the words of each program that a command runs: its own words, and those after `env` and similar wrappers.

    If `loosely` is true, also see through `sudo`, `xargs`, `find -exec` and similar wrappers. These change what a
    program may do or what it works on, so a rule that allows the program alone does not cover them.
    """
    waiting = [words]
    for _ in range(MAX_PROGRAMS):
        if not waiting:
            return
        current = waiting.pop()
        yield current
        name = (current[0] or "") if current else ""
        name = basename(name) if loosely else plain_name(name)  # the workspace may contain a program called `env`
        if loosely and name == "find":
            waiting += islice(_programs_of_find(current), MAX_PROGRAMS + 1)
        if name not in _WRAPPERS and not (loosely and name in _LOOSE_WRAPPERS):
            continue
        at, is_clear = _skip_options(current, name)
        operands_at = at
        at += _OPERANDS.get(name, 0)
        # To these programs, any word with an equals sign is an assignment, even if no variable can have that name.
        while name in ("env", "sudo") and at < len(current) and "=" in (assignment := current[at] or ""):
            variable = assignment.partition("=")[0].removesuffix("+")
            is_clear = is_clear and _VARIABLE.fullmatch(variable) is not None
            is_clear = is_clear and not _is_sensitive(variable, assignment)
            at += 1
        # Bash may split an unknown word into several, or drop it, so the words after it may have other meanings. In
        # quotes, it stays one word, but as an option of `env` it may run something (`-S`) or change the folder (`-C`).
        is_clear = is_clear and not any(word is None or SEVERAL in word for word in current[:at])
        texts = [word or ONE for word in current]
        is_clear = is_clear and not (name == "env" and any(ONE in text for text in texts[:operands_at]))
        # If the value attached to an option turns out to be empty, the program takes the next word as the value.
        is_clear = is_clear and not (name in ("time", "exec") and any(map(_MAYBE_EMPTY.fullmatch, texts[:operands_at])))
        operands = "".join(texts[operands_at:at])
        if name == "timeout" and operands[:1] == ONE:  # it may be an option
            is_clear = is_clear and _NO_OPERAND.fullmatch("".join(filter(None, current[at : at + 1]))) is not None
        program = current[at] if at < len(current) else ""
        if not is_clear or program is None or (name == "env" and program[:1] == ONE):
            waiting.append((None,))
        if at < len(current) and (loosely or is_clear):
            waiting.append(current[at:])
    if waiting:
        yield (None,)  # nested too deeply to follow


def _is_sensitive(variable: str, assignment: str = "") -> bool:
    """Return True if setting a variable affects which programs run or what they load."""
    return _SENSITIVE_VARIABLE.fullmatch(variable) is not None and not _HARMLESS_ASSIGNMENT.fullmatch(assignment)


def _programs_of_find(words: Words) -> Iterator[Words]:
    """Yield the words after each option of `find` that runs a program, or that may be such an option."""
    texts = [word or ONE for word in words]
    folders = dropwhile(lambda word: word in ("-H", "-L", "-P"), texts[1:])
    starts = [*takewhile(lambda word: word[:1] not in ("-", "(", "!"), folders)] or ["."]
    # The path of each file that is found begins with the path of a folder to search in.
    start = commonprefix(starts)  # noqa: RUF071 - not a path, but what all paths of files begin with
    start = "" if any(word.startswith(("-D", "-O", "-files0")) for word in texts) else start
    file = f"{start}{SEVERAL if '+' in texts and not start else ONE}"
    for at, word in enumerate(words):
        is_split = word is not None and SEVERAL in word
        beginning = word.partition(ONE)[0] if word and ONE in word else None
        is_maybe_option = beginning is not None and any(name.startswith(beginning) for name in _FIND_RUNS)
        if is_split or word in _FIND_RUNS or is_maybe_option:
            program = (inner and inner.replace("{}", file) for inner in words[at + 1 :])
            yield (*((SEVERAL,) if is_split else ()), *program)


def _folders_of_env(words: Words) -> Iterator[str | None]:
    """Yield the folders to which `env` changes before it runs a program, which may be another `env`."""
    folder: str | None = ""
    for current in programs_run_by(words, loosely=False):
        if not current or plain_name(current[0] or "") != "env":
            continue
        at, _ = _skip_options(current, "env")
        start = folder
        for word, next_word in pairwise((*current[1:at], None)):
            if word is not None and (option := _CHDIR.fullmatch(word)):
                folder = _folder_after(start, option[1] or next_word)
                yield folder


def _skip_options(words: Words, wrapper: str) -> tuple[int, bool]:
    """Return the position after a wrapper's options, read as `getopt` does, and whether all of them are known."""
    value_options = (_WRAPPERS | _LOOSE_WRAPPERS)[wrapper].split()
    flags = _WRAPPER_FLAGS.get(wrapper, "").split()
    at, is_known = 1, True
    while at < len(words) and (word := words[at]) is not None and word.startswith("-"):
        at += 1
        if word == "--":
            break
        takes_next_word = False
        if word.startswith("--"):  # GNU programs also accept abbreviated long options, which count as unknown
            option, equals, _ = word.partition("=")
            takes_next_word = option in value_options and not equals
            is_known = is_known and (option in value_options or word in flags)
        else:
            letters = [f"-{letter}" for letter in word[1:]]
            end = next((number for number, letter in enumerate(letters) if letter not in flags), len(letters))
            takes_next_word = end == len(letters) - 1 and letters[end] in value_options
            is_known = is_known and (end == len(letters) or letters[end] in value_options)
        at += takes_next_word
    return min(at, len(words)), is_known


class _Reader:
    """Parses one text, but not the command strings in it.

    `folder` and `folders` are the folders in which the text begins, as in `SimpleCommand` and `CommandText`.
    """

    def __init__(self, text: str, folder: str | None = "", folders: Iterable[str | None] = ()) -> None:
        import tree_sitter_bash  # noqa: PLC0415 - loaded by the first command
        from tree_sitter import Language, Parser  # noqa: PLC0415 - as above

        self.result = CommandText()
        # Command strings for shells, to be parsed later, each with the folder in which it begins
        self.texts: list[tuple[str, str | None]] = []
        self._folder = folder  # the current folder if every `cd` so far succeeded
        self._folders = dict.fromkeys(folders or (folder,))  # every folder that may be current in any part of the text
        # For each `env` that changes the folder: the current folder if every `cd` so far succeeded, and the target
        self._changes_of_env: dict[tuple[str | None, str | None], None] = {}
        # How many of `_folders` matter to a command or redirection, because it follows their `cd`
        self._used_folders = 0
        self._changes = 0  # how many `cd` commands there are so far
        self._is_certain = not folders  # whether every `cd` so far was certain (see `_change_folder`)
        self._certain_ids: set[int] = set()  # the ids of commands that only `&&` joins to all others
        self._has_shell = False  # whether a shell, which may run its input, is among the programs
        self._has_loop = False  # whether there is a loop, or a function, which may also be called `cd`
        # Arguments after redirections, keyed by the id of the command's node; `None` stands for a `-` argument
        self._words_after_redirection: dict[int, list[Node | None]] = {}
        # The last value assigned to each variable, empty if not literal. At run time, the value may be different
        self._values: dict[str, str] = {}
        self._source = bytearray(text.encode("utf-8", "surrogatepass"))
        root = Parser(Language(tree_sitter_bash.language())).parse(bytes(self._source)).root_node
        if root.has_error:
            self._doubt("it could not be parsed as a bash command")
        self.result.may_run_more = not is_read_alike(root, bytes(self._source))
        waiting = root.named_children if root.named_child_count == 1 else []
        while waiting:
            node = waiting.pop()
            # The grammar puts what follows a here-document's delimiter, such as `|| make`, into the redirection.
            is_chain = {"||", "heredoc_redirect"}.isdisjoint(child.type for child in node.children)
            if node.type in ("list", "redirected_statement") and is_chain:
                waiting += node.children
            self._certain_ids.add(node.id)
        bodies: list[tuple[str, str | None]] = []
        waiting = [root]
        while waiting:
            node = waiting.pop()
            self._visit(node, bodies)
            waiting += reversed(node.children)
        if self._has_shell:
            self.texts += bodies
        used_folders = self._folders if self._has_loop else islice(self._folders, self._used_folders)
        starts = () if self._is_certain else (*used_folders,)
        self.result.folders = dict.fromkeys(starts)
        for own_folder, target in self._changes_of_env:
            _add_folders(self.result.folders, (own_folder, *starts), target)
        self.result.source = self._source.decode("utf-8", "surrogatepass")

    def _doubt(self, reason: str) -> None:
        self.result.doubt = self.result.doubt or reason

    def _visit(self, node: Node, bodies: list[tuple[str, str | None]]) -> None:
        result = self.result
        match node.type:
            case "command" | "declaration_command" | "unset_command" | "test_command":
                self._visit_command(node)
            case "variable_assignment":
                result.has_assignments = True
                name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
                text = "" if value is None else literal(value)
                variable = "" if name is None else _source(name).partition("[")[0]
                self._doubt_if_sensitive(variable, f"{variable}={text}")
                result.values += filter(None, [text])
                self._values[_source(node).partition("=")[0]] = text or ""
                result.is_literal = result.is_literal and text is not None
            case "expansion" if {"=", ":="} & {child.type for child in node.children}:
                self._doubt_if_sensitive(_source(node.children[1]))
            case "redirected_statement":
                self._collect_words_after_redirection(node)
            case "file_redirect":
                self._visit_redirection(node)
            case "heredoc_body":
                bodies.append((_source(node), self._folder))
            case "herestring_redirect":
                bodies.append((literal(node.children[-1]) or "", self._folder))
            case "&":
                result.has_background = True
            case "for_statement" | "case_statement" | "function_definition" | "while_statement" | "if_statement":
                result.is_literal = False
                self._has_loop = self._has_loop or node.type not in ("case_statement", "if_statement")
                variable = node.child_by_field_name("variable")
                self._doubt_if_sensitive("" if variable is None else _source(variable))
            case "arithmetic_expansion" | "subscript" | "array" | "c_style_for_statement":
                result.is_literal = False
                self._has_loop = self._has_loop or node.type == "c_style_for_statement"
            case _:
                pass

    def _doubt_if_sensitive(self, name: str, assignment: str = "") -> None:
        self.result.is_literal = self.result.is_literal and name != "HOME"  # `~` may be another folder
        if _is_sensitive(name, assignment):
            self._doubt(f"it sets {name}, which decides what runs")

    def _visit_redirection(self, node: Node) -> None:
        target = node.child_by_field_name("destination")
        path = literal(target) if target is not None else None
        operator = next((child.type for child in node.children if child.type[0] in "<>&"), ">")
        if operator.startswith((">&", "<&")) and (target is None or _DESCRIPTOR.fullmatch(_source(target))):
            return
        if path is not None and path.startswith(CONNECTIONS):
            self._doubt("it opens a connection through a redirection")
        is_output = operator[0] != "<" or operator == "<>"
        if is_output and operator != "<>":
            # Blank the source only up to the target, because words after the target are arguments of the command.
            end = node.end_byte if target is None else target.end_byte
            self._source[node.start_byte : end] = b" " * (end - node.start_byte)
        self._used_folders = len(self._folders)
        keeps = operator[0] == "<" or operator.endswith(">>")
        self.result.redirections.append(Redirection(is_output, keeps, path, self._folder))
        self.result.is_literal = self.result.is_literal and path is not None

    def _visit_command(self, node: Node) -> None:
        if len(self.result.commands) >= MAX_COMMANDS:
            self._doubt(f"it has more than {MAX_COMMANDS:,} commands")
            return
        if node.type == "command" and node.child_by_field_name("name") is None:
            return  # only assignments
        is_declaration = node.type == "declaration_command"
        children: list[Node | None] = []
        if node.type == "test_command":
            # The grammar nests the operands of `[ ... ]` and `[[ ... ]]` by operator.
            children.append(node.children[0])
            waiting = [*reversed(node.children[1:-1])]
            while waiting:
                part = waiting.pop()
                if part.type.endswith("_expression"):
                    waiting += reversed(part.children)
                elif part.is_named:
                    children.append(part)
        else:
            left_out = _NON_WORD_KINDS - {"variable_assignment"} if is_declaration else _NON_WORD_KINDS
            children += (child for child in node.children if child.type not in left_out)
            children += self._words_after_redirection.get(node.id, ())
        words = tuple("-" if child is None else literal(child) for child in children)
        known_words = tuple("-" if child is None else self._known_beginning(child) for child in children)
        self.result.is_literal = self.result.is_literal and None not in words
        if is_declaration:
            kinds = ("variable_assignment", "variable_name")
            self._check_declared(
                literal(child) or "" for child in filter(None, children[1:]) if child.type not in kinds
            )
        shapes = tuple(shape for child in children for shape in _shapes(child))
        self.result.commands.append(SimpleCommand(_source(node), words, self._folder, known_words, shapes))
        self._changes_of_env |= {(self._folder, target): None for target in _folders_of_env(words)}
        self._used_folders = len(self._folders)
        *_, program_words = programs_run_by(words, loosely=False)  # also `cd` after `command` or `builtin`
        if program_words[:1] in (("cd",), ("pushd",)):
            target = program_words[1] if len(program_words) == 2 else None
            # CDPATH, HOME and options can change where `cd` goes.
            last = children[-1]
            is_home = (
                last is not None and _source(last)[:2] in ("~", "~/") and b"HOME" not in self._source
            )  # not in quotes
            if b"CDPATH" in self._source or (target and target[0] in ("-+" if is_home else "~-+")):
                target = None
            self._change_folder(target, is_certain=node.id in self._certain_ids and program_words == words)
        readings = dict.fromkeys((with_input_of_xargs(shapes), known_words))
        for program_words in chain.from_iterable(programs_run_by(reading, loosely=True) for reading in readings):
            texts = tuple(word or SEVERAL for word in program_words)
            self._check_program(basename(texts[0]) if texts else "", texts)
            # To the grammar, `declare` is an ordinary command after another word.
            self._check_declared(texts[1:] if not is_declaration and "".join(texts[:1]) in _DECLARING_BUILTINS else ())
            # An unknown first word may be nothing, or a wrapper. After `-S`, `env` runs the text of a word.
            is_unknown = bool(texts) and not is_known(texts[0])
            self.result.is_literal = self.result.is_literal and not is_unknown
            shells = [at for at, text in enumerate(texts) if is_unknown and basename(text) in SHELLS]
            for at in shells[:MAX_PROGRAMS]:
                self._check_program(basename(texts[at]), texts[at:])
            self.result.may_run_more = self.result.may_run_more or len(shells) > MAX_PROGRAMS

    def _check_declared(self, words: Iterable[str]) -> None:
        """Check the arguments of `declare` or a similar builtin, except those that the grammar marks as assignments."""
        for word in words:
            name, equals, _ = word.partition("=")
            self._doubt_if_sensitive(name if equals else "", word)
            self.result.may_run_more = self.result.may_run_more or not _PLAIN_DECLARATION.fullmatch(word)

    def _change_folder(self, target: str | None, *, is_certain: bool) -> None:
        """Follow a `cd`. It is certain if nothing after it runs unless it succeeds."""
        self._changes += 1
        # A repeated `cd` to a relative path may lead to any folder.
        if self._changes > MAX_CHANGES or (self._has_loop and target and target[0] not in "/~"):
            target = None
        self._is_certain = self._is_certain and is_certain and target is not None and not self._has_loop
        _add_folders(self._folders, (self._folder,) if self._is_certain else tuple(self._folders), target)
        self._folder = _folder_after(self._folder, target)

    def _collect_words_after_redirection(self, node: Node) -> None:
        """Remember the arguments after a redirection, because the grammar makes them part of the redirection."""
        command, source = node.children[0], node.text or b""
        while command.type in ("pipeline", "negated_command", "list", "redirected_statement") and command.children:
            command = command.children[0 if command.type == "redirected_statement" else -1]
        words: list[Node | None] = []
        for previous, current in pairwise(node.children):
            is_lost = source[previous.end_byte - node.start_byte : current.start_byte - node.start_byte] == LOST_DASH
            words += [None] if is_lost else []
            waiting = [current]
            while waiting:
                part = waiting.pop()
                if part.type == "heredoc_redirect":
                    waiting += reversed(part.children)
                elif part.type == "file_redirect":
                    operands = [child for child in part.children if child.is_named and child.type != "file_descriptor"]
                    words += operands[0 if any(child.type.endswith("&-") for child in part.children) else 1 :]
                elif part.type in _WORD_KINDS:
                    words.append(part)
        self._words_after_redirection[command.id] = words + self._words_after_redirection.get(command.id, [])

    def _known_beginning(self, node: Node) -> str:
        """Return a literal word, or else the known beginning (of a variable, its last value if literal) and a NUL."""
        text = literal(node)
        if text is not None:
            return text
        if node.type in ("simple_expansion", "expansion"):
            return self._values.get(_source(node).strip("${}"), "") + "\0"
        if node.type == "word":
            return _WILDCARD.split(_source(node))[0] + "\0"
        prefix = ""
        for child in node.children if node.type in ("string", "concatenation", "command_name") else ():
            if child.type != '"':
                prefix += _source(child) if child.type == "string_content" else self._known_beginning(child)
            if prefix.endswith("\0"):
                return prefix
        return prefix or "\0"

    def _check_program(self, name: str, words: tuple[str, ...]) -> None:
        """Check the words of a shell builtin, or of a program that runs a command string."""
        if name in _OPAQUE_BUILTINS:
            self._doubt(f"'{name}' runs text as code or changes what command names mean")
        self._has_shell = self._has_shell or name in SHELLS
        text, arguments = "", words[1:]
        if name in SHELLS or name in _COMMAND_STRING_PROGRAMS:
            text = next(islice(dropwhile(lambda word: not _COMMAND_STRING_OPTION.fullmatch(word), words), 1, 2), "")
            inner = text, self._folder
            self.texts += [inner] if text and is_known(text) and inner not in self.texts else []
        # Whether the program may run something that its arguments do not show
        if text:
            runs_more = not is_known(text) or text[0] == "-"
        elif name in SHELLS or name in ("source", "."):
            is_about_shell = arguments in (("--version",), ("--help",))
            at = 0
            while at < len(arguments) and arguments[at].startswith(("-", "+")):
                at += 1 if _SHELL_OPTION_WITH_VALUE.fullmatch(arguments[at]) is None else 2
            options, file = arguments[:at], "".join(arguments[at : at + 1]) or ONE
            # The script may be unknown, or be provided by the command itself.
            is_input = any(map(_INPUT_OPTION.fullmatch, options)) or file.startswith(_PROVIDED_FOLDERS)
            is_unknown = is_input or not all(map(is_known, (file, *options)))
            # With `-n`, a shell only checks the script.
            file = "".join(arguments[1:2])
            is_check = (
                name in SHELLS and arguments[:1] == ("-n",) and SEVERAL not in file and file[:1] not in ("", ONE, *"-+")
            )
            is_group = any(map(_COMMAND_STRING_GROUP.fullmatch, arguments))
            runs_more = not (is_about_shell or is_check) and (is_unknown or is_group)
        elif name in _NAMING_BUILTINS:
            runs_more = any(not is_known(word) or "[" in word or word.startswith("-C") for word in arguments)
        elif name in _NAMING_OPTIONS:
            options = _NAMING_OPTIONS[name].split()
            runs_more = any(
                word[:2] in options and (len(word) > 2 or _PLAIN_NAME.fullmatch(next_word) is None)
                for word, next_word in pairwise((*arguments, ""))
            )
        elif name == "watch":  # passes its arguments to a shell as one text
            runs_more = not all(map(is_known, words[_skip_options(words, name)[0] :]))
        else:
            runs_more = name == "let" or name in _OPAQUE_BUILTINS
        self.result.may_run_more = self.result.may_run_more or runs_more
        for word in arguments if name in _NAMING_BUILTINS or (name == "printf" and "-v" in words) else ():
            self._doubt_if_sensitive(word)


def _folder_after(folder: str | None, target: str | None) -> str | None:
    """Return the current folder after a `cd` from a folder to a target."""
    if folder is None or target is None:
        return None
    return target if target.startswith("~") else join(folder, target)


def _add_folders(folders: dict[str | None, None], starts: Iterable[str | None], target: str | None) -> None:
    for start in starts:
        folders[_folder_after(start, target) if len(folders) < MAX_FOLDERS else None] = None


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


def _unescaped(text: str, escape: re.Pattern[str]) -> str:
    return escape.sub(lambda match: match[1].strip("\n"), text)  # bash removes an escaped newline


def literal(node: Node) -> str | None:
    """Return the text of a literal word, or `None`. `~` is not expanded."""
    source = _source(node)
    match node.type:
        case "word" | "variable_name" | "number" | "test_operator" | "file_descriptor" | "special_variable_name":
            if source == "{}":
                return source
            if _WILDCARD.search(source) or _HOME_OF_OTHERS.match(source):
                return None
            return _unescaped(source, _ESCAPED)
        case "raw_string":
            return source[1:-1]
        case "ansi_c_string":
            return None if "\\" in source else source[2:-1]
        case "string":
            if any(child.type not in ('"', "string_content") for child in node.children):
                return None
            return _unescaped(source[1:-1], _ESCAPED_IN_QUOTES)
        case "concatenation" | "command_name":
            if source == "{}" or _PLACEHOLDER_OPTION.fullmatch(source):
                return source
            parts = [literal(child) for child in node.children]
            has_brace = any(child.type == "word" and _source(child) in "{}" for child in node.children)
            return None if None in parts or has_brace else "".join(filter(None, parts))
        case _ if not node.children and not node.is_named:
            return source  # a keyword in place of a program, such as `export`, `unset` or `[[`
        case _:
            return None


def _shapes(node: Node | None) -> Sequence[str]:
    """Return the shape of a word, or of each word to which bash expands it because of braces."""
    if node is None:
        return "-"
    braces = _BRACES.fullmatch(_source(node))
    return [f"{braces[1]}{part}{braces[3]}" for part in braces[2].split(",")] if braces else [_shape(node)]


def _shape(node: Node) -> str:
    source, text = _source(node), literal(node)
    match node.type:
        case _ if text is not None:
            return text
        case "string":
            shape = "".join(_shape(child) for child in node.children[1:-1])
            return shape if "@" in source else shape.replace(SEVERAL, ONE)  # `"$@"` is several words
        case "concatenation" | "command_name" if not any(
            child.type == "word" and re.search(r"[\[{]", _source(child)) for child in node.children
        ):
            return "".join(map(_shape, node.children))
        case "string_content":
            return _unescaped(source, _ESCAPED_IN_QUOTES)
        case "word" if not source.startswith("~"):
            # The files that match `a*` or `*z` count as one word, because few rules name two such files in sequence.
            text = _WILDCARDS.sub(SEVERAL if _WILDCARDS.fullmatch(source) else ONE, source)
            return _unescaped(text, _ESCAPED)
        case "word" if "\\" in source:
            return SEVERAL
        case "word" | "ansi_c_string" | "translated_string" | "process_substitution" | "arithmetic_expansion":
            return ONE
        case _:
            return SEVERAL


def with_input_of_xargs(shapes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command, including those that `xargs` adds at the end or puts in place of a placeholder."""
    at = next((at for at, word in enumerate(shapes) if basename(word) == "xargs"), None)
    if at is None:
        return shapes
    for option_at, word in enumerate(shapes[at + 1 :], at + 1):
        if option := _REPLACE_OPTION.fullmatch(word):
            first = option_at + (1 if option[1] else 2)
            placeholder = option[1] or "".join(shapes[first - 1 : first])
            rest = (word.replace(placeholder, ONE) if placeholder else word for word in shapes[first:])
            return (*shapes[:first], *rest)
    return (*shapes, SEVERAL)


def joined(words: Sequence[str | None]) -> str:
    """Join words with spaces for comparison with rules. An unknown word becomes a NUL."""
    return " ".join("\0" if word is None else word for word in words)


def may_fit(pattern: str, shapes: Sequence[str], *, anywhere: bool) -> bool:
    """Return True if `pattern`, in which `*` stands for any text, fits words that these shapes may stand for.

    With `anywhere`, the pattern may also begin at a later word. Takes linear time.
    """
    end, every = 1 << len(pattern), (2 << len(pattern)) - 1
    places: dict[str, int] = {}  # for each character, the bits of its positions in the pattern
    for at, character in enumerate(pattern):
        places[character] = places.get(character, 0) | 1 << at
    stars = places.pop("*", 0)
    inside_word = every & ~places.get(" ", 0)

    def with_stars(states: int) -> int:
        """Add the positions after stars, because a star may stand for nothing."""
        while (more := states | (states & stars) << 1) != states:
            states = more
        return states

    states = with_stars(1)  # the positions in the pattern that the text may have reached
    for at, shape in enumerate(shapes):
        if not (states or anywhere):
            return False
        # A shape that may stand for no word includes the space before it.
        for character in shape if at == 0 or shape[:1] == SEVERAL else f" {shape}":
            if character == SEVERAL:
                states = every if anywhere else every & -(states & -states)
            elif character == ONE:
                while (more := with_stars(states | (states & inside_word) << 1 & every)) != states:
                    states = more
            else:
                states = with_stars((states & places.get(character, 0)) << 1 | states & stars)
            if anywhere and character in (" ", SEVERAL):
                states = with_stars(states | 1)
    return bool(states & end)
