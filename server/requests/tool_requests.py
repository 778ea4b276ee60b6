"""Handles `tools/list` and `tools/call`, and provides the server's instructions and the skills."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from server.clients.client_request import WELCOMES, Exchange, exchange_of, rights_of
from server.clients.client_workspaces import learn_roots
from server.protocol.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, Json, MCPError, ReadyList, as_list, as_mapping
from server.protocol.request_table import NEVER_CACHED, CallNext, McpConnection, RequestContext, check_params
from server.questions.client_confirmer import (
    QUESTION_KEY,
    AlreadyConsented,
    ClientConfirmer,
    ConsentPolicy,
    with_marked_answer,
)
from server.requests.call_contexts import Client, ClientTable, Contexts
from server.requests.recent_calls import show_as
from server.requests.tool_search import CALL, SEARCH, ToolSearch
from server.requests.tool_services import CustomTools
from server.requests.wire_results import DisplayPlace, result_to_wire, tool_to_wire
from server.settings import SettingsReport
from server.upstreams.catalog.published_names import SEARCH_NAMES, full_name
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool, is_for, with_app_links
from server.upstreams.connections.connection import LOGIN_TOOL, Upstream, UpstreamState
from server.upstreams.connections.pool import PROXY_WAIT_SECONDS
from server.upstreams.connections.tool_owner import owner_of, owner_of_tool, wait_for_owner, why_not_used
from server.upstreams.relay.relayed_results import protocol_error
from server.upstreams.relay.request_relay import MAX_LOGINS, CallContext
from server.upstreams.resource_and_prompt_router import ResourceAndPromptRouter
from server.upstreams.session.list_reader import TOOLS
from server.upstreams.wire.origin_meta import chain_of, list_meta, listed_for
from tools.builtin.skill import SkillTool, add_skills, describe_skills
from tools.call.base_tool import BaseTool, ToolContext
from tools.call.tool_registry import ToolRegistry
from tools.call.tool_runner import ToolRunner
from tools.contract.call_options import AbortSignal, ApprovalMode
from tools.contract.confirmation import Question
from tools.contract.display import visible_line
from tools.contract.tool_errors import ToolError, ToolErrorType, ToolNotRegisteredError
from tools.contract.tool_results import FunctionCall, ToolResult
from tools.permissions.permission_policy import ALL_RIGHTS, READ, RUN, WRITE, Rights
from tools.permissions.tool_names import DELEGATING
from tools.skill_folders import MAX_ABOUT_CHARS, MAX_NAME_CHARS, RelayedSkill, Skills
from tools.text.file_names import shortened_line, shown_path

logger = logging.getLogger(__name__)

MAX_NAMED = 5  # maximum number of tools that an error suggests
MAX_SHOWN_ROOTS = 5  # maximum number of the operator's folders to name in the instructions; the others are counted
MAX_LISTINGS = 256  # maximum number of cached lists: tokens may have many different rights
ListKey = tuple[bool, bool, bool, bool, bool, str, Rights]
"""What a cached list depends on: whether the client is in plan mode, may enter plan mode, shows forms, uses tool
search, and uses the 2026-07-28 revision; its skills; and its rights.
"""
EXIT_PLAN_MODE = "exit_plan_mode"  # listed only in plan mode
ENTER_PLAN_MODE = "enter_plan_mode"  # listed outside plan mode, if a person can be asked to end it
ASK_USER_QUESTION = "ask_user_question"  # listed for clients that can show forms
SKILL = SkillTool.name  # listed if there are skills

NO_AGENTS = (
    f"Tool '{DELEGATING}' does not exist, because no agent is configured. Do the work yourself; with the "
    "agents setting, the operator can configure programs that run tasks."
)
"""The error for models that know the tool from another program."""

_FOR_FILES: Mapping[str, Sequence[str]] = {
    "find": ("list_directory", "glob", "grep_search"),
    "read": ("read_file", "read_many_files"),
    "change": ("edit", "write_file"),
}
_COMMANDS = "run_shell_command"
_ASKED: Mapping[ApprovalMode, str] = {
    ApprovalMode.PLAN: "only reading and searching are possible",
    ApprovalMode.DEFAULT: "anything that changes something or leaves this machine may need the user's consent",
    ApprovalMode.AUTO_EDIT: "commands may need the user's consent; edits and web access rarely do",
    ApprovalMode.YOLO: "almost nothing needs the user's consent",
}
_CONFINED = (
    "change nothing outside the workspace except /tmp (private to this session, shared with file tools), see no "
    "secrets, and have network access only if the user allows it. Commands that only read run without asking the "
    "user; others may need the user's approval."
)


@dataclass(frozen=True, slots=True)
class ToolRequests:
    registry: ToolRegistry
    runner: ToolRunner
    clients: ClientTable
    contexts: Contexts
    consent: ConsentPolicy
    router: ResourceAndPromptRouter
    search: ToolSearch
    custom_tools: CustomTools
    is_built_in: bool
    display: DisplayPlace
    report: Callable[[], SettingsReport]  # returns the current settings
    modes_changed: Callable[[Sequence[McpConnection]], Awaitable[None]]
    listings: dict[ListKey, dict[str, Any]] = field(default_factory=dict["ListKey", dict[str, Any]])
    logged_problems: set[str] = field(default_factory=set[str])  # the skill problems that have been logged

    async def on_list(self, ctx: RequestContext) -> Mapping[str, Any]:
        client, meta = self.clients.find(ctx), as_mapping(as_mapping(ctx.params).get("_meta"))
        is_from_proxy, pool = bool(chain_of(meta)), self.router.pool
        await pool.wait_for_first_list(PROXY_WAIT_SECONDS if is_from_proxy else None, is_live=is_from_proxy)
        if (discovery := self.custom_tools.discovery) is not None:
            await discovery.wait_for_first_list()
        await pool.before_list("tools")
        # An anonymous client could not leave plan mode, because its state is not kept between requests.
        plans = client.state.approval_mode is ApprovalMode.PLAN and not client.state.is_anonymous
        may_plan = not (plans or client.state.is_anonymous) and self.consent.can_ask(ctx)
        shows_forms, uses_search, rights = self.consent.shows_forms(ctx), self.search.is_on(ctx), rights_of(ctx)
        skills = Skills() if is_from_proxy else await self.known_skills(client, ctx)
        skills_text = describe_skills(skills, has_search=uses_search)
        cache_key = plans, may_plan, shows_forms, uses_search, ctx.connection.is_modern, skills_text, rights
        if not is_from_proxy and (listing := self.listings.get(cache_key)) is not None:
            return listing
        visible_tools = self.offered_tools(
            plans=plans, may_plan=may_plan, shows_forms=shows_forms, has_skills=bool(skills_text), rights=rights
        )
        if is_from_proxy:
            # The client is another coretools-mcp, which decides about calls based on the definitions in this list, so
            # none of them may be from this server's previous run.
            for upstream in pool.upstreams:
                upstream.is_withheld = TOOLS.field in upstream.offer.stored
            withheld = [upstream for upstream in pool.upstreams if upstream.is_withheld]
            visible_tools = [tool for tool in visible_tools if owner_of_tool(pool, tool) not in withheld]
        if uses_search:
            visible_tools = [tool for tool in visible_tools if not self.search.is_hidden(tool)]
        tools = [*map(self._tool_entry, visible_tools), *(self.search.tool_entries(rights) if uses_search else ())]
        for wire, tool in zip(tools, visible_tools, strict=False):
            if tool.is_builtin and tool.name == SKILL:
                wire["description"] += skills_text
        if not ctx.connection.is_modern and any("outputSchema" in tool for tool in tools):
            from server.protocol.item_schemas import for_handshake  # noqa: PLC0415 - loaded only with upstreams

            tools = list(map(for_handshake, tools))
        if is_from_proxy:
            return {"tools": listed_for(meta, tools), **NEVER_CACHED, **list_meta(meta)}
        if len(self.listings) >= MAX_LISTINGS:
            self.listings.clear()
        listing = self.listings[cache_key] = {"tools": ReadyList(listed_for({}, tools)), **NEVER_CACHED}
        return listing

    def _tool_entry(self, tool: BaseTool[Any]) -> dict[str, Any]:
        owner, wire = owner_of_tool(self.router.pool, tool), tool_to_wire(tool)
        return wire if owner is None else with_app_links(wire, partial(self.router.published_uri, owner))

    def offered_tools(
        self,
        *,
        plans: bool,
        shows_forms: bool,
        may_plan: bool = False,
        has_skills: bool = False,
        rights: Rights = ALL_RIGHTS,
    ) -> list[BaseTool[Any]]:
        """Return the tools that a client would see, given its mode, capabilities, skills and rights."""
        conditions = {
            EXIT_PLAN_MODE: plans,
            ENTER_PLAN_MODE: may_plan,
            ASK_USER_QUESTION: shows_forms,
            SKILL: has_skills,
        }
        hidden_names = {name for name, is_useful in conditions.items() if not is_useful}
        tools = [tool for tool in self.registry.get_all_tools() if tool.is_listed]
        if self.is_built_in:  # without built-in tools, upstreams can use these names
            tools = [tool for tool in tools if tool.name not in hidden_names]
        return [tool for tool in tools if self.runner.policy.why_not_offered(tool.traits, rights) is None]

    def instructions(self, rights: Rights, report: SettingsReport) -> str | None:
        """Return the instructions for a client with these rights, which name only tools that it may use.

        They consist of the server's own text and the operator's descriptions of upstreams; `None` if there is neither.
        """
        tool_names = {tool.name for tool in self.offered_tools(plans=False, shows_forms=False, rights=rights)}
        settings, texts = report.settings, list[str]()
        # Without built-in tools there is no workspace.
        if settings.tools.built_in and (rights.scopes is None or rights.scopes & {READ, WRITE, RUN}):
            mode = settings.approval_mode
            folders = rights.roots or settings.workspace.roots
            roots = [shown_path(root) for root in folders[:MAX_SHOWN_ROOTS]]
            if not roots:
                workspace = (
                    "the folders that the client opens (its roots), or else the folder that the server was started in"
                )
            else:
                extra = len(folders) - len(roots)
                workspace = ", ".join(roots) + (f" and {extra} more" if extra else "")
                if settings.workspace.client_roots == "intersect":
                    workspace += ", limited to what the client opens (its roots)"
            sentences = [
                *_purpose_sentences(tool_names),
                f"The workspace: {workspace}. Paths are absolute or relative to its first folder.",
                "Large results are cut, and say how to get the rest.",
                f"Approval mode {mode}: {_ASKED[mode]}. A refused call had no effect; do not repeat it unchanged.",
            ]
            if _COMMANDS in tool_names and settings.shell.sandbox == "required":
                sentences.append(f"Commands run confined: they {_CONFINED}")
            elif _COMMANDS in tool_names and settings.shell.sandbox == "auto":
                # The sandbox is tested only when the first command runs. Until then, assume that it works if bubblewrap
                # is installed. Before bubblewrap runs, another check rejects a `bwrap` inside a workspace.
                path = f"/usr/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
                if shutil.which("bwrap", path=path) is not None:
                    sentences.append(f"If commands run confined, they {_CONFINED}")
            texts.append(" ".join(sentences))
        descriptions = [
            f"{alias}__*: {entry.description}" if entry.prefix == "alias" else f"{alias}: {entry.description}"
            for alias, entry in report.upstreams.items()
            if entry.description and not rights.missing_for_server(alias)
        ]
        if descriptions:
            texts += ["Tools of other servers:", *descriptions]
        return "\n".join(texts) or None

    async def dispatch(self, ctx: RequestContext, call_next: CallNext) -> Any:
        """A middleware that starts tool calls, and gives clients with limited rights their own instructions."""
        if "inputResponses" in (ctx.params or {}):
            ctx = with_marked_answer(ctx)
        method, params = ctx.method, ctx.params or {}
        if method in WELCOMES and (rights := rights_of(ctx)) is not ALL_RIGHTS:
            welcome = dict(as_mapping(await call_next(ctx)))
            welcome.pop("instructions", None)
            if instructions := self.instructions(rights, self.report()):  # clients do not accept `null`
                welcome["instructions"] = instructions
            return welcome
        is_call = method == "tools/call" and ctx.connection.is_open
        if is_call and params.get("name") in SEARCH_NAMES and self.search.is_on(ctx, is_call=True):
            if params["name"] != CALL:
                return await self._search(ctx, params)
            self.clients.find(ctx)  # the first request of a client starts the upstreams
            # From here on, this is a call to the named tool, in each of its rounds.
            try:
                params = await self.search.unwrap(params, rights_of(ctx))
            except ToolError as error:
                return result_to_wire(CALL, ToolResult.failed(error), self.display, ctx.connection.protocol_version)
            ctx = replace(ctx, params=params)
            show_as(params)
        if is_call and not isinstance(arguments := params.get("arguments"), dict | None):
            kinds = ((list, "an array"), (str, "a string"), (bool, "a boolean"))
            sent_kind = next((noun for kind, noun in kinds if isinstance(arguments, kind)), "a number")
            message = f'The arguments of a call must be an object, such as {{"path": "src"}}, but {sent_kind} was sent.'
            raise MCPError(INVALID_PARAMS, message)
        if not is_call or not isinstance(name := params.get("name"), str):
            return await call_next(ctx)
        owner = owner_of(self.router.pool, name)
        if owner is None:  # an upstream checks the parameters of its calls itself
            check_params(method, ctx.connection.protocol_version, params)
        return await self.on_call(ctx, owner)

    async def _search(self, ctx: RequestContext, params: Mapping[str, Any]) -> dict[str, Any]:
        client, name, arguments = self.clients.find(ctx), params["name"], as_mapping(params.get("arguments"))
        try:
            with client:
                outcome = await self.search.answer(
                    name, arguments, lambda tool: listed_for({}, [self._tool_entry(tool)])[0], rights_of(ctx)
                )
                if name == SEARCH:
                    outcome = add_skills(outcome, await self.known_skills(client, ctx), str(arguments.get("query")))
        except ToolError as error:
            outcome = ToolResult.failed(error)
        return result_to_wire(name, outcome, self.display, ctx.connection.protocol_version)

    async def on_call(self, ctx: RequestContext, owner: Upstream | None = None) -> Mapping[str, Any]:
        """Run a call to a tool of this server or of an upstream; if the call has several rounds, run the next one."""
        params, client = ctx.params or {}, self.clients.find(ctx)
        call = FunctionCall(params["name"], params.get("arguments") or {})
        mode, exchange, rights = client.state.approval_mode, None, rights_of(ctx)
        try:
            if owner is not None:
                target = await self._prepare_upstream(ctx, call, owner, exchange_of(ctx, client.state.key))
                if isinstance(target, ToolResult):
                    return result_to_wire(call.name, target, self.display, ctx.connection.protocol_version)
                owner, exchange = target
            with client:  # counts this call; refuses it if a network client has too many
                if exchange is None:
                    context = await self._own_context(ctx, client, call.name)
                else:
                    context = self.contexts.for_upstream_call(client, exchange)
                is_resumed = exchange is not None and exchange.is_resumed
                confirmer = AlreadyConsented() if is_resumed else ClientConfirmer(self.consent, ctx, client.state.key)
                has_answer = is_resumed or QUESTION_KEY in as_mapping(params.get("inputResponses"))
                tool = self.registry.find(call.name)
                if isinstance(tool, DiscoveredMCPTool) and self._is_offered(rights, call.name):
                    tool = await self._version_for(tool, owner, exchange)
                outcome = await self.runner.run(call, context, confirmer, has_answer=has_answer, tool=tool)
            if owner is not None and isinstance(context, CallContext) and context.protocol_errors:
                raise protocol_error(context.protocol_errors[0], owner.alias, exchange)
        except ToolNotRegisteredError:
            outcome = ToolResult.failed(await self._missing_error(call.name, owner, rights))
        except ToolError as error:
            outcome = ToolResult.failed(error)
        if owner is None and client.state.approval_mode is not mode:  # upstreams cannot change the mode
            await self.modes_changed(list(client.connections))
        if isinstance(outcome, Question):
            return self.consent.input_required(outcome, client.state.key, ctx.connection.protocol_version)
        if outcome.verbatim is not None and not outcome.note:
            return outcome.verbatim
        return result_to_wire(call.name, outcome, self.display, ctx.connection.protocol_version)

    async def _version_for(
        self, tool: DiscoveredMCPTool, owner: Upstream | None, exchange: Exchange | None
    ) -> DiscoveredMCPTool:
        """Return the version of a tool by which a client's call is judged: the one that its own session lists."""
        if owner is None or exchange is None or owner.is_login_offered:
            return tool
        return await self.router.relay.as_listed_to(tool, owner, exchange)

    async def _own_context(self, ctx: RequestContext, client: Client, name: str) -> ToolContext:
        # A client may know a tool from an earlier run, so wait for the first discovery.
        if (discovery := self.custom_tools.discovery) is not None and self.registry.find(name) is None:
            await discovery.finished.wait()
        tool = self.registry.find(name)
        builtin = tool.name if tool is not None and tool.is_builtin else ""
        if builtin == ENTER_PLAN_MODE and not self.consent.can_ask(ctx):
            # Only a person's approval ends plan mode, so without a person, plan mode would never end.
            raise ToolError(
                ToolErrorType.EXECUTION_DENIED,
                "Plan mode was not entered: this client cannot show questions (form elicitation), so nobody could "
                "approve the plan. Write your plan as an answer, and change nothing before the user agrees.",
            )
        context = await self.contexts.for_request(client, ctx)
        return replace(context, relayed_skills=partial(self.relayed_skills, ctx)) if builtin == SKILL else context

    async def _prepare_upstream(
        self, ctx: RequestContext, call: FunctionCall, owner: Upstream, exchange: Exchange
    ) -> tuple[Upstream, Exchange] | ToolResult:
        """Prepare the upstream that a call goes to, with a login if needed.

        Returns the upstream and the request to continue with, or a result to send to the client instead.
        """
        if "requestState" in exchange.params:
            exchange = await self.router.relay.resumed(ctx.method, exchange)
        is_bare = self.router.pool.catalog.names.find(call.name) is None
        if not owner.tried.is_set() or owner.entry.prefix == "none" or is_bare:  # another server may own the name
            if self.registry.find(call.name) is not None and not self._is_offered(exchange.rights, call.name):
                return owner, exchange  # the runner refuses the call
            owner = await wait_for_owner(self.router.pool, call.name, owner)
        status = owner.status
        if status.challenge is not None and status.state is UpstreamState.CONNECTING:
            await owner.reconnect()  # only a connected upstream shows whether it still requires a login
        if owner.wants_login or "login" in exchange.carried:
            logged_in = await self._log_in(ctx, call, owner, exchange)
            if isinstance(logged_in, ToolResult):
                return logged_in
            exchange = logged_in
        if TOOLS.field in owner.offer.stored:
            raise owner.unavailable()  # never ask a person about a definition that is from the last run
        return owner, exchange

    async def _missing_error(self, name: str, owner: Upstream | None, rights: Rights) -> ToolError:
        """Return why a tool is unavailable; raises `MCPError` if no tool or several tools have this name."""
        pool = self.router.pool
        unused_error = why_not_used(pool, name)
        if owner is not None and owner.live_session is None:
            return unused_error or owner.unavailable()  # a tool of a failed upstream is unavailable, not unknown
        if owner is not None and name in pool.catalog.vanished.get(owner.alias, ()):
            return ToolError(
                ToolErrorType.TOOL_NOT_REGISTERED,
                f"The server {owner.alias} no longer has a tool '{name}': your list of tools is out of date. "
                "Nothing was done; list the tools again.",
            )
        if unused_error is not None:
            return unused_error
        if owner is None:
            await pool.wait_for_first_list()  # the name may belong to an upstream tool
            candidates = list(filter(partial(self._is_offered, rights), pool.catalog.tools_for_apps(name)))[:MAX_NAMED]
            if len(candidates) > 1:
                problem = f"More than one server has a tool '{visible_line(name)}' for its apps, so none was called. "
                names = " or ".join(map(visible_line, candidates))
                raise _unknown(candidates, f"{problem}Use one of these names: {names}.")
        error = self.registry.not_registered(name, partial(self._is_suggestible, rights))
        is_of_agents = owner is None and name == DELEGATING and self.is_built_in
        raise _unknown(error.nearest, NO_AGENTS if is_of_agents else error.message)

    def _is_suggestible(self, rights: Rights, tool: BaseTool[Any]) -> bool:
        is_for_apps = isinstance(tool, DiscoveredMCPTool) and not is_for("model", tool.definition)
        return not is_for_apps and self.runner.policy.why_not_offered(tool.traits, rights) is None

    def _is_offered(self, rights: Rights, name: str) -> bool:
        tool = self.registry.find(name)
        return tool is not None and self.runner.policy.why_not_offered(tool.traits, rights) is None

    async def _log_in(
        self, ctx: RequestContext, call: FunctionCall, owner: Upstream, exchange: Exchange
    ) -> Exchange | ToolResult:
        """Have the user log in to a call's upstream. Returns the request to continue with, or the result to send."""
        is_permitted = not self.router.relay.why_denied(owner.alias, exchange.rights)
        # The server may have a tool of its own with the same name as the login tool.
        is_ours = owner.is_login_offered or bool(exchange.carried.get("ours"))
        for _ in range(MAX_LOGINS):
            # A login that began before the user consented to the call is continued even if the upstream no longer
            # requires a login; a later one is not.
            is_resumed = "login" in exchange.carried and not exchange.carried.get("consented")
            if not is_permitted or not (owner.wants_login or is_resumed):
                break
            question = await self.router.relay.log_in(owner, owner.login_needed(), ctx.method, exchange)
            if question is not None:
                return ToolResult(verbatim=question)
            exchange = exchange.after_login()
        is_ours = is_ours or self.registry.find(call.name) is None
        if call.name != full_name(owner.alias, LOGIN_TOOL) or not is_ours or owner.live_session is None:
            return exchange
        count = len(owner.offer.items(TOOLS))
        return ToolResult(f"The user is logged in to {owner.alias}, which now lists its tools ({count}).")

    async def known_skills(self, client: Client, ctx: RequestContext) -> Skills:
        """Return the known skills for a client, without asking the client or an upstream."""
        tool = self.registry.find(SKILL)
        folders, rights = client.folders, rights_of(ctx)
        if not isinstance(tool, SkillTool) or self.runner.policy.why_not_offered(tool.traits, rights) is not None:
            return Skills()
        exchange = exchange_of(ctx, client.state.key)
        if folders.roots is None and (exchange.is_modern or exchange.capabilities.get("roots") is None):
            await learn_roots(folders, exchange)  # returns at once, because this client cannot list roots
        try:
            workspace = self.contexts.workspaces.workspace(folders.roots, rights=rights)
            skills = await tool.find_skills(workspace, rights, await self.relayed_skills(ctx, False), AbortSignal())
        except ToolError:  # a temporary lack of resources must not break the tool list
            return Skills()
        for problem in skills.problems:
            if problem not in self.logged_problems:
                self.logged_problems.add(problem)
                logger.warning("skills: %s", problem)
        return skills

    async def relayed_skills(self, ctx: RequestContext, is_fresh: bool) -> list[RelayedSkill]:
        """Return the upstreams' skills: the current ones if `is_fresh` is true, otherwise those already known."""
        if not self.router.pool.upstreams:
            return []
        return [self._relayed_skill(ctx, skill) for skill in await self.router.skills(ctx, is_fresh=is_fresh)]

    def _relayed_skill(self, ctx: RequestContext, skill: Json) -> RelayedSkill:
        uri, frontmatter = str(skill.get("uri")), as_mapping(skill.get("frontmatter"))
        uris = [as_mapping(file).get("uri") for file in as_list(skill.get("resources"))]

        async def read() -> str:
            request = replace(ctx, method="resources/read", params={"uri": uri})
            try:
                parts = as_list(as_mapping(await self.router(request, _nobody)).get("contents"))
            except MCPError as error:
                raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, f"The skill was not read: {error}") from None
            texts = [text for text in (as_mapping(part).get("text") for part in parts) if isinstance(text, str)]
            if not texts:
                raise ToolError(
                    ToolErrorType.UPSTREAM_UNAVAILABLE,
                    f"The skill's server returned no text for {uri}. Read that resource directly, or continue "
                    "without it.",
                )
            return "\n".join(texts)

        return RelayedSkill(
            shortened_line(str(frontmatter.get("name") or uri.split("/")[-2:][0]), MAX_NAME_CHARS),
            shortened_line(" ".join(str(frontmatter.get("description") or "").split()), MAX_ABOUT_CHARS),
            uri,
            [file_uri for file_uri in uris if isinstance(file_uri, str) and file_uri != uri],
            read,
        )


