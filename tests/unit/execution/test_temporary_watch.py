"""The folders that a command may fill without consent are limited while it runs, not only afterwards."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from tests.processes import NoSandbox
from tests.tables import all_cases
from tests.unit.execution.shell import Shell, shell_in, text_of
from tests.waiting import CEILING
from tools.contract.command_views import Engine, ViewKind
from tools.shell import private_folders, running_program
from tools.shell.process_spec import ConfinedCommand, ProcessSpec
from tools.shell.sandbox import landlock_and_seccomp
from tools.shell.sandbox.landlock_and_seccomp import LandlockCommand

pytestmark = pytest.mark.anyio
if sys.platform != "linux":
    pytest.skip("not run: temporary folders are limited only on Linux", allow_module_level=True)

ENDED = "the command was stopped, because its temporary files"
TOO_MUCH = {
    "in one file": "head -c 4M /dev/zero > large; sleep 300",
    "in a folder that is closed": "mkdir -p a/b; head -c 4M /dev/zero > a/b/large; chmod 0 a; sleep 300",
    "without a name": "exec 3> gone; rm gone; head -c 4M /dev/zero >&3; sleep 300",
    "of a process that it has started": "(exec 3> gone; rm gone; head -c 4M /dev/zero >&3; sleep 300) & wait",
    "in many files": "mkdir many; touch many/{1..60}; sleep 300",
}


@dataclass(slots=True)
class LimitedCommand(ConfinedCommand):
    folder: str = field(kw_only=True)

    def limited_folders(self) -> tuple[Sequence[str], int]:
        """Limit the folder to one megabyte."""
        return (self.folder,), 1024**2


class LimitedSandbox(NoSandbox):
    """A sandbox that only limits the size of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    async def confine(self, spec: ProcessSpec, workspace_roots: Sequence[str], *terms: object) -> ConfinedCommand:
        """Return the command unchanged, with a limit on the folder."""
        del workspace_roots, terms
        return LimitedCommand(spec, folder=self.folder)


@pytest.fixture
async def shell(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Shell]:
    monkeypatch.setattr(running_program, "SPACE_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(running_program, "FILES_STEP", 1)
    monkeypatch.setattr(private_folders, "MAX_TEMPORARY", 50)
    async with shell_in(root, tmp_path, confinement=LimitedSandbox(root)) as client_shell:
        yield client_shell


@pytest.mark.requirement("sandbox.temporary")
async def test_a_command_that_fills_its_temporary_folder_is_ended_while_it_runs(root: Path, shell: Shell) -> None:
    with all_cases() as case:
        for name, command in TOO_MUCH.items():
            with case(name):
                result = text_of(await shell.run(command))
                assert ENDED in result
                assert "Background Jobs" not in result
            private_folders.remove_tree(str(root / "a"))
            for path in root.iterdir():
                private_folders.remove_tree(str(path)) if path.is_dir() else path.unlink()
        with case("too little"):
            assert "Note" not in text_of(await shell.run("head -c 100K /dev/zero > small; cat small | wc -c"))


@pytest.mark.requirement("sandbox.temporary")
async def test_a_job_that_fills_its_temporary_folder_is_ended(shell: Shell) -> None:
    await shell.run(TOO_MUCH["without a name"], is_background=True)
    with anyio.fail_after(CEILING):
        await shell.job.is_over.wait()
    assert ENDED in text_of(await shell.read(shell.job))


@pytest.mark.requirement("sandbox.temporary")
async def test_the_temporary_folder_is_limited_and_emptied_under_landlock_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock_and_seccomp, "PRIVATE_BYTES", 1024)
    (tmp_path / "large").write_bytes(bytes(1024**2))
    spec = ProcessSpec(("/bin/true",), "/", {})
    command = LandlockCommand(spec, Engine.LANDLOCK, ViewKind.READING, temporary=str(tmp_path))
    assert command.limited_folders() == ((str(tmp_path),), 1024)
    assert (await command.release()).temporary_bytes >= 1024**2
    assert os.listdir(tmp_path) == []
