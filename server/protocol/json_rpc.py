"""JSON-RPC messages from and to clients and upstreams: kinds, errors, parsing and encoding.

The SDK's models validate every part of a message, which usually takes longer than processing the message. Therefore
only messages of an unusual form are parsed with these models.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic_core import PydanticSerializationError, from_json, to_json

from tools.machine.unlocked_cached_property import cached_property

if TYPE_CHECKING:
    import mcp_types as types

logger = logging.getLogger(__name__)

Json = dict[str, Any]
RequestId = str | int
# JSON-RPC discourages fractions in ids: a client's request with such an id is refused; an upstream's is dropped
AnyId = RequestId | float

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
CONNECTION_CLOSED = -32000
HEADER_MISMATCH = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042

MAX_TOGETHER = 128  # maximum number of messages in a client's batch
MAX_DEPTH = 150  # maximum nesting depth in a field of an upstream's item; parsers accept 200 levels per message
MAX_REPAIRED = 8 << 20  # maximum length of an upstream's message to repair, because repairing is slower than parsing
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # lone surrogates that do not represent a byte of a file name
_NAMES = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})
_PARTS = 4  # the number of keys in a request with parameters; all other messages have fewer

ID_IS_TAKEN = (
    "Another request with this id is still open; a number and the same number as a string count as the same id. Send "
    "this request again with another id."
)


@dataclass(eq=False)
class MCPError(Exception):
    """An error to send as a response, or one received in response to this server's request."""

    code: int  # for programs
    message: str  # for people and models
    data: Any = None  # details, as JSON; omitted if `None`

    def __str__(self) -> str:
        return self.message

    def to_json(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}


def as_mapping(value: Any) -> Json:
    # `cast` would be a function call, and this runs several times per request.
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - JSON keys are strings


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def comparable_id(identity: RequestId) -> RequestId:
    """Return an id in comparable form: "7" becomes 7, because some peers convert numbers to strings."""
    if isinstance(identity, str):
        with suppress(ValueError):
            if str(number := int(identity)) == identity:  # `int` also accepts "007", "1_0" and " 7"
                return number
    return identity


class Request(NamedTuple):
    id: RequestId
    method: str
    params: Json | None = None


class Notification(NamedTuple):
    method: str
    params: Json | None = None


class Response(NamedTuple):
    id: RequestId
    result: Json


class ErrorResponse(NamedTuple):
    """An error response: `code`, `message` and possibly `data`."""

    id: RequestId | None
    error: Json


Message = Request | Notification | Response | ErrorResponse


def read_message(line: bytes | str, *, is_of_client: bool = False) -> Message:
    """Parse a line into a message, or raise `ValueError` if the line is invalid.

    A notification from an upstream may have the id `null`, because some upstreams send such notifications.
    """
    line = line.removeprefix(codecs.BOM_UTF8) if isinstance(line, bytes) else line.removeprefix("\ufeff")
    try:
        fields: Any = from_json(line, allow_inf_nan=False)
        is_strict = True
    except ValueError:
        line = line if is_of_client or len(line) > MAX_REPAIRED else _repaired(line)
        fields = from_json(line)  # accepts `NaN`, which many peers write
        is_strict = not is_of_client
    if not isinstance(fields, dict):
        raise ValueError(NOT_A_MESSAGE)  # noqa: TRY004 - the text is invalid, not an argument's type
    members = cast("Json", fields)
    if is_strict and (message := _common_message(members)) is not None:
        return message
    # The SDK's models are slow for large data, so they get only known fields.
    members = {name: value for name, value in members.items() if name in _NAMES}
    if "method" not in members and isinstance(identity := members.get("id"), float) and identity.is_integer():
        members["id"] = int(identity)  # some peers write every number as a float
    has_odd_id = "id" in members and type(members["id"]) not in (int, str)
    if "method" in members and has_odd_id and (is_of_client or not isinstance(members["id"], int | None)):
        # The SDK's models would treat the message as a notification.
        raise ValueError("an id must be a string or a whole number")
    if any(isinstance(value, list) for value in members.values()):
        raise ValueError(NOT_A_MESSAGE)  # in MCP, none of these fields is an array
    if (message := _common_message(members)) is not None:
        return message
    line = to_json(members, inf_nan_mode="constants")
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - loaded with the first unusual message

    return of_sdk(jsonrpc_message_adapter.validate_json(line, by_name=False))


