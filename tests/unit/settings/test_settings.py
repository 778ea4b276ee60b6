"""The settings as a whole: defaults, merging, keys and values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from docs.settings_tables import KeyDescription
from server.settings import Settings, SettingsError, load_settings
from server.settings.load import UnusableSettingsError
from server.settings.server_models import HttpSettings
from tests.settings_cases import every_key, load, refusal, settings_with, sources, write
from tools.contract.call_options import ApprovalMode, Limits, MediaHandling

SEARCH: Mapping[str, Any] = {
    "default": None,
    "tavily": {"apiKey": None, "url": None},
    "brave": {"apiKey": None, "url": None},
    "google": {"apiKey": None, "searchEngineId": None, "url": None},
    "searxng": {"url": None},
}

DEFAULTS: Mapping[str, Any] = {
    "mcp": {"serverCommand": None, "allowed": None, "excluded": []},
    "approvalMode": "default",
    "permissions": {"allow": [], "ask": [], "deny": [], "sandboxedCommands": "ask"},
    "confirmation": {"whenUnavailable": None, "timeout": 300000, "style": "form"},
    "results": {"display": "block"},
    "media": "inline",
    "tools": {
        "discoveryCommand": None,
        "callCommand": None,
        "discoveryTimeout": 60000,
        "callTimeout": 600000,
        "strict": False,
        "builtIn": True,
        "profile": "full",
        "include": [],
        "core": [],
        "allowed": [],
        "exclude": [],
        "confirmationRequired": [],
    },
    "workspace": {"roots": [], "clientRoots": "fallback", "respectGitIgnore": True, "respectAgentIgnore": True},
    "limits": {
        "readLines": 2000,
        "readChars": 25000,
        "listEntries": 100,
        "grepMatches": 100,
        "readManyFiles": 100,
        "readManyChars": 100000,
        "resultChars": 100000,
        "requestBytes": 16 * 1024 * 1024,
        "callsPerMinute": None,
        "callsAtOnce": None,
    },
    "shell": {
        "sandbox": "auto",
        "network": "host",
        "timeout": 120000,
        "silenceTimeout": 0,
        "env": {},
        "readable": [],
        "writable": [],
        "maxConcurrent": 8,
    },
    "web": {"allowPrivateHosts": [], "allowedPorts": [80, 443], "search": SEARCH},
    "memory": {
        "fileName": ["AGENTS.md"],
        "projectFileName": None,
        "globalFolder": None,
        "section": "Added Memories",
    },
    "undo": {"enabled": True, "maxBytes": 256_000_000, "maxDays": 30, "maxFileBytes": 10_000_000},
    "lsp": {"servers": {}, "afterEdit": True},
    "agents": {},
    "http": {
        "host": "127.0.0.1",
        "port": 8808,
        "tokens": {},
        "oauth": {
            "issuer": "",
            "resource": "",
            "audience": [],
            "jwksUri": None,
            "algorithms": ["RS256", "PS256", "ES256", "EdDSA"],
            "scopes": [],
            "requiredScopes": [],
            "defaultScopes": [],
            "scopePrefix": "",
            "scopeClaims": ["scope", "scp"],
            "introspection": {"url": "", "clientId": "", "file": None, "env": None},
            "principals": {},
        },
        "tlsCert": None,
        "tlsKey": None,
        "allowedHosts": [],
        "allowedOrigins": [],
        "rootPath": "",
        "trustedProxies": [],
        "publicUrl": None,
        "stateKeys": [],
        "sessionIdle": 1800000,
        "drain": 0,
        "grace": 3000,
        "metrics": False,
    },
    "store": {"url": "memory:", "password": {"file": None, "env": None}, "replica": ""},
    "proxy": {
        "firstListWait": 3000,
        "nameBudget": 48,
        "catalogue": True,
        "requirePins": False,
        "search": "auto",
        "prefix": "alias",
        "environmentProxies": True,
        "loginPort": 18809,
        "tokenStorage": "file",
    },
    "log": {"level": "warning", "audit": None},
}

ENTRY_DEFAULTS: Mapping[str, Any] = {
    "args": [],
    "env": {},
    "cwd": None,
    "inheritEnv": [],
    "url": None,
    "httpUrl": None,
    "type": None,
    "headers": {},
    "oauth": None,
    "enabled": True,
    "description": "",
    "trust": False,
    "includeTools": None,
    "excludeTools": [],
    "protocol": "auto",
    "timeout": 600000,
    "connectTimeout": 30000,
    "listTimeout": 10000,
    "isolation": "per-client",
    "maxSessions": 16,
    "maxConcurrent": None,
    "callsPerMinute": None,
    "prefix": "alias",
    "rename": {},
    "alwaysLoad": [],
}


@pytest.mark.requirement("settings.defaults")
def test_without_any_settings_every_default_is_the_documented_one(environ: dict[str, str]) -> None:
    report = load_settings([], {}, environ)
    assert report.settings.model_dump(mode="json", by_alias=True) == {"mcpServers": {}, **DEFAULTS}
    assert (sources(report), report.warnings, report.entries, report.files) == ({}, (), (), ())


@pytest.mark.requirement("settings.defaults")
def test_an_entry_with_only_a_command_has_the_documented_defaults(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"mcpServers": {"a": {"command": "run"}}}, environ)
    entry = report.settings.mcp_servers["a"].model_dump(mode="json", by_alias=True)
    assert entry == {"command": "run", **ENTRY_DEFAULTS}


@pytest.mark.requirement("settings.defaults")
def test_validated_and_constructed_defaults_are_equal() -> None:
    assert Settings() == Settings.model_construct()


@pytest.mark.requirement("settings.defaults")
def test_settings_cannot_be_changed(environ: dict[str, str]) -> None:
    settings = load_settings([], {}, environ).settings
    with pytest.raises(ValidationError):
        settings.media = MediaHandling.NOTICE
    with pytest.raises(ValidationError):
        settings.http.port = 1


@pytest.mark.requirement("settings.defaults")
def test_a_file_can_give_every_default_without_a_warning(environ: dict[str, str], file: Path) -> None:
    entry = {"command": "run", **ENTRY_DEFAULTS}
    report = load(file, {**DEFAULTS, "mcpServers": {"a": entry}}, environ)
    assert report.warnings == ()


# --- Merging -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.merge")
def test_a_later_layer_wins_and_every_value_names_its_source(environ: dict[str, str], tmp_path: Path) -> None:
    user = write(
        tmp_path / "home/.config/coretools-mcp/settings.json",
        {"http": {"host": "user", "port": 1, "sessionIdle": 1, "allowedHosts": ["a"]}, "log": {"level": "debug"}},
    )
    first = write(tmp_path / "first.json", {"http": {"port": 2, "sessionIdle": 2, "allowedHosts": ["b"]}})
    second = write(tmp_path / "second.json", {"http": {"sessionIdle": 3, "allowedHosts": []}, "media": "notice"})
    report = load_settings([first, second], {"http": {"sessionIdle": 4}, "approvalMode": "plan"}, environ)
    http = report.settings.http
    assert (http.host, http.port, http.session_idle, http.allowed_hosts) == ("user", 2, 4, ())
    assert report.files == (user, first, second)
    assert sources(report) == {
        "http.host": user,
        "http.port": first,
        "http.sessionIdle": "command line",
        "http.allowedHosts": second,
        "log.level": user,
        "media": second,
        "approvalMode": "command line",
    }


@pytest.mark.requirement("settings.merge")
def test_the_order_of_the_command_line_decides_between_files(environ: dict[str, str], tmp_path: Path) -> None:
    first_file = write(tmp_path / "1.json", {"http": {"port": 1}})
    second_file = write(tmp_path / "2.json", {"http": {"port": 2}})
    assert load_settings([first_file, second_file], {}, environ).settings.http.port == 2
    assert load_settings([second_file, first_file], {}, environ).settings.http.port == 1


@pytest.mark.requirement("settings.merge")
def test_a_later_entry_replaces_an_earlier_one_with_the_same_alias_as_a_whole(
    environ: dict[str, str], tmp_path: Path
) -> None:
    first_file = write(
        tmp_path / "1.json",
        {"mcpServers": {"a b": {"command": "old", "env": {"X": "1"}, "trust": True}, "z": {"command": "z"}}},
    )
    second_file = write(tmp_path / "2.json", {"mcpServers": {"new": {"command": "n"}, "a-b": {"command": "new"}}})
    report = load_settings([first_file, second_file], {}, environ)
    assert list(report.settings.mcp_servers) == ["a-b", "z", "new"]
    entry = report.settings.mcp_servers["a-b"]
    assert (entry.command, dict(entry.env), entry.trust) == ("new", {}, False)
    assert [(listed_entry.alias, listed_entry.name, listed_entry.source) for listed_entry in report.entries] == [
        ("a-b", "a-b", second_file),
        ("z", "z", first_file),
        ("new", "new", second_file),
    ]
    assert sources(report) == {
        "mcpServers.a-b.command": second_file,
        "mcpServers.z.command": first_file,
        "mcpServers.new.command": second_file,
    }


@pytest.mark.requirement("settings.merge")
def test_an_empty_section_is_not_the_source_of_values_from_a_later_file(
    environ: dict[str, str], tmp_path: Path
) -> None:
    first_file = write(tmp_path / "1.json", {"http": {}, "mcpServers": {}})
    second_file = write(tmp_path / "2.json", {"http": {"port": 1}, "mcpServers": {"a": {"command": "x"}}})
    report = load_settings([first_file, second_file], {}, environ)
    assert sources(report) == {"http.port": second_file, "mcpServers.a.command": second_file}


@pytest.mark.requirement("settings.merge")
def test_null_resets_a_key_whose_default_is_null(environ: dict[str, str], tmp_path: Path) -> None:
    first_file = write(tmp_path / "1.json", {"confirmation": {"whenUnavailable": "deny"}})
    second_file = write(tmp_path / "2.json", {"confirmation": {"whenUnavailable": None}})
    assert load_settings([first_file, second_file], {}, environ).settings.confirmation.when_unavailable is None


@pytest.mark.requirement("settings.merge")
def test_merging_leaves_the_given_overrides_alone(environ: dict[str, str], file: Path) -> None:
    overrides = {"http": {"port": 5}, "mcpServers": {"a b": {"command": "x", "disabled": True}}}
    before = json.dumps(overrides)
    load_settings([write(file, {"http": {"host": "h"}})], overrides, environ)
    assert json.dumps(overrides) == before


# --- Unknown keys and other spellings ----------------------------------------------------------------------------
@pytest.mark.requirement("settings.keys")
def test_a_key_cannot_break_a_line_of_the_log(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"evil\nINFO fine": 1, "x" * 1000: 1, "\x1b[31m": 1, "": 1}, environ)
    assert len(report.warnings) == 4
    assert all(warning.isprintable() and len(warning) < 250 + len(str(file)) for warning in report.warnings)


@pytest.mark.requirement("settings.keys")
def test_unknown_keys_get_warnings_with_file_and_path_and_the_nearest_key(environ: dict[str, str], file: Path) -> None:
    others_keys: dict[str, Any] = {"command": "x", "disabledTools": [], "allowedTools": []}
    content: dict[str, Any] = {
        "mcpservers": {},
        "zzz": 1,
        "http": {"prot": 1},
        "mcpServers": {
            "a": {"command": "x", "auth": {"clientSecret": "hunter2"}, "includetools": []},
            "b": others_keys,
        },
        "confirmation": {"time-out": 1},
    }
    report = load(file, content, environ)
    assert sorted(report.warnings) == sorted(
        f"{file}: {warning}"
        for warning in (
            "mcpservers is not a known key and is ignored. Did you mean mcpServers?",
            "zzz is not a known key and is ignored.",
            "http.prot is not a known key and is ignored. Did you mean http.port?",
            "mcpServers.a.auth is not a known key and is ignored. Did you mean mcpServers.a.oauth?",
            "mcpServers.a.includetools is not a known key and is ignored. Did you mean mcpServers.a.includeTools?",
            "mcpServers.b.disabledTools is not a known key and is ignored. Did you mean mcpServers.b.excludeTools?",
            "mcpServers.b.allowedTools is not a known key and is ignored. Did you mean mcpServers.b.includeTools?",
            "confirmation.time-out is not a known key and is ignored. Did you mean confirmation.timeout?",
        )
    )


@pytest.mark.requirement("settings.keys")
def test_snake_case_is_not_another_way_to_spell_a_key(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"approval_mode": "auto-edit", "limits": {"read_lines": 5}}, environ)
    assert report.settings.approval_mode is ApprovalMode.DEFAULT
    assert report.settings.limits.read_lines == 2000
    assert len(report.warnings) == 2


@pytest.mark.requirement("settings.keys")
def test_names_that_the_operator_chooses_and_editor_marks_are_no_unknown_keys(
    environ: dict[str, str], file: Path
) -> None:
    entry = {"command": "x", "env": {"anything": "1"}, "headers": {"X-Any": "1"}}
    assert load(file, {"$schema": "https://example.org", "mcpServers": {"any": entry}}, environ).warnings == ()


SPELLINGS: list[tuple[dict[str, Any], str]] = [
    ({"toolDiscoveryCommand": "x"}, "tools.discoveryCommand"),
    ({"tools": {"toolDiscoveryCommand": "x"}}, "tools.discoveryCommand"),
    ({"toolCallCommand": "x"}, "tools.callCommand"),
    ({"tools": {"toolCallCommand": "x"}}, "tools.callCommand"),
    ({"mcpServerCommand": "x"}, "mcp.serverCommand"),
    ({"mcp": {"mcpServerCommand": "x"}}, "mcp.serverCommand"),
    ({"allowMCPServers": ["a"]}, "mcp.allowed"),
    ({"excludeMCPServers": ["a"]}, "mcp.excluded"),
    ({"coreTools": []}, "tools.core"),
    ({"allowedTools": ["x"]}, "tools.allowed"),
    ({"excludeTools": []}, "tools.exclude"),
    ({"tools": {"approvalMode": "plan"}}, "approvalMode"),
    ({"webSearch": {"provider": [{"type": "tavily", "apiKey": "x"}]}}, "web.search.tavily.apiKey"),
    ({"tavilyApiKey": "x"}, "web.search.tavily.apiKey"),
    ({"advanced": {"tavilyApiKey": "x"}}, "web.search.tavily.apiKey"),
    ({"contextFileName": "X.md"}, "memory.fileName"),
    ({"context": {"fileName": ["X.md"]}}, "memory.fileName"),
]


@pytest.mark.requirement("settings.key-aliases")
@pytest.mark.parametrize(("content", "canonical"), SPELLINGS, ids=[json.dumps(content) for content, _ in SPELLINGS])
def test_other_spellings_mean_the_same_key(
    environ: dict[str, str], file: Path, content: dict[str, Any], canonical: str
) -> None:
    report = load(file, content, environ)
    server_keys = {"mcpServers.mcp.command", "mcpServers.mcp.args"} if canonical == "mcp.serverCommand" else set[str]()
    assert sources(report) == dict.fromkeys({canonical, *server_keys}, str(file))
    assert not any("not a known key" in warning for warning in report.warnings)


@pytest.mark.requirement("settings.key-aliases")
def test_the_own_spelling_wins_over_a_different_one_with_a_warning(environ: dict[str, str], file: Path) -> None:
    report = load(file, {"tools": {"approvalMode": "auto-edit"}, "approvalMode": "plan"}, environ)
    assert report.settings.approval_mode is ApprovalMode.PLAN
    assert report.warnings == (
        (
            f"{file}: tools.approvalMode and approvalMode mean the same thing but have different values; "
            "approvalMode is used."
        ),
    )
    equal_report = load(file, {"tools": {"approvalMode": "plan"}, "approvalMode": "plan"}, environ)
    assert equal_report.warnings == ()


@pytest.mark.requirement("settings.key-aliases")
def test_a_section_that_is_no_object_is_reported_even_if_a_flat_key_belongs_to_it(
    environ: dict[str, str], file: Path
) -> None:
    assert "tools is a string, but must be an object." in refusal(file, {"tools": "x", "coreTools": ["y"]}, environ)


# --- Values ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.defaults")
def test_every_kind_of_value_arrives(environ: dict[str, str], file: Path) -> None:
    content = {
        "approvalMode": "auto-edit",
        "media": "resource_link",
        "confirmation": {"whenUnavailable": "deny", "timeout": 50, "style": "simple"},
        "results": {"display": "meta"},
        "workspace": {"clientRoots": "intersect", "respectGitIgnore": False, "respectAgentIgnore": False},
        "limits": {"readLines": 1, "requestBytes": 1024},
        "proxy": {"firstListWait": 0},
        "http": {"allowedHosts": ["a", "b"]},
        "log": {"level": "info"},
    }
    settings = load(file, content, environ).settings
    assert settings.approval_mode is ApprovalMode.AUTO_EDIT
    assert settings.media is MediaHandling.RESOURCE_LINK
    assert settings.confirmation.model_dump(by_alias=True) == content["confirmation"]
    assert settings.results.display == "meta"
    assert settings.workspace.client_roots == "intersect"
    assert (settings.workspace.respect_git_ignore, settings.workspace.respect_agent_ignore) == (False, False)
    assert (settings.limits.read_lines, settings.limits.request_bytes) == (1, 1024)
    assert settings.proxy.first_list_wait == 0
    assert settings.http.allowed_hosts == ("a", "b")
    assert settings.log.level == "info"


@pytest.mark.requirement("settings.bad-values")
def test_wrong_values_of_several_sections_are_reported_together(environ: dict[str, str], file: Path) -> None:
    content = {"limits": {"readLines": "many"}, "http": {"tokens": {"one": "TOKEN"}}}
    first, second = refusal(file, content, environ).splitlines()
    assert "limits.readLines is" in first
    assert "http.tokens.one is" in second


@pytest.mark.requirement("settings.bad-values")
def test_a_wrong_value_in_an_object_in_an_array_is_reported_with_what_its_key_expects(
    environ: dict[str, str], file: Path
) -> None:
    message = refusal(file, {"http": {"stateKeys": [{"file": 5}, "x"]}}, environ)
    first, second = message.splitlines()
    assert "http.stateKeys[0].file is a number, but must be a string, or null." in first
    assert "http.stateKeys[1] is a string, but must be an object." in second


@pytest.mark.requirement("settings.bad-values")
def test_an_option_that_is_not_utf_8_is_refused_as_such(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"^an option or an environment variable contains bytes that are not UTF-8"):
        load_settings([], {"tools": {"include": ["caf\udce9"]}}, environ)


@pytest.mark.requirement("settings.bad-values")
@every_key
def test_a_value_of_another_type_is_an_error_that_names_file_key_and_what_is_expected(
    environ: dict[str, str], file: Path, key: KeyDescription
) -> None:
    wrong_value: Any = 1.5 if isinstance(key.default, dict) else {"wrong": True}
    message = refusal(file, settings_with(key, wrong_value), environ).splitlines()[0]
    path = key.path.replace("NAME", "chosen")
    value_text = "an object" if isinstance(wrong_value, dict) else "a number" if is_secret(key) else "1.5"
    if key.path in ("mcpServers", "http.tokens", "http.oauth.principals", "agents", "lsp.servers"):
        value_text = "a number"
    consequence = " The server chosen is not used." if path.startswith("mcpServers.") else ""
    assert message == f"{file}: {path} is {value_text}, but must be {key.type}.{consequence}"


def is_secret(key: KeyDescription) -> bool:
    return not key.section.model_fields[key.attribute].repr


@pytest.mark.requirement("settings.bad-values")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"shell": {"timeout": 600_001}}, "shell.timeout is 600001, but must be an integer of milliseconds from 1"),
        ({"confirmation": {"timeout": 0}}, "confirmation.timeout is 0, but must be an integer of milliseconds"),
        ({"confirmation": {"timeout": 1.5}}, "confirmation.timeout is 1.5, but"),
        ({"confirmation": {"timeout": 5.0}}, "confirmation.timeout is 5.0, but"),
        ({"http": {"port": 65_536}}, "http.port is 65536, but must be an integer from 0 to 65535."),
        ({"http": {"port": "8808"}}, 'http.port is "8808", but'),
        ({"http": {"port": True}}, "http.port is true, but"),
        ({"http": {"host": ""}}, 'http.host is "", but must be a host name or an address.'),
        ({"limits": {"requestBytes": 1023}}, "limits.requestBytes is 1023, but"),
        ({"limits": {"readLines": 0}}, "limits.readLines is 0, but must be an integer from 1 to 10000000."),
        ({"proxy": {"firstListWait": 60_001}}, "proxy.firstListWait is 60001, but"),
        ({"workspace": {"respectGitIgnore": 1}}, "workspace.respectGitIgnore is 1, but must be true or false."),
        ({"workspace": {"roots": "/one"}}, 'workspace.roots is "/one", but must be an array of strings.'),
        ({"workspace": {"roots": ["/one", 2]}}, "workspace.roots[1] is 2, but must be a string."),
        ({"mcp": {"allowed": [None]}}, "mcp.allowed[0] is null, but must be a string."),
        (
            {"http": {"oauth": {"algorithms": "RS256"}}},
            'but must be an array of strings among "RS256", "RS384", "RS512"',
        ),
        ({"media": "png"}, 'media is "png", but must be one of "inline", "resource_link", "notice".'),
        (
            {"approvalMode": "auto edit"},
            'approvalMode is "auto edit", but must be one of "plan", "default", "auto-edit" ("yolo" only',
        ),
        ({"confirmation": {"whenUnavailable": "allow"}}, 'but must be one of "client", "page", "deny", or null.'),
        ({"log": "info"}, "log is a string, but must be an object."),
        ({"log": {"level": "x" * 500}}, 'log.level is "' + "x" * 79 + "..., but"),
        ({"mcpServers": {"a": {"command": "x", "isolation": "none"}}}, 'mcpServers.a.isolation is "none", but'),
        ({"mcpServers": {"a": {"command": "x", "protocol": "2025-11-25"}}}, '"auto", "legacy", "2026-07-28".'),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_values_out_of_bounds_are_errors(
    environ: dict[str, str], file: Path, content: dict[str, Any], expected: str
) -> None:
    message = refusal(file, content, environ)
    assert message.startswith(f"{file}: ")
    assert expected in message


@pytest.mark.requirement("settings.bad-values")
def test_the_error_names_the_file_that_gave_the_value(environ: dict[str, str], tmp_path: Path) -> None:
    first_file = write(tmp_path / "1.json", {"http": {"port": "bad"}})
    second_file = write(tmp_path / "2.json", {"http": {"host": "fine"}, "log": {"level": "bad"}})
    with pytest.raises(SettingsError) as error_info:
        load_settings([first_file, second_file], {"media": "bad"}, environ)
    assert [problem.partition(": ")[0] for problem in error_info.value.problems] == [
        "command line",
        first_file,
        second_file,
    ]


@pytest.mark.requirement("settings.bad-values")
def test_all_problems_are_reported_at_once_up_to_a_limit(environ: dict[str, str], file: Path) -> None:
    content: dict[str, Any] = {
        "mcpServers": {"a": "x", "b  c": {}, "b--c": {}, "d": {}},
        "http": {"port": -1},
        "agents": {"e": {}},
    }
    with pytest.raises(UnusableSettingsError) as error:
        load(file, content, environ)
    words = ("would both be called", "http.port is -1", "agents.e.command is missing")
    assert all(word in line for word, line in zip(words, error.value.problems, strict=True))
    words = (
        "is called b--c here",
        "mcpServers.a is a string",
        "mcpServers.b--c has no command",
        "mcpServers.d has no command",
    )
    assert all(word in line for word, line in zip(words, error.value.warnings, strict=True))
    content_with_many_problems = {"http": {"tokens": {f"s{number}": 1 for number in range(50)}}}
    lines = refusal(file, content_with_many_problems, environ).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "There are 30 more problems."


# --- Folders, limits, start-up -----------------------------------------------------------------------------------


@pytest.mark.requirement("settings.roots")
def test_a_root_on_the_command_line_need_not_be_utf_8(environ: dict[str, str], tmp_path: Path) -> None:
    roots = [os.fsdecode(b"/caf\xe9"), "/other"]
    report = load(tmp_path / "mcp.json", {"shell": {"timeout": 1000}}, environ, workspace={"roots": roots})
    assert report.settings.workspace.roots == tuple(roots)
    assert report.settings.shell.timeout == 1000
    with pytest.raises(UnusableSettingsError) as error_info:
        load(tmp_path / "mcp.json", {"shell": {"timeout": "soon"}}, environ, workspace={"roots": roots})
    assert error_info.value.report.settings.workspace.roots == tuple(roots)


@pytest.mark.requirement("settings.roots")
def test_relative_roots_in_a_file_start_from_its_folder_or_the_home_folder(
    environ: dict[str, str], tmp_path: Path
) -> None:
    roots = ["sub/../here", ".", "~", "~/code", "/abs/./x/"]
    report = load(tmp_path / "etc/mcp.json", {"workspace": {"roots": roots}}, environ)
    etc, home = f"{tmp_path}/etc", f"{tmp_path}/home"
    assert report.settings.workspace.roots == (f"{etc}/here", etc, home, f"{home}/code", "/abs/x")


@pytest.mark.requirement("settings.roots")
def test_other_relative_roots_start_from_the_working_folder(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "etc/mcp.json", {"workspace": {"roots": ["x"]}})
    assert load_settings(["etc/mcp.json"], {}, environ).settings.workspace.roots == (f"{tmp_path}/etc/x",)
    on_command_line = load_settings([], {"workspace": {"roots": ("y",)}}, environ)
    assert on_command_line.settings.workspace.roots == (f"{tmp_path}/y",)


@pytest.mark.requirement("settings.roots")
@pytest.mark.parametrize("root", ["", "  ", "a\0b"])
def test_a_root_that_cannot_be_a_path_is_an_error(environ: dict[str, str], file: Path, root: str) -> None:
    message = refusal(file, {"workspace": {"roots": ["/fine", root]}}, environ)
    assert message == f"{file}: workspace.roots[1] is blank or contains a NUL character; give a valid path."


@pytest.mark.requirement("settings.memory")
def test_limits_become_the_limits_of_tools(environ: dict[str, str], file: Path) -> None:
    assert load_settings([], {}, environ).settings.limits.for_tools() == Limits()
    content = {
        "readLines": 1,
        "readChars": 2,
        "listEntries": 3,
        "grepMatches": 4,
        "readManyFiles": 5,
        "readManyChars": 6,
    }
    limits = load(file, {"limits": content}, environ).settings.limits.for_tools()
    assert limits == Limits(
        read_lines=1, read_chars=2, list_entries=3, grep_matches=4, read_many_files=5, read_many_chars=6
    )


@pytest.mark.requirement("settings.defaults")
def test_models_can_be_created_with_attribute_names() -> None:
    assert Settings(http=HttpSettings(allowed_hosts=("a",))).http.allowed_hosts == ("a",)


@pytest.mark.requirement("project.start-imports")
def test_loading_imports_nothing_that_only_errors_need(environ: dict[str, str], file: Path) -> None:
    write(file, {"mcpServers": {"a": {"command": "x", "env": {"K": "$HOME"}}}, "http": {"port": 1}})
    code = (
        "import hashlib, ipaddress, socket, sys, urllib.parse\n"
        "from pydantic import BaseModel\n"
        "class Warm(BaseModel): pass\n"
        "before = set(sys.modules)\n"
        "from server.settings import load_settings\n"
        "load_settings([sys.argv[1]], {}, {'HOME': sys.argv[2]})\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", code, str(file), environ["HOME"]]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    modules = process.stdout.split()
    assert "server.settings.load" in modules
    foreign_modules = [
        name for name in modules if not name.startswith(("server", "tools", "json", "_json", "pydantic"))
    ]
    assert foreign_modules == []
