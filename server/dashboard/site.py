"""The dashboard as a web application: on loopback only, for signed-in browsers, with plain forms.

A link signs in one browser and works once. A GET changes nothing. A POST must come from a page of this server. Except
for signing in, a POST must also come from a signed-in browser and carry the token of the form, which binds the form to
the content that it showed. All text on a page is escaped, and invisible characters are replaced by marks.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import jinja2
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import FormData, Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.administration.log import HISTORY
from server.administration.server_controls import RunningServer
from server.dashboard import page_contents
from server.questions.client_confirmer import PendingQuestion
from server.transports.http_server import ClientConnection, WebServer
from tools.contract.confirmation import Answer, Decision
from tools.contract.display import CUT_HERE, visible
from tools.contract.tool_errors import ToolError
from tools.files.change.journal import Journal
from tools.files.change.revert import ChangeUndo, carry_out, plan_for_person
from tools.machine.threads import THREADS

HOST = "127.0.0.1"
CODE_SECONDS = 60.0  # how long a link is valid
MAX_CODES = 20  # maximum number of unused links
MAX_BROWSERS = 20  # maximum number of signed-in browsers; the oldest is signed out first
FOLDER = Path(__file__).parent
MAX_FORM_BYTES = 1 << 16
MAX_REASON_CHARS = 2_000  # maximum length of the reason for a denial
MAX_NUMBER_CHARS = 18  # maximum number of digits of a change's number
MAX_CONNECTIONS = 100  # maximum number of connections; to make room for another, the longest-idle one is closed
MAX_STREAMS = 20  # maximum number of pages with live updates
STREAM_POLL_SECONDS = 0.5  # interval between two checks for changes
END_SECONDS = 2.0  # how long open pages may delay the server's exit
STREAM_PULSE_SECONDS = 15.0  # interval between keep-alive messages
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types page"
    ),
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers send forms with the origin `null`
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
PAGES = {
    "": "Questions",
    "calls": "Calls",
    "servers": "Servers",
    "tools": "Tools",
    "jobs": "Jobs",
    "changes": "Changes",
    "memory": "Memory",
    "audit": "Audit",
    "settings": "Settings",
}
ASSETS = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
GONE = "This question is no longer open: it was answered, its call ended, or its time ran out. Nothing was changed."
INTERNAL_ERROR = "The server could not do this because of an internal error. Run coretools-mcp logs to see why."
NOT_SIGNED_IN = (
    "This browser is not signed in. Run coretools-mcp dashboard in a terminal: it prints a link that signs in one "
    "browser, works once, and expires after a minute."
)


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """One browser that has used a link."""

    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def form_token(self, path: str, content: str) -> str:
        """Return the token that a form must carry, bound to its path and content."""
        return hmac.new(self.secret, f"{path}\n{content}".encode(), hashlib.sha256).hexdigest()

    def accepts(self, token: str, path: str, content: str) -> bool:
        form_token = self.form_token(path, content)
        return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), form_token.encode())


class SignIn:
    """Issues one-time codes, and remembers the browsers that used one, until the process exits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: OrderedDict[str, float] = OrderedDict()
        self._sessions: OrderedDict[str, BrowserSession] = OrderedDict()

    def new_code(self) -> str:
        code = secrets.token_urlsafe(16)
        self._codes[_digest(code)] = self._clock() + CODE_SECONDS
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def use(self, code: str) -> BrowserSession | None:
        """Use up a valid code and return a new session."""
        expires = self._codes.pop(_digest(code), 0.0)
        if expires < self._clock():
            return None
        session = BrowserSession()
        self._sessions[_digest(session.cookie)] = session
        while len(self._sessions) > MAX_BROWSERS:
            self._sessions.popitem(last=False)
        return session

    def session(self, cookie: str) -> BrowserSession | None:
        return self._sessions.get(_digest(cookie))


def _digest(text: str) -> str:
    # Codes and cookies are looked up by their digest, so that the duration of a lookup reveals nothing about them.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _escape_invisible(value: object) -> object:
    return visible(value) if type(value) is str else value  # escaped text is a `Markup`, which stays unchanged


