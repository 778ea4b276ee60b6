"""The login of one principal to one upstream: getting tokens, renewing them, and asking a person to log in.

A person's login runs in a task of its own, so it continues even if the request that needs it is cancelled. One process
renews a token or logs in, and the others use the result: a refresh token that is used twice looks stolen, so the
authorization server would revoke it and all tokens from it (RFC 9700, 4.14.2).
"""

from __future__ import annotations

import logging
import secrets
import shlex
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import AnyUrl, TypeAdapter, ValidationError

from server.settings.server_models import OAuthSettings
from server.store.replica import Replica
from server.upstreams.login.authorization_server import (
    FORGOTTEN,
    AuthorizationRequest,
    AuthorizationServer,
    AuthorizationServerClient,
    AuthorizationServerDownError,
    configured_client,
    error_code,
    error_text,
    is_same_issuer,
    may_be_reused,
    wanted_scopes,
)
from server.upstreams.login.login_storage import (
    FileLogins,
    LoginStore,
    LoginsUnavailableError,
    Release,
    StoredLogin,
    TokenStore,
    TokenStoreError,
    key_of,
)
from server.upstreams.login.redirect_listener import MAX_PARAMETERS, CallbackListener, PortTakenError, Redirect
from server.upstreams.wire.json_rpc_channel import Challenge, LoginError
from tools.contract.display import visible_line
from tools.contract.tool_errors import ExhaustedError

if TYPE_CHECKING:
    from server.upstreams.login.connect_pages import ConnectPages

logger = logging.getLogger(__name__)

LOGIN_SECONDS = 300.0  # time limit for a person to log in (as in FastMCP)
# A token is renewed this long before it expires, but not before four fifths of its lifetime have passed.
EARLY_SECONDS = 30.0
TURN_SECONDS = 30.0  # how long another process may take to renew a token
RENEW_SECONDS = 15.0  # time limit for a renewal, which continues if its call is cancelled, so that no token is lost
POLL_SECONDS = 0.1  # how often to check whether another process has finished
WATCH_SECONDS = 1.0  # how often to check for a login by another process while a person is logging in
RENEWAL_PAUSE_SECONDS = 10.0  # a token rejected this soon after its renewal is not renewed again
CHECK_SECONDS = 10.0  # how often to check whether a login in use has been removed or replaced

StoredT = TypeVar("StoredT")


class LoginStoreUnavailableError(LoginError):
    """The store with the login is unavailable, so the login cannot be read or changed."""

    def __init__(self) -> None:
        super().__init__(
            "the store that the replicas of this server share is unavailable (store.url), so no login can be read, "
            "created, renewed or removed. The stored logins are not affected: try again a little later"
        )


class LoginBusyError(LoginError):
    """Another process has held the login's lock for too long, so the login was not changed."""

    def __init__(self) -> None:
        super().__init__("another process has been renewing this login for too long")


@dataclass(eq=False, slots=True)
class LoginAttempt:
    request: AuthorizationRequest
    redirect: Redirect
    current_address: Callable[[], str]  # returns the address at which the person starts the login
    name: str = field(default_factory=lambda: secrets.token_hex(12))  # identifies the attempt
    done: anyio.Event = field(default_factory=anyio.Event)
    problem: str = "this server has exited"  # why the login failed, once it is done; empty on success
    is_forgotten: bool = False  # whether the login failed because the authorization server has forgotten this client
    # For each call that asks a person to log in, or waits for the login after consent: the client's connection (`None`
    # in the 2026-07-28 revision) and the address in the question
    askers: list[tuple[object, str]] = field(default_factory=list[tuple[object, str]])
    wait: anyio.CancelScope = field(default_factory=anyio.CancelScope)  # the wait for the redirect
    ended_at: float | None = None  # when the attempt finished, by the monotonic clock
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def is_over_for(self, newer: LoginAttempt) -> bool:
        """Return whether this attempt's result is no longer needed, now that there is another attempt."""
        # After this time, a client that needs the result would have called again.
        is_stale = self.ended_at is not None and time.monotonic() > self.ended_at + LOGIN_SECONDS
        has_failed = self.done.is_set() and bool(self.problem)
        return is_stale or (has_failed and self.redirect.login == newer.redirect.login)

    def wait_longer(self) -> None:
        """Restart the time limit, because everyone who gets the address is given the whole time."""
        if not self.wait.cancel_called:
            self.wait.deadline = anyio.current_time() + LOGIN_SECONDS

    def give_up(self, reason: str = "it was given up") -> None:
        if not self.done.is_set():
            self.problem = reason
            self.scope.cancel()

    def expire(self, seconds: float) -> None:
        """Stop waiting for the redirect, as at the end of the time limit, if it was restarted over `seconds` ago."""
        is_awaited = self.wait.deadline > anyio.current_time() + LOGIN_SECONDS - seconds
        if not (is_awaited or self.redirect.arrived.is_set()):
            self.wait.deadline = anyio.current_time()

    def paste(self, address: str) -> None:
        """Accept the redirect's address, pasted by a person. Raises a `ValueError` unless it is from this login."""
        parts = urlsplit(address.strip())
        parameters = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS))
        is_redirect = f"{parts.scheme}://{parts.netloc}{parts.path}" == self.request.redirect_uri
        if not is_redirect or parameters.get("state") != self.request.state:
            raise ValueError("not a redirect of this login")
        self.redirect.parameters = parameters
        self.redirect.arrived.set()


