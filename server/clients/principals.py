"""Principals: the owners of clients' state, identified by their HTTP tokens, and the rights of a token.

The principal of a token in the settings is the token's name. The principal of an access token is its issuer and
subject, regardless of the client program, so a person has the same state in all programs. Rights belong to the token,
so the same person may have fewer rights in one program than in another.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.permissions.permission_policy import ALL_RIGHTS, Rights

if TYPE_CHECKING:
    from starlette.requests import Request

    from server.protocol.request_table import RequestContext

PRINCIPAL = "coretools-mcp.principal"  # key in a request's ASGI scope for the principal of its token


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
    def owner(self) -> tuple[str | None, ...]:
        """The owner of a session."""
        return self.client_id or self.unique_name, self.issuer, self.subject

    @property
    def seconds_left(self) -> float:
        """How long the token remains valid."""
        return max(self.ends - time.time(), 0.0)


def principal_of(request: Request | None) -> Principal | None:
    """Return the principal of a network request, if it has a token."""
    return None if request is None else request.scope.get(PRINCIPAL)


def rights_of(ctx: RequestContext) -> Rights:
    """Return the rights of a request's token."""
    principal = principal_of(ctx.http_request)
    return ALL_RIGHTS if principal is None else principal.rights


class TokenRefusedError(Exception):
    """A token is not accepted.

    Args:
        sentence: The reason.
        status: The HTTP status.
        code: The error code from RFC 6750; empty if the token is not at fault.
        scope: The scopes that a token needs, separated by spaces.
    """

    def __init__(self, sentence: str, status: int = 401, code: str = "invalid_token", scope: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.scope = scope
