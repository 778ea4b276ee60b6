"""Which uses of git only look."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tools.permissions.shell.knowledge.git_settings import is_harmless_setting
from tools.permissions.shell.names import names
from tools.permissions.shell.syntax.folders import joined
from tools.permissions.shell.syntax.words import Word

_GLOBAL_FLAGS = names("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects")
GLOBAL_VALUED = names(
    "-C -c --git-dir --work-tree --namespace --config-env --exec-path --super-prefix --attr-source --shallow-file"
)
_LOOKING = names(
    "annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files"
    " diff-index diff-tree for-each-ref log ls-files ls-tree merge-base name-rev range-diff rev-list"
    " rev-parse shortlog show show-branch show-ref status var version whatchanged"
)
_FORBIDDEN = (
    "--output", "--ext-diff", "--textconv", "--filters", "--show-signature", "--upload-pack", "--exec",
    "--open-files-in-pager", "--receive-pack", "--paginate",
)  # fmt: skip
"""Options that write, or run what the configuration of a repository names."""

_BRANCH_LISTS = re.compile(
    r"-[arvi]+|--(?:all|remotes|list|verbose|show-current|(?:no-)?(?:contains|merged|column|color|abbrev)(?:=.*)?"
    r"|ignore-case|(?:sort|format|points-at|abbrev|color|column)=.*)"
)
_TAG_LISTS = re.compile(r"-l|-n\d*|-i|--(?:list|ignore-case|(?:sort|format|contains|points-at|merged|no-merged)=.*)")
_CONFIG_READS = re.compile(r"--(?:get|get-all|get-regexp|list)|-l")
_CONFIG_FLAGS = re.compile(
    r"--(?:get|get-all|get-regexp|list|global|local|system|show-origin|show-scope|null|type=.*)|-[lz]"
)


def subcommand(arguments: Sequence[Word]) -> tuple[str, Sequence[Word]] | None:
    """The sub-command and what is behind it, past the options of git itself; `None` if it is not literal."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if not word.is_literal:
            return None
        if not word.text.startswith("-"):
            return word.text, arguments[place + 1 :]
        place += 2 if word.text in GLOBAL_VALUED else 1
    return None


def folder_of(arguments: Sequence[Word]) -> str | None:
    """Where `-C` leads, each taken from the one before; `None` if that is not known."""
    folder: str | None = ""
    for option, value in _global_values(arguments):
        if option == "-C":
            folder = None if folder is None or value.path is None else joined(folder, value.path)
    return folder


def global_settings(arguments: Sequence[Word]) -> Iterator[str]:
    """What is set for this one call."""
    yield from (value.text for option, value in _global_values(arguments) if option in ("-c", "--config-env"))
    yield from (word.text.partition("=")[2] for word in arguments if word.text.startswith("--config-env="))


def _global_values(arguments: Sequence[Word]) -> Iterator[tuple[str, Word]]:
    at = 0
    while at < len(arguments) - 1 and arguments[at].text.startswith("-"):
        is_valued = arguments[at].text in GLOBAL_VALUED
        if is_valued:
            yield arguments[at].text, arguments[at + 1]
        at += 2 if is_valued else 1


def without_harmless_options(name: str, arguments: Sequence[Word]) -> Sequence[Word]:
    """The arguments without the options of git itself that change nothing; those of other programs as they are."""
    place = 0
    while name == "git" and (length := _harmless_length(arguments, place)):
        place += length
    return arguments[place:]


def _harmless_length(arguments: Sequence[Word], place: int) -> int:
    """How many words an option of git itself has that changes nothing; none if it is another one."""
    texts = [word.text for word in arguments[place : place + 2] if word.is_literal]
    if texts and texts[0] in _GLOBAL_FLAGS:
        return 1
    return 2 if len(texts) == 2 and texts[0] == "-c" and is_harmless_setting(texts[1]) else 0


def is_read_only_git(arguments: Sequence[Word]) -> bool:
    """Whether a call of git changes nothing: a known sub-command, and no option that writes or runs something."""
    place = 0
    while place < len(arguments) and arguments[place].text.startswith("-"):
        length = 2 if arguments[place].text == "-C" else _harmless_length(arguments, place)
        if not length:
            return arguments[place].text == "--version" and len(arguments) == 1
        place += length
    found = subcommand(arguments)
    if found is None:
        return False
    name, rest = found
    if any(_is_forbidden(word) for word in rest):
        return False
    judge = _JUDGES.get(name)
    return name in _LOOKING if judge is None else judge(rest)


def _is_forbidden(word: Word) -> bool:
    if not word.may_be_option:
        return False
    if not word.is_literal:
        return True
    name = word.text.partition("=")[0]
    shows_signature = "%G" in word.text or "%(sign" in word.text
    return shows_signature or (len(name) > len("--") and any(option.startswith(name) for option in _FORBIDDEN))


def _lists_branches(rest: Sequence[Word]) -> bool:
    """A branch that is named is made, unless the names are a pattern of `--list`."""
    lists = any(word.text == "--list" for word in rest)
    previous = ""
    for word in rest:
        is_value = previous in ("--contains", "--no-contains", "--merged", "--no-merged", "--points-at")
        if not (lists or is_value or (word.is_literal and _BRANCH_LISTS.fullmatch(word.text))):
            return False
        if word.may_be_option and not _BRANCH_LISTS.fullmatch(word.text):
            return False
        previous = word.text
    return True


def _lists_tags(rest: Sequence[Word]) -> bool:
    lists = not rest or any(word.text in ("-l", "--list") for word in rest)
    return lists and all(not word.may_be_option or _TAG_LISTS.fullmatch(word.text) for word in rest)


def _reads_configuration(rest: Sequence[Word]) -> bool:
    """`git config name` reads, `git config name value` writes."""
    names_one = [word.is_literal and "." in word.text for word in rest if not word.text.startswith("-")] == [True]
    if rest and rest[0].text in ("get", "list"):
        return all(not word.may_be_option or _CONFIG_FLAGS.fullmatch(word.text) for word in rest)
    reads = names_one or any(_CONFIG_READS.fullmatch(word.text) for word in rest)
    return reads and all(not word.may_be_option or _CONFIG_FLAGS.fullmatch(word.text) for word in rest)


def _begins_with(*heads: str, bare: bool) -> Callable[[Sequence[Word]], bool]:
    """A judge that knows a sub-command by its first word."""

    def judge(rest: Sequence[Word]) -> bool:
        return rest[0].text in heads if rest else bare

    return judge


def _shows_remotes(rest: Sequence[Word]) -> bool:
    """`show` asks the other host, unless it is told not to."""
    if all(word.text in ("-v", "--verbose") for word in rest) or rest[0].text == "get-url":
        return True
    return rest[0].text == "show" and len(rest) > 1 and rest[1].text == "-n"


def _greps(rest: Sequence[Word]) -> bool:
    return not any(word.may_be_option and "O" in word.text.partition("=")[0] for word in rest)


_JUDGES: dict[str, Callable[[Sequence[Word]], bool]] = {
    "branch": _lists_branches,
    "tag": _lists_tags,
    "config": _reads_configuration,
    "remote": _shows_remotes,
    "grep": _greps,
    "stash": _begins_with("list", "show", bare=False),
    "reflog": _begins_with("show", "exists", bare=True),
    "worktree": _begins_with("list", bare=False),
}
