"""Parses the operator's rules: `permissions.allow|ask|deny`, and the older lists in `tools`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, takewhile

from tools.contract.permission_subjects import Access, ToolTraits
from tools.files.ignore_files import RuleList, bytes_text, parse_rules
from tools.files.workspace import Forbidden, contains, resolve_links
from tools.permissions import tool_names
from tools.permissions.verdict import Verdict

ANYTHING = "*"
_SPECIAL = re.compile(r"[\\*?\[\]]")  # special characters in patterns
_WILDCARD, _ESCAPED = re.compile(r"[*?[]"), re.compile(r"\\(.)")
_BLANKS = " \t"  # removed from both ends of a pattern; other whitespace may be part of a name
_CACHE_NS = 50_000_000  # nanoseconds for which symlink targets are cached, because a search checks every file


class MalformedRuleError(ValueError):
    """A rule cannot be parsed. The message gives the reason and says how to write the rule."""


def fits_wildcards(pattern: str, text: str) -> bool:
    """Return True if `text` matches `pattern`, in which `*` stands for any text, even none. Takes linear time."""
    first, *pieces = pattern.split(ANYTHING)
    if not pieces:
        return text == pattern
    *middle, last = pieces
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    position, end = len(first), len(text) - len(last)
    for piece in middle:
        position = text.find(piece, position, end)
        if position < 0:
            return False
        position += len(piece)
    return True


@dataclass(frozen=True, slots=True)
class CommandSpecifier:
    """The simple shell commands that a rule applies to.

    A pattern without a star is a prefix of whole words: `git log` matches `git log -1` but not `git logout`. The
    pattern `git log *` is equivalent. `npm run test*` also matches `npm run tests`, because no space precedes the star.
    A star may be anywhere in a pattern.
    """

    pattern: str  # as written, with single spaces; `git:*` becomes `git *`

    def fits(self, text: str) -> bool:
        """Return True if the specifier applies to a command, given as words joined by single spaces."""
        bare = self.pattern.removesuffix(" *")
        if ANYTHING not in bare:
            return text == bare or text.startswith(f"{bare} ")
        return fits_wildcards(self.pattern, text) or fits_wildcards(bare, text)


@dataclass(frozen=True, slots=True)
class PathSpecifier:
    """The paths that a rule applies to, in `.gitignore` syntax. A pattern for a folder includes all its contents.

    `//x` is an absolute path, and `~/x` is relative to the home folder. Any other pattern is relative to each workspace
    folder. A pattern without a slash matches a name at any depth. In rules that deny or ask, it also matches outside
    the workspace.
    """

    rules: RuleList
    base: str | None  # the folder that the pattern is relative to, or `None` for each workspace folder
    line: bytes  # the pattern as a line of a `.gitignore`
    begins: tuple[str, ...] = ()  # the pattern's leading literal components; empty in allow rules

    def fits(self, paths: Sequence[str], roots: Sequence[str]) -> bool:
        """Return True if the rule applies to a file with any of these absolute paths, which contain no `.` or `..`.

        Blocking, because it may look up the real path of the leading components (`begins`), which is cached briefly.
        """
        for base in roots if self.base is None else (self.base,):
            written_path, real_path = self.beginning(base)
            for path in paths:
                if self._fits_below(base, path):
                    return True
                if written_path != real_path and contains(real_path, path):
                    name = os.path.normpath(os.path.join(written_path, os.path.relpath(path, real_path)))
                    if self._fits_below(base, name):
                        return True
        return False

    def beginning(self, base: str) -> tuple[str, str]:
        """Return `base` joined with the leading components (`begins`), both as written and with symlinks resolved."""
        path = os.path.join(base, *self.begins)
        return path, _real_path(path, time.monotonic_ns() // _CACHE_NS)

    def _fits_below(self, base: str, path: str) -> bool:
        prefix = base if base.endswith(os.sep) else base + os.sep
        if not path.startswith(prefix):
            return False
        names = bytes_text(path[len(prefix) :]).split(os.sep)
        relative_paths = list(accumulate(names, lambda parent, name: f"{parent}/{name}" if parent else name))
        # The disk is not checked, so the last component is tested both as a folder and as a file.
        return any(self.rules.hides(relative_path, is_folder=True) for relative_path in relative_paths) or bool(
            self.rules.hides(relative_paths[-1], is_folder=False)
        )


@lru_cache(1_000)
def _real_path(path: str, _moment: int) -> str:
    return resolve_links(path)


def path_specifier(text: str, home: str, *, forbids: bool) -> PathSpecifier:
    """Parse the path pattern of a rule.

    In a rule that denies or asks (`forbids`), a pattern without a slash also matches outside the workspace.
    """
    pattern, base = text.strip(_BLANKS), None
    if pattern.startswith("//"):
        pattern, base = pattern[1:], os.sep
    elif pattern == "~" or pattern.startswith("~/"):
        pattern, base = pattern[1:] or "/**", home
    elif pattern.startswith("./"):
        pattern = pattern[1:]
    elif forbids and "/" not in pattern.rstrip("/"):
        base = os.sep
    # A leading `!` or `#` is not special in a rule.
    escaped_pattern = f"\\{pattern}" if pattern[:1] in ("!", "#") else pattern
    line = os.fsencode(escaped_pattern)
    rules = parse_rules(b"\n" + line)  # not as the first line, from which a byte order mark would be removed
    if rules.odd_line is not None or not {*b"\n\r\0"}.isdisjoint(line):
        raise MalformedRuleError(
            "its pattern is not understood; use the syntax of .gitignore, with only letters and digits in brackets"
        )
    # Allow rules do not follow symlinks in the folder that the pattern is relative to, because commands can create
    # symlinks there.
    names = escaped_pattern.strip("/").split("/") if forbids and "/" in pattern.rstrip("/") else ()
    begins = takewhile(lambda name: not _WILDCARD.search(_ESCAPED.sub("", name)), names)
    return PathSpecifier(rules, base, line, tuple(_ESCAPED.sub(r"\1", name) for name in begins))


def literal_path(path: str) -> str | None:
    """Return the pattern for exactly this absolute path and everything under it, or `None` if none can express it."""
    if "\n" in path or "\r" in path or "\0" in path:
        return None
    pattern = _SPECIAL.sub(r"\\\g<0>", path)
    bare = pattern.rstrip(_BLANKS)
    # Trailing blanks are put in brackets; otherwise they would be removed from the pattern.
    return f"/{bare}{''.join(f'[{blank}]' for blank in pattern[len(bare) :])}" if path != os.sep else "//**"


@dataclass(frozen=True, slots=True)
class HostSpecifier:
    """The hosts that a rule applies to: one host and its subdomains, or all hosts."""

    host: str  # in lower case, without a final dot; `*` means every host

    def fits(self, host: str) -> bool:
        bare = host.lower().rstrip(".")
        return self.host in (ANYTHING, bare) or bare.endswith(f".{self.host}")


@dataclass(frozen=True, slots=True)
class AgentSpecifier:
    """The agents that a rule applies to. Case is ignored, and a star stands for any text."""

    pattern: str  # case-folded

    def fits(self, name: str) -> bool:
        return fits_wildcards(self.pattern, name.casefold())


Specifier = CommandSpecifier | PathSpecifier | HostSpecifier | AgentSpecifier
SANDBOXED = "Sandboxed"
"""The grant for every command that stays in the sandbox. No tool has this name."""
SESSION = "this session"  # the `source` of rules that a user has added in answer to a question


@dataclass(frozen=True, slots=True)
class Rule:
    text: str  # the rule as written
    source: str  # the setting that contains the rule, such as `permissions.deny`
    verdict: Verdict  # the rule's effect on matching calls
    name: str  # the tool that the rule names; may contain stars
    tools: frozenset[str]  # the built-in tools that the name means
    specifier: Specifier | None  # the calls that the rule applies to; `None` for every call

    def __str__(self) -> str:
        """Return the rule's setting and text, as reasons show them."""
        return f"{self.source} rule {self.text}"

    def names(self, names: Sequence[str], loose: Sequence[str] = ()) -> bool:
        """Return True if the rule names the tool that has these names in rules, its own name first.

        In an allow rule, an ambiguous name has a single meaning. In any other rule, it has every possible meaning.
        Allow rules ignore the names in `loose`, which may later belong to another tool.
        """
        if self.verdict is not Verdict.ALLOW:
            return any(name in self.tools or fits_wildcards(self.name, name) for name in (*names, *loose))
        pattern, names = tool_names.one_meaning(self.name), tool_names.names_to_allow(names)
        if any(name in self.tools or name == pattern for name in names):
            return True
        # A star matches upstream tools only if the pattern contains the separator `__`, or is just `*`.
        is_of_servers = tool_names.BETWEEN in pattern or pattern == ANYTHING
        return any(fits_wildcards(pattern, name) for name in names if is_of_servers or tool_names.BETWEEN not in name)

    def names_tool(self, tool: ToolTraits) -> bool:
        return self.names(tool.rule_names, tool.loose_rule_names)

    def allows_tool(self, tool: ToolTraits) -> bool:
        """Return True if the rule names a tool and counts as consent to everything that the tool does."""
        is_of_group = len(self.tools) > 1 and ANYTHING not in self.name
        return self.names_tool(tool) and not (is_of_group and tool.name in tool_names.STARTING)

    @property
    def is_about_commands(self) -> bool:
        return tool_names.SHELL in self.tools or self.name == ANYTHING

    @property
    def command_pattern(self) -> str:
        """The pattern of a rule about commands; empty for any other rule, and for one without a specifier."""
        return self.specifier.pattern if isinstance(self.specifier, CommandSpecifier) and self.is_about_commands else ""

    def governs(self, access: Access) -> bool:
        """Return True if the rule also applies to this kind of access by a shell command."""
        return self.name == ANYTHING or not self.tools.isdisjoint(tool_names.GOVERNED_BY[access])

    def fits_command(self, text: str) -> bool:
        specifier = self.specifier
        return self.is_about_commands and (
            specifier is None or (isinstance(specifier, CommandSpecifier) and specifier.fits(text))
        )

    def fits_path(self, paths: Sequence[str], roots: Sequence[str]) -> bool:
        return self.specifier is None or (
            isinstance(self.specifier, PathSpecifier) and self.specifier.fits(paths, roots)
        )

    def fits_host(self, host: str) -> bool:
        return self.specifier is None or (isinstance(self.specifier, HostSpecifier) and self.specifier.fits(host))

    def fits_agent(self, name: str) -> bool:
        return self.specifier is None or (isinstance(self.specifier, AgentSpecifier) and self.specifier.fits(name))


