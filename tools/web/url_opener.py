"""The one opener of URLs: everything that is fetched comes through here.

A request goes to an address that was checked, never to a name: the addresses of the host are looked up once, all of
them must be allowed, and the connection is made to one of these, with the host's name for TLS. Each redirect is a new
request with all checks. What a browser or an HTTP client carries along (cookies, credentials, proxies and secrets of
the environment) does not exist here, because requests go through `exchange`, which has none of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

import anyio

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.machine.threads import THREADS
from tools.text.file_names import brief
from tools.web.address_guard import AddressGuard, Resolver, UrlError, UrlTarget, WebRules, parse_url, system_resolver

if TYPE_CHECKING:
    import ssl

    from tools.contract.limits import Progress
    from tools.web.http_exchange import Cut

# Requests at the same time, so that their bodies together stay below 200 MB; others wait for their turn
MAX_CONCURRENT = 16
MAX_CONCURRENT_PER_CLIENT = 4
# The client that requests to these count for: they are not strangers, and all clients need them
ENDPOINTS = "endpoints of the settings"


class FairLimit:
    """Bounds what goes on at the same time, in all and for each client, in the order of arrival."""

    def __init__(self, total: int = MAX_CONCURRENT, per_client: int = MAX_CONCURRENT_PER_CLIENT) -> None:
        self._total = anyio.Semaphore(total)
        self._per_client = per_client
        self._clients: dict[str, tuple[anyio.Semaphore, int]] = {}  # each with how many calls hold or await a turn

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncGenerator[None]:
        """Have a turn until the end of the `with`. Clients that cannot be told apart share the turns of one."""
        own, calls = self._clients.get(client) or (anyio.Semaphore(self._per_client), 0)
        self._clients[client] = own, calls + 1
        try:
            # A client that has used up its own share does not hold up others.
            async with own, self._total:
                yield
        finally:
            own, calls = self._clients.pop(client)
            if calls > 1:
                self._clients[client] = own, calls - 1


@dataclass(frozen=True, slots=True)
class WebRequest:
    """What to ask for."""

    url: str  # as it was given
    method: str = "GET"  # only a GET follows redirects
    # Beside those that the opener sends itself (`Host`, `Connection`, `Accept-Encoding`)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    # The operator's settings name this address, so it may be private and have any port. No redirect is followed, since
    # anyone who answers there names another address.
    is_trusted_endpoint: bool = False
    # Whose request it is, so that no client takes all turns; empty for one that cannot be told from others
    client_key: str = ""


@dataclass(frozen=True, slots=True)
class WebResponse:
    """What came back. Every status is a response."""

    url: str  # where it came from, after all redirects
    status: int  # the HTTP status
    headers: Mapping[str, str]  # by their names in lower case; several of one name are joined by commas
    media_type: str  # in lower case, without parameters; empty where there is none
    charset: str | None  # what `Content-Type` says, or `None`
    body: bytes  # the content, unpacked
    cut: Cut | None = None  # why it is not all of it, or `None`
    redirects: tuple[str, ...] = ()  # the URLs that led on, in order; empty where the first one answered
    moved_to: str | None = None  # where a redirect leads that was not followed because it is another host, or `None`


def system_trust() -> ssl.SSLContext:
    """TLS that trusts whom the operating system trusts."""
    import ssl  # noqa: PLC0415 - for the first request

    import truststore  # noqa: PLC0415 - the same

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class UrlOpener:
    """Opens URLs within rules. Nothing is kept between requests, so there is nothing to close.

    `trust` makes the TLS settings, once, when they are first needed.
    """

    def __init__(
        self,
        rules: WebRules | None = None,
        resolver: Resolver = system_resolver,
        trust: Callable[[], ssl.SSLContext] = system_trust,
    ) -> None:
        self._rules = rules or WebRules()
        self.guard = AddressGuard(self._rules, resolver)
        self._make_trust = trust
        self._trust: ssl.SSLContext | None = None
        self._limit = FairLimit()
        self._is_loaded = False

    async def open(self, request: WebRequest, *, progress: Progress | None = None) -> WebResponse:
        """Ask, and read the answer. Cancellation closes the connection.

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
        async with self._limit.turn(ENDPOINTS if request.is_trusted_endpoint else request.client_key):
            if not self._is_loaded:
                # Importing the HTTP library takes as long as many requests, so others go on meanwhile.
                await THREADS.run(lambda: import_module("tools.web.http_exchange"))
                self._is_loaded = True
            seconds = self._rules.total_seconds
            try:
                return await self._follow(request, target, anyio.current_time() + seconds, progress)
            except TimeoutError:
                raise ToolError(
                    ToolErrorType.WEB_UNREACHABLE,
                    f"{target.authority} did not answer within {seconds:g} seconds. Try again later.",
                ) from None

    async def _follow(
        self, request: WebRequest, target: UrlTarget, deadline: float, progress: Progress | None
    ) -> WebResponse:
        from tools.web.http_exchange import REDIRECTS, exchange  # noqa: PLC0415 - loaded by now

        follows = request.method == "GET" and not request.is_trusted_endpoint
        passed: list[str] = []
        while True:
            with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
                is_judged = not request.is_trusted_endpoint
                addresses = await (self.guard.addresses if is_judged else self.guard.look_up)(target)
                tls = await self._tls(target)
            answer = await exchange(
                target,
                addresses,
                method=request.method,
                headers=request.headers,
                content=request.body,
                rules=self._rules,
                tls=tls,
                deadline=deadline,
                skips_redirects=follows,
                progress=progress,
            )
            moved_to: str | None = None
            location = answer.headers.get("location")
            if follows and answer.status in REDIRECTS and location is not None:
                onward = self._onward(target, location)
                if onward.host == target.host:
                    passed.append(target.url)
                    if onward.url in passed:
                        raise _refused(target, f"'{brief(onward.url)}' again, in a circle")
                    if len(passed) > self._rules.max_redirects:
                        most = f"at most {self._rules.max_redirects} redirects are followed. Nothing was sent there"
                        raise _refused(target, f"'{brief(onward.url)}', and {most}")
                    target = onward
                    continue
                # Another host, were it `www.` of this one, has neither been consented to nor held against rules. The
                # guard is asked first, so that the model is not sent to what is refused anyway.
                with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
                    await self.guard.addresses(onward)
                moved_to = onward.url
            media_type, charset = answer.content_type()
            return WebResponse(
                url=target.url,
                status=answer.status,
                headers=answer.headers,
                media_type=media_type,
                charset=charset,
                body=answer.body,
                cut=answer.cut,
                redirects=tuple(passed),
                moved_to=moved_to,
            )

    def _onward(self, target: UrlTarget, location: str) -> UrlTarget:
        try:
            onward = target.joined(location)
        except UrlError as error:
            where = f"'{brief(location)}', which is not opened: {error}. Nothing was sent there"
            raise _refused(target, where) from None
        if target.scheme == "https" and onward.scheme == "http":
            where = f"'{brief(onward.url)}', from https to http without encryption. Nothing was sent there"
            raise _refused(target, where)
        return onward

    async def _tls(self, target: UrlTarget) -> ssl.SSLContext:
        """The TLS settings; reading whom the system trusts takes a while, so it is done once, in a thread."""
        import ssl  # noqa: PLC0415 - for the first request

        if target.scheme != "https":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and is not used
        if self._trust is None:
            self._trust = await THREADS.run(self._make_trust)
        return self._trust


def _refused(target: UrlTarget, where: str) -> ToolError:
    said = f"{target.authority} redirects to {where}. Look for another address of the page, or tell the user."
    return ToolError(ToolErrorType.WEB_REFUSED, said)
