"""What git does: which calls only look, what they reach and write, and which stored files they show.

A file is hidden by its name. So what gives stored content another name counts as what shows it. Sub-commands and
options that only tell names, messages and statistics are listed; whatever else there is shows the whole work tree.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from tools.contract.permission_subjects import Access
from tools.permissions.auto_run_files import auto_run_names
from tools.permissions.repositories import HARMLESS_SETTING
from tools.permissions.shell.knowledge import program_files
from tools.permissions.shell.knowledge.program_files import TOP_OF_REPOSITORY, F, R, Reach, Targets, W
from tools.permissions.shell.syntax.parser import joined
from tools.permissions.shell.syntax.words import GIT_WILD, Arguments, Word, literal, names, parse


def is_harmless_setting(setting: str) -> bool:
    """Whether a setting runs nothing, and leads git to no other file or host."""
    key = setting.partition("=")[0]
    return (HARMLESS_SETTING.fullmatch(key) or HARMLESS_SETTING.fullmatch(setting)) is not None


_GLOBAL_FLAGS = names("--no-pager -P --no-optional-locks --literal-pathspecs --no-replace-objects")
_GLOBAL_VALUED = names(
    "-C -c --git-dir --work-tree --namespace --config-env --exec-path --super-prefix --attr-source --shallow-file"
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
        place += 2 if word.text in _GLOBAL_VALUED else 1
    return None


def _global_values(arguments: Sequence[Word]) -> Iterator[tuple[str, Word]]:
    at = 0
    while at < len(arguments) - 1 and arguments[at].text.startswith("-"):
        is_valued = arguments[at].text in _GLOBAL_VALUED
        if is_valued:
            yield arguments[at].text, arguments[at + 1]
        at += 2 if is_valued else 1


def folder_of(arguments: Sequence[Word]) -> str | None:
    """Where `-C` leads, each taken from the one before; `None` if that is not known."""
    folder: str | None = ""
    for option, value in _global_values(arguments):
        if option == "-C":
            folder = None if folder is None or value.path is None else joined(folder, value.path)
    return folder


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


# Which calls only look

_LOOKING = names(
    "annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files"
    " diff-index diff-tree for-each-ref log ls-files ls-tree merge-base name-rev range-diff rev-list"
    " rev-parse shortlog show show-branch show-ref status var version whatchanged"
)
# Options that write, or run what the configuration of a repository names; the shortest beginnings count as well
_FORBIDDEN = (
    "--output", "--ext-diff", "--textconv", "--filters", "--show-signature", "--upload-pack", "--exec",
    "--open-files-in-pager", "--receive-pack", "--paginate",
)  # fmt: skip
_BRANCH_LISTS = re.compile(
    r"-[arvi]+|--(?:all|remotes|list|verbose|show-current|(?:no-)?(?:contains|merged|column|color|abbrev)(?:=.*)?"
    r"|ignore-case|(?:sort|format|points-at|abbrev|color|column)=.*)"
)
_TAG_LISTS = re.compile(r"-l|-n\d*|-i|--(?:list|ignore-case|(?:sort|format|contains|points-at|merged|no-merged)=.*)")
_CONFIG_FLAGS = re.compile(
    r"--(?:get|get-all|get-regexp|list|global|local|system|show-origin|show-scope|null|type=.*)|-[lz]"
)


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
    verb, rest = found
    options = [word for word in rest if word.may_be_option]
    for word in options:
        option = word.text.partition("=")[0]
        shows_signature = "%G" in word.text or "%(sign" in word.text
        is_forbidden = len(option) > len("--") and any(each.startswith(option) for each in _FORBIDDEN)
        if not word.is_literal or shows_signature or is_forbidden:
            return False
    texts = [word.text for word in rest]
    first = texts[0] if texts else ""
    match verb:
        case "branch":
            # A branch that is named is made, unless the names are a pattern of `--list`.
            values = {
                at + 1
                for at, text in enumerate(texts)
                if re.fullmatch(r"--(?:(?:no-)?(?:contains|merged)|points-at)", text)
            }
            return all(_BRANCH_LISTS.fullmatch(word.text) for word in options) and all(
                "--list" in texts or at in values or (word.is_literal and _BRANCH_LISTS.fullmatch(word.text))
                for at, word in enumerate(rest)
            )
        case "tag":
            lists = not texts or "-l" in texts or "--list" in texts
            return lists and all(_TAG_LISTS.fullmatch(word.text) for word in options)
        case "config":
            # `git config name` reads, `git config name value` writes.
            names_one = [word.is_literal and "." in word.text for word in rest if word.text[:1] != "-"] == [True]
            reads = (
                first in ("get", "list")
                or names_one
                or any(text in ("--get", "--get-all", "--get-regexp", "--list", "-l") for text in texts)
            )
            return reads and all(_CONFIG_FLAGS.fullmatch(word.text) for word in options)
        case "remote":
            # `show` asks the other host, unless it is told not to.
            shows = first == "get-url" or texts[:2] == ["show", "-n"]
            return shows or all(text in ("-v", "--verbose") for text in texts)
        case "grep":
            return not any("O" in word.text.partition("=")[0] for word in options)
        case "stash":
            return first in ("list", "show")
        case "reflog":
            return not texts or first in ("show", "exists")
        case "worktree":
            return first == "list"
        case _:
            return verb in _LOOKING


# What is reached and written by the names in its words

_REACHING = names("fetch pull push ls-remote submodule send-email request-pull fetch-pack send-pack remote-http")
_CHECKING_OUT = names(
    "am apply checkout checkout-index cherry-pick clone merge pull read-tree rebase reset restore revert stash"
    " submodule switch worktree"
)
_CHANGING = (_CHECKING_OUT - {"clone"}) | names(
    "clean filter-branch mv rm sparse-checkout merge-file init merge-one-file interpret-trailers symbolic-ref"
)
_WRITING_OPERANDS = names("mv rm restore checkout init submodule worktree merge-file merge-one-file interpret-trailers")
_OUTPUTS = {
    **dict.fromkeys(("bugreport", "diagnose"), names("o output-directory")), "archive": names("o output"),
    "format-patch": names("o output-directory output"), "fast-export": names("export-marks"),
}  # fmt: skip


def brings_links(arguments: Sequence[Word]) -> bool:
    """Whether a call of git may put links into the work tree."""
    found = subcommand(arguments)
    return found is None or found[0] in _CHECKING_OUT


def of_git(arguments: Sequence[Word]) -> Targets:
    """What its sub-command touches by the names in its words."""
    found = subcommand(arguments)
    if found is None:
        yield from ((R, None), (W, None), (F, None))
        return
    verb, rest = found
    texts = [word.text for word in rest]
    asks = verb == "remote" and "-n" not in texts and not names("show update prune set-head").isdisjoint(texts)
    fetches = verb == "remote" and ("-f" in texts or "--fetch" in texts)
    is_remote = verb == "archive" and any(text.startswith("--rem") for text in texts)
    if verb in _REACHING or asks or fetches or is_remote:
        yield F, None
    elif verb == "clone":
        operands = parse(rest, _VALUED["clone"]).operands
        address = program_files.REMOTE_PATH.match(operands[0].text) if operands else None
        yield F, None if address is None else program_files.host(address[1] or address[2], operands[0])
        yield W, operands[1] if len(operands) > 1 else None
    if any(text.partition("=")[0] in ("--stdin-paths", "--pathspec-from-file", "--index-info") for text in texts):
        yield R, None
    outputs = _OUTPUTS.get(verb, frozenset()) | names("output separate-git-dir")
    parsed = parse(rest, outputs | names("n S G L U M C contents file template"))
    for option, value in parsed.options:
        if option.lstrip("-") in outputs:
            yield W, value
        elif option.lstrip("-") in ("contents", "file", "template"):
            yield R, value
    if verb in ("mailinfo", "mailsplit"):
        yield from ((W, word) for word in parsed.operands)
    if verb == "bundle" and parsed.operands[:1] and parsed.operands[0].text == "create":
        yield W, parsed.operands[1] if len(parsed.operands) > 1 else None
    if parsed.has_open or (verb == "format-patch" and not parsed.has("-o", "--output-directory", "--stdout")):
        yield W, None
    if verb in _CHANGING and texts[:1] not in (["list"], ["show"], ["status"], ["summary"]):
        if verb in _WRITING_OPERANDS:
            yield from ((W, word) for word in parsed.operands)
        if verb == "symbolic-ref":
            # A reference is a file in the repository, whatever it is called.
            yield from ((W, literal(posixpath.join(".git", word.text))) for word in parsed.operands)
        yield W, None
    if verb != "config" or is_read_only_git(arguments):
        return
    parsed = parse(rest, ("f", "file", "blob", "default", "type"))
    is_plain = not parsed.has_open and all(name in ("--local", "--add", "--unset") for name, _ in parsed.options)
    key, *values = parsed.operands or [literal("")]
    if is_plain and key.is_literal and is_harmless_setting(key.text) and len(values) <= 1:
        return
    files = parsed.values("-f", "--file")
    yield from ((W, value) for value in files)
    if parsed.has("--global"):
        yield W, literal("~/.gitconfig")
    elif parsed.has("--system"):
        yield W, literal("/etc/gitconfig")
    elif not files:
        yield W, literal(posixpath.join(folder_of(arguments) or "", ".git/config"))


# What git shows of the files that it stores, or puts at other names

# Paths from the folder that git is sent to, or from the top of the work tree, with what of them is shown
Paths = Iterable[tuple[str, Reach]]
_NOTHING: Paths = ()
_ALL: Paths = ((TOP_OF_REPOSITORY, Reach.STORED),)
# They show no contents but by the options below
_QUIET = names(
    "am apply branch check-attr check-ignore check-mailmap check-ref-format cherry cherry-pick clean commit-graph"
    " config count-objects describe diff-files diff-index diff-tree fetch for-each-ref fsck gc help init ls-files"
    " ls-remote ls-tree maintenance merge merge-base multi-pack-index name-rev pack-refs prune prune-packed pull"
    " push rebase remote repack rev-parse revert rm show-branch show-ref sparse-checkout switch symbolic-ref"
    " update-server-info var verify-commit verify-pack verify-tag version write-tree"
)

# The same where a word behind the sub-command says what is done
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

# Options of sub-commands with a value, and, of those that show nothing but by the others, those without one
_OPTIONS = {
    verb: {kind: names(text) for kind, text in fields}
    for verbs, fields in program_files.table_rows("""
