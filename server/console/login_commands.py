"""`coretools-mcp login` and `logout`: log in to an upstream, and log out again.

If replicas share their logins, the commands need the same keys as the replicas.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from urllib.parse import urlsplit, urlunsplit

import anyio

from server.app import App
from server.console import EXIT_FAILED, CommandFailure, UsageError
from server.console.terminal import Spinner, note, open_in_browser, show, show_json, show_table
from server.console.upstream_messages import connect, quiet_log, show_failure, tool_count_text
from server.run_server import network_replica, run_in_app, until_signal
from server.settings import SettingsReport
from server.settings.rule_names import did_you_mean
from server.settings.server_models import OAuthSettings
from server.store.replica import Replica, lone_replica
from server.upstreams.connections.connection import Upstream, UpstreamState
from server.upstreams.login.login_storage import LoginStore, LoginsUnavailableError, StoredLogin, TokenStoreError
from server.upstreams.login.upstream_login import (
    Login,
    LoginAttempt,
    LoginBusyError,
    LoginStoreUnavailableError,
    login_store,
)
from server.upstreams.wire.json_rpc_channel import LoginError
from tools.contract.display import visible_line
from tools.machine.threads import THREADS

MAX_LOGINS = 2  # a second login is needed if the authorization server has forgotten this client


def log_in(report: SettingsReport, alias: str, principal: str, *, opens_browser: bool) -> int:
    server = next((candidate for candidate in report.entries if alias in (candidate.alias, candidate.name)), None)
    if server is None:
        aliases = [candidate.alias for candidate in report.entries]
        hint = did_you_mean(alias, aliases, " coretools-mcp config add adds one.")
        raise UsageError(f"there is no server {visible_line(alias)} in the settings.{hint}")
    if server.left_out is not None:
        raise CommandFailure(f"{alias} is not used: {server.left_out}")
    entry, alias = server.settings, server.alias
    if entry.endpoint is None:
        raise UsageError(
            f"{alias} is a program on this machine and takes its credentials from its environment: set them in "
            f"mcpServers.{alias}.env. There is nothing to log in to."
        )
    is_shared = entry.oauth is not None and entry.oauth.shared
    http, principal_text = report.settings.http, visible_line(principal)
    is_known = principal in http.tokens or (http.oauth.is_configured and http.oauth.issuer in principal)
    if principal and (is_shared or not is_known):
        problem = f"'{principal_text}' is neither the name of a token in http.tokens nor a user of http.oauth.issuer. "
        problem += "Omit --as, or name one of these."
        if is_shared:
            problem = f"all clients share this server's login (mcpServers.{alias}.oauth.shared). Omit --as."
        raise UsageError(f"--as does not apply: {problem}")
    quiet_log(report.settings.log.level)
    # The other servers stay in the settings, so that rules about their tools cause no warnings.
    only = replace(
        report,
        entries=tuple(
            candidate if candidate.alias == alias else replace(candidate, left_out="This command does not need it.")
            for candidate in report.entries
        ),
    )
    replica = _replica(report)
    return run_in_app(only, lambda app: _log_in(app, alias, principal, opens_browser=opens_browser), replica)


async def _log_in(app: App, alias: str, principal: str, *, opens_browser: bool) -> int:
    await connect(app, app.pool.upstreams)
    (upstream,) = app.pool.upstreams
    login = upstream.login_of(principal)
    if login is None:
        raise CommandFailure(
            f"there is no login for {alias}: mcpServers.{alias}.headers sets its Authorization header, oauth.enabled "
            "is false, or there is no home folder to store a login in."
        )
    if not login.needs_person:
        return _report(upstream, f"Logged in to {alias} with the client credentials of its entry")
    is_refused = not principal and upstream.status.state is UpstreamState.NEEDS_AUTHENTICATION
    if not is_refused and await login.is_complete():
        if principal:  # the server was tried with the login of this machine's user, not with the principal's
            sys.stdout.write(f"Already logged in to {alias} as {principal}\n")
            return 0
        hint = f"To log in as another user, log out first: coretools-mcp logout {alias}"
        return _report(upstream, f"Already logged in to {alias}", hint)
    if principal and upstream.login is not None:
        login.challenge = upstream.login.challenge
    for count in range(MAX_LOGINS):
        with Spinner(f"preparing a login to {alias}"):
            if app.pool.tasks is None:
                raise AssertionError("`connect` did not start the upstreams")
            try:
                attempt = await login.begin(app.pool.tasks, await login.stored_header(), cache(note))
            except LoginError as error:
                raise CommandFailure(
                    f"cannot log in to {alias}: {visible_line(error.reason)}. If the server needs a token instead, "
                    f"put it into mcpServers.{alias}.headers."
                ) from None
        if login.is_unsaved:
            reasons = "the state folder is not writable, its disk is full, or the keyring or the store is unavailable"
            raise CommandFailure(f"the login to {alias} could not be saved: {reasons}. The log says more.")
        if attempt is not None:
            await _finish(login, attempt, opens_browser=opens_browser)
            if attempt.is_forgotten and count + 1 < MAX_LOGINS:
                note("the authorization server no longer knows this program; please log in once more")
                continue
            if attempt.problem:
                raise CommandFailure(f"the login to {alias} failed: {visible_line(attempt.problem)}.")
        break
    if principal:
        sys.stdout.write(f"Logged in to {alias} as {principal}\n")
        return 0
    await upstream.reconnect()
    return _report(upstream, f"Logged in to {alias}")


async def _finish(login: Login, attempt: LoginAttempt, *, opens_browser: bool) -> None:
    """Send the user to the authorization server, and wait for the redirect."""
    callback = attempt.request.redirect_uri
    show(f"To log in to {login.alias}, open this address in a browser:", stream=sys.stderr)
    address = attempt.current_address()
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
    temporary_folder = tempfile.TemporaryDirectory(prefix="coretools-mcp-") if opens_browser else nullcontext()
    with temporary_folder as folder:
        async with anyio.create_task_group() as group:
            is_opened = False
            if folder is not None:
                open_it = partial(open_in_browser, address, os.path.join(folder, "login.html"))
                is_opened = await THREADS.run(open_it)
                if not is_opened:
                    note("no browser could be started here; open the address yourself")
            if not is_opened:
                port = urlsplit(callback).port
                show(
                    "If the browser is on another machine, paste the last address that it shows, which begins with "
                    f"{callback} (or forward the port first: ssh -L {port}:127.0.0.1:{port}).",
                    stream=sys.stderr,
                )
                group.start_soon(_read_pasted_redirect, attempt)
            await attempt.done.wait()
            group.cancel_scope.cancel()


async def _read_pasted_redirect(attempt: LoginAttempt) -> None:
    """Read addresses from standard input until one is the redirect address of this login."""
    while line := await THREADS.run(sys.stdin.readline):
        if not line.strip():
            continue
        try:
            attempt.paste(line)
        except ValueError:
            note(f"that is not the redirect address of this login, which begins with {attempt.request.redirect_uri}")
        else:
            return


def _report(upstream: Upstream, message: str, hint: str = "") -> int:
    if upstream.live_session is None:
        show_failure(f"{message}, but the server is not available", upstream)
        return EXIT_FAILED
    sys.stdout.write(f"{message}: {tool_count_text(len(upstream.offer.lists.get('tools', ())))}\n")
    if hint:
        show(hint, stream=sys.stderr)
    return 0


def log_out(report: SettingsReport, alias: str, principal: str) -> int:
    """Forget a login, and revoke its tokens at the authorization server if possible."""
    server = next((candidate for candidate in report.entries if alias in (candidate.alias, candidate.name)), None)
    entry, alias = (None, alias) if server is None else (server.settings, server.alias)
    principal_text = f" as {principal}" if principal else ""
    url = entry.endpoint if entry is not None else None

    async def end(store: LoginStore | None) -> int:
        records = [] if store is None else await store.all()
        logins = [login for login in records if isinstance(login, StoredLogin)]
        resources = [login.resource for login in logins if (login.alias, login.principal) == (alias, principal)]
        if store is None or (not resources and url is None):
            sys.stdout.write(f"There is no login to {visible_line(alias)}{principal_text}.\n")
            return 0
        is_removed = False
        for resource in resources or [url or ""]:
            oauth = entry.oauth if entry is not None and entry.oauth is not None else OAuthSettings()
            port, by_proxy = report.settings.proxy.login_port, report.settings.proxy.environment_proxies
            login = Login(store, alias, resource, oauth, principal, port, by_proxy=by_proxy)
            try:
                is_removed |= await login.end()
            except TokenStoreError as error:
                raise CommandFailure(str(error)) from None
            except (LoginStoreUnavailableError, LoginBusyError) as error:
                raise CommandFailure(f"you are still logged in to {alias}: {error.reason}.") from None
            except LoginError as error:
                is_removed = True
                note(f"the tokens could not be revoked at their authorization server: {visible_line(error.reason)}")
        outcome = "Logged out of" if is_removed else "There is no login to"
        sys.stdout.write(f"{outcome} {alias}{principal_text}.\n")
        return 0

    return _with_logins(report, end)


def _replica(report: SettingsReport) -> Replica:
    """Return a replica with the shared keys and store if replicas share logins, so that a login applies to them all."""
    settings = report.settings
    is_shared = bool(settings.http.state_keys) and settings.store.url != "memory:"
    return network_replica(settings) if is_shared else lone_replica()


def _with_logins(report: SettingsReport, work: Callable[[LoginStore | None], Awaitable[int]]) -> int:
    """Run `work` on the stored logins, or on `None` if they have no place: no shared store and no state folder."""
    replica = _replica(report)

    async def run() -> int:
        try:
            return await work(login_store(replica, report.state_folder, report.settings.proxy.token_storage))
        except LoginsUnavailableError as error:
            raise CommandFailure(str(error)) from None
        finally:
            if replica.shared_store is not None:
                await replica.shared_store.aclose()

    return anyio.run(until_signal, run)


def list_logins(report: SettingsReport, *, as_json: bool) -> int:
    """List the stored logins, and report those that cannot be read."""

    async def show_all(store: LoginStore | None) -> int:
        records = [] if store is None else await store.all()
        logins = [login for login in records if isinstance(login, StoredLogin)]
        if as_json:
            entries = [
                {
                    "server": login.alias,
                    **({"principal": login.principal} if login.principal else {}),
                    "address": _address_of(login),
                    "issuer": login.issuer,
                    "scopes": (login.scopes or "").split(),
                    "state": _state_of(login),
                    **({"expiresAt": login.expires_at} if login.expires_at is not None else {}),
                }
                for login in logins
            ]
            show_json(entries)
        elif logins:
            heads = ("SERVER", "WHO", "LOGGED IN AT", "STATE", "ADDRESS")
            rows: list[tuple[str, ...]] = []
            for login in logins:
                who, issuer = login.principal or "you", urlsplit(login.issuer).netloc
                rows.append((login.alias, who, issuer, _state_of(login), _address_of(login)))
            show_table(heads, [tuple(map(visible_line, row)) for row in rows])
        else:
            sys.stdout.write("There are no logins.\n")
        for record in records:
            if isinstance(record, TokenStoreError):
                note(str(record))
        return 0

    return _with_logins(report, show_all)


def _address_of(login: StoredLogin) -> str:
    """Return the address of the server, without parts that may be secret."""
    parts = urlsplit(login.resource)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _state_of(login: StoredLogin) -> str:
    if login.token is None:
        return "not logged in"
    if login.expires_at is None or login.expires_at > time.time():
        return "valid"
    # If a keyring is used, the file does not show whether there is a refresh token.
    return "expired" if "access_token" in login.token and "refresh_token" not in login.token else "renewed when used"
