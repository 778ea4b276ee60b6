"""Secrets in a home folder: no command in the sandbox reads one, and programs still find their settings."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import string
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.background_servers import served_by_thread
from tests.fork_server import forked
from tests.harness import HANDSHAKE, server_arguments, speaking
from tests.hostile.sandboxed import CommandResult, run, sandbox_for
from tests.hostile.secret_files import MIXED, PURE, odd_forms
from tests.tables import each_of
from tools.contract.tool_errors import ExhaustedError
from tools.permissions.git_history_names import GitStores, store_of, stores_of_submodules
from tools.permissions.git_repositories import paths_named_by_settings, possible_paths
from tools.permissions.protected_files import GuardedPaths
from tools.shell.command_environment import command_environment
from tools.shell.sandbox.auto_run_guard import READ_BYTES
from tools.shell.sandbox.bubblewrap import BubblewrapConfinement
from tools.shell.sandbox.credential_masks import (
    HOME_PLACES,
    MOVED,
    SEARCHED_FILE_BYTES,
    keeps_secret,
    may_hold_secret,
    secret_places,
)
from tools.shell.sandbox.reading_view import settings_of_git
from tools.shell.sandbox.visible_file_system import Site

pytestmark = pytest.mark.anyio

if sys.platform != "linux":
    pytest.skip("not run: bubblewrap is Linux only", allow_module_level=True)

SECRET = "hush-"
"""Every secret of these tests begins with this ordinary word."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "home"
    folder.mkdir()
    return folder


def put(home: Path, name: str, content: str | bytes) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def put_all(home: Path) -> dict[Path, bytes]:
    """Put all files with secrets into a home; return the content of each."""
    for number, name in enumerate(PURE):
        put(home, name, f"{SECRET}{number}-word\n")
    for name, content in MIXED.items():
        put(home, name, with_secrets(name, content))
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def with_secrets(name: str, content: str) -> str:
    return content.replace("CANARY", f"{SECRET}{name.strip('.').replace('/', '-').lower()}-word")


@asynccontextmanager
async def sandbox(home: Path, readable: Sequence[str] = ()) -> AsyncGenerator[BubblewrapConfinement]:
    site = Site(home=str(home), readable=tuple(readable))
    sandbox = await sandbox_for(site)
    try:
        yield sandbox
    finally:
        sandbox.close()


async def run_in_sandbox(home: Path, command: str, *roots: Path, readable: Sequence[str] = ()) -> CommandResult:
    async with sandbox(home, readable) as confinement:
        return await run(confinement, command, [str(root) for root in roots], environment_of(home))


def environment_of(home: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "npm_", "NPM_"))}
    return command_environment({"HOME": str(home)}, environment)


READ_EVERYTHING = 'cd; grep -rs --binary-files=text "" . ; find -L . -type f -exec cat {} + 2>&1'
"""A command that prints all readable files of the home, and begins each line with the file's name."""


@pytest.mark.requirement("sandbox.secrets")
async def test_no_known_place_of_a_secret_can_be_read_and_no_file_is_changed(root: Path, home: Path) -> None:
    contents_before = put_all(home)
    result = await run_in_sandbox(home, READ_EVERYTHING, root)
    assert {line for line in result.output.splitlines() if SECRET in line} == set()
    assert {path: path.read_bytes() for path in contents_before} == contents_before


A_KEY, A_HASH = "q7Zt0vXk3LmP9sBd5RfW1yHc8NgJ", "4be1c07d93f52a68e0b7"  # they look like tokens

