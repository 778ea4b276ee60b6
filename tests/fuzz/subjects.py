"""What is fuzzed: readers of bytes that anybody may have written, each with what has to hold whatever they are."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import tempfile
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from anyio.from_thread import start_blocking_portal
from mcp_types import jsonrpc_message_adapter

from server.app import App
from server.protocol.json_rpc import encoded, fields_of, read_message, read_of_client
from server.settings import SettingsError, load_settings
from server.settings.document_editor import toml_tree, with_member, with_table, without_member, without_table
from server.settings.settings_files import parse
from server.transports.dispatcher import Conversation
from server.transports.json_lines import LineSplitter
from server.transports.stdio_server import _Wire  # pyright: ignore[reportPrivateUsage] - a wire for each input
from tests.property.test_ignore_against_git import assert_the_same_with_and_without_re2
from tools.files.change.notebook_change import _insert_cell, _replace_source  # pyright: ignore[reportPrivateUsage] - pure
from tools.files.notebook_cells import NotANotebookError, Notebook, cell_finder, parse_notebook, render
from tools.permissions.command_text import read_command
from tools.permissions.permission_rules import Rule, literal_path, parse_rule, read_rules
from tools.permissions.verdict import Verdict

Check = Callable[[bytes], Hashable]
"""Fails where something does not hold. What comes back tells kinds of inputs apart: a new one is worth more changes."""

CORPORA = Path(__file__).with_name("corpora")
MAX_BYTES = 4_000
MAX_REQUEST_BYTES = 2_000


class Subject(NamedTuple):
    """Something that is fuzzed.

    Args:
        prepared: Gives the check, and takes away what it needed.
        words: Of its language, put in by changes.
    """

    prepared: Callable[[], Any]
    words: tuple[bytes, ...]

    @property
    def corpus(self) -> list[Path]:
        """Inputs that are kept: of each kind a small one, and every one that has found a defect."""
        name = next(name for name, subject in SUBJECTS.items() if subject is self)
        return sorted((CORPORA / name).iterdir())


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().split())


@contextmanager
def _wire() -> Generator[Check]:
    """A whole server, which is given the lines over a pipe of its own; then it has to answer one request more."""
    with tempfile.TemporaryDirectory() as folder, start_blocking_portal() as portal:
        overrides = {"workspace": {"roots": [folder]}, "tools": {"include": ["read_file", "glob", "list_directory"]}}
        app = App(load_settings([], overrides, {"HOME": folder, "XDG_STATE_HOME": folder}), "stdio")
        with portal.wrap_async_context_manager(app.running()):
            yield lambda data: (_read_lines(data), portal.call(_served, app, data))


def _read_lines(data: bytes) -> Hashable:
    """However the bytes arrive, the lines are the same; what is read of one is the same when it is written and read."""
    whole, pieces = LineSplitter(MAX_REQUEST_BYTES), LineSplitter(MAX_REQUEST_BYTES)
    lines = [bytes(line) for line in whole.feed(data + b"\n")]
    size = len(data) % 7 + 1
    assert lines == [
        bytes(line) for at in range(0, len(data) + 1, size) for line in pieces.feed((data + b"\n")[at : at + size])
    ]
    assert len(whole.oversized) == len(pieces.oversized)
    kinds: list[str] = []
    for line in lines:
        for is_of_client in (True, False):
            try:
                found = read_of_client(line, takes_batches=True) if is_of_client else read_message(line)
            except ValueError as error:
                kinds.append(type(error).__name__)
                continue
            for message in found if isinstance(found, list) else [found]:
                if b"NaN" not in line and b"Infinity" not in line:
                    assert read_message(encoded(fields_of(message))) == message
                kinds.append(type(message).__name__)
    return tuple(sorted(set(kinds)))


async def _served(app: App, data: bytes) -> Hashable:
    ours, its = socket.socketpair()
    with ours, its:
        ours.setblocking(False)
        wire = _Wire(its.fileno(), its.fileno(), MAX_REQUEST_BYTES, lambda _tool: False)
        conversation = Conversation(app.table, wire.dispatcher)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.dispatcher.run, conversation.on_request, conversation.on_notify)
            wire.resume_reading()
            try:
                with anyio.fail_after(20):
                    return await _answers(ours, data + b'\n{"jsonrpc":"2.0","id":"the last","method":"ping"}\n')
            finally:
                conversation.connection.close()
                wire.stop()
                tasks.cancel_scope.cancel()


async def _answers(ours: socket.socket, data: bytes) -> Hashable:
    """The kinds of messages that come until the last request is answered."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(ours, data)
    heard = b""
    while b'"id":"the last"' not in heard:
        chunk = await loop.sock_recv(ours, 1 << 16)
        assert chunk, "the wire was closed"
        heard += chunk
    while not heard.endswith(b"\n"):
        heard += await loop.sock_recv(ours, 1 << 16)
    kinds: set[str] = set()
    for line in heard.splitlines():
        message = json.loads(line)
        if b"\\ud" not in line:  # an id that is half a character comes back as it is, which not every parser takes
            jsonrpc_message_adapter.validate_json(line, by_name=False)
        kinds.add(str(message.get("error", message).get("code", message.get("method", ""))))
    return tuple(sorted(kinds))


