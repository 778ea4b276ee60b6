"""For each client and any of its files: install, install again, uninstall give back every byte."""

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
    """A file as people and programs write it: minified, on one line, or indented, with what its dialect allows."""
    unit = draw(st.sampled_from([None, "", "  ", "    ", "\t"]))
    has_comments = client.dialect != "json" and unit is not None and unit != ""
    has_commas = client.dialect == "jsonc" and draw(st.booleans())
    tree: dict[str, Any] = {"theme": "dark", "list": [1, {"a": None}]} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        tree[client.path[0]] = draw(SERVERS)
    if draw(st.booleans()):
        tree["last"] = draw(TEXTS)

    def remark() -> str:
        return draw(st.sampled_from(["", "", " // why", " /* a, b } */", ' // { "core": 1 }'])) if has_comments else ""

    def written(value: Any, depth: int) -> str:
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
            lines.append(f"{unit * (depth + 1)}{name}: {written(item, depth + 1)}{comma}{remark()}")
        if has_comments and draw(st.booleans()):
            lines.insert(draw(st.integers(0, len(lines))), f"{unit * (depth + 1)}// alone")
        return "{\n" + "\n".join(lines) + "\n" + unit * depth + "}"

    return written(tree, 0) + draw(st.sampled_from(["", "\n", "\n\n"]))


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
    """What a file holds; `None` where there is none."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, b"", b"\n"]))
    text = draw(toml_files() if client.dialect == "toml" else json_files(client))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    mark = draw(st.sampled_from([b"", b"", b"\xef\xbb\xbf"]))
    return mark + text.encode()


def there_and_back(key: str, content: bytes | None) -> None:
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
        before = target.servers(content)
        write_install(install_change(target, read_file(str(file)), entry, environ), {}, environ)
        installed = file.read_bytes()
        assert target.servers(installed) == {**before, "core": entry}
        again = install_change(target, read_file(str(file)), entry, environ)
        assert again.after == again.before
        # Another entry of ours in its place is taken back as well.
        other = entry_for(client, InstallOptions(key, workspaces=(folder, folder)), COMMAND, ["TAVILY_API_KEY"])
        write_install(install_change(target, read_file(str(file)), other, environ), {}, environ)
        write_uninstall(uninstall_change(target, read_file(str(file)), environ), environ)
        assert read_file(str(file)) == content
        assert file.parent.exists() == (content is not None)
        assert [each.name for each in (home / ".config/coretools-mcp/installs").iterdir()] == ["installs.json"]
        # By itself, without what is remembered, it leaves what the others are.
        target_of = target.servers(target.without_entry(installed, "core"))
        assert target_of == before


@pytest.mark.requirement("install.bytes")
@pytest.mark.parametrize("key", one_in(3, CLIENTS))
@settings(max_examples=25, database=None)
@given(st.data())
def test_install_repeat_and_uninstall_give_every_byte_back(key: str, data: st.DataObject) -> None:
    there_and_back(key, data.draw(contents(CLIENTS[key])))


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.requirement("install.bytes")
@pytest.mark.parametrize("key", CLIENTS)
@settings(max_examples=500, database=None)
@given(st.data())
def test_install_repeat_and_uninstall_give_every_byte_back_long(key: str, data: st.DataObject) -> None:
    there_and_back(key, data.draw(contents(CLIENTS[key])))


@pytest.mark.requirement("install.splice")
@examples(300, database=None)
@given(json_files(CLIENTS["vscode"]))
@example('{"servers": {"a": 1 /* , */ , }}')
@example('{"servers": {\n  "a": 1 /* two\n lines */\n}}')
def test_a_member_that_is_added_and_taken_out_leaves_the_text_as_it_was(text: str) -> None:
    content = text.encode()
    holder = CLIENTS["vscode"].path
    target = ConfigFile("vscode", CLIENTS["vscode"], "f", "core")
    before = target.servers(content)
    added = with_member(content, (*holder, "core"), {"command": "x"})
    assert target.servers(added) == {**before, "core": {"command": "x"}}
    removed = without_member(added, (*holder, "core"))
    if before:  # else a list without members has become one, of which the blanks are not known
        assert removed == content
    assert target.servers(removed) == before
    for name in before:
        assert target.servers(without_member(content, (*holder, name))) == {
            key: value for key, value in before.items() if key != name
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
def test_a_text_that_is_written_oddly_keeps_its_other_members_and_its_comments(text: str) -> None:
    text = text if text.count("{") == text.count("}") else text + "\n}"
    target = ConfigFile("vscode", CLIENTS["vscode"], "f", "core")
    before = target.servers(text.encode())
    added = target.with_entry(text.encode(), "core", {"command": "x"})
    assert target.servers(target.without_entry(added, "core")) == before
    for name in before:
        left = target.without_entry(added, name)
        assert target.servers(left) == {**{key: before[key] for key in before if key != name}, "core": {"command": "x"}}
        assert [left.count(mark) for mark in (b"// ", b"/* ")] == [text.count(mark) for mark in ("// ", "/* ")]


@pytest.mark.requirement("install.splice")
@examples(200, database=None)
@given(toml_files(), st.sampled_from(["\n", "\r\n"]))
def test_a_table_that_is_added_and_taken_out_leaves_the_text_as_it_was(text: str, newline: str) -> None:
    content = text.replace("\n", newline).encode()
    place = ("mcp_servers", "core")
    removed = without_table(with_table(content, place, {"command": "x"}, "f"), place, "f")
    # A last line without an end has got one.
    assert removed in (content, content + newline.encode())