def login_store(replica: Replica, state_folder: str | None, storage: Literal["file", "keyring"]) -> LoginStore | None:
    """Return the storage that replicas share, if the replica has a store and keys; otherwise this machine's storage.

    Returns `None` if replicas share no storage and there is no state folder on this machine.
    """
    if not replica.shares_secrets:
        return None if state_folder is None else FileLogins(TokenStore(state_folder, storage))
    from server.upstreams.login.shared_logins import SharedLogins  # noqa: PLC0415 - needed only with replicas

    return SharedLogins(replica)


class Login:
    """The login of one principal to one upstream.

    `principal` is empty for this machine's user. Redirects go to `pages` if given, or else to this machine: to the
    `callback_port` of `oauth`, or else to `port`. `options` are the command-line options with which `coretools-mcp
    login` uses the same settings.
    """

    def __init__(
        self,
        store: LoginStore,
        alias: str,
        url: str,
        oauth: OAuthSettings,
        principal: str,
        port: int,
        options: str = "",
        pages: ConnectPages | None = None,
        *,
        by_proxy: bool = True,
    ) -> None:
        self.alias = alias
        self.principal = principal
        self.oauth = oauth
        self.challenge: Challenge | None = None  # the server's latest challenge
        self.is_unsaved = False  # whether this process has a login that could not be stored
        self._options = options
        self._store = store
        self._resource = resource_url_from_server_url(url)
        self._port = oauth.callback_port or port
        self._pages = pages
        self._servers = AuthorizationServerClient(url, oauth, by_proxy)
        self._record: StoredLogin | None = None
        self._stamp: object | None = None
        self._checked_at = time.monotonic()
        self._is_read = False
        self._has_new_login = False  # whether another process has logged in since a person was last asked
        self._writes = 0  # number of writes by this process
        self._renewal_lock, self._begin_lock = anyio.Lock(), anyio.Lock()
        self._renewed_at = float("-inf")  # when the latest token arrived, by the monotonic clock
        self._attempt: LoginAttempt | None = None
        self._doubtful_client: str | None = None  # the client of a login that brought no redirect
        self._closed = ""  # why no more logins can be opened; empty if they can

    @property
    def needs_person(self) -> bool:
        return self.oauth.grant == "authorization-code"

    @property
    def command(self) -> str:
        return f"coretools-mcp login {self._command_arguments}"

    @property
    def _command_arguments(self) -> str:
        principal_option = f" --as {shlex.quote(self.principal)}" if self.principal else ""
        return f"{self.alias}{principal_option}{self._options}"

    @property
    def digest(self) -> str:
        """Identifies the login to other processes."""
        return key_of(self._resource, self.principal)

    async def header(self) -> str | None:
        """Return the `Authorization` header; `None` without a token. Raises a `LoginError` if the login is unusable."""
        record = self._record
        if record is None or record.token is None:
            if not self._is_read or await self.has_changed():
                try:
                    await self._read()
                except LoginStoreUnavailableError:
                    if not self.needs_person:
                        raise
                    return None  # the server might not need a login
            record = self._record
            if record is None or record.token is None:
                return None if self.needs_person else await self.renew(None)
        if _is_old(record):
            return await self.renew(_header_of(record))
        if time.monotonic() > self._checked_at + CHECK_SECONDS:  # the login may have been removed or replaced
            self._checked_at = time.monotonic()
            if await self.has_changed():
                try:
                    await self._read()
                except LoginStoreUnavailableError:
                    return _header_of(record)
                return await self.header()
        return _header_of(record)

    async def renew(self, old_header: str | None) -> str | None:
        """Return a new `Authorization` header, because `old_header` has expired or was rejected.

        Returns `None` if a person must log in. Raises a `LoginError` if no header is available now.
        """
        async with self._renewal_lock:
            if (header := _fresh_header(self._record, old_header)) is not None:
                return header  # another call has renewed it
            async with self._lock():
                # A cancelled call must not lose the result of a renewal.
                with anyio.move_on_after(RENEW_SECONDS, shield=True):
                    return await self._renew_locked(old_header)
            raise AuthorizationServerDownError("its authorization server took too long")

    async def _renew_locked(self, old_header: str | None) -> str | None:
        record = await self._read()
        if (header := _fresh_header(record, old_header)) is not None:
            return header  # another process has renewed it
        if time.monotonic() < self._renewed_at + RENEWAL_PAUSE_SECONDS and (record is None or not _is_old(record)):
            return None
        if not self.needs_person:
            return await self._renew_for_program(record)
        if record is None or record.token is None or record.token.get("refresh_token") is None:
            return None
        server, old_token = _server_of(record), record.token
        client = self._client_of(record, server)
        try:
            await self._claim_issuer(server, record)
            token = await self._servers.refresh(server, client, OAuthToken.model_validate(old_token))
        except (AuthorizationServerDownError, LoginStoreUnavailableError):
            raise
        except LoginError as error:
            logger.warning("the login to %s could not be renewed: %s", self.alias, error.reason)
            if error.code in FORGOTTEN:
                await self._write(replace(record, token=None, expires_at=None, client={}))
            elif error.code == "invalid_grant":
                await self._write(replace(record, token=None, expires_at=None))
            return None
        return await self._use_token(record, token, old_token.get(_REQUESTED_SCOPES))

    async def _renew_for_program(self, record: StoredLogin | None) -> str:
        is_known = record is not None and is_same_issuer(record.issuer, self.oauth.issuer or record.issuer)
        if record is None or not is_known or self.challenge is not None:
            server = await self._servers.discover(self.challenge)
        else:
            server = _server_of(record)
        await self._claim_issuer(server, record)
        previous_scopes = record.scopes if record is not None and is_same_issuer(record.issuer, server.issuer) else None
        scopes = wanted_scopes(server, self.oauth, self.challenge, previous_scopes)
        if (client := configured_client(server, self.oauth)) is None:
            raise LoginError("oauth.clientId is missing; set it to the client id that the authorization server issued")
        token = await self._servers.client_credentials(server, client, scopes)
        return await self._use_token(self._record_for(server, client, scopes, None), token, scopes)

    async def _use_token(self, record: StoredLogin, token: OAuthToken, requested_scopes: str | None) -> str:
        """Start to use a token that was requested with `requested_scopes`. Returns its `Authorization` header."""
        lifetime = token.expires_in or 0
        # Without a lifetime, the token is used until it is rejected.
        expires_at = time.time() + lifetime if lifetime > 0 else None
        as_json = {**token.model_dump(mode="json", exclude_none=True), _REQUESTED_SCOPES: requested_scopes}
        self._renewed_at = time.monotonic()
        self.challenge = None
        await self._write(replace(record, alias=self.alias, token=as_json, expires_at=expires_at))
        return f"Bearer {token.access_token}"

    def wants_more(self, challenge: Challenge) -> bool:
        """Return whether a new login that requests more scopes could satisfy a server that requires them."""
        if self.oauth.scopes is not None:
            return False
        challenge_scopes, token = challenge.parameter("scope"), self._record.token if self._record is not None else None
        if challenge_scopes is None or token is None:
            return time.monotonic() > self._renewed_at + RENEWAL_PAUSE_SECONDS
        return not set(challenge_scopes.split()) <= set((token.get(_REQUESTED_SCOPES) or "").split())

    async def has_changed(self) -> bool:
        """Return whether another process is known to have changed the login since this process last read it."""
        try:
            return await self._store.stamp(self._resource, self.principal) != self._stamp
        except (LoginsUnavailableError, ExhaustedError):
            return False

    def close(self, reason: str) -> None:
        """Abort a login that is in progress or being prepared, and refuse to open further ones."""
        self._closed = reason
        if self._attempt is not None:
            self._attempt.give_up(reason)

    def _check_open(self) -> None:
        if self._closed:
            raise LoginError(self._closed)

    @property
    def latest_header(self) -> str | None:
        """The latest known `Authorization` header, even if the upstream rejects it; `None` without a token."""
        return _header_of(self._record)

    async def stored_header(self) -> str | None:
        """Return the stored `Authorization` header, if any. May raise a `LoginStoreUnavailableError`."""
        return _header_of(await self._read_usable())

    async def begin(
        self,
        tasks: TaskGroup,
        old_header: str | None,
        on_wait: Callable[[str], object] = lambda _: None,
        readable_name: str = "",
    ) -> LoginAttempt | None:
        """Open a login for a person. Returns `None` if another process has logged in, so `old_header` is outdated.

        While another process uses the same port for a login, this method waits and calls `on_wait` with the reason.
        `readable_name` is the principal's display name. Raises a `LoginError` if the login cannot be opened.
        """
        async with self._begin_lock:
            if self._attempt is not None and not self._attempt.done.is_set():
                if not self._attempt.wait.cancel_called:
                    return self._attempt
                await self._attempt.done.wait()  # its time is over
            deadline = anyio.current_time() + LOGIN_SECONDS
            while True:
                self._check_open()
                try:
                    name = f"login to {self.alias}"
                    self._attempt = await tasks.start(self._run, old_header, readable_name, name=name)
                except PortTakenError as error:
                    if error.logins is None:
                        raise LoginError(
                            f"the port {self._port}, which the browser's redirect needs, is in use by another "
                            "program, or this user may not listen on it: free the port, or set another one with "
                            "oauth.callbackPort or proxy.loginPort"
                        ) from None
                    text = f"login is open in another process; waiting up to {LOGIN_SECONDS / 60:g} minutes for its end"
                    hint = f". To end it, run coretools-mcp logout {self._command_arguments} in another terminal"
                    on_wait(f"this {text}{hint}" if self.digest in error.logins else f"another {text}")
                else:
                    return self._attempt
                if anyio.current_time() > deadline:
                    raise LoginError("a login is open in another process and was not completed in time")
                await anyio.sleep(POLL_SECONDS)
                if await self.has_changed() and _header_of(await self._read_usable()) not in (None, old_header):
                    return None

    async def _run(
        self, old_header: str | None, readable_name: str, *, task_status: TaskStatus[LoginAttempt | None]
    ) -> None:
        """Open a login, and wait up to `LOGIN_SECONDS` for the redirect to the callback port or this server's pages."""
        attempt: LoginAttempt | None = None
        try:
            listening = CallbackListener.at(self._port) if self._pages is None else nullcontext(self._pages)
            async with listening as listener:
                record = await self._read_usable()
                if _header_of(record) not in (None, old_header):
                    task_status.started(None)  # another process was faster
                    return
                self._has_new_login = False
                server = await self._servers.discover(self.challenge)
                self._servers.check_pkce(server)
                await self._claim_issuer(server, record)
                stored_record = record
                if record is not None and not is_same_issuer(record.issuer, server.issuer):
                    record = None  # data from one authorization server does not apply to another
                scopes = wanted_scopes(server, self.oauth, self.challenge, None if record is None else record.scopes)
                client = configured_client(server, self.oauth)
                if client is None and record is not None and record.client:
                    client = await self._reusable_client(server, record, listener.uri, scopes)
                self._check_open()
                if client is None:
                    client = await self._servers.register(server, listener.uri, scopes)
                    client.redirect_uris = client.redirect_uris or [AnyUrl(listener.uri)]
                prefix = listener.state_prefix
                request = self._servers.authorization_request(server, client, listener.uri, scopes, prefix)
                record = self._record_for(server, client, scopes, record)
                # An existing login, with its registration, stays valid until the new login is done.
                if stored_record is None or stored_record.token is None:
                    await self._write(record)
                redirect = Redirect(self.digest, request.url, self.alias, self.principal, readable_name)
                async with listener.expect(redirect, request.state) as address:
                    self._check_open()
                    self._attempt = attempt = LoginAttempt(request, redirect, address)
                    task_status.started(attempt)
                    with attempt.scope:
                        attempt.problem = await self._finish(attempt, server, client, record, old_header)
                    success_text = f"You are logged in to {self.alias}. You can close this window."
                    retry_hint = "To try again, repeat what led you here."
                    failure_text = f"The login to {self.alias} failed: {attempt.problem}. {retry_hint}"
                    redirect.page = failure_text if attempt.problem else success_text
        except PortTakenError:
            raise
        except Exception as error:
            if attempt is None and isinstance(error, ExhaustedError):
                raise
            if not isinstance(error, LoginError):
                logger.error("a login to %s ended unexpectedly (%s)", self.alias, type(error).__name__)  # noqa: TRY400
                error = LoginError("it could not be continued")
            if attempt is None:
                raise error from None
            attempt.problem = error.reason
        finally:
            if attempt is not None:
                attempt.ended_at = time.monotonic()
                attempt.done.set()

    async def _reusable_client(
        self, server: AuthorizationServer, record: StoredLogin, uri: str, scopes: str | None
    ) -> OAuthClientInformationFull | None:
        """Return the stored registration; `None` if it does not fit, or if the server has probably forgotten it."""
        client = OAuthClientInformationFull.model_validate(record.client)
        if client.client_id == self._doubtful_client or not may_be_reused(client, uri, scopes):
            return None
        # A client without a token is removed once its login brings no redirect.
        return client if record.token is None or await self._servers.is_registered(server, client) else None

    async def _finish(
        self,
        attempt: LoginAttempt,
        server: AuthorizationServer,
        client: OAuthClientInformationFull,
        record: StoredLogin,
        old_header: str | None,
    ) -> str:
        """Wait for the redirect and redeem the code, or for another process's login. Returns the problem, if any."""
        was_stored = self._stamp is not None
        try:
            with anyio.fail_after(LOGIN_SECONDS) as attempt.wait:
                while not attempt.redirect.arrived.is_set():
                    with anyio.move_on_after(WATCH_SECONDS):
                        await attempt.redirect.arrived.wait()
                    if not attempt.redirect.arrived.is_set() and await self._is_made_elsewhere(old_header):
                        return ""
                    if was_stored and self._record is None and self._stamp is None:
                        return f"it was ended by coretools-mcp logout {self._command_arguments}"
            code = _code_of(attempt.redirect.parameters, server)
            async with self._lock():
                # A code works only once, so the response must not be lost.
                with anyio.move_on_after(RENEW_SECONDS, shield=True) as scope:
                    token = await self._servers.redeem(server, client, attempt.request, code)
                    await self._use_token(record, token, record.scopes)
        except TimeoutError:
            # Perhaps the authorization server has forgotten this client and has shown the person an error.
            self._doubtful_client = client.client_id
            await self._remove_client(client, is_certain=False)
            return f"there was no redirect from {server.host} in time"
        except LoginError as error:
            if error.code in FORGOTTEN:
                await self._remove_client(client, is_certain=True)
                attempt.is_forgotten = True
            elif error.code == "invalid_scope":
                await self._set_scopes(lambda _: None)
            return error.reason
        return f"{server.label} took too long" if scope.cancelled_caught else ""

    def _client_of(self, record: StoredLogin, server: AuthorizationServer) -> OAuthClientInformationFull:
        """Return the client of a stored login, with the secret from the settings, if any."""
        stored_client = OAuthClientInformationFull.model_validate(record.client)
        settings_client = configured_client(server, self.oauth)
        is_same = settings_client is not None and settings_client.client_id == stored_client.client_id
        return settings_client if settings_client is not None and is_same else stored_client

    async def _claim_issuer(self, server: AuthorizationServer, record: StoredLogin | None) -> None:
        """Check an authorization server before it gets the client's secret: an upstream could name any server.

        `oauth.issuer` decides. Without it, only the first authorization server is accepted for this upstream and
        client, for all principals, even after a logout.
        """
        client_id, issuer = self.oauth.client_id, self.oauth.issuer
        if client_id is None or issuer is not None:
            self._check_issuer(server, issuer)
            if client_id is not None:
                await self._keep_issuer(client_id, server.issuer)
            return
        if await self._from_store(self._store.issuer_of(self._resource, client_id)) == server.issuer:
            return
        async with self._lock(f"\0{client_id}"):
            known_issuer = await self._from_store(self._store.issuer_of(self._resource, client_id))
            self._check_issuer(server, known_issuer or (record.issuer if record is not None else None))
            await self._keep_issuer(client_id, server.issuer)

    def _check_issuer(self, server: AuthorizationServer, expected: str | None) -> None:
        if expected is not None and not is_same_issuer(server.issuer, expected):
            raise LoginError(
                f"the authorization server {visible_line(server.issuer)} cannot be used, because the login belongs to "
                f"{visible_line(expected)}. If that server has moved, set oauth.issuer to its new address, and log in "
                "again"
            )

    async def _keep_issuer(self, client_id: str, issuer: str) -> None:
        try:
            await self._store.set_issuer(self._resource, client_id, issuer)
        except LoginsUnavailableError:
            raise LoginStoreUnavailableError from None
        except TokenStoreError as error:
            logger.warning(
                "the authorization server of %s is known only until this server exits: %s", self.alias, error
            )

    def _record_for(
        self,
        server: AuthorizationServer,
        client: OAuthClientInformationFull,
        scopes: str | None,
        old_record: StoredLogin | None,
    ) -> StoredLogin:
        """Return the record to store for a login, without a secret from the settings."""
        secret = {"client_secret"} if configured_client(server, self.oauth) is not None else set[str]()
        return StoredLogin(
            resource=self._resource,
            principal=self.principal,
            alias=self.alias,
            issuer=server.issuer,
            metadata={**server.metadata.model_dump(mode="json", exclude_none=True), _RESOURCE: server.resource},
            client=client.model_dump(mode="json", exclude_none=True, exclude=secret),
            scopes=scopes,
            token=old_record.token if old_record is not None else None,
            expires_at=old_record.expires_at if old_record is not None else None,
        )

    async def is_complete(self) -> bool:
        """Return whether there is a usable login with all the scopes that calls have needed."""
        try:
            header, record = await self.header(), self._record
        except LoginError as error:
            logger.info("the login to %s cannot be used: %s", self.alias, error.reason)
            return False
        return header is not None and _has_all_scopes(record)

    async def _is_made_elsewhere(self, old_header: str | None) -> bool:
        """Return whether another process has written a new token with all needed scopes.

        A new token counts even if this process has already read it from storage for a call. A token that this
        process itself renewed does not count.
        """
        if await self.has_changed():
            with suppress(LoginStoreUnavailableError, ExhaustedError):
                await self._read_usable()
        record = self._record
        return self._has_new_login and _header_of(record) not in (None, old_header) and _has_all_scopes(record)

    async def end(self) -> bool:
        """Forget the login, even an unreadable one. Returns whether there was one.

        Raises a `TokenStoreError`, `LoginStoreUnavailableError` or `LoginBusyError` if the login stays. After any other
        `LoginError`, the login is forgotten here, but its tokens stay valid at the authorization server.
        """
        async with self._lock():  # otherwise a concurrent renewal in another process would restore a token
            record = await self._read_usable()
            try:
                is_removed = await self._store.remove(self._resource, self.principal)
            except LoginsUnavailableError:
                raise LoginStoreUnavailableError from None
        if record is not None and record.token is not None:
            server = _server_of(record)
            client = self._client_of(record, server)
            try:
                await self._claim_issuer(server, record)
            except LoginStoreUnavailableError:  # the login is already removed
                raise LoginError("the store (store.url) became unavailable first") from None
            except LoginBusyError as error:
                raise LoginError(error.reason) from None
            await self._servers.revoke(server, client, OAuthToken.model_validate(record.token))
        return is_removed

    async def _remove_client(self, client: OAuthClientInformationFull, *, is_certain: bool) -> None:
        """Remove a client that the authorization server has forgotten; if it has tokens, only if `is_certain`."""
        async with self._lock():
            record = await self._read_usable()
            is_same_client = record is not None and record.client.get("client_id") == client.client_id
            if record is not None and is_same_client and (is_certain or record.token is None):
                await self._write(replace(record, client={}, token=None, expires_at=None))

    async def has_ended(self) -> bool:
        """Return whether another process has removed the login that this process uses."""
        if _header_of(self._record) is None or not await self.has_changed():
            return False
        with suppress(LoginStoreUnavailableError, ExhaustedError):
            return _header_of(await self._read_usable()) is None
        return False

    async def is_renewed_elsewhere(self) -> bool:
        """Return whether another process has stored a new token; if so, use it from now on."""
        old_header = _header_of(self._record)
        return await self.has_changed() and _header_of(await self._read_usable()) not in (None, old_header)

    async def remember_scopes(self, challenge: Challenge) -> None:
        """Make the next login also request the challenge's scopes, even if another process opens that login."""
        challenge_scopes = challenge.parameter("scope")
        if challenge_scopes is None:
            return
        with suppress(LoginError):  # if this fails, the next login still requests the scopes in its own challenge
            await self._set_scopes(
                lambda old_scopes: " ".join(dict.fromkeys([*(old_scopes or "").split(), *challenge_scopes.split()]))
            )

    async def _set_scopes(self, scopes: Callable[[str | None], str | None]) -> None:
        # `_write` also writes the token. Without the lock, this could overwrite a token that another process has just
        # renewed.
        async with self._lock():
            record = await self._read_usable()
            if record is not None:
                await self._write(replace(record, scopes=scopes(record.scopes)))

    @asynccontextmanager
    async def _lock(self, owner: str | None = None) -> AsyncGenerator[None]:
        """Lock this login, so that no other process renews it; with `owner`, take that owner's lock instead."""
        owner = self.principal if owner is None else owner
        deadline = anyio.current_time() + TURN_SECONDS
        release: Release | None = None
        while release is None:
            try:
                with anyio.CancelScope(shield=True):  # a cancellation could otherwise leave the lock held
                    release = await self._store.lock(self._resource, owner)
            except LoginsUnavailableError:
                raise LoginStoreUnavailableError from None
            except TokenStoreError as error:
                # Without a folder for locks, as in a read-only container, no other process can use this login.
                logger.info("a login cannot be locked against other processes: %s", error)
                break
            if release is None:
                if anyio.current_time() > deadline:
                    raise LoginBusyError
                await anyio.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            if release is not None:
                with anyio.CancelScope(shield=True):
                    await release()

    async def _read(self) -> StoredLogin | None:
        stamp = await self._from_store(self._store.stamp(self._resource, self.principal))
        if self.is_unsaved and stamp == self._stamp:
            return self._record
        self._stamp, self.is_unsaved = stamp, False
        writes = self._writes
        try:
            record = await self._from_store(self._store.read(self._resource, self.principal))
        except (LoginStoreUnavailableError, ExhaustedError, anyio.get_cancelled_exc_class()):
            self._stamp = object()  # forces the record to be read again
            raise
        if writes != self._writes:
            return self._record  # a record written in the meantime is newer
        self._is_read = True
        try:
            if record is not None and (record.client or record.token is not None):
                OAuthClientInformationFull.model_validate(record.client)
            if record is not None and record.token is not None:
                OAuthToken.model_validate(record.token)
                OAuthMetadata.model_validate(record.metadata)
                texts = [record.token.get(_REQUESTED_SCOPES), record.metadata.get(_RESOURCE)]
                _TEXTS.validate_python(texts, strict=True)
        except ValidationError:
            raise LoginError(f"the stored login is damaged; run {self.command} to create a new one") from None
        client_id = self.oauth.client_id
        if record is not None and client_id is not None and record.client.get("client_id") != client_id:
            record = None  # its tokens were issued to another client
        if _header_of(record) not in (None, _header_of(self._record)):
            self._has_new_login = True
        self._record = record
        return record

    async def _read_usable(self) -> StoredLogin | None:
        """Return the stored login; `None` if it is missing or unreadable. May raise a `LoginStoreUnavailableError`."""
        try:
            return await self._read()
        except LoginStoreUnavailableError:
            raise
        except LoginError as error:
            logger.warning("the stored login to %s cannot be used: %s", self.alias, error.reason)
            return None

    async def _write(self, record: StoredLogin) -> None:
        """Store a record. If storing fails, the record still applies in this process."""
        self._record, self.is_unsaved = record, False
        self._writes += 1
        try:
            if await self._store.write(record) is None:
                # Somebody has logged in or out in the meantime, which takes precedence.
                with suppress(LoginError):
                    await self._read()
                return
        except LoginsUnavailableError:
            self.is_unsaved = True
            logger.warning("the login to %s will be stored once the store (store.url) is available", self.alias)
            return
        except TokenStoreError as error:
            self.is_unsaved = True
            logger.error("the login to %s is valid only until this server exits: %s", self.alias, error)  # noqa: TRY400
        with suppress(LoginsUnavailableError):
            self._stamp = await self._store.stamp(self._resource, self.principal)

    async def _from_store(self, work: Awaitable[StoredT]) -> StoredT:
        try:
            return await work
        except LoginsUnavailableError:
            raise LoginStoreUnavailableError from None
        except TokenStoreError as error:
            raise LoginError(str(error).rstrip(".").replace("ALIAS", self._command_arguments)) from None


