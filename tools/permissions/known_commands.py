"""Lists of commands that usually only read, and of commands that need the network.

Being listed does not make a command trusted. A read-only command runs in a view in which it can change nothing, so a
wrong entry only makes a command fail, and a missing entry only causes a question. Only the commands on the short list
at the end of this module are trusted: they may run without a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice, pairwise, takewhile
from os.path import basename, join

from tools.permissions.command_text import (
    MAX_PROGRAMS,
    CommandText,
    SimpleCommand,
    Words,
    is_wrapper,
    plain_name,
    programs_run_by,
)

_READER_NAMES = """
cd : [ [[ test true false echo printf export source . sleep seq pwd type command read set shift return exit wait local
declare unset shopt break continue pushd popd dirs let ulimit umask times readonly getopts jobs history yes
ls cat head tail less more wc grep egrep fgrep rg ag ack fd fdfind awk gawk sort uniq cut tr diff cmp comm join
paste nl column tree file stat strings xxd od hexdump jq yq tac rev fold fmt expand unexpand base64 base32 md5sum cksum
sha1sum sha224sum sha256sum sha384sum sha512sum b2sum zipinfo zcat zgrep basename dirname realpath readlink tsort shuf
numfmt factor expr bat delta tokei cloc scc iconv look pr json.tool pgrep pidof
date env printenv which whereis id uname hostname whoami nproc df du ps free uptime lscpu lsblk groups logname arch tty
locale getconf getent ldd nm objdump readelf size man help cal ss lsof xargs shellcheck dig nslookup
"""
_READERS = frozenset(_READER_NAMES.split())
_INFORMATION_OPTIONS = frozenset(("--version", "-version", "-V", "-v", "--help"))


def _by_program(forms: Mapping[str, str]) -> Mapping[str, re.Pattern[str]]:
    """Map each program to its pattern. Each key of `forms` lists the programs that share a pattern."""
    return {name: re.compile(form, re.VERBOSE | re.DOTALL) for names, form in forms.items() for name in names.split()}


# Programs that only read if their arguments, joined by spaces, match the pattern
_READER_FORMS = _by_program({
    "git": r"""
        (status|diff(-tree|-index|-files)?|log|show(-ref)?|blame|annotate|rev-parse|ls-files|ls-tree|grep|describe
        |shortlog|reflog|cat-file|name-rev|merge-base|rev-list|for-each-ref|symbolic-ref|count-objects|whatchanged
        |range-diff|check-ignore|check-attr|var|version|help|cherry|fsck|bisect\ (log|view)|sparse-checkout\ list
        |ls-remote|stash\ (list|show)|worktree\ (list|prune\ (.*\ )?(-n|--dry-run))|lfs\ (ls-files|status|env))(\ .*)?
        |clean\ (.*\ )?(-[a-zA-Z]*n[a-zA-Z]*|--dry-run)(\ .*)?
        |apply\ (?!(.*\ )?--apply\b)(.*\ )?--(check|stat|numstat|summary)(\ .*)?
        |branch(\ (-a|-r|-v|-vv|-l|--(all|remotes|list|show-current|verbose|(no-)?(merged|contains)\b.*
            |(sort|format|points-at|color)\b.*))(\ .*)?)?
        |tag(\ (-l|--list|-n\d*|--(sort|format|contains|points-at|merged|no-merged)\b.*)(\ .*)?)?
        |remote(\ (-v|--verbose|show|get-url)(\ .*)?)?
        |config\ ((--(global|local|system)\ )?(-l|--list|--get\S*)(\ .*)?|(get|list)(\ .*)?|[\w.-]+)
        |submodule(\ (status|summary)(\ .*)?)?
        |notes(\ (list|show)(\ .*)?)?
    """,
    "npm": r"""
        (ls|list|ll|la|root|prefix|bin|outdated|view|info|show|v|search|find|s|se|explain|why|query|help|get
        |config\ (get|list|ls)|pkg\ get)(\ .*)?|run(-script)?|config
    """,
    "pnpm yarn": r"(ls|list|root|bin|why|outdated|view)(\ .*)?",
    "npx": r"(--no-install\ )?[\w.-]+\ (-?-version|-[vV]|--help)",
    "pip pip3": r"(list|show|freeze|check|index)(\ .*)?",
    "uv": r"(tree|version)(\ .*)?",
    "cargo": r"(metadata|tree)(\ .*)?",
    "go": r"(version|env|list)(\ .*)?",
    "rustup poetry": r"show(\ .*)?",
    "systemctl": r"(status|list-units)(\ .*)?",
    "docker": r"version",
    "conda": r"(list|info)(\ .*)?",
    "gem": r"list(\ .*)?",
    "tar": r"(-?t[a-z]*|--list)(\ .*)?",
    "unzip": r"-[a-z]*[lpZt].*",
    "sed": r"(?!(.*\ )?(-[nErsuz]*i|--in-place)).*",
    "find": r"(?!(.*\ )?-(delete|fprint|fls)).*",
    "curl": r"(?!(.*\ )?(-[sSfLkIivgjq]*[oOcD](?!\ ?/(dev/null|tmp/))|--(output|remote-|cookie-jar|dump-header))).*",
    "wget": r"(.*\ )?(-\w*O\ ?(-|/dev/null|/tmp/\S+)|--output-document=(-|/dev/null|/tmp/\S+)|--spider)(\ .*)?",
    "node": r"(-c|--check)\ .*",
    "bash sh": r"-n\ .*",
    "ip": r"(-\S+\ )*(a|addr|address|l|link|r|route|n|neigh)(\ (show|list|ls)\b.*)?",
    "mount": r"",
    "openssl": r"version(\ .*)?",
    "make": r"(.*\ )?(-n|--dry-run|--just-print)(\ .*)?",
})  # fmt: skip

# Programs that change only what belongs to the view (`/tmp` and processes), if their arguments match the pattern
_SCRATCH_CHANGERS = _by_program({
    "mkdir rmdir touch rm mv tee": r"(-\S+\ )*/tmp/\S+(\ /tmp/\S+)*",
    "mktemp": r"(-\S+\ ?)*(/tmp/\S+)?",
    "cp": r".*\ /tmp(/\S*)?",
    "tar": r"-?c\w*f\ /tmp/\S+(\ .*)?|-?x.*\ -C\ ?/tmp(/\S*)?",
    "kill pkill killall": r".*",
})  # fmt: skip

# Programs that need the network if their arguments match the pattern
_NETWORK = _by_program({
    "npm pnpm bun": r"""
        (i|install|ci|add|up|update|upgrade|outdated|publish|audit|exec|x|create|dlx
        |in|ins|inst|clean-install|ic|it|cit|view|info|show|v|search|find|s|se|ping|whoami|diff|dist-tags?|owner
        |access|login|adduser|unpublish|deprecate|doctor)\b.*
        |(init|innit)\ ((-y|--yes)\ )*[^-\ ].*
    """,
    "npx bunx pnpx uvx pipx": r".*",
    "yarn": r"(install|add|up|upgrade|create|dlx|audit|publish)\b.*|(--\S+)?",
    "pip pip3": r"(install|download|index|wheel)\b.*",
    "uv": r"(add|sync|pip|lock|tool|run|python|publish)\b.*",
    "poetry pdm hatch": r"(install|add|update|lock|publish|sync)\b.*",
    "conda mamba": r"(install|create|update|search)\b.*",
    "cargo": r"(fetch|add|install|update|search|publish)\b.*",
    "go": r"(get|install|mod)\b.*",
    "gem bundle composer": r"(install|update|require|add)\b.*",
    "docker podman": r"(pull|push|build|run|compose|login)\b.*",
    "git": r"""
        (fetch|pull|push|ls-remote)\b(?!(\ -\S+)*\ ([./~]|file:)).*
        |clone\b(?!(?!.*((?<!\ file):|\?)).*\ ([./~]|file:)).*|submodule\ .*update\b.*
        |remote\ (update|prune)\b.*
    """,
    "gh glab": r"(?!--version|help).*",
    "ssh scp sftp rsync ftp telnet ping dig nslookup": r".*",
    "apt apt-get brew dnf yum apk pacman": r"(?!(list|show|policy|info|--version|-Q\w*)\b).*",
    "terraform": r"(init|get)\b.*",
    "playwright": r"install\b.*",
})  # fmt: skip
# How package managers run a package's program, which needs the network only if the package is not installed
_RUNS_PACKAGE = re.compile(
    r"(?:npx|bunx|(?:npm|pnpm|bun) (?:exec|x)(?: --)?) ([A-Za-z0-9_][\w.-]*)(?: .*)?", re.DOTALL | re.ASCII
)
_OFFLINE_OPTIONS = {"--offline", "--no-index", "--no-install"}  # options that turn the network off
_RECURSIVE = re.compile(r"-[a-zA-Z]*[rR].*|--(dereference-)?recursive")
# Options of `grep` and `rg` that certainly do not take the next word as their value
_SEARCH_FLAGS = re.compile(
    r"-[FHILachilnoqsvwx]*|--(hidden|recursive|ignore-case|line-number|fixed-strings)|--[a-z-]+=.*"
)
_ADDRESS = re.compile(r"\w+://.*", re.DOTALL)
_LOOPBACK = re.compile(
    r"(\w+://)?([^/@]*@)?(([\w-]+\.)*localhost|127(\.\d+){3}|0\.0\.0\.0|\[::1\])(:\d*)?([/?#\0].*)?",
    re.IGNORECASE | re.DOTALL,
)
# Options before git's subcommand that take the next word as their value
_GIT_OPTIONS_WITH_VALUE = (
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--super-prefix",
)  # fmt: skip


def is_reader(words: Words, depth: int = MAX_PROGRAMS) -> bool:
    """Return True if a simple command usually changes nothing. It may run other programs to a limited depth."""
    if words[:2] in (("command", "-v"), ("command", "-V")):
        return True
    *_, words = programs_run_by(words, loosely=False)
    if not words or words[0] is None:
        return False
    if len(words) == 2 and words[1] in _INFORMATION_OPTIONS:
        return True  # the program's location does not matter, because an impostor can change nothing in a reading view
    name, arguments = _program_and_arguments(words)
    if name not in _READERS and not _matches(_READER_FORMS, name, arguments):
        return False
    # Also check the commands that `find` and `xargs` run.
    inner_programs = islice(programs_run_by(words, loosely=True), 1, None)
    return depth > 0 and all(is_reader(inner_words, depth - 1) for inner_words in inner_programs)


def changes_scratch_alone(words: Words) -> bool:
    """Return True if a simple command changes only what belongs to its view: files in `/tmp` and its processes."""
    return _matches(_SCRATCH_CHANGERS, *_program_and_arguments(words))


def needs_network(words: Words, is_installed: Callable[[str], bool] = lambda _: False) -> bool:
    """Return True if the known words of a simple command show that it needs the network.

    `is_installed` says whether an installed package provides a program (`npx NAME`).
    """
    for program_words in programs_run_by(words, loosely=True):
        name, arguments = _program_and_arguments(program_words)
        is_about_program = len(program_words) == 2 and program_words[1] in _INFORMATION_OPTIONS
        if is_about_program or not _OFFLINE_OPTIONS.isdisjoint(program_words):
            continue
        package_program = _RUNS_PACKAGE.fullmatch(f"{name} {arguments}")
        if _matches(_NETWORK, name, arguments) and not (package_program and is_installed(package_program[1])):
            return True
        if name in ("curl", "wget"):
            operands = filter(None, program_words[1:])
            addresses = [word for word in operands if _ADDRESS.fullmatch(word) or _LOOPBACK.fullmatch(word)]
            if not addresses or not all(map(_LOOPBACK.fullmatch, addresses)):
                return True
    return False


def remote_of(words: Words) -> str | None:
    """Return the first operand (empty if none) of a git command that contacts a remote; `None` for other commands."""
    after_options = without_git_options(words[1:])
    if words[:1] != ("git",) or not after_options or after_options[0] not in ("fetch", "pull", "push", "ls-remote"):
        return None
    return next((word or "?" for word in after_options[1:] if word is None or not word.startswith("-")), "")


def searches_folders(command: SimpleCommand) -> bool:
    """Return True if a command of the short list is `rg` or has an option such as `-r`, so it may search folders."""
    return command.program == "rg" or any(word and _RECURSIVE.fullmatch(word) for word in command.words[1:])


def may_search_own_folder(command: SimpleCommand) -> bool:
    """Return True if the words of a search may include no path. It then searches the folder in which it runs."""
    arguments = command.words[1:]
    options = [word or "" for word in arguments if word is None or word.startswith("-")]
    if command.program != "rg":
        options = [option.replace("r", "").replace("R", "") for option in options]
    return len(arguments) - len(options) < 2 or not all(map(_SEARCH_FLAGS.fullmatch, options))


def compares_folders(command: SimpleCommand) -> bool:
    """Return True if a command is `diff` or `git diff`, which may read all files in the folders that it names."""
    is_git_diff = command.program == "git" and without_git_options(command.words[1:])[:1] == ("diff",)
    return command.program == "diff" or is_git_diff


def _program_and_arguments(words: Words) -> tuple[str, str]:
    """Return the name of the program or Python module that runs, and its arguments as text (`?` for unknown ones)."""
    name, arguments = basename(words[0] or "") if words else "", words[1:]
    if arguments[:1] == ("-m",) and re.fullmatch(r"python(3(\.\d+)?)?", name):
        name, arguments = "".join(word or "" for word in arguments[1:2]), arguments[2:]
    if name == "git":
        arguments = without_git_options(arguments)
    return name, " ".join(word or "?" for word in arguments)


def _matches(forms: Mapping[str, re.Pattern[str]], name: str, arguments: str) -> bool:
    return name in forms and forms[name].fullmatch(arguments) is not None


def without_git_options(arguments: Words) -> Words:
    """Return git's arguments from the subcommand on, without the options before it."""
    at = 0
    while at < len(arguments) and (word := arguments[at]) is not None and word.startswith("-"):
        at += 2 if word in _GIT_OPTIONS_WITH_VALUE else 1
    return arguments[at:]


def folder_of_git(words: Words) -> str | None:
    """Return the folder in which a git command works, relative to the one in which it starts; `None` if not literal."""
    options = words[1 : len(words) - len(without_git_options(words[1:]))]
    folders = [value for option, value in pairwise(options) if option == "-C"]
    return None if None in folders else join(".", *filter(None, folders))


def changes_by_git_alone(text: CommandText) -> bool:
    """Return True if, judging by the command's words, only git changes anything."""
    is_plain = not (text.doubt or text.may_run_more or text.has_background)
    return (
        is_plain
        and not any(redirection.is_output for redirection in text.redirections)
        and any(command.program == "git" for command in text.commands)
        and all(plain_name(command.name or "") == "git" or is_on_short_list(command.words) for command in text.commands)
    )


_WITH_SUBCOMMANDS = """
git npm pnpm yarn bun npx bunx uvx pipx uv pip pip3 poetry pdm hatch conda mamba cargo rustup go docker podman kubectl
helm gh glab terraform gem bundle composer dotnet mvn gradle gradlew make just task rake systemctl brew apt apt-get dnf
apk pacman aws gcloud az flutter dart deno nix swift xcodebuild alembic django-admin flask nox tox pre-commit turbo nx
"""
_SUBCOMMANDS = frozenset(_WITH_SUBCOMMANDS.split())
_INTERPRETERS = re.compile(r"(python|pypy|node|deno|bun|ruby|perl|php|bash|sh|zsh|lua|Rscript|tsx|ts-node)[\d.]*")
# A word that is not an option and contains no character that is special in a rule
_RULE_WORD = re.compile(r"[\w./:@%+,=][\w./:@%+,=-]*")


def first_words(words: Words) -> str:
    """Return the literal first words of a command, from which a rule about similar commands can be made.

    These are the program's name and, for a program with subcommands, scripts or modules, the name of the subcommand,
    script or module. Empty if no such rule is possible.
    """
    *_, words = programs_run_by(words, loosely=False)
    plain = _plain_words(words)
    name = basename(plain[0]) if plain else ""
    if is_wrapper(name):
        return ""
    if name in _SUBCOMMANDS and any(word is None or word[:1] != "-" for word in words[1:]):
        # If an option comes first, any later word may be the subcommand, so no rule is offered.
        return " ".join(plain[: 3 if plain[1] == "run" else 2]) if len(plain) > 1 else ""
    if not _INTERPRETERS.fullmatch(name):
        return " ".join(plain[:1])
    if words[1:2] == ("-m",):
        scope = first_words(words[2:]) if _plain_words(words[2:3]) else ""
        return f"{plain[0]} -m {scope}" if scope else ""
    return " ".join(plain[:2]) if len(plain) > 1 else ""  # no rule for inline code (`-c`), which differs each time


def _plain_words(words: Words) -> list[str]:
    return [word or "" for word in takewhile(lambda word: word and _RULE_WORD.fullmatch(word), words)]


# For each program, the options with which it changes nothing, runs nothing and follows no symlinks except those in its
# arguments. `git-log` means `git log`
_HARMLESS_OPTIONS = _by_program({
    "cd pwd echo true false cat head tail cut tr stat df which basename dirname realpath base64": r".*",
    "find": r"""
        -(i?name|i?path|i?regex|type|maxdepth|mindepth|depth|size|empty|perm|user|newer\w*|[acm](time|min)|not|a|o|and
        |or|print0?|printf|prune|ls|quit)|[-+]\d.*
    """,
    "ls": r"(?!-\w*L|--deref).*",
    "grep": r"""
        -([^-dDROS][^dDROS]*)?|--|--(recursive|ignore-case|line-number|count|files-with(out)?-match(es)?|include|exclude(-dir)?
        |(after-|before-)?context|max-count|word-regexp|line-regexp|fixed-strings|extended-regexp|perl-regexp|regexp
        |only-matching|invert-match|no-messages|no-filename|with-filename|quiet|text|colou?r|null)(=.*)?
    """,
    "du wc": r"(?!-\w*L|--(deref|files0)).*",
    "rg": r"""
        -[^-zL][^zL]*|--(files|hidden|type(-not)?|i?glob|ignore-case|smart-case|fixed-strings|line-number|no-heading|count
        |files-with(out)?-match(es)?|(after-|before-)?context|max-(count|depth)|word-regexp|json|sort|multiline|no-ignore
        |only-matching|invert-match|no-messages|stats|color)(=.*)?
    """,
    "sort": r"-[bdfghiMnrRVusz]*(k[\d.,bdfgiMhnRrV]*|t.?)?|--(key|reverse|numeric-sort|unique|field-separator)(=.*)?",
    "uniq": r"-[cdiuz]+|-[fsw]\d*",
    "tree": r"-[adfiLpsugDhFCSIP\d]+|--(dirsfirst|noreport|prune|gitignore)",
    "jq": r"-[rcsnCMSjae]+|--(raw-output|compact-output|slurp|null-input|sort-keys|exit-status|arg|argjson)",
    "date": r"-[uR]|-I\w*|--(utc|iso-8601|rfc-3339|date)(=.*)?|\+.*",
    "diff": r"-[uqNwbBiysdaECUW\d]+|--(color|brief|unified|ignore-all-space|side-by-side)(=.*)?",
    "file": r"-[bihLNr0]+|--(brief|mime|mime-type|mime-encoding)",
    "git-status git-log git-diff git-show": r"""
        -\d+|-[abinpqsuvwzCGLMSUW].*|--(all|oneline|graph|decorate|stat|shortstat|numstat|dirstat|summary|short|long
        |porcelain|branch|show-stash|ignored|untracked-files|cached|staged|name-only|name-status|patch|no-patch|raw|color
        |no-color|word-diff|unified|minimal|ignore-\S+|abbrev|abbrev-commit|no-merges|merges|first-parent|reverse|follow
        |date|format|pretty|since|until|after|before|author|committer|grep|max-count|skip|topo-order|diff-filter
        |check|exit-code|quiet|no-ext-diff|no-textconv|no-renames|find-renames|merge-base)?(=.*)?
    """,
    "git-branch": r"-(a|r|v|vv)|--(all|remotes|verbose|list|show-current|no-color)",
})  # fmt: skip
# Maximum number of operands. With one more operand, the program would write a file, set the clock or create a branch
_MAX_OPERANDS = {"uniq": 1, "date": 0, "git-branch": 0}
_JQ_LOADING = re.compile(r"import|include|modulemeta").search  # how a jq program refers to other files
_SED_SHOWING_LINES = re.compile(r"-n\0(\d+(,\d+)?|\$)p(\0[^-][^\0]*)*")


def is_on_short_list(words: Words) -> bool:
    """Return True if it is certain that a simple command only reads, even without a sandbox. Its words must be literal.

    Such commands run without consent if there is no sandbox, or if combined with simple commands that rules allow.
    """
    literal = [word for word in words if word is not None]
    if not words or len(literal) < len(words):
        return False
    name, arguments = plain_name(literal[0]), literal[1:]
    if name == "sed":
        return _SED_SHOWING_LINES.fullmatch("\0".join(arguments)) is not None
    if name == "jq" and any(map(_JQ_LOADING, arguments)):
        return False
    if name == "git" and arguments:
        name, arguments = f"git-{arguments[0]}", arguments[1:]
    harmless = _HARMLESS_OPTIONS.get(name)
    options = [word for word in arguments if word.startswith(("-", "+"))]
    return (
        harmless is not None
        and all(map(harmless.fullmatch, options))
        and len(arguments) - len(options) <= _MAX_OPERANDS.get(name, 999)
    )
