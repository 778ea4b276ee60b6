"""Roots that an upstream of the handshake era asks for outside of calls, of a client that can be asked in calls alone.

Servers of files do so right after the greeting. The question waits in the session for the client's next call, which is
sent after the answer. Where it has waited too long, the upstream is made to ask once more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from server.exchange import Exchange
from server.upstreams.session.questions import Asked
from server.upstreams.session.session import LEVEL_SECONDS, UpstreamSession
from server.upstreams.wire.peer import UnusableAnswerError, UpstreamError


async def question_before_call(session: UpstreamSession, exchange: Exchange) -> Asked | None:
    """The question that a client has to answer before its call is sent, if there is one.

    Args:
        session: With the upstream.
        exchange: The call.

    Raises:
        ConnectionLostError: There is no connection any more.
    """
    if not exchange.can_be_asked("roots/list", {}):
        return None
    if not session.questions.early():
        session.wants_roots = False
        await session.peer.notify("notifications/roots/list_changed")
        await _until_read(session)
    return next(iter(session.questions.early()), None)


async def tell_roots(session: UpstreamSession, response: Any) -> None:
    """Answer all that was asked outside of calls, and let the upstream take that in.

    Args:
        session: With the upstream.
        response: Of the client; anything but a mapping is none.

    Raises:
        ConnectionLostError: There is no connection any more.
    """
    session.wants_roots = False
    early = session.questions.early()
    keys = [asked.key for asked in early]
    session.questions.answer(dict.fromkeys(keys, response))
    session.questions.refuse(keys)
    for asked in early:
        await asked.is_told.wait()
    await _until_read(session)


async def until_settled(session: UpstreamSession) -> None:
    """Let a new session ask for the roots before the first call, where it can be told them only then.

    Raises:
        ConnectionLostError: There is no connection any more.
    """
    if not session.era.is_modern and session.is_asked_in_calls_alone:
        await _until_read(session)


async def _until_read(session: UpstreamSession) -> None:
    """Wait until the upstream has read all that was sent before, and has said what it says to that at once."""
    with suppress(UpstreamError, UnusableAnswerError, TimeoutError):
        await session.request("ping", {}, LEVEL_SECONDS)
