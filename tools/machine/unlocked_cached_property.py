"""`functools.cached_property` without the lock that it has before Python 3.12.

That lock is held for all objects of a class while one of them computes its value. A single folder that does not
answer, such as a network mount, would block every other client.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property  # noqa: TID251 - the only module that imports it
else:

    class cached_property:  # noqa: N801 - the name in the standard library
        """Stores the value in the object's `__dict__`, where later accesses find it first."""

        def __init__(self, compute: Any) -> None:
            self.compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.compute(instance)
            return value


__all__ = ["cached_property"]
