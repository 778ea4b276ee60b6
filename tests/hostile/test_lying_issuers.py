"""Issuers that say of tokens and keys what cannot be, or have moved: nobody else is let in, and nothing breaks."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest

from server.clients.client_request import TokenRefusedError
from server.network.outbound import ANSWER_BYTES
from server.settings.models import IntrospectionSettings, IssuerSettings
from server.transports.issuer import Issuer
from tests.interaction.network.test_access_tokens import RESOURCE, SECRET, refusal, signed
from tests.scripted_issuer import JWK, KEYS, METADATA, ScriptedIssuer, scripted_issuer

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Generator[ScriptedIssuer]:
    with scripted_issuer() as scripted:
        yield scripted


def checking(issuer: ScriptedIssuer, **more: Any) -> Issuer:
    return Issuer(IssuerSettings(issuer=issuer.base, resource=RESOURCE, **more), SECRET)


@pytest.mark.requirement("oauth.refused")
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("size", [10**400, -(10**400)])
async def test_a_time_of_four_hundred_digits_is_a_time_like_any_other(
    issuer: ScriptedIssuer, name: str, size: int
) -> None:
    token, checks = signed(issuer.base, {name: size}), checking(issuer)
    if (name == "exp") == (size > 0):
        assert (await checks.principal_with(token)).unique_name == f"{issuer.base} alice"
    else:
        assert (await refusal(checks, token)).status == 401


@pytest.mark.requirement("oauth.introspection")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"exp": 10**400}, ""),
        ({"nbf": 10**400}, "not valid"),
        ({"exp": True}, "not valid"),
        ({"active": 1}, "has expired, or is not from the issuer"),
        ({"active": "true"}, "has expired, or is not from the issuer"),
        ({"aud": [[RESOURCE]]}, "another audience"),
        ({"typ": "Refresh"}, "not an access token"),
        ({"typ": "ID"}, "not an access token"),
        ({"at_hash": "x"}, "not an access token"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
    ],
)
async def test_an_answer_about_a_token_is_held_against_what_an_access_token_is(
    issuer: ScriptedIssuer, said: dict[str, Any], why: str
) -> None:
    usual = {"active": True, "exp": time.time() + 300, "aud": RESOURCE, "sub": "alice", "scope": "read"}
    issuer.responses["/about"] = {**usual, **said}
    checks = checking(issuer, introspection=IntrospectionSettings(url=f"{issuer.base}/about", client_id="server"))
    if why:
        refused = await refusal(checks, "opaque")
        assert why in str(refused)
        assert refused.status == 401
    else:
        assert (await checks.principal_with("opaque")).unique_name == f"{issuer.base} alice"


@pytest.mark.requirement("oauth.introspection")
async def test_the_many_tokens_of_a_stranger_push_out_nobody_who_is_known(
    issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.transports.issuer.MAX_CACHED", 4)
    usual = {"active": True, "exp": time.time() + 300, "aud": RESOURCE, "sub": "alice", "scope": "read"}
    issuer.responses["/about"] = usual
    checks = checking(issuer, introspection=IntrospectionSettings(url=f"{issuer.base}/about", client_id="server"))
    await checks.principal_with("hers")
    issuer.responses["/about"] = {"active": False}
    for number in range(20):
        await refusal(checks, f"stranger-{number}")
    assert (await checks.principal_with("hers")).unique_name == f"{issuer.base} alice"
    assert sum("token=hers" in posted for posted in issuer.posts) == 1


@pytest.mark.requirement("oauth.keys")
async def test_keys_that_have_moved_are_found_where_the_issuer_says_now(
    issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.transports.issuer.FETCH_SECONDS", 0.0)
    monkeypatch.setattr("server.transports.issuer.KEYS_SECONDS", 0.0)
    checks = checking(issuer)
    await checks.principal_with(signed(issuer.base))
    issuer.responses["/moved"] = issuer.responses.pop(KEYS)
    issuer.responses[METADATA]["jwks_uri"] = f"{issuer.base}/moved"
    issuer.responses["/moved"] = {"keys": [{**JWK, "kid": "renamed"}]}
    renamed = signed(issuer.base, {"sub": "bob"}, headers={"kid": "renamed"})
    assert (await refusal(checks, renamed)).status == 503  # where they were there are none
    assert (await checks.principal_with(renamed)).unique_name == f"{issuer.base} bob"


@pytest.mark.requirement("oauth.principals")
@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"email": "a@b", "name": "A"}, "a@b"),
        ({"email": "a@b", "email_verified": "true", "name": "A"}, "a@b"),
        ({"email": "a@b", "email_verified": False, "name": " A "}, "A"),
        ({"email": 1, "preferred_username": " ", "username": "x" * 1_000, "name": "A"}, "A"),
        ({}, ""),
    ],
)
async def test_people_are_called_by_what_few_can_choose_themselves(
    issuer: ScriptedIssuer, said: dict[str, Any], name: str
) -> None:
    assert (await checking(issuer).principal_with(signed(issuer.base, said))).readable_name == name


@pytest.mark.requirement("oauth.keys")
async def test_a_token_that_names_no_key_is_of_the_only_one_and_of_none_among_several(issuer: ScriptedIssuer) -> None:
    token = signed(issuer.base, headers={"kid": ""})
    assert (await checking(issuer).principal_with(token)).unique_name == f"{issuer.base} alice"
    issuer.responses[KEYS] = {"keys": [JWK, {**JWK, "kid": "other"}]}
    assert (await refusal(checking(issuer), token)).status == 401


@pytest.mark.requirement("oauth.keys")
@pytest.mark.parametrize(
    "keys",
    [
        [],
        ["x", 1, None, []],
        [{"kty": "oct", "k": "c2VjcmV0", "kid": "old"}],
        [{**JWK, "d": "x"}],
        [{**JWK, "x": "AA"}],
        [{**JWK, "use": "enc"}],
        [{**JWK, "kid": ["old"]}],
        [{**JWK, "alg": None}],
        [{**JWK, "kty": ["EC"]}],
        [{"kty": "RSA", "kid": "old", "n": "_" * 342, "e": "AQ"}],
    ],
)
async def test_keys_that_are_none_let_nobody_in(issuer: ScriptedIssuer, keys: list[Any]) -> None:
    issuer.responses[KEYS] = {"keys": keys}
    with pytest.raises(TokenRefusedError) as refused:
        await checking(issuer).principal_with(signed(issuer.base))
    assert refused.value.status == 503


@pytest.mark.requirement("oauth.keys")
@pytest.mark.parametrize("address", ["http://x.example/keys", "file:///etc/passwd", "https://127.0.0.1@x.example/", 1])
async def test_keys_are_taken_from_no_address_that_others_could_answer_for(
    issuer: ScriptedIssuer, address: object
) -> None:
    issuer.responses[METADATA]["jwks_uri"] = address
    assert (await refusal(checking(issuer), signed(issuer.base))).status == 503


@pytest.mark.requirement("oauth.keys")
async def test_the_log_says_that_an_answer_with_keys_is_too_long(
    issuer: ScriptedIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.responses[KEYS] = {"keys": [JWK], "more": "x" * ANSWER_BYTES}
    assert (await refusal(checking(issuer), signed(issuer.base))).status == 503
    assert f"could not be fetched: it sent a response of more than {ANSWER_BYTES:,} bytes" in caplog.text
