"""Tables of cases for one test: as separate tests, most cases would take pytest longer to set up than to run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import pytest


def each_of(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each case, as one test, and report every case that fails.

    It takes the arguments of `pytest.mark.parametrize`. All cases share the fixtures of the test, so use it only if
    cases leave nothing behind.

    Args:
        names: The names of the parameters: a sequence, or one string with commas.
        cases: A value for each case; a tuple of values if there are several parameters.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [case if len(parameters) > 1 else (case,) for case in cases]
    assert rows, "a table without cases proves nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[str] = []
            for row in rows:
                arguments = dict(zip(parameters, row, strict=True))
                try:
                    test(**fixtures, **arguments)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any exception fails only this case
                    failures.append(f"{arguments}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(rows)} cases failed:\n" + "\n".join(failures)

        signature = inspect.signature(test)
        fixture_parameters = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=fixture_parameters)  # pyright: ignore[reportAttributeAccessIssue]
        return run

    return decorate


@contextmanager
def all_cases() -> Generator[Callable[[object], AbstractContextManager[None]]]:
    """Report every failed case of one test, which wraps each case in `with case(name):`.

    Use it where `each_of` does not work: in asynchronous tests, and for cases that share what the test has set up.
    """
    failures: list[str] = []

    @contextmanager
    def case(name: object) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any exception fails only this case
            failures.append(f"{name}: {type(error).__name__}: {error}")

    yield case
    assert not failures, f"{len(failures)} cases failed:\n" + "\n".join(failures)