add: quiet A u n v f N all update dry-run verbose force intent-to-add ignore-errors ignore-missing renormalize refresh
    sparse no-all ignore-removal no-ignore-removal pathspec-file-nul | valued chmod pathspec-from-file
checkout: quiet q f l m d t 2 3 quiet force merge detach track no-track guess no-guess ours theirs overlay no-overlay
    progress no-progress recurse-submodules no-recurse-submodules ignore-other-worktrees pathspec-file-nul | valued b B
    orphan conflict pathspec-from-file
commit: quiet a q s n e o i z all quiet signoff no-signoff no-verify verify edit no-edit only include amend allow-empty
    allow-empty-message no-post-rewrite reset-author short branch porcelain long null dry-run status no-status gpg-sign
    no-gpg-sign untracked-files pathspec-file-nul | valued m F C c t S u message file reuse-message reedit-message
    template fixup squash author date cleanup trailer pathspec-from-file
reset: quiet q N quiet no-quiet mixed soft hard merge keep intent-to-add refresh no-refresh recurse-submodules
    no-recurse-submodules pathspec-file-nul | valued pathspec-from-file
restore: quiet q S W m quiet staged worktree merge ours theirs progress no-progress overlay no-overlay ignore-unmerged
    recurse-submodules no-recurse-submodules pathspec-file-nul | valued s source conflict pathspec-from-file
