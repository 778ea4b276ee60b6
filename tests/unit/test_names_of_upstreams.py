"""Which name everything of the upstreams is published under, and who hides whom."""

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


def mapped(*upstreams: NameList, taken: Sequence[str] = (), budget: int = 48) -> NameMap:
    return name_map(upstreams, taken, budget)


def published(names: NameMap) -> dict[str, tuple[str, str]]:
    return {name: (origin.alias, origin.name) for name, origin in names.published.items()}


@pytest.mark.requirement("mission.proxy")
def test_a_name_that_fits_is_alias_and_own_name() -> None:
    names = mapped(NameList("one", ["b", "a"]), NameList("two", ["a"]))
    assert published(names) == {"one__b": ("one", "b"), "one__a": ("one", "a"), "two__a": ("two", "a")}
    assert list(names.published) == ["one__b", "one__a", "two__a"]
    assert (names.hidden, names.changed) == ((), {})


@pytest.mark.requirement("proxy.names.budget")
@pytest.mark.parametrize(("budget", "fits"), [(len(f"hub__{LONG}"), True), (len(f"hub__{LONG}") - 1, False)])
def test_a_name_is_shortened_only_where_it_is_longer_than_the_budget(budget: int, *, fits: bool) -> None:
    (name,) = mapped(NameList("hub", [LONG]), budget=budget).published
    assert (name == f"hub__{LONG}") is fits
    assert len(name) == budget


@pytest.mark.requirement("proxy.names.budget")
def test_a_shortened_name_is_its_beginning_and_a_hash_that_never_changes() -> None:
    names = mapped(NameList("github", [LONG]))
    # Written out: clients keep rules and histories with these names, so another version may not spell them otherwise.
    assert list(names.published) == ["github__create_pull_request_review_comm-iab3d171"]
    changes = [(names.published[name], change) for name, change in names.changed.items()]
    assert changes == [(Origin("github", LONG), NameChange.LENGTH)]


@pytest.mark.requirement("proxy.names.budget")
@each_of("name", ["odd name!", "größe", "a/b", "catalog.get", "a:b", "", "\ud800", "a*", "line\nbreak", "名前"])
@each_of("has_prefix", [True, False])
def test_other_characters_are_replaced_and_told_apart_by_a_hash(name: str, *, has_prefix: bool) -> None:
    names = mapped(NameList("up", [name, f"{name}?"], has_prefix))
    assert len(names.published) == 2
    for exposed in names.published:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,48}", exposed)
    assert [names.find(f"up__{name}"), names.find(f"up__{name}?")] == [("up", name), ("up", f"{name}?")]


@pytest.mark.requirement("proxy.names")
def test_a_tool_that_is_called_like_a_shortened_one_gets_another_name() -> None:
    (shortened,) = mapped(NameList("hub", [LONG])).published
    alike = shortened.removeprefix("hub__")
    for upstream in (NameList("hub", [LONG, alike]), NameList("hub", [alike, LONG])):
        names = mapped(upstream)
        assert names.published[shortened] == ("hub", LONG)
        assert len(names.published) == 2
        assert not names.hidden
        # It is also the full name of the other one; what is listed counts.
        assert names.find(shortened) == ("hub", LONG)


@pytest.mark.requirement("proxy.names")
def test_of_two_names_with_the_same_hash_the_same_one_is_always_published() -> None:
    twins = ["x" * 60 + number for number in ("67190", "129114")]
    for listed in (twins, twins[::-1]):
        names = mapped(NameList("up", listed))
        assert [tuple(origin) for origin in names.published.values()] == [("up", twins[1])]
        (hidden,) = names.hidden
        assert (hidden.origin, hidden.way_out) == (("up", twins[0]), f"up__{twins[0]}")


@pytest.mark.requirement("proxy.names")
def test_the_same_long_name_of_two_servers_is_published_twice_without_prefixes() -> None:
    names = mapped(NameList("a", ["x" * 60], has_prefix=False), NameList("b", ["x" * 60], has_prefix=False))
    assert sorted(names.published.values()) == [("a", "x" * 60), ("b", "x" * 60)]


@pytest.mark.requirement("proxy.names")
@pytest.mark.parametrize("name", ["report-20240115", "fix-deadbeef", "version-0000000", "a-b"])
def test_dates_numbers_and_commits_at_the_end_of_a_name_are_left_alone(name: str) -> None:
    assert list(mapped(NameList("hub", [name])).published) == [f"hub__{name}"]


