"""Reading on the event loop: bounded pieces, and no more than the disk takes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import anyio
import pytest

from tests.unit.execution.shell import CEILING
from tests.waiting import until
from tools.machine.threads import Threads
from tools.shell.private_folders import PrivateFolder
from tools.shell.program_output import MAX_WAITING, PIPE_BYTES, READ_BYTES, TAIL_BYTES, Output, OutputReader

pytestmark = pytest.mark.anyio

SIZE = 20_000_000


@pytest.fixture
def pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return reading, writing


def print_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.close(descriptor)


@pytest.mark.requirement("shell.output.order")
async def test_while_the_disk_takes_nothing_no_more_is_read_and_then_everything(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    disk_works = threading.Event()
    writer = Threads(1)
    writer.begin(disk_works.wait)
    data = os.urandom(1000) * (SIZE // 1000)
    command = threading.Thread(target=print_all, args=(writing, data))
    output = Output(PrivateFolder(str(tmp_path), SIZE, SIZE, writer, lambda _: None))
    reader = OutputReader(reading, output)
    try:
        command.start()
        await until(lambda: output.file is not None and output.file.waiting > MAX_WAITING)
        seen = -1
        while seen != output.total:
            seen = output.total
            await anyio.sleep(0.05)
        assert output.total <= MAX_WAITING + TAIL_BYTES + 2 * READ_BYTES
        assert command.is_alive()
    finally:
        disk_works.set()
    assert await reader.wait_ended(CEILING)
    command.join()
    assert output.total == SIZE
    assert output.file is not None
    await output.file.close()
    assert Path(output.file.path).read_bytes() == data
    writer.close()
    os.close(reading)


@pytest.mark.requirement("shell.output.order")
async def test_what_was_printed_already_is_read_at_once(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    output = Output(None)
    reader = OutputReader(reading, output)
    os.write(writing, b"x" * 50_000)
    reader.read_present()
    assert output.total == 50_000
    assert not await reader.wait_ended(0)
    reader.stop()
    os.write(writing, b"y")
    reader.read_present()
    assert output.total == 50_000
    os.close(writing)
    os.close(reading)


@pytest.mark.requirement("shell.output.order")
async def test_one_look_never_reads_for_ever(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    output = Output(None)
    printing = threading.Event()

    def print_for_ever() -> None:
        try:
            while not printing.is_set():
                os.write(writing, b"y" * 65_536)
        except BrokenPipeError:
            pass

    command = threading.Thread(target=print_for_ever)
    command.start()
    reader = OutputReader(reading, output)
    reader.read_present()
    assert 0 <= output.total <= PIPE_BYTES + 2 * READ_BYTES
    reader.stop()
    printing.set()
    os.close(reading)
    command.join()
    os.close(writing)
