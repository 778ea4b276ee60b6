"""Whether texts that were made to cost much are looked through in a time that grows as their length does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import process_time

import pytest

from tests.tables import all_cases
from tools.text.secrets import redact

Made = Callable[[int], str]

SIZES = [3_000, pytest.param(50_000, marks=pytest.mark.long)]
"""How often the part of a text is repeated."""

STEPS = 10
"""A text is so many times as long as the one that it is compared with; what grows by the square costs 100 times."""

MOST = 3 * STEPS
"""How many times as much of the processor it may cost: more than a busy machine makes of `STEPS`."""

ATTEMPTS = 4


def assert_redacted_in_linear_time(made: Iterable[Made], size: int) -> None:
    """Redact a text of each kind, and a tenth of it; a kind is named if each attempt costs far more than ten tenths."""
    with all_cases() as case:
        for each in made:
            short, whole = each(size // STEPS), each(size)
            with case(whole[:80]):
                costs = (_cost(whole, 1) / _cost(short, STEPS) for _ in range(ATTEMPTS))
                assert any(cost <= MOST for cost in costs), f"costs more than {MOST} times as much as a tenth of it"


def _cost(text: str, times: int) -> float:
    """Seconds of the processor that it takes, on average."""
    began = process_time()
    for _ in range(times):
        redact(text)
    return (process_time() - began) / times
