"""A tool whose parameters are a pydantic model: the base of all built-in tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tools.contract.permission_subjects import Subject, ToolKind, ToolTraits
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import (
    ForeignParameter,
    ToolParams,
    about_unknown,
    bind,
    folded,
    foreign,
    full_schema,
    published_schema,
    rename,
)
from tools.contract.tool_results import FunctionDeclaration

if TYPE_CHECKING:
    from tools.call.tool_context import ToolContext
    from tools.contract.confirmation import ConfirmationDetails
    from tools.contract.tool_results import ToolResult


ParamsT = TypeVar("ParamsT")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The facts that clients decide by; published as MCP tool annotations and proved by tests."""

    read_only: bool  # the tool changes nothing
    destructive: bool = False  # what it changes may be lost
    idempotent: bool = False  # calling it again with the same arguments changes nothing more
    open_world: bool = False  # it reaches beyond this machine


READS = Behaviour(read_only=True, idempotent=True)  # looks at local files and changes nothing


class BaseTool(ABC, Generic[ParamsT]):
    """A tool: validate, describe, confirm, execute.

    Subclasses set the attributes and implement the methods. `should_confirm_execute` has no side effect
    and may be called any number of times; `execute` runs at most once for each confirmed call.
    """

    name: str  # the unique name used in calls

    display_name: str  # its name in Qwen Code and Gemini CLI, which rules and calls may use

    title: str = ""  # its name for people; empty where that is the display name

    description: str  # what it does, told to the model

    kind: ToolKind  # what permission rules and approval modes group tools by

    behaviour: Behaviour

    aliases: tuple[str, ...] = ()  # older wire names, class names and display names that calls may use; never listed

    is_builtin: bool = False  # whether it is one of this server's own

    alias: str = ""  # that of the server behind this one that it is of

    # What it is made from, where that may change while it is in use; an answer to a question is bound to it
    version: str = ""

    # JSON Schema of `ToolResult.structured`, where the tool always fills it. Documented, and not listed: it would be a
    # third of all that a model is told about tools
    output_schema: Mapping[str, Any] | None = None

    @property
    def is_listed(self) -> bool:
        """Whether clients are told about it. By its name it answers in any case, if only with what it lacks."""
        return True

    @property
    @abstractmethod
    def parameter_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the parameters, as published."""

    @abstractmethod
    def validate_tool_params(self, arguments: Mapping[str, Any]) -> ParamsT:
        """Turn arguments as they came into parameters.

        Raises:
            InvalidToolParamsError: They do not fit; the sentence says why.
        """

    def about_ignored(self, arguments: Mapping[str, Any]) -> str:
        """What to tell the model of arguments that are valid and were not used; empty if there is nothing."""
        del arguments
        return ""

    @abstractmethod
    def get_description(self, params: ParamsT, context: ToolContext) -> str:
        """What this call will do, in one line for people. Pure, and cheap."""

    @property
    def asks(self) -> bool:
        """Whether a call of it is shown to a person where neither a rule nor the approval mode says otherwise."""
        return type(self).should_confirm_execute is not BaseTool[Any].should_confirm_execute

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The names that permission rules may call it by, beside those for groups of built-in tools.

        The first one is nobody else's, now and later: what a person allows for good is written with it.
        """
        return (self.name,)

    @property
    def loose_rule_names(self) -> tuple[str, ...]:
        """Names that may be another tool's tomorrow: only rules that ask or refuse count them."""
        return ()

    @cached_property
    def traits(self) -> ToolTraits:
        """What permissions go by of this tool."""
        return ToolTraits(
            self.name,
            self.kind,
            self.rule_names,
            self.loose_rule_names,
            read_only=self.behaviour.read_only,
            is_builtin=self.is_builtin,
            server=self.alias,
        )

    async def make_ready(self, context: ToolContext) -> None:
        """Find out once what `subjects` has to know and cannot find out in a thread."""

    def subjects(self, params: ParamsT, context: ToolContext) -> Sequence[Subject]:
        """What this call touches, for rules that are about it. Changes nothing; blocking: it may look at the disk.

        Raises:
            ToolError: The call cannot succeed.
        """
        del params, context
        return ()

    def why_asked_again(self, client_key: str) -> str:
        """Why the person behind a client has to be asked whatever rules and modes allow; empty if there is nothing."""
        del client_key
        return ""

    def consented(self, client_key: str) -> None:
        """The person behind a client has agreed to a call of this very tool."""
        del client_key

    def why_outdated(self) -> str:
        """Why this is not the tool any more that its name stands for, after a person was asked about it; else empty."""
        return ""

    async def should_confirm_execute(self, params: ParamsT, context: ToolContext) -> ConfirmationDetails | None:
        """What a person has to be asked before this call, or `None`. Pure; may be repeated.

        Raises:
            ToolError: The call cannot succeed, so there is nothing to ask.
        """
        del params, context
        return None

    @abstractmethod
    async def execute(self, params: ParamsT, context: ToolContext) -> ToolResult:
        """Perform the action.

        Raises:
            ToolError: It failed in a way the model can act on.
        """

    def declaration(self) -> FunctionDeclaration:
        """The tool as the model is told about it."""
        return FunctionDeclaration(self.name, self.description, self.parameter_schema)


