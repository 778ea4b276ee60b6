"""Secrets that the settings refer to but never contain: tokens, keys, the store's password, the introspection secret.

`Tokens` keeps only digests, so it cannot reveal a token. Each token has a name, which identifies the principal. A
client's state (answers, jobs, files read, open questions) belongs to that name. The `issuer` module checks tokens from
an authorization server.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from server.clients.client_request import VARIABLE_NAME, Principal
from server.settings import SettingsError, TokenSource
from server.settings.server_models import PrincipalSettings, StateKey, StorePassword
from tools.permissions.permission_policy import ALL_RIGHTS, Rights

VARIABLE = "CORETOOLS_MCP_TOKEN"  # the environment variable that contains the token, if the settings name no tokens
LEAST_CHARACTERS = 20  # minimum length of a token; 20 random letters and digits have 119 bits of entropy
LEAST_KEY_CHARACTERS = 32  # minimum length of a key
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # the characters of a bearer token (RFC 6750, 2.1)
MAKE_ONE = "make one with: openssl rand -hex 32"


class Tokens:
    """The accepted tokens and their rights, keyed by principal."""

    def __init__(self, tokens: Mapping[str, str], rights: Mapping[str, Rights] | None = None) -> None:
        self._digests = {name: digest_of(token) for name, token in tokens.items()}
        self._rights = rights or {}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def principal_with(self, token: str) -> Principal | None:
        """Return the principal of a token. The token is compared with every known token in constant time."""
        token_digest = digest_of(token)
        matching = [name for name, digest in self._digests.items() if hmac.compare_digest(digest, token_digest)]
        return Principal(matching[0], self._rights.get(matching[0], ALL_RIGHTS)) if matching else None


def digest_of(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens(sources: Mapping[str, TokenSource], environment: Mapping[str, str]) -> Tokens:
    """Read the tokens that the settings name, or else the token in the environment variable.

    Raises:
        SettingsError: A token cannot be read, is readable by others, is not valid, or occurs twice.
    """
    tokens: dict[str, str] = {}
    problems: list[str] = []
    if not sources and (token := environment.get(VARIABLE, "").strip()):
        tokens[VARIABLE_NAME] = token
        problems += _problems_of(VARIABLE, token)
    for name, source in sources.items():
        place, token = f"http.tokens.{name}", ""
        try:
            token = read_secret(place, source.file, source.env, environment)
            problems += _problems_of(place, token)
        except ValueError as error:
            problems.append(str(error))
        problems += [
            f"{place} is the same token as http.tokens.{other_name}, but each client needs its own; {MAKE_ONE}."
            for other_name, other_token in tokens.items()
            if token and token == other_token
        ]
        tokens[name] = token
    if problems:
        raise SettingsError(problems)
    return Tokens(tokens, {name: rights_for(f"http.tokens.{name}", source) for name, source in sources.items()})


def rights_for(place: str, own: PrincipalSettings) -> Rights:
    """Return a principal's rights from its own settings. `place` is the key of these settings."""
    profile, rules = "" if own.profile == "full" else own.profile, own.rules
    rights = Rights("", own.workspace, profile, rules.allow, rules.ask, rules.deny)
    return ALL_RIGHTS if rights == ALL_RIGHTS else replace(rights, source=place)


def read_secret(place: str, file: str | None, env: str | None, environment: Mapping[str, str]) -> str:
    """Read a secret from a file or a variable; raises `ValueError` if it is missing, or others can access the file."""
    if (file is None) == (env is None):
        raise ValueError(f"{place} needs either file or env, to say where the secret is stored.")
    if env is not None:
        if secret := environment.get(env, "").strip():
            return secret
        raise ValueError(
            f"{place}.env names the variable '{env}', which is not set or is empty. Set it, or choose another."
        )
    path = os.path.expanduser(file or "")
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{place}.file '{path}' is not a file. Name a file that contains the secret.")
            if os.name == "posix" and status.st_mode & 0o077:
                mode = f"{stat.S_IMODE(status.st_mode):04o}"
                raise ValueError(
                    f"{place}.file '{path}' is readable or writable by others (mode {mode}). Run chmod 600 on it."
                )
            secret = os.read(descriptor, 1 << 16).decode("utf-8", "replace").strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ValueError(
            f"{place}.file '{path}' cannot be read ({reason}). Name a file that contains the secret."
        ) from None
    if not secret:
        raise ValueError(f"{place}.file '{path}' is empty. Put the secret into it.")
    return secret


def read_state_keys(sources: Sequence[StateKey], environment: Mapping[str, str]) -> list[str]:
    """Return the keys that replicas share. The first one is used for encryption.

    Raises:
        SettingsError: A key cannot be read, is readable by others, is too short, or occurs twice.
    """
    keys: list[str] = []
    problems: list[str] = []
    for position, source in enumerate(sources):
        place, key = f"http.stateKeys[{position}]", ""
        try:
            key = read_secret(place, source.file, source.env, environment)
        except ValueError as error:
            problems.append(str(error))
        else:
            if len(key) < LEAST_KEY_CHARACTERS:
                least = f"it needs at least {LEAST_KEY_CHARACTERS} characters"
                problems.append(f"{place} is too short for a key: {least}; {MAKE_ONE}.")
            elif key in keys:
                problems.append(f"{place} is the same key as another one in http.stateKeys. Remove one of them.")
        keys.append(key)
    if problems:
        raise SettingsError(problems)
    return keys


def read_store_password(source: StorePassword, environment: Mapping[str, str]) -> str:
    """Return the store's password, empty if there is none; raises `SettingsError` if it cannot be read."""
    if source.file is None and source.env is None:
        return ""
    try:
        return read_secret("store.password", source.file, source.env, environment)
    except ValueError as error:
        raise SettingsError([str(error)]) from None


def _problems_of(place: str, token: str) -> list[str]:
    if len(token) < LEAST_CHARACTERS:
        return [f"{place} is too short for a token: it needs at least {LEAST_CHARACTERS} characters; {MAKE_ONE}."]
    if not _TOKEN.fullmatch(token):
        expected = "it must be one line of letters, digits and -._~+/, optionally with = at the end"
        return [f"{place} is not a token: {expected}; {MAKE_ONE}."]
    return []
