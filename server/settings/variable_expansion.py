"""Environment variables in the texts of settings: how they are written, and what comes in their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from server.settings.section_model import Diagnostics, KeyPath, dotted, shown_name

HINT = "Set it, or write $$ for a dollar sign."  # what to do about a variable that is not set
_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[^{}]*)\})")
SourceOf = Callable[[KeyPath], str]  # the layer that a value came from


@dataclass(frozen=True, slots=True)
class VariableExpander:
    """Puts environment variables into texts.

    `$NAME` and `${NAME}` are the variable; `${NAME:-text}` is the text where the variable is not set or empty;
    `$$` is a dollar sign. What a variable holds is not expanded again.
    """

    environ: Mapping[str, str]
    missing: list[tuple[KeyPath, str]] = field(default_factory=list[tuple[KeyPath, str]])
    """Where a variable is named that is not set, and which."""

    def text(self, text: str, path: KeyPath) -> str:
        """The text with its variables expanded; one that is not set stays as it is written, and is noted."""

        def value(match: re.Match[str]) -> str:
            if match["dollar"]:
                return "$"
            name, has_default, default = _name_and_default(match)
            found = self.environ.get(name)
            if has_default and not found:
                return default
            if found is None:
                self.missing.append((path, name))
                return match[0]
            return found

        return _VARIABLE.sub(value, text) if "$" in text else text

    def texts(self, texts: Sequence[str], path: KeyPath) -> tuple[str, ...]:
        """The same for each text of an array."""
        return tuple(self.text(text, (*path, index)) for index, text in enumerate(texts))

    def table(self, table: Mapping[str, str], path: KeyPath) -> dict[str, str]:
        """The same for each text of an object."""
        return {name: self.text(text, (*path, name)) for name, text in table.items()}

    def warn_of_missing(self, diagnostics: Diagnostics, source_of: SourceOf, consequence: str) -> bool:
        """Warn of each variable that is not set, the consequence ending the sentence; whether there are any."""
        for where, variable in self.missing:
            said = f"{dotted(where)} names the environment variable {shown_name(variable)}, which is not set"
            diagnostics.warn(source_of(where), f"{said}{consequence}")
        return bool(self.missing)


def variables_in(text: str) -> Iterator[str]:
    """The names of the variables that the expander looks up for a text, in order; one may come twice."""
    return (_name_and_default(match)[0] for match in _VARIABLE.finditer(text) if not match["dollar"])


def _name_and_default(match: re.Match[str]) -> tuple[str, str, str]:
    """The name of a variable, `:-` if a default is given, and that."""
    return (match["plain"] or match["braced"]).partition(":-")
