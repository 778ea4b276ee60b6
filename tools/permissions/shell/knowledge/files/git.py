"""What git reads and writes besides its own store, and when it reaches other hosts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from tools.permissions.shell.knowledge.files.operands import REMOTE_PATH, TOP_OF_REPOSITORY, F, R, Targets, W, host
from tools.permissions.shell.knowledge.git import GLOBAL_VALUED, is_read_only_git, subcommand
from tools.permissions.shell.knowledge.git_settings import is_harmless_setting
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.folders import joined
from tools.permissions.shell.syntax.options import parse
from tools.permissions.shell.syntax.words import Word, literal, read_word

_REACHING = names("fetch pull push ls-remote submodule send-email request-pull fetch-pack send-pack remote-http")
_SHOWING = names(
    "annotate archive blame bundle cat-file diff diff-files diff-index diff-tree difftool fast-export format-patch grep"
    " range-diff show whatchanged notes unpack-file checkout-index"
)
_COMPARING = names("diff diff-files diff-index diff-tree whatchanged")
_SHOWING_WITH_PATCH = names("log reflog stash rev-list shortlog show-branch")
_SHOWING_VERBOSE = names("commit status")
_STATISTICS = re.compile(r"--(?:stat|shortstat|numstat|dirstat|summary|name-only|name-status|no-patch)(?:=.*)?|-s")
_LISTS = names("--stdin-paths --pathspec-from-file --index-info")
_VALUED_OF_COMMIT = names(
    "m message F file C reuse-message c reedit-message fixup squash author date cleanup trailer t template"
    " pathspec-from-file"
)
_IN_FOLDER = names("grep")
"""They look at the folder they are in, where no other is named."""

_OF_FILES = names("annotate blame")
_WILD = re.compile(r"[*?\[\\]")

_WITHOUT_PATCH = re.compile(
    r"-\d+|-[nqziswegh]+\d*|--(?:oneline|graph|all|decorate|format|pretty|since|until|after|before|author|committer|grep"
    r"|max-count|skip|stat|shortstat|numstat|summary|name-only|name-status|abbrev-commit|abbrev|date|follow|no-merges"
    r"|merges|reverse|first-parent|branches|tags|remotes|topo-order|date-order|no-patch|no-color|color|count)(?:=.*)?|--"
)
_CHANGING = names(
    "am apply checkout cherry-pick clean filter-branch merge mv pull read-tree rebase reset restore revert rm"
    " sparse-checkout stash submodule switch worktree checkout-index merge-file init"
)
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
    """The folder it is sent to, and what its sub-command touches."""
    folder = _folder_of(arguments)
    if folder != "":
        yield R, None if folder is None else literal(folder)
    found = subcommand(arguments)
    if found is None:
        yield from ((R, None), (W, None), (F, None))
        return
    name, rest = found
    yield from _reached(name, rest)
    yield from _shown(name, rest, folder)
    yield from _written(name, rest)
    if name == "config" and not is_read_only_git(arguments):
        yield from _configured(rest, folder or "")


def _folder_of(arguments: Sequence[Word]) -> str | None:
    """Where `-C` leads, each taken from the one before; `None` if that is not known."""
    folder: str | None = ""
    at = 0
    while at < len(arguments) - 1 and arguments[at].text.startswith("-"):
        if arguments[at].text == "-C":
            path = arguments[at + 1].path
            folder = None if folder is None or path is None else joined(folder, path)
        at += 2 if arguments[at].text in GLOBAL_VALUED else 1
    return folder


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


def _shown(name: str, rest: Sequence[Word], folder: str | None) -> Targets:
    """What shows contents of files may show those of any file of the repository, unless paths are named behind `--`."""
    if any(word.text.partition("=")[0] in _LISTS for word in rest):
        yield R, None
    tells_names = (
        any(_STATISTICS.fullmatch(word.text) for word in rest)
        and not any(_may_be(word, _WITHOUT_PATCH) and not _STATISTICS.fullmatch(word.text) for word in rest)
        and not any(":" in word.text for word in rest)
        and name in _COMPARING
    )
    shows = not tells_names and (
        name in _SHOWING
        or (name in _SHOWING_WITH_PATCH and any(_may_be(word, _WITHOUT_PATCH) for word in rest))
        or (name == "stash" and any(word.text == "show" for word in rest))
        or (name in _SHOWING_VERBOSE and _is_verbose(rest))
    )
    if not shows:
        return
    paths = _paths_named(name, rest)
    if folder is None:
        yield R, None
    elif paths:
        for path in paths:
            known, *wild = _WILD.split(path.text, maxsplit=1)
            named = posixpath.dirname(known) if wild else known
            yield R, literal(posixpath.join(folder, named) or ".")
    elif name in _IN_FOLDER and not any(":" in word.text for word in rest):
        yield R, literal(folder or ".")
    else:
        yield R, literal(posixpath.join(folder, TOP_OF_REPOSITORY))


def _may_be(word: Word, harmless: re.Pattern[str]) -> bool:
    return word.may_be_option and not harmless.fullmatch(word.text)


def _is_verbose(rest: Sequence[Word]) -> bool:
    parsed = parse(rest, _VALUED_OF_COMMIT)
    return parsed.has_open or any(name == "-v" or name.startswith("--v") for name, _ in parsed.options)


def _paths_named(name: str, rest: Sequence[Word]) -> Sequence[Word]:
    """The paths that the output is limited to; none if it may not be."""
    if not all(word.is_literal for word in rest):
        return ()
    texts = [word.text for word in rest]
    place = texts.index("--") if "--" in texts else len(texts)
    before, paths = rest[:place], rest[place + 1 :]
    names_more = any(":" in word.text and not word.text.startswith("-") for word in before)
    if names_more or any(word.text.startswith(":") for word in paths):
        return ()
    return [*(word for word in before if not word.text.startswith("-")), *paths] if name in _OF_FILES else paths


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
        if name in ("mv", "rm", "restore", "checkout", "init", "submodule", "worktree"):
            yield from ((W, word) for word in parsed.operands)
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
