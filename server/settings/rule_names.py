"""Finds names in the settings' rules that no tool can have, usually misspellings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from server.settings import Settings, SettingsReport
from tools.builtin.all_tools import builtin_tools
from tools.call.tool_registry import COUNTERPARTS, ToolRegistry
from tools.contract.display import visible_line
from tools.permissions.permission_policy import PermissionPolicy, Rights
from tools.permissions.permission_rules import fits_wildcards, read_rules
from tools.permissions.tool_names import (
    BETWEEN,
    DELEGATING,
    GROUPS,
    names_of_any_tool,
    names_of_upstream_tool,
    one_meaning,
    rule_for,
)


def rule_lists(settings: Settings) -> Mapping[str, Sequence[str]]:
    """Return the lists of rules in the settings, keyed by their dotted paths."""
    permissions, tools = settings.permissions, settings.tools
    return {
        "permissions.allow": permissions.allow,
        "permissions.ask": permissions.ask,
        "permissions.deny": permissions.deny,
        "tools.include": tools.include,
        "tools.core": tools.core,
        "tools.allowed": tools.allowed,
        "tools.exclude": tools.exclude,
        "tools.confirmationRequired": tools.confirmation_required,
    }


def rules_of_principals(settings: Settings) -> Iterator[Rights]:
    """Yield the rules of each token and of each principal, except those that have no rules."""
    http = settings.http
    tokens = ((f"http.tokens.{name}", token.rules) for name, token in http.tokens.items())
    principals = ((f"http.oauth.principals.{name}", person.rules) for name, person in http.oauth.principals.items())
    for place, rules in (*tokens, *principals):
        if rules.allow or rules.ask or rules.deny:
            yield Rights(place, allow=rules.allow, ask=rules.ask, deny=rules.deny)


def rule_problems(report: SettingsReport) -> Iterator[str]:
    """Yield a sentence for each problem in the settings' rules, such as a malformed rule or an unknown tool."""
    registry = ToolRegistry()
    for tool in builtin_tools():
        registry.register_tool(tool)
    yield from read_rules(rule_lists(report.settings), registry.canonical, report.home)[1]
    policy = PermissionPolicy(canonical=registry.canonical, home=report.home)
    for rights in rules_of_principals(report.settings):
        yield from policy.read_rules_of(rights)[1]
    yield from unknown_names(report)


def unknown_names(report: SettingsReport) -> Iterator[str]:
    """Yield a sentence for each unknown tool in the settings' rules."""
    lists = dict(rule_lists(report.settings))
    for rights in rules_of_principals(report.settings):
        place = f"{rights.source}.rules"
        lists |= {f"{place}.allow": rights.allow, f"{place}.ask": rights.ask, f"{place}.deny": rights.deny}
    for key, rules in lists.items():
        allows = key.rpartition(".")[2] in ("allow", "allowed", "core")
        yield from (f"{key}: {problem}" for problem in unknown_tools(rules, report, allows=allows))


def unknown_tools(rules: Iterable[str], report: SettingsReport, *, allows: bool = False) -> Iterator[str]:
    """Yield a sentence for each rule whose tool cannot exist, with the most similar name of a tool that can.

    In an allow rule (`allows`), a name has only one meaning. The names of custom tools, and of upstream tools published
    without an alias, are known only at run time. A name that such a tool could have is not reported.
    """
    rules = list(rules)
    if not rules:
        return
    builtin_names = {name for tool in builtin_tools() for name in (tool.name, *tool.aliases)}
    builtin_names |= {*GROUPS, DELEGATING}
    prefixes = {entry.alias: names_of_any_tool(entry.alias) for entry in report.entries}
    is_open = any(entry.settings.prefix == "none" for entry in report.entries)
    is_open = is_open or bool(report.settings.tools.discovery_command)
    for rule in rules:
        name = rule.partition("(")[0].strip()
        if not name or any(map(str.isspace, name)) or any(fits_wildcards(name, known) for known in builtin_names):
            continue
        beginnings = [pattern.partition("\0")[0] for patterns in prefixes.values() for pattern in patterns]
        meaning = one_meaning(name) if allows else name
        start = meaning.partition("*")[0]
        if any(meaning.startswith(beginning) or beginning.startswith(start) for beginning in beginnings if beginning):
            continue
        alias, separator, tool_name = one_meaning(name).partition(BETWEEN)
        if separator:
            # An allow rule `mcp_git_hub_x` names no tool of the server `git_hub`, although that is probably meant.
            starts = ((server, start) for server in prefixes for start in names_of_upstream_tool(server, ""))
            intended = ((server, name.removeprefix(start)) for server, start in starts if name.startswith(start))
            server, tool_name = next(intended, (nearest(alias, prefixes), tool_name))
            hint = f" Did you mean {rule_for(server + BETWEEN + (tool_name or '*'))}?" if server else ""
            yield f"there is no server '{visible_line(alias)}', but '{visible_line(rule)}' names it.{hint}"
        elif not is_open:
            by_folded = {builtin_name.casefold(): builtin_name for builtin_name in sorted(builtin_names)}
            suggestion = COUNTERPARTS.get(name.casefold()) or by_folded.get(nearest(name.casefold(), by_folded))
            hint = f" Did you mean {suggestion}?" if suggestion else ""
            yield f"there is no tool '{visible_line(name)}'.{hint}"


def did_you_mean(word: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return ` Did you mean NAME?` with the name most similar to a word; `otherwise` if none is similar."""
    suggestion = nearest(word, names)
    return f" Did you mean {visible_line(suggestion)}?" if suggestion else otherwise


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name most similar to a word; empty if none is similar."""
    import difflib  # noqa: PLC0415 - needed only if something is misspelled

    return next(iter(difflib.get_close_matches(word, list(names), n=1)), "")
