"""Names that are crafted to be mistaken for others: no two are sent, shown or reported alike."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mcp.client import Client
from pydantic import AnyUrl, FileUrl

from tests.hostile.every_tool import call
from tools.contract.display import visible
from tools.text.file_names import one_line, parse_quoted_path, sendable_name, shown_name, shown_whole_path

pytestmark = pytest.mark.anyio

QUOTED_TWINS = [
    b"caf\xe9.txt",
    b'"caf\\xe9.txt"',
    b'"\\"caf\\\\xe9.txt\\""',
    b'"plain.txt"',
    b"plain.txt",
    b'"',
    b'""',
]
"""Names that, except the first, look like the quoted form of another name or are in quotes themselves."""

INVISIBLE = [
    "\ufe00",
    "\ufe0e",
    "\ufe0f",
    "\u034f",
    "\u3164",
    "\u115f",
    "\u1160",
    "\u17b4",
    "\u180b",
    "\u180f",
    "\u200b",
    "\u2800",
    "\uffa0",
    "\U000e0100",
    "\U00016fe4",
    "\U0001d159",
]
"""Invisible characters, most of which count as printable."""


def make(root: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(root), name), "wb") as stream:
        stream.write(b"needle\n")


@pytest.mark.requirement("hostile.names_read")
async def test_a_name_that_looks_quoted_is_never_sent_like_a_quoted_name(root: Path, client: Client) -> None:
    for name in QUOTED_TWINS:
        make(root, name)
    paths = (await call(client, "glob", pattern="**/*")).structured["files"]
    entries = (await call(client, "list_directory", path=".")).structured["entries"]
    assert len(set(paths)) == len(QUOTED_TWINS)
    names = {entry["name"] for entry in entries}
    assert len(names) == len(QUOTED_TWINS)
    assert {os.fsencode(parse_quoted_path(name) or name) for name in names} == set(QUOTED_TWINS)
    assert {os.fsencode(os.path.basename(parse_quoted_path(path) or path)) for path in paths} == set(QUOTED_TWINS)


@pytest.mark.requirement("hostile.names_read")
@pytest.mark.parametrize("name", QUOTED_TWINS)
async def test_a_changed_file_is_reported_by_the_name_that_lists_send(name: bytes, root: Path, client: Client) -> None:
    make(root, name)
    (path,) = (await call(client, "glob", pattern="*")).structured["files"]
    answer = await call(client, "write_file", file_path=path, content="new\n")
    assert answer.structured["path"] == path
    assert (root / os.fsdecode(name)).read_text() == "new\n"
    assert (answer.result.meta or {})["coretools-mcp/display"]["fileName"] == os.path.basename(path)
    assert f"--- {shown_name(os.fsdecode(name))}\t" in answer.everything.replace("\\\\", "\\").replace("\\t", "\t")


@pytest.mark.requirement("hostile.names_read")
async def test_the_facts_of_a_resource_hold_the_name_that_lists_send(root: Path, client: Client) -> None:
    for name, content in ((b"caf\xe9.txt", b"text\n"), (b"caf\xe9.bin", b"\0\1\2")):
        make(root, name)
        path = root / os.fsdecode(name)
        path.write_bytes(content)
        result = await client.read_resource(str(AnyUrl(FileUrl(path.as_uri()))))
        facts = (result.contents[0].meta or {})["coretools-mcp/facts"]
        assert facts["path"] == f'{root}/"caf\\xe9.{name.decode("latin-1")[-3:]}"'


@pytest.mark.requirement("hostile.names")
@pytest.mark.parametrize("character", INVISIBLE)
def test_an_invisible_character_is_escaped_in_a_name_and_parsed_back(character: str) -> None:
    name = f"a{character}b.txt"
    for text in (shown_name(name), shown_whole_path(f"/folder/{name}")):
        assert character not in text
        assert f"{ord(character):x}" in text
    assert parse_quoted_path(shown_whole_path(f"/folder/{name}")) == f"/folder/{name}"


@pytest.mark.requirement("hostile.names")
@pytest.mark.parametrize("character", [character for character in INVISIBLE if character != "\ufe0f"])
def test_people_and_models_see_marks_for_the_same_characters(character: str) -> None:
    assert character not in visible(f"a{character}b")
    assert character not in one_line(f"a{character}b")


@pytest.mark.requirement("hostile.names")
def test_names_in_any_script_and_emoji_are_unchanged() -> None:
    for name in ("größe.txt", "файл", "ファイル", "क्षेत्र.md", "\U0001f600.png"):
        assert shown_name(name) == sendable_name(name) == one_line(name) == name
    # In prose, the selector of emoji is needed.
    assert one_line("\u2764\ufe0f") == visible("\u2764\ufe0f") == "\u2764\ufe0f"


@pytest.mark.requirement("hostile.names")
async def test_files_whose_names_look_alike_are_listed_apart_by_every_tool(root: Path, client: Client) -> None:
    for character in ("", *INVISIBLE):
        make(root, f"a{character}b.txt".encode())
    for tool, arguments in (
        ("list_directory", {"path": "."}),
        ("glob", {"pattern": "*"}),
        ("grep_search", {"pattern": "needle"}),
        ("read_many_files", {"paths": ["*"]}),
    ):
        text = (await call(client, tool, **arguments)).text
        assert not set(text) & set(INVISIBLE), tool
        assert sum(".txt" in line for line in text.split("\n")) == len(INVISIBLE) + 1, (tool, text)
