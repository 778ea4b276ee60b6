"""The todo lists of all clients, one per client and workspace folder, kept while the server runs.

The lists are a model's working notes, replaced many times an hour, so they are kept only in memory. Nobody expects a
file on disk for a plan, and servers need not share the lists.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tools.files.workspace import Workspace

# Qwen Code has the first three values, and Gemini CLI has all of them.
TodoStatus = Literal["pending", "in_progress", "completed", "cancelled", "blocked"]
MAX_LISTS = 250  # the oldest list is dropped first; 250 lists of the maximum size take about 100 MB


@dataclass(frozen=True, slots=True)
class Todo:
    id: str  # unique in its list
    content: str
    status: TodoStatus


class TodoLists:
    """Stores the lists. An anonymous client has an empty key and no list."""

    def __init__(self) -> None:
        self._lists: OrderedDict[tuple[str, str], tuple[Todo, ...]] = OrderedDict()

    def replace(self, client_key: str, workspace: Workspace, todos: Sequence[Todo]) -> None:
        """Replace the list of a client in a workspace, or remove it if `todos` is empty."""
        key = (client_key, workspace.roots[0] if workspace.roots else "")
        self._lists.pop(key, None)
        if todos and client_key:
            self._lists[key] = tuple(todos)
        if len(self._lists) > MAX_LISTS:
            self._lists.popitem(last=False)

    def read(self, client_key: str, workspace: Workspace) -> Sequence[Todo]:
        """Return the list as last written, or an empty one."""
        return self._lists.get((client_key, workspace.roots[0] if workspace.roots else ""), ())

    def forget(self, client_key: str) -> None:
        """Drop the lists of a client that will not return."""
        for key in [key for key in self._lists if key[0] == client_key]:
            del self._lists[key]
