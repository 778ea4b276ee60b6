"""The watcher of the settings files: the changes that it yields, and broken and constantly changing files."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.administration.settings_reload import new_settings
from server.settings import SettingsReport, load_settings
from server.settings.settings_files import LOCK_NAME
from server.settings.workspace_trust import digest, trust_file, trust_folder
from server.upstreams.catalog.lock_file import lock_text
from tests.settings_cases import write
from tests.waiting import until

pytestmark = pytest.mark.anyio

LOOK_SECONDS = 0.02
SLOW_LOOK_SECONDS = 0.2


async def next_settings(changes: AsyncGenerator[SettingsReport]) -> SettingsReport:
    with anyio.fail_after(60):
        return await anext(changes)


@pytest.mark.requirement("settings.live.watch")
@pytest.mark.parametrize(
    "content", ['{"media": ', "", "\ufeff\n"], ids=["half written", "empty for now", "only a byte order mark"]
)
async def test_a_changed_file_gives_new_settings_and_a_broken_one_keeps_the_last(
    environ: dict[str, str], file: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    write(file, {"media": "notice"})
    report = load_settings([str(file)], {}, environ)
    async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
        write(file, {"media": "inline", "http": {"port": 7}})
        assert (await next_settings(changes)).settings.http.port == 7
        write(file, content)
        error_was_logged = anyio.Event()

        class LogWatcher(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "are not valid" in record.getMessage():
                    error_was_logged.set()

        logger, handler = logging.getLogger("server.administration.settings_reload"), LogWatcher()
        logger.addHandler(handler)
        try:
            async with anyio.create_task_group() as group:

                async def mend() -> None:
                    with anyio.fail_after(60):
                        await error_was_logged.wait()
                    write(file, {"http": {"port": 8}})

                group.start_soon(mend)
                assert (await next_settings(changes)).settings.http.port == 8
        finally:
            logger.removeHandler(handler)
    assert any(str(file) in record.getMessage() for record in caplog.records)


@pytest.mark.requirement("settings.live.watch")
async def test_a_change_between_the_start_and_the_first_check_is_seen(environ: dict[str, str], file: Path) -> None:
    write(file, {"http": {"port": 1}})
    report = load_settings([str(file)], {}, environ)
    write(file, {"http": {"port": 2}})
    async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
        assert (await next_settings(changes)).settings.http.port == 2


@pytest.mark.requirement("settings.live.watch")
async def test_a_file_that_appears_or_disappears_is_noticed(environ: dict[str, str], tmp_path: Path) -> None:
    user_file = tmp_path / "home/.config/coretools-mcp/settings.json"
    async with aclosing(new_settings(load_settings([], {}, environ), LOOK_SECONDS)) as changes:
        write(user_file, {"http": {"port": 3}})
        assert (await next_settings(changes)).settings.http.port == 3
        user_file.unlink()
        assert (await next_settings(changes)).settings.http.port == 8808


@pytest.mark.requirement("settings.live.watch")
@pytest.mark.parametrize(
    "restriction",
    [
        {"permissions": {"deny": ["Read(.env)"]}},
        {"tools": {"include": ["read_file"]}},
        {"tools": {"profile": "core"}},
        {"proxy": {"requirePins": True}},
    ],
)
async def test_the_restrictions_of_a_file_that_disappears_stay_and_the_log_says_so(
    environ: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, restriction: dict[str, Any]
) -> None:
    user_file = tmp_path / "home/.config/coretools-mcp/settings.json"
    write(user_file, restriction)
    async with aclosing(new_settings(load_settings([], {}, environ), LOOK_SECONDS)) as changes:
        reports: list[SettingsReport] = []

        async def read() -> None:
            reports.append(await next_settings(changes))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            user_file.parent.rename(tmp_path / "moved")
            await until(lambda: "this file is now missing" in caplog.text)
            assert reports == []
            write(user_file, {"permissions": {"deny": ["Bash"]}})
        assert [*reports[0].settings.permissions.deny] == ["Bash"]


@pytest.mark.requirement("settings.live.watch")
async def test_a_file_put_in_place_by_a_rename_is_noticed_and_a_mere_touch_is_not(
    environ: dict[str, str], file: Path
) -> None:
    write(file, {"http": {"port": 1}})
    async with aclosing(new_settings(load_settings([str(file)], {}, environ), LOOK_SECONDS)) as changes:
        Path(write(file.with_name("new.json"), {"http": {"port": 2}})).replace(file)
        assert (await next_settings(changes)).settings.http.port == 2
        os.utime(file, (1, 1))
        with anyio.move_on_after(25 * LOOK_SECONDS) as scope:
            await anext(changes)
        assert scope.cancelled_caught


@pytest.mark.requirement("lock.live")
async def test_a_rewritten_lock_file_with_the_same_content_is_reported(environ: dict[str, str], file: Path) -> None:
    lock = file.with_name(LOCK_NAME)
    write(file, {"http": {"port": 1}})
    lock.write_bytes(lock_text({}))
    async with aclosing(new_settings(load_settings([str(file)], {}, environ), LOOK_SECONDS)) as changes:
        write(file, {"http": {"port": 2}})
        report = await next_settings(changes)
        os.utime(lock, (1, 1))
        assert await next_settings(changes) == report


@pytest.mark.requirement("settings.live.restrictions")
async def test_trust_takes_effect_without_a_restart_and_ends_when_the_file_changes(
    environ: dict[str, str], tmp_path: Path
) -> None:
    project = tmp_path.resolve() / "project"
    path = Path(write(project / ".coretools/settings.json", {"mcpServers": {"a": {"command": "a"}}}))
    report = load_settings([], {}, environ, folder=str(project))
    assert report.upstreams == {}
    async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
        store = trust_file(environ)
        assert store is not None
        trust_folder(store, str(project), {".coretools/settings.json": digest(path.read_bytes())})
        assert set((await next_settings(changes)).upstreams) == {"a"}
        write(path, {"mcpServers": {"a": {"command": "evil"}}})
        assert (await next_settings(changes)).upstreams == {}


@asynccontextmanager
async def frequent_writes(path: Path, content: str) -> AsyncGenerator[None]:
    """Rewrite a file constantly, with new content each time."""

    async def write_repeatedly() -> None:
        number = 0
        while True:
            number += 1
            write(path, content + " " * (number % 50))
            await anyio.sleep(0.005)

    write(path, content)
    async with anyio.create_task_group() as group:
        group.start_soon(write_repeatedly)
        yield
        group.cancel_scope.cancel()


@pytest.mark.requirement("settings.live.streams")
async def test_a_flood_of_changes_in_a_workspace_does_not_delay_the_operators_rule(
    environ: dict[str, str], file: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    write(file, {})
    async with frequent_writes(project / ".coretools" / "settings.json", '{"tools": {"exclude": []}}'):
        report = load_settings([str(file)], {}, environ, folder=str(project))
        async with aclosing(new_settings(report, SLOW_LOOK_SECONDS)) as changes:
            write(file, {"permissions": {"deny": ["Bash"]}})
            with anyio.fail_after(30):
                assert (await anext(changes)).settings.permissions.deny == ("Bash",)


@pytest.mark.requirement("settings.live.streams")
async def test_a_constantly_changing_file_is_read_after_a_few_checks(environ: dict[str, str], file: Path) -> None:
    write(file, {})
    report = load_settings([str(file)], {}, environ)
    async with aclosing(new_settings(report, SLOW_LOOK_SECONDS)) as changes:
        for rule in ("Bash", "Read"):  # the first check reads everything anyway
            async with frequent_writes(file, f'{{"permissions": {{"deny": ["{rule}"]}}}}'):
                with anyio.fail_after(30):
                    assert (await anext(changes)).settings.permissions.deny == (rule,)
