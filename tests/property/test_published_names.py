"""For any servers and any names: published names fit, are nobody else's, and stay what they are."""

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
    """What a name is published as with small budgets: made to be taken for it."""
    return [
        published.removeprefix(f"{alias}__")
        for budget in (16, 24, 48)
        for published in name_map([NameList(alias, [name])], (), budget).published
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
def upstreams(draw: st.DrawFn, *, prefixed: bool = False) -> list[NameList]:
    made: list[NameList] = []
    for alias in draw(aliases):
        listed = draw(st.lists(names, max_size=8))
        renamed = {name: f"new{index}" for index, name in enumerate(dict.fromkeys(listed)) if draw(st.booleans())}
        has_prefix = prefixed or draw(st.booleans())
        made.append(NameList(alias, listed, has_prefix, renamed if draw(st.booleans()) else {}))
    return made


def by_origin(names: NameMap) -> dict[Origin, str]:
    return {origin: name for name, origin in names.published.items()}


def everything(listed: Sequence[NameList]) -> set[Origin]:
    return {Origin(each.alias, name) for each in listed for name in each.names}


@pytest.mark.requirement("proxy.names.budget")
@pytest.mark.requirement("proxy.names")
@examples(100)
@given(upstreams(), budgets, st.sets(names, max_size=3))
def test_every_name_fits_and_everything_is_published_once_or_told_to_be_hidden(
    listed: list[NameList], budget: int, taken: set[str]
) -> None:
    names = name_map(listed, taken, budget)
    assert all(ALLOWED.fullmatch(name) and len(name) <= budget for name in names.published)
    assert not taken & names.published.keys()
    hidden = [entry.origin for entry in names.hidden]
    assert sorted([*names.published.values(), *hidden]) == sorted(everything(listed))
    assert set(names.full.values()) == everything(listed)


@pytest.mark.requirement("proxy.names.full")
@examples(100)
@given(upstreams(), budgets)
def test_every_published_and_every_full_name_leads_back(listed: list[NameList], budget: int) -> None:
    names = name_map(listed, (), budget)
    for name, origin in names.published.items():
        assert names.find(name) == origin
    for origin in everything(listed):
        # A full name that is published for another one is the only exception.
        assert names.find(origin.full_name) == names.published.get(origin.full_name, origin)
    for entry in names.hidden:
        assert not entry.way_out or names.find(entry.way_out) == entry.origin


@pytest.mark.requirement("proxy.names.stable")
@examples(100)
@given(upstreams(), budgets, st.data())
def test_the_order_of_an_upstreams_list_changes_no_name(
    listed: list[NameList], budget: int, data: st.DataObject
) -> None:
    shuffled = [
        NameList(each.alias, data.draw(st.permutations(each.names)), each.has_prefix, each.renamed) for each in listed
    ]
    assert by_origin(name_map(shuffled, (), budget)) == by_origin(name_map(listed, (), budget))


@pytest.mark.requirement("proxy.names.stable")
@examples(100)
@given(upstreams(), upstreams(), budgets, st.data())
def test_names_with_a_prefix_stay_whatever_comes_beside_or_before_them(
    listed: list[NameList], others: list[NameList], budget: int, data: st.DataObject
) -> None:
    known = {each.alias for each in listed}
    more = [
        NameList(each.alias, [*each.names, *data.draw(st.lists(names, max_size=4))], each.has_prefix, each.renamed)
        for each in listed
    ]
    beside = data.draw(st.permutations([*more, *(each for each in others if each.alias not in known)]))
    alone, together = by_origin(name_map(listed, (), budget)), by_origin(name_map(beside, (), budget))
    prefixed = {each.alias for each in listed if each.has_prefix}
    assert {origin: name for origin, name in alone.items() if origin.alias in prefixed}.items() <= together.items()
