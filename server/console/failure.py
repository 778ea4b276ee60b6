"""Why a command of a person at a terminal did not do what it was asked for."""

from __future__ import annotations


class Failure(Exception):  # noqa: N818 - it is said to a person, and is no fault of the program
    """The command failed; the message says why and what to do, as a sentence that begins small."""
