"""Plans: a world, and the times of the faults in it. A seed always gives the same plan."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.chaos.faults import FAULTS
from tests.chaos.world import Setting

TRANSPORTS = ("stdio", "http", "sse", "lone", "replicas")
LATEST = 1.0
"""Seconds from the start of a burst to its last fault."""


@dataclass(frozen=True, slots=True)
class Event:
    """A fault, and when it happens.

    Args:
        at: Seconds from the start of its burst.
        fault: The name of the fault.
        pick: The number of its target, modulo the number of possible targets.
        hold: Seconds until it is undone.
    """

    at: float
    fault: str
    pick: int
    hold: float

    def __str__(self) -> str:
        return f"{self.at:.2f} s: {self.fault} #{self.pick}, for {self.hold:.2f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """A world, and bursts of faults. Everything is checked after each burst."""

    seed: int
    setting: Setting
    bursts: tuple[tuple[Event, ...], ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.setting}"]
        for number, burst in enumerate(self.bursts, 1):
            lines += [f"  burst {number}, {event}" for event in burst]
        return "\n".join(lines)


BRIEF = 2
"""Number of bursts of a brief plan."""


def plan_of(seed: int, transport: str | None = None, fault: str | None = None, *, is_brief: bool = False) -> Plan:
    """Return the plan of a seed, optionally with one transport, only some faults, or few callers and bursts."""
    rng = random.Random(seed)
    random_transport = rng.choice(TRANSPORTS)
    setting = Setting(
        transport or random_transport, rng.choice(("off", "auto")), rng.choice(("host", "none")), rng.choice((3, 6, 10))
    )
    names = [name for name, candidate in FAULTS.items() if setting.transport in candidate.transports]
    if fault is not None:
        names = [name for name in names if fault in name]

    def burst() -> tuple[Event, ...]:
        events = [
            Event(round(rng.random() * LATEST, 2), rng.choice(names), rng.randrange(100), round(rng.random() * 1.5, 2))
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        return tuple(sorted(events, key=lambda event: event.at))

    # Sometimes all bursts are the same: what a fault leaves behind adds up.
    bursts = (burst(),) * 6 if rng.random() < 0.2 else tuple(burst() for _ in range(rng.choice((2, 3, 4))))
    if is_brief:
        return Plan(seed, replace(setting, callers=2), bursts[:BRIEF])
    return Plan(seed, setting, bursts)
