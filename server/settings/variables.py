"""Environment variables in settings: where they are named, and what they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import overload

from server.settings.errors import KeyPath

HINT = "Set it, or write $$ for a dollar sign."
"""What to do about a variable that is not set."""

_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[^{}]*)\})")


class Expansion:
    """Puts environment variables into texts.

    `$NAME` and `${NAME}` are the variable; `${NAME:-text}` is the text where the variable is not set or empty;
    `$$` is a dollar sign. What a variable holds is not expanded again.

    Args:
        environ: The variables.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.missing: list[tuple[KeyPath, str]] = []
        """Where a variable is named that is not set, and which."""

    @overload
    def of_text(self, text: str, path: KeyPath) -> str: ...
    @overload
    def of_text(self, text: str | None, path: KeyPath) -> str | None: ...
    def of_text(self, text: str | None, path: KeyPath) -> str | None:
        """The text with its variables expanded; one that is not set stays as it is written, and is noted."""

        def value(match: re.Match[str]) -> str:
            if match["dollar"]:
                return "$"
            name, has_default, default = (match["plain"] or match["braced"]).partition(":-")
            found = self._environ.get(name)
            if has_default and not found:
                return default
            if found is None:
                self.missing.append((path, name))
                return match[0]
            return found

        return _VARIABLE.sub(value, text) if text is not None and "$" in text else text

    def of_texts(self, texts: Sequence[str], path: KeyPath) -> tuple[str, ...]:
        """The texts of an array, each expanded."""
        return tuple(self.of_text(text, (*path, index)) for index, text in enumerate(texts))

    def of_table(self, table: Mapping[str, str], path: KeyPath) -> dict[str, str]:
        """An object whose values are expanded."""
        return {name: self.of_text(text, (*path, name)) for name, text in table.items()}
