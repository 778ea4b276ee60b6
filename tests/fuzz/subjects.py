"""Subjects of fuzzing: parsers of untrusted bytes, each with checks that must hold for every input."""

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
from server.transports.stdio_server import _Wire  # pyright: ignore[reportPrivateUsage] - one connection per input
from tests.property.test_ignore_against_git import assert_the_same_with_and_without_re2
from tools.files.change.notebook_change import _insert_cell, _replace_source  # pyright: ignore[reportPrivateUsage] - pure
from tools.files.notebook_cells import NotANotebookError, Notebook, cell_finder, parse_notebook, render
from tools.permissions.command_text import read_command
from tools.permissions.permission_rules import Rule, literal_path, parse_rule, read_rules
from tools.permissions.verdict import Verdict

Check = Callable[[bytes], Hashable]
"""Fails if something does not hold. The result is the kind of the input; inputs of new kinds are kept for changes."""

CORPORA = Path(__file__).with_name("corpora")
MAX_BYTES = 4_000
MAX_REQUEST_BYTES = 2_000


class Subject(NamedTuple):
    """A parser to fuzz.

    Args:
        open_check: A context manager that yields the check and cleans up at the end.
        words: Words of the input language, which changes insert.
    """

    open_check: Callable[[], Any]
    words: tuple[bytes, ...]

    @property
    def corpus(self) -> list[Path]:
        """The stored inputs: a small one of each kind, and every one that has found a defect."""
        name = next(name for name, subject in SUBJECTS.items() if subject is self)
        return sorted((CORPORA / name).iterdir())


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().split())


@contextmanager
def _wire() -> Generator[Check]:
    """Send the lines to a whole server over a new connection. The server must still answer one more request."""
    with tempfile.TemporaryDirectory() as folder, start_blocking_portal() as portal:
        overrides = {"workspace": {"roots": [folder]}, "tools": {"include": ["read_file", "glob", "list_directory"]}}
        app = App(load_settings([], overrides, {"HOME": folder, "XDG_STATE_HOME": folder}), "stdio")
        with portal.wrap_async_context_manager(app.running()):
            yield lambda data: (_read_lines(data), portal.call(_serve, app, data))


def _read_lines(data: bytes) -> Hashable:
    """Check that lines do not depend on how the bytes arrive, and that messages survive being written and read."""
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
                messages = read_of_client(line, takes_batches=True) if is_of_client else read_message(line)
            except ValueError as error:
                kinds.append(type(error).__name__)
                continue
            for message in messages if isinstance(messages, list) else [messages]:
                if not re.search(r"\b(inf|nan)\b", repr(message)):  # JSON has no such numbers: they are sent as null
                    assert read_message(encoded(fields_of(message))) == message
                kinds.append(type(message).__name__)
    return tuple(sorted(set(kinds)))


async def _serve(app: App, data: bytes) -> Hashable:
    our_end, server_end = socket.socketpair()
    with our_end, server_end:
        our_end.setblocking(False)
        wire = _Wire(server_end.fileno(), server_end.fileno(), MAX_REQUEST_BYTES, lambda _tool: False)
        conversation = Conversation(app.table, wire.dispatcher)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wire.dispatcher.run, conversation.on_request, conversation.on_notify)
            wire.resume_reading()
            try:
                with anyio.fail_after(20):
                    return await _answers(our_end, data + b'\n{"jsonrpc":"2.0","id":"the last","method":"ping"}\n')
            finally:
                conversation.connection.close()
                wire.stop()
                tasks.cancel_scope.cancel()


