"""The words of a command: what each stands for by bash's rules of quoting, and what variables and braces make of it.

Options are told from operands here too, by what each program takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice

_PLAIN = re.compile(r"[\w./:@%+,^=#!\]}-]+\Z", re.ASCII)
_HOME = re.compile(r"~(?=/|\Z)|\"?\$(?:HOME\b|\{HOME\})\"?(?=/|\"|\Z)")
_HOME_BEGINNING = re.compile(r"\"?(~(?=/)|\$(?:HOME\b|\{HOME\}))\"?(/[\w./@%+,-]*)", re.ASCII)
_ONLY_STARS = re.compile(r"[^$`~<>()\"'\\]*")
_ENDING = re.compile(r"(?<![\w./@%+,-])[\w.@%+,-]*/([\w./@%+,-]+)\"?\Z", re.ASCII)
_NAME_END = re.compile(r"[\w.-]*\Z", re.ASCII)
_SUBSTITUTION = re.compile(r"\$\([^()]*\)")
_EXPANSION = re.compile(r"\$(?=[A-Za-z0-9_{(\[@*#?$!-])|`")
_TILDE_VALUE = re.compile(r"[=:]~")
_ANSI_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL
)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# A part of a word that is quoted in one way, or not at all
PIECE = re.compile(
    r"(?P<single>'[^']*')|(?P<ansi>\$'(?:\\.|[^'\\])*')|(?P<double>\$?\"(?:\\.|[^\"\\])*\")|(?P<escape>\\.)"
    r"|(?P<bare>(?:\$\$|\$(?![\"'])|[^'\"\\$])+)",
    re.DOTALL,
)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=", re.ASCII | re.DOTALL)
LINE_CONTINUED_IN_WORD = re.compile(r"(?<=[^ \t\n])\\\n(?=[^ \t\n])")
_DOUBLE_ESCAPE = re.compile(r"\\([$`\"\\\n])")
# What stands for a number or a date
NUMBER = re.compile(r'\$\$|\$\{\$\}|\$RANDOM\b|\$\(date "?\+%[YmdHMSFjs](?:[_.:T-]|%[YmdHMSFjs])*"?\)', re.ASCII)
FOUND = "{}"  # where `find` and the like put what they have found into another command
CONTENTS = "\0"  # a name that no word says: what an archive holds, or a folder that is copied
_LAST_ASCII = 0x7F
_MAX_CACHED = 4_096
_MAX_CACHED_CHARS = 64


def names(text: str) -> frozenset[str]:
    """The names in a text, with white space between them."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    source: str  # as it stands in the command
    text: str  # what it stands for if that is known, else the source
    is_literal: bool  # whether it stands for exactly one known text
    prefix: str  # what its text begins with for certain
    may_split: bool  # whether it may become several words, or none
    path: str | None  # as a path: the text, or `~/x` and `$HOME/x` as they stand; `None` if it is not known

    @property
    def beginning(self) -> str:
        """The folder that it names something in for certain, if it is a path; empty if none is known."""
        home = _HOME_BEGINNING.match(self.source)
        known = home[1] + home[2] if home else self.prefix
        return known.rpartition("/")[0]

    @property
    def is_open(self) -> bool:
        """Whether it may be a path to anywhere: one with stars alone stays in its folder."""
        is_list = "{" in self.source and "/" in self.source
        return not self.is_literal and (is_list or ".." in self.source or not _ONLY_STARS.fullmatch(self.source))

    @property
    def ending(self) -> str:
        """What it ends with for certain, if it is a path, from behind a slash on; empty if that is not known."""
        found = _ENDING.search(self.source)
        return found[1] if found and not self.is_literal else ""

    @property
    def script(self) -> str:
        """The text that a shell reads where it is given this: without quotes, and what is not known as it stands."""

        def unquoted(piece: re.Match[str]) -> str:
            if piece.lastgroup == "double":
                # What is escaped here is a variable of the inner shell.
                return _without_escapes(piece[0][piece[0].index('"') + 1 : -1])
            return piece[0] if piece.lastgroup == "bare" else read_word(piece[0]).text

        return self.text if self.is_literal else PIECE.sub(unquoted, self.source)

    def name_end(self, *, is_one: bool = False) -> str:
        """What it ends with for certain; empty if it may become several words, of which that is the end of the last."""
        is_plain = "'" not in self.source and "\\" not in self.source
        source = _SUBSTITUTION.sub("$_", self.source) if is_plain else self.source
        found = _NAME_END.search(source.removesuffix('"'))
        return found[0] if found and (is_one or not read_word(source).may_split) else ""

    @property
    def may_be_option(self) -> bool:
        """Whether it is, or can turn out to be, an option."""
        if self.is_literal:
            return self.text.startswith("-")
        return self.may_split or self.prefix[:1] in ("", "-")


