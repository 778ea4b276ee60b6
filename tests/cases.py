"""Many cases in one test, which names every one that does not hold."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

Case = Callable[[object], AbstractContextManager[None]]


@contextmanager
def all_hold() -> Generator[Case]:
    """Yields what a case is wrapped in with its name: `with case(name): assert ...`; where one fails, others go on."""
    failed: list[str] = []

    @contextmanager
    def case(name: object) -> Generator[None]:
        try:
            yield
        except (AssertionError, pytest.fail.Exception) as error:
            failed.append(f"{name}: {error}")

    yield case
    assert failed == [], "\n".join(failed)
