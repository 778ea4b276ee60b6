"""Runs the official conformance suite against its own example server behind the product."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.background_servers import background_server
from tests.conformance.fetch import SERVER_FOLDER, is_fetched
from tests.conformance.suite import (
    TASKS,
    extension_failures,
    failures,
    login_failures,
    scored_scenarios,
)
from tests.fork_server import forked
from tests.harness import PEERS, server_arguments, write_config
from tests.interaction.relay.skills import skill_server

pytestmark = [
    pytest.mark.skipif(
        not is_fetched(),
        reason="not run: the conformance suite is missing; run `python -P tests/conformance/fetch.py` to download it",
    ),
    pytest.mark.timeout(300),
]

EXPECTED_FAILURES_FILE = Path(__file__).with_name("expected_failures.txt")

SCORED_COUNTS = {"2025-11-25": 30, "2026-07-28": 37}


def _fixture(transport: str) -> list[str]:
    return forked([str(PEERS / "everything_server.py"), str(SERVER_FOLDER), transport])


@contextmanager
def _fixture_over_http() -> Generator[str]:
    with background_server([sys.executable, *_fixture("http")], r"Uvicorn running on (http://\S+)") as url:
        yield f"{url}/mcp"


@contextmanager
def _proxy(root: Path, folder: Path, upstream: dict[str, Any], *, is_forked: bool = True) -> Generator[str]:
    """Run the product with only this upstream, whose names stay unchanged, and yield its URL.

    Two servers that are forked from the same process have the same id, so one behind the other would look like a loop.
    """
    config = write_config(folder, {"mcpServers": {"fixture": {**upstream, "trust": True}}})
    options = ("--transport", "http", "--port", "0", "--no-builtin-tools", "--no-prefix")
    arguments = server_arguments(root, config, *options)
    command = [sys.executable, *(forked(arguments) if is_forked else arguments)]
    with background_server(command, r"serving MCP at (http://\S+?),") as url:
        yield f"{url}/mcp"


def _expected_failures(upstream: str, revision: str) -> set[str]:
    lines = EXPECTED_FAILURES_FILE.read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines if line and not line.startswith("#")]
    return {
        scenario
        for transport, scenario_revision, scenario in entries
        if (transport, scenario_revision) == (upstream, revision)
    }


def _report(failures_by_scenario: dict[str, list[str]]) -> str:
    return "\n".join(
        f"{scenario}: {reason}" for scenario, reasons in failures_by_scenario.items() for reason in reasons
    )


@pytest.mark.long  # scenarios that it passes behind the proxy, it also passes alone
@pytest.mark.requirement("proxy.conformance")
@pytest.mark.parametrize("revision", SCORED_COUNTS)
def test_the_fixture_alone_passes_every_scored_scenario(revision: str, tmp_path: Path) -> None:
    with _fixture_over_http() as url:
        failures_by_scenario = failures(url, revision, tmp_path / "results")
    assert set(failures_by_scenario) == set(), _report(failures_by_scenario)
    assert len(scored_scenarios(revision)) == SCORED_COUNTS[revision]


@pytest.mark.requirement("proxy.conformance")
@pytest.mark.parametrize("revision", SCORED_COUNTS)
def test_an_upstream_over_http_passes_behind_the_proxy_what_it_passes_alone(
    revision: str, root: Path, tmp_path: Path
) -> None:
    with _fixture_over_http() as fixture_url, _proxy(root, tmp_path, {"httpUrl": fixture_url}) as url:
        failures_by_scenario = failures(url, revision, tmp_path / "results")
    assert set(failures_by_scenario) == _expected_failures("http", revision), _report(failures_by_scenario)


@pytest.mark.requirement("proxy.conformance")
@pytest.mark.parametrize("revision", SCORED_COUNTS)
def test_an_upstream_over_stdio_passes_behind_the_proxy_what_it_passes_alone(
    revision: str, root: Path, tmp_path: Path
) -> None:
    upstream = {"command": sys.executable, "args": _fixture("stdio")}
    with _proxy(root, tmp_path, upstream) as url:
        failures_by_scenario = failures(url, revision, tmp_path / "results")
    assert set(failures_by_scenario) == _expected_failures("stdio", revision), _report(failures_by_scenario)


SKILLS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")

KNOWN_WARNINGS = {"sep-2640-meta-prefix"}
"""The suite warns that the prefix of the key in `_meta` that names an item's server has no dot."""


@pytest.mark.requirement("skills.conformance")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_server_with_skills_passes_the_scenarios_of_skills_behind_the_proxy(
    era: str, root: Path, tmp_path: Path
) -> None:
    with _proxy(root, tmp_path, skill_server("fixture", era, "sew", "knit")) as url:
        failures_by_scenario = extension_failures(url, SKILLS, tmp_path / "results")
    reasons = {
        reason.partition(":")[0] for scenario_reasons in failures_by_scenario.values() for reason in scenario_reasons
    }
    assert reasons <= KNOWN_WARNINGS, _report(failures_by_scenario)


TASK_UPSTREAM = str(PEERS / "task_upstream.py")


@pytest.mark.requirement("tasks.conformance")
@pytest.mark.parametrize("transport", ["stdio", "http", pytest.param("another proxy", marks=pytest.mark.long)])
def test_an_upstream_with_tasks_passes_every_scenario_of_tasks_behind_the_proxy(
    transport: str, root: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        upstream: dict[str, Any] = {"command": sys.executable, "args": forked([TASK_UPSTREAM, "stdio"])}
        if transport == "another proxy":
            inner = tmp_path / "inner"
            inner.mkdir()
            upstream = {"httpUrl": stack.enter_context(_proxy(root, inner, upstream, is_forked=False))}
        if transport == "http":
            port = stack.enter_context(background_server([sys.executable, TASK_UPSTREAM, "http"], r"port (\d+)"))
            upstream = {"httpUrl": f"http://127.0.0.1:{port}/mcp"}
        url = stack.enter_context(_proxy(root, tmp_path, upstream))
        failures_by_scenario = extension_failures(url, TASKS, tmp_path / "results")
    # This scenario is a placeholder: the suite skips all its checks.
    skipped_checks = failures_by_scenario.pop("tasks-status-notifications")
    assert [reason.split(": ")[1] for reason in skipped_checks] == ["SKIPPED"]
    assert not failures_by_scenario, _report(failures_by_scenario)
    assert len(TASKS) == 10


LOGIN_CLIENT = Path(__file__).with_name("login_client.py")


@pytest.mark.requirement("login.conformance")
@pytest.mark.parametrize(
    ("revision", "count"),
    [
        ("2025-03-26", 2),
        pytest.param(
            "2025-11-25", 14, marks=pytest.mark.long
        ),  # the scenarios of 2026-07-28 again, in the previous era
        pytest.param("2026-07-28", 25, marks=pytest.mark.long),
        ("extension", 2),
    ],
)
def test_the_product_passes_every_login_scenario(revision: str, count: int, root: Path, tmp_path: Path) -> None:
    server = [sys.executable, *forked(server_arguments(root, None, "--no-builtin-tools"))]
    client = [sys.executable, *forked([str(LOGIN_CLIENT), *server])]
    failures_by_scenario = login_failures(client, revision, tmp_path / "results")
    assert not any(failures_by_scenario.values()), _report(failures_by_scenario)
    assert len(failures_by_scenario) == count
