"""Several engines as one: where one fails, the next takes over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from tools.contract.errors import ToolError, ToolErrorType
from tools.contract.resources import NOTHING_DONE, ExhaustedError, exhaustion_of
from tools.filesystem.child import ChildFailedError
from tools.filesystem.finding.deadline import Deadline
from tools.filesystem.search.engines.engine import Batch, Engine, EngineFailedError, Hits, Query, Run, Tally

logger = logging.getLogger(__name__)

_FAILURES = (EngineFailedError, ChildFailedError)
"""After these another engine is tried."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that is being searched.

    Args:
        batch: The batch.
        engine: By which engine.
        run: Its run.
    """

    batch: Batch
    engine: Engine
    run: Run


class Chain:
    """Searches batches with the first engine that can; one that has failed is not tried again.

    Args:
        engines: In the order of preference.
        query: What is searched for.
        deadline: Budget and cancellation.
    """

    def __init__(self, engines: Sequence[Engine], query: Query, deadline: Deadline) -> None:
        self._engines = list(engines)
        self._query = query
        self._deadline = deadline
        self.tally = Tally()
        self._exhaustion: ExhaustedError | None = None
        self.used: set[str] = set()
        """The engines that have answered."""

    @property
    def at_once(self) -> int:
        """How many batches may be begun before the hits of the first are taken."""
        return self._engines[0].at_once if self._engines else 1

    def start(self, batch: Batch) -> Begun:
        """Begin to search a batch.

        Raises:
            ToolError: `grep_execution_error`: no engine can. `resources_exhausted`: the last found too little.
        """
        while self._engines:
            engine = self._engines[0]
            try:
                return Begun(batch, engine, engine.start(batch, self._query, self._deadline))
            except _FAILURES as error:
                self._give_up(engine, error)
        raise self._exhaustion or ToolError(
            ToolErrorType.GREP_EXECUTION_ERROR,
            "The search could not be carried out: no search engine could run this pattern here. "
            "Try a simpler pattern, or fixed_strings.",
        )

    def hits(self, begun: Begun) -> list[Hits]:
        """The hits of a batch, in no order. Nothing of it runs afterwards.

        Raises:
            ToolError: `grep_execution_error`, `cancelled`.
        """
        while True:
            try:
                with closing(begun.run), closing(begun.run.hits()) as found:
                    hits = list(found)
            except _FAILURES as error:
                self._give_up(begun.engine, error)
                begun = self.start(begun.batch)
            else:
                self.used.add(begun.engine.name)
                self.tally.searched += begun.run.tally.searched
                self.tally.huge += begun.run.tally.huge
                return hits

    def _give_up(self, engine: Engine, error: Exception) -> None:
        logger.warning("%s cannot search: %s", engine.name, error)
        self._exhaustion = exhaustion_of(error.__cause__, NOTHING_DONE) if error.__cause__ is not None else None
        self._engines = [other for other in self._engines if other is not engine]
