"""What a word that is not literal may turn out to be, as far as the text around it tells what its variables hold."""

from __future__ import annotations

import re

from tools.permissions.shell.syntax.words import Word, read_word

MAX_TEXT_CHARS = 8_192
"""In a longer text it is not looked for what a variable holds."""

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


def may_be_options(word: Word, valued: frozenset[str], text: str) -> bool:
    """Whether a word that is not literal may be an option, or become several words with one among them.

    Args:
        word: The word.
        valued: Options to which a value may be attached.
        text: The text of the whole command, and of what it is read from.
    """
    if word.source.startswith(("~", "<(", ">(")):
        return False
    source = _PLAIN_OUTPUT.sub("x", word.source)
    source = _VARIABLE.sub(lambda found: "x" if _is_plain(found[1] or found[2], text) else found[0], source)
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


def _is_plain(name: str, text: str) -> bool:
    """Whether a variable holds one plain word or none, or what the server was started with."""
    if _OF_THE_SHELL.fullmatch(name) or len(text) > MAX_TEXT_CHARS:
        return False
    others = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", "", _PLAIN_OUTPUT.sub("x", text))
    given = len(re.findall(rf"\b{name}\b", others))
    if not given:
        return _GIVING.search(text) is None
    plain = re.findall(rf"(?<![\w$'\"\\]){name}={_PLAIN_VALUE}|\bfor[ \t]+{name}[ \t]+in\b{_PLAIN_LIST}", others)
    return len(plain) == given and _GIVING.search(text) is None
