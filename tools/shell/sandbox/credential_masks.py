"""Finds the files that commands in the sandbox must not see: keys, passwords, browser sessions, and agents' settings.

Everything else stays readable, because toolchains may be anywhere in a home folder. `HOME_PLACES` lists the known
locations of secrets in a home folder. Small files near the top of the home folder are also searched for secrets.
Settings files that programs need are shown if they contain no secret; otherwise an empty file replaces them. When in
doubt, a settings file counts as secret.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache, lru_cache
from itertools import chain, islice

from tools.contract.tool_errors import suppress_unless_scarce
from tools.files.path_opener import SETTLED_NANOSECONDS
from tools.files.workspace import contains, is_inside, resolve_links
from tools.permissions.git_repositories import is_include, possible_paths
from tools.permissions.protected_files import AGENT_FOLDERS
from tools.shell.process_spec import SecretPlace
from tools.shell.sandbox.auto_run_guard import read_settings
from tools.text.secrets import has_secret, has_token, is_secret_name

# Files that root can read even without capabilities
_OF_ROOT = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/krb5.keytab
/etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/rancher/k3s/k3s.yaml
/etc/kubernetes /etc/ssl/private /etc/wireguard /etc/NetworkManager/system-connections
"""
SYSTEM_PATHS = _OF_ROOT.split()
INCLUDED = 64  # once git settings include at least this many files, further includes are ignored
# Limits of the search for secrets: files, size of each, total size, and how long results are cached
SEARCHED_FILES, SEARCHED_FILE_BYTES, SEARCHED_BYTES, SEARCH_SECONDS = 400, 16_384, 2_000_000, 300
_FEW = 4  # a folder with at most this many known names, and no patterns, is not listed; each name is looked up


@dataclass(frozen=True, slots=True)
class HiddenPaths:
    """Real paths of existing files and folders to hide."""

    folders: tuple[str, ...]
    files: tuple[str, ...]
    settings: tuple[str, ...] = ()  # files to replace with an empty one, because programs fail without them
    exempt: tuple[str, ...] = ()  # paths that stay visible although they are in a hidden folder
    # The user's secrets among the hidden paths, keyed by the path to mention in results
    withheld: Mapping[str, SecretPlace] = field(default_factory=dict[str, SecretPlace])

    @property
    def all(self) -> tuple[str, ...]:
        """All paths whose content is not shown."""
        return (*self.folders, *self.files, *self.settings)


