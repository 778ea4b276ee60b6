"""Splitting bytes into lines: all ways to cut the bytes give the same lines, and memory stays bounded."""

from __future__ import annotations

import json
from itertools import pairwise

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.protocol.json_rpc import Notification, Request
from server.transports.dispatcher import Dispatcher
from server.transports.json_lines import (
    LARGE_LINE,
    LARGE_PIECE,
    Backpressure,
    LineSplitter,
    OutgoingLines,
    refusal_of_oversized,
    refusal_of_unreadable,
)
from tests.examples import examples


@pytest.mark.requirement("stdio.wire")
@examples(100)
@given(
    lines=st.lists(st.binary(min_size=1, max_size=20).map(lambda line: b"x" + line.replace(b"\n", b"")), max_size=8),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_lines_are_the_same_however_the_bytes_arrive(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter(1000)
    output_lines: list[bytes] = []
    cut_points = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(cut_points):
        output_lines += splitter.feed(data[start:end])
    assert output_lines == lines


@pytest.mark.requirement("stdio.wire")
@examples(100)
@given(st.lists(st.sampled_from([1, 10, LARGE_PIECE - 1, LARGE_PIECE, 3 * LARGE_PIECE]), min_size=1, max_size=8))
def test_a_line_is_complete_whatever_the_size_of_its_pieces(sizes: list[int]) -> None:
    pieces = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    splitter = LineSplitter(sum(sizes) + 4)
    output_lines = [
        line for piece in (*pieces, b"\nnext\nxxxxx", *pieces, b"\nlast\n") for line in splitter.feed(piece)
    ]
    assert output_lines == [b"".join(pieces), b"next", b"last"]
    (excerpt,) = splitter.oversized
    assert excerpt.startswith(b"xxxxx" + pieces[0][:100])
    assert excerpt.endswith(pieces[-1][-100:])


@pytest.mark.requirement("stdio.large")
@examples(100)
@given(
    lines=st.lists(st.sampled_from([0, 1, 100, LARGE_LINE - 1, LARGE_LINE, 3 * LARGE_LINE]), max_size=80),
    counts=st.lists(st.sampled_from([1, 99, 100, LARGE_LINE, LARGE_LINE + 1, 1 << 30]), min_size=1, max_size=20),
)
def test_the_output_is_the_same_however_few_bytes_are_written_at_once(lines: list[int], counts: list[int]) -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    lines_sent = [bytes([65 + at % 26]) * size for at, size in enumerate(lines)]
    output = b""
    for line in lines_sent:
        outgoing.put(line)
    for count in [*counts, *[1 << 30] * len(lines)]:
        piece = b"".join(outgoing.next_pieces())[:count]
        output += piece
        outgoing.written(len(piece))
    assert output == b"".join(line + b"\n" for line in lines_sent if line)
    assert outgoing.size == 0


@pytest.mark.requirement("stdio.malformed")
def test_an_oversized_line_is_dropped_and_the_next_one_is_complete() -> None:
    splitter = LineSplitter(100)
    output_lines: list[bytes] = []
    for _ in range(50):
        output_lines += splitter.feed(b"y" * 100)
    output_lines += splitter.feed(b"\nnext\n")
    assert output_lines == [b"next"]
    assert len(splitter.oversized) == 1


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize(
    ("excerpt", "identity"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"x"\n...', 5),
        (b'{"id": "a-b", "params": {\n...', "a-b"),
        (b'{"method":"x","params":{\n..."},"jsonrpc":"2.0","id":12}', 12),
        (b'{"method":"x","params":{\n..."id":3}}', None),
        (b'{"method":"x","params":{"id":3,\n...', None),
    ],
)
def test_the_id_of_an_oversized_request_is_used_only_if_it_is_certain(
    excerpt: bytes, identity: str | int | None
) -> None:
    assert refusal_of_oversized(excerpt, 100)["id"] == identity


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize(
    ("line", "identity"),
    [
        (b'{"id": 3}', 3),
        (b'{"id": "x", "jsonrpc": "2.0"}', "x"),
        (b'{"id": 1.5, "method": "ping"}', None),
        (b'{"id": true}', None),
        (b'{"id": null}', None),
        (b'[{"id": 1}]', None),
        (b'{"id": 3, "result": {}, "error": {}}', "none"),
        (b"[1]", "none"),
        (b"nonsense", "none"),
        (b"[" * 100_000, "none"),
    ],
)
def test_only_json_with_an_id_is_answered(line: bytes, identity: str | int | None) -> None:
    refusal = refusal_of_unreadable(line)
    assert (refusal["id"] if refusal else "none") == identity


@pytest.mark.requirement("json-rpc.ids")
@pytest.mark.anyio
@pytest.mark.parametrize(("request_id", "cancelled_id"), [(77, "77"), ("77", 77), (77, 77), ("a", "a")])
async def test_a_request_cancelled_by_its_id_as_number_or_text_needs_no_answer(
    request_id: int | str, cancelled_id: int | str
) -> None:
    dispatcher = Dispatcher(OutgoingLines(lambda: None, Backpressure()), on_resume=lambda: None)
    dispatcher.receive(Request(request_id, "tools/call", {}), b"")
    assert dispatcher.unanswered
    dispatcher.receive(Notification("notifications/cancelled", {"requestId": cancelled_id}), b"")
    assert not dispatcher.unanswered


@pytest.mark.requirement("results.schema")
@pytest.mark.anyio
async def test_a_result_that_cannot_be_encoded_becomes_an_error_and_the_connection_continues() -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    dispatcher = Dispatcher(outgoing, on_resume=lambda: None)

    async def answer(*_: object) -> dict[str, object]:
        await dispatcher.notify("x", {"a": object()})
        return {"text": object()}

    async def hear(*_: object) -> None:
        """Ignore notifications."""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.run, answer, hear)
        dispatcher.receive(Request(4, "x"), b"")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    lines = b"".join(outgoing.next_pieces()).splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["error"]["code"] == types.INTERNAL_ERROR
