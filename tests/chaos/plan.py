"""What a seed comes to: a world, and when what goes wrong in it. One seed is always the same plan."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.chaos.faults import FAULTS
from tests.chaos.world import Setting

TRANSPORTS = ("stdio", "http", "sse", "lone", "replicas")
LATEST = 1.0
"""Seconds from the begin of a burst to its last fault."""


@dataclass(frozen=True, slots=True)
class Event:
    """One fault.

    Args:
        at: Seconds from the begin of its burst.
        fault: Its name.
        pick: Which one of those that it may act on, modulo their number.
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
    """A world, and bursts of faults; after each burst all is looked at."""

    seed: int
    setting: Setting
    bursts: tuple[tuple[Event, ...], ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.setting}"]
        for number, burst in enumerate(self.bursts, 1):
            lines += [f"  burst {number}, {event}" for event in burst]
        return "\n".join(lines)


BRIEF = 2
"""Bursts of a plan that is to cost little."""


def plan_of(seed: int, transport: str | None = None, fault: str | None = None, *, is_brief: bool = False) -> Plan:
    """The plan of a seed; where wanted of one transport, with one fault alone, or with few callers and bursts."""
    rng = random.Random(seed)
    drawn = rng.choice(TRANSPORTS)
    setting = Setting(
        transport or drawn, rng.choice(("off", "auto")), rng.choice(("host", "none")), rng.choice((3, 6, 10))
    )
    names = [name for name, each in FAULTS.items() if setting.transport in each.transports]
    if fault is not None:
        names = [name for name in names if fault in name]

    def burst() -> tuple[Event, ...]:
        drawn = [
            Event(round(rng.random() * LATEST, 2), rng.choice(names), rng.randrange(100), round(rng.random() * 1.5, 2))
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        return tuple(sorted(drawn, key=lambda event: event.at))

    # Sometimes the same again and again: what it leaves each time adds up.
    bursts = (burst(),) * 6 if rng.random() < 0.2 else tuple(burst() for _ in range(rng.choice((2, 3, 4))))
    if is_brief:
        return Plan(seed, replace(setting, callers=2), bursts[:BRIEF])
    return Plan(seed, setting, bursts)
