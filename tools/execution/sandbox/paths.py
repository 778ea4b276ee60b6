"""Paths compared by their components."""

from __future__ import annotations


def is_beneath(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def depth(path: str) -> int:
    """How many folders deep an absolute path is."""
    return 0 if path == "/" else path.rstrip("/").count("/")
