"""How many examples a property is tried with: few in `make test`, as many as it is worth in `make test-long`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

FEW = 25
LONG_PROFILE = "long"

TestT = TypeVar("TestT", bound=Callable[..., Any])


def examples(most: int, **more: Any) -> Callable[[TestT], TestT]:
    """Give a property so many examples in a run of the long tests, of which it becomes one, and `FEW` in others.

    Args:
        most: Examples in `make test-long`.
        more: Further settings of Hypothesis.
    """
    is_long = settings.get_current_profile_name() == LONG_PROFILE
    limited = settings(max_examples=most if is_long else FEW, **more)

    def decorate(test: TestT) -> TestT:
        made = limited(test)
        return pytest.mark.long(made) if is_long else made

    return decorate
