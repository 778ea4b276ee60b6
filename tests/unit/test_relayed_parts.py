"""Small parts of what is between a client and an upstream: who may keep calls open, which URIs are a skill's."""

from __future__ import annotations

from typing import Any, cast

import pytest

from server.consent.pending_questions import AskedQuestions
from server.upstreams.relay.large_results import _in_lines  # pyright: ignore[reportPrivateUsage] - as it is called
from server.upstreams.relay.published_resources import skill_uris
from server.upstreams.relay.request_relay import SuspendedCall, SuspendedCalls
from server.upstreams.session.upstream_questions import InFlightCall

NOTHING: Any = cast("Any", None)
"""What a count of calls does not look at."""


@pytest.mark.requirement("proxy.suspended.share")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("owners", "rooms"),
    [("ab", "abcd"), ("aaa", "bcd"), ("aaab", "bcd"), ("aabb", "cd"), ("aabc", "d"), ("abcd", "")],
)
async def test_who_has_less_gets_room_from_who_has_the_most(
    owners: str, rooms: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_SUSPENDED", 4)
    monkeypatch.setattr("server.upstreams.relay.request_relay.MAX_OF_ONE", 3)
    calls = SuspendedCalls(60)
    for owner in owners:
        call = InFlightCall(NOTHING, NOTHING)
        name = calls.add(SuspendedCall(owner, NOTHING, call, []))
        assert call.is_suspended
        assert calls.take(name, f"not {owner}") is None
    assert "".join(owner for owner in "abcd" if calls.has_room(owner)) == rooms


@pytest.mark.requirement("skills.relayed")
def test_a_skill_is_its_uri_its_files_and_the_folders_around_them() -> None:
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
def test_a_question_is_open_until_it_is_answered_or_given_up() -> None:
    asked = AskedQuestions()
    with asked:
        assert (asked.asked, asked.open, asked.answered) == (1, 1, 0)
    with pytest.raises(TimeoutError), asked:
        raise TimeoutError
    assert (asked.asked, asked.open, asked.answered) == (2, 0, 1)
