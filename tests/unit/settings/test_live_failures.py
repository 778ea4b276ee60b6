"""What goes wrong while a running server follows its settings: it is told, and nothing ends."""

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

from server.administration.live_settings import LiveSettings, new_settings
from server.requests.tool_services import permission_policy
from server.settings import SettingsReport, load_settings
from tests.harness import LAUNCHER
from tests.pools import quiet_pool
from tests.settings_cases import write
from tools.call.tool_registry import ToolRegistry

LOOK_SECONDS = 0.02

posix = pytest.mark.skipif(sys.platform == "win32", reason="links, and folders that are removed while they are used")


class Environment(dict[str, str]):
    """Variables that cannot be looked up for a while, as anything might fail that nobody has thought of."""

    fails = False

    def get(self, key: str, default: Any = None) -> Any:
        """The variable."""
        if self.fails:
            raise RuntimeError("no variables now")
        return super().get(key, default)


class Teller(logging.Handler):
    """Sets an event at a record that holds some words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.told = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a record."""
        if self._words in record.getMessage():
            self.told.set()


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.watch")
async def test_an_error_that_nobody_has_thought_of_while_settings_are_read_keeps_the_last_ones(
    environ: dict[str, str], file: Path
) -> None:
    variables = Environment(environ)
    write(file, {"http": {"port": 1}})
    report = load_settings([str(file)], {}, variables)
    logger, teller = (
        logging.getLogger("server.administration.live_settings"),
        Teller("could not be read because of an internal error"),
    )
    logger.addHandler(teller)
    try:
        async with aclosing(new_settings(report, LOOK_SECONDS)) as changes, anyio.create_task_group() as group:
            write(file, {"http": {"port": 22}})
            with anyio.fail_after(60):
                assert (await anext(changes)).settings.http.port == 22
            variables.fails = True
            write(file, {"http": {"port": 4444}})

            async def mend() -> None:
                with anyio.fail_after(60):
                    await teller.told.wait()
                variables.fails = False
                write(file, {"http": {"port": 333}})

            group.start_soon(mend)
            with anyio.fail_after(60):
                assert (await anext(changes)).settings.http.port == 333
    finally:
        logger.removeHandler(teller)


@pytest.mark.anyio
@pytest.mark.requirement("settings.live.watch")
async def test_a_change_that_cannot_be_applied_ends_nothing_and_the_next_one_is_applied_as_a_whole(
    environ: dict[str, str], file: Path
) -> None:
    write(file, {})
    report = load_settings([str(file)], {}, environ)
    registry = ToolRegistry()
    applied: list[tuple[int, int]] = []
    failed = anyio.Event()
    done = anyio.Event()

    async def apply(before: SettingsReport, now: SettingsReport) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("this cannot be applied")
        applied.append((before.settings.http.port, now.settings.http.port))
        done.set()

    policy = permission_policy(report, registry)
    live = LiveSettings(report, registry, policy, quiet_pool({}, registry=registry), apply)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.follow, tasks)
        with anyio.fail_after(50):
            write(file, {"http": {"port": 22}})
            await failed.wait()
            write(file, {"http": {"port": 333}})
            await done.wait()
        tasks.cancel_scope.cancel()
    assert applied == [(8808, 333)]


@pytest.mark.anyio
@posix
@pytest.mark.requirement("settings.files")
async def test_the_file_that_a_link_led_to_at_the_start_is_what_is_watched(
    environ: dict[str, str], tmp_path: Path
) -> None:
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
from server.requests.tool_services import Commands
from server.requests.tool_services import CustomTools
from server.settings import load_settings
from tools.call.tool_registry import ToolRegistry

async def main(when):
    if when == "before":
        os.rmdir(os.getcwd())
    before, environ = load_settings([], {}, {}), {}
    commands = Commands(before)
    custom = CustomTools(before.settings, commands, ToolRegistry())
    if when == "after":
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
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
def test_a_discovery_command_that_is_added_after_the_working_folder_is_gone_ends_nothing(
    tmp_path: Path, when: str
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(LAUNCHER.parent)}
    command = [sys.executable, "-W", "error", "-c", GONE, when]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) in ("done", "failed")
