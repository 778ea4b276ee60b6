"""Checks access tokens from the operator's authorization server (the issuer), and returns their principals and rights.

A JWT (RFC 9068) is checked here, with the issuer's published keys. Any other token is sent to the issuer's endpoint for
introspection (RFC 7662). Any client can trigger requests to the issuer, so their rate is bounded: keys are fetched at
most once a minute (every five seconds while there are none), and few introspections run at once. Results are cached for
at most a minute. The module is imported only if the settings name an issuer.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, TypeVar, cast
from urllib.parse import quote, urlsplit

import anyio
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import get_default_algorithms
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls
from pydantic_core import from_json

from server.clients.client_request import Principal, TokenRefusedError
from server.network.outbound_http import ANSWER_BYTES, LongAnswerError, NoJsonAnswerError, fetch_json, is_safe
from server.protocol.json_rpc import Json, as_list, as_mapping
from server.settings import SettingsError
from server.settings.server_models import IssuerSettings
from server.transports.configured_secrets import digest_of, read_secret, rights_for
from tools.permissions.permission_policy import SCOPES, UPSTREAM, Rights

logger = logging.getLogger(__name__)

FETCH_SECONDS = 60.0  # minimum time between two fetches of the keys
FIRST_FETCH_SECONDS = 5.0  # minimum time while there are no keys, because the issuer may start after this server
KEYS_SECONDS = 600.0  # interval at which the keys are refreshed, so that revoked keys are dropped
CACHE_SECONDS = 60.0  # how long the result for a token is cached
MAX_CACHED = 4_096  # maximum number of accepted tokens to cache, and also of rejected tokens
MAX_KEYS = 100  # maximum number of keys that are read
MAX_INTROSPECTIONS = 16  # maximum number of concurrent introspections
SLOT_SECONDS = 5.0  # how long a token waits for a free introspection slot
LEEWAY_SECONDS = 60  # tolerated difference between clocks
LAST_TIME = 1e12  # a later expiry is replaced by this time, which is 30,000 years away
TOKEN_CHARS = 16_384  # a longer token is rejected; the web server's limit on all headers together is about the same
MAX_READABLE_NAME_CHARS = 200  # a longer display name is not shown
SUBJECT_BYTES = 1_000  # maximum length of a token's subject in bytes; OpenID Connect allows 255 characters
LEAST_RSA_BITS = 2_048  # RFC 7518, 3.3
ValueT = TypeVar("ValueT")
_TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
_FAMILIES: Mapping[str, str] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}  # key types by algorithm prefix


@dataclass(frozen=True, slots=True)
class SigningKey:
    algorithm: str  # the only algorithm to use the key with; empty if the key does not name one
    family: str  # the key type of the JWK
    key: Any


class Issuer:
    """Checks access tokens. `secret` is the client secret for introspection; empty without introspection."""

    def __init__(self, settings: IssuerSettings, secret: str = "") -> None:
        self.settings = settings
        base = settings.resource.rstrip("/")
        # If a URL has no path, some issuers end it with a slash, and others do not.
        is_origin = urlsplit(base).path == ""
        self._audience = frozenset((settings.resource, *((base, f"{base}/") if is_origin else ()), *settings.audience))
        self._keys: dict[str, list[SigningKey]] = {}
        self._keys_url = settings.jwks_uri or ""
        self._fetched_at = -math.inf  # time of the last request for keys
        self._has_fetch_failed = False  # whether the last request for keys failed
        self._fetch_lock = anyio.Lock()
        self._slots = anyio.CapacityLimiter(MAX_INTROSPECTIONS)
        # The results of token checks, keyed by the token's digest, each with its expiry
        self._accepted: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._rejected: OrderedDict[bytes, tuple[float, tuple[str, int, str, str]]] = OrderedDict()
        self._token_locks: dict[bytes, anyio.Lock] = {}
        introspection = settings.introspection
        pair = f"{quote(introspection.client_id, safe='')}:{quote(secret, safe='')}"
        self._basic_auth = f"Basic {base64.b64encode(pair.encode()).decode()}"  # RFC 6749, 2.3.1
        self.scopes = settings.scopes or tuple(settings.scope_prefix + scope for scope in SCOPES)
        parts = urlsplit(settings.resource)
        # The path of this server's own metadata on the resource's host (RFC 9728, 3.1)
        self.metadata_path = f"/.well-known/oauth-protected-resource{'' if parts.path == '/' else parts.path}"
        self.metadata_url = f"{parts.scheme}://{parts.netloc}{self.metadata_path}"
        # The metadata for clients. It is not a Pydantic model, which would normalise the URLs.
        self.metadata: Json = {
            "resource": settings.resource,
            "authorization_servers": [settings.issuer],
            "scopes_supported": list(self.scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "coretools-mcp",
        }

    async def principal_with(self, token: str) -> Principal:
        """Return the principal of a token.

        Raises:
            TokenRefusedError: The token is invalid or lacks rights, or the issuer is needed and unavailable.
        """
        digest = digest_of(token)
        if (principal := self._cached_principal(digest)) is not None:
            return principal
        if len(token) > TOKEN_CHARS:
            raise TokenRefusedError("The token is too long.")
        first, *rest = token.split(".", 3)
        header: Any = None  # the parsed first part of a three-part token; an object means a signed JWT
        if len(rest) == 2:
            with suppress(ValueError):
                header = from_json(_decoded_part(first))
        if isinstance(header, dict):
            return self._remember(digest, await self._verify_jwt(token, cast("Json", header)))
        if not self.settings.introspection.url:
            raise TokenRefusedError("The token is not from the issuer.")
        # Many concurrent requests may have the same token. They take turns, so that only the first one has to ask the
        # issuer, and the others find the cached result.
        lock = self._token_locks.setdefault(digest, anyio.Lock())
        try:
            async with lock:
                if (principal := self._cached_principal(digest)) is not None:
                    return principal
                try:
                    return self._remember(digest, await self._introspect(token))
                except TokenRefusedError as refusal:
                    if refusal.code:  # do not cache the result if the issuer is unavailable
                        error_arguments = refusal.sentence, refusal.status, refusal.code, refusal.scope
                        _cache(self._rejected, digest, (time.time() + CACHE_SECONDS, error_arguments))
                    raise
        finally:
            if not lock.statistics().tasks_waiting:
                self._token_locks.pop(digest, None)

    def _cached_principal(self, digest: bytes) -> Principal | None:
        """Return the principal of a token, or raise its refusal, if it was checked within the last minute."""
        now = time.time()
        expiry, principal = self._accepted.get(digest, (0.0, None))
        if now < expiry:
            self._accepted.move_to_end(digest)
            return principal
        expiry, refusal = self._rejected.get(digest, (0.0, None))
        if refusal is not None and now < expiry:
            raise TokenRefusedError(*refusal)
        return None

    def _remember(self, digest: bytes, claims: Json) -> Principal:
        """Check the claims, and cache the result."""
        if not _is_time(claims.get("exp")):
            raise TokenRefusedError("The token does not say when it expires.")
        if "cnf" in claims:
            raise TokenRefusedError(
                "The token is bound to a key, but keys are not checked here, so anybody could replay it."
            )
        # ID tokens and refresh tokens have a valid signature, but are not meant for a resource server.
        if "at_hash" in claims or claims.get("typ") in ("ID", "Refresh", "Offline"):
            raise TokenRefusedError("The token is not an access token.")
        principal = self._principal(claims)
        _cache(self._accepted, digest, (min(claims["exp"], time.time() + CACHE_SECONDS), principal))
        return principal

    async def _verify_jwt(self, token: str, header: Json) -> Json:
        algorithm, kind, kid = header.get("alg"), header.get("typ", ""), header.get("kid", "")
        # Check the algorithm before the key lookup, to reject "none" and shared-secret signatures.
        if algorithm not in self.settings.algorithms:
            raise TokenRefusedError("The token's signature algorithm is not accepted here (http.oauth.algorithms).")
        if not (isinstance(kind, str) and kind.lower() in _TYPES and isinstance(kid, str)):
            raise TokenRefusedError("The token is not an access token.")
        if "crit" in header or "b64" in header:  # RFC 7515, 4.1.11: no extension is supported here
            raise TokenRefusedError("The token is not valid.")
        key = await self._find_key(kid, str(algorithm))
        # The library's decoder is not used: it examines every character, which takes longer than the signature check.
        method = jwt.get_algorithm_by_name(str(algorithm))
        signing_input, _, signature = token.rpartition(".")
        try:
            is_genuine = method.verify(signing_input.encode(), method.prepare_key(key.key), _decoded_part(signature))
            payload: Any = json.loads(_decoded_part(signing_input.partition(".")[2])) if is_genuine else None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            logger.info("a token was rejected (%s)", type(error).__name__)
            raise TokenRefusedError("The token is not valid.") from None
        if not isinstance(payload, dict):
            raise TokenRefusedError("The token is not valid.")
        claims = cast("Json", payload)
        self._check_claims(claims)
        if not all(isinstance(claims.get(name, ""), str) for name in ("sub", "jti")):  # RFC 7519, 4.1.2 and 4.1.7
            raise TokenRefusedError("The token is not valid.")
        return claims

    async def _find_key(self, kid: str, algorithm: str) -> SigningKey:
        key = self._matching_key(kid, algorithm)
        if key is not None and time.monotonic() - self._fetched_at < KEYS_SECONDS:
            return key
        if key is not None and self._fetch_lock.locked():
            return key  # while one request fetches the new keys, others use the old keys
        async with self._fetch_lock:
            if time.monotonic() - self._fetched_at >= (FETCH_SECONDS if self._keys else FIRST_FETCH_SECONDS):
                self._fetched_at = time.monotonic()
                self._has_fetch_failed = True
                try:
                    await self._fetch_keys()
                    self._has_fetch_failed = False
                except (NoJsonAnswerError, LongAnswerError) as error:
                    self._keys_url = self.settings.jwks_uri or ""  # the keys may have moved
                    is_long = isinstance(error, LongAnswerError)
                    reason = f"sent a response of more than {ANSWER_BYTES:,} bytes" if is_long else error
                    logger.warning("the keys of %s could not be fetched: it %s", self.settings.issuer, reason)
            if (key := self._matching_key(kid, algorithm)) is not None:
                return key
            if self._has_fetch_failed:
                raise self._unavailable()
        raise TokenRefusedError("The token is signed with a key that the issuer does not have.")

    def _matching_key(self, kid: str, algorithm: str) -> SigningKey | None:
        """Return the key with this id for an algorithm; without an id, the only suitable one."""
        candidates = self._keys.get(kid, []) if kid else [key for keys in self._keys.values() for key in keys]
        family = _FAMILIES[algorithm[:2]]
        matches = [key for key in candidates if key.family == family and key.algorithm in ("", algorithm)]
        return matches[0] if len(matches) == 1 or (kid and matches) else None

    async def _fetch_keys(self) -> None:
        """Fetch the issuer's current keys. If that fails, the previous keys stay in use."""
        if not self._keys_url:
            for url in build_oauth_authorization_server_metadata_discovery_urls(
                self.settings.issuer, self.settings.issuer
            ):
                status, metadata = await fetch_json(httpx2.Request("GET", url, headers={"accept": "application/json"}))
                address = metadata.get("jwks_uri")
                # The metadata must name the same issuer, byte for byte (RFC 8414, 3.3).
                if status == 200 and metadata.get("issuer") == self.settings.issuer and isinstance(address, str):
                    if not is_safe(address, may_be_local=True):
                        raise NoJsonAnswerError("has a key URL that is not https")
                    self._keys_url = address
                    break
            else:
                raise NoJsonAnswerError("does not identify itself by this name (RFC 8414)")
        status, body = await fetch_json(httpx2.Request("GET", self._keys_url, headers={"accept": "application/json"}))
        jwks: Any = body.get("keys")
        if status != 200 or not isinstance(jwks, list):
            raise NoJsonAnswerError(f"answered without keys (HTTP status {status})")
        keys: dict[str, list[SigningKey]] = {}
        algorithms = get_default_algorithms()
        for jwk in map(as_mapping, as_list(jwks)[:MAX_KEYS]):
            family, algorithm, kid = jwk.get("kty"), jwk.get("alg", ""), jwk.get("kid", "")
            if family not in ("RSA", "EC", "OKP") or jwk.get("use", "sig") != "sig" or "d" in jwk:
                continue
            algorithm_class = next(
                algorithms[name] for name in ("RS256", "ES256", "EdDSA") if _FAMILIES[name[:2]] == family
            )
            try:
                key: Any = algorithm_class.from_jwk(jwk)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                logger.warning("a key of %s is ignored because it cannot be read", self.settings.issuer)
                continue
            if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
                logger.warning("a key of %s is ignored because it is too short", self.settings.issuer)
            elif isinstance(kid, str) and isinstance(algorithm, str):
                keys.setdefault(kid, []).append(SigningKey(algorithm, family, key))
        if not keys:
            raise NoJsonAnswerError("has no usable keys")
        self._keys = keys

    async def _introspect(self, token: str) -> Json:
        introspection = self.settings.introspection
        headers = {"accept": "application/json", "authorization": self._basic_auth}
        form = {"token": token, "token_type_hint": "access_token"}
        try:
            with anyio.fail_after(SLOT_SECONDS):
                await self._slots.acquire()
            try:
                status, body = await fetch_json(httpx2.Request("POST", introspection.url, data=form, headers=headers))
            finally:
                self._slots.release()
        except (NoJsonAnswerError, LongAnswerError, TimeoutError):
            raise self._unavailable() from None
        if status != 200:
            logger.warning("the introspection request to %s was refused (HTTP status %d)", introspection.url, status)
            message = f"{self.settings.issuer} does not let this server check tokens (http.oauth.introspection)"
            raise TokenRefusedError(f"{message}; the operator must fix that.", 503, "")
        if body.get("active") is not True:
            raise TokenRefusedError("The token has expired, or is not from the issuer.")
        self._check_claims({"iss": self.settings.issuer, **body})
        return body

    def _check_claims(self, claims: Json) -> None:
        """Reject claims that are expired, from another issuer, or for another audience."""
        now, expiry = time.time(), claims.get("exp")
        starts = (claims.get("iat", 0), claims.get("nbf", 0))
        audience: Any = claims.get("aud")
        if not (
            audience and _is_time(expiry) and all(_is_time(start) and start <= now + LEEWAY_SECONDS for start in starts)
        ):
            raise TokenRefusedError("The token is not valid.")
        if expiry <= now - LEEWAY_SECONDS:
            raise TokenRefusedError("The token has expired.")
        if claims.get("iss") != self.settings.issuer:
            raise TokenRefusedError(
                f"The token is from another issuer, not from {self.settings.issuer} (claim iss; http.oauth.issuer)."
            )
        audiences = cast("list[Any]", audience) if isinstance(audience, list) else [audience]
        if not all(isinstance(member, str) for member in audiences) or self._audience.isdisjoint(audiences):
            resource = self.settings.resource
            raise TokenRefusedError(
                f"The token is for another audience: its aud claim must contain {resource} (http.oauth.resource, "
                "http.oauth.audience)."
            )

    def _unavailable(self) -> TokenRefusedError:
        return TokenRefusedError(
            f"{self.settings.issuer}, which is needed to check the token, does not answer. Try again.", 503, ""
        )

    def _insufficient_scope(self, sentence: str) -> TokenRefusedError:
        scope = " ".join(self.settings.required_scopes or self.scopes)
        return TokenRefusedError(sentence, 403, "insufficient_scope", scope)

    def _principal(self, claims: Json) -> Principal:
        settings = self.settings
        subject = claims.get("sub")
        client = next((claims[key] for key in ("client_id", "azp", "appid") if key in claims), "")
        if not (isinstance(subject, str | None) and isinstance(client, str) and (subject or client)):
            raise TokenRefusedError("The token has no subject.")
        try:
            size = max(len((subject or "").encode()), len(client.encode()))
        except UnicodeEncodeError:
            size = math.inf
        if size > SUBJECT_BYTES:
            raise TokenRefusedError("The token's subject is not a usable string.")
        token_scopes: set[str] = set()
        for claim in settings.scope_claims:  # the value is a string of scopes or an array of scopes
            value = claims.get(claim)
            words = value.split() if isinstance(value, str) else as_list(value)
            token_scopes.update(word for word in words if isinstance(word, str))
        if missing := [scope for scope in settings.required_scopes if scope not in token_scopes]:
            raise self._insufficient_scope(
                f"The token lacks the scope{'s' if missing[1:] else ''} {' '.join(missing)}."
            )
        unprefixed = {
            scope.removeprefix(settings.scope_prefix)
            for scope in token_scopes
            if scope.startswith(settings.scope_prefix)
        }
        scopes = frozenset(scope for scope in unprefixed if scope in SCOPES or scope.startswith(UPSTREAM)) or frozenset(
            settings.default_scopes
        )
        if not scopes:
            raise self._insufficient_scope("The token has none of the scopes that this server uses.")
        # The name contains the issuer, so it cannot equal the name of a token in the settings.
        name = f"{settings.issuer} {subject}" if subject else f"program {client} of {settings.issuer}"
        # Claims that users can rarely choose are tried first (OIDC, RFC 7662).
        email_verified, keys = claims.get("email_verified", True), ["preferred_username", "username", "name"]
        if email_verified is True or email_verified == "true":  # some issuers write the value as a string
            keys.insert(0, "email")
        readable_names = (
            value.strip()
            for value in map(claims.get, keys)
            if isinstance(value, str) and 0 < len(value.strip()) <= MAX_READABLE_NAME_CHARS
        )
        own = settings.principals.get(subject or "")
        rights = rights_for(f"http.oauth.principals.{subject}", own) if own is not None else Rights("http.oauth")
        return Principal(
            name,
            replace(rights, scopes=scopes, prefix=settings.scope_prefix),
            client_id=client or name,
            issuer=settings.issuer,
            subject=subject,
            readable_name=next(readable_names, ""),
            ends=float(min(claims["exp"] + LEEWAY_SECONDS, LAST_TIME)),
        )


