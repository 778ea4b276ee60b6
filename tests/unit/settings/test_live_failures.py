"""Failures while a running server follows its settings: they are logged, and the server continues."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.administration.settings_reload import LiveSettings, new_settings
from server.requests.tool_services import permission_policy
from server.settings import SettingsReport, load_settings
from tests.harness import LAUNCHER
from tests.pools import quiet_pool
from tests.settings_cases import write
from tools.call.tool_registry import ToolRegistry

LOOK_SECONDS = 0.02

posix = pytest.mark.skipif(sys.platform == "win32", reason="not run: needs links and removable working folders")


class Environment(dict[str, str]):
    """Variables whose lookup fails while `fails` is set. It stands for any unexpected error."""

    fails = False

    def get(self, key: str, default: Any = None) -> Any:
        """Return the variable, or fail."""
        if self.fails:
            raise RuntimeError("no variables now")
        return super().get(key, default)


class LogWatcher(logging.Handler):
    """Sets an event when a log record contains the given words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.event = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Check a record."""
        if self._words in record.getMessage():
            self.event.set()


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.watch")
async def test_an_unexpected_error_while_reading_settings_keeps_the_last_ones(
    environ: dict[str, str], file: Path
) -> None:
    variables = Environment(environ)
    write(file, {"http": {"port": 1}})
    report = load_settings([str(file)], {}, variables)
    logger, handler = (
        logging.getLogger("server.administration.settings_reload"),
        LogWatcher("could not be read because of an internal error"),
    )
    logger.addHandler(handler)
    try:
        async with aclosing(new_settings(report, LOOK_SECONDS)) as changes, anyio.create_task_group() as group:
            write(file, {"http": {"port": 22}})
            with anyio.fail_after(60):
                assert (await anext(changes)).settings.http.port == 22
            variables.fails = True
            write(file, {"http": {"port": 4444}})

            async def mend() -> None:
                with anyio.fail_after(60):
                    await handler.event.wait()
                variables.fails = False
                write(file, {"http": {"port": 333}})

            group.start_soon(mend)
            with anyio.fail_after(60):
                assert (await anext(changes)).settings.http.port == 333
    finally:
        logger.removeHandler(handler)


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.watch")
async def test_a_change_that_cannot_be_applied_stops_nothing_and_is_applied_with_the_next_one(
    environ: dict[str, str], file: Path
) -> None:
    write(file, {})
    report = load_settings([str(file)], {}, environ)
    registry = ToolRegistry()
    changes_applied: list[tuple[int, int]] = []
    first_has_failed = anyio.Event()
    second_is_applied = anyio.Event()

    async def apply(before: SettingsReport, after: SettingsReport) -> None:
        if not first_has_failed.is_set():
            first_has_failed.set()
            raise RuntimeError("this cannot be applied")
        changes_applied.append((before.settings.http.port, after.settings.http.port))
        second_is_applied.set()

    policy = permission_policy(report, registry)
    live = LiveSettings(report, registry, policy, quiet_pool({}, registry=registry), apply)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.follow, tasks)
        with anyio.fail_after(50):
            write(file, {"http": {"port": 22}})
            await first_has_failed.wait()
            write(file, {"http": {"port": 333}})
            await second_is_applied.wait()
        tasks.cancel_scope.cancel()
    assert changes_applied == [(8808, 333)]


@pytest.mark.anyio
@posix
@pytest.mark.requirement("settings.files")
async def test_the_original_target_of_a_link_is_watched(environ: dict[str, str], tmp_path: Path) -> None:
    first, second, link = tmp_path / "first.json", tmp_path / "second.json", tmp_path / "link.json"
    write(first, {"http": {"port": 1}})
    write(second, {"http": {"port": 2}})
    link.symlink_to(first)
    report = load_settings([str(link)], {}, environ)
    async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
        (tmp_path / "other").symlink_to(second)
        (tmp_path / "other").replace(link)
        with anyio.move_on_after(25 * LOOK_SECONDS) as scope:
            await anext(changes)
        assert scope.cancelled_caught
    async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
        write(first, {"http": {"port": 333}})
        with anyio.fail_after(60):
            assert (await anext(changes)).settings.http.port == 333


GONE = """
import anyio, json, os, sys
from server.requests.tool_services import Commands, CustomTools
from server.settings import load_settings
from tools.call.tool_registry import ToolRegistry

async def main(moment):
    if moment == "before":
        os.rmdir(os.getcwd())
    before, environ = load_settings([], {}, {}), {}
    commands = Commands(before)
    custom = CustomTools(before.settings, commands, ToolRegistry())
    if moment == "after":
        os.rmdir(os.getcwd())
    after = load_settings([], {"tools": {"discoveryCommand": ["/bin/echo", "[]"], "callCommand": ["/bin/echo"]}}, {})
    async with anyio.create_task_group() as tasks:
        custom.change(after.settings, tasks)
        with anyio.fail_after(50):
            await custom.discovery.finished.wait()
    print(json.dumps(custom.discovery.state.status))
    await commands.aclose(())

anyio.run(main, sys.argv[1])
"""


@pytest.mark.long
@posix
@pytest.mark.requirement("discovered.failed")
@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_a_discovery_command_that_is_added_after_the_working_folder_is_removed_causes_no_crash(
    tmp_path: Path, moment: str
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(LAUNCHER.parent)}
    command = [sys.executable, "-W", "error", "-c", GONE, moment]
    process = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) in ("done", "failed")
