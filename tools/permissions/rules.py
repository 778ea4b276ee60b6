"""All rules of an operator: `permissions.allow|ask|deny` and the older lists, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tools.permissions.permission import Verdict
from tools.permissions.rule import MalformedRuleError, Rule, parse_rule
from tools.permissions.specifiers import ANYTHING, CommandSpecifier

CORE = "tools.core"
INCLUDE = "tools.include"

VERDICTS: Mapping[str, Verdict] = {
    "permissions.allow": Verdict.ALLOW,
    "permissions.ask": Verdict.ASK,
    "permissions.deny": Verdict.DENY,
    "tools.allowed": Verdict.ALLOW,
    "tools.confirmationRequired": Verdict.ASK,
    "tools.exclude": Verdict.DENY,
    CORE: Verdict.ALLOW,
}
"""The settings that hold rules, and what each does. `tools.core` also keeps out whatever it does not name."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operator has said about calls.

    Args:
        deny: What never runs.
        ask: What always needs an answer.
        allow: What runs without one.
        core: The only built-in tools there are, or empty for all of them; the specifiers of a shell tool among them
            are the only commands.
        included: The only tools there are, wherever they come from; `None` for all of them.
    """

    deny: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    allow: tuple[Rule, ...] = ()
    core: tuple[Rule, ...] = ()
    included: tuple[Rule, ...] | None = None

    def with_allowed(self, rules: Sequence[Rule]) -> Rules:
        """These rules and some more that allow."""
        return replace(self, allow=(*self.allow, *rules))

    @property
    def of_calls(self) -> Iterator[Rule]:
        """Those that do not speak of every call of a tool."""
        return (rule for rule in (*self.deny, *self.ask, *self.allow) if not rule.is_of_every_call)

    def core_commands(self) -> tuple[Rule, ...]:
        """The rules of `tools.core` that name commands; empty where every command of the shell is allowed."""
        named = tuple(rule for rule in self.core if rule.fits_command("") or _is_about_commands(rule))
        return () if any(rule.specifier is None for rule in named) else named


def _is_about_commands(rule: Rule) -> bool:
    return isinstance(rule.specifier, CommandSpecifier)


@dataclass(slots=True)
class RuleReader:
    """Reads rules, and keeps what cannot be read.

    Args:
        canonical: The wire name for an older or a class name of a built-in tool; any other name as it is.
        home: The user's home folder, for `~/`.
        warnings: A sentence for each rule that was left out.
    """

    canonical: Callable[[str], str]
    home: str
    warnings: list[str] = field(default_factory=list[str])

    def read(self, lists: Mapping[str, Sequence[str]]) -> Rules:
        """Read the lists of the settings, by their keys.

        A rule that cannot be read is left out with a warning where it allows. Where it asks or denies, it counts for
        every call of the tool that it names, or of every tool if it names none, so that a slip of the pen never opens
        what somebody meant to close.
        """
        found = [rule for key in VERDICTS for rule in self._read(key, lists.get(key, ()))]
        said = {
            verdict: tuple(rule for rule in found if rule.verdict is verdict and rule.source != CORE)
            for verdict in Verdict
        }
        core = tuple(rule for rule in found if rule.source == CORE)
        included = tuple(self._included(lists[INCLUDE])) if lists.get(INCLUDE) else None
        return Rules(said[Verdict.DENY], said[Verdict.ASK], said[Verdict.ALLOW], core, included)

    def _included(self, texts: Sequence[str]) -> Iterator[Rule]:
        """What `tools.include` names: tools, so nothing is said of single calls."""
        for text in texts:
            name, parenthesis, _ = text.partition("(")
            if parenthesis:
                self.warnings.append(f"{INCLUDE}: '{text}' counts as '{name}': it names tools, not calls.")
            try:
                # Nothing is allowed by it, so each name that could be meant counts, as where a rule asks.
                yield parse_rule(name, Verdict.ASK, INCLUDE, self.canonical, self.home)
            except MalformedRuleError as error:
                self.warnings.append(f"{INCLUDE}: '{text}' names no tool, because {error}.")

    def _read(self, key: str, texts: Sequence[str]) -> Iterator[Rule]:
        verdict = VERDICTS[key]
        for text in texts:
            try:
                yield parse_rule(text, verdict, key, self.canonical, self.home)
            except MalformedRuleError as error:
                if verdict is Verdict.ALLOW:
                    self.warnings.append(f"{key}: the rule '{text}' is left out, because {error}.")
                    continue
                name = text.partition("(")[0].strip()
                name = name if name and not any(map(str.isspace, name)) else ANYTHING
                what = "every tool" if name == ANYTHING else name
                self.warnings.append(f"{key}: the rule '{text}' counts for every call of {what}, because {error}.")
                yield parse_rule(name, verdict, key, self.canonical, self.home)
