"""The two discovery commands of an operator: one prints tool declarations, the other one runs tools.

discovery_commands.py list FILE      prints the file
discovery_commands.py flood          prints forever
discovery_commands.py hang FILE      writes its process id to the file, and sleeps
discovery_commands.py call NAME      runs one of the tools below, with JSON on standard input
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

IMAGE = "iVBORw0KGgo="


def _echo(input_text: str) -> None:
    sys.stdout.write(input_text)


def _tell(input_text: str) -> None:
    """Print what a command can know about its call."""
    report = {"argv": sys.argv[2:], "given": input_text, "folder": os.getcwd(), "environment": sorted(os.environ)}
    sys.stdout.write(json.dumps(report))


def _mixed(input_text: str) -> None:
    del input_text
    blocks: list[Any] = [{"type": "text", "text": "see:"}, {"type": "image", "data": IMAGE, "mimeType": "image/png"}]
    sys.stdout.write(json.dumps({"content": blocks, "structuredContent": {"count": 2}}))


def _verdict(input_text: str) -> None:
    sys.stdout.write(json.loads(input_text)["text"])
    sys.stderr.write("a word beside\n")


def _fail(input_text: str) -> None:
    del input_text
    sys.stdout.write("half done\n")
    sys.stderr.write("no more room\n")
    sys.exit(3)


def _kill(input_text: str) -> None:
    del input_text
    os.kill(os.getpid(), 9)


def _whisper(input_text: str) -> None:
    del input_text
    sys.stderr.write("all is well\n")


def _steps(input_text: str) -> None:
    """Wait until the file in the arguments exists."""
    sys.stderr.write("step one\n")
    sys.stderr.flush()
    while not Path(json.loads(input_text)["file"]).exists():
        time.sleep(0.01)
    sys.stdout.write("done")


def _linger(input_text: str) -> None:
    """Start another process, write both process ids to the file in the arguments, and sleep."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        Path(json.loads(input_text)["file"]).write_text(f"{os.getpid()} {child.pid}\n")
        time.sleep(600)


def _leave(input_text: str) -> None:
    """Leave a process behind."""
    del input_text
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    sys.stdout.write(str(child.pid))
    sys.stdout.flush()
    os._exit(0)


def _lines(input_text: str) -> None:
    for number in range(json.loads(input_text)["count"]):
        sys.stdout.write(f"line {number}\n")


def _bytes(input_text: str) -> None:
    del input_text
    sys.stdout.buffer.write(bytes(range(256)) * 4)


TOOLS = {
    "echo": _echo,
    "tell": _tell,
    "mixed": _mixed,
    "verdict": _verdict,
    "fail": _fail,
    "kill": _kill,
    "whisper": _whisper,
    "steps": _steps,
    "linger": _linger,
    "leave": _leave,
    "lines": _lines,
    "bytes": _bytes,
    "größe 'n\" $(x)": _tell,
}


def main(command: str, *arguments: str) -> None:
    match command:
        case "list":
            sys.stdout.buffer.write(Path(arguments[0]).read_bytes())
        case "flood":
            while True:
                sys.stdout.write("x" * 65_536)
        case "hang":
            Path(arguments[0]).write_text(f"{os.getpid()}\n")
            time.sleep(600)
        case _:
            TOOLS[arguments[-1]](sys.stdin.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
