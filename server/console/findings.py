"""What a check of the doctor finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from server.settings import SettingsReport


class Health(StrEnum):
    """How something stands."""

    OK = "ok"
    """It works."""

    ABSENT = "absent"
    """It is not there, and nobody asked for it; something else takes its place."""

    BROKEN = "broken"
    """It was configured or is needed, and does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Args:
        subject: What was looked at.
        health: How it stands.
        text: What there is to say.
        remedy: What to do; empty where nothing has to be done.
    """

    subject: str
    health: Health
    text: str
    remedy: str = ""


Check = Callable[[SettingsReport], Awaitable[Sequence[Finding]]]