def literal(text: str) -> Word:
    return Word(source=text, text=text, is_literal=True, prefix=text, may_split=False, path=text)


def unknown(text: str) -> Word:
    """A word of which no more is known than how it is written."""
    return Word(source=text, text=text, is_literal=False, prefix="", may_split=True, path=None)


def read_word(source: str) -> Word:
    """Decode a word as it stands in a command, without a redirection or blank around it."""
    return _read(source) if len(source) <= _MAX_CACHED_CHARS else _read.__wrapped__(source)


@lru_cache(maxsize=_MAX_CACHED)
def _read(source: str) -> Word:
    if source in {"[", "[[", "{}", "{"} or (_PLAIN.match(source) and not _TILDE_VALUE.search(source)):
        return literal(source)
    known: list[str] = []
    prefix: str | None = None
    may_split, position = False, 0
    while position < len(source):
        piece = PIECE.match(source, position)
        text, splits = _decoded(piece, is_first=position == 0) if piece else ("", True)
        known.append(text)
        if splits is not None:
            prefix = "".join(known) if prefix is None else prefix
            may_split = may_split or splits
        position = piece.end() if piece else len(source)
    if prefix is None:
        text = "".join(known)
        # A quoted `~` or `$HOME` is a name like any other, so it is spelled so that nobody takes it for the home.
        path = f"./{text}" if text[:1] in ("~", "$") and source != text else text
        return Word(source=source, text=text, is_literal=True, prefix=text, may_split=False, path=path)
    path = None
    if home := _HOME.match(source):
        rest = source[home.end() :]
        is_quoted = home[0].startswith('"') and not home[0].endswith('"')
        behind = rest.removesuffix('"') if is_quoted else rest
        # Only where the path below the home folder is all that it stands for.
        if (not is_quoted or rest.endswith('"')) and (not behind or _PLAIN.match(behind)):
            path = ("~" if home[0] == "~" else "$HOME") + behind
    return Word(source=source, text=source, is_literal=False, prefix=prefix, may_split=may_split, path=path)


def _decoded(piece: re.Match[str], *, is_first: bool) -> tuple[str, bool | None]:
    """The text of a part of a word, as far as it is known, and whether what is not may split; `None` if all is."""

    def ansi_character(escape: re.Match[str]) -> str:
        letter, octal, *hexadecimal, _other = escape.groups()
        if letter:
            return _ANSI_LETTERS.get(letter, letter)
        code = int(octal, 8) if octal else int(next(filter(None, hexadecimal), "0"), 16)
        return chr(code) if code <= _LAST_ASCII else "\0"  # NUL for bytes and codes that are not ASCII text

    text = piece[0]
    match piece.lastgroup:
        case "single":
            return text[1:-1], None
        case "ansi":
            decoded = _ANSI_ESCAPE.sub(ansi_character, text[2:-1])
            return ("", False) if "\0" in decoded else (decoded, None)
        case "double":
            body = text[text.index('"') + 1 : -1]
            bare = re.sub(r"\\.", "", body, flags=re.DOTALL)
            # `"$@"` and `"${a[@]}"` may become several words.
            return ("", "@" in bare) if _EXPANSION.search(bare) else (_without_escapes(body), None)
        case "escape":
            return text[1].replace("\n", ""), None
        case _:
            if _EXPANSION.search(text) or re.search(r"[<>()]", text):
                before = re.match(r"[\w./:@%+,=-]*", text, re.ASCII)
                return before[0] if before else "", True
            if (is_first and text.startswith("~")) or _TILDE_VALUE.search(text):
                return "", False
            # What follows a brace, quoted or not, may make it a list.
            before, *stars = re.split(r"[*?\[{]", text, maxsplit=1)
            return before, False if stars else None