SECRET_BY_CONTENT = {
    ".tool_token": f"ghp_{A_KEY}\n",
    ".config/tool/token": f"{A_KEY}\n",
    ".config/tool/config.toml": f'[auth]\napi_key = "{A_HASH}"\n',
    ".toolrc": f"[core]\npassword = {A_KEY}\n",
    ".config/tool/settings.yaml": f"server: https://tool.example\nauth_token: {A_KEY}\n",
    ".config/other.json": f'{{"service": {{"refresh-token": "{A_KEY}"}}}}',
    ".other/session": f'{{"a": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0abc.{A_KEY}"}}',
    ".other/key": "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n",
    "notes.env": f"export WEATHER_API_KEY={A_HASH}\n",
    ".news/config": f'feed-token "{A_KEY}"\n',
}
"""Files of unknown programs that contain a secret."""
ORDINARY = {
    ".toolconfig": "[user]\nsigningkey = ABCDEF0123456789ABCDEF0123456789ABCDEF01\n[credential]\nhelper = cache\n",
    ".config/tool/plain.toml": 'token_file = "/home/me/.config/tool/token.txt"\nmax_tokens = 12345678901234567890123\n',
    ".config/tool/names.ini": "tokenizer: bert-base-uncased-v2-finetuned1\npassword: YOUR_PASSWORD_HERE_PLEASE_1\n",
    ".config/tool/theme.json": '{"tokenColors": "editor.tokenColorCustomizations1", "secretStorage": "com.example.v1"}',
    ".sum": f"{A_HASH}{A_HASH}\n",
    ".packages": "passwd  1:4.13+dfsg1-1+deb12u1\n",
    ".deep/er/than/that": f"token = {A_KEY}\n",
    "+folder/token": f"{A_KEY}\n",
    ".empty": "",
    ".large": f"token = {A_KEY}\n{'#' * SEARCHED_FILE_BYTES}",
    ".program": f"token = {A_KEY}\n\0",
}
"""Files without a secret, or files that are not searched for secrets."""


@pytest.mark.requirement("sandbox.secrets_told")
async def test_a_secret_in_an_unknown_file_is_hidden_and_ordinary_settings_are_readable(root: Path, home: Path) -> None:
    for name, content in {**SECRET_BY_CONTENT, **ORDINARY}.items():
        put(home, name, content)
    readable_name = ".config/tool/token"
    result = await run_in_sandbox(
        home, f"cd; tail -vn +1 {' '.join(ORDINARY)}; {READ_EVERYTHING}", root, readable=[str(home / readable_name)]
    )
    assert {name for name in ORDINARY if f"==> {name} <==" not in result.output} == set()
    places = secret_places(str(home), environ={}, roots=[str(home / ".news")])
    hidden_names = {os.path.relpath(path, home) for path in places.files if str(home) in path}
    assert hidden_names == {name for name in SECRET_BY_CONTENT if name != ".news/config"}
    assert {name for name in SECRET_BY_CONTENT if f"\n./{name}:" in result.output} == {readable_name}
    assert "tool" in next(place.programs for path, place in places.withheld.items() if path.endswith(".toolrc"))
    link = home.with_name("link to home")
    link.symlink_to(home)
    assert "tool" in secret_places(str(link), environ={}).withheld[f"{link}/.toolrc"].programs


@pytest.mark.requirement("sandbox.secrets_settings")
@pytest.mark.parametrize("name", [name for name in MIXED if name not in {".aws/config", ".terraformrc"}])
async def test_settings_without_a_secret_are_not_hidden(home: Path, name: str) -> None:
    clean = (
        re.sub(r".*CANARY.*|.*: \|\n|.*Token:\n", "", MIXED[name])
        if "<" not in MIXED[name]
        else "<settings><url>STAYS</url></settings>"
    )
    clean = "{}" if name.endswith(".json") else clean
    path = put(home, name, "# a comment\n" + clean if clean[:1] not in "<{" else clean)
    assert str(path) not in secret_places(str(home), environ={}).all


COMMANDS: Mapping[str, tuple[str, str]] = {
    "git config -l >/dev/null && git init -q x && git -C x status -s && echo whole": ("git", "whole"),
    "npm config get registry": ("npm", "https://registry.npmjs.org/"),
    "npm config list && echo whole": ("npm", "whole"),
    "python3 -m pip config list && python3 -m pip --version && echo whole": ("pip", "whole"),
    "curl -V >/dev/null && curl --noproxy '*' -s http://127.0.0.1:1/ ; echo $?": ("curl", "7"),
    "bash -lc 'echo started; cat ~/.profile'": ("bash", "started\n"),
}


