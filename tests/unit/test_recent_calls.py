"""The arguments of calls on the dashboard hide secrets."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from server.requests.recent_calls import RecentCalls

pytestmark = pytest.mark.anyio
LONG = "hunter2 " * 1_000


@pytest.mark.requirement("dashboard.pages.secrets")
@pytest.mark.parametrize(
    "arguments", [{"password": LONG, "path": "x"}, {"env": {"API_TOKEN": LONG}}, {"api_key": LONG}]
)
async def test_a_long_secret_is_hidden_because_of_the_name_of_its_argument(arguments: dict[str, object]) -> None:
    calls = RecentCalls()
    params = {"name": "write_file", "arguments": arguments}
    context: Any = SimpleNamespace(
        method="tools/call", params=params, connection=SimpleNamespace(client_name="a client"), http_request=None
    )

    async def answer(_: object) -> dict[str, object]:
        return {"content": []}

    await calls(context, answer)
    text = calls.calls[0].arguments()
    assert next(iter(json.loads(text))) == next(iter(arguments))
    assert "[hidden]" in text
    assert "hunter2" not in text
