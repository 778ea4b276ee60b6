"""Reading output on the event loop: in bounded pieces, and no faster than the disk accepts it."""

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
    remainder = memoryview(data)
    while remainder:
        remainder = remainder[os.write(descriptor, remainder) :]
    os.close(descriptor)


@pytest.mark.requirement("shell.output.order")
async def test_reading_pauses_while_the_disk_accepts_nothing_and_then_continues_to_the_end(
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
        previous_total = -1
        while previous_total != output.total:
            previous_total = output.total
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
async def test_output_that_is_already_in_the_pipe_is_read_at_once(pipe: tuple[int, int]) -> None:
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
async def test_one_read_of_an_endless_output_ends(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    output = Output(None)
    stop_printing = threading.Event()

    def print_for_ever() -> None:
        try:
            while not stop_printing.is_set():
                os.write(writing, b"y" * 65_536)
        except BrokenPipeError:
            pass

    command = threading.Thread(target=print_for_ever)
    command.start()
    reader = OutputReader(reading, output)
    reader.read_present()
    assert 0 <= output.total <= PIPE_BYTES + 2 * READ_BYTES
    reader.stop()
    stop_printing.set()
    os.close(reading)
    command.join()
    os.close(writing)
