"""Watching the settings files while one of them never rests: the others count all the same, and in the end it too."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from server.settings import load_settings
from server.settings.file_watcher import new_settings
from tests.settings_cases import write

pytestmark = pytest.mark.anyio

LOOK_SECONDS = 0.2


@asynccontextmanager
async def flooded(path: Path, content: str) -> AsyncGenerator[None]:
    """Writes a file anew all the time, each time another one."""

    async def flood() -> None:
        number = 0
        while True:
            number += 1
            write(path, content + " " * (number % 50))
            await anyio.sleep(0.005)

    write(path, content)
    async with anyio.create_task_group() as group:
        group.start_soon(flood)
        yield
        group.cancel_scope.cancel()


@pytest.mark.requirement("settings.live.flood")
async def test_a_flood_of_changes_in_a_workspace_does_not_hold_back_the_operators_rule(
    environ: dict[str, str], file: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    write(file, {})
    async with flooded(project / ".coretools" / "settings.json", '{"tools": {"exclude": []}}'):
        report = load_settings([str(file)], {}, environ, folder=str(project))
        async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
            write(file, {"permissions": {"deny": ["Bash"]}})
            with anyio.fail_after(30):
                assert (await anext(changes)).settings.permissions.deny == ("Bash",)


@pytest.mark.requirement("settings.live.flood")
async def test_a_file_that_never_rests_counts_after_a_few_looks(environ: dict[str, str], file: Path) -> None:
    write(file, {})
    report = load_settings([str(file)], {}, environ)
    async with aclosing(new_settings(report, LOOK_SECONDS)) as changes:
        for rule in ("Bash", "Read"):  # the first look reads everything anyway
            async with flooded(file, f'{{"permissions": {{"deny": ["{rule}"]}}}}'):
                with anyio.fail_after(30):
                    assert (await anext(changes)).settings.permissions.deny == (rule,)
