"""The path opener without openat2: it opens folder by folder, and behaves the same."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import PEERS, ROOT
from tests.variants import one_in

OPENER_TESTS = [
    "tests/unit/filesystem/test_workspace.py",
    "tests/unit/filesystem/test_writer.py",
    "tests/unit/filesystem/test_walk.py",
    "tests/hostile/test_folder_swaps.py",
]


@pytest.mark.requirement("paths.exchanged")
@pytest.mark.parametrize("error", one_in(2, [errno.EPERM, errno.ENOSYS]), ids=["forbidden", "unknown"])
def test_the_opener_behaves_the_same_without_openat2(error: int, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-P",
        str(PEERS / "without_openat2.py"),
        str(error),
        "-q",
        f"--basetemp={tmp_path / 'inner'}",
    ]
    # Another errno matters only for the detection of openat2, so the first file is enough.
    tests = OPENER_TESTS if error == errno.ENOSYS else OPENER_TESTS[:1]
    command += ["-p", "no:xdist", "-m", "not long", *tests]
    # Folder by folder, a path may be longer than the kernel accepts in one call.
    command += ["--deselect", "tests/unit/filesystem/test_walk.py::test_a_folder_that_cannot_be_read_is_counted"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert " passed" in process.stdout