class Dashboard:
    """The dashboard of one server. It is created when first opened, and stays available until the server exits."""

    def __init__(self, running_server: RunningServer) -> None:
        self._running_server = running_server
        self._changes = 0
        self._streams = 0
        self._ending = anyio.Event()
        self._sign_in = SignIn()
        self._port, self._cookie = 0, ""
        self._home = f"/{secrets.token_urlsafe(16)}/"
        self._is_confined: bool | None = None  # whether commands run in a sandbox; `None` until checked
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_escape_invisible,
        )
        environment.filters["quoted"] = partial(quote, safe="")
        self._templates = environment
        running_server.notify_on_change(self._on_change)

    async def serve(self, is_open: anyio.Event) -> None:
        """Serve on a free port of this machine until cancelled."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind((HOST, 0))
            listener.listen()
            self._port = listener.getsockname()[1]
            self._cookie = f"coretools_{self._port}"
            routes = [
                Route("/open", self._ask_for_code, methods=["GET"]),
                Route("/open", self._sign_in_browser, methods=["POST"]),
                Route("/assets/{name}", self._asset, methods=["GET"]),
                Route("/events", self._events, methods=["GET"]),
                Route("/questions/{id}", self._answer, methods=["POST"]),
                Route("/questions/{id}/longer", self._wait_longer, methods=["POST"]),
                Route("/servers/{alias}/{action}", self._switch_server, methods=["POST"]),
                Route("/servers/{alias}", self._server_log, methods=["GET"]),
                Route("/tools/{name}/{action}", self._change_tool, methods=["POST"]),
                Route("/jobs/{id}/stop", self._stop_job, methods=["POST"]),
                Route("/changes/{number}", self._show_undo, methods=["GET"]),
                Route("/changes/{number}", self._undo, methods=["POST"]),
                *(Route(f"/{name}", self._page, methods=["GET"], name=name) for name in PAGES),
            ]
            site = Starlette(
                routes=routes, exception_handlers={HTTPException: self._error_page, Exception: self._error_page}
            )
            config = uvicorn.Config(
                _Guarded(site, {f"{HOST}:{self._port}", f"localhost:{self._port}"}, self._home),
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                http=ClientConnection,
                limit_concurrency=MAX_CONNECTIONS,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
            is_open.set()
            web = WebServer(config)
            serving = asyncio.create_task(web.serve(sockets=[listener]))
            try:
                await asyncio.shield(serving)
            finally:
                self._ending.set()
                web.should_exit = True
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([serving], timeout=END_SECONDS)

    def link(self) -> str:
        """Return a URL that signs in one browser and works once."""
        return f"http://{HOST}:{self._port}{self._home}open?code={self._sign_in.new_code()}"

    def _on_change(self) -> None:
        self._changes += 1

    def _session(self, request: Request) -> BrowserSession:
        session = self._sign_in.session(request.cookies.get(self._cookie, ""))
        if session is None:
            raise HTTPException(HTTPStatus.FORBIDDEN, NOT_SIGNED_IN)
        return session

    async def _ask_for_code(self, request: Request) -> Response:
        return await self._render("open.html", None, code=request.query_params.get("code", ""))

    async def _sign_in_browser(self, request: Request) -> Response:
        session = self._sign_in.use(str((await _form(request)).get("code", "")))
        if session is None:
            message = (
                "This link has already been used, or is older than a minute. Run coretools-mcp dashboard for a new one."
            )
            raise HTTPException(HTTPStatus.FORBIDDEN, message)
        response = self._redirect("")
        # Browsers send cookies to all ports of a host. Without the path, they would also send this cookie to
        # a server that a shell command started.
        response.set_cookie(self._cookie, session.cookie, httponly=True, samesite="strict", path=self._home)
        return response

    async def _page(self, request: Request) -> Response:
        session = self._session(request)
        name = request.url.path.removeprefix("/")
        running_server = self._running_server
        match name:
            case "":
                content = page_contents.questions(running_server)
            case "calls":
                content = await THREADS.run(partial(page_contents.calls, tuple(running_server.recent_calls.calls)))
            case "servers":
                content = page_contents.servers(running_server)
            case "tools":
                content = await page_contents.tools(running_server, request.query_params.get("q", ""))
            case "jobs":
                content = page_contents.jobs(running_server)
            case "changes":
                content = await THREADS.run(partial(page_contents.changes, running_server))
            case "memory":
                content = await page_contents.memory(running_server)
            case "audit":
                latest = tuple(running_server.audit.recent)
                content = await THREADS.run(partial(page_contents.audit, latest, running_server.audit.path))
            case _:
                content = page_contents.settings(running_server)
        return await self._render(f"{name or 'questions'}.html", session, page=name, **content)

    async def _server_log(self, request: Request) -> Response:
        session = self._session(request)
        return await self._render(
            "log.html", session, page="servers", **page_contents.log_of(request.path_params["alias"])
        )

    async def _render(
        self,
        template: str,
        session: BrowserSession | None,
        status: int = HTTPStatus.OK,
        page: str = "-",
        **context: Any,
    ) -> Response:
        if self._is_confined is None:
            self._is_confined = await self._running_server.commands.are_confined(
                self._running_server.live.report.settings.workspace.roots
            )
        context |= {
            "home": self._home,
            "page": page,
            "pages": PAGES,
            "about": page_contents.about(self._running_server),
            "waiting": len(self._running_server.questions.all()),
            "signed_in": session is not None,
            "confined": self._is_confined,
            "token": session.form_token if session is not None else None,
        }
        # Render in a thread, because a large page takes a while.
        text = await THREADS.run(lambda: self._templates.get_template(template).render(context))
        return HTMLResponse(text, status)

    async def _asset(self, request: Request) -> Response:
        kind = ASSETS.get(name := request.path_params["name"])
        if kind is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return Response(await THREADS.run((FOLDER / name).read_bytes), media_type=kind)

    async def _error_page(self, request: Request, error: Exception) -> Response:
        session = self._sign_in.session(request.cookies.get(self._cookie, ""))
        status, message = HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR  # uvicorn logs the error
        if isinstance(error, HTTPException):
            status = HTTPStatus(error.status_code)
            is_page = status not in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
            message = error.detail if is_page else "There is no such page."
        return await self._render("failed.html", session, status, message=message)

    async def _events(self, request: Request) -> Response:
        """Stream an event after each change, so that the page reloads its content."""
        self._session(request)
        page = request.query_params.get("page", "")
        if self._streams >= MAX_STREAMS:
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "Too many pages are open. Close some.")
        self._streams += 1

        async def stream() -> AsyncIterator[str]:
            try:
                previous: object = None
                sent_at = anyio.current_time()
                while not self._ending.is_set():
                    current = self._state(page)
                    if current != previous or anyio.current_time() > sent_at + STREAM_PULSE_SECONDS:
                        count = len(self._running_server.questions.all())
                        yield f"data: {count}\n\n" if current != previous else ": still here\n\n"
                        previous, sent_at = current, anyio.current_time()
                    with anyio.move_on_after(STREAM_POLL_SECONDS):
                        await self._ending.wait()
            finally:
                self._streams -= 1

        return StreamingResponse(stream(), media_type="text/event-stream")

    def _state(self, page: str) -> object:
        """Return a value that changes whenever the content of the page or the open questions change."""
        running_server, live = self._running_server, self._running_server.live
        open_questions = [(pending.id, pending.scope.deadline) for pending in running_server.questions.all()]
        match page:
            case "calls" | "audit" | "changes" | "memory":
                return open_questions, self._changes
            case "jobs":
                jobs = [job for table in running_server.clients.job_tables() for job in table.all()]
                return open_questions, [(job.id, job.status, job.running.output.total) for job in jobs]
            case "servers" | "tools":
                states = [(upstream.alias, upstream.status.state) for upstream in live.pool.upstreams]
                disabled_names = live.switched_off, running_server.switched_off
                return open_questions, states, disabled_names, live.registry.get_all_tools(), live.report
            case "settings":
                return open_questions, live.report
            case "log":
                return open_questions, HISTORY.count
            case _:
                return open_questions

    def _redirect(self, page: str) -> Response:
        return RedirectResponse(self._home + page, HTTPStatus.SEE_OTHER)

    async def _checked_form(self, request: Request, content: str) -> FormData:
        """Check that a signed-in browser sent this form to this path, and that the form is current."""
        session = self._session(request)
        form = await _form(request)
        if not session.accepts(str(form.get("token", "")), request.url.path, content):
            message = "This form is out of date, or belongs to another page. Nothing was changed; reload the page."
            raise HTTPException(HTTPStatus.FORBIDDEN, message)
        return form

    async def _question_and_form(self, request: Request) -> tuple[PendingQuestion, FormData]:
        """Return the question that a form answers, and the form. The question must still be open."""
        self._session(request)
        form = await self._checked_form(request, self._open_question(request).question.fingerprint)
        return self._open_question(request), form  # the question may have been answered while the form was in transit

    def _open_question(self, request: Request) -> PendingQuestion:
        pending = self._running_server.questions.find(request.path_params["id"])
        if pending is None:
            raise HTTPException(HTTPStatus.CONFLICT, GONE)
        return pending

    async def _answer(self, request: Request) -> Response:
        pending, form = await self._question_and_form(request)
        decision = str(form.get("decision", ""))
        choices = page_contents.offered_choices(pending.question)
        choice = next((choice for choice in choices if choice.decision.value == decision), None)
        if choice is None:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "This answer is not offered. Nothing was changed.")
        reason = str(form.get("reason", ""))[:MAX_REASON_CHARS] if choice.decision is Decision.DENY else ""
        self._running_server.questions.give(pending, Answer(choice.decision, reason=reason))
        return self._redirect("#next")

    async def _wait_longer(self, request: Request) -> Response:
        pending, _ = await self._question_and_form(request)
        self._running_server.questions.wait_longer(pending)
        return self._redirect("")

    async def _switch_server(self, request: Request) -> Response:
        alias, action = request.path_params["alias"], request.path_params["action"]
        await self._checked_form(request, alias)
        live = self._running_server.live
        if action not in ("restart", "on", "off") or alias not in live.report.upstreams:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        for is_on in {"restart": (False, True), "on": (True,), "off": (False,)}[action]:
            live.switch(alias, is_on=is_on)
        self._on_change()
        return self._redirect("servers")

    async def _change_tool(self, request: Request) -> Response:
        name, action = request.path_params["name"], request.path_params["action"]
        blocked_tool = self._running_server.blocked_tool(name) if action == "approve" else None
        # The approval is for the version that the page showed.
        form = await self._checked_form(request, name if blocked_tool is None else blocked_tool.version)
        if blocked_tool is not None:
            with _refusals_on_a_page():
                await self._running_server.live.pool.catalog.approve(blocked_tool)
        elif action in ("on", "off"):
            self._running_server.switch_tool(name, is_on=action == "on")
        else:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return self._redirect(f"tools?q={quote(str(form.get('q', '')))}")

    async def _stop_job(self, request: Request) -> Response:
        job_id = request.path_params["id"]
        await self._checked_form(request, job_id)
        for table in self._running_server.clients.job_tables():
            for job in table.all():
                if job.id == job_id:
                    await table.stop(job)
        return self._redirect("jobs")

    async def _planned_undo(self, request: Request) -> tuple[Journal, ChangeUndo]:
        self._session(request)
        open_journal, number = self._running_server.journal.open, request.path_params["number"]
        if open_journal is None or not number.isdecimal() or len(number) > MAX_NUMBER_CHARS:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        journal = await THREADS.run(open_journal)
        with _refusals_on_a_page():
            plan = await THREADS.run(
                lambda: plan_for_person(journal, self._running_server.workspace_of_person(), int(number))
            )
        return journal, plan

    async def _show_undo(self, request: Request) -> Response:
        session = self._session(request)
        _, plan = await self._planned_undo(request)
        confirmation = plan.confirmation("")
        lines = visible(confirmation.file_diff).rstrip("\n").split("\n")
        lines += [CUT_HERE] if confirmation.truncated else []
        context = {"question": confirmation.title, "lines": lines, "state": plan.state}
        return await self._render("undo.html", session, HTTPStatus.OK, "changes", number=plan.change.id, **context)

    async def _undo(self, request: Request) -> Response:
        journal, plan = await self._planned_undo(request)
        await self._checked_form(request, plan.state)
        with _refusals_on_a_page():
            await THREADS.run(lambda: carry_out(plan, journal))
        self._on_change()
        return self._redirect("changes")


@contextmanager
def _refusals_on_a_page() -> Generator[None]:
    try:
        yield
    except ToolError as error:
        raise HTTPException(HTTPStatus.CONFLICT, error.message) from None


@dataclass(frozen=True, slots=True)
class _Guarded:
    """Rejects requests to other hosts, and changes that do not come from this site's own pages."""

    site: ASGIApp
    hosts: set[str]
    home: str  # a secret path, which sign-in links contain, so that browsers send the cookie only there

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        is_foreign = headers.get("host", "") not in self.hosts
        if scope["method"] not in ("GET", "HEAD"):
            site = headers.get("sec-fetch-site", "same-origin")
            origins = {f"http://{host}" for host in self.hosts}
            is_foreign |= headers.get("origin", "") not in origins or site not in ("same-origin", "none")
        if is_foreign:
            refusal = "This request did not come from the dashboard, so nothing was done."
        elif not scope["path"].startswith(self.home):
            refusal = NOT_SIGNED_IN
        else:
            await self.site({**scope, "path": f"/{scope['path'].removeprefix(self.home)}"}, receive, guarded)
            return
        await Response(f"{refusal}\n", HTTPStatus.FORBIDDEN, media_type="text/plain")(scope, receive, guarded)


async def _form(request: Request) -> FormData:
    """Return the fields of a form, or reject a form that is too large."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > MAX_FORM_BYTES:
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
    return await request.form(max_files=0, max_fields=20)
