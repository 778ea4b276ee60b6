"""Who may use the page: the person with the link, once, in one browser. A form counts for what it showed alone."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

CODE_SECONDS = 60.0  # how long a link may be used
MAX_CODES = 20  # links that wait to be used
MAX_BROWSERS = 20  # that are signed in at once; the one that signed in first goes first


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One browser that has used a link."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def form_token(self, path: str, shown: str) -> str:
        """What a form has to bring along that is sent to this path, and showed just this."""
        return hmac.new(self.secret, f"{path}\n{shown}".encode(), hashlib.sha256).hexdigest()

    def accepts(self, token: str, path: str, shown: str) -> bool:
        return hmac.compare_digest(token.encode(), self.form_token(path, shown).encode())


class SignIn:
    """Gives out one-time codes, and remembers the browsers that came with one. All of it ends with the process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def new_code(self) -> str:
        """A code for one link."""
        code = secrets.token_urlsafe(16)
        self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def use(self, code: str) -> BrowserSession | None:
        """A session for who has a code that was given out and is still good; the code is used up."""
        expires = self._codes.pop(_digest(code), 0.0)
        if expires < self._clock():
            return None
        session = BrowserSession()
        self._sessions[_digest(session.cookie)] = session
        while len(self._sessions) > MAX_BROWSERS:
            self._sessions.popitem(last=False)
        return session

    def session(self, cookie: str) -> BrowserSession | None:
        """The session of a browser with this cookie."""
        return self._sessions.get(_digest(cookie))


def _digest(text: str) -> str:
    # Looked up by what tells nothing of them, however long the look-up takes.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
