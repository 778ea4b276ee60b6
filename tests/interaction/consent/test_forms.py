"""What a question looks like on the wire, in every revision and style."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Route
from tests.interaction.consent.actions import ACTIONS, CHANGES, EDIT, snapshot
from tests.interaction.consent.answers import ONCE, REFUSALS, acceptance
from tests.interaction.consent.routes import NETWORK_ROUTES, REVISIONS, ROUTES
from tests.interaction.consent.servers import SIMPLE, Servers, Setup
from tests.interaction.raw_clients import Question
from tests.interaction.serving import by_route
from tests.tables import all_cases

PRIMITIVES = {"string", "number", "integer", "boolean"}


@dataclass(frozen=True, slots=True)
class PlacedQuestion:
    """A question, with the folder of the call that it is about.

    Args:
        question: The question.
        place: The folder that the call was for.
    """

    question: Question
    place: Path


Questions = Mapping[tuple[Route, str], PlacedQuestion]


@pytest.fixture(scope="module")
def questions(servers: Servers) -> Questions:
    """The question about each action over each route. All questions were denied."""
    questions: dict[tuple[Route, str], PlacedQuestion] = {}
    for route in ROUTES:
        with servers.client(route) as client:
            for action in ACTIONS:
                place = servers.place()
                call = client.call(action.tool, action.arguments(place))
                question = call.next_question()
                call.answer(question, REFUSALS["deny"])
                assert call.next_result().code == "execution_denied"
                questions[route, action.tool] = PlacedQuestion(question, place)
    return questions


@pytest.mark.requirement("consent.form")
def test_a_form_is_flat_and_requires_a_decision_that_it_does_not_propose(questions: Questions) -> None:
    tools_with_text = {action.tool for action in CHANGES}
    with all_cases() as case:
        for (route, tool), question in questions.items():
            schema = question.question.schema
            with case((str(route), tool)):
                assert schema["type"] == "object"
                assert schema["required"] == ["decision"]
                fields = schema["properties"]
                assert list(fields) == ["decision", "reason", *(["content"] if tool in tools_with_text else [])]
                assert all(field["type"] in PRIMITIVES for field in fields.values())
                optional = {name: "" for name in fields if name != "decision"}
                assert {name: field["default"] for name, field in fields.items() if "default" in field} == optional


@pytest.mark.requirement("consent.titles")
def test_the_titles_of_decisions_have_the_format_of_the_revision(questions: Questions) -> None:
    order = ["once", "always", "always_sandboxed", "always_server", "save", "deny"]
    with all_cases() as case:
        for (route, tool), question in questions.items():
            field = question.question.schema["properties"]["decision"]
            keys = {"type", "title"} | ({"oneOf"} if route.revision >= "2025-11-25" else {"enum", "enumNames"})
            decisions, titles = question.question.decisions, question.question.titles
            with case((str(route), tool)):
                assert set(field) == keys
                assert decisions == sorted(decisions, key=order.index)
                assert (decisions[0], decisions[-1]) == ("once", "deny")
                assert len(set(titles)) == len(titles) == len(decisions)
                assert all(titles)


@pytest.mark.requirement("consent.form")
def test_the_question_begins_with_what_will_happen_and_shows_it(questions: Questions) -> None:
    excerpts = {"edit": "+more last", "write_file": "+text", "run_shell_command": "mktemp made.XXXXXX"}
    with all_cases() as case:
        for (route, tool), question in questions.items():
            message = question.question.message
            with case((str(route), tool)):
                assert message.splitlines()[0]
                assert excerpts[tool] in message
                assert question.place.name in message


SAMPLING_RESULT = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "accept"}}
ROOTS_RESULT: dict[str, Any] = {"roots": []}


YES: dict[str, Any] = {"no content": {"action": "accept"}, "no fields": acceptance(), "a decision": ONCE}

NO: dict[str, Any] = {
    "decline": REFUSALS["decline"],
    "cancel": REFUSALS["cancel"],
    "no action": {"content": {}},
    "nothing": {},
    "what a model says": SAMPLING_RESULT,
    "folders": ROOTS_RESULT,
}


@pytest.mark.requirement("consent.titles")
@by_route(NETWORK_ROUTES)
def test_a_simple_question_has_no_fields_and_accepting_it_counts_once(route: Route, servers: Servers) -> None:
    with servers.client(route, SIMPLE) as client, all_cases() as case:
        for action, (name, reply) in zip(cycle(ACTIONS), YES.items(), strict=False):
            place, other_place = servers.place(), servers.place()
            with case(f"{name}, to {action}"):
                before, other_before = snapshot(place), snapshot(other_place)
                call = client.call(action.tool, action.arguments(place))
                question = call.next_question()
                assert question.schema == {"type": "object", "properties": {}}
                assert snapshot(place) == before
                call.answer(question, reply)
                assert call.next_result().code is None
                assert action.times(place) == 1
                second_call = client.call(action.tool, action.arguments(other_place))
                second_call.answer(second_call.next_question(), REFUSALS["decline"])
                assert second_call.next_result().code == "execution_denied"
                assert snapshot(other_place) == other_before
            servers.remember(place)


@pytest.mark.requirement("consent.titles")
@by_route(NETWORK_ROUTES)
def test_a_simple_question_that_is_not_accepted_is_refused(route: Route, servers: Servers) -> None:
    with servers.client(route, SIMPLE) as client, all_cases() as case:
        for action, (name, reply) in zip(cycle(ACTIONS), NO.items(), strict=False):
            with case(f"{name}, to {action}"):
                place = servers.place()
                before = snapshot(place)
                call = client.call(action.tool, action.arguments(place))
                call.answer(call.next_question(), reply)
                assert call.next_result().code == "execution_denied"
                assert client.is_answered()
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
        question = call.next_question()
        assert question.decisions == ["once", "deny"]
        assert "Asked because" in question.message
        call.answer(question, REFUSALS["deny"])
        assert call.next_result().code == "execution_denied"
        assert snapshot(place) == before
