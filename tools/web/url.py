"""A URL, read once: the host that is judged is the host that is connected to.

URL parsers differ in what they make of backslashes, white space, user names and unusual forms of numbers, and each
difference is a way past a guard. What they could read differently is refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from urllib.parse import quote, urljoin

from tools.contract.file_names_in_text import brief, one_line

Address = IPv4Address | IPv6Address

MAX_URL_CHARS = 8_000  # servers refuse longer ones; RFC 9110 asks for 8,000 to be understood
PORTS = {"http": 80, "https": 443}  # the schemes that there are, with their ports
MAX_HOST_CHARS = 253
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?#]*))?(?P<rest>[^#]*)(?:#.*)?")
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")  # without leading zeros, which some parsers take for octal
_LAST_PORT = 65_535
_UNQUOTED = "%!$&'()*+,;=:@/?-._~[]"  # characters of a path and a query that stay as they are


class UrlError(ValueError):
    """It is not a URL that can be opened; the text is a phrase that says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads."""

    scheme: str  # `http` or `https`
    host: str  # a name in ASCII and lower case without a final dot, or an address without brackets
    port: int  # given or implied
    path: str  # path and query, as they are sent

    @property
    def address(self) -> Address | None:
        """The host, where it is an address."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def authority(self) -> str:
        """Host and port as in a URL; the scheme's own port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL, in the one form that is used from here on."""
        return f"{self.scheme}://{self.authority}{self.path}"

    def joined(self, reference: str) -> Target:
        """Where a reference on this page leads; a `UrlError` tells that it is nowhere that can be opened."""
        try:
            return parse_url(urljoin(self.url, reference))
        except UrlError:
            raise
        except ValueError:
            raise UrlError("it is not a URL") from None


def parse_url(text: str) -> Target:
    """Read a URL; a `UrlError` tells that it is not one, or one that could be read in several ways."""
    if len(text) > MAX_URL_CHARS:
        raise UrlError(f"it has {len(text):,} characters, at most {MAX_URL_CHARS:,} are possible")
    ambiguous = _AMBIGUOUS.search(text)
    if ambiguous is not None:
        shown = ambiguous[0].encode("unicode_escape").decode() if ambiguous[0] != "\\" else "\\"
        raise UrlError(f"it holds the character '{shown}', which a URL cannot hold; write it percent-encoded")
    found = _PARTS.fullmatch(text)
    if found is None:
        raise UrlError("it does not begin with http:// or https://")
    scheme, authority = found["scheme"].lower(), found["authority"]
    if scheme not in PORTS:
        raise UrlError(f"its scheme is '{brief(scheme)}', and only http and https are opened")
    if not authority:
        raise UrlError("it names no host")
    if "@" in authority:
        raise UrlError("it holds a user name or a password, which are not sent")
    if authority.startswith("["):
        inside, bracket, port_text = authority[1:].partition("]")
        if not bracket or (port_text and not port_text.startswith(":")):
            raise UrlError("its host is not an address in brackets")
        try:
            address = IPv6Address(inside)
        except AddressValueError:
            raise UrlError(f"'{brief(inside)}' is not an IPv6 address") from None
        if address.scope_id is not None:
            raise UrlError("its address names a network interface")
        host = str(address)
    else:
        host, colon, port_text = authority.partition(":")
        host, port_text = _host(host), colon + port_text
    port = PORTS[scheme]
    if port_text:
        digits = port_text[1:]
        if not _PORT.fullmatch(digits) or int(digits) > _LAST_PORT:
            raise UrlError(f"its port '{brief(digits)}' is not a number from 1 to {_LAST_PORT}")
        port = int(digits)
    path = quote(found["rest"], safe=_UNQUOTED)
    return Target(scheme, host, port, path if path.startswith("/") else f"/{path}")


def _host(text: str) -> str:
    host = text
    if not host.isascii():
        import idna  # noqa: PLC0415 - its tables are large, and few hosts need them

        try:
            host = idna.encode(text, uts46=True, transitional=False).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise UrlError(f"'{brief(one_line(text))}' is not a host name") from None
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            # In its one usual form; `127.1`, `0x7f.1` and `2130706433` are read differently by each parser.
            return str(IPv4Address(host))
        except AddressValueError:
            raise UrlError(
                f"its host '{brief(host)}' is a number, but not an address in the usual form 1.2.3.4"
            ) from None
    if len(host) > MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise UrlError(f"'{brief(one_line(text))}' is not a host name")
    return host
