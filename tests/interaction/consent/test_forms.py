"""What a question looks like on the wire, in every revision and style."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interaction.consent.actions import CHANGES, EDIT, Action, by_action, snapshot
from tests.interaction.consent.answers import ONCE, REFUSALS
from tests.interaction.consent.routes import NETWORK_ROUTES, REVISIONS, ROUTES, Route, by_route
from tests.interaction.consent.servers import SIMPLE, Servers, Setup

PRIMITIVES = {"string", "number", "integer", "boolean"}


@pytest.mark.requirement("consent.form")
@by_action()
@by_route(ROUTES)
def test_a_form_is_flat_and_requires_a_decision_that_it_does_not_propose(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        asked = call.asked()
        call.answer(asked, REFUSALS["deny"])
        assert call.done().code == "execution_denied"
    assert asked.schema["type"] == "object"
    assert asked.schema["required"] == ["decision"]
    fields = asked.schema["properties"]
    assert list(fields) == ["decision", "reason", *(["content"] if action in CHANGES else [])]
    assert all(field["type"] in PRIMITIVES and "default" not in field for field in fields.values())


@pytest.mark.requirement("consent.titles")
@by_action()
@by_route(ROUTES)
def test_decisions_carry_titles_in_the_way_of_the_revision(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        asked = call.asked()
        call.answer(asked, REFUSALS["deny"])
        assert call.done().code == "execution_denied"
    field = asked.schema["properties"]["decision"]
    titled = {"type", "title"} | ({"oneOf"} if route.revision >= "2025-11-25" else {"enum", "enumNames"})
    assert set(field) == titled
    decisions, titles = asked.decisions, asked.titles
    order = ["once", "always", "always_sandboxed", "always_server", "save", "deny"]
    assert decisions == sorted(decisions, key=order.index)
    assert (decisions[0], decisions[-1]) == ("once", "deny")
    assert len(set(titles)) == len(titles) == len(decisions)
    assert all(titles)


@pytest.mark.requirement("consent.form")
@by_action()
@by_route(ROUTES)
def test_the_question_begins_with_what_will_happen_and_shows_it(
    route: Route, action: Action, servers: Servers, place: Path
) -> None:
    shown = {"edit": "+more last", "write_file": "+text", "run_shell_command": "mktemp made.XXXXXX"}
    with servers.client(route) as client:
        call = client.call(action.tool, action.arguments(place))
        asked = call.asked()
        call.answer(asked, REFUSALS["deny"])
        assert call.done().code == "execution_denied"
    assert asked.message.splitlines()[0]
    assert shown[action.tool] in asked.message
    assert place.name in asked.message


SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "accept"}}
ROOTED: dict[str, Any] = {"roots": []}


@pytest.mark.requirement("consent.titles")
@pytest.mark.parametrize("reply", [{"action": "accept"}, {"action": "accept", "content": {}}, ONCE], ids=str)
@by_action()
@by_route(NETWORK_ROUTES)
def test_a_simple_question_has_no_fields_and_accepting_it_counts_once(
    route: Route, action: Action, reply: Any, servers: Servers, place: Path
) -> None:
    with servers.client(route, SIMPLE) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        asked = call.asked()
        assert asked.schema == {"type": "object", "properties": {}}
        assert snapshot(place) == before
        call.answer(asked, reply)
        assert call.done().code is None
        assert action.times(place) == 1
        other = servers.place()
        untouched = snapshot(other)
        again = client.call(action.tool, action.arguments(other))
        again.answer(again.asked(), REFUSALS["decline"])
        assert again.done().code == "execution_denied"
        assert snapshot(other) == untouched


@pytest.mark.requirement("consent.titles")
@pytest.mark.parametrize(
    "reply",
    [REFUSALS["decline"], REFUSALS["cancel"], {"content": {}}, {}, SAMPLED, ROOTED],
    ids=str,
)
@by_action()
@by_route(NETWORK_ROUTES)
def test_a_simple_question_that_is_not_accepted_is_refused(
    route: Route, action: Action, reply: Any, servers: Servers, place: Path
) -> None:
    with servers.client(route, SIMPLE) as client:
        before = snapshot(place)
        call = client.call(action.tool, action.arguments(place))
        call.answer(call.asked(), reply)
        assert call.done().code == "execution_denied"
        assert client.is_served()
        assert snapshot(place) == before


@pytest.mark.requirement("consent.form")
@pytest.mark.parametrize("revision", REVISIONS)
def test_a_question_that_a_rule_demands_offers_nothing_that_could_not_take_effect(
    revision: str, servers: Servers, place: Path
) -> None:
    setup = Setup("asking", {"permissions": {"ask": ["Edit"]}})
    with servers.client(Route("http", revision), setup) as client:
        before = snapshot(place)
        call = client.call(EDIT.tool, EDIT.arguments(place))
        asked = call.asked()
        assert asked.decisions == ["once", "deny"]
        assert "Asked because" in asked.message
        call.answer(asked, REFUSALS["deny"])
        assert call.done().code == "execution_denied"
        assert snapshot(place) == before
