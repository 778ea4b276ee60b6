"""The connection to an upstream over stdio: messages, lines that are no messages, and too much output."""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from server.protocol.json_rpc import ErrorResponse, Message, Notification, Response, fields_of
from tests.processes import BASH, CEILING, ENVIRONMENT, is_running, needs_proc
from tests.waiting import until
from tools.shell.brokered_starter import BrokeredStarter

if sys.platform == "win32":
    pytest.skip("not run: there is no broker on Windows", allow_module_level=True)

from server.upstreams.wire.json_rpc_channel import MAX_TOGETHER, MESSAGE_BYTES, Inbox, ProgramEnd
from server.upstreams.wire.stdio_upstream import (
    LOG_LINES_PER_SECOND,
    StderrLog,
    StdinWriter,
    StdoutReader,
    UpstreamProgram,
    stdio_streams,
)

Streams = tuple[Inbox, StdinWriter]

pytestmark = pytest.mark.anyio

MB = 1 << 20

PRELUDE = "import json, os, signal, sys, time\nout, err = sys.stdout.buffer, sys.stderr.buffer\n"


def say(word: str) -> Notification:
    return Notification("said", {"word": word})


def line(word: str) -> str:
    """Return Python code that sends a notification with a word."""
    return f"out.write({json.dumps(fields_of(say(word))).encode()!r} + b'\\n'); out.flush()\n"


def python(code: str) -> UpstreamProgram:
    return UpstreamProgram(sys.executable, ("-c", PRELUDE + code), "/", ENVIRONMENT)


def bash(command: str) -> UpstreamProgram:
    return UpstreamProgram(BASH, ("-c", command), "/", ENVIRONMENT)


@pytest.fixture
async def starter() -> AsyncGenerator[BrokeredStarter]:
    broker = BrokeredStarter()
    yield broker
    await broker.aclose()


@asynccontextmanager
async def speaking(program: UpstreamProgram, starter: BrokeredStarter) -> AsyncGenerator[Streams]:
    with anyio.fail_after(CEILING):
        async with stdio_streams("demo", program, starter) as streams:
            yield streams


async def first_message(streams: Streams) -> Message:
    """Return the first message, without waiting for the end of the stream."""
    messages: list[Message] = []
    with anyio.CancelScope() as listening:

        def listen(message: Message) -> None:
            messages.append(message)
            listening.cancel()

        await streams[0].listen(listen)
    return messages[0]


async def all_messages(streams: Streams) -> list[Message]:
    """Return all messages until the end of the stream."""
    messages: list[Message] = []
    await streams[0].listen(messages.append)
    return messages


def word_of(message: Message) -> str:
    assert isinstance(message, Notification)
    return (message.params or {})["word"]


async def words(streams: Streams) -> list[str]:
    """Return the words of all notifications until the end of the stream."""
    return [word_of(message) for message in await all_messages(streams)]


async def send_forever(streams: Streams) -> None:
    while True:
        await streams[1].send(say("x"))


