"""Rules of a workspace's file that go on where the file is no longer what was trusted, while a server runs.

Whoever can write into a workspace can put one blank into its settings. Then nothing of them counts, and without this
the rules that ask and refuse would be gone with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

from server.settings.errors import Findings
from server.settings.layers import FileState, Layer, SettingsFile
from server.settings.merge import Tree, holder_of

RESTRICTING = (
    ("permissions", "ask"),
    ("permissions", "deny"),
    ("tools", "core"),
    ("tools", "exclude"),
    ("tools", "confirmationRequired"),
    ("mcp", "allowed"),
    ("mcp", "excluded"),
)
"""Keys that open nothing: they ask, refuse or leave out."""

Kept = Mapping[str, Layer]
"""Path of a workspace's settings file, to what restricts in its last content that was trusted."""


def restrictions_of(layers: Iterable[Layer]) -> dict[str, Layer]:
    """What restricts in each of these layers, by its source; nothing for those that restrict nothing.

    Args:
        layers: In canonical form. They are left as they are.
    """
    found: dict[str, Layer] = {}
    for layer in layers:
        data: Tree = {}
        for path in RESTRICTING:
            holder = holder_of(layer.data, path)
            value = holder.get(path[-1]) if holder is not None else None
            target = holder_of(data, path, create=True) if value else None
            if target is not None:
                target[path[-1]] = deepcopy(value)
        if data:
            found[layer.source] = Layer(layer.rank, layer.source, data, layer.folder)
    return found


def still_counting(kept: Kept, places: Iterable[SettingsFile], findings: Findings) -> list[Layer]:
    """The layers of those files that were trusted, and are not any more. Each is told.

    Args:
        kept: What restricted so far.
        places: What became of the files now.
        findings: Takes the warnings.
    """
    lost = [place for place in places if place.state is not FileState.READ and place.path in kept]
    for place in lost:
        said = "what asks, refuses or leaves out in the last content of this file that was trusted still counts"
        findings.warn(place.path, f"{said}, until the file is trusted again or this server is started again.")
    return [deepcopy(kept[place.path]) for place in lost]
