"""Who shows a token over HTTP: the principal that everything of a client belongs to, and what the token gives.

One of a token of the settings is its name. One of an access token is the person or program that the issuer gave it to,
by the issuer and the subject, with whichever program the person uses: what belongs to a person is there in each of
them. What may be done is the token's alone, so a program that was given less does less, whatever another one may do.
"""

from __future__ import annotations

import math
import time

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

from tools.permissions.rights import Rights


class Principal(AuthenticatedUser):
    """Who a request comes from, as the middleware of the SDK knows it too.

    Args:
        name: Nobody else's.
        rights: What the token gives that came with this request.
        readable_name: What people call it, which the issuer says; others may be called so, too.
        client_id: The program that uses it, as its issuer knows it; sessions are of one program.
        ends: When its token counts no more, in seconds since the epoch.
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
        # The token itself goes no further.
        claims = {"iss": issuer} if issuer is not None else None
        super().__init__(AccessToken(token="", client_id=client_id or name, scopes=[], subject=subject, claims=claims))
        self.username = name
        self.rights = rights
        self.readable_name = readable_name  # the SDK tells users apart by `display_name`, which is the username
        self._ends = ends

    @property
    def seconds_left(self) -> float:
        """How long its token still counts."""
        return max(self._ends - time.time(), 0.0)


def principal_of(request: object) -> Principal | None:
    """Whose token came with a request of the network, if there was one."""
    user = request.scope.get("user") if isinstance(request, Request) else None
    return user if isinstance(user, Principal) else None


class TokenRefusedError(Exception):
    """A token lets nobody in.

    Args:
        sentence: Why.
        status: What HTTP calls it.
        code: What it is in the words of RFC 6750; empty where it is no fault of the token.
        scope: Scopes that a token needs, with blanks between.
    """

    def __init__(self, sentence: str, status: int = 401, code: str = "invalid_token", scope: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.scope = scope
