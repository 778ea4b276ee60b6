"""Secrets in arguments, under any name and in any position: no record and no log line shows them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from server.administration.audit_log import record_of
from tests.examples import examples
from tests.fork_server import forked
from tests.harness import PEERS, server_arguments, write_config
from tests.interaction.relay.clients import Json, client_on
from tests.linear_time import SIZES, TextMaker, assert_redacted_in_linear_time
from tests.tables import all_cases, each_of
from tools.call.consent import AuditEntry
from tools.permissions.verdict import Permission, Verdict
from tools.text.secrets import HIDDEN, redact, without_secrets

MARK = "7Hq-gl0w"
"""A secret that cannot be recognised by its form."""

WORDS = [
    *("authorization", "session", "session id", "session token", "otp", "otp code", "totp", "mfa", "mfa code", "pin"),
    *("pin code", "passwd", "password", "passphrase", "pass phrase", "cookie", "set cookie", "bearer", "credential"),
    *("credentials", "api key", "x api key", "client secret", "private key", "signature", "sig", "jwt", "csrf", "xsrf"),
    *("auth header", "auth", "access token", "refresh tokens", "seed phrase", "recovery code", "verification code"),
    *("two factor code", "mnemonic", "proxy authorization", "password2", "user pwd", "hmac", "sid", "passcode"),
    *("pins", "pwds", "otps", "one time code", "connection string", "conn str", "sas", "signing key", "card number"),
    *("webhook url", "security answer", "saml response", "assertion", "kennwort", "pass wort", "user pwds"),
]

EVERYDAY = [
    *("author", "authors", "pinned", "spin", "opinion", "shipping", "session_name", "sessionType", "max_tokens"),
    *(
        "maxTokens",
        "token_count",
        "key_size",
        "prompt_tokens",
        "signature_help",
        "design",
        "assign",
        "monkey",
        "keyboard",
    ),
    *("code", "number", "side", "sidebar", "inside", "option", "path", "file_path", "content", "passenger", "compass"),
    *(
        "bypass",
        "signal",
        "authority",
        "concert",
        "seed",
        "phrase",
        "factor",
        "id",
        "header",
        "secretary",
        "pins_total",
    ),
]

ODD_NAMES = [
    *("api key", "PassWort", "KennWort", "p\u0430ssword", "t\u03bfken", "pass\u200bword", "to\u0301ken", "2FA", "2fa"),
    *("signingKey", "samlResponse", "connectionString"),
    *("".join(chr(ord(letter) + 0xFEE0) for letter in name) for name in ("apiKey", "token")),
]
"""Names in unusual spellings: with spaces, in odd case, and with letters that only look like Latin ones."""

SPELLINGS: list[Callable[[list[str]], str]] = [
    "_".join,
    "-".join,
    lambda words: "_".join(words).upper(),
    lambda words: words[0] + "".join(word.capitalize() for word in words[1:]),
    lambda words: "".join(word.capitalize() for word in words),
    lambda words: "-".join(word.capitalize() for word in words),
    lambda words: "my." + "_".join(words),
    lambda words: "x-" + "-".join(words),
    lambda words: "user" + "".join(word.capitalize() for word in words),
]

NAMES = [spell(word.split(" ")) for word in WORDS for spell in SPELLINGS]
FEW_NAMES = [
    *(SPELLINGS[number % len(SPELLINGS)](word.split(" ")) for number, word in enumerate(WORDS)),
    *(spell(words) for words in (["password"], ["client", "secret"], ["two", "factor", "code"]) for spell in SPELLINGS),
]
"""Every word in one spelling, and three of them in all spellings."""


def shapes(name: str, value: Any) -> Iterator[Json]:
    """Yield arguments that contain a name with its value."""
    yield {name: value}
    yield {"outer": {name: value}}
    yield {"outer": [{"deep": [{name: value}]}]}
    yield {name: {"inner": [value]}}
    yield {name: [value, value]}
    yield {"headers": [{"name": name, "value": value}]}
    yield {"headers": [{"value": value, "key": name}]}
    yield {"pairs": [["Accept", "text"], [name, value]]}
    yield {"args": ["tool", f"--{name}", value]}
    yield {"args": ["tool", f"--{name}={value}"]}
    yield {"headers": f"Accept: text\n{name}: {value}\nHost: x"}
    yield {"headers": [f"{name}: {value}"]}
    yield {"body": json.dumps({"a": 1, name: value})}
    yield {"body": json.dumps(json.dumps({"a": 1, name: value}))}
    yield {"url": f"https://h.example/p?a=1&{name}={value}&b=2"}
    yield {"url": f"https://h.example/p?{name}={value}#x"}
    yield {"command": f"curl -H '{name}: {value}' https://h.example"}
    yield {"command": f"tool --{name} {value} x"}
    yield {"command": f"tool --{name}={value} x"}


def recorded_arguments(arguments: Json) -> str:
    """Return the arguments as the audit record of a call shows them."""
    allow = Permission(Verdict.ALLOW, "because")
    return json.dumps(record_of(AuditEntry("tool", arguments, "Call it", "stdio", allow, 0.0))["arguments"])


@pytest.mark.requirement("audit.secrets")
@pytest.mark.parametrize("names", [FEW_NAMES, pytest.param(NAMES, marks=pytest.mark.long)], ids=["few", "all"])
def test_a_value_with_the_name_of_a_secret_is_hidden(names: list[str]) -> None:
    with all_cases() as case:
        for name in names:
            with case(name):
                check_hidden(name)


def check_hidden(name: str) -> None:
    for value in (MARK, "31415926"):
        for arguments in shapes(name, value):
            assert value not in recorded_arguments(arguments), arguments
            assert HIDDEN in recorded_arguments(arguments)
    assert "31415926" not in recorded_arguments({name: 31415926})
    assert recorded_arguments({name: True}) == json.dumps({name: True})


@pytest.mark.requirement("audit.secrets")
@each_of("name", ODD_NAMES)
def test_the_name_of_a_secret_is_recognised_in_every_position(name: str) -> None:
    quoted_name = quote(name)
    for arguments in (
        *(
            {name: MARK},
            {"a": {name: [MARK]}},
            {"h": [{"name": name, "value": MARK}]},
            {"body": json.dumps({name: MARK}, ensure_ascii=False)},
        ),
        *({"body": f"{name}: {MARK}\nx: y"}, {"url": f"https://h.example/?{quoted_name}={MARK}&a=1"}),
    ):
        assert MARK not in recorded_arguments(arguments), arguments


@pytest.mark.requirement("audit.secrets")
@pytest.mark.parametrize("name", ["pwd", "token", "Authorization", "apiKey", "pin"])
def test_a_pair_of_a_name_and_a_value_is_recognised_in_every_spelling(name: str) -> None:
    for key, value in (("name", "value"), ("header", "val"), ("id", "value"), ("KEY", "Val"), ("Field", "VALUES")):
        for spell in (str, str.capitalize, str.upper):
            pair = {spell(key): name, spell(value): MARK}
            for arguments in (pair, {"x": pair}, {"x": [{"a": 1, **dict(reversed(pair.items()))}]}):
                assert MARK not in recorded_arguments(arguments), arguments
        assert MARK in recorded_arguments({key: "title", value: MARK})


@pytest.mark.requirement("audit.secrets")
@pytest.mark.parametrize(
    "text",
    [
        *(
            "https://h.example/?%61pi_key=SEK",
            "https://h.example/?a=1&api%5Fkey=SEK",
            "https://h.example/?%2561pi_key=SEK",
        ),
        "https://h.example/?to=https%3A%2F%2Fi.example%2F%3Ftoken%3DSEK&a=b",
        "https://h.example/?to=https%253A%252F%252Fi.example%252F%253Ftoken%253DSEK",
        *("https://hooks.slack.com/services/T0/B0/SEK", "https://discord.com/api/webhooks/1/SEK"),
        *("curl -H Authorization:\\ Bearer\\ SEK x", "curl -H X-Api-Key:\\ SEK x", "echo SEK | sudo -S ls"),
        *("echo SEK | docker login --password-stdin", "printf '%s' SEK | gh auth login --with-token"),
        *("echo 'root:SEK' | chpasswd", 'read -r PW <<< "SEK"; x', "sudo -S ls <<< SEK", "vault login SEK"),
        *("gh secret set X --body SEK", "gh secret set X -b SEK", "psql -c \"ALTER USER x PASSWORD 'SEK'\""),
        *(
            "mysql -e \"CREATE USER x IDENTIFIED BY 'SEK'\"",
            "http -a u:SEK x",
            "smbclient -U u%SEK //h",
            "setx K_TOKEN SEK",
        ),
        *("git config --global github.token SEK", "security add-generic-password -w SEK", "<password>SEK</password>"),
        *('<add key="Password" value="SEK"/>', "a: b\npassword: |\n  SEK\n  SEK\nc: d", "key=abcd1234abcd1234SEK"),
    ],
)
def test_secrets_in_urls_commands_and_documents_are_hidden(text: str) -> None:
    for arguments in ({"x": text}, {"x": {"y": [text]}}, {"x": json.dumps({"y": text})}):
        assert "SEK" not in recorded_arguments(arguments)
    assert "SEK" not in recorded_arguments({"x": ["curl", "-H", "Authorization:", "Bearer", "SEK"]})


@pytest.mark.requirement("audit.secrets")
@each_of("name", EVERYDAY)
def test_values_whose_names_only_sound_like_secrets_are_recorded_in_full(name: str) -> None:
    for arguments in shapes(name, MARK):
        assert HIDDEN not in recorded_arguments(arguments), arguments
        assert MARK in recorded_arguments(arguments)


@pytest.mark.requirement("audit.secrets")
def test_pwd_is_recorded_if_its_value_looks_like_a_folder() -> None:
    for folder in ("/srv/data", "~/x", "./x", "$HOME", "C:\\x"):
        assert recorded_arguments({"pwd": folder}) == json.dumps({"pwd": folder})
    assert MARK not in recorded_arguments({"pwd": MARK, "Pwd": MARK, "nested": [{"PWD": MARK}]})


FORMS = [
    *("Bearer 7Hq-gl0w", "bearer abc", "Basic bWU6N0hxZ2wwdw==", "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9),
    *("sk-" + "ab12" * 8, "xoxb-123456789012-abcdefghijkl", "eyJhbGciOiJI.eyJzdWIiOiIx.dozjgNryP4J3"),
    "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----",
    *("https://me:7Hq@h.example/x", "https://7Hqgl0w7Hqgl0w7Hq@h.example/x", "https://h.example/?X-Amz-Signature=7Hqg"),
]


@pytest.mark.requirement("audit.secrets")
@each_of("form", FORMS)
def test_a_value_that_looks_like_a_secret_is_hidden_under_any_name(form: str) -> None:
    for record in (
        recorded_arguments({"x": form}),
        recorded_arguments({"x": [form]}),
        recorded_arguments({"x": {"y": {"z": form}}}),
        recorded_arguments({form: 1}),
    ):
        assert form not in record
        assert json.dumps(form)[1:-1] not in record
        assert HIDDEN in record


@pytest.mark.requirement("audit.secrets")
@pytest.mark.parametrize(
    ("command", "secret"),
    [
        (f"PGPASSWORD={MARK} psql", MARK),
        ("curl -u me:x1 h", "x1"),
        ("tool --password x1 h", "x1"),
        ("mysql -px1", "x1"),
        ("wget --header 'Authorization: Bearer x1' h", "x1"),
    ],
)
def test_short_secrets_in_commands_are_hidden_both_in_a_list_of_words_and_in_a_line(command: str, secret: str) -> None:
    assert secret not in recorded_arguments({"command": command})
    if "'" not in command:
        assert secret not in recorded_arguments({"args": command.split(" ")})


@pytest.mark.requirement("audit.secrets")
@pytest.mark.parametrize(
    "text",
    [
        "Basic authentication is what a bearer needs; the bearer token of the session has a signature",
        "git commit -m 'Mend the session of the author: pinned tokens'",
        "git log --author=somebody --max-count=5; ls -la src; make -j4 all",
        "ssh -o StrictHostKeyChecking=accept-new h; sort --key=2 f",
        "python -m pytest -k 'test_session' --maxfail=1",
        "tool --key=path/to/file sort_key=name 'sort key: x'; make KEY=x; jq .key f; rsync -a host:/path .",
        "git config --list; git config user.name Bob; git config --global core.editor vim; set -euo pipefail; set -x",
        "npm config set registry https://r.example; kubectl get secret x -o yaml; echo hi | grep password; bc <<< 1+2",
        "https://h.example/a%20b?q=c%2Bd&u=https%3A%2F%2Fi.example%2F&key=id&seed=42; test_secrets.py:12: x",
    ],
)
def test_ordinary_texts_are_recorded_in_full(text: str) -> None:
    assert redact(text) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(NAMES), inner),
    max_leaves=10,
)


@pytest.mark.requirement("audit.secrets")
@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text() | st.sampled_from(NAMES), json_values))
def test_any_arguments_can_be_recorded(arguments: Json) -> None:
    assert recorded_arguments(arguments)
    assert MARK not in json.dumps(without_secrets({"deep": arguments, "otp": MARK}))


@pytest.mark.requirement("audit.secrets")
def test_the_record_of_huge_arguments_stays_small() -> None:
    deep: Any = MARK
    for _ in range(500):
        deep = [{"a": deep}]
    huge = {
        "a" * 1_000_000 + "Token": MARK,
        "deep": deep,
        "wide": {f"k{at}": "v" for at in range(100_000)},
        "long": ["y" * 1_000_000] * 10,
        "number": 10**6_000,
    }
    assert len(recorded_arguments(huge)) < 10_000
    assert MARK not in recorded_arguments(huge)


@pytest.mark.requirement("audit.secrets")
@each_of("filler", range(3_900, 4_100, 7))
def test_no_part_of_a_secret_is_recorded_where_a_text_is_cut(filler: int) -> None:
    token = "ghp_" + "a1B2" * 9
    for arguments in ({"x": "y" * filler + " " + token}, {"x": ["p" * (filler - 2_000), "q" * 2_000, token]}):
        assert "ghp_" not in recorded_arguments(arguments)


@pytest.mark.requirement("audit.secrets")
@pytest.mark.anyio
async def test_neither_the_log_nor_the_audit_file_of_a_server_contains_secrets_of_calls(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    upstream = {"command": sys.executable, "args": forked([str(PEERS / "upstream.py")]), "trust": True}
    settings = {"mcpServers": {"up": upstream}, "log": {"level": "debug", "audit": str(audit)}}
    root = tmp_path / "root"
    root.mkdir()
    command = StdioServerParameters(
        command=sys.executable, args=forked(server_arguments(root, write_config(tmp_path, settings)))
    )
    with (tmp_path / "log").open("w+") as log:
        async with client_on(stdio_client(command, errlog=log), "handshake", {}) as client:
            for number, name in enumerate(NAMES[::17]):
                for arguments in list(shapes(name, MARK))[number % 19 :: 19]:
                    await client.call("up__echo", arguments)
            await client.call("run_shell_command", {"command": f"true --session-token={MARK}"})
            await client.call("read_file", {"absolute_path": str(root), "otpCode": MARK, f"--token={MARK}": 1})
        log.seek(0)
        log_text = log.read()
    assert "up__echo" in audit.read_text()
    assert MARK not in audit.read_text()
    assert MARK not in log_text


HOSTILE: list[TextMaker] = [
    *(
        lambda n, part=part: part * n
        for part in ("?a=%25", "echo a|", "<<<a ", "set -", "key=", "token: |\n ", "-U a%")
    ),
    *(
        lambda n, part=part: part * n
        for part in ('name="a" value=', "identified with a ", "vault login ", "<a>", "a b: ")
    ),
    *(lambda n, part=part: part * n for part in ("-", "--a-", "a.", "a=", "session:", 'otp="', 'pin\\"=', "Bearer ")),
    *(lambda n, part=part: part * n for part in ("?sig=", "://a@", "--session ", "authorization:", "-cookie-", "\\")),
    *(lambda n, part=part: part + "a" * n for part in ("Bearer ", "https://", "--", "pin=", "-b ", "Cookie: ")),
    *(lambda n, part=part: part + " " * n for part in ("Bearer", "pin=", "--pin", "-u", "token:")),
]


@pytest.mark.requirement("rules.linear")
@pytest.mark.parametrize("size", SIZES)
def test_hostile_texts_are_redacted_in_linear_time(size: int) -> None:
    assert_redacted_in_linear_time(HOSTILE, size)
