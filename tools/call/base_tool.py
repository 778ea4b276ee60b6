"""The base classes of tools, and the context that a tool receives for a call.

The context contains the workspace, the limits and the client's state, but never the application. Built-in tools
describe their parameters with a pydantic model.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tools.contract.call_options import AbortSignal, ApprovalMode, Limits, MediaHandling, Progress, no_progress
from tools.contract.command_views import CommandView
from tools.contract.permission_subjects import Subject, ToolKind, ToolTraits
from tools.contract.tool_errors import InvalidToolParamsError
from tools.contract.tool_parameters import (
    ForeignParameter,
    ToolParams,
    about_unknown,
    bind,
    folded,
    foreign,
    full_schema,
    published_schema,
    rename,
)
from tools.files.workspace import ReadLedger
from tools.machine.unlocked_cached_property import cached_property
from tools.permissions.permission_policy import ALL_RIGHTS, Rights

if TYPE_CHECKING:
    from tools.contract.confirmation import Answer, ConfirmationDetails
    from tools.contract.tool_results import ToolResult
    from tools.files.change.journal import Journal
    from tools.files.workspace import Workspace
    from tools.lsp.code_intelligence import CodeIntelligence
    from tools.shell.command_runner import CommandRunner
    from tools.shell.job_table import JobTable
    from tools.skill_folders import RelayedSkill


async def _no_skills(_is_fresh: bool) -> Sequence[RelayedSkill]:
    return ()


@dataclass(frozen=True, slots=True)
class Services:
    """The services that tools may use, from the server's `App._make_contexts`.

    The command runner and the journal are created on first use and then shared.
    """

    commands: Callable[[], CommandRunner] | None = None  # runs shell commands; `None` if commands cannot run
    # Real paths of files that tools have written with consent, mapped to the SHA-256 of the content last written
    consented: dict[str, str] = field(default_factory=dict[str, str])
    journal: Callable[[], Journal] | None = None  # records file changes for `undo`; `None` if they are not recorded
    forget_plan: Callable[[str], None] | None = None  # called with a client's key when its plan mode ends
    # Returns the language servers, or `None` if none has been used
    code: Callable[[], CodeIntelligence | None] = lambda: None


@dataclass(slots=True)
class ClientState:
    """The state of one client between its calls."""

    # Identifies the client: a fixed key over stdio; over HTTP, a prefix and the principal's unique name or a session's
    # ID. Empty for an anonymous client, which has no stored state: `reads`, `jobs` and `grants` are `None`.
    key: str
    approval_mode: ApprovalMode = ApprovalMode.DEFAULT  # which calls may run without a question
    reads: ReadLedger | None = field(default_factory=ReadLedger)  # what a client without sessions has read
    jobs: JobTable | None = None  # the client's background jobs; `None` if the client cannot have any
    # Permission rules that a person has granted to this client
    grants: list[str] | None = field(default_factory=list[str])
    skill_folders: tuple[str, ...] = ()  # folders of loaded skills in the home folder, which the client may read
    owner_name: str = ""  # display name of the client's token; grants apply to all sessions of this owner

    def __post_init__(self) -> None:
        if self.is_anonymous:
            self.reads = self.jobs = self.grants = None

    @property
    def is_anonymous(self) -> bool:
        """True if this client cannot be told apart from other clients."""
        return not self.key


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The environment of one call, which the methods of its tool receive."""

    workspace: Workspace  # the folders that tools may touch, and the only way to open files in them
    limits: Limits  # how much one call may return
    client: ClientState  # the state of the calling client
    services: Services = field(default_factory=Services)  # services that all clients share; they outlive the call
    answer: Answer | None = None  # the answer to this call's question, or `None`
    # The details that the user agreed to. The tool acts only if their `state` is still current
    confirmed: ConfirmationDetails | None = None
    is_granted: bool = False  # whether a rule or the mode allows the call, regardless of the tool's own question
    media: MediaHandling = MediaHandling.INLINE  # how images, sounds and other media are returned
    # Results of earlier steps, which `execute` need not compute again; each with the parameters of its call
    memo: dict[str, tuple[object, Any]] = field(default_factory=dict[str, tuple[object, Any]])
    progress: Progress = no_progress  # reports progress to the client (progress, total or `None`, message)
    signal: AbortSignal = field(default_factory=AbortSignal)  # set when the client cancels the call
    view: CommandView | None = None  # for a command: the chosen view of the machine
    # Returns whether the client still uses these workspace folders; the server's `Contexts.for_request` creates it
    keeps_folders: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.time  # seconds since the epoch
    rights: Rights = ALL_RIGHTS  # the rights of this request's token; a client may have several tokens
    # Returns the skills of upstream servers: those already known or, if called with `True`, those in fresh lists, which
    # can take a long time
    relayed_skills: Callable[[bool], Awaitable[Sequence[RelayedSkill]]] = _no_skills
    reads_of_session: ReadLedger | None = None  # what this call's session has read; `None` without a session

    def kept(self, name: str, params: object) -> Any:
        """Return what the memo holds under this name for exactly these parameters, or `None`."""
        stored_params, value = self.memo.get(name, (None, None))
        return value if stored_params is params else None

    @property
    def reads(self) -> ReadLedger | None:
        """The record of what the caller has read. Agents that share a token have separate ledgers, one per session."""
        return self.reads_of_session or self.client.reads