@contextmanager
def _settings() -> Generator[Check]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"

        def check(data: bytes) -> Hashable:
            path.write_bytes(data)
            try:
                loaded = load_settings([str(path)], {}, {"HOME": folder}, folder=folder)
                said: Hashable = tuple(sorted(map(_kind, loaded.warnings)))[:3]
            except SettingsError as error:
                said = _kind(str(error))[:80]
            return said, _edited(data), _edited_toml(data)

        yield check


def _kind(sentence: str) -> str:
    """A sentence without what it quotes."""
    return re.sub(r"[^a-z ]+", "", re.sub(r"\S*[^\w\s,.]\S*|\d+", "", sentence))


def _edited(data: bytes) -> Hashable:
    """A key that is put in and taken out again leaves the same settings, and every byte where something stood."""
    try:
        tree = parse(data, "x")
        added = with_member(data, ("added", "here"), {"a": [1]})
        assert parse(added, "x") == {**tree, "added": {**tree.get("added", {}), "here": {"a": [1]}}}
        again = without_member(added, ("added", "here"))
        assert parse(again, "x") == {"added": {}, **tree}
        return len(again) - len(data) < 40
    except SettingsError as error:
        return _kind(str(error))[:80]


def _edited_toml(data: bytes) -> Hashable:
    try:
        tree = toml_tree(data, "x")
        added = with_table(data, ("added", "here"), {"a": "b"}, "x")
        assert toml_tree(added, "x") == {**tree, "added": {**tree.get("added", {}), "here": {"a": "b"}}}
        assert toml_tree(without_table(added, ("added", "here"), "x"), "x") in (tree, {"added": {}, **tree})
    except SettingsError as error:
        return _kind(str(error))[:80]
    return True


_PATHS = ("/w/a", "/w/a/b.key", "/w/.env", "/home/p/x", "/w/\udcff\n", "/")


@contextmanager
def _rules() -> Generator[Check]:
    yield lambda data: tuple(_one_rule(line) for line in islice(os.fsdecode(data).split("\n"), 6))


def _one_rule(text: str) -> Hashable:
    """What forbids is never dropped; a rule is the same when it is read again; no command or path breaks it."""
    rules, warnings = read_rules({key: [text] for key in ("permissions.deny", "permissions.allow")}, str, "/home/p")
    assert len(rules.deny) == 1
    assert len(rules.allow) == (not any(warning.startswith("permissions.allow") for warning in warnings))
    found = [_asked_of(rule, text) for rule in (*rules.deny, *rules.allow)]
    if (exact := literal_path(f"/w/{text}")) is not None:
        path = os.path.normpath(f"/w/{text}")
        if path == f"/w/{text}":
            with suppress(ValueError):
                rule = parse_rule(f"Read({exact})", Verdict.ALLOW, "x", str, "/home/p")
                assert rule.fits_path((path,), ("/w",))
                assert not rule.fits_path((f"{path}x",), ("/w",))
    read_command(text)
    return (*found, *map(_kind, warnings))


def _asked_of(rule: Rule, text: str) -> Hashable:
    again = parse_rule(rule.text, rule.verdict, rule.source, str, "/home/p")
    assert (again.name, again.tools, str(again)) == (rule.name, rule.tools, str(rule))
    paths = tuple(rule.fits_path((path,), ("/w",)) for path in _PATHS)
    return rule.fits_command(text), rule.fits_host(text), rule.fits_agent(text), rule.names((text,)), paths


_NAMES = ["a", "b/a", "a/b/c.txt", ".env", "x y", "[a]", "a\\b", "*", "#x", "\u00e9", "\udcff", "a\nb", "A"]


