"""The configuration of an agent: a program that receives a task and prints its answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DEPTH_VARIABLE = "CORETOOLS_MCP_AGENT_DEPTH"  # tells an agent how many agents are above it, including itself
MAX_DEPTH = 1  # an agent whose own server offered this tool could go on for ever
_NO_DEPTH = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    """One agent."""

    name: str
    command: str  # the program: its name, looked up on `PATH` outside the workspace, or its absolute path
    description: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)  # its arguments; no shell parses them
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    inherit_env: tuple[str, ...] = ()  # the server's variables that it gets in addition to those of commands
    prompt: Literal["stdin", "argument"] = "stdin"  # how it gets the task: on standard input, or as its last argument
    output: Literal["text", "json"] = "text"  # its output: text, or JSON with the answer in the last object
    timeout: int = 600_000  # time limit in milliseconds

    @property
    def shown(self) -> str:
        """Return its command line for people, without anything that looks like a secret."""
        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        return redact(shlex.join([self.command, *self.args]))

    def arguments(self, task: str) -> tuple[str, ...]:
        """Return all arguments for a task."""
        if self.prompt == "stdin":
            return self.args
        # A leading dash would be read as an option.
        return (*self.args, f" {task}" if task.startswith("-") else task)

    def given(self, task: str) -> bytes:
        """Return the text for its standard input."""
        return task.encode("utf-8", "replace") if self.prompt == "stdin" else b""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return its whole environment: that of commands, plus what is set or inherited for it."""
        from tools.shell.process_spec import command_environment  # noqa: PLC0415 - loaded on first use

        passed = {name: inherited[name] for name in self.inherit_env if name in inherited}
        depth = str(depth_in(inherited) + 1)
        return {**command_environment({}, inherited), **passed, **self.env, DEPTH_VARIABLE: depth}


def depth_in(environment: Mapping[str, str]) -> int:
    """Return how many agents are above a server with this environment; if unreadable, more than allowed."""
    written = environment.get(DEPTH_VARIABLE) or _NO_DEPTH
    return int(written) if written.isascii() and written.isdigit() and len(written) == 1 else MAX_DEPTH
