"""Whether texts that were made to cost much are looked through in a time that grows as their length does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest

from tests.waiting import CEILING

PROGRAM = """
import json, sys
from tools.contract.secrets import redact
for text in json.load(sys.stdin):
    print(json.dumps(text[:80]), flush=True)
    redact(text)
"""

Made = Callable[[int], str]


def assert_redacted_in_time(made: Iterable[Made]) -> None:
    """Redact texts of each kind in one process; a quadratic pattern needs minutes for any of them."""
    texts = json.dumps([each(50_000) for each in made]).encode()
    command = [sys.executable, "-c", PROGRAM]
    try:
        subprocess.run(command, input=texts, stdout=subprocess.PIPE, timeout=CEILING, check=True)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"this takes too long: {(error.stdout or b'').decode().splitlines()[-1:]}")
