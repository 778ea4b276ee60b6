"""One layer, a file or the command line, in canonical form: our spelling of each key, and none that is not known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from server.settings.errors import Findings, KeyPath, dotted
from server.settings.files import home_folder
from server.settings.keys import keys_of
from server.settings.merge import Tree, holder_of
from server.settings.models import Settings
from server.settings.section import Section
from server.settings.spellings import respell
from server.settings.upstreams import MAX_ALIAS, alias_of

MAX_PROPOSALS = 20
"""Warnings after which no key is proposed any more in place of one that is not known: looking for it takes a while."""


@dataclass(frozen=True, slots=True)
class LayerReader:
    """Brings one layer to canonical form.

    Args:
        source: What it is called in sentences.
        folder: What relative workspace roots start from; empty is the working folder.
        is_file: Whether it is a file, which may not say everything that the command line may.
        environ: The environment variables.
        findings: Takes the warnings and the problems.
    """

    source: str
    folder: str
    is_file: bool
    environ: Mapping[str, str]
    findings: Findings

    def normalise(self, data: Tree, names: dict[str, str]) -> None:
        """Put the layer under canonical keys, without unknown ones, in place.

        Args:
            data: The layer as it was read.
            names: Takes, for each alias, the name it was configured with.
        """
        respell(data, self.source, self.findings)
        self._rename_servers(data, names)
        self._drop_unknown(data, Settings, ())
        self._drop_yolo(data)
        self._anchor_paths(data)

    def _rename_servers(self, data: Tree, names: dict[str, str]) -> None:
        servers = data.get("mcpServers")
        if not isinstance(servers, dict):
            return
        renamed: Tree = {}
        own: dict[str, str] = {}
        for name, entry in cast("Tree", servers).items():
            alias = alias_of(name)
            shown = dotted(("mcpServers", name))
            if not alias:
                self.findings.refuse(self.source, "a server in mcpServers has an empty name; give it one.")
            elif alias in own:
                both = f"{dotted(('mcpServers', own[alias]))} and {shown}"
                said = f"{both} would both be called {alias}; rename one, with letters, digits, - and single _ only."
                self.findings.refuse(self.source, said)
            else:
                if alias != name:
                    fits = f"a name has letters, digits, - and single _ inside, at most {MAX_ALIAS}"
                    self.findings.warn(self.source, f"{shown} is called {alias} here: {fits}.")
                own[alias] = name
                if isinstance(entry, dict):
                    self._read_disabled(cast("Tree", entry), alias)
                renamed[alias] = entry
        names.update(own)
        data["mcpServers"] = renamed

    def _read_disabled(self, entry: Tree, alias: str) -> None:
        """Other clients write `disabled: true`; a server so marked must not start here."""
        if "disabled" not in entry:
            return
        disabled = entry.pop("disabled")
        if not isinstance(disabled, bool):
            path = dotted(("mcpServers", alias, "disabled"))
            self.findings.refuse(self.source, f"{path} has to be true or false.")
        elif disabled or "enabled" not in entry:
            entry["enabled"] = not disabled

    def _drop_unknown(self, data: Tree, section: type[Section], path: KeyPath) -> None:
        keys = keys_of(section)
        for name in list(data):
            here = (*path, name)
            if name not in keys:
                del data[name]
                meant = _nearest(name, keys, path) if len(self.findings.warnings) < MAX_PROPOSALS else ""
                said = f"{dotted(here)} is not a known key and is ignored.{meant}"
                self.findings.warn(self.source, said)
                continue
            key, value = keys[name], data[name]
            if key.section is None or not isinstance(value, dict):
                continue
            below = cast("Tree", value)
            if not key.named:
                self._drop_unknown(below, key.section, here)
                continue
            for chosen, entry in below.items():
                if isinstance(entry, dict):
                    self._drop_unknown(cast("Tree", entry), key.section, (*here, chosen))

    def _drop_yolo(self, data: Tree) -> None:
        if self.is_file and data.get("approvalMode") == "yolo":
            del data["approvalMode"]
            said = 'approvalMode "yolo" is ignored: it counts only on the command line, as --approval-mode yolo.'
            self.findings.warn(self.source, said)

    def _anchor_paths(self, data: Tree) -> None:
        for section, key in (("workspace", "roots"), ("shell", "readable")):
            holder = holder_of(data, (section, key))
            paths: Any = holder.get(key) if holder is not None else None
            if holder is not None and isinstance(paths, list):
                holder[key] = [self._anchored(f"{section}.{key}", path) for path in cast("list[Any]", paths)]
        memory = holder_of(data, ("memory", "globalFolder"))
        if memory is not None and "globalFolder" in memory:
            memory["globalFolder"] = self._anchored("memory.globalFolder", memory["globalFolder"])

    def _anchored(self, key: str, folder: Any) -> Any:
        if not isinstance(folder, str):
            return folder
        if not folder.strip() or "\0" in folder:
            self.findings.refuse(self.source, f"{key} holds a path that no folder has; name a folder.")
            return folder
        if folder == "~" or folder.startswith(("~/", "~" + os.sep)):
            folder = os.path.join(home_folder(self.environ), folder[2:])
        try:
            return os.path.abspath(os.path.join(self.folder, folder))
        except OSError:
            said = f"{key} holds a relative path, and the working folder does not exist any more."
            self.findings.refuse(self.source, said)
            return folder


def _nearest(name: str, keys: Mapping[str, Any], path: KeyPath) -> str:
    import difflib  # noqa: PLC0415 - needed only where something is misspelled

    close = difflib.get_close_matches(name[:60].lower(), [key.lower() for key in keys], n=1)
    meant = next((key for key in keys if close and key.lower() == close[0]), None)
    return f" Did you mean {dotted((*path, meant))}?" if meant is not None else ""
