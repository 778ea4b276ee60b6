"""The exit codes of the command besides 0, which is done."""

from __future__ import annotations

EXIT_FAILED = 1
"""The call, the listing or the check failed."""

EXIT_USAGE = 2
"""Wrong usage or settings."""

EXIT_ADDRESS = 3
"""The address cannot be served."""
