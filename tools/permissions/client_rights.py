"""What one client of the network may do at most, beside what the settings say for all: by its token."""

from __future__ import annotations

from dataclasses import dataclass

from tools.contract.permission_subjects import ToolKind, ToolTraits

READ, WRITE, RUN, UPSTREAM = "read", "write", "run", "upstream:"
SCOPES = (READ, WRITE, RUN, f"{UPSTREAM}*")
"""What a token can give: looking, changing files too, running programs, and what servers behind this one have."""

OF_JOBS = ("list_background_jobs", "read_background_output")


@dataclass(frozen=True, slots=True)
class Rights:
    """What a token gives and takes."""

    source: str = ""  # where this stands in the settings, such as `http.tokens.laptop`
    roots: tuple[str, ...] = ()  # its own workspace folders; empty where it works in those of all
    profile: str = ""  # the profile that its built-in tools are in, beside that of all
    allow: tuple[str, ...] = ()  # rules of its own, which come to those of all
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None  # what it gives, of `SCOPES` and of single servers; `None` for everything
    prefix: str = ""  # what the issuer of the token puts before a scope

    def missing_scope(self, tool: ToolTraits) -> str:
        """The scope that a tool needs and that is not given, as its issuer spells it; empty if there is none."""
        if self.scopes is None:
            return ""
        if tool.server:
            return self.missing_for_server(tool.server)
        if tool.kind is ToolKind.EXECUTE or not tool.is_builtin:
            needed = RUN
        else:
            needed = READ if tool.only_reads_or_talks else WRITE
        is_given = needed in self.scopes or (needed == READ and WRITE in self.scopes)
        is_given = is_given or (RUN in self.scopes and tool.name in OF_JOBS)  # who starts one reads what it writes
        return "" if is_given else self.prefix + needed

    def missing_for_server(self, alias: str) -> str:
        """The same for a server behind this one."""
        if self.scopes is None or not self.scopes.isdisjoint((f"{UPSTREAM}*", UPSTREAM + alias)):
            return ""
        return f"{self.prefix}{UPSTREAM}{alias}"


ALL_RIGHTS = Rights()
"""Of a client for which nothing is set apart."""
