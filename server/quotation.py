"""What other servers say of their failures, as it is shown to people and models."""

from __future__ import annotations

from collections.abc import Iterable

from tools.contract.display import in_one_line
from tools.contract.secrets import HIDDEN, redact

QUOTED_CHARS = 200  # of what a server says
_LOOKED_AT = 20 * QUOTED_CHARS  # characters that are looked at, since marks are longer than what they stand for


def quoted(text: str, secrets: Iterable[str] = ()) -> str:
    """The beginning of what a server says, on one line, and without what looks like a secret or is one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    shown = in_one_line(redact(text[:_LOOKED_AT]))
    return shown if len(shown) <= QUOTED_CHARS else f"{shown[:QUOTED_CHARS]} [...]"
