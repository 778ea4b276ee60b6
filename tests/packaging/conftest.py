"""The built distribution, and an environment that holds nothing of the checkout."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.building import ROOT, build, run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout by the build backend itself, so without a network."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built likewise."""
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a fresh environment with the wheel in it; the dependencies are the running environment's."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-compile",
        "--no-index",
        "--no-deps",
        wheel,
    )
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A path from a .pth file does not have its own .pth files read, so the editable install stays out.
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return place / "bin"