@pytest.mark.requirement("sandbox.secrets_settings")
@pytest.mark.parametrize("command", COMMANDS)
async def test_programs_work_without_the_settings_that_hold_a_secret(root: Path, home: Path, command: str) -> None:
    program, expected_output = COMMANDS[command]
    if shutil.which(program) is None:
        pytest.skip(f"not run: there is no {program} here")
    put_all(home)
    put(home, ".profile", "export API_TOKEN=hush-word\n")
    result = await run_in_sandbox(home, command, root)
    assert expected_output in result.output, result.output
    assert SECRET not in result.output


@pytest.mark.requirement("sandbox.secrets_readable")
@pytest.mark.parametrize(
    ("readable", "name"),
    [
        (".npmrc", ".npmrc"),
        (".netrc", ".netrc"),
        (".ssh/config", ".ssh/config"),
        (".kaggle", ".kaggle/kaggle.json"),
        (".config", ".config/gh/hosts.yml"),
        (".aws/config", ".aws/config"),
    ],
)
async def test_files_that_the_operator_names_are_fully_visible_and_nothing_next_to_them(
    root: Path, home: Path, readable: str, name: str
) -> None:
    contents_before = put_all(home)
    async with sandbox(home, [str(home / readable)]) as confinement:
        file_result = await run(confinement, f"cat ~/{name}", [str(root)], environment_of(home))
        home_result = await run(confinement, READ_EVERYTHING, [str(root)], environment_of(home))
    assert file_result.output.encode() == contents_before[home / name]
    paths = {
        line.partition(":")[0] for line in home_result.output.splitlines() if SECRET in line and line.startswith("./")
    }
    assert paths
    assert all(f"{path[2:]}/".startswith(f"{readable}/") for path in paths)


