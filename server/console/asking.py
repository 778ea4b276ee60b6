"""Asking a person at a terminal before something lasting is done."""

from __future__ import annotations

import sys

from server.console.failure import Failure


def ask(question: str, otherwise: str) -> None:
    """Go on only if a person says so.

    Args:
        question: What is asked, as it is to be shown.
        otherwise: What then has not happened, as the beginning of a sentence.

    Raises:
        Failure: They do not agree, or nobody can answer.
    """
    if not sys.stdin.isatty():
        raise Failure(f"{otherwise}: nobody can answer here (standard input is no terminal). Give --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(f"{otherwise}.")
