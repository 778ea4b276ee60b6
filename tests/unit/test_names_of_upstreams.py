"""The names under which the tools of upstreams are published, and which of two equal names is hidden."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from server.upstreams.catalog.published_names import (
    NameChange,
    NameList,
    NameMap,
    Origin,
    is_included,
    name_map,
    rule_name,
)
from tests.tables import each_of

LONG = "create_pull_request_review_comment_of_a_thread"


def map_names(*upstreams: NameList, own_names: Sequence[str] = (), budget: int = 48) -> NameMap:
    return name_map(upstreams, own_names, budget)


def published(names: NameMap) -> dict[str, tuple[str, str]]:
    return {name: (origin.alias, origin.name) for name, origin in names.published.items()}


@pytest.mark.requirement("mission.proxy")
def test_a_name_that_fits_consists_of_the_alias_and_the_tools_own_name() -> None:
    names = map_names(NameList("one", ["b", "a"]), NameList("two", ["a"]))
    assert published(names) == {"one__b": ("one", "b"), "one__a": ("one", "a"), "two__a": ("two", "a")}
    assert list(names.published) == ["one__b", "one__a", "two__a"]
    assert (names.hidden, names.changed) == ((), {})


@pytest.mark.requirement("proxy.names.budget")
@pytest.mark.parametrize(("budget", "fits"), [(len(f"hub__{LONG}"), True), (len(f"hub__{LONG}") - 1, False)])
def test_a_name_is_shortened_only_if_it_is_longer_than_the_budget(budget: int, *, fits: bool) -> None:
    (name,) = map_names(NameList("hub", [LONG]), budget=budget).published
    assert (name == f"hub__{LONG}") is fits
    assert len(name) == budget


@pytest.mark.requirement("proxy.names.budget")
def test_a_shortened_name_consists_of_its_start_and_a_hash_that_never_changes() -> None:
    names = map_names(NameList("github", [LONG]))
    # A literal: clients store rules and histories with these names, so they must stay the same in all versions.
    assert list(names.published) == ["github__create_pull_request_review_comm-iab3d171"]
    changes = [(names.published[name], change) for name, change in names.changed.items()]
    assert changes == [(Origin("github", LONG), NameChange.LENGTH)]


@pytest.mark.requirement("proxy.names.budget")
@each_of("name", ["odd name!", "größe", "a/b", "catalog.get", "a:b", "", "\ud800", "a*", "line\nbreak", "名前"])
@each_of("has_prefix", [True, False])
def test_other_characters_are_replaced_and_a_hash_keeps_the_names_apart(name: str, *, has_prefix: bool) -> None:
    names = map_names(NameList("up", [name, f"{name}?"], has_prefix))
    assert len(names.published) == 2
    for published_name in names.published:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,48}", published_name)
    assert [names.find(f"up__{name}"), names.find(f"up__{name}?")] == [("up", name), ("up", f"{name}?")]


@pytest.mark.requirement("proxy.names")
def test_a_tool_with_the_name_of_a_shortened_one_gets_another_name() -> None:
    (short_name,) = map_names(NameList("hub", [LONG])).published
    same_name = short_name.removeprefix("hub__")
    for upstream in (NameList("hub", [LONG, same_name]), NameList("hub", [same_name, LONG])):
        names = map_names(upstream)
        assert names.published[short_name] == ("hub", LONG)
        assert len(names.published) == 2
        assert not names.hidden
        # This is also the full name of the other tool; the published name takes precedence.
        assert names.find(short_name) == ("hub", LONG)


@pytest.mark.requirement("proxy.names")
def test_if_two_names_have_the_same_hash_the_same_one_is_always_published() -> None:
    twins = ["x" * 60 + number for number in ("67190", "129114")]
    for order in (twins, twins[::-1]):
        names = map_names(NameList("up", order))
        assert [tuple(origin) for origin in names.published.values()] == [("up", twins[1])]
        (item,) = names.hidden
        assert (item.origin, item.way_out) == (("up", twins[0]), f"up__{twins[0]}")


@pytest.mark.requirement("proxy.names")
def test_the_same_long_name_of_two_servers_is_published_twice_without_prefixes() -> None:
    names = map_names(NameList("a", ["x" * 60], has_prefix=False), NameList("b", ["x" * 60], has_prefix=False))
    assert sorted(names.published.values()) == [("a", "x" * 60), ("b", "x" * 60)]


@pytest.mark.requirement("proxy.names")
@pytest.mark.parametrize("name", ["report-20240115", "fix-deadbeef", "version-0000000", "a-b"])
def test_dates_numbers_and_commits_at_the_end_of_a_name_are_left_alone(name: str) -> None:
    assert list(map_names(NameList("hub", [name])).published) == [f"hub__{name}"]


@pytest.mark.requirement("proxy.names.full")
def test_the_full_name_finds_shortened_renamed_unprefixed_and_hidden_tools() -> None:
    names = map_names(
        NameList("a", [LONG, "old"], renamed={"old": "new"}),
        NameList("b", ["search", "read_file"], has_prefix=False),
        NameList("c", ["search"], has_prefix=False),
        own_names=["read_file"],
    )
    for alias, name in (("a", LONG), ("a", "old"), ("b", "search"), ("b", "read_file"), ("c", "search")):
        assert names.find(f"{alias}__{name}") == (alias, name)
    assert names.find("search") == ("b", "search")
    assert names.find("a__new") == ("a", "old")
    assert names.find("read_file") is None


@pytest.mark.requirement("proxy.names.unprefixed")
def test_without_prefixes_the_first_server_in_the_settings_gets_the_name() -> None:
    first, second = (
        NameList("one", ["search", "x"], has_prefix=False),
        NameList("two", ["search", "y"], has_prefix=False),
    )
    names = map_names(first, second)
    assert published(names) == {"search": ("one", "search"), "x": ("one", "x"), "y": ("two", "y")}
    (item,) = names.hidden
    assert str(item) == (
        "'search' of the server two is not listed, because the name 'search' belongs to 'search' of the server one. "
        "The unlisted item is reachable as 'two__search'; the setting rename can give it another name."
    )
    assert map_names(second, first).published["search"] == ("two", "search")


@pytest.mark.requirement("proxy.names.unprefixed")
def test_no_upstream_can_take_a_name_of_this_server() -> None:
    names = map_names(NameList("up", ["read_file"], has_prefix=False), own_names=["read_file"])
    (item,) = names.hidden
    assert not names.published
    assert (item.origin, item.holder, item.way_out) == (
        ("up", "read_file"),
        "this server itself",
        "up__read_file",
    )


@pytest.mark.requirement("proxy.names.unprefixed")
@pytest.mark.parametrize("has_prefix", [True, False])
def test_names_with_the_alias_of_another_server_are_reserved_for_it_even_while_it_is_away(*, has_prefix: bool) -> None:
    names = map_names(NameList("evil", ["git__push", "evil__x"], has_prefix=False), NameList("git", (), has_prefix))
    assert published(names) == {"evil__x": ("evil", "evil__x")}
    assert [item.holder for item in names.hidden] == ["the server git, whose names begin with its alias"]


@pytest.mark.requirement("proxy.names.stable")
def test_a_renamed_tool_keeps_its_alias_or_without_prefixes_has_only_the_new_name() -> None:
    names = map_names(NameList("a", ["old"], renamed={"old": "new"}), NameList("b", ["old"], False, {"old": "mine"}))
    assert published(names) == {"a__new": ("a", "old"), "mine": ("b", "old")}
    assert set(names.changed.values()) == {NameChange.RENAMED}


@pytest.mark.requirement("proxy.names.stable")
@pytest.mark.parametrize("names_listed", [["old", "new"], ["new", "old"], ["new"]])
def test_a_new_name_belongs_to_the_renamed_tool_whatever_else_is_listed(names_listed: list[str]) -> None:
    names = map_names(NameList("a", names_listed, renamed={"old": "new"}))
    assert published(names) == ({"a__new": ("a", "old")} if "old" in names_listed else {})
    (item,) = names.hidden
    assert (item.origin, item.holder) == (("a", "new"), "the renamed 'old' of the same server")
    # While the renamed tool is listed, a call of the new name reaches it.
    assert item.way_out == ("" if "old" in names_listed else "a__new")


@pytest.mark.requirement("proxy.names.stable")
def test_two_tools_can_swap_names() -> None:
    names = map_names(NameList("a", ["x", "y"], renamed={"x": "y", "y": "x"}))
    assert published(names) == {"a__y": ("a", "x"), "a__x": ("a", "y")}


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("name", ["a b", "a*", "a(b)", ""])
def test_a_rule_can_be_written_for_every_name(name: str) -> None:
    assert re.fullmatch(r"up__[A-Za-z0-9_.-]+", rule_name("up", name))
    assert rule_name("up", "plain") == "up__plain"


@pytest.mark.requirement("upstream.filters")
@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (None, (), True),
        (("tool",), (), True),
        (("other",), (), False),
        (("tools",), (), False),
        (("tool(arg)",), (), True),
        ((" tool ",), (), True),
        (("up__tool",), (), True),
        (("up__tool(arg)",), (), True),
        (None, ("tool",), False),
        (None, ("tool(arg)",), False),
        (None, ("up__tool",), False),
        (("tool",), ("tool",), False),
        ((), (), False),
    ],
)
def test_exclusion_wins_over_inclusion(
    include: tuple[str, ...] | None, exclude: tuple[str, ...], expected: bool
) -> None:
    assert is_included("tool", include, exclude, ["up__tool"]) is expected


@pytest.mark.requirement("upstream.filters")
def test_a_tool_with_parentheses_in_its_name_can_be_selected() -> None:
    assert is_included("tool(v2)", ["tool(v2)"], ())
    assert not is_included("tool(v2)", None, ["tool(v2)"])
    assert is_included("tool(v2)", None, ["tool"])