ParamsT = TypeVar("ParamsT")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Facts that clients base decisions on. They are published as MCP tool annotations and verified by tests."""

    read_only: bool  # whether the tool changes nothing
    destructive: bool = False  # whether data that the tool changes may be lost
    idempotent: bool = False  # whether repeating a call with the same arguments changes nothing more
    open_world: bool = False  # whether the tool contacts other machines


READS = Behaviour(read_only=True, idempotent=True)  # for tools that read local files and change nothing


class BaseTool(ABC, Generic[ParamsT]):
    """A tool: it validates arguments, describes a call, asks for consent, and executes the call.

    Subclasses set the attributes and implement the methods. `should_confirm_execute` has no side effects and may be
    called any number of times. `execute` runs at most once for each confirmed call.
    """

    name: str  # the tool's unique name, which calls use
    display_name: str  # the tool's short name for people; for a built-in tool, in the style of Qwen Code
    title: str = ""  # the tool's title for people; empty to use the display name
    description: str  # what the tool does, for the model
    kind: ToolKind  # the tool's group in permission rules and approval modes
    behaviour: Behaviour
    aliases: tuple[str, ...] = ()  # other names that calls may use, such as those in other programs; never listed
    is_builtin: bool = False  # whether the tool is part of this server
    alias: str = ""  # the alias of the upstream server that offers the tool; empty for other tools
    # Identifies the definition that the tool was created from, if the definition can change while the tool is in use.
    # Consent applies only to this version.
    version: str = ""

    @property
    def is_listed(self) -> bool:
        """True if the tool is listed.

        An unlisted tool can still be called; if the call cannot work, the error says what is missing.
        """
        return True

    @property
    @abstractmethod
    def parameter_schema(self) -> Mapping[str, Any]:
        """Return the published JSON Schema of the parameters."""

    @abstractmethod
    def validate_tool_params(self, arguments: Mapping[str, Any]) -> ParamsT:
        """Validate the arguments of a call. Raises an `InvalidToolParamsError` that says why they are invalid."""

    def about_ignored(self, arguments: Mapping[str, Any]) -> str:
        """Return a note for the model about ignored arguments, or an empty string."""
        return ""

    @abstractmethod
    def get_description(self, params: ParamsT, context: ToolContext) -> str:
        """Describe this call in one line, for people. Must be cheap and have no side effects."""

    @property
    def asks(self) -> bool:
        """True if calls may need consent when neither a rule nor the approval mode decides."""
        return type(self).should_confirm_execute is not BaseTool[Any].should_confirm_execute

    @property
    def rule_names(self) -> tuple[str, ...]:
        """The tool's names in permission rules, apart from the names of groups of built-in tools.

        No other tool ever uses the first of these names, so the rules that a person saves use it.
        """
        return (self.name,)

    @property
    def loose_rule_names(self) -> tuple[str, ...]:
        """Names that may later belong to another tool. Only rules that ask or deny may use them."""
        return ()

    @cached_property
    def traits(self) -> ToolTraits:
        """The facts about this tool on which permission decisions depend."""
        names = self.rule_names, self.loose_rule_names
        return ToolTraits(self.name, self.kind, *names, self.behaviour.read_only, self.is_builtin, self.alias)

    async def make_ready(self, context: ToolContext) -> None:
        """Prepare whatever `subjects` needs but cannot obtain in a worker thread. Does nothing if that is ready."""

    def subjects(self, params: ParamsT, context: ToolContext) -> Sequence[Subject]:
        """Return what this call touches, for permission rules. Blocks on disk reads and has no side effects.

        Raises:
            ToolError: The call cannot succeed.
        """
        return ()

    def why_asked_again(self, client_key: str) -> str:
        """Return why this client's user must be asked even if rules and modes allow the call, or an empty string."""
        return ""

    def check_before_question(self, params: ParamsT) -> None:
        """Raise a `ToolError` if the call would fail after a person had agreed to it."""

    def record_consent(self, client_key: str) -> None:
        """Record that this client's user agreed to a call of this version of the tool."""

    def why_outdated(self) -> str:
        """Return why this object is no longer the tool that the user agreed to, or an empty string."""
        return ""

    async def should_confirm_execute(self, params: ParamsT, context: ToolContext) -> ConfirmationDetails | None:
        """Return the question to ask a person before this call, or `None`. Has no side effects and may be repeated.

        Raises:
            ToolError: The call cannot succeed, so there is nothing to ask.
        """
        return None

    @abstractmethod
    async def execute(self, params: ParamsT, context: ToolContext) -> ToolResult:
        """Perform the action. Raises a `ToolError` if it fails in a way that the model can react to."""