async def _answers(our_end: socket.socket, data: bytes) -> Hashable:
    """Return the kinds of messages that arrive until the last request is answered."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(our_end, data)
    output = b""
    while b'"id":"the last"' not in output:
        chunk = await loop.sock_recv(our_end, 1 << 16)
        assert chunk, "the server closed the connection"
        output += chunk
    while not output.endswith(b"\n"):
        output += await loop.sock_recv(our_end, 1 << 16)
    kinds: set[str] = set()
    for line in output.splitlines():
        message = json.loads(line)
        if b"\\ud" not in line:  # a lone surrogate in an id is sent back, and not every parser accepts it
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
                report = load_settings([str(path)], {}, {"HOME": folder}, folder=folder)
                kinds: Hashable = tuple(sorted(map(_kind, report.warnings)))[:3]
            except SettingsError as error:
                kinds = _kind(str(error))[:80]
            return kinds, _check_edits(data), _check_toml_edits(data)

        yield check


def _kind(sentence: str) -> str:
    """Return a sentence without quoted values."""
    return re.sub(r"[^a-z ]+", "", re.sub(r"\S*[^\w\s,.]\S*|\d+", "", sentence))


def _check_edits(data: bytes) -> Hashable:
    """Check that adding a key and removing it again leaves the same settings and hardly any extra bytes."""
    try:
        tree = parse(data, "x")
        with_key = with_member(data, ("added", "here"), {"a": [1]})
        assert parse(with_key, "x") == {**tree, "added": {**tree.get("added", {}), "here": {"a": [1]}}}
        without_key = without_member(with_key, ("added", "here"))
        assert parse(without_key, "x") == {"added": {}, **tree}
        return len(without_key) - len(data) < 40
    except SettingsError as error:
        return _kind(str(error))[:80]


def _check_toml_edits(data: bytes) -> Hashable:
    try:
        tree = toml_tree(data, "x")
        with_key = with_table(data, ("added", "here"), {"a": "b"}, "x")
        assert toml_tree(with_key, "x") == {**tree, "added": {**tree.get("added", {}), "here": {"a": "b"}}}
        assert toml_tree(without_table(with_key, ("added", "here"), "x"), "x") in (tree, {"added": {}, **tree})
    except SettingsError as error:
        return _kind(str(error))[:80]
    return True


_PATHS = ("/w/a", "/w/a/b.key", "/w/.env", "/home/p/x", "/w/\udcff\n", "/")


@contextmanager
def _rules() -> Generator[Check]:
    yield lambda data: tuple(_one_rule(line) for line in islice(os.fsdecode(data).split("\n"), 6))


def _one_rule(text: str) -> Hashable:
    """Check that rules that deny are never dropped, that rules survive being read again, and that they match safely."""
    rules, warnings = read_rules({key: [text] for key in ("permissions.deny", "permissions.allow")}, str, "/home/p")
    assert len(rules.deny) == 1
    assert len(rules.allow) == (not any(warning.startswith("permissions.allow") for warning in warnings))
    kinds_of_rules = [_check_rule(rule, text) for rule in (*rules.deny, *rules.allow)]
    if (exact := literal_path(f"/w/{text}")) is not None:
        path = os.path.normpath(f"/w/{text}")
        if path == f"/w/{text}":
            with suppress(ValueError):
                rule = parse_rule(f"Read({exact})", Verdict.ALLOW, "x", str, "/home/p")
                assert rule.fits_path((path,), ("/w",))
                assert not rule.fits_path((f"{path}x",), ("/w",))
    read_command(text)
    return (*kinds_of_rules, *map(_kind, warnings))


def _check_rule(rule: Rule, text: str) -> Hashable:
    parsed_again = parse_rule(rule.text, rule.verdict, rule.source, str, "/home/p")
    assert (parsed_again.name, parsed_again.tools, str(parsed_again)) == (rule.name, rule.tools, str(rule))
    paths = tuple(rule.fits_path((path,), ("/w",)) for path in _PATHS)
    return rule.fits_command(text), rule.fits_host(text), rule.fits_agent(text), rule.names((text,)), paths


_NAMES = ["a", "b/a", "a/b/c.txt", ".env", "x y", "[a]", "a\\b", "*", "#x", "\u00e9", "\udcff", "a\nb", "A"]


@contextmanager
def _ignore_files() -> Generator[Check]:
    def check(data: bytes) -> Hashable:
        names = [*_NAMES, *(os.fsdecode(line).strip("/!\\ \r") or "a" for line in data.split(b"\n")[:6])]
        rules = assert_the_same_with_and_without_re2(data, names)
        hidden_flags = tuple(rules.hides(name, is_folder=True) for name in names[: len(_NAMES)] if name.isascii())
        return rules.odd_line is None, rules.is_cut, hidden_flags

    yield check


@contextmanager
def _notebooks() -> Generator[Check]:
    yield _notebook


def _notebook(data: bytes) -> Hashable:
    """Check that a changed cell leaves the others byte for byte, and that an added cell can be removed again."""
    text_of_cells = render(data)
    find = cell_finder(data)
    for line in range(1, min(data.count(b"\n"), 20) + 3):
        for byte in (None, 1, 50):
            find(line, byte)
    try:
        text = data.decode("utf-8-sig")
        notebook = parse_notebook(text)
    except (UnicodeDecodeError, NotANotebookError) as error:
        return text_of_cells is None, re.sub(r"[\d,']+", "", str(error))[-60:]
    assert all(item.parts.within(text) == text for item in notebook.lists)
    for number in range(min(len(notebook.cells), 3)):
        for kind in ("code", "markdown"):
            changed_notebook = parse_notebook(_replace_source(notebook, notebook.cells[number], "new\n", kind)[0])
            assert _raw(changed_notebook, leave_out=number) == _raw(notebook, leave_out=number)
        longer_notebook = parse_notebook(_insert_cell(parse_notebook(text), number, "new", "code", "")[0])
        assert _raw(longer_notebook, leave_out=number) == _raw(notebook)
        cell_list, index = longer_notebook.place_of(number)
        cell_list.parts.drop(cell_list.parts.parts[index])
        assert json.loads(cell_list.parts.within(longer_notebook.text)) == json.loads(text)
    return text_of_cells is None, notebook.major, notebook.has_ids, len(notebook.lists), len(notebook.cells)


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
    """Yield the subjects of these names one by one, each with its check."""
    for name in names:
        with SUBJECTS[name].open_check() as check:
            yield name, SUBJECTS[name], check