def secret_places(
    home: str,
    server_paths: Iterable[str] = (),  # the server's own folders or files
    readable: Sequence[str] = (),  # paths to show completely, even if they are known locations of secrets
    roots: Sequence[str] = (),  # real paths of the writable folders
    environ: Mapping[str, str] = os.environ,
) -> HiddenPaths:
    """Return the paths to hide on this machine in its current state."""
    real_home = resolve_links(home)
    readable_paths = tuple(map(resolve_links, readable))
    # Sorting puts folders before their contents.
    known_paths = [*sorted(_known_paths(home, environ)), *((path, "") for path in SYSTEM_PATHS)]
    folders: dict[str, None] = {}
    files: dict[str, None] = {}
    settings: dict[str, None] = {}
    withheld: dict[str, tuple[str, SecretPlace]] = {}
    included_paths: list[tuple[str, str]] = []
    listed = {path for path, _ in known_paths}
    # Files in roots that do not contain the home folder belong to the workspace.
    narrow_roots = [root for root in roots if not contains(root, real_home)]
    files_found = (path for path in _files_with_secrets(home, time.monotonic() // SEARCH_SECONDS) if path not in listed)
    other_paths = (path for path in files_found if not is_inside(resolve_links(path), (*narrow_roots, *folders)))
    server_places, other_places = ((path, None) for path in server_paths), ((path, path) for path in other_paths)
    for path, place in chain(known_paths, included_paths, server_places, other_places):
        # Files that this user cannot read need not be hidden, because commands cannot read them either.
        with suppress_unless_scarce():
            if not os.access(path, os.R_OK):
                continue
            real = resolve_links(path)
            if real in withheld or contains(real, real_home) or (place is not None and is_inside(real, readable_paths)):
                continue
            entry = HOME_PLACES.get(place) or _place_of_searched_file(place, home) if place else None
            state = os.stat(real)
            # In a workspace that does not contain the home folder, the empty replacement could be mistaken for the real
            # file, and committed.
            is_in_workspace = is_inside(real, narrow_roots)
            is_of_settings = entry is not None and entry.is_settings
            if place and is_of_settings and stat.S_ISREG(state.st_mode):
                is_secret, includes = _examine_settings(real, place, state)
                if len(included_paths) < INCLUDED:
                    included_paths += (
                        (os.path.join(os.path.dirname(path), in_home(include, home)), place) for include in includes
                    )
                if not is_secret and not is_in_workspace and not is_inside(real, folders):
                    continue
            if stat.S_ISDIR(state.st_mode):
                folders[real] = None
            elif is_of_settings and not is_in_workspace:
                settings[real] = None
            else:
                files[real] = None
            if entry is not None:
                withheld[real] = (path, entry)
    return HiddenPaths(
        folders=tuple(sorted(folders)),
        files=tuple(sorted(path for path in files if is_inside(path, roots) or not is_inside(path, folders))),
        settings=tuple(settings),
        exempt=tuple(path for path in readable_paths if is_inside(path, folders) and os.path.exists(path)),
        withheld=dict(withheld.values()),
    )


def _known_paths(home: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield paths in the home folder or from environment variables that may exist, with their keys in `HOME_PLACES`."""
    yield from _possible_paths(home, _names(""))
    for variable, place in MOVED.items():
        for value in filter(os.path.isabs, environ.get(variable, "").split(os.pathsep)):
            if os.path.normpath(value) != os.path.normpath(f"{home}/{place}"):
                yield from _possible_paths(os.path.normpath(value), _names(place))


@dataclass(slots=True)
class _Names:
    """The known locations of secrets in a folder and its subfolders."""

    place: str | None = None  # the key in `HOME_PLACES` of the folder itself, if any
    # Keyed by case-folded name, because some file systems ignore case: an entry's exact name, and the known locations
    # in it.
    subnames: dict[str, tuple[str, _Names]] = field(default_factory=dict[str, "tuple[str, _Names]"])
    # Keyed by case-folded text: a name pattern, and the known locations in the entries that match it.
    patterns: dict[str, tuple[re.Pattern[str], _Names]] = field(
        default_factory=dict[str, "tuple[re.Pattern[str], _Names]"]
    )
    any_pattern: re.Pattern[str] | None = None  # all patterns combined, compiled on first use


@cache
def _names(folder_place: str) -> _Names:
    """Return the known locations in a folder that stands for `folder_place` in the home folder."""
    top = _Names(folder_place if folder_place in HOME_PLACES else None)
    prefix = f"{folder_place}/" if folder_place else ""
    for place in HOME_PLACES:
        if not place.startswith(prefix):
            continue
        names = top
        for part in place.removeprefix(prefix).split("/"):
            name = part.casefold()
            if "*" in part:
                _, names = names.patterns.setdefault(name, (re.compile(translate(name)), _Names()))
            else:
                _, names = names.subnames.setdefault(name, (part, _Names()))
        names.place = place
    return top


def _possible_paths(folder: str, names: _Names) -> Iterator[tuple[str, str]]:
    """Yield the known paths in a folder, except those that a listing of the folder rules out."""
    if names.place is not None:
        yield folder, names.place
    present: Iterable[str] = names.subnames  # a folder that cannot be listed may still allow access by name
    if names.patterns and names.any_pattern is None:
        names.any_pattern = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in names.patterns.values()))
    if len(names.subnames) > _FEW or names.patterns:
        with suppress_unless_scarce():
            present = os.listdir(folder)
    for entry in present:
        folded_name = entry.casefold()
        if (match := names.subnames.get(folded_name)) is not None:
            yield from _possible_paths(f"{folder}/{match[0]}", match[1])
        if names.any_pattern is None or names.any_pattern.match(folded_name) is None:
            continue
        for pattern, subnames in names.patterns.values():
            if pattern.match(folded_name):
                yield from _possible_paths(f"{folder}/{entry}", subnames)


@lru_cache(maxsize=4)
def _files_with_secrets(home: str, _period: float) -> tuple[str, ...]:
    """Return the small files in a home folder, its dotfolders and `.config/*` that certainly contain a secret."""

    def sorted_entries(folder: str) -> list[os.DirEntry[str]]:
        with suppress_unless_scarce(), os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
        return []

    top, settings = sorted_entries(home), sorted_entries(f"{home}/.config")
    folders = [entry.path for entry in top if entry.name[0] == "."] + [entry.path for entry in settings]
    files = (entry for entries in (top, *map(sorted_entries, folders)) for entry in entries if os.path.isfile(entry))
    paths: list[str] = []
    bytes_left = SEARCHED_BYTES
    for entry in islice(files, SEARCHED_FILES):
        with suppress_unless_scarce():
            size = entry.stat().st_size
            if not 0 < size <= min(SEARCHED_FILE_BYTES, bytes_left):
                continue
            bytes_left -= size
            content = read_settings(resolve_links(entry.path)) or b""
            if b"\0" not in content and keeps_secret(content.decode("utf-8", "replace")):
                paths.append(entry.path)
    return tuple(paths)


def _place_of_searched_file(path: str, home: str) -> SecretPlace:
    """Return the place of a file in which the search found a secret.

    The program that uses the file probably has the same name as the file or its folder.
    """
    name = os.path.relpath(path, home).removeprefix(".config/").lstrip(".").split("/")[0].split(".")[0]
    return SecretPlace(frozenset({name, name.removesuffix("rc")}), is_settings=False)


def _examine_settings(path: str, place: str, state: os.stat_result) -> tuple[bool, Sequence[str]]:
    """Return whether settings contain a secret or cannot be read, and the files that they include."""
    changed_at = max(state.st_mtime_ns, state.st_ctime_ns)
    examine = _examine_cached if time.time_ns() - changed_at > SETTLED_NANOSECONDS else _examine_cached.__wrapped__
    with suppress_unless_scarce():
        return examine(path, place, state.st_dev, state.st_ino, state.st_size, changed_at)
    return True, ()


@lru_cache(maxsize=256)
def _examine_cached(path: str, place: str, *_state: int) -> tuple[bool, Sequence[str]]:
    if (content := read_settings(path)) is None:
        return True, ()
    text = content.decode("utf-8", "replace")
    settings = possible_paths(os.fsdecode(content)) if "git" in HOME_PLACES[place].programs else ()
    return may_hold_secret(text, place), [value for name, value in settings if is_include(name)]


# Further names of secrets in settings files
_MORE = re.compile(
    r"(?<!by)(?<!com)pass$|pwd$|authorisation$|sonar\.login$|webhook(?:[-_]?url)?$|ident$|pin$|session(?:id)?$|^key$",
    re.IGNORECASE,
)
# Endings of names that say where or how a secret is stored
_ABOUT = re.compile(
    r"(?:file|path|dir|folder|provider|helper|store|backend|type|method|mode|timeout|command|process|program|url|uri"
    r"|endpoint|format|user|username|name|prefix|schemes|algorithm|host|cert|certificate|ca|sock|tty"
    r"|always[-_]?auth|signing[-_]?key|public[-_]?key|pub[-_]?key|bindkey|keychain|key[-_]?id|binding)s?$",
    re.IGNORECASE,
)
# Values that are never secret: an empty value, a keyword such as `true`, a reference to an environment variable
_HARMLESS = re.compile(
    r"(?:true|false|yes|no|on|off|null|none|bearer|basic|~|\$\{[\w.-]*\}|\$[A-Z_][A-Z0-9_]*|%\w+%)?", re.IGNORECASE
)
# User name and password in a URL, with or without a scheme, and the token in a conda URL. With HTTP, the user name may
# be the token; for git and ssh, a user name is not secret. A password may also contain `@`.
_LOGIN = re.compile(
    r"(?<=://)[^\s/\"'<>:@]*:[^\s/\"'<>]*@|(?<=http://)[^\s/\"'<>]+@|(?<=https://)[^\s/\"'<>]+@|/t/[^\s/\"']+"
    r"|(?<![\w.%+/:@-])[\w.%+-]++:[^\s/:\"'<>{}()\\][^\s/\"'<>{}()\\]{0,200}@"
)
_QUERY = re.compile(r"\?[^\s\"'#<>=]++=[^\s\"'#<>]*+")
_PRINTS = re.compile(r"\b(?:echo|printf)\b")  # commands that print their arguments
# Words that look random, unless they are names in a path
_RANDOM = re.compile(
    r"(?<![\w/.-])(?:(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{24,}|[0-9a-f]{32,})(?![\w-])", re.ASCII
)
_WORD = re.compile(r"[A-Za-z0-9_.\-]+")
# A name and its value, up to the end of the line or of the surrounding syntax
_PAIR = re.compile(
    r"(?<![\w.-])[\w.\-]++[\"']?[ \t]*+[=:][ \t]*+"
    r"(?P<value>\"[^\"\n]*+\"|'[^'\n]*+'|\$\{[\w.-]*+\}|[^\s\"',;&|)}\]<]*+)(?=[ \t]*+(?:[,;&|)}\]<\r\n]|$))"
)
_ELEMENT = re.compile(r"<([\w.:-]++)>(?P<value>[^<>]*+)</\1>")
_ESCAPE = re.compile(r"\\[uUxN][0-9A-Fa-f{]")
# The name at the beginning of a line, up to its value
_NAMED = re.compile(
    r"[ \t]*+(?>(?:-[ \t]++)*)(?:export[ \t]++)?[\"':]?(?P<name>[^\s=:\"'#;!?\[\](){}<>$`\\&|,+]++)[\"']?"
    r"(?:[ \t]*+[=:][ \t]*+|[ \t]++|$)"
)
_SECTION = re.compile(r"[ \t]*\[+([^\[\]]*)\]+[ \t]*(?:[#;].*)?")
_COMMENT = re.compile(r"[ \t]*(?:#|;(?!;)|![ \t]*\w)")
_QUOTED = re.compile(r"\"(?>(?:[^\"\\]|\\.)*)\"|'[^']*+'")
# In a script: a name, and something after it that may be its value
_MENTION = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]++)[\"']?(?:\]|\[(?P<index>[^\s\]]{0,200})\])?"
    r"(?:[^\S\n]*+(?:\+?=(?=\S)|:[^\S\n]*+)|[^\S\n]++(?>=[^\S\n]++)?)"
    r"(?=(?P<value>[\"'](?![\"'])[^\"']{0,200}|(?!\(\)|\{\s)[^\s\"';&|)}\]>][^\s\"';&|()]{0,200}))"
)
_ALIAS = re.compile(r"\b(?:alias|abbr)[ \t]++(?>(?:-\w++[ \t]++){0,4})[\w.:-]++")
_VARIABLE = re.compile(r"(?<![\w.-])[\w.-]++\+?=")
_REFERENCE = re.compile(r"\$(?:\w++|\{\w++\})")
_DEFAULT = re.compile(r"\$\{(\w++):?[-=]")
# The end of a name that clearly denotes a secret, and the word after it, which may be the secret
_KEPT = re.compile(
    r"(?P<name>(?:token|secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|auth|secret)[._-]?key)s?"
    r"(?:[\d._-][\w.-]{0,40})?)[\"']?(?:[ \t]*+(?:=>?|:)[ \t]*+|[ \t]++)[\"']?"
    r"(?P<value>[\w+/=.~:-]{20,512}+)(?![^\s\"',;}\])])",
    re.IGNORECASE | re.ASCII,
)
_ALONE = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[\w+/=~-]{20,512}", re.ASCII)  # a file that is only a token
# Values that are not random: a path, a URL, a version, or a name of several words
_SPELLED = re.compile(
    r"[/~.]|https?:|\d+[.:]\d|\S*\.[a-z]{2,5}$|(?:[A-Z0-9]{1,14}_)+[A-Z0-9]{1,14}$"
    r"|(?!(?:[0-9a-f]+-){4}[0-9a-f]{12}$)(?:[a-z0-9]{1,14}[._-])+[a-z0-9]{1,14}$"
)
_LEAST_BITS = 3.3  # minimum entropy of random text, in bits per character
_BLANKS = "\ufeff \t\r\n"
_LONGEST_LINE = 8 * 1024  # nobody writes longer lines, and checking them takes a long time


def may_hold_secret(text: str, place: str) -> bool:
    """Return True if the text of a settings file may contain a secret. `place` is the file's key in `HOME_PLACES`."""
    if "\0" in text or "\ufffd" in text or "PRIVATE KEY-----" in text:
        return True
    if any(len(line) > _LONGEST_LINE for line in text.split("\n")):
        return True
    if text.lstrip(_BLANKS)[:1] in ("<", "{") or place.endswith(".json"):
        return "<!DOCTYPE" in text.upper() or _contains_secret(text)
    if place not in SCRIPTS:
        return _any_line_contains_secret(text, place)
    commands = _REFERENCE.sub("", _DEFAULT.sub(r"\1=", _ALIAS.sub("", text.replace("\\\n", ""))))
    return (
        any(
            any(map(_is_inner_secret, filter(None, match.group("name", "index")))) and not _is_harmless(match["value"])
            for match in _MENTION.finditer(commands)
        )
        or _without_logins(text) != text
        or has_secret(_VARIABLE.sub("", commands))
    )


def in_home(path: str, home: str) -> str:
    """Replace a `~` at the beginning of a path in git's settings with the home folder."""
    return home + path[1:] if path.startswith("~/") else path


def keeps_secret(text: str) -> bool:
    """Return True if the text of an unknown file certainly contains a secret. Weak signs do not count."""
    alone = text.strip()
    may_keep = any(word in text.lower() for word in ("token", "secret", "pass", "key", "credential"))
    matches = (match for match in (_KEPT.finditer(text) if may_keep else ()) if not _ABOUT.search(match["name"]))
    return (
        has_token(text)
        or (_ALONE.fullmatch(alone) is not None and _is_random(alone))
        or any(_is_random(match["value"]) for match in matches)
    )


def _is_random(value: str) -> bool:
    counts = Counter(value).values()
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    is_mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return is_mixed and bits >= _LEAST_BITS and _SPELLED.match(value) is None


def _is_secret(name: str) -> bool:
    return bool(_MORE.search(name)) or (is_secret_name(name) and not _ABOUT.search(name))


def _is_inner_secret(name: str) -> bool:
    """Return True if a name in a value or in a script denotes a secret. There, `key` is an ordinary word."""
    return name.lower() != "key" and _is_secret(name)


def _is_harmless(value: str) -> bool:
    """Return True if a value is not secret although its name suggests a secret."""
    value = value.strip(" \t\r\n\"'")
    if _HARMLESS.fullmatch(value) or value.startswith(("~/", "$HOME/", "${HOME}/")):
        return True
    return value.startswith("/") and os.path.exists(value)


def _without_logins(text: str) -> str:
    """Remove user names and passwords from URLs, and queries that contain the name of a secret."""
    return _QUERY.sub(
        lambda match: "" if any(map(_is_secret, _WORD.findall(match[0]))) else match[0], _LOGIN.sub("", text)
    )


def _contains_secret(text: str) -> bool:
    """Return True if `text` contains a name with a secret value, or a secret recognisable by its form."""
    remaining = text
    for pattern in (_ELEMENT, _PAIR):
        remaining = pattern.sub(lambda match: " " if _is_harmless(match["value"]) else match[0], remaining)
    words = _WORD.findall(remaining)
    return (
        has_secret(remaining)
        or _without_logins(remaining) != remaining
        or _ESCAPE.search(remaining) is not None
        or _RANDOM.search(remaining) is not None
        or any(map(_is_inner_secret, words))
    )


def _any_line_contains_secret(text: str, place: str) -> bool:
    """Return True if any line with a name and a value, or any comment, contains a secret."""
    plain = PLAIN_NAMES.get(place)
    is_alias = is_secret_section = False
    for line in text.split("\n"):
        content = line.strip()
        if not content:
            continue
        if _COMMENT.match(line):
            if _contains_secret(line):
                return True
            continue
        if _without_logins(line) != line:
            return True
        if (head := _SECTION.fullmatch(line.rstrip("\r"))) is not None:
            is_alias = head[1].strip().lower() == "alias"  # aliases may have any name
            is_secret_section = any(map(_is_secret, _WORD.findall(head[1])))
            continue
        match = _NAMED.match(line)
        name, value = (match["name"], line[match.end() :]) if match is not None else ("", line)
        if plain is not None:
            if content != "---" and re.fullmatch(plain, name.lstrip("-"), re.IGNORECASE) is None:
                return True
            continue
        # Whether the value certainly ends with its line, or continues only on lines with more indentation.
        whole = line.rstrip("\r")
        outside = _QUOTED.sub("", whole)
        is_ended = not (
            whole.endswith("\\")
            or any(mark in whole for mark in ("<<", '"""', "'''"))
            or any(mark in outside for mark in "\"'`")
            or any(outside.count(opening) != outside.count(closing) for opening, closing in ("()", "[]", "{}"))
        )
        # A value is secret if its name or its section is that of a secret, unless the name says where the secret is
        # stored.
        is_named = _is_secret(name) or (is_secret_section and not _ABOUT.search(name))
        if (
            (is_named and not is_alias and not (value.strip() and _is_harmless(value) and is_ended))
            or (not is_ended and any(map(_is_inner_secret, _WORD.findall(value))))
            or (is_secret_name(name) and _PRINTS.search(value) is not None)
            or _contains_secret(value)
        ):
            return True
    return False


# The locations of secrets in a home folder, which the sandbox hides or shows only in part. Each entry lists programs by
# command name and, after a colon, places: paths of secrets relative to the home folder. The programs fail to log in
# without these places. If an entry lists no programs, no command needs its places. `*` matches any characters within
# one path component. A place is a file, or a folder with all its contents.
_STORES = """
ssh, scp, sftp, rsync, git, ansible: .ssh, .putty
git: .git-credentials, .config/git/credentials, .cache/git/credential, .config/git-credential-manager, .gcm
gh: .config/gh, .config/hub, .config/github-copilot, .copilot
glab, tea, jira, bb: .config/glab-cli, .config/tea, .config/lab.toml, .jira.d, .config/.jira, .config/bitbucket*,
    .gist
curl, git, wget, pip, heroku, http, bq: .netrc, _netrc, .netrc.gpg, .authinfo, .authinfo.gpg, .config/heroku
gpg, git, pass, sops: .gnupg, .config/sops, .config/age, .age, .password-store, .pass, .local/share/gopass,
    .config/gopass
op, bw, rbw, lpass, keepassxc-cli: .config/op, .op, .config/1Password, .1password, .config/Bitwarden*, .config/rbw,
    .local/share/rbw, .lpass, .local/share/lpass, .config/lpass, .config/KeePass, .config/keepassxc, .cache/keepassxc,
    .config/Enpass, .config/Dashlane
: .local/share/keyrings, .local/share/kwalletd, .gnome2/keyrings, .local/share/python_keyring, .config/Proton*,
    .config/goa-1.0, .pki, .private_keys, .appstoreconnect, .fastlane, .local/share/mkcert/rootCA-key.pem, .acme.sh,
    .step/secrets, .ejson, .secrets
tsh, kinit, vault, bao: .tsh, .vault-token, .vault, .krb5cc*, .config/teleport, .safe, .saferc
ansible, ansible-vault, ansible-playbook, ansible-galaxy: .vault_pass*, .vault-pass*, .ansible_vault*, .ansible/vault*
ansible, ansible-galaxy: .ansible/galaxy_token
knife, puppet, salt: .chef, .puppetlabs/etc/puppet/ssl, .saltrc

aws, sam, cdk, terraform, tofu, eksctl: .aws, .aws-vault, .awsvault, .saml2aws, .aws-sso, .okta*, .boto,
    .elasticbeanstalk
az, func, azd: .azure, .azd/auth, .IdentityService, .local/share/.IdentityService
gcloud, gsutil, bq, firebase: .config/gcloud, .gsutil, .config/configstore, .config/firebase, .bigqueryrc
oci, aliyun, ibmcloud, tccli, cf, qcloud: .oci, .aliyun, .bluemix, .ibmcloud, .tccli, .cf, .qcloudcli, .hwcloud,
    .config/yandex-cloud
doctl, hcloud, linode-cli, scw, vultr, exo, civo: .config/doctl, .config/hcloud, .hcloud, .config/linode-cli,
    .linode-cli, .config/scw, .vultr-cli.yaml, .config/exoscale, .cloudstack.ini, .civo.json
openstack, ovh, upctl: .config/openstack, .openrc, .ovh.conf, .config/upctl.yaml, .config/upcloud
fly, flyctl, netlify, vercel, heroku, railway, render: .fly, .netlify, .config/netlify, .vercel, .now,
    .local/share/com.vercel.cli, .railway/config.json, .render, .config/com.vercel.cli, .config/vercel, .surge
wrangler, cloudflared, ngrok, tailscale: .wrangler, .config/.wrangler, .cloudflared, .cloudflare, .config/ngrok,
    .ngrok*, .config/tailscale
stripe, supabase, pscale, turso, neonctl, atlas: .config/stripe, .supabase/access-token, .config/supabase,
    .config/planetscale, .config/turso, .config/neonctl, .config/atlascli, .config/mongocli, .config/convex, .convex
twilio, sendgrid, shopify, twurl: .twilio-cli, .sendgrid, .config/shopify*, .shopify, .twurlrc, .trc, .plaid-cli,
    .config/segment
terraform, tofu, pulumi, packer, nomad, consul: .terraform.d, .tofu.d, .pulumi/credentials.json, .packer.d, .nomad,
    .consul, .config/infracost, .infracost
kubectl, helm, k9s, argocd, oc, flux: .kube, .config/helm/registry, .config/argocd, .argocd, .minikube, .rancher,
    .k3d, .config/k3d
docker, podman, buildah, skopeo, crane: .docker, .dockercfg, .config/containers, .lima, .colima, .rd, .vagrant.d
rclone, s3cmd, mc, b2, restic, borg: .config/rclone, .rclone.conf, .s3cfg, .s4cfg, .mc, .mcli, .b2_account_info,
    .config/b2, .passwd-s3fs, .config/borg, .config/restic, .restic*, .s3ql, .duplicity, .config/duplicity
: .dropbox, .config/Nextcloud, .config/ownCloud, .config/onedrive, .config/syncthing, .local/state/syncthing,
    .local/share/syncthing, .config/maestral, .megaCmd, .config/insync, .ipfs/config, .ipfs/keystore, .tor,
    .config/Yandex

databricks, snow, snowsql, dbt: .databrickscfg, .databricks, .snowflake, .config/snowflake, .snowsql, .bigquery*
sentry-cli, jf, circleci, travis, bk, datadog-ci: .sentryclirc, .jfrog, .config/jfrog, .circleci, .travis,
    .config/buildkite*, .bk.yaml, .dogrc, .config/datadog, .newrelic, .config/snyk, .snyk, .sonar, .codecov*,
    .launchdarkly
doppler, infisical, akeyless, phase: .doppler, .infisical, .akeyless, .phase, .config/doppler, .keybase,
    .config/keybase
kaggle, wandb, modal, runpodctl, vastai: .kaggle, .config/kaggle, .config/wandb, .modal.toml, .runpod, .vast_api_key,
    .config/vastai, .clearml.conf, .comet.config, .neptune, .mlflow/credentials, .paperspace, .lightning, .polyaxon
huggingface-cli, hf: .huggingface, .cache/huggingface/token, .cache/huggingface/stored_tokens, .config/huggingface,
    .replicate
: .openai, .config/openai, .anthropic, .config/anthropic, .config/io.datasette.llm, .config/mods, .config/shell_gpt,
    .config/fabric, .claude.json, .claude.json.backup*, .config/claude, .config/Claude*, .config/Cursor,
    .config/opencode, .local/share/opencode, .aider, .aider.conf.yml, .config/goose, .config/amp, .local/share/amp,
    .config/crush, .local/share/crush, .crush, .factory, .codeium, .tabnine, .config/TabNine, .supermaven,
    .config/Windsurf, .cody, .config/cody, .groq, .cohere, .mistral, .grok, .ollama/id_ed25519,
    .config/zed/credentials*, .config/Code/User/globalStorage, .config/VSCodium/User/globalStorage, .jupyter,
    .local/share/jupyter/runtime, .config/rstudio, .wakatime.cfg, .local/share/code-server, .config/code-server

twine, poetry, hatch, flit, uv, pip: .pypirc, .config/pypoetry/auth.toml, .local/share/uv/credentials,
    .config/hatch/auth*
conda, anaconda: .conda/*token*, .continuum, .config/binstar, .local/share/binstar, .config/anaconda*,
    .local/share/conda-anaconda*
npm, vsce, ovsx, bower, verdaccio: .vsce, .ovsx, .config/verdaccio, .config/jspm
cargo: .cargo/credentials, .cargo/credentials.toml
gem, bundle: .gem/credentials, .local/share/gem/credentials
mvn, gradle, sbt, lein: .m2/settings-security.xml, .ivy2/.credentials, .sbt/.credentials, .sbt/*/.credentials,
    .sbt/*/sonatype.sbt, .lein/credentials*, .lein/profiles.clj, .config/coursier/credentials.properties,
    .mill/credentials
composer: .composer/auth.json, .config/composer/auth.json
mix, dart, flutter: .hex/hex.config, .config/hex, .pub-cache/credentials.json, .config/dart/pub-*.json,
    .config/flutter
conan, julia, luarocks, cpan-upload: .conan/.conan.db, .conan2/credentials.json, .julia/servers,
    .luarocks/upload_config.lua, .pause
osc, koji, copr, snapcraft, dput: .oscrc, .config/osc, .config/copr, .koji, .fedora*.cert, .config/snapcraft,
    .local/share/snapcraft, .config/flathub, .config/launchpadlib, .launchpadlib, .debusine*, .abuild
svn: .subversion/auth
adb: .android/adbkey

psql, pg_dump, mysql, mariadb: .pgpass, .my.cnf, .mylogin.cnf, .config/pgcli, .config/mycli, .config/usql, .usqlpass
mongosh, redis-cli, cqlsh, influx, clickhouse-client, cockroach: .mongodb, .mongorc.js, .redisclirc, .cassandra,
    .influxdbv2, .clickhouse-client*, .cockroach-certs, .config/litecli, .sqlmap
: .dbeaver*, .local/share/DBeaverData, .config/JetBrains/*/c.kdbx, .config/JetBrains/*/options/security.xml,
    .mysql/workbench, .config/MongoDB*, .config/Postman, .postman, .config/Insomnia, .config/Hoppscotch, .httpie,
    .config/httpie, .bruno

: .smbcredentials, .smbpasswd, .smb, .davfs2/secrets, .vnc, .config/tigervnc, .x2go*, .config/freerdp,
    .config/remmina, .local/share/remmina, .config/rustdesk, .anydesk, .config/teamviewer, .config/filezilla,
    .filezilla, .lftprc, .lftp, .local/share/lftp, .ncftp, .config/wireguard, .config/openvpn*, .openvpn*,
    .config/nordvpn, .config/mullvad*, .config/protonvpn, .cisco, .vpn*, .Xauthority, .ICEauthority, .serverauth*,
    .config/pulse/cookie, .pulse-cookie, .xsession-errors*, .local/share/networkmanagement

: .mozilla, .librewolf, .zen, .waterfox, .floorp, .tor-browser*, .local/share/torbrowser, .config/google-chrome*,
    .config/chromium*, .config/BraveSoftware, .config/microsoft-edge*, .config/vivaldi*, .config/opera*,
    .config/falkon, .local/share/epiphany, .config/qutebrowser, .local/share/qutebrowser, .config/net.imput.helium,
    .config/Arc, .w3m, .links, .elinks, .thunderbird, .config/evolution, .local/share/evolution, .local/share/geary,
    .config/geary, .claws-mail, .config/Mailspring, .config/Signal*, .local/share/signal-cli, .config/Slack,
    .config/slack*, .config/discord*, .local/share/TelegramDesktop, .purple, .config/Element*, .config/teams*,
    .config/Microsoft*, .config/Mattermost, .config/Rocket.Chat, .config/zoom*, .zoom, .weechat, .config/weechat,
    .local/share/weechat, .irssi, .config/hexchat, .config/skype*, .config/WhatsApp*, .config/Zulip, .config/gajim,
    .local/share/gajim, .config/senpai, .config/iamb, .config/matrix*, .config/spotify*, .config/todoist,
    .config/linear, .config/Notion*, snap/firefox, snap/chromium, snap/brave, snap/opera, snap/thunderbird,
    snap/slack, snap/discord, snap/signal-desktop, snap/telegram-desktop, snap/bitwarden, snap/bw, snap/1password,
    snap/keepassxc, snap/postman, snap/insomnia, .var/app, .steam/registry.vdf, .local/share/Steam/config
msmtp, mbsync, offlineimap, mutt, neomutt, git: .msmtprc, .config/msmtp, .mbsyncrc, .config/isyncrc, .offlineimaprc,
    .config/offlineimap, .fetchmailrc, .getmail, .config/getmail, .muttrc, .mutt, .config/mutt, .config/neomutt,
    .neomuttrc, .config/aerc, .config/himalaya, .mailrc

: .bitcoin, .ethereum, .local/share/io.parity.ethereum, .electrum*, .monero, .bitmonero, .shared-ringdb, Monero,
    .litecoin, .dogecoin, .dashcore, .zcash*, .config/solana, .config/Exodus, .exodus, .config/Ledger*,
    .config/@trezor, .config/atomic, .near-credentials, .foundry/keystores, .brownie/accounts, .sparrow,
    .walletwasabi, .armory, .lnd, .aptos, .sui/sui_config, .starknet_accounts, .stellar*, .local/share/polkadot*,
    .cardano*, .config/Daedalus*, .config/MyCrypto, .metamask*, .geth

: .*_history, .history, .histfile, .zhistory, .*_history-*, .*history.sqlite, .zsh_sessions, .bash_sessions,
    .Rhistory, .*_hist, .pdbhistory, .lesshst, .viminfo*, .local/state/lesshst, .local/share/fish/fish_history,
    .local/share/nushell/history*, .config/nushell/history*, .local/state/*history*, .local/state/bash/*history*,
    .local/state/zsh/*history*, .local/state/python/*history*, .local/state/psql/*history*,
    .local/state/sqlite/*history*, .local/state/node/*history*, .local/state/mysql/*history*,
    .local/state/less/*history*, .local/state/nvim/shada, .local/share/nvim/shada, .local/share/atuin,
    .local/share/powershell/PSReadLine, .local/share/mcfly, .local/share/xonsh/*history*, .ipython/*/history.sqlite,
    .wget-hsts, .cache/cliphist, .local/share/*_history, .zdot/.*history, .config/zsh/.*history, .cache/zsh,
    .config/bash/*history, .cache/*history*, .cache/clipboard*, .clipman.json, .local/share/klipper, .config/copyq,
    .local/share/copyq, .cache/gpaste, .local/share/gpaste
"""

_SETTINGS = """
npm, npx, pnpm, yarn, bun, bunx: .npmrc, .config/pnpm/rc, .config/npm/npmrc, .bunfig.toml
yarn: .yarnrc, .yarnrc.yml
mvn, mvnw: .m2/settings.xml
gradle, gradlew: .gradle/gradle.properties, .gradle/init.gradle, .gradle/init.d/*.gradle, .gradle/init.d/*.kts
pip, pip3, pipx, python, python3: .config/pip/pip.conf, .pip/pip.conf, .pydistutils.cfg
uv, poetry, pdm, hatch: .config/uv/uv.toml, .config/pypoetry/config.toml, .config/pdm/config.toml,
    .config/hatch/config.toml
git: .gitconfig, .config/git/config, .gitconfig-*, .gitconfig.local, .config/git/config-*
hg: .hgrc, .config/hg/hgrc
svn: .subversion/servers
cargo: .cargo/config.toml, .cargo/config
composer: .composer/config.json, .config/composer/config.json
nuget, dotnet: .nuget/NuGet/NuGet.Config, .config/NuGet/NuGet.Config, .nuget/config/*.config
gem, bundle, bundler: .bundle/config, .gemrc
cabal, stack, lein, sbt: .cabal/config, .config/cabal/config, .stack/config.yaml, .sbt/repositories
conda, mamba, anaconda: .condarc, .conda/.condarc, .conda/condarc, .config/conda/.condarc, .mambarc
conan: .conan2/remotes.json, .conan/remotes.json
curl, wget, http: .curlrc, .config/curlrc, .wgetrc, .config/wget/wgetrc, .aria2/aria2.conf, .config/aria2/aria2.conf
terraform, tofu: .terraformrc, .tofurc
helm: .config/helm/repositories.yaml
aws, sam, cdk, terraform: .aws/config
dbt: .dbt/profiles.yml
psql, isql: .pg_service.conf, .odbc.ini, .psqlrc
ansible, ansible-playbook: .ansible.cfg
dput, debsign: .dput.cf, .devscripts
gitlab: .python-gitlab.cfg
: .pam_environment, .config/environment.d/*.conf, .env, .env.*, .Renviron, .config/mise/config.toml,
    .config/systemd/user/*.service, .config/systemd/user/*.service.d/*.conf, .config/systemd/user.conf
"""

_SCRIPTS = """
.bashrc .bash_profile .bash_login .bash_aliases .bash_logout .bashrc.d/* .profile
.zshrc .zshenv .zprofile .zlogin .zlogout .config/zsh/.z* .config/zsh/*.zsh .oh-my-zsh/custom/*.zsh
.kshrc .mkshrc .cshrc .tcshrc .login .logout .exports .config/fish/config.fish .config/fish/fish_variables
.config/fish/conf.d/*.fish .config/fish/functions/*.fish .config/nushell/*.nu .envrc .config/direnv/direnvrc
.xprofile .xinitrc .xserverrc .xsession .xsessionrc .config/plasma-workspace/env/*.sh
"""
# Scripts that shells and sessions run on startup. They are shown if they contain no secret.
SCRIPTS = frozenset(_SCRIPTS.split())
_MOVED = """
XDG_CONFIG_HOME=.config XDG_DATA_HOME=.local/share XDG_STATE_HOME=.local/state XDG_CACHE_HOME=.cache GNUPGHOME=.gnupg
CARGO_HOME=.cargo GRADLE_USER_HOME=.gradle NPM_CONFIG_USERCONFIG=.npmrc npm_config_userconfig=.npmrc
PIP_CONFIG_FILE=.pip/pip.conf AWS_SHARED_CREDENTIALS_FILE=.aws AWS_CONFIG_FILE=.aws/config KUBECONFIG=.kube
DOCKER_CONFIG=.docker REGISTRY_AUTH_FILE=.dockercfg NETRC=.netrc PGPASSFILE=.pgpass PGSERVICEFILE=.pg_service.conf
GH_CONFIG_DIR=.config/gh GLAB_CONFIG_DIR=.config/glab-cli GIT_CONFIG_GLOBAL=.gitconfig AZURE_CONFIG_DIR=.azure
CLOUDSDK_CONFIG=.config/gcloud GOOGLE_APPLICATION_CREDENTIALS=.config/gcloud BOTO_CONFIG=.boto OCI_CLI_CONFIG_FILE=.oci
PASSWORD_STORE_DIR=.password-store SOPS_AGE_KEY_FILE=.config/sops VAULT_TOKEN_PATH=.vault-token
ANSIBLE_VAULT_PASSWORD_FILE=.vault_pass* RCLONE_CONFIG=.rclone.conf CURL_HOME= ZDOTDIR= WGETRC=.wgetrc CONDARC=.condarc
COMPOSER_HOME=.composer BUNDLE_USER_CONFIG=.bundle/config HEX_HOME=.hex TF_CLI_CONFIG_FILE=.terraformrc
CODEX_HOME=.codex CLAUDE_CONFIG_DIR=.claude HF_HOME=.cache/huggingface HF_TOKEN_PATH=.cache/huggingface/token
KAGGLE_CONFIG_DIR=.kaggle JUPYTER_CONFIG_DIR=.jupyter XAUTHORITY=.Xauthority HISTFILE=.*_history DOTNET_CLI_HOME=
MYSQL_HISTFILE=.*_history PSQL_HISTORY=.*_history
"""
_PLAIN_FOR_CURL = (
    "proxy|noproxy|cacert|capath|insecure|location|silent|show-error|retry|retry-delay|connect-timeout|max-time"
    "|user-agent|compressed|ipv4|ipv6|fail|progress-bar|k|L|s|S|A|x"
)
_PLAIN_FOR_WGET = (
    "timeout|tries|waitretry|wait|https?_proxy|ftp_proxy|no_proxy|use_proxy|check_certificate|ca_certificate"
    "|user_?agent|progress|robots|continue|timestamping|dirstruct|adjust_extension|follow_ftp"
)
# Keyed by the place of a settings file: a pattern for the names of values that are not secret. Any other value may be a
# secret.
PLAIN_NAMES: Mapping[str, str] = {
    **dict.fromkeys((".curlrc", ".config/curlrc"), _PLAIN_FOR_CURL),
    **dict.fromkeys((".wgetrc", ".config/wget/wgetrc"), _PLAIN_FOR_WGET),
    ".bundle/config": (
        "BUNDLE_(?:JOBS|PATH|RETRY|TIMEOUT|WITH|WITHOUT|FROZEN|DEPLOYMENT|BIN|GEMFILE|CACHE_.*|CLEAN|SILENCE_.*"
        "|BUILD__.*|LOCAL__.*|MIRROR__.*|FORCE_RUBY_PLATFORM|IGNORE_.*|PREFER_PATCH|SSL_CA_CERT|SSL_VERIFY_MODE)"
    ),
}
# Keyed by environment variable: a key of `HOME_PLACES`, or a folder with several of them, whose rules also apply to the
# path in the variable. The variable may contain several paths, separated by colons. An empty string stands for the home
# folder itself.
MOVED: Mapping[str, str] = dict(re.findall(r"(\S+)=(\S*)", _MOVED))
# All known locations of secrets in a home folder, keyed by their path in it
HOME_PLACES: Mapping[str, SecretPlace] = {
    **dict.fromkeys(AGENT_FOLDERS, SecretPlace(frozenset(), is_settings=False)),
    **dict.fromkeys(SCRIPTS, SecretPlace(frozenset(), is_settings=True)),
    **{
        place: SecretPlace(frozenset(filter(None, programs.split(", "))), is_settings)
        for text, is_settings in ((_STORES, False), (_SETTINGS, True))
        for programs, _, places in (line.partition(":") for line in text.replace(",\n    ", ", ").splitlines())
        for place in filter(None, places.strip().split(", "))
    },
}
