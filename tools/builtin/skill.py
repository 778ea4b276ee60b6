"""`skill`: returns a skill's text and the location of its files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pydantic import Field

from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.call_options import AbortSignal
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import ToolResult
from tools.files.workspace import Workspace, is_inside
from tools.machine.threads import run_blocking
from tools.permissions.permission_policy import Rights
from tools.skill_folders import MAX_NAME_CHARS, MAX_SKILL_BYTES, RelayedSkill, SkillFolders, Skills
from tools.text.file_names import brief, shortened_line, shown_whole_path

MAX_LIST_CHARS = 2_400  # characters of skills' names and descriptions in the list of tools, about 600 tokens
MAX_ABOUT_CHARS = 200  # characters of one skill's description in the list of tools
MAX_LISTED = 50  # maximum number of skills listed in an error, and of files listed for an upstream's skill
SHORT_CHARS = 2  # words up to this length match almost anything
MAX_MATCHES = 5  # maximum number of skills that a search returns
MAX_REASONS = 10  # maximum number of reasons for unused skills in an error


class SkillParams(ToolParams):
    skill: str = Field(min_length=1, max_length=500, description="Its name.")


class SkillTool(BuiltinTool[SkillParams]):
    """Loads a skill. Skills differ between clients, so `tools/list` adds them to the description."""

    name = "skill"
    title = "Load skill"
    display_name = "Skill"
    aliases = ("activate_skill", "SkillTool", "Skill", "ActivateSkill")
    description = "Load a skill (instructions for a kind of task) before starting such a task."
    kind = ToolKind.READ
    behaviour = READS
    params_model = SkillParams
    parameter_aliases: Mapping[str, str] = {"name": "skill"}

    def __init__(self, folders: SkillFolders | None = None) -> None:
        self._folders = folders or SkillFolders()

    def get_description(self, params: SkillParams, context: ToolContext) -> str:
        return f"Load the skill {brief(params.skill)}"

    async def find_skills(
        self, workspace: Workspace, rights: Rights, relayed_skills: Iterable[RelayedSkill], signal: AbortSignal
    ) -> Skills:
        """Return the skills that a client with this workspace and these rights may load."""
        # Clients restricted to certain folders or scopes get no skills from the home folder.
        with_home = not rights.roots and rights.scopes is None
        skills = await run_blocking(signal, lambda: self._folders.find(workspace, with_home=with_home, signal=signal))
        for skill in relayed_skills:
            skills.add(skill)
        return skills

    async def execute(self, params: SkillParams, context: ToolContext) -> ToolResult:
        skills = await self.find_skills(context.workspace, context.rights, (), context.signal)
        name = shortened_line(params.skill, MAX_NAME_CHARS)
        # Fetching fresh lists may take a long time, so upstreams are queried only if no known list has the skill.
        for is_fresh in (False, True):
            for skill in await context.relayed_skills(is_fresh) if name not in skills.by_name else ():
                skills.add(skill)
        skill = skills.by_name.get(name)
        if skill is None:
            similar_names = difflib.get_close_matches(params.skill, skills.by_name, n=3, cutoff=0.5)
            known_names = [*dict.fromkeys((*similar_names, *skills.by_name))]
            overflow = f" and {len(known_names) - MAX_LISTED} more" if len(known_names) > MAX_LISTED else ""
            available = f"{', '.join(known_names[:MAX_LISTED]) or 'none'}{overflow}"
            message = f"There is no skill '{brief(params.skill)}'. Available: {available}."
            raise ToolError(ToolErrorType.INVALID_TOOL_PARAMS, " ".join([message, *skills.problems[:MAX_REASONS]]))
        if isinstance(skill, RelayedSkill):
            text = await skill.read()
            if len(text) > MAX_SKILL_BYTES:
                raise ToolError(
                    ToolErrorType.FILE_TOO_LARGE,
                    f"The skill {skill.name} was not loaded: its text has {len(text):,} characters, more than the "
                    f"limit of {MAX_SKILL_BYTES:,}. Read the resource {brief(skill.uri)} instead, or continue "
                    "without it.",
                )
            files = "".join(f"\n- {brief(uri)}" for uri in skill.files[:MAX_LISTED])
            location = f"The skill's address is {brief(skill.uri)}. Its files, as resources:{files or ' none.'}"
            return ToolResult(f"{text}\n\n---\n{location}", return_display=f"Loaded the skill {skill.name}")
        location = f"The skill is in {shown_whole_path(skill.folder)}."
        client, reason = context.client, ""  # why the client's file tools cannot read the folder
        if not is_inside(skill.folder, context.workspace.roots):
            if client.is_anonymous:
                reason = "this client sends no session ID or token, so nothing is kept for it"
            elif not skill.is_in_skills_folder:
                reason = "a symlink leads to this folder, and only folders inside a 'skills' folder are opened"
            else:
                client.skill_folders = tuple(dict.fromkeys((*client.skill_folders, skill.folder)))
        if reason:
            location += f" File tools cannot read it: {reason}."
        else:
            names, has_more = await run_blocking(context.signal, lambda: skill.files(context.signal))
            location += f" Read its files by their path, such as {shown_whole_path(os.path.join(skill.folder, '...'))}."
            location += " Its other files:" + ("".join(f"\n- {shown_whole_path(name)}" for name in names) or " none")
            location += "\n- and more" if has_more else ""
        return ToolResult(f"{skill.text}\n\n---\n{location}", return_display=f"Loaded the skill {skill.name}")


def describe_skills(skills: Skills, *, has_search: bool) -> str:
    """List skills for the tool description: names with descriptions while there is room, then names alone.

    `has_search` says whether the client's list also has `search_tools`.
    """
    lines: list[str] = []
    all_skills = list(skills.by_name.values())
    hint = "search_tools finds them" if has_search else "to find one, try a likely name"
    room = MAX_LIST_CHARS - len(f" Skills:\nOthers: , and 10000 more; {hint}.")
    name_chars_left = sum(len(skill.name) + 2 for skill in all_skills)
    for skill in all_skills:
        line = f"\n- {skill.name}: {skill.description[:MAX_ABOUT_CHARS]}"
        if len(line) + name_chars_left - len(skill.name) - 2 > room:
            break
        lines.append(line)
        room, name_chars_left = room - len(line), name_chars_left - len(skill.name) - 2
    rest = [skill.name for skill in all_skills[len(lines) :]]
    names = ", ".join(rest)
    if len(names) > room:
        fitting_names = names[:room].rpartition(", ")[0]
        count = len(rest) - (fitting_names.count(", ") + 1 if fitting_names else 0)
        names = f"{fitting_names}, and {count} more; {hint}"
    return " Skills:" + "".join(lines) + (f"\nOthers: {names}." if rest else "") if all_skills else ""


def add_skills(search_result: ToolResult, skills: Skills, query: str) -> ToolResult:
    """Extend the result of a tool search with the skills that match words of the query."""
    words = {word for word in query.casefold().split() if len(word) > SHORT_CHARS}
    texts = {name: f"{name} {skill.description}".casefold() for name, skill in skills.by_name.items()}
    scores = {name: sum(word in text for word in words) for name, text in texts.items()}
    best = sorted(filter(scores.__getitem__, scores), key=lambda name: -scores[name])[:MAX_MATCHES]
    if not best:
        return search_result
    lines = [f"{name}: {skills.by_name[name].description[:MAX_ABOUT_CHARS]}" for name in best]
    text = "\n".join([str(search_result.llm_content), "Skills (load them with the skill tool):", *lines])
    return replace(search_result, llm_content=text, structured={**(search_result.structured or {}), "skills": best})
