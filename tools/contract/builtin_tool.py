"""A tool whose parameters are a pydantic model: the base of all built-in tools."""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property
from typing import Any, Generic, TypeVar

from tools.contract.base import BaseTool
from tools.contract.parameters import ToolParams, about_ignored, about_ignored_within, bind, published_schema, rename

_OF_PROGRAMS = frozenset({"wait_for_previous"})
"""What programs give to every tool, for themselves (Gemini CLI)."""

BuiltinParamsT = TypeVar("BuiltinParamsT", bound=ToolParams)


class BuiltinTool(BaseTool[BuiltinParamsT], Generic[BuiltinParamsT]):
    """Validation by a model: other spellings first, then the model, then the tool's own checks.

    Subclasses set `params_model` and, where older names exist, `parameter_aliases`.
    """

    params_model: type[BuiltinParamsT]
    parameter_aliases: Mapping[str, str] = {}
    """Accepted spelling -> published name."""
    unused_parameters: frozenset[str] = frozenset()
    """What the tools of other programs have besides, and what has nothing to say here."""

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the parameters, as published."""
        return self._published

    @cached_property
    def _published(self) -> Mapping[str, Any]:
        return published_schema(self.params_model)

    def validate_tool_params(self, arguments: Mapping[str, Any]) -> BuiltinParamsT:
        """Map spellings, bind the model, run the tool's own checks."""
        named, spelled = rename(self.name, arguments, self.parameter_aliases)
        params = bind(self.name, self.params_model, self.parameter_schema, self.normalise(named))
        self.check(params, spelled)
        return params

    def about_ignored(self, arguments: Mapping[str, Any]) -> str:
        """Names what is in the schema neither as it was given nor in another spelling, at any depth."""
        known = self.params_model.model_fields.keys() | self.parameter_aliases.keys()
        given = {name for name, value in arguments.items() if value is not None}
        told = [] if given <= known else [self._about_ignored(arguments, known)]
        told += about_ignored_within(self.name, arguments, self.parameter_schema)
        return " ".join(filter(None, told))

    def _about_ignored(self, arguments: Mapping[str, Any], known: Set[str]) -> str:
        named, _ = rename(self.name, arguments, self.parameter_aliases)
        left = self.normalise(dict(named)).keys() - known - self.unused_parameters - _OF_PROGRAMS
        spellings = {**{name: name for name in self.parameter_schema["properties"]}, **self.parameter_aliases}
        return about_ignored(self.name, [name for name in named if name in left], spellings, set(named))

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