def read_issuer(settings: IssuerSettings, environment: Mapping[str, str]) -> Issuer:
    """Read the issuer from the settings; raises `SettingsError` with all problems of these settings."""
    problems: list[str] = []
    introspection = settings.introspection
    addresses = {"issuer": settings.issuer, "jwksUri": settings.jwks_uri}
    if introspection.url:
        addresses["introspection.url"] = introspection.url
    for key, address in addresses.items():
        if address is not None and not is_safe(address, may_be_local=True):
            requirement = "must be an https address, or one on this machine, with nothing but a host and a path"
            problems.append(f"http.oauth.{key} '{address}' {requirement}.")
    parts = urlsplit(settings.resource)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
        or not settings.resource.isascii()  # the resource appears in headers
    ):
        requirement = "must be the address that clients use for /mcp, such as https://tools.example.com/mcp"
        problems.append(f"http.oauth.resource '{settings.resource}' {requirement}.")
    unknown_scopes = [
        scope for scope in settings.default_scopes if scope not in SCOPES and not scope.startswith(UPSTREAM)
    ]
    if unknown_scopes:
        problems.append(
            f"http.oauth.defaultScopes contains {', '.join(map(repr, unknown_scopes))}; the known scopes are "
            f"{', '.join(SCOPES)} and {UPSTREAM}ALIAS."
        )
    secret = ""
    if introspection.url:
        if not introspection.client_id:
            problems.append("http.oauth.introspection.clientId is missing: this server's client id at the issuer.")
        try:
            secret = read_secret("http.oauth.introspection", introspection.file, introspection.env, environment)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise SettingsError(problems)
    return Issuer(settings, secret)


def _cache(table: OrderedDict[bytes, ValueT], digest: bytes, value: ValueT) -> None:
    table[digest] = value
    table.move_to_end(digest)
    if len(table) > MAX_CACHED:
        table.popitem(last=False)


def _decoded_part(part: str) -> bytes:
    """Decode a part of a JWT; raises `ValueError` unless it has the canonical encoding (RFC 7515, 2)."""
    data = base64.urlsafe_b64decode(f"{part}==")
    if base64.urlsafe_b64encode(data).rstrip(b"=") != part.encode():
        raise ValueError("not base64url")
    return data


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
