"""Encrypted rows in the shared store, each bound to its key: write access to the store is not enough to forge one.

An old row can still be restored under its key, so readers must expect this.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Generic, TypeVar

from server.settings.settings_files import read_stored
from server.store.replica import Replica
from server.store.sealed_states import Sealer
from server.store.shared_store import ABSENT
from tools.machine.threads import THREADS

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_TRIES = 32  # attempts at a write while others write concurrently


@dataclass(frozen=True, slots=True)
class SealedRow(Generic[T]):
    value: T | None  # `None` if the row is missing or unusable
    version: str
    is_current: bool = True  # whether it is encrypted with the first key


def stored_dataclass(kind: type[T]) -> tuple[Callable[[bytes], T], Callable[[T], bytes]]:
    """Return a parser and a serializer for rows with the fields of a dataclass."""
    return partial(read_stored, kind), lambda value: json.dumps(asdict(value)).encode()  # pyright: ignore[reportArgumentType] - it is a dataclass


@dataclass(frozen=True, slots=True, eq=False)
class SealedRows(Generic[T]):
    """The rows for one purpose. Every method may raise `StoreUnavailableError`."""

    replica: Replica
    purpose: str  # part of the keys in the store
    form: tuple[Callable[[bytes], T], Callable[[T], bytes]]
    """A parser, which raises `ValueError` for a damaged row, and a serializer."""
    seconds: float | None = None  # the lifetime of a row after its last write; forever by default
    are_large: bool = field(default=False, kw_only=True)  # whether to decrypt and encrypt in threads

    async def read(self, key: str, known: SealedRow[T] | None = None) -> SealedRow[T]:
        """Read a row. If its version is still that of `known`, return `known` without decrypting or logging."""
        held = await self.replica.store.get(self._name(key))
        if held is None:
            return SealedRow(None, ABSENT)
        if known is not None and held.version == known.version:
            return known

        def opened() -> SealedRow[T]:
            parse, _ = self.form
            for number, one in enumerate(self._keys(key)):
                try:
                    content = Sealer([one]).unseal(held.value)
                except ValueError:
                    continue
                return SealedRow(parse(content), held.version, number == 0)
            raise ValueError("not encrypted with a known key")

        try:
            return await THREADS.run(opened) if self.are_large else opened()
        except ValueError:
            message = (
                "the store has a row for %s that is damaged or not encrypted with this server's keys; it is ignored"
            )
            logger.warning(message, self.purpose)
            return SealedRow(None, held.version)

    async def version(self, key: str) -> str:
        held = await self.replica.store.get(self._name(key))
        return ABSENT if held is None else held.version

    async def write(self, key: str, value: T, over: str | None) -> str | None:
        """Write a row over the version `over`, or over any version if `over` is `None`.

        Returns the new version; `None` if the row's version differs from `over`.

        Raises:
            ValueError: The value cannot be serialized.
        """

        def sealed() -> str:
            _, write = self.form
            return Sealer(self._keys(key)).seal(write(value))

        text = await THREADS.run(sealed) if self.are_large else sealed()
        return await self.replica.store.put(self._name(key), text, self.seconds, if_version=over)

    async def change(self, key: str, change: Callable[[T | None], T]) -> SealedRow[T] | None:
        """Change a row. Returns the written row, or `None` if too many replicas write concurrently."""
        for _ in range(MAX_TRIES):
            row = await self.read(key)
            value = change(row.value)
            if version := await self.write(key, value, row.version):
                return SealedRow(value, version)
        return None

    async def seal_again(self, key: str, row: SealedRow[T]) -> None:
        """Encrypt a row with the first key if another key was used, so that the other key can be retired."""
        if row.value is not None and not row.is_current:
            await self.write(key, row.value, row.version)

    async def remove(self, key: str) -> None:
        await self.replica.store.delete(self._name(key))

    def _name(self, key: str) -> str:
        return f"{self.purpose}:{key}"

    def _keys(self, key: str) -> list[bytes]:
        return self.replica.keys_for(f"{self.purpose} {key}")
