"""What git shows of the files that it stores, or puts at other names.

A file is hidden by its name. So what gives stored content another name counts as what shows it. Sub-commands and
options that only tell names, messages and statistics are listed; whatever else there is shows the whole work tree.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tools.contract.subjects import Access
from tools.permissions.auto_run_files import auto_run_names
from tools.permissions.shell.knowledge.file_programs import (
    REMOTE_PATH,
    TOP_OF_REPOSITORY,
    F,
    R,
    Reach,
    Targets,
    W,
    host,
)
from tools.permissions.shell.knowledge.git import (
    folder_of,
    global_settings,
    is_harmless_setting,
    is_read_only_git,
    subcommand,
)
from tools.permissions.shell.syntax.name_lists import names
from tools.permissions.shell.syntax.options import Arguments, parse
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


Paths = Iterable[tuple[str, Reach]]
"""Paths from the folder that git is sent to, or from the top of the work tree, with what of them is shown."""

_NOTHING: Paths = ()
_ALL: Paths = ((TOP_OF_REPOSITORY, Reach.STORED),)


def _options(table: str) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
    entries = (entry.partition(":") for entry in re.split(r"\n(?=\S)", table.strip()))
    sides = ((verb, options.partition("|")) for verb, _, options in entries)
    return {verb: (names(flags), names(valued)) for verb, (flags, _, valued) in sides}


_QUIET = names(
    "am apply branch check-attr check-ignore check-mailmap check-ref-format cherry cherry-pick clean commit-graph"
    " config count-objects describe diff-files diff-index diff-tree fetch for-each-ref fsck gc help init ls-files"
    " ls-remote ls-tree maintenance merge merge-base multi-pack-index name-rev pack-refs prune prune-packed pull"
    " push rebase remote repack rev-parse revert rm show-branch show-ref sparse-checkout switch symbolic-ref"
    " update-server-info var verify-commit verify-pack verify-tag version write-tree"
)
"""They show no contents but by the options below."""

_QUIET_WORDS = {
    "bisect": names("start bad good new old terms skip next reset log replay run"),
    "rerere": names("clear forget gc remaining status"),
    "bundle": names("verify list-heads unbundle"),
    "lfs": names(
        "env fetch install locks lock ls-files prune pull push status track uninstall unlock untrack update version"
    ),
    "notes": names("list prune remove get-ref"),
    "submodule": names("status init deinit update sync foreach set-branch set-url absorbgitdirs"),
    "worktree": names("list lock prune remove repair unlock"),
}
"""The same where a word behind the sub-command says what is done."""

_QUIET_OPTIONS = _options("""
add: A u n v f N all update dry-run verbose force intent-to-add ignore-errors ignore-missing renormalize refresh sparse
    no-all ignore-removal no-ignore-removal pathspec-file-nul | chmod pathspec-from-file
checkout: q f l m d t 2 3 quiet force merge detach track no-track guess no-guess ours theirs overlay no-overlay progress
    no-progress recurse-submodules no-recurse-submodules ignore-other-worktrees pathspec-file-nul
    | b B orphan conflict pathspec-from-file
commit: a q s n e o i z all quiet signoff no-signoff no-verify verify edit no-edit only include amend allow-empty
    allow-empty-message no-post-rewrite reset-author short branch porcelain long null dry-run status no-status gpg-sign
    no-gpg-sign untracked-files pathspec-file-nul
    | m F C c t S u message file reuse-message reedit-message template fixup squash author date cleanup trailer
    pathspec-from-file
reset: q N quiet no-quiet mixed soft hard merge keep intent-to-add refresh no-refresh recurse-submodules
    no-recurse-submodules pathspec-file-nul | pathspec-from-file
restore: q S W m quiet staged worktree merge ours theirs progress no-progress overlay no-overlay ignore-unmerged
    recurse-submodules no-recurse-submodules pathspec-file-nul | s source conflict pathspec-from-file
stash: k q u a S keep-index no-keep-index quiet include-untracked no-include-untracked all staged index
    pathspec-file-nul | m message pathspec-from-file
status: s b z short branch show-stash porcelain long untracked-files ignored ignore-submodules column no-column
    ahead-behind no-ahead-behind renames no-renames find-renames null | u
