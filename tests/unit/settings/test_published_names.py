"""Settings about the names of tools, and the options on the command line that become settings about tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.administration.settings_reload import waiting_for_restart
from server.cli import overrides_of, parse
from server.settings import SettingsError, load_settings
from server.settings.workspace_trust import digest, trust_file, trust_folder
from tests.settings_cases import load, refusal, write


def entry(**options: Any) -> dict[str, Any]:
    return {"mcpServers": {"hub": {"command": "run", **options}}}


@pytest.mark.requirement("proxy.names.stable")
@pytest.mark.parametrize(
    ("rename", "options", "message"),
    [
        ({"a": ""}, {}, 'mcpServers.hub.rename: the new name of "a" must consist of letters, digits, _ and - only'),
        ({"a": "b.c"}, {}, "must consist of letters, digits, _ and - only"),
        ({"a": "größe"}, {}, "must consist of letters, digits, _ and - only"),
        ({"a": "x" * 44}, {}, "has 44 characters, but proxy.nameBudget leaves only 43"),
        ({"a": "x" * 49}, {"prefix": "none"}, "has 49 characters, but proxy.nameBudget leaves only 48"),
        ({"a": "c", "b": "c"}, {}, 'the new name of "b" is already used for "a"'),
    ],
)
def test_a_new_name_that_cannot_work_is_refused(
    environ: dict[str, str], file: Path, rename: dict[str, str], options: dict[str, str], message: str
) -> None:
    assert message in refusal(file, entry(rename=rename, **options), environ)


@pytest.mark.requirement("proxy.names.stable")
@pytest.mark.parametrize(
    ("rename", "options"),
    [({"a": "x" * 43}, {}), ({"a": "x" * 48}, {"prefix": "none"}), ({"a": "b", "b": "a"}, {}), ({"": "Z9_-"}, {})],
)
def test_a_new_name_that_can_work_is_accepted(
    environ: dict[str, str], file: Path, rename: dict[str, str], options: dict[str, str]
) -> None:
    report = load(file, entry(rename=rename, **options), environ)
    assert (dict(report.upstreams["hub"].rename), report.warnings) == (rename, ())


@pytest.mark.requirement("proxy.names.stable")
def test_new_names_of_an_unused_server_are_not_checked(environ: dict[str, str], file: Path) -> None:
    assert load(file, entry(rename={"a": "b c"}, enabled=False), environ).upstreams == {}


@pytest.mark.requirement("proxy.names.unprefixed")
def test_the_setting_for_all_servers_removes_every_prefix(environ: dict[str, str], file: Path) -> None:
    servers = {"a": {"command": "run", "prefix": "alias"}, "b": {"command": "run"}}
    report = load(file, {"mcpServers": servers, "proxy": {"prefix": "none"}}, environ)
    assert [upstream.prefix for upstream in report.upstreams.values()] == ["none", "none"]
    report_with_prefixes = load(file, {"mcpServers": servers}, environ)
    assert [upstream.prefix for upstream in report_with_prefixes.upstreams.values()] == ["alias", "alias"]
    # The entries differ. A change of an entry changes the names at once, without a restart.
    assert waiting_for_restart(report_with_prefixes.settings, report.settings) == []


def overrides(*options: str) -> Any:
    return overrides_of(parse(["tools", *options]))


@pytest.mark.requirement("cli.usage")
def test_a_workspace_in_the_home_folder_may_be_written_with_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "proj").mkdir()
    for text, folder in (("~/proj", tmp_path / "proj"), ("~", tmp_path)):
        assert overrides("--workspace", text) == {"workspace": {"roots": [str(folder)]}}
    assert parse(["tools", "--config=~/a.json"]).config == [f"{tmp_path}/a.json"]


@pytest.mark.requirement("policy.include")
def test_the_options_about_tools_are_settings() -> None:
    options = [
        "--no-builtin-tools",
        "--no-prefix",
        "--include-tools",
        "a, b",
        "--include-tools=c",
        "--exclude-tools",
        "d",
        "--profile",
        "core",
    ]
    assert overrides(*options) == {
        "tools": {"builtIn": False, "profile": "core", "include": ["a", "b", "c"], "exclude": ["d"]},
        "proxy": {"prefix": "none"},
    }
    assert overrides() == {}


@pytest.mark.requirement("policy.include")
@pytest.mark.parametrize("option", ["--include-tools", "--exclude-tools"])
def test_a_list_of_no_tools_is_refused(option: str) -> None:
    with pytest.raises(SettingsError, match=f"{option} names no tool"):
        overrides(option, " ,")


@pytest.mark.requirement("policy.include")
def test_tools_excluded_on_the_command_line_are_added_to_those_of_the_files(
    environ: dict[str, str], file: Path
) -> None:
    report = load(file, {"tools": {"exclude": ["edit"]}}, environ, tools={"exclude": ["glob"]})
    assert report.settings.tools.exclude == ("edit", "glob")


@pytest.mark.requirement("settings.workspace.operators")
def test_a_workspace_neither_switches_built_in_tools_off_nor_chooses_among_tools(
    environ: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path.resolve() / "project"
    settings_file = Path(
        write(
            folder / ".coretools" / "settings.json",
            {"tools": {"builtIn": False, "profile": "core", "include": ["glob"]}},
        )
    )
    store = trust_file(environ)
    assert store is not None
    trust_folder(store, str(folder), {".coretools/settings.json": digest(settings_file.read_bytes())})
    report = load_settings([], {}, environ, folder=str(folder))
    tools = report.settings.tools
    assert (tools.built_in, tools.profile, tools.include) == (True, "full", ())
    assert len(report.warnings) == 3


@pytest.mark.requirement("settings.live.rules")
def test_switching_built_in_tools_waits_for_the_next_start(environ: dict[str, str], file: Path) -> None:
    before, after = load(file, {}, environ).settings, load(file, {"tools": {"builtIn": False}}, environ).settings
    assert waiting_for_restart(before, after) == ["tools.builtIn"]
