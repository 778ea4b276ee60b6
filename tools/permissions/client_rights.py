"""What a network client's token permits and forbids, in addition to the settings for all clients."""

from __future__ import annotations

from dataclasses import dataclass

from tools.contract.permission_subjects import ToolKind, ToolTraits

READ, WRITE, RUN, UPSTREAM = "read", "write", "run", "upstream:"
SCOPES = (READ, WRITE, RUN, f"{UPSTREAM}*")
"""The rights that a token can give: reading, changing files, running programs, and the tools of upstream servers."""

OF_JOBS = ("list_background_jobs", "read_background_output")


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a token."""

    source: str = ""  # the setting that defines the token, such as `http.tokens.laptop`
    roots: tuple[str, ...] = ()  # the client's workspace folders; empty to use the same folders as all clients
    profile: str = ""  # a profile that limits the built-in tools, in addition to the one for all clients
    allow: tuple[str, ...] = ()  # allow rules, in addition to those for all clients
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None  # members of `SCOPES`, or `upstream:alias` for one server; `None` for all
    prefix: str = ""  # what the token's issuer puts before each scope

    def missing_scope(self, tool: ToolTraits) -> str:
        """Return the scope that a tool needs but the token lacks, including the issuer's prefix.

        Empty if the token lacks none.
        """
        if self.scopes is None:
            return ""
        if tool.server:
            return self.missing_for_server(tool.server)
        if tool.kind is ToolKind.EXECUTE or not tool.is_builtin:
            needed = RUN
        else:
            needed = READ if tool.only_reads_or_talks else WRITE
        is_given = needed in self.scopes or (needed == READ and WRITE in self.scopes)
        # The right to run programs includes reading their output.
        is_given = is_given or (RUN in self.scopes and tool.name in OF_JOBS)
        return "" if is_given else self.prefix + needed

    def missing_for_server(self, alias: str) -> str:
        """Return the scope that an upstream server needs but the token lacks, as `missing_scope` does for a tool."""
        if self.scopes is None or not self.scopes.isdisjoint((f"{UPSTREAM}*", UPSTREAM + alias)):
            return ""
        return f"{self.prefix}{UPSTREAM}{alias}"


ALL_RIGHTS = Rights()
"""The rights of an unrestricted client."""
