"""`ask_user_question`: asks the user questions in a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from pydantic import Field

from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.confirmation import AskUserConfirmation, ConsentChannel, Option, UserQuestion
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams, coerce
from tools.contract.tool_results import ToolResult
from tools.text.file_names import brief, one_line

MAX_QUESTIONS = 4  # as in Qwen Code and Gemini CLI; also the limit on options per question
MAX_HEADER_CHARS = 16  # the limit of Gemini CLI; Qwen Code allows 12
MAX_LABEL_CHARS = 80
MAX_DESCRIPTION_CHARS = 300
MAX_QUESTION_CHARS = 1_000  # a question is shown in full even if every part reaches its limit
Outcome = Literal["answered", "declined", "dismissed", "timed_out"]
# The outcome, and the text for the model, of each way not to answer. The call still succeeds.
_OUTCOMES: Mapping[ConsentChannel, tuple[Outcome, str]] = {
    ConsentChannel.DECLINED: (
        "declined",
        "The user declined to answer. Use your best judgement and state your assumptions, or stop if you cannot.",
    ),
    ConsentChannel.CANCELLED: (
        "dismissed",
        "The user dismissed the questions without an answer. Do not ask them again; ask in your reply how to continue.",
    ),
    ConsentChannel.TIMED_OUT: (
        "timed_out",
        "Nobody answered in time. Use your best judgement and state your assumptions, or ask in your reply.",
    ),
}


class AskedOption(ToolParams):
    label: str = Field(min_length=1, max_length=MAX_LABEL_CHARS, description="The answer, in one to five words.")
    description: str = Field(
        default="", max_length=MAX_DESCRIPTION_CHARS, description="What this answer means, or leads to."
    )


class AskedQuestion(ToolParams):
    question: str = Field(
        min_length=1, max_length=MAX_QUESTION_CHARS, description="The whole question, clear on its own."
    )
    header: str = Field(
        min_length=1,
        max_length=MAX_HEADER_CHARS,
        description=f"Unique subject of at most {MAX_HEADER_CHARS} characters (better 12 or fewer), such as 'Library'.",
    )
    type: Literal["choice", "text", "yesno"] = Field(
        default="choice",
        description="choice among options, text in the user's own words, or yesno. Default without options: text.",
    )
    options: list[AskedOption] | None = Field(
        default=None,
        min_length=2,
        max_length=MAX_QUESTIONS,
        description="2 to 4 distinct answers, the one you recommend first. The user can always answer in other "
        "words, so add no 'Other'.",
    )
    multi_select: bool = Field(default=False, alias="multiSelect", description="The user may choose several options.")
    placeholder: str = Field(default="", max_length=MAX_LABEL_CHARS, description="An example of a written answer.")

    def for_user(self) -> UserQuestion:
        options = {"choice": self.options or [], "text": [], "yesno": [Option("Yes"), Option("No")]}[self.type]
        return UserQuestion(
            header=self.header,
            question=self.question,
            options=tuple(Option(option.label, option.description) for option in options),
            is_multiple=self.multi_select and self.type == "choice",
            takes_text=self.type != "yesno",
            placeholder=self.placeholder,
        )


class AskUserQuestionParams(ToolParams):
    questions: list[AskedQuestion] = Field(
        min_length=1, max_length=MAX_QUESTIONS, description="1 to 4 questions for one form."
    )


class AskUserQuestionTool(BuiltinTool[AskUserQuestionParams]):
    """The runner obtains the answers, as it does for consent. The tool is offered only if the client can show forms."""

    name = "ask_user_question"
    title = "Ask the user"
    display_name = "AskUserQuestion"
    aliases = ("ask_user", "AskUserQuestionTool", "AskUserQuestion", "AskUserTool", "AskUser")
    description = (
        "Ask the user 1 to 4 questions in a form, if you cannot continue without a decision, a preference or a fact "
        "that only the user knows. Not for consent to a tool call, which is requested automatically, and never for "
        "passwords, keys or other secrets. The user may decline."
    )
    kind = ToolKind.COMMUNICATE
    behaviour = READS
    params_model = AskUserQuestionParams

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Accept a single question outside a list, `multi_select`, and options that are only labels.

        Without options, the default type is text.
        """
        questions = coerce(arguments.get("questions"), {"type": "array"})
        question_list: list[Any] = cast("list[Any]", questions) if isinstance(questions, list) else [questions]
        if "questions" not in arguments or len(question_list) > MAX_QUESTIONS:
            return arguments
        arguments["questions"] = question_list = list(question_list)
        for number, question in enumerate(question_list):
            if not isinstance(question, dict):
                continue
            fields = {name: value for name, value in cast("dict[str, Any]", question).items() if value is not None}
            if "multi_select" in fields:
                fields.setdefault("multiSelect", fields.pop("multi_select"))
            options = coerce(fields.get("options"), {"type": "array"})
            if not options:
                fields.setdefault("type", "text")
            elif isinstance(options, list) and len(cast("list[Any]", options)) <= MAX_QUESTIONS:
                forms = [coerce(option, {"type": "object"}) for option in cast("list[Any]", options)]
                fields["options"] = [{"label": form} if isinstance(form, str) else form for form in forms]
            question_list[number] = fields
        return arguments

    def problems(self, params: AskUserQuestionParams, original_names: Mapping[str, str]) -> Iterator[str]:
        from tools.contract.display import in_one_line  # noqa: PLC0415 - loaded on first use

        headers: set[str] = set()
        for number, question in enumerate(params.questions, start=1):
            # Headers must look different to a person, and so must the labels of one question.
            header, labels = in_one_line(question.header), [in_one_line(item.label) for item in question.options or ()]
            if not question.question.strip() or not question.header.strip():
                yield f"question {number} or its header is blank; write both."
            if question.type == "choice" and not question.options:
                yield f"question {number} has no options; give 2 to 4, or set its type to text or yesno."
            if header in headers:
                yield f"the header '{one_line(question.header)}' is used more than once; give each question its own."
            if "" in labels or len(set(labels)) < len(labels):
                yield f"question {number} has options that are blank or look the same; give each a different label."
            headers.add(header)

    def get_description(self, params: AskUserQuestionParams, context: ToolContext) -> str:
        return f"Ask the user: {', '.join(brief(question.header) for question in params.questions)}"

    async def should_confirm_execute(self, params: AskUserQuestionParams, context: ToolContext) -> AskUserConfirmation:
        return AskUserConfirmation(
            title="The model asks you. Do not answer with passwords or other secrets.",
            questions=tuple(question.for_user() for question in params.questions),
        )

    async def execute(self, params: AskUserQuestionParams, context: ToolContext) -> ToolResult:
        context.signal.raise_if_aborted()
        answer, problem = context.answer, ""
        if answer is None:
            problem = (
                "The user was not asked, because no form can be shown: the client does not declare support, or the "
                "operator set confirmation.style to simple. Ask the questions in your reply instead."
            )
        elif answer.channel is ConsentChannel.FAILED:
            problem = (
                f"The client answered the questions with an error ({answer.reason}), so the user may not have seen "
                "them. Ask them in your reply instead."
            )
        elif answer.channel is ConsentChannel.MALFORMED:
            has_options = any(question.type != "text" for question in params.questions)
            advice = "Ask again with type text, or ask in your reply instead." if has_options else "Ask in your reply."
            problem = f"The form came back without any answer, or with an option that was not offered. {advice}"
        if answer is None or problem:
            raise ToolError(ToolErrorType.EXECUTION_FAILED, problem)
        if answer.channel is not ConsentChannel.FORM:
            outcome, sentence = _OUTCOMES[answer.channel]
            return ToolResult(sentence, sentence, structured={"outcome": outcome, "answers": {}})
        replies = [(query.header, texts) for query, texts in zip(params.questions, answer.answers, strict=True)]
        lines = [f"{one_line(header)}: {', '.join(texts) or '(not answered)'}" for header, texts in replies]
        structured = {"outcome": "answered", "answers": {header: list(texts) for header, texts in replies}}
        return ToolResult("\n".join(["The user answered:", *lines]), "\n".join(lines), structured)
