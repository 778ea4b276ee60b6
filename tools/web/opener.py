"""The one opener of URLs: whoever fetches anything comes through here.

A request goes to an address that was checked, never to a name: the addresses of the host are looked up once, all of
them must be allowed, and the connection is made to one of these, with the host's name for TLS. Each redirect is a new
request with all checks. What a browser or an HTTP client carries along (cookies, credentials, proxies and secrets of
the environment) does not exist here, because requests go straight to a transport that has none of it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

import anyio

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.names_on_one_line import brief
from tools.contract.threads import THREADS
from tools.web.address_guard import Guard, WebRules
from tools.web.addresses import Resolver, SystemResolver
from tools.web.url import Target, UrlError, parse_url

if TYPE_CHECKING:
    import ssl

    import httpx

    from tools.contract.limits import Progress
    from tools.web.body import Body, Cut


MAX_AT_ONCE = 16
"""Openings at the same time, so that their bodies together stay below 200 MB; others wait for their turn."""

MAX_OF_ONE = 4
"""Openings of one client at the same time."""


@dataclass(slots=True)
class _Share:
    """One client's places, and how many calls have or await one."""

    places: anyio.Semaphore
    calls: int = 0


class Places:
    """Hands out places in the order of arrival.

    Args:
        at_once: Places in all.
        of_one: Places of one client.
    """

    def __init__(self, at_once: int = MAX_AT_ONCE, of_one: int = MAX_OF_ONE) -> None:
        self._all = anyio.Semaphore(at_once)
        self._of_one = of_one
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def place(self, client: str) -> AsyncGenerator[None]:
        """Wait for a place, and have it until the end of the `with`.

        Args:
            client: Whose call it is. Those who cannot be told from others share the places of one client.
        """
        share = self._shares.setdefault(client, _Share(anyio.Semaphore(self._of_one)))
        share.calls += 1
        try:
            # Whoever has no place of its own left stands in nobody else's way.
            async with share.places, self._all:
                yield
        finally:
            share.calls -= 1
            if not share.calls:
                del self._shares[client]


ENDPOINTS = "endpoints of the settings"
"""Who has the places for these: they are no strangers, and all clients need them."""

CLOSE_SECONDS = 2.0
"""What closing may take after the time for the body is over."""

