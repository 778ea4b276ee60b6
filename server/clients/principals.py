"""Who shows a token over HTTP: the principal that everything of a client belongs to, and what the token gives.

One of a token of the settings is its name. One of an access token is the person or program that the issuer gave it to,
by the issuer and the subject, with whichever program the person uses: what belongs to a person is there in each of
them. What may be done is the token's alone, so a program that was given less does less, whatever another one may do.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from tools.permissions.client_rights import Rights

if TYPE_CHECKING:
    from starlette.requests import Request

PRINCIPAL = "coretools-mcp.principal"  # where a request carries whose token came with it


class Principal:
    """Who a request comes from.

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
        self.unique_name = name
        self.owner = client_id or name, issuer, subject  # whose sessions are whose
        self.rights = rights
        self.readable_name = readable_name
        self._ends = ends

    @property
    def seconds_left(self) -> float:
        """How long its token still counts."""
        return max(self._ends - time.time(), 0.0)


def principal_of(request: Request | None) -> Principal | None:
    """Whose token came with a request of the network, if there was one."""
    return None if request is None else request.scope.get(PRINCIPAL)


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
