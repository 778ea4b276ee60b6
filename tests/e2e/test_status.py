"""`status` and `logs`: the user can ask running servers, and nobody else can."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.abc import SocketStream
from mcp.client.stdio import StdioServerParameters, stdio_client

from server.administration.log import HISTORY_LINES, LogHistory
from server.dashboard import control_socket
from server.settings.settings_files import runtime_folders
from tests.background_servers import background_server
from tests.fork_server import forked
from tests.harness import (
    HANDSHAKE,
    MODERN,
    command_line,
    server_arguments,
    speaking,
    stdio_upstream,
    write_config,
)
from tests.running_servers import STALE_SOCKET, ask, runtime_folder, served, sockets, status_of
from tests.tables import all_cases
from tests.waiting import pause, until

pytestmark = pytest.mark.anyio

if sys.platform == "win32":
    pytest.skip("not run: there is no control socket on Windows", allow_module_level=True)


@pytest.fixture
def runtime() -> Generator[Path]:
    with runtime_folder() as folder:
        yield folder


@pytest.mark.requirement("cli.status")
@pytest.mark.parametrize("revision", [HANDSHAKE, MODERN])
async def test_status_shows_clients_with_their_folders_and_upstreams_with_their_states(
    runtime: Path, tmp_path: Path, revision: str
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    upstreams = {"good": stdio_upstream(), "bad": {"command": "there-is-no-such-command"}}
    async with served(runtime, root, revision=revision, settings={"mcpServers": upstreams}):
        listing = await ask(runtime, "status", "--json")
        server = next(upstream for upstream in json.loads(listing.stdout) if str(root) in str(upstream["clients"]))
        (client,) = server["clients"]
        assert client["name"] == "a-client-with-a-dialog 1"
        assert client["folders"] == [str(root)]
        assert {upstream["alias"]: (upstream["state"], upstream["tools"]) for upstream in server["servers"]} == {
            "good": ("connected", 10),
            "bad": ("failed", 0),
        }
        text_listing = await ask(runtime, "status")
        assert text_listing.returncode == 0
        assert f"client: a-client-with-a-dialog 1 ({server['clients'][0]['protocolVersion']})" in text_listing.stdout
        assert "its command was not found" in text_listing.stdout


@pytest.mark.requirement("cli.logs")
async def test_logs_shows_the_server_of_the_folder_or_only_the_named_upstream(runtime: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "one", tmp_path / "b" / "other"  # each with its own settings file
    first.mkdir(parents=True)
    second.mkdir(parents=True)
    talkative = {
        "command": sys.executable,
        "args": ["-c", "import sys; print('token=ghp_' + 'a' * 36, file=sys.stderr)"],
    }
    settings: dict[str, object] = {
        "mcpServers": {"speaks": talkative, "absent": {"command": "there-is-no-such-command"}}
    }
    async with served(runtime, first, settings=settings), served(runtime, second):
        everything = await ask(runtime, "logs", cwd=first)
        assert "upstream absent is not available" in everything.stdout
        one_upstream = await ask(runtime, "logs", "speaks", cwd=first)
        assert "upstream speaks: token=" in one_upstream.stdout
        assert "ghp_" not in one_upstream.stdout
        assert "absent" not in one_upstream.stdout
        nothing = await ask(runtime, "logs", cwd=second)
        assert nothing.stdout == ""
        assert "nothing has been logged so far (log.level is warning)" in nothing.stderr
        unknown = await ask(runtime, "logs", "speak", cwd=first)
        assert unknown.returncode == 2
        assert "It has speaks, absent." in unknown.stderr
        several = await ask(runtime, "logs", cwd=runtime)
        assert several.returncode == 2
        assert several.stderr.count("--pid") >= 2


@pytest.mark.requirement("cli.which-server")
async def test_servers_are_named_by_their_workspaces_even_without_a_client(runtime: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "one", tmp_path / "b" / "other"
    first.mkdir(parents=True)
    second.mkdir(parents=True)
    serve = command_line("--transport", "http", "--port", "0", "--workspace", str(first))
    with background_server(["env", f"XDG_RUNTIME_DIR={runtime}", *serve], r"(http://\S+)"):
        async with served(runtime, second):
            await until(lambda: len(sockets(runtime)) == 2)
            listing = await ask(runtime, "status", "--workspace", str(first))
            assert f"workspace: {first}\n" in listing.stdout
            assert str(second) not in listing.stdout
            several = await ask(runtime, "logs")
            assert several.returncode == 2
            assert f"--workspace {first} (or --pid " in several.stderr
            assert f"--workspace {second} (or --pid " in several.stderr
            assert (await ask(runtime, "--workspace", str(first / "below"), "logs")).returncode == 0
            for command in ("status", "logs", "dashboard"):
                nowhere = await ask(runtime, command, "--workspace", str(runtime))
                assert nowhere.returncode == (1 if command == "status" else 2)
                assert f"no server works in {runtime.resolve()}. To select one:\n" in nowhere.stderr
                assert f"--workspace {second}" in nowhere.stderr
            async with served(runtime, second):
                await until(lambda: len(sockets(runtime)) == 3)
                same_folder = await ask(runtime, "dashboard", "--workspace", str(second))
                assert same_folder.returncode == 2
                assert (
                    len(
                        re.findall(
                            rf"\n  --pid \d+ \(works in {second}, for a-client-with-a-dialog 1\)", same_folder.stderr
                        )
                    )
                    == 2
                ), same_folder.stderr


@pytest.mark.requirement("cli.logs")
async def test_followed_logs_continue_until_the_server_ends(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    async with (
        served(runtime, root, settings={"mcpServers": {"good": stdio_upstream()}}) as client,
        await anyio.open_process(command_line("logs", "-f"), cwd=root, env=environ) as following,
    ):
        assert following.stdout is not None
        assert following.stderr is not None
        assert b"nothing has been logged" in await following.stderr.receive()
        await client.call_tool("good__die", {})
        assert b"upstream good" in await following.stdout.receive()
        os.kill((await status_of(runtime, root))["pid"], 15)
        with anyio.fail_after(60):
            assert b"the server has ended" in await following.stderr.receive()
            assert await following.wait() == 0


@pytest.mark.requirement("cli.logs")
def test_a_pause_longer_than_the_limit_for_the_first_line_does_not_end_followed_logs(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "OPENING_SECONDS", 0.2)
    path = str(runtime / "server.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b'{"lines": ["before"]}\n')
                time.sleep(5 * control_socket.OPENING_SECONDS)  # as on a machine that was suspended
                connection.sendall(b'{"lines": ["afterwards"]}\n')

        server = threading.Thread(target=answer)
        server.start()
        answers = list(control_socket.ask_server(path, {"ask": "logs", "follow": True}))
        server.join()
    assert answers == [{"lines": ["before"]}, {"lines": ["afterwards"]}]


@pytest.mark.requirement("cli.logs")
async def test_a_stuck_server_is_reported_as_not_answering_and_not_as_absent(runtime: Path, tmp_path: Path) -> None:
    async with served(runtime, tmp_path):
        pid = (await status_of(runtime, tmp_path))["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            by_pid = await ask(runtime, "logs", "--pid", str(pid))
            by_folder = await ask(runtime, "dashboard", cwd=tmp_path)
        finally:
            os.kill(pid, signal.SIGCONT)
        for result in (by_pid, by_folder):
            assert (result.returncode, result.stdout) == (1, "")
            assert result.stderr == (
                "coretools-mcp: A server is not responding; its client can restart it. It may be the server "
                "that you mean; --pid selects another.\n"
            )


@pytest.mark.requirement("control.followers")
async def test_the_maximum_number_of_log_followers_leaves_room_for_other_commands(
    runtime: Path, tmp_path: Path
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with served(runtime, root), AsyncExitStack() as stack:
        (path,) = sockets(runtime)
        answers: list[bytes] = []
        for _ in range(control_socket.MAX_FOLLOWERS + 1):
            stream = await stack.enter_async_context(await anyio.connect_unix(path))
            await stream.send(b'{"ask": "logs", "follow": true}\n')
            answers.append(await stream.receive())
        assert {*answers[:-1]} == {b'{"lines": []}\n'}
        assert b"16 commands are already following the log" in answers[-1]
        assert (await ask(runtime, "status")).returncode == 0
        assert (await ask(runtime, "logs", cwd=root)).returncode == 0


@pytest.mark.requirement("cli.logs")
async def test_ctrl_c_ends_followed_logs_and_leaves_the_server(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with served(runtime, root) as client:
        # Background processes of a shell ignore SIGINT.
        program = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-S", "-c", program, *command_line("logs", "-f")]
        environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        async with await anyio.open_process(command, cwd=root, env=environ) as following:
            assert following.stderr is not None
            assert b"nothing has been logged" in await following.stderr.receive()
            following.send_signal(signal.SIGINT)
            assert await following.wait() == 130
            assert await following.stderr.receive() == b"coretools-mcp: interrupted\n"
        assert (await client.list_tools()).tools


@pytest.mark.requirement("cli.status")
@pytest.mark.requirement("cli.logs")
async def test_an_upstream_that_was_switched_off_is_shown_as_such_until_it_leaves_the_settings(
    runtime: Path, tmp_path: Path
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with served(runtime, root, settings={"mcpServers": {"good": stdio_upstream()}, "log": {"level": "info"}}):
        link = (await ask(runtime, "dashboard", "--no-browser", cwd=root)).stdout.strip()
        home, _, code = link.partition("/open?code=")
        async with httpx.AsyncClient(base_url=home, headers={"Origin": home.rpartition("/")[0]}) as browser:
            await browser.post("/open", data={"code": code})

            async def page_with(words: str, *, is_there: bool = True) -> str:
                with anyio.fail_after(60):
                    while (words in (page := (await browser.get("/servers")).text)) is not is_there:
                        await pause()
                return page

            off_form = re.search(r'/servers/good/off".*?value="(\w+)"', await page_with("Switch off"))
            assert off_form is not None
            assert (await browser.post("/servers/good/off", data={"token": off_form[1]})).status_code == 303
            upstreams = (await status_of(runtime, root))["servers"]
            assert [(upstream["alias"], upstream["state"]) for upstream in upstreams] == [("good", "switched off")]
            assert "switched off on the dashboard" in (await ask(runtime, "status")).stdout
            assert "upstream good is connected" in (await ask(runtime, "logs", "good", cwd=root)).stdout
            write_config(tmp_path, {"log": {"level": "info"}})
            await page_with("/servers/good", is_there=False)
            assert "upstream good is connected" in (await browser.get("/servers/good")).text
            assert (await status_of(runtime, root))["servers"] == []


@pytest.mark.requirement("control.socket")
async def test_the_socket_exists_from_the_first_request_to_the_end_and_is_closed_to_others(
    runtime: Path, tmp_path: Path
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with served(runtime, root):
        (path,) = sockets(runtime)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sockets(runtime) == []


@pytest.mark.requirement("control.socket")
async def test_a_runtime_folder_that_others_can_enter_is_not_used(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (runtime / "coretools-mcp").mkdir(mode=0o755)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=forked(server_arguments(root, None)),
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime)},
    )
    private = runtime / f"coretools-mcp-of-{os.getuid()}"
    async with speaking(HANDSHAKE, stdio_client(parameters)) as client:
        await client.list_tools()
        if not Path(f"/run/user/{os.getuid()}").is_dir():
            await until(lambda: list(private.glob("*.sock")))
        assert sockets(runtime) == []


@pytest.mark.requirement("control.socket")
async def test_a_symbolic_link_is_not_followed_and_files_are_never_removed(runtime: Path, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "project", runtime / "elsewhere"
    root.mkdir()
    elsewhere.mkdir(mode=0o700)
    (elsewhere / STALE_SOCKET).write_text("a database of somebody")
    (runtime / "coretools-mcp").symlink_to(elsewhere)
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime)}
    parameters = StdioServerParameters(command=sys.executable, args=forked(server_arguments(root, None)), env=environ)
    async with speaking(HANDSHAKE, stdio_client(parameters)) as client:
        await client.list_tools()
        await ask(runtime, "status")
        assert [path.name for path in elsewhere.iterdir()] == [STALE_SOCKET]
        (runtime / "coretools-mcp").unlink()
        (runtime / "coretools-mcp").mkdir(mode=0o700)
        (runtime / "coretools-mcp" / STALE_SOCKET).write_text("a file of theirs")
        await ask(runtime, "status")
        assert (runtime / "coretools-mcp" / STALE_SOCKET).read_text() == "a file of theirs"


@pytest.mark.requirement("control.socket")
async def test_the_socket_of_a_killed_server_is_removed(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    folder = runtime / "coretools-mcp"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale_socket:
        stale_socket.bind(str(folder / STALE_SOCKET))
    async with served(runtime, root):
        assert not (folder / STALE_SOCKET).exists()


@pytest.mark.requirement("control.nonsense")
@pytest.mark.parametrize(
    "answer_bytes", [b"[]\n", b'{"pid": "x"}\n', b"[" * 60_000, b"\xff\n", b"null\n", b"hello\n", b""]
)
async def test_an_answer_that_makes_no_sense_is_reported_as_such(runtime: Path, answer_bytes: bytes) -> None:
    folder = runtime / "coretools-mcp"
    folder.mkdir(mode=0o700)

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer_bytes)

    async with await anyio.create_unix_listener(folder / STALE_SOCKET) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        for command in ("status", "logs", "dashboard"):
            result = await ask(runtime, command)
            # The command may succeed only if another server runs on this machine, such as the developer's own.
            places = [place for place in runtime_folders(dict(os.environ)) if place != str(folder.resolve())]
            assert result.returncode == 1 or any([*Path(place).glob("*.sock")] for place in places)
            assert ("does not understand" if answer_bytes else "is not responding") in result.stderr, result.stderr
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("cli.logs")
async def test_logs_fail_if_the_server_closes_the_connection_without_an_answer(runtime: Path) -> None:
    folder = runtime / "coretools-mcp"
    folder.mkdir(mode=0o700)
    status = {"pid": 1, "version": "1", "transport": "stdio", "seconds": 1.0, "approvalMode": "default"}
    status |= {"workspaces": [], "settings": [], "logLevel": "warning", "clients": [], "servers": []}
    status |= {"leftOut": {}, "customTools": "none"}

    async def answer(stream: SocketStream) -> None:
        async with stream:
            if b"status" in await stream.receive():
                await stream.send(json.dumps(status).encode() + b"\n")

    async with await anyio.create_unix_listener(folder / STALE_SOCKET) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        result = await ask(runtime, "logs", "--pid", "1")
        assert (result.returncode, result.stdout) == (1, "")
        assert "A server is not responding" in result.stderr
        tasks.cancel_scope.cancel()


NONSENSE = (
    *(b"", b"\n", b"[]\n", b'{"ask": "money"}\n', b'{"ask": ["status"]}\n', b"\xff\n"),
    *(b"x" * 70_000, b"[" * 60_000 + b"\n"),
)


@pytest.mark.requirement("control.socket")
async def test_a_request_that_makes_no_sense_changes_nothing(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with served(runtime, root) as client:
        (path,) = sockets(runtime)
        with all_cases() as case:
            for request in NONSENSE:
                with case(request[:20]):
                    async with await anyio.connect_unix(path) as stream:
                        await stream.send(request)
                        await stream.send_eof()
                        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                            await stream.receive()
                    assert (await client.list_tools()).tools
        assert (await ask(runtime, "status")).returncode == 0


@pytest.mark.requirement("control.socket")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")
@pytest.mark.parametrize("network", ["none", "host"])
async def test_a_command_in_the_sandbox_does_not_reach_the_socket(network: str) -> None:
    # The worst case: the runtime folder is inside the workspace.
    with tempfile.TemporaryDirectory(prefix="ws-") as workspace:
        root = Path(workspace) / "ws"
        runtime = root / "run"
        runtime.mkdir(parents=True)
        settings: dict[str, object] = {"approvalMode": "yolo", "shell": {"sandbox": "required", "network": network}}
        async with served(runtime, root, settings=settings) as client:
            (path,) = sockets(runtime)
            program = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('rea' + 'ched')"
            command = f'python3 -c "{program}" {path}; ls -A {path.parent}; echo done'
            result = await client.call_tool("run_shell_command", {"command": command})
            output = str(result.content)
            if "bubblewrap" in output and "done" not in output:
                pytest.skip("not run: bubblewrap does not run here")
            assert "done" in output
            assert "reached" not in output
            assert path.name not in output.replace(str(path), "")


@pytest.mark.requirement("cli.logs")
def test_an_upstream_that_logs_much_displaces_only_its_own_lines() -> None:
    history = LogHistory()
    history.add("", "WARNING settings are odd")
    for number in range(2 * HISTORY_LINES):
        history.add("loud", f"INFO upstream loud: {number}")
    _, lines = history.since(0, None)
    assert len(lines) == HISTORY_LINES + 1
    assert lines[0] == "WARNING settings are odd"
    last, of_loud = history.since(0, "loud")
    assert of_loud[-1].endswith(str(2 * HISTORY_LINES - 1))
    assert history.since(last, None) == (last, [])
