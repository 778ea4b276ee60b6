"""What other servers say of their failures, as it is shown to people and models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.contract.display import in_one_line
from tools.text.secrets import redact

if TYPE_CHECKING:
    from server.network.sent_secrets import SentSecrets  # most are quoted without a library for HTTP

QUOTED_CHARS = 200  # of what a server says
_LOOKED_AT = 20 * QUOTED_CHARS  # characters that are looked at, since marks are longer than what they stand for


def quoted(text: str, secrets: SentSecrets | None = None) -> str:
    """The beginning of what a server says, on one line, and without what looks like a secret or is one."""
    if secrets is not None:
        text = secrets.hide(text)
    shown = in_one_line(redact(text[:_LOOKED_AT]))
    return shown if len(shown) <= QUOTED_CHARS else f"{shown[:QUOTED_CHARS]} [...]"
