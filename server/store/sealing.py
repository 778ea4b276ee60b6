"""Authenticated encryption for data that clients and stores keep for the server."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


class Sealer:
    """Encrypts with the first of several 32-byte keys, and decrypts with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    @cached_property
    def _fernet(self) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - loaded on first use

        return MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in self._keys])

    def seal(self, payload: bytes) -> str:
        return self._fernet.encrypt(payload).decode("ascii")

    def unseal(self, sealed: str) -> bytes:
        """Decrypt a string, or raise `ValueError` if it was not encrypted with one of the keys."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - loaded on first use

        # A different encoding means that the string was changed, even if it decodes to the same bytes.
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(sealed)).decode() != sealed:
            raise ValueError("changed after encryption")
        try:
            return self._fernet.decrypt(sealed)
        except InvalidToken:
            raise ValueError("not encrypted with a known key") from None
