"""The Makefile finds a working interpreter, and says what is missing if there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.packaging.building import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="not run: make is not installed")

REAL = str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with the Makefile and with a `bin` folder that has no interpreter; only `bin` is on PATH."""
    (tmp_path / "bin").mkdir()
    for program in ("make", "sh", "rm"):
        path = shutil.which(program)
        assert path is not None
        (tmp_path / "bin" / program).symlink_to(path)
    (tmp_path / "checkout").mkdir()
    shutil.copy(ROOT / "Makefile", tmp_path / "checkout")
    return tmp_path


def _program(machine: Path, name: str, body: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def _make(machine: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [machine / "bin" / "make", "--no-print-directory", ".venv/bin/python"],
        cwd=machine / "checkout",
        env={"PATH": str(machine / "bin"), "HOME": str(machine)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.requirement("project.fresh-machine")
@pytest.mark.skipif(find_spec("ensurepip") is None, reason="not run: this Python cannot make environments")
def test_make_skips_stubs_and_old_interpreters(machine: Path) -> None:
    _program(machine, "python3.14", "echo 'not installed' >&2; exit 127")
    _program(machine, "python3.13", "exit 0  # as an interpreter that is too old answers")
    # Without pip, because its installation takes most of the time.
    _program(machine, "python3", f'[ "$1" = -c ] || exec {REAL} "$@" --without-pip; {REAL} "$@" >/dev/null; echo "$0"')
    result = _make(machine)
    assert result.returncode == 0, result.stderr
    python = machine / "checkout" / ".venv" / "bin" / "python"
    version = subprocess.run([python, "-V"], capture_output=True, encoding="utf-8", check=True).stdout
    assert version.split()[1] == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.requirement("project.fresh-machine")
def test_make_says_that_python_is_missing(machine: Path) -> None:
    _program(machine, "python3", "exit 0  # as an interpreter that is too old answers")
    result = _make(machine)
    assert result.returncode != 0
    assert "Python 3.11 or newer is needed" in result.stderr


@pytest.mark.requirement("project.fresh-machine")
def test_make_names_the_package_to_install_if_python_cannot_create_environments(machine: Path) -> None:
    _program(machine, "python3", f'case "$*" in *"-m "*) mkdir -p .venv; exit 1;; esac; exec {REAL} "$@"')
    # The Makefile asks the interpreter for its path, which must lead to the crippled one.
    _program(
        machine,
        "python3.14",
        f'if [ "$1" = -c ]; then case "$2" in *executable*) echo {machine}/bin/python3;; esac; fi',
    )
    result = _make(machine)
    assert result.returncode != 0
    assert f"Install the package python{sys.version_info.major}.{sys.version_info.minor}-venv" in result.stderr
    assert not (machine / "checkout" / ".venv").exists()
    assert os.listdir(machine / "checkout") == ["Makefile"]