_TEXTS = TypeAdapter(list[str | None])
_REQUESTED_SCOPES = "coretools-mcp/asked"  # stored with a token: the requested scopes
_RESOURCE = "coretools-mcp/resource"  # stored with the metadata: the upstream's resource identifier for token requests


def _server_of(record: StoredLogin) -> AuthorizationServer:
    resource = record.metadata.get(_RESOURCE)
    return AuthorizationServer(record.issuer, OAuthMetadata.model_validate(record.metadata), resource)


def _has_all_scopes(record: StoredLogin | None) -> bool:
    if record is None or record.token is None:
        return False
    return set((record.scopes or "").split()) <= set((record.token.get(_REQUESTED_SCOPES) or "").split())


def _header_of(record: StoredLogin | None) -> str | None:
    return None if record is None or record.token is None else f"Bearer {record.token.get('access_token')}"


def _fresh_header(record: StoredLogin | None, old_header: str | None) -> str | None:
    """Return the header of an unexpired login, if it differs from the one already used."""
    header = _header_of(record)
    return header if record is not None and not _is_old(record) and header != old_header else None


def _is_old(record: StoredLogin) -> bool:
    """Return whether a token has expired, or may expire before a response arrives."""
    if record.expires_at is None or record.token is None:
        return False
    lifetime = record.token.get("expires_in")
    early = min(EARLY_SECONDS, lifetime / 5) if isinstance(lifetime, int) else EARLY_SECONDS
    return record.expires_at - early <= time.time()


def _code_of(parameters: Mapping[str, str], server: AuthorizationServer) -> str:
    """Return the code of a redirect, after comparing the issuer character by character (RFC 9207, 2.4)."""
    issuer = parameters.get("iss")
    if issuer is None and server.metadata.authorization_response_iss_parameter_supported:
        raise LoginError(f"the redirect names no issuer, although {server.host} advertises that it sends one")
    if issuer is not None and issuer != server.issuer:
        raise LoginError(f"the redirect comes from an authorization server other than {server.host}; it was not used")
    if "error" in parameters:
        code = error_code(parameters)
        if code == "access_denied":
            raise LoginError(f"{server.host} refused it", code)
        raise LoginError(f"{server.host} returned {error_text(parameters) or 'an error'}", code)
    if not (code := parameters.get("code")):
        raise LoginError(f"{server.host} sent the browser back without a code")
    return code
