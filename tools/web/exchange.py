"""One request and its answer, over a connection to an address that was checked."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import httpx

from tools.contract.errors import ToolError, ToolErrorType
from tools.web.address_guard import WebRules
from tools.web.body import ACCEPTED
from tools.web.byte_limit import Meter, MeteredTransport, TooManyBytesError
from tools.web.url import Target

USER_AGENT = "coretools-mcp"

_CERTIFICATE_REASONS = {
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is signed by itself",
    19: "it is signed by an authority that is not trusted",
    20: "it is signed by an authority that is not known",
    62: "it is for another host",
    64: "it is for another address",
}
"""OpenSSL's codes of verification (`X509_V_ERR_...`)."""


@asynccontextmanager
async def exchange(
    request: httpx.Request, target: Target, addresses: Sequence[str], rules: WebRules, trust: ssl.SSLContext
) -> AsyncGenerator[httpx.Response]:
    """Send a request to the first address that takes it; the connection is closed at the end of the `with`.

    Args:
        request: What `request_to` made.
        target: Where it goes, for sentences.
        addresses: Where to connect to.
        rules: Limits.
        trust: TLS settings.

    Raises:
        ToolError: `web_unreachable`: nobody answers there, or not in HTTP.
    """
    # No client: it would keep cookies, look at the environment, and follow what it is told. No connection is kept.
    meter = Meter(rules)
    async with MeteredTransport(trust, meter) as transport:
        try:
            answer = await _first_answer(transport, request, target, addresses)
        except TooManyBytesError:
            raise _headers_too_long(target, rules) from None
        meter.allow_content()
        try:
            if sum(len(name) + len(value) for name, value in answer.headers.raw) > rules.header_bytes:
                raise _headers_too_long(target, rules)
            yield answer
        finally:
            await answer.aclose()


async def _first_answer(
    transport: httpx.AsyncHTTPTransport, request: httpx.Request, target: Target, addresses: Sequence[str]
) -> httpx.Response:
    failure: Exception | None = None
    for address in addresses:
        request.url = request.url.copy_with(host=address)
        try:
            return await transport.handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = error
        except httpx.HTTPError as error:
            raise _unreachable(target, _what_failed(error)) from None
    raise _unreachable(target, _what_failed(failure)) from None


def request_to(
    target: Target, method: str, headers: Mapping[str, str], body: bytes | None, rules: WebRules
) -> httpx.Request:
    """The request as it is sent: to a host in the header and in TLS, whatever address it goes to."""
    sent = httpx.Headers({"Accept": "*/*", "User-Agent": USER_AGENT})
    sent.update(headers)
    sent.update({"Host": target.authority, "Connection": "close", "Accept-Encoding": ACCEPTED})
    return httpx.Request(
        method,
        httpx.URL(scheme=target.scheme, host=target.host, port=target.port, raw_path=target.path.encode("ascii")),
        headers=sent,
        content=body,
        extensions={
            "sni_hostname": target.host,
            "timeout": {"connect": rules.connect_seconds, "read": None, "write": None, "pool": None},
        },
    )


def _what_failed(error: Exception | None) -> str:
    """Why there is no answer, as a phrase. What the libraries say about it stays with us."""
    if isinstance(error, httpx.TimeoutException):
        return "it does not answer"
    cause = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = _CERTIFICATE_REASONS.get(cause.verify_code, "it cannot be verified")
            return f"its TLS certificate is not accepted: {reason}"
        if isinstance(cause, ssl.SSLError):
            return "it does not speak TLS in a way that is accepted"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError):
        return "the connection is refused"
    if isinstance(error, httpx.RemoteProtocolError):
        return "what it answers is no HTTP, or its headers never end"
    return "the connection broke before an answer came"


def _headers_too_long(target: Target, rules: WebRules) -> ToolError:
    return _unreachable(target, f"its answer has more than {rules.header_bytes >> 10} kB of headers")


def _unreachable(target: Target, why: str) -> ToolError:
    return ToolError(
        ToolErrorType.WEB_UNREACHABLE,
        f"{target.authority} cannot be read: {why}. Check the URL, try again later, or use another source.",
    )
