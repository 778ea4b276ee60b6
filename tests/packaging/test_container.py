"""The Dockerfile: its steps are safe and pinned, and its commands work. No image is built here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.harness import listening
from tests.packaging.building import ROOT

LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()
STEPS = [(line.split()[0], line.partition(" ")[2]) for line in LINES if line and not line.startswith("#")]
TOKEN = "a-token-of-a-test-that-is-long-enough"


def arguments(instruction: str) -> list[str]:
    """Return the arguments of the only instruction of this kind."""
    (value,) = [text for name, text in STEPS if name == instruction]
    return json.loads(value.removeprefix("CMD "))


@pytest.mark.requirement("project.container")
def test_base_images_are_pinned_and_use_a_supported_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stages = [text.split() for name, text in STEPS if name == "FROM"]
    assert [stage[2] for stage in stages][-2:] == ["upstreams", "server"]  # the last stage is the default target
    names = {stage[2] for stage in stages}
    images = {stage[0] for stage in stages} - names
    assert {bool(re.fullmatch(r"(python:3\.\d+|node:\d+)-slim", stage)) for stage in images} == {True}
    (python,) = [stage for stage in images if stage.startswith("python")]
    version = python.removeprefix("python:").removesuffix("-slim")
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert {text.split("=")[1].split()[0] for _, text in STEPS if text.startswith("--from=")} <= names
    assert "latest" not in (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.requirement("project.container")
def test_both_images_run_as_an_unprivileged_user_that_they_create() -> None:
    user = "coretools"
    assert any(name == "RUN" and f" {user} " in text and "useradd" in text for name, text in STEPS)
    stages = "\n".join(name if name != "FROM" else text for name, text in STEPS).split(" AS ")[-2:]
    assert [stage.splitlines()[0] for stage in stages] == ["upstreams", "server"]
    assert [stage.splitlines()[-1] for stage in (stages[0].rpartition("\n")[0], stages[1])] == ["USER", "USER"]
    assert {text for name, text in STEPS if name == "USER"} == {user}


@pytest.mark.requirement("project.container")
def test_no_secret_goes_into_the_image() -> None:
    assert [text for name, text in STEPS if name == "ARG"] == []
    assert not re.search(r"(?i)(token|key|secret|password)\w*[ =]", "\n".join(text for _, text in STEPS))


@pytest.mark.requirement("project.container")
def test_only_what_is_shipped_is_copied() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = set(config["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    copies = [text for name, text in STEPS if name == "COPY" and not text.startswith("--from=")]
    sources = {source for text in copies for source in text.split()[:-1]}
    assert sources == packages | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / source).exists() for source in sources)
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert patterns[1] == "*"
    assert {line[1:] for line in patterns if line.startswith("!")} == sources
    assert "ADD" not in {name for name, _ in STEPS}


@pytest.mark.anyio
@pytest.mark.requirement("project.container")
async def test_with_a_token_the_container_command_serves_and_the_health_check_follows(tmp_path: Path) -> None:
    (command,) = arguments("ENTRYPOINT")
    options = [str(tmp_path) if word == "/workspace" else word for word in arguments("CMD")]
    start = [
        "env",
        f"CORETOOLS_MCP_TOKEN={TOKEN}",
        str(Path(sys.executable).with_name(command)),
        *options,
        "--port",
        "0",
    ]
    python, *health_check = arguments("HEALTHCHECK")
    assert python == "python"
    assert health_check[0] == "-I"  # nothing is imported from the workspace
    (tmp_path / "urllib.py").write_text("raise SystemExit(3)\n")

    def health(port: str) -> int:
        words = [word.replace("8808", port) for word in health_check]
        return subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, check=False).returncode

    async with listening(start, r"serving MCP at http://0\.0\.0\.0:(\d+),") as port:
        assert health(port) == 0
    assert health(port) == 1


@pytest.mark.long
@pytest.mark.requirement("project.container")
def test_without_a_token_the_container_command_does_not_start(tmp_path: Path) -> None:
    options = [str(tmp_path) if word == "/workspace" else word for word in arguments("CMD")]
    start = ["env", "-u", "CORETOOLS_MCP_TOKEN", sys.executable, "-P", str(ROOT / "coretools_mcp.py"), *options]
    result = subprocess.run(start, capture_output=True, encoding="utf-8", check=False)
    assert result.returncode == 3
    assert "CORETOOLS_MCP_TOKEN" in result.stderr
