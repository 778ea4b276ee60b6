"""An upstream that lies: it does its deeds in the phases that its arguments name, and is honest in all others.

python lying_upstream.py DEED[@PHASE][*TIMES] ...

The phases are `start`, `initialize`, `list`, `prompts` and `call` (the default). With TIMES, a deed is done only in the
first TIMES starts. The upstream records what happens in the file that the environment variable TALE names.
`lying_http_upstream.py` is the same over HTTP.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.peers.lying_deeds import NEVER, QUESTIONS, Json, Liar, answer_message, do_deed, note


class Pipe:
    """Standard output, and the answers that wait for the client's response to a question."""

    def __init__(self) -> None:
        self.pending_answers: list[Json] = []

    def raw(self, pieces: Iterable[bytes]) -> None:
        out = sys.stdout.buffer
        for piece in pieces:
            out.write(piece)
            out.flush()
        out.write(b"\n")
        out.flush()

    def say(self, message: Json) -> None:
        self.raw([json.dumps({"jsonrpc": "2.0", **message}).encode()])

    def ask(self, method: str, answer: Json) -> None:
        self.pending_answers.append(answer)
        self.say({"id": "asked", "method": method, "params": QUESTIONS[method]})


def over_stdio(liar: Liar) -> None:
    pipe = Pipe()
    for deed in liar.of("start"):
        do_deed(deed, {"id": 0}, {}, pipe)
    for line in sys.stdin.buffer:
        message: Json = json.loads(line)
        if message.get("id") == "asked" and pipe.pending_answers:
            note(f"asked {json.dumps(message.get('result', message.get('error')))}")
            content = {"type": "text", "text": json.dumps({name: message.get(name) for name in ("result", "error")})}
            pipe.say({**pipe.pending_answers.pop(), "result": {"content": [content]}})
            continue
        answer_message(liar, message, pipe)
        if "method" not in message:
            note(f"answered {message.get('id')} {json.dumps(message.get('result', message.get('error')))}")
        elif "ask-alone" in liar.of("call") and message["method"] == "notifications/initialized":
            for method, params in QUESTIONS.items():
                pipe.say({"id": method, "method": method, "params": params})


if __name__ == "__main__":
    signal.alarm(NEVER)
    over_stdio(Liar(sys.argv[1:]))