# Parameters that other programs add to every tool, keyed by `folded` name. Gemini CLI evaluates its own additions
# itself; in other programs, the model uses such parameters to explain its call.
REMARKS: Mapping[str, ForeignParameter] = dict.fromkeys(
    ("waitforprevious", "callid", "description", "displaydescription", "explanation", "goal", "instruction",
     "instructions", "justification", "purpose", "reason", "reasoning", "securityrisk", "summary", "taskprogress",
     "thought", "title", "toolcallid"),
    ForeignParameter(),
)  # fmt: skip
_DRY_RUN = foreign(
    "false", way="There is no dry run. Every call is carried out, with the user's consent if that is needed."
)
_FOREIGN = {**REMARKS, **dict.fromkeys(("dryrun", "noop", "preview", "simulate", "validateonly", "whatif"), _DRY_RUN)}

BuiltinParamsT = TypeVar("BuiltinParamsT", bound=ToolParams)


class BuiltinTool(BaseTool[BuiltinParamsT], Generic[BuiltinParamsT]):
    """A tool whose arguments are renamed to canonical names and validated by a pydantic model.

    Subclasses set `params_model`, and `parameter_aliases` for other names of parameters.
    """

    is_builtin = True
    params_model: type[BuiltinParamsT]
    parameter_aliases: Mapping[str, str] = {}  # other accepted names, mapped to the published names
    # Parameters of similar tools in other programs
    foreign_parameters: Mapping[str, ForeignParameter] = {}

    @property
    def parameter_schema(self) -> Mapping[str, Any]:
        return self._published_schema

    @cached_property
    def _published_schema(self) -> Mapping[str, Any]:
        return published_schema(self._own_schema)

    @cached_property
    def _own_schema(self) -> Mapping[str, Any]:
        return full_schema(self.params_model)

    @cached_property
    def _plain_parameters(self) -> frozenset[str]:
        """The names of the parameters that are neither lists nor objects."""
        properties = self._own_schema["properties"]
        return frozenset(name for name in properties if properties[name].get("type") not in ("array", "object"))

    @cached_property
    def _spellings(self) -> Mapping[str, str]:
        own = {name: name for name in self._own_schema["properties"]}
        return {folded(name): canonical for name, canonical in {**own, **self.parameter_aliases}.items()}

    @cached_property
    def _foreign(self) -> Mapping[str, ForeignParameter]:
        return _FOREIGN | {folded(name): parameter for name, parameter in self.foreign_parameters.items()}

    def validate_tool_params(self, arguments: Mapping[str, Any]) -> BuiltinParamsT:
        """Rename parameters to their canonical names, validate the arguments, and run the tool's own checks.

        A tool that only reads ignores unknown arguments. Other tools refuse them, because an unknown argument may have
        been meant to limit a change. An unknown argument with a value like `false` requests nothing and is always
        ignored.
        """
        normalised, original_names = self._normalised(arguments)
        params = bind(self.name, self.params_model, self._own_schema, normalised)
        problem = next(iter(self.problems(params, original_names)), "")
        if not (problem or self.behaviour.read_only):
            problem = self._about_unknown(normalised, is_refused=True)
        if problem:
            raise InvalidToolParamsError(self.name, problem)
        return params

    def about_ignored(self, arguments: Mapping[str, Any]) -> str:
        """Return a note for the model that names the unknown arguments, including nested ones."""
        if arguments.keys() <= self._plain_parameters:
            return ""
        return self._about_unknown(self._normalised(arguments)[0], is_refused=False)

    def _normalised(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        renamed, original_names = rename(self.name, arguments, self._spellings, self._own_schema.get("required", ()))
        return self.normalise(renamed), original_names

    def _about_unknown(self, arguments: Mapping[str, Any], *, is_refused: bool) -> str:
        schema = self._own_schema
        return about_unknown(self.name, arguments, schema, self._spellings, self._foreign, is_refused=is_refused)

    def normalise(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Rewrite other accepted forms of the arguments that differ in more than names. Called before validation."""
        return arguments

    def problems(self, params: BuiltinParamsT, original_names: Mapping[str, str]) -> Iterable[str]:
        """Check what the schema cannot express. Yield what is wrong, or raise a `ToolError`; only the first one counts.

        `original_names` maps each parameter of the call to the name that the call used for it.
        """
        return ()
