"""The contents and the metadata of the distributions."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.packaging.building import ROOT, build

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION: str = PYPROJECT["project"]["version"]


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.requirement("project.wheel")
def test_the_wheel_contains_only_the_two_packages_and_the_launcher(wheel: Path) -> None:
    top_level = {name.partition("/")[0] for name in _names(wheel)}
    assert top_level == {"server", "tools", "coretools_mcp.py", f"coretools_mcp-{VERSION}.dist-info"}


@pytest.mark.requirement("project.wheel")
def test_the_wheel_contains_every_file_of_the_packages(wheel: Path) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for package in ("server", "tools")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= _names(wheel)
    assert {"server/py.typed", "tools/py.typed", "server/__init__.py", "tools/__init__.py"} <= files


@pytest.mark.long
@pytest.mark.requirement("project.wheel")
def test_the_source_distribution_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        # The argument `filter` needs Python 3.11.4. Older versions ignore the attribute; 3.12 and 3.13 warn without it.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path / "source")  # noqa: S202 - our own archive
    (source,) = (tmp_path / "source").iterdir()
    assert _names(build(source, "wheel", tmp_path / "rebuilt")) == _names(wheel)


@pytest.mark.requirement("project.wheel")
def test_the_metadata_names_the_command_the_licence_and_the_python_versions(wheel: Path) -> None:
    info = f"coretools_mcp-{VERSION}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = HeaderParser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert (metadata["Name"], metadata["Version"]) == ("coretools-mcp", VERSION)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert "coretools-mcp = coretools_mcp:main" in scripts
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


@pytest.mark.requirement("project.releases")
def test_the_newest_version_of_the_changelog_is_the_one_that_is_built() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", changelog, flags=re.MULTILINE)
    assert versions[:2] == ["Unreleased", VERSION]


@pytest.mark.requirement("project.wheels")
@pytest.mark.parametrize(("system", "without_re2"), [("linux", True), ("darwin", True), ("win32", False)])
def test_packages_without_a_wheel_for_a_system_are_not_required_there(system: str, *, without_re2: bool) -> None:
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in PYPROJECT["project"]["dependencies"]]
    core_requirements = [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"sys_platform": system})
    ]
    assert ("google-re2" not in {requirement.name for requirement in core_requirements}) is without_re2
    (html,) = [requirement.specifier for requirement in core_requirements if requirement.name == "html-to-markdown"]
    assert ("3.21.2" not in html) is (system == "darwin")


@pytest.mark.requirement("project.releases")
def test_every_requirement_is_pinned_by_the_constraints_within_its_range() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins: dict[str, str] = {}
    for line in lines:
        if not line.startswith("#"):
            name, equals, version = line.partition("==")
            assert equals
            assert re.fullmatch(r"[\w.]+", version), line
            pins[canonicalize_name(name)] = version
    project = PYPROJECT["project"]
    requirement_lines: list[str] = [
        *PYPROJECT["build-system"]["requires"],
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
        *PYPROJECT["dependency-groups"]["dev"],
    ]
    for requirement in (Requirement(line) for line in requirement_lines):
        name = canonicalize_name(requirement.name)
        if name != "coretools-mcp":
            assert pins[name] in requirement.specifier, name
