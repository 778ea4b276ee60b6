"""Keyrings for tests, which `keyring` finds by PYTHON_KEYRING_BACKEND: one in a folder, and some that fail."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

FOLDER = "KEYRING_OF_TESTS"
"""The variable that names the folder."""


class FileKeyring(KeyringBackend):
    """Keeps each secret in a file of one folder."""

    priority = 1  # pyright: ignore[reportAssignmentType, reportUnannotatedClassAttribute] - as backends give it

    def _file(self, service: str, username: str) -> Path:
        return Path(os.environ[FOLDER]) / f"{service}.{username}"

    def get_password(self, service: str, username: str) -> str | None:
        try:
            return str(json.loads(self._file(service, username).read_text()))
        except FileNotFoundError:
            return None

    def set_password(self, service: str, username: str, password: str) -> None:
        self._file(service, username).write_text(json.dumps(password))

    def delete_password(self, service: str, username: str) -> None:
        try:
            self._file(service, username).unlink()
        except FileNotFoundError:
            raise PasswordDeleteError from None


class LockedKeyring(FileKeyring):
    """One whose person does not unlock it."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(password)


class BrokenKeyring(FileKeyring):
    """One that fails in its own way, and says too much."""

    def get_password(self, service: str, username: str) -> str | None:
        raise ValueError(self._file(service, username).read_text())

    def set_password(self, service: str, username: str, password: str) -> None:
        raise ValueError(password)
