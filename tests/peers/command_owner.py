"""Plays the role of the server: starts commands through a broker, and runs until it is killed.

python command_owner.py MARK COMMAND...     prints a line when every command has printed one

MARK is in the environment of the commands.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.processes import bash, environment_with_mark, read_line
from tools.shell.brokered_starter import BrokeredStarter


async def main(mark: str, commands: list[str]) -> None:
    broker = BrokeredStarter()
    processes = [await broker.start(bash(command, environment=environment_with_mark(mark))) for command in commands]
    for process in processes:
        await read_line(process)
    print("started", flush=True)  # noqa: T201 - read by the test
    await asyncio.Event().wait()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
