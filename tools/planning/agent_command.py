"""The configuration of an agent, which is a program that receives a task and prints its answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DEPTH_VARIABLE = "CORETOOLS_MCP_AGENT_DEPTH"  # how deeply the agent is nested; 1 if no other agent started it
MAX_DEPTH = 1  # maximum nesting depth: an agent cannot start further agents


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommand:
    name: str
    command: str  # the program: a name to look up on `PATH` outside the workspace, or an absolute path
    description: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)  # the program's arguments; no shell parses them
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # Names of this server's environment variables that the agent gets, in addition to those that every command gets
    inherit_env: tuple[str, ...] = ()
    prompt: Literal["stdin", "argument"] = "stdin"  # how the task is passed: on standard input or as the last argument
    output: Literal["text", "json"] = "text"  # what the agent prints: text, or JSON with the answer in the last object
    timeout: int = 600_000  # time limit in milliseconds

    @property
    def shown(self) -> str:
        """The command line for people, without anything that looks like a secret."""
        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        return redact(shlex.join([self.command, *self.args]))

    def arguments(self, task: str) -> tuple[str, ...]:
        if self.prompt == "stdin":
            return self.args
        # The program would parse a task with a leading dash as an option, so a space is put before it.
        return (*self.args, f" {task}" if task.startswith("-") else task)

    def given(self, task: str) -> bytes:
        """Return the standard input for a task."""
        return task.encode("utf-8", "replace") if self.prompt == "stdin" else b""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's whole environment: that of commands, plus the variables of `inherit_env` and `env`."""
        from tools.shell.command_environment import command_environment  # noqa: PLC0415 - loaded on first use

        passed = {name: inherited[name] for name in self.inherit_env if name in inherited}
        depth = str(depth_in(inherited) + 1)
        return {**command_environment({}, inherited), **passed, **self.env, DEPTH_VARIABLE: depth}


def depth_in(environment: Mapping[str, str]) -> int:
    """Return how deeply the agent that started a server with this environment is nested, or 0 if no agent did.

    An invalid value counts as `MAX_DEPTH`.
    """
    written = environment.get(DEPTH_VARIABLE) or "0"
    return int(written) if written.isascii() and written.isdigit() and len(written) == 1 else MAX_DEPTH
