"""What is secret in what goes to a server: it is hidden where the server says it back."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, cast
from urllib.parse import quote, quote_plus, unquote

import httpx2

from tools.contract.secrets import HIDDEN, is_secret_name

_LEAST_SECRET = 6  # characters of a value that is hidden
_LIKE_A_TOKEN = 16  # characters of a part of an address that is
_MOST_LEARNED = 32  # values of headers that are not in the settings: tokens of a login, one after another
_SAYS_NOTHING = re.compile(r"accept|content-|user-agent|mcp-protocol-version", re.IGNORECASE)
"""How the names of headers begin whose values everybody knows."""


class SentSecrets:
    """The secrets of one connection, found in every form in which servers usually write them.

    Args:
        url: Where requests go. Some addresses have a token in them.
        headers: Those of the settings, each of which may hold a secret whatever its name is.
        proxy: The address of the proxy that they go by.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, proxy: str | None = None) -> None:
        values = [_words_of(*header) for header in (headers or {}).items() if not _SAYS_NOTHING.match(header[0])]
        addresses = [_parts_of(address) for address in (url, proxy or "")]
        self._forms = frozenset(chain.from_iterable(map(_forms_of, chain(*values, *addresses))))
        self._learned: dict[str, frozenset[str]] = {}

    def learn(self, headers: Mapping[str, str]) -> None:
        """Count the headers of a request that are secret by their names, such as the token of a login."""
        for name, value in headers.items():
            if value not in self._learned and is_secret_name(name):
                self._learned[value] = frozenset(chain.from_iterable(map(_forms_of, _words_of(name, value))))
                while len(self._learned) > _MOST_LEARNED:
                    del self._learned[next(iter(self._learned))]

    def are_in(self, text: str) -> bool:
        """Whether a text holds one of them."""
        return bool(self._found_in(text))

    def hide(self, text: str) -> str:
        """A text without them."""
        if not (found := self._found_in(text)):
            return text
        pattern = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
        return re.sub(pattern, HIDDEN, text, flags=re.IGNORECASE)

    def hide_within(self, value: Any) -> Any:
        """Something of JSON without them in its texts."""
        match value:
            case str():
                return self.hide(value)
            case list():
                return [self.hide_within(each) for each in cast("list[Any]", value)]
            case dict():
                return {self.hide(name): self.hide_within(each) for name, each in cast("dict[str, Any]", value).items()}
            case _:
                return value

    def _found_in(self, text: str) -> list[str]:
        folded = _folded(text)
        return [form for form in chain(self._forms, *self._learned.values()) if form in folded]


def _folded(text: str) -> str:
    return text.replace("\u0130", "i").lower()


def _words_of(name: str, value: str) -> Iterator[str]:
    """What is secret in a header: its value, the token in it, and what `Basic` packs."""
    words = re.split(r"[\s;,]+", value) if is_secret_name(name) else [value.rpartition(" ")[2]]
    yield value
    for word in words:
        yield from (word, word.partition("=")[2].strip('"'))
        with suppress(ValueError):
            pair = base64.b64decode(word, validate=True).decode()
            if ":" in pair:
                yield from (pair, *pair.split(":", 1))


def _parts_of(address: str) -> Iterator[str]:
    """What is secret in an address: its user and password, its query, and the parts of its path that look so."""
    with suppress(httpx2.InvalidURL):
        url = httpx2.URL(address)
        userinfo = url.userinfo.decode()
        yield from (userinfo, unquote(userinfo), url.username, url.password)
        for name, value in url.params.multi_items():
            yield from (value, name if len(name) >= _LIKE_A_TOKEN else "")
        yield from (part for part in url.path.split("/") if len(part) >= _LIKE_A_TOKEN)


def _forms_of(word: str) -> Iterable[str]:
    """A secret as servers write it: plain, for addresses, for JSON, for HTML, and packed."""
    if len(word) < _LEAST_SECRET:
        return ()
    raw, written = word.encode("utf-8", "replace"), json.dumps(word)[1:-1]
    packed = base64.b64encode(raw).decode().rstrip("=")
    careful = re.sub(r"[+&<>'=]", lambda sign: f"\\u{ord(sign[0]):04x}", written)  # as .NET and Go write JSON
    forms = {word, unquote(word), quote(raw), quote(raw, safe=""), quote_plus(raw), html.escape(word)}
    forms |= {written, written.replace("/", "\\/"), careful, packed, packed.translate(str.maketrans("+/", "-_"))}
    return map(_folded, forms)
