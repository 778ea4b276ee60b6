"""What is said about the settings: warnings that let the server start, problems that do not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_SHOWN_KEY = 60
"""Characters of a key that a sentence repeats (ours)."""

KeyPath = tuple[str | int, ...]
"""The keys from the top of the settings down to a value; an integer is a position in an array."""


class SettingsError(Exception):
    """The settings cannot be used, so the server does not start.

    Args:
        problems: A sentence for each: the file, the key, the value unless it may be a secret, and what is expected.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))

    @property
    def message(self) -> str:
        """All problems, each on its own line."""
        return str(self)


@dataclass(slots=True)
class Findings:
    """Collects sentences while the settings are read, so that one start tells of everything that is wrong."""

    warnings: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def warn(self, source: str, sentence: str) -> None:
        """Note something that the server can start with."""
        self.warnings.append(f"{source}: {sentence}")

    def refuse(self, source: str, sentence: str) -> None:
        """Note something that the server cannot start with."""
        self.problems.append(f"{source}: {sentence}")

    def stop_on_problems(self) -> None:
        """End here if anything was refused.

        Raises:
            SettingsError: With every problem noted so far.
        """
        if self.problems:
            raise SettingsError(self.problems)


def dotted(path: KeyPath) -> str:
    """The path as sentences name it: `mcpServers.docs.args[0]`."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            shown += f".{shown_name(step)}" if shown else shown_name(step)
    return shown


def shown_name(name: str) -> str:
    """A key, or another name that a file gives, as sentences repeat it: cut, on one line, nothing in it invisible."""
    cut = name if len(name) <= MAX_SHOWN_KEY else name[:MAX_SHOWN_KEY] + "..."
    return cut if cut.isprintable() and cut else json.dumps(cut)
