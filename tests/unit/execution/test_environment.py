"""The environment that commands get."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.shell.command_environment import FIXED, command_environment


@pytest.mark.requirement("environment.known")
def test_only_known_variables_are_passed_on() -> None:
    known_variables = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "XDG_DATA_HOME": "/d",
        "GOPATH": "/go",
        "SSL_CERT_FILE": "/c",
    }
    unknown_variables = {"LD_PRELOAD": "/x", "BASH_ENV": "/x", "PYTHONPATH": "/x", "NODE_OPTIONS": "-r x", "MINE": "1"}
    assert command_environment({}, known_variables | unknown_variables) == known_variables | dict(FIXED)


@pytest.mark.requirement("environment.known")
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


@pytest.mark.requirement("environment.known")
def test_a_known_variable_whose_value_is_a_secret_is_left_out() -> None:
    token = "ghp_" + "a" * 36
    assert "CFLAGS" not in command_environment({}, {"CFLAGS": f"-DTOKEN={token}"})


@pytest.mark.requirement("environment.known")
def test_addresses_of_proxies_and_indexes_lose_their_passwords() -> None:
    server_environment = {
        "https_proxy": "http://me:word@proxy:8080",
        "HTTP_PROXY": "http://me@proxy:8080",
        "NO_PROXY": "localhost",
        "PIP_INDEX_URL": "https://me:word@index.example/simple",
    }
    environment = command_environment({}, server_environment)
    assert environment["https_proxy"] == environment["HTTP_PROXY"] == "http://proxy:8080"
    assert environment["NO_PROXY"] == "localhost"
    assert environment["PIP_INDEX_URL"] == "https://index.example/simple"


@pytest.mark.requirement("environment.known")
def test_the_operators_variables_are_passed_unchanged_and_override_everything_else() -> None:
    operator_variables = {
        "MY_TOKEN": "ghp_" + "a" * 36,
        "PAGER": "less",
        "HTTP_PROXY": "http://me:word@proxy",
        "PATH": "/mine",
    }
    environment = command_environment(operator_variables, {"PATH": "/bin", "HTTP_PROXY": "http://other"})
    assert environment == {**FIXED, **operator_variables}


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
    # A rebase whose plan nobody has edited must not succeed.
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
