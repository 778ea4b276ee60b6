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


_MADE_BY_GIT = re.compile(
    r"""
    core\.(?:repositoryformatversion|bare|worktree)
    | extensions\.(?:objectformat|refstorage|worktreeconfig|partialclone)
    | remote\.[^\n]+\.(?:url|pushurl|fetch|tagopt|promisor|partialclonefilter) | remote\.pushdefault
    | branch\.[^\n]+\.(?:remote|merge|rebase|pushremote|vscode-merge-base|gh-merge-base)
    | submodule\.[^\n]+\.(?:url|active) | submodule\.active | lfs\.repositoryformatversion
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What `git init`, `clone`, `worktree`, `submodule`, `remote` and `push -u` write."""
_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\\n]|\\["\\])*)")?\s*\](.*)')
_SETTING = re.compile(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?")
_HELPER = re.compile(r"\s*\"?[\w-]*::")
"""The beginning of an address that names a program."""


def is_harmless_in_new_repository(text: str) -> bool:
    """Whether a file of settings, by all of its lines, makes git run nothing; what is not understood may.

    Args:
        text: As it stands in a repository's `config`.
    """
    section: str | None = None
    for line in text.splitlines():
        rest = line.strip()
        while found := _SECTION.fullmatch(rest):
            section = found[1] if found[2] is None else f"{found[1]}.{found[2]}"
            rest = found[3].strip()
        if not rest or rest[0] in "#;":
            continue
        setting = _SETTING.fullmatch(rest)
        if section is None or setting is None or rest.endswith("\\"):
            return False
        key, value = f"{section}.{setting[1]}", setting[2] or ""
        if _HELPER.match(value) or not (HARMLESS_SETTING.fullmatch(key) or _MADE_BY_GIT.fullmatch(key)):
            return False
    return True