stash: quiet k q u a S keep-index no-keep-index quiet include-untracked no-include-untracked all staged index
    pathspec-file-nul | valued m message pathspec-from-file
status: quiet s b z short branch show-stash porcelain long untracked-files ignored ignore-submodules column no-column
    ahead-behind no-ahead-behind renames no-renames find-renames null | valued u
update-index: quiet q g refresh really-refresh again add remove force-remove ignore-missing ignore-submodules unmerged
    replace assume-unchanged no-assume-unchanged skip-worktree no-skip-worktree | valued chmod
log whatchanged shortlog rev-list diff diff-files diff-index diff-tree show format-patch: valued n S G O l U author
    committer grep since until after before max-count skip date format pretty
grep: valued e f A B C m after-context before-context context max-count max-depth threads
annotate blame: valued L S date contents ignore-rev ignore-revs-file since abbrev
tag: valued m F u message file local-user cleanup trailer sort format points-at color column
branch for-each-ref: valued format sort points-at
clone: valued b o c u j branch origin config upload-pack jobs depth template reference reference-if-able
    separate-git-dir filter shallow-since shallow-exclude server-option bundle-uri revision name
fetch pull push: valued o j X s depth jobs repo
submodule: valued b name branch reference depth
""")
    for verb in verbs
}
_QUIET_OPTIONS = {verb: fields["quiet"] for verb, fields in _OPTIONS.items() if "quiet" in fields}
_VALUED = {verb: fields.get("valued", frozenset[str]()) for verb, fields in _OPTIONS.items()}
# Options that show something, or put it at other names, of sub-commands with too many others
_SHOWING_OPTIONS = {
    "am": re.compile(r"-i|--(?:sh|int).*"),
    "config": re.compile(r"--bl.*"),
    "rebase": re.compile(r"--sh.*"),
    **dict.fromkeys(names("cherry-pick merge pull rebase revert"), re.compile(r"--sh.*|.*subtree.*", re.DOTALL)),
}
_SHOWING_SETTING = re.compile(
    r"(?:commit\.verbose|stash\.show|diff\.submodule|log\.(?:diffmerges|follow)).*", re.IGNORECASE
)
_STATISTICS = re.compile(
    r"--(?:stat|shortstat|numstat|dirstat|summary|compact-summary|name-only|name-status|no-patch|quiet|raw)(?:=.*)?|-s"
)
_WITHOUT_PATCH = re.compile(
    rf"{_STATISTICS.pattern}|-\d+|-[nqziswegrtEFMC]+\d*|-S.*|--(?:oneline|graph|all|decorate|format|pretty|since|until"
    r"|after|before|author|committer|grep|max-count|skip|abbrev-commit|no-abbrev-commit|abbrev|date|follow|no-merges"
    r"|merges|reverse|first-parent|branches|tags|remotes|topo-order|date-order|author-date-order|no-color|color|count"
    r"|cached|staged|merge-base|exit-code"
    r"|no-commit-id|root|no-renames|find-renames|diff-filter|relative|no-decorate|decorate-refs|no-walk|walk-reflogs"
    r"|cherry-pick|cherry|cherry-mark|left-right|left-only|right-only|boundary|simplify-by-decoration|ancestry-path"
    r"|full-history|show-pulls|regexp-ignore-case|invert-grep|all-match|fixed-strings|extended-regexp|parents|children"
    r"|min-parents|max-parents|no-notes|source|numbered|email|no-ext-diff|no-textconv|pickaxe-all|relative-date"
    r"|no-graph|objects|disk-usage|not|glob|exclude|full-index)(?:=.*)?|--",
    re.DOTALL,
)
# Options that surely take no word behind them
_BARE = re.compile(
    r"-[puwbsaizRqrhHcEP]+|--(?:cached|staged|patch|stat|word-diff|color-words|no-color|oneline|graph|all|reverse"
    r"|ignore-all-space|ignore-space-change|no-renames|name-only|name-status|quiet|exit-code|no-ext-diff|color|text"
    r"|line-number|ignore-case|files-with-matches|count|untracked|minimal|patience|histogram|function-context)|-[WU]\d*"
    r"|--[\w-]+=.*",
    re.DOTALL,
)
_LISTING_TAGS = names("-l -d -v -n --list --delete --verify --contains --no-contains --merged --no-merged --points-at")
# Options with which `git grep` searches files as they are
_LOOKING_NOW = re.compile(
    r"-[nilLwvhHEFGPcqopaI]+|-[ABCme]\d*|--(?:line-number|ignore-case|files-with-matches|files-without-match|name-only"
    r"|word-regexp|invert-match|extended-regexp|fixed-strings|perl-regexp|basic-regexp|count|quiet|column|heading"
    r"|break|show-function|only-matching|no-color|color|full-name|and|or|not|all-match|untracked"
    r"|after-context|before-context|context|max-count|max-depth)(?:=.*)?|--"
)
# What is a commit for certain, and nothing else that is stored; a file or folder may have any other name
_COMMIT = re.compile(
    r"\^?(?:(?:HEAD|@|ORIG_HEAD)?(?:@\{[^{}:]*\})?|stash@\{\d+\}|[\w./@{}+-]+(?=[~^]\d*))(?:[~^]\d*)*", re.ASCII
)
# A name as branches and tags have: git makes branches of commits alone, and to tag anything else is asked about
_REVISION = re.compile(r"\^?(?![0-9a-f]{4,64}\Z)(?!.*-g[0-9a-f]{4,64}\Z)[\w./@{}+-]*", re.ASCII | re.IGNORECASE)
_MAGIC = re.compile(r":(?:\([^)]*\)|[/!^]+:?)")
_FIELD = (
    r"%\(\*?(?:refname|objectname|objecttype|objectsize|deltabase|upstream|push|HEAD|symref|worktreepath|ahead-behind"
    r"|(?:author|committer|tagger|creator)(?:name|email|date)?|subject|body|contents:subject|trailers|numparent|parent"
    r"|tree|object|type|tag|color|align|if|then|else|end|rest)(?::[^()]*)?\)"
)
# Formats of refs without the content of what they lead to
_FORMAT = re.compile(rf"(?:[^%]|%%|%[0-9a-fA-F]{{2}}|{_FIELD})*", re.DOTALL)


def of_repository(arguments: Sequence[Word]) -> Iterable[tuple[Access, Word | None, Reach]]:
    """What git shows, or puts at other names, and what of a folder it removes besides."""
    found, folder = subcommand(arguments), folder_of(arguments)
    if folder != "":
        yield R, None if folder is None else literal(folder), Reach.ITSELF
    if found is None:
        return
    settings = [value.text for option, value in _global_values(arguments) if option in ("-c", "--config-env")]
    settings += [word.text.partition("=")[2] for word in arguments if word.text.startswith("--config-env=")]
    shown = _ALL if any(map(_SHOWING_SETTING.match, settings)) else _shown_paths(*found)
    for access, paths in ((R, shown), (W, _taken_paths(*found))):
        for path, reach in paths:
            yield access, None if folder is None else literal(posixpath.join(folder, path)), reach


def _shown_paths(verb: str, rest: Sequence[Word]) -> Paths:
    texts = [word.text for word in rest]
    first = texts[0] if texts else ""
    showing = _SHOWING_OPTIONS.get(verb)
    if showing is not None and any(map(showing.fullmatch, texts)):
        return _ALL
    quiet, valued = _QUIET_OPTIONS.get(verb), _VALUED.get(verb, frozenset[str]())
    parsed = parse(rest, valued)
    operands = parsed.operands
    is_literal = all(word.is_literal for word in rest)
    is_quiet = verb in _QUIET
    if quiet is not None:
        is_quiet = not parsed.has_open and all(name.lstrip("-") in quiet | valued for name, _ in parsed.options)
    has_patch = not all(
        not word.may_be_option or (not word.may_split and _WITHOUT_PATCH.fullmatch(word.text)) for word in rest
    )
    match verb:
        case "log" | "whatchanged" | "shortlog" | "rev-list":
            if has_patch and any(text.startswith("--fol") for text in texts):
                # What a name was called before may be hidden.
                return _ALL
            return _limited(rest, takes_commits=True) if has_patch else _NOTHING
        case "reflog":
            return _shown_paths("log", rest[first in ("show", "list", "exists", "expire", "delete") :])
        case "format-patch":
            return _limited(rest, takes_commits=True)
        case "diff-files" | "diff-index" | "diff-tree":
            return _limited(rest) if has_patch else _NOTHING
        case "diff":
            is_statistics = not has_patch and any(map(_STATISTICS.fullmatch, texts))
            return _NOTHING if is_statistics else _limited(rest)
        case "show":
            # A blob is shown whatever the options say, so each word has to be a commit, or name the path.
            revisions, paths = _sides(rest)
            if not is_literal or paths is None:
                return _ALL
            objects = [word.text for word in parse(revisions, valued).operands]
            files = [text for text in objects if not _COMMIT.fullmatch(text)]
            shown = [path for text in files for path in _stored_at(text, Reach.ITSELF)]
            is_statistics = not has_patch and any(_STATISTICS.fullmatch(word.text) for word in revisions)
            if is_statistics or (files and len(files) == len(objects)):
                return shown
            return [*shown, *_pathspecs(paths)] if paths else _ALL
        case "cat-file":
            if any(text in ("-t", "-s", "-e") or text.startswith("--batch-ch") for text in texts):
                return _NOTHING if len(texts) == 1 + (not first.startswith("--")) else _ALL
            if len(texts) != 2 or not is_literal:
                return _ALL
            return _NOTHING if _COMMIT.fullmatch(texts[1]) else _stored_at(texts[1], Reach.ITSELF)
        case "annotate" | "blame":
            # They show one file, whatever else their words are.
            return [(word.text, Reach.ITSELF) for word in operands] if is_literal else _ALL
        case "grep":
            before, paths = _sides(rest)
            parsed = parse(before, _VALUED["grep"])
            operands = parsed.operands if parsed.has("-e", "-f") else parsed.operands[1:]
            if paths is None or not all(word.is_literal for word in (*operands, *paths)) or parsed.has_open:
                return _ALL
            others = [word.text for word in operands if not _COMMIT.fullmatch(word.text)]
            if not paths and others:
                return [path for text in others for path in _stored_at(text, Reach.NAMED)]
            if not all(map(_REVISION.fullmatch, others)):
                return _ALL
            is_now = not operands and all(
                not word.may_be_option or _LOOKING_NOW.fullmatch(word.text) for word in before
            )
            return _pathspecs(paths or [literal(".")], Reach.BELOW if is_now else Reach.STORED)
        case "checkout" | "reset":
            # A tree of a folder puts what is in that folder at other names.
            names_file = ":" in "".join(word.text for word in operands)
            is_known = is_quiet and (_is_commit(operands[0]) if operands[1:] else not names_file)
        case "restore":
            sources = parsed.values("-s", "--source")
            is_known = is_quiet and all(source is not None and _is_commit(source) for source in sources)
        case "stash":
            if first == "list":
                return _shown_paths("log", rest[1:])
            are_statistics = all(not word.may_be_option or _STATISTICS.fullmatch(word.text) for word in rest)
            is_known = are_statistics if first == "show" else is_quiet
        case "tag":
            lists = parsed.has(*_LISTING_TAGS)
            is_known = _has_plain_format(parsed) and (lists or all(map(_is_commit, operands[1:2])))
        case "branch" | "for-each-ref":
            is_known = _has_plain_format(parsed)
        case "clone":
            # What is copied from a repository on this machine comes to lie at other names.
            if parsed.has_open or not all(word.is_literal for word in operands):
                return _ALL
            return [
                (posixpath.join(word.text.removeprefix("file://"), TOP_OF_REPOSITORY), Reach.STORED)
                for word in operands[:1]
                if ":" not in word.text.partition("/")[0] or word.text.startswith("file:")
            ]
        case "fetch" | "pull" | "push":
            # With a repository on this machine, anything that is stored can be given a name.
            is_known = not any(word.text.startswith((".", "/", "~", "file:")) for word in operands[:1])
        case "submodule" if operands and operands[0].text == "add":
            return _shown_paths("clone", operands[1:])
        case "submodule":
            is_known = not operands or operands[0].text in _QUIET_WORDS[verb]
        case "mv":
            sources = operands[:-1]
            return [(word.text, Reach.BELOW) for word in sources] if all(w.is_literal for w in sources) else _ALL
        case "hash-object":
            # With a type, it stores trees: lists of what is called how.
            is_known = all(
                not word.may_be_option or re.fullmatch(r"-w|--(?:stdin|path=.*)", word.text) for word in rest
            )
        case _ if verb in _QUIET_WORDS:
            is_known = not rest or first in _QUIET_WORDS[verb]
        case _:
            is_known = is_quiet
    return _NOTHING if is_known else _ALL


def _has_plain_format(parsed: Arguments) -> bool:
    return not parsed.has_open and all(
        value is not None and value.is_literal and _FORMAT.fullmatch(value.text) for value in parsed.values("--format")
    )


def _is_commit(word: Word) -> bool:
    return word.is_literal and bool(_COMMIT.fullmatch(word.text) or _REVISION.fullmatch(word.text))


def _limited(rest: Sequence[Word], *, takes_commits: bool = False) -> Paths:
    """What the paths among the words limit the output of a sub-command to, which may refuse all but commits."""
    before, paths = _sides(rest)
    if paths is None or not all(word.is_literal for word in rest):
        return _ALL
    others = [word.text for word in parse(before, _VALUED["log"]).operands if not _COMMIT.fullmatch(word.text)]
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
    parts = [(word.text, GIT_WILD.split(word.text, maxsplit=1)) for word in paths]
    return [((posixpath.dirname(known) or ".") if wild else text, reach) for text, (known, *wild) in parts]


def _stored_at(text: str, reach: Reach) -> Paths:
    """The path that a word names, alone or behind a revision."""
    revision, colon, path = text.partition(":")
    if not colon:
        return [(text, reach)] if reach is Reach.NAMED else _ALL
    if not revision:
        path = re.sub(r"\A[0-3]:", "", path)
    is_known = _COMMIT.fullmatch(revision) or _REVISION.fullmatch(revision)
    if not is_known or path.startswith("/") or TOP_OF_REPOSITORY in path:
        return _ALL
    place = path if path.startswith(("./", "../")) else TOP_OF_REPOSITORY + path
    return [(place, Reach.STORED if reach is Reach.NAMED else reach)]


def _taken_paths(verb: str, rest: Sequence[Word]) -> Paths:
    """Folders and patterns of what git takes away, or writes, by names that no word says."""
    match verb:
        case "stash":
            parsed = parse(rest, _VALUED["stash"])
            if parsed.has("-a", "--all"):
                yield ".", Reach.IGNORED
            elif any(name == "-u" or name.startswith("--inc") for name, _ in parsed.options):
                yield ".", Reach.UNTRACKED
        case "clean":
            parsed = parse(rest, ("e", "exclude"))
            reach = Reach.IGNORED if parsed.has("-x", "-X") else Reach.UNTRACKED
            folders = [path for path, _ in _pathspecs(parsed.operands)]
            if not parsed.has("-n", "--dry-run"):
                yield from ((folder, reach) for folder in folders or ["."])
        case "sparse-checkout" if not (rest and rest[0].text in ("list", "disable", "check-rules")):
            yield f"{TOP_OF_REPOSITORY}*", Reach.MATCHED
        case "rm" | "checkout" | "restore":
            for word in parse(rest, names("s source pathspec-from-file")).operands:
                # What is stored for a folder is open; a pattern may be meant for one name.
                is_pattern = GIT_WILD.search(word.text) or word.text.startswith(":")
                if not word.is_literal or not (verb == "rm" or is_pattern):
                    continue
                magic = _MAGIC.match(word.text)
                pattern = word.text[magic.end() :] if magic else word.text
                if magic and re.search(r"[!^]|exclude", magic[0]):
                    pattern = "*"
                top = TOP_OF_REPOSITORY if magic and re.search(r"/|top", magic[0]) else ""
                yield top + pattern, Reach.MATCHED
                # Names of auto-run files count also where there is no such file.
                folder, name = posixpath.split(pattern)
                yield from ((top + posixpath.join(folder, each), Reach.ITSELF) for each in auto_run_names(name))
        case _:
            pass
