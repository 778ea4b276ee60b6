"""Asks a client's user to log in: at an address, or with a command to run in a terminal.

The address is the authorization server's, so no secret passes through the client. The authorization server redirects
the browser to this machine, so only a browser on this machine can complete the login. With `http.publicUrl`, the
address is a page of this server instead, which any browser can use. Accepting the question means opening the address;
the call then waits for the login.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import LOGIN_KEY, Exchange, NotAskedError
from server.protocol.json_rpc import Json, as_mapping
from server.protocol.request_table import input_required
from server.upstreams.connections.connection import LoginNeededError
from server.upstreams.connections.pool import LoginOptions
from server.upstreams.login.upstream_login import LOGIN_SECONDS, Login, LoginAttempt
from server.upstreams.wire.json_rpc_channel import LoginError
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType

MAX_ATTEMPTS = 64  # maximum number of login attempts whose questions clients may still answer
ELSEWHERE_SECONDS = 60.0  # how long to wait for a login that another replica has started
CHECK_SECONDS = 0.5  # interval at which to check whether another replica's login is complete
PULSE_SECONDS = 5.0  # interval of progress notifications during a login, because clients give up on silent calls


@dataclass(eq=False, repr=False, slots=True)
class LoginQuestions:
    """Asks clients to have people log in with an authorization server."""

    seconds: float  # the time limit for an answer
    logins: LoginOptions
    _attempts: dict[str, LoginAttempt] = field(default_factory=dict[str, LoginAttempt])

    async def ask(
        self, login_needed: LoginNeededError, exchange: Exchange, tasks: TaskGroup, seal: Callable[[Json], str]
    ) -> Json | None:
        """Have a person log in, and return `None` once the login is complete.

        For a client of the 2026-07-28 revision, first returns a result with the question. `seal` creates its
        `requestState`. The login runs in `tasks`, even if the client stops waiting. Raises `ToolError` if the login
        failed or was not possible; the message says why. If nobody can be asked to log in, the error is `login_needed`.
        """
        login, name = login_needed.login, str(exchange.carried.get("login", ""))
        action = as_mapping(as_mapping(exchange.params.get("inputResponses")).get(LOGIN_KEY)).get("action")
        if (attempt := self._attempts.get(name)) is not None:
            await self._wait_until_done(login, attempt, action, exchange, (exchange.connection, ""))
            return None
        if name and self.logins.replica.shares_secrets and action == "accept":
            # Another replica asked. A login there is valid here too, but this replica may never learn that it failed.
            async with _progress_reports(exchange, [f"Waiting for the login to {login.alias} in the browser"]):
                with anyio.move_on_after(ELSEWHERE_SECONDS):
                    while not await login.is_complete():  # noqa: ASYNC110 - another process completes the login
                        await anyio.sleep(CHECK_SECONDS)
                    return None
        has_pages = self.logins.pages is not None
        can_show = exchange.can_be_asked("elicitation/create", {"mode": "url", "url": "https://localhost"})
        if not (has_pages or (self.logins.is_local and can_show)):
            raise login_needed
        texts = [f"Preparing a login to {login.alias}"]
        try:
            async with _progress_reports(exchange, texts):
                attempt = await login.begin(tasks, login_needed.rejected_header, texts.append, exchange.readable_name)
        except LoginError as error:
            raise _login_failed(login, error.reason) from None
        if attempt is None:  # another attempt has succeeded by now
            return None
        # Forget old attempts, and failed ones for the same login, so that repeated attempts do not use up the slots.
        self._attempts = {key: earlier for key, earlier in self._attempts.items() if not earlier.is_over_for(attempt)}
        is_full = attempt.name not in self._attempts and len(self._attempts) >= MAX_ATTEMPTS
        if exchange.is_modern and is_full and not has_pages:
            raise login_needed
        attempt.wait_longer()
        address = attempt.current_address()
        if not can_show or (exchange.is_modern and is_full):  # the attempt stays open for the person who gets the link
            raise ToolError(
                ToolErrorType.UPSTREAM_UNAVAILABLE,
                f"The server {login.alias} needs the user to log in: show them the address {address} and ask them "
                f"to open it in a browser within {LOGIN_SECONDS / 60:g} minutes. The address is only for this login "
                "and this user. Try the call again once they are done, or continue without it.",
            )
        params: Json = {"mode": "url", "url": address, "message": self._message(login, attempt, address)}
        if not exchange.can_be_asked("elicitation/create", params):
            _abort_unless_needed(attempt)
            raise _login_failed(login, "its authorization server has an address that cannot be displayed safely")
        if exchange.is_modern:
            self._attempts[attempt.name] = attempt
            request = {"method": "elicitation/create", "params": params}
            return input_required({LOGIN_KEY: request}, seal({"login": attempt.name}))
        if (exchange.connection, address) in attempt.askers:  # another call of this session has already asked
            await self._wait_for(login, attempt, exchange)
        else:
            await self._ask_and_wait(login_needed, attempt, exchange, params)
        return None

    async def _ask_and_wait(
        self, login_needed: LoginNeededError, attempt: LoginAttempt, exchange: Exchange, params: Json
    ) -> None:
        login, identity = login_needed.login, secrets.token_hex(12)
        asker = (exchange.connection, params["url"])
        attempt.askers.append(asker)
        try:
            answer = await exchange.ask("elicitation/create", {**params, "elicitationId": identity}, self.seconds)
        except NotAskedError:
            answer = None
        finally:
            attempt.askers.remove(asker)
        if answer is None:
            _abort_unless_needed(attempt)
            raise login_needed
        try:
            await self._wait_until_done(login, attempt, answer.get("action"), exchange, asker)
        finally:
            if attempt.done.is_set():
                await exchange.notify("notifications/elicitation/complete", {"elicitationId": identity})

    def _message(self, login: Login, attempt: LoginAttempt, address: str) -> str:
        host = visible_line(urlsplit(attempt.request.url).netloc)
        page_hint = f", starting from a page at {urlsplit(address).netloc}" if self.logins.pages is not None else ""
        return (
            f"The MCP server {login.alias} asks you to log in at {host}{page_hint}. coretools-mcp then keeps the login "
            f"{'on its own server' if page_hint else 'on this machine'}, for this MCP server only."
        )

    async def _wait_until_done(
        self, login: Login, attempt: LoginAttempt, action: object, exchange: Exchange, asker: tuple[object, str]
    ) -> None:
        if action != "accept" and not attempt.done.is_set():
            _abort_unless_needed(attempt)
            what_next = f"Continue without it, or ask them to run `{login.command}` in a terminal."
            raise ToolError(
                ToolErrorType.EXECUTION_DENIED, f"The user did not log in to the server {login.alias}. {what_next}"
            )
        attempt.askers.append(asker)
        try:
            await self._wait_for(login, attempt, exchange)
        except ToolError:
            if len(attempt.askers) == 1:  # no other call waits for the login
                attempt.expire(self.seconds)  # unless somebody else has just got the address
            raise
        finally:
            attempt.askers.remove(asker)

    async def _wait_for(self, login: Login, attempt: LoginAttempt, exchange: Exchange) -> None:
        try:
            async with _progress_reports(exchange, [f"Waiting for the login to {login.alias} in the browser"]):
                with anyio.fail_after(self.seconds):
                    await attempt.done.wait()
        except TimeoutError:
            reason = f"nobody completed it within {self.seconds:g} s (confirmation.timeout)"
            raise _login_failed(login, reason) from None
        if attempt.problem:
            raise _login_failed(login, attempt.problem)


def _abort_unless_needed(attempt: LoginAttempt) -> None:
    if not attempt.askers:  # otherwise another call is waiting for the login
        attempt.give_up()


def _login_failed(login: Login, reason: str) -> ToolError:
    return ToolError(
        ToolErrorType.UPSTREAM_UNAVAILABLE,
        f"The login to the server {login.alias} failed: {reason}. Try the call again, continue without it, or ask the "
        f"user to run `{login.command}` in a terminal.",
    )


@asynccontextmanager
async def _progress_reports(exchange: Exchange, texts: Sequence[str]) -> AsyncGenerator[None]:
    """Until the context exits, report progress to the client at intervals, with the latest message in `texts`."""

    async def report() -> None:
        for count in itertools.count(1):
            await anyio.sleep(PULSE_SECONDS)
            await exchange.progress({"progress": count, "message": texts[-1]})

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised again later, without an exception group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