def _without_escapes(body: str) -> str:
    """The text of what stands in double quotes."""
    return _DOUBLE_ESCAPE.sub(lambda found: found[1].replace("\n", ""), body)


MAX_VARIANTS = 128  # readings of one command that are looked at, and values of one variable
MAX_CUT = 512  # characters of a value of which a beginning or an end is cut off
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(%%?|##?)([^{}'\"\\$`\[]*))?\})", re.ASCII)
_QUOTED = re.compile(f'{VARIABLE.pattern}|\\\\[$`"\\\\\n]', re.ASCII)
_OPEN = re.compile(r"\$(?=[\w{(@*!?$#-])")
_OPEN_BARE = re.compile(r"[=:]~|[()]")
_SPLIT = re.compile(r"\s|[*?\[\\]")
_BRACE_TOKEN = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\$\{[^}]*\}|[{},]|[^'\"\\${},]+|.", re.DOTALL)
_RANGE = re.compile(r"(0|-?[1-9]\d{0,3})\.\.(0|-?[1-9]\d{0,3})", re.ASCII)
WILD = re.compile(r"[*?\[]")
GIT_WILD = re.compile(r"[*?\[\\]")  # what means something in a pattern of git's


def expanded_parts(
    source: str, binding: Mapping[str, str], home: str | None, *, is_value: bool
) -> list[tuple[str, bool]] | None:
    """The text of a word in pieces, each with whether its stars mean something."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    if source.startswith("~"):
        if home is None or source[1:2] not in ("", "/"):
            return None
        pieces.append((home, False))
        position = 1
    while position < len(source):
        piece = PIECE.match(source, position)
        if piece is None:
            return None
        position = piece.end()
        kind, text = piece.lastgroup, piece[0]
        if kind == "bare":
            some = _expanded(text, binding, is_bare=True, is_value=is_value)
        elif kind == "double" and text.startswith('"'):
            some = _expanded(text[1:-1], binding, is_bare=False, is_value=is_value)
        else:
            word = read_word(text)
            some = [(word.text, False)] if word.is_literal else None
        if some is None:
            return None
        pieces += some
    return pieces


def _expanded(body: str, binding: Mapping[str, str], *, is_bare: bool, is_value: bool) -> list[tuple[str, bool]] | None:
    """A piece of a word, which is in double quotes or in none, with its variables replaced."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    for variable in (*(VARIABLE if is_bare else _QUOTED).finditer(body), None):
        text = body[position : variable.start() if variable else len(body)]
        if _OPEN.search(text) or (variable is not None and text.endswith("$")) or (is_bare and _OPEN_BARE.search(text)):
            return None
        pieces.append((text.replace(FOUND, binding.get(FOUND, FOUND)), is_bare))
        if variable is not None:
            is_escape = variable[0].startswith("\\")
            value = variable[0][1:].replace("\n", "") if is_escape else value_of(variable, binding)
            if value is None or (is_bare and not is_value and _SPLIT.search(value)):
                return None
            pieces.append((value, False))
            position = variable.end()
    return pieces


def value_of(variable: re.Match[str], binding: Mapping[str, str]) -> str | None:
    """A variable, with what is cut off it: `${f%.txt}`."""
    text = binding.get(variable[1] or variable[2])
    if text is None or not variable[3]:
        return text
    if len(text) > MAX_CUT:
        return None
    is_end, is_longest = variable[3][0] == "%", len(variable[3]) > 1
    places = range(len(text) + 1)
    # The shortest cut is tried first.
    for at in reversed(places) if is_end != is_longest else places:
        cut, rest = (text[at:], text[:at]) if is_end else (text[:at], text[at:])
        if fnmatchcase(cut, variable[4]):
            return rest
    return text


def words_in_braces(source: str) -> list[str] | None:
    """The words that a list in braces stands for; `None` for too many, or a list that is not followed."""
    words, done = [source], 0
    while done < len(words):
        word, opened = words[done], list[list[int]]()
        for token in _BRACE_TOKEN.finditer(word):
            if token[0] == "{":
                opened.append([token.start()])
            elif token[0] == "," and opened:
                opened[-1].append(token.start())
            elif token[0] == "}" and opened:
                begins = opened.pop()
                ends = [*begins[1:], token.start()]
                parts = [word[begin + 1 : end] for begin, end in zip(begins, ends, strict=True)]
                if len(parts) == 1:
                    if ".." not in parts[0]:
                        continue
                    if (found := _RANGE.fullmatch(parts[0])) is None:
                        return None
                    first, last = int(found[1]), int(found[2])
                    step = -1 if last < first else 1
                    parts = [str(number) for number in range(first, last + step, step)[: MAX_VARIANTS + 1]]
                words[done : done + 1] = [word[: begins[0]] + part + word[token.end() :] for part in parts]
                break
        else:
            done += 1
        if len(words) > MAX_VARIANTS:
            return None
    return words


def expand_braces(words: Sequence[Word]) -> Sequence[Word]:
    """The words that a shell makes of some words with lists in braces, which come before all else."""
    lists = [None if word.is_literal or "{" not in word.source else words_in_braces(word.source) for word in words]
    if not any(sources is not None and len(sources) > 1 for sources in lists):
        return words
    return [
        each
        for word, sources in zip(words, lists, strict=True)
        for each in ([word] if sources is None or len(sources) == 1 else map(read_word, sources))
    ]


TAR_VALUED = "bfgCFHIKLNTVX"  # the letters of tar that take a word


@dataclass(frozen=True, slots=True)
class Arguments:
    # Each with its value, by name: `-o` or `--output`. What is shorter than a known name stands for every one that
    # begins with it.
    options: tuple[tuple[str, Word | None], ...]
    operands: tuple[Word, ...]  # what is no option and no value of one
    has_open: bool  # whether a word may turn out to be an option that is not listed

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Word | None]:
        return [value for name, value in self.options if name in names]


