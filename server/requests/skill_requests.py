"""The skills that a client may load, including those of upstreams."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from server.clients.client_request import exchange_of, rights_of
from server.clients.client_workspaces import ask_roots
from server.protocol.json_rpc import Json, as_list, as_mapping
from server.protocol.protocol_errors import METHOD_NOT_FOUND, MCPError
from server.protocol.request_table import RequestContext
from server.requests.call_contexts import Client, Contexts
from server.upstreams.upstream_router import UpstreamRouter
from tools.builtin.skill import SkillTool
from tools.call.tool_registry import ToolRegistry
from tools.contract.limits import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.permissions.permission_policy import PermissionPolicy
from tools.skills.skill_folders import MAX_ABOUT_CHARS, MAX_NAME_CHARS, RelayedSkill, Skills
from tools.text.file_names import shortened_line

logger = logging.getLogger(__name__)
SKILL = SkillTool.name


@dataclass(frozen=True, slots=True)
class SkillRequests:
    registry: ToolRegistry
    policy: PermissionPolicy
    contexts: Contexts
    router: UpstreamRouter
    told: set[str] = field(default_factory=set[str])  # problems with skills, already logged

    async def known(self, client: Client, ctx: RequestContext) -> Skills:
        """Return the known skills for a client, without asking the client or an upstream."""
        tool = self.registry.find(SKILL)
        folders, rights = client.folders, rights_of(ctx)
        if not isinstance(tool, SkillTool) or self.policy.why_not_offered(tool.traits, rights) is not None:
            return Skills()
        exchange = exchange_of(ctx, client.state.key)
        if folders.roots is None and (exchange.is_modern or exchange.capabilities.get("roots") is None):
            await ask_roots(folders, exchange)  # returns at once, because this client cannot list roots
        workspace = self.contexts.workspaces.workspace(folders.roots, rights=rights)
        try:
            skills = await tool.known(workspace, rights, await self.relayed(ctx, False), AbortSignal())
        except ToolError:  # a temporary lack of resources must not break the tool list
            return Skills()
        for why in skills.unused:
            if why not in self.told:
                self.told.add(why)
                logger.warning("skills: %s", why)
        return skills

    async def relayed(self, ctx: RequestContext, is_fresh: bool) -> list[RelayedSkill]:
        """Return the upstreams' skills: the current ones if `is_fresh` is true, otherwise those already known."""
        if not self.router.pool.upstreams:
            return []
        return [self._relayed(ctx, skill) for skill in await self.router.skills(ctx, is_fresh=is_fresh)]

    def _relayed(self, ctx: RequestContext, skill: Json) -> RelayedSkill:
        uri, frontmatter = str(skill.get("uri")), as_mapping(skill.get("frontmatter"))
        uris = [as_mapping(file).get("uri") for file in as_list(skill.get("resources"))]

        async def read() -> str:
            asked = replace(ctx, method="resources/read", params={"uri": uri})
            try:
                parts = as_list(as_mapping(await self.router(asked, _nobody)).get("contents"))
            except MCPError as error:
                raise ToolError(ToolErrorType.UPSTREAM_UNAVAILABLE, f"The skill was not read: {error}") from None
            texts = [text for text in (as_mapping(part).get("text") for part in parts) if isinstance(text, str)]
            if not texts:
                raise ToolError(
                    ToolErrorType.UPSTREAM_UNAVAILABLE,
                    f"The server of the skill returned no text for {uri}. Read that resource directly, or continue "
                    "without it.",
                )
            return "\n".join(texts)

        return RelayedSkill(
            shortened_line(str(frontmatter.get("name") or uri.split("/")[-2:][0]), MAX_NAME_CHARS),
            shortened_line(" ".join(str(frontmatter.get("description") or "").split()), MAX_ABOUT_CHARS),
            uri,
            [each for each in uris if isinstance(each, str) and each != uri],
            read,
        )


async def _nobody(_ctx: RequestContext) -> Mapping[str, Any]:
    raise MCPError(METHOD_NOT_FOUND, "No server has this resource.")