UNCLEAR: Mapping[str, bytes] = {
    "binary": b"_authToken=hush-word\n\0\1\2",
    "not text": b"_authToken=hush-word\xff\xfe\n",
    "too long": b"registry=x\n" * (READ_BYTES // 11 + 1) + b"_authToken=hush-word\n",
    "a text of several lines": b'token = """\nhush-word\n"""\n',
    "a list of several lines": b'tokens = [\n "hush-word"\n]\n',
    "an open quote": b'token = "one\nhush-word"\n',
    "half of JSON": b'{"token": "hush-word"',
    "XML with entities": b'<!DOCTYPE x [<!ENTITY e "hush-word">]><settings>&e;</settings>',
    "a private key": b"[x]\ny = -----BEGIN RSA PRIVATE KEY-----\nhush-word\n-----END RSA PRIVATE KEY-----\n",
}


@pytest.mark.requirement("sandbox.secrets_settings")
@pytest.mark.parametrize("kind", UNCLEAR)
async def test_settings_that_cannot_be_parsed_count_as_secret(root: Path, home: Path, kind: str) -> None:
    put(home, ".npmrc", UNCLEAR[kind])
    assert (await run_in_sandbox(home, "cat ~/.npmrc", root)).output == ""


@pytest.mark.requirement("sandbox.secrets_settings")
async def test_a_pipe_or_a_folder_in_place_of_settings_does_not_block_a_command(root: Path, home: Path) -> None:
    os.mkfifo(home / ".npmrc")
    put(home, ".gitconfig/x", "hush-word")
    assert "hush" not in (await run_in_sandbox(home, "cat ~/.npmrc ~/.gitconfig/*; true", root)).output


@pytest.mark.requirement("sandbox.secrets")
async def test_the_target_of_a_link_is_hidden_under_both_names(root: Path, home: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path.resolve() / "dotfiles"
    target = put(dotfiles, "npmrc", with_secrets(".npmrc", MIXED[".npmrc"]))
    (home / ".npmrc").symlink_to(target)
    key = put(dotfiles, "ssh/id", "hush-word")
    (home / ".ssh").symlink_to(key.parent)
    result = await run_in_sandbox(home, f"cat ~/.npmrc {target}; cat ~/.ssh/* {key}", root)
    assert "STAYS" not in result.output
    assert "hush" not in result.output


@pytest.mark.requirement("sandbox.secrets_workspace")
async def test_files_in_a_workspace_are_shown_as_they_are_or_refused(home: Path) -> None:
    root = home / "project"
    workspace_file = put(root, ".npmrc", "//own.example/:_authToken=hush-of-the-project\n")
    link_target = put(root, "dot/npmrc", "//home.example/:_authToken=hush-of-the-home\n")
    (home / ".npmrc").symlink_to(link_target)
    result = await run_in_sandbox(home, "cat .npmrc; cat dot/npmrc ~/.npmrc; echo more >> .npmrc", root)
    assert "hush-of-the-project" in result.output
    assert "hush-of-the-home" not in result.output
    assert "home.example" not in result.output
    assert workspace_file.read_text().endswith("more\n")


@pytest.mark.requirement("sandbox.secrets_workspace")
async def test_a_home_that_is_the_workspace_keeps_its_files(home: Path) -> None:
    contents_before = put_all(home)
    result = await run_in_sandbox(
        home, f"{READ_EVERYTHING}; echo x >> ~/.npmrc; mv ~/.netrc ~/n; cat ~/n; echo mine > ~/note", home
    )
    assert SECRET not in result.output
    assert {path: path.read_bytes() for path in contents_before} == contents_before
    assert (home / "note").read_text() == "mine\n"


@pytest.mark.requirement("sandbox.secrets")
@pytest.mark.parametrize(
    "setting",
    [
        ("XDG_CONFIG_HOME", "conf", "conf/gh/hosts.yml"),
        ("XDG_DATA_HOME", "data", "data/keyrings/login.keyring"),
        ("XDG_CACHE_HOME", "cache", "cache/huggingface/token"),
        ("XDG_STATE_HOME", "state", "state/bash/history"),
        ("GNUPGHOME", "gpg", "gpg/secring.gpg"),
        ("CARGO_HOME", "cargo", "cargo/credentials.toml"),
        ("KUBECONFIG", "a.yaml:b.yaml", "b.yaml"),
        ("AWS_SHARED_CREDENTIALS_FILE", "keys/aws", "keys/aws"),
        ("NETRC", "net", "net"),
        ("HISTFILE", "hist", "hist"),
        ("CODEX_HOME", "codex", "codex/auth.json"),
        ("NPM_CONFIG_USERCONFIG", "npm-settings", "npm-settings"),
        ("GIT_CONFIG_GLOBAL", "git-settings", "git-settings"),
    ],
)
async def test_files_are_hidden_where_environment_variables_of_the_server_move_them(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str, str]
) -> None:
    variable, place, name = setting
    put(home, name, "[x]\n//r.example/:_authToken = hush-word\n")
    monkeypatch.setenv(variable, ":".join(str(home / path) for path in place.split(":")))
    result = await run_in_sandbox(home, f"cat ~/{name}; grep -rs hush ~; true", root)
    assert "hush" not in result.output


@pytest.mark.requirement("sandbox.secrets")
def test_every_variable_that_moves_files_stands_for_known_places() -> None:
    folders = {place[:at] for place in HOME_PLACES for at, character in enumerate(place) if character == "/"}
    assert set(MOVED.values()) - {*HOME_PLACES, *folders, ""} == set()


@pytest.mark.requirement("sandbox.secrets")
async def test_a_variable_that_names_the_home_or_its_parent_hides_neither(
    root: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, "notes", "plain\n")
    for variable, value in (("GNUPGHOME", home), ("KAGGLE_CONFIG_DIR", home.parent), ("DOCKER_CONFIG", "relative")):
        monkeypatch.setenv(variable, str(value))
    assert (await run_in_sandbox(home, "cat ~/notes", root)).output == "plain\n"


@pytest.mark.requirement("sandbox.secrets_settings")
async def test_a_home_without_secrets_costs_no_mount(home: Path) -> None:
    for name in (".npmrc", ".gitconfig", ".bashrc", ".config/pip/pip.conf"):
        put(home, name, "[x]\na = b\n")
    assert not [path for path in secret_places(str(home), environ={}).all if path.startswith(str(home))]


@pytest.mark.requirement("sandbox.secrets_settings")
async def test_a_file_that_changes_at_once_and_keeps_its_length_is_read_again(home: Path) -> None:
    path = put(home, ".npmrc", "registr=hush-word\n")
    assert str(path) not in secret_places(str(home), environ={}).all
    path.write_text("_auth =hush-word\n\n"[:18])
    assert secret_places(str(home), environ={}).settings == (str(path),)


NAMES = (
    *("password", "passwd", "pwd", "token", "api_key", "apikey", "secret", "client_secret", "accessKey", "privateKey"),
    *("access_token", "refresh-token", "auth", "_authToken", "passphrase", "credentials", "smtppass", "db.password"),
    *("MY_API_KEY", "GITHUB_TOKEN", "DB_PASS", "x-auth-token", "sessionId", "otp", "jwt", "cookie", "Authorization"),
)
FORMS = {
    ".npmrc": ("{name}={value}", "//h/:{name} = {value}", "; {name}={value}"),
    ".gitconfig": (
        *("[s]", "\t{name} = {value}", '[s "t"]', '{name}="{value}"', "# {name} = {value}", '[u "https://{value}@h/"]'),
        '\tb = "!f() {{ echo {name}={value}; }}; f"',
    ),
    ".yarnrc.yml": (
        *("{name}: {value}", "a:", "  - {name}: '{value}'", "    b: c", "d: {{ {name}: {value}, d: e }}"),
        *("{name}: >-", "  {value}", "  {value}", "{name}:", "- {value}"),
    ),
    ".cargo/config.toml": (
        *("[a]", '"{name}" = "{value}"', "# {name} = {value}", 'x = {{ "{name}" = "{value}" }}', "[b]"),
        *("\"{name}\" = ['{value}', 3]", '[["{name}"]]', 'y = "{value}"', '[c."{name}"]', "y = '{value}'"),
    ),
    ".m2/settings.xml": (
        *(
            "<a><{name}>{value}</{name}>",
            '<b {name}="{value}"/>',
            "<!-- {name}={value} -->",
            "<{name}><c>{value}</c></{name}>",
        ),
        "<p><name>{name}</name><value>{value}</value></p></a>",
    ),
    ".composer/config.json": (
        *(
            '{{"{name}": "{value}", "a": {{"{name}": ["{value}"]}},',
            '"l": [{{"name": "{name}", "value": "{value}"}}]}}',
        ),
    ),
    ".gradle/gradle.properties": ("{name}={value}", "{name} : {value}", "x.{name}={value}", "  {value}"),
    ".bashrc": ("export {name}={value}", "{name}='{value}'", '  export {name}="{value}"; echo'),
    ".yarnrc": ('"{name}" "{value}"', "{name} {value}"),
}
"""Lines with secrets, by the file whose format they have."""


@pytest.mark.requirement("sandbox.secrets_settings")
@each_of("place", FORMS)
@each_of("name", NAMES)
def test_a_value_with_the_name_of_a_secret_is_found_in_every_format(place: str, name: str) -> None:
    generator = random.Random(f"{place} {name}")  # noqa: S311 - it must be reproducible
    value = "".join(generator.choices(string.ascii_lowercase, k=9))
    assert may_hold_secret("\n".join(FORMS[place]).format(name=name, value=value), place)


@pytest.mark.requirement("sandbox.secrets_settings")
@each_of(("place", "content"), odd_forms())
def test_secrets_in_unusual_syntax_are_found(place: str, content: str) -> None:
    for value in ("hushword", "Hush-9-word"):
        assert may_hold_secret(re.sub(r"(?<![A-Z])S(?![A-Z])", value, content) + "\n", place)


@pytest.mark.requirement("sandbox.secrets_settings")
@each_of("statement", ["TOKEN=hushword", "declare -A M=([token]=hushword)", "local token='hushword'"])
@each_of("around", ["{}", "if x; then {}; fi", "f() {{\n  {}; }}", "A=b; {} || x", "# it's\n{}", "# {}"])
def test_a_secret_is_found_anywhere_in_a_script(statement: str, around: str) -> None:
    assert may_hold_secret(around.format(statement) + "\n", ".bashrc")


@pytest.mark.requirement("sandbox.secrets_settings")
@pytest.mark.parametrize(
    ("place", "line"),
    [
        *(
            (".bashrc", line)
            for line in (
                *(
                    "export SSH_AUTH_SOCK=/run/x",
                    "export PASSWORD_STORE_DIR=~/ps GPG_KEY_ID=ABCD",
                    "GIT_SSH_KEY=~/.ssh/x",
                ),
                *(
                    "export SSH_KEY_PATH=$HOME/.ssh/rsa",
                    'export FZF_DEFAULT_OPTS="--bind=ctrl-k:up --key=x"',
                    "unset TOKEN",
                ),
                *(
                    '[ -n "$GH_TOKEN" ] && x',
                    'if [ -z "${GH_TOKEN:-}" ]; then x; fi',
                    'eval "$(ssh-agent -s)"',
                    "ssh-add -l",
                ),
                *("export PATH=/usr/lib/0123456789abcdef0123456789abcdef01234567/bin:$PATH", "get_token() { x; }"),
                *(
                    "alias tokens='git log'",
                    "alias passgen='openssl rand 12'",
                    "bindkey -e",
                    'x --token "$TOKEN" -p "$PW"',
                ),
                *(
                    "export TOKENIZERS_PARALLELISM=false",
                    "git config --global user.signingkey ABC",
                    "curl -H 'X-Foo: bar' h",
                ),
            )
        ),
        *((".config/fish/config.fish", line) for line in ("set -q GITHUB_TOKEN; and echo x", "fish_add_path ~/bin")),
        *((".cshrc", line) for line in ("setenv EDITOR vi", "if ( $?TOKEN ) echo x")),
        *((".gitconfig", line) for line in ("[alias]\n\ttokens = log --oneline", "[http]\n\textraHeader = X-Foo: bar")),
        (".gitconfig", "[core]\n\tsshCommand = ssh -i ~/.ssh/key"),
        (".gitconfig", '[url "https://example.org/list?page=2&sort=name"]\n\tinsteadOf = list:'),
        (".gradle/gradle.properties", "signing.keyId=AB\norg.gradle.jvmargs=-Xmx2g -Dfile.encoding=UTF-8"),
    ],
)
def test_lines_that_only_sound_like_a_secret_are_shown(place: str, line: str) -> None:
    assert not may_hold_secret(line + "\n", place)


@pytest.mark.requirement("sandbox.secrets")
@pytest.mark.parametrize("path", ["~/work/own", "own", '"~/work/own"', "{home}/work/own"])
@pytest.mark.parametrize("section", ["[include]", '[includeIf "gitdir:~/work/"]', "[Include]", "[include] # of [work]"])
async def test_files_that_git_settings_include_are_hidden_only_if_they_contain_a_secret(
    root: Path, home: Path, path: str, section: str
) -> None:
    put(home, ".gitconfig", f"[user]\n\tname = x\n{section}\n\tpath = {path.format(home=home)}\n")
    for name in ("own", "work/own"):
        put(home, name, "[user]\n\temail = stays\n[include]\n\tpath = deeper\n")
    for name in ("deeper", "work/deeper"):
        put(home, name, "[hub]\n\ttoken = hush-word\n[include]\n\tpath = own\n")
    folder = "" if path == "own" else "work/"
    result = await run_in_sandbox(home, f"cat ~/{folder}own ~/{folder}deeper", root)
    assert "email = stays" in result.output
    assert "hush" not in result.output


@contextmanager
def without_descriptors(limit: int = 0) -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("sandbox.secrets")
def test_a_moment_without_descriptors_is_an_error_and_leaves_no_gap_in_later_searches(root: Path, home: Path) -> None:
    secret = put(home, "unknown", "ghp_0aZ9bY8cX7dW6eV5fU4gT3hS2iR1jQ0kP9lO\n")
    put(root, ".git/config", "[core]\n\thooksPath = checks\n")
    hooks = put(root, "checks/pre-push", "").parent
    with without_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            secret_places(str(home))
        with pytest.raises(OSError, match="Too many open files"):
            list(paths_named_by_settings(str(root), str(root)))
    assert str(secret) in secret_places(str(home)).files
    assert [*paths_named_by_settings(str(root), str(root))] == [str(hooks)]


@pytest.mark.requirement("sandbox.secrets")
def test_a_moment_without_descriptors_hides_no_worktree_submodule_object_or_guarded_file(
    root: Path, home: Path
) -> None:
    store = root / "main" / ".git"
    for name in ("HEAD", "objects/pack/x", "modules/sub/HEAD", "modules/sub/objects/x"):
        put(store, name, "")
    put(store, "worktrees/tree/commondir", "../..\n")
    put(root, "tree/.git", f"gitdir: {store}/worktrees/tree\n")
    guarded = put(home, "settings/file", "")
    (root / "other-name").hardlink_to(guarded)

    searches: list[Callable[[], object]] = [
        lambda: store_of(str(root / "tree")),
        lambda: [*stores_of_submodules(str(store))],
        lambda: GuardedPaths((), [str(home / "settings")]).why([str(root / "other-name")]),
        lambda: GitStores().holds(str(store), [], None, lambda names: names is None, default=True),
    ]
    with without_descriptors():
        for search in searches:
            with pytest.raises((OSError, ExhaustedError), match=r"[Tt]oo many .*open"):
                search()
    results = [search() for search in searches]
    assert results[:2] == [str(store), [(str(store / "modules" / "sub"), "sub")]]
    assert results[2] is not None


@pytest.mark.requirement("sandbox.secrets")
def test_a_repository_is_not_taken_to_store_hidden_files_because_git_could_not_start_for_lack_of_descriptors(
    root: Path,
) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    os.close(last := os.open(root, os.O_RDONLY))
    stores = GitStores()

    def holds() -> bool:
        return stores.holds(str(root / ".git"), [], None, lambda names: names is None, default=True)

    with without_descriptors(last + 1), pytest.raises(ExhaustedError, match="too many files are open"):
        holds()
    assert not holds()


@pytest.mark.requirement("sandbox.secrets")
def test_symlinks_that_cannot_be_followed_do_not_stop_the_search_for_secrets(home: Path) -> None:
    (home / "loop").symlink_to("loop")
    (home / "too-long").symlink_to("x" * 300)
    secret = put(home, "unknown", "ghp_0aZ9bY8cX7dW6eV5fU4gT3hS2iR1jQ0kP9lO\n")
    assert str(secret) in secret_places(str(home)).files


@pytest.mark.requirement("sandbox.secrets")
def test_an_included_file_whose_name_is_not_utf8_is_examined_and_shown_to_git(root: Path, home: Path) -> None:
    put(home, ".gitconfig", b"[include]\n\tpath = ~/work/\xe4\n")
    included_file = put(home, os.fsdecode(b"work/\xe4"), "[hub]\n\ttoken = hush-word\n")
    assert str(included_file) in secret_places(str(home)).settings
    assert str(included_file) in settings_of_git(str(home), [str(root)])


@pytest.mark.requirement("sandbox.secrets")
def test_a_path_with_a_nul_in_git_settings_is_not_looked_up(root: Path, home: Path) -> None:
    settings = put(home, ".gitconfig", "[include]\n\tpath = a\0b\n[core]\n\texcludesFile = /a\0b\n")
    assert str(settings) in secret_places(str(home)).settings
    assert [*settings_of_git(str(home), [str(root)])] == [str(settings)]


@pytest.mark.requirement("sandbox.secrets_settings")
@each_of(
    "text",
    [
        "=" * 200_000,
        "a" * 200_000,
        " " * 200_000,
        "token-" * 40_000,
        '"' * 200_000,
        "token=" * 40_000,
        "<a " * 80_000,
        "{[" * 90_000,
    ]
    + [
        part * (250_000 // len(part))
        for part in ("a=", 'a="', "set ", "set -", "a:b!", "?a=%", "-a=b ", "${a:-", "$(", "[include]")
    ],
)
@each_of(
    "place", [".bashrc", ".gitconfig", ".npmrc", ".yarnrc", ".yarnrc.yml", ".m2/settings.xml", ".composer/config.json"]
)
def test_no_text_takes_more_than_linear_time(text: str, place: str) -> None:
    may_hold_secret(text, place)
    may_hold_secret("<x>" + text, place)
    may_hold_secret('x=y x="' + text, place)
    keeps_secret(text)
    deque(possible_paths(text), maxlen=0)


class LoginServer(BaseHTTPRequestHandler):
    """A web server that requires a login."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="here"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the base
        """Print nothing."""


@pytest.fixture
def login_server() -> Generator[str]:
    """Run a server that refuses every request; yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), LoginServer)
    with served_by_thread(server):
        yield f"http://127.0.0.1:{server.server_port}"


