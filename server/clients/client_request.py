"""The owner of a client's request, and the request as the relay needs it, with raw parameters and an `Outbound`.

The owner of a client's state is its principal. For a token that the settings define, the principal is the token's name.
For an access token, it is the issuer and subject, regardless of the client program, so a person has the same state in
all programs. Rights belong to the token, so the same person may have fewer rights in one program than in another. A
session can be used with any token of the same person and program that has the same scopes.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import anyio

from server.protocol.json_rpc import Json, MCPError, as_mapping
from server.protocol.request_table import LEVELS, McpConnection, Outbound, RequestContext, elicits, progress_token
from server.protocol.revisions import LOG_LEVEL_META_KEY
from server.questions.client_confirmer import ASKED, QUESTION_KEY
from tools.contract.display import visible
from tools.permissions.permission_policy import ALL_RIGHTS, Rights

if TYPE_CHECKING:
    from starlette.requests import Request

logger = logging.getLogger(__name__)

PRINCIPAL = "coretools-mcp.principal"  # key in a request's ASGI scope for the principal of its token
WELCOMES = frozenset({"initialize", "server/discover"})  # methods that a client calls first
_WEB_ADDRESS = re.compile(r"https?://[^\s/\\?#][^\s\\]*", re.IGNORECASE)
DEFAULT_LEVEL = "info"  # the log level for a handshake client that has not chosen one
_LEVEL_KEY = "coretools-mcp/logLevel"
MAX_PROGRESS = 1e300  # larger values are dropped, because some clients cannot parse integers with more digits
TOKEN_KEY = "token:"  # noqa: S105 - the key prefix for a client that is identified by its token
VARIABLE_NAME = "environment"  # the unique name of the token in the variable CORETOOLS_MCP_TOKEN
LOGIN_KEY = "coretools-mcp/login"  # key of the login question in `inputRequests`, and of its answer


@dataclass(frozen=True, eq=False, slots=True)
class Principal:
    """The sender of a request."""

    unique_name: str
    rights: Rights  # the rights of this request's token
    client_id: str = ""  # the client program's id at the issuer; a session belongs to one program
    issuer: str | None = None
    subject: str | None = None
    readable_name: str = ""  # the display name from the issuer, which may not be unique
    ends: float = math.inf  # when the token expires, in seconds since the epoch

    @property
    def owner(self) -> tuple[object, ...]:
        """The owner of a session.

        It includes the scopes, because only a token with the rights that a call needs may answer the call's questions.
        """
        return self.client_id or self.unique_name, self.issuer, self.subject, self.rights.scopes

    @property
    def seconds_left(self) -> float:
        return max(self.ends - time.time(), 0.0)


def principal_of(request: Request) -> Principal | None:
    """Return the principal of a network request, if it has a token."""
    return request.scope.get(PRINCIPAL)


def rights_of(ctx: RequestContext) -> Rights:
    principal = None if ctx.http_request is None else principal_of(ctx.http_request)
    return ALL_RIGHTS if principal is None else principal.rights


def principal_in(client_key: str) -> str:
    """Return the name of the principal in a client's key; empty if the client has no token."""
    return client_key.removeprefix(TOKEN_KEY) if client_key.startswith(TOKEN_KEY) else ""


@dataclass(eq=False)
class TokenRefusedError(Exception):
    """A token is not accepted."""

    sentence: str  # the reason
    status: int = 401  # the HTTP status
    code: str = "invalid_token"  # the error code from RFC 6750; empty if the token is not at fault
    scope: str = ""  # the scopes that a token needs, separated by spaces


def is_web_address(url: object) -> bool:
    """Return whether a person may be sent to a URL: it must use http or https and have no invisible characters."""
    return isinstance(url, str) and _WEB_ADDRESS.fullmatch(url) is not None and visible(url) == url


class NotAskedError(Exception):
    """The client could not be asked, did not answer in time, or answered with an error."""