_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,90}")
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class WebRequest:
    """What to ask for.

    Args:
        url: As it was given.
        method: The HTTP method. Only a GET follows redirects.
        headers: Beside those that the opener sends itself (`Host`, `Connection`, `Accept-Encoding`).
        body: What to send.
        is_trusted_endpoint: The operator's settings name this address, so it may be private and have any port. No
            redirect is followed, since whoever answers there names another address.
        client_key: Whose request it is, so that no client takes all places; empty for one that cannot be told from
            others.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    is_trusted_endpoint: bool = False
    client_key: str = ""


@dataclass(frozen=True, slots=True)
class WebResponse:
    """What came back. Every status is a response.

    Args:
        url: Where it came from, after all redirects.
        status: The HTTP status.
        headers: By their names in lower case; several of one name are joined by commas.
        media_type: In lower case, without parameters; empty where there is none.
        charset: What `Content-Type` says, or `None`.
        body: The content, unpacked.
        cut: Why it is not all of it, or `None`.
        redirects: The URLs that led on, in order; empty where the first one answered.
        moved_to: Where a redirect leads that was not followed because it is another host, or `None`.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    media_type: str
    charset: str | None
    body: bytes
    cut: Cut | None = None
    redirects: tuple[str, ...] = ()
    moved_to: str | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the body is not there as a whole."""
        return self.cut is not None


def system_trust() -> ssl.SSLContext:
    """TLS that trusts whom the operating system trusts."""
    import ssl  # noqa: PLC0415 - for the first request

    import truststore  # noqa: PLC0415 - the same

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class UrlOpener:
    """Opens URLs within rules. Nothing is kept between requests, so there is nothing to close.

    Args:
        rules: What may be opened, and how much of it is taken.
        resolver: Finds the addresses of hosts.
        trust: Makes the TLS settings, once, when they are first needed.
    """

    def __init__(
        self,
        rules: WebRules | None = None,
        resolver: Resolver | None = None,
        trust: Callable[[], ssl.SSLContext] = system_trust,
    ) -> None:
        self.rules = rules or WebRules()
        self.guard = Guard(self.rules, resolver or SystemResolver())
        self._make_trust = trust
        self._trust: ssl.SSLContext | None = None
        self._is_ready = False
        self._places = Places()

    async def open(self, request: WebRequest, *, progress: Progress | None = None) -> WebResponse:
        """Ask, and take the answer. Cancellation closes the connection.

        Args:
            request: What to ask for.
            progress: Told the bytes that have come, all of them if that is known, and a message.

        Raises:
            ToolError: `web_refused`: the address may not be opened, and nothing was sent to it;
                `web_unreachable`: nobody answers there, not in time, or not in HTTP;
                `web_fetch_processing_error`: the answer cannot be unpacked.
        """
        try:
            target = parse_url(request.url)
        except UrlError as error:
            # What the settings name may hold a key.
            shown = "of the settings" if request.is_trusted_endpoint else f"'{brief(request.url)}'"
            raise ToolError(
                ToolErrorType.WEB_REFUSED,
                f"The URL {shown} was not opened: {error}. Give a URL like https://example.org/page.",
            ) from None
        async with self._places.place(ENDPOINTS if request.is_trusted_endpoint else request.client_key):
            if not self._is_ready:
                self._is_ready = await THREADS.run(_load_http)
            return await _Opening(self, request, progress).run(target)

    async def trust_for(self, target: Target) -> ssl.SSLContext:
        """The TLS settings; reading whom the system trusts takes a while, so it is done once, in a thread."""
        import ssl  # noqa: PLC0415 - for the first request

        if target.scheme != "https":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and is not used
        if self._trust is None:
            self._trust = await THREADS.run(self._make_trust)
        return self._trust


def _load_http() -> bool:
    """Import the HTTP library. It takes as long as many requests, so it is done in a thread while others go on."""
    import_module("tools.web.exchange")
    return True


class _Opening:
    """One request with all its redirects."""

    def __init__(self, opener: UrlOpener, request: WebRequest, progress: Progress | None) -> None:
        self._opener = opener
        self._rules = opener.rules
        self._request = request
        self._progress = progress
        self._passed: list[str] = []

    async def run(self, target: Target) -> WebResponse:
        """Go from redirect to redirect until somebody answers."""
        seconds = self._rules.total_seconds
        try:
            with anyio.fail_after(seconds) as scope:
                while True:
                    found = await self._ask(target, scope)
                    if isinstance(found, WebResponse):
                        return found
                    self._passed.append(target.url)
                    self._check_way(target, found)
                    target = found
        except TimeoutError:
            raise ToolError(
                ToolErrorType.WEB_UNREACHABLE,
                f"{target.authority} did not answer within {seconds:g} seconds. Try again later.",
            ) from None

    async def _ask(self, target: Target, scope: anyio.CancelScope) -> WebResponse | Target:
        """The answer, or where it leads."""
        from tools.web.body import Body  # noqa: PLC0415 - loaded by now
        from tools.web.exchange import exchange, request_to  # noqa: PLC0415 - the same

        request, rules = self._request, self._rules
        addresses = await self._opener.guard.addresses(target, is_trusted=request.is_trusted_endpoint)
        sent = request_to(target, request.method, request.headers, request.body, rules)
        trust = await self._opener.trust_for(target)
        async with exchange(sent, target, addresses, rules, trust) as answer:
            onward = self._onward(target, answer)
            if onward is not None and onward.host == target.host:
                return onward
            if onward is not None:
                # Another host, were it `www.` of this one, has neither been consented to nor held against rules. The
                # guard speaks first, so that what is refused is said to be.
                await self._opener.guard.addresses(onward, is_trusted=False)
                return self._response(target, answer, None, onward)
            body = Body(answer, target, rules)
            deadline, scope.deadline = scope.deadline, scope.deadline + CLOSE_SECONDS
            await body.take(deadline, self._progress)
            return self._response(target, answer, body, None)

    def _onward(self, target: Target, answer: httpx.Response) -> Target | None:
        """Where a redirect leads, if it is one to be followed."""
        location = answer.headers.get("location")
        if answer.status_code not in _REDIRECTS or location is None:
            return None
        if self._request.method != "GET" or self._request.is_trusted_endpoint:
            return None
        try:
            onward = target.joined(location)
        except UrlError as error:
            where = f"'{brief(location)}', which is not opened: {error}. Nothing was sent there"
            raise _refused(target, where) from None
        if target.scheme == "https" and onward.scheme == "http":
            where = f"'{brief(onward.url)}', from https to http without encryption. Nothing was sent there"
            raise _refused(target, where)
        return onward

    def _check_way(self, target: Target, onward: Target) -> None:
        if onward.url in self._passed:
            raise _refused(target, f"'{brief(onward.url)}' again, in a circle")
        if len(self._passed) > self._rules.max_redirects:
            most = f"at most {self._rules.max_redirects} redirects are followed. Nothing was sent there"
            raise _refused(target, f"'{brief(onward.url)}', and {most}")

    def _response(
        self, target: Target, answer: httpx.Response, body: Body | None, onward: Target | None
    ) -> WebResponse:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        media_type, _, parameters = headers.get("content-type", "").partition(";")
        return WebResponse(
            url=target.url,
            status=answer.status_code,
            headers=headers,
            media_type=_media_type(media_type),
            charset=_charset(parameters),
            body=bytes(body.content) if body is not None else b"",
            cut=body.cut if body is not None else None,
            redirects=tuple(self._passed),
            moved_to=onward.url if onward is not None else None,
        )


def _media_type(written: str) -> str:
    """A type of the usual form, since it is told to a model; anything else is none."""
    stripped = written.strip().lower()
    return stripped if _MEDIA_TYPE.fullmatch(stripped) else ""


def _charset(parameters: str) -> str | None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("'\"").lower() or None
    return None


def _refused(target: Target, where: str) -> ToolError:
    said = f"{target.authority} redirects to {where}. Look for another address of the page, or tell the user."
    return ToolError(ToolErrorType.WEB_REFUSED, said)
