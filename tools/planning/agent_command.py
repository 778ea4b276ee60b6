"""An agent as the operator configures it: a program that takes a task and prints its answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DEPTH_VARIABLE = "CORETOOLS_MCP_AGENT_DEPTH"  # for an agent: how many are above it, itself included
MAX_DEPTH = 1  # an agent whose own server offers this tool again would go on without end
_NO_DEPTH = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """One agent."""

    name: str
    command: str  # the program: its name, looked for on `PATH` outside the workspace, or its absolute path
    description: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)  # its arguments; no shell reads them
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    inherit_env: tuple[str, ...] = ()  # names of the server's variables that it gets besides those of commands
    prompt: Literal["stdin", "argument"] = "stdin"  # where it gets the task: standard input, or its last argument
    output: Literal["text", "json"] = "text"  # what it prints: its answer as text, or JSON whose last object holds it
    timeout: int = 600_000  # how long it may take, in milliseconds

    @property
    def shown(self) -> str:
        """Its command line for people, without what looks like a secret."""
        from tools.text.secrets import redact  # noqa: PLC0415 - with the first call

        return redact(shlex.join([self.command, *self.args]))

    def arguments(self, task: str) -> tuple[str, ...]:
        """All arguments for a task."""
        if self.prompt == "stdin":
            return self.args
        # What begins with a dash would be read as an option.
        return (*self.args, f" {task}" if task.startswith("-") else task)

    def given(self, task: str) -> bytes:
        """What it reads on standard input."""
        return task.encode("utf-8", "replace") if self.prompt == "stdin" else b""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """All of its environment: that of commands of this server, with what is set or let through for it."""
        from tools.shell.process_spec import command_environment  # noqa: PLC0415 - with the first call

        passed = {name: inherited[name] for name in self.inherit_env if name in inherited}
        depth = str(depth_in(inherited) + 1)
        return {**command_environment({}, inherited), **passed, **self.env, DEPTH_VARIABLE: depth}


def depth_in(environment: Mapping[str, str]) -> int:
    """How many agents are above a server with this environment; more than may be where that cannot be read."""
    written = environment.get(DEPTH_VARIABLE) or _NO_DEPTH
    return int(written) if written.isascii() and written.isdigit() and len(written) == 1 else MAX_DEPTH
