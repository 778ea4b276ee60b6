"""The messages between server and supervisors."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tools.shell.process_spec import MountStep, ProcessSpec


# Sent to the broker with a socket: whether the socket is for a new supervisor, or for the one that services share.
OWN, SHARED = b"\0", b"\1"
FRAME = struct.Struct("=BI")  # the header of every message: its kind, and the number of bytes that follow
NUMBER = struct.Struct("=I")  # a number in a message
# From the server. RUN: the result of `pack_run`, with these descriptors: the output, standard error if separate, the
# attachments, the descriptors of the `ProcessSpec`, the namespaces. END: the grace period in milliseconds. LIST: no
# content. MOUNT: the result of `pack_mounts`, with a descriptor from which to read a process id; the mounts are made
# in the namespaces of that process.
RUN, END, LIST, MOUNT = 1, 2, 3, 4
# To the server. STARTED: the process ids of the program and its supervisor. FAILED: an error number. EXITED: a
# `waitpid` status. GONE: none of the program's processes is left, and the next program may be sent. LISTED: process
# ids. MOUNTED: an error number, or 0.
STARTED, FAILED, EXITED, GONE, LISTED, MOUNTED = 1, 2, 3, 4, 5, 6
MAX_DESCRIPTORS = 253  # maximum number of descriptors in one message on Linux (SCM_MAX_FD)
STANDARD_ERROR = 2
OUTPUT_NUMBERS = (1, STANDARD_ERROR)  # descriptor numbers of the outputs, which no attachment can have
LARGEST_LIMIT = (1 << 63) - 2  # largest limit that is valid on every system; on macOS, one more means no limit


def frame(kind: int, *numbers: int) -> bytes:
    return FRAME.pack(kind, len(numbers) * NUMBER.size) + b"".join(map(NUMBER.pack, numbers))


def pack_run(spec: ProcessSpec) -> bytes:
    """Return the body of a RUN message. Raises a `ValueError` if the operating system cannot accept the spec."""
    optional_limits = (spec.limits.file_bytes, spec.limits.processes, spec.limits.core_bytes)
    limits = [-1 if limit is None else limit for limit in optional_limits]
    errors = (STANDARD_ERROR,) if spec.separates_errors else ()
    targets = (*spec.attachments, *spec.descriptors)
    rules = spec.landlock
    path_lists = (rules.readable, rules.writable) if rules is not None else ()
    # -1 means that there are no rules at all.
    counts = [len(paths) for paths in path_lists] or [-1, 0]
    numbers = [len(spec.argv), *counts, len(spec.namespaces), *limits, *errors, *targets]
    texts = [spec.limits.group or "", spec.folder, rules.calls.hex() if rules is not None else "", *spec.argv]
    for paths in path_lists:
        texts += paths
    for name, value in spec.environment.items():
        texts += (name, value)
    if (
        not spec.argv
        or any("\0" in text for text in texts)
        or any(not name or "=" in name for name in spec.environment)
        or any(number < 0 or number in OUTPUT_NUMBERS for number in targets)
        or len(set(targets)) < len(targets)
        or not all(-1 <= limit <= LARGEST_LIMIT for limit in limits)
    ):
        raise ValueError("the operating system cannot accept this")
    return os.fsencode("\0".join((" ".join(map(str, numbers)), *texts)))


def pack_mounts(steps: Iterable[MountStep]) -> bytes:
    """Return the body of a MOUNT message: three strings per mount, separated by NUL."""
    return os.fsencode(
        "\0".join(f"{step.source}\0{step.place}\0{step.is_read_only + 2 * step.is_moved}" for step in steps)
    )


def unpack_mounts(body: bytes) -> list[tuple[bytes, bytes, bool, bool]]:
    """Return the `MountStep`s in the form that a supervisor uses."""
    parts = iter(body.split(b"\0"))
    return [
        (source, target, bool(int(flags) & 1), bool(int(flags) & 2))
        for source, target, flags in zip(parts, parts, parts, strict=True)
    ]


class Order(NamedTuple):
    """A RUN message in the form that a supervisor uses."""

    argv: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]
    limits: tuple[int, int, int]  # bytes of a file, number of processes, bytes of a core dump; -1 means unchanged
    group: bytes  # the control group; empty for none
    numbers: list[int]  # the program's numbers for the descriptors after the output
    namespaces: int  # how many namespace descriptors come last
    rules: tuple[list[bytes], list[bytes], bytes] | None  # the arguments of `confinement.confine`


def unpack_run(body: bytes) -> Order:
    head, group, folder, calls, *texts = body.split(b"\0")
    count, readable, writable, namespaces, file_bytes, processes, core_bytes, *numbers = map(int, head.split())
    argv, texts = texts[:count], texts[count:]
    rules = None
    if readable >= 0:
        paths, texts = texts[: readable + writable], texts[readable + writable :]
        rules = (paths[:readable], paths[readable:], bytes.fromhex(calls.decode()))
    environment = dict(zip(texts[::2], texts[1::2], strict=True))
    return Order(argv, folder, environment, (file_bytes, processes, core_bytes), group, numbers, namespaces, rules)
