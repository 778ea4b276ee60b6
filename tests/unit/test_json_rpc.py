"""Messages are read as the SDK's models would read them, although the models are used only for unusual forms."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest

from server.protocol.json_rpc import (
    ErrorResponse,
    Notification,
    Request,
    Response,
    comparable_id,
    encoded,
    fields_of,
    of_sdk,
    read_message,
)

ERROR = {"code": -32601, "message": "no"}


@pytest.mark.requirement("json-rpc.read")
def test_only_a_number_as_a_peer_would_convert_it_counts_as_the_same_id() -> None:
    assert [comparable_id(identity) for identity in ("7", "-7", 7, "a")] == [7, -7, 7, "a"]
    for identity in ("07", "1_0", " 7 ", "+7", "\u0667", "7.0"):
        assert comparable_id(identity) == identity


@pytest.mark.requirement("json-rpc.read")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": 1, "method": "ping"}, Request(1, "ping")),
        ({"id": "a", "method": "x", "params": {"b": [None]}}, Request("a", "x", {"b": [None]})),
        ({"id": 1, "method": "x", "params": None}, Request(1, "x")),
        ({"id": 1, "method": "x", "more": 1}, Request(1, "x")),
        ({"method": "x"}, Notification("x")),
        ({"method": "x", "params": {}}, Notification("x", {})),
        ({"method": "x", "more": 1}, Notification("x")),
        ({"id": 1, "result": {}}, Response(1, {})),
        ({"id": 1, "result": {"a": 1}, "more": 1}, Response(1, {"a": 1})),
        ({"id": 1, "error": ERROR}, ErrorResponse(1, ERROR)),
        ({"id": None, "error": {**ERROR, "data": [1]}}, ErrorResponse(None, {**ERROR, "data": [1]})),
    ],
)
def test_messages_of_every_kind_are_read(fields: dict[str, Any], message: object) -> None:
    line = json.dumps({"jsonrpc": "2.0", **fields}).encode()
    assert read_message(line) == message
    assert type(read_message(line)) is type(message)
    assert read_message(line) == of_sdk(types.jsonrpc_message_adapter.validate_json(line))


@pytest.mark.requirement("json-rpc.read")
@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{",
        "5",
        '{"id":1,"method":"x"}',
        '{"jsonrpc":"1.0","id":1,"method":"x"}',
        '{"jsonrpc":"2.0","id":1.5,"method":"x"}',
        '{"jsonrpc":"2.0","id":1,"method":5}',
        '{"jsonrpc":"2.0","id":1,"method":"x","params":[]}',
        '{"jsonrpc":"2.0","id":1,"result":5}',
        '{"jsonrpc":"2.0","id":1,"error":"no"}',
        '{"jsonrpc":"2.0","id":1}',
    ],
)
def test_a_line_that_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_message(line)


@pytest.mark.requirement("json-rpc.read")
@pytest.mark.parametrize(
    "message",
    [
        Request(1, "x"),
        Request("a", "x", {}),
        Notification("x"),
        Notification("x", {"a": 1}),
        Response(1, {"a": 1}),
        ErrorResponse(1, ERROR),
    ],
)
def test_a_written_message_is_read_back_unchanged(message: Request | Notification | Response | ErrorResponse) -> None:
    assert read_message(json.dumps(fields_of(message))) == message


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.requirement("json-rpc.read")
def test_a_lone_surrogate_or_a_deep_value_in_an_upstreams_list_affects_no_other_item() -> None:
    items = f'{{"name":"a\\ud83d","b":"\\ud83d\\ude00"}},{{"name":"c","d":{nested(600)},"e":1}},5'
    line = f'{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{items}]}}}}'
    items_kept = [{"name": "a\ufffd", "b": "\U0001f600"}, {"name": "c", "d": None, "e": 1}, 5]
    assert read_message(line) == Response(1, {"tools": items_kept})
    assert read_message(line.encode()) == Response(1, {"tools": items_kept})
    with pytest.raises(ValueError, match=r"."):
        read_message(line, is_of_client=True)
    for value in (nested(600), nested(100_000)):
        with pytest.raises(ValueError, match=r"."):
            read_message(f'{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"x":{value}}}}}')


@pytest.mark.requirement("json-rpc.read")
@pytest.mark.parametrize(
    ("text", "replacement"),
    [
        ("n\udce9 \udc80", "n\ufffd \ufffd"),  # undecodable bytes of file names
        ("\udcc3\udca9", "é"),
        ("half \ud800", "half ?"),
        ("\ud800 \udce9 é", "? ? é"),
    ],
)
def test_a_lone_surrogate_in_an_answer_is_replaced_and_the_rest_is_kept(text: str, replacement: str) -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {text: [text, 1.5], "n": {"a": (text,)}}}
    result = {replacement: [replacement, 1.5], "n": {"a": [replacement]}}
    assert json.loads(encoded(answer)) == {**answer, "result": result}


@pytest.mark.requirement("json-rpc.read")
@pytest.mark.parametrize("depth", [300, 5_000])
def test_an_answer_that_is_nested_too_deeply_becomes_an_error(depth: int) -> None:
    value: object = "\udce9"
    for _ in range(depth):
        value = {"a": value}
    assert json.loads(encoded({"jsonrpc": "2.0", "id": 1, "result": value}))["error"]["code"] == -32603
