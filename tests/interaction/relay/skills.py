"""Skills as servers serve them: their entries, files and folders, consistent with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tests.interaction.relay.clients import Json, scripted_entry

EXTENSION = "io.modelcontextprotocol/skills"
BODY = "---\nname: {name}\ndescription: How to {name}\n---\n\nRead references/MORE.md.\n"


def skill_uri(name: str) -> str:
    return f"skill://{name}/SKILL.md"


def files_of(name: str, server: str) -> dict[str, str]:
    """Return the files of a skill by their URIs. The text of MORE.md names the server."""
    return {skill_uri(name): BODY.format(name=name), f"skill://{name}/references/MORE.md": f"more of {server}"}


def entry_of(name: str, files: Mapping[str, str]) -> Json:
    """Return a skill's entry in the list of skills."""
    resources = [
        {"uri": uri, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", "size": len(text.encode())}
        for uri, text in files.items()
    ]
    frontmatter = {"name": name, "description": f"How to {name}"}
    return {"uri": skill_uri(name), "frontmatter": frontmatter, "resources": resources}


def skill_server(
    name: str,
    era: str,
    *skills: str,
    extra_entries: Mapping[str, Json] | None = None,
    directories: bool = True,
    tale: str = "",
    silent: Sequence[str] = (),
) -> Json:
    """Return a settings entry for a server with these skills, which it also lists as resources.

    Args:
        name: The name of the server.
        era: The era of the protocol that it speaks.
        skills: Names of its skills.
        extra_entries: Further entries of its list of skills by their URIs. They replace entries with the same URI.
        directories: Whether it lists the files in a folder.
        tale: A file to which it writes each method that it gets.
        silent: Methods that it never answers.
    """
    files = {skill: files_of(skill, name) for skill in skills}
    entries = {skill_uri(skill): entry_of(skill, skill_files) for skill, skill_files in files.items()} | dict(
        extra_entries or {}
    )
    texts = {uri: text for skill_files in files.values() for uri, text in skill_files.items()}
    resources = [
        {"uri": skill_uri(skill), "name": skill, "description": f"How to {skill}", "mimeType": "text/markdown"}
        for skill in skills
    ]
    folders: Json = {}
    for skill in skills:
        subfolder = {"uri": f"skill://{skill}/references", "name": "references", "mimeType": "inode/directory"}
        top = [resource for resource in resources if resource["name"] == skill]
        folders[f"skill://{skill}"] = {"resources": [*top, subfolder]}
        inner = {"uri": f"skill://{skill}/references/MORE.md", "name": "MORE.md", "mimeType": "text/markdown"}
        folders[f"skill://{skill}/references"] = {"resources": [inner]}
    answers: Json = {
        "skills/list": {"skills": list(entries.values())},
        "skills/get": {uri: {"skill": entry} for uri, entry in entries.items()},
        "resources/list": {"resources": resources},
        "resources/read": {
            uri: {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": text}]} for uri, text in texts.items()
        },
        **({"resources/directory/read": folders} if directories else {}),
    }
    capabilities = {"extensions": {EXTENSION: {"directoryRead": True} if directories else {}}}
    orders: Json = {"silent": silent, **({"tale": tale} if tale else {})}
    return scripted_entry(name, era, capabilities=capabilities, answers=answers, **orders)
