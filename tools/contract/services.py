"""What outlives a call and is shared by all clients, as far as tools use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.execution.runner import CommandRunner


@dataclass(frozen=True, slots=True)
class Services:
    """The services that tools are given: for each, what makes it when it is first called and then gives the same one.

    Args:
        commands: Runs shell commands; `None` where none can be run.
        consented: Real paths of files that programs obey and that tools have written with a person's consent, each with
            the monotonic time of the last consent.
    """

    commands: Callable[[], CommandRunner] | None = None
    consented: dict[str, float] = field(default_factory=dict[str, float])
