"""The operator's two commands: one declares the custom tools, the other runs them.

The first command prints JSON, and the second may do so too. JSON is parsed only if it has few enough values to be
parsed quickly, and it is checked before it is passed on.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.machine.threads import THREADS
from tools.text.file_names import one_line

if TYPE_CHECKING:
    from tools.shell.command_runner import ProgramRequest, ProgramRunner

# Maximum size of the declarations, and of a call's output that is kept in memory (as in Gemini CLI and Qwen Code)
MAX_BYTES = 10 << 20
# The names of the settings that contain the commands
DISCOVERY_COMMAND = "tools.discoveryCommand"
CALL_COMMAND = "tools.callCommand"


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    # The command that prints the declarations, as a program and its arguments; `None` if there are no custom tools
    discovery_command: tuple[str, ...] | None = field(default=None, repr=False)
    call_command: tuple[str, ...] | None = field(default=None, repr=False)  # runs a tool; the tool's name is appended
    discovery_seconds: float = 60.0  # how long the discovery command may take
    call_seconds: float = 600.0
    strict: bool = False  # whether output on standard error means failure, as in Qwen Code and Gemini CLI

    @property
    def commands(self) -> tuple[tuple[str, ...] | None, ...]:
        """The settings that determine which custom tools exist and what they do."""
        return self.discovery_command, self.call_command


@dataclass(frozen=True, slots=True)
class ProgramSite:
    """How the commands run: in the operator's folder, without a shell or a sandbox, like upstream servers."""

    runner: Callable[[], ProgramRunner]  # creates the program runner on first use
    environment: Mapping[str, str] = field(repr=False)
    folder: str  # the working directory: the operator's first workspace folder, or else the server's working directory
    # Real paths of the operator's workspace folders, from which a program named without a folder is never taken
    roots: tuple[str, ...] = ()

    async def request(self, setting: str, command: tuple[str, ...], seconds: float) -> ProgramRequest:
        """Prepare a request to run a command without input and without saving its output to a file.

        Messages name the setting. The time limit includes the wait in the queue.
        """
        from tools.files.child_process import find_configured  # noqa: PLC0415 - loaded on first use
        from tools.shell.command_runner import ProgramRequest  # noqa: PLC0415 - as above

        name, *arguments = command
        search_path = self.environment.get("PATH", "")
        program = await THREADS.run(partial(find_configured, name, search_path, self.folder, self.roots))
        if program is None:
            location = "at that path" if os.path.basename(name) != name else "on the PATH outside the workspace"
            raise ToolError(
                ToolErrorType.EXECUTION_FAILED,
                f"The program '{one_line(name)}', set in {setting}, was not found {location} or cannot be run. The "
                "operator can install it, make it executable, or give its absolute path.",
            )
        return ProgramRequest(
            argv=(program, *arguments),
            folder=self.folder,
            environment=self.environment,
            client_key="",
            timeout_seconds=seconds,
            whole_bytes=MAX_BYTES,
        )


@dataclass(frozen=True, slots=True)
class CallCommand:
    argv: tuple[str, ...] = field(repr=False)  # the program and its arguments; the tool's name is appended
    seconds: float
    strict: bool  # whether output on standard error means failure
    site: ProgramSite = field(compare=False)


# Maximum number of values in one JSON text; parsing more would hold the interpreter's lock for over 50 ms
MAX_VALUES = 100_000
MAX_DEPTH = 50  # maximum depth of nested arrays and objects; the default limit of .NET's parser is 64 per message


class UnusableError(Exception):
    """Text, a schema or a declaration is not accepted. The message is the reason, phrased for the end of a sentence."""


def read_json(text: str) -> Any:
    """Parse `text`, or raise an `UnusableError`. Does not check whether the value can be passed on."""
    # Each item or member follows one of these characters. Those in strings count as well, so the sum is never too low.
    if text.count(",") + text.count("[") + text.count("{") >= MAX_VALUES:
        raise UnusableError(f"it has more than {MAX_VALUES:,} values")

    def refuse(constant: str) -> Any:
        raise UnusableError(f"{constant} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise UnusableError(f"it is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise UnusableError("it is nested too deeply") from None
    except ValueError:
        raise UnusableError("it contains a number with thousands of digits") from None


def require_sendable(value: Any) -> None:
    """Raise an `UnusableError` for deep nesting and for values that Python accepts but JSON cannot contain."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        next_level: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                members = cast("dict[str, Any]", item)
                next_level += members
                next_level += members.values()
            elif isinstance(item, list):
                next_level += cast("list[Any]", item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise UnusableError(f"it contains {'NaN' if math.isnan(item) else 'a number that is too large'}")
            elif isinstance(item, str):
                try:
                    item.encode()
                except UnicodeEncodeError:
                    raise UnusableError("it contains a lone surrogate, which is not text") from None
        if not next_level:
            return
        level = next_level
    raise UnusableError(f"it is nested more than {MAX_DEPTH} levels deep")
