"""One HTTP request and its answer, over a connection to an address that was checked: unpacked, and bounded.

It stands on httpcore2, below any HTTP client: no cookies, no proxies, no redirects, nothing from the environment, and
no connection is kept. Everything that comes over the connection is counted, framing included, because interim answers,
chunks of one byte and their extensions cost work and carry no content.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
import httpcore2

from tools.contract.errors import ToolError, ToolErrorType
from tools.web.address_guard import Address, Target, WebRules

if TYPE_CHECKING:
    from tools.contract.limits import Progress


MAX_ADDRESSES = 4  # addresses of a host that are tried
REDIRECTS = (301, 302, 303, 307, 308)
PIECE_BYTES = 1 << 16  # unpacked at a time, so that others have their turn and a limit is noticed soon
TURN_BYTES = 1 << 16  # work after which others have their turn
PIECE_WORK = 128  # what a piece costs beside its bytes, in bytes: it may be empty, or one of very many
PROGRESS_BYTES = 1 << 18  # content after which progress is told again
# Read at a time; as many interim answers as fit in there hold the event loop for some 20 milliseconds
READ_BYTES = 1 << 14
# Bytes of an answer's body that are not content: the sizes and the ends of its chunks. A page of 10 MB in chunks of 128
# bytes has as many. Chunks of one byte use them up within a second or two of work, and no page consists of these.
FRAMING_BYTES = 512 << 10
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_ZLIB_METHOD = 0x08
_FAILURES = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError)


class Cut(StrEnum):
    """Why a body is not complete; each ends a sentence about the page."""

    SIZE = "it is larger than what is taken of one page"
    RATIO = "it unpacks to far more than a page that is meant to be read"
    TIME = "it came too slowly"
    BROKEN = "it is damaged, or the connection ended before all of it had come"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]  # by their names in lower case; several of one name are joined by commas
    body: bytes = b""  # the content, unpacked; empty for a redirect that is to be followed
    cut: Cut | None = None  # why it is not all of it, or `None`


async def exchange(
    target: Target,
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
) -> Answer:
    """Send a request to the first address that accepts a connection, and read the answer.

    The target's host is named in the `Host` header and in TLS, whatever address is connected to. The headers are those
    beside `Host`, `Connection`, `Accept-Encoding` and `Content-Length`. At the deadline, which is on the event loop's
    clock, a body that has begun is cut. `skips_redirects` leaves the body of a redirect unread.

    Raises:
        ToolError: `web_unreachable`: nobody answers there, or not in HTTP; `web_fetch_processing_error`: the answer
            cannot be unpacked.
        TimeoutError: The deadline came before the headers.
    """
    own = {"Host": target.authority, "Connection": "close", "Accept-Encoding": "gzip, deflate"}
    sent = own | {"Accept": "*/*", "User-Agent": "coretools-mcp"}
    sent |= {name.title(): text for name, text in headers.items()} | own
    if content is not None:
        sent["Content-Length"] = str(len(content))
    timeout = {"connect": rules.connect_seconds, "read": None, "write": None, "pool": None}
    network = _CountingNetwork(rules.header_bytes)
    too_long = _unreachable(target, f"its answer has more than {rules.header_bytes >> 10} kB of headers")
    response: httpcore2.Response | None = None
    failure: Exception | None = None
    with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
        for address in addresses[:MAX_ADDRESSES]:
            url = httpcore2.URL(
                scheme=target.scheme, host=str(address), port=target.port, target=target.path.encode("ascii")
            )
            connection = httpcore2.AsyncHTTPConnection(url.origin, ssl_context=tls, network_backend=network)
            try:
                response = await connection.handle_async_request(
                    httpcore2.Request(
                        method,
                        url,
                        headers=list(sent.items()),
                        content=content,
                        extensions={"sni_hostname": target.host, "timeout": timeout},
                    )
                )
                break
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            except _FAILURES as error:
                raise _unreachable(target, _what_failed(error)) from None
            except TooManyBytesError:
                raise too_long from None
    if response is None:
        raise _unreachable(target, _what_failed(failure)) from None
    try:
        if sum(len(name) + len(value) for name, value in response.headers) > rules.header_bytes:
            raise too_long
        network.left += FRAMING_BYTES + READ_BYTES
        answered: dict[str, str] = {}
        for raw_name, raw_value in response.headers:
            name = raw_name.decode("latin-1").lower()
            try:
                value = raw_value.decode()
            except UnicodeDecodeError:
                value = raw_value.decode("latin-1")
            answered[name] = f"{answered[name]}, {value}" if name in answered else value
        if skips_redirects and response.status in REDIRECTS and "location" in answered:
            return Answer(response.status, answered)
        encoding = answered.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "deflate", "gzip", "x-gzip"):
            raise _unreadable(target, "in an encoding that was not asked for")
        body = bytearray()
        cut: Cut | None = Cut.TIME
        with anyio.CancelScope(deadline=deadline):
            cut = await _read_body(response, encoding, body, network, rules, target, progress)
        return Answer(response.status, answered, bytes(body), cut)
    finally:
        await response.aclose()


async def _read_body(
    response: httpcore2.Response,
    encoding: str,
    body: bytearray,
    network: _CountingNetwork,
    rules: WebRules,
    target: Target,
    progress: Progress | None,
) -> Cut | None:
    unpacker = _Unpacker(encoding)
    raw_size = work = told = 0
    try:
        async for raw in response.aiter_stream():
            network.left += len(raw)  # it is content; how much of that may come is decided here
            raw_size += len(raw)
            work += len(raw)
            for piece in unpacker.unpack(raw):
                body += piece
                if len(body) > rules.max_bytes or raw_size > rules.max_bytes:
                    del body[rules.max_bytes :]
                    return Cut.SIZE
                if len(body) > max(rules.free_bytes, unpacker.taken * rules.max_ratio):
                    return Cut.RATIO
                # A small piece can unpack to much, or to nothing with much work.
                work += len(piece) + PIECE_WORK
                if work >= TURN_BYTES:
                    work = 0
                    await anyio.lowlevel.checkpoint()
            if progress is not None and len(body) - told >= PROGRESS_BYTES:
                told = len(body)
                await progress(told, None, f"{told:,} bytes from {target.authority}")
    except TooManyBytesError:
        return Cut.SIZE
    except _FAILURES:
        return Cut.BROKEN
    except zlib.error:
        if not body:
            raise _unreadable(target, "damaged: it cannot be unpacked") from None
        return Cut.BROKEN
    return None if unpacker.is_complete else Cut.BROKEN


class _Unpacker:
    """Turns the raw bytes of a body into its content, by bounded pieces."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: Any = None  # made with the first bytes, since an answer may have none
        self.taken = 0  # raw bytes that the content so far is made of

    @property
    def is_complete(self) -> bool:
        return self._stream is None or self._stream.eof

    def unpack(self, raw: bytes) -> Iterator[bytes]:
        """The content of these bytes, in pieces of at most `PIECE_BYTES`; an empty one is work without content."""
        if self._encoding in ("", "identity"):
            self.taken += len(raw)
            yield from (raw[start : start + PIECE_BYTES] for start in range(0, len(raw), PIECE_BYTES))
            return
        if self._stream is None:
            window = _GZIP_WINDOW
            if self._encoding == "deflate":
                # It means the format of zlib, and many servers send it without that format's header.
                has_header = raw[0] & 0x0F == _ZLIB_METHOD and (len(raw) == 1 or int.from_bytes(raw[:2]) % 31 == 0)
                window = zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(window)
        while raw:
            if self._stream.eof:
                # gzip may consist of several members; what follows the last one is padding.
                if not raw.startswith(b"\x1f"):
                    return
                self._stream = zlib.decompressobj(_GZIP_WINDOW)
            piece = self._stream.decompress(raw, PIECE_BYTES)
            left: bytes = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            self.taken += len(raw) - len(left)
            raw = left
            yield piece