@dataclass(eq=False, slots=True)
class Exchange:
    """A client as the upstream code sees it: in a request, outside of one, or in a later round of a call.

    In contrast, a `RequestContext` is one request to this server, and ends with the response.
    """

    outbound: Outbound  # sends to the client: as part of the request, or outside of requests, over the connection
    params: Mapping[str, Any]
    version: str
    capabilities: Json
    client_key: str  # the same as `ClientState.key`; empty for an unidentified client
    connection: McpConnection | None  # the client's connection; `None` in the 2026-07-28 revision
    carried: Json = field(default_factory=dict[str, Any])  # the state of an earlier round of this call, if any
    is_resumed: bool = False  # whether this continues an earlier request whose consent is still valid
    rights: Rights = ALL_RIGHTS  # the rights of the client's token
    readable_name: str = ""  # the display name of the token's owner, if the issuer provides one
    is_modern: bool = False  # whether a question is returned as the result of a request, instead of being sent as one

    def after_login(self) -> Exchange:
        """Return the exchange that continues this request after the login that it waited for.

        It is like the exchange of a new request, except that it carries the number of logins so far.
        """
        return replace(self, carried={"logins": self.carried.get("logins", 0) + 1}, is_resumed=False)

    @property
    def meta(self) -> Json:
        return as_mapping(self.params.get("_meta"))

    @property
    def input_responses(self) -> Json:
        """The answers to upstreams' questions, excluding those to this server's own questions."""
        responses = as_mapping(self.params.get("inputResponses"))
        return {key: responses[key] for key in responses if key not in (QUESTION_KEY, LOGIN_KEY)}

    @property
    def log_level(self) -> str | None:
        """The lowest log level that the client wants, if any; in the 2026-07-28 revision, each request states it."""
        if not self.is_modern:
            return self.chosen_level or DEFAULT_LEVEL
        level = self.meta.get(LOG_LEVEL_META_KEY)
        return level if level in LEVELS else None

    @property
    def chosen_level(self) -> str | None:
        return None if self.connection is None else self.connection.state.get(_LEVEL_KEY)

    def choose_level(self, level: str) -> None:
        if self.connection is not None:
            self.connection.state[_LEVEL_KEY] = level

    def can_be_asked(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether the client has declared the capability for a request, and may be sent these parameters."""
        match method:
            case "elicitation/create":
                mode = params.get("mode", "form")
                return elicits(self.capabilities, mode) and (mode != "url" or is_web_address(params.get("url")))
            case "sampling/createMessage":
                sampling = self.capabilities.get("sampling")
                # Tools in a sampling request need a separate capability (SEP-1577), without which clients ignore them.
                wants_tools = bool(params.get("tools") or params.get("toolChoice"))
                return sampling is not None and (as_mapping(sampling).get("tools") is not None or not wants_tools)
            case "roots/list":
                return self.capabilities.get("roots") is not None
            case _:
                return False

    @property
    def is_outside_request(self) -> bool:
        return self.connection is not None and self.outbound is self.connection.outbound

    def outside_request(self) -> Exchange | None:
        """Return an exchange with the same client outside of any request; `None` in the 2026-07-28 revision."""
        if self.connection is None:
            return None
        return replace(self, outbound=self.connection.outbound, params={}, carried={}, is_resumed=False)

    def at_end(self, callback: Callable[[], object]) -> None:
        if self.connection is not None:
            self.connection.at_end(callback)

    async def progress(self, params: Json) -> None:
        """Forward a progress notification, if it is valid and the client asked for progress."""
        progress, total, message = (params.get(name) for name in ("progress", "total", "message"))
        if not (_is_number(progress) and (total is None or _is_number(total)) and isinstance(message, str | None)):
            return  # a client may be unable to parse this value
        if (token := progress_token(self.params)) is not None:
            fields = {name: value for name, value in params.items() if value is not None}
            await self.notify("notifications/progress", {**fields, "progressToken": token})

    async def log(self, params: Json) -> None:
        """Forward a log message, but in the 2026-07-28 revision only if the request asks for messages of that level."""
        if self.is_modern:
            lowest_level, level = self.log_level, params.get("level")
            if lowest_level is None or level not in LEVELS or LEVELS.index(str(level)) < LEVELS.index(lowest_level):
                return
        await self.notify("notifications/message", params)

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification for this request, or drop it if the client is no longer reachable."""
        if self.is_modern and method == "notifications/elicitation/complete":
            return  # the 2026-07-28 revision has no equivalent
        try:
            await self.outbound.notify(method, params)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            logger.debug("a notification arrived after its request had ended")

    async def ask(self, method: str, params: Json, seconds: float) -> Json:
        """Send the client a request and return the result. Raises `NotAskedError` if there is no result."""
        if params.get("mode") == "url":
            # Upstreams of the 2026-07-28 revision send no `elicitationId`, but this client's revision requires one.
            params = {"elicitationId": secrets.token_hex(8), **params}
        try:
            with anyio.fail_after(seconds), ASKED:  # `ASKED` counts questions
                return await self.outbound.request(method, params)
        except (MCPError, TimeoutError, RuntimeError):
            raise NotAskedError from None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_PROGRESS


def exchange_of(ctx: RequestContext, client_key: str) -> Exchange:
    principal = None if ctx.http_request is None else principal_of(ctx.http_request)
    return Exchange(
        outbound=ctx.outbound,
        params=ctx.params or {},
        version=ctx.connection.protocol_version,
        capabilities=ctx.connection.capabilities or {},
        client_key=client_key,
        connection=None if ctx.connection.is_modern else ctx.connection,
        rights=ALL_RIGHTS if principal is None else principal.rights,
        readable_name="" if principal is None else principal.readable_name,
        is_modern=ctx.connection.is_modern,
    )
