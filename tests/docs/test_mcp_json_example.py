"""The example configuration: it loads without changes, shows every key, and has valid entries for clients."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from docs.settings_tables import key_descriptions
from server.settings import SettingsReport, load_settings
from server.settings.section_model import Diagnostics
from server.settings.settings_files import parse
from tests.settings_cases import sources

EXAMPLE = Path(__file__).parents[2] / "mcp.json.example"

NOT_THE_DEFAULT = {
    "everything": {"type", "command", "args", "description"},
    "remote": {"type", "url"},
}
"""Keys without the default value: an entry must set them, or the example says so."""


@pytest.fixture
def report(tmp_path: Path) -> SettingsReport:
    """The example, copied and loaded as its first line says, without other settings."""
    copy = tmp_path / "mcp.json"
    copy.write_bytes(EXAMPLE.read_bytes())
    return load_settings([str(copy)], {}, {"HOME": str(tmp_path)})


def example() -> dict[str, Any]:
    return parse(EXAMPLE.read_bytes(), "mcp.json.example", Diagnostics())


def client_blocks() -> list[dict[str, Any]]:
    """Return the JSON blocks in comments, parsed."""
    lines = [line.removeprefix("//") for line in EXAMPLE.read_text("utf-8").splitlines() if line.startswith("//")]
    blocks = re.findall(r"^ \{\n.*?^ \}$", "\n".join(lines), re.DOTALL | re.MULTILINE)
    return [json.loads(block) for block in blocks]


@pytest.mark.requirement("settings.example")
def test_the_example_loads_without_a_warning_and_uses_both_upstreams(report: SettingsReport) -> None:
    assert report.warnings == ()
    assert {alias: entry.transport for alias, entry in report.upstreams.items()} == {
        "everything": "stdio",
        "remote": "http",
    }
    assert all(entry.enabled for entry in report.settings.mcp_servers.values())


@pytest.mark.requirement("settings.example")
def test_the_example_shows_every_key_with_its_default(report: SettingsReport) -> None:
    content = example()
    for key in key_descriptions():
        if key.path.startswith("mcpServers.NAME."):
            path = key.path.removeprefix("mcpServers.NAME.")
            name = path.partition(".")[0]
            entries = {alias: entry for alias, entry in content["mcpServers"].items() if name in entry}
            assert entries, f"no upstream of the example shows {name}"
            for alias, entry in entries.items():
                if name not in NOT_THE_DEFAULT[alias]:
                    assert value_at(entry, path) == key.default, f"mcpServers.{alias}.{path}"
                else:
                    assert value_at(entry, path) != key.default, f"mcpServers.{alias}.{path} is the default by now"
        elif key.path != "mcpServers" and "NAME" not in key.path:
            assert value_at(content, key.path) == key.default, key.path


def value_at(tree: dict[str, Any], path: str) -> Any:
    node: Any = tree
    for step in path.split("."):
        node = cast("dict[str, Any]", node)[step]
    return node


@pytest.mark.requirement("settings.example")
def test_the_example_sets_only_keys_that_exist(report: SettingsReport) -> None:
    paths = {re.sub(r"^mcpServers\.\w+\.", "mcpServers.NAME.", path) for path in sources(report)}
    assert paths <= {key.path for key in key_descriptions()}


@pytest.mark.requirement("settings.example")
def test_the_client_entries_are_json_without_comments_for_stdio_http_and_sse(tmp_path: Path) -> None:
    endpoints: list[tuple[str | None, str | None]] = []
    for number, block in enumerate(client_blocks()):
        assert list(block) == ["mcpServers"]
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(block))
        report = load_settings([str(file)], {}, {"HOME": str(tmp_path)})
        assert report.warnings == ()
        entry = report.upstreams["coretools"]
        endpoints.append((entry.transport, entry.endpoint))
    assert endpoints == [
        ("stdio", None),
        ("http", "http://127.0.0.1:8808/mcp"),
        ("sse", "http://127.0.0.1:8808/sse"),
    ]


@pytest.mark.requirement("settings.example")
def test_the_client_entries_reach_the_address_that_the_example_listens_on(report: SettingsReport) -> None:
    listening = f"http://{report.settings.http.host}:{report.settings.http.port}/"
    urls = [block["mcpServers"]["coretools"].get("url") for block in client_blocks()]
    assert [url.startswith(listening) for url in urls if url is not None] == [True, True]


@pytest.mark.requirement("settings.example")
def test_the_stdio_client_entry_starts_the_installed_command() -> None:
    entry = client_blocks()[0]["mcpServers"]["coretools"]
    assert entry["command"] == "coretools-mcp"
    assert entry["args"][::2] == ["--workspace", "--config"]
