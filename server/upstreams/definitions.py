"""What tools of upstreams say of themselves, watched for changes.

A server that was looked at when it was new may tell models something else later. So a changed definition is asked about
once more, whatever was allowed before.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.display import visible_line

logger = logging.getLogger(__name__)

MOST_TOLD = 20
"""Changed tools that one change of a list tells of in the log (ours)."""

MOST_REMEMBERED = 10_000
"""Tools of one upstream that are remembered; those that it lists now are, however many they are (ours)."""

_FORGOTTEN = "forgotten"
"""In place of a digest, and like none."""

_WATCHED = ("name", "title", "description", "inputSchema", "outputSchema")
"""What models are told of a tool."""

_SERIALS = itertools.count(1)


@dataclass(slots=True)
class Known:
    """A tool in this run. What it is, or was, is told by digests of its definitions.

    Args:
        first: What it was when it was first listed; empty where that is not known any more.
        now: What it is now; empty once its entry is not used any more.
        serial: Tells it from a tool of the same name whose server is reached in another way.
    """

    first: str
    now: str
    serial: int = field(default_factory=_SERIALS.__next__)
    _agreed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def is_new_to(self, client_key: str, digest: str) -> bool:
        """Whether this is not what it was at first, and this client has not agreed to it."""
        return digest != self.first and (client_key, digest) not in self._agreed

    def agree(self, client_key: str, digest: str) -> None:
        """The person behind a client has agreed to exactly this; nothing is kept of one like any other."""
        if client_key and digest != self.first:
            self._agreed.add((client_key, digest))


class Definitions:
    """Every tool of every upstream as it was and is.

    An upstream may list other names each time. So those that it has not listed for longest are forgotten, and from then
    on nobody can tell a name that is new from one that comes back as something else.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Known]] = {}
        """By alias and name; what was listed last is last."""
        self._forgetful: set[str] = set()
        """Of which something is forgotten."""

    def note(self, alias: str, digests: Iterable[tuple[str, str]]) -> None:
        """Take in what an upstream lists now; changes are told in the log.

        Args:
            alias: The upstream.
            digests: Of each tool its name, and the digest of what it is.
        """
        changed: list[str] = []
        earlier = self._known.get(alias, {})
        listed: dict[str, Known] = {}
        for name, now in digests:
            known = earlier.get(name)
            if known is None:
                known = Known("" if alias in self._forgetful else now, now)
            elif known.now != now:
                known.now = now
                changed.append(name)
            listed[name] = known
        unlisted = {name: known for name, known in earlier.items() if name not in listed}
        self._forget_oldest(alias, unlisted, len(listed))
        self._known[alias] = unlisted | listed
        for name in changed[:MOST_TOLD]:
            said = f"upstream {alias} has changed its tool '{name}'; whoever calls it next is asked for consent"
            logger.warning("%s", visible_line(said))
        if len(changed) > MOST_TOLD:
            logger.warning("upstream %s has changed %d more tools", alias, len(changed) - MOST_TOLD)

    def _forget_oldest(self, alias: str, unlisted: dict[str, Known], listed: int) -> None:
        """Forget what is too much of what an upstream lists no more."""
        surplus = min(len(unlisted), len(unlisted) + listed - MOST_REMEMBERED)
        if surplus <= 0:
            return
        for name in list(itertools.islice(unlisted, surplus)):
            unlisted.pop(name).now = _FORGOTTEN  # an answer that still comes is not for what has the name then
        if alias not in self._forgetful:
            self._forgetful.add(alias)
            message = (
                "upstream %s has listed more than %d different tools, and the oldest are forgotten; "
                "whoever calls one that is new from now on is asked for consent"
            )
            logger.warning(message, alias, MOST_REMEMBERED)

    def of(self, alias: str, name: str) -> Known:
        """What is known of a tool that was listed."""
        return self._known[alias][name]

    def forget(self, alias: str) -> None:
        """The operator has changed the entry: it may be another server now."""
        for known in self._known.pop(alias, {}).values():
            known.now = ""
        self._forgetful.discard(alias)


def digest_of(definition: Mapping[str, Any]) -> str:
    """What tells whether models would be told the same of a tool."""
    told = {key: definition[key] for key in _WATCHED if key in definition}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
