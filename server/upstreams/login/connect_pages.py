"""The login pages for people on other machines: one asks for confirmation, the other receives the redirect.

The first page's address is for one login and goes to the principal's client. The login is bound to the browser that
continues from that page. A redirect in another browser is rejected (RFC 6749, 10.12; RFC 9700, 4.7), so forwarding the
authorization server's address achieves nothing. In case somebody forwards the first page's address, the page says whose
calls would use the account.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from server.upstreams.login.redirect_listener import HEADERS, Redirect, page
from tools.contract.display import visible_line

logger = logging.getLogger(__name__)

CALLBACK, CONNECT = "/oauth/callback", "/connect"
COOKIE_SECONDS = 600  # lifetime of the cookie, longer than the time limit for a login

_NOT_OPEN = (
    "This login is no longer open: it was completed or cancelled, it has timed out, or the server was restarted. If "
    "your client still asks for it, repeat the call to get a new link."
)
_OTHER_BROWSER = (
    "This login continues in another browser. Continue there, or repeat the call in your client and open the new "
    "link in this browser."
)
_NO_COOKIE = (
    "Continue with the button on the login page, in a browser that accepts cookies. Open the link again, or repeat the "
    "call to get a new one."
)
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")  # the cookies that this server creates
# No `form-action`, because browsers apply it to the whole chain of redirects, which the authorization server controls.
_HEADERS = {name: value for name, value in HEADERS.items() if name != "Connection"} | {
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers submit forms with the origin `null`
    "Content-Security-Policy": f"{HEADERS['Content-Security-Policy']}; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(eq=False, slots=True)
class _OpenLogin:
    redirect: Redirect
    browser: bytes | None = None  # the digest of the cookie in the browser that was last sent to log in
    links: list[_ConnectLink] = field(default_factory=list["_ConnectLink"])


@dataclass(eq=False, slots=True)
class _ConnectLink:
    login: _OpenLogin
    token: str
    browser: bytes | None = None  # the digest of the cookie in the browser that continued with this link


class ConnectPages:
    """Sends people to authorization servers, and assigns redirects to logins by their secret `state`.

    `public_url` must be normalised as browsers do it. `replica_name` is for load balancers; empty for a lone server.
    """

    def __init__(self, public_url: str, replica_name: str = "") -> None:
        self.state_prefix = f"{replica_name}~" if replica_name else ""  # the beginning of link tokens and of `state`
        self._base = public_url
        scheme, self._host, *_ = urlsplit(self._base)
        self._is_secure = scheme == "https"
        self._origin = f"{scheme}://{self._host}"
        # With the prefix `__Host-`, no other host in the domain can set the cookie.
        self._cookie = "__Host-coretools-connect" if self._is_secure else "coretools-connect"
        self._links: dict[bytes, _ConnectLink] = {}
        self._states: dict[str, _OpenLogin] = {}
        self.uri = f"{self._base}{CALLBACK}"
        # Requests arrive here without the path under which a reverse proxy may publish this server.
        self.routes = [
            Route(f"{CONNECT}/{{token}}", self._show_page, methods=["GET"]),
            Route(f"{CONNECT}/{{token}}", self._start_login, methods=["POST"]),
            Route(CALLBACK, self._take_callback, methods=["GET"]),
        ]

    @asynccontextmanager
    async def expect(self, redirect: Redirect, state: str) -> AsyncGenerator[Callable[[], str]]:
        """Accept one login, as `CallbackListener.expect` does.

        Once a browser has continued from one address, the function returns a new address, because the person may no
        longer have access to that browser.
        """
        login = self._states[state] = _OpenLogin(redirect)

        def address() -> str:
            if not login.links or login.links[-1].browser is not None:
                link = _ConnectLink(login, f"{self.state_prefix}{secrets.token_urlsafe(32)}")
                login.links.append(link)
                self._links[_digest(link.token)] = link
            return f"{self._base}{CONNECT}/{login.links[-1].token}"

        try:
            yield address
        finally:
            for link in login.links:
                del self._links[_digest(link.token)]
            self._states.pop(state, None)
            redirect.is_over.set()

    async def _show_page(self, request: Request) -> Response:
        """Show whose login this would be, without side effects, because link checkers open links too."""
        link = self._links.get(_digest(request.path_params["token"]))
        browser = self._browser_of(request)
        if link is None:
            return _page_response(404, _NOT_OPEN)
        if link.browser is not None and not _is_same(browser, link.browser):
            return _page_response(403, _OTHER_BROWSER)
        redirect = link.login.redirect
        host, person = urlsplit(redirect.url).netloc, redirect.readable_name or redirect.principal
        this_server = f"coretools-mcp at {self._host}"
        rows = {
            "Server": redirect.alias,
            "You log in at": host,
            "Your account is then used for the calls of": person or f"everybody who can use {this_server}",
        }
        if redirect.readable_name:
            rows["Known to coretools-mcp as"] = redirect.principal
        rows["These calls go through"] = this_server
        # `bdi` isolates the text direction of names.
        items = "".join(
            f"<dt>{name}</dt><dd><bdi>{html.escape(visible_line(value))}</bdi></dd>" for name, value in rows.items()
        )
        response = _page_response(
            200,
            "An MCP server used by coretools-mcp needs a login.",
            f"<dl>{items}</dl><p>Continue only if you just asked for this"
            + (", and these calls are yours" if person else "")
            + ". If somebody else sent you this link, close this window: they would be able to use your account.</p>"
            f'<form method="post"><button>Log in at {html.escape(visible_line(host))}</button></form>',
        )
        self._set_cookie(response, browser or secrets.token_urlsafe(32))
        return response

    async def _start_login(self, request: Request) -> Response:
        """Redirect a browser that has shown the page to the authorization server, and bind the link to this browser."""
        link = self._links.get(_digest(request.path_params["token"]))
        browser = self._browser_of(request)
        if link is None:
            return _page_response(404, _NOT_OPEN)
        if browser is None or request.headers.get("origin") != self._origin:  # another site may have submitted the form
            return _page_response(403, _NO_COOKIE)
        if link.browser is None:
            link.browser = _digest(browser)
        elif not _is_same(browser, link.browser):
            return _page_response(403, _OTHER_BROWSER)
        link.login.browser = link.browser
        response = RedirectResponse(link.login.redirect.url, 303, _HEADERS)
        self._set_cookie(response, browser)
        return response

    async def _take_callback(self, request: Request) -> Response:
        """Receive a redirect, but only from the browser that has continued from the login page."""
        parameters = dict(request.query_params)
        state, browser = parameters.get("state", ""), self._browser_of(request)
        login = self._states.get(state)
        if login is None:
            return _page_response(400, _NOT_OPEN)
        redirect = login.redirect
        if login.browser is None or not _is_same(browser, login.browser):
            message = "the redirect of a login to %s came from a different browser and was rejected"
            logger.warning(message, redirect.alias)
            return _page_response(403, _NO_COOKIE if login.browser is None else _OTHER_BROWSER)
        del self._states[state]
        return _page_response(200, await redirect.take(parameters))

    def _browser_of(self, request: Request) -> str | None:
        cookie = request.cookies.get(self._cookie, "")
        return cookie if _COOKIE.fullmatch(cookie) else None

    def _set_cookie(self, response: Response, browser: str) -> None:
        # Lax, because the browser comes back from another site.
        response.set_cookie(
            self._cookie, browser, COOKIE_SECONDS, secure=self._is_secure, httponly=True, samesite="lax"
        )


def _is_same(browser: str | None, digest: bytes) -> bool:
    """Return whether a cookie, if there is one, has this digest."""
    return browser is not None and hmac.compare_digest(digest, _digest(browser))


def _page_response(status: int, text: str, form: str = "") -> HTMLResponse:
    return HTMLResponse(page(text, form), status, _HEADERS)


def _digest(text: str) -> bytes:
    # Links are looked up by a digest of their token, so that the duration of a lookup reveals nothing about the token.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
