"""Issuers whose answers about tokens and keys are impossible, or whose keys move: nobody is let in by mistake."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest

from server.clients.client_request import TokenRefusedError
from server.network.outbound_http import ANSWER_BYTES
from server.settings.server_models import IntrospectionSettings, IssuerSettings
from server.transports.issuer import Issuer
from tests.interaction.network.test_access_tokens import RESOURCE, SECRET, refusal, sign_token
from tests.scripted_issuer import JWK, KEYS, METADATA, ScriptedIssuer, scripted_issuer

pytestmark = pytest.mark.anyio


@pytest.fixture
def issuer() -> Generator[ScriptedIssuer]:
    with scripted_issuer() as issuer:
        yield issuer


def checker_of(issuer: ScriptedIssuer, **settings: Any) -> Issuer:
    return Issuer(IssuerSettings(issuer=issuer.base, resource=RESOURCE, **settings), SECRET)


@pytest.mark.requirement("oauth.refused")
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("size", [10**400, -(10**400)])
async def test_a_time_of_four_hundred_digits_is_treated_like_any_other_time(
    issuer: ScriptedIssuer, name: str, size: int
) -> None:
    token, checks = sign_token(issuer.base, {name: size}), checker_of(issuer)
    if (name == "exp") == (size > 0):
        assert (await checks.principal_with(token)).unique_name == f"{issuer.base} alice"
    else:
        assert (await refusal(checks, token)).status == 401


@pytest.mark.requirement("oauth.introspection")
@pytest.mark.parametrize(
    ("claims", "reason"),
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
async def test_an_answer_about_a_token_must_describe_a_valid_access_token(
    issuer: ScriptedIssuer, claims: dict[str, Any], reason: str
) -> None:
    usual = {"active": True, "exp": time.time() + 300, "aud": RESOURCE, "sub": "alice", "scope": "read"}
    issuer.responses["/about"] = {**usual, **claims}
    checks = checker_of(issuer, introspection=IntrospectionSettings(url=f"{issuer.base}/about", client_id="server"))
    if reason:
        error = await refusal(checks, "opaque")
        assert reason in str(error)
        assert error.status == 401
    else:
        assert (await checks.principal_with("opaque")).unique_name == f"{issuer.base} alice"


@pytest.mark.requirement("oauth.introspection")
async def test_many_tokens_of_a_stranger_evict_no_known_client(
    issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.transports.issuer.MAX_CACHED", 4)
    usual = {"active": True, "exp": time.time() + 300, "aud": RESOURCE, "sub": "alice", "scope": "read"}
    issuer.responses["/about"] = usual
    checks = checker_of(issuer, introspection=IntrospectionSettings(url=f"{issuer.base}/about", client_id="server"))
    await checks.principal_with("hers")
    issuer.responses["/about"] = {"active": False}
    for number in range(20):
        await refusal(checks, f"stranger-{number}")
    assert (await checks.principal_with("hers")).unique_name == f"{issuer.base} alice"
    assert sum("token=hers" in body for body in issuer.posts) == 1


@pytest.mark.requirement("oauth.keys")
async def test_keys_that_have_moved_are_found_at_the_issuers_new_address(
    issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.transports.issuer.FETCH_SECONDS", 0.0)
    monkeypatch.setattr("server.transports.issuer.KEYS_SECONDS", 0.0)
    checks = checker_of(issuer)
    await checks.principal_with(sign_token(issuer.base))
    issuer.responses["/moved"] = issuer.responses.pop(KEYS)
    issuer.responses[METADATA]["jwks_uri"] = f"{issuer.base}/moved"
    issuer.responses["/moved"] = {"keys": [{**JWK, "kid": "renamed"}]}
    token = sign_token(issuer.base, {"sub": "bob"}, headers={"kid": "renamed"})
    assert (await refusal(checks, token)).status == 503  # the old address has no keys any more
    assert (await checks.principal_with(token)).unique_name == f"{issuer.base} bob"


@pytest.mark.requirement("oauth.principals")
@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"email": "a@b", "name": "A"}, "a@b"),
        ({"email": "a@b", "email_verified": "true", "name": "A"}, "a@b"),
        ({"email": "a@b", "email_verified": False, "name": " A "}, "A"),
        ({"email": 1, "preferred_username": " ", "username": "x" * 1_000, "name": "A"}, "A"),
        ({}, ""),
    ],
)
async def test_people_are_named_by_claims_that_few_can_choose_themselves(
    issuer: ScriptedIssuer, claims: dict[str, Any], name: str
) -> None:
    assert (await checker_of(issuer).principal_with(sign_token(issuer.base, claims))).readable_name == name


@pytest.mark.requirement("oauth.keys")
async def test_a_token_without_a_key_id_is_accepted_only_if_the_issuer_has_a_single_key(issuer: ScriptedIssuer) -> None:
    token = sign_token(issuer.base, headers={"kid": ""})
    assert (await checker_of(issuer).principal_with(token)).unique_name == f"{issuer.base} alice"
    issuer.responses[KEYS] = {"keys": [JWK, {**JWK, "kid": "other"}]}
    assert (await refusal(checker_of(issuer), token)).status == 401


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
async def test_invalid_keys_let_nobody_in(issuer: ScriptedIssuer, keys: list[Any]) -> None:
    issuer.responses[KEYS] = {"keys": keys}
    with pytest.raises(TokenRefusedError) as error_info:
        await checker_of(issuer).principal_with(sign_token(issuer.base))
    assert error_info.value.status == 503


@pytest.mark.requirement("oauth.keys")
@pytest.mark.parametrize("address", ["http://x.example/keys", "file:///etc/passwd", "https://127.0.0.1@x.example/", 1])
async def test_keys_are_fetched_from_no_address_where_others_could_answer(
    issuer: ScriptedIssuer, address: object
) -> None:
    issuer.responses[METADATA]["jwks_uri"] = address
    assert (await refusal(checker_of(issuer), sign_token(issuer.base))).status == 503


@pytest.mark.requirement("oauth.keys")
async def test_the_log_says_that_an_answer_with_keys_is_too_long(
    issuer: ScriptedIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.responses[KEYS] = {"keys": [JWK], "more": "x" * ANSWER_BYTES}
    assert (await refusal(checker_of(issuer), sign_token(issuer.base))).status == 503
    assert f"could not be fetched: it sent a response of more than {ANSWER_BYTES:,} bytes" in caplog.text
