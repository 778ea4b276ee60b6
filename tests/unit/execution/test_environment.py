"""What commands get as environment, and what is taken for a secret."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tools.execution.environment import FIXED, command_environment
from tools.secrets import HIDDEN, has_secret, is_secret_name, redact, without_userinfo


@pytest.mark.requirement("environment.known")
def test_only_known_variables_are_passed_on() -> None:
    passed = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "XDG_DATA_HOME": "/d",
        "GOPATH": "/go",
        "SSL_CERT_FILE": "/c",
    }
    dropped = {"LD_PRELOAD": "/x", "BASH_ENV": "/x", "PYTHONPATH": "/x", "NODE_OPTIONS": "-r x", "MINE": "1"}
    assert command_environment({}, passed | dropped) == passed | dict(FIXED)


@pytest.mark.requirement("environment.secrets")
@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "SSH_AUTH_SOCK",
        "LC_TOKEN",
        "XDG_SECRET",
    ],
)
def test_a_variable_with_the_name_of_a_secret_is_left_out(name: str) -> None:
    assert name not in command_environment({}, {name: "x"})


@pytest.mark.requirement("environment.secrets")
def test_a_known_variable_whose_value_is_a_secret_is_left_out() -> None:
    token = "ghp_" + "a" * 36
    assert "CFLAGS" not in command_environment({}, {"CFLAGS": f"-DTOKEN={token}"})


@pytest.mark.requirement("environment.secrets")
def test_addresses_of_proxies_and_indexes_lose_their_passwords() -> None:
    inherited = {
        "https_proxy": "http://me:word@proxy:8080",
        "HTTP_PROXY": "http://me@proxy:8080",
        "NO_PROXY": "localhost",
        "PIP_INDEX_URL": "https://me:word@index.example/simple",
    }
    environment = command_environment({}, inherited)
    assert environment["https_proxy"] == environment["HTTP_PROXY"] == "http://proxy:8080"
    assert environment["NO_PROXY"] == "localhost"
    assert environment["PIP_INDEX_URL"] == "https://index.example/simple"


@pytest.mark.requirement("environment.configured")
def test_what_the_operator_sets_is_passed_as_it_is_over_everything_else() -> None:
    configured = {"MY_TOKEN": "ghp_" + "a" * 36, "PAGER": "less", "HTTP_PROXY": "http://me:word@proxy", "PATH": "/mine"}
    environment = command_environment(configured, {"PATH": "/bin", "HTTP_PROXY": "http://other"})
    assert environment == {**FIXED, **configured}


@pytest.mark.requirement("environment.nobody_waits")
def test_git_never_waits_for_a_person(tmp_path: Path) -> None:
    environment = command_environment({"HOME": str(tmp_path)}, {"PATH": "/usr/bin:/bin"})

    def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        words = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
        return subprocess.run(
            words, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
        )

    git("init", "-q")
    for text in ("one", "two"):
        (tmp_path / "file").write_text(text)
        git("add", ".")
        git("commit", "-qm", text)
    assert git("commit", "--amend").returncode == 0
    assert git("log").stdout.count(b"commit ") == 2
    assert b"empty commit message" in git("commit", "--allow-empty").stderr
    # A plan that nobody has edited is no success.
    assert git("rebase", "-i", "--root").returncode != 0


@pytest.mark.requirement("environment.nobody_waits")
def test_the_program_that_a_repository_names_for_watching_files_is_not_run(tmp_path: Path) -> None:
    environment = command_environment({"HOME": str(tmp_path)}, {"PATH": "/usr/bin:/bin"})
    watcher = tmp_path / "watcher"
    watcher.write_text("#!/bin/sh\ntouch ran\n")
    watcher.chmod(0o755)
    for arguments in (["init", "-q"], ["config", "core.fsmonitor", str(watcher)], ["status"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.requirement("secrets.names")
@pytest.mark.parametrize(
    "name", ["token", "apiKey", "dbPassword", "MYTOKENS", "x-auth", "private_key", "CREDS", "CLIENT_CERT", "cookie"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.requirement("secrets.names")
@pytest.mark.parametrize(
    "name", ["PATH", "KEYBOARD", "GIT_AUTHOR_NAME", "SSL_CERT_FILE", "PIP_CERT", "file_path", "old_string", "PWD"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_name(name)


SECRETS = [
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "xoxb-123456789012-abcdefghijkl",
    "sk_live_" + "4eC39HqLyjWD",
    "AIza" + "SyA1b2" * 6,
    "sk-proj-" + "abcd1234" * 4,
    "sk-ant-api03-" + "abcd1234" * 4,
    "glpat-" + "abcd1234" * 3,
    "npm_" + "abcd1234" * 5,
]


@pytest.mark.requirement("secrets.values")
@pytest.mark.parametrize("secret", SECRETS)
def test_forms_of_secrets_are_hidden_and_nothing_else(secret: str) -> None:
    assert redact(f"before {secret}") == f"before {HIDDEN}"
    assert has_secret(f"x={secret}")


@pytest.mark.requirement("secrets.values")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:word@host/x", f"https://{HIDDEN}@host/x"),
        ("Authorization: Bearer abcdef", f"Authorization: Bearer {HIDDEN}"),
        ("mysql --password hunter22 -x", f"mysql --password {HIDDEN} -x"),
        ('{"api_key": "abcdef"}', f'{{"api_key": "{HIDDEN}"}}'),
        ("PASSWORD=hunter22 make", f"PASSWORD={HIDDEN} make"),
    ],
)
def test_only_the_secret_part_of_a_text_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.requirement("secrets.values")
@pytest.mark.parametrize(
    "text",
    [
        "git clone ssh://git@host/x",
        "the secret sauce is a token of love",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "sk-short, tokenizer, password",
        "e" * 64,
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@pytest.mark.requirement("secrets.values")
def test_an_address_loses_its_user() -> None:
    assert without_userinfo("http://a:b@host:1/p?x=y@z") == "http://host:1/p?x=y@z"


REPEATED: list[Callable[[int], str]] = [
    lambda n: "-----BEGIN PRIVATE KEY-----" * n,
    lambda n: "-eyJaaaaaaaaa." * n,
    lambda n: "eyJ" * n,
    lambda n: "://a:" * n,
    lambda n: "://" + "a" * n,
    lambda n: "token=" * n,
    lambda n: "-password " * n,
    lambda n: "authorization: " * n,
    lambda n: "sk-" * n,
    lambda n: "SG.aaaaaaaaaaaaaaaaa." * n,
]


@pytest.mark.requirement("secrets.linear")
@pytest.mark.parametrize("made", REPEATED)
@pytest.mark.anyio
async def test_hostile_texts_are_read_in_linear_time(made: Callable[[int], str]) -> None:
    # A quadratic pattern needs hours for these.
    program = "import sys; from tools.secrets import redact; redact(sys.stdin.read())"
    with anyio.fail_after(40):
        await anyio.run_process([sys.executable, "-c", program], input=made(200_000).encode())
