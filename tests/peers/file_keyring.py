"""Keyrings for tests, selected by PYTHON_KEYRING_BACKEND: one that stores files in a folder, and two that fail."""

from __future__ import annotations

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

FOLDER = "KEYRING_OF_TESTS"
"""The environment variable that names the folder"""


class FileKeyring(KeyringBackend):
    """Keeps each secret in a file of one folder."""

    priority = 1  # pyright: ignore[reportAssignmentType, reportUnannotatedClassAttribute] - as other backends do

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
    """A keyring that its user does not unlock."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(password)


class BrokenKeyring(FileKeyring):
    """A keyring that fails with an unexpected error, whose message contains the secret."""

    def get_password(self, service: str, username: str) -> str | None:
        raise ValueError(self._file(service, username).read_text())

    def set_password(self, service: str, username: str, password: str) -> None:
        raise ValueError(password)