# By the folded name: what programs give to every tool, for themselves (Gemini CLI), or have models say of every call
REMARKS: Mapping[str, ForeignParameter] = dict.fromkeys(
    ("waitforprevious", "callid", "description", "displaydescription", "explanation", "goal", "instruction",
     "instructions", "justification", "purpose", "reason", "reasoning", "securityrisk", "summary", "taskprogress",
     "thought", "title", "toolcallid"),
    ForeignParameter(),
)  # fmt: skip
_TRIAL = foreign(
    "false", way="Nothing can be tried out: a call is carried out, once the user agrees if they are asked."
)
_FOREIGN = {**REMARKS, **dict.fromkeys(("dryrun", "noop", "preview", "simulate", "validateonly", "whatif"), _TRIAL)}

BuiltinParamsT = TypeVar("BuiltinParamsT", bound=ToolParams)


class BuiltinTool(BaseTool[BuiltinParamsT], Generic[BuiltinParamsT]):
    """Validation by a model: other spellings first, then the model, then the tool's own checks.

    Subclasses set `params_model` and, where older names exist, `parameter_aliases`.
    """

    is_builtin = True
    params_model: type[BuiltinParamsT]
    parameter_aliases: Mapping[str, str] = {}  # accepted spelling -> published name
    # What tools of other programs have besides
    foreign_parameters: Mapping[str, ForeignParameter] = {}

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the parameters, as published."""
        return self._published_schema

    @cached_property
    def _published_schema(self) -> Mapping[str, Any]:
        return published_schema(self._own_schema)

    @cached_property
    def _own_schema(self) -> Mapping[str, Any]:
        return full_schema(self.params_model)

    @cached_property
    def _spellings(self) -> Mapping[str, str]:
        own = {name: name for name in self._own_schema["properties"]}
        return {folded(name): canonical for name, canonical in {**own, **self.parameter_aliases}.items()}

    @cached_property
    def _foreign(self) -> Mapping[str, ForeignParameter]:
        return _FOREIGN | {folded(name): other for name, other in self.foreign_parameters.items()}

    def validate_tool_params(self, arguments: Mapping[str, Any]) -> BuiltinParamsT:
        """Map spellings, bind the model, run the tool's own checks.

        A tool that only reads passes over what it does not know. One that changes something refuses it: it could have
        been meant to make the change a smaller one. What says no to something unknown asks for nothing.
        """
        settled, spelled = self._settled(arguments)
        params = bind(self.name, self.params_model, self._own_schema, settled)
        self.check(params, spelled)
        if not self.behaviour.read_only and (problem := self._about_unknown(settled, is_refused=True)):
            raise InvalidToolParamsError(self.name, problem)
        return params

    def about_ignored(self, arguments: Mapping[str, Any]) -> str:
        """Names what the tool does not have, at any depth."""
        return self._about_unknown(self._settled(arguments)[0], is_refused=False)

    def _settled(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        named, spelled = rename(self.name, arguments, self._spellings, self._own_schema.get("required", ()))
        return self.normalise(named), spelled

    def _about_unknown(self, settled: Mapping[str, Any], *, is_refused: bool) -> str:
        return about_unknown(
            self.name, settled, self._own_schema, self._spellings, self._foreign, is_refused=is_refused
        )

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Rewrite older forms that are more than another name. Called before validation."""
        return arguments

    def check(self, params: BuiltinParamsT, spelled: Mapping[str, str]) -> None:
        """What the schema cannot say.

        Args:
            params: The validated parameters.
            spelled: For each parameter given, the spelling that was used.

        Raises:
            InvalidToolParamsError: The values do not fit together.
        """
        del params, spelled
