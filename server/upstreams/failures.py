"""Why an upstream cannot be reached, in words of ours."""

from __future__ import annotations

from typing import cast

from server.upstreams.era import IncompatibleError
from server.upstreams.listing import IsThisServerError
from server.upstreams.peer import ConnectionLostError, UnusableAnswerError, UpstreamError
from server.upstreams.remote import NeedsAuthenticationError, UnreachableError
from server.upstreams.state import UpstreamState

_FAILURES: tuple[tuple[type[Exception], UpstreamState, str], ...] = (
    (IsThisServerError, UpstreamState.LEFT_OUT, "it is this very server"),
    (NeedsAuthenticationError, UpstreamState.NEEDS_AUTHENTICATION, "it lets nobody in without a token or a log-in"),
    (UnreachableError, UpstreamState.FAILED, "nobody answers at its address"),
    (FileNotFoundError, UpstreamState.FAILED, "its command was not found"),
    (NotADirectoryError, UpstreamState.FAILED, "its working folder was not found"),
    (PermissionError, UpstreamState.FAILED, "its command may not be executed"),
    (ConnectionLostError, UpstreamState.FAILED, "it ended or did not answer while connecting"),
    (TimeoutError, UpstreamState.FAILED, "it did not tell its tools in time"),
    (IncompatibleError, UpstreamState.FAILED, "it speaks no revision of the protocol that we do"),
)
"""Why a connection failed, in words of ours: texts of exceptions may hold addresses and secrets."""


def failure_of(error: BaseException) -> tuple[UpstreamState, str]:
    """What a failed connection means: the state that the upstream is in, and why."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    for kind, state, why in _FAILURES:
        if isinstance(error, kind):
            return state, why
    if isinstance(error, UnusableAnswerError):
        return UpstreamState.FAILED, f"it gave no usable answer: {error.why}"
    if isinstance(error, UpstreamError):
        return UpstreamState.FAILED, f"it answered with error {error.code}"
    return UpstreamState.FAILED, f"the connection failed ({type(error).__name__})"
