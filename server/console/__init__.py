"""The commands for a person at a terminal, with how they end where they do not succeed."""

from __future__ import annotations

EXIT_FAILED = 1  # the call, the listing or the check failed
EXIT_USAGE = 2  # wrong usage or settings
EXIT_ADDRESS = 3  # the address cannot be served


class UsageError(Exception):
    """The arguments of the command are wrong; the message says how to write them."""


class Failure(Exception):  # noqa: N818 - it is said to a person, and is no fault of the program
    """The command cannot do what was asked; the message says why, and what to do."""
