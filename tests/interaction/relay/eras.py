"""Parameters of tests: the eras of clients and upstreams, their four combinations, and how tools are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

ERAS = ("handshake", "modern")

by_era = pytest.mark.parametrize("era", ERAS)

COMBINATIONS = [(client, upstream) for client in ERAS for upstream in ERAS]

by_eras = pytest.mark.parametrize(("client_era", "upstream_era"), COMBINATIONS)


def with_call_tool(names: Sequence[str], directly: Sequence[Sequence[str]], through: Sequence[str]) -> Any:
    """Run a test with direct tool calls in each case of `directly`, and with `call_tool` in the case `through`."""
    cases = [pytest.param(*eras, False, id="-".join(eras)) for eras in directly]
    cases.append(pytest.param(*through, True, id="-".join([*through, "call_tool"])))

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        test = pytest.mark.parametrize((*names, "each_way"), cases, indirect=["each_way"])(test)
        return pytest.mark.usefixtures("each_way")(test)

    return decorate


by_era_each_way = with_call_tool(["era"], [[era] for era in ERAS], ["modern"])

by_upstream_each_way = with_call_tool(["upstream_era"], [[era] for era in ERAS], ["handshake"])

by_eras_each_way = with_call_tool(["client_era", "upstream_era"], COMBINATIONS, ["modern", "handshake"])
