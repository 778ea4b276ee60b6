"""Programs that go by several names: what is known of one holds for all that read the same command line."""

from __future__ import annotations

from tools.permissions.shell.names import names

_GNU = names(
    "awk base32 base64 basename cat chgrp chmod chown chroot cksum cp csplit cut date dd dirname du echo egrep env"
    " expand fgrep find fmt grep groups head install ln ls make md5sum mkdir mkfifo mknod mktemp mv nice nl nohup nproc"
    " numfmt od paste printenv printf pwd readlink realpath rm rmdir sed seq sha1sum sha224sum sha256sum sha384sum"
    " sha512sum shred shuf sleep sort split stat stdbuf sum tac tail tar tee time timeout touch tr truncate tsort uname"
    " unexpand uniq unlink wc whoami xargs"
)
"""What package managers of macOS and BSD install with a `g` before the name, where no other program is called so."""

_SAME: dict[str, str] = {
    **{f"g{name}": name for name in _GNU},
    "ssed": "sed",
    **dict.fromkeys(names("mawk nawk original-awk bwk"), "awk"),
    "gojq": "jq",
    "bsdtar": "tar",
    "ripgrep": "rg",
    "batcat": "bat",
    "netcat": "nc",
    "nodejs": "node",
}

RUNNERS = names(
    "npm pnpm yarn bun uv poetry pipenv pdm hatch rye conda mamba micromamba bundle mise asdf direnv devbox dotenv op"
    " aws-vault chamber doppler pipx"
)
RUN_OTHERS = names("run exec x dlx")
"""Words behind which a runner is told what to run."""

RUNNERS_ALONE = names("npx uvx bunx pnpx")
"""Programs that run another one by its name, from a project's own or any other."""


def family_of(name: str) -> str:
    """The name under which the tables know a program; any other name as it is.

    Args:
        name: Its name. One with a folder is in no table.
    """
    return _SAME.get(name, name)
