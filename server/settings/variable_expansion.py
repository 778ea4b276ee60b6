"""Environment variables in settings: their syntax and expansion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from server.settings.section_model import Diagnostics, KeyPath, Section, dotted, shown_name, wire_name

HINT = "Set it, or write $$ for a dollar sign."  # the remedy for a variable that is not set
_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[^{}]*)\})")
SourceOf = Callable[[KeyPath], str]  # returns the source of the value at a path
S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class VariableExpander:
    """Expands environment variables in strings.

    `$NAME` and `${NAME}` expand to the variable's value; `${NAME:-text}` expands to `text` if the variable is unset
    or empty; `$$` is a literal dollar sign. The value of a variable is not expanded again.
    """

    environ: Mapping[str, str]
    missing: list[tuple[KeyPath, str]] = field(default_factory=list[tuple[KeyPath, str]])
    """For each use of an unset variable: the path of the string, and the variable's name."""

    def text(self, text: str, path: KeyPath) -> str:
        """Expand the variables in a string. An unset variable stays as written, and is recorded in `missing`."""

        def value(match: re.Match[str]) -> str:
            if match["dollar"]:
                return "$"
            name, has_default, default = _name_and_default(match)
            variable = self.environ.get(name)
            if has_default and not variable:
                return default
            if variable is None:
                self.missing.append((path, name))
                return match[0]
            return variable

        return _VARIABLE.sub(value, text) if "$" in text else text

    def texts(self, texts: Iterable[str], path: KeyPath) -> tuple[str, ...]:
        return tuple(self.text(text, (*path, index)) for index, text in enumerate(texts))

    def section(self, section: S, attributes: Iterable[str], path: KeyPath) -> S:
        """Return the section at `path` with these attributes expanded: strings, and arrays and objects of strings."""
        updates: dict[str, Any] = {}
        for name in attributes:
            value, key_path = getattr(section, name), (*path, wire_name(name))
            if isinstance(value, str):
                updates[name] = self.text(value, key_path)
            elif isinstance(value, tuple):
                updates[name] = self.texts(cast("tuple[str, ...]", value), key_path)
            elif isinstance(value, Mapping):
                table = cast("Mapping[str, str]", value)
                updates[name] = {key: self.text(text, (*key_path, key)) for key, text in table.items()}
        return section.model_copy(update=updates)

    def warn_of_missing(self, diagnostics: Diagnostics, source_of: SourceOf, consequence: str) -> bool:
        """Warn about each unset variable; `consequence` ends the sentence. Return whether any variable is unset."""
        for key_path, variable in self.missing:
            message = f"{dotted(key_path)} refers to the environment variable {shown_name(variable)}, which is not set"
            diagnostics.warn(source_of(key_path), f"{message}{consequence}")
        return bool(self.missing)


def variables_in(text: str) -> Iterator[str]:
    """Yield the names of the variables that the expander looks up for a string, in order, with repetitions."""
    return (_name_and_default(match)[0] for match in _VARIABLE.finditer(text) if not match["dollar"])


def _name_and_default(match: re.Match[str]) -> tuple[str, str, str]:
    """Return the name of a variable, `:-` if there is a default, and the default."""
    return (match["plain"] or match["braced"]).partition(":-")
