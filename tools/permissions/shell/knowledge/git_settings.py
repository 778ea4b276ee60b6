"""Settings of git: which of them cannot make it run a program or use other places than it would have used."""

from __future__ import annotations

import re

HARMLESS_SETTING = re.compile(
    r"""
    user\.(?:name|email|useconfigonly) | (?:author|committer)\.(?:name|email) | init\.defaultbranch | color\.\S+
    | advice\.\w+ | column\.\w+ | versionsort\.suffix | http\.postbuffer | protocol\.version
    | core\.(?:abbrev|autocrlf|bigfilethreshold|checkstat|commentchar|compression|eol|filemode|ignorecase
        |logallrefupdates|longpaths|packedgitlimit|precomposeunicode|preloadindex|quotepath|safecrlf|symlinks
        |trustctime|untrackedcache|warnambiguousrefs|whitespace)
    | (?:add|am|apply|branch|checkout|clone|commit|fetch|gc|index|log|merge|pack|pull|push|rebase|rerere|stash|status
        |switch|tag)\.
      (?:abbrevcommit|auto|autosetupmerge|autosetuprebase|autosquash|autostash|autoupdate|conflictstyle|date|decorate
        |defaultremotename|enabled|excludedecoration|ff|follow|followtags|guess|ignoreerrors|ignorewhitespace
        |keepcr|mailmap|parallel|prune|prunetags|rebase|renamelimit|renames|relativepaths|short|showbranch|showpatch
        |showroot|showstash|showstat|showuntrackedfiles|sort|stat|submodulesummary|threads|updaterefs|verbose|version
        |whitespace|windowmemory|workers|writecommitgraph|commitgraph|autosetupremote|usebitmaps)
    | push\.default
    | diff\.(?:algorithm|colormoved|colormovedws|context|dirstat|ignoresubmodules|indentheuristic|interhunkcontext
        |mnemonicprefix|noprefix|renamelimit|renames|relative|statgraphwidth|submodule|suppressblankempty
        |wordregex|wserrorhighlight)
    | grep\.(?:column|extendedregexp|fallbacktonoindex|fullname|linenumber|patterntype|threads)
    | branch\.\S+\.(?:description|rebase)
    | (?:core|sequence)\.editor=(?:true|:)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A list of what is known: settings come with each release, and many run something (`core.fsmonitor`, `alias.x`).
One with a value is harmless with that value."""


def is_harmless_setting(setting: str) -> bool:
    """Whether a setting runs nothing, and leads git to no other file or host.

    Args:
        setting: Its key, or `key=value`.
    """
    key = setting.partition("=")[0]
    return (HARMLESS_SETTING.fullmatch(key) or HARMLESS_SETTING.fullmatch(setting)) is not None
