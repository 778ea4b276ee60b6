"""Logins that wait for a person while other calls and other processes continue."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.abc import TaskGroup

from server.clients.client_request import Exchange
from server.console import CommandFailure
from server.console.login_commands import log_out
from server.protocol.request_table import Outbound
from server.settings import UpstreamSettings
from server.settings.load import load_settings
from server.settings.server_models import OAuthSettings
from server.store.replica import lone_replica
from server.upstreams.connections.connection import LoginNeededError
from server.upstreams.connections.pool import LoginOptions, UpstreamPool
from server.upstreams.login import upstream_login
from server.upstreams.login.connect_pages import ConnectPages
from server.upstreams.login.login_storage import FileLogins, TokenStore
from server.upstreams.login.upstream_login import LOGIN_SECONDS, Login, LoginAttempt
from server.upstreams.relay.login_questions import LoginQuestions
from server.upstreams.wire.json_rpc_channel import LoginError
from tests.background_servers import free_port
from tests.harness import write_config
from tests.pools import refuse_calls
from tests.scripted_issuer import METADATA, ScriptedIssuer, scripted_issuer
from tests.unit.test_token_store import LOGIN
from tests.waiting import CEILING, until
from tools.call.tool_registry import ToolRegistry
from tools.contract.tool_errors import ExhaustedError, ToolError

pytestmark = pytest.mark.anyio

REGISTER = "/register"
TOKEN = {"access_token": "made-elsewhere", "token_type": "Bearer"}


class ScarceLogins(FileLogins):
    """Logins in files that cannot be read while there are no threads."""

    is_short = False
    refusals = 0

    async def stamp(self, resource: str, principal: str) -> object | None:
        if self.is_short:
            self.refusals += 1
            raise ExhaustedError("there are no threads")
        return await super().stamp(resource, principal)


@pytest.fixture
def issuer() -> Generator[ScriptedIssuer]:
    """An authorization server with client registration. The server that requires logins has the same origin."""
    with scripted_issuer() as server:
        server.responses[METADATA] = {
            "issuer": server.base,
            "authorization_endpoint": f"{server.base}/authorize",
            "token_endpoint": f"{server.base}/token",
            "registration_endpoint": f"{server.base}{REGISTER}",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        server.responses[REGISTER] = {"client_id": "us", "redirect_uris": ["http://127.0.0.1:1/oauth/callback"]}
        yield server


def login_at(issuer: ScriptedIssuer, logins: FileLogins) -> Login:
    pages = ConnectPages("http://127.0.0.1:1")
    return Login(logins, "up", f"{issuer.base}/mcp", OAuthSettings(), "", 0, pages=pages)


@asynccontextmanager
async def open_attempt(login: Login) -> AsyncGenerator[LoginAttempt]:
    async with anyio.create_task_group() as tasks:
        attempt = await login.begin(tasks, None)
        assert attempt is not None
        yield attempt
        tasks.cancel_scope.cancel()


def log_in_elsewhere(files: TokenStore, issuer: ScriptedIssuer) -> None:
    resource, metadata, client = f"{issuer.base}/mcp", issuer.responses[METADATA], issuer.responses[REGISTER]
    login = files.read(resource, "") or replace(LOGIN, resource=resource, metadata=metadata, client=client)
    files.write(replace(login, token=TOKEN, expires_at=None, scopes=None))


@pytest.mark.requirement("login.live")
async def test_an_open_login_ends_when_another_process_logs_in_even_if_another_call_reads_that_first(
    issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    files = TokenStore(str(tmp_path))
    login = login_at(issuer, FileLogins(files))
    with anyio.fail_after(CEILING):
        async with open_attempt(login) as attempt:
            log_in_elsewhere(files, issuer)
            assert await login.header() == "Bearer made-elsewhere"
            assert not await login.has_changed()
            await attempt.done.wait()
            assert attempt.problem == ""


@pytest.mark.requirement("login.processes")
async def test_no_login_is_opened_if_another_process_has_logged_in_meanwhile(
    issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    files = TokenStore(str(tmp_path))
    login = login_at(issuer, FileLogins(files))
    assert await login.header() is None
    log_in_elsewhere(files, issuer)
    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as tasks:
            # The second call finds that the first one has read the login.
            assert [await login.begin(tasks, None), await login.begin(tasks, None)] == [None, None]
    assert await login.header() == "Bearer made-elsewhere"
    assert not issuer.posts


@pytest.mark.requirement("login.processes")
async def test_logins_that_begin_at_the_same_time_in_one_process_do_not_wait_for_each_other(
    issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    logins = FileLogins(TokenStore(str(tmp_path)))
    port, reasons_to_wait = free_port(), list[str]()
    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as beginnings:
                for number in range(3):
                    login = Login(logins, f"up{number}", f"{issuer.base}/mcp{number}", OAuthSettings(), "", port)
                    beginnings.start_soon(login.begin, tasks, None, reasons_to_wait.append)
            tasks.cancel_scope.cancel()
    assert reasons_to_wait == []


@pytest.mark.requirement("login.live")
async def test_an_open_login_survives_a_shortage_of_threads(issuer: ScriptedIssuer, tmp_path: Path) -> None:
    files = TokenStore(str(tmp_path))
    logins = ScarceLogins(files)
    login = login_at(issuer, logins)
    with anyio.fail_after(CEILING):
        async with open_attempt(login) as attempt:
            logins.is_short = True
            await until(lambda: logins.refusals or attempt.done.is_set())
            assert not attempt.done.is_set()
            logins.is_short = False
            log_in_elsewhere(files, issuer)
            await attempt.done.wait()
            assert attempt.problem == ""


@pytest.mark.requirement("scarcity.refused")
async def test_a_call_that_cannot_begin_a_login_for_lack_of_threads_gets_an_error(
    issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    logins = ScarceLogins(TokenStore(str(tmp_path)))
    login = login_at(issuer, logins)
    assert await login.header() is None
    logins.is_short = True
    error = LoginNeededError(login)
    questions = LoginQuestions(1, LoginOptions(lone_replica(), str(tmp_path), pages=ConnectPages("http://127.0.0.1:1")))
    exchange = Exchange(cast("Outbound", None), {}, "2025-11-25", {}, "", None)  # no message is sent to its client
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ExhaustedError, match="there are no threads"):
            await questions.ask(error, exchange, tasks, str)


@pytest.mark.requirement("login.live")
async def test_a_person_who_gets_the_address_of_an_open_login_has_the_whole_time(
    issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    pages = ConnectPages("http://127.0.0.1:1")
    login = login_at(issuer, FileLogins(TokenStore(str(tmp_path))))
    questions = LoginQuestions(1, LoginOptions(lone_replica(), str(tmp_path), pages=pages))
    exchange = Exchange(cast("Outbound", None), {}, "2025-11-25", {}, "", None)  # no message is sent to its client
    with anyio.fail_after(CEILING):
        async with open_attempt(login) as attempt:
            await until(lambda: attempt.wait.deadline < float("inf"))
            attempt.wait.deadline = anyio.current_time() + CEILING
            async with anyio.create_task_group() as tasks:
                with pytest.raises(ToolError, match="/connect/"):
                    await questions.ask(LoginNeededError(login), exchange, tasks, str)
            assert attempt.wait.deadline > anyio.current_time() + LOGIN_SECONDS - CEILING


@pytest.mark.requirement("login.connect-again")
@pytest.mark.parametrize("place", [METADATA, REGISTER])
async def test_a_login_that_is_closed_during_its_preparation_is_not_opened(
    place: str, issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    go_on = issuer.gates[place] = threading.Event()
    login = login_at(issuer, FileLogins(TokenStore(str(tmp_path))))
    reasons: list[str] = []

    async def begin(tasks: TaskGroup) -> None:
        try:
            await login.begin(tasks, None)
        except LoginError as error:
            reasons.append(error.reason)

    with anyio.fail_after(CEILING):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin, tasks)
            await until(issuer.is_waiting.is_set)
            login.close("its server is gone")
            go_on.set()
            await until(lambda: reasons)
            assert reasons == ["its server is gone"]
            with pytest.raises(LoginError, match="its server is gone"):
                await login.begin(tasks, None)


@pytest.mark.requirement("login.connect-again")
async def test_no_login_is_opened_for_a_server_that_is_no_longer_in_the_settings(
    issuer: ScriptedIssuer, tmp_path: Path
) -> None:
    entry = UpstreamSettings(http_url=f"{issuer.base}/mcp")
    options = LoginOptions(lone_replica(), str(tmp_path), pages=ConnectPages("http://127.0.0.1:1"))
    pool = UpstreamPool({"up": entry}, ToolRegistry(), 0, 48, refuse_calls, logins=options)
    (upstream,) = pool.upstreams
    old_login = upstream.login_of("ada")
    async with anyio.create_task_group() as tasks:
        pool.change({}, tasks)
        for login in (old_login, upstream.login_of("bob")):
            assert login is not None
            with pytest.raises(LoginError, match="removed from the settings"):
                await login.begin(tasks, None)
    assert not issuer.posts


@pytest.mark.requirement("login.out")
def test_a_logout_that_cannot_lock_the_login_does_not_end_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_login, "TURN_SECONDS", 0.0)
    config = write_config(tmp_path, {"mcpServers": {LOGIN.alias: {"httpUrl": LOGIN.resource}}})
    report = load_settings([str(config)], {}, {"XDG_STATE_HOME": str(tmp_path)})
    assert report.state_folder is not None
    files = TokenStore(report.state_folder)
    files.write(LOGIN)
    release = files.try_lock(LOGIN.resource, "")
    assert release is not None
    failure = pytest.RaisesExc(CommandFailure, match="still logged in to up: another process has been renewing")
    with pytest.RaisesGroup(failure):
        log_out(report, LOGIN.alias, "")
    release()
    assert files.read(LOGIN.resource, "") == LOGIN


@pytest.mark.requirement("login.store_keyring")
async def test_the_error_about_a_login_in_another_storage_names_commands_with_all_needed_options(
    tmp_path: Path,
) -> None:
    TokenStore(str(tmp_path)).write(replace(LOGIN, principal="ada"))
    logins = FileLogins(TokenStore(str(tmp_path), "keyring"))
    login = Login(logins, "renamed", LOGIN.resource, OAuthSettings(), "ada", 0, " --config /x.json")
    arguments = "renamed --as ada --config /x.json"
    with pytest.raises(LoginError, match=f"logout {arguments}, then log in with coretools-mcp login {arguments}"):
        await login.header()
