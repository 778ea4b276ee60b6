"""The commands for a person at a terminal, with how they end where they do not succeed."""

from __future__ import annotations

EXIT_FAILED = 1  # the listing or the check failed
EXIT_USAGE = 2  # wrong usage or settings
EXIT_ADDRESS = 3  # the address cannot be served
EXIT_INTERRUPTED = 130  # Ctrl-C, as shells count it: 128 and the number of the signal
EXIT_CLOSED_PIPE = 141  # anyone who read the output has stopped, counted likewise

# The exit codes of `call` leave those below 64 to the command that was run (names and numbers of sysexits.h).
CALL_USAGE = 64  # wrong usage, or a tool that does not exist
CALL_FAILED = 65  # the tool said that it failed
CALL_UNAVAILABLE = 69  # the tool's server is not available
CALL_BROKEN = 70  # the server for the call ended too early
CALL_REFUSED = 77  # a person, a rule or a mode refused it
CALL_SETTINGS = 78  # the settings cannot be used


class UsageError(Exception):
    """The arguments of the command are wrong; the message says how to write them."""


class CommandFailure(Exception):  # noqa: N818 - it is said to a person, and is no fault of the program
    """The command cannot do what was asked; the message says why, and what to do."""