def _repaired(line: bytes | str) -> str:
    """Repair an upstream's JSON, so that other parsers accept it and one bad item does not make a whole list unusable.

    A lone surrogate becomes U+FFFD, and a field of a list item becomes null if it is nested too deeply.
    """
    try:
        parsed: Any = json.loads(line)
        for items in as_mapping(as_mapping(parsed).get("result")).values():
            for item in map(as_mapping, as_list(items)):
                for name, value in item.items():
                    level = [value]
                    for _ in range(MAX_DEPTH):
                        level = [part for node in level for part in (*as_mapping(node).values(), *as_list(node))]
                    if level:
                        item[name] = None
        text = json.dumps(parsed, ensure_ascii=False)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class BatchError(ValueError):
    """A batch is refused; the message says why."""


def read_of_client(line: bytes, *, takes_batches: bool) -> Message | list[Message]:
    """Parse a client's message, or a batch if `takes_batches` is true; raises `ValueError` if the line is neither."""
    if not takes_batches or _ARRAY.match(line) is None:
        return read_message(line, is_of_client=True)
    parts: list[Any] = from_json(line.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    if len(parts) > MAX_TOGETHER:
        raise BatchError(
            f"This batch has more than {MAX_TOGETHER} messages, so none was processed. Send fewer at once."
        )
    messages: list[Message] = []
    with suppress(ValueError):
        messages = [read_message(to_json(part), is_of_client=True) for part in parts]
    if any(isinstance(message, Request) and message.method == "initialize" for message in messages):
        raise BatchError("initialize must not be in a batch, so nothing in this batch was processed. Send it alone.")
    if not messages:
        raise BatchError(NOT_A_MESSAGE)
    return messages


def _common_message(fields: Json) -> Message | None:
    """Return a message of a common form, built without the SDK's models; `None` for any other form."""
    if fields.get("jsonrpc") != "2.0":
        return None
    identity, method, params, parts = fields.get("id"), fields.get("method"), fields.get("params"), len(fields)
    has_id, has_method, has_params = type(identity) in (int, str), type(method) is str, type(params) is dict
    if has_id and has_method and parts == _PARTS - (not has_params):
        return Request(cast("RequestId", identity), cast("str", method), params)
    if has_id and parts == _PARTS - 1 and type(result := fields.get("result")) is dict:
        return Response(cast("RequestId", identity), cast("Json", result))
    if has_id and parts == _PARTS - 1 and type(raw_error := fields.get("error")) is dict:
        error = cast("Json", raw_error)
        code, message = error.get("code"), error.get("message")
        if type(code) is not int:  # some peers send a code or a message of another type
            is_number = re.fullmatch(r"(-?[0-9]{1,9})(\.0)?", str(code))
            error = {**error, "code": int(is_number[1]) if is_number else INTERNAL_ERROR}
        if type(message) is not str:
            error = {**error, "message": "" if message is None else str(message)}
        return ErrorResponse(cast("RequestId", identity), error)
    if has_method and "id" not in fields and parts == _PARTS - 1 - (not has_params):
        return Notification(cast("str", method), params)
    return None


def of_sdk(message: types.JSONRPCMessage) -> Message:
    import mcp_types as types  # noqa: PLC0415 - loaded with the first unusual message

    match message:
        case types.JSONRPCRequest():
            return Request(message.id, message.method, message.params)
        case types.JSONRPCNotification():
            return Notification(message.method, message.params)
        case types.JSONRPCResponse():
            return Response(message.id, message.result)
        case types.JSONRPCError():
            return ErrorResponse(message.id, message.error.model_dump(mode="json", exclude_unset=True))


def fields_of(message: Message) -> Json:
    match message:
        case Request(identity, method, params):
            fields: Json = {"jsonrpc": "2.0", "id": identity, "method": method}
            return fields if params is None else {**fields, "params": params}
        case Notification(method, params):
            # JSON-RPC does not allow `null` as `params`, and servers would ignore the message.
            return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})
        case Response(identity, result):
            return {"jsonrpc": "2.0", "id": identity, "result": result}
        case ErrorResponse(identity, error):
            return {"jsonrpc": "2.0", "id": identity, "error": error}


