"""Skills of servers (SEP-2640): listed together, whole, and read from anyone who has them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.interaction.relay.clients import AnswerError, Json, WireClient, named_resources, proxy_client, scripted_entry
from tests.interaction.relay.eras import by_era, by_eras
from tests.interaction.relay.skills import EXTENSION, entry_of, files_of, skill_server, skill_uri

pytestmark = pytest.mark.anyio

OTHER = scripted_entry("other", answers={"resources/list": {"resources": named_resources("memo://x")}})


async def skills(client: WireClient) -> dict[str, Json]:
    """What is listed by its URI, as it is but for whose it is."""
    listed = (await client.request("skills/list"))["skills"]
    return {skill["uri"]: {key: value for key, value in skill.items() if key != "_meta"} for skill in listed}


async def verified(client: WireClient, skill: Json) -> list[str]:
    """The texts of all files of a skill, each of which is what the skill says it is."""
    texts: list[str] = []
    for file in skill["resources"]:
        (contents,) = (await client.request("resources/read", {"uri": file["uri"]}))["contents"]
        text: str = contents["text"]
        assert contents["uri"] == file["uri"]
        assert file["digest"] == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        assert file["size"] == len(text.encode())
        texts.append(text)
    return texts


async def refused(client: WireClient, method: str, uri: str) -> str:
    with pytest.raises(AnswerError) as refusal:
        await client.request(method, {"uri": uri})
    assert refusal.value.error["code"] == -32602
    return refusal.value.error["message"]


@pytest.mark.requirement("skills.relayed")
@by_eras
async def test_the_skills_of_all_servers_are_one_list_and_come_as_they_are(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    servers = {
        "a": skill_server("a", upstream_era, "sew", "knit"),
        "b": skill_server("b", upstream_era, "bake"),
        "other": OTHER,
    }
    async with proxy_client(tmp_path, servers, client_era) as client:
        listed = await skills(client)
        for server, name in (("a", "sew"), ("a", "knit"), ("b", "bake")):
            entry = entry_of(name, files_of(name, server))
            assert listed[skill_uri(name)] == entry
            got = (await client.request("skills/get", {"uri": skill_uri(name)}))["skill"]
            assert got.pop("_meta")["coretools-mcp/upstream"] == {"server": server}
            assert got == entry
            assert (await verified(client, entry))[1] == f"more of {server}"
        assert len(listed) == 3


@pytest.mark.requirement("skills.relayed")
async def test_no_file_of_a_skill_is_read_before_a_client_wants_it(tmp_path: Path) -> None:
    tale = tmp_path / "tale"
    servers = {"a": skill_server("a", "modern", "sew", tale=str(tale)), "other": OTHER}
    async with proxy_client(tmp_path, servers, "modern") as client:
        assert set(await skills(client)) == {skill_uri("sew")}
        await client.request("skills/get", {"uri": skill_uri("sew")})
    assert {"skills/list", "skills/get"} <= set(tale.read_text().splitlines())
    assert "resources/read" not in tale.read_text()


@pytest.mark.requirement("skills.relayed")
@by_era
async def test_folders_of_skills_are_read_from_whoever_has_them(era: str, tmp_path: Path) -> None:
    servers = {"a": skill_server("a", era, "sew"), "b": skill_server("b", era, "bake"), "other": OTHER}
    async with proxy_client(tmp_path, servers, era) as client:
        await skills(client)
        for name in ("sew", "bake"):
            folder = (await client.request("resources/directory/read", {"uri": f"skill://{name}"}))["resources"]
            assert [each["uri"] for each in folder] == [skill_uri(name), f"skill://{name}/references"]
            inner = (await client.request("resources/directory/read", {"uri": folder[1]["uri"]}))["resources"]
            assert [each["uri"] for each in inner] == [f"skill://{name}/references/MORE.md"]


@pytest.mark.requirement("skills.collisions")
@by_eras
async def test_two_skills_of_one_name_are_told_apart_with_all_their_files(
    client_era: str, upstream_era: str, tmp_path: Path
) -> None:
    short = entry_of("sew", {skill_uri("sew"): files_of("sew", "b")[skill_uri("sew")]})
    servers = {
        "a": skill_server("a", upstream_era, "sew", "knit"),
        "b": skill_server("b", upstream_era, "sew", extra_entries={skill_uri("sew"): short}),
    }
    async with proxy_client(tmp_path, servers, client_era) as client:
        listed = await skills(client)
        assert set(listed) == {"a+skill://sew/SKILL.md", "b+skill://sew/SKILL.md", skill_uri("knit")}
        mine = listed["a+skill://sew/SKILL.md"]
        assert [file["uri"] for file in mine["resources"]] == [
            "a+skill://sew/SKILL.md",
            "a+skill://sew/references/MORE.md",
        ]
        assert (await verified(client, mine))[1] == "more of a"
        assert len(await verified(client, listed["b+skill://sew/SKILL.md"])) == 1
        got = (await client.request("skills/get", {"uri": mine["uri"]}))["skill"]
        assert got["resources"] == mine["resources"]
        folder = (await client.request("resources/directory/read", {"uri": "a+skill://sew"}))["resources"]
        assert folder[0]["uri"] == mine["uri"]
        for method in ("skills/get", "resources/read"):
            said = await refused(client, method, skill_uri("sew"))
            assert "a+skill://sew/SKILL.md or b+skill://sew/SKILL.md" in said


@pytest.mark.requirement("skills.refused")
@by_era
async def test_what_is_no_skill_or_no_folder_is_refused_and_nobody_without_skills_is_asked(
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
        assert set(await skills(client)) == {skill_uri("sew")}
        for uri in ("memo://x", "skill://nothing/SKILL.md", "", "file:///x", "other+skill://x/SKILL.md"):
            assert await refused(client, "skills/get", uri)
        assert "No server has" in await refused(client, "resources/directory/read", "skill://sew")
        with pytest.raises(AnswerError):
            await client.request("skills/get", {"uri": 7})
    assert "skills" not in tale.read_text()


@pytest.mark.requirement("skills.refused")
async def test_odd_skills_pass_and_what_has_no_uri_is_left_out(tmp_path: Path) -> None:
    dynamic: Json = {
        "uri": skill_uri("now"),
        "frontmatter": {"name": "now", "description": "d"},
        "resources": "dynamic",
    }
    odd: Json = {"uri": "skill://odd/SKILL.md", "frontmatter": 7, "resources": [3, {"uri": 4}, {"digest": "x"}, None]}
    more: dict[str, Json] = {"now": dynamic, "odd": odd, "none": {"frontmatter": {}}, "seven": {"uri": 7}}
    servers = {
        "a": skill_server("a", "handshake", "sew", extra_entries=more),
        "b": skill_server("b", "handshake", "sew"),
    }
    async with proxy_client(tmp_path, servers, "handshake") as client:
        listed = await skills(client)
        assert listed[skill_uri("now")] == dynamic
        assert listed["skill://odd/SKILL.md"] == odd
        assert set(listed) == {f"{name}+{skill_uri('sew')}" for name in "ab"} | {dynamic["uri"], odd["uri"]}


@pytest.mark.requirement("extensions.announced")
@by_era
async def test_what_is_relayed_is_announced_where_there_are_servers(era: str, tmp_path: Path) -> None:
    async with proxy_client(tmp_path, {"a": skill_server("a", era, "sew")}, era) as client:
        announced = client.handshake["capabilities"]["extensions"]
        assert announced[EXTENSION] == {"directoryRead": True}
        assert announced["io.modelcontextprotocol/ui"] == {}
    async with proxy_client(tmp_path, {}, era, settings={"tools": {"builtIn": True}}) as client:
        assert "extensions" not in client.handshake["capabilities"]


UI = {"mimeTypes": ["text/html;profile=mcp-app"], "x-unknown": {"a": 1}}
DECLARED: list[tuple[Json, Json | None]] = [
    ({}, None),
    ({"io.modelcontextprotocol/ui": UI}, {"io.modelcontextprotocol/ui": UI}),
    ({"io.modelcontextprotocol/ui": UI, "example.org/other": {"x": 1}}, {"io.modelcontextprotocol/ui": UI}),
    ({"example.org/other": {}}, None),
    ({"IO.MODELCONTEXTPROTOCOL/UI": {}, "": {}}, None),
]


@pytest.mark.requirement("extensions.declared")
@by_eras
@pytest.mark.parametrize(("declared", "passed"), DECLARED)
async def test_what_a_client_declares_and_we_relay_is_declared_to_servers(
    client_era: str, upstream_era: str, declared: Json, passed: Json | None, tmp_path: Path
) -> None:
    tools = {"tools": [{"name": "told", "inputSchema": {"type": "object"}}]}
    servers = {"a": scripted_entry("a", upstream_era, answers={"tools/list": tools})}
    capabilities = {"extensions": declared} if declared else {}
    async with proxy_client(tmp_path, servers, client_era, capabilities=capabilities) as client:
        told = await client.call_and_parse("a__told")
        meta = told["params"].get("_meta", {})
        stamped = meta.get("io.modelcontextprotocol/clientCapabilities")
        got = told["welcome"]["capabilities"] if upstream_era == "handshake" else stamped
        assert got.get("extensions") == passed
