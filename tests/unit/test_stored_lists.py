"""Lists of upstreams that are stored for the next run: their keys, their limits, and failures of the disk."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.app import App
from server.settings import load_settings
from server.settings.workspace_trust import digest, trust_file, trust_folder
from server.upstreams.catalog import stored_lists
from server.upstreams.catalog.stored_lists import FOLDER, MAX_DAYS, StoredLists, key_of
from tests.fork_server import forked
from tests.harness import LAUNCHER, PEERS, write_config
from tests.interaction.relay.clients import listing_entry
from tests.waiting import wait_until

Json = dict[str, Any]

ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
SECRET = "correct-horse-7"
STDIO: Json = {
    "command": "run",
    "args": ["-y", "server", "--root", "${ROOT}"],
    "env": {"API_KEY": "${SECRET}"},
    "headers": {},
}
REMOTE: Json = {"httpUrl": "https://${HOST}/mcp?key=${SECRET}", "headers": {"Authorization": "Bearer ${SECRET}"}}


def key_for(tmp_path: Path, entry: Json, **environ: str) -> str:
    config = write_config(tmp_path, {"mcpServers": {"up": entry}})
    variables = {"ROOT": "/r", "HOST": "h.example", "SECRET": SECRET, **environ}
    (settings,) = load_settings([str(config)], {}, variables).written.values()
    return key_of(settings)


@pytest.mark.requirement("catalogue.key")
@pytest.mark.parametrize(
    ("entry", "other_entry"),
    [
        (STDIO, STDIO | {"command": "walk"}),
        (STDIO, STDIO | {"args": [*STDIO["args"], "more"]}),
        (STDIO, STDIO | {"cwd": "/"}),
        (STDIO, STDIO | {"env": {"OTHER": "x"}}),
        (STDIO, STDIO | {"inheritEnv": ["HOME"]}),
        (REMOTE, REMOTE | {"httpUrl": "https://${HOST}/other"}),
        (REMOTE, REMOTE | {"headers": {"X-Other": "x"}}),
        (REMOTE, {"url": REMOTE["httpUrl"], "headers": REMOTE["headers"]}),
    ],
)
def test_entries_that_reach_different_servers_have_different_keys(
    entry: Json, other_entry: Json, tmp_path: Path
) -> None:
    assert key_for(tmp_path, entry) != key_for(tmp_path, other_entry)


@pytest.mark.requirement("catalogue.key")
def test_our_version_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_for(tmp_path, STDIO)
    monkeypatch.setattr(stored_lists, "our_name", lambda: {"version": "another"})
    assert key_for(tmp_path, STDIO) != before


@pytest.mark.requirement("catalogue.key")
@pytest.mark.parametrize(
    ("entry", "other_entry"),
    [
        (STDIO, STDIO | {"env": {"API_KEY": "another"}}),
        (STDIO | {"args": ["--token", "a1"]}, STDIO | {"args": ["--token", "b2"]}),
        (STDIO | {"args": ["--api-key=a1"]}, STDIO | {"args": ["--api-key=b2"]}),
        (STDIO | {"args": ["ghp_" + "a1" * 18]}, STDIO | {"args": ["ghp_" + "b2" * 18]}),
        (REMOTE, REMOTE | {"headers": {"authorization": "Basic x"}}),
        (REMOTE, REMOTE | {"oauth": {"clientId": "x", "clientSecret": "${SECRET}"}}),
        (REMOTE, REMOTE | {"httpUrl": "https://${HOST}/mcp?key=another"}),
        (REMOTE, REMOTE | {"httpUrl": "https://me:secret@${HOST}/mcp"}),
    ],
)
def test_no_secret_is_in_the_key(entry: Json, other_entry: Json, tmp_path: Path) -> None:
    assert key_for(tmp_path, entry) == key_for(tmp_path, other_entry)
    assert key_for(tmp_path, entry) == key_for(tmp_path, entry, SECRET="another", ROOT="/s", HOST="i.example")


async def write_list(store: StoredLists, key: str, *names: str, size: int = 0) -> None:
    tools = [{"name": name, "description": "d" * size, "inputSchema": {"type": "object"}} for name in names]
    await store.write(key, "2025-11-25", {"tools": tools})


@pytest.mark.anyio
@pytest.mark.requirement("catalogue.bounds")
async def test_the_oldest_lists_are_removed_if_there_are_too_many_or_they_are_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_lists, "MAX_TOTAL_BYTES", 35_000)
    store, folder = StoredLists(str(tmp_path)), tmp_path / FOLDER
    for number in range(5):
        await write_list(store, f"k{number}", "a", size=10_000)
        timestamp = time.time() - 100 + number
        os.utime(folder / f"k{number}.json", (timestamp, timestamp))
    assert sorted(await store.read(f"k{number}" for number in range(5))) == ["k2", "k3", "k4"]
    past = time.time() - (MAX_DAYS + 1) * 86_400
    os.utime(folder / "k4.json", (past, past))
    assert sorted(await store.read(["k3", "k4"])) == ["k3"]
    await write_list(store, "new", "a")
    assert sorted(file.name for file in folder.iterdir()) == ["k2.json", "k3.json", "new.json"]
    monkeypatch.setattr(stored_lists, "MAX_FILES", 2)
    await write_list(store, "newer", "a")
    assert sorted(file.name for file in folder.iterdir()) == ["new.json", "newer.json"]


@pytest.mark.anyio
@pytest.mark.requirement("catalogue.private")
async def test_two_servers_that_write_at_once_leave_only_complete_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "server.upstreams.catalog.stored_lists")
    store = StoredLists(str(tmp_path))
    first_letters: set[str] = set()
    scripts = [[str(PEERS / "list_writer.py"), str(tmp_path), name] for name in ("a", "b")]
    writers = [await anyio.open_process([sys.executable, *forked(script)]) for script in scripts]
    while any(writer.returncode is None for writer in writers):
        for last_run in (await store.read(["key"])).values():
            names = {str(tool["name"])[0] for tool in last_run.lists["tools"]}
            assert len(names) == 1, "the file mixes two lists"
            first_letters |= names
    assert [writer.returncode for writer in writers] == [0, 0]
    assert first_letters
    assert caplog.records == []
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == ["key.json"]


@contextmanager
def running_server(
    command: Sequence[str], environ: dict[str, str]
) -> Generator[tuple[subprocess.Popen[str], set[str]]]:
    """Start a server, and yield its process and the names of the tools that it lists."""
    requests: list[Json] = [
        {"id": 1, "method": "initialize", "params": ABOUT},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in requests)
        process.stdin.flush()
        while (answer := json.loads(process.stdout.readline())).get("id") != 2:
            pass
        yield process, {tool["name"] for tool in answer["result"]["tools"]}
        process.stdin.close()


@pytest.mark.skipif(os.name != "posix", reason="not run: the limit is one of POSIX shells")
@pytest.mark.requirement("catalogue.bounds")
def test_a_full_disk_prevents_only_the_storing_of_lists(tmp_path: Path) -> None:
    tools = [{"name": "find", "description": "d" * 5_000, "inputSchema": {"type": "object"}}]
    config = write_config(tmp_path, {"mcpServers": {"up": listing_entry("up", tools=tools)}})
    # No file may be larger than one block of a kilobyte.
    limited_command = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", sys.executable, "-P", str(LAUNCHER), "serve"]
    # Otherwise, Python would leave truncated bytecode files, which would break the next start.
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONDONTWRITEBYTECODE": "1"}
    with running_server([*limited_command, "--config", str(config)], environ) as (process, names):
        assert "up__find" in names
        assert process.stderr is not None
        line = ""
        while "cannot be stored for the next run" not in line:
            line = process.stderr.readline()
            assert line, "the server ended before it logged the failure"
    assert list((tmp_path / "state" / "coretools-mcp" / FOLDER).iterdir()) == []


@pytest.mark.anyio
@pytest.mark.requirement("catalogue.settings")
async def test_a_server_of_a_workspace_that_is_no_longer_trusted_is_not_listed(tmp_path: Path) -> None:
    project, home = tmp_path.resolve() / "project", tmp_path / "home"
    file = project / ".coretools" / "settings.json"
    file.parent.mkdir(parents=True)
    home.mkdir()
    file.write_text(json.dumps({"mcpServers": {"up": listing_entry("up")}}))
    environ = {"HOME": str(home), "XDG_STATE_HOME": str(tmp_path / "state")}
    store = trust_file(environ)
    assert store is not None
    trust_folder(store, str(project), {".coretools/settings.json": digest(file.read_bytes())})
    report = load_settings([], {}, environ, folder=str(project))
    assert report.state_folder is not None
    assert list(report.written) == ["up"]
    file.write_text(file.read_text() + " ")
    untrusted_report = load_settings([], {}, environ, folder=str(project))
    assert untrusted_report.written == {}
    assert App(untrusted_report, "stdio").pool.upstreams == []


@pytest.mark.requirement("catalogue.settings")
def test_commands_list_the_current_tools_and_not_the_stored_ones(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    entry = listing_entry("up", tools=[{"name": "find", "inputSchema": {"type": "object"}}], orders=str(flag))
    config = write_config(tmp_path, {"mcpServers": {"up": entry}, "tools": {"builtIn": False}})
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    flag.write_text("{}")

    def command(name: str) -> list[str]:
        return [sys.executable, *forked(["-P", str(LAUNCHER), name, "--config", str(config)])]

    def tools() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command("tools"), env=environ, capture_output=True, encoding="utf-8", timeout=100, check=False
        )

    assert "up__find" in tools().stdout
    folder = tmp_path / "state" / "coretools-mcp" / FOLDER
    assert not folder.exists(), "a command stored the lists"
    with running_server(command("serve"), environ) as (_, names):
        assert names == {"up__find"}
        wait_until(lambda: list(folder.glob("*.json")))
    flag.write_text(json.dumps({"ends": True}))
    result = tools()
    assert result.returncode == 1
    assert "up__find" not in result.stdout