NOT_A_MESSAGE = (
    'This is not a valid MCP message. A request or notification needs "jsonrpc": "2.0" and a "method" that is a '
    'string. "params" may be omitted; otherwise it is an object without lone surrogates. The id of a request is a '
    "string or a whole number."
)


def error_of(identity: RequestId | None, message: str, code: int = INVALID_REQUEST) -> Json:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}


async def response_to(request: Request, work: Awaitable[Json]) -> Json:
    """Return the response to a request: the result of `work`, or the error that it raised."""
    response: Json = {"jsonrpc": "2.0", "id": request.id}
    try:
        response["result"] = await work
    except MCPError as error:
        response["error"] = error.to_json()
    except Exception as error:
        # The exception's text is not sent to the client.
        logger.exception("a handler of %r raised %s", request.method, type(error).__name__)
        message = "The request failed because of an internal error; the server's log has the details."
        response["error"] = MCPError(INTERNAL_ERROR, message).to_json()
    return response


@dataclass(frozen=True, slots=True)
class Unreadable:
    """JSON that is not a JSON-RPC message: an object with an id, or an array with at least one such object."""

    identity: AnyId | None  # the id; `None` if invalid or unknown
    is_answer: bool  # whether it is meant as a response to this server's request, and so must not be answered
    is_empty_answer: bool = False  # whether it looks like a response, but has neither a result nor an error


def read_unreadable(line: bytes) -> Unreadable | None:
    """Return the id of JSON that is not a JSON-RPC message, if usable, and whether it is meant as a response.

    Returns `None` if the JSON has no id. Raises `ValueError` if the line is not JSON.
    """
    try:
        parsed: Any = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if any("id" in as_mapping(part) for part in as_list(parsed)):
        return Unreadable(None, is_answer=False)
    fields = as_mapping(parsed)
    if "id" not in fields:
        return None
    identity = fields["id"]
    if not isinstance(identity, str | int | float) or isinstance(identity, bool) or identity != identity:  # noqa: PLR0124 - NaN
        identity = None
    has_method, has_outcome = "method" in fields, bool({"result", "error"} & fields.keys())
    is_empty_answer = not has_method and not has_outcome and fields.get("jsonrpc") == "2.0"
    return Unreadable(identity, has_outcome and not has_method, is_empty_answer)


class ReadyList(list[Any]):
    """A list that is sent repeatedly but encoded only once."""

    @cached_property
    def json(self) -> bytes:
        return to_json(list(self), inf_nan_mode="null")


def encoded(message: Mapping[str, Any]) -> bytes:
    """Encode a message as JSON.

    If a result cannot be encoded, an error response is returned, so that the connection survives. For any other message
    that cannot be encoded, the return value is empty.
    """
    fields = as_mapping(message.get("result"))
    name, first = next(iter(fields.items()), ("", None))
    try:
        try:
            if not isinstance(first, ReadyList):
                return to_json(message, inf_nan_mode="null")
            rest = to_json({key: value for key, value in fields.items() if key != name}, inf_nan_mode="null")
            head = b'{"jsonrpc":"2.0","id":%b,"result":{%b:' % (to_json(message["id"]), to_json(name))
            return head + first.json + (b"}" if rest == b"{}" else b"," + rest[1:]) + b"}"
        except PydanticSerializationError:
            return to_json(_encodable(message), inf_nan_mode="null")
    except (ValueError, RecursionError):
        logger.exception("a message could not be encoded")
    if "result" not in message:
        return b""
    return json.dumps(error_of(message["id"], "The result could not be encoded.", INTERNAL_ERROR)).encode()


def _encodable(value: Any) -> Any:
    """Replace lone surrogates in a JSON value. Most of these come from file names that are not UTF-8."""
    if isinstance(value, str):
        errors = "replace" if _NO_BYTE.search(value) else "surrogateescape"
        return value.encode("utf-8", errors).decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_encodable(key): _encodable(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in cast("list[Any]", value)]
    return value
