"""What the words of a shell command say, by a grammar of bash: its simple commands, wherever they stand.

Nothing is expanded, no variable is followed and no option is known. What a command can do is held by the view that it
runs in; its words tell which rules it is under, and what a person is asked about.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import basename, join
from threading import local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_CHARS = 16_384  # of a text that is read; the grammar takes at most 0.1 s for it, whatever it is
MAX_COMMANDS = 2_000
MAX_NESTED = 4  # texts within texts, such as `sh -c "sh -c '...'"`
Words = tuple[str | None, ...]  # each is `None` where what it stands for is not known

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
CONNECTIONS = ("/dev/tcp/", "/dev/udp/")  # no files: a redirection to one of these opens a connection
# What runs text or changes what names mean, in ways that the grammar does not show
_NOT_SHOWN = frozenset(("trap", "eval", "alias", "enable", "hash"))
# Assignments that decide what programs are run or what they load; PYTHONPATH=src is too common to be asked about
_DECIDING = re.compile(r"PATH|BASH_ENV|ENV|IFS|LD_\w*|GIT_\w*|NODE_OPTIONS|PYTHON(?!PATH$)\w*")
# Bash evaluates an index in these, even a quoted one, and with it the command in `a[$(command)]`
_EVALUATING = frozenset(("[[", "[", "((", "test", "let"))
_QUOTED = frozenset(("raw_string", "string", "ansi_c_string"))
_SUBSTITUTION = re.compile(r"\$\(|`")
_NOT_WORDS = frozenset(("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"))
_WILD = re.compile(r"(?<!\\)[*?\[]")
_HOME_OF_OTHERS = re.compile(r"~[^/]")  # of another user, or the folder before (`~-`)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r"\\([$`\"\\\n])")

# Programs that run the program in their words, and the options of these whose value is a word of its own
_WRAPPERS = {
    "env": "-u -C --unset --chdir", "timeout": "-s -k --signal --kill-after", "nice": "-n --adjustment",
    "nohup": "", "time": "-f -o", "stdbuf": "-i -o -e", "command": "", "exec": "-a", "builtin": "",
}  # fmt: skip
# The same where only rules that forbid or ask look behind them
_LOOSE_WRAPPERS = {
    "sudo": "-u -g -h -p -C -r -t -D -R -T", "doas": "-u -C", "xargs": "-I -n -P -L -d -a -s -E",
    "setsid": "", "ionice": "-c -n -p", "chroot": "", "busybox": "", "watch": "-n", "flock": "-w -E",
}  # fmt: skip
_OPERANDS = {"timeout": 1, "chroot": 1, "flock": 1}  # words of the wrapper's own before the program
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    source: str  # as it stands in the command
    words: Words  # the name of the program, and its arguments
    folder: str | None = ""  # where `cd` has led before it, from the folder that the whole starts in; `None` if unknown

    @property
    def name(self) -> str | None:
        """The program as it is called, or `None` where that is not literal."""
        return self.words[0] if self.words else ""

    @property
    def program(self) -> str:
        """The name without the folder of the program; empty where it is not literal."""
        return basename(self.name or "")


@dataclass(frozen=True, slots=True)
class Redirection:
    is_output: bool
    target: str | None  # a path, or `None` where it is not literal
    folder: str | None  # as of a simple command


@dataclass(frozen=True, slots=True)
class CommandText:
    commands: tuple[SimpleCommand, ...] = ()
    inner: tuple[SimpleCommand, ...] = ()  # those of texts that shells in it are given, as far as these are literal
    redirections: tuple[Redirection, ...] = ()
    doubt: str = ""  # why it is not understood, as a sentence without its end; empty where it is
    is_literal: bool = True  # whether nothing in it is expanded
    has_assignments: bool = False  # whether it sets variables, for a command or for what follows
    has_arithmetic: bool = False  # whether bash evaluates something, and with it any command in an index of a variable
    has_background: bool = False  # whether a part of it goes on beside the rest (`&`)


def read_command(text: str) -> CommandText:
    """Read a command. No text is an error: what is not understood has a `doubt`."""
    if len(text) > MAX_CHARS:
        return CommandText(doubt=f"it is longer than {MAX_CHARS:,} characters")
    reader = _Reader()
    reader.read(text)
    inner = _Reader()
    waiting = deque((each, 1) for each in reader.texts)
    budget = MAX_CHARS
    while waiting:
        given, depth = waiting.popleft()
        budget -= len(given)
        if depth > MAX_NESTED or budget < 0:
            reader.doubt = reader.doubt or "texts within texts are nested too deep"
            break
        known = len(inner.texts)
        inner.read(given)
        waiting.extend((each, depth + 1) for each in inner.texts[known:])
    return CommandText(
        tuple(reader.commands),
        tuple(inner.commands),
        tuple(reader.redirections),
        reader.doubt or (f"in a text that a shell is given: {inner.doubt}" if inner.doubt else ""),
        reader.is_literal,
        reader.has_assignments,
        reader.has_arithmetic,
        reader.has_background,
    )


def is_wrapper(name: str) -> bool:
    """Whether a program runs the program in its words."""
    return name == "find" or name in _WRAPPERS or name in _LOOSE_WRAPPERS


def programs_behind(words: Words, *, loosely: bool) -> Iterator[Words]:
    """What a command runs that its words name: itself, and each program behind `env`, `timeout` and the like.

    Args:
        words: The words of a simple command.
        loosely: Whether also to look behind `sudo`, `xargs`, `find -exec` and the like. They change what the program
            may do, so a rule that allows it does not mean these.
    """
    waiting = [words]
    for _ in range(MAX_NESTED * 2):
        if not waiting:
            return
        current = waiting.pop()
        yield current
        name = basename(current[0] or "") if current else ""
        if loosely and name == "find":
            waiting += [current[at + 1 :] for at, word in enumerate(current) if word in FIND_RUNS]
        valued = _WRAPPERS.get(name, _LOOSE_WRAPPERS.get(name) if loosely else None)
        if valued is None:
            continue
        at = 1
        while at < len(current) and (word := current[at]) is not None and word.startswith("-"):
            if name == "env" and word.startswith(("-S", "--split")):
                waiting.append((None,))  # a whole command in one word
            at += 2 if word in valued.split() else 1
        at += _OPERANDS.get(name, 0)
        is_decided = False
        while name in ("env", "sudo") and at < len(current) and (set_to := _ASSIGNMENT.match(current[at] or "")):
            is_decided = is_decided or _DECIDING.fullmatch(set_to[0].rstrip("+=")) is not None
            at += 1
        if is_decided and not loosely:
            waiting.append((None,))  # it is not known what runs
        elif at < len(current):
            waiting.append(current[at:])
    if waiting:
        yield (None,)  # nested too deep to be followed


_parsers = local()  # one for each thread


def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 - loaded at the first command
    from tree_sitter import Language, Parser  # noqa: PLC0415

    if not hasattr(_parsers, "parser"):
        _parsers.parser = Parser(Language(tree_sitter_bash.language()))
    parser: Parser = _parsers.parser
    return parser


class _Reader:
    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.redirections: list[Redirection] = []
        self.texts: list[str] = []  # what shells in it are given to run
        self.doubt = ""
        self.is_literal = True
        self.has_assignments = False
        self.has_arithmetic = False
        self.has_background = False
        self._folder: str | None = ""

    def read(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        tree = _parser().parse(data)
        if tree.root_node.has_error:
            self.doubt = self.doubt or "it is not understood as a command of bash"
        cursor = tree.walk()
        bodies: list[str] = []
        known = len(self.commands)
        while True:
            node = cursor.node
            if node is not None:
                self._take(node, bodies)
            if cursor.goto_first_child():
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    if any(each.program in SHELLS for each in self.commands[known:]):
                        self.texts += bodies
                    return

    def _take(self, node: Node, bodies: list[str]) -> None:
        match node.type:
            case "command" | "declaration_command" | "unset_command" | "test_command":
                self._take_command(node)
            case "compound_statement" if _source(node).startswith("(("):
                self.has_arithmetic = True
                self._look_for_substitutions(node)
            case "variable_assignment":
                self.has_assignments = True
                name = node.child_by_field_name("name")
                if name is not None and _DECIDING.fullmatch(_source(name).partition("[")[0]):
                    self.doubt = self.doubt or f"it sets {_source(name)}, which decides what runs"
                value = node.child_by_field_name("value")
                self.is_literal = self.is_literal and (value is None or literal(value) is not None)
            case "arithmetic_expansion" | "subscript" | "array" | "c_style_for_statement":
                self.has_arithmetic = True
                self.is_literal = False
            case "file_redirect":
                target = node.child_by_field_name("destination")
                operator = next((each.type for each in node.children if each.type[0] in "<>&"), ">")
                if operator not in (">&", "<&") or (target is not None and target.type == "word"):
                    path = literal(target) if target is not None else None
                    if path is not None and path.startswith(CONNECTIONS):
                        self.doubt = self.doubt or "it opens a connection by a redirection"
                    if operator not in (">&", "<&") or path != "-":
                        self.redirections.append(
                            Redirection(operator[0] != "<" or operator == "<>", path, self._folder)
                        )
                    self.is_literal = self.is_literal and path is not None
            case "heredoc_body":
                bodies.append(_source(node))
            case "herestring_redirect":
                text = literal(node.children[-1])
                bodies += [text] if text is not None else []
            case "&":
                self.has_background = True
            case "for_statement" | "case_statement" | "function_definition" | "while_statement" | "if_statement":
                self.is_literal = False
            case _:
                pass

    def _take_command(self, node: Node) -> None:
        if len(self.commands) >= MAX_COMMANDS:
            self.doubt = self.doubt or f"it has more than {MAX_COMMANDS:,} commands"
            return
        words: list[str | None] = []
        if node.type == "test_command":
            words += (node.children[0].type, *_operands(node))
        else:
            is_declaration = node.type == "declaration_command"
            for child in node.children:
                if child.type not in _NOT_WORDS or (is_declaration and child.type == "variable_assignment"):
                    words.append(literal(child))
        name = words[0] if words else ""
        if node.type == "command" and node.child_by_field_name("name") is None:
            return  # assignments alone
        self.is_literal = self.is_literal and None not in words
        if name in _NOT_SHOWN:
            self.doubt = self.doubt or f"'{name}' runs text, or changes what names mean"
        if name in _EVALUATING or (name == "printf" and "-v" in words) or node.type == "declaration_command":
            self._look_for_substitutions(node)
        command = SimpleCommand(_source(node), tuple(words), self._folder)
        self.commands.append(command)
        if name in ("cd", "pushd"):
            target = words[1] if len(words) == 2 else None
            self._folder = None if target is None or self._folder is None else join(self._folder, target)
        for each in programs_behind(command.words, loosely=True):
            if each and basename(each[0] or "") in SHELLS and "-c" in (flags := [_flag(word) for word in each]):
                at = flags.index("-c") + 1
                script = each[at] if at < len(each) else None
                if script is not None:
                    self.texts.append(script)

    def _look_for_substitutions(self, node: Node) -> None:
        waiting = [node]
        while waiting:
            current = waiting.pop()
            if current.type in _QUOTED and _SUBSTITUTION.search(_source(current)):
                self.doubt = self.doubt or "bash may run what stands in a quoted index"
            waiting += current.children


def _operands(test: Node) -> Iterator[str | None]:
    """The words of `[ ... ]` and `[[ ... ]]`, which the grammar nests by their operators."""
    waiting = [*reversed(test.children[1:-1])]
    while waiting:
        node = waiting.pop()
        if node.type.endswith("_expression"):
            waiting += reversed(node.children)
        elif node.is_named:
            yield literal(node)


def _flag(word: str | None) -> str:
    """`-c` for each way in which a shell is told that a text follows, such as `-lc`."""
    return "-c" if word is not None and re.fullmatch(r"-[a-z]*c", word) else word or ""


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


def literal(node: Node) -> str | None:
    """The text that a word stands for whatever the shell holds, or `None`. `~` stays as it is."""
    source = _source(node)
    match node.type:
        case "word" | "variable_name" | "number" | "test_operator" | "file_descriptor" | "special_variable_name":
            if source == "{}":
                return source
            if _WILD.search(source) or _HOME_OF_OTHERS.match(source):
                return None
            return _ESCAPED.sub(lambda found: found[1].strip("\n"), source)
        case "raw_string":
            return source[1:-1]
        case "ansi_c_string":
            return None if "\\" in source else source[2:-1]
        case "string":
            if any(child.type not in ('"', "string_content") for child in node.children):
                return None
            return _ESCAPED_IN_QUOTES.sub(lambda found: found[1].strip("\n"), source[1:-1])
        case "concatenation" | "command_name":
            if source == "{}":
                return source
            parts = [literal(child) for child in node.children]
            if None in parts or any(child.type == "word" and _source(child) in "{}" for child in node.children):
                return None
            return "".join(part for part in parts if part is not None)
        case _ if not node.children and not node.is_named:
            return source  # the name of `export`, `declare`, `unset`
        case _:
            return None


def joined(words: Sequence[str | None]) -> str:
    """Words with blanks between, as rules are held against them; a word that is not known is a NUL."""
    return " ".join("\0" if word is None else word for word in words)
