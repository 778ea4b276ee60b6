"""Relays client requests to the right session of an upstream, and passes the upstream's messages back to the client.

How an upstream's question reaches the client depends on the protocol revisions of the upstream and the client:

- Both in the handshake era: `SessionQuestions` asks the client while its call waits.
- Handshake-era upstream, 2026-07-28 client: `SessionQuestions.receive` wakes `_until_answer`, which suspends the call
  and returns the question as its result. The client's next request comes through `resumed` to `_send_once`, which
  passes the answer to `SessionQuestions.resume` and waits in `_until_answer` again.
- 2026-07-28 upstream, handshake-era client: the question is a result. `_in_rounds` asks the client in `_answers` while
  its call waits, and then sends the next round.
- Both in the 2026-07-28 revision: `_in_rounds` returns the question, and sends the next round when the client's next
  request comes.

If this server waits for a task of a 2026-07-28 upstream, `_follow` asks the task's questions. For a 2026-07-28 client,
`_follow` suspends the call until the client answers, if there is room for another suspended call.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from server.clients.client_request import Exchange, NotAskedError
from server.protocol.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, Json
from server.protocol.request_table import input_required
from server.settings.settings_files import LOCK_NAME
from server.store.replica import Replica
from server.store.sealing import SealedStates
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from server.upstreams.connections.client_sessions import is_same_tool
from server.upstreams.connections.connection import LoginNeededError, Upstream
from server.upstreams.connections.pool import UpstreamPool, bounded_gather
from server.upstreams.relay.relayed_results import (
    MAY_ASK,
    BusyError,
    CalledTool,
    LargeResults,
    NoAnswerError,
    SuspendedCallGoneError,
    TooManyRoundsError,
    checked_result,
    protocol_error,
    protocol_error_for,
    readable_result,
    says_unknown,
    tool_error_for,
    with_links,
)
from server.upstreams.relay.upstream_tasks import (
    FollowedTask,
    Tasks,
    as_task_client,
    at_other_replica,
    knows_tasks,
    requires_tasks,
)
from server.upstreams.session.protocol_era import TASKS, declares
from server.upstreams.session.upstream_questions import (
    InFlightCall,
    QuestionWaits,
    input_requests,
    next_round,
    refusal_of,
    round_of,
)
from server.upstreams.session.upstream_session import UpstreamSession
from server.upstreams.wire.json_rpc_channel import (
    Challenge,
    ConnectionLostError,
    Expired,
    Notice,
    Progress,
    RelayError,
    RpcAnswer,
    SessionUnknownError,
    UnusableAnswerError,
    UpstreamError,
)
from tools.call.base_tool import ToolContext
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_results import ToolResult
from tools.permissions.permission_policy import Rights

if TYPE_CHECKING:
    from server.upstreams.relay.login_questions import LoginQuestions

MAX_SUSPENDED = 256  # maximum number of suspended calls of all clients together
MAX_OF_ONE = MAX_SUSPENDED // 4  # the maximum for one client; if there is no room, questions are refused

MAX_LOGINS = 2  # maximum number of logins per call: the first login, and one for more scopes
MAX_ROUNDS = 10
"""Maximum number of rounds of questions that a client answers while its call waits (as in the SDK's client)."""

_IDENTIFYING_PARAMS = ("name", "arguments", "uri", "ref", "argument")  # the parameters that identify a request

_NOT_PASSED = frozenset({"requestState", "inputResponses", "task"})
"""Parameters that are not relayed: those for this server's own rounds of questions, and `task` from the 2025-11-25
revision, because servers now decide whether a call becomes a task.
"""
STATE_MARK = "relay."  # prefix of each `requestState` from this module, not of those for this server's own questions

STALE: Json = {
    "code": INVALID_PARAMS,
    "message": (
        "The requestState is invalid: it is forged, expired, already used or for another request, or its "
        "target has changed. Send the request again without it."
    ),
}
"""The error for a `requestState` with which no request can be continued."""


@dataclass(frozen=True, slots=True)
class CallContext(ToolContext):
    """The context of a call to an upstream tool."""

    exchange: Exchange | None = None
    client_name: str = ""  # the client's name and version
    # Errors with which the upstream responded; the client gets the first one as an error
    protocol_errors: list[Json] = field(default_factory=list[Json])


@dataclass(eq=False, slots=True)
class RelayedRequest:
    """A request to an upstream on behalf of a client."""

    upstream: Upstream
    method: str
    params: Json  # the parameters, with the upstream's own names
    patience: float  # seconds without progress until the request is cancelled
    target: str  # identifies the upstream and the tool's version, because their names may be reused
    headers: Mapping[str, str] | None  # HTTP headers required by the parameters
    tool: DiscoveredMCPTool | None = None  # the version of the tool that the call was judged by
    slot: ExitStack | None = None  # frees the request's slot when closed, if the upstream limits concurrent requests
    slot_wait: float = 0.0  # seconds spent waiting for the slot; they count towards the request's timeout


@dataclass(eq=False, slots=True)
class SuspendedCall:
    """A call that is open at its upstream while its client has a question to answer."""

    owner: str
    session: UpstreamSession
    call: InFlightCall | FollowedTask
    question_keys: list[str]
    expiry: asyncio.TimerHandle | None = None

    async def cancel(self) -> None:
        """Cancel an abandoned call, before its questions are refused: a refusal might make the upstream continue."""
        if isinstance(self.call, FollowedTask):
            await self.call.cancel()
            return
        with anyio.CancelScope(shield=True):
            await self.call.pending.aclose()
            self.session.questions.refuse(self.question_keys)
            self.session.questions.end(self.call)


@dataclass(eq=False, repr=False, slots=True)
class SuspendedCalls:
    """Keeps suspended calls until their owner continues them or they time out."""

    seconds: float
    _calls: dict[str, SuspendedCall] = field(default_factory=dict[str, SuspendedCall])

    def has_room(self, owner: str) -> bool:
        """Return whether another call of a client can be suspended.

        No client may have more than `MAX_OF_ONE`. If all places are taken, the call may replace one of the client with
        the most suspended calls, unless its own client would then have as many as that one had.
        """
        counts = Counter(call.owner for call in self._calls.values())
        own = counts[owner]
        return own < MAX_OF_ONE and (len(self._calls) < MAX_SUSPENDED or own + 1 < max(counts.values()))

    def add(self, suspended_call: SuspendedCall) -> str:
        """Store a call, and return the key with which its owner continues it. There must be room (`has_room`)."""
        if len(self._calls) >= MAX_SUSPENDED:
            ((greediest, _),) = Counter(call.owner for call in self._calls.values()).most_common(1)
            self._expire(next(name for name in reversed(self._calls) if self._calls[name].owner == greediest))
        name = secrets.token_hex(12)
        self._calls[name] = suspended_call
        suspended_call.call.is_suspended = True
        suspended_call.expiry = asyncio.get_running_loop().call_later(self.seconds, self._expire, name)
        return name

    def take(self, name: str, owner: str) -> SuspendedCall | None:
        """Remove and return a call; `None` if this owner has no call with this key."""
        suspended_call = self._calls.get(name)
        if suspended_call is None or suspended_call.owner != owner:
            return None
        del self._calls[name]
        if suspended_call.expiry is not None:
            suspended_call.expiry.cancel()
        return suspended_call

    def forget(self, owner: str) -> None:
        for name in [name for name, suspended_call in self._calls.items() if suspended_call.owner == owner]:
            self._expire(name)

    def _expire(self, name: str) -> None:
        suspended_call = self.take(name, self._calls[name].owner)
        if suspended_call is not None:
            session = suspended_call.session
            session.log.info(
                "a suspended call of upstream %s was cancelled: its question was not answered", session.alias
            )
            if not session.lost.is_set():
                session.tasks.start_soon(suspended_call.cancel)


class Relay:
    """Relays requests to upstreams.

    A question may stay open for `question_seconds`, and a call may stay suspended for the same time. `published_uri`
    returns the published URI of a resource.
    """

    def __init__(
        self,
        pool: UpstreamPool,
        question_seconds: float,
        published_uri: Callable[[Upstream, str], str],
        why_denied: Callable[[str, Rights], str],
        large_results: LargeResults,
        replica: Replica,
    ) -> None:
        self.pool = pool
        self.large_results = large_results
        self.tasks = Tasks(pool, published_uri, why_denied, large_results, replica)
        self.why_denied = why_denied
        self.suspended = SuspendedCalls(question_seconds)
        self._seconds = question_seconds
        self._states = SealedStates("relayed request", question_seconds, replica)
        self._replica = replica.name
        self._published_uri = published_uri
        self._login_questions: LoginQuestions | None = None

    async def resumed(self, method: str, exchange: Exchange) -> Exchange:
        """Return the exchange with the contents of its `requestState`, if this module created that state.

        Raises:
            MCPError: The state is forged, expired, already used or for another request, or another replica has the
                suspended call.
            StoreUnavailableError: The store is unavailable, so it is unknown whether the state was already used.
        """
        state = exchange.params.get("requestState")
        if not isinstance(state, str) or not exchange.is_modern or not state.startswith(STATE_MARK):
            return exchange
        sealed_state, digest = state.removeprefix(STATE_MARK), _digest(method, exchange.params)
        claims = self._states.read(sealed_state, digest, exchange.client_key)
        if claims is not None and "suspended" in claims and claims["replica"] != self._replica:
            # Check the replica before the state counts as used, because the next attempt may reach the right one.
            raise at_other_replica(claims["replica"])
        contents = await self._states.open(sealed_state, digest, exchange.client_key)
        if contents is None:
            raise protocol_error(STALE)
        return replace(exchange, carried=contents, is_resumed=True)

    async def session_of(self, upstream: Upstream, exchange: Exchange) -> UpstreamSession:
        """Return the session for a client's requests to an upstream. Raises `ToolError` if there is none."""
        sessions = self.pool.sessions.get(upstream)
        if sessions is None:
            raise upstream.unavailable()
        return await sessions.session_for(exchange)

    async def as_listed_to(self, tool: DiscoveredMCPTool, upstream: Upstream, exchange: Exchange) -> DiscoveredMCPTool:
        """Return a tool as the client's session with the upstream lists it.

        Raises `ToolError` if there is no session, or if the upstream does not list its tools there.
        """
        try:
            own_tools = await self._own_tools(upstream, await self.session_of(upstream, exchange), exchange)
        except (LoginNeededError, RelayError):
            return tool  # `_send` handles the error
        definition = own_tools.get(tool.upstream_name)
        return tool if definition is None else self.pool.catalog.as_listed_to(tool, definition)

    async def _own_tools(self, upstream: Upstream, session: UpstreamSession, exchange: Exchange) -> Mapping[str, Json]:
        sessions = self.pool.sessions.get(upstream)
        if sessions is None:
            raise upstream.unavailable()
        return await sessions.tools_of(exchange, session)

    async def forward(self, upstream: Upstream, method: str, upstream_params: Json, exchange: Exchange) -> Json:
        """Relay a request and return its result, with published URIs. Raises `MCPError` if the request failed.

        `upstream_params` contains the parameters whose values are the upstream's own names or URIs.
        """
        try:
            result = await self._send(upstream, method, upstream_params, exchange, upstream.reach)
        except (RelayError, ToolError, TimeoutError) as error:
            raise protocol_error_for(error, upstream.alias, exchange) from None
        return with_links(method, result, partial(self._published_uri, upstream))

    async def call(
        self, upstream: Upstream, tool: DiscoveredMCPTool, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolResult:
        """Call a tool. Raises `ToolError` if the call failed.

        If the upstream responded with an error, that error is also in the context's `protocol_errors`.
        """
        if not isinstance(context, CallContext) or context.exchange is None:
            raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, "Only a client can call a tool of another server.")
        exchange, name = context.exchange, tool.upstream_name
        upstream_params: Json = {"name": name} | (
            {"arguments": dict(arguments)} if "arguments" in exchange.params else {}
        )
        headers, target = None, f"{upstream.reach} {tool.version}"
        if tool.header_names:
            from mcp.shared.inbound import mcp_param_headers  # noqa: PLC0415 - few tools need it

            headers = mcp_param_headers(tool.header_names, arguments)
        try:
            result = await self._send(upstream, "tools/call", upstream_params, exchange, target, headers, tool)
            result = readable_result(result, is_modern=exchange.is_modern)
        except (RelayError, TimeoutError) as error:
            if isinstance(error, UpstreamError):
                context.protocol_errors.append(error.error)
                if error.code in (METHOD_NOT_FOUND, INVALID_PARAMS):  # the tool may have disappeared
                    upstream.list_changed("tools", False)
            raise tool_error_for(error, upstream.alias, f"the call to {name}") from None
        if result.get("isError") is True and says_unknown(name, result):
            upstream.list_changed("tools", False)
        result = with_links("tools/call", result, partial(self._published_uri, upstream))
        called_tool = CalledTool(tool.name, name, tool.definition)
        return ToolResult(
            verbatim=await self.large_results.shortened(called_tool, result, exchange, context.client_name)
        )

    async def _send(
        self,
        upstream: Upstream,
        method: str,
        upstream_params: Json,
        exchange: Exchange,
        target: str,
        headers: Mapping[str, str] | None = None,
        tool: DiscoveredMCPTool | None = None,
    ) -> Json:
        """Send a request to its upstream, after a login if needed. Returns its result, which may be a question."""
        params = {**exchange.params, **upstream_params}
        for name in _NOT_PASSED:
            params.pop(name, None)
        request = RelayedRequest(upstream, method, params, upstream.entry.timeout / 1000, target, headers, tool)
        if upstream.rate is not None and not exchange.is_resumed and (wait := upstream.rate.take(anyio.current_time())):
            raise ToolError(
                ToolErrorType.TOO_MANY_CALLS,
                f"The server {upstream.alias} has reached its limit of calls per minute, "
                f"{upstream.entry.calls_per_minute} (mcpServers.{upstream.alias}.callsPerMinute). This call was not "
                f"sent, so it had no effect; call again in {math.ceil(wait)} s.",
            )
        if "login" in exchange.carried:
            if exchange.carried["target"] != target:  # the user agreed to a target that no longer exists
                raise UpstreamError(STALE)
            login_needed = self._login_needed(upstream, exchange)
            question = await self.log_in(upstream, login_needed, method, exchange, target)
            if question is not None:
                return question
            exchange = exchange.after_login()
        has_met_unknown = False
        for _ in range(MAX_LOGINS):
            try:
                return await self._send_once(request, exchange)
            except SessionUnknownError:
                if has_met_unknown:
                    raise
                has_met_unknown, request.slot = True, None
                await upstream.begin_session()  # the upstream did nothing, so the request is sent again
            except (LoginNeededError, UnusableAnswerError) as error:
                challenge = error.challenge if isinstance(error, UnusableAnswerError) else None
                login_needed = error if isinstance(error, LoginNeededError) else self._login_needed(upstream, exchange)
                could_help = login_needed is error or (challenge is not None and challenge.could_be_met)
                if login_needed is None or not could_help or method not in MAY_ASK:
                    raise
                if challenge is not None and challenge.wants_scopes:
                    if await login_needed.login.is_renewed_elsewhere():
                        continue  # somebody has logged in with the console command
                    login_needed = _more_scopes_needed(login_needed, challenge)
                    await login_needed.login.remember_scopes(challenge)
                question = await self.log_in(upstream, login_needed, method, exchange, target)
                if question is not None:
                    return question
                request.slot = None
                exchange = replace(exchange, carried={**exchange.carried, **exchange.after_login().carried})
        return await self._send_once(request, exchange)

    def _login_needed(self, upstream: Upstream, exchange: Exchange) -> LoginNeededError | None:
        login = upstream.login_of(self.pool.login_principal(upstream, exchange))
        return LoginNeededError(login) if login is not None and login.needs_person else None

    async def log_in(
        self,
        upstream: Upstream,
        login_needed: LoginNeededError | None,
        method: str,
        exchange: Exchange,
        target: str = "",
    ) -> Json | None:
        """Have a person log in, and then reconnect the upstream. `target` is empty until the user consents to the call.

        Returns a result with the question, or `None` once the login is complete, or if no login is needed. Raises
        `ToolError` if the login failed, or if nobody can be asked to log in.
        """
        logins, tasks, count = self.pool.logins, self.pool.tasks, exchange.carried.get("logins", 0)
        if login_needed is None or logins is None or tasks is None:
            return None
        from server.upstreams.relay.login_questions import LoginQuestions  # noqa: PLC0415 - imported with the first login

        if self._login_questions is None:
            self._login_questions = LoginQuestions(self._seconds, logins)
        if upstream.wants_login and upstream.login is not None and await upstream.login.has_changed():
            await upstream.reconnect()  # somebody has logged in with the console command
            if not upstream.wants_login:
                return None
            login_needed.rejected_header = upstream.login.latest_header  # this new login was not sufficient either

        def seal(state: Json) -> str:
            state = {**state, "target": target, "consented": bool(target), "logins": count}
            return self._seal(method, exchange, {**state, "ours": upstream.is_login_offered})

        if logins.has_principals and not login_needed.login.principal:
            raise login_needed  # only the operator may create a login that clients share
        if count >= MAX_LOGINS and "login" not in exchange.carried:
            raise login_needed  # the upstream seems to require another login after each login
        question = await self._login_questions.ask(login_needed, exchange, tasks, seal)
        if question is None:
            await upstream.reconnect()
        return question

    async def _send_once(self, request: RelayedRequest, exchange: Exchange) -> Json:
        session, limit = await self.session_of(request.upstream, exchange), request.upstream.concurrency_limit
        name = exchange.carried.get("suspended")
        # A suspended call keeps its slot.
        if limit is not None and request.slot is None and name is None:
            began = anyio.current_time()
            with ExitStack() as request.slot:
                with anyio.move_on_after(request.patience) as waiting:
                    await limit.acquire_on_behalf_of(request)
                    request.slot.callback(limit.release_on_behalf_of, request)
                if waiting.cancelled_caught:
                    raise BusyError(int(limit.total_tokens))
                request.slot_wait = anyio.current_time() - began
                return await self._send_once(request, exchange)  # the session may have changed while waiting
        if request.tool is not None and name is None:
            own_tools = await self._own_tools(request.upstream, session, exchange)
            definition = own_tools.get(request.tool.upstream_name, request.tool.definition)
            if self.pool.catalog.is_blocked(request.tool.alias, definition):
                raise ToolError(
                    ToolErrorType.EXECUTION_DENIED,
                    f"This tool of the server {request.upstream.alias} is no longer approved in {LOCK_NAME}, so "
                    "nothing was sent.",
                )
            if not is_same_tool(definition, request.tool.definition):
                raise ToolError(
                    ToolErrorType.EXECUTION_DENIED,
                    f"The server {request.upstream.alias} has changed this tool in the meantime (its description or "
                    "its schema), so nothing was sent. List the tools again; if you still need it, repeat the call.",
                )
        is_stale = exchange.is_resumed and exchange.carried["target"] != request.target
        if session.era.is_modern and name is None and not is_stale:
            return await self._in_rounds(session, request, exchange)
        suspended_call = self.suspended.take(str(name), exchange.client_key) if name is not None else None
        if is_stale:
            if suspended_call is not None:
                await suspended_call.cancel()
            raise UpstreamError(STALE)
        if suspended_call is not None:
            call = suspended_call.call
            if isinstance(call, FollowedTask):
                return await self._follow(call, request, exchange)
            suspended_call.session.questions.resume(call, exchange, suspended_call.question_keys)
            return await self._until_answer(suspended_call.session, call, request)
        if name is not None:
            raise SuspendedCallGoneError
        return await self._begin(session, request, request.params, exchange)

    async def _in_rounds(self, session: UpstreamSession, request: RelayedRequest, exchange: Exchange) -> Json:
        """Send a request to a 2026-07-28 upstream, which returns its questions as results."""
        params = request.params
        if exchange.is_resumed or exchange.input_responses:
            params = next_round(params, exchange.carried, exchange.input_responses)
        for _ in range(MAX_ROUNDS):
            try:
                result = await self._begin(session, request, params, exchange)
            except UpstreamError as error:
                # The error tells a 2026-07-28 client to declare support for tasks. Other clients cannot declare it, so
                # this server handles the task for them.
                if exchange.is_modern or declares(exchange.capabilities, TASKS) or not requires_tasks(error):
                    raise
                exchange = as_task_client(exchange)
                continue
            kind = result.get("resultType")
            if kind == "task":
                if knows_tasks(exchange):
                    return self.tasks.register(request.upstream, session, request.params["name"], result, exchange)
                # Release the slot when the upstream has finished the task, or its session is gone.
                release_slot = (request.slot or ExitStack()).pop_all().close
                task = FollowedTask(session, exchange, result, request.patience, release_slot)
                return await self._follow(task, request, exchange)
            if kind != "input_required":
                return result
            questions, round_state = round_of(session.options, result.get("inputRequests"), exchange)
            if "requestState" in result:
                round_state["state"] = result["requestState"]
            if exchange.is_modern and (questions or not round_state["refused"]):
                return {**result, **self._input_required(request, exchange, questions, round_state)}
            params = next_round(request.params, round_state, await self._answers(questions, exchange))
            request.slot_wait = 0.0
        raise TooManyRoundsError

    async def _answers(self, questions: Json, exchange: Exchange) -> Json:
        """Ask a client an upstream's questions while the client's request waits, and return the answers."""
        answers: Json = {}
        for key, question in questions.items():
            method = str(question["method"])
            try:
                answers[key] = await exchange.ask(method, question["params"], self._seconds)
            except NotAskedError:
                answers[key] = refusal_of(method)
        return answers

    async def _follow(self, task: FollowedTask, request: RelayedRequest, exchange: Exchange) -> Json:
        """Wait until a task is done, or has a question that the client gets as the result of its call."""
        is_answer, task.is_suspended = task.is_suspended, False
        task.exchange = as_task_client(exchange)
        try:
            for _ in range(MAX_ROUNDS):
                if is_answer:
                    await task.answer(exchange.input_responses)
                questions = await task.poll()
                if not questions:
                    return task.result()
                if exchange.is_modern and self.suspended.has_room(exchange.client_key):
                    name = self.suspended.add(SuspendedCall(exchange.client_key, task.session, task, []))
                    return self._input_required(request, exchange, questions, {"suspended": name})
                await task.answer(await self._answers(questions, exchange))
                is_answer = False
            raise TooManyRoundsError
        finally:
            if not task.is_suspended:
                await task.cancel()

    async def _begin(self, session: UpstreamSession, request: RelayedRequest, params: Json, exchange: Exchange) -> Json:
        """Send a request, and return its result. Raises `TimeoutError` if the upstream did not read it in time."""
        with nullcontext() if session.channel.writer.has_room else anyio.fail_after(request.patience):
            pending = await session.start(request.method, params, exchange, request.headers)
        call = InFlightCall(pending, exchange)
        session.questions.begin(call)
        return await self._until_answer(session, call, request)

    async def _until_answer(self, session: UpstreamSession, call: InFlightCall, request: RelayedRequest) -> Json:
        """Pass on messages until the upstream responds, or until the call is suspended with a question."""
        pending, exchange = call.pending, call.exchange
        pending.expect(request.patience, request.patience - request.slot_wait)
        try:
            while True:
                match await pending.next():
                    case RpcAnswer(result, problem):
                        if problem is not None:
                            raise problem
                        return checked_result(result, request.method, is_modern=session.era.is_modern)
                    case Progress(params):
                        await exchange.progress(params)
                    case Notice("notifications/message", params):
                        await exchange.log(params)
                    case Notice(method, params):
                        await exchange.notify(method, params)
                    case Expired() if not pending.is_answered:
                        # An answered call has not expired: its response came in time, and only the client reads slowly.
                        raise NoAnswerError
                    case QuestionWaits() if exchange.is_modern:
                        questions = session.questions.hand_out(call)
                        keys = [question.key for question in questions]
                        if not self.suspended.has_room(exchange.client_key):
                            session.questions.refuse(keys)
                        elif questions:
                            name = self.suspended.add(SuspendedCall(exchange.client_key, session, call, keys))
                            if request.slot is not None and not pending.is_answered:
                                # Release the slot when the upstream has finished the call.
                                pending.at_end = request.slot.pop_all().close
                            requests = input_requests(questions)
                            return self._input_required(request, exchange, requests, {"suspended": name})
                    case _:
                        pass
        finally:
            pending.expect(None)
            if not call.is_suspended:
                try:
                    await pending.aclose()
                finally:
                    session.questions.end(call)

    def _input_required(self, request: RelayedRequest, exchange: Exchange, requests: Json, state: Json) -> Json:
        state = {**state, "target": request.target, "replica": self._replica}
        return input_required(requests, self._seal(request.method, exchange, state))

    def _seal(self, method: str, exchange: Exchange, state: Json) -> str:
        return STATE_MARK + self._states.seal(_digest(method, exchange.params), exchange.client_key, state)

    async def set_level(self, level: str, exchange: Exchange, tasks: TaskGroup) -> None:
        """Send a client's log level to the upstreams that it already uses; others get it when it starts to use them."""
        exchange.choose_level(level)

        async def send_level(session: UpstreamSession) -> None:
            with suppress(ConnectionLostError):
                await session.set_level(level)

        await bounded_gather(tasks, [partial(send_level, session) for session in self.pool.sessions_of(exchange)])

    def forget(self, client_key: str) -> None:
        """Forget a client: close its sessions, and cancel its suspended calls."""
        self.suspended.forget(client_key)
        self.pool.forget(client_key)


def _more_scopes_needed(login_needed: LoginNeededError, challenge: Challenge) -> LoginNeededError:
    """Return the error for a call that needs more scopes, or raise a `ToolError` if a new login cannot help."""
    login, scopes = login_needed.login, visible_line(challenge.parameter("scope") or "") or "not named"
    message = f"The server {login.alias} refuses this call: it needs more scopes ({scopes})"
    if login.oauth.scopes is not None:
        message += (
            f". The login requests only the scopes in mcpServers.{login.alias}.oauth.scopes: the user can add the "
            f"missing ones there, or remove that key, and run `{login.command}`."
        )
    elif not login.wants_more(challenge):
        message += (
            ", even after the latest login. The user's account may not be entitled to them; "
            f"to log in again, run `{login.command}`."
        )
    else:
        return LoginNeededError(login, f"requires more scopes ({scopes}) for this call than the login has")
    raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, message)


def _digest(method: str, params: Mapping[str, Any]) -> str:
    """Return a digest of the method and the parameters that identify a request."""
    identifying_params = {name: params[name] for name in _IDENTIFYING_PARAMS if name in params}
    text = json.dumps([method, identifying_params], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
