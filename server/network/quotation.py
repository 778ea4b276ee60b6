"""Error messages from other servers, prepared for people and models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.contract.display import in_one_line
from tools.text.secrets import redact

if TYPE_CHECKING:
    from server.network.sent_secrets import SentSecrets  # most quotations do not need the HTTP library

QUOTED_CHARS = 200  # maximum length of a quotation
_LOOKED_AT = 20 * QUOTED_CHARS  # characters examined; markup is longer than the text in it


def quoted(text: str, secrets: SentSecrets | None = None) -> str:
    """Return the beginning of a server's message on one line, without known or likely secrets."""
    if secrets is not None:
        text = secrets.hide(text)
    shown = in_one_line(redact(text[:_LOOKED_AT]))
    return shown if len(shown) <= QUOTED_CHARS else f"{shown[:QUOTED_CHARS]} [...]"
