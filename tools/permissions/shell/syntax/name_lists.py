"""Words of which no more is unknown than a number or a date."""

from __future__ import annotations

import re


def names(text: str) -> frozenset[str]:
    """The names in a text, with white space between them."""
    return frozenset(text.split())


NUMBER = re.compile(r'\$\$|\$\{\$\}|\$RANDOM\b|\$\(date "?\+%[YmdHMSFjs](?:[_.:T-]|%[YmdHMSFjs])*"?\)', re.ASCII)
"""What stands for a number or a date."""
