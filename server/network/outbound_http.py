"""Requests to other servers: the choice of a proxy, requests to authorization servers, and explanations of failures."""

from __future__ import annotations

import codecs
import errno
import logging
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import cast
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import anyio
import httpx2
from pydantic_core import from_json

from server.network.echoed_secrets import quoted
from server.protocol.json_rpc import Json, as_mapping
from tools.machine.threads import THREADS, lend_threads

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # limit for one response from an authorization server
ANSWER_BYTES = 1 << 20  # a longer response is rejected
SECRETS = "coretools-mcp.secrets"  # key in a response's `extensions` for the secrets of its connection
_CERTIFICATE = {
    **dict.fromkeys(
        (2, 19, 20, 21),
        "comes from an unknown issuer: to trust it, set SSL_CERT_FILE to the file with the issuer's certificate",
    ),
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed: to trust it, set SSL_CERT_FILE to its file",
    62: "is for another host name",
    64: "is for another address",
}
"""Explanations of certificate errors, keyed by OpenSSL's error number (`X509_V_ERR_...`)."""

_SYSTEM = {
    errno.ECONNREFUSED: "nothing is listening at its address: the connection was refused",
    errno.EHOSTUNREACH: "there is no route to its host",
    errno.ENETUNREACH: "there is no route to its network",
    errno.ETIMEDOUT: "its host did not answer in time",
}
NOT_HTTP = "its answer is not HTTP"


class UnusableProxyError(httpx2.TransportError):
    """The proxy that the environment sets cannot be used; the message says why."""


class LongAnswerError(Exception):
    """The response is longer than the limit."""


class NoJsonAnswerError(Exception):
    """An authorization server gave no usable response. The message is the predicate of a sentence about the server."""


def is_local(address: str) -> bool:
    """Return whether the host of an address is this machine, however the host is spelled."""
    host = _host_of(address)
    ip = _ip_of(host)
    if ip is not None:
        return ip.is_loopback or ip.is_unspecified
    return f".{host}".endswith((".localhost", ".localhost.localdomain")) or host == socket.gethostname().lower()


def is_safe(address: str, *, may_be_local: bool) -> bool:
    """Return whether a secret may be sent to an address: over TLS, or to this machine if `may_be_local` is true.

    An address is not safe if it could be interpreted as another host's, or if it has a fragment (RFC 6749, 3.1).
    """
    try:
        httpx2.URL(address)
        parts = urlsplit(address)
        has_safe_scheme = parts.scheme == "https" or (parts.scheme == "http" and may_be_local and is_local(address))
        # A reader may take a user name for the host, and browsers read a backslash as a slash.
        return has_safe_scheme and bool(parts.hostname) and not re.search(r"[@\\]", parts.netloc) and not parts.fragment
    except (ValueError, httpx2.InvalidURL):
        return False


def _host_of(address: str) -> str:
    with suppress(ValueError):
        return (urlsplit(address).hostname or "").rstrip(".")
    return ""


