"""A language server for tests, which behaves as its first argument says.

Its answers are the locations in `places.json`. Each line of a document that contains `wrong` is an error. `hover`
returns the state of the server.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

BEHAVIOUR = sys.argv[1] if len(sys.argv) > 1 else "honest"
state_counts: dict[str, Any] = {"opened": 0, "changed": 0, "watched": 0, "closed": 0, "reported": 0}


def send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any] | None:
    length = 0
    while (line := sys.stdin.buffer.readline()) != b"\r\n":
        if not line:
            return None
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return json.loads(sys.stdin.buffer.read(length))


def place(line: Any, character: Any) -> dict[str, Any]:
    return {"start": {"line": line, "character": character}, "end": {"line": line, "character": character}}


def report(uri: str, version: int, text: str) -> None:
    diagnostics = [
        {
            "range": place(number, len(line[: line.index("wrong")].encode("utf-16-le")) // 2),
            "message": "cut \ud83d \U0001f600" if BEHAVIOUR == "cuts" else line.strip(),
            "severity": [1] if BEHAVIOUR == "odd" else 1,
        }
        for number, line in enumerate(text.split("\n"))
        if "wrong" in line
    ]
    if BEHAVIOUR != "mute":
        state_counts["reported"] += 1
        send(
            {
                "method": "textDocument/publishDiagnostics",
                "params": {"uri": uri, "version": version, "diagnostics": diagnostics},
            }
        )


def reach_out() -> str:
    try:
        with socket.create_connection(("192.0.2.1", 80), 2):
            return "reached"
    except TimeoutError:
        return "tried"
    except OSError as error:
        return type(error).__name__


def write_to(path: Path) -> str:
    try:
        path.write_text("written")
    except OSError as error:
        return type(error).__name__
    return "written"


def answer(method: str, params: dict[str, Any]) -> Any:
    root = Path(os.getcwd())
    if method == "initialize":
        if BEHAVIOUR == "hangs":
            with (root / "starts").open("a") as starts:
                starts.write("x")
            time.sleep(600)
        return {"capabilities": {"positionEncoding": {}} if BEHAVIOUR == "odd" else {}}
    if method == "shutdown":
        return None
    if BEHAVIOUR == "dies":
        sys.stderr.write("I cannot go on\n")
        sys.stderr.flush()
        os._exit(3)
    if BEHAVIOUR == "floods":
        while True:
            send({"method": "window/logMessage", "params": {"type": 4, "message": "x" * 1000}})
    if BEHAVIOUR == "babbles":
        sys.stdout.write("Hello, I am no protocol\r\n\r\n" * 1000)
        sys.stdout.flush()
    if BEHAVIOUR == "boasts":
        sys.stdout.write("Content-Length: 999999999999\r\n\r\n")
        sys.stdout.flush()
    if BEHAVIOUR == "crumbles":
        return [None] * 400_000
    if BEHAVIOUR == "waits" and method == "textDocument/definition":
        waits = root / "waits"
        waits.touch()
        while waits.exists():
            time.sleep(0.02)
    if BEHAVIOUR == "silent":
        time.sleep(600)
    if method == "textDocument/hover":
        home = Path(os.environ.get("HOME", "/"))
        cache = Path(os.environ["XDG_CACHE_HOME"])
        cache.mkdir(parents=True, exist_ok=True)
        hidden_file = root / "hidden.fake"
        try:
            hidden_content = hidden_file.read_text()
        except OSError as error:
            hidden_content = type(error).__name__
        state = {
            **state_counts,
            "hidden": hidden_content,
            "pid": os.getpid(),
            "path": os.environ["PATH"],
            "cache": write_to(cache / "x"),
            "home": write_to(home / "x"),
            "root": write_to(root / "x"),
        }
        return {
            "contents": {
                "kind": "plaintext",
                "value": json.dumps(state | {"network": reach_out() if BEHAVIOUR == "reaches" else ""}),
            }
        }
    places: list[Any] = json.loads((root / "places.json").read_text()) if (root / "places.json").exists() else []
    if method == "textDocument/documentSymbol":
        return [{"name": "deep", "kind": 12, "range": place(0, 0), "selectionRange": place(0, 0), "children": places}]
    if method == "workspace/symbol":
        knows_project = BEHAVIOUR != "loads" or state_counts["reported"]
        return [{"name": "Named", "kind": 5, "location": location} for location in places if knows_project]
    return places


while (message := receive()) is not None:
    method: str | None = message.get("method")
    params: dict[str, Any] = message.get("params") or {}
    identity: int | None = message.get("id")
    if method is None:
        state_counts["edit"] = message.get("result", {}).get("applied")
    elif method == "textDocument/didOpen":
        state_counts["opened"] += 1
        document = params["textDocument"]
        arguments = (document["uri"], document["version"], document["text"])
        if BEHAVIOUR == "loads":
            threading.Timer(0.5, report, arguments).start()
        else:
            report(*arguments)
    elif method == "textDocument/didChange":
        state_counts["changed"] += 1
        report(params["textDocument"]["uri"], params["textDocument"]["version"], params["contentChanges"][0]["text"])
    elif method == "textDocument/didClose":
        state_counts["closed"] += 1
    elif method == "workspace/didChangeWatchedFiles":
        state_counts["watched"] += 1
    elif method == "exit":
        if BEHAVIOUR == "records":
            Path("exited").write_text("with parameters" if "params" in message else "without parameters")
        break
    elif identity is not None:
        if BEHAVIOUR == "edits" and method != "initialize":
            uri = "file://" + os.path.join(os.getcwd(), "a.fake")
            edit = {"changes": {uri: [{"range": place(0, 0), "newText": "mine"}]}}
            send({"id": "of-mine", "method": "workspace/applyEdit", "params": {"edit": edit}})
        send({"id": identity, "result": answer(method, params)})
