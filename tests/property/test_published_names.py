"""For any servers and any names: published names are short enough, unique and stable."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.upstreams.catalog.published_names import NameList, NameMap, Origin, name_map
from tests.examples import examples

ALLOWED = re.compile(r"[A-Za-z0-9_-]+")

aliases = st.lists(
    st.from_regex(r"[a-z0-9-]{1,12}(_[a-z0-9-]{1,11})?", fullmatch=True), min_size=1, max_size=4, unique=True
)
budgets = st.integers(16, 64)


def shortened_forms(alias: str, name: str) -> list[str]:
    """Return the forms of a name with small budgets. Used as names themselves, they provoke collisions."""
    return [
        published_name.removeprefix(f"{alias}__")
        for budget in (16, 24, 48)
        for published_name in name_map([NameList(alias, [name])], (), budget).published
    ]


names = st.one_of(
    st.sampled_from(["a", "b", "a b", "a-b", "a_b", "_", "__", "a__b", "read_file", "x" * 60, "x" * 61, "x" * 200, ""]),
    st.text(max_size=150),
    st.text("ab_.-", min_size=1, max_size=60),
    st.sampled_from(
        [form for alias in ("a", "b_c") for name in ("x" * 60, "a b") for form in shortened_forms(alias, name)]
    ),
)


@st.composite
def upstreams(draw: st.DrawFn) -> list[NameList]:
    lists: list[NameList] = []
    for alias in draw(aliases):
        item_names = draw(st.lists(names, max_size=8))
        new_names = {name: f"new{index}" for index, name in enumerate(dict.fromkeys(item_names)) if draw(st.booleans())}
        has_prefix = draw(st.booleans())
        lists.append(NameList(alias, item_names, has_prefix, new_names if draw(st.booleans()) else {}))
    return lists


def by_origin(names: NameMap) -> dict[Origin, str]:
    return {origin: name for name, origin in names.published.items()}


def all_origins(name_lists: Sequence[NameList]) -> set[Origin]:
    return {Origin(name_list.alias, name) for name_list in name_lists for name in name_list.names}


@pytest.mark.requirement("proxy.names.budget")
@pytest.mark.requirement("proxy.names")
@examples(100)
@given(upstreams(), budgets, st.sets(names, max_size=3))
def test_every_name_is_short_enough_and_every_item_is_published_once_or_reported_as_hidden(
    name_lists: list[NameList], budget: int, reserved_names: set[str]
) -> None:
    names = name_map(name_lists, reserved_names, budget)
    assert all(ALLOWED.fullmatch(name) and len(name) <= budget for name in names.published)
    assert not reserved_names & names.published.keys()
    hidden_origins = [entry.origin for entry in names.hidden]
    assert sorted([*names.published.values(), *hidden_origins]) == sorted(all_origins(name_lists))
    assert set(names.full.values()) == all_origins(name_lists)


@pytest.mark.requirement("proxy.names.full")
@examples(100)
@given(upstreams(), budgets)
def test_every_published_and_every_full_name_leads_to_its_item(name_lists: list[NameList], budget: int) -> None:
    names = name_map(name_lists, (), budget)
    for name, origin in names.published.items():
        assert names.find(name) == origin
    for origin in all_origins(name_lists):
        # The only exception is a full name that is published for another item.
        assert names.find(origin.full_name) == names.published.get(origin.full_name, origin)
    for entry in names.hidden:
        assert not entry.way_out or names.find(entry.way_out) == entry.origin


@pytest.mark.requirement("proxy.names.stable")
@examples(100)
@given(upstreams(), budgets, st.data())
def test_the_order_of_an_upstreams_list_changes_no_name(
    name_lists: list[NameList], budget: int, data: st.DataObject
) -> None:
    shuffled_lists = [
        NameList(name_list.alias, data.draw(st.permutations(name_list.names)), name_list.has_prefix, name_list.renamed)
        for name_list in name_lists
    ]
    assert by_origin(name_map(shuffled_lists, (), budget)) == by_origin(name_map(name_lists, (), budget))


@pytest.mark.requirement("proxy.names.stable")
@examples(100)
@given(upstreams(), upstreams(), budgets, st.data())
def test_names_with_a_prefix_do_not_depend_on_other_names_or_servers(
    name_lists: list[NameList], other_lists: list[NameList], budget: int, data: st.DataObject
) -> None:
    aliases_in_use = {name_list.alias for name_list in name_lists}
    extended_lists = [
        NameList(
            name_list.alias,
            [*name_list.names, *data.draw(st.lists(names, max_size=4))],
            name_list.has_prefix,
            name_list.renamed,
        )
        for name_list in name_lists
    ]
    all_lists = data.draw(
        st.permutations(
            [*extended_lists, *(name_list for name_list in other_lists if name_list.alias not in aliases_in_use)]
        )
    )
    alone, together = by_origin(name_map(name_lists, (), budget)), by_origin(name_map(all_lists, (), budget))
    prefixed_aliases = {name_list.alias for name_list in name_lists if name_list.has_prefix}
    assert {
        origin: name for origin, name in alone.items() if origin.alias in prefixed_aliases
    }.items() <= together.items()
