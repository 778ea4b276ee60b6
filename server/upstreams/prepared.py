"""What is worked out of each tool of an upstream before it is published: in pieces, and once for one definition.

An upstream may list ten thousand tools, and say all the time that they are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from server.upstreams.definitions import digest_of
from server.upstreams.pieces import Pieces
from server.upstreams.visible_schemas import with_visible_texts


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tool as it is listed.

    Args:
        definition: As it came.
        digest: Of what models are told of it.
        shown: The definition with texts that hide nothing.
    """

    definition: Mapping[str, Any]
    digest: str
    shown: dict[str, Any]


class PreparedTools:
    """The tools of all upstreams."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Prepared]] = {}

    async def prepare(self, alias: str, definitions: Iterable[Mapping[str, Any]]) -> None:
        """Work out what is not known yet of what an upstream lists now, in place of what it listed before."""
        made: dict[str, Prepared] = {}
        pieces = Pieces()
        for definition in definitions:
            made[definition["name"]] = self.of(alias, definition)
            await pieces.rest()
        self._of[alias] = made

    def of(self, alias: str, definition: Mapping[str, Any]) -> Prepared:
        """What is known of a tool; worked out now where nobody did before."""
        known = self._of.get(alias, {}).get(definition["name"])
        if known is not None and known.definition is definition:
            return known
        return Prepared(definition, digest_of(definition), with_visible_texts(definition))

    def forget(self, alias: str) -> None:
        """An upstream is not used any more."""
        self._of.pop(alias, None)
