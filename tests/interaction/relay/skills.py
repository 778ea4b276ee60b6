"""Skills as servers serve them: entries, files and folders that fit each other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from tests.interaction.relay.clients import Json, scripted_entry

EXTENSION = "io.modelcontextprotocol/skills"
BODY = "---\nname: {name}\ndescription: How to {name}\n---\n\nRead references/MORE.md.\n"


def skill_uri(name: str) -> str:
    return f"skill://{name}/SKILL.md"


def files_of(name: str, server: str) -> dict[str, str]:
    """The files of a skill by their URIs; what is referred to tells whose it is."""
    return {skill_uri(name): BODY.format(name=name), f"skill://{name}/references/MORE.md": f"more of {server}"}


def entry_of(name: str, files: Mapping[str, str]) -> Json:
    """A skill as it is listed."""
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
    more: Mapping[str, Json] | None = None,
    directories: bool = True,
    tale: str = "",
    silent: Sequence[str] = (),
) -> Json:
    """A server with some skills, whose files it lists as resources too, and with entries that it is told to have."""
    files = {skill: files_of(skill, name) for skill in skills}
    entries = {skill_uri(skill): entry_of(skill, found) for skill, found in files.items()} | dict(more or {})
    texts = {uri: text for found in files.values() for uri, text in found.items()}
    resources = [
        {"uri": skill_uri(skill), "name": skill, "description": f"How to {skill}", "mimeType": "text/markdown"}
        for skill in skills
    ]
    folders: Json = {}
    for skill in skills:
        below = {"uri": f"skill://{skill}/references", "name": "references", "mimeType": "inode/directory"}
        top = [resource for resource in resources if resource["name"] == skill]
        folders[f"skill://{skill}"] = {"resources": [*top, below]}
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
