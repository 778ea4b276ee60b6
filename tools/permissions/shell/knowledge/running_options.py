"""Options and operands with which a program that is no wrapper runs a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tools.permissions.shell.knowledge.git import subcommand
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.options import TAR_VALUED, dashed, parse
from tools.permissions.shell.syntax.words import Word, literal, unknown


@dataclass(frozen=True, slots=True)
class Running:
    """Which options of a program name a command.

    Args:
        options: Their value is a command line.
        valued: Other options with a value.
        settings: Beginnings of the values that count, such as `ProxyCommand=`; every value if there are none.
    """

    options: frozenset[str]
    valued: frozenset[str] = frozenset()
    settings: tuple[str, ...] = ()


_SSH = Running(
    names("o"),
    names("b c D e F i J l L m O p P Q R S w W B E I X"),
    ("proxycommand", "localcommand", "knownhostscommand", "remotecommand", "match", "include", "pkcs11provider"),
)

_RUNNING: dict[str, tuple[Running, ...]] = {
    "tar": (
        Running(
            names("I F use-compress-program to-command rsh-command rmt-command info-script new-volume-script"),
            names("f C T X b g H K L N V file directory checkpoint-action exclude"),
        ),
        Running(names("checkpoint-action"), names("f C T X b g H K L N V F I file directory"), ("exec=",)),
    ),
    "rsync": (Running(names("e rsh rsync-path"), names("f B M T")),),
    "split": (Running(names("filter"), names("b l n a C t")),),
    "sort": (Running(names("compress-program"), names("k t S T o")),),
    "rg": (Running(names("pre hostname-bin"), names("e A B C m g t T d j r E M f")),),
    **dict.fromkeys(("man", "apropos", "whatis"), (Running(names("P pager"), names("C L m M S s e p r")),)),
    **dict.fromkeys(("bat", "ack", "ag"), (Running(names("pager"), names("l r H m")),)),
    **dict.fromkeys(("ssh", "sftp"), (_SSH, Running(names("S"), names("o i p l F")))),
    "scp": (_SSH, Running(names("S"), names("o i P l F c"))),
    "wget": (
        Running(names("use-askpass"), names("O o a i P t T U e")),
        Running(names("e execute"), names("O o a i P t T U"), ("use_askpass", "useaskpass", "use-askpass")),
    ),
    "zip": (Running(names("unzip-command"), names("n x i t b P")),),
    **dict.fromkeys(("nc", "ncat"), (Running(names("e c exec sh-exec lua-exec"), names("p s w i g")),)),
    "install": (Running(names("strip-program"), names("m o g S t")),),
    **dict.fromkeys(("svn", "svnadmin"), (Running(names("diff-cmd diff3-cmd editor-cmd merge-cmd"), names("m r F")),)),
    "tcpdump": (Running(names("z"), names("i w r c C G W s F")),),
    **dict.fromkeys(("npm", "pnpm", "yarn"), (Running(names("call script-shell")),)),
    "expect": (Running(names("c"), names("f")),),
    "fzf": (Running(names("preview execute bind"), names("q f n d m")),),
    "cpio": (Running(names("rsh-command"), names("F D E H I O R")),),
}

_GIT: dict[str, tuple[str, ...]] = {
    "rebase": ("x", "exec"),
    "difftool": ("x", "extcmd"),
    "grep": ("O", "open-files-in-pager"),
    "fetch": ("upload-pack",),
    "pull": ("upload-pack",),
    "ls-remote": ("upload-pack", "exec"),
    "clone": ("u", "upload-pack"),
    "push": ("receive-pack", "exec"),
    "archive": ("exec",),
    "filter-branch": (
        "tree-filter", "index-filter", "msg-filter", "env-filter", "parent-filter", "commit-filter", "tag-name-filter",
        "setup",
    ),
    "send-email": ("smtp-server", "to-cmd", "cc-cmd", "sendmail-cmd"),
}  # fmt: skip
"""Options of sub-commands of git that name a command."""

_GIT_REST = {"submodule": "foreach", "bisect": "run", "for-each-repo": ""}
"""Sub-commands of git that run what stands behind this word."""


def texts_of_options(name: str, arguments: Sequence[Word]) -> list[Word]:
    """The command lines that options of a program name."""
    found = list(_of_git(arguments)) if name == "git" else []
    if name == "tar":
        arguments = dashed(arguments, TAR_VALUED)
    for running in _RUNNING.get(name, ()):
        found.extend(_values(running, arguments))
    if name == "zip":
        found.extend(after for word, after in pairwise(arguments) if word.text == "-TT")
    return found


def _values(running: Running, arguments: Sequence[Word]) -> Iterator[Word]:
    parsed = parse(arguments, running.options | running.valued)
    for option, value in parsed.options:
        if value is None or option.lstrip("-") not in running.options:
            continue
        if not running.settings or not value.is_literal:
            yield value
        elif value.text.lower().lstrip().startswith(running.settings):
            yield literal(value.text.replace("=", " ", 1).lstrip().partition(" ")[2])


def _of_git(arguments: Sequence[Word]) -> Iterator[Word]:
    yield from _of_git_settings(arguments)
    found = subcommand(arguments)
    if found is None:
        return
    name, rest = found
    options = _GIT.get(name, ())
    for option, value in parse(rest, options).options if options else ():
        if value is not None and option.lstrip("-") in options:
            yield value
    if name in _GIT_REST:
        behind = _GIT_REST[name]
        place = next((at for at, word in enumerate(rest) if word.text == behind), None)
        words = rest[place + 1 :] if place is not None else ()
        yield from _joined(words)
    if name == "config":
        yield from (literal(word.text[1:]) for word in rest if word.text.startswith("!"))


def _of_git_settings(arguments: Sequence[Word]) -> Iterator[Word]:
    """`-c core.pager=less`: a value that a program may be."""
    for place, word in enumerate(arguments):
        if not word.text.startswith("-") and (not place or arguments[place - 1].text not in ("-c", "-C")):
            return
        if place and arguments[place - 1].text == "-c":
            yield literal(word.text.partition("=")[2].removeprefix("!"))


def _joined(words: Sequence[Word]) -> Iterator[Word]:
    while words and words[0].text.startswith("-"):
        words = words[1:]
    if words:
        text = " ".join(word.text for word in words)
        yield literal(text) if all(word.is_literal for word in words) else unknown(text)
