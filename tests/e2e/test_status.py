"""`status` and `logs`: a person asks the servers that are running, and nobody else can."""

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
async def test_status_tells_of_clients_with_their_folders_and_of_the_servers_behind(
    runtime: Path, tmp_path: Path, revision: str
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    upstreams = {"good": stdio_upstream(), "bad": {"command": "there-is-no-such-command"}}
    async with served(runtime, root, revision=revision, settings={"mcpServers": upstreams}):
        told = await ask(runtime, "status", "--json")
        about = next(each for each in json.loads(told.stdout) if str(root) in str(each["clients"]))
        (client,) = about["clients"]
        assert client["name"] == "a-client-with-a-dialog 1"
        assert client["folders"] == [str(root)]
        assert {each["alias"]: (each["state"], each["tools"]) for each in about["servers"]} == {
            "good": ("connected", 10),
            "bad": ("failed", 0),
        }
        shown = await ask(runtime, "status")
        assert shown.returncode == 0
        assert f"client: a-client-with-a-dialog 1 ({about['clients'][0]['protocolVersion']})" in shown.stdout
        assert "its command was not found" in shown.stdout


@pytest.mark.requirement("cli.logs")
async def test_logs_are_of_the_server_that_works_in_the_folder_and_of_one_server_behind_it_where_named(
    runtime: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "a" / "one", tmp_path / "b" / "other"  # each with settings of its own
    one.mkdir(parents=True)
    other.mkdir(parents=True)
    speaks = {"command": sys.executable, "args": ["-c", "import sys; print('token=ghp_' + 'a' * 36, file=sys.stderr)"]}
    settings: dict[str, object] = {"mcpServers": {"speaks": speaks, "absent": {"command": "there-is-no-such-command"}}}
    async with served(runtime, one, settings=settings), served(runtime, other):
        everything = await ask(runtime, "logs", cwd=one)
        assert "upstream absent is not available" in everything.stdout
        alone = await ask(runtime, "logs", "speaks", cwd=one)
        assert "upstream speaks: token=" in alone.stdout
        assert "ghp_" not in alone.stdout
        assert "absent" not in alone.stdout
        nothing = await ask(runtime, "logs", cwd=other)
        assert nothing.stdout == ""
        assert "nothing has been logged so far (log.level is warning)" in nothing.stderr
        unknown = await ask(runtime, "logs", "speak", cwd=one)
        assert unknown.returncode == 2
        assert "It has speaks, absent." in unknown.stderr
        several = await ask(runtime, "logs", cwd=runtime)
        assert several.returncode == 2
        assert several.stderr.count("--pid") >= 2


@pytest.mark.requirement("cli.which-server")
async def test_servers_are_named_by_their_workspaces_without_any_client_too(runtime: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "one", tmp_path / "b" / "other"
    one.mkdir(parents=True)
    other.mkdir(parents=True)
    serve = command_line("--transport", "http", "--port", "0", "--workspace", str(one))
    with background_server(["env", f"XDG_RUNTIME_DIR={runtime}", *serve], r"(http://\S+)"):
        async with served(runtime, other):
            await until(lambda: len(sockets(runtime)) == 2)
            shown = await ask(runtime, "status", "--workspace", str(one))
            assert f"workspace: {one}\n" in shown.stdout
            assert str(other) not in shown.stdout
            several = await ask(runtime, "logs")
            assert several.returncode == 2
            assert f"--workspace {one} (or --pid " in several.stderr
            assert f"--workspace {other} (or --pid " in several.stderr
            assert (await ask(runtime, "--workspace", str(one / "below"), "logs")).returncode == 0
            for command in ("status", "logs", "dashboard"):
                nowhere = await ask(runtime, command, "--workspace", str(runtime))
                assert nowhere.returncode == (1 if command == "status" else 2)
                assert f"no server works in {runtime.resolve()}. Running:\n" in nowhere.stderr
                assert f"--workspace {other}" in nowhere.stderr


@pytest.mark.requirement("cli.logs")
async def test_followed_logs_go_on_until_the_server_ends(runtime: Path, tmp_path: Path) -> None:
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
def test_a_server_that_pauses_longer_than_its_first_line_may_take_has_not_ended(
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
                time.sleep(5 * control_socket.OPENING_SECONDS)  # the pause itself, as of a machine that sleeps
                connection.sendall(b'{"lines": ["afterwards"]}\n')

        server = threading.Thread(target=answer)
        server.start()
        said = list(control_socket.ask_server(path, {"ask": "logs", "follow": True}))
        server.join()
    assert said == [{"lines": ["before"]}, {"lines": ["afterwards"]}]


@pytest.mark.requirement("cli.logs")
async def test_of_a_server_that_is_stuck_nobody_is_told_that_it_does_not_run(runtime: Path, tmp_path: Path) -> None:
    async with served(runtime, tmp_path):
        pid = (await status_of(runtime, tmp_path))["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            named = await ask(runtime, "logs", "--pid", str(pid))
            here = await ask(runtime, "dashboard", cwd=tmp_path)
        finally:
            os.kill(pid, signal.SIGCONT)
        for done in (named, here):
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == (
                "coretools-mcp: A server does not answer; its client can restart it. It may be the server "
                "that you mean; --pid selects another.\n"
            )


@pytest.mark.requirement("control.followers")
async def test_as_many_as_may_follow_the_log_leave_room_for_a_look_at_the_server(runtime: Path, tmp_path: Path) -> None:
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
        # What runs in the background of a shell ignores it.
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
async def test_a_server_that_was_switched_off_is_told_as_such_until_it_leaves_the_settings(
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

            found = re.search(r'/servers/good/off".*?value="(\w+)"', await page_with("Switch off"))
            assert found is not None
            assert (await browser.post("/servers/good/off", data={"token": found[1]})).status_code == 303
            told = (await status_of(runtime, root))["servers"]
            assert [(each["alias"], each["state"]) for each in told] == [("good", "switched off")]
            assert "switched off on the dashboard" in (await ask(runtime, "status")).stdout
            assert "upstream good is connected" in (await ask(runtime, "logs", "good", cwd=root)).stdout
            write_config(tmp_path, {"log": {"level": "info"}})
            await page_with("/servers/good", is_there=False)
            assert "upstream good is connected" in (await browser.get("/servers/good")).text
            assert (await status_of(runtime, root))["servers"] == []


@pytest.mark.requirement("control.socket")
async def test_the_socket_is_there_from_the_first_request_to_the_end_and_closed_to_others(
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
async def test_a_folder_that_others_may_enter_is_not_used(runtime: Path, tmp_path: Path) -> None:
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
async def test_a_link_of_somebody_else_is_not_followed_and_files_are_never_removed(
    runtime: Path, tmp_path: Path
) -> None:
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
async def test_what_a_killed_server_has_left_is_removed(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    folder = runtime / "coretools-mcp"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / STALE_SOCKET))
    async with served(runtime, root):
        assert not (folder / STALE_SOCKET).exists()


@pytest.mark.requirement("control.nonsense")
@pytest.mark.parametrize("said", [b"[]\n", b'{"pid": "x"}\n', b"[" * 60_000, b"\xff\n", b"null\n", b"hello\n", b""])
async def test_an_answer_that_makes_no_sense_is_told_as_such(runtime: Path, said: bytes) -> None:
    folder = runtime / "coretools-mcp"
    folder.mkdir(mode=0o700)

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(said)

    async with await anyio.create_unix_listener(folder / STALE_SOCKET) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        for command in ("status", "logs", "dashboard"):
            done = await ask(runtime, command)
            # Only another server on this machine, such as the developer's own, may have given a good answer.
            places = [place for place in runtime_folders(dict(os.environ)) if place != str(folder.resolve())]
            assert done.returncode == 1 or any([*Path(place).glob("*.sock")] for place in places)
            assert ("does not understand" if said else "does not answer") in done.stderr, done.stderr
        tasks.cancel_scope.cancel()


NO_QUESTIONS = (
    *(b"", b"\n", b"[]\n", b'{"ask": "money"}\n', b'{"ask": ["status"]}\n', b"\xff\n"),
    *(b"x" * 70_000, b"[" * 60_000 + b"\n"),
)


@pytest.mark.requirement("control.socket")
async def test_a_question_that_makes_no_sense_changes_nothing(runtime: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    async with served(runtime, root) as client:
        (path,) = sockets(runtime)
        with all_cases() as case:
            for said in NO_QUESTIONS:
                with case(said[:20]):
                    async with await anyio.connect_unix(path) as stream:
                        await stream.send(said)
                        await stream.send_eof()
                        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                            await stream.receive()
                    assert (await client.list_tools()).tools
        assert (await ask(runtime, "status")).returncode == 0


@pytest.mark.requirement("control.socket")
@pytest.mark.skipif(sys.platform != "linux", reason="not run: bubblewrap is Linux only")
@pytest.mark.parametrize("network", ["none", "host"])
async def test_a_command_in_the_sandbox_does_not_reach_the_socket(tmp_path: Path, network: str) -> None:
    root = tmp_path / "project"
    # Where no wise person has it: in the workspace.
    with tempfile.TemporaryDirectory(prefix="ws-") as workspace:
        root = Path(workspace) / "ws"
        runtime = root / "run"
        runtime.mkdir(parents=True)
        settings: dict[str, object] = {"approvalMode": "yolo", "shell": {"sandbox": "required", "network": network}}
        async with served(runtime, root, settings=settings) as client:
            (path,) = sockets(runtime)
            program = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('reached')"
            command = f'python3 -c "{program}" {path}; ls -A {path.parent}; echo done'
            result = await client.call_tool("run_shell_command", {"command": command})
            said = str(result.content)
            if "bubblewrap" in said and "done" not in said:
                pytest.skip("not run: bubblewrap does not run here")
            assert "done" in said
            assert "reached" not in said
            assert path.name not in said.replace(str(path), "")


@pytest.mark.requirement("cli.logs")
def test_a_server_that_writes_much_pushes_out_its_own_lines_alone() -> None:
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
