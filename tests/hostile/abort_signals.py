"""An abort signal that cancels a call after a number of checks, for tests of calls that must notice a cancellation."""

from __future__ import annotations

from tools.contract.call_options import AbortSignal


class AbortAfterChecks(AbortSignal):
    """Counts how often a call checks the signal, and aborts the call when there are more checks than `limit`."""

    __slots__ = ("checks", "limit")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.checks = 0

    def raise_if_aborted(self) -> None:
        self.checks += 1
        if self.checks > self.limit:
            self.abort()
        super().raise_if_aborted()
