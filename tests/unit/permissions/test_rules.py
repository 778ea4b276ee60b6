"""Permission rules: how their texts are parsed, and what they match."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import process_time

import pytest

from tools.permissions.permission_rules import (
    MalformedRuleError,
    Rule,
    fits_wildcards,
    literal_path,
    parse_rule,
    path_specifier,
    read_rules,
    rule_of_all_reading,
)
from tools.permissions.tool_names import names_of_server, names_of_upstream_tool
from tools.permissions.verdict import Verdict

ALIASES = {"ReadFileTool": "read_file", "replace": "edit", "ShellTool": "run_shell_command"}
ROOTS = ("/ws", "/other")
HOME = "/home/me"


def canonical(name: str) -> str:
    return ALIASES.get(name, name)


def rule(text: str, verdict: Verdict = Verdict.DENY) -> Rule:
    return parse_rule(text, verdict, f"permissions.{verdict}", canonical, HOME)


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize(
    ("specifier", "command", "fits"),
    [
        ("git log", "git log", True),
        ("git log", "git log -1", True),
        ("git log", "git logout", False),
        ("git log *", "git log", True),
        ("git log *", "git log -1", True),
        ("git log *", "git logout", False),
        ("git:*", "git push", True),
        ("git:*", "gitk", False),
        ("npm run test*", "npm run test:unit", True),
        ("npm run test*", "npm run build", False),
        ("git * main", "git push origin main", True),
        ("git * main", "git push origin mainly", False),
        ("git  log", "git log", True),
        ("*", "anything", True),
        ("rm", "rm -rf /", True),
        ("rm", "rmdir x", False),
    ],
)
def test_a_rule_about_commands_is_a_prefix_that_ends_between_words(specifier: str, command: str, fits: bool) -> None:
    assert rule(f"Bash({specifier})").fits_command(command) is fits
    assert rule(f"ShellTool({specifier})").fits_command(command) is fits


@pytest.mark.requirement("rules.paths")
@pytest.mark.parametrize(
    ("specifier", "path", "fits"),
    [
        ("src/**", "/ws/src/a/b.py", True),
        ("src/**", "/other/src/a", True),
        ("src/**", "/ws/lib/src/a", False),
        ("/src", "/ws/src/a", True),
        ("./src", "/ws/src", True),
        ("*.pem", "/ws/deep/key.pem", True),
        (".env", "/ws/a/.env", True),
        (".env", "/ws/a/.env.example", False),
        ("secrets/", "/ws/a/secrets/key", True),
        ("//etc/passwd", "/etc/passwd", True),
        ("//etc/**", "/etc/ssh/config", True),
        ("//etc/**", "/ws/etc/ssh", False),
        ("~/.ssh/**", "/home/me/.ssh/id", True),
        ("~/.ssh/**", "/ws/.ssh/id", False),
        ("~", "/home/me/anything", True),
        ("!odd", "/ws/!odd", True),
        ("#odd", "/ws/#odd", True),
        ("caf\xe9", "/ws/caf\xe9", True),
    ],
)
def test_a_rule_about_paths_reads_like_an_ignore_file(specifier: str, path: str, fits: bool) -> None:
    for name in ("Read", "read_file", "ReadFileTool", "Edit", "replace"):
        assert rule(f"{name}({specifier})").fits_path([path], ROOTS) is fits


@pytest.mark.requirement("rules.paths")
@pytest.mark.parametrize("specifier", ["a\nb", "a\rb", "a\n!a"])
def test_a_rule_about_paths_is_one_line(specifier: str) -> None:
    with pytest.raises(MalformedRuleError):
        rule(f"Read({specifier})")


@pytest.mark.requirement("rules.links")
@pytest.mark.skipif(sys.platform == "win32", reason="not run: on Windows, links need special rights")
def test_a_rule_that_forbids_a_path_through_links_covers_their_current_targets(tmp_path: Path) -> None:
    top = Path(os.path.realpath(tmp_path))
    specifiers = ["~/proj/secret/**", f"/{top}/home/proj/secret", "/lnk/key", "/lnk/*", "./lnk"]
    home, root = top / "home", str(top / "real/proj")
    rules = {text: path_specifier(text, str(home), forbids=True) for text in [*specifiers, "~/*/secret/k"]}
    (top / "real/proj/secret").mkdir(parents=True)
    (top / "real/proj/own").mkdir()
    home.symlink_to("real")
    (top / "real/proj/lnk").symlink_to("own")
    matching_rules = {
        name: {text for text, rule in rules.items() if rule.fits((f"{root}/{name}",), (root,))}
        for name in ("secret/k", "secret", "own/key", "own/other", "secrets")
    }
    absolute = set(specifiers[:2])
    assert matching_rules == {
        "secret/k": {*absolute, "~/*/secret/k"}, "secret": {specifiers[1]},
        "own/key": {"/lnk/key", "/lnk/*", "./lnk"}, "own/other": {"/lnk/*", "./lnk"}, "secrets": set(),
    }  # fmt: skip
    allow_rules = {text: path_specifier(text, str(home), forbids=False) for text in specifiers}
    assert [text for text, rule in allow_rules.items() if rule.fits((f"{root}/secret/k",), (root,))] == [specifiers[0]]
    assert not any(rule.fits((f"{root}/own/key",), (root,)) for rule in allow_rules.values())


@pytest.mark.requirement("rules.paths")
def test_a_plain_name_forbids_everywhere_and_allows_below_the_workspace_only() -> None:
    assert rule("Read(id_rsa)").fits_path(["/home/me/.ssh/id_rsa"], ROOTS)
    assert not rule("Read(id_rsa)", Verdict.ALLOW).fits_path(["/home/me/.ssh/id_rsa"], ROOTS)


@pytest.mark.requirement("rules.paths")
@pytest.mark.parametrize(
    "path", ["/ws/a[b]*?c", "/ws/back\\slash", "/ws/blank ", "/ws/tab \t", "/ws/wide\u3000", "/ws/!x", "/"]
)
def test_a_path_written_as_a_specifier_means_itself_and_what_is_below(path: str) -> None:
    literal = literal_path(path)
    assert literal is not None
    edit_rule = rule(f"Edit({literal})", Verdict.ALLOW)
    assert edit_rule.fits_path([path.rstrip("/") + "/below"], ROOTS)
    assert path == "/" or not edit_rule.fits_path([path[:-1] + "Z/below"], ROOTS)
    assert literal_path("/ws/new\nline") is None


@pytest.mark.requirement("rules.paths")
@pytest.mark.parametrize(
    ("specifier", "host", "fits"),
    [
        ("example.org", "example.org", True),
        ("example.org", "api.Example.org.", True),
        ("example.org", "badexample.org", False),
        ("domain:example.org", "example.org", True),
        ("*.example.org", "a.example.org", True),
        ("*", "anything", True),
    ],
)
def test_a_rule_about_hosts_covers_subdomains(specifier: str, host: str, fits: bool) -> None:
    assert rule(f"WebFetch({specifier})").fits_host(host) is fits


@pytest.mark.requirement("rules.names")
@pytest.mark.parametrize(
    ("specifier", "names", "fits"),
    [
        ("Read", ["grep_search"], True),
        ("Read", ["edit"], False),
        ("Edit", ["write_file"], True),
        ("replace", ["edit"], True),
        ("edit", ["write_file"], False),
        ("Bash", ["run_shell_command"], True),
        ("*", ["anything"], True),
        ("hub__search", ["hub__search", "mcp__hub__search", "mcp_hub_search", "mcp__hub"], True),
        ("mcp__hub", ["hub__search", "mcp__hub__search", "mcp_hub_search", "mcp__hub"], True),
        ("mcp__hub__*", ["hub__search", "mcp__hub__search", "mcp_hub_search", "mcp__hub"], True),
        ("mcp_hub_*", ["hub__search", "mcp__hub__search", "mcp_hub_search", "mcp__hub"], True),
        ("hub__*", ["hub__search", "mcp__hub__search", "mcp_hub_search", "mcp__hub"], True),
        ("mcp__hu", ["hub__search", "mcp__hub__search", "mcp_hub_search", "mcp__hub"], False),
    ],
)
def test_rules_may_use_the_tool_names_of_all_three_clients(specifier: str, names: list[str], fits: bool) -> None:
    assert rule(specifier).names(names) is fits


def upstream(server: str, tool: str) -> tuple[str, ...]:
    """Return all names by which rules can refer to a tool of another server."""
    return (f"{server}__{tool}", *names_of_upstream_tool(server, tool), *names_of_server(server))


@pytest.mark.requirement("rules.one-server")
@pytest.mark.parametrize(
    ("specifier", "server", "tool"),
    [
        ("git__hub_search", "git", "hub_search"),
        ("mcp__git__hub_search", "git", "hub_search"),
        ("mcp_git_hub_search", "git", "hub_search"),
        ("mcp_git_*", "git", "hub_search"),
        ("mcp__git", "git", "hub_search"),
        ("mcp__git__*", "git", "hub_search"),
        ("git__*", "git", "hub_search"),
        ("mcp__git_hub", "git_hub", "search"),
        ("git_hub__search", "git_hub", "search"),
        ("mcp__mcp__git", "mcp", "git"),
        ("mcp__mcp", "mcp", "git__hub_search"),
        ("mcp__mcp_git__hub_search", "mcp_git", "hub_search"),
        ("mcp_git__t", "git", "_t"),
        ("git_*", "none", ""),
        ("mcp__gi", "none", ""),
        ("mcp_git", "none", ""),
        ("discovered_tool_*", "none", ""),
    ],
)
def test_an_allow_rule_covers_only_the_server_that_it_certainly_means(specifier: str, server: str, tool: str) -> None:
    tools = [
        ("git", "hub_search"),
        ("git", "_t"),
        ("git_hub", "search"),
        ("mcp", "git"),
        ("mcp", "git__hub_search"),
        ("mcp_git", "hub_search"),
        ("mcp_git", "t"),
        ("discovered_tool_x", "t"),
    ]
    tools_allowed = {pair for pair in tools if rule(specifier, Verdict.ALLOW).names(upstream(*pair))}
    assert {pair[0] for pair in tools_allowed} == ({server} if tool else set())
    assert not tool or (server, tool) in tools_allowed


@pytest.mark.requirement("rules.one-server")
@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.DENY])
def test_an_ask_or_deny_rule_covers_every_server_that_it_may_mean(verdict: Verdict) -> None:
    for specifier, tools in (
        ("mcp_git_hub_search", [("git", "hub_search"), ("git_hub", "search")]),
        ("mcp__git", [("git", "x"), ("mcp", "git")]),
        ("mcp__git__x", [("git", "x"), ("mcp", "git__x")]),
        ("git_*", [("git_hub", "search")]),
    ):
        assert all(rule(specifier, verdict).names(upstream(*pair)) for pair in tools)


@pytest.mark.requirement("rules.one-server")
@pytest.mark.parametrize("specifier", ["*", "mcp__*", "mcp_*", "*__*"])
def test_a_rule_that_allows_everything_covers_every_server(specifier: str) -> None:
    for pair in (("git", "x"), ("git_hub", "x"), ("mcp", "x")):
        assert rule(specifier, Verdict.ALLOW).names(upstream(*pair))
    assert rule(specifier, Verdict.ALLOW).names(["edit"]) is (specifier == "*")


@pytest.mark.requirement("rules.malformed")
@pytest.mark.parametrize(
    "text", ["", "(x)", "Bash(git", "two words", "web_search(x)", "Read([[:alpha:]])", "Edit(a\\)", "Read(a\0)"]
)
def test_a_rule_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(MalformedRuleError):
        rule(text)


@pytest.mark.requirement("rules.malformed")
def test_a_typo_in_a_rule_never_opens_what_the_rule_meant_to_close() -> None:
    lists = {"permissions.deny": ["Bash(rm", "(x)"], "permissions.ask": ["Edit(a"], "permissions.allow": ["Bash(git"]}
    rules, warnings = read_rules(lists, canonical, HOME)
    assert [parsed_rule.fits_command("anything") for parsed_rule in rules.deny] == [True, True]
    assert [parsed_rule.names(["read_file"]) for parsed_rule in rules.deny] == [False, True]
    assert [parsed_rule.fits_path(["/ws/any"], ROOTS) for parsed_rule in rules.ask] == [True]
    assert rules.allow == ()
    assert len(warnings) == 4


@pytest.mark.requirement("rules.malformed")
def test_the_older_lists_are_rules_too() -> None:
    rules, _ = read_rules(
        {
            "tools.exclude": ["ShellTool(rm)"],
            "tools.allowed": ["ShellTool(git status)"],
            "tools.confirmationRequired": ["edit"],
            "tools.core": ["ReadFileTool", "ShellTool(ls)"],
        },
        canonical,
        HOME,
    )
    assert rules.deny[0].fits_command("rm x")
    assert rules.allow[0].fits_command("git status")
    assert rules.ask[0].names(["edit"])
    assert [core_rule.name for core_rule in rules.core_commands()] == ["ShellTool"]


@pytest.mark.requirement("rules.malformed")
def test_a_shell_without_a_command_in_the_core_list_may_run_every_command() -> None:
    rules, _ = read_rules({"tools.core": ["ShellTool", "ShellTool(ls)"]}, canonical, HOME)
    assert rules.core_commands() == ()


@pytest.mark.requirement("rules.malformed")
@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        ({"permissions.deny": ["Bash", "Read(.env)"]}, ""),
        ({"permissions.allow": ["Read"]}, ""),
        ({"permissions.deny": ["Bash", "Read"]}, "permissions.deny rule Read"),
        ({"permissions.ask": ["Read"]}, "permissions.ask rule Read"),
    ],
)
def test_only_a_rule_about_all_reading_forbids_all_reading(lists: dict[str, list[str]], reason: str) -> None:
    assert rule_of_all_reading(read_rules(lists, canonical, HOME)[0]) == reason


@pytest.mark.requirement("rules.linear")
def test_many_stars_take_no_time() -> None:
    assert not fits_wildcards("*a" * 5_000 + "*b", "a" * 100_000)


@pytest.mark.requirement("rules.linear")
def test_a_path_with_many_blanks_takes_no_time() -> None:
    path, start = f"/{' ' * 50_000}x", process_time()
    assert literal_path(path) == f"/{path}"
    assert process_time() - start < 1
