"""Numbers of examples for property tests: few in `make test`, many in `make test-long`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

FEW = 25
LONG_PROFILE = "long"

TestT = TypeVar("TestT", bound=Callable[..., Any])


def examples(long_count: int, **options: Any) -> Callable[[TestT], TestT]:
    """Run a property test with `long_count` examples in a run of the long tests, and with `FEW` otherwise.

    Args:
        long_count: Number of examples in `make test-long`.
        options: More settings of Hypothesis.
    """
    is_long = settings.get_current_profile_name() == LONG_PROFILE
    limited = settings(max_examples=long_count if is_long else FEW, **options)

    def decorate(test: TestT) -> TestT:
        property_test = limited(test)
        return pytest.mark.long(property_test) if is_long else property_test

    return decorate
