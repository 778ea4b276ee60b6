"""The only way to open a URL.

A request goes to a checked address, never to a name. The addresses of a host are looked up once, and all of them must
be allowed, except for endpoints in the operator's settings. The connection goes to one of these addresses, and TLS
still verifies the host's name. Each redirect is a new request with all checks. Cookies are neither kept nor sent, and
the environment supplies no proxy or credentials (`http_exchange`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING

import anyio

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.machine.threads import THREADS
from tools.text.file_names import brief
from tools.web.address_guard import AddressGuard, Resolver, UrlError, UrlTarget, WebRules, parse_url, system_resolver

if TYPE_CHECKING:
    import ssl

    from tools.contract.call_options import Progress
    from tools.web.http_exchange import WebResponse

# Maximum number of concurrent requests; further requests wait. At the default limits, all bodies take less than 200 MB
MAX_CONCURRENT = 16
MAX_CONCURRENT_PER_CLIENT = 4
# The pseudo-client for configured endpoints, which are trusted and shared by all clients
ENDPOINTS = "endpoints of the settings"


class FairLimit:
    """Limits the number of concurrent calls, in total and per client. First come, first served."""

    def __init__(self, total: int = MAX_CONCURRENT, per_client: int = MAX_CONCURRENT_PER_CLIENT) -> None:
        self._total = anyio.Semaphore(total)
        self._per_client = per_client
        # Each client's semaphore, and the number of its active and waiting calls
        self._clients: dict[str, tuple[anyio.Semaphore, int]] = {}

    @asynccontextmanager
    async def slot(self, client: str) -> AsyncGenerator[None]:
        """Hold a slot during the `with` block. Anonymous clients count as one client."""
        client_limit, calls = self._clients.get(client) or (anyio.Semaphore(self._per_client), 0)
        self._clients[client] = client_limit, calls + 1
        try:
            # Acquire the client's own slot first, so that its waiting calls hold none of the shared slots.
            async with client_limit, self._total:
                yield
        finally:
            client_limit, calls = self._clients.pop(client)
            if calls > 1:
                self._clients[client] = client_limit, calls - 1


@dataclass(frozen=True, slots=True)
class WebRequest:
    url: str  # as received, unchecked
    method: str = "GET"  # redirects are followed only for GET
    # Headers in addition to the opener's own (`Host`, `Connection`, `Accept-Encoding`)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    # Whether the address comes from the operator's settings. Such an address may be private and have any port.
    # Its redirects are not followed, because they may lead to an address that is not in the settings.
    is_trusted_endpoint: bool = False
    # The client's key, so that one client cannot take all slots; empty for an anonymous client
    client_key: str = ""


def system_trust() -> ssl.SSLContext:
    """Return TLS settings that trust the operating system's certificates."""
    import ssl  # noqa: PLC0415 - loaded on first use

    import truststore  # noqa: PLC0415 - loaded on first use

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class UrlOpener:
    """Opens URLs that the rules allow. No connection is kept. `trust` creates the TLS settings on first use."""

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
        """Send a request and read the response. Cancellation closes the connection.

        Raises a `ToolError`: `web_refused` if the address may not be opened, in which case nothing was sent to it, or
        an error of `exchange`.
        """
        try:
            target = parse_url(request.url)
        except UrlError as error:
            # A URL from the settings may contain a key.
            url_text = "from the settings" if request.is_trusted_endpoint else f"'{brief(request.url)}'"
            raise ToolError(
                ToolErrorType.WEB_REFUSED,
                f"The URL {url_text} was not opened: {error}. Give a URL like https://example.org/page.",
            ) from None
        async with self._limit.slot(ENDPOINTS if request.is_trusted_endpoint else request.client_key):
            if not self._is_loaded:
                # Importing the HTTP library is slow, so it runs in a thread.
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
        import ssl  # noqa: PLC0415 - already loaded

        from tools.web.http_exchange import REDIRECTS, exchange  # noqa: PLC0415 - already loaded

        follows = request.method == "GET" and not request.is_trusted_endpoint
        redirects: list[str] = []
        while True:
            with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
                is_judged = not request.is_trusted_endpoint
                addresses = await (self.guard.addresses if is_judged else self.guard.look_up)(target)
                if target.scheme != "https":
                    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # not used by plain HTTP; trusts no certificate
                else:
                    # The system's certificates are read once, in a thread, because reading is slow.
                    tls = self._trust = self._trust or await THREADS.run(self._make_trust)
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
                onward = self._redirect_target(target, location)
                if onward.host == target.host:
                    redirects.append(target.url)
                    if onward.url in redirects:
                        raise _redirect_error(target, f"'{brief(onward.url)}' again, in a loop")
                    if len(redirects) > self._rules.max_redirects:
                        limit_note = f"only {self._rules.max_redirects} redirects are followed. Nothing was sent there"
                        raise _redirect_error(target, f"'{brief(onward.url)}', but {limit_note}")
                    target = onward
                    continue
                # Consent and rules covered only the requested host, so a redirect to another one (even `www.`) is not
                # followed. Ask the guard, so that the model does not try an address that would be refused.
                with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
                    await self.guard.addresses(onward)
                moved_to = onward.url
            return replace(answer, redirects=tuple(redirects), moved_to=moved_to)

    def _redirect_target(self, target: UrlTarget, location: str) -> UrlTarget:
        try:
            onward = target.joined(location)
        except UrlError as error:
            destination = f"'{brief(location)}', which cannot be opened: {error}. Nothing was sent there"
            raise _redirect_error(target, destination) from None
        if target.scheme == "https" and onward.scheme == "http":
            destination = f"'{brief(onward.url)}', from https to http without encryption. Nothing was sent there"
            raise _redirect_error(target, destination)
        return onward


def _redirect_error(target: UrlTarget, destination: str) -> ToolError:
    message = f"{target.authority} redirects to {destination}. Find another address for the page, or tell the user."
    return ToolError(ToolErrorType.WEB_REFUSED, message)
