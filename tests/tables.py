"""Tables of cases that one test goes through. pytest spends more on a test of its own than most of them take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import pytest


def each_of(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Go through cases within one test, and name every one that fails.

    It takes what `pytest.mark.parametrize` takes. All cases share the fixtures of the test, so it is for those that
    leave nothing behind.

    Args:
        names: The parameters that a case gives, divided by commas.
        cases: A value each, or a tuple where there are several names.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [case if len(parameters) > 1 else (case,) for case in cases]
    assert rows, "a table without cases proves nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[str] = []
            for row in rows:
                given = dict(zip(parameters, row, strict=True))
                try:
                    test(**fixtures, **given)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, it fails one case
                    failed.append(f"{given}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} of {len(rows)} cases failed:\n" + "\n".join(failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=kept)  # pyright: ignore[reportAttributeAccessIssue]
        return run

    return decorate


@contextmanager
def all_cases() -> Generator[Callable[[object], AbstractContextManager[None]]]:
    """Go through cases within one test, `with case(name):` around each, and name every one that fails.

    It is for what `each_of` cannot do: asynchronous tests, and cases that share what the test has begun.
    """
    failed: list[str] = []

    @contextmanager
    def case(name: object) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, it fails one case
            failed.append(f"{name}: {type(error).__name__}: {error}")

    yield case
    assert not failed, f"{len(failed)} cases failed:\n" + "\n".join(failed)
