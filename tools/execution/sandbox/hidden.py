"""What commands in the sandbox do not get to see: keys, passwords, sessions of browsers, settings of agents.

Everything else stays readable, since toolchains lie anywhere in a home. The lists name what is known; a secret in a
place of its own is not found by them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from tools.permissions.steering_files import AGENT_FOLDERS
from tools.secrets import has_secret_setting

HOME_FOLDERS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".oci", ".aliyun", ".terraform.d", ".password-store"),
    *(
        ".config/gcloud",
        ".config/doctl",
        ".config/hcloud",
        ".config/gh",
        ".config/glab-cli",
        ".config/hub",
        ".config/rclone",
    ),
    *(
        ".config/op",
        ".config/1Password",
        ".1password",
        ".config/Bitwarden",
        ".config/Bitwarden CLI",
        ".config/containers",
    ),
    *(".config/sops", ".config/age", ".config/github-copilot", ".config/heroku", ".config/netlify", ".config/stripe"),
    *(".local/share/keyrings", ".local/share/kwalletd", ".pki", ".putty", ".fly", ".config/configstore", ".sqlmap"),
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(
        ".config/microsoft-edge",
        ".config/vivaldi",
        ".config/opera",
        ".zen",
        ".librewolf",
        "snap/firefox",
        "snap/chromium",
    ),
    *(".var/app", ".config/Signal", ".config/Slack", ".config/discord", ".local/share/TelegramDesktop"),
    *(*sorted(AGENT_FOLDERS), ".config/opencode", ".aider"),
    *(".lima", ".colima", ".rd", ".minikube", ".vagrant.d"),
)
HOME_FILES = (
    *(
        ".netrc",
        "_netrc",
        ".git-credentials",
        ".config/git/credentials",
        ".pgpass",
        ".my.cnf",
        ".mylogin.cnf",
        ".s3cfg",
        ".boto",
    ),
    *(".pypirc", ".vault-token", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".claude.json"),
    *(
        ".dockercfg",
        ".databrickscfg",
        ".snowsql/config",
        ".huggingface/token",
        ".cache/huggingface/token",
        ".ICEauthority",
    ),
    *(
        ".Xauthority",
        ".bash_history",
        ".zsh_history",
        ".history",
        ".python_history",
        ".node_repl_history",
        ".psql_history",
    ),
    *(".mysql_history", ".sqlite_history", ".local/share/fish/fish_history", ".lesshst", ".viminfo", ".wget-hsts"),
)
HOME_FILES_TO_READ = (
    *(".npmrc", ".yarnrc", ".yarnrc.yml", ".config/pip/pip.conf", ".pip/pip.conf", ".m2/settings.xml"),
    *(".gradle/gradle.properties", ".config/composer/auth.json", ".composer/auth.json", ".nuget/NuGet/NuGet.Config"),
    *(".cargo/config.toml", ".condarc", ".curlrc", ".wgetrc", ".envrc", ".env"),
)
"""Settings that builds need, hidden only if a secret stands in them."""

SYSTEM_FILES = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/krb5.keytab"),
    *(
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/ssh_host_ecdsa_key",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/rancher/k3s/k3s.yaml",
    ),
)
"""What root can read even without its rights."""

SYSTEM_FOLDERS = (
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/etc/kubernetes",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
)

READ_BYTES = 64 * 1024
"""How much of a settings file is looked through."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Real paths of what is there and has to be hidden."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


def secret_places(home: str, more: Iterable[str] = ()) -> Hidden:
    """What has to be hidden on this machine now.

    Args:
        home: The home folder, an absolute path.
        more: Folders or files of the server itself.
    """
    at_home = _there(home, (*HOME_FOLDERS, *HOME_FILES))
    to_read = _there(home, HOME_FILES_TO_READ)
    named = (*at_home, *(path for path in to_read if _holds_secret(path)), *SYSTEM_FILES, *SYSTEM_FOLDERS, *more)
    folders: set[str] = set()
    files: set[str] = set()
    for path in named:
        # What this user cannot read, no command can.
        with suppress(OSError):
            if not os.access(path, os.R_OK):
                continue
            (folders if os.path.isdir(path) else files).add(os.path.realpath(path))
    return Hidden(tuple(sorted(folders)), tuple(sorted(files)))


def _there(folder: str, names: tuple[str, ...]) -> Iterator[str]:
    """The paths of names that can be there: one look at a folder tells of most that they are not."""
    groups = _grouped(names)
    try:
        present: Iterable[str] = os.listdir(folder)
    except OSError:
        present = groups  # what cannot be listed may be reached by name all the same
    for entry in present:
        for first, rests in groups.get(entry.casefold(), ()):
            path = f"{folder}/{first}"
            below = tuple(filter(None, rests))
            if len(below) < len(rests):
                yield path
            if below:
                yield from _there(path, below)


@cache
def _grouped(names: tuple[str, ...]) -> dict[str, list[tuple[str, list[str]]]]:
    """Names by their first folder, whose case is folded, since there are file systems where it makes no difference."""
    rests: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition("/")
        rests.setdefault(first, []).append(rest)
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for first, those in rests.items():
        groups.setdefault(first.casefold(), []).append((first, those))
    return groups


def _holds_secret(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        text = os.read(descriptor, READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return has_secret_setting(text)
