"""Which uses of git only look."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from tools.permissions.shell.syntax.folders import joined
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.words import Word

HARMLESS_SETTING = re.compile(
    r"""
    user\.(?:name|email|useconfigonly) | (?:author|committer)\.(?:name|email) | init\.defaultbranch | color\.\S+
    | advice\.\w+ | column\.\w+ | versionsort\.suffix | http\.postbuffer | protocol\.version
    | core\.(?:abbrev|autocrlf|bigfilethreshold|checkstat|commentchar|compression|eol|filemode|ignorecase
        |logallrefupdates|longpaths|packedgitlimit|precomposeunicode|preloadindex|quotepath|safecrlf|symlinks
        |trustctime|untrackedcache|warnambiguousrefs|whitespace)
    | (?:add|am|apply|branch|checkout|clone|commit|fetch|gc|index|log|merge|pack|pull|push|rebase|rerere|stash|status
        |switch|tag)\.
      (?:abbrevcommit|auto|autosetupmerge|autosetuprebase|autosquash|autostash|autoupdate|conflictstyle|date|decorate
        |defaultremotename|enabled|excludedecoration|ff|follow|followtags|guess|ignoreerrors|ignorewhitespace
        |keepcr|mailmap|parallel|prune|prunetags|rebase|renamelimit|renames|relativepaths|short|showbranch|showpatch
        |showroot|showstash|showstat|showuntrackedfiles|sort|stat|submodulesummary|threads|updaterefs|verbose|version
        |whitespace|windowmemory|workers|writecommitgraph|commitgraph|autosetupremote|usebitmaps)
    | push\.default
    | diff\.(?:algorithm|colormoved|colormovedws|context|dirstat|ignoresubmodules|indentheuristic|interhunkcontext
        |mnemonicprefix|noprefix|renamelimit|renames|relative|statgraphwidth|submodule|suppressblankempty
        |wordregex|wserrorhighlight)
    | grep\.(?:column|extendedregexp|fallbacktonoindex|fullname|linenumber|patterntype|threads)
    | branch\.\S+\.(?:description|rebase)
    | (?:core|sequence)\.editor=(?:true|:)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A list of what is known: settings come with each release, and many run something (`core.fsmonitor`, `alias.x`).
One with a value is harmless with that value."""


def is_harmless_setting(setting: str) -> bool:
    """Whether a setting runs nothing, and leads git to no other file or host.

    Args:
        setting: Its key, or `key=value`.
    """
    key = setting.partition("=")[0]
    return (HARMLESS_SETTING.fullmatch(key) or HARMLESS_SETTING.fullmatch(setting)) is not None


_MADE_BY_GIT = re.compile(
    r"""
    core\.(?:repositoryformatversion|bare|worktree)
    | extensions\.(?:objectformat|refstorage|worktreeconfig|partialclone)
    | remote\.[^\n]+\.(?:url|pushurl|fetch|tagopt|promisor|partialclonefilter) | remote\.pushdefault
    | branch\.[^\n]+\.(?:remote|merge|rebase|pushremote|vscode-merge-base|gh-merge-base)
    | submodule\.[^\n]+\.(?:url|active) | submodule\.active | lfs\.repositoryformatversion
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What `git init`, `clone`, `worktree`, `submodule`, `remote` and `push -u` write."""
_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\\n]|\\["\\])*)")?\s*\](.*)')
_SETTING = re.compile(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?")
_HELPER = re.compile(r"\s*\"?[\w-]*::")
"""The beginning of an address that names a program."""


def is_harmless_in_new_repository(text: str) -> bool:
    """Whether a file of settings, by all of its lines, makes git run nothing; what is not understood may.

    Args:
        text: As it stands in a repository's `config`.
    """
    section: str | None = None
    for line in text.splitlines():
        rest = line.strip()
        while found := _SECTION.fullmatch(rest):
            section = found[1] if found[2] is None else f"{found[1]}.{found[2]}"
            rest = found[3].strip()
        if not rest or rest[0] in "#;":
            continue
        setting = _SETTING.fullmatch(rest)
        if section is None or setting is None or rest.endswith("\\"):
            return False
        key, value = f"{section}.{setting[1]}", setting[2] or ""
        if _HELPER.match(value) or not (HARMLESS_SETTING.fullmatch(key) or _MADE_BY_GIT.fullmatch(key)):
            return False
    return True


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