@pytest.mark.requirement("upstream.stdio.messages")
async def test_a_large_message_passes_both_ways(starter: BrokeredStarter) -> None:
    word = "wörd " * (4 * MB)
    async with (
        speaking(UpstreamProgram("cat", (), "/", ENVIRONMENT), starter) as streams,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(streams[1].send, say(word))
        assert await first_message(streams) == say(word)


@pytest.mark.requirement("upstream.stdio.messages")
async def test_a_message_may_arrive_byte_by_byte_and_the_last_one_without_a_newline(starter: BrokeredStarter) -> None:
    text = json.dumps(fields_of(say("é\u2028€")), ensure_ascii=False).encode()
    code = f"text = {text!r}\nfor at in range(len(text)): os.write(1, text[at:at + 1])\n"
    async with speaking(python(f"{code}os.write(1, b'\\r\\n\\n')\n{code}"), starter) as streams:
        assert await words(streams) == ["é\u2028€"] * 2


@pytest.mark.requirement("upstream.stdio.messages")
async def test_undecodable_bytes_are_replaced(starter: BrokeredStarter) -> None:
    code = line("odd WORD").replace("WORD", "\\xff")
    async with speaking(python(code), starter) as streams:
        assert await words(streams) == ["odd \ufffd"]


@pytest.mark.requirement("upstream.stdio.garbage")
async def test_lines_that_are_no_messages_are_logged_and_skipped(
    starter: BrokeredStarter, caplog: pytest.LogCaptureFixture
) -> None:
    garbage = (
        "out.write(b'Listening on \\x1b[2J\\x1b]0;title\\x07stdio\\n[]\\n{\\n\\0\\n\"\\n' + b'[' * 100_000 + b'\\n')\n"
    )
    async with speaking(python(line("before") + garbage + line("after")), starter) as streams:
        assert await words(streams) == ["before", "after"]
    warnings = [
        record.getMessage() for record in caplog.records if "other than a JSON-RPC message" in record.getMessage()
    ]
    assert len(warnings) == 6
    assert "Listening on stdio" in warnings[0]
    assert all(message.isprintable() and len(message) < 5_000 for message in warnings)


@pytest.mark.requirement("upstream.stdio.garbage")
@pytest.mark.parametrize("answer", [{"result": 5}, {"error": "no"}, {"result": None}])
async def test_an_answer_that_is_no_message_fails_its_request_at_once(
    answer: dict[str, Any], starter: BrokeredStarter
) -> None:
    code = f"out.write({json.dumps({'jsonrpc': '2.0', 'id': 7, **answer}).encode()!r} + b'\\n')"
    async with speaking(python(code), starter) as streams:
        message = await first_message(streams)
    assert isinstance(message, ErrorResponse)
    assert message.id == 7


@pytest.mark.requirement("upstream.stdio.garbage")
async def test_batched_messages_are_read_one_by_one_up_to_a_limit(starter: BrokeredStarter) -> None:
    several = [fields_of(say("a")), 5, {"jsonrpc": "2.0", "id": 7, "result": 5}, fields_of(say("b"))]
    very_many = [fields_of(say("c"))] * (MAX_TOGETHER + 1)
    code = "".join(f"out.write({json.dumps(messages).encode()!r} + b'\\n')\n" for messages in (several, very_many))
    async with speaking(python(code), starter) as streams:
        first_received, error, *remaining = await all_messages(streams)
    assert first_received == say("a")
    assert isinstance(error, ErrorResponse)
    assert error.id == 7
    assert remaining == [say("b")] + [say("c")] * MAX_TOGETHER


@pytest.mark.requirement("upstream.stdio.garbage")
async def test_the_id_of_a_request_may_come_back_as_a_float(starter: BrokeredStarter) -> None:
    error = {"code": -1, "message": "no"}
    answers: list[dict[str, Any]] = [
        {"id": 7.0, "result": {}},
        {"id": 8.0, "error": error},
        {"id": 9.0, "result": 5},
        {"id": 1.5, "result": 5},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **answer}) + "\n" for answer in answers)
    async with speaking(python(f"out.write({lines.encode()!r})"), starter) as streams:
        response, error_response, *invalid = await all_messages(streams)
    assert (response, error_response) == (Response(7, {}), ErrorResponse(8, error))
    assert [message.id for message in invalid if isinstance(message, ErrorResponse)] == [9]


@pytest.mark.requirement("upstream.stdio.messages")
@pytest.mark.parametrize(
    ("head", "fails"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"x":"', True),
        ('{"id":7,"jsonrpc":"2.0","method":"x","params":{"x":"', False),
    ],
    ids=["answer", "request"],
)
async def test_a_line_that_is_too_long_is_dropped_and_fails_the_request_that_it_answers(
    head: str, fails: bool, starter: BrokeredStarter
) -> None:
    longer = f"for _ in range({MESSAGE_BYTES // MB + 1}): out.write(b'x' * {MB})\n"
    code = f"out.write({head.encode()!r})\n{longer}out.write(b'\"}}}}\\n')\n"
    async with speaking(python(code + line("after")), starter) as streams:
        messages = await all_messages(streams)
    assert len(messages) == 1 + fails
    assert say("after") in messages
    errors = [message for message in messages if isinstance(message, ErrorResponse)]
    assert [(error.id, "larger than" in error.error["message"]) for error in errors] == [(7, True)] * fails


@pytest.mark.requirement("upstream.stdio.messages")
async def test_a_line_without_end_takes_no_more_memory_than_the_longest_one(starter: BrokeredStarter) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code = f"for _ in range({6 * MESSAGE_BYTES // MB}): out.write(b'x' * {MB})\nout.write(b'\\n')\n"
    async with speaking(python(code + line("after")), starter) as streams:
        assert await words(streams) == ["after"]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 3 * MESSAGE_BYTES


