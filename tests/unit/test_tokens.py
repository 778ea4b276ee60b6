"""Bearer tokens: where they are read from, which are refused, and whom they identify."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from server.clients.client_request import VARIABLE_NAME
from server.settings import SettingsError, TokenSource
from server.settings.server_models import PrincipalSettings
from server.transports.configured_secrets import VARIABLE, read_tokens, rights_for
from tools.permissions.permission_policy import ALL_RIGHTS

FIRST, SECOND = "first-token-" + "a" * 20, "second-token-" + "b" * 20


def token_file(folder: Path, token: str, mode: int = 0o600) -> TokenSource:
    path = folder / f"{len(list(folder.iterdir()))}.token"
    path.write_text(f"{token}\n")
    path.chmod(mode)
    return TokenSource(file=str(path))


def refusal(sources: Mapping[str, TokenSource], environment: Mapping[str, str]) -> str:
    with pytest.raises(SettingsError) as error:
        read_tokens(sources, environment)
    return str(error.value)


@pytest.mark.requirement("network.tokens")
def test_a_token_from_a_file_or_a_variable_identifies_its_principal(tmp_path: Path) -> None:
    tokens = read_tokens({"laptop": token_file(tmp_path, FIRST), "bot": TokenSource(env="BOT")}, {"BOT": SECOND})
    for token, name in ((FIRST, "laptop"), (SECOND, "bot")):
        principal = tokens.principal_with(token)
        assert principal is not None
        assert principal.unique_name == name
        assert token not in repr(principal)
    for wrong in ("", FIRST[:-1], FIRST + "a", FIRST.upper(), "é\udcff"):
        assert tokens.principal_with(wrong) is None
    assert FIRST not in repr(vars(tokens))


@pytest.mark.requirement("network.tokens")
def test_the_token_in_the_environment_is_valid_only_without_named_tokens(tmp_path: Path) -> None:
    principal = read_tokens({}, {VARIABLE: f" {FIRST}\n"}).principal_with(FIRST)
    assert principal is not None
    assert principal.unique_name == VARIABLE_NAME
    tokens = read_tokens({"laptop": token_file(tmp_path, SECOND)}, {VARIABLE: FIRST})
    assert tokens.principal_with(FIRST) is None
    assert not read_tokens({}, {})


@pytest.mark.requirement("network.tokens")
def test_a_token_that_cannot_be_used_stops_the_start_with_advice(tmp_path: Path) -> None:
    assert "http.tokens.a needs either file or env" in refusal({"a": TokenSource()}, {})
    assert "needs either" in refusal({"a": TokenSource(file="x", env="Y")}, {})
    assert "'MISSING', which is not set" in refusal({"a": TokenSource(env="MISSING")}, {})
    assert "cannot be read (No such file or directory)" in refusal({"a": TokenSource(file=str(tmp_path / "none"))}, {})
    assert "too short" in refusal({"a": TokenSource(env="A")}, {"A": "short"})
    assert "too short" in refusal({}, {VARIABLE: "short"})
    assert "is not a token" in refusal({"a": TokenSource(env="A")}, {"A": FIRST + "\n" + SECOND})
    message = refusal({"a": TokenSource(env="A"), "b": TokenSource(env="B")}, {"A": FIRST, "B": FIRST})
    assert "http.tokens.b is the same token as http.tokens.a" in message
    assert FIRST not in message


@pytest.mark.requirement("network.tokens")
@pytest.mark.skipif(os.name != "posix", reason="not run: there are no such modes here")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    message = refusal({"a": token_file(tmp_path, FIRST, mode)}, {})
    assert f"(mode {mode:04o}). Run chmod 600" in message


@pytest.mark.requirement("network.tokens")
@pytest.mark.skipif(os.name != "posix", reason="not run: there are no pipes with a name here")
def test_a_pipe_in_place_of_a_token_file_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "is not a file" in refusal({"a": TokenSource(file=str(tmp_path / "pipe"))}, {})


@pytest.mark.requirement("network.tokens")
def test_the_rights_of_a_token_are_those_of_its_settings() -> None:
    principal_settings = PrincipalSettings.model_validate({"rules": {"deny": ("Bash",)}})
    rights = rights_for("http.tokens.a", principal_settings)
    assert (rights.deny, rights.source) == (("Bash",), "http.tokens.a")
    assert rights_for("http.tokens.a", PrincipalSettings()) is ALL_RIGHTS