def parse_rule(text: str, verdict: Verdict, source: str, canonical: Callable[[str], str], home: str) -> Rule:
    """Parse a rule, `Name` or `Name(specifier)`. Raises a `MalformedRuleError` if it cannot be parsed.

    `canonical` maps older names and class names of built-in tools to tool names.
    """
    name, parenthesis, rest = text.strip().partition("(")
    name = name.strip()
    if not name or any(character.isspace() for character in name):
        raise MalformedRuleError("a rule must be Name or Name(specifier), such as Read or Bash(git log *)")
    if parenthesis and not rest.endswith(")"):
        problem = "its parenthesis is not closed at the end"
        raise MalformedRuleError(f"{problem}; close it, and write nothing after the closing parenthesis")
    rule_name = tool_names.one_meaning(name) if verdict is Verdict.ALLOW else name
    if ANYTHING in rule_name:
        known_tools = frozenset[str]().union(*tool_names.GROUPS.values())
        tools = frozenset(tool for tool in known_tools if fits_wildcards(rule_name, tool))
    else:
        tools = tool_names.GROUPS.get(rule_name) or frozenset({canonical(rule_name)})
    specifier_text = rest[:-1].strip(_BLANKS) if parenthesis else ""
    specifier: Specifier | None = None
    if specifier_text in ("", ANYTHING):
        pass
    elif tool_names.SHELL in tools:
        pattern = " ".join(specifier_text.split())
        specifier = CommandSpecifier(f"{pattern[:-2]} *" if pattern.endswith(":*") else pattern)
    elif tools & (tool_names.READING | tool_names.EDITING):
        specifier = path_specifier(specifier_text, home, forbids=verdict is not Verdict.ALLOW)
    elif tool_names.FETCHING in tools:
        # `example.org`, `domain:example.org` or `*.example.org`
        host = specifier_text.lower().removeprefix("domain:").strip()
        specifier = HostSpecifier(host if host == ANYTHING else host.removeprefix("*.").rstrip("."))
    elif tool_names.DELEGATING in tools:
        specifier = AgentSpecifier(specifier_text.casefold())
    else:
        raise MalformedRuleError("this tool takes no specifier; give the name alone")
    return Rule(text, source, verdict, name, tools, specifier)