update-index: q g refresh really-refresh again add remove force-remove ignore-missing ignore-submodules unmerged replace
    assume-unchanged no-assume-unchanged skip-worktree no-skip-worktree | chmod
""")
"""Options with which these show nothing, first those without a value. Each of them has others that do."""

_SHOWING_OPTIONS = {
    "am": re.compile(r"-i|--(?:sh|int).*"),
    "config": re.compile(r"--bl.*"),
    "rebase": re.compile(r"--sh.*"),
    **dict.fromkeys(names("cherry-pick merge pull rebase revert"), re.compile(r"--sh.*|.*subtree.*", re.DOTALL)),
}
"""Options that show something, or put it at other names, of sub-commands with too many others."""

_SHOWING_SETTING = re.compile(
    r"(?:commit\.verbose|stash\.show|diff\.submodule|log\.(?:diffmerges|follow)).*", re.IGNORECASE
)

_STATISTICS = re.compile(
    r"--(?:stat|shortstat|numstat|dirstat|summary|compact-summary|name-only|name-status|no-patch|quiet|raw)(?:=.*)?|-s"
)
_WITHOUT_PATCH = re.compile(
    r"-\d+|-[nqziswegrtEFMC]+\d*|-S.*|--(?:oneline|graph|all|decorate|format|pretty|since|until|after|before|author"
    r"|committer|grep|max-count|skip|stat|shortstat|numstat|dirstat|summary|compact-summary|name-only|name-status|raw"
    r"|abbrev-commit|no-abbrev-commit|abbrev|date|follow|no-merges|merges|reverse|first-parent|branches|tags|remotes"
    r"|topo-order|date-order|author-date-order|no-patch|no-color|color|count|cached|staged|merge-base|exit-code|quiet"
    r"|no-commit-id|root|no-renames|find-renames|diff-filter|relative|no-decorate|decorate-refs|no-walk|walk-reflogs"
    r"|cherry-pick|cherry|cherry-mark|left-right|left-only|right-only|boundary|simplify-by-decoration|ancestry-path"
    r"|full-history|show-pulls|regexp-ignore-case|invert-grep|all-match|fixed-strings|extended-regexp|parents|children"
    r"|min-parents|max-parents|no-notes|source|numbered|email|no-ext-diff|no-textconv|pickaxe-all|relative-date"
    r"|no-graph|objects|disk-usage|not|glob|exclude|full-index)(?:=.*)?|--",
    re.DOTALL,
)
_BARE = re.compile(
    r"-[puwbsaizRqrhHcEP]+|--(?:cached|staged|patch|stat|word-diff|color-words|no-color|oneline|graph|all|reverse"
    r"|ignore-all-space|ignore-space-change|no-renames|name-only|name-status|quiet|exit-code|no-ext-diff|color|text"
    r"|line-number|ignore-case|files-with-matches|count|untracked|minimal|patience|histogram|function-context)|-[WU]\d*"
    r"|--[\w-]+=.*",
    re.DOTALL,
)
"""Options that surely take no word behind them."""

_VALUED_OF_LOG = names("n S G O l U author committer grep since until after before max-count skip date format pretty")
_VALUED_OF_GREP = names("e f A B C m after-context before-context context max-count max-depth threads")
_VALUED_OF_BLAME = names("L S date contents ignore-rev ignore-revs-file since abbrev")
_VALUED_OF_TAG = names("m F u message file local-user cleanup trailer sort format points-at color column")
_VALUED_OF_CLONE = names(
    "b o c u j branch origin config upload-pack jobs depth template reference reference-if-able separate-git-dir filter"
    " shallow-since shallow-exclude server-option bundle-uri revision name"
)
_LISTING_TAGS = names("-l -d -v -n --list --delete --verify --contains --no-contains --merged --no-merged --points-at")
_LOOKING_NOW = re.compile(
    r"-[nilLwvhHEFGPcqopaI]+|-[ABCme]\d*|--(?:line-number|ignore-case|files-with-matches|files-without-match|name-only"
    r"|word-regexp|invert-match|extended-regexp|fixed-strings|perl-regexp|basic-regexp|count|quiet|column|heading"
    r"|break|show-function|only-matching|no-color|color|full-name|and|or|not|all-match|untracked"
    r"|after-context|before-context|context|max-count|max-depth)(?:=.*)?|--"
)
"""Options with which `git grep` searches files as they are."""

_COMMIT = re.compile(
    r"\^?(?:(?:HEAD|@|ORIG_HEAD)?(?:@\{[^{}:]*\})?|stash@\{\d+\}|[\w./@{}+-]+(?=[~^]\d*))(?:[~^]\d*)*", re.ASCII
)
"""What is a commit for certain, and nothing else that is stored; a file or folder may have any other name."""

_REVISION = re.compile(r"\^?(?![0-9a-f]{4,64}\Z)(?!.*-g[0-9a-f]{4,64}\Z)[\w./@{}+-]*", re.ASCII | re.IGNORECASE)
"""A name as branches and tags have: git makes branches of commits alone, and to tag anything else is asked about."""

_MAGIC = re.compile(r":(?:\([^)]*\)|[/!^]+:?)")
_MATCHING = names("rm checkout restore")
_STAGE = re.compile(r"[0-3]:")
_WILD = re.compile(r"[*?\[\\]")
_FIELD = (
    r"%\(\*?(?:refname|objectname|objecttype|objectsize|deltabase|upstream|push|HEAD|symref|worktreepath|ahead-behind"
    r"|(?:author|committer|tagger|creator)(?:name|email|date)?|subject|body|contents:subject|trailers|numparent|parent"
    r"|tree|object|type|tag|color|align|if|then|else|end|rest)(?::[^()]*)?\)"
)
_FORMAT = re.compile(rf"(?:[^%]|%%|%[0-9a-fA-F]{{2}}|{_FIELD})*", re.DOTALL)
"""Formats of refs without the content of what they lead to."""


def of_repository(arguments: Sequence[Word]) -> Iterable[tuple[Access, Word | None, Reach]]:
    """What git shows, or puts at other names, and what of a folder it removes besides."""
    found, folder = subcommand(arguments), folder_of(arguments)
    if folder != "":
        yield R, None if folder is None else literal(folder), Reach.ITSELF
    if found is None:
        return
    verb, rest = found
    is_loud = any(_SHOWING_SETTING.match(setting) for setting in global_settings(arguments))
    for path, reach in _ALL if is_loud else _shown(verb, rest):
        yield R, None if folder is None else literal(posixpath.join(folder, path)), reach
    for path, reach in _taken(verb, rest):
        yield W, None if folder is None else literal(posixpath.join(folder, path)), reach


def _shown(verb: str, rest: Sequence[Word]) -> Paths:
    showing = _SHOWING_OPTIONS.get(verb)
    if showing is not None and any(showing.fullmatch(word.text) for word in rest):
        return _ALL
    if (judge := _JUDGES.get(verb)) is not None:
        return judge(rest)
    if (words := _QUIET_WORDS.get(verb)) is not None:
        return _NOTHING if not rest or rest[0].text in words else _ALL
    if verb in _QUIET_OPTIONS:
        return _NOTHING if _is_quiet(verb, rest) else _ALL
    return _NOTHING if verb in _QUIET else _ALL


def _is_quiet(verb: str, rest: Sequence[Word]) -> bool:
    flags, valued = _QUIET_OPTIONS[verb]
    parsed = parse(rest, valued)
    return not parsed.has_open and all(name.lstrip("-") in flags | valued for name, _ in parsed.options)


def _is_without_patch(rest: Sequence[Word]) -> bool:
    return all(
        not word.may_be_option or (not word.may_split and _WITHOUT_PATCH.fullmatch(word.text) is not None)
        for word in rest
    )


def _of_log(rest: Sequence[Word]) -> Paths:
    if _is_without_patch(rest):
        return _NOTHING
    # What a name was called before may be hidden.
    is_open = any(word.text.startswith("--fol") for word in rest)
    return _ALL if is_open else _limited(rest, _VALUED_OF_LOG, takes_commits=True)


def _of_diff(rest: Sequence[Word]) -> Paths:
    is_statistics = any(_STATISTICS.fullmatch(word.text) for word in rest) and _is_without_patch(rest)
    return _NOTHING if is_statistics else _limited(rest, _VALUED_OF_LOG)


def _of_plumbing_diff(rest: Sequence[Word]) -> Paths:
    return _NOTHING if _is_without_patch(rest) else _limited(rest, _VALUED_OF_LOG)


def _of_show(rest: Sequence[Word]) -> Paths:
    """A blob is shown whatever the options say, so each word has to be a commit, or name the path."""
    revisions, paths = _sides(rest)
    operands = parse(revisions, _VALUED_OF_LOG).operands
    if not all(word.is_literal for word in rest) or paths is None:
        return _ALL
    files = [word.text for word in operands if not _COMMIT.fullmatch(word.text)]
    shown = [path for text in files for path in _stored_at(text, Reach.ITSELF)]
    is_statistics = any(_STATISTICS.fullmatch(word.text) for word in revisions) and _is_without_patch(rest)
    if is_statistics or (files and len(files) == len(operands)):
        return shown
    return [*shown, *_pathspecs(paths)] if paths else _ALL


def _of_cat_file(rest: Sequence[Word]) -> Paths:
    texts = [word.text for word in rest]
    if any(text in ("-t", "-s", "-e") or text.startswith("--batch-ch") for text in texts):
        return _NOTHING if len(texts) == 1 + (not texts[0].startswith("--")) else _ALL
    if len(texts) != 2 or not all(word.is_literal for word in rest):
        return _ALL
    return _NOTHING if _COMMIT.fullmatch(texts[1]) else _stored_at(texts[1], Reach.ITSELF)


def _of_blame(rest: Sequence[Word]) -> Paths:
    """It shows one file, whatever else its words are."""
    operands = parse(rest, _VALUED_OF_BLAME).operands
    return ((word.text, Reach.ITSELF) for word in operands) if all(word.is_literal for word in rest) else _ALL


def _of_grep(rest: Sequence[Word]) -> Paths:
    before, paths = _sides(rest)
    parsed = parse(before, _VALUED_OF_GREP)
    operands = parsed.operands if parsed.has("-e", "-f") else parsed.operands[1:]
    if paths is None or not all(word.is_literal for word in (*operands, *paths)) or parsed.has_open:
        return _ALL
    revisions = [word.text for word in operands if _COMMIT.fullmatch(word.text)]
    others = [word.text for word in operands if word.text not in revisions]
    if not paths and others:
        return [path for text in others for path in _stored_at(text, Reach.NAMED)]
    is_now = not operands and all(not word.may_be_option or _LOOKING_NOW.fullmatch(word.text) for word in before)
    if not all(_REVISION.fullmatch(text) for text in others):
        return _ALL
    return (
        _pathspecs(paths, Reach.BELOW if is_now else Reach.STORED)
        if paths
        else [(".", Reach.BELOW if is_now else Reach.STORED)]
    )


def _of_tree(verb: str, rest: Sequence[Word]) -> Paths:
    """A tree of a folder puts what is in that folder at other names."""
    operands = parse(rest, _QUIET_OPTIONS[verb][1]).operands
    is_known = _is_quiet(verb, rest) and (
        _is_commit(operands[0]) if operands[1:] else ":" not in "".join(word.text for word in operands)
    )
    return _NOTHING if is_known else _ALL


def _of_restore(rest: Sequence[Word]) -> Paths:
    if not _is_quiet("restore", rest):
        return _ALL
    parsed = parse(rest, _QUIET_OPTIONS["restore"][1])
    sources = [value for name, value in parsed.options if name in ("-s", "--source")]
    return _NOTHING if all(source is not None and _is_commit(source) for source in sources) else _ALL


def _of_stash(rest: Sequence[Word]) -> Paths:
    if not rest or rest[0].text not in ("show", "list"):
        return _NOTHING if _is_quiet("stash", rest) else _ALL
    if rest[0].text == "list":
        return _of_log(rest[1:])
    is_statistics = all(not word.may_be_option or _STATISTICS.fullmatch(word.text) for word in rest)
    return _NOTHING if is_statistics else _ALL


def _of_tag(rest: Sequence[Word]) -> Paths:
    parsed = parse(rest, _VALUED_OF_TAG)
    if not _has_plain_format(parsed):
        return _ALL
    if any(name in _LISTING_TAGS for name, _ in parsed.options):
        return _NOTHING
    return _NOTHING if all(_is_commit(word) for word in parsed.operands[1:2]) else _ALL


def _of_refs(rest: Sequence[Word]) -> Paths:
    return _NOTHING if _has_plain_format(parse(rest, ("format", "sort", "points-at"))) else _ALL


def _of_source(rest: Sequence[Word]) -> Paths:
    """What is copied from a repository on this machine comes to lie at other names."""
    parsed = parse(rest, _VALUED_OF_CLONE)
    if parsed.has_open or not all(word.is_literal for word in parsed.operands):
        return _ALL
    return [
        (posixpath.join(word.text.removeprefix("file://"), TOP_OF_REPOSITORY), Reach.STORED)
        for word in parsed.operands[:1]
        if ":" not in word.text.partition("/")[0] or word.text.startswith("file:")
    ]


def _of_exchange(rest: Sequence[Word]) -> Paths:
    """With a repository on this machine, anything that is stored can be given a name."""
    operands = parse(rest, ("o", "j", "X", "s", "depth", "jobs", "repo")).operands
    return _ALL if any(word.text.startswith((".", "/", "~", "file:")) for word in operands[:1]) else _NOTHING


def _of_submodule(rest: Sequence[Word]) -> Paths:
    operands = parse(rest, ("b", "name", "branch", "reference", "depth")).operands
    if operands and operands[0].text == "add":
        return _of_source(operands[1:])
    return _NOTHING if not operands or operands[0].text in _QUIET_WORDS["submodule"] else _ALL


def _of_move(rest: Sequence[Word]) -> Paths:
    sources = parse(rest).operands[:-1]
    return [(word.text, Reach.BELOW) for word in sources] if all(word.is_literal for word in sources) else _ALL


def _of_hash_object(rest: Sequence[Word]) -> Paths:
    """With a type, it stores trees: lists of what is called how."""
    is_blob = all(not word.may_be_option or re.fullmatch(r"-w|--(?:stdin|path=.*)", word.text) for word in rest)
    return _NOTHING if is_blob else _ALL


def _of_reflog(rest: Sequence[Word]) -> Paths:
    return _of_log(rest[1:] if rest and rest[0].text in ("show", "list", "exists", "expire", "delete") else rest)


def _has_plain_format(parsed: Arguments) -> bool:
    formats = [value for name, value in parsed.options if name == "--format"]
    return not parsed.has_open and all(
        value is not None and value.is_literal and _FORMAT.fullmatch(value.text) for value in formats
    )


def _is_commit(word: Word) -> bool:
    return word.is_literal and bool(_COMMIT.fullmatch(word.text) or _REVISION.fullmatch(word.text))


def _limited(rest: Sequence[Word], valued: Iterable[str], *, takes_commits: bool = False) -> Paths:
    """What the paths among the words limit the output to.

    Args:
        rest: The words behind the sub-command.
        valued: Its options with a value.
        takes_commits: Whether it refuses revisions that are no commits.
    """
    before, paths = _sides(rest)
    if paths is None or not all(word.is_literal for word in rest):
        return _ALL
    others = [word.text for word in parse(before, valued).operands if not _COMMIT.fullmatch(word.text)]
    if not paths:
        return [path for text in others for path in _stored_at(text, Reach.NAMED)] or _ALL
    ends = [end for text in others for end in re.split(r"\.{2,3}", text)]
    is_known = takes_commits or all(_COMMIT.fullmatch(end) or _REVISION.fullmatch(end) for end in ends)
    return _pathspecs(paths) if is_known else _ALL


def _sides(rest: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word] | None]:
    """What stands before `--`, and what behind; `None` where that may be the value of an option."""
    place = next((at for at, word in enumerate(rest) if word.text == "--"), len(rest))
    if place in (0, len(rest)):
        return rest[:place], rest[place + 1 :]
    previous = rest[place - 1].text
    return rest[:place], None if previous.startswith("-") and not _BARE.fullmatch(previous) else rest[place + 1 :]


def _pathspecs(paths: Sequence[Word], reach: Reach = Reach.STORED) -> Paths:
    if any(word.text.startswith(":") for word in paths):
        return _ALL
    parts = [(word.text, _WILD.split(word.text, maxsplit=1)) for word in paths]
    return [((posixpath.dirname(known) or ".") if wild else text, reach) for text, (known, *wild) in parts]


def _stored_at(text: str, reach: Reach) -> Paths:
    """The path that a word names, alone or behind a revision."""
    revision, colon, path = text.partition(":")
    if not colon:
        return [(text, reach)] if reach is Reach.NAMED else _ALL
    if not revision:
        path = _STAGE.sub("", path, count=1) if _STAGE.match(path) else path
    is_known = _COMMIT.fullmatch(revision) or _REVISION.fullmatch(revision)
    if not is_known or path.startswith("/") or TOP_OF_REPOSITORY in path:
        return _ALL
    place = path if path.startswith(("./", "../")) else TOP_OF_REPOSITORY + path
    return [(place, Reach.STORED if reach is Reach.NAMED else reach)]


def _taken(verb: str, rest: Sequence[Word]) -> Paths:
    """Folders and patterns of what git takes away, or writes, by names that no word says."""
    if verb == "stash":
        parsed = parse(rest, _QUIET_OPTIONS["stash"][1])
        is_wide = any(name == "-u" or name.startswith("--inc") for name, _ in parsed.options)
        return (
            [(".", Reach.IGNORED)] if parsed.has("-a", "--all") else [(".", Reach.UNTRACKED)] if is_wide else _NOTHING
        )
    if verb == "clean":
        parsed = parse(rest, ("e", "exclude"))
        reach = Reach.IGNORED if parsed.has("-x", "-X") else Reach.UNTRACKED
        folders = [path for path, _ in _pathspecs(parsed.operands)]
        return _NOTHING if parsed.has("-n", "--dry-run") else [(folder, reach) for folder in folders or ["."]]
    if verb == "sparse-checkout":
        return (
            _NOTHING
            if rest and rest[0].text in ("list", "disable", "check-rules")
            else [(f"{TOP_OF_REPOSITORY}*", Reach.MATCHED)]
        )
    operands = parse(rest, ("s", "source", "pathspec-from-file")).operands if verb in _MATCHING else ()
    literal_texts = [word.text for word in operands if word.is_literal]
    # What is stored for a folder is open; a pattern may be meant for one name.
    texts = [text for text in literal_texts if verb == "rm" or _WILD.search(text) or text.startswith(":")]
    return [each for text in texts for each in _matched(text)]


def _matched(pathspec: str) -> Iterable[tuple[str, Reach]]:
    """What a pathspec fits; names of auto-run files also where they are not there."""
    magic = _MAGIC.match(pathspec)
    pattern = pathspec[magic.end() :] if magic else pathspec
    if magic and re.search(r"[!^]|exclude", magic[0]):
        pattern = "*"
    top = TOP_OF_REPOSITORY if magic and re.search(r"/|top", magic[0]) else ""
    yield top + pattern, Reach.MATCHED
    folder, name = posixpath.split(pattern)
    yield from ((top + posixpath.join(folder, each), Reach.ITSELF) for each in auto_run_names(name))


_JUDGES: dict[str, Callable[[Sequence[Word]], Paths]] = {
    **dict.fromkeys(names("log whatchanged shortlog rev-list"), _of_log),
    **dict.fromkeys(names("diff-files diff-index diff-tree"), _of_plumbing_diff),
    **dict.fromkeys(names("annotate blame"), _of_blame),
    **dict.fromkeys(names("branch for-each-ref"), _of_refs),
    **dict.fromkeys(names("fetch pull push"), _of_exchange),
    "cat-file": _of_cat_file,
    "checkout": partial(_of_tree, "checkout"),
    "clone": _of_source,
    "diff": _of_diff,
    "format-patch": lambda rest: _limited(rest, _VALUED_OF_LOG, takes_commits=True),
    "grep": _of_grep,
    "hash-object": _of_hash_object,
    "mv": _of_move,
    "reflog": _of_reflog,
    "reset": partial(_of_tree, "reset"),
    "restore": _of_restore,
    "show": _of_show,
    "stash": _of_stash,
    "submodule": _of_submodule,
    "tag": _of_tag,
}
