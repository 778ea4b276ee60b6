"""Sends one HTTP request to a checked address. The response is decompressed, and its size and duration are limited.

This module uses httpx's transport without httpx's client: no cookies, proxies or redirects, nothing from the
environment, and no reuse of connections. The request goes to the checked address, so the name is not looked up again.
"""

from __future__ import annotations

import re
import ssl
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import anyio
import anyio.lowlevel
import httpx

from tools.contract.call_options import Progress
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.web.address_guard import Address, UrlTarget, WebRules

MAX_ADDRESSES = 4  # maximum number of addresses to try per host
REDIRECTS = (301, 302, 303, 307, 308)
PIECE_BYTES = 1 << 16  # bytes decompressed per step, so that other tasks can run and limits are checked in time
TURN_BYTES = 1 << 16  # bytes processed before other tasks get a turn
PIECE_WORK = 128  # bytes counted for each piece in addition to its length, because there may be very many small pieces
PROGRESS_BYTES = 1 << 18  # bytes of content between progress notifications
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_ZLIB_METHOD = 0x08
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,90}")
_NO_KEEPALIVE = httpx.Limits(max_keepalive_connections=0)


class Truncation(StrEnum):
    """Why a body is incomplete. Each value completes a sentence about the response."""

    SIZE = "it is larger than the limit for one page"
    RATIO = "it decompresses to far more data than an ordinary page"
    TIME = "it came too slowly"
    BROKEN = "it is damaged, or the connection ended too early"


@dataclass(frozen=True, slots=True)
class WebResponse:
    """A response, with any status."""

    url: str  # the URL after all redirects
    status: int  # the HTTP status
    headers: Mapping[str, str]  # keyed by lower-case name; the values of a repeated header are joined by commas
    body: bytes = b""  # the decompressed content; empty for a redirect with `skips_redirects`
    truncation: Truncation | None = None  # why the body is incomplete, or `None`
    redirects: tuple[str, ...] = ()  # the URLs that redirected, in order
    moved_to: str | None = None  # unfollowed target of a redirect to another host, or `None`

    @property
    def media_type(self) -> str:
        """The type in `Content-Type`, in lower case, without parameters; empty if there is none or it is malformed."""
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return media_type if _MEDIA_TYPE.fullmatch(media_type) else ""

    @property
    def charset(self) -> str | None:
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip("'\"").lower() or None
        return None


async def exchange(
    target: UrlTarget,
    addresses: Sequence[Address],
    *,
    method: str,
    headers: Mapping[str, str],
    content: bytes | None,
    rules: WebRules,
    tls: ssl.SSLContext,
    deadline: float,
    skips_redirects: bool,
    progress: Progress | None,
) -> WebResponse:
    """Send a request to the first address that accepts a connection, and read the response.

    The `Host` header and TLS use the target's host name, regardless of the address. `headers` are sent in addition to
    `Host`, `Connection`, `Accept-Encoding` and `Content-Length`. At `deadline` (by the event loop's clock), a body
    that is still arriving is truncated. With `skips_redirects`, the body of a redirect is not read.

    Raises a `TimeoutError` if the headers do not arrive in time, or a `ToolError`: `web_unreachable` if no HTTP
    response arrives; `web_fetch_processing_error` if it cannot be decompressed.
    """
    fixed_headers = {"Host": target.authority, "Connection": "close", "Accept-Encoding": "gzip, deflate"}
    request_headers = fixed_headers | {"Accept": "*/*", "User-Agent": "coretools-mcp"}
    request_headers |= {name.title(): text for name, text in headers.items()} | fixed_headers
    timeout = httpx.Timeout(None, connect=rules.connect_seconds)
    extensions = {"sni_hostname": target.host, "target": target.path.encode("ascii"), "timeout": timeout.as_dict()}
    async with httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=_NO_KEEPALIVE) as transport:
        failure: Exception | None = None
        with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
            for address in addresses[:MAX_ADDRESSES]:
                url = httpx.URL(scheme=target.scheme, host=str(address), port=target.port)
                request = httpx.Request(method, url, headers=request_headers, content=content, extensions=extensions)
                try:
                    response = await transport.handle_async_request(request)
                    break
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    failure = error
                except httpx.TransportError as error:
                    raise _unreachable(target, _failure_reason(error)) from None
            else:
                raise _unreachable(target, _failure_reason(failure), _LOCAL_ADVICE if target.is_local else "") from None
        try:
            if sum(len(name) + len(value) for name, value in response.headers.raw) > rules.header_bytes:
                raise _unreachable(target, f"its response has more than {rules.header_bytes >> 10} kB of headers")
            answer = WebResponse(target.url, response.status_code, dict(response.headers))
            if skips_redirects and answer.status in REDIRECTS and "location" in answer.headers:
                return answer
            encoding = answer.headers.get("content-encoding", "").strip().lower()
            if encoding not in ("", "identity", "deflate", "gzip", "x-gzip"):
                raise _unreadable(target, "in an encoding that this server did not request")
            body = bytearray()
            truncation: Truncation | None = Truncation.TIME
            with anyio.CancelScope(deadline=deadline):
                truncation = await _read_body(response, encoding, body, rules, target, progress)
            return replace(answer, body=bytes(body), truncation=truncation)
        finally:
            await response.aclose()


