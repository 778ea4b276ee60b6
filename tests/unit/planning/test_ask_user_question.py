"""The tool `ask_user_question`: its parameters, the form that a person gets, and the result for the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from server.questions.form import MAX_ANSWER_CHARS, questionnaire_schema, read_answer, read_questionnaire
from tests.people import Person
from tools.builtin.ask_user_question import (
    MAX_DESCRIPTION_CHARS,
    MAX_HEADER_CHARS,
    MAX_LABEL_CHARS,
    MAX_QUESTION_CHARS,
    MAX_QUESTIONS,
    AskUserQuestionTool,
)
from tools.call.base_tool import ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import ApprovalMode
from tools.contract.confirmation import (
    Answer,
    AskUserConfirmation,
    ConsentChannel,
    Decision,
    Question,
    Unavailable,
    UserQuestion,
)
from tools.contract.display import MAX_QUESTION_BYTES, render_question
from tools.contract.tool_errors import InvalidToolParamsError, ToolErrorType
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.permissions.permission_policy import PermissionPolicy
from tools.permissions.permission_rules import read_rules
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio

OLD_REVISION, NEW_REVISION = "2025-06-18", "2025-11-25"

LIBRARY = {
    "question": "Which library?",
    "header": "Library",
    "options": [{"label": "httpx", "description": "async too"}, {"label": "requests", "description": ""}],
}
TESTS = {**LIBRARY, "question": "Which tests?", "header": "Tests", "multiSelect": True}
NAME = {"question": "What name?", "header": "Name", "type": "text", "placeholder": "acme"}
SURE = {"question": "Are you sure?", "header": "Sure", "type": "yesno"}


def runner_with(**rules: list[str]) -> ToolRunner:
    registry = ToolRegistry()
    registry.register_tool(AskUserQuestionTool())
    texts_by_setting = {f"permissions.{name}": texts for name, texts in rules.items()}
    parsed_rules, _ = read_rules(texts_by_setting, registry.canonical, "/home/u")
    return ToolRunner(registry, PermissionPolicy(parsed_rules, registry.canonical))


async def ask_questions(
    questions: Any,
    person: Person,
    context: ToolContext,
    runner: ToolRunner | None = None,
    name: str = "ask_user_question",
) -> ToolResult:
    result = await (runner or runner_with()).run(FunctionCall(name, {"questions": questions}), context, person)
    assert isinstance(result, ToolResult)
    return result


async def confirmation_for(*questions: Mapping[str, Any], context: ToolContext) -> AskUserConfirmation:
    tool = AskUserQuestionTool()
    details = await tool.should_confirm_execute(tool.validate_tool_params({"questions": list(questions)}), context)
    assert isinstance(details, AskUserConfirmation)
    return details


def answer_with(*answers: tuple[str, ...]) -> Answer:
    return Answer(Decision.ONCE, answers=answers)


@pytest.mark.requirement("ask_user.answer")
async def test_answers_come_back_a_line_each_and_by_their_headers(context: ToolContext) -> None:
    person = Person(answer_with(("httpx",), ("httpx", "mine"), (), ("Yes",)))
    result = await ask_questions([LIBRARY, TESTS, NAME, SURE], person, context)
    assert result.llm_content == (
        "The user answered:\nLibrary: httpx\nTests: httpx, mine\nName: (not answered)\nSure: Yes"
    )
    assert result.structured == {
        "outcome": "answered",
        "answers": {"Library": ["httpx"], "Tests": ["httpx", "mine"], "Name": [], "Sure": ["Yes"]},
    }
    assert person.questions[0].description == "Ask the user: Library, Tests, Name, Sure"


@pytest.mark.requirement("ask_user.answer")
@pytest.mark.parametrize(
    ("channel", "outcome"),
    [
        (ConsentChannel.DECLINED, "declined"),
        (ConsentChannel.CANCELLED, "dismissed"),
        (ConsentChannel.TIMED_OUT, "timed_out"),
    ],
)
async def test_no_answer_is_reported_in_a_sentence_and_is_not_an_error(
    channel: ConsentChannel, outcome: str, context: ToolContext
) -> None:
    result = await ask_questions([LIBRARY], Person(Answer(Decision.DENY, channel)), context)
    assert result.error is None
    assert result.structured == {"outcome": outcome, "answers": {}}
    assert "reply" in str(result.llm_content) or "best judgement" in str(result.llm_content)


@pytest.mark.requirement("ask_user.unavailable")
@pytest.mark.parametrize(
    ("outcome", "message_part"),
    [
        (Unavailable(client_decides=True, way_out="x"), "in your reply"),
        (Unavailable(client_decides=False, way_out="x"), "in your reply"),
        (Answer(Decision.DENY, ConsentChannel.MALFORMED), "came back without any answer"),
        (Answer(Decision.DENY, ConsentChannel.FAILED, reason="-32603: no window"), "an error (-32603: no window)"),
    ],
)
async def test_if_no_answer_can_be_had_the_model_is_told_to_ask_in_its_reply(
    outcome: Answer | Unavailable, message_part: str, context: ToolContext
) -> None:
    result = await ask_questions([LIBRARY], Person(outcome), context)
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_FAILED
    assert message_part in result.error.message


@pytest.mark.requirement("ask_user.unavailable")
@pytest.mark.parametrize(("question", "is_advised"), [(LIBRARY, True), (SURE, True), (NAME, False)])
async def test_the_type_text_is_advised_only_if_a_blank_form_had_another_type(
    question: Mapping[str, Any], is_advised: bool, context: ToolContext
) -> None:
    result = await ask_questions([question], Person(Answer(Decision.DENY, ConsentChannel.MALFORMED)), context)
    assert result.error is not None
    assert ("with type text" in result.error.message) is is_advised
    assert "in your reply" in result.error.message


@pytest.mark.requirement("ask_user.always_asked")
@pytest.mark.parametrize("mode", list(ApprovalMode))
@pytest.mark.parametrize(
    "rules", [{}, {"allow": ["*"]}, {"allow": ["ask_user_question"]}, {"ask": ["AskUserQuestion"]}], ids=str
)
async def test_no_mode_and_no_rule_answers_in_a_persons_place(
    mode: ApprovalMode, rules: dict[str, list[str]], context: ToolContext
) -> None:
    context = replace(context, client=replace(context.client, approval_mode=mode))
    person = Person(answer_with(("httpx",)))
    result = await ask_questions([LIBRARY], person, context, runner_with(**rules))
    assert len(person.questions) == 1
    assert person.questions[0].choices == ()
    assert result.structured == {"outcome": "answered", "answers": {"Library": ["httpx"]}}
    assert context.client.grants == []


@pytest.mark.requirement("ask_user.always_asked")
async def test_a_rule_can_forbid_the_question(context: ToolContext) -> None:
    person = Person(answer_with(("httpx",)))
    result = await ask_questions([LIBRARY], person, context, runner_with(deny=["ask_user"]))
    assert result.error is not None
    assert result.error.code is ToolErrorType.EXECUTION_DENIED
    assert not person.questions


@pytest.mark.requirement("ask_user.always_asked")
async def test_a_question_always_needs_an_answer_from_a_person(context: ToolContext) -> None:
    judgement = await runner_with().judge(AskUserQuestionTool(), {"questions": [LIBRARY]}, context)
    assert judgement.permission.verdict is Verdict.ASK


@pytest.mark.requirement("ask_user.shapes")
@pytest.mark.parametrize("name", ["ask_user", "AskUser", "AskUserQuestion", "AskUserQuestionTool"])
async def test_older_names_are_accepted(name: str, context: ToolContext) -> None:
    assert (await ask_questions([LIBRARY], Person(answer_with(("httpx",))), context, name=name)).error is None


@pytest.mark.requirement("ask_user.shapes")
@pytest.mark.parametrize(
    ("question", "user_question"),
    [
        ({**NAME, "type": None}, UserQuestion(header="Name", question="What name?", placeholder="acme")),
        ({**NAME, "options": []}, UserQuestion(header="Name", question="What name?", placeholder="acme")),
        ({**LIBRARY, "type": "text"}, UserQuestion(header="Library", question="Which library?")),
    ],
)
async def test_text_questions_are_distinguished_from_choices(
    question: Mapping[str, Any], user_question: UserQuestion, context: ToolContext
) -> None:
    assert (await confirmation_for(question, context=context)).questions == (user_question,)


@pytest.mark.requirement("ask_user.shapes")
@pytest.mark.parametrize("spelling", [{"multiSelect": "true"}, {"multi_select": True}])
async def test_several_answers_are_allowed_in_either_spelling(spelling: dict[str, Any], context: ToolContext) -> None:
    (question,) = (await confirmation_for({**LIBRARY, **spelling}, context=context)).questions
    assert question.is_multiple


@pytest.mark.requirement("ask_user.shapes")
@pytest.mark.parametrize("options", [["pg", {"label": "my"}], '["pg", "my"]', ['{"label": "pg"}', "my"]])
def test_options_may_be_labels_without_a_description(options: Any) -> None:
    arguments = {"questions": [{**LIBRARY, "options": options}]}
    (question,) = AskUserQuestionTool().validate_tool_params(arguments).questions
    assert [option.label for option in question.options or ()] == ["pg", "my"]


@pytest.mark.requirement("ask_user.shapes")
@pytest.mark.parametrize("questions", [LIBRARY, f"[{{{str(LIBRARY)[1:-1]}}}]".replace("'", '"')], ids=type)
def test_a_single_question_and_json_text_are_accepted(questions: Any) -> None:
    assert len(AskUserQuestionTool().validate_tool_params({"questions": questions}).questions) == 1


@pytest.mark.requirement("ask_user.shapes")
@pytest.mark.parametrize(
    "questions",
    [
        None,
        [],
        "Which library?",
        [LIBRARY] * 5,
        [LIBRARY, {**TESTS, "header": " Library"}],
        [{**LIBRARY, "header": " "}],
        [{**LIBRARY, "question": "\n"}],
        [{**LIBRARY, "header": "x" * (MAX_HEADER_CHARS + 1)}],
        [{**LIBRARY, "type": "choice", "options": []}],
        [{**LIBRARY, "options": LIBRARY["options"][:1]}],
        [{**LIBRARY, "options": [{"label": str(number)} for number in range(5)]}],
        [{**LIBRARY, "options": [{"label": "a"}, {"label": "a "}]}],
        [{**LIBRARY, "options": [{"label": "a"}, {"label": " "}]}],
        [{**LIBRARY, "type": "number"}],
        [5],
    ],
    ids=lambda questions: str(questions)[:40],
)
def test_questions_that_cannot_be_asked_are_refused(questions: Any) -> None:
    with pytest.raises(InvalidToolParamsError):
        AskUserQuestionTool().validate_tool_params({"questions": questions})


@pytest.mark.requirement("ask_user.shown")
async def test_questions_are_shown_in_full_with_invisible_characters_marked(context: ToolContext) -> None:
    hostile = {
        "question": "Go on?\n\nAsked because: the operator\u202e wants it",
        "header": "A\u200bB",
        "options": [{"label": "yes\x1b[31m"}, {"label": "no"}],
    }
    person = Person(answer_with(("no",), ("no",)))
    await ask_questions([hostile, TESTS], person, context)
    text = render_question(person.questions[0])
    assert text.splitlines() == [
        "Ask the user: A\\u200bB, Tests",
        "",
        "The model asks you. Do not answer with passwords or other secrets.",
        "1. A<U+200B>B: Go on? Asked because: the operator<U+202E> wants it",
        "   - yes␛[31m",
        "   - no",
        "2. Tests: Which tests? (several may be chosen)",
        "   - httpx: async too",
        "   - requests",
    ]


@pytest.mark.requirement("ask_user.shown")
async def test_the_longest_questions_are_shown_whole(context: ToolContext) -> None:
    option = {"description": "é" * MAX_DESCRIPTION_CHARS}
    options = [{**option, "label": str(number) * MAX_LABEL_CHARS} for number in range(MAX_QUESTIONS)]
    longest_questions = [
        {"question": "é" * MAX_QUESTION_CHARS, "header": str(number) * MAX_HEADER_CHARS, "options": options}
        for number in range(MAX_QUESTIONS)
    ]
    person = Person(answer_with(*[("0",)] * MAX_QUESTIONS))
    await ask_questions(longest_questions, person, context)
    text = render_question(person.questions[0])
    assert text.count("é") == MAX_QUESTIONS * (MAX_QUESTION_CHARS + MAX_QUESTIONS * MAX_DESCRIPTION_CHARS)
    assert len(text.encode()) < MAX_QUESTION_BYTES


@pytest.mark.requirement("ask_user.form")
async def test_a_form_has_a_field_for_each_question_and_is_empty_by_default(context: ToolContext) -> None:
    questions = (await confirmation_for(LIBRARY, TESTS, NAME, SURE, context=context)).questions
    schema = questionnaire_schema(questions, NEW_REVISION)
    fields = schema["properties"]
    assert list(fields) == [
        *("question_1", "question_1_text", "question_2", "question_2_text", "question_3", "question_4"),
    ]
    assert schema["required"] == ["question_1", "question_2", "question_3", "question_4"]
    assert {name: field.get("default") for name, field in fields.items() if name not in schema["required"]} == {
        "question_1_text": "",
        "question_2_text": "",
    }
    assert not any("default" in fields[name] for name in schema["required"])
    assert fields["question_1"]["oneOf"] == [
        {"const": "httpx", "title": "httpx - async too"},
        {"const": "requests", "title": "requests"},
        {"const": "Other", "title": "Other - in your own words, in the next field"},
    ]
    assert fields["question_2"]["type"] == "array"
    assert fields["question_2"]["minItems"] == 1
    assert [item["const"] for item in fields["question_2"]["items"]["anyOf"]] == ["httpx", "requests", "Other"]
    assert fields["question_3"]["type"] == "string"
    assert "acme" in fields["question_3"]["description"]
    assert [item["const"] for item in fields["question_4"]["oneOf"]] == ["Yes", "No"]


@pytest.mark.requirement("ask_user.form")
async def test_an_older_revision_gets_only_fields_that_it_knows(context: ToolContext) -> None:
    questions = (await confirmation_for(LIBRARY, TESTS, NAME, SURE, context=context)).questions
    schema = questionnaire_schema(questions, OLD_REVISION)
    fields = schema["properties"]
    assert fields["question_1"]["enum"] == ["httpx", "requests", "Other"]
    assert len(fields["question_1"]["enumNames"]) == len(fields["question_1"]["enum"])
    box = {"type": "boolean", "title": "Tests: httpx", "description": "async too", "default": False}
    assert fields["question_2_option_1"] == box
    assert {field["type"] for field in fields.values()} == {"string", "boolean"}
    assert schema["required"] == ["question_1", "question_3", "question_4"]


@pytest.mark.requirement("ask_user.form")
async def test_an_option_that_is_called_other_stands_for_itself(context: ToolContext) -> None:
    question = {**LIBRARY, "options": [{"label": "httpx"}, {"label": "other"}]}
    questions = (await confirmation_for(question, context=context)).questions
    values = [
        item["const"] for item in questionnaire_schema(questions, NEW_REVISION)["properties"]["question_1"]["oneOf"]
    ]
    assert values == ["httpx", "other"]


@pytest.mark.requirement("ask_user.form")
@pytest.mark.parametrize(
    ("question", "content", "answers"),
    [
        (LIBRARY, {"question_1": "httpx"}, ("httpx",)),
        (LIBRARY, {"question_1": "httpx", "question_1_text": " but 0.28 "}, ("httpx", "but 0.28")),
        (LIBRARY, {"question_1": "Other", "question_1_text": "aiohttp"}, ("aiohttp",)),
        (LIBRARY, {"question_1": "Other", "question_1_text": ""}, ("Other",)),
        (LIBRARY, {"question_1_text": "aiohttp"}, ("aiohttp",)),
        (LIBRARY, {"question_1": None, "question_1_text": "aiohttp"}, ("aiohttp",)),
        (LIBRARY, {"question_1": "httpx", "question_1_text": None}, ("httpx",)),
        (TESTS, {"question_1_option_1": None, "question_1_option_2": True}, ("requests",)),
        (LIBRARY, {"question_1": "", "question_1_text": "aiohttp"}, ("aiohttp",)),
        (TESTS, {"question_1": ["requests", "httpx", "httpx"]}, ("httpx", "requests")),
        (TESTS, {"question_1": "httpx"}, ("httpx",)),
        (TESTS, {"question_1_option_1": False, "question_1_option_2": True}, ("requests",)),
        (TESTS, {"question_1": ["Other"], "question_1_text": "mine"}, ("mine",)),
        (NAME, {"question_1": " acme\ninc "}, ("acme\ninc",)),
        (SURE, {"question_1": "No", "question_1_text": "not offered"}, ("No",)),
        (LIBRARY, {}, None),
        (LIBRARY, {"question_1": "aiohttp"}, None),
        (LIBRARY, {"question_1": True}, None),
        (LIBRARY, {"question_1": {"a": 1}}, None),
        (LIBRARY, {"question_1": ["httpx", "requests"]}, None),
        (LIBRARY, {"question_1": "httpx", "question_1_text": 5}, None),
        (TESTS, {"question_1": []}, None),
        (TESTS, {"question_1": ["httpx", None]}, None),
        (TESTS, {"question_1_option_1": "yes"}, None),
        (TESTS, {"question_1_option_1": False, "question_1_option_2": False}, None),
        (NAME, {"question_1": "  "}, None),
        (SURE, {"question_1": "Other"}, None),
        (SURE, {"question_1": "Perhaps"}, None),
    ],
    ids=str,
)
async def test_the_answers_are_read_from_the_fields_of_a_form(
    question: Mapping[str, Any], content: Mapping[str, Any], answers: tuple[str, ...] | None, context: ToolContext
) -> None:
    details = await confirmation_for(question, context=context)
    assert read_questionnaire(details.questions, content) == ((answers,) if answers is not None else None)
    answer = read_answer(Question("", details, ""), "accept", content, "form")
    assert answer.channel is (ConsentChannel.FORM if answers is not None else ConsentChannel.MALFORMED)


@pytest.mark.requirement("ask_user.form")
async def test_a_question_may_be_left_open_if_another_is_answered(context: ToolContext) -> None:
    questions = (await confirmation_for(LIBRARY, NAME, context=context)).questions
    assert read_questionnaire(questions, {"question_2": "acme"}) == ((), ("acme",))


@pytest.mark.requirement("ask_user.form")
async def test_labels_come_back_as_the_model_wrote_them(context: ToolContext) -> None:
    question = {**LIBRARY, "options": [{"label": "a\u200bb"}, {"label": "c"}]}
    questions = (await confirmation_for(question, context=context)).questions
    value = questionnaire_schema(questions, NEW_REVISION)["properties"]["question_1"]["oneOf"][0]["const"]
    assert value == "a<U+200B>b"
    assert read_questionnaire(questions, {"question_1": value}) == (("a\u200bb",),)


@pytest.mark.requirement("ask_user.form")
async def test_a_very_long_answer_is_cut_and_says_so(context: ToolContext) -> None:
    questions = (await confirmation_for(NAME, context=context)).questions
    answers = read_questionnaire(questions, {"question_1": "x" * (MAX_ANSWER_CHARS + 1)})
    assert answers is not None
    assert answers[0][0].startswith("x" * MAX_ANSWER_CHARS + " [... cut")


@pytest.mark.requirement("ask_user.form")
@pytest.mark.parametrize(
    ("action", "channel"),
    [("decline", ConsentChannel.DECLINED), ("cancel", ConsentChannel.CANCELLED), ("?", ConsentChannel.DECLINED)],
)
async def test_only_an_accepted_form_gives_an_answer(
    action: str, channel: ConsentChannel, context: ToolContext
) -> None:
    details = await confirmation_for(LIBRARY, context=context)
    answer = read_answer(Question("", details, ""), action, {"question_1": "httpx"}, "form")
    assert (answer.channel, answer.answers) == (channel, ())


@pytest.mark.requirement("ask_user.shapes")
def test_the_schema_and_the_error_name_the_same_limit_of_a_header() -> None:
    questions = AskUserQuestionTool().parameter_schema["properties"]["questions"]
    header = questions["items"]["properties"]["header"]
    assert f"at most {MAX_HEADER_CHARS} characters" in header["description"]
    with pytest.raises(InvalidToolParamsError, match=f"at most {MAX_HEADER_CHARS} characters"):
        AskUserQuestionTool().validate_tool_params({"questions": [{**LIBRARY, "header": "x" * (MAX_HEADER_CHARS + 1)}]})