@contextmanager
def _ignore_files() -> Generator[Check]:
    def check(data: bytes) -> Hashable:
        names = [*_NAMES, *(os.fsdecode(line).strip("/!\\ \r") or "a" for line in data.split(b"\n")[:6])]
        rules = assert_the_same_with_and_without_re2(data, names)
        hidden = tuple(rules.hides(name, is_folder=True) for name in names[: len(_NAMES)] if name.isascii())
        return rules.odd_line is None, rules.is_cut, hidden

    yield check


@contextmanager
def _notebooks() -> Generator[Check]:
    yield _notebook


def _notebook(data: bytes) -> Hashable:
    """Cells that are changed leave the others byte by byte; one that is put in and taken out leaves all."""
    shown = render(data)
    find = cell_finder(data)
    for line in range(1, min(data.count(b"\n"), 20) + 3):
        for byte in (None, 1, 50):
            find(line, byte)
    try:
        text = data.decode("utf-8-sig")
        notebook = parse_notebook(text)
    except (UnicodeDecodeError, NotANotebookError) as error:
        return shown is None, re.sub(r"[\d,']+", "", str(error))[-60:]
    assert all(each.parts.within(text) == text for each in notebook.lists)
    for number in range(min(len(notebook.cells), 3)):
        for kind in ("code", "markdown"):
            changed = parse_notebook(_replace_source(notebook, notebook.cells[number], "new\n", kind)[0])
            assert _raw(changed, leave_out=number) == _raw(notebook, leave_out=number)
        added = parse_notebook(_insert_cell(parse_notebook(text), number, "new", "code", "")[0])
        assert _raw(added, leave_out=number) == _raw(notebook)
        where, at = added.place_of(number)
        where.parts.drop(where.parts.parts[at])
        assert json.loads(where.parts.within(added.text)) == json.loads(text)
    return shown is None, notebook.major, notebook.has_ids, len(notebook.lists), len(notebook.cells)


def _raw(notebook: Notebook, leave_out: int = -1) -> list[str]:
    return [part.raw for number, part in enumerate(notebook.cells) if number != leave_out]


SUBJECTS = {
    "wire": Subject(
        _wire,
        _words(
            '"jsonrpc":"2.0" "id":1 "id":null "id":1.5 "id":"a" "method":"ping" "method":"tools/list" "params":{} '
            '"method":"initialize" "method":"notifications/cancelled" "requestId":1 "method":"tools/call" "_meta":{} '
            '"name":"glob" "arguments":{} "protocolVersion":"2025-03-26" "result":{} "error":{} "progressToken":1 '
            '"cursor":"x" "method":"resources/read" "uri":"file:///a" "method":"completion/complete" "2026-07-28"'
        ),
    ),
    "settings": Subject(
        _settings,
        _words(
            '"mcpServers" "command" "args" "url" "env" "permissions" "allow" "deny" "Bash(x)" "tools" "include" // '
            '"limits" "http" "workspace" "roots" "enabled" "$HOME" "${X:-y}" "~/a" /* */ [added] [added.here] a=1 """ '
            '"added":{} "sandbox" "proxy" "approvalMode"'
        ),
    ),
    "rules": Subject(
        _rules,
        (
            *_words(
                "Read( Edit( Bash( WebFetch( domain: mcp__ mcp__a__b * ** // ~/ ./ [a-z] [!a] \\* ) ( : && $( ` <<A"
            ),
            *(b"Task(", b" ", b":*)", b"\n"),
        ),
    ),
    "ignore_files": Subject(
        _ignore_files, (*_words("** * ? [a-z] [!a] [^ ] [[:alpha:]] \\ ! # / //"), b"\\ ", b"\r", b"\n", b"\xff\xfe")
    ),
    "notebooks": Subject(
        _notebooks,
        _words(
            '"cells":[ "cell_type":"code" "cell_type":"markdown" "source":"a" "source":["a\\n"] "id":"x" "outputs":[] '
            '"outputs":[{"output_type":"stream","text":"x"}] "worksheets":[{"cells":[]}] "nbformat":4 "input":"a" '
            '"nbformat_minor":5 "execution_count":1 "metadata":{} "prompt_number":3 "language":"r" {} []'
        ),
    ),
}


def checks(names: list[str]) -> Iterator[tuple[str, Subject, Check]]:
    """The subjects of these names, one by one, each ready to be checked."""
    for name in names:
        with SUBJECTS[name].prepared() as check:
            yield name, SUBJECTS[name], check