def parse(arguments: Sequence[Word], valued: Iterable[str] = ()) -> Arguments:
    """Tell options from operands by the GNU conventions, which let long options be shortened.

    Those with a value are called `o` or `output`.
    """
    known = frozenset(valued)
    options: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    has_open, at = False, 0
    while at < len(arguments):
        word, at = arguments[at], at + 1
        following = arguments[at] if at < len(arguments) else None
        text = word.text
        if not word.is_literal:
            has_open = has_open or word.may_be_option
            operands.append(word)
            # It may be an option of which only the beginning is known: `-o$X`, `--output=$X`.
            beginning, source = word.prefix, word.source
            if beginning.startswith("--") and "=" in beginning:
                name, value = beginning[2:].partition("=")[0], read_word(source.partition("=")[2])
                found = [each for each in known if len(each) > 1 and each.startswith(name)]
                options += [(f"--{each}", value) for each in found or [name]]
            elif beginning.startswith("-") and not beginning.startswith("--"):
                place = next((place for place, letter in enumerate(beginning[1:], start=2) if letter in known), 0)
                if place:
                    is_plain = source.startswith(beginning[:place])
                    value = read_word(source[place:]) if is_plain else unknown(source)
                    options.append((f"-{beginning[place - 1]}", value))
        elif text == "--":
            operands.extend(arguments[at:])
            break
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            given = literal(value) if equals else following
            if name[2:] in known:
                options.append((name, given))
                at += not equals
                continue
            options.append((name, given if equals else None))
            # It may as well be the beginning of a name. Whether it takes the next word is not known: it counts as both.
            options += [
                (f"--{each}", given) for each in known if len(each) > 1 and name != "--" and each.startswith(name[2:])
            ]
        elif text.startswith("-") and text != "-":
            # One with a value takes what is left of the word, or the next word.
            for place, letter in enumerate(text[1:], start=2):
                if letter in known:
                    options.append((f"-{letter}", literal(text[place:]) if text[place:] else following))
                    at += not text[place:]
                    break
                options.append((f"-{letter}", None))
        else:
            operands.append(word)
    return Arguments(tuple(options), tuple(operands), has_open)


def with_dashes(arguments: Sequence[Word], valued: str) -> Sequence[Word]:
    """The same with dashes: in `tar cfI a gzip b` a valued letter of the first word takes the next word."""
    if not arguments or not arguments[0].text[:1].isalpha():
        return arguments
    words: list[Word] = []
    rest = iter(arguments[1:])
    for letter in arguments[0].text:
        words.append(literal(f"-{letter}"))
        if letter in valued:
            words.extend(islice(rest, 1))
    return [*words, *rest]
