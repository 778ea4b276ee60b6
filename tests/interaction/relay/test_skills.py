"""Skills of servers (SEP-2640): they are listed together and unchanged, and their files are read from their servers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.interaction.relay.clients import AnswerError, Json, WireClient, named_resources, proxy_client, scripted_entry
from tests.interaction.relay.eras import by_era, by_eras
from tests.interaction.relay.skills import EXTENSION, entry_of, files_of, skill_server, skill_uri

pytestmark = pytest.mark.anyio

OTHER_ENTRY = scripted_entry("other", answers={"resources/list": {"resources": named_resources("memo://x")}})


async def list_skills(client: WireClient) -> dict[str, Json]:
    """List the skills by their URIs, without the metadata that names their servers."""
    listed_skills = (await client.request("skills/list"))["skills"]
    return {skill["uri"]: {key: value for key, value in skill.items() if key != "_meta"} for skill in listed_skills}


async def read_verified(client: WireClient, skill: Json) -> list[str]:
    """Read all files of a skill, check their digests and sizes, and return their texts."""
    texts: list[str] = []
    for file in skill["resources"]:
        (contents,) = (await client.request("resources/read", {"uri": file["uri"]}))["contents"]
        text: str = contents["text"]
        assert contents["uri"] == file["uri"]
        assert file["digest"] == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        assert file["size"] == len(text.encode())
        texts.append(text)
    return texts


async def refusal_message(client: WireClient, method: str, uri: str) -> str:
    with pytest.raises(AnswerError) as error_info:
        await client.request(method, {"uri": uri})
    assert error_info.value.error["code"] == -32602
    return error_info.value.error["message"]


@pytest.mark.requirement("skills.relayed")
@by_eras
async def test_the_skills_of_all_servers_are_in_one_list_and_unchanged(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    servers = {
        "a": skill_server("a", upstream_era, "sew", "knit"),
        "b": skill_server("b", upstream_era, "bake"),
        "other": OTHER_ENTRY,
    }
    async with proxy_client(tmp_path, servers, client_era) as client:
        skills = await list_skills(client)
        for server, name in (("a", "sew"), ("a", "knit"), ("b", "bake")):
            entry = entry_of(name, files_of(name, server))
            assert skills[skill_uri(name)] == entry
            skill = (await client.request("skills/get", {"uri": skill_uri(name)}))["skill"]
            assert skill.pop("_meta")["coretools-mcp/upstream"] == {"server": server}
            assert skill == entry
            assert (await read_verified(client, entry))[1] == f"more of {server}"
        assert len(skills) == 3


@pytest.mark.requirement("skills.relayed")
async def test_no_file_of_a_skill_is_read_before_a_client_wants_it(tmp_path: Path) -> None:
    tale = tmp_path / "tale"
    servers = {"a": skill_server("a", "modern", "sew", tale=str(tale)), "other": OTHER_ENTRY}
    async with proxy_client(tmp_path, servers, "modern") as client:
        assert set(await list_skills(client)) == {skill_uri("sew")}
        await client.request("skills/get", {"uri": skill_uri("sew")})
    assert {"skills/list", "skills/get"} <= set(tale.read_text().splitlines())
    assert "resources/read" not in tale.read_text()


@pytest.mark.requirement("skills.relayed")
@by_era
async def test_folders_of_skills_are_read_from_the_server_that_has_them(era: str, tmp_path: Path) -> None:
    servers = {"a": skill_server("a", era, "sew"), "b": skill_server("b", era, "bake"), "other": OTHER_ENTRY}
    async with proxy_client(tmp_path, servers, era) as client:
        await list_skills(client)
        for name in ("sew", "bake"):
            folder = (await client.request("resources/directory/read", {"uri": f"skill://{name}"}))["resources"]
            assert [resource["uri"] for resource in folder] == [skill_uri(name), f"skill://{name}/references"]
            inner = (await client.request("resources/directory/read", {"uri": folder[1]["uri"]}))["resources"]
            assert [resource["uri"] for resource in inner] == [f"skill://{name}/references/MORE.md"]


@pytest.mark.requirement("skills.collisions")
@by_eras
async def test_two_skills_with_one_name_are_told_apart_with_all_their_files(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    short_entry = entry_of("sew", {skill_uri("sew"): files_of("sew", "b")[skill_uri("sew")]})
    servers = {
        "a": skill_server("a", upstream_era, "sew", "knit"),
        "b": skill_server("b", upstream_era, "sew", extra_entries={skill_uri("sew"): short_entry}),
    }
    async with proxy_client(tmp_path, servers, client_era) as client:
        skills = await list_skills(client)
        assert set(skills) == {"a+skill://sew/SKILL.md", "b+skill://sew/SKILL.md", skill_uri("knit")}
        skill_of_a = skills["a+skill://sew/SKILL.md"]
        assert [file["uri"] for file in skill_of_a["resources"]] == [
            "a+skill://sew/SKILL.md",
            "a+skill://sew/references/MORE.md",
        ]
        assert (await read_verified(client, skill_of_a))[1] == "more of a"
        assert len(await read_verified(client, skills["b+skill://sew/SKILL.md"])) == 1
        fetched_skill = (await client.request("skills/get", {"uri": skill_of_a["uri"]}))["skill"]
        assert fetched_skill["resources"] == skill_of_a["resources"]
        folder = (await client.request("resources/directory/read", {"uri": "a+skill://sew"}))["resources"]
        assert folder[0]["uri"] == skill_of_a["uri"]
        for method in ("skills/get", "resources/read"):
            message = await refusal_message(client, method, skill_uri("sew"))
            assert "a+skill://sew/SKILL.md or b+skill://sew/SKILL.md" in message


@pytest.mark.requirement("skills.refused")
@by_era
async def test_unknown_skills_and_folders_are_refused_and_servers_without_skills_are_not_asked(
    era: str, tmp_path: Path
) -> None:
    tale = tmp_path / "tale"
    servers = {
        "a": skill_server("a", "handshake", "sew", directories=False),
        "other": scripted_entry(
            "other", answers={"resources/list": {"resources": named_resources("memo://x")}}, tale=str(tale)
        ),
    }
    async with proxy_client(tmp_path, servers, era) as client:
        assert set(await list_skills(client)) == {skill_uri("sew")}
        for uri in ("memo://x", "skill://nothing/SKILL.md", "", "file:///x", "other+skill://x/SKILL.md"):
            assert await refusal_message(client, "skills/get", uri)
        assert "No server has" in await refusal_message(client, "resources/directory/read", "skill://sew")
        with pytest.raises(AnswerError):
            await client.request("skills/get", {"uri": 7})
    assert "skills" not in tale.read_text()


@pytest.mark.requirement("skills.refused")
async def test_odd_skills_are_passed_on_and_those_without_a_uri_are_left_out(tmp_path: Path) -> None:
    dynamic_skill: Json = {
        "uri": skill_uri("now"),
        "frontmatter": {"name": "now", "description": "d"},
        "resources": "dynamic",
    }
    odd_skill: Json = {
        "uri": "skill://odd/SKILL.md",
        "frontmatter": 7,
        "resources": [3, {"uri": 4}, {"digest": "x"}, None],
    }
    extra_entries: dict[str, Json] = {
        "now": dynamic_skill,
        "odd": odd_skill,
        "none": {"frontmatter": {}},
        "seven": {"uri": 7},
    }
    servers = {
        "a": skill_server("a", "handshake", "sew", extra_entries=extra_entries),
        "b": skill_server("b", "handshake", "sew"),
    }
    async with proxy_client(tmp_path, servers, "handshake") as client:
        skills = await list_skills(client)
        assert skills[skill_uri("now")] == dynamic_skill
        assert skills["skill://odd/SKILL.md"] == odd_skill
        assert set(skills) == {f"{name}+{skill_uri('sew')}" for name in "ab"} | {dynamic_skill["uri"], odd_skill["uri"]}


@pytest.mark.requirement("extensions.announced")
@by_era
async def test_relayed_extensions_are_announced_only_if_there_are_servers(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"a": skill_server("a", era, "sew")}, era) as client:
        extensions = client.handshake["capabilities"]["extensions"]
        assert extensions[EXTENSION] == {"directoryRead": True}
        assert extensions["io.modelcontextprotocol/ui"] == {}
    async with proxy_client(tmp_path, {}, era, settings={"tools": {"builtIn": True}}) as client:
        assert "extensions" not in client.handshake["capabilities"]


UI = {"mimeTypes": ["text/html;profile=mcp-app"], "x-unknown": {"a": 1}}
DECLARATIONS: list[tuple[Json, Json | None]] = [
    ({}, None),
    ({"io.modelcontextprotocol/ui": UI}, {"io.modelcontextprotocol/ui": UI}),
    ({"io.modelcontextprotocol/ui": UI, "example.org/other": {"x": 1}}, {"io.modelcontextprotocol/ui": UI}),
    ({"example.org/other": {}}, None),
    ({"IO.MODELCONTEXTPROTOCOL/UI": {}, "": {}}, None),
]


@pytest.mark.requirement("extensions.declared")
@by_eras
@pytest.mark.parametrize(("extensions", "expected_extensions"), DECLARATIONS)
async def test_extensions_that_the_client_declares_are_declared_to_servers_if_they_are_relayed(
    client_era: str, upstream_era: str, extensions: Json, expected_extensions: Json | None, tmp_path: Path
) -> None:
    tools = {"tools": [{"name": "told", "inputSchema": {"type": "object"}}]}
    servers = {"a": scripted_entry("a", upstream_era, answers={"tools/list": tools})}
    capabilities = {"extensions": extensions} if extensions else {}
    async with proxy_client(tmp_path, servers, client_era, capabilities=capabilities) as client:
        result = await client.call_and_parse("a__told")
        meta = result["params"].get("_meta", {})
        request_capabilities = meta.get("io.modelcontextprotocol/clientCapabilities")
        upstream_capabilities = (
            result["welcome"]["capabilities"] if upstream_era == "handshake" else request_capabilities
        )
        assert upstream_capabilities.get("extensions") == expected_extensions
