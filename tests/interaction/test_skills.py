"""Skills as a client sees them: the tool that loads them lists them, and then their files can be read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from server.app import App
from server.console import trust_command
from server.settings import load_settings
from server.upstreams import resource_and_prompt_router
from tests.harness import HANDSHAKE, HANDSHAKES, MODERN, own_state, speaking, text_of
from tests.in_process import in_process
from tests.interaction.relay.clients import settings_for_call_style
from tests.interaction.relay.skills import BODY, skill_server, skill_uri

pytestmark = pytest.mark.anyio


def write_skill(base: Path, name: str) -> Path:
    file = base / ".claude" / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"---\nname: {name}\ndescription: How to {name} cloth.\n---\nText of {name}.\n")
    (file.parent / "more.md").write_text(f"more of {name}\n")
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@asynccontextmanager
async def client_of(
    era: str, root: Path, home: Path, settings: dict[str, Any] | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """Yield a client of a server whose user has this home folder."""
    overrides = {"workspace": {"roots": [str(root)]}, **(settings or {})}
    app = App(load_settings([], overrides, {**own_state(), "HOME": str(home)}, folder=str(root)), "stdio")
    async with app.running():
        if era in HANDSHAKES:
            async with speaking(era, in_process(app), **callbacks) as client:
                yield client
        else:
            async with Client(in_process(app), mode=era, cache=None, **callbacks) as client:
                yield client


async def skill_listing(client: Client) -> str | None:
    """Return the description of the skill tool, which lists the skills, or `None` if the tool is not listed."""
    tools = (await client.list_tools()).tools
    return next((tool.description for tool in tools if tool.name == "skill"), None)


@pytest.mark.requirement("skills.loaded")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_skill_of_the_home_is_loaded_and_from_then_on_its_files_are_read(
    era: str, root: Path, home: Path
) -> None:
    async with client_of(era, root, home) as client:
        assert await skill_listing(client) is None
        skill_file = write_skill(home, "sew")
        (home / "secret.txt").write_text("x")
        assert "- sew: How to sew cloth." in str(await skill_listing(client))
        other_file = str(skill_file.parent / "more.md")
        assert (await client.call_tool("read_file", {"file_path": other_file})).is_error
        result = await client.call_tool("activate_skill", {"name": "sew"})
        assert "Text of sew." in text_of(result)
        assert "more.md" in text_of(result)
        assert "more of sew" in text_of(await client.call_tool("read_file", {"file_path": other_file}))
        write_result = await client.call_tool("write_file", {"file_path": other_file, "content": "x"})
        assert write_result.is_error
        assert (await client.call_tool("read_file", {"file_path": str(home / "secret.txt")})).is_error


@pytest.mark.requirement("skills.trust")
async def test_a_person_trusts_the_skills_of_a_workspace(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skill_file = write_skill(root, "knit")
    async with client_of(HANDSHAKE, root, home) as client:
        assert await skill_listing(client) is None
        refusal = await client.call_tool("skill", {"skill": "knit"})
        assert "coretools-mcp trust" in text_of(refusal)
        assert trust_command.add(str(root), {"HOME": str(home), **own_state()}, is_sure=True) == 0
        assert "skill knit to models: How to knit cloth." in capsys.readouterr().out
        assert "- knit:" in str(await skill_listing(client))
        assert "Text of knit." in text_of(await client.call_tool("skill", {"skill": "knit"}))
        skill_file.write_text(skill_file.read_text() + "Do something else.\n")
        assert await skill_listing(client) is None


@pytest.mark.requirement("skills.relayed_to_the_tool")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_skills_of_other_servers_are_loaded_and_found_like_those_of_folders(
    era: str, root: Path, home: Path
) -> None:
    write_skill(home, "sew")
    servers = settings_for_call_style({"mcpServers": {"a": skill_server("a", "modern", "sew", "bake")}})["mcpServers"]
    async with client_of(era, root, home, {"mcpServers": servers, "proxy": {"search": "on"}}) as client:
        listing = str(await skill_listing(client))
        assert "- sew: How to sew cloth." in listing
        assert "- bake:" in listing
        text = text_of(await client.call_tool("skill", {"skill": "bake"}))
        assert BODY.format(name="bake").strip() in text
        assert skill_uri("bake").replace("SKILL.md", "references/MORE.md") in text
        assert "is not used: the skill" in text_of(await client.call_tool("skill", {"skill": "gone"}))
        matches = await client.call_tool("search_tools", {"query": "sew some cloth"})
        assert "sew: How to sew cloth." in text_of(matches)


@pytest.mark.requirement("skills.relayed_to_the_tool")
async def test_servers_are_asked_for_their_skills_only_for_a_name_that_is_not_known(
    root: Path, home: Path, tmp_path: Path
) -> None:
    write_skill(home, "sew")
    request_log = tmp_path / "tale"
    servers = settings_for_call_style(
        {"mcpServers": {"a": skill_server("a", "modern", "bake", tale=str(request_log))}}
    )["mcpServers"]
    async with client_of(HANDSHAKE, root, home, {"mcpServers": servers}) as client:
        assert "- bake:" in str(await skill_listing(client))
        for name in ("sew", "bake"):
            assert not (await client.call_tool("skill", {"skill": name})).is_error
        assert request_log.read_text().count("skills/list") == 1
        refusal = text_of(await client.call_tool("skill", {"skill": "gone"}))
        assert request_log.read_text().count("skills/list") == 2
        assert "is not used" not in refusal


@pytest.mark.requirement("skills.relayed_to_the_tool")
async def test_a_server_that_does_not_list_its_skills_is_waited_for_once(
    root: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_and_prompt_router, "SKILLS_SECONDS", 0.2)
    request_log = tmp_path / "tale"
    silent_server = skill_server("a", "modern", "bake", tale=str(request_log), silent=["skills/list"])
    servers = settings_for_call_style({"mcpServers": {"a": silent_server, "b": skill_server("b", "modern", "cook")}})[
        "mcpServers"
    ]
    async with client_of(HANDSHAKE, root, home, {"mcpServers": servers}) as client:
        assert "- cook:" in str(await skill_listing(client))
        for _ in range(3):
            assert (await client.call_tool("skill", {"skill": "gone"})).is_error
            assert not (await client.call_tool("skill", {"skill": "cook"})).is_error
    assert request_log.read_text().count("skills/list") == 2
