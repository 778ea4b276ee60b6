"""A short chaos run: a few small worlds, the same each time. Other tests check that it would notice problems."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.__main__ import NOT_RUN
from tests.chaos.clients import Json, SessionClient
from tests.chaos.load import Call, Caller, Tally, file_content, is_whole
from tests.chaos.plan import plan_of
from tests.harness import ROOT
from tests.interaction.replicas.scene import needs_redis
from tests.processes import needs_proc
from tests.tables import each_of

WORLDS = 5
"""One of each transport."""

SEED = 15_524
"""Seed of the first world; these brief worlds have many kinds of faults."""


def run(module: str, *options: str) -> None:
    command = [sys.executable, "-m", module, *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if result.returncode == NOT_RUN:
        pytest.skip("not run: namespaces cannot be created here")
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@needs_proc
@needs_redis
@pytest.mark.timeout(900)
@pytest.mark.requirement("chaos.survived")
def test_whatever_is_killed_or_lacking_servers_answer_or_end_and_leave_nothing() -> None:
    run("tests.chaos", "--brief", "--worlds", str(WORLDS), "--seed", str(SEED))


@needs_proc
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.requirement("chaos.soak")
def test_thousands_of_mixed_calls_leave_a_server_as_it_was() -> None:
    run("tests.chaos.soak", "--calls", "20000")


@pytest.mark.requirement("chaos.repeatable")
def test_a_seed_is_always_the_same_plan() -> None:
    assert plan_of(7) == plan_of(7)
    assert len({str(plan_of(seed)) for seed in range(100)}) == 100


CONTENT = file_content("a1x0123456789abz", 3)


@each_of(
    ("text", "is_complete"),
    [
        (CONTENT, True),
        (CONTENT[:-1], False),
        ("", False),
        (CONTENT + CONTENT, False),
        (CONTENT.replace("\n", "\0", 2), False),
    ],
)
@pytest.mark.requirement("chaos.repeatable")
def test_an_incomplete_or_mixed_file_is_noticed(text: str, is_complete: bool) -> None:
    assert is_whole(text) is is_complete


OWN, OTHER = "h1x0123456789abz", "h2x0123456789abz"


@each_of(
    ("text", "problem_count"),
    [(OWN, 0), (f"{OWN} {OTHER}", 1), (OTHER, 2), ("", 1), ('File "/server/app.py", line 3', 2)],
)
@pytest.mark.requirement("chaos.repeatable")
def test_an_answer_to_another_call_is_noticed(text: str, problem_count: int) -> None:
    tally = Tally()
    caller = Caller(SessionClient("h1", "", ""), Path("/"), random.Random(1), tally)
    answer: Json = {"id": 1, "result": {"content": [{"type": "text", "text": text}]}}
    caller.judge("command", Call("run_shell_command", {}), OWN, answer, is_good=True)
    assert len(tally.problems) == problem_count
