"""Skills as a client has them: listed with the tool that loads them, loaded, and their files read."""

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


def skill(base: Path, name: str) -> Path:
    main = base / ".claude" / "skills" / name / "SKILL.md"
    main.parent.mkdir(parents=True)
    main.write_text(f"---\nname: {name}\ndescription: How to {name} cloth.\n---\nText of {name}.\n")
    (main.parent / "more.md").write_text(f"more of {name}\n")
    return main


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@asynccontextmanager
async def served(
    era: str, root: Path, home: Path, settings: dict[str, Any] | None = None, **callbacks: Any
) -> AsyncGenerator[Client]:
    """A client of a server whose user has this home."""
    overrides = {"workspace": {"roots": [str(root)]}, **(settings or {})}
    app = App(load_settings([], overrides, {**own_state(), "HOME": str(home)}, folder=str(root)), "stdio")
    async with app.running():
        if era in HANDSHAKES:
            async with speaking(era, in_process(app), **callbacks) as client:
                yield client
        else:
            async with Client(in_process(app), mode=era, cache=None, **callbacks) as client:
                yield client


async def told(client: Client) -> str | None:
    """What the list of tools says of skills; `None` where the tool is not listed."""
    tools = (await client.list_tools()).tools
    return next((tool.description for tool in tools if tool.name == "skill"), None)


@pytest.mark.requirement("skills.loaded")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_skill_of_the_home_is_loaded_and_from_then_on_its_files_are_read(
    era: str, root: Path, home: Path
) -> None:
    async with served(era, root, home) as client:
        assert await told(client) is None
        main = skill(home, "sew")
        (home / "secret.txt").write_text("x")
        assert "- sew: How to sew cloth." in str(await told(client))
        more = str(main.parent / "more.md")
        assert (await client.call_tool("read_file", {"file_path": more})).is_error
        loaded = await client.call_tool("activate_skill", {"name": "sew"})
        assert "Text of sew." in text_of(loaded)
        assert "more.md" in text_of(loaded)
        assert "more of sew" in text_of(await client.call_tool("read_file", {"file_path": more}))
        written = await client.call_tool("write_file", {"file_path": more, "content": "x"})
        assert written.is_error
        assert (await client.call_tool("read_file", {"file_path": str(home / "secret.txt")})).is_error


@pytest.mark.requirement("skills.trust")
async def test_a_person_trusts_the_skills_of_a_workspace(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = skill(root, "knit")
    async with served(HANDSHAKE, root, home) as client:
        assert await told(client) is None
        refused = await client.call_tool("skill", {"skill": "knit"})
        assert "coretools-mcp trust" in text_of(refused)
        assert trust_command.add(str(root), {"HOME": str(home), **own_state()}, is_sure=True) == 0
        assert "skill knit to models: How to knit cloth." in capsys.readouterr().out
        assert "- knit:" in str(await told(client))
        assert "Text of knit." in text_of(await client.call_tool("skill", {"skill": "knit"}))
        main.write_text(main.read_text() + "Do something else.\n")
        assert await told(client) is None


@pytest.mark.requirement("skills.relayed_to_the_tool")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_skills_of_other_servers_are_loaded_and_found_like_those_of_folders(
    era: str, root: Path, home: Path
) -> None:
    skill(home, "sew")
    servers = settings_for_call_style({"mcpServers": {"a": skill_server("a", "modern", "sew", "bake")}})["mcpServers"]
    async with served(era, root, home, {"mcpServers": servers, "proxy": {"search": "on"}}) as client:
        about = str(await told(client))
        assert "- sew: How to sew cloth." in about
        assert "- bake:" in about
        loaded = text_of(await client.call_tool("skill", {"skill": "bake"}))
        assert BODY.format(name="bake").strip() in loaded
        assert skill_uri("bake").replace("SKILL.md", "references/MORE.md") in loaded
        assert "is not used: the skill" in text_of(await client.call_tool("skill", {"skill": "gone"}))
        found = await client.call_tool("search_tools", {"query": "sew some cloth"})
        assert "sew: How to sew cloth." in text_of(found)


@pytest.mark.requirement("skills.relayed_to_the_tool")
async def test_servers_are_asked_for_their_skills_only_for_a_name_that_is_not_known(
    root: Path, home: Path, tmp_path: Path
) -> None:
    skill(home, "sew")
    tale = tmp_path / "tale"
    servers = settings_for_call_style({"mcpServers": {"a": skill_server("a", "modern", "bake", tale=str(tale))}})[
        "mcpServers"
    ]
    async with served(HANDSHAKE, root, home, {"mcpServers": servers}) as client:
        assert "- bake:" in str(await told(client))
        for name in ("sew", "bake"):
            assert not (await client.call_tool("skill", {"skill": name})).is_error
        assert tale.read_text().count("skills/list") == 1
        refused = text_of(await client.call_tool("skill", {"skill": "gone"}))
        assert tale.read_text().count("skills/list") == 2
        assert "is not used" not in refused


@pytest.mark.requirement("skills.relayed_to_the_tool")
async def test_a_server_that_does_not_list_its_skills_is_waited_for_once(
    root: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_and_prompt_router, "SKILLS_SECONDS", 0.2)
    tale = tmp_path / "tale"
    hung = skill_server("a", "modern", "bake", tale=str(tale), silent=["skills/list"])
    servers = settings_for_call_style({"mcpServers": {"a": hung, "b": skill_server("b", "modern", "cook")}})[
        "mcpServers"
    ]
    async with served(HANDSHAKE, root, home, {"mcpServers": servers}) as client:
        assert "- cook:" in str(await told(client))
        for _ in range(3):
            assert (await client.call_tool("skill", {"skill": "gone"})).is_error
            assert not (await client.call_tool("skill", {"skill": "cook"})).is_error
    assert tale.read_text().count("skills/list") == 2
