"""Checks that texts made to be expensive are searched in a time that is linear in their length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import process_time

import pytest

from tests.tables import all_cases
from tools.text.secrets import redact

TextMaker = Callable[[int], str]

SIZES = [3_000, pytest.param(50_000, marks=pytest.mark.long)]
"""How often the repeated part of a text occurs."""

STEPS = 10
"""How many times longer a text is than the one it is compared with. Quadratic work would cost 100 times as much."""

MAX_COST_RATIO = 3 * STEPS
"""How many times more processor time it may take, with a margin for a busy machine."""

ATTEMPTS = 4


def assert_redacted_in_linear_time(text_makers: Iterable[TextMaker], size: int) -> None:
    """Redact a text of each kind, and a tenth of it. A kind fails if the ratio of their costs is too high each time."""
    with all_cases() as case:
        for make_text in text_makers:
            short, whole = make_text(size // STEPS), make_text(size)
            with case(whole[:80]):
                costs = (_cost(whole, 1) / _cost(short, STEPS) for _ in range(ATTEMPTS))
                assert any(cost <= MAX_COST_RATIO for cost in costs), (
                    f"costs more than {MAX_COST_RATIO} times as much as a tenth of it"
                )


def _cost(text: str, times: int) -> float:
    """Return the average processor time of a redaction, in seconds."""
    start = process_time()
    for _ in range(times):
        redact(text)
    return (process_time() - start) / times
