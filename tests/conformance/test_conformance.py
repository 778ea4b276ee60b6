"""The official conformance suite, run against its own fixture behind our endpoint."""

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
    failures,
    failures_of_extensions,
    reasons_of_logins,
    scored_scenarios,
)
from tests.fork_server import forked
from tests.harness import PEERS, server_arguments, write_config
from tests.interaction.relay.skills import skill_server

pytestmark = [
    pytest.mark.skipif(
        not is_fetched(),
        reason="not run: the conformance suite is not here; `python -P tests/conformance/fetch.py` brings it",
    ),
    pytest.mark.timeout(300),
]

EXPECTED = Path(__file__).with_name("expected_failures.txt")

SCORED = {"2025-11-25": 30, "2026-07-28": 37}


def _fixture(transport: str) -> list[str]:
    return forked([str(PEERS / "everything_server.py"), str(SERVER_FOLDER), transport])


@contextmanager
def _fixture_over_http() -> Generator[str]:
    with background_server([sys.executable, *_fixture("http")], r"Uvicorn running on (http://\S+)") as url:
        yield f"{url}/mcp"


@contextmanager
def _proxy(root: Path, folder: Path, upstream: dict[str, Any], *, is_forked: bool = True) -> Generator[str]:
    """Our endpoint with nothing behind it but this upstream, whose names stay as they are.

    Two that are forked from one process would take each other for themselves.
    """
    config = write_config(folder, {"mcpServers": {"fixture": {**upstream, "trust": True}}})
    options = ("--transport", "http", "--port", "0", "--no-builtin-tools", "--no-prefix")
    arguments = server_arguments(root, config, *options)
    command = [sys.executable, *(forked(arguments) if is_forked else arguments)]
    with background_server(command, r"serving MCP at (http://\S+?),") as url:
        yield f"{url}/mcp"


def _expected(upstream: str, revision: str) -> set[str]:
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines if line and not line.startswith("#")]
    return {scenario for over, at, scenario in entries if (over, at) == (upstream, revision)}


def _told(found: dict[str, list[str]]) -> str:
    return "\n".join(f"{scenario}: {reason}" for scenario, reasons in found.items() for reason in reasons)


@pytest.mark.long  # what it passes behind the proxy, it passes alone
@pytest.mark.requirement("proxy.conformance")
@pytest.mark.parametrize("revision", SCORED)
def test_the_fixture_alone_passes_every_scored_scenario(revision: str, tmp_path: Path) -> None:
    with _fixture_over_http() as url:
        found = failures(url, revision, tmp_path / "results")
    assert set(found) == set(), _told(found)
    assert len(scored_scenarios(revision)) == SCORED[revision]


@pytest.mark.requirement("proxy.conformance")
@pytest.mark.parametrize("revision", SCORED)
def test_an_upstream_over_http_passes_behind_the_proxy_what_it_passes_alone(
    revision: str, root: Path, tmp_path: Path
) -> None:
    with _fixture_over_http() as behind, _proxy(root, tmp_path, {"httpUrl": behind}) as url:
        found = failures(url, revision, tmp_path / "results")
    assert set(found) == _expected("http", revision), _told(found)


@pytest.mark.requirement("proxy.conformance")
@pytest.mark.parametrize("revision", SCORED)
def test_an_upstream_over_stdio_passes_behind_the_proxy_what_it_passes_alone(
    revision: str, root: Path, tmp_path: Path
) -> None:
    upstream = {"command": sys.executable, "args": _fixture("stdio")}
    with _proxy(root, tmp_path, upstream) as url:
        found = failures(url, revision, tmp_path / "results")
    assert set(found) == _expected("stdio", revision), _told(found)


SKILLS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")

NOT_PASSED = {"sep-2640-meta-prefix"}
"""The suite warns that the key by which `_meta` of every listed item names its server has no dot."""


@pytest.mark.requirement("skills.conformance")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_server_of_skills_passes_its_scenarios_behind_the_proxy(era: str, root: Path, tmp_path: Path) -> None:
    with _proxy(root, tmp_path, skill_server("fixture", era, "sew", "knit")) as url:
        found = failures_of_extensions(url, SKILLS, tmp_path / "results")
    reasons = {reason.partition(":")[0] for told in found.values() for reason in told}
    assert reasons <= NOT_PASSED, _told(found)


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
        found = failures_of_extensions(url, TASKS, tmp_path / "results")
    # The suite has this one as a place for later, and skips all that is in it.
    skipped = found.pop("tasks-status-notifications")
    assert [why.split(": ")[1] for why in skipped] == ["SKIPPED"]
    assert not found, _told(found)
    assert len(TASKS) == 10


LOGIN_CLIENT = Path(__file__).with_name("login_client.py")


@pytest.mark.requirement("login.conformance")
@pytest.mark.parametrize(
    ("revision", "count"),
    [
        ("2025-03-26", 2),
        pytest.param("2025-11-25", 14, marks=pytest.mark.long),  # those of 2026-07-28 once more, in the era before
        pytest.param("2026-07-28", 25, marks=pytest.mark.long),
        ("extension", 2),
    ],
)
def test_a_login_passes_every_scenario_of_logins(revision: str, count: int, root: Path, tmp_path: Path) -> None:
    server = [sys.executable, *forked(server_arguments(root, None, "--no-builtin-tools"))]
    client = [sys.executable, *forked([str(LOGIN_CLIENT), *server])]
    found = reasons_of_logins(client, revision, tmp_path / "results")
    assert not any(found.values()), _told(found)
    assert len(found) == count