def _ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address, in any spelling that the system accepts, such as `127.1`; `None` for any other host."""
    with suppress(ValueError):
        ip = ip_address(host)
        return getattr(ip, "ipv4_mapped", None) or ip
    with suppress(OSError, UnicodeEncodeError):
        return ip_address(socket.inet_aton(host))
    return None


def proxy_of(address: str) -> str | None:
    """Return the proxy that the environment sets for an address, chosen as curl chooses it; `None` if there is none."""
    proxies, parts = getproxies_environment(), urlsplit(address)
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not proxy or is_local(address):
        return None
    host = _host_of(address)
    ip = _ip_of(host)
    # An entry in NO_PROXY is `*`, a network, or an IP address, host name or parent domain with an optional port.
    for exemption in re.split(r"[\s,]+", proxies.get("no", "").lower()):
        with suppress(ValueError):
            if ip is not None and ip in ip_network(exemption.strip("[]"), strict=False):
                return None
        with suppress(ValueError):
            place = urlsplit(exemption if "://" in exemption else f"//{exemption}")
            name = (place.hostname or "").removeprefix("*").strip(".")
            is_exempt = bool(name) and place.port in (None, port) and (host == name or host.endswith(f".{name}"))
            if is_exempt or exemption == "*":
                return None
    return proxy if "://" in proxy else f"http://{proxy}"


async def open_transport(proxy: str | None) -> httpx2.AsyncHTTPTransport:
    """Return a transport through `proxy`, or a direct one. Raises an `UnusableProxyError` if the proxy is unusable."""
    lend_threads()
    context = await THREADS.run(_tls_context)
    try:
        # No connection limit: callers limit their requests, and a limit here could deadlock.
        return httpx2.AsyncHTTPTransport(verify=context, proxy=proxy, trust_env=False, limits=httpx2.Limits())
    except (ImportError, ValueError, httpx2.InvalidURL):
        raise UnusableProxyError(
            "the proxy set for it in the environment cannot be used: its address must be valid and begin with http:// "
            "or https://; to ignore it, set proxy.environmentProxies to false"
        ) from None


# Returns a TLS context with the trusted certificates. Loading them takes 50 ms, so it is done once, in a thread.
_tls_context = cache(httpx2.create_ssl_context)


async def fetch_json(request: httpx2.Request, *, by_proxy: bool = True) -> tuple[int, Json]:
    """Send a request, without following redirects, and return the status and the JSON object in the body.

    For any other body, the object is empty. Raises a `NoJsonAnswerError` or a `LongAnswerError`.
    """
    proxy: str | None = None
    try:
        with anyio.fail_after(REQUEST_SECONDS):
            proxy = proxy_of(str(request.url)) if by_proxy else None
            transport = await open_transport(proxy)
            async with httpx2.AsyncClient(transport=transport, timeout=REQUEST_SECONDS, follow_redirects=False) as http:
                response = await http.send(request, stream=True)
                content = b""
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > ANSWER_BYTES:
                        raise LongAnswerError
                await response.aclose()
    except (TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        logger.info("a request to an authorization server failed (%s)", type(error).__name__)
        raise NoJsonAnswerError(f"could not be reached: {cause_of(error, is_proxied=proxy is not None)}") from None
    if response.status_code >= 500 or response.status_code == 429:
        raise NoJsonAnswerError(f"answered with HTTP status {response.status_code}")
    try:
        # Unlike the standard library's parser, this one rejects lone surrogates, which cannot be encoded. The
        # parser must not cache string values: its cache would keep short tokens as long as the process runs.
        return response.status_code, as_mapping(from_json(content.removeprefix(codecs.BOM_UTF8), cache_strings="keys"))
    except ValueError:
        return response.status_code, {}


def cause_of(error: BaseException, *, is_proxied: bool = False) -> str:
    """Return why a request failed, as a clause. Exceptions are not quoted: they may contain addresses and secrets."""
    if is_proxied and not isinstance(error, UnusableProxyError):
        return f"via the proxy set in the environment, {cause_of(error)}"
    for cause in _causes(error):
        match cause:
            case UnusableProxyError():
                return str(cause)
            case httpx2.ProxyError():
                status = re.match(r"\d{3}\b", str(cause))
                return f"which refused{f' (HTTP status {status[0]})' if status else ''}"
            case ssl.SSLCertVerificationError():
                return f"its certificate {_CERTIFICATE.get(cause.verify_code, 'could not be verified')}"
            case ssl.SSLError() if cause.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
                return "its address says https, but the server there does not speak TLS; it may speak http"
            case ssl.SSLError():
                return "the TLS handshake with it failed"
            case socket.gaierror():
                return "its host name was not found (DNS)"
            case OSError() if cause.errno in _SYSTEM:
                return _SYSTEM[cause.errno]
            case httpx2.TimeoutException() | TimeoutError():
                return "it did not answer in time"
            case _:
                continue
    if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError | httpx2.WriteError):
        if "\\x15\\x03" in str(error):  # a TLS alert
            return "its address says http, but the server there speaks https"
        if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" not in str(error):
            return NOT_HTTP
        return "it closed the connection without an answer, as an https server does if its address says http"
    return "the connection failed"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, the root cause first."""
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _causes(member)
    if (cause := error.__cause__ or error.__context__) is not None:
        yield from _causes(cause)
    yield error


def describe_status(response: httpx2.Response, body: bytes = b"", beginning: str = "it answered with") -> str:
    """Return a clause that describes a response with an error status, including the message in its body."""
    secrets = response.extensions.get(SECRETS)
    description = f"{beginning} HTTP status {response.status_code}"
    if retry_after := response.headers.get("retry-after"):
        description += f", Retry-After: {quoted(retry_after, secrets)}"
    if message := quoted(body.decode("utf-8", "replace"), secrets):
        description += f', with the message "{message}"'
    return description