async def _read_body(
    response: httpx.Response,
    encoding: str,
    body: bytearray,
    rules: WebRules,
    target: UrlTarget,
    progress: Progress | None,
) -> Truncation | None:
    unpacker = _Decompressor(encoding)
    raw_size = work = reported_size = 0
    try:
        async for raw in response.aiter_raw():
            raw_size += len(raw)
            work += len(raw)
            for piece in unpacker.unpack(raw):
                body += piece
                if len(body) > rules.max_bytes or raw_size > rules.max_bytes:
                    del body[rules.max_bytes :]
                    return Truncation.SIZE
                if len(body) > max(rules.free_bytes, unpacker.consumed * rules.max_ratio):
                    return Truncation.RATIO
                # A few raw bytes can decompress to a lot of data, or to nothing after a lot of work.
                work += len(piece) + PIECE_WORK
                if work >= TURN_BYTES:
                    work = 0
                    await anyio.lowlevel.checkpoint()
            if progress is not None and len(body) - reported_size >= PROGRESS_BYTES:
                reported_size = len(body)
                await progress(reported_size, None, f"{reported_size:,} bytes from {target.authority}")
    except httpx.TransportError:
        return Truncation.BROKEN
    except zlib.error:
        if not body:
            raise _unreadable(target, "that is damaged and cannot be decompressed") from None
        return Truncation.BROKEN
    return None if unpacker.is_complete else Truncation.BROKEN


class _Decompressor:
    """Decompresses the raw bytes of a body in pieces of limited size."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: Any = None  # created when compressed data arrives; `None` counts as complete
        self.consumed = 0  # raw bytes that have been decompressed so far

    @property
    def is_complete(self) -> bool:
        return self._stream is None or self._stream.eof

    def unpack(self, raw: bytes) -> Iterator[bytes]:
        """Decompress bytes into pieces of at most `PIECE_BYTES`. A step without output yields an empty piece."""
        if self._encoding in ("", "identity"):
            self.consumed += len(raw)
            yield from (raw[start : start + PIECE_BYTES] for start in range(0, len(raw), PIECE_BYTES))
            return
        if self._stream is None:
            window = _GZIP_WINDOW
            if self._encoding == "deflate":
                # The data should be in zlib format, but many servers omit the zlib header.
                has_header = raw[0] & 0x0F == _ZLIB_METHOD and (len(raw) == 1 or int.from_bytes(raw[:2]) % 31 == 0)
                window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(window)
        has_more = False  # whether output may be left in the stream even if no input is left
        while raw or has_more:
            if self._stream.eof:
                # A gzip stream may have several members. Any other data after a member is padding.
                if not raw.startswith(b"\x1f"):
                    return
                self._stream = zlib.decompressobj(_GZIP_WINDOW)
            piece = self._stream.decompress(raw, PIECE_BYTES)
            rest: bytes = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            self.consumed += len(raw) - len(rest)
            raw, has_more = rest, len(piece) == PIECE_BYTES
            yield piece


_LOCAL_ADVICE = (
    "Check the URL and whether the server runs. If a command without network access started it, only commands reach it "
    '(curl): use one, or start the server again with needs: "network".'
)


def _failure_reason(error: Exception | None) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "it does not answer"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message.rstrip(".") or "it cannot be verified"
            return f"its TLS certificate is not accepted ({reason})"
        if isinstance(cause, ssl.SSLError):
            return "its TLS connection failed, perhaps because it supports no accepted version of TLS"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ConnectError):
        return "the connection failed or was refused"
    if isinstance(error, httpx.RemoteProtocolError):
        return "its response is not HTTP, or its headers never end"
    return "the connection broke before a response arrived"


def _unreachable(target: UrlTarget, reason: str, advice: str = "") -> ToolError:
    advice = advice or "Check the URL, try again later, or use another source."
    message = f"{target.authority} cannot be read: {reason}. {advice}"
    return ToolError(ToolErrorType.WEB_UNREACHABLE, message)


def _unreadable(target: UrlTarget, problem: str) -> ToolError:
    message = f"{target.authority} sent a response {problem}. Try again, or use another source."
    return ToolError(ToolErrorType.WEB_FETCH_PROCESSING_ERROR, message)
