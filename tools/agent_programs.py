"""The operator's agents: programs that receive a task and print their answer."""

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
    # Names of this server's environment variables that the agent inherits; all commands inherit certain others
    inherit_env: tuple[str, ...] = ()
    prompt: Literal["stdin", "argument"] = "stdin"  # how the task is passed: on standard input or as the last argument
    output: Literal["text", "json"] = "text"  # what the agent prints: text, or JSON with the answer in the last object
    timeout: int = 600_000  # time limit in milliseconds

    @property
    def display_command(self) -> str:
        """The command line for display, without anything that looks like a secret."""
        from tools.text.secrets import redact  # noqa: PLC0415 - loaded on first use

        return redact(shlex.join([self.command, *self.args]))

    def arguments(self, task: str) -> tuple[str, ...]:
        if self.prompt == "stdin":
            return self.args
        # The program would parse a task with a leading dash as an option, so the task is prefixed with a space.
        return (*self.args, f" {task}" if task.startswith("-") else task)

    def environment(self, server_environment: Mapping[str, str]) -> dict[str, str]:
        """Return the agent's whole environment: that of commands, plus the variables of `inherit_env` and `env`."""
        from tools.shell.command_environment import command_environment  # noqa: PLC0415 - loaded on first use

        own_variables = {name: server_environment[name] for name in self.inherit_env if name in server_environment}
        depth = str(depth_in(server_environment) + 1)
        return {**command_environment({}, server_environment), **own_variables, **self.env, DEPTH_VARIABLE: depth}


def depth_in(environment: Mapping[str, str]) -> int:
    """Return how deeply the agent that started a server is nested: 0 for none, `MAX_DEPTH` for an invalid value."""
    value = environment.get(DEPTH_VARIABLE) or "0"
    return int(value) if value.isascii() and value.isdigit() and len(value) == 1 else MAX_DEPTH
