"""How long a command may be given. In a module of its own, since it is needed before any command."""

from __future__ import annotations

MAX_TIMEOUT = 600_000
"""Milliseconds (Qwen Code's number)."""
