"""How the tables of this package write lists of names."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The names in a text, with white space between them."""
    return frozenset(text.split())