@needs_proc
@pytest.mark.requirement("upstream.stdio.messages")
async def test_an_upstream_that_sends_faster_than_it_is_read_is_blocked(
    starter: BrokeredStarter, tmp_path: Path
) -> None:
    progress_file = tmp_path / "written"
    message = f"json.dumps({{'jsonrpc': '2.0', 'method': 'said', 'params': {{'word': 'x' * {MB}}}}})"
    note = f"open({str(progress_file)!r}, 'w').write(str(at))"
    code = f"for at in range(50):\n    print({message}, flush=True)\n    {note}\n"
    async with speaking(python(code), starter) as streams:
        counts: list[str] = []
        # It is blocked once the number of its messages stops changing.
        while len(counts) < 20 or len(set(counts[-20:])) > 1 or not counts[-1]:
            await anyio.sleep(0.02)
            counts.append(progress_file.read_text() if progress_file.exists() else "")
        assert int(counts[-1]) < 20
        assert len(await words(streams)) == 50


@pytest.mark.requirement("upstream.stdio.messages")
async def test_sending_to_an_upstream_that_does_not_read_blocks_and_can_be_cancelled(
    starter: BrokeredStarter,
) -> None:
    async with speaking(bash("exec sleep 600"), starter) as (_, writer):
        count = 0
        with anyio.CancelScope() as scope:
            while count < 100:
                scope.deadline = anyio.current_time() + 1
                await writer.send(say("x" * MB))
                count += 1
        assert scope.cancelled_caught
        assert 0 < count < 10


@pytest.mark.requirement("upstream.stdio.end")
async def test_the_connection_ends_with_the_upstream_even_if_another_process_holds_its_output(
    starter: BrokeredStarter,
) -> None:
    last_line = json.dumps(fields_of(say("last")))
    async with speaking(bash(f"setsid sleep 600 & echo '{last_line}'; exit 3"), starter) as streams:
        assert await words(streams) == ["last"]
        with pytest.raises(anyio.BrokenResourceError):
            await send_forever(streams)


@pytest.mark.requirement("upstream.stdio.end")
async def test_the_exit_code_is_known_even_if_another_process_holds_the_output(starter: BrokeredStarter) -> None:
    ends: list[ProgramEnd] = []
    with anyio.fail_after(CEILING):
        async with stdio_streams("demo", bash("setsid sleep 600 & exit 3"), starter, ends.append) as streams:
            assert await all_messages(streams) == []
    assert [end.exit and end.exit.code for end in ends] == [3]