def _purpose_sentences(tool_names: Collection[str]) -> Iterator[str]:
    names = {verb: [name for name in candidates if name in tool_names] for verb, candidates in _FOR_FILES.items()}
    parts = [f"{_enumerated(group)} {verb if len(group) > 1 else f'{verb}s'}" for verb, group in names.items() if group]
    if parts:
        yield f"Tools for workspace files: {', '.join(parts)}."
    if _COMMANDS in tool_names:
        yield f"{_COMMANDS} runs commands, optionally in the background."
    web = [name for name in ("web_search", "web_fetch") if name in tool_names]
    if web:
        yield f"{_enumerated(web)} {'reach' if len(web) > 1 else 'reaches'} the web."
    kept_content = {"save_memory": "facts for later conversations", "todo_write": "the current plan"}
    keeps = [f"{name} keeps {content}" for name, content in kept_content.items() if name in tool_names]
    if keeps:
        yield f"{', '.join(keeps)}."


def _enumerated(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _unknown(nearest: Sequence[str], message: str) -> MCPError:
    return MCPError(INVALID_PARAMS, message, {"nearest": list(nearest)})


async def _nobody(_ctx: RequestContext) -> Mapping[str, Any]:
    raise MCPError(METHOD_NOT_FOUND, "No server has this resource.")
