"""The entries of mcpServers: their aliases, which of them are used, their variables, and how each server is reached."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.settings import SettingsError, SettingsReport, UpstreamSettings, load_settings
from server.settings.server_models import OAuthSettings
from server.settings.upstream_entries import alias_of
from tests.examples import examples


def load(file: Path, content: Mapping[str, Any], **environ: str) -> SettingsReport:
    file.write_text(json.dumps(content), encoding="utf-8")
    return load_settings([str(file)], {}, {"HOME": str(file.parent / "home"), **environ})


def problem_of(file: Path, entry: Mapping[str, Any], **environ: str) -> str:
    """Return why the entry is left out, after checking that another entry and the rules stay."""
    servers = {"a": entry, "b": {"command": "y"}}
    report = load(file, {"mcpServers": servers, "permissions": {"deny": ["mcp__a"]}}, **environ)
    assert list(report.upstreams) == ["b"]
    assert report.settings.permissions.deny == ("mcp__a",)
    assert set(report.entries[0].problems) <= set(report.warnings)
    reason, problem = report.left_out["a"], report.entries[0].problems[0]
    assert reason.startswith("mcpServers.a")
    assert problem.endswith(" The server a is not used.")
    assert reason in problem or reason == f"{reason.partition(' ')[0]} is not valid."
    return problem


def reasons_left_out(report: SettingsReport) -> dict[str, str | None]:
    return {entry.alias: entry.left_out for entry in report.entries}


# --- Aliases -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.alias")
@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("github", "github"),
        ("My_Server-2", "My_Server-2"),
        ("a" * 24, "a" * 24),
        ("a" * 25, "a" * 24),
        ("my server", "my-server"),
        ("a.b/c", "a-b-c"),
        ("a__b", "a-b"),
        ("a____b", "a-b"),
        ("_a_", "-a-"),
        ("_", "-"),
        ("a" * 23 + "_b", "a" * 23 + "-"),
        ("сервер", "------"),
    ],
)
def test_a_name_becomes_an_alias(name: str, alias: str) -> None:
    assert alias_of(name) == alias


@pytest.mark.requirement("settings.alias")
@examples(300, derandomize=True)
@given(st.text(min_size=1, max_size=60) | st.text("a_-", min_size=1, max_size=40))
def test_every_alias_follows_the_rule_and_is_its_own_alias(name: str) -> None:
    alias = alias_of(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,24}", alias)
    assert "__" not in alias
    assert not alias.startswith("_")
    assert not alias.endswith("_")
    assert alias_of(alias) == alias


@pytest.mark.requirement("settings.alias")
def test_a_name_that_does_not_fit_is_changed_with_a_warning(file: Path) -> None:
    report = load(file, {"mcpServers": {"my server": {"command": "x"}, "fine": {"command": "y"}}})
    assert list(report.upstreams) == ["my-server", "fine"]
    assert [(entry.name, entry.alias) for entry in report.entries] == [("my server", "my-server"), ("fine", "fine")]
    message = (
        "mcpServers.my server is called my-server here: "
        "a name has at most 24 letters, digits, hyphens and single underscores, with no underscore at either end."
    )
    assert report.warnings == (f"{file}: {message}",)


@pytest.mark.requirement("settings.alias")
def test_two_names_that_become_one_alias_are_an_error_that_names_both(file: Path) -> None:
    with pytest.raises(SettingsError) as error_info:
        load(file, {"mcpServers": {"a.b": {"command": "x"}, "a b": {"command": "y"}}})
    assert str(error_info.value) == (
        f"{file}: mcpServers.a.b and mcpServers.a b would both be called a-b; rename "
        "one, using at most 24 letters, digits, hyphens and single underscores, with no underscore at either end."
    )


@pytest.mark.requirement("settings.alias")
def test_an_empty_name_is_an_error(file: Path) -> None:
    with pytest.raises(SettingsError, match="has an empty name"):
        load(file, {"mcpServers": {"": {"command": "x"}}})


# --- Used servers ------------------------------------------------------------------------------------------------

THREE = {"one": {"command": "1"}, "my two": {"command": "2"}, "three": {"command": "3"}}


@pytest.mark.requirement("settings.alias")
@pytest.mark.parametrize(
    ("mcp", "aliases"),
    [
        ({}, ["one", "my-two", "three"]),
        ({"allowed": None}, ["one", "my-two", "three"]),
        ({"allowed": ["three", "one"]}, ["one", "three"]),
        ({"allowed": ["my two"]}, ["my-two"]),
        ({"allowed": ["my-two"]}, ["my-two"]),
        ({"excluded": ["my two", "one"]}, ["three"]),
        ({"excluded": ["my-two"]}, ["one", "three"]),
        ({"allowed": ["one", "three"], "excluded": ["three"]}, ["one"]),
        ({"allowed": []}, []),
    ],
    ids=json.dumps,
)
def test_allowed_and_excluded_decide_which_servers_are_used(
    file: Path, mcp: dict[str, Any], aliases: list[str]
) -> None:
    report = load(file, {"mcpServers": THREE, "mcp": mcp})
    assert list(report.upstreams) == aliases
    assert list(report.settings.mcp_servers) == ["one", "my-two", "three"]
    assert [alias for alias, entry in report.settings.mcp_servers.items() if entry.enabled] == aliases


@pytest.mark.requirement("settings.alias")
def test_a_server_that_is_left_out_says_why(file: Path) -> None:
    servers: dict[str, Any] = {**THREE, "four": {"command": "4", "enabled": False}}
    report = load(file, {"mcpServers": servers, "mcp": {"allowed": ["one", "three", "four"], "excluded": ["three"]}})
    assert reasons_left_out(report) == {
        "one": None,
        "my-two": "It is not in mcp.allowed.",
        "three": "It is in mcp.excluded.",
        "four": "It is disabled (mcpServers.four.enabled is false).",
    }


@pytest.mark.requirement("settings.alias")
def test_a_filter_with_an_unknown_server_and_one_that_allows_none_get_warnings(file: Path) -> None:
    report = load(file, {"mcpServers": THREE, "mcp": {"allowed": [], "excluded": ["tow"]}})
    assert report.warnings[1:] == (
        f'{file}: mcp.excluded names "tow", which is not a server in mcpServers.',
        f"{file}: mcp.allowed is empty, so no server in mcpServers is used.",
    )


@pytest.mark.requirement("settings.alias")
@pytest.mark.parametrize(
    ("marks", "is_used"),
    [
        ({"disabled": True}, False),
        ({"disabled": False}, True),
        ({"disabled": True, "enabled": True}, False),
        ({"disabled": False, "enabled": False}, False),
    ],
    ids=json.dumps,
)
def test_disabled_as_in_other_clients_leaves_a_server_out(file: Path, marks: dict[str, bool], is_used: bool) -> None:
    report = load(file, {"mcpServers": {"a": {"command": "x", **marks}}})
    assert (list(report.upstreams) == ["a"]) is is_used
    assert report.warnings == ()


@pytest.mark.requirement("settings.alias")
def test_disabled_that_is_neither_true_nor_false_leaves_the_server_out(file: Path) -> None:
    message = problem_of(file, {"command": "x", "disabled": "true"})
    assert message.startswith(f'{file}: mcpServers.a.enabled is "true", but must be true or false.')


# --- Variables ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.variables")
@pytest.mark.parametrize(
    ("text", "expansion"),
    [
        ("$WORD", "value"),
        ("${WORD}", "value"),
        ("a${WORD}b$WORD-c", "avaluebvalue-c"),
        ("$EMPTY|${EMPTY}", "|"),
        ("${MISSING:-default}", "default"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${WORD:-default}", "value"),
        ("$NESTED", "$WORD ${MISSING}"),
        ("$$WORD $${WORD} $$", "$WORD ${WORD} $"),
        ("$1 $- $ 5$", "$1 $- $ 5$"),
        ("no variable", "no variable"),
    ],
)
def test_variables_are_expanded_once(file: Path, text: str, expansion: str) -> None:
    environ = {"WORD": "value", "EMPTY": "", "NESTED": "$WORD ${MISSING}"}
    report = load(file, {"mcpServers": {"a": {"command": "x", "args": [text]}}}, **environ)
    assert report.upstreams["a"].args == (expansion,)
    assert report.warnings == ()


@pytest.mark.requirement("settings.variables")
def test_variables_are_expanded_in_every_text_that_reaches_the_server_and_in_no_other(file: Path) -> None:
    entry = {
        "command": "$V",
        "args": ["-x", "$V"],
        "env": {"$V": "$V"},
        "cwd": "/$V",
        "headers": {"X-Key": "Bearer $V"},
        "description": "costs $V",
        "includeTools": ["$V"],
        "inheritEnv": ["$V"],
    }
    remote = {"url": "http://$V/", "httpUrl": "https://${V}/mcp"}
    upstreams = load(file, {"mcpServers": {"a": entry, "b": remote}}, V="v").upstreams
    a, b = upstreams["a"], upstreams["b"]
    assert (a.command, a.args, a.env, a.cwd, a.headers) == (
        "v",
        ("-x", "v"),
        {"$V": "v"},
        "/v",
        {"X-Key": "Bearer v"},
    )
    assert (a.description, a.include_tools, a.inherit_env) == ("costs $V", ("$V",), ("$V",))
    assert (b.url, b.http_url) == ("http://v/", "https://v/mcp")


@pytest.mark.requirement("settings.variables")
@pytest.mark.parametrize(
    ("part", "location", "variable"),
    [
        ({"args": ["x", "$MISSING"]}, "args[1]", "MISSING"),
        ({"env": {"KEY": "${MISSING}"}}, "env.KEY", "MISSING"),
        ({"headers": {"A": "${env:MISSING}"}}, "headers.A", "env:MISSING"),
        ({"cwd": "$MISSING"}, "cwd", "MISSING"),
        ({"command": "$MISSING"}, "command", "MISSING"),
        ({"httpUrl": "$MISSING/mcp"}, "httpUrl", "MISSING"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_variable_that_is_not_set_leaves_only_its_server_out_with_a_warning(
    file: Path, part: dict[str, Any], location: str, variable: str
) -> None:
    report = load(file, {"mcpServers": {"a": {"command": "x", **part}, "b": {"command": "y"}}})
    assert list(report.upstreams) == ["b"]
    assert reasons_left_out(report)["a"] == f"The environment variable {variable} is not set."
    assert not report.settings.mcp_servers["a"].enabled
    message = (
        f"mcpServers.a.{location} refers to the environment variable {variable}, which is not set; "
        "the server a is not used."
    )
    assert report.warnings == (f"{file}: {message} Set it, or write $$ for a dollar sign.",)


@pytest.mark.requirement("settings.variables")
def test_a_server_that_is_not_used_needs_no_variables(file: Path) -> None:
    report = load(file, {"mcpServers": {"a": {"command": "$MISSING", "enabled": False}}})
    assert report.warnings == ()


# --- How a server is reached -------------------------------------------------------------------------------------


@pytest.mark.requirement("settings.transport")
@pytest.mark.parametrize(
    ("entry", "transport", "endpoint"),
    [
        ({"command": "x"}, "stdio", None),
        ({"command": "x", "type": "stdio"}, "stdio", None),
        ({"url": "http://u"}, "detect", "http://u"),
        ({"url": "http://u", "type": "http"}, "http", "http://u"),
        ({"url": "http://u", "type": "sse"}, "sse", "http://u"),
        ({"httpUrl": "https://h:8443/x?y"}, "http", "https://h:8443/x?y"),
        ({"httpUrl": "http://h", "type": "http"}, "http", "http://h"),
        ({"url": "http://[::1]:1/"}, "detect", "http://[::1]:1/"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_the_type_or_else_the_address_decides_the_transport(
    file: Path, entry: dict[str, Any], transport: str, endpoint: str | None
) -> None:
    report = load(file, {"mcpServers": {"a": entry}})
    settings = report.upstreams["a"]
    assert (settings.transport, settings.endpoint) == (transport, endpoint)
    assert report.warnings == ()


@pytest.mark.requirement("settings.transport")
@pytest.mark.parametrize(
    ("entry", "transport", "endpoint", "message"),
    [
        ({"command": "x", "url": "http://u"}, "detect", "http://u", "command and url; only url"),
        ({"url": "http://u", "httpUrl": "http://h"}, "http", "http://h", "url and httpUrl; only httpUrl"),
        ({"url": "http://u", "httpUrl": "http://h", "type": "sse"}, "sse", "http://u", "url and httpUrl; only url"),
        ({"command": "x", "url": "http://u", "type": "stdio"}, "stdio", None, "command and url; only command"),
        (
            {"command": "x", "url": "http://u", "httpUrl": "http://h"},
            "http",
            "http://h",
            "command and url and httpUrl; only httpUrl",
        ),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_one_of_several_ways_to_reach_a_server_is_used_with_a_warning(
    file: Path, entry: dict[str, Any], transport: str, endpoint: str | None, message: str
) -> None:
    report = load(file, {"mcpServers": {"a": entry}})
    assert (report.upstreams["a"].transport, report.upstreams["a"].endpoint) == (transport, endpoint)
    assert report.warnings == (f"{file}: mcpServers.a has {message} is used.",)


@pytest.mark.requirement("settings.transport")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "mcpServers.a has no command, no url and no httpUrl; add one of them."),
        ({"args": ["x"]}, "mcpServers.a has no command, no url and no httpUrl; add one of them."),
        ({"command": ""}, "mcpServers.a.command is missing or empty; name the program that starts the server."),
        ({"type": "stdio", "url": "http://u"}, "mcpServers.a.command is missing or empty; name the program"),
        ({"type": "http", "command": "x"}, 'mcpServers.a has the type "http" but no url; add the address'),
        ({"type": "sse", "httpUrl": "http://h"}, 'mcpServers.a has the type "sse" but no url; add the address'),
        ({"url": "example.org/mcp"}, "mcpServers.a.url must be an address that begins with http:// or https://"),
        ({"url": "ws://example.org"}, "mcpServers.a.url must be an address"),
        ({"url": "http://"}, "mcpServers.a.url must be an address"),
        ({"url": "http://x:99999/"}, "mcpServers.a.url must be an address"),
        ({"url": "http://[::1/"}, "mcpServers.a.url must be an address"),
        ({"httpUrl": "/mcp"}, "mcpServers.a.httpUrl must be an address"),
        ({"url": "$ADDRESS"}, "mcpServers.a.url must be an address"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_an_entry_that_cannot_be_reached_is_left_out(file: Path, entry: dict[str, Any], message: str) -> None:
    assert problem_of(file, entry, ADDRESS="not an address").startswith(f"{file}: {message}")


@pytest.mark.requirement("settings.transport")
def test_an_entry_that_is_not_used_may_be_incomplete(file: Path) -> None:
    assert load(file, {"mcpServers": {"a": {"enabled": False}}}).warnings == ()


@pytest.mark.requirement("settings.transport")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"command": "x\0"}, "mcpServers.a.command contains a NUL character, which cannot be passed to a process."),
        ({"command": "x", "args": ["a", "\0"]}, "mcpServers.a.args[1] contains a NUL character"),
        ({"command": "x", "cwd": "\0"}, "mcpServers.a.cwd contains a NUL character"),
        ({"command": "x", "env": {"K": "\0"}}, "mcpServers.a.env.K contains a NUL character"),
        ({"command": "x", "env": {"A=B": "1"}}, "mcpServers.a.env.A=B is not a valid environment variable name."),
        ({"command": "x", "env": {"": "1"}}, 'mcpServers.a.env."" is not a valid environment variable name.'),
        (
            {"url": "http://x", "headers": {"X Y": "1"}},
            "mcpServers.a.headers.X Y is not a valid HTTP header name.",
        ),
        ({"url": "http://x", "headers": {"A": "1\r\nB: 2"}}, "mcpServers.a.headers.A must be printable ASCII on one"),
        ({"url": "http://x", "headers": {"A": "$LINE"}}, "mcpServers.a.headers.A must be printable ASCII on one"),
        ({"url": "http://x", "headers": {"A": "ключ"}}, "mcpServers.a.headers.A must be printable ASCII on one"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_texts_that_cannot_be_passed_to_a_process_or_sent_in_a_request_leave_their_server_out(
    file: Path, entry: dict[str, Any], message: str
) -> None:
    assert problem_of(file, entry, LINE="two\nlines").startswith(f"{file}: {message}")


@pytest.mark.requirement("settings.transport")
def test_an_entry_created_in_code_has_its_transport_too() -> None:
    assert UpstreamSettings(command="x").transport == "stdio"
    assert UpstreamSettings().transport is None
    assert UpstreamSettings().endpoint is None


# --- Loops -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("upstreams.loop")
@pytest.mark.parametrize(
    ("server_count", "is_used"), [("", True), ("2", True), ("3", False), ("999", False), ("-1", True), ("x", True)]
)
def test_a_server_deep_in_a_chain_of_servers_starts_no_others(file: Path, server_count: str, is_used: bool) -> None:
    entries = {"a": {"command": "program"}, "remote": {"url": "http://127.0.0.1:1/"}}
    report = load(file, {"mcpServers": entries}, CORETOOLS_MCP_SERVERS_ABOVE=server_count)
    assert ("a" in report.upstreams) is is_used
    assert "remote" in report.upstreams
    assert is_used or "loop" in str(reasons_left_out(report)["a"])


# --- Logins ----------------------------------------------------------------------------------------------------------

REMOTE = {"url": "https://h/mcp"}


@pytest.mark.requirement("login.settings")
def test_an_entry_without_oauth_has_no_login_settings_and_null_means_the_same(file: Path) -> None:
    report = load(file, {"mcpServers": {"a": REMOTE, "b": REMOTE | {"oauth": None}, "c": REMOTE | {"oauth": {}}}})
    assert [entry.oauth for entry in report.upstreams.values()] == [None, None, OAuthSettings()]
    assert report.warnings == ()


@pytest.mark.requirement("login.settings")
def test_variables_are_expanded_in_the_texts_of_oauth_and_stay_unexpanded_in_the_written_entry(file: Path) -> None:
    texts = {"clientId": "id-$V", "clientSecret": "${V}", "clientMetadataUrl": "https://h/$V", "scopes": ["a", "$V"]}
    key = {"grant": "client-credentials", "clientId": "x", "privateKey": "$KEY", "signingAlgorithm": "RS256"}
    report = load(
        file, {"mcpServers": {"a": REMOTE | {"oauth": texts}, "b": REMOTE | {"oauth": key}}}, V="v", KEY="-----BEGIN"
    )
    a, b = (report.upstreams[alias].oauth for alias in "ab")
    assert a is not None
    assert b is not None
    assert (a.client_id, a.client_secret, a.client_metadata_url, a.scopes) == ("id-v", "v", "https://h/v", ("a", "v"))
    assert (b.private_key, b.signing_algorithm, b.grant) == ("-----BEGIN", "RS256", "client-credentials")
    written_oauth = report.written["a"].oauth
    assert written_oauth is not None
    assert written_oauth.client_secret == "${V}"
    assert report.warnings == ()


@pytest.mark.requirement("login.settings")
def test_a_variable_of_oauth_that_is_not_set_leaves_the_server_out(file: Path) -> None:
    report = load(file, {"mcpServers": {"a": REMOTE | {"oauth": {"clientId": "x", "clientSecret": "$MISSING"}}}})
    assert reasons_left_out(report) == {"a": "The environment variable MISSING is not set."}
    assert "mcpServers.a.oauth.clientSecret refers to the environment variable MISSING" in report.warnings[0]


@pytest.mark.requirement("login.settings")
@pytest.mark.parametrize(
    ("oauth", "message"),
    [
        ({"clientSecret": "hunter2"}, "oauth.clientId is missing, but clientSecret needs it; the authorization server"),
        ({"clientId": "  "}, "oauth.clientId is empty; set it or remove it."),
        ({"clientId": "x", "clientSecret": "$EMPTY"}, "oauth.clientSecret is empty; set it or remove it."),
        (
            {"grant": "client-credentials", "privateKey": "hunter2"},
            (
                'oauth.clientId is missing, but the "client-credentials" grant needs it; '
                "the authorization server issues it."
            ),
        ),
        ({"grant": "client-credentials", "clientId": "x"}, "oauth has neither clientSecret nor privateKey, but"),
        (
            {"clientId": "x", "privateKey": "hunter2"},
            'oauth.privateKey is only for the "client-credentials" grant; set grant to that, or remove the key.',
        ),
        ({"clientMetadataUrl": "http://h/x"}, "oauth.clientMetadataUrl must be an address that begins with https://"),
        ({"clientMetadataUrl": "https://h"}, "oauth.clientMetadataUrl must be an address"),
        ({"clientMetadataUrl": "https://h/"}, "oauth.clientMetadataUrl must be an address"),
        ({"clientMetadataUrl": "https://h:99999/x"}, "oauth.clientMetadataUrl must be an address"),
        ({"clientMetadataUrl": "https://hunter2@h/x"}, "oauth.clientMetadataUrl must be an address"),
        ({"clientMetadataUrl": "https://h/x#y"}, "oauth.clientMetadataUrl must be an address"),
        ({"scopes": ["read", "a b"]}, "oauth.scopes[1] must be one scope: printable ASCII without spaces, quotes"),
        ({"scopes": [""]}, "oauth.scopes[0] must be one scope"),
        ({"scopes": ['"']}, "oauth.scopes[0] must be one scope"),
        ({"signingAlgorithm": "HS256"}, 'oauth.signingAlgorithm is "HS256", but must be one of "ES256", "ES384",'),
        ({"signingAlgorithm": "none"}, 'oauth.signingAlgorithm is "none", but must be one of'),
        ({"callbackPort": 0}, "oauth.callbackPort is 0, but must be an integer from 1 to 65535, or null."),
        ({"clientSecret": 5}, "oauth.clientSecret is a number, but must be a string, or null."),
        ({"scopes": 5}, "oauth.scopes is 5, but must be an array of strings, or null."),
        ("hunter2", "oauth is a string, but must be an object, or null."),
    ],
    ids=json.dumps,
)
def test_unusable_login_settings_leave_their_server_out(file: Path, oauth: Any, message: str) -> None:
    refusal_message = problem_of(file, REMOTE | {"oauth": oauth}, EMPTY="")
    assert refusal_message.startswith(f"{file}: mcpServers.a.{message}")
    assert "hunter2" not in refusal_message


@pytest.mark.requirement("login.settings")
def test_login_settings_for_a_program_leave_it_out(file: Path) -> None:
    message = (
        f"{file}: mcpServers.a.oauth is only for a server that is reached at an address; pass credentials to a program"
    )
    assert problem_of(file, {"command": "x", "oauth": {}}).startswith(message)
    for harmless_entry in (
        {"command": "x", "oauth": {"enabled": False}},
        {"command": "$NONE", "oauth": {"scopes": ["a b"]}},
    ):
        load(file, {"mcpServers": {"a": harmless_entry}})


@pytest.mark.requirement("login.settings")
def test_a_different_login_means_a_different_connection(file: Path) -> None:
    entries = [REMOTE, *(REMOTE | {"oauth": oauth} for oauth in ({}, {"clientId": "x"}, {"scopes": ["y"]}))]
    settings = [load(file, {"mcpServers": {"a": entry}}).upstreams["a"] for entry in entries]
    for entry in settings:
        assert [entry.is_reached_like(second_entry) for second_entry in settings] == [
            second_entry is entry for second_entry in settings
        ]
        assert [entry.reach_digest() == second_entry.reach_digest() for second_entry in settings] == [
            second_entry is entry for second_entry in settings
        ]


@pytest.mark.requirement("login.settings")
def test_known_keys_of_other_clients_oauth_settings_are_read(file: Path) -> None:
    login = {
        "enabled": True,
        "clientId": "x",
        "scopes": "read  write",
        "authorizationUrl": "https://h",
        "audience": "",
    }
    report = load(file, {"mcpServers": {"a": REMOTE | {"oauth": login}}})
    assert report.upstreams["a"].oauth == OAuthSettings(client_id="x", scopes=("read", "write"))
    ending = "is not a known key and is ignored."
    assert report.warnings == tuple(
        f"{file}: mcpServers.a.oauth.{key} {ending}" for key in ("authorizationUrl", "audience")
    )


@pytest.mark.requirement("settings.transport")
@pytest.mark.parametrize(
    ("entry", "others", "reason"),
    [
        ({"enabled": False}, {}, "It is disabled (mcpServers.s.enabled is false)."),
        ({"disabled": True}, {}, "It is disabled (mcpServers.s.enabled is false)."),
        ({}, {"excluded": ["s"]}, "It is in mcp.excluded."),
        ({}, {"allowed": []}, "It is not in mcp.allowed."),
    ],
)
def test_an_invalid_entry_that_is_switched_off_says_that_it_is_switched_off(
    file: Path, entry: dict[str, Any], others: dict[str, Any], reason: str
) -> None:
    report = load(file, {"mcpServers": {"s": {"command": 5, **entry}}, "mcp": others})
    (server,) = report.entries
    assert (server.left_out, server.is_switched_off) == (reason, True)
    assert [*server.problems] == [warning for warning in report.warnings if "mcpServers.s.command" in warning]
    assert len(server.problems) == 1


@pytest.mark.requirement("settings.transport")
def test_an_invalid_value_of_disabled_is_reported_under_the_name_that_the_file_uses(file: Path) -> None:
    report = load(file, {"mcpServers": {"s": {"command": "x", "disabled": "true"}}})
    assert dict(report.upstreams) == {}
    assert any("mcpServers.s.disabled must be true or false" in warning for warning in report.warnings)