@pytest.mark.requirement("proxy.names.full")
def test_the_full_name_finds_what_is_shortened_renamed_unprefixed_or_hidden() -> None:
    names = mapped(
        NameList("a", [LONG, "old"], renamed={"old": "new"}),
        NameList("b", ["search", "read_file"], has_prefix=False),
        NameList("c", ["search"], has_prefix=False),
        taken=["read_file"],
    )
    for alias, name in (("a", LONG), ("a", "old"), ("b", "search"), ("b", "read_file"), ("c", "search")):
        assert names.find(f"{alias}__{name}") == (alias, name)
    assert names.find("search") == ("b", "search")
    assert names.find("a__new") == ("a", "old")
    assert names.find("read_file") is None


@pytest.mark.requirement("proxy.names.unprefixed")
def test_without_a_prefix_the_first_of_the_configuration_has_the_name() -> None:
    one, two = (
        NameList("one", ["search", "x"], has_prefix=False),
        NameList("two", ["search", "y"], has_prefix=False),
    )
    names = mapped(one, two)
    assert published(names) == {"search": ("one", "search"), "x": ("one", "x"), "y": ("two", "y")}
    (hidden,) = names.hidden
    assert str(hidden) == (
        "'search' of the server two is not listed, because the name 'search' belongs to 'search' of the server one. "
        "The unlisted item is reachable as 'two__search'; the setting rename can give it another name."
    )
    assert mapped(two, one).published["search"] == ("two", "search")


@pytest.mark.requirement("proxy.names.unprefixed")
def test_a_name_of_ours_is_not_to_be_had() -> None:
    names = mapped(NameList("up", ["read_file"], has_prefix=False), taken=["read_file"])
    (hidden,) = names.hidden
    assert not names.published
    assert (hidden.origin, hidden.holder, hidden.way_out) == (
        ("up", "read_file"),
        "this server itself",
        "up__read_file",
    )


@pytest.mark.requirement("proxy.names.unprefixed")
@pytest.mark.parametrize("has_prefix", [True, False])
def test_names_that_begin_with_the_alias_of_another_server_are_for_that_one_even_while_it_is_away(
    *, has_prefix: bool
) -> None:
    names = mapped(NameList("evil", ["git__push", "evil__x"], has_prefix=False), NameList("git", (), has_prefix))
    assert published(names) == {"evil__x": ("evil", "evil__x")}
    assert [hidden.holder for hidden in names.hidden] == ["the server git, whose names begin with its alias"]


@pytest.mark.requirement("proxy.names.stable")
def test_a_renamed_tool_keeps_its_alias_and_without_prefixes_has_the_new_name_alone() -> None:
    names = mapped(NameList("a", ["old"], renamed={"old": "new"}), NameList("b", ["old"], False, {"old": "mine"}))
    assert published(names) == {"a__new": ("a", "old"), "mine": ("b", "old")}
    assert set(names.changed.values()) == {NameChange.RENAMED}


@pytest.mark.requirement("proxy.names.stable")
@pytest.mark.parametrize("listed", [["old", "new"], ["new", "old"], ["new"]])
def test_a_new_name_belongs_to_the_renamed_tool_whatever_else_is_listed(listed: list[str]) -> None:
    names = mapped(NameList("a", listed, renamed={"old": "new"}))
    assert published(names) == ({"a__new": ("a", "old")} if "old" in listed else {})
    (hidden,) = names.hidden
    assert (hidden.origin, hidden.holder) == (("a", "new"), "'old' of the same server, which was renamed")
    # While the new name is in use, it is what a call means.
    assert hidden.way_out == ("" if "old" in listed else "a__new")


@pytest.mark.requirement("proxy.names.stable")
def test_two_tools_can_change_names() -> None:
    names = mapped(NameList("a", ["x", "y"], renamed={"x": "y", "y": "x"}))
    assert published(names) == {"a__y": ("a", "x"), "a__x": ("a", "y")}


@pytest.mark.requirement("proxy.names.full")
@pytest.mark.parametrize("name", ["a b", "a*", "a(b)", ""])
def test_a_rule_can_be_written_for_every_name(name: str) -> None:
    assert re.fullmatch(r"up__[A-Za-z0-9_.-]+", rule_name("up", name))
    assert rule_name("up", "plain") == "up__plain"


@pytest.mark.requirement("upstream.filters")
@pytest.mark.parametrize(
    ("include", "exclude", "included"),
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
    include: tuple[str, ...] | None, exclude: tuple[str, ...], included: bool
) -> None:
    assert is_included("tool", include, exclude, ["up__tool"]) is included


@pytest.mark.requirement("upstream.filters")
def test_a_tool_with_parentheses_in_its_name_can_be_chosen() -> None:
    assert is_included("tool(v2)", ["tool(v2)"], ())
    assert not is_included("tool(v2)", None, ["tool(v2)"])
    assert is_included("tool(v2)", None, ["tool"])
