"""The files that run three replicas: for the balancer, for compose, and the settings. No container is started here."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from server.cli import parse
from server.settings import load_settings
from tests.interaction.replicas.scene import HAPROXY, needs_haproxy
from tests.packaging.building import ROOT

pytestmark = pytest.mark.requirement("project.replicas")

DEPLOY = ROOT / "deploy"
BALANCER = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
SETTINGS = json.loads((DEPLOY / "settings.json").read_text(encoding="utf-8"))
PAGE = (DEPLOY / "README.md").read_text(encoding="utf-8")
REPLICA, SERVICES = COMPOSE.split("\nservices:\n")
(PORT,) = re.findall(r"bind :(\d+)", BALANCER)
NAMES = re.findall(rf"^    server (\w+) \1:{PORT} check$", BALANCER, re.MULTILINE)


@needs_haproxy
def test_haproxy_accepts_its_configuration() -> None:
    result = subprocess.run(
        [str(HAPROXY), "-c", "-f", str(DEPLOY / "haproxy.cfg")], capture_output=True, encoding="utf-8", check=False
    )
    assert result.returncode == 0, result.stderr
    # The names of containers can be resolved only in containers.
    warnings = [line for line in result.stderr.splitlines() if "WARNING" in line and "could not resolve" not in line]
    assert warnings == []


def test_the_balancer_repeats_no_request_after_a_connection() -> None:
    assert re.findall(r"^ +retry-on (.+)$", BALANCER, re.MULTILINE) == ["conn-failure"]
    assert "option http-server-close" in BALANCER


def test_the_replicas_of_both_files_are_the_same() -> None:
    assert len(NAMES) == 3
    assert re.findall(r"^  (\w+): \{ <<: \*replica, hostname: \1 \}$", SERVICES, re.MULTILINE) == NAMES
    assert f"depends_on: [{', '.join(NAMES)}]" in SERVICES
    for name in NAMES:
        assert f"    server {name} {name}:{PORT} track streamable_http/{name}\n" in BALANCER
    assert f":{PORT}/readyz" in REPLICA
    assert f'ports: ["127.0.0.1:{PORT}:{PORT}"]' in SERVICES


def test_no_service_is_privileged_and_each_image_has_a_version() -> None:
    services = [REPLICA, *re.findall(r"^  (?:haproxy|valkey):\n(?:    .+\n)+", SERVICES, re.MULTILINE)]
    assert len(services) == 3
    for service_text in services:
        assert "read_only: true" in service_text
        assert "cap_drop: [ALL]" in service_text
        assert "security_opt: [no-new-privileges:true]" in service_text
        assert re.search(r"image: [\w/-]+:(\d|\$\{VERSION)", service_text)
    # The image of the replicas sets its own user.
    assert [line for service in services[1:] for line in service.splitlines() if "user:" in line] == [
        "    user: haproxy",
        "    user: valkey",
    ]
    assert "store: { internal: true }" in SERVICES
    assert "latest" not in COMPOSE + BALANCER


def test_the_image_has_what_the_store_needs() -> None:
    assert SETTINGS["store"]["url"].startswith("valkey://valkey:")
    assert "[full,valkey]'" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "[full,valkey]'" in PAGE


def test_the_command_and_the_settings_of_the_replicas_are_valid(tmp_path: Path) -> None:
    (words,) = re.findall(r"^  command: \[(.+)\]$", REPLICA, re.MULTILINE)
    assert parse(["serve", *words.split(", ")]).command
    assert "- ./settings.json:/settings.json:ro" in REPLICA
    assert "volumes: [./haproxy.cfg:" in SERVICES
    report = load_settings([str(DEPLOY / "settings.json")], {}, {"XDG_STATE_HOME": str(tmp_path)})
    assert report.settings.http.drain == SETTINGS["http"]["drain"]
    (seconds,) = re.findall(r"stop_grace_period: (\d+)s", REPLICA)
    assert int(seconds) * 1000 > SETTINGS["http"]["drain"] + SETTINGS["http"]["grace"]
    # The balancer notices it after two failed checks; the second follows soon after the first.
    interval, fast_interval = map(int, re.findall(r"inter (\d+)s fastinter (\d+)ms", BALANCER)[0])
    assert SETTINGS["http"]["drain"] > 2 * (interval * 1000 + fast_interval)


def test_each_variable_of_the_settings_is_required_and_documented() -> None:
    variables = set(re.findall(r'"env": "(\w+)"', (DEPLOY / "settings.json").read_text(encoding="utf-8")))
    assert set(re.findall(r"^    (\w+): \$\{\1:\?", REPLICA, re.MULTILINE)) == variables
    assert all(name in PAGE for name in variables)
