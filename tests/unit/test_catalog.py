"""Published names: alias__tool, in the allowed set, never two alike."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.upstreams.catalog import exposed_names, is_included


@pytest.mark.requirement("upstream.names")
@given(st.lists(st.text(max_size=300), max_size=10))
def test_every_tool_gets_a_name_of_its_own_in_the_allowed_set(names: list[str]) -> None:
    exposed = exposed_names("alias", [{"name": name} for name in names])
    assert len(exposed) == len(set(names))
    assert all(re.fullmatch(r"alias__[A-Za-z0-9_.-]{1,121}", name) for name in exposed)
    assert sorted(tool["name"] for tool in exposed.values()) == sorted(set(names))


@pytest.mark.requirement("upstream.names")
@given(st.permutations(["a b", "a-b", "a_b", "x" * 200, "x" * 201, "ok"]))
def test_a_name_does_not_depend_on_the_order_of_the_list(names: list[str]) -> None:
    exposed = {tool["name"]: name for name, tool in exposed_names("s", [{"name": name} for name in names]).items()}
    assert exposed["ok"] == "s__ok"
    assert exposed == {
        tool["name"]: name for name, tool in exposed_names("s", [{"name": name} for name in sorted(names)]).items()
    }


@pytest.mark.requirement("upstream.filters")
@pytest.mark.parametrize(
    ("include", "exclude", "included"),
    [
        (None, (), True),
        (("tool",), (), True),
        (("other",), (), False),
        (("tool(arg)",), (), True),
        (None, ("tool",), False),
        (("tool",), ("tool",), False),
        ((), (), False),
    ],
)
def test_exclusion_wins_over_inclusion(
    include: tuple[str, ...] | None, exclude: tuple[str, ...], included: bool
) -> None:
    assert is_included("tool", include, exclude) is included
