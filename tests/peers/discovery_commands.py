"""The two commands of an operator: one prints declarations, the other one carries tools out.

discovery_commands.py list FILE      prints the file
discovery_commands.py flood          prints without end
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


def _echo(given: str) -> None:
    sys.stdout.write(given)


def _tell(given: str) -> None:
    """What a command can know of its call."""
    said = {"argv": sys.argv[2:], "given": given, "folder": os.getcwd(), "environment": sorted(os.environ)}
    sys.stdout.write(json.dumps(said))


def _mixed(given: str) -> None:
    del given
    blocks: list[Any] = [{"type": "text", "text": "see:"}, {"type": "image", "data": IMAGE, "mimeType": "image/png"}]
    sys.stdout.write(json.dumps({"content": blocks, "structuredContent": {"count": 2}}))


def _verdict(given: str) -> None:
    sys.stdout.write(json.loads(given)["text"])
    sys.stderr.write("a word beside\n")


def _fail(given: str) -> None:
    del given
    sys.stdout.write("half done\n")
    sys.stderr.write("no more room\n")
    sys.exit(3)


def _kill(given: str) -> None:
    del given
    os.kill(os.getpid(), 9)


def _whisper(given: str) -> None:
    del given
    sys.stderr.write("all is well\n")


def _steps(given: str) -> None:
    """Goes on when the file that it is given exists."""
    sys.stderr.write("step one\n")
    sys.stderr.flush()
    while not Path(json.loads(given)["file"]).exists():
        time.sleep(0.01)
    sys.stdout.write("done")


def _linger(given: str) -> None:
    """Starts another process, tells both ids, and sleeps."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        Path(json.loads(given)["file"]).write_text(f"{os.getpid()} {child.pid}\n")
        time.sleep(600)


def _leave(given: str) -> None:
    """Leaves a process behind."""
    del given
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    sys.stdout.write(str(child.pid))
    sys.stdout.flush()
    os._exit(0)


def _lines(given: str) -> None:
    for number in range(json.loads(given)["count"]):
        sys.stdout.write(f"line {number}\n")


def _bytes(given: str) -> None:
    del given
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


def main(what: str, *rest: str) -> None:
    match what:
        case "list":
            sys.stdout.buffer.write(Path(rest[0]).read_bytes())
        case "flood":
            while True:
                sys.stdout.write("x" * 65_536)
        case "hang":
            Path(rest[0]).write_text(f"{os.getpid()}\n")
            time.sleep(600)
        case _:
            TOOLS[rest[-1]](sys.stdin.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