CORE = "tools.core"
INCLUDE = "tools.include"
PROFILE = "tools.profile"
# The settings that contain rules, and the effect of these rules. `tools.core` also excludes every built-in tool that it
# does not name.
VERDICTS: Mapping[str, Verdict] = {
    "permissions.allow": Verdict.ALLOW,
    "permissions.ask": Verdict.ASK,
    "permissions.deny": Verdict.DENY,
    "tools.allowed": Verdict.ALLOW,
    "tools.confirmationRequired": Verdict.ASK,
    "tools.exclude": Verdict.DENY,
    CORE: Verdict.ALLOW,
}


@dataclass(frozen=True, slots=True)
class Rules:
    deny: tuple[Rule, ...] = ()  # rules for calls that never run
    ask: tuple[Rule, ...] = ()  # rules for calls that always need consent
    allow: tuple[Rule, ...] = ()  # rules for calls that run without a question
    # Rules that name the built-in tools to offer; empty to offer all. If the rules for the shell have specifiers, only
    # the commands that match one of them are allowed
    core: tuple[Rule, ...] = ()
    included: tuple[Rule, ...] | None = None  # rules that name the tools to offer, from any source; `None` for all
    include_setting: str = INCLUDE  # the setting to change if a tool is missing
    profile: str = ""  # the profile of built-in tools; a name that is not in `PROFILES` means all tools

    @property
    def strict(self) -> tuple[Rule, ...]:
        """The rules that deny or ask, deny rules first."""
        return (*self.deny, *self.ask)

    @property
    def are_about_files(self) -> bool:
        """True if a deny or ask rule has a path pattern."""
        return any(isinstance(rule.specifier, PathSpecifier) for rule in self.strict)

    def core_commands(self) -> tuple[Rule, ...]:
        """The rules in `tools.core` that name commands. Empty if every shell command is allowed."""
        command_rules = tuple(r for r in self.core if r.fits_command("") or isinstance(r.specifier, CommandSpecifier))
        return () if any(rule.specifier is None for rule in command_rules) else command_rules