async def output_from_server(home: Path, root: Path, command: str, *readable: str) -> str:
    """Run a command with the real server; return the text of the result."""
    settings: dict[str, Any] = {
        "confirmation": {"whenUnavailable": "client"},
        "shell": {"sandbox": "required", "readable": list(readable)},
    }
    config = root.parent / "settings.json"
    config.write_text(json.dumps(settings))
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    parameters = StdioServerParameters(command=sys.executable, args=forked(server_arguments(root, config)), env=environ)
    async with speaking(HANDSHAKE, stdio_client(parameters)) as client:
        result = await client.call_tool("run_shell_command", {"command": command})
    output = "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))
    if "a sandbox is required" in output:
        pytest.skip("not run: bubblewrap does not run here")
    return output


HIDING_NOTE = "the command may have failed because the sandbox hides"


@pytest.mark.requirement("sandbox.secrets_readable")
async def test_the_result_of_a_failed_login_names_the_hidden_files_and_the_setting(
    root: Path, home: Path, login_server: str
) -> None:
    netrc = put(home, ".netrc", "machine 127.0.0.1 login bob password hush-word\n")
    settings = put(home, ".gitconfig", "[user]\n\tname = x\n[github]\n\ttoken = hush-word\n")
    put(home, ".kaggle/kaggle.json", "hush-word")
    output = await output_from_server(home, root, f"git ls-remote {login_server}/x.git")
    note = next(line for line in output.splitlines() if HIDING_NOTE in line)
    assert f"{netrc}" in note
    assert f"{settings}" in note
    assert "shell.readable" in note
    assert "kaggle" not in note
    assert "hush" not in output


