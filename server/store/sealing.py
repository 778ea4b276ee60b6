"""Sealing: clients and stores keep sealed texts for the server, and cannot read, change or forge them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class Sealer:
    """Seals with the first of some keys of 32 bytes, and opens what any of them sealed."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    @cached_property
    def _fernet(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - a start seals nothing

        return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in self._keys])

    def seal(self, payload: bytes) -> str:
        return self._fernet.encrypt(payload).decode("ascii")

    def unseal(self, sealed: str) -> bytes:
        """Open a sealed text; `ValueError` if none of the keys sealed it."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

        # An encoding other than that of `seal` means it was changed, even if it decodes to the same bytes.
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(sealed)).decode() != sealed:
            raise ValueError("not as it was sealed")
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise ValueError("not sealed with a known key") from None
