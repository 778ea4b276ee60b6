"""What is sealed: clients and stores keep it for us, and cannot read, change or forge it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class Sealer:
    """Seals with the first of some keys of 32 bytes, and opens what was sealed with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    @cached_property
    def _fernet(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - a start seals nothing

        return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in self._keys])

    def seal(self, payload: bytes) -> str:
        return self._fernet.encrypt(payload).decode("ascii")

    def unseal(self, sealed: str) -> bytes:
        """What was sealed; `ValueError` where it was not sealed with one of the keys."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        # What is written in another way than `seal` does it was changed, though it may mean the same.
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(sealed)).decode() != sealed:
            raise ValueError("not as it was sealed")
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise ValueError("not sealed with a known key") from None
