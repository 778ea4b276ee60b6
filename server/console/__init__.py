"""The terminal commands, and their exit codes for failures."""

from __future__ import annotations

EXIT_FAILED = 1  # the command failed, or found a problem
EXIT_USAGE = 2  # wrong usage or settings
EXIT_ADDRESS = 3  # the address or the certificate cannot be used, or a token is missing
EXIT_INTERRUPTED = 130  # Ctrl-C: 128 plus the number of the signal, as in shells
EXIT_CLOSED_PIPE = 141  # the reader of the output is gone: 128 plus SIGPIPE

# The exit codes of `call` itself, from sysexits.h. If the call ran a command, `call` exits with the command's code.
CALL_USAGE = 64  # wrong usage, or a tool that does not exist
CALL_FAILED = 65  # the tool reported a failure
CALL_UNAVAILABLE = 69  # the tool's server is unavailable
CALL_BROKEN = 70  # an internal error
CALL_REFUSED = 77  # a person, a rule or a mode refused the call
CALL_SETTINGS = 78  # the settings are invalid


class UsageError(Exception):
    """A command was given invalid arguments; the message says how to write them."""


class CommandFailure(Exception):  # noqa: N818 - a message for a person, not a bug
    """The command cannot do what was asked; the message says why, and what to do."""
