"""`config show` shows command lines and connection strings without their secrets."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from server.settings.settings_display import describe_entry, shown_difference, shown_value
from tests.tables import each_of
from tools.text.secrets import HIDDEN

ARGS = ("mcpServers", "docs", "args")


@pytest.mark.requirement("cli.config.show")
@each_of(
    ("words", "output"),
    [
        (["--pw", "hunter2"], ["--pw", HIDDEN]),
        (["--bearer", "hunter2"], ["--bearer", HIDDEN]),
        (["--token", "-hunter2"], ["--token", HIDDEN]),
        (["--token", "--Hunter2"], ["--token", HIDDEN]),
        (["--pwd", "hunter2"], ["--pwd", HIDDEN]),
        (["-u", "me:hunter2"], ["-u", f"me:{HIDDEN}"]),
        (["-u", "me:hunter2 hunter2"], ["-u", f"me:{HIDDEN}"]),
        (["-u", "me:hunter2'hunter2"], ["-u", HIDDEN]),
        (["-u", "me:hunter2\nhunter2"], ["-u", HIDDEN]),
        (["--user=me:hunter2"], [f"--user=me:{HIDDEN}"]),
        (["--header", "X-Foo: hunter2"], ["--header", f"X-Foo: {HIDDEN}"]),
        (["-H", "Authorization: Bearer hunter2"], ["-H", f"Authorization: {HIDDEN}"]),
        (["--header=X-Foo: hunter2"], [f"--header=X-Foo: {HIDDEN}"]),
        (["mysql", "-p", "hunter2"], ["mysql", "-p", HIDDEN]),
        (["me:hunter2@host"], [f"me:{HIDDEN}@host"]),
        (["--dsn", "Server=x;Pwd=hunter2;"], ["--dsn", HIDDEN]),
        (["--connect", "Server=x;Pwd=hunter2;"], ["--connect", f"Server=x;Pwd={HIDDEN};"]),
        (["-a", "API_KEY=hunter2", "-b"], ["-a", f"API_KEY={HIDDEN}", "-b"]),
        (["--key=hunter2", "plain", "--mode=slow"], [f"--key={HIDDEN}", "plain", "--mode=slow"]),
    ],
)
def test_a_word_is_judged_with_the_option_before_it(words: list[str], output: list[str]) -> None:
    assert shown_value(ARGS, words) == output


@pytest.mark.requirement("cli.config.show")
@pytest.mark.parametrize(
    "words",
    [
        ["--token", "$TOKEN", "--header", "X-Foo: ${KEY}", "-H", "no header at all"],
        ["--use-auth", "--mode", "slow", "-v", "--level", "2"],
        ["npx", "-y", "@scope/server@1.2.3", "--root", "/srv/data", "localhost:8080"],
        ["--env", "PWD=/srv/data", "-u", "me", "it's", "a -p b"],
    ],
)
def test_words_without_a_secret_stay_as_they_are(words: list[str]) -> None:
    assert shown_value(ARGS, words) == words


@pytest.mark.requirement("cli.config.show")
def test_variables_that_hold_passwords_are_known_by_their_names() -> None:
    variables: dict[str, Any] = {"MYSQL_PWD": "hunter2", "PGPASS": "hunter2", "X_PW": "hunter2", "PWD": "/srv"}
    hidden_variables = dict.fromkeys(("MYSQL_PWD", "PGPASS", "X_PW"), HIDDEN)
    assert shown_value(("shell", "env"), variables) == {**hidden_variables, "PWD": "/srv"}


@pytest.mark.requirement("login.settings")
def test_the_secrets_of_a_login_are_hidden_and_its_other_texts_are_not() -> None:
    login = {"clientId": "app", "clientSecret": "hunter2", "privateKey": "-----BEGIN\nx", "scopes": ["read"]}
    login_without_secrets = {**login, "clientSecret": HIDDEN, "privateKey": HIDDEN}
    assert shown_value(("mcpServers", "a", "oauth"), login) == login_without_secrets
    text = describe_entry({"url": "https://h/mcp", "oauth": login})
    assert '"clientId": "app"' in text
    assert "hunter2" not in text
    assert "BEGIN" not in text


@pytest.mark.requirement("cli.config.show")
def test_items_that_are_not_strings_are_shown_too() -> None:
    assert shown_value(("x",), [1, None, {"apiKey": "hunter2"}, ["--pw", "hunter2"]]) == [
        1,
        None,
        {"apiKey": HIDDEN},
        ["--pw", HIDDEN],
    ]


@pytest.mark.requirement("cli.config.edits.asked")
def test_a_change_is_shown_value_by_value_without_secrets() -> None:
    before: dict[str, Any] = {
        "since": date(2026, 1, 2),
        "mcpServers": {
            "kept": {"command": "x", "env": {"API_KEY": "hunter1"}},
            "changed": {"args": ["--token", "hunter2"], "env": {"PIN_PASSWORD": 12345678, "API_KEY": "$KEY"}},
        },
    }
    after: dict[str, Any] = {
        "mcpServers": {
            "kept": {"command": "x", "env": {"API_KEY": "hunter1"}},
            "changed": {"args": ["--token", "hunter3"], "env": {"PIN_PASSWORD": True, "API_KEY": "${KEY}"}},
            "a\nb": {"url": "https://me:hunter4@example.org/"},
        },
    }
    assert shown_difference("/f", before, after).splitlines() == [
        "--- /f",
        "+++ /f",
        '-since = "2026-01-02"',
        f'-mcpServers.changed.args = ["--token", "{HIDDEN}"]',
        f'+mcpServers.changed.args = ["--token", "{HIDDEN}"]',
        f"-mcpServers.changed.env.PIN_PASSWORD = {HIDDEN}",
        f"+mcpServers.changed.env.PIN_PASSWORD = {HIDDEN}",
        '-mcpServers.changed.env.API_KEY = "$KEY"',
        '+mcpServers.changed.env.API_KEY = "${KEY}"',
        f'+mcpServers."a\\nb".url = "https://{HIDDEN}@example.org/"',
    ]


@pytest.mark.requirement("cli.config.edits.asked")
def test_a_change_says_whether_there_is_a_file_and_whether_any_value_changes() -> None:
    assert shown_difference("/f", None, {"a": {}}).splitlines() == ["--- /dev/null", "+++ /f", "+a = {}"]
    assert shown_difference("/f", {"a": {}}, None).splitlines() == ["--- /f", "+++ /dev/null", "-a = {}"]
    assert shown_difference("/f", {"a": 1}, {"a": 1.0}).splitlines()[2:] == ["-a = 1", "+a = 1.0"]
    assert shown_difference("/f", {"a": 1}, {"a": 1}).splitlines()[2:] == ["(only comments or layout)"]


@pytest.mark.requirement("cli.config.edits.asked")
def test_a_change_shows_no_secret_in_a_list_in_headers_or_in_a_key() -> None:
    after: dict[str, Any] = {
        "tokens": ["hunter1", "$TOKEN"],
        "http_headers": {"X-One": "hunter2"},
        "headers": [{"name": "X-Two", "value": "hunter3"}],
        "https://me:hunter4@example.org/": "a",
        "API_KEY=hunter5": {"b": "c"},
    }
    lines = shown_difference("/f", None, after).splitlines()[2:]
    assert lines[:2] == [f'+tokens = ["{HIDDEN}", "$TOKEN"]', f'+http_headers.X-One = "{HIDDEN}"']
    assert lines[3:] == [f'+https://{HIDDEN}@example.org/ = "a"', f'+API_KEY={HIDDEN}.b = "c"']
    assert not any("hunter" in line for line in lines)