@pytest.mark.requirement("upstream.stdio.end")
async def test_an_upstream_may_still_write_when_its_input_ends_and_ends_by_itself(
    starter: BrokeredStarter, tmp_path: Path
) -> None:
    marker = tmp_path / "ended"
    code = f"sys.stdin.read()\nfor f in (out, err): f.write(b'x' * {4 * MB}); f.flush()\nopen({str(marker)!r}, 'w')\n"
    async with speaking(python(line("up") + code), starter) as streams:
        assert await first_message(streams) == say("up")
        await streams[1].send(say("x" * (MB // 2)))
    assert marker.exists()


@needs_proc
@pytest.mark.requirement("upstream.stdio.end")
async def test_an_upstream_that_ignores_the_end_of_its_input_and_sigterm_is_killed(starter: BrokeredStarter) -> None:
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    pid_code = (
        'out.write(b\'{"jsonrpc":"2.0","method":"said","params":{"word":"%d"}}\\n\' % os.getpid()); out.flush()\n'
    )
    async with speaking(python(f"{code}{pid_code}while True: time.sleep(1)"), starter) as streams:
        pid = int(word_of(await first_message(streams)))
        assert is_running(pid)
    assert not is_running(pid)


@pytest.mark.requirement("upstream.errors")
async def test_standard_error_is_logged_line_by_line_in_visible_characters(
    starter: BrokeredStarter, caplog: pytest.LogCaptureFixture
) -> None:
    code = "err.write(b'\\x1b[31mred\\x1b[0m\\n10%\\r100%\\na\\0b\\xff\\n' + b'y' * 9000 + b'\\nno end')\n"
    async with speaking(python(code), starter) as streams:
        assert await words(streams) == []
    messages = [
        record.getMessage() for record in caplog.records if record.name == "server.upstreams.wire.stdio_upstream"
    ]
    assert [message[:40] for message in messages[:2]] == ["upstream demo: red", "upstream demo: 100%"]
    assert all(message.isprintable() for message in messages)
    assert len(messages[3]) < 2_100
    assert messages[4] == "upstream demo: no end"


@pytest.mark.requirement("upstream.errors")
async def test_a_flood_on_standard_error_blocks_nothing_and_is_counted(
    starter: BrokeredStarter, caplog: pytest.LogCaptureFixture
) -> None:
    code = "for _ in range(100_000): err.write(b'flood\\n')\nerr.flush()\n"
    async with speaking(python(code + line("after")), starter) as streams:
        assert await words(streams) == ["after"]
    messages = [
        record.getMessage() for record in caplog.records if record.name == "server.upstreams.wire.stdio_upstream"
    ]
    omitted_counts = [int(message.split()[2]) for message in messages if "further line(s) not shown" in message]
    shown_count = messages.count("upstream demo: flood")
    assert shown_count + sum(omitted_counts) == 100_000
    assert LOG_LINES_PER_SECOND <= shown_count < 50 * LOG_LINES_PER_SECOND
    assert len(messages) == shown_count + len(omitted_counts)


@needs_proc
@pytest.mark.requirement("upstream.environment")
@pytest.mark.parametrize(
    ("command", "folder", "error"),
    [
        ("no-such-program", "FOLDER", FileNotFoundError),
        ("./no-such-program", "FOLDER", FileNotFoundError),
        ("plain.txt", "FOLDER", PermissionError),
        ("./plain.txt", "FOLDER", PermissionError),
        ("cat", "FOLDER/plain.txt", NotADirectoryError),
        ("cat", "/no/such/folder", NotADirectoryError),
    ],
)
async def test_failed_starts_raise_different_errors_and_leave_no_descriptor(
    command: str, folder: str, error: type[OSError], starter: BrokeredStarter, tmp_path: Path
) -> None:
    (tmp_path / "plain.txt").write_text("no program")
    place = folder.replace("FOLDER", str(tmp_path))
    environment = {"PATH": f"{os.defpath}:{tmp_path}"}
    async with speaking(bash("exec cat"), starter):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(error):
            async with stdio_streams("demo", UpstreamProgram(command, (), place, environment), starter):
                raise AssertionError
        assert (
            len(os.listdir("/proc/self/fd")) <= len(before) + 1
        )  # the descriptor of a supervisor that waits for the next program


@pytest.mark.requirement("upstream.environment")
async def test_programs_are_found_on_the_path_of_the_entry_and_in_its_folder(
    starter: BrokeredStarter, tmp_path: Path
) -> None:
    output_line = json.dumps(fields_of(say("here")))
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{output_line}'\n")
    program.chmod(0o755)
    cases = [("mine", {"PATH": "/nowhere:bin"}), ("bin/mine", ENVIRONMENT), (str(program), ENVIRONMENT)]
    for command, environment in cases:
        async with speaking(UpstreamProgram(command, (), str(tmp_path), environment), starter) as streams:
            assert await words(streams) == ["here"]


@needs_proc
@pytest.mark.requirement("upstream.environment")
async def test_a_start_that_is_cancelled_leaves_no_descriptor(starter: BrokeredStarter) -> None:
    async with speaking(bash("exec cat"), starter):
        for turns in range(12):
            before = len(os.listdir("/proc/self/fd"))
            async with anyio.create_task_group() as tasks:

                async def start() -> None:
                    async with stdio_streams("demo", bash("exec cat"), starter):
                        await anyio.sleep_forever()

                tasks.start_soon(start)
                for _ in range(turns):
                    await anyio.sleep(0.002)
                tasks.cancel_scope.cancel()
            assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.requirement("upstream.errors")
def test_the_log_of_upstreams_output_includes_info_messages() -> None:
    assert logging.getLogger("server.upstreams.wire.stdio_upstream").isEnabledFor(logging.INFO)


@pytest.mark.requirement("scarcity.refused")
async def test_a_read_without_memory_is_repeated_later_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reads, original_read = 0, os.read

    def failing_read(descriptor: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads < 3:
            raise MemoryError
        return original_read(descriptor, size)

    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    incoming = StdoutReader(read_end, StderrLog("a"))
    try:
        monkeypatch.setattr(os, "read", failing_read)
        os.write(write_end, json.dumps(fields_of(say("hello"))).encode() + b"\n")
        await until(lambda: incoming.inbox.count)
        assert (incoming.inbox.count, caplog.text) == (1, "")
    finally:
        incoming.end()
        os.close(read_end)
        os.close(write_end)


@pytest.mark.requirement("upstream.stdio.messages")
async def test_reading_stops_if_very_many_short_messages_are_waiting() -> None:
    line = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
    data = memoryview(line * 200_000)
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    incoming = StdoutReader(read_end, StderrLog("a"))
    count, looks = 0, 0
    try:
        # Reading has stopped once the pipe is full many times in a row.
        while looks < 100 and count < len(data):
            try:
                count += os.write(write_end, data[count : count + (1 << 16)])
                looks = 0
            except BlockingIOError:
                looks += 1
            await anyio.sleep(0.005)
    finally:
        incoming.discard()
        incoming.end()
        os.close(read_end)
        os.close(write_end)
    assert count < len(data) // 4
