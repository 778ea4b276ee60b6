"""Secrets that are sent to a server are hidden when its answers repeat them, in every usual form."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from server.network.echoed_secrets import SentSecrets
from server.protocol.json_rpc import ErrorResponse, Response
from server.upstreams.wire.http_upstream import CarefulTransport
from tests.tables import each_of
from tools.text.secrets import HIDDEN

TOKEN = "Zq9&tok'en/XYZ+77=pq"
FORMS: list[Callable[[str], str]] = [
    str,
    str.upper,
    str.lower,
    quote,
    lambda secret: quote(secret, safe="").lower(),
    quote_plus,
    html.escape,
    lambda secret: json.dumps(secret).replace("/", "\\/"),
    lambda secret: (
        secret.replace("+", "\\u002B").replace("&", "\\u0026").replace("'", "\\u0027").replace("=", "\\u003D")
    ),
    lambda secret: base64.b64encode(secret.encode()).decode(),
    lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    lambda secret: base64.b64encode(f"Bearer {secret}".encode()).decode(),
]


def secrets_in(url: str, headers: dict[str, str], proxy: str = "") -> SentSecrets:
    """Return the secrets of one request."""
    secrets = SentSecrets()
    secrets.learn(headers.items(), url, proxy)
    return secrets


@pytest.mark.requirement("proxy.secrets")
def test_a_name_in_an_answer_can_be_a_secret_too() -> None:
    transport = CarefulTransport(lambda: None)
    transport.secrets.learn([("authorization", f"Bearer {TOKEN}")])
    for name, message in (
        ("result", Response(id=1, result={TOKEN: {TOKEN: 1}, "isError": True})),
        ("error", ErrorResponse(id=1, error={TOKEN: {TOKEN: 1}})),
    ):
        assert getattr(transport.without_secrets(message), name)[HIDDEN] == {HIDDEN: 1}


@pytest.mark.requirement("proxy.secrets")
def test_the_secrets_that_were_used_last_are_remembered() -> None:
    secrets = SentSecrets(2)
    for value in ("first-secret", "second-secret", "first-secret", "third-secret"):
        secrets.learn([("login", value)])
    assert secrets.hide("first-secret second-secret third-secret") == f"{HIDDEN} second-secret {HIDDEN}"


@pytest.mark.requirement("proxy.secrets")
def test_a_secret_is_hidden_in_every_usual_form() -> None:
    secrets = secrets_in("https://a.example/mcp", {"Authorization": f"Bearer {TOKEN}"})
    for form in FORMS:
        assert secrets.hide(f"no {form(TOKEN)}!").strip('"').replace("=", "") in (f"no {HIDDEN}!", f'no "{HIDDEN}"!')


@pytest.mark.requirement("proxy.secrets")
@each_of(
    "url, headers, proxy, text",
    [
        ("", {"X-Plan": "gold-plan"}, "", "gold-plan"),
        ("", {"X-Plan": "Key gold-plan"}, "", "gold-plan"),
        ("", {"Cookie": "sid=abcdef12; a=b"}, "", "abcdef12"),
        ("", {"Authorization": f"Basic {base64.b64encode(b'someone:hunter22').decode()}"}, "", "hunter22"),
        ("", {"Proxy-Authorization": f"Basic {base64.b64encode(b'someone:hunter22').decode()}"}, "", "someone"),
        ("https://a:hunter%2F22@a.example/mcp", {}, "", "hunter/22"),
        ("https://a.example/mcp", {}, "http://someone:hunter%2F22@p.example:1", "someone:hunter/22"),
        ("https://a.example/mcp?key=abc%2Fdef", {}, "", "abc%2Fdef"),
        ("https://a.example/mcp?a=first1&a=second", {}, "", "first1"),
        ("https://a.example/mcp?0123456789abcdef0", {}, "", "0123456789abcdef0"),
        ("https://a.example/s/0123456789abcdef0/mcp", {}, "", "0123456789abcdef0"),
    ],
)
def test_secrets_in_addresses_headers_and_proxies_are_hidden(
    url: str, headers: dict[str, str], proxy: str, text: str
) -> None:
    assert secrets_in(url, headers, proxy).hide(f"({text})") == f"({HIDDEN})"


@pytest.mark.requirement("proxy.secrets")
def test_common_values_are_not_hidden() -> None:
    secrets = secrets_in("https://a.example/mcp?v=1", {"Accept": "application/json", "X-Mode": "fast"})
    secrets.learn([("content-type", "application/json"), ("authorization", "Bearer abc.def.ghi")])
    assert (
        secrets.hide("fast application/json of a.example, abc.def.ghi")
        == f"fast application/json of a.example, {HIDDEN}"
    )
    assert secrets.hide_within({"a": ["abc.def.ghi", 7]}) == {"a": [HIDDEN, 7]}


@pytest.mark.requirement("proxy.secrets")
def test_only_the_latest_tokens_of_a_login_are_hidden() -> None:
    secrets = SentSecrets()
    for number in range(100):
        secrets.learn([("x-plan", "gold-plan"), ("authorization", f"Bearer token-{number:03}")])
    assert secrets.hide("token-099 token-098 gold-plan") == f"{HIDDEN} {HIDDEN} {HIDDEN}"
    assert secrets.hide("token-000") == "token-000"
