"""The control group that limits the processes of root's commands."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.files.change.writer import try_lock
from tools.shell.resource_limits import ProcessGroupLimit, is_root

pytestmark = pytest.mark.skipif(not is_root(), reason="not run: only root can create control groups")


def group_of(limit: ProcessGroupLimit) -> Path:
    entrance = limit.entrance()
    if entrance is None:
        pytest.skip("not run: no control group can be created here")
    return Path(entrance).parent


@pytest.mark.requirement("sandbox.group")
def test_a_server_has_its_own_group_and_leaves_those_of_others_in_place() -> None:
    first, second = ProcessGroupLimit(), ProcessGroupLimit()
    try:
        first_group, second_group = group_of(first), group_of(second)
        assert first_group != second_group
        assert first_group.is_dir()
        assert group_of(first) == first_group
    finally:
        first.close()
        second.close()
    assert not first_group.exists()
    assert not second_group.exists()


@pytest.mark.requirement("sandbox.group")
def test_the_group_of_a_killed_server_is_removed_by_the_next_one() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, os.fsencode(ProcessGroupLimit().entrance() or ""))
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as pipe:
        group = Path(os.fsdecode(pipe.read())).parent
    if group == Path():
        pytest.skip("not run: no control group can be created here")
    limit = ProcessGroupLimit()
    limit.entrance()
    limit.close()
    assert not group.exists()


@pytest.mark.requirement("sandbox.group")
def test_servers_that_start_together_do_not_remove_each_others_groups() -> None:
    limits = [ProcessGroupLimit() for _ in range(6)]
    try:
        group_of(limits[0])
        for _ in range(20):
            with ThreadPoolExecutor(len(limits)) as threads:
                assert all(threads.map(ProcessGroupLimit.entrance, limits))
            for limit in limits:
                limit.close()
    finally:
        for limit in limits:
            limit.close()


@pytest.mark.requirement("sandbox.group")
def test_a_server_that_is_suspended_while_it_creates_its_group_blocks_no_other_server() -> None:
    first, second = ProcessGroupLimit(), ProcessGroupLimit()
    parent = os.open(group_of(first).parent, os.O_RDONLY)
    try:
        assert try_lock(parent)
        assert group_of(second).is_dir()
    finally:
        os.close(parent)
        first.close()
        second.close()
