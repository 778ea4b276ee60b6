"""The configuration of an agent, which is a program that receives a task and prints its answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DEPTH_VARIABLE = "CORETOOLS_MCP_AGENT_DEPTH"  # the nesting depth of an agent, starting from 1
MAX_DEPTH = 1  # prevents agents from starting further agents endlessly
_NO_DEPTH = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """One agent."""

    name: str
    command: str  # the program: a name to look up on `PATH` outside the workspace, or an absolute path
    description: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)  # its arguments; no shell parses them
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    inherit_env: tuple[str, ...] = ()  # variables of the server that it gets in addition to those of commands
    prompt: Literal["stdin", "argument"] = "stdin"  # how it gets the task: on standard input or as the last argument
    output: Literal["text", "json"] = "text"  # text, or JSON with the answer in the last object
    timeout: int = 600_000  # time limit in milliseconds

    @property
    def shown(self) -> str:
        """The command line for people, without anything that looks like a secret."""
        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        return redact(shlex.join([self.command, *self.args]))

    def arguments(self, task: str) -> tuple[str, ...]:
        """Return the arguments for a task."""
        if self.prompt == "stdin":
            return self.args
        # A leading dash would make the task an option.
        return (*self.args, f" {task}" if task.startswith("-") else task)

    def given(self, task: str) -> bytes:
        """Return the standard input for a task."""
        return task.encode("utf-8", "replace") if self.prompt == "stdin" else b""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment: that of commands, plus what is set or inherited for the agent."""
        from tools.shell.process_spec import command_environment  # noqa: PLC0415 - loaded on first use

        passed = {name: inherited[name] for name in self.inherit_env if name in inherited}
        depth = str(depth_in(inherited) + 1)
        return {**command_environment({}, inherited), **passed, **self.env, DEPTH_VARIABLE: depth}


def depth_in(environment: Mapping[str, str]) -> int:
    """Return how many agents are above a server with this environment. `MAX_DEPTH` if unreadable."""
    written = environment.get(DEPTH_VARIABLE) or _NO_DEPTH
    return int(written) if written.isascii() and written.isdigit() and len(written) == 1 else MAX_DEPTH