class TooManyBytesError(Exception):
    """More has come over a connection than an answer may have."""


class _CountingNetwork(httpcore2.AsyncNetworkBackend):
    """Makes connections of which `left` bytes may be read: headers first, then also content and its framing."""

    def __init__(self, left: int) -> None:
        self.left = left
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the interface is the library's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return _CountedStream(stream, self)


class _CountedStream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: httpcore2.AsyncNetworkStream, network: _CountingNetwork) -> None:
        self._stream = stream
        self._network = network

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as above
        if self._network.left <= 0:
            raise TooManyBytesError
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._network.left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        return _CountedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._network)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _what_failed(error: Exception | None) -> str:
    """Why there is no answer, as a phrase."""
    if isinstance(error, httpcore2.TimeoutException):
        return "it does not answer"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its TLS certificate is not accepted ({cause.verify_message.rstrip('.') or 'it cannot be verified'})"
            )
        if isinstance(cause, ssl.SSLError):
            return "it does not speak TLS in a way that is accepted"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ConnectError):
        return "the connection is refused"
    if isinstance(error, httpcore2.RemoteProtocolError):
        return "what it answers is not HTTP, or its headers never end"
    return "the connection broke before an answer came"


def _unreachable(target: Target, why: str) -> ToolError:
    return ToolError(
        ToolErrorType.WEB_UNREACHABLE,
        f"{target.authority} cannot be read: {why}. Check the URL, try again later, or use another source.",
    )


def _unreadable(target: Target, how: str) -> ToolError:
    return ToolError(
        ToolErrorType.WEB_FETCH_PROCESSING_ERROR,
        f"{target.authority} sent its answer {how}. Try again, or use another source.",
    )
