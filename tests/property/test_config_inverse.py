"""For any settings file: adding and removing a server, or disabling and enabling one, restores every byte."""

from __future__ import annotations

import io
import json
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.console.config_commands import EditOptions, add, change_server
from server.settings.settings_files import parse
from tests.examples import examples

NAMES = st.sampled_from(["docs", "my files", "a.b", "ключ"])
ARGS = st.lists(st.sampled_from(["-y", "// no comment", "/* nor */ this", "é,\u2028]", '"q"', "a,}"]), max_size=2)
SERVERS = st.dictionaries(NAMES, st.fixed_dictionaries({"command": st.just("npx"), "args": ARGS}), min_size=1)


@st.composite
def settings_files(draw: st.DrawFn) -> str:
    """Generate a settings file, on one line or indented, perhaps with comments and other keys."""
    tree: dict[str, Any] = {"media": "notice"} if draw(st.booleans()) else {}
    tree["mcpServers"] = draw(SERVERS)
    if draw(st.booleans()):
        tree["approvalMode"] = "plan"
    indent = draw(st.sampled_from([None, "  ", "    ", "\t"]))
    text = json.dumps(tree, indent=indent, ensure_ascii=draw(st.booleans()))
    if indent is not None and draw(st.booleans()):
        text = "\n".join(f"{line} // {{ why }}" if line.endswith(("{", "},")) else line for line in text.split("\n"))
    text = text + draw(st.sampled_from(["", "\n", "\n// the end\n"]))
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@pytest.mark.requirement("cli.config.edits.bytes")
@examples(60, database=None)
@given(settings_files(), st.data())
def test_adding_and_removing_or_disabling_and_enabling_a_server_restores_every_byte(
    text: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        file = Path(folder).resolve() / "settings.json"
        file.write_bytes(text.encode())
        original = parse(file.read_bytes(), "before")
        environ, options = {"HOME": folder}, EditOptions(str(file), is_sure=True)
        entry = {"command": "x", "args": data.draw(ARGS)}
        assert add("new", dict(entry), options, environ, replaces=False, connects=False) == 0
        servers = {**original["mcpServers"], "new": entry}
        assert parse(file.read_bytes(), "after") == {**original, "mcpServers": servers}
        assert change_server("remove", "new", options, environ) == 0
        assert file.read_bytes() == text.encode()
        name = data.draw(st.sampled_from(sorted(original["mcpServers"])))
        assert change_server("disable", name, options, environ) == 0
        assert parse(file.read_bytes(), "disabled")["mcpServers"][name]["enabled"] is False
        assert change_server("enable", name, options, environ) == 0
        assert file.read_bytes() == text.encode()
