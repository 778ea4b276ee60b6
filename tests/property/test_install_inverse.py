"""For each client and any of its settings files: installing twice and uninstalling restores every byte."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.console.client_config_file import (
    ConfigFile,
    install_change,
    uninstall_change,
    write_install,
    write_uninstall,
)
from server.console.install_commands import InstallOptions, entry_for
from server.console.known_clients import ClientConfig, client_configs
from server.console.user_files import read_file
from server.settings.document_editor import with_member, with_table, without_member, without_table
from tests.examples import examples
from tests.variants import one_in

CLIENTS = client_configs({"HOME": "/home/someone"}, "linux")
COMMAND = ["/home/someone/.local/bin/coretools-mcp"]
TEXTS = st.sampled_from(
    ["npx", "C:\\tools\\x.exe", "${HOME}", "// no comment", "/* nor */ this", "é,\u2028]", '"q"', "a,}"]
)


def entry_of(command: str, args: list[str]) -> dict[str, Any]:
    return {"command": command, **({"args": args} if args else {})}


ENTRIES = st.builds(entry_of, TEXTS, st.lists(TEXTS, max_size=2))
SERVERS = st.dictionaries(st.sampled_from(["docs", "my files", "a.b", "ключ"]), ENTRIES, max_size=3)


@st.composite
def json_files(draw: st.DrawFn, client: ClientConfig) -> str:
    """Generate a settings file: minified, on one line or indented, perhaps with comments and trailing commas."""
    unit = draw(st.sampled_from([None, "", "  ", "    ", "\t"]))
    has_comments = client.dialect != "json" and unit is not None and unit != ""
    has_commas = client.dialect == "jsonc" and draw(st.booleans())
    tree: dict[str, Any] = {"theme": "dark", "list": [1, {"a": None}]} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        tree[client.path[0]] = draw(SERVERS)
    if draw(st.booleans()):
        tree["last"] = draw(TEXTS)

    def comment() -> str:
        return draw(st.sampled_from(["", "", " // why", " /* a, b } */", ' // { "core": 1 }'])) if has_comments else ""

    def formatted(value: Any, depth: int) -> str:
        if unit is None:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        if not isinstance(value, dict) or unit == "":
            return json.dumps(value, ensure_ascii=False)
        if not value:
            return draw(st.sampled_from(["{}", "{ }", "{\n" + unit * depth + "}"]))
        lines: list[str] = []
        members: list[tuple[str, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType]
        for number, (key, item) in enumerate(members):
            comma = "," if number + 1 < len(members) or has_commas else ""
            name = json.dumps(key, ensure_ascii=False)
            lines.append(f"{unit * (depth + 1)}{name}: {formatted(item, depth + 1)}{comma}{comment()}")
        if has_comments and draw(st.booleans()):
            lines.insert(draw(st.integers(0, len(lines))), f"{unit * (depth + 1)}// alone")
        return "{\n" + "\n".join(lines) + "\n" + unit * depth + "}"

    return formatted(tree, 0) + draw(st.sampled_from(["", "\n", "\n\n"]))


@st.composite
def toml_files(draw: st.DrawFn) -> str:
    tables = draw(st.lists(st.sampled_from(TABLES), unique=True, max_size=4))
    return draw(st.sampled_from(["", "# mine\n", 'model = "x" # c\n'])) + "\n".join(tables)


TABLES = (
    '[mcp_servers.docs]\ncommand = "npx"\nargs = [\n  "a", # one\n  "b",\n]\n',
    '[mcp_servers.docs.env]\nA = "1"\n',
    '[tui]\ntheme = """\n[mcp_servers.core]\ncommand = "decoy"\n"""\n',
    '# about it\n[mcp_servers."with.dot"]\nurl = "https://example.org/mcp"',
    "[[profiles]]\nname = 'x'\n\n\n",
    "[mcp_servers]\n",
)


@st.composite
def contents(draw: st.DrawFn, client: ClientConfig) -> bytes | None:
    """Generate the content of a file, or `None` for a missing file."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, b"", b"\n"]))
    text = draw(toml_files() if client.dialect == "toml" else json_files(client))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    mark = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    return mark + text.encode()


