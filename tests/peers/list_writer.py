"""Stores the lists of an upstream again and again, as a server of ours would: `list_writer.py FOLDER NAME`."""

from __future__ import annotations

import sys

import anyio

from server.upstreams.catalog.stored_lists import StoredLists

WRITES = 60


async def write(folder: str, name: str) -> None:
    """Store lists of different lengths under one key; the tool names in them begin with `name`."""
    for number in range(WRITES):
        tools = [{"name": f"{name}{index}"} for index in range(number * 7 % 300 + 1)]
        await StoredLists(folder).write("key", "2025-11-25", {"tools": tools})


anyio.run(write, sys.argv[1], sys.argv[2])
