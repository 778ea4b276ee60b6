"""Principals: the owners of clients' state, identified by their HTTP tokens, and the rights of a token.

The principal of a token in the settings is the token's name. The principal of an access token is its issuer and
subject, regardless of the client program, so a person has the same state in all programs. Rights belong to the token,
so the same person may have fewer rights in one program than in another.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from tools.permissions.client_rights import Rights

if TYPE_CHECKING:
    from starlette.requests import Request

PRINCIPAL = "coretools-mcp.principal"  # key in a request's ASGI scope for the principal of its token


class Principal:
    """The sender of a request.

    Args:
        name: The unique name.
        rights: The rights of this request's token.
        readable_name: The display name from the issuer, which may not be unique.
        client_id: The client program's id at the issuer; a session belongs to one program.
        ends: The time at which the token expires, in seconds since the epoch.
    """

    def __init__(
        self,
        name: str,
        rights: Rights,
        *,
        client_id: str = "",
        issuer: str | None = None,
        subject: str | None = None,
        readable_name: str = "",
        ends: float = math.inf,
    ) -> None:
        self.unique_name = name
        self.owner = client_id or name, issuer, subject  # the owner of a session
        self.rights = rights
        self.readable_name = readable_name
        self._ends = ends

    @property
    def seconds_left(self) -> float:
        """How long the token is still valid."""
        return max(self._ends - time.time(), 0.0)


def principal_of(request: Request | None) -> Principal | None:
    """Return the principal of a network request, if it has a token."""
    return None if request is None else request.scope.get(PRINCIPAL)


class TokenRefusedError(Exception):
    """A token is not accepted.

    Args:
        sentence: The reason.
        status: The HTTP status.
        code: The error code of RFC 6750; empty if the token is not at fault.
        scope: The scopes that a token needs, separated by spaces.
    """

    def __init__(self, sentence: str, status: int = 401, code: str = "invalid_token", scope: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.scope = scope
