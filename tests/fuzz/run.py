"""Fuzzing: random changes of stored inputs, reproducible by a seed, until the time is up.

make fuzz [FUZZ_ARGS='--seconds N --seed N --only NAME']

An input that fails is made smaller and stored in the corpus, so that the test suite tries it from then on. The exit
code is 1 if any input failed.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import random
import signal
import sys
import time
from collections.abc import Hashable, Sequence
from types import FrameType

from tests.fuzz.subjects import CORPORA, MAX_BYTES, SUBJECTS, Check, Subject, checks

MAX_CPU_SECONDS = 3.0
"""Limit of processor time for one small input."""
MAX_SECONDS = 60
"""An input that takes longer has hung, even on a busy machine."""
MAX_POOLED = 2_000
MAX_TRIED_TO_SHRINK = 2_000
ODD_BYTES = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\n", b"\r\n", b"\0", b"\x1b[", b"null", b"true", b"NaN"),
    *(b"-1", b"0", b"1e400", b"9" * 30, b"\\ud800", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8"),
    *(b"\xc3\xa9", b"\xf0\x9f\x98\x80", b" " * 50, b"[" * 300, b"../", b"__proto__", b"%s"),
)


def main() -> int:
    """Fuzz each subject, and print the findings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[*SUBJECTS], default=[*SUBJECTS])
    options = parser.parse_args()
    logging.disable()
    signal.signal(signal.SIGALRM, _fail_on_timeout)
    has_failed = False
    for name, subject, check in checks(options.only):
        has_failed |= not _fuzz(name, subject, check, random.Random(options.seed), options.seconds)  # noqa: S311 - repeatable
    return int(has_failed)


def _fail_on_timeout(_number: int, _frame: FrameType | None) -> None:
    raise AssertionError(f"an input took more than {MAX_SECONDS} s")


def _fuzz(name: str, subject: Subject, check: Check, chance: random.Random, seconds: float) -> bool:
    pool = [path.read_bytes() for path in subject.corpus]
    kinds: set[Hashable] = set()
    failures: set[str] = set()
    count, deadline = 0, time.monotonic() + seconds
    queue = [*pool]  # first, all inputs are tried unchanged
    while time.monotonic() < deadline:
        data = queue.pop() if queue else _change(chance, pool, subject.words)
        count += 1
        kind, failure = _try(check, data)
        if failure and failure not in failures:
            failures.add(failure)
            small_input = _shrink(check, data, failure)
            path = CORPORA / name / f"found-{hashlib.sha256(small_input).hexdigest()[:12]}"
            path.write_bytes(small_input)
            sys.stdout.write(f"{name}: {failure}\n  {path}\n")
        elif kind not in kinds:
            kinds.add(kind)
            if len(pool) < MAX_POOLED:
                pool.append(data)
    sys.stdout.write(f"{name}: {count:,} inputs of {len(kinds):,} kinds, {len(failures)} failures\n")
    sys.stdout.flush()
    return not failures


def _try(check: Check, data: bytes) -> tuple[Hashable, str]:
    """Return the kind of an input, and its failure: the exception and the function that raised it."""
    start = time.process_time()
    signal.alarm(MAX_SECONDS)
    try:
        kind = check(data)
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        place = f"{traceback.tb_frame.f_code.co_qualname}:{traceback.tb_lineno}" if traceback is not None else ""
        return None, f"{type(error).__name__} in {place}"
    finally:
        signal.alarm(0)
    return kind, "it is too slow" if time.process_time() - start > MAX_CPU_SECONDS else ""


def _change(chance: random.Random, pool: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    data = chance.choice(pool)
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        if chance.random() < 0.7:
            last = min(last, first + chance.randrange(12))
        other_input = chance.choice(pool)
        insertion = chance.choice(
            (
                b"",
                chance.choice(words),
                chance.choice(words),
                chance.choice(ODD_BYTES),
                bytes([chance.randrange(256)]),
                data[first:last] * chance.choice((2, 2, 3, 40)),
                other_input[chance.randrange(len(other_input) + 1) :][: chance.randrange(200)],
            )
        )
        data = data[:first] + insertion + data[last if chance.random() < 0.6 else first :]
    return data[:MAX_BYTES]


def _shrink(check: Check, data: bytes, failure: str) -> bytes:
    """Return a smaller input that fails in the same way."""
    size, tries = len(data) // 2, 0
    while size and tries < MAX_TRIED_TO_SHRINK:
        at = 0
        while at < len(data) and tries < MAX_TRIED_TO_SHRINK:
            tries += 1
            shorter = data[:at] + data[at + size :]
            if _try(check, shorter)[1] == failure:
                data = shorter
            else:
                at += size
        size //= 2
    return data


if __name__ == "__main__":
    sys.exit(main())
