"""What the protocol costs: ours beside the SDK's low-level server on its stock transport."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from bench.line_client import LineClient, Start
from bench.rows import PYTHON, SERVERS, Pair, Round, Row, Scene

SDK = Start([PYTHON, str(SERVERS / "sdk_lowlevel.py")])
CALLS = 1500
IN_FLIGHT = 16
GREETING = {"name": "x"}


def _ours(scene: Scene) -> Start:
    return Start([PYTHON, str(SERVERS / "ours_with_noop.py"), str(scene.scratch)])


@contextmanager
def _start(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with LineClient(scene.server(scene.scratch)) as mine:
            pass
        with LineClient(SDK) as theirs:
            pass
        return Pair(mine.seconds_to_first_answer * 1000, theirs.seconds_to_first_answer * 1000)

    yield one_round


@contextmanager
def _noop_call(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with LineClient(_ours(scene)) as mine, LineClient(SDK) as theirs:
            mine.call_median("hello", GREETING, 200)
            theirs.call_median("hello", GREETING, 200)
            return Pair(mine.call_median("hello", GREETING, CALLS), theirs.call_median("hello", GREETING, CALLS))

    yield one_round


@contextmanager
def _read_small(scene: Scene) -> Generator[Round]:
    path = scene.scratch / "small.txt"
    path.write_text("small\n")
    arguments = {"absolute_path": str(path)}

    def one_round() -> Pair:
        with LineClient(_ours(scene)) as mine, LineClient(SDK) as theirs:
            mine.call_median("read_file", arguments, 200)
            theirs.call_median("hello", GREETING, 200)
            taken = mine.call_median("read_file", arguments, CALLS)
            return Pair(taken, theirs.call_median("hello", GREETING, CALLS))

    yield one_round


@contextmanager
def _in_flight(scene: Scene) -> Generator[Round]:
    def one_round() -> Pair:
        with LineClient(_ours(scene)) as mine, LineClient(SDK) as theirs:
            mine.calls_per_second("hello", GREETING, 500, IN_FLIGHT)
            theirs.calls_per_second("hello", GREETING, 500, IN_FLIGHT)
            rate = mine.calls_per_second("hello", GREETING, CALLS * 2, IN_FLIGHT)
            return Pair(rate, theirs.calls_per_second("hello", GREETING, CALLS * 2, IN_FLIGHT))

    yield one_round


ROWS = (
    Row("start to first answer, of the SDK's minimal server", 1.15, _start),
    Row("call without file work, of the SDK's server on its stock transport", 0.6, _noop_call),
    Row("read_file of 6 bytes, of the SDK's no-op call", 1.2, _read_small),
    Row("calls with 16 in flight, of the SDK's", 2.0, _in_flight, unit="/s", at_least=True),
)