def check_round_trip(key: str, content: bytes | None) -> None:
    client = CLIENTS[key]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        environ = {"HOME": str(home)}
        file = home / "client" / "config"
        if content is not None:
            file.parent.mkdir()
            file.write_bytes(content)
        target = ConfigFile(key, client, str(file), "core")
        options = InstallOptions(key, workspaces=(folder,))
        entry = entry_for(client, options, COMMAND, ["TAVILY_API_KEY"])
        servers = target.servers(content)
        write_install(install_change(target, read_file(str(file)), entry, environ), {}, environ)
        installed_content = file.read_bytes()
        assert target.servers(installed_content) == {**servers, "core": entry}
        second_change = install_change(target, read_file(str(file)), entry, environ)
        assert second_change.after == second_change.before
        # Uninstalling also restores the file after the entry was replaced by another one.
        other_entry = entry_for(client, InstallOptions(key, workspaces=(folder, folder)), COMMAND, ["TAVILY_API_KEY"])
        write_install(install_change(target, read_file(str(file)), other_entry, environ), {}, environ)
        write_uninstall(uninstall_change(target, read_file(str(file)), environ), environ)
        assert read_file(str(file)) == content
        assert file.parent.exists() == (content is not None)
        assert [path.name for path in (home / ".config/coretools-mcp/installs").iterdir()] == ["installs.json"]
        # Without the stored original, removing the entry leaves the other servers unchanged.
        remaining_servers = target.servers(target.without_entry(installed_content, "core"))
        assert remaining_servers == servers


@pytest.mark.requirement("install.bytes")
@pytest.mark.parametrize("key", one_in(3, CLIENTS))
@settings(max_examples=25, database=None)
@given(st.data())
def test_installing_twice_and_uninstalling_restores_every_byte(key: str, data: st.DataObject) -> None:
    check_round_trip(key, data.draw(contents(CLIENTS[key])))


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.requirement("install.bytes")
@pytest.mark.parametrize("key", CLIENTS)
@settings(max_examples=500, database=None)
@given(st.data())
def test_installing_twice_and_uninstalling_restores_every_byte_long(key: str, data: st.DataObject) -> None:
    check_round_trip(key, data.draw(contents(CLIENTS[key])))


@pytest.mark.requirement("install.splice")
@examples(300, database=None)
@given(json_files(CLIENTS["vscode"]))
@example('{"servers": {"a": 1 /* , */ , }}')
@example('{"servers": {\n  "a": 1 /* two\n lines */\n}}')
def test_adding_and_removing_a_member_leaves_the_text_as_it_was(text: str) -> None:
    content = text.encode()
    section = CLIENTS["vscode"].path
    target = ConfigFile("vscode", CLIENTS["vscode"], "f", "core")
    servers = target.servers(content)
    with_core = with_member(content, (*section, "core"), {"command": "x"})
    assert target.servers(with_core) == {**servers, "core": {"command": "x"}}
    without_core = without_member(with_core, (*section, "core"))
    if servers:  # the white space in a section without members is not restored
        assert without_core == content
    assert target.servers(without_core) == servers
    for name in servers:
        assert target.servers(without_member(content, (*section, name))) == {
            key: value for key, value in servers.items() if key != name
        }


@pytest.mark.requirement("install.splice")
@pytest.mark.parametrize(
    "text",
    [
        '{"servers": {\n  "a": 1 // c\n  , }}',
        '{"servers":\n{"a": 1,\n\n // c\n "b": 2}}',
        '{"servers": { // c\n "a": 1, "b": 2 /* e */ , /* f */ "c": {} }}',
        '{\n  "servers": {\n    // c\n    "a": 1, "b": 2\n  } // d',
        '{"servers": {\r"a": 1,\r"b": 2\r}}',
    ],
)
def test_an_oddly_formatted_text_keeps_its_other_members_and_its_comments(text: str) -> None:
    text = text if text.count("{") == text.count("}") else text + "\n}"
    target = ConfigFile("vscode", CLIENTS["vscode"], "f", "core")
    servers = target.servers(text.encode())
    with_core = target.with_entry(text.encode(), "core", {"command": "x"})
    assert target.servers(target.without_entry(with_core, "core")) == servers
    for name in servers:
        remaining = target.without_entry(with_core, name)
        assert target.servers(remaining) == {
            **{key: servers[key] for key in servers if key != name},
            "core": {"command": "x"},
        }
        assert [remaining.count(mark) for mark in (b"// ", b"/* ")] == [text.count(mark) for mark in ("// ", "/* ")]


@pytest.mark.requirement("install.splice")
@examples(200, database=None)
@given(toml_files(), st.sampled_from(["\n", "\r\n"]))
def test_adding_and_removing_a_table_leaves_the_text_as_it_was(text: str, newline: str) -> None:
    content = text.replace("\n", newline).encode()
    section = ("mcp_servers", "core")
    result = without_table(with_table(content, section, {"command": "x"}, "f"), section, "f")
    # A last line without a line ending has got one.
    assert result in (content, content + newline.encode())
