"""The pages of a login for people on other machines: one asks whether to go on, to the other they are sent back.

The address of the first is for one login, and is handed to the client of its principal. The login belongs to the
browser that goes on there: an answer of the authorization server that another browser brings is not taken (RFC 6749,
10.12; RFC 9700, 4.7), so the address of an authorization server that somebody has sent on leads to nothing. What
protects a person to whom the first address itself was sent is that the page tells for whose calls their account would
be used.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import logging
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from server.upstreams.login.callback import HEADERS, NOT_OURS, PAGE_SECONDS, Redirect, page
from tools.contract.display import visible_line

logger = logging.getLogger(__name__)

CALLBACK, CONNECT = "/oauth/callback", "/connect"
COOKIE_SECONDS = 600  # longer than a person has at the authorization server

_NOT_OPEN = "This link was used already, or has expired. Repeat the call that led you to it to get a new one."
_NO_LOGIN = f"{NOT_OURS} Try again what led you to the login."
_ELSEWHERE = "This login was started in another browser. Continue there, or repeat the call that led you here."
_NO_COOKIE = (
    "This login goes on by the button on its page alone, in a browser that keeps cookies. Open the link anew, or try "
    "again what led you to it."
)
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")  # as we make them
# No `form-action`: browsers hold it against the whole way that the form leads, and where an authorization server sends
# people on to is its own affair.
_HEADERS = {name: value for name, value in HEADERS.items() if name != "Connection"} | {
    "Referrer-Policy": "same-origin",  # with none, browsers send their forms with the origin `null`
    "Content-Security-Policy": f"{HEADERS['Content-Security-Policy']}; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(eq=False, slots=True)
class _OpenLogin:
    redirect: Redirect
    browser: bytes | None = None  # the digest of the cookie of the one browser that has gone on


class ConnectPages:
    """Takes people to authorization servers, and their answers in, each for the login whose secret `state` it carries.

    Args:
        public_url: The address at which people reach this server.
        place: The name of this replica, by which a balancer finds it; empty where there are no others.
    """

    def __init__(self, public_url: str, place: str = "") -> None:
        self.state_prefix = f"{place}~" if place else ""  # of addresses and of what comes back
        self._base = public_url.rstrip("/")
        scheme, self._host, *_ = urlsplit(self._base)
        self._is_secure = scheme == "https"
        usual_port = ":443" if self._is_secure else ":80"
        self._origin = f"{scheme}://{self._host.lower().removesuffix(usual_port)}"  # as browsers say it
        # With this prefix no other host of the domain can have set it.
        self._cookie = "__Host-coretools-connect" if self._is_secure else "coretools-connect"
        self._links: dict[bytes, _OpenLogin] = {}
        self._states: dict[str, _OpenLogin] = {}
        self.uri = f"{self._base}{CALLBACK}"
        # A proxy that serves us below a path of its own takes that away.
        self.routes = [
            Route(f"{CONNECT}/{{token}}", self._ask, methods=["GET"]),
            Route(f"{CONNECT}/{{token}}", self._go_on, methods=["POST"]),
            Route(CALLBACK, self._come_back, methods=["GET"]),
        ]

    @asynccontextmanager
    async def expect(self, redirect: Redirect, state: str) -> AsyncGenerator[str]:
        """Let one person in, and out again as `CallbackListener.expect` does. Gives the address to begin at."""
        token = f"{self.state_prefix}{secrets.token_urlsafe(32)}"
        self._links[_digest(token)] = self._states[state] = _OpenLogin(redirect)
        try:
            yield f"{self._base}{CONNECT}/{token}"
        finally:
            del self._links[_digest(token)]
            self._states.pop(state, None)
            redirect.is_over.set()

    async def _ask(self, request: Request) -> Response:
        """Show whose login it would be. Nothing is done by it: programs that look at links come here, too."""
        login = self._links.get(_digest(request.path_params["token"]))
        browser = self._browser_of(request)
        if login is None:
            return _shown(404, _NOT_OPEN)
        if login.browser is not None and (browser is None or not hmac.compare_digest(login.browser, _digest(browser))):
            return _shown(403, _ELSEWHERE)
        redirect = login.redirect
        where, alias = visible_line(urlsplit(redirect.url).netloc), visible_line(redirect.alias)
        who = visible_line(redirect.principal)
        whose = f"{who} uses" if who else "everybody who may use this server has"
        warning = (
            (f"Continue only if you are {who} there" if who else "Continue only if you want that")
            + " and have asked for this just now. If somebody else sent you this link, close this window: they would "
            "be able to use your account."
        )
        response = _shown(
            200,
            f"The MCP server {alias} wants a login at {where}. The account with which you log in is then the one that "
            f"{whose} with {alias} by coretools-mcp at {self._host}.",
            f"<p>{html.escape(warning)}</p>"
            f'<form method="post"><button>Log in at {html.escape(where)}</button></form>'
            "<p>Otherwise close this window.</p>",
        )
        self._keep_cookie(response, browser or secrets.token_urlsafe(32))
        return response

    async def _go_on(self, request: Request) -> Response:
        """Send a browser that has shown the page on to the authorization server, and no other one after it."""
        login = self._links.get(_digest(request.path_params["token"]))
        browser = self._browser_of(request)
        if login is None:
            return _shown(404, _NOT_OPEN)
        if browser is None or request.headers.get("origin") != self._origin:  # or a page elsewhere has sent the form
            return _shown(403, _NO_COOKIE)
        if login.browser is None:
            login.browser = _digest(browser)
        elif not hmac.compare_digest(login.browser, _digest(browser)):
            return _shown(403, _ELSEWHERE)
        response = RedirectResponse(login.redirect.url, 303, _HEADERS)
        self._keep_cookie(response, browser)
        return response

    async def _come_back(self, request: Request) -> Response:
        """Take an answer in, from the browser that has gone on alone; another one ends nothing."""
        parameters = dict(request.query_params)
        state, browser = parameters.get("state", ""), self._browser_of(request)
        login = self._states.get(state)
        if login is None:
            return _shown(400, _NO_LOGIN)
        redirect = login.redirect
        if login.browser is None or browser is None or not hmac.compare_digest(login.browser, _digest(browser)):
            logger.warning("the answer to a login to %s came by another browser, and was not taken", redirect.alias)
            return _shown(403, _ELSEWHERE)
        del self._states[state]
        redirect.parameters = parameters
        redirect.arrived.set()
        with anyio.move_on_after(PAGE_SECONDS):
            await redirect.is_over.wait()
        return _shown(200, redirect.page)

    def _browser_of(self, request: Request) -> str | None:
        cookie = request.cookies.get(self._cookie, "")
        return cookie if _COOKIE.fullmatch(cookie) else None

    def _keep_cookie(self, response: Response, browser: str) -> None:
        # Lax, since the browser comes back from another site.
        response.set_cookie(
            self._cookie, browser, COOKIE_SECONDS, secure=self._is_secure, httponly=True, samesite="lax"
        )


def _shown(status: int, text: str, form: str = "") -> HTMLResponse:
    return HTMLResponse(page(text, form), status, _HEADERS)


def _digest(text: str) -> bytes:
    # Looked up by what tells nothing of them, however long the look-up takes.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
