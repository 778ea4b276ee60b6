"""A single, bounded request to an authorization server, without redirects. The response must be JSON."""

from __future__ import annotations

import codecs
import logging
from urllib.parse import urlsplit

import anyio
import httpx2
from pydantic_core import from_json

from server.network.outbound import cause_of, is_local, open_transport, proxy_of
from server.protocol.json_rpc import Json, as_mapping

logger = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0  # limit for one response from an authorization server
ANSWER_BYTES = 1 << 20  # a longer response is rejected


class LongAnswerError(Exception):
    """The response is longer than the limit."""


class NoJsonAnswerError(Exception):
    """An authorization server gave no usable response. The message is the predicate of a sentence about the server."""


async def fetch_json(request: httpx2.Request, *, by_proxy: bool = True) -> tuple[int, Json]:
    """Return the status of a response and its JSON object, which is empty if the body is something else."""
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
        # Unlike the standard library's parser, this one rejects lone surrogates, which cannot be encoded. It must not
        # cache string values: the cache would keep short tokens as long as the process runs.
        return response.status_code, as_mapping(from_json(content.removeprefix(codecs.BOM_UTF8), cache_strings="keys"))
    except ValueError:
        return response.status_code, {}


def is_safe(address: str, *, may_be_local: bool) -> bool:
    """Return whether a secret may be sent to an address: by TLS, or to this machine if `may_be_local` is true.

    An address is not safe if it could be interpreted as another host's, or if it has a fragment (RFC 6749, 3.1).
    """
    try:
        httpx2.URL(address)
        parts = urlsplit(address)
        is_meant = parts.scheme == "https" or (parts.scheme == "http" and may_be_local and is_local(address))
        return is_meant and bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment
    except (ValueError, httpx2.InvalidURL):
        return False