def hidden_paths(rules: Rules, roots: Sequence[str]) -> Forbidden | None:
    """Return a function that finds the rule that hides a path from searches, or `None` if no rule may hide one."""
    narrow = tuple(r for r in rules.strict if r.tools & tool_names.READING and isinstance(r.specifier, PathSpecifier))
    return (lambda path: next((str(r) for r in narrow if r.fits_path((path,), roots)), None)) if narrow else None


def rule_of_all_reading(rules: Rules) -> str:
    """Return the rule that denies all reading or asks about it, or an empty string."""
    return next((str(r) for r in rules.strict if r.tools >= tool_names.READING and r.specifier is None), "")


def read_rules(
    lists: Mapping[str, Sequence[str]],
    canonical: Callable[[str], str],
    home: str,
    flags: Mapping[str, str] | None = None,
) -> tuple[Rules, list[str]]:
    """Parse the rule lists of the settings. Also return a warning for each rule that is not used as written.

    An allow rule that cannot be parsed is ignored. An ask or deny rule that cannot be parsed is applied to every call
    to the tool that it names, or to every tool if it names none. This way, a typo never allows what was meant to be
    denied.

    `lists` are keyed by setting, and `canonical` is as in `parse_rule`. `flags` maps a setting to the name that
    warnings use in its place, such as that of the command line option that has replaced the list.
    """
    rules_by_verdict: dict[Verdict, list[Rule]] = {verdict: [] for verdict in Verdict}
    core: list[Rule] = []
    warnings: list[str] = []
    for list_key, verdict in VERDICTS.items():
        key = (flags or {}).get(list_key, list_key)
        rules = core if list_key == CORE else rules_by_verdict[verdict]
        for text in lists.get(list_key, ()):
            try:
                rules.append(parse_rule(text, verdict, key, canonical, home))
            except MalformedRuleError as error:
                if verdict is Verdict.ALLOW:
                    warnings.append(f"{key}: the rule '{text}' is ignored, because {error}.")
                    continue
                name = text.partition("(")[0].strip()
                name = name if name and not any(map(str.isspace, name)) else ANYTHING
                scope = "every tool" if name == ANYTHING else name
                warnings.append(f"{key}: the rule '{text}' applies to every call to {scope}, because {error}.")
                rules.append(parse_rule(name, verdict, key, canonical, home))
    include_rules: list[Rule] = []
    for text in lists.get(INCLUDE, ()):
        name, parenthesis, _ = text.partition("(")
        if parenthesis:
            warnings.append(f"{INCLUDE}: '{text}' is read as '{name}', because this setting names tools, not calls.")
        try:
            # This setting gives no consent, so every possible meaning of the name counts, as in an ask rule.
            include_rules.append(parse_rule(name, Verdict.ASK, INCLUDE, canonical, home))
        except MalformedRuleError as error:
            warnings.append(f"{INCLUDE}: '{text}' names no tool, because {error}.")
    deny, ask, allow = (tuple(rules_by_verdict[verdict]) for verdict in (Verdict.DENY, Verdict.ASK, Verdict.ALLOW))
    included = tuple(include_rules) if lists.get(INCLUDE) else None
    return Rules(deny, ask, allow, tuple(core), included, (flags or {}).get(INCLUDE, INCLUDE)), warnings
