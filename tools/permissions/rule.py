"""One permission rule, `Name` or `Name(specifier)`: from its text to what it is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tools.contract.base import BaseTool
from tools.contract.subject import Access
from tools.permissions.permission import Verdict
from tools.permissions.specifiers import (
    ANYTHING,
    AgentSpecifier,
    CommandSpecifier,
    HostSpecifier,
    PathSpecifier,
    Specifier,
    command_specifier,
    fits_wildcards,
    host_specifier,
    path_specifier,
)
from tools.permissions.tool_names import (
    BETWEEN,
    DELEGATING,
    EDITING,
    GROUPS,
    READING,
    SHELL,
    access_of,
    names_to_allow,
    one_meaning,
)

SESSION = "this session"
"""The source of rules that a person gave as an answer."""


class MalformedRuleError(ValueError):
    """A rule cannot be read; the text says why, and how to write it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A permission rule.

    Args:
        text: As written.
        source: Where it stands, such as `permissions.deny`.
        verdict: What it does to a call that it is about.
        name: The tool it names; may hold stars.
        tools: The built-in tools that the name stands for.
        specifier: What it is about; `None` for every call.
    """

    text: str
    source: str
    verdict: Verdict
    name: str
    tools: frozenset[str]
    specifier: Specifier | None

    def __str__(self) -> str:
        """How the rule is named in a reason."""
        return f"{self.source} rule {self.text}"

    def names(self, names: Sequence[str], loose: Sequence[str] = ()) -> bool:
        """Whether it names a tool. Where it allows, it names no tool that its author may not have meant.

        Args:
            names: The names of the tool, the one that is nobody else's first.
            loose: Names that may be another tool's tomorrow.
        """
        if self.verdict is Verdict.ALLOW:
            return self._surely_names(names_to_allow(names))
        return any(name in self.tools or fits_wildcards(self.name, name) for name in (*names, *loose))

    def names_tool(self, tool: BaseTool[Any]) -> bool:
        """Whether it names this tool."""
        return self.names(tool.rule_names, tool.loose_rule_names)

    def _surely_names(self, names: Sequence[str]) -> bool:
        meant = one_meaning(self.name)
        if any(name in self.tools or name == meant for name in names):
            return True
        # A star reaches the tools of other servers only where the rule speaks of servers, or of everything.
        is_of_servers = BETWEEN in meant or meant == ANYTHING
        return any(fits_wildcards(meant, name) for name in names if is_of_servers or BETWEEN not in name)

    @property
    def is_of_every_call(self) -> bool:
        """Whether it is about each call of the tools that it names."""
        return self.specifier is None

    def governs(self, access: Access) -> bool:
        """Whether it also counts where a shell command reads, writes or fetches."""
        return self.name == ANYTHING or access in access_of(self.tools)

    def fits_command(self, text: str) -> bool:
        """Whether it is about a simple command."""
        if SHELL not in self.tools and self.name != ANYTHING:
            return False
        return self.specifier is None or (isinstance(self.specifier, CommandSpecifier) and self.specifier.fits(text))

    def fits_path(self, paths: Sequence[str], roots: Sequence[str]) -> bool:
        """Whether it is about a file that goes by any of these absolute paths."""
        if self.specifier is None:
            return True
        return isinstance(self.specifier, PathSpecifier) and any(self.specifier.fits(path, roots) for path in paths)

    def fits_host(self, host: str) -> bool:
        """Whether it is about a host."""
        return self.specifier is None or (isinstance(self.specifier, HostSpecifier) and self.specifier.fits(host))

    def fits_agent(self, name: str) -> bool:
        """Whether it is about an agent."""
        return self.specifier is None or (isinstance(self.specifier, AgentSpecifier) and self.specifier.fits(name))


def parse_rule(text: str, verdict: Verdict, source: str, canonical: Callable[[str], str], home: str) -> Rule:
    """Read one rule.

    Args:
        text: As written.
        verdict: What it does to a call that it is about.
        source: Where it stands.
        canonical: The wire name for an older or a class name of a built-in tool; any other name as it is.
        home: The user's home folder, for `~/`.

    Raises:
        MalformedRuleError: It is not of the form `Name` or `Name(specifier)`, or its pattern is not understood.
    """
    name, parenthesis, rest = text.strip().partition("(")
    name = name.strip()
    if not name or any(character.isspace() for character in name):
        raise MalformedRuleError("a rule is Name or Name(specifier), such as Read or Bash(git log *); write it so")
    if parenthesis and not rest.endswith(")"):
        raise MalformedRuleError("its parenthesis is not closed at the end; close it, with nothing behind it")
    tools = _tools_called(one_meaning(name) if verdict is Verdict.ALLOW else name, canonical)
    written = rest[:-1].strip() if parenthesis else ""
    if written in ("", ANYTHING):
        return Rule(text, source, verdict, name, tools, None)
    return Rule(text, source, verdict, name, tools, _specifier(written, tools, verdict, home))


def _tools_called(name: str, canonical: Callable[[str], str]) -> frozenset[str]:
    """The built-in tools that a name stands for; with stars, each that it fits."""
    if ANYTHING in name:
        return frozenset(tool for group in GROUPS.values() for tool in group if fits_wildcards(name, tool))
    return GROUPS.get(name) or frozenset({canonical(name)})


def _specifier(written: str, tools: frozenset[str], verdict: Verdict, home: str) -> Specifier:
    if SHELL in tools:
        return command_specifier(written)
    if tools & (READING | EDITING):
        try:
            return path_specifier(written, home, forbids=verdict is not Verdict.ALLOW)
        except ValueError:
            raise MalformedRuleError(
                "its pattern is not understood; write it as in .gitignore, with brackets of letters and digits"
            ) from None
    if Access.FETCH in access_of(tools):
        return host_specifier(written)
    if DELEGATING in tools:
        return AgentSpecifier(written.casefold())
    raise MalformedRuleError("this tool takes no specifier; give the name alone")
