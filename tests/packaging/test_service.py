"""The systemd unit and its documentation. No unit is started here."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from server.cli import parse
from tests.packaging.building import ROOT

pytestmark = pytest.mark.requirement("project.service")

UNIT = ROOT / "deploy" / "coretools-mcp.service"
PAGE = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
(COMMAND,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
ANALYZE = shutil.which("systemd-analyze")


def test_the_command_of_the_unit_is_valid() -> None:
    program, *words = shlex.split(COMMAND)
    assert Path(program).name == "coretools-mcp"
    assert parse(["serve", *words]).command


@pytest.mark.skipif(ANALYZE is None, reason="not run: systemd-analyze is missing here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program, *_ = shlex.split(COMMAND)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(program, "/bin/true"), encoding="utf-8")
    result = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", str(unit)], capture_output=True, encoding="utf-8", check=False
    )
    assert [line for line in result.stderr.splitlines() if UNIT.name in line] == []
    security_check = ["security", "--offline=true", "--threshold=40", str(unit)]
    assert subprocess.run([str(ANALYZE), *security_check], capture_output=True, check=False).returncode == 0


def test_the_home_folder_of_the_units_user_is_outside_the_workspace() -> None:
    unit = UNIT.read_text(encoding="utf-8")
    (home,) = re.findall(r"--home-dir (\S+)", PAGE)
    (workspace,) = re.findall(r"--workspace (\S+)", COMMAND)
    assert not Path(home).is_relative_to(workspace)
    assert f"HOME={home} " in unit
    (folders,) = re.findall(r"^StateDirectory=(.+)$", unit, re.MULTILINE)
    assert Path(home).name in folders.split()


def test_the_page_names_only_existing_files_and_options() -> None:
    names = set(re.findall(r"deploy/([\w.-]+)", PAGE))
    assert UNIT.name in names
    assert all((ROOT / "deploy" / name).exists() for name in names)
    (options,) = re.findall(r"`(--transport [^`]+)`", PAGE)
    assert parse(["serve", *options.split()]).command
    assert "latest" not in PAGE
