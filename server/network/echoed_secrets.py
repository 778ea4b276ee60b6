"""Removes secrets from the responses of other servers.

The secrets that were sent to a server are hidden wherever its answers repeat them, in any common encoding. Of an error
message, only the beginning is quoted for people and models, and anything else in it that looks like a secret is hidden.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, cast
from urllib.parse import quote, quote_plus, unquote

from tools.contract.display import in_one_line
from tools.text.secrets import HIDDEN, is_secret_name, redact

QUOTED_CHARS = 200  # maximum length of a quotation
_MAX_CHECKED_CHARS = 20 * QUOTED_CHARS  # how many characters are examined; markup is longer than the text in it
_LEAST_SECRET = 6  # minimum length of a hidden value
_LIKE_A_TOKEN = 16  # minimum length of a path segment that is hidden
_MAX_REMEMBERED = 64  # headers and addresses to remember; limited, because every new token adds one
# Patterns for the names of headers whose values are public, or are parameters of a call
_OPEN = re.compile(r"accept|content-|user-agent|host$|connection$|mcp-|last-event-id|trace", re.IGNORECASE)


class SentSecrets:
    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._max_remembered = max_remembered
        self._forms: dict[tuple[str, str], frozenset[str]] = {}  # keyed by header name (empty for an address) and value

    def learn(self, headers: Iterable[tuple[str, str]], *addresses: str) -> None:
        """Remember the secrets in sent headers and addresses. Headers that `_OPEN` matches count as public.

        A header with a name like that of a secret is never public.
        """
        for name, value in chain(headers, (("", address) for address in addresses)):
            if is_secret_name(name) or not _OPEN.match(name):
                forms = self._forms.pop((name, value), None)
                if forms is None:
                    forms = frozenset(chain.from_iterable(map(_encodings_of, _secrets_in(name, value))))
                self._forms[name, value] = forms
        while len(self._forms) > self._max_remembered:
            del self._forms[next(iter(self._forms))]

    def found_in(self, text: str) -> set[str]:
        """Return the secrets that occur in `text`, each in the encoding used there, converted to lower case."""
        lowered = text.lower()
        return {form for form in chain(*self._forms.values()) if form in lowered}

    def hide(self, text: str) -> str:
        if not (secrets := self.found_in(text)):
            return text
        pattern = "|".join(map(re.escape, sorted(secrets, key=len, reverse=True)))
        return re.sub(pattern, HIDDEN, text, flags=re.IGNORECASE)

    def hide_within(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.hide(name): self.hide_within(item) for name, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.hide_within(item) for item in cast("list[Any]", value)]
        return self.hide(value) if isinstance(value, str) else value


def quoted(text: str, secrets: SentSecrets | None = None) -> str:
    """Return the beginning of a server's message on one line, without known or likely secrets."""
    if secrets is not None:
        text = secrets.hide(text)
    line = in_one_line(redact(text[:_MAX_CHECKED_CHARS]))
    return line if len(line) <= QUOTED_CHARS else f"{line[:QUOTED_CHARS]} [...]"


def _secrets_in(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in the value of a header; if `name` is empty, `value` is an address."""
    if not name:  # user and password, query, and path segments that look like secrets
        import httpx2  # noqa: PLC0415 - most quotations do not need the HTTP library

        with suppress(httpx2.InvalidURL):
            url = httpx2.URL(value)
            yield from (url.userinfo.decode(), f"{url.username}:{url.password}", url.username, url.password)
            yield from chain.from_iterable(url.params.multi_items())
            yield from (part for part in url.path.split("/") if len(part) >= _LIKE_A_TOKEN)
        return
    # The whole value, the token in it, and the decoded credentials of `Basic`
    words = re.split(r"[\s;,]+", value) if is_secret_name(name) else [value.rpartition(" ")[2]]
    yield value
    for word in words:
        yield from (word, word.partition("=")[2].strip('"'))
        with suppress(ValueError):
            user, _, password = base64.b64decode(word, validate=True).decode().partition(":")
            yield from (f"{user}:{password}", user, password) if password else ()


def _encodings_of(word: str) -> Iterable[str]:
    """Return a secret in the encodings that servers use: plain, URL, JSON, HTML and base64."""
    if len(word) < _LEAST_SECRET:
        return ()
    raw, json_text = word.encode("utf-8", "replace"), json.dumps(word)[1:-1]
    base64_text = base64.b64encode(raw).decode().rstrip("=")
    escaped_json = re.sub(r"[+&<>'=]", lambda char: f"\\u{ord(char[0]):04x}", json_text)  # how .NET and Go escape JSON
    forms = {word, unquote(word), quote(raw), quote(raw, safe=""), quote_plus(raw), html.escape(word)}
    forms |= {json_text, json_text.replace("/", "\\/"), escaped_json}
    forms |= {base64_text, base64_text.translate(str.maketrans("+/", "-_"))}
    return map(str.lower, forms)
