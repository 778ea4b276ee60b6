"""What git reads and writes besides its own store, and when it reaches other hosts."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from tools.permissions.shell.knowledge.files.operands import REMOTE_PATH, F, R, Targets, W, host
from tools.permissions.shell.knowledge.git import folder_of, is_read_only_git, subcommand
from tools.permissions.shell.knowledge.git_settings import is_harmless_setting
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.options import parse
from tools.permissions.shell.syntax.words import Word, literal, read_word

_REACHING = names("fetch pull push ls-remote submodule send-email request-pull fetch-pack send-pack remote-http")
_LISTS = names("--stdin-paths --pathspec-from-file --index-info")
_CHANGING = names(
    "am apply checkout cherry-pick clean filter-branch merge mv pull read-tree rebase reset restore revert rm"
    " sparse-checkout stash submodule switch worktree checkout-index merge-file init"
    " merge-one-file interpret-trailers symbolic-ref"
)
_WRITING_OPERANDS = names("mv rm restore checkout init submodule worktree merge-file merge-one-file interpret-trailers")
_OUTPUTS = {
    "archive": ("o", "output"),
    "bundle": (),
    "format-patch": ("o", "output-directory", "output"),
    "bugreport": ("o", "output-directory"),
    "diagnose": ("o", "output-directory"),
    "fast-export": ("export-marks",),
}
_OF_HOME = read_word("~/.gitconfig")
_VALUED = ("n", "S", "G", "L", "U", "M", "C")


def of_git(arguments: Sequence[Word]) -> Targets:
    """What its sub-command touches by the names in its words."""
    found = subcommand(arguments)
    if found is None:
        yield from ((R, None), (W, None), (F, None))
        return
    name, rest = found
    yield from _reached(name, rest)
    if any(word.text.partition("=")[0] in _LISTS for word in rest):
        yield R, None
    yield from _written(name, rest)
    if name == "config" and not is_read_only_git(arguments):
        yield from _configured(rest, folder_of(arguments) or "")


def _reached(name: str, rest: Sequence[Word]) -> Targets:
    queries = (
        name == "remote"
        and any(word.text in ("show", "update", "prune", "set-head") for word in rest)
        and not any(word.text == "-n" for word in rest)
    )
    fetches = name == "remote" and any(word.text in ("-f", "--fetch") for word in rest)
    remote = name == "archive" and any(word.text.startswith("--rem") for word in rest)
    if name in _REACHING or queries or fetches or remote:
        yield F, None
    elif name == "clone":
        operands = parse(rest, ("b", "depth", "branch", "o", "origin", "c", "config", "template")).operands
        address = REMOTE_PATH.match(operands[0].text) if operands else None
        yield F, None if address is None else host(address[1] or address[2], operands[0])
        yield W, operands[1] if len(operands) > 1 else None


def _written(name: str, rest: Sequence[Word]) -> Targets:
    outputs = _OUTPUTS.get(name, ())
    parsed = parse(rest, (*outputs, *_VALUED, "output", "contents", "file", "template", "separate-git-dir"))
    for option, value in parsed.options:
        bare = option.lstrip("-")
        if bare == "output" or bare in outputs or bare == "separate-git-dir":
            yield W, value
        elif bare in ("contents", "file", "template"):
            yield R, value
    if name in ("mailinfo", "mailsplit"):
        yield from ((W, word) for word in parsed.operands)
    if name == "bundle" and parsed.operands[:1] and parsed.operands[0].text == "create":
        yield W, parsed.operands[1] if len(parsed.operands) > 1 else None
    if name == "format-patch" and not parsed.has("-o", "--output-directory", "--stdout"):
        yield W, None
    if parsed.has_open:
        yield W, None
    if name in _CHANGING and not (rest and rest[0].text in ("list", "show", "status", "summary")):
        if name in _WRITING_OPERANDS:
            yield from ((W, word) for word in parsed.operands)
        if name == "symbolic-ref":
            # A reference is a file in the repository, whatever it is called.
            yield from ((W, literal(posixpath.join(".git", word.text))) for word in parsed.operands)
        yield W, None


def _configured(rest: Sequence[Word], folder: str) -> Targets:
    """Which file of settings is written, where what is written can make git run something."""
    parsed = parse(rest, ("f", "file", "blob", "default", "type"))
    is_plain = not parsed.has_open and all(name in ("--local", "--add", "--unset") for name, _ in parsed.options)
    key, *values = parsed.operands or [literal("")]
    if is_plain and key.is_literal and is_harmless_setting(key.text) and len(values) <= 1:
        return
    for option, value in parsed.options:
        if option in ("-f", "--file"):
            yield W, value
    if parsed.has("--global"):
        yield W, _OF_HOME
    elif parsed.has("--system"):
        yield W, literal("/etc/gitconfig")
    elif not parsed.has("-f", "--file"):
        yield W, literal(posixpath.join(folder, ".git/config"))
