"""Splitting lines of the wire: any cut of the bytes gives the same lines, and memory stays bounded."""

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
    seen: list[bytes] = []
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        seen += splitter.feed(data[start:end])
    assert seen == lines


@pytest.mark.requirement("stdio.wire")
@examples(100)
@given(st.lists(st.sampled_from([1, 10, LARGE_PIECE - 1, LARGE_PIECE, 3 * LARGE_PIECE]), min_size=1, max_size=8))
def test_a_line_is_whole_however_large_the_pieces_are_in_which_it_comes(sizes: list[int]) -> None:
    pieces = [bytes([65 + at]) * size for at, size in enumerate(sizes)]
    splitter = LineSplitter(sum(sizes) + 4)
    seen = [line for piece in (*pieces, b"\nnext\nxxxxx", *pieces, b"\nlast\n") for line in splitter.feed(piece)]
    assert seen == [b"".join(pieces), b"next", b"last"]
    (ends,) = splitter.oversized
    assert ends.startswith(b"xxxxx" + pieces[0][:100])
    assert ends.endswith(pieces[-1][-100:])


@pytest.mark.requirement("stdio.large")
@examples(100)
@given(
    lines=st.lists(st.sampled_from([0, 1, 100, LARGE_LINE - 1, LARGE_LINE, 3 * LARGE_LINE]), max_size=80),
    counts=st.lists(st.sampled_from([1, 99, 100, LARGE_LINE, LARGE_LINE + 1, 1 << 30]), min_size=1, max_size=20),
)
def test_what_goes_out_is_the_same_however_little_is_taken_at_once(lines: list[int], counts: list[int]) -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    sent = [bytes([65 + at % 26]) * size for at, size in enumerate(lines)]
    taken = b""
    for line in sent:
        outgoing.put(line)
    for count in [*counts, *[1 << 30] * len(lines)]:
        piece = b"".join(outgoing.next_pieces())[:count]
        taken += piece
        outgoing.written(len(piece))
    assert taken == b"".join(line + b"\n" for line in sent if line)
    assert outgoing.size == 0


@pytest.mark.requirement("stdio.malformed")
def test_an_oversized_line_is_dropped_and_the_next_one_is_whole() -> None:
    splitter = LineSplitter(100)
    seen: list[bytes] = []
    for _ in range(50):
        seen += splitter.feed(b"y" * 100)
    seen += splitter.feed(b"\nnext\n")
    assert seen == [b"next"]
    assert len(splitter.oversized) == 1


@pytest.mark.requirement("stdio.malformed")
@pytest.mark.parametrize(
    ("ends", "identity"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"x"\n...', 5),
        (b'{"id": "a-b", "params": {\n...', "a-b"),
        (b'{"method":"x","params":{\n..."},"jsonrpc":"2.0","id":12}', 12),
        (b'{"method":"x","params":{\n..."id":3}}', None),
        (b'{"method":"x","params":{"id":3,\n...', None),
    ],
)
def test_the_id_of_an_oversized_request_is_known_only_where_it_is_certain(
    ends: bytes, identity: str | int | None
) -> None:
    assert refusal_of_oversized(ends, 100)["id"] == identity


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
@pytest.mark.parametrize(("asked", "cancelled"), [(77, "77"), ("77", 77), (77, 77), ("a", "a")])
async def test_nothing_is_owed_for_a_request_that_was_cancelled_by_its_number_or_its_text(
    asked: int | str, cancelled: int | str
) -> None:
    dispatcher = Dispatcher(OutgoingLines(lambda: None, Backpressure()), on_resume=lambda: None)
    dispatcher.receive(Request(asked, "tools/call", {}), b"")
    assert dispatcher.unanswered
    dispatcher.receive(Notification("notifications/cancelled", {"requestId": cancelled}), b"")
    assert not dispatcher.unanswered


@pytest.mark.requirement("results.schema")
@pytest.mark.anyio
async def test_a_result_that_cannot_be_encoded_is_an_error_and_ends_nothing() -> None:
    outgoing = OutgoingLines(lambda: None, Backpressure())
    dispatcher = Dispatcher(outgoing, on_resume=lambda: None)

    async def answer(*_: object) -> dict[str, object]:
        await dispatcher.notify("x", {"a": object()})
        return {"text": object()}

    async def hear(*_: object) -> None:
        """Nothing is told here."""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatcher.run, answer, hear)
        dispatcher.receive(Request(4, "x"), b"")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    lines = b"".join(outgoing.next_pieces()).splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["error"]["code"] == types.INTERNAL_ERROR
