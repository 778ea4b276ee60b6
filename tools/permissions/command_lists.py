"""Which commands usually only read, which need the network, and which words of a command name what it does.

Nothing is safe because it stands here: a reader runs in a view in which it can change nothing, and one that is wrongly
listed fails in it. What is missing costs a question.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from os.path import basename

from tools.permissions.command_text import FIND_RUNS, CommandText, SimpleCommand, Words, is_wrapper, programs_behind

_READER_NAMES = """
cd : [ [[ test true false echo printf export source . sleep seq pwd type command read set shift return exit wait local
declare unset shopt break continue pushd popd dirs let ulimit umask times readonly getopts jobs
ls cat head tail less more wc grep egrep fgrep rg ag ack find fd fdfind awk gawk sed sort uniq cut tr diff cmp comm join
paste nl column tree file stat strings xxd od hexdump jq yq tac rev fold fmt expand unexpand base64 base32 md5sum cksum
sha1sum sha224sum sha256sum sha384sum sha512sum b2sum zipinfo zcat zgrep basename dirname realpath readlink tsort shuf
numfmt factor expr bat delta tokei cloc scc iconv look pr
date env printenv which whereis id uname hostname whoami nproc df du ps free uptime lscpu lsblk groups logname arch tty
locale getconf getent ldd nm objdump readelf size file man help cal curl
"""
_READERS = frozenset(_READER_NAMES.split())
# Programs that only read where these words come first
_WORDS_OF_READERS: Mapping[str, frozenset[str]] = {
    program: frozenset(words.split())
    for program, words in {
        "git": "status diff log show blame annotate rev-parse ls-files ls-tree grep describe shortlog reflog cat-file "
        "name-rev merge-base rev-list for-each-ref show-ref symbolic-ref diff-tree diff-index diff-files count-objects "
        "whatchanged range-diff check-ignore check-attr var version help cherry",
        "npm": "ls list root prefix bin",
        "pip": "list show freeze check", "pip3": "list show freeze check",
        "uv": "tree version", "cargo": "metadata tree", "go": "version env list", "rustup": "show",
        "systemctl": "status list-units", "docker": "version", "conda": "list info", "poetry": "show", "gem": "list",
    }.items()
}  # fmt: skip
# Words behind which these programs list; with any other one they change something
_LISTING: Mapping[tuple[str, str], re.Pattern[str]] = {
    ("git", name): re.compile(pattern)
    for name, pattern in {
        "branch": r"(-a|-r|-v|-vv|-l|--all|--remotes|--list|--show-current|--verbose|--(no-)?(merged|contains)\b.*"
        r"|--(sort|format|points-at|color)\b.*)( .*)?|",
        "tag": r"(-l|--list|-n\d*|--(sort|format|contains|points-at|merged|no-merged)\b.*)( .*)?|",
        "remote": r"(-v|--verbose|show|get-url)( .*)?|",
        "stash": r"(list|show)( .*)?",
        "worktree": r"list( .*)?",
        "config": r"(-l|--list|--get\S*|get|list)( .*)?|[\w.-]+|--(global|local|system) (-l|--list|--get\S*)( .*)?",
        "submodule": r"(status|summary)( .*)?|",
        "bisect": r"log|view",
        "notes": r"(list|show)( .*)?|",
        "sparse-checkout": "list",
        "lfs": r"(ls-files|status|env)( .*)?",
    }.items()
}
_ABOUT_ITSELF = frozenset(("--version", "-version", "-V", "-v", "--help"))
_NO_CHANGE: Mapping[str, Callable[[Words], bool]] = {
    "tar": lambda words: len(words) > 1 and re.fullmatch(r"-?t[a-z]*|--list", words[1] or "") is not None,
    "unzip": lambda words: len(words) > 1 and re.fullmatch(r"-[a-z]*[lpZt][a-z]*", words[1] or "") is not None,
    "sed": lambda words: not any(re.match(r"-[nErsuz]*i|--in-place", word or "-") for word in words[1:]),
    "find": lambda words: (
        not any(word in ("-delete", "-fprint", "-fls", "-fprintf", "-fprint0") for word in words)
        and all(_runs_reader(words[at + 1 :]) for at, word in enumerate(words) if word in FIND_RUNS)
    ),
    "xargs": lambda words: all(map(_runs_reader, tuple(programs_behind(words, loosely=True))[1:])),
    "curl": lambda words: _reaches_loopback_alone(words),  # noqa: PLW0108 - defined below
}
_RUNNING = ("find", "xargs")
_GLOBAL_VALUED = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")  # options of git whose value is the next word


def is_reader(command: SimpleCommand) -> bool:
    """Whether a simple command usually changes nothing."""
    return _is_reader(command.words)


def _is_reader(words: Words) -> bool:
    *_, inner = programs_behind(words, loosely=False)
    if words[:1] in (("env",), ("command",)) and (inner == words or words[1] in ("-v", "-V")):
        return True  # variables, and where programs are
    if not inner or inner[0] is None:
        return False
    name, arguments = basename(inner[0]), inner[1:]  # wherever it lies: what it is called wrongly fails in its view
    if len(arguments) == 1 and arguments[0] in _ABOUT_ITSELF:
        return True
    if not name:
        return False
    if (changes_nothing := _NO_CHANGE.get(name)) is not None:
        return changes_nothing(inner)
    if name in _READERS:
        return True
    if name == "git":
        arguments = without_git_options(arguments)
    first = arguments[0] if arguments else ""
    if first in _WORDS_OF_READERS.get(name, ()):
        return True
    listing = _LISTING.get((name, first or ""))
    return listing is not None and listing.fullmatch(" ".join(word or "?" for word in arguments[1:])) is not None


def _runs_reader(words: Words) -> bool:
    """Whether what `find` or `xargs` runs is a reader, and not one that runs further programs."""
    return basename(words[0] or "") not in ("", *_RUNNING) and _is_reader(words) if words else False


def plain_name(name: str) -> str:
    """A program's name, if it is looked up in PATH or lies in a folder of the system; else empty."""
    folder, _, base = name.rpartition("/")
    return base if folder in ("", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin") else ""


def without_git_options(arguments: Words) -> Words:
    """The arguments of git from its sub-command on."""
    at = 0
    while at < len(arguments) and (word := arguments[at]) is not None and word.startswith("-"):
        at += 2 if word in _GLOBAL_VALUED else 1
    return arguments[at:]


def changes_by_git_alone(text: CommandText) -> bool:
    """Whether nothing but git changes anything in it, by what its words say."""
    is_plain = not (
        text.doubt or text.has_arithmetic or text.has_background or any(r.is_output for r in text.redirections)
    )
    return (
        is_plain
        and any(command.program == "git" for command in text.commands)
        and all(plain_name(command.name or "") == "git" or is_on_short_list(command) for command in text.commands)
    )


_NETWORK: Mapping[str, re.Pattern[str]] = {
    program: re.compile(pattern)
    for programs, pattern in {
        "npm pnpm bun": r"(i|install|ci|add|up|update|upgrade|outdated|view|publish|audit|exec|create|dlx)\b.*",
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
        "git": r"(fetch|pull|push|clone|ls-remote)\b.*|submodule .*update\b.*|remote (update|prune)\b.*",
        "gh glab": r"(?!--version|help).*",
        "wget ssh scp sftp rsync ftp telnet ping dig nslookup": r".*",
        "apt apt-get brew dnf yum apk pacman": r".*",
        "terraform": r"(init|get)\b.*",
        "playwright": r"install\b.*",
    }.items()
    for program in programs.split()
}  # fmt: skip


def needs_network(command: SimpleCommand) -> bool:
    """Whether a simple command is known to need the network, by its literal words."""
    return any(map(_needs_network, programs_behind(command.words, loosely=True)))


def _needs_network(words: Words) -> bool:
    if not words or words[0] is None:
        return False
    name, arguments = basename(words[0]), words[1:]
    if re.fullmatch(r"python(3(\.\d+)?)?", name) and arguments[:1] == ("-m",):
        name, arguments = arguments[1] or "" if len(arguments) > 1 else "", arguments[2:]
    if name == "curl":
        return not _reaches_loopback_alone(words)
    if name == "git":
        arguments = without_git_options(arguments)
    known = _NETWORK.get(name)
    return known is not None and known.fullmatch(" ".join(word or "?" for word in arguments)) is not None


# Options of curl whose value is the next word, and no address
_WITH_VALUES = """
-o -H -d -X -u -A -e -b -c -F -T -m -w -K -E -r -C -Y -y -z --output --header --data --request --user --user-agent
--referer --cookie --cookie-jar --form --upload-file --max-time --write-out --data-raw --data-binary --json
--connect-timeout --retry --cacert --cert --key --range --data-urlencode --retry-delay
"""
_VALUED_BY_CURL = frozenset(_WITH_VALUES.split())


def _reaches_loopback_alone(words: Words) -> bool:
    """Whether each word of curl that may be an address is on the loopback; `False` where there is none."""
    addresses = [
        word
        for before, word in pairwise(words)
        if word is None or not (word.startswith("-") or before in _VALUED_BY_CURL)
    ]
    return bool(addresses) and all(word is not None and _is_loopback(word) for word in addresses)


def _is_loopback(address: str) -> bool:
    bare = re.sub(r"^\w+://", "", address).partition("/")[0].rpartition("@")[2]
    host = bare[1:].partition("]")[0] if bare.startswith("[") else bare.partition(":")[0]
    if host.lower() in ("localhost", "0.0.0.0") or host.lower().endswith(".localhost"):  # noqa: S104 - only compared
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_WITH_SUBCOMMANDS = """
git npm pnpm yarn bun npx bunx uvx pipx uv pip pip3 poetry pdm hatch conda mamba cargo rustup go docker podman kubectl
helm gh glab terraform gem bundle composer dotnet mvn gradle gradlew make just task rake systemctl brew apt apt-get dnf
apk pacman aws gcloud az flutter dart deno nix swift xcodebuild alembic django-admin flask nox tox pre-commit turbo nx
"""
_SUBCOMMANDS = frozenset(_WITH_SUBCOMMANDS.split())
_INTERPRETERS = re.compile(r"(python|pypy|node|deno|bun|ruby|perl|php|bash|sh|zsh|lua|Rscript|tsx|ts-node)[\d.]*")
_RULE_WORD = re.compile(r"[\w./:@%+,=-]+")


def first_words(words: Words) -> str:
    """The literal first words by which a rule for such commands is written; empty where there are none.

    The program; with it the sub-command, the script or the module, where that says what it does.
    """
    *_, words = programs_behind(words, loosely=False)
    if not words or words[0] is None or not _RULE_WORD.fullmatch(words[0]):
        return ""
    name, taken = basename(words[0]), 1

    def is_plain(at: int) -> bool:
        word = words[at] if at < len(words) else None
        return word is not None and not word.startswith("-") and _RULE_WORD.fullmatch(word) is not None

    if name in _SUBCOMMANDS and is_plain(1):
        taken = 3 if words[1] == "run" and is_plain(2) else 2
    elif _INTERPRETERS.fullmatch(name):
        if len(words) > 2 and words[1] == "-m" and is_plain(2):
            taken = 4 if words[2] in _SUBCOMMANDS and is_plain(3) else 3
        elif is_plain(1):
            taken = 2
        else:
            return ""  # code in an option: another one each time
    elif is_wrapper(name):
        return ""
    return " ".join(word or "" for word in words[:taken])


_SHORT_LIST = """
cd pwd echo true false ls cat head tail wc grep rg find sort uniq cut tr diff stat file du df date which basename
dirname realpath tree jq base64 git sed
"""
_NAMES_ON_SHORT_LIST = frozenset(_SHORT_LIST.split())
_REFUSED_OPTIONS = {
    "find": re.compile(r"-(exec|ok|delete|fls|fprint).*"),
    "rg": re.compile(r"--(pre|hostname-bin|search-zip).*|-[a-zA-Z]*z.*"),
    "sort": re.compile(r"-[a-zA-Z]*[oTS].*|--(output|temp|compress|files0).*"),
    "tree": re.compile(r"-[a-zA-Z]*o.*|--(output|fromfile).*"),
    "jq": re.compile(r"-[a-zA-Z]*[fL].*|--(from-file|rawfile|slurpfile|args|argfile|library).*"),
    "date": re.compile(r"-[a-zA-Z]*[sf].*|--(set|file).*"),
    "diff": re.compile(r"--(to-file|from-file).*"),
    "git": re.compile(
        r"-c.*|-O.*|--(output|ext-diff|textconv|config|exec|open|paginate|contents|git-dir|work-tree).*|-p"
    ),
    "file": re.compile(r"-[a-zA-Z]*[CmzZ].*|--(compile|magic).*"),
}
_GIT_ON_SHORT_LIST = ("status", "log", "diff", "show", "branch")
_SHOWN_LINES = re.compile(r"\d+(,\d+)?p|\$p")


def is_on_short_list(command: SimpleCommand) -> bool:
    """Whether a command of literal words only reads, without anything that holds it to that.

    It is what runs unasked where there is no sandbox, and beside a command that a rule allows.
    """
    words = command.words
    if None in words or not words:
        return False
    name, arguments = plain_name(words[0] or ""), [word or "" for word in words[1:]]
    if name not in _NAMES_ON_SHORT_LIST:
        return False
    if name == "uniq" and sum(not word.startswith("-") for word in arguments) > 1:
        return False  # the second file is written
    if name == "sed" and not (len(arguments) > 1 and arguments[0] == "-n" and _SHOWN_LINES.fullmatch(arguments[1])):
        return False
    if name == "sed" and any(word.startswith("-") for word in arguments[2:]):
        return False
    if name == "git" and (not is_reader(command) or not arguments or arguments[0] not in _GIT_ON_SHORT_LIST):
        return False
    refused = _REFUSED_OPTIONS.get(name)
    return refused is None or not any(map(refused.fullmatch, arguments))
