"""What other servers say of their failures, as it is shown to people and models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tools.contract.display import in_one_line
from tools.contract.secrets import HIDDEN, is_secret_name, redact

QUOTED_CHARS = 200  # of what a server says
_LOOKED_AT = 20 * QUOTED_CHARS  # characters that are looked at, since marks are longer than what they stand for
_LEAST_SECRET = 6  # characters of what was sent to a server and is hidden where it says that back
_NOTHING: Mapping[str, str] = MappingProxyType({})


def quoted(text: str, sent: Mapping[str, str] = _NOTHING) -> str:
    """The beginning of what a server says, safe to be shown: on one line, without secrets.

    Nor does it hold what was sent as one in the headers of a request.
    """
    for name, value in sent.items():
        if is_secret_name(name) or name in ("authorization", "cookie"):
            for secret in {value, value.rpartition(" ")[2]}:
                text = text.replace(secret, HIDDEN) if len(secret) >= _LEAST_SECRET else text
    shown = in_one_line(redact(text[:_LOOKED_AT]))
    return shown if len(shown) <= QUOTED_CHARS else f"{shown[:QUOTED_CHARS]} [...]"
