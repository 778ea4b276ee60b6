"""Requests with odd ids and odd bodies: every transport answers them in the same way, and other requests go on."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest

from tests.harness import write_config
from tests.interaction.network.wires import ACCEPT, modern, modern_headers
from tests.interaction.raw_clients import CEILING, http_server
from tests.interaction.test_end_of_input import wait_for
from tests.interaction.test_lifecycle import INITIALIZE, INITIALIZED, Server, call, running
from tests.tables import each_of

Json = dict[str, Any]
PING = {"jsonrpc": "2.0", "method": "ping"}


class TransportClient(Protocol):
    """A client on one transport."""

    def exchange(self, body: bytes) -> list[Json]:
        """Send bytes and then a valid request, and return the answers that come before the answer to that request."""
        ...

    def begin(self, body: bytes) -> Any:
        """Send a slow request, and return an object from which `end` reads its answer."""
        ...

    def end(self, pending: Any) -> Json:
        """Return the answer to a slow request."""
        ...


def _answers(messages: Iterable[Json]) -> list[Json]:
    return [message for message in messages if "method" not in message]


class StdioClient:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._count = 0
        server.send(INITIALIZE, INITIALIZED)
        assert server.answer()["id"] == 0

    def exchange(self, body: bytes) -> list[Json]:
        self._count += 1
        sentinel = f"sentinel-{self._count}"
        self._server.send(body, {**PING, "id": sentinel})
        answers: list[Json] = []
        while (message := self._server.answer()).get("id") != sentinel:
            answers.append(message)
        return _answers(answers)

    def begin(self, body: bytes) -> None:
        self._server.send(body)

    def end(self, pending: None) -> Json:
        while "method" in (message := self._server.answer()):
            pass
        return message


class HttpClient:
    """A client over Streamable HTTP, with or without a session."""

    def __init__(self, url: str, *, is_modern: bool) -> None:
        self._url = url
        self._is_modern = is_modern
        ping = modern(7, "server/discover")
        self._headers = {**ACCEPT, **(modern_headers(ping) if is_modern else {})}
        self._good = json.dumps(ping if is_modern else {**PING, "id": "sentinel"}).encode()
        if not is_modern:
            connection, response = self._post(json.dumps(INITIALIZE).encode())
            response.read()
            self._headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
            connection.close()
            assert self._answers_to(json.dumps(INITIALIZED).encode()) == []

    def _post(self, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=CEILING)
        connection.request("POST", "/mcp", body, self._headers)
        return connection, connection.getresponse()

    def _answers_to(self, body: bytes) -> list[Json]:
        connection, response = self._post(body)
        with closing(connection):
            return _answers(_messages(response))

    def exchange(self, body: bytes) -> list[Json]:
        answers = self._answers_to(body)
        assert "result" in self._answers_to(self._good)[0]
        return answers

    def begin(self, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        return self._post(body)

    def end(self, pending: tuple[http.client.HTTPConnection, http.client.HTTPResponse]) -> Json:
        connection, response = pending
        with closing(connection):
            (answer,) = _answers(_messages(response))
            return answer


def _messages(response: http.client.HTTPResponse) -> list[Json]:
    text = response.read().decode()
    if response.headers.get_content_type() == "application/json":
        return [json.loads(text)] if text else []
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


class SseClient:
    def __init__(self, url: str) -> None:
        self._url = url
        self._count = 0
        self._stream = http.client.HTTPConnection(urlsplit(url).netloc, timeout=CEILING)
        self._stream.request("GET", "/sse")
        self._events = self._stream.getresponse()
        self._endpoint = self._data()
        assert self._post(json.dumps(INITIALIZE).encode()) == []
        assert json.loads(self._data())["id"] == 0
        assert self._post(json.dumps(INITIALIZED).encode()) == []

    def close(self) -> None:
        self._events.close()
        self._stream.close()

    def _data(self) -> str:
        while not (line := self._events.readline().decode()).startswith("data: "):
            assert line, "the stream has ended"
        return line[6:].strip()

    def _post(self, body: bytes) -> list[Json]:
        with closing(http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=CEILING)) as connection:
            connection.request("POST", self._endpoint, body, dict(ACCEPT))
            response = connection.getresponse()
            if response.headers.get_content_type() == "application/json":
                return _messages(response)
            response.read()
            return []

    def exchange(self, body: bytes) -> list[Json]:
        self._count += 1
        sentinel = f"sentinel-{self._count}"
        answers = self._post(body)
        assert self._post(json.dumps({**PING, "id": sentinel}).encode()) == []
        while (message := json.loads(self._data())).get("id") != sentinel:
            answers.append(message)
        return _answers(answers)

    def begin(self, body: bytes) -> None:
        assert self._post(body) == []

    def end(self, pending: None) -> Json:
        while "method" in (message := json.loads(self._data())):
            pass
        return message


TRANSPORTS = ("stdio", "session", "stateless", "sse")


@contextmanager
def _transport_clients(root: Path, config: Path) -> Generator[dict[str, TransportClient]]:
    with running(root, config) as server, http_server(root, config) as url:
        sse = SseClient(url)
        try:
            yield {
                "stdio": StdioClient(server),
                "session": HttpClient(url, is_modern=False),
                "stateless": HttpClient(url, is_modern=True),
                "sse": sse,
            }
        finally:
            sse.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[dict[str, TransportClient], Path]]:
    folder = tmp_path_factory.mktemp("odd").resolve()
    root = folder / "workspace"
    root.mkdir()
    config = write_config(folder, {"shell": {"sandbox": "off"}, "permissions": {"allow": ["Bash"]}})
    with _transport_clients(root, config) as clients:
        yield clients, root


INVALID_IDS = [
    "1.5",
    "1.0",
    "-0.5",
    "1e3",
    "1e400",
    "true",
    "false",
    "null",
    "{}",
    "[]",
    "[1]",
    '{"id":1}',
    "NaN",
    "-Infinity",
]
SHAPES = [
    '{"jsonrpc":"2.0","id":%s,"method":"ping"}',
    '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"read_file"},"id":%s}',
    '{"jsonrpc":"2.0","id":%s,"method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","\\u0069d":%s,"method":"tools/list","params":{}}',
]


@pytest.mark.requirement("json-rpc.answered")
@each_of("identity", INVALID_IDS)
@each_of("transport", TRANSPORTS)
def test_a_request_with_an_invalid_id_is_refused(
    transport: str, identity: str, served: tuple[dict[str, TransportClient], Path]
) -> None:
    for shape in SHAPES:
        (answer,) = served[0][transport].exchange((shape % identity).encode())
        assert (answer["id"], answer["error"]["code"]) == (None, -32600), shape


DEEP = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 4500
BODIES: dict[str, tuple[bytes, Any, int]] = {
    "no method": (b'{"jsonrpc":"2.0","id":7}', 7, -32600),
    "a method that is none": (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600),
    "no revision of JSON-RPC": (b'{"id":"x","method":"ping"}', "x", -32600),
    "another one": (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 7, -32600),
    "parameters in a list": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', 7, -32600),
    "a text as parameters": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}', 7, -32600),
    "half a character": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\\ud800"}}', 7, -32600),
    "an array of requests": (b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]', None, -32600),
    "bytes that are no text": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":"\xff"}}', 7, -32700),
    "a number of 4,500 digits": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + DIGITS + b"}}", 7, -32700),
    "an id of 4,500 digits": (b'{"jsonrpc":"2.0","id":' + DIGITS + b',"method":"ping"}', None, -32700),
    "an id of half a character": (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', "\ud800", -32600),
    "nested deeply": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + DEEP + b"}}", 7, -32700),
    "cut": (b'{"jsonrpc":"2.0","id":7,"method":"ping"', 7, -32700),
    "cut in front": (b'"2.0","id":7,"method":"ping"}', None, -32700),
    "two of them": (b'{"jsonrpc":"2.0","id":7,"method":"ping"} {"id":8}', 7, -32700),
}


@pytest.mark.requirement("json-rpc.answered")
@each_of("name", BODIES)
@each_of("transport", TRANSPORTS)
def test_a_malformed_request_is_refused_by_its_id_if_that_is_certain(
    transport: str, name: str, served: tuple[dict[str, TransportClient], Path]
) -> None:
    body, identity, code = BODIES[name]
    (answer,) = served[0][transport].exchange(body)
    assert (answer["id"], answer["error"]["code"]) == (identity, code)


@pytest.mark.requirement("json-rpc.answered")
@each_of("body", [b"", b"{", b"[]", b"[1]", b"null", b'"x"', b"7", b'{"jsonrpc":"2.0"}', b"\xff"])
@each_of("transport", ["session", "stateless"])
def test_a_post_without_a_message_is_refused_with_a_clear_message(
    transport: str, body: bytes, served: tuple[dict[str, TransportClient], Path]
) -> None:
    (answer,) = served[0][transport].exchange(body)
    assert (answer["id"], answer["error"]["code"] in {-32600, -32700}) == (None, True)
    assert answer["error"]["message"].startswith("This is not ")


@pytest.mark.requirement("json-rpc.answered")
@pytest.mark.parametrize(
    "identity",
    [0, -1, 2**63, 10**4000, "", " 1", "01", "\u0000", "x" * 1_000_000, "_GET_streamed", "null", "\U0001f600"],
    ids=lambda value: str(value)[:12],
)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_request_with_an_unusual_id_gets_an_answer_with_this_id(
    transport: str, identity: int | str, served: tuple[dict[str, TransportClient], Path]
) -> None:
    ping = modern(0, "server/discover") if transport == "stateless" else PING
    (answer,) = served[0][transport].exchange(json.dumps({**ping, "id": identity}).encode())
    assert answer["id"] == identity
    assert "result" in answer


@pytest.mark.requirement("json-rpc.answered")
@each_of(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"notifications/unheard/of"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1e400}}',
        b'{"jsonrpc":"2.0","id":77,"result":{}}',
        b'{"jsonrpc":"2.0","id":"no such","error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    ],
)
@each_of("transport", ["stdio", "session", "sse"])
def test_a_message_that_needs_no_answer_gets_none(
    transport: str, body: bytes, served: tuple[dict[str, TransportClient], Path]
) -> None:
    assert served[0][transport].exchange(body) == []


def _waiting_call(identity: int | str, go_file: Path) -> bytes:
    command = f"until [ -e '{go_file}' ]; do sleep 0.05; done; echo gone"
    return json.dumps(call(identity, "run_shell_command", command=command)).encode()


@pytest.mark.requirement("json-rpc.ids")
@pytest.mark.parametrize(("first", "second"), [(5, 5), ("a", "a"), (5, "5"), ("5", 5)])
@pytest.mark.parametrize("transport", ["stdio", "session", "sse"])
def test_a_request_with_the_id_of_an_open_one_is_refused_and_the_open_one_is_answered(
    transport: str, first: int | str, second: int | str, served: tuple[dict[str, TransportClient], Path], tmp_path: Path
) -> None:
    go_file, client = served[1] / f"go-{tmp_path.name}", served[0][transport]
    pending = client.begin(_waiting_call(first, go_file))
    for twin in ({**PING, "id": second}, call(second, "list_directory", path=str(served[1]))):
        (refusal,) = client.exchange(json.dumps(twin).encode())
        assert (refusal["id"], refusal["error"]["code"]) == (second, -32600)
        assert "id" in refusal["error"]["message"]
    go_file.touch()
    answer = client.end(pending)
    assert answer["id"] == first
    assert "gone" in answer["result"]["content"][0]["text"]
    (answer,) = client.exchange(json.dumps({**PING, "id": second}).encode())
    assert answer == {"jsonrpc": "2.0", "id": second, "result": {}}


def _answer_once_free(client: TransportClient, identity: int | str) -> Json:
    """Return the answer to a ping with this id, as soon as the id is free."""
    for _ in range(10_000):
        (answer,) = client.exchange(json.dumps({**PING, "id": identity}).encode())
        if "result" in answer:
            return answer
    raise AssertionError(identity)


@pytest.mark.requirement("json-rpc.ids")
def test_an_id_stays_taken_while_its_request_runs_even_if_its_connection_is_lost(
    served: tuple[dict[str, TransportClient], Path], tmp_path: Path
) -> None:
    go_file, client = tmp_path / "go", served[0]["session"]
    marker = served[1] / "begun"
    command = f"touch '{marker}'; until [ -e '{go_file}' ]; do sleep 0.05; done"
    connection, response = client.begin(json.dumps(call(9, "run_shell_command", command=command)).encode())
    wait_for(marker)
    response.close()
    connection.close()
    (refusal,) = client.exchange(json.dumps({**PING, "id": 9}).encode())
    assert refusal["error"]["code"] == -32600
    go_file.touch()
    assert _answer_once_free(client, "9") == {"jsonrpc": "2.0", "id": "9", "result": {}}


@pytest.mark.requirement("json-rpc.ids")
def test_many_requests_with_one_id_at_once_are_all_answered(served: tuple[dict[str, TransportClient], Path]) -> None:
    for transport in ("session", "stateless"):
        client = served[0][transport]
        message = modern(3, "server/discover") if transport == "stateless" else {**PING, "id": 3}
        answers = [client.end(pending) for pending in [client.begin(json.dumps(message).encode()) for _ in range(50)]]
        assert {answer["id"] for answer in answers} == {3}
        assert any("result" in answer for answer in answers)


@pytest.mark.requirement("json-rpc.ids")
def test_a_cancelled_request_frees_its_id(served: tuple[dict[str, TransportClient], Path], tmp_path: Path) -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "11"}}
    for transport in ("stdio", "sse"):
        client = served[0][transport]
        client.begin(_waiting_call(11, tmp_path / "never"))
        client.exchange(json.dumps(cancel).encode())
        assert _answer_once_free(client, 11)["id"] == 11


@pytest.mark.requirement("json-rpc.ids")
def test_a_request_may_have_the_name_of_its_sessions_stream_as_its_id(
    served: tuple[dict[str, TransportClient], Path],
) -> None:
    for name in ("_GET_stream", "0"):
        (answer,) = served[0]["session"].exchange(json.dumps({**PING, "id": name}).encode())
        assert (answer["id"], answer["result"]) == (name, {})


@pytest.mark.requirement("json-rpc.ids")
def test_requests_with_one_id_do_not_hold_up_the_end_of_input(root: Path) -> None:
    never = root / "never"
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    with running(root, None, "--approval-mode", "yolo") as server:
        server.send(INITIALIZE, INITIALIZED, _waiting_call(1, never), _waiting_call(1, never), cancel)
        server.stdin.close()
        answers = [message for message in server.remaining_messages() if message.get("id") == 1]
        assert [answer["error"]["code"] for answer in answers] == [-32600]
        assert server.process.wait(CEILING) == 0


@pytest.mark.requirement("json-rpc.answered")
def test_an_oversized_line_is_refused_even_if_its_id_is_unknown(root: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"limits": {"requestBytes": 10_000}})
    line = b'{"method":"ping","id":3,"jsonrpc":"2.0","params":{"a":"' + b"x" * 20_000 + b'"}}'
    with running(root, config) as server:
        server.send(INITIALIZE, INITIALIZED, line, {**PING, "id": 4})
        answers = [server.answer() for _ in range(3)]
    assert {(answer["id"], "error" in answer) for answer in answers} == {(0, False), (None, True), (4, False)}
