"""What happens to a network client that falls silent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.harness import write_config
from tests.interaction.raw_clients import connect_http, http_server, initialized_client
from tests.processes import is_running
from tests.waiting import CEILING


@pytest.mark.requirement("http.idle")
@pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only")
def test_the_background_jobs_of_a_silent_client_end_even_if_no_new_client_comes(root: Path, tmp_path: Path) -> None:
    settings = {
        "http": {"sessionIdle": 1000},
        "shell": {"sandbox": "off"},
    }
    with http_server(root, write_config(tmp_path, settings)) as url:
        with initialized_client(connect_http(url, "http"), "2025-06-18") as client:
            job = {"command": "echo $$ > pid ; exec sleep 300", "is_background": True}
            call = client.call("run_shell_command", job)
            call.answer(call.next_question(), {"action": "accept", "content": {"decision": "once"}})
            assert call.next_result().code is None
        deadline = time.monotonic() + CEILING
        while not (text := (root / "pid").read_text() if (root / "pid").exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        while is_running(int(text)):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.requirement("http.idle")
@pytest.mark.skipif(os.name != "posix", reason="not run: commands run on POSIX systems only")
def test_a_client_that_waits_for_a_long_call_is_not_silent(root: Path, tmp_path: Path) -> None:
    settings = {"http": {"sessionIdle": 1000}, "shell": {"sandbox": "off"}}
    once = {"action": "accept", "content": {"decision": "once"}}
    with (
        http_server(root, write_config(tmp_path, settings)) as url,
        initialized_client(connect_http(url, "http"), "2025-06-18") as client,
    ):
        for command in ({"command": "touch a; exec sleep 300", "is_background": True}, {"command": "touch b; sleep 4"}):
            call = client.call("run_shell_command", command)
            call.answer(call.next_question(), once)
            assert call.next_result().code is None
        listing = client.call("list_background_jobs", {}).next_result()
        assert "sleep 300" in str(listing)
