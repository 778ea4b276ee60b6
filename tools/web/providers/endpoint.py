"""One question to a provider, and its answer as an object: every way in which that fails is a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

from tools.contract.errors import ToolError, ToolErrorType
from tools.web.opener import WebRequest
from tools.web.providers.echoes import without_key
from tools.web.providers.search_settings import SETUP
from tools.web.providers.waiting import when_to_try_again
from tools.web.target import Target, UrlError, parse_url

if TYPE_CHECKING:
    from tools.web.opener import UrlOpener, WebResponse

MAX_REPLY_BYTES = 512 << 10
"""Twenty results have some 10 to 100 kB. Parsing as much as this holds the event loop for at most 80 milliseconds, and
an honest answer for less than one."""

_SENDABLE = re.compile(r"[!-~]*")
_OK = 200
_REDIRECTS = range(300, 400)
_NO_KEY = (401, 403)
_TOO_MANY = 429
_THEIR_FAULT = range(500, 600)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider is asked.

    Args:
        name: The provider, as settings call it.
        title: The provider, as people call it.
        url: The address.
        api_key: What must not be told.
        refusals: What the provider means by a status, where that is something of its own: the sentences after
            "<title> refused the search (<status>): ".
    """

    name: str
    title: str
    url: str
    api_key: str = field(default="", repr=False)
    refusals: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def target(self) -> Target:
        """Where the address leads.

        Raises:
            ToolError: `web_search_failed`: nowhere.
        """
        try:
            return parse_url(self.url)
        except UrlError as error:
            raise self._failed(
                f"cannot be asked: its address cannot be opened, since {error}. The operator can mend "
                f"web.search.{self.name}.url."
            ) from None

    async def get(self, opener: UrlOpener, parameters: Mapping[str, str], **headers: str) -> Mapping[str, Any]:
        """Ask with parameters in the query of the address.

        Args:
            opener: Opens the address.
            parameters: Not yet encoded.
            headers: With underscores for hyphens.

        Raises:
            ToolError: `web_search_failed`: the provider refuses, or its answer is none; else as the opener does.
        """
        url = self.target.url
        whole = f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"
        return await self._ask(opener, WebRequest(whole, headers=_headers(headers), is_trusted_endpoint=True))

    async def post(self, opener: UrlOpener, body: Mapping[str, Any], **headers: str) -> Mapping[str, Any]:
        """Ask with an object as the body.

        Args:
            opener: Opens the address.
            body: What is sent as JSON.
            headers: With underscores for hyphens.

        Raises:
            ToolError: `web_search_failed`: the provider refuses, or its answer is none; else as the opener does.
        """
        sent = {**_headers(headers), "Content-Type": "application/json"}
        data = json.dumps(body).encode()
        return await self._ask(opener, WebRequest(self.target.url, "POST", sent, data, is_trusted_endpoint=True))

    async def _ask(self, opener: UrlOpener, request: WebRequest) -> Mapping[str, Any]:
        if not _SENDABLE.fullmatch(self.api_key):
            raise self._failed(
                "cannot be asked: its API key holds a blank or a character outside ASCII, which no key does. The "
                f"operator sets it with {SETUP[self.name]}."
            )
        try:
            response = await opener.open(request)
        except ToolError as error:
            if error.code is ToolErrorType.WEB_REFUSED:
                # What the opener says about a URL shows it, and there may be a key in it.
                raise self._failed(
                    "cannot be asked: the address with the query cannot be opened. Try a shorter query; if that fails "
                    f"too, tell the user that the operator can mend web.search.{self.name}.url."
                ) from None
            raise ToolError(error.code, f"{self.title} cannot be asked. {error.message}") from None
        if response.status != _OK:
            raise self._refused(response)
        return self._read(response)

    def _read(self, response: WebResponse) -> Mapping[str, Any]:
        if response.cut is not None:
            raise self._failed(f"did not give a whole answer: {response.cut}. Try again later.")
        if len(response.body) > MAX_REPLY_BYTES:
            raise self._failed(
                f"answered with {len(response.body):,} bytes, more than any list of results has; at most "
                f"{MAX_REPLY_BYTES:,} are read. Ask for fewer results."
            )
        text = response.body.decode("utf-8-sig", "replace")
        try:
            reply: Any = json.loads(text)
        except (ValueError, RecursionError):
            is_page = response.media_type == "text/html"
            raise self.misunderstood("it is a web page" if is_page else "it is no JSON") from None
        if not isinstance(reply, dict):
            raise self.misunderstood("it is no object")
        # Who echoes what was sent tells it to nobody else.
        return without_key(cast("dict[str, Any]", reply), self.api_key)

    def misunderstood(self, why: str) -> ToolError:
        """What to raise where an answer has not the documented form.

        Args:
            why: A clause about the answer.
        """
        return self._failed(
            f"gave an answer that cannot be understood: {why}. Perhaps something else answers at "
            f"{self.target.authority}; the operator can look at web.search.{self.name}."
        )

    def _refused(self, response: WebResponse) -> ToolError:
        status = response.status
        special = self.refusals.get(status)
        if special is not None:
            return self._failed(f"refused the search ({status}): {special}")
        if status in _NO_KEY:
            return self._failed(
                f"refused the search ({status}): the API key is not accepted. The operator has to set a valid one: "
                f"{SETUP[self.name]}."
            )
        if status == _TOO_MANY:
            when = when_to_try_again(response.headers)
            return self._failed(f"takes no more searches for now ({status}). Try again {when}.")
        if status in _REDIRECTS:
            return self._failed(
                f"is not at its address any more ({status}): it leads elsewhere, where no key is sent. The operator "
                f"can set web.search.{self.name}.url."
            )
        if status in _THEIR_FAULT:
            return self._failed(f"has a failure of its own ({status}). Try again later.")
        return self._failed(
            f"refused the search ({status}). Try a simpler query; the operator can look at web.search.{self.name}."
        )

    def _failed(self, what: str) -> ToolError:
        return ToolError(ToolErrorType.WEB_SEARCH_FAILED, f"{self.title} {what}")


def _headers(named: Mapping[str, str]) -> dict[str, str]:
    return {"Accept": "application/json", **{name.replace("_", "-"): value for name, value in named.items()}}
