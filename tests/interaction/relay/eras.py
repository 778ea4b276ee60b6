"""What clients and upstreams speak, and the four combinations of that."""

from __future__ import annotations

import pytest

ERAS = ("handshake", "modern")

by_era = pytest.mark.parametrize("era", ERAS)

COMBINATIONS = [(client, upstream) for client in ERAS for upstream in ERAS]

by_eras = pytest.mark.parametrize(("client_era", "upstream_era"), COMBINATIONS)
