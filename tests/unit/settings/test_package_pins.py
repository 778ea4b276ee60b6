"""Packages that a command downloads at its start: which commands pin a version, and what happens to the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.administration.settings_reload import waiting_for_restart
from server.settings.upstream_entries import unpinned_package
from tests.tables import each_of
from tests.unit.settings.test_settings_upstreams import load, reasons_left_out

COMMIT = "a" * 40
UNPINNED = {
    "npx -y mcp-thing": "mcp-thing",
    "npx @scope/thing": "@scope/thing",
    "npx -y @scope/thing@latest": "@scope/thing@latest",
    "npx thing@^1.2.3": "thing@^1.2.3",
    "npx thing@1": "thing@1",
    "npx --registry x -p one@1.0.0 -p two one": "two",
    "npx --package=two one": "two",
    "npx user/repository": "user/repository",
    "/usr/bin/npx thing": "thing",
    "NPX.CMD thing": "thing",
    "cmd /c npx -y thing": "thing",
    "env A=b npx thing": "thing",
    "npm exec -- thing": "thing",
    "pnpm dlx thing": "thing",
    "bunx thing": "thing",
    "uvx thing": "thing",
    "uvx thing>=1.0": "thing>=1.0",
    "uvx --python 3.12 thing[extra]": "thing[extra]",
    "uvx --from git+https://host/x/y thing": "git+https://host/x/y",
    "uv tool run thing": "thing",
    "pipx run --spec thing other": "thing",
}
PINNED = (
    "npx -y thing@1.2.3",
    "npx @scope/thing@1.0.0-rc.1",
    "npx -p one@1.0.0 -p two@2.0.0 one",
    "npx ./thing",
    f"npx github:user/repository#{COMMIT}",
    "uvx thing==1.2",
    "uvx thing@1.2.0",
    "uvx --from thing[extra]==2026.1.0 other",
    f"uvx --from git+https://host/x/y@{COMMIT} thing",
    "pipx run --spec thing==1.0 other",
    "node server.js",
    "uv run server.py",
    "npx",
    "cmd",
    "npx -y",
)


@pytest.mark.requirement("settings.pins")
@each_of("line", [*UNPINNED, *PINNED])
def test_a_package_without_a_pinned_version_is_found_in_every_form_of_command(line: str) -> None:
    command, *args = line.split()
    assert unpinned_package(command, args) == UNPINNED.get(line)


@pytest.mark.requirement("settings.pins")
def test_a_server_without_a_pinned_version_is_left_out_where_pins_are_required(tmp_path: Path) -> None:
    servers = {
        "loose": {"command": "npx", "args": ["-y", "thing"]},
        "pinned": {"command": "npx", "args": ["-y", "thing@${VERSION}"]},
        "remote": {"url": "https://host.example/npx"},
    }
    report = load(tmp_path / "a.json", {"mcpServers": servers}, VERSION="1.2.3")
    assert set(reasons_left_out(report).values()) == {None}
    strict_report = load(tmp_path / "b.json", {"mcpServers": servers, "proxy": {"requirePins": True}}, VERSION="1.2.3")
    assert reasons_left_out(strict_report) == {
        "loose": "Its package thing has no version, but proxy.requirePins requires one.",
        "pinned": None,
        "remote": None,
    }
    assert any("has no version for its package" in warning for warning in strict_report.warnings)
    # The entries differ, and a change of an entry takes effect at once.
    assert waiting_for_restart(report.settings, strict_report.settings) == []
