"""What clients and upstreams speak, and the four combinations of that; and how tools are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

ERAS = ("handshake", "modern")

by_era = pytest.mark.parametrize("era", ERAS)

COMBINATIONS = [(client, upstream) for client in ERAS for upstream in ERAS]

by_eras = pytest.mark.parametrize(("client_era", "upstream_era"), COMBINATIONS)


def with_call_tool(names: Sequence[str], directly: Sequence[Sequence[str]], through: Sequence[str]) -> Any:
    """Repeat a test with calls of tools by their names in all of these eras, and through call_tool in one of them."""
    cases = [pytest.param(*each, False, id="-".join(each)) for each in directly]
    cases.append(pytest.param(*through, True, id="-".join([*through, "call_tool"])))

    def repeated(test: Callable[..., Any]) -> Callable[..., Any]:
        test = pytest.mark.parametrize((*names, "each_way"), cases, indirect=["each_way"])(test)
        return pytest.mark.usefixtures("each_way")(test)

    return repeated


by_era_each_way = with_call_tool(["era"], [[era] for era in ERAS], ["modern"])

by_upstream_each_way = with_call_tool(["upstream_era"], [[era] for era in ERAS], ["handshake"])

by_eras_each_way = with_call_tool(["client_era", "upstream_era"], COMBINATIONS, ["modern", "handshake"])