@pytest.mark.requirement("sandbox.secrets_readable")
@pytest.mark.parametrize(
    "command",
    [
        "git ls-remote {url}/x.git || true",  # it succeeds
        "git ls-remote ./nowhere",  # the failure has nothing to do with a login
        "kaggle --version; echo 401 Unauthorized; exit 1",  # no file of that program is hidden
    ],
)
async def test_the_result_does_not_mention_hidden_files_if_no_login_was_missing(
    root: Path, home: Path, login_server: str, command: str
) -> None:
    put(home, ".netrc", "machine 127.0.0.1 login bob password hush-word\n")
    assert HIDING_NOTE not in await output_from_server(home, root, command.format(url=login_server))


@pytest.mark.requirement("sandbox.secrets_readable")
async def test_git_that_does_not_know_the_user_is_told_which_settings_are_hidden(root: Path, home: Path) -> None:
    settings = put(home, ".gitconfig", "[user]\n\tname = x\n\temail = x@y\n[github]\n\ttoken = hush-word\n")
    output = await output_from_server(home, root, "git init -q x; git -C x commit --allow-empty -m y")
    assert f"hides {settings}" in output
    assert "hush" not in output


@pytest.mark.requirement("sandbox.secrets_readable")
async def test_the_setting_takes_paths_relative_to_the_home_and_to_the_settings_file(root: Path, home: Path) -> None:
    put(home, ".npmrc", "//r.example/:_authToken=hush-word\n")
    put(home, ".netrc", "machine r.example password hush-other\n")
    assert "hush" not in await output_from_server(home, root, "cat ~/.npmrc ~/.netrc")
    output = await output_from_server(
        home, root, "cat ~/.npmrc ~/.netrc", "~/.npmrc", os.path.relpath(home / ".netrc", root.parent)
    )
    assert "hush-word" in output
    assert "hush-other" in output
