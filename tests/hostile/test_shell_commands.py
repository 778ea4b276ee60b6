"""No hostile command comes out better than it may, and everyday commands that only read are not held up."""

from __future__ import annotations

import pytest

from tests.hostile.shell_corpus import HARMLESS, OTHERS, RANK, hostile_commands, verdict
from tools.permissions.shell.analyser import analyse


@pytest.mark.requirement("shell.analysis.hostile")
def test_no_hostile_command_comes_out_better_than_is_safe() -> None:
    corpus = dict(hostile_commands())
    assert len(corpus) >= 1_000
    better = {
        command: (found, weakest)
        for command, weakest in corpus.items()
        if RANK[found := verdict(analyse(command))] < RANK[weakest]
    }
    assert better == {}


@pytest.mark.requirement("shell.analysis.hostile")
@pytest.mark.parametrize("command", OTHERS)
def test_each_way_to_change_something_is_at_least_asked_about(command: str) -> None:
    assert not analyse(command).is_read_only


@pytest.mark.requirement("shell.analysis.everyday")
@pytest.mark.parametrize("command", HARMLESS)
def test_everyday_commands_that_only_read_are_understood(command: str) -> None:
    analysis = analyse(command)
    assert (analysis.doubts, [c.doubts for c in analysis.commands if c.doubts]) == ((), [])
    assert analysis.is_read_only, [c.text for c in analysis.commands if not c.is_read_only]
