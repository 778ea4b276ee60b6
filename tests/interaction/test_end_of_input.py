"""Programs that still run when the input ends. Clients wait only two seconds, so the server ends the programs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.harness import write_config
from tests.interaction.test_lifecycle import INITIALIZE, INITIALIZED, call, running

WORK = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(6); pathlib.Path(sys.argv[2]).touch()"
LIST = "import json; print(json.dumps([{'name': 'slow'}]))"


def wait_for(file: Path) -> None:
    """Wait until a program has created a file."""
    for _ in range(600):
        if file.exists():
            return
        time.sleep(0.05)
    raise AssertionError(file)


@pytest.mark.requirement("stdio.drain")
@pytest.mark.parametrize("tool", ["run_shell_command", "task", "slow"])
def test_a_program_that_still_works_when_the_input_ends_is_ended_before_it_can_change_more(
    tool: str, root: Path, tmp_path: Path
) -> None:
    begin_file, end_file = root / "begun", root / "done"
    work = [sys.executable, "-I", "-c", WORK, str(begin_file), str(end_file)]
    discovery = {"discoveryCommand": [sys.executable, "-I", "-c", LIST], "callCommand": work}
    agent = {"command": work[0], "args": work[1:]}
    config = write_config(tmp_path, {"tools": discovery, "agents": {"worker": agent}, "shell": {"sandbox": "off"}})
    command = f"touch '{begin_file}'; sleep 6; touch '{end_file}'"
    arguments: dict[str, Any] = {
        "run_shell_command": {"command": command},
        "task": {"description": "work", "prompt": "work", "subagent_type": "worker"},
        "slow": {},
    }[tool]
    with running(root, config, "--approval-mode", "yolo") as server:
        server.send(INITIALIZE, INITIALIZED, call(1, tool, **arguments))
        wait_for(begin_file)
        server.stdin.close()
        (answer,) = [message for message in server.remaining_messages() if message.get("id") == 1]
        assert "The input ended" in answer["error"]["message"]
        assert server.process.wait(30) == 0
        assert not end_file.exists()


@pytest.mark.requirement("stdio.drain")
def test_after_the_end_of_input_nothing_is_sent_but_answers(root: Path, tmp_path: Path) -> None:
    (root / "go").touch()
    work = f"touch '{root}/begun'; while true; do echo more; sleep 0.05; done"
    config = write_config(tmp_path, {"shell": {"sandbox": "off"}})
    with running(root, config, "--approval-mode", "yolo") as server:
        request = call(1, "run_shell_command", command=work)
        request["params"]["_meta"] = {"progressToken": 1}
        server.send(INITIALIZE, INITIALIZED, request)
        wait_for(root / "begun")
        assert server.answer()["id"] == 0
        while "progress" not in server.answer()["method"]:
            pass
        server.stdin.close()
        messages = server.remaining_messages()
        # Messages that were already on their way may come first.
        answer_index = next(index for index, message in enumerate(messages) if "id" in message)
        assert [message["id"] for message in messages[answer_index:]] == [1]
        assert len(messages) < 20, "the server sent progress for about another second"
