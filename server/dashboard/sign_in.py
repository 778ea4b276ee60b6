"""Sign-in: a link works once, in one browser. A form is bound to the content that it showed."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

CODE_SECONDS = 60.0  # how long a link is valid
MAX_CODES = 20  # maximum number of unused links
MAX_BROWSERS = 20  # signed-in browsers at once; the oldest is signed out first


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One browser that has used a link."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def form_token(self, path: str, shown: str) -> str:
        """Return the token that a form must carry, bound to its path and content."""
        return hmac.new(self.secret, f"{path}\n{shown}".encode(), hashlib.sha256).hexdigest()

    def accepts(self, token: str, path: str, shown: str) -> bool:
        return hmac.compare_digest(token.encode(), self.form_token(path, shown).encode())


class SignIn:
    """Issues one-time codes, and remembers the browsers that used one, until the process exits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def new_code(self) -> str:
        """Return a code for one link."""
        code = secrets.token_urlsafe(16)
        self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def use(self, code: str) -> BrowserSession | None:
        """Use up a valid code and return a new session."""
        expires = self._codes.pop(_digest(code), 0.0)
        if expires < self._clock():
            return None
        session = BrowserSession()
        self._sessions[_digest(session.cookie)] = session
        while len(self._sessions) > MAX_BROWSERS:
            self._sessions.popitem(last=False)
        return session

    def session(self, cookie: str) -> BrowserSession | None:
        """Return the session of a browser with this cookie."""
        return self._sessions.get(_digest(cookie))


def _digest(text: str) -> str:
    # Codes and cookies are looked up by their digest, so that the time of the lookup reveals nothing about them.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
