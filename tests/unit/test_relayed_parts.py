"""Small parts of the relay: questions, suspended calls, URIs of skills, long lines, and counts of questions."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import anyio
import pytest

from server.clients.client_request import Exchange
from server.protocol.json_rpc import MCPError
from server.questions.client_confirmer import AskedQuestions
from server.upstreams.relay.relayed_results import _in_lines  # pyright: ignore[reportPrivateUsage] - tested directly
from server.upstreams.relay.request_relay import SuspendedCall, SuspendedCalls
from server.upstreams.relay.upstream_resources import skill_uris
from server.upstreams.session.upstream_questions import (
    BoundedTasks,
    InFlightCall,
    SessionOptions,
    SessionQuestions,
)

UNUSED: Any = cast("Any", None)
"""An argument that the test does not use."""
QUESTION: dict[str, Any] = {"message": "which?", "requestedSchema": {"type": "object", "properties": {}}}
ANSWER = {"action": "decline"}


class RequestAndUpstream:
    """Acts as a client's request, which may have ended, and as an upstream, which records the answers that it gets."""

    def __init__(self, *, is_over: bool = False) -> None:
        self.is_over = is_over
        self.told: list[Any] = []

    async def request(self, method: str, params: Any) -> Any:
        del params
        if self.is_over:
            raise MCPError(-32600, f"{method} after the response")
        return ANSWER

    async def answer(self, identity: Any, response: Any) -> None:
        self.told.append((identity, response))

    def paused_clock(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()


def call_of(request: RequestAndUpstream) -> InFlightCall:
    """Return a call during which its client can be asked."""
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}}
    exchange = Exchange(cast("Any", request), {}, "2025-11-25", capabilities, "", None)
    return InFlightCall(cast("Any", request), exchange)


@pytest.mark.requirement("relay.questions")
@pytest.mark.anyio
async def test_a_question_is_asked_during_another_call_if_the_first_one_has_ended() -> None:
    options = SessionOptions("up", UNUSED, {}, 60, UNUSED, UNUSED)
    upstream = RequestAndUpstream()
    async with anyio.create_task_group() as tasks:
        questions = SessionQuestions(options, cast("Any", upstream), BoundedTasks("up", tasks))
        ended_call, open_call = call_of(RequestAndUpstream(is_over=True)), call_of(RequestAndUpstream())
        questions.begin(ended_call)
        questions.begin(open_call)
        questions.receive(1, "elicitation/create", QUESTION)
        questions.end(ended_call)
    assert upstream.told == [(1, ANSWER)]


@pytest.mark.requirement("proxy.suspended.share")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("owners", "rooms"),
    [("ab", "abcd"), ("aaa", "bcd"), ("aaab", "bcd"), ("aabb", "cd"), ("aabc", "d"), ("abcd", "")],
)
async def test_clients_with_few_suspended_calls_displace_those_of_the_client_with_the_most(
    owners: str, rooms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_SUSPENDED", 4)
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_OF_ONE", 3)
    calls = SuspendedCalls(60)
    for owner in owners:
        call = InFlightCall(UNUSED, UNUSED)
        name = calls.add(SuspendedCall(owner, UNUSED, call, []))
        assert call.is_suspended
        assert calls.take(name, f"not {owner}") is None
    assert "".join(owner for owner in "abcd" if calls.has_room(owner)) == rooms


@pytest.mark.requirement("skills.relayed")
def test_the_uris_of_a_skill_are_its_own_its_files_and_their_folders() -> None:
    files: list[Any] = [{"uri": "skill://a/b/c.md"}, {"uri": 1}, "x", {"uri": "other://z/y"}]
    assert skill_uris({"uri": "skill://a/SKILL.md", "resources": files}) == [
        "skill://a/SKILL.md",
        "skill://a/b/c.md",
        "other://z/y",
        "skill://a",
        "skill://a/b",
    ]
    assert skill_uris({"uri": "skill://a/SKILL.md", "resources": "none"}) == ["skill://a/SKILL.md", "skill://a"]
    assert skill_uris({}) == []


@pytest.mark.requirement("results.large.parts")
def test_long_lines_are_split_at_the_last_blank_that_leaves_at_least_half_of_one() -> None:
    text = "a b" + "c" * 3_000 + " " + "d" * 1_500
    lines = _in_lines([text, "short"]).decode().split("\n")
    assert [len(line) for line in lines] == [2_000, 1_004, 1_500, 5]
    assert "".join(lines) == f"{text}short"
    assert [len(line) for line in _in_lines(["a" * 1_200 + " b " + "c" * 3_000]).decode().split("\n")] == [
        1_203,
        2_000,
        1_000,
    ]


@pytest.mark.requirement("metrics.questions")
def test_a_question_counts_as_open_until_it_is_answered_or_abandoned() -> None:
    questions = AskedQuestions()
    with questions:
        assert (questions.asked, questions.open, questions.answered) == (1, 1, 0)
    with pytest.raises(TimeoutError), questions:
        raise TimeoutError
    assert (questions.asked, questions.open, questions.answered) == (2, 0, 1)
