"""What server and supervisors say to each other: messages of numbers, and what is to be run."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tools.shell.process_spec import MountStep, ProcessSpec


# To the broker, with the socket of a supervisor: it is to have a process of its own, or is one more of what is shared.
OWN, SHARED = b"\0", b"\1"
FRAME = struct.Struct("=BI")  # what every message begins with: its kind, and the bytes that follow
NUMBER = struct.Struct("=I")  # a number in a message
# From the server. RUN: `packed`; with it come the descriptors of the output, of the errors if told apart, of the
# attachments, those that are handed on, and those of namespaces. END: the grace in milliseconds. LIST: nothing. MOUNT:
# `packed_mounts`; with it comes a descriptor from which the process is read in whose namespaces that is to be mounted.
RUN, END, LIST, MOUNT = 1, 2, 3, 4
# To the server. STARTED: the ids of program and supervisor. FAILED: an error number. EXITED: a status of `waitpid`.
# GONE: nothing is left, the next one may come. LISTED: the ids of what runs. MOUNTED: an error number, or 0.
STARTED, FAILED, EXITED, GONE, LISTED, MOUNTED = 1, 2, 3, 4, 5, 6
MOST_DESCRIPTORS = 253  # Linux passes as many with one message (SCM_MAX_FD)
STANDARD_ERROR = 2
OUTPUT_NUMBERS = (1, STANDARD_ERROR)  # descriptors that a program writes to, so nothing can be attached there
LARGEST_LIMIT = (1 << 63) - 2  # of setrlimit; one more means none


def framed(kind: int, *numbers: int) -> bytes:
    return FRAME.pack(kind, len(numbers) * NUMBER.size) + b"".join(map(NUMBER.pack, numbers))


def packed(spec: ProcessSpec) -> bytes:
    """What follows in a message RUN: texts with NUL between them, the first a list of numbers; or a `ValueError`."""
    wanted = (spec.limits.file_bytes, spec.limits.processes, spec.limits.core_bytes)
    limits = [-1 if limit is None else limit for limit in wanted]
    errors = (STANDARD_ERROR,) if spec.separates_errors else ()
    given = (*spec.attachments, *spec.descriptors)
    rules = spec.landlock
    paths = (rules.readable, rules.writable) if rules is not None else ()
    # Without rules there is one path less than none.
    counts = [len(each) for each in paths] or [-1, 0]
    numbers = [len(spec.argv), *counts, len(spec.namespaces), *limits, *errors, *given]
    texts = [spec.limits.group or "", spec.folder, rules.calls.hex() if rules is not None else "", *spec.argv]
    for each in paths:
        texts += each
    for name, value in spec.environment.items():
        texts += (name, value)
    if (
        not spec.argv
        or any("\0" in text for text in texts)
        or any(not name or "=" in name for name in spec.environment)
        or any(number < 0 or number in OUTPUT_NUMBERS for number in given)
        or len(set(given)) < len(given)
        or not all(-1 <= limit <= LARGEST_LIMIT for limit in limits)
    ):
        raise ValueError("the operating system cannot take this")
    return os.fsencode("\0".join((" ".join(map(str, numbers)), *texts)))


def packed_mounts(steps: Iterable[MountStep]) -> bytes:
    """What follows in a message MOUNT: three texts for each mount, with NUL between them."""
    texts: list[str] = []
    for what, place, is_read_only, is_moved in steps:
        texts += (what, place, str(is_read_only + 2 * is_moved))
    return os.fsencode("\0".join(texts))


def unpacked_mounts(body: bytes) -> list[tuple[bytes, bytes, bool, bool]]:
    """`MountStep`s, as a supervisor reads them."""
    parts = iter(body.split(b"\0"))
    steps: list[tuple[bytes, bytes, bool, bool]] = []
    for what, place, how in zip(parts, parts, parts, strict=True):
        steps.append((what, place, bool(int(how) & 1), bool(int(how) & 2)))
    return steps


class LandlockRuleset(NamedTuple):
    """`LandlockRules`, as a supervisor reads them."""

    readable: list[bytes]
    writable: list[bytes]
    calls: bytes


class Order(NamedTuple):
    """What `packed` has put together, as a supervisor reads it."""

    argv: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]
    limits: tuple[int, int, int]  # bytes of a file, processes, bytes of a core dump; -1 leaves one as it is
    group: bytes  # the control group, empty for none
    numbers: list[int]  # of the descriptors after that of the output
    namespaces: int  # how many descriptors of namespaces come after those
    rules: LandlockRuleset | None


def unpacked(body: bytes) -> Order:
    head, group, folder, calls, *texts = body.split(b"\0")
    count, readable, writable, namespaces, file_bytes, processes, core_bytes, *numbers = map(int, head.split())
    argv, texts = texts[:count], texts[count:]
    rules = None
    if readable >= 0:
        paths, texts = texts[: readable + writable], texts[readable + writable :]
        rules = LandlockRuleset(paths[:readable], paths[readable:], bytes.fromhex(calls.decode()))
    pairs = iter(texts)
    environment = dict(zip(pairs, pairs, strict=True))
    return Order(argv, folder, environment, (file_bytes, processes, core_bytes), group, numbers, namespaces, rules)
