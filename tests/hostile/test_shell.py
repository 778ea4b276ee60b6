"""Commands that print endlessly, hide their output, keep descriptors of the server, or leave their folder."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.unit.execution.shell import Shell, output_of, shell_in, text_of
from tests.variants import one_in
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.shell.program_output import OUTPUT_CHARS

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def shell(root: Path, tmp_path: Path) -> AsyncGenerator[Shell]:
    async with shell_in(root, tmp_path) as shell:
        yield shell


@pytest.mark.requirement("shell.directory")
@pytest.mark.parametrize("spelling", ["/", "..", "sub/../..", "{root}/../out", "{root}-evil", "link", "sub/up", "~"])
async def test_no_command_starts_in_a_folder_outside(shell: Shell, root: Path, spelling: str) -> None:
    (root / "sub").mkdir()
    for name in ("out", f"{root.name}-evil"):
        root.with_name(name).mkdir()
    (root / "link").symlink_to("../out")
    (root / "sub" / "up").symlink_to("../..")
    with pytest.raises(ToolError) as error_info:
        await shell.run("pwd", directory=spelling.format(root=root))
    assert error_info.value.code in {ToolErrorType.PATH_NOT_IN_WORKSPACE, ToolErrorType.INVALID_TOOL_PARAMS}
    assert shell.starter.processes == []


MEASURING_PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from tests.unit.execution.shell import shell_in

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])

async def main(root, command):
    async with shell_in(root, root.parent) as shell:
        await shell.run("seq 1 100000")
        before = peak = resident()
        gaps, is_over = [], False

        async def ping():
            nonlocal peak
            while not is_over:
                start = time.perf_counter()
                await asyncio.sleep(0.002)
                gaps.append(time.perf_counter() - start - 0.002)
                peak = max(peak, resident())

        pinger = asyncio.create_task(ping())
        error = await shell.error_of(command, timeout=3000)
        is_over = True
        await pinger
        assert "longer than 3 s" in error.message, error.message
        gaps.sort()
        print(peak - before, round(gaps[int(len(gaps) * 0.99)] * 1000, 1), len(error.message))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.mark.requirement("shell.output.memory")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("yes", id="lines"),
        pytest.param("cat /dev/urandom", id="random bytes", marks=pytest.mark.long),
        pytest.param("cat /dev/zero", id="zeros", marks=pytest.mark.long),
        pytest.param("tr '\\0' x </dev/zero", id="one line", marks=pytest.mark.long),
        pytest.param(r"while :; do printf '\033['; done", id="tiny pieces", marks=pytest.mark.long),
    ],
)
async def test_endless_output_takes_little_memory_and_the_server_stays_responsive(root: Path, command: str) -> None:
    process = await anyio.run_process(
        [sys.executable, "-c", MEASURING_PROGRAM, str(root), command], cwd=ROOT, check=False
    )
    assert process.returncode == 0, process.stderr.decode()
    kilobytes, p99, message_length = process.stdout.decode().split()
    assert int(kilobytes) < 8_000
    # Response times are measured in bench/; this checks only that nothing waits for the output.
    assert float(p99) < 1_000
    assert int(message_length) < 10_000


@pytest.mark.requirement("shell.text.sequences")
async def test_output_cannot_hide_what_was_printed_before_or_after(shell: Shell) -> None:
    script = r"printf 'before\n\033]0;unterminated\nafter\033[2J\033[1;1H\033[8mhidden\033[0m\n\033P\nlast\n'"
    assert output_of(await shell.run(script)) == "before\n\nafterhidden\n\nlast"


@pytest.mark.requirement("shell.text.sequences")
@pytest.mark.parametrize(
    "text",
    one_in(3, ["\\033", "a\\r", "a\\b", "\\b", "\\033[", "\\033]", "\\033[K\\r", "\\302\\220", "\\001", "\\377"]),
    ids=repr,
)
async def test_no_repeated_character_makes_processing_slow_or_the_text_large(shell: Shell, text: str) -> None:
    began = time.process_time()
    result = await shell.run(f"for i in {{1..2000}}; do printf '{text * 100}'; done; echo; echo end")
    assert time.process_time() - began < 10
    assert text_of(result).endswith("end")
    assert len(text_of(result)) < OUTPUT_CHARS + 1_000


@pytest.mark.requirement("shell.no_input")
async def test_a_command_holds_no_descriptor_of_the_server(shell: Shell, root: Path) -> None:
    with (root / "secret").open("w"):
        descriptors = output_of(await shell.run("exec ls /proc/self/fd"))
    # The fourth descriptor is the folder that `ls` lists.
    assert descriptors == "0\n1\n2\n3"


@pytest.mark.long
@pytest.mark.requirement("shell.queue")
async def test_two_hundred_concurrent_commands_all_run(root: Path, tmp_path: Path) -> None:
    outputs: list[str] = []
    async with shell_in(root, tmp_path, max_concurrent=8) as shell:

        async def run(number: int) -> None:
            outputs.append(output_of(await shell.run(f"echo {number}", timeout=60_000)))

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(run, number)
    assert sorted(map(int, outputs)) == list(range(200))
