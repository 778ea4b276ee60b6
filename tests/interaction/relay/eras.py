"""The four combinations of what a client and an upstream speak."""

from __future__ import annotations

import pytest

ERAS = ("handshake", "modern")

COMBINATIONS = [(client, upstream) for client in ERAS for upstream in ERAS]

by_eras = pytest.mark.parametrize(("client_era", "upstream_era"), COMBINATIONS)
