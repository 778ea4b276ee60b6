"""Count the functions and files of this project that one warm call over stdio uses, in any thread.

python bench/count_calls.py [-v]     prints a line per kind of call; with -v also the names of the functions
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

PROFILED_SERVER = """
import _thread, json, os, signal, sys
folders = tuple(os.path.join(sys.argv[1], name) + os.sep for name in ("server", "tools"))
passed, is_counting = set(), False

def profile(frame, event, argument):
    if is_counting and event == "call" and frame.f_code.co_filename.startswith(folders):
        passed.add((frame.f_code.co_filename, frame.f_code.co_qualname))

def switch(number, frame):
    global is_counting
    is_counting = not is_counting
    with open(out, "w") as file:
        json.dump(None if is_counting else sorted(passed), file)

folder, out, *rest = sys.argv[1:]
signal.signal(signal.SIGUSR1, switch)
start_thread = _thread.start_new_thread

def start_profiled(function, arguments, *more):
    def run(*given, **named):
        sys.setprofile(profile)
        return function(*given, **named)
    return start_thread(run, arguments, *more)

_thread.start_new_thread = start_profiled
sys.setprofile(profile)
sys.path.insert(0, folder)
from server.cli import main
sys.exit(main(rest))
"""

UPSTREAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "u", "version": "1"}}
    results = {
        "initialize": {"protocolVersion": "2025-11-25", **about},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }
    if "id" in asked:
        told = {"error": {"code": -32601, "message": "no"}}
        if asked["method"] in results:
            told = {"result": results[asked["method"]]}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
"""


def called_functions(
    folder: Path, options: Sequence[str], tool: str, arguments: Callable[[int], dict[str, Any]]
) -> list[tuple[str, str]]:
    """Return the file and the name of each function that the second of two calls uses. Every question gets a yes."""
    out = folder / "passed.json"
    out.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-c",
        PROFILED_SERVER,
        str(ROOT),
        str(out),
        "serve",
        "--workspace",
        str(folder),
        *options,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(message: dict[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            process.stdin.flush()

        def answer(number: int) -> dict[str, Any]:
            assert process.stdout is not None
            while True:
                message = json.loads(process.stdout.readline())
                if message.get("method") == "elicitation/create":
                    send({"id": message["id"], "result": {"action": "accept", "content": {"decision": "once"}}})
                elif message.get("id") == number and "method" not in message:
                    return message["result"]

        def switch(*, until: Callable[[], bool]) -> None:
            process.send_signal(signal.SIGUSR1)
            end = time.monotonic() + 5
            while not until() and time.monotonic() < end:
                time.sleep(0.01)

        client_info: dict[str, Any] = {
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "count", "version": "1"},
        }
        send({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", **client_info}})
        answer(1)
        send({"method": "notifications/initialized"})
        send({"id": 2, "method": "tools/list", "params": {}})
        answer(2)
        for number in range(2):
            if number == 1:
                switch(until=out.exists)
            send({"id": 3 + number, "method": "tools/call", "params": {"name": tool, "arguments": arguments(number)}})
            result = answer(3 + number)
            if result.get("isError"):
                raise RuntimeError(str(result))
        time.sleep(0.3)  # work that continues after the answer belongs to the call
        switch(until=lambda: out.read_text() not in ("", "null"))
        process.stdin.close()
    return [(str(file), str(name)) for file, name in json.loads(out.read_text())]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(os.path.realpath(name))
        file = folder / "a.txt"
        file.write_text("hello\n")
        (folder / "upstream.py").write_text(UPSTREAM)
        entry = {"command": sys.executable, "args": [str(folder / "upstream.py")], "trust": True}
        config = folder / "config.json"
        config.write_text(json.dumps({"mcpServers": {"up": entry}, "proxy": {"firstListWait": 30_000}}))
        words = ("hello", "hallo")

        def edit_arguments(number: int) -> dict[str, Any]:
            return {"file_path": str(file), "old_string": words[number], "new_string": words[1 - number]}

        calls: tuple[tuple[str, Sequence[str], str, Callable[[int], dict[str, Any]]], ...] = (
            ("read_file", (), "read_file", lambda _: {"absolute_path": str(file)}),
            ("edit, confirmed", (), "edit", edit_arguments),
            ("relayed call", ("--config", str(config)), "up__echo", lambda _: {"message": "hello"}),
        )
        for title, options, tool, arguments in calls:
            functions = called_functions(folder, options, tool, arguments)
            print(f"{title}: {len(functions)} functions in {len({file for file, _ in functions})} files", flush=True)
            if "-v" in sys.argv:
                print(*(f"    {os.path.relpath(file, ROOT)} {name}" for file, name in functions), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
